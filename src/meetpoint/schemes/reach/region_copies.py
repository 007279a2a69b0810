"""Copies up the tree: a node that hands many duties to a busy place copies what lies there, and serves it itself.

After paper C, section 4.4. A home that many duties come to says so in its answers. A node that handed it one asks for a
copy of the region around its head, page by page, and from then on serves that region, and hands on what is below, as
the home would. The answer says who answered, and for which homes.

A copy is good for the time of a lease (`leases`), and is kept while it is used. An entry that is placed in the region
is told to all who have copies, and acknowledged when they have it, or their leases are over: so a copy that is good has
everything that was acknowledged. An entry that is withdrawn stays in copies until their leases are over: they are not
renewed then, but asked for anew; homes check what comes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.dissemination.fanout import when_all
from meetpoint.placement.entries.entry_table import EntryListener, Item
from meetpoint.placement.entries.leases import holder_us
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.reach.entries import IdTable, IdTables, read_entry
from meetpoint.schemes.reach.ids import Cube
from meetpoint.schemes.reach.leases import RegionLease, RegionLeases
from meetpoint.schemes.reach.messages import CopyReply, CopyRequest, CopyUpdate, CopyUpdateAck, PackedRegion

__all__ = ["COPY_MAX", "RegionCopies", "RegionCopy"]


COPY_MAX: Final = 1_000
"""Entries of a region that is copied."""
PAGE_MAX: Final = 200
PAGE_BYTES_MAX: Final = 128 << 10
COPIES_MAX: Final = 64
"""Copies that a node has."""
PAUSE_US: Final = 5 * SECOND_US
"""How long a copy that was not to be had is not asked for again."""
PAUSED_MAX: Final = 1_024
TIMEOUT_US: Final = SECOND_US
WINDOW_US: Final = 2 * SECOND_US
"""How long a window is in which duties are counted."""
USES: Final = 2
"""How often a copy must have been used to be kept."""
NUMBER_MAX: Final = 1 << 60


class _Rate:
    """Duties of one home, in this window and in the last."""

    __slots__ = ("before", "count", "since")

    def __init__(self, now: int) -> None:
        self.since = now
        self.count = 0
        self.before = 0

    def begin_window(self, now: int) -> None:
        """Begin another window, when this one is over."""
        if now - self.since >= WINDOW_US:
            self.before = self.count if now - self.since < 2 * WINDOW_US else 0
            self.count = 0
            self.since = now


class RegionCopy:
    """A copy of what lies in a region; good while `until` is not over and nothing is lacking."""

    __slots__ = ("asked_at", "asking", "home", "number", "peer", "region", "spoilt", "table", "until", "us", "uses")

    def __init__(self, region: Region, home: HomeId, peer: Peer, asked_at: int) -> None:
        self.region = region
        self.home = home
        self.peer = peer
        self.table = IdTable()
        self.number: int | None = None
        self.asked_at = asked_at
        self.asking = True
        self.spoilt = False
        self.until = 0
        self.us = 0
        self.uses = 0


class RegionCopies(EntryListener):
    """The copies that one node has, and those that it has given."""

    def __init__(
        self,
        runtime: Runtime,
        ownership: Ownership,
        cube: Cube,
        tables: IdTables,
        lease_us: int,
        busy_per_s: float,
    ) -> None:
        self._runtime = runtime
        self._ownership = ownership
        self._cube = cube
        self._tables = tables
        self._lease_us = lease_us
        self._busy_above = busy_per_s * WINDOW_US / SECOND_US
        self._life = runtime.random.getrandbits(48)
        self._granted = RegionLeases(runtime, lease_us)
        self._untold: dict[int, int] = {}  # by lease, how many entries its copy may lack
        self._rates: dict[HomeId, _Rate] = {}
        self._copies: dict[Region, RegionCopy] = {}
        self._paused: dict[Region, int] = {}

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about copies."""
        return {CopyRequest: self._copy_request, CopyUpdate: self._copy_update}  # type: ignore[dict-item]

    # -- what Ownership tells ------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Note that a home owns other ranges: what came with them is in no copy, so that no copy is renewed."""
        self._granted.began(home, owed_us)
        for lease in self._granted.all():
            lease.ended = True

    def owed_us(self, home: HomeId) -> int:
        """Return how long others may still rely on copies from here."""
        return self._granted.owed_us(home)

    def ended(self, home: HomeId) -> None:
        """Forget a home that is not here any more."""
        self._granted.ended(home)
        self._rates.pop(home, None)

    def removed(self, home: HomeId, name: str, item: Item[int]) -> None:
        """Note that an entry is gone from a home here: copies that have it are not renewed."""
        for lease in self._granted.all():
            if lease.region.hosts(item.read.place):
                lease.ended = True

    # -- being busy ----------------------------------------------------------------------------------------------------

    def served(self, home: HomeId, region: Region) -> None:
        """Count a duty of another node that was served at a region of a home here."""
        rate = self._rates.get(home)
        if rate is None:
            rate = self._rates[home] = _Rate(self._runtime.now)
        rate.begin_window(self._runtime.now)
        rate.count += 1

    def is_busy(self, home: HomeId) -> bool:
        """Return whether more duties come to a home here than it should have."""
        rate = self._rates.get(home)
        if rate is None:
            return False
        rate.begin_window(self._runtime.now)
        return max(rate.count, rate.before) > self._busy_above

    # -- who has a copy ------------------------------------------------------------------------------------------------

    def copy(self, point: int) -> RegionCopy | None:
        """Return a copy of what lies around an id, if there is one that is good now."""
        now = self._runtime.now
        for copy in self._copies.values():
            if copy.until > now and copy.region.hosts(point):
                copy.uses += 1
                if copy.until - now < copy.us // 2 and copy.uses >= USES and not copy.asking:
                    self._renew(copy)
                return copy
        return None

    def heard(self, peer: Peer, home: HomeId, region: Region) -> None:
        """Ask for a copy of the region of a home that says it is busy, unless there is one."""
        now = self._runtime.now
        copy = self._copies.get(region)
        if copy is not None and (copy.asking or copy.until > now):
            return
        if peer.id == self._runtime.me.id or self._paused.get(region, 0) > now:
            return
        if len(self._copies) >= COPIES_MAX:
            self._copies = {each: copy for each, copy in self._copies.items() if copy.asking or copy.until > now}
            if len(self._copies) >= COPIES_MAX:
                return
        self._runtime.observe("reach_copy_asked")
        copy = self._copies[region] = RegionCopy(region, home, peer, now)
        self._fetch(copy, 0, "")

    def _fetch(self, copy: RegionCopy, number: int, after: str) -> None:
        where = PackedRegion.of(copy.region)
        self._runtime.ask(copy.peer, CopyRequest(0, copy.home, where, self._life, number, after), TIMEOUT_US).then(
            partial(self._fetched, copy)
        )

    def _fetched(self, copy: RegionCopy, reply: Reply | None) -> None:
        """Take a page of a copy, None where it did not come in time."""
        if self._copies.get(copy.region) is not copy:
            return
        if (
            not isinstance(reply, CopyReply)
            or not 0 < reply.number < NUMBER_MAX
            or copy.number not in {None, reply.number}
        ):
            self._pause(copy)
            return
        if copy.spoilt or len(copy.table) > 2 * COPY_MAX:
            self._pause(copy)
            return
        if copy.number is None:
            copy.us = max(0, min(reply.us, self._lease_us))
        copy.number = reply.number
        for name, entry in reply.entries:
            self._add(copy, name, entry)
        if reply.more and reply.entries:
            self._fetch(copy, reply.number, reply.entries[-1][0])
        else:
            copy.asking = False
            self._count_from(copy, copy.asked_at, copy.us)

    def _count_from(self, copy: RegionCopy, asked_at: int, us: int) -> None:
        copy.us = holder_us(us)
        copy.until = max(copy.until, asked_at + copy.us)
        copy.uses = 0

    def _add(self, copy: RegionCopy, name: str, entry: Entry) -> None:
        item = read_entry(self._cube, name, entry)
        if item is None or not copy.region.hosts(item.read.place):
            self._runtime.observe("entry_malformed")
        else:
            copy.table.add(name, item)

    def _pause(self, copy: RegionCopy) -> None:
        del self._copies[copy.region]
        if len(self._paused) >= PAUSED_MAX:
            del self._paused[next(iter(self._paused))]
        self._paused[copy.region] = self._runtime.now + PAUSE_US

    def _renew(self, copy: RegionCopy) -> None:
        copy.asking = True
        asked_at = self._runtime.now
        where, number = PackedRegion.of(copy.region), copy.number or 0

        def answered(reply: Reply | None) -> None:
            if reply is None:
                self._runtime.after(TIMEOUT_US, may_ask_again)
                return
            may_ask_again()
            if isinstance(reply, CopyReply) and reply.number == copy.number and reply.us > 0 and not copy.spoilt:
                self._count_from(copy, asked_at, min(reply.us, self._lease_us))
            else:
                copy.uses = -NUMBER_MAX  # not to be had any more: it is used to its end

        def may_ask_again() -> None:
            copy.asking = False

        self._runtime.ask(copy.peer, CopyRequest(0, copy.home, where, self._life, number, None), TIMEOUT_US).then(
            answered
        )

    def _copy_update(self, source: Peer, message: CopyUpdate) -> None:
        """Add an entry to the copies here that lack it."""
        if message.life == self._life:
            for copy in self._copies.values():
                if copy.number is None:
                    copy.spoilt = True  # it may be meant: which number it will have is not known yet
                elif copy.number == message.number:
                    self._add(copy, message.name, message.entry)
        self._runtime.send(source, CopyUpdateAck(message.request))

    # -- who is copied -------------------------------------------------------------------------------------------------

    def _copy_request(self, source: Peer, question: CopyRequest) -> None:
        region = question.where.region(self._cube.width)
        if region is None or not 0 <= question.life < 1 << 48:
            self._runtime.observe("question_malformed")
            return
        lease = self._lease_for(source, question, region)
        if lease is None:
            self._runtime.send(source, CopyReply(question.request, 0, 0, (), False))
            return
        us = lease.until - self._runtime.now
        if question.after is None:
            self._runtime.send(source, CopyReply(question.request, lease.number, us, (), False))
            return
        page, more = self._page(question.home, region, question.after)
        self._runtime.send(source, CopyReply(question.request, lease.number, us, page, more))

    def _lease_for(self, source: Peer, question: CopyRequest, region: Region) -> RegionLease | None:
        """Return the lease under which a copy is given, or renewed; None where it is not to be had."""
        key = self._cube.key(region.bits)
        home = self._ownership.holder(key)
        if home is None or home.id != question.home:
            return None
        if not self._cube.is_on(self._ownership.arc(home.id, key), region):
            return None
        if not question.number:
            if sum(1 for _ in self._tables.at(home.id).within(region)) > COPY_MAX:
                return None
            for each in self._granted.all():
                # What a copy lacks it will hear of, or be over in time: it begins another time for another copy.
                each.ended = each.ended or each.number in self._untold
            return self._granted.grant(source, question.life, region, self._lease_us)
        lease = next((each for each in self._granted.all() if each.number == question.number), None)
        if lease is None or (lease.peer.id, lease.life, lease.region) != (source.id, question.life, region):
            return None
        if lease.ended:
            return None
        if question.after is None:
            if self._untold.get(lease.number):
                return None  # its time must come to an end, should it never hear of them
            self._granted.grant(source, question.life, region, self._lease_us)
        return lease

    def _page(self, home: HomeId, region: Region, after: str) -> tuple[tuple[tuple[str, Entry], ...], bool]:
        """Return entries of a region from one name on, and whether there are more."""
        entries = self._ownership.entries[home]
        page: list[tuple[str, Entry]] = []
        size = 0
        for name in sorted(name for name in self._tables.at(home).within(region) if name > after):
            if len(page) >= PAGE_MAX or size >= PAGE_BYTES_MAX:
                return tuple(page), True
            page.append((name, entries[name]))
            size += len(entries[name].body)
        return tuple(page), False

    def put(self, home: HomeId, name: str, entry: Entry, point: int, then: Callable[[], None]) -> None:
        """Tell all copies of an entry at an id here: `then` when they have it. Never, where the home goes."""
        told = [lease for lease in self._granted.all() if lease.region.hosts(point)]
        one_has_it = when_all(1 + len(told), lambda: self._granted.when_ready(home, then))
        for lease in told:
            self._tell(lease, name, entry, one_has_it)
        one_has_it()

    def _tell(self, lease: RegionLease, name: str, entry: Entry, then: Callable[[], None]) -> None:
        number, is_told = lease.number, False
        self._untold[number] = self._untold.get(number, 0) + 1

        def told() -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                self._untold[number] -= 1
                if not self._untold[number]:
                    del self._untold[number]
                then()

        def heard(reply: Reply) -> bool:
            if isinstance(reply, CopyUpdateAck):
                told()
                return True
            return False

        lease.waiting.append(told)
        self._runtime.after(lease.until - self._runtime.now, lambda: self._granted.look_at(lease))
        self._granted.tell(lease, lambda request: CopyUpdate(request, lease.life, number, name, entry), heard)

    def check(self) -> None:
        """Assert what must hold at all times."""
        self._granted.check()
        assert len(self._copies) <= COPIES_MAX
        assert all(count > 0 for count in self._untold.values())
