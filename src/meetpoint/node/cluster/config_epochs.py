"""Something by which all nodes place things and look for them, and that is exchanged for another while they run.

It comes in *versions*, in an order that is the same everywhere: by epoch, then by digest. What a version says is bytes
here. A node *goes by* some of them: it places what its homes have under each, and looks under each. That one version
takes the place of another is agreed in three steps, and each is a fact that stays true once it is:

1. *known*: a version is told from node to node. Nobody goes by it yet.
2. *open*: every home has said that it knows the version, and none that is higher. Whoever learns that it is open goes
   by it too, beside those it went by before.
3. *the floor*: every home has said that it is done: whoever hosts it goes by the version, and all that the home has is
   placed under it, on two disks. Whoever learns this goes by nothing lower any more.

Invariant: all that serve go by the highest floor that any of them has. It became one when every home was done with it;
a home's own record says so wherever it is hosted next, and a node gives up a version only for a higher floor. So what
is placed and whoever looks have a version in common at any time, under which everything lies. What is given up stays
where it is for a while (`rendezvous.placing`), longer than a look that began before takes.

That every home has said so is as certain as a list of homes can be (`directory`): what homes say travels together with
the list of whoever tells it, whole. Who has heard all homes of its list has the lists that they had when they said it.
A home that is in none of these made itself known to its witnesses later, and learnt from them before it served. The
same goes for one that has moved, or come back without its disk: its epoch is another, and what it said before is void.

Several may propose versions at once: the highest counts, the others are never opened, or go when it is the floor. A
node that has one to propose waits until none is under way, and every home has said anything at all: a node of a release
that knows no versions says nothing, so that nothing changes while there is one. Once there is a version, such a node
is not let in (`admits`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final, TypeAlias

import msgspec

from meetpoint.api.ids import HomeId, Number
from meetpoint.api.limits import SECOND_US
from meetpoint.node.cluster.directory import Directory, Entry
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.records import LOCAL, Epoch, Record
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["BASE", "ConfigEpochs", "Rank", "Version"]

NOTE: Final = "versions"
"""The name of what is kept, by nodes and by homes."""
TICK_US: Final = SECOND_US
"""How often lists are compared while a version is under way."""
BYTES_MAX: Final = 384 << 10
"""How long all of it is together, at most: it travels in one message."""

Rank: TypeAlias = tuple[Number, bytes]
"""An epoch and a digest: the higher one counts."""


class Stage(IntEnum):
    """What a home has said of a version."""

    KNOWN = 1
    DONE = 2


class Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one version says."""

    epoch: Number
    body: bytes

    @property
    def rank(self) -> Rank:
        """Its place in the order of all."""
        return self.epoch, hashlib.blake2b(self.body, digest_size=8).digest() if self.epoch else b""


BASE: Final = Version(0, b"")
"""What every node goes by before it has heard of another."""

Word: TypeAlias = tuple[Epoch, Number, bytes, Stage]
"""What a home has said last: under which epoch of its own, of which version, and how far it is."""


class _Told(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """All that a node knows, as it travels and is kept; the lowest version is the floor."""

    versions: tuple[Version, ...]
    opened: tuple[Rank, ...]
    words: tuple[tuple[HomeId, Word], ...]
    given: bytes = b""
    """Only on disk: what was proposed here last, as its giver knows it."""


Settle: TypeAlias = Callable[[Home, Callable[[], None]], None]
"""Has all of a home placed under all versions that this node goes by; calls back when it is there."""
Make: TypeAlias = Callable[[bytes], bytes | None]
"""A version to propose, from the one that counts now; None where that is as good."""


class ConfigEpochs:
    """What one node knows of it, for one user: `changed` is called when it goes by others than before."""

    def __init__(
        self,
        services: Runtime,
        hosting: HomeManager,
        *,
        is_well: Callable[[bytes], bool],
        changed: Callable[[], None],
        settle: Settle,
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._directory: Directory = hosting.directory
        self._is_well = is_well
        self._changed = changed
        self._settle = settle
        self._known: dict[Rank, Version] = {BASE.rank: BASE}
        self._floor: Rank = BASE.rank
        self._opened: dict[Rank, None] = {}
        self._words: dict[HomeId, Word] = {}
        self._settling: dict[HomeId, tuple[Home, Rank]] = {}
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
        """The versions that this node goes by, the floor first."""
        return tuple(self._known[rank].body for rank in self._going_by())

    @property
    def known(self) -> tuple[bytes, ...]:
        """Those, and the latest, which may be one that nobody goes by yet."""
        return tuple(self._known[rank].body for rank in sorted(self._known))

    @property
    def is_changing(self) -> bool:
        """Whether a version is under way."""
        return self._latest() != self._floor

    def _going_by(self) -> tuple[Rank, ...]:
        return self._floor, *sorted(self._opened)

    def _latest(self) -> Rank:
        return max(self._known)

    # -- what lists are compared with (`directory.Rider`) --------------------------------------------------------------

    @property
    def digest(self) -> bytes:
        """Of all that is known: never empty, other than that of a node that knows no versions."""
        return hashlib.blake2b(self.pack(), digest_size=8).digest()

    def pack(self) -> bytes:
        """All that is known."""
        homes = self._directory.homes()
        words = tuple((home, self._words[home]) for home in homes if home in self._words)
        return msgspec.msgpack.encode(self._told(words))

    def admits(self, digest: bytes) -> bool:
        """Whether a node with this digest is answered: one that knows no versions only if there is none."""
        return bool(digest) or self._latest() == BASE.rank

    def learn(self, data: bytes) -> None:
        """Another node told what it knows, and its list of homes, which is merged by now."""
        if self._merge(data):
            self.review()

    def recover(self, records: Iterable[Record]) -> None:
        """Take back what was on disk."""
        for record in records:
            if record.name == NOTE and record.value is not None:
                self._writes = record.version
                self._given = msgspec.msgpack.decode(record.value, type=_Told).given
                self._merge(record.value, keep=False)

    def _told(self, words: tuple[tuple[HomeId, Word], ...] = (), given: bytes = b"") -> _Told:
        versions = tuple(self._known[rank] for rank in sorted(self._known))
        return _Told(versions, tuple(sorted(self._opened)), words, given)

    def _merge(self, data: bytes, *, keep: bool = True) -> bool:
        """Take what is new; whether anything is."""
        told = self._read(data)
        if told is None:
            return False
        before = self._floor, dict(self._known), dict(self._opened), dict(self._words)
        self._known.update((version.rank, version) for version in told.versions)
        self._opened.update((rank, None) for rank in told.opened)
        self._raise(max(self._floor, min(version.rank for version in told.versions)))
        for home, word in told.words:
            self._words[home] = max(self._words.get(home, word), word)
        if before == (self._floor, self._known, self._opened, self._words):
            return False
        if before[:3] != (self._floor, self._known, self._opened):
            if keep:
                self._keep(None)
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
            and all(version == BASE or (version.epoch and self._is_well(version.body)) for version in told.versions)
            and {version.rank for version in told.versions}.issuperset(told.opened)
        )
        if not well:
            self._services.observe("version_malformed")
        return told if well else None

    def _raise(self, floor: Rank) -> None:
        """A version is known to be a floor: what is lower counts no more, nor what is neither open nor the latest."""
        self._floor = floor
        self._opened = {rank: None for rank in self._opened if rank > floor}
        counting = {floor, *self._opened, self._latest()}
        self._known = {rank: version for rank, version in self._known.items() if rank in counting}

    def _go_by(self) -> None:
        going_by = self._going_by()
        if going_by != self._gone_by:
            self._gone_by = going_by
            self._changed()

    def _keep(self, then: Callable[[], None] | None) -> None:
        self._writes += 1
        value = msgspec.msgpack.encode(self._told(given=self._given))
        self._services.persist((Record(LOCAL, NOTE, self._writes, value),), (), then)

    # -- homes here ----------------------------------------------------------------------------------------------------

    def home_starts(self, home: Home) -> None:
        """A home is about to serve here: what it was done with, this node must go by."""
        self._settling.pop(home.id, None)
        record = home.keeper.records.get(NOTE)
        if record is not None and record.value is not None:
            self._merge(record.value)

    def review(self) -> None:
        """Something has changed: say what may be said, and take what steps may be taken."""
        self._again = True
        if self._reviewing:
            return
        self._reviewing = True
        while self._again:
            self._again = False
            self._propose()
            for home in list(self._hosting.homes.values()):
                self._bring_up(home)
            self._step()
        self._reviewing = False
        self._tick_if_needed()

    def _bring_up(self, home: Home) -> None:
        """Have a home say how far it is."""
        latest, word = self._latest(), self._words.get(home.id)
        known, done = self._word(home, latest, Stage.KNOWN), self._word(home, latest, Stage.DONE)
        if word == done:
            return
        if latest != self._floor and latest not in self._opened:
            if word is None or word < known:
                self._say(home, known)
        elif latest == BASE.rank:
            self._say(home, done)
        elif self._settling.get(home.id) != (home, latest):
            self._settling[home.id] = (home, latest)
            self._settle(home, lambda: self._settled(home, latest))

    def _settled(self, home: Home, rank: Rank) -> None:
        """All that a home has is placed: once that is on disks, it says so."""

        def is_so() -> bool:
            here = self._hosting.homes.get(home.id) is home
            return here and self._settling.get(home.id) == (home, rank) and self._latest() == rank

        def write() -> None:
            if is_so():
                home.keeper.write([(NOTE, msgspec.msgpack.encode(self._told()))], (), say)

        def say() -> None:
            if is_so():
                del self._settling[home.id]
                self._say(home, self._word(home, rank, Stage.DONE))
                self.review()

        if is_so():
            self._keep(write)

    def _word(self, home: Home, rank: Rank, stage: Stage) -> Word:
        return home.keeper.epoch, *rank, stage

    def _say(self, home: Home, word: Word) -> None:
        self._words[home.id] = word
        self._again = True

    def _step(self) -> None:
        """The next step with the latest version, if all homes have said what it takes."""
        latest = self._latest()
        if latest == self._floor or not self._hosting.homes:
            return
        stages = [self._stage(entry, latest) for entry in self._directory.entries() if not entry.gone]
        if latest in self._opened and all(stage is Stage.DONE for stage in stages):
            self._services.observe("version_floor")
            self._raise(latest)
        elif latest not in self._opened and None not in stages:
            self._services.observe("version_opened")
            self._opened[latest] = None
        else:
            return
        self._keep(None)
        self._go_by()
        self._again = True

    def _stage(self, entry: Entry, rank: Rank) -> Stage | None:
        """How far a home is with a version; what it said where it was before, or before it lost all, does not count."""
        word = self._words.get(entry.home)
        return word[3] if word is not None and word[:3] == (entry.epoch, *rank) else None

    # -- proposing -----------------------------------------------------------------------------------------------------

    def wish(self, given: bytes, make: Make) -> None:
        """Propose a version, when none is under way. What was given here before under the same name is no news.

        Should others propose one meanwhile, theirs counts: of several that are given at once one is enough.
        """
        if given != self._given:
            self._wish = (given, self._latest(), make)
            self.review()

    def _propose(self) -> None:
        homes = self._directory.homes()
        if self._wish is None or self.is_changing or not self._hosting.homes:
            return
        if not all(home in self._words for home in homes):
            return
        (self._given, known, make), self._wish = self._wish, None
        body = make(self._known[self._floor].body) if self._floor == known else None
        if body is not None:
            version = Version(self._floor[0] + 1, body)
            self._known[version.rank] = version
            self._services.observe("version_proposed")
        self._keep(None)

    # -- telling -------------------------------------------------------------------------------------------------------

    def _tick_if_needed(self) -> None:
        if not self._ticking and (self.is_changing or self._wish is not None):
            self._ticking = True
            self._services.after(TICK_US, self._tick)

    def _tick(self) -> None:
        self._ticking = False
        others = self._directory.others()
        if others and self._hosting.homes:
            self._directory.compare(self._services.random.choice(others), lambda _: None)
        self.review()

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self._floor == min(self._known)
        assert all(rank in self._known and rank > self._floor for rank in self._opened)
