"""Duties: an event at the ids of one duty, handled by the owner of the key of its head (`ids`).

The owner serves the region around the head, as far as it owns that, and hands on the rest in parts. A part whose head
is owned here too is handled at once; any other is a keyed request to the owner of its head's key. When its own homes
have the event, and all parts are answered for, it answers.

So every id of a duty is served by its owner of that moment, wherever ranges move to meanwhile: the ids of the parts
have nothing in common and leave nothing out, whatever their order. How regions lie decides only how many messages it
takes.

- A home that does not say soon that it has the event is named in the answer, and the origin brings it there: a tree
  does not wait for the slowest.
- Nothing of it is kept on disk. What is lost with a relay is asked again by the node that handed it on.
- The same duty of the same attempt that comes again, since an answer was late or lost, joins the one under way, or gets
  the same answer. A duty of another attempt is handled anew: what is stored may have changed (`dissemination`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, HomeId, NodeId
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US
from meetpoint.placement.dissemination.fanout import HomeFanout, event_bytes, when_all
from meetpoint.placement.entries.entry_table import Matched, add_to, by_home
from meetpoint.placement.messages import read_attributes
from meetpoint.placement.ownership.keyed_rpc import RETRY_US, KeyedRpc, OwnerCache, Reached
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.reach.entries import DutyPart, IdTable, IdTables
from meetpoint.schemes.reach.ids import FLOOR_MAX, Cube, Duty, Tree, head_point, parts, tree_of
from meetpoint.schemes.reach.messages import BusyRegion, DutyReply, DutyRequest, pack_bits, unpack_bits
from meetpoint.schemes.reach.quench import Quench
from meetpoint.schemes.reach.region_copies import RegionCopies
from meetpoint.wording import counted

__all__ = ["DELIVER_US", "Duties"]

DELIVER_US: Final = SECOND_US // 2
"""How long a home may take to have an event, before that is left to the event's origin. Less than the node that handed
the duty on waits before it asks again, with some steps up and down in between."""
assert DELIVER_US < RETRY_US
WORKING_MAX: Final = 4_096
"""Duties that are under way at a node; any further one is asked again."""
RECENT_MAX: Final = 1_024
"""Answers that are remembered."""
PARTS_MAX: Final = 4_096
"""Parts into which a duty falls at one node. With a tree that fits the regions they are far fewer."""
HOPS_MAX: Final = 10_000
"""A limit on hops, which no event reaches: a request with more is malformed."""
HEARD_US: Final = 60 * SECOND_US
"""How long a region counts that an answer told of."""

Answer: TypeAlias = Callable[[Message], None]


class _Place(NamedTuple):
    """A place here where a duty can be served."""

    home: HomeId
    region: Region
    table: IdTable
    is_copy: bool


class _Key(NamedTuple):
    """A duty of an attempt to carry an event."""

    event: EventKey
    attempt: int
    duty: Duty


class _Work:
    """A duty under way: the answers that wait for it, and the parts that it waits for."""

    __slots__ = ("busy", "left", "rpc", "served", "shortest", "stood_in", "timer", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Answer] = []
        self.rpc: dict[int, None] = {}
        self.timer = 0
        self.left: dict[HomeId, tuple[int, ...]] = {}
        self.served = 0
        self.stood_in: dict[tuple[HomeId, NodeId], None] = {}
        self.shortest = FLOOR_MAX
        self.busy: BusyRegion | None = None


class _Parted(NamedTuple):
    """A duty at a node: where it is served here, and what is handed on."""

    places: list[tuple[_Place, Duty]]
    handed: list[Duty]


class Duties:
    """All duties that come to this node."""

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        ownership: Ownership,
        rpc: KeyedRpc,
        owner_cache: OwnerCache,
        fanout: HomeFanout,
        tables: IdTables,
        cube: Cube,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._ownership = ownership
        self._rpc = rpc
        self._owner_cache = owner_cache
        self._fanout = fanout
        self._tables = tables
        self._cube = cube
        self._working: dict[_Key, _Work] = {}
        self._recent: dict[_Key, DutyReply] = {}
        self._floor: tuple[tuple[object, ...], int] | None = None
        self._heard: dict[int, int] = {}  # lengths of regions that answers told of, and until when they count
        self.quench: Quench | None = None
        self.copies: RegionCopies | None = None
        rpc.do(DutyRequest, self._duty_request)

    # -- handing on ----------------------------------------------------------------------------------------------------

    def hand(self, point: int, handle: DutyRequest, then: Callable[[DutyReply, bool], None]) -> int:
        """Have a duty handled at the owner of its head; `then` gets the answer, and whether it is another node's.

        The number returned stops it.
        """
        answers: list[tuple[DutyReply, bool]] = []

        def answered(answer: Message, from_afar: bool) -> None:
            if isinstance(answer, DutyReply) and all(self._runtime.ring.holds(home) for home, _ in answer.left):
                answers.append((answer, from_afar))
            else:
                self._runtime.observe("duty_malformed")

        def done() -> None:
            if answers:
                then(*answers[0])  # else the answer was something else: the caller gives up in time

        key = self._cube.key(point)
        here = self._ownership.holder(key) is not None
        return self._rpc.run(key, key, handle, done, answered=answered, straight=here)

    @property
    def floor(self) -> int:
        """The length of the shortest region, as far as is known: how many bits a tree may reorder (`ids`)."""
        owned_ranges = self._ownership.owned_ranges.values()
        known = (
            self._owner_cache.heard,
            len(self._home_manager.directory.homes()),
            *(each.version for each in owned_ranges),
        )
        if self._floor is None or self._floor[0] != known:
            arcs = [*self._owner_cache.arcs(), *(arc for holding in owned_ranges for arc in holding.arcs)]
            # So many regions cannot all be longer than that.
            fewest = max(len(self._home_manager.directory.homes()), 1).bit_length() - 1
            self._floor = known, min((fewest, FLOOR_MAX, *(self._cube.shortest(arc) for arc in arcs)))
        now = self._runtime.now
        return min((self._floor[1], *(length for length, until in self._heard.items() if until > now)))

    # -- handling ------------------------------------------------------------------------------------------------------

    def _duty_request(self, home: Home, reached: Reached, handle: DutyRequest, answer: Answer) -> None:
        fixed, bits = (unpack_bits(each, self._cube.width) for each in (handle.fixed, handle.bits))
        numbers = (handle.floor, handle.settled, handle.hops)
        if fixed is None or bits is None or bits & ~fixed or min(numbers) < 0 or handle.hops > HOPS_MAX:
            self._runtime.observe("duty_malformed")
            return
        attributes = read_attributes(self._runtime, handle.content)
        if attributes is None:
            return
        duty, event = Duty(fixed, bits), self._cube.of_event(attributes)
        if bits & ~event or reached.key != self._cube.key(head_point(event, duty)):
            self._runtime.observe("duty_malformed")
            return
        key = _Key(handle.event, handle.attempt, duty)
        if key in self._recent:
            answer(self._recent[key])
        elif key in self._working:
            self._working[key].waiting.append(answer)
        elif len(self._working) >= WORKING_MAX:
            self._runtime.observe("reach_crowded")
        else:
            if reached.hops and self.copies is not None:
                self.copies.served(home.id, self._region(home, head_point(event, duty)))
            hops = handle.hops + reached.hops
            self._runtime.observe("event_hops", hops)
            self._begin(key, msgspec.structs.replace(handle, hops=hops), attributes, event, answer)

    def _begin(
        self, key: _Key, handle: DutyRequest, attributes: Mapping[str, object], event: int, answer: Answer
    ) -> None:
        floor = min(handle.floor, self.floor)
        parted = self._part(event, key.duty, tree_of(event_bytes(key.event).hex(), floor))
        if parted is None:
            self._runtime.observe("reach_overparted")
            return
        work = self._working[key] = _Work()
        work.waiting.append(answer)
        matched = self._match(work, attributes, event, parted)
        self._trace(handle, parted, matched)
        first = parted.places[0][0]
        if self.copies is not None and not first.is_copy and self.copies.is_busy(first.home):
            work.busy = BusyRegion(self._runtime.me, first.home, first.region.length)
        within = min(max(handle.within_us, 0), ATTEMPT_US)
        work.timer = self._runtime.after(within, partial(self._give_up, key))

        def all_is_done() -> None:
            if self._working.get(key) is work:
                self._finish(key, work)

        def delivered(left: Mapping[HomeId, tuple[int, ...]]) -> None:
            add_to(work.left, left.items())
            one_is_done()

        one_is_done = when_all(1 + len(parted.handed), all_is_done)
        for each in parted.handed:
            self._hand_on(work, event, each, handle, floor, one_is_done)
        self._fanout.bring_soon(handle.event, handle.settled, handle.content, matched, DELIVER_US).then(delivered)

    def _part(self, event: int, duty: Duty, tree: Tree) -> _Parted | None:
        """Return the places that serve a duty here, and what goes elsewhere; None where there are too many parts."""
        parted = _Parted([], [])
        todo = [duty]
        for _ in range(PARTS_MAX):
            if not todo:
                return parted
            each = todo.pop()
            place = self._place(head_point(event, each))
            if place is None:
                parted.handed.append(each)
                continue
            parted.places.append((place, each))
            below = parts(place.region, event, each, tree)
            todo += [part for part in below if not self._is_quenched(place.region, each, part)]
        return None

    def _place(self, point: int) -> _Place | None:
        """Return the place here where entries around an id are known; None where there is none."""
        home = self._ownership.holder(self._cube.key(point))
        if home is not None:
            return _Place(home.id, self._region(home, point), self._tables.at(home.id), is_copy=False)
        copy = None if self.copies is None else self.copies.copy(point)
        return None if copy is None else _Place(copy.home, copy.region, copy.table, is_copy=True)

    def _region(self, home: Home, point: int) -> Region:
        return self._cube.around(self._ownership.arc(home.id, self._cube.key(point)), point)

    def _is_quenched(self, region: Region, duty: Duty, part: Duty) -> bool:
        """Return whether nothing is wanted at any id of a part: all lie below the region with that bit cleared."""
        if self.quench is None:
            return False
        cleared = part.fixed & ~part.bits & ~duty.fixed
        below = Region(region.bits & ~cleared, region.length)
        if self.quench.is_idle(below):
            self._runtime.observe("reach_quenched")
            return True
        self.quench.wish(below)
        return False

    def _match(self, work: _Work, attributes: Mapping[str, object], event: int, parted: _Parted) -> Matched:
        """Return the SubIDs, by home, that an event satisfies here."""
        asked: dict[int, tuple[IdTable, list[DutyPart]]] = {}  # one look at each table
        for place, duty in parted.places:
            asked.setdefault(id(place.table), (place.table, []))[1].append(DutyPart(place.region, duty))
        found = [item for table, wanted in asked.values() for item in table.match_parts(attributes, event, wanted)]
        work.served = len(parted.places)
        work.shortest = min((FLOOR_MAX, *(place.region.length for place, _ in parted.places)))
        copied = [place.home for place, _ in parted.places if place.is_copy]
        work.stood_in = dict.fromkeys((home, self._runtime.me.id) for home in copied)
        self._runtime.observe("reach_served", work.served)
        if copied:
            self._runtime.observe("reach_stood_in", len(copied))
        return by_home(found)

    def _trace(self, handle: DutyRequest, parted: _Parted, matched: Mapping[HomeId, object]) -> None:
        if not self._runtime.tracing:
            return
        for home in dict.fromkeys(place.home for place, _ in parted.places):
            regions = ", ".join(f"{place.region}" for place, _ in parted.places if place.home == home)
            stands_in = any(place.is_copy and place.home == home for place, _ in parted.places)
            instead = " by its copy" if stands_in else ""
            told = (
                f"at {regions}{instead}; matches of {counted(len(matched), 'home')}, handed on to {len(parted.handed)}"
            )
            self._runtime.trace(handle.event, "visited", home, detail=told)

    def _hand_on(
        self, work: _Work, event: int, duty: Duty, handle: DutyRequest, floor: int, done: Callable[[], None]
    ) -> None:
        self._runtime.observe("reach_handed")
        point = head_point(event, duty)
        packed_duty = {"fixed": pack_bits(duty.fixed), "bits": pack_bits(duty.bits), "floor": floor}

        def then(handled: DutyReply, from_afar: bool) -> None:
            work.rpc.pop(number, None)
            add_to(work.left, handled.left)
            work.served += max(handled.served, 0)
            work.stood_in.update(dict.fromkeys(handled.stood_in))
            work.shortest = min(work.shortest, max(handled.shortest, 0))
            busy = handled.busy
            if busy is not None and from_afar and self.copies is not None and 0 <= busy.length <= self._cube.width:
                region = Region(point & (1 << busy.length) - 1, busy.length)
                self.copies.heard(busy.host, busy.home, region)
            done()

        number = 0
        number = self.hand(point, msgspec.structs.replace(handle, **packed_duty), then)
        work.rpc[number] = None

    def _finish(self, key: _Key, work: _Work) -> None:
        left, stood_in = tuple(sorted(work.left.items())), tuple(sorted(work.stood_in))
        handled = DutyReply(left, work.served, stood_in, work.shortest, work.busy)
        self._heard[work.shortest] = self._runtime.now + HEARD_US
        self._recent[key] = handled
        if len(self._recent) > RECENT_MAX:
            del self._recent[next(iter(self._recent))]
        self._end(key, work)
        for answer in work.waiting:
            answer(handled)

    def _give_up(self, key: _Key) -> None:
        """Give up a duty that has taken too long: nobody waits for it any more."""
        work = self._working[key]
        self._runtime.observe("reach_given_up")
        self._end(key, work)

    def _end(self, key: _Key, work: _Work) -> None:
        del self._working[key]
        self._runtime.cancel(work.timer)
        for number in work.rpc:
            self._rpc.stop(number)

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def under_way(self) -> Iterator[tuple[EventKey, Duty]]:
        """Yield the duties that are under way."""
        for key in self._working:
            yield key.event, key.duty

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert len(self._working) <= WORKING_MAX
        assert len(self._recent) <= RECENT_MAX
        assert len(self._heard) <= FLOOR_MAX + 1
        assert all(work.waiting for work in self._working.values())
