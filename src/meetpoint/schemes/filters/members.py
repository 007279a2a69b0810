"""The members of the graph that this node has, and what they say to those that their edges lead to.

A member is an arc that a home here answers for: its keys are the arc, its place the arc's last key. On a ring that is
one for each home, at the home's own id; elsewhere a home may have several, or none. Custody says who answers for a key,
so no two members ever have one in common, whatever is believed of others.

- *Whom edges lead to.* Where a home's place follows from its id the directory tells all places, and edges lead to those
  that Chord's fingers would. Elsewhere the places of others are found by errands to the keys that fingers begin at
  (`Where`). All of that may be wrong or old: it decides only which way an event goes (`graph`).
- A home that does not answer is *silent*: edges lead past it until it does.
- What `Edges` says goes straight to the node that hosts the other's home; between members of one node nothing is sent.
- A member that begins anew, after a restart or with an arc that ends elsewhere, has another *life*.

Arcs change without a word (`custody`): before anything is said or judged a member is brought up to date, keys and
entries at once, so that nobody hears of keys without what is wanted there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from meetpoint.language.normal import Conjunction
from meetpoint.language.render import render
from meetpoint.protocol.hosting import Hosting
from meetpoint.protocol.messages import Message, Peer
from meetpoint.protocol.overlay import Handler
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.services import Services
from meetpoint.rendezvous.arcs import Arc
from meetpoint.rendezvous.atlas import Atlas
from meetpoint.rendezvous.conjunctions import conjunction_in
from meetpoint.rendezvous.custody import Custody
from meetpoint.rendezvous.errands import Errands, Reached
from meetpoint.schemes.filters.edges import Ack, Ask, Edges, Said, State
from meetpoint.schemes.filters.graph import fingers
from meetpoint.schemes.filters.messages import Absent, Filter, Known, Stretch, Want, Where, WhereIs
from meetpoint.schemes.filters.messages import Member as Named
from meetpoint.schemes.filters.ranges import Range
from meetpoint.schemes.filters.settings import FiltersSettings
from meetpoint.schemes.filters.shelves import Shelves
from meetpoint.schemes.filters.tables import EVERYTHING, ROWS_MAX, Rows, Sample, Table, make_table

__all__ = ["Member", "Members"]

NUMBER_MAX: Final = 1 << 62
MISSED_MAX: Final = 3
"""How many questions in a row a home may leave unanswered before it counts as silent."""
ABSENT_PERIODS: Final = 3
"""For how many periods a home that said that it has no such place is not asked for it."""
PROBE_PERIODS: Final = 3
"""For how many periods an errand that looks for a member goes on."""
WAITING_MAX: Final = 16
"""Answers that wait for one entry: it is asked for again and again."""
SOON_US: Final = 20_000
"""How soon others are told of a change here that came without a message."""
PROBES_MAX: Final = 4
"""How many such errands a member begins at a time."""
PROBE_AGAIN: Final = 2
"""In every how many periods a member looks again for one of those that it knows."""
SAMPLE_MAX: Final = 256
"""Events that are remembered, as what those to come will be like."""

Told: TypeAlias = Want | Filter | Known | Absent


class Member:
    """An arc of a home here."""

    __slots__ = ("arc", "askers", "edges", "home", "homes", "life", "lives", "place")

    def __init__(self, home: HomeId, arc: Arc, life: int, edges: Edges) -> None:
        self.home = home
        self.arc = arc
        self.place = bytes(arc.high)
        self.life = life
        self.edges = edges
        self.homes: dict[int, HomeId] = {}
        """Of the members that edges lead to."""
        self.lives: dict[int, int] = {}
        """Of the same."""
        self.askers: dict[int, tuple[HomeId, int]] = {}
        """The homes and lives of members whose edges lead here."""


class Members:
    """All members of this node."""

    def __init__(
        self,
        services: Services,
        hosting: Hosting,
        custody: Custody,
        errands: Errands,
        atlas: Atlas,
        shelves: Shelves,
        settings: FiltersSettings,
        *,
        by_place: bool,
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._custody = custody
        self._errands = errands
        self._atlas = atlas
        self._shelves = shelves
        self._settings = settings
        self._by_place = by_place
        self._lives = services.random.getrandbits(48)
        self._members: dict[HomeId, dict[bytes, Member]] = {}
        self._seen: dict[HomeId, tuple[Arc, ...]] = {}  # arcs, as of when a home's members were last brought up to date
        self._changed: dict[HomeId, dict[str, None]] = {}  # entries that came or went since
        self._owed_until: dict[HomeId, int] = {}
        self._missed: dict[HomeId, int] = {}
        self._asked_in: dict[HomeId, int] = {}  # in which round
        self._absent: dict[HomeId, int] = {}
        self._rounds = 0
        self._waiting: dict[tuple[HomeId, str], list[Callable[[], None]]] = {}
        self._queue: deque[tuple[HomeId, Told]] = deque()
        self._busy = False
        self._probes: dict[bytes, int] = {}
        self._turn = 0
        self._timer: int | None = None
        self._soon: int | None = None
        self._sample: deque[Mapping[str, object]] = deque(maxlen=SAMPLE_MAX)
        errands.do(Where, self._where)

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are about filters."""
        return dict.fromkeys((Want, Filter, Known, Absent), self._received)

    # -- what custody tells (`shelves.Fellow`) -------------------------------------------------------------------------

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """A home holds arcs here that it did not hold before."""
        lease_us = self._settings.lease_us
        owed = lease_us if owed_us is None else min(max(owed_us, 0), 2 * lease_us)
        self._owe(home, owed)
        self._members.setdefault(home, {})
        self._changed.setdefault(home, {})
        if self._timer is None:
            self._timer = self._services.after(self._jitter(SOON_US), self._tick)
        self._look_soon()

    def _owe(self, home: HomeId, owed_us: int) -> None:
        self._owed_until[home] = max(self._owed_until.get(home, 0), self._services.now + owed_us)

    def owed_us(self, home: HomeId) -> int:
        """How long others may rely on what a home here has told them, or may have told."""
        self._update(home)
        now = self._services.now
        told = [member.edges.owed_us(now) for member in self._members.get(home, {}).values()]
        return max(0, self._owed_until.get(home, 0) - now, *told)

    def ended(self, home: HomeId) -> None:
        """A home is here no longer; where it serves next it begins anew."""
        for table in (self._members, self._seen, self._changed, self._owed_until):
            table.pop(home, None)
        for key in [key for key in self._waiting if key[0] == home]:
            del self._waiting[key]

    def changed(self, home: HomeId, name: str) -> None:
        """Something lies at a home here, or does no longer."""
        self._changed.setdefault(home, {})[name] = None
        self._look_soon()

    def _look_soon(self) -> None:
        if self._soon is None:
            self._soon = self._services.after(SOON_US, self._look)

    def _look(self) -> None:
        self._soon = None
        for home in list(self._members):
            self._update(home)

    # -- what may be asked ---------------------------------------------------------------------------------------------

    def when_safe(self, home: HomeId, name: str, then: Callable[[], None]) -> None:
        """Call back when every event that is published from then on meets an entry of a home here.

        Never where it goes away meanwhile: whoever holds it then says so.
        """
        self._update(home)
        waiting = self._waiting.setdefault((home, name), [])
        waiting.append(then)
        del waiting[:-WAITING_MAX]
        self._call_back(home, name)

    def _call_back(self, home: HomeId, name: str) -> None:
        item = self._shelves.at(home).items.get(name)
        if item is None:
            self._waiting.pop((home, name), None)
            return
        member = self.holder(home, item.home)
        if member is not None and member.edges.is_safe(name):
            for then in self._waiting.pop((home, name), ()):
                then()

    def holder(self, home: HomeId, key: bytes) -> Member | None:
        """The member of a home here that has a key."""
        members = self._members.get(home, {}).values()
        return next((member for member in members if member.arc.holds(key)), None)

    def find(self, home: HomeId, place: bytes) -> Member | None:
        """The member of a home here that has a place, as it is now."""
        self._update(home)
        return self._members.get(home, {}).get(place)

    def root(self, home: HomeId) -> Member | None:
        """A member of this node, of a home if it has one."""
        for each in (home, *sorted(self._members)):
            self._update(each)
            for member in self._members.get(each, {}).values():
                return member
        return None

    def sample(self, attributes: Mapping[str, object]) -> None:
        """An event has come by."""
        self._sample.append(attributes)

    def missed(self, home: HomeId) -> None:
        """A home left something unanswered."""
        self._missed[home] = self._missed.get(home, 0) + 1

    # -- keys and entries ----------------------------------------------------------------------------------------------

    def _update(self, home: HomeId) -> None:
        """Bring the members of a home up to date with what it holds."""
        members = self._members.get(home)
        if members is None:
            return
        arcs, changed = self._custody.arcs(home), self._changed.get(home, {})
        if arcs == self._seen.get(home):
            if changed:
                self._changed[home] = {}
                self._tell_changed(home, changed)
            return
        self._seen[home], self._changed[home] = arcs, {}
        now = self._services.now
        places = {bytes(arc.high) for arc in arcs}
        for place in [place for place in members if place not in places]:
            self._owe(home, members.pop(place).edges.owed_us(now))
        owed_us = max(0, self._owed_until.get(home, 0) - now)
        items = self._shelves.at(home).items
        for arc in arcs:
            member = members.get(bytes(arc.high))
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
            self._say(member, edges.change(now, wanted, self._own(arc), self._links(member), owed_us))
        self._work()

    def _make(self, home: HomeId, arc: Arc) -> Member:
        self._lives = (self._lives + 1) % NUMBER_MAX
        size, place = self._services.ring.size, self._services.ring.number(arc.high)
        edges = Edges(size, place, self._table, self._settings.lease_us, self._services.now, 0)
        return Member(home, arc, self._lives, edges)

    def _table(self) -> Table:
        sample = Sample(tuple(self._sample)) if self._settings.strategy == "imperfect" else None
        return make_table(self._settings.strategy, sample, self._settings.share)

    def _own(self, arc: Arc) -> Range:
        ring = self._services.ring
        return Range(ring.number(ring.add(arc.low, 1)), ring.distance(arc.low, arc.high) or ring.size)

    def _tell_changed(self, home: HomeId, names: Iterable[str]) -> None:
        items = self._shelves.at(home).items
        now = self._services.now
        for member in self._members[home].values():
            edges = member.edges
            wanted: dict[str, Rows] = {}
            for name in names:
                item = items.get(name)
                rows = (item.read.conjunction,) if item is not None and member.arc.holds(item.home) else ()
                if rows != edges.names.get(name, ()):
                    wanted[name] = rows
            if wanted:
                self._say(member, edges.change(now, wanted, edges.graph.own, edges.begins))
        self._work()

    # -- whom edges lead to --------------------------------------------------------------------------------------------

    def _links(self, member: Member) -> dict[int, int]:
        chart = self._chart()
        begins = member.edges.begins
        found = fingers(member.edges.place, sorted(chart), self._services.ring.size)
        member.homes = {place: chart[place][0] for place in found}
        return {place: begins[place] if place in begins else chart[place][1] for place in found}

    def _chart(self) -> dict[int, tuple[HomeId, int]]:
        """All places that are known, each with its home, and where its keys may begin."""
        ring = self._services.ring
        chart: dict[int, tuple[HomeId, int]] = {}
        for home, arc in self._atlas.held():
            if not self._is_silent(home) and home not in self._members:
                is_guessed = self._by_place and arc.high == home
                if not is_guessed:
                    chart[ring.number(arc.high)] = home, ring.number(ring.add(arc.low, 1))
        if self._by_place:
            homes = self._hosting.directory.homes()
            for at, home in enumerate(homes):
                if not self._is_silent(home) and self._absent.get(home, 0) <= self._services.now:
                    chart[ring.number(home)] = home, ring.number(ring.add(homes[at - 1], 1))
        for home, members in self._members.items():
            if self._by_place:
                chart.pop(ring.number(home), None)
            for member in members.values():
                chart[member.edges.place] = home, member.edges.graph.own.begin
        return chart

    def _is_silent(self, home: HomeId) -> bool:
        return self._missed.get(home, 0) >= MISSED_MAX and home not in self._members

    def _answered(self, home: HomeId) -> None:
        if self._missed.pop(home, 0) >= MISSED_MAX:
            self._look_soon()

    def _jitter(self, wait_us: int) -> int:
        return wait_us - self._services.random.randrange(wait_us // 4 + 1)

    def _tick(self) -> None:
        """Ask again, and look whom edges lead to."""
        self._timer = self._services.after(self._jitter(self._settings.period_us), self._tick)
        now = self._services.now
        self._rounds += 1
        for table in (self._missed, self._absent, self._asked_in):
            for home in [home for home in table if self._hosting.directory.host(home) is None]:
                del table[home]
        for home in list(self._members):
            self._update(home)
            for member in list(self._members.get(home, {}).values()):
                edges = member.edges
                links = self._links(member)
                if links.keys() != edges.begins.keys():
                    self._say(member, edges.change(now, {}, edges.graph.own, links))
                self._say(member, edges.again(now))
                if not self._by_place:
                    self._probe(member)
            self._call_back_all(home)
        self._knock()
        self._work()

    def _knock(self) -> None:
        """Ask those who were silent whether they are there."""
        root = next((member for members in self._members.values() for member in members.values()), None)
        if root is None:
            return
        for home in sorted(self._missed):
            if self._is_silent(home):
                place = next((bytes(arc.high) for each, arc in self._atlas.held() if each == home), bytes(home))
                empty = Ask(Range(root.edges.place, 0), self._services.now)
                self._send(home, self._want(root, Named(home, place), empty))

    def _probe(self, member: Member) -> None:
        """Look who holds the keys at which fingers begin: those of which nothing is known, and now and then others."""
        ring, now = self._services.ring, self._services.now
        for key in [key for key, until in self._probes.items() if until <= now]:
            del self._probes[key]
        gaps = [(place - member.edges.place) % ring.size for place in member.edges.graph.nodes]
        steps = dict.fromkeys([1, *(1 << gap.bit_length() for gap in gaps)])
        keys = [bytes(ring.add(member.place, step)) for step in steps if step < ring.size]
        keys = [key for key in keys if not member.arc.holds(key)]
        unknown = [key for key in keys if self._atlas.holder(key) is None][:PROBES_MAX]
        self._turn += 1
        if keys and self._turn % PROBE_AGAIN == 0:
            unknown.append(keys[self._turn // PROBE_AGAIN % len(keys)])
        for key in unknown:
            if key not in self._probes:
                self._look_for(key)

    def _look_for(self, key: bytes) -> None:
        within_us = PROBE_PERIODS * self._settings.period_us
        self._probes[key] = self._services.now + within_us
        number = self._errands.run(key, key, Where(), lambda: None)
        self._services.after(within_us, lambda: self._errands.stop(number))

    def _where(self, home: object, reached: Reached, where: Where, answer: Callable[[Message], None]) -> None:
        answer(WhereIs())

    # -- what is said --------------------------------------------------------------------------------------------------

    def _say(self, member: Member, said: Said) -> None:
        ring = self._services.ring
        me = Named(member.home, member.place, member.life)
        for place, message in said:
            key = bytes(ring.key(place))
            match message:
                case Ask():
                    home = member.homes.get(place)
                    if home is not None:
                        if home not in self._members and self._asked_in.get(home) != self._rounds:
                            self._asked_in[home] = self._rounds
                            self.missed(home)
                        self._send(home, self._want(member, Named(home, key, member.lives.get(place, 0)), message))
                case State():
                    asker = member.askers.get(place)
                    if asker is not None:
                        rows = None if message.rows is None else tuple(map(_text, message.rows))
                        stretch = Stretch.of(ring, message.range)
                        told = Filter(
                            Named(asker[0], key, asker[1]), me, message.number, stretch, rows, message.at,
                            message.good_us, message.is_pending,
                        )  # fmt: skip
                        self._send(asker[0], told)
                case Ack():
                    home = member.homes.get(place)
                    if home is not None:
                        to = Named(home, key, member.lives.get(place, 0))
                        self._send(home, Known(to, me, message.number))
        self._call_back_all(member.home)

    def _want(self, member: Member, to: Named, ask: Ask) -> Want:
        me = Named(member.home, member.place, member.life)
        return Want(to, me, Stretch.of(self._services.ring, ask.range), ask.at, ask.known)

    def _send(self, home: HomeId, message: Told) -> None:
        host = self._hosting.directory.host(home)
        if host is None:
            return
        if host.id != self._services.me.id:
            self._services.send(host, message)
        elif home in self._members:
            self._queue.append((home, message))

    def _work(self) -> None:
        """Let members of this node hear each other, one after another."""
        if self._busy:
            return
        self._busy = True
        while self._queue:
            _, message = self._queue.popleft()
            self._heard(self._services.me, message)
        self._busy = False

    def _call_back_all(self, home: HomeId) -> None:
        for key in [key for key in self._waiting if key[0] == home]:
            self._call_back(*key)

    # -- what is heard -------------------------------------------------------------------------------------------------

    def _received(self, source: Peer, message: Message) -> None:
        assert isinstance(message, Want | Filter | Known | Absent)
        ring = self._services.ring
        named = (message.to, message.source)
        if not all(ring.holds(each.home) and ring.holds(each.place) for each in named):
            self._services.observe("filter_malformed")
            return
        self._heard(source, message)
        self._work()

    def _heard(self, source: Peer, message: Told) -> None:
        self._answered(message.source.home)
        self._update(message.to.home)
        member = self._members.get(message.to.home, {}).get(message.to.place)
        match message:
            case Want():
                self._asked(source, member, message)
            case Filter():
                self._told(member, message)
            case Known():
                if member is not None and message.to.life == member.life and 0 <= message.number < NUMBER_MAX:
                    self._hear(member, message.source, Ack(message.number))
            case Absent():
                self._is_absent(message)

    def _hear(self, member: Member, source: Named, message: Ask | State | Ack) -> None:
        place = self._services.ring.number(source.place)
        self._say(member, member.edges.heard(place, message, self._services.now))

    def _asked(self, source: Peer, member: Member | None, want: Want) -> None:
        range_ = want.range.range(self._services.ring)
        if range_ is None or not 0 <= want.at < NUMBER_MAX:
            self._services.observe("filter_malformed")
            return
        if member is None:
            if want.to.home in self._hosting.homes:
                me = Named(want.to.home, want.to.place)
                absent = Absent(want.source, me, self._custody.arcs(want.to.home))
                if source.id == self._services.me.id:
                    self._queue.append((want.source.home, absent))
                else:
                    self._services.send(source, absent)
            return
        place = self._services.ring.number(want.source.place)
        asker = (want.source.home, want.source.life)
        if member.askers.get(place) != asker:
            member.askers[place] = asker
            member.edges.asked_anew(place)
        known = want.known if want.to.life == member.life else -1
        self._hear(member, want.source, Ask(range_, want.at, known))
        if len(member.askers) > 2 * len(member.edges.granted):
            member.askers = {each: who for each, who in member.askers.items() if each in member.edges.granted}

    def _told(self, member: Member | None, message: Filter) -> None:
        ring = self._services.ring
        range_ = message.range.range(ring)
        times = (message.number, message.at, message.good_us)
        if range_ is None or not all(0 <= each < NUMBER_MAX for each in times):
            self._services.observe("filter_malformed")
            return
        if member is None or message.to.life != member.life:
            return  # told to one that is not here any more
        place, life = ring.number(message.source.place), message.source.life
        since = member.edges.since(place)
        if since is None or message.at < since:
            return
        known = member.lives.get(place)
        member.lives[place], member.homes[place] = life, message.source.home
        if known is not None and known != life:
            # Another serves there now: what it says counts from the next question on.
            self._say(member, member.edges.begin_anew(place, self._services.now))
            return
        rows = None if message.rows is None else self._rows(message.rows)
        state = State(
            message.number, range_, rows, message.at, message.good_us, message.is_pending
        )  # fmt: skip
        self._hear(member, message.source, state)

    def _rows(self, texts: tuple[str, ...]) -> Rows:
        """Rows as they came; what cannot be read accepts everything."""
        if len(texts) > ROWS_MAX:
            return (EVERYTHING,)
        rows = [conjunction_in(text, 0) for text in texts]
        if None in rows:
            self._services.observe("filter_malformed")
        return tuple([EVERYTHING if row is None else row for row in rows])

    def _is_absent(self, message: Absent) -> None:
        ring = self._services.ring
        home = message.source.home
        if not all(ring.holds(arc.low) and ring.holds(arc.high) for arc in message.arcs):
            self._services.observe("filter_malformed")
        elif home not in self._hosting.homes and self._hosting.directory.host(home) is not None:
            self._atlas.learn(home, message.arcs)
            if message.source.place == home:
                self._absent[home] = self._services.now + ABSENT_PERIODS * self._settings.period_us

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def all(self) -> list[Member]:
        """All members of this node, as they were when they were last brought up to date."""
        return [member for members in self._members.values() for member in members.values()]

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert not self._queue or self._busy
        assert self._members.keys() <= self._hosting.homes.keys()


@lru_cache(maxsize=4_096)
def _text(row: Conjunction) -> str:
    return render((row,))
