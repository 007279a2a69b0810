"""The members of the graph that this node has: ranges that homes here own (`member`).

- Ranges change without notice (`Ownership`): before anything is said or judged a member is brought up to date, keys and
  entries at once, so that nobody hears of keys without what is wanted there.
- Now and then each looks where its edges are to lead (`EdgeTargets`), asks there what is wanted (`filter_updates`),
  looks for members that it does not know and tells those that it is new to (`discovery`). Once a period, while there is
  any doubt; at rest as seldom as leases allow, which last for as many rounds as a tree has levels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.entry_table import EntryListener, Item
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.rebeca.contacts import Contacts
from meetpoint.schemes.rebeca.discovery import NodeJoin, NodeLocation
from meetpoint.schemes.rebeca.edges import Edges, Outgoing
from meetpoint.schemes.rebeca.entries import MemberTables
from meetpoint.schemes.rebeca.filter_updates import NUMBER_MAX, FilterUpdates
from meetpoint.schemes.rebeca.graph import Range
from meetpoint.schemes.rebeca.member import EdgeTargets, Member
from meetpoint.schemes.rebeca.settings import RebecaSettings
from meetpoint.schemes.rebeca.tables import SAMPLE_MAX, FilterTable, Rows, Sample, make_table

__all__ = ["Members"]

WAITING_MAX: Final = 16
"""Answers that wait for one entry: it is asked for again and again."""
ROUND_PERIODS_MAX: Final = 2
"""Periods that a round takes at most: so long it may be that nobody sees that one is silent."""
SOON_US: Final = 20_000
"""How soon others are told of a change here that came without a message, and edges follow what was learnt."""


class Members(EntryListener):
    """All members of this node."""

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        home_manager: HomeManager,
        ownership: Ownership,
        tables: MemberTables,
        settings: RebecaSettings,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._ownership = ownership
        self._tables = tables
        self._settings = settings
        directory, period_us = home_manager.directory, settings.period_us
        self._contacts = Contacts(runtime, home_manager, period_us)
        self.targets = EdgeTargets(runtime, directory, self._contacts, settings, self)
        self._updates = FilterUpdates(runtime, home_manager, ownership, self._contacts, self.targets, self)
        self._location = NodeLocation(runtime, overlay, self._contacts, self.targets, period_us, self)
        self._join = NodeJoin(runtime, self._contacts, period_us, self)
        self._lives = runtime.random.getrandbits(48)
        self._members: dict[HomeId, dict[bytes, Member]] = {}
        self._seen: dict[
            HomeId, tuple[KeyRange, ...]
        ] = {}  # arcs, as of when a home's members were last brought up to date
        self._changed: dict[HomeId, dict[str, None]] = {}  # entries that came or went since
        self._owed_until: dict[HomeId, int] = {}
        self._waiting: dict[tuple[HomeId, str], list[Callable[[], None]]] = {}
        self._probes = 0
        self._timer: int | None = None
        self._soon: int | None = None
        self._sample: deque[Mapping[str, object]] = deque(maxlen=SAMPLE_MAX)
        self._sampled = 0

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about the graph and its filters."""
        return {**self._updates.handlers(), **self._location.handlers(), **self._join.handlers()}

    # -- what Ownership tells ------------------------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Note that a home owns ranges here that it did not own before."""
        lease_us = self._settings.lease_us
        owed = lease_us if owed_us is None else min(max(owed_us, 0), 2 * lease_us)
        self._owe(home, owed)
        self._members.setdefault(home, {})
        self._changed.setdefault(home, {})
        if self._timer is None:
            self._timer = self._runtime.after(self._jitter(self._settings.period_us // 4), self._tick)
        self.look_soon()

    def _owe(self, home: HomeId, owed_us: int) -> None:
        self._owed_until[home] = max(self._owed_until.get(home, 0), self._runtime.now + owed_us)

    def owed_us(self, home: HomeId) -> int:
        """Return how long others may rely on what a home here has told them, or may have told."""
        self._update(home)
        now = self._runtime.now
        told = [member.edges.owed_us(now) for member in self._members.get(home, {}).values()]
        return max(0, self._owed_until.get(home, 0) - now, *told)

    def ended(self, home: HomeId) -> None:
        """Forget a home that is not here any more; where it serves next it begins anew."""
        for table in (self._members, self._seen, self._changed, self._owed_until):
            table.pop(home, None)
        for key in [key for key in self._waiting if key[0] == home]:
            del self._waiting[key]

    def added(self, home: HomeId, name: str, item: Item[HomeId]) -> None:
        """Note an entry that came to a home here."""
        self._changed.setdefault(home, {})[name] = None
        self.look_soon()

    def removed(self, home: HomeId, name: str, item: Item[HomeId]) -> None:
        """Note an entry that is gone from a home here."""
        self.added(home, name, item)

    def look_soon(self) -> None:
        if self._soon is None:
            self._soon = self._runtime.after(SOON_US, self._look)

    def _look(self) -> None:
        self._soon = None
        for member in self._up_to_date():
            self._tend(member)
        self._updates.work()

    def _up_to_date(self) -> list[Member]:
        for home in list(self._members):
            self._update(home)
        return self.all()

    # -- what may be asked ---------------------------------------------------------------------------------------------

    def when_safe(self, home: HomeId, name: str, then: Callable[[], None]) -> None:
        """Call `then` when every event that is published from then on meets an entry of a home here.

        Never where it goes away meanwhile: its next owner says so.
        """
        self._update(home)
        waiting = self._waiting.setdefault((home, name), [])
        waiting.append(then)
        del waiting[:-WAITING_MAX]
        self._call_back(home, name)

    def call_back_all(self, home: HomeId) -> None:
        for key in [key for key in self._waiting if key[0] == home]:
            self._call_back(*key)

    def _call_back(self, home: HomeId, name: str) -> None:
        item = self._tables.at(home).items.get(name)
        if item is None:
            self._waiting.pop((home, name), None)
            return
        member = self.holder(home, item.home)
        if member is not None and member.edges.is_safe(name):
            for then in self._waiting.pop((home, name), ()):
                then()

    def holder(self, home: HomeId, key: bytes) -> Member | None:
        """Return the member of a home here that has a key."""
        members = self._members.get(home, {}).values()
        return next((member for member in members if member.arc.holds(key)), None)

    def find(self, home: HomeId, place: bytes) -> Member | None:
        """Return the member of a home here that has a place, as it is now."""
        self._update(home)
        return self._members.get(home, {}).get(place)

    def root(self, home: HomeId) -> Member | None:
        """Return a member of this node, of a home if it has one."""
        for each in (home, *sorted(self._members)):
            self._update(each)
            for member in self._members.get(each, {}).values():
                return member
        return None

    def sample(self, attributes: Mapping[str, object]) -> None:
        """Note an event that has come by."""
        self._sample.append(attributes)
        self._sampled += 1

    def host(self, home: HomeId) -> Peer | None:
        """Return the node that hosts a home."""
        return self._contacts.host(home)

    def missed(self, home: HomeId) -> None:
        """Note that a home left something unanswered."""
        self._contacts.missed(home)

    # -- keys and entries ----------------------------------------------------------------------------------------------

    def _update(self, home: HomeId) -> None:
        """Bring the members of a home up to date with what it owns."""
        members = self._members.get(home)
        if members is None:
            return
        arcs, changed = self._ownership.arcs(home), self._changed.get(home, {})
        if arcs == self._seen.get(home):
            if changed:
                self._changed[home] = {}
                self._tell_changed(home, changed)
            return
        self._seen[home], self._changed[home] = arcs, {}
        now = self._runtime.now
        places = {bytes(arc.high) for arc in arcs}
        for place in [place for place in members if place not in places]:
            self._owe(home, members.pop(place).edges.owed_us(now))
        owed_us = max(0, self._owed_until.get(home, 0) - now)
        items = self._tables.at(home).items
        for arc in arcs:
            member = members.get(bytes(arc.high))
            before = 0 if member is None else member.edges.graph.own.length
            if member is None:
                member = members[bytes(arc.high)] = self._make(home, arc)
            member.arc = arc
            edges = member.edges
            known = edges.names
            wanted: dict[str, Rows] = {name: () for name in known if name not in items}
            for name, item in items.items():
                rows = (item.read.conjunction,) if arc.holds(item.home) else ()
                if rows != known.get(name, ()):
                    wanted[name] = rows
            own = self._own(arc)
            self._updates.say(member, edges.change(now, wanted, own, self.targets.links(member), owed_us))
            if own.length > before:
                self._join.gained(member, Range(own.begin, own.length - before))
        self._updates.work()

    def _make(self, home: HomeId, arc: KeyRange) -> Member:
        self._lives = (self._lives + 1) % NUMBER_MAX
        size, place = self._runtime.ring.size, self._runtime.ring.number(arc.high)
        edges = Edges(size, place, self._table, self._settings.lease_us, self._runtime.now, 0)
        return Member(home, arc, self._lives, edges)

    def _table(self) -> FilterTable:
        sample = Sample(tuple(self._sample)) if self._settings.strategy == "imperfect" else None
        return make_table(self._settings.strategy, sample, self._settings.share)

    def _own(self, arc: KeyRange) -> Range:
        ring = self._runtime.ring
        return Range(ring.number(ring.add(arc.low, 1)), ring.distance(arc.low, arc.high) or ring.size)

    def _tell_changed(self, home: HomeId, names: Iterable[str]) -> None:
        items = self._tables.at(home).items
        now = self._runtime.now
        for member in self._members[home].values():
            edges = member.edges
            wanted: dict[str, Rows] = {}
            for name in names:
                item = items.get(name)
                rows = (item.read.conjunction,) if item is not None and member.arc.holds(item.home) else ()
                if rows != edges.names.get(name, ()):
                    wanted[name] = rows
            if wanted:
                self._updates.say(member, edges.change(now, wanted, edges.graph.own, edges.begins))
        self._updates.work()

    # -- now and then --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Look where edges are to lead, ask again, and look for members that nobody knows."""
        now = self._runtime.now
        self._updates.begin_round()
        members = self._up_to_date()
        self._contacts.forget(self._in_use(members))
        lives = {member.life for member in members}
        self._location.forget(lives)
        self._join.forget(lives)
        wait_us = self._round_us(members)
        for member in members:
            self._tend(member)
            self._ask_reserve(member)
            self._updates.say(member, self._resampled(member) + member.edges.again(now))
        for home in list(self._members):
            self.call_back_all(home)
        if self._sampled >= SAMPLE_MAX:
            self._sampled = 0
        silent = self._contacts.silent()
        if silent and members:
            self._probes += 1
            self._updates.probe(members[0], silent[self._probes % len(silent)])
        self._updates.work()
        self._timer = self._runtime.after(self._jitter(wait_us), self._tick)

    def _jitter(self, wait_us: int) -> int:
        return wait_us - self._runtime.random.randrange(wait_us // 4 + 1)

    def _round_us(self, members: Iterable[Member]) -> int:
        """Return how long until the next round: what is told has to last for as many rounds as trees have levels."""
        period_us, lease_us, now = self._settings.period_us, self._settings.lease_us, self._runtime.now
        if any(not member.edges.is_quiet(now) or self._is_uncertain(member) for member in members):
            return period_us
        lasts_us = lease_us * 3 // 4 // max(self.targets.levels, 1)
        return min(max(period_us, lasts_us), ROUND_PERIODS_MAX * period_us)

    def _is_uncertain(self, member: Member) -> bool:
        """Return whether nobody is known, or an edge has left the last question unanswered."""
        return member.first is None or any(map(self._contacts.is_suspected, member.homes.values()))

    def _in_use(self, members: Iterable[Member]) -> dict[int, HomeId]:
        found: dict[int, HomeId] = {}
        for member in members:
            found.update(member.homes)
            found.update((each.place, each.home) for each in member.listed)
        return found

    def _tend(self, member: Member) -> None:
        """Let edges lead where they are to, look for unknown members, and tell those that a member is new to."""
        edges, links, now = member.edges, self.targets.links(member), self._runtime.now
        if links.keys() != edges.begins.keys():
            self._updates.say(member, edges.change(now, {}, edges.graph.own, links))
        self._location.look(member)
        self._join.look(member)
        if not self._location.is_settling(member):
            self._updates.say(member, edges.ask_new(now))

    def _ask_reserve(self, member: Member) -> None:
        """Find out at once which members in reserve answer, where the first edge may have failed."""
        first = member.first
        if first is not None and self._contacts.is_suspected(member.homes[first]):
            for contact in self.targets.reserve(member):
                if contact.place != first:
                    self._updates.probe(member, contact)

    def _resampled(self, member: Member) -> Outgoing:
        """Return what to say as rows are merged by other events than before, when all of the sample are others."""
        is_due = self._settings.strategy == "imperfect" and self._sampled >= SAMPLE_MAX
        return member.edges.remake(self._runtime.now) if is_due else []

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def all(self) -> list[Member]:
        """Return all members of this node, as they were when they were last brought up to date."""
        return [member for members in self._members.values() for member in members.values()]

    def check(self) -> None:
        """Assert what must hold at all times."""
        self._updates.check()
        self._join.check()
        assert self._members.keys() <= self._home_manager.homes.keys()
