"""Config epochs: settings by which all nodes place and look for things, exchanged for others while the nodes run.

Settings come in *versions*, in an order that is the same everywhere: by epoch, then by digest. To this module, the
content of a version is bytes. A node *goes by* some versions: it places what its homes have under each, and looks under
each. A version replaces another in three steps, and each is a fact that stays true once it is:

1. *known*: a version is told from node to node. No node goes by it yet.
2. *open*: every home has said that it knows the version, and none that is higher. A node that learns that it is open
   goes by it too, beside those it went by before.
3. *the floor*: every home has said that it is done: its host goes by the version, and all that the home has is placed
   under it, on two disks. A node that learns this goes by nothing lower any more.

Invariant: all that serve go by the highest floor that any of them has. It became one when every home was done with it;
a home's own record says so wherever it is hosted next, and a node gives up a version only for a higher floor. So
entries and lookups have a version in common at any time, under which everything is placed. What is given up stays where
it is for a while (`placement.RETAIN_US`), longer than a lookup that began before takes.

That every home has said so is as certain as a list of homes can be (`directory`): what homes say travels together with
the whole list of the node that tells it. A node that has heard all homes of its list has the lists that they had when
they said it. A home that is in none of these made itself known to its witnesses later, and learnt from them before it
served. The same goes for one that has moved, or come back without its disk: its epoch is another, and what it said
before is void.

Several nodes may propose versions at once: the highest counts, the others are never opened, or go when it is the floor.
A node that has one to propose waits until none is under way, and every home has said anything at all: a node of a
release that knows no versions says nothing, so that nothing changes while there is one. Once there is a version, such a
node is not let in (`admits`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

import msgspec

from meetpoint.api.ids import HomeId, Number
from meetpoint.api.limits import SECOND_US
from meetpoint.node.cluster.directory import Directory, Entry
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.records import LOCAL, Epoch, Record
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["BASE", "ConfigEpochs", "ConfigUser", "Rank", "Version"]

NOTE: Final = "versions"
"""The name of the record that nodes and homes keep."""
TICK_US: Final = SECOND_US
"""How often lists are compared while a version is under way."""
BYTES_MAX: Final = 384 << 10
"""How long all of it is together, at most: it travels in one message."""

Rank: TypeAlias = tuple[Number, bytes]
"""An epoch and a digest: the higher one counts."""


class Stage(IntEnum):
    """How far a home is with a version."""

    KNOWN = 1
    DONE = 2


class Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A version: its epoch and its content."""

    epoch: Number
    body: bytes

    @property
    def rank(self) -> Rank:
        """Its place in the order of all versions."""
        return self.epoch, hashlib.blake2b(self.body, digest_size=8).digest() if self.epoch else b""


BASE: Final = Version(0, b"")
"""The version that every node goes by before it has heard of another."""

Progress: TypeAlias = tuple[Epoch, Number, bytes, Stage]
"""How far a home is, as it said last: under its own epoch, with the version of an epoch and digest, at a stage."""


class _Told(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that a node knows, as it is sent and kept; the lowest version is the floor."""

    versions: tuple[Version, ...]
    opened: tuple[Rank, ...]
    progress: tuple[tuple[HomeId, Progress], ...]
    given: bytes = b""
    """Only on disk: the name under which a version was proposed here last."""


Make: TypeAlias = Callable[[bytes], bytes | None]
"""Makes a version to propose from the one that counts now; None where that is as good."""


class ConfigUser(Protocol):
    """The part of a node that goes by versions."""

    def is_well_formed(self, body: bytes) -> bool:
        """Return whether a version's content, maybe of a peer, can be read."""

    def versions_changed(self) -> None:
        """Go by other versions than before."""

    def place_all(self, home: Home) -> Signal[None]:
        """Place all of a home under all versions that this node goes by; set when it is there."""


class ConfigEpochs:
    """Knows the versions that one node has heard of, and takes them through their steps."""

    def __init__(self, runtime: Runtime, home_manager: HomeManager, user: ConfigUser) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._directory: Directory = home_manager.directory
        self._user = user
        self._known: dict[Rank, Version] = {BASE.rank: BASE}
        self._floor: Rank = BASE.rank
        self._opened: dict[Rank, None] = {}
        self._progress: dict[HomeId, Progress] = {}
        self._placing: dict[HomeId, tuple[Home, Rank]] = {}
        self._wish: tuple[bytes, Rank, Make] | None = None
        self._given = b""
        self._writes = 0
        self._reviewing = False
        self._again = False
        self._ticking = False
        self._gone_by: tuple[Rank, ...] = (BASE.rank,)

    # -- what it says --------------------------------------------------------------------------------------------------

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """The contents of the versions that this node goes by, the floor first."""
        return tuple(self._known[rank].body for rank in self._going_by())

    @property
    def known(self) -> tuple[bytes, ...]:
        """The same, and that of the latest, which may be one that no node goes by yet."""
        return tuple(self._known[rank].body for rank in sorted(self._known))

    @property
    def is_changing(self) -> bool:
        """Whether a version is under way."""
        return self._latest() != self._floor

    def _going_by(self) -> tuple[Rank, ...]:
        return self._floor, *sorted(self._opened)

    def _latest(self) -> Rank:
        return max(self._known)

    # -- what lists are compared with (`GossipPayload`) ----------------------------------------------------------------

    @property
    def digest(self) -> bytes:
        """Identifies all that is known; never empty, other than that of a node that knows no versions."""
        return hashlib.blake2b(self.pack(), digest_size=8).digest()

    def pack(self) -> bytes:
        """Return all that is known."""
        homes = self._directory.homes()
        progress = tuple((home, self._progress[home]) for home in homes if home in self._progress)
        return msgspec.msgpack.encode(self._told(progress))

    def admits(self, digest: bytes) -> bool:
        """Return whether a node with this digest is answered: one that knows no versions only if there is none."""
        return bool(digest) or self._latest() == BASE.rank

    def learn(self, data: bytes) -> None:
        """Add what another node knows; its list of homes is merged by now."""
        if self._merge(data):
            self.review()

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        for record in records:
            if record.name == NOTE and record.value is not None:
                self._writes = record.version
                self._given = msgspec.msgpack.decode(record.value, type=_Told).given
                self._merge(record.value, keep=False)

    def _told(self, progress: tuple[tuple[HomeId, Progress], ...] = (), given: bytes = b"") -> _Told:
        versions = tuple(self._known[rank] for rank in sorted(self._known))
        return _Told(versions, tuple(sorted(self._opened)), progress, given)

    def _merge(self, data: bytes, *, keep: bool = True) -> bool:
        """Take what is new; return whether anything is."""
        told = self._read(data)
        if told is None:
            return False
        before = self._floor, dict(self._known), dict(self._opened), dict(self._progress)
        self._known.update((version.rank, version) for version in told.versions)
        self._opened.update((rank, None) for rank in told.opened)
        self._raise(max(self._floor, min(version.rank for version in told.versions)))
        for home, said in told.progress:
            self._progress[home] = max(self._progress.get(home, said), said)
        if before == (self._floor, self._known, self._opened, self._progress):
            return False
        if before[:3] != (self._floor, self._known, self._opened):
            if keep:
                self._keep()
            self._go_by()
        return True

    def _read(self, data: bytes) -> _Told | None:
        try:
            told = msgspec.msgpack.decode(data, type=_Told)
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = None
        well = (
            told is not None
            and len(data) <= BYTES_MAX
            and bool(told.versions)
            and all(
                version == BASE or (version.epoch and self._user.is_well_formed(version.body))
                for version in told.versions
            )
            and {version.rank for version in told.versions}.issuperset(told.opened)
        )
        if not well:
            self._runtime.observe("version_malformed")
        return told if well else None

    def _raise(self, floor: Rank) -> None:
        """Raise the floor: what is lower counts no more, nor what is neither open nor the latest."""
        self._floor = floor
        self._opened = {rank: None for rank in self._opened if rank > floor}
        counting = {floor, *self._opened, self._latest()}
        self._known = {rank: version for rank, version in self._known.items() if rank in counting}

    def _go_by(self) -> None:
        going_by = self._going_by()
        if going_by != self._gone_by:
            self._gone_by = going_by
            self._user.versions_changed()

    def _keep(self) -> Signal[None]:
        self._writes += 1
        value = msgspec.msgpack.encode(self._told(given=self._given))
        return self._runtime.persist((Record(LOCAL, NOTE, self._writes, value),))

    # -- homes here ----------------------------------------------------------------------------------------------------

    def home_starts(self, home: Home) -> None:
        """Go by the version that a home was done with, which is about to serve here."""
        self._placing.pop(home.id, None)
        record = home.replicator.records.get(NOTE)
        if record is not None and record.value is not None:
            self._merge(record.value)

    def review(self) -> None:
        """Say of homes here what may be said by now, and take what steps may be taken."""
        self._again = True
        if self._reviewing:
            return
        self._reviewing = True
        while self._again:
            self._again = False
            self._propose()
            for home in list(self._home_manager.homes.values()):
                self._advance(home)
            self._step()
        self._reviewing = False
        self._tick_if_needed()

    def _advance(self, home: Home) -> None:
        """Have a home say how far it is; place all of it under a version that is open."""
        latest, progress = self._latest(), self._progress.get(home.id)
        known, done = self._progress_of(home, latest, Stage.KNOWN), self._progress_of(home, latest, Stage.DONE)
        if progress == done:
            return
        if latest != self._floor and latest not in self._opened:
            if progress is None or progress < known:
                self._say(home, known)
        elif latest == BASE.rank:
            self._say(home, done)
        elif self._placing.get(home.id) != (home, latest):
            self._placing[home.id] = (home, latest)
            self._runtime.start("place a home under a version", self._place(home, latest), home.id)

    async def _place(self, home: Home, rank: Rank) -> None:
        """Have all of a home placed; once that is on disks, say so."""
        await self._user.place_all(home)
        if self._is_placing(home, rank):
            await self._keep()
        if self._is_placing(home, rank):
            await home.replicator.commit([(NOTE, msgspec.msgpack.encode(self._told()))])
        if self._is_placing(home, rank):
            del self._placing[home.id]
            self._say(home, self._progress_of(home, rank, Stage.DONE))
            self.review()

    def _is_placing(self, home: Home, rank: Rank) -> bool:
        here = self._home_manager.homes.get(home.id) is home
        return here and self._placing.get(home.id) == (home, rank) and self._latest() == rank

    def _progress_of(self, home: Home, rank: Rank, stage: Stage) -> Progress:
        return home.replicator.epoch, *rank, stage

    def _say(self, home: Home, progress: Progress) -> None:
        self._progress[home.id] = progress
        self._again = True

    def _step(self) -> None:
        """Take the next step with the latest version, if all homes have said what it takes."""
        latest = self._latest()
        if latest == self._floor or not self._home_manager.homes:
            return
        stages = [self._stage(entry, latest) for entry in self._directory.entries() if not entry.gone]
        if latest in self._opened and all(stage is Stage.DONE for stage in stages):
            self._runtime.observe("version_floor")
            self._raise(latest)
        elif latest not in self._opened and None not in stages:
            self._runtime.observe("version_opened")
            self._opened[latest] = None
        else:
            return
        self._keep()
        self._go_by()
        self._again = True

    def _stage(self, entry: Entry, rank: Rank) -> Stage | None:
        """Return how far a home is with a version; what it said in an epoch before does not count."""
        progress = self._progress.get(entry.home)
        return progress[3] if progress is not None and progress[:3] == (entry.epoch, *rank) else None

    # -- proposing -----------------------------------------------------------------------------------------------------

    def wish(self, given: bytes, make: Make) -> None:
        """Propose a version, when none is under way; one that was given under the same name before is no news.

        Should others propose one meanwhile, theirs counts: of several that are given at once one is enough.
        """
        if given != self._given:
            self._wish = (given, self._latest(), make)
            self.review()

    def _propose(self) -> None:
        homes = self._directory.homes()
        if self._wish is None or self.is_changing or not self._home_manager.homes:
            return
        if not all(home in self._progress for home in homes):
            return
        (self._given, known, make), self._wish = self._wish, None
        body = make(self._known[self._floor].body) if self._floor == known else None
        if body is not None:
            version = Version(self._floor[0] + 1, body)
            self._known[version.rank] = version
            self._runtime.observe("version_proposed")
        self._keep()

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tick_if_needed(self) -> None:
        if not self._ticking and (self.is_changing or self._wish is not None):
            self._ticking = True
            self._runtime.after(TICK_US, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        others = self._directory.others()
        if others and self._home_manager.homes:
            self._directory.compare(self._runtime.random.choice(others))
        self.review()

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self._floor == min(self._known)
        assert all(rank in self._known and rank > self._floor for rank in self._opened)
