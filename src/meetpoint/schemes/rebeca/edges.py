"""The filters of one member: what it knows of its edges, and what it told others (paper E, sections 4.4 and 5.2).

Pure: what happens comes in with the time, what is to be said comes out.

Three messages:

- `EdgeQuery`, down an edge: "I hold you responsible for this range" (the paper's responsibility-change). Asked again
  and again: it is how what is known is kept.
- `EdgeState`, up: the *whole* table for a range, numbered: what is wanted in it, and how long that is good.
- `EdgeAck`, down: a state is known here, and above here.

**What is told of a range is what is wanted here and what is known of every edge that answers for some of it.** What is
not known is wanted: an edge that is new, that answers for more than it has told, or whose lease is over accepts every
event. So filters never cost a match:

- A subscription is acknowledged when all who were told of this place, and whose lease is not over, know of it. Each of
  these says so only when the same holds of all that *it* has told. So a member that may meet an event published later
  knows.
- What is told is good only as long as all that it rests on. So when a member waits for the lease of one that is silent
  to be over, it waits for all further up too: they may still rely on what the silent one told them.
- A member that begins anew, or gets keys of another, does not know who was told of them: it acknowledges nothing until
  the longest lease that these may have is over (`ready_at`, `owed_us`).
- Numbers grow, and what comes late is dropped: a smaller table never outlives a larger one, and a larger one not a
  smaller. A state that answers a question from before the edge was made counts for nothing.
- A member that has not acknowledged the last state is not told that anything is good for longer. So all waiting ends
  within a lease, whoever is silent, and also where, in a time of change, members wait for each other in a ring.
- A member that narrows what it asks for is told of the wider range as long as that is good: those above may rest on it.

A granter adds the clock margin to its waiting, so that holders rely on the whole time.

Deviations: as printed, a smaller filter is always covered by the one that is there, and never takes effect; a whole
state replaces what was there. A new edge begins by accepting everything. What is told rests only on edges of a lower
level (`graph`), as is so by itself where edges are right; where it is not, the edge counts as unknown. Else two members
could go on telling each other what nobody wants any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import NamedTuple, TypeAlias

from meetpoint.placement.entries.leases import Lease, LeaseTable, granter_us
from meetpoint.schemes.rebeca.graph import Graph, GraphPart, Range, Split, level
from meetpoint.schemes.rebeca.tables import ALL, FilterTable, Rows, accepts

__all__ = ["EdgeAck", "EdgeMessage", "EdgeQuery", "EdgeState", "Edges", "Outgoing"]

HERE = "here"
"""The source of what is wanted at a member itself: the paper's loopback edge."""
NOBODY = "nobody"
"""The source of what may be wanted where no edge leads."""
ACKS_OWED_MAX = 4_096
"""Acknowledgements that wait."""
GRANTED_MAX = 1_024
"""Members that are told. One that asks beyond that goes on sending everything."""
ENDS_MAX = 64
"""Ranges of one member that are good at the same time."""
LEAST = 8
"""A lease divided by this is the shortest time that anything rests on."""


class EdgeQuery(NamedTuple):
    """To where an edge leads: the range it answers for, when that was asked, and the number of what is known."""

    range: Range
    at: int
    """The time by the asker's clock."""
    known: int = -1


class EdgeState(NamedTuple):
    """To one whose edge leads here: all that is wanted in a range, good for so long after its last question."""

    number: int
    range: Range
    rows: Rows | None
    """The table; None where the asker has it."""
    at: int
    good_us: int
    is_pending: bool = False
    """Whether an `EdgeAck` is waited for."""


class EdgeAck(NamedTuple):
    """To one that an edge leads to: this state is known, here and further up."""

    number: int


EdgeMessage: TypeAlias = EdgeQuery | EdgeState | EdgeAck
Outgoing: TypeAlias = list[tuple[int, EdgeMessage]]


class _Edge:
    """An edge that leads away from here, and what is known of it."""

    __slots__ = ("is_asked", "number", "range", "rows", "since", "until")

    def __init__(self, since: int) -> None:
        self.since = since  # questions that were asked before are not this edge's
        self.is_asked = False
        self.number = -1
        self.range = Range(0, 0)
        self.rows: Rows = ALL
        self.until = -1


class _FilterLease(Lease):
    """The lease of one whose edge leads here, and what it was told."""

    __slots__ = (
        "acked",
        "at",
        "ends",
        "good_us",
        "graph",
        "has_gap",
        "number",
        "promised",
        "range",
        "rests_on",
        "rows",
        "table",
    )

    def __init__(self, table: FilterTable) -> None:
        super().__init__(-1)
        self.table = table
        self.rows: Rows = ()  # of the table, as they were told
        self.ends: dict[int, int] = {}  # where ranges end that it was told of, and until when that is good
        self.range = Range(0, 0)
        self.graph: Graph | None = None  # by which it was found what the range rests on
        self.has_gap = False
        self.rests_on: list[tuple[int, bool]] = []  # edges that answer for some of it, and whether it may rest on them
        self.number = -1
        self.acked = -1
        self.at = -1
        self.good_us = 0
        self.promised = -1  # until when it may rely on what it was told


class Edges:
    """The filters of one member."""

    def __init__(
        self, size: int, place: int, table: Callable[[], FilterTable], lease_us: int, now: int, owed_us: int
    ) -> None:
        self.size = size
        self.place = place
        self.graph = Graph(size, place, Range(place, 1), {})
        self._table = table
        self._lease_us = lease_us
        self._begins: dict[int, int] = {}
        self._edges: dict[int, _Edge] = {}
        self._leases: LeaseTable[int, _FilterLease] = LeaseTable()
        self._leases.inherit(place, owed_us, now)
        self._wanted: dict[str, Rows] = {}
        self._here: Rows = ()
        self._number = now
        self._acks_owed: list[
            tuple[int, int, dict[int, int]]
        ] = []  # to whom, which number, and who has to know what first
        self._unsafe: dict[str, dict[int, int]] = {}  # what waits to be acknowledged, and who has to know what first

    # -- what may be asked ---------------------------------------------------------------------------------------------

    @property
    def ready_at(self) -> int:
        """The time until which others may rely on what was told of these keys and is not known here."""
        return self._leases.ready_at(self.place) or 0

    def rows(self, node: int, now: int) -> Rows:
        """Return the filter of an edge: what is wanted behind it."""
        edge = self._edges.get(node)
        return edge.rows if edge is not None and self._is_known(node, edge, now) else ALL

    @property
    def begins(self) -> Mapping[int, int]:
        """The members that edges lead to, and where the keys there begin, as far as is known."""
        return self._begins

    def since(self, node: int) -> int | None:
        """Return when an edge was made; None where there is none."""
        edge = self._edges.get(node)
        return None if edge is None else edge.since

    @property
    def names(self) -> Mapping[str, Rows]:
        """The tables that are wanted at this member itself, by name."""
        return self._wanted

    @property
    def granted(self) -> Collection[int]:
        """The members whose edges lead here."""
        return self._leases.granted.keys()

    @property
    def here(self) -> Rows:
        """The rows that are wanted at this member itself."""
        return self._here

    def told(self, now: int) -> dict[int, tuple[Range, Rows]]:
        """Return what was told to whom, and is still good."""
        granted = self._leases.granted.items()
        return {node: (lease.range, lease.rows) for node, lease in granted if lease.promised > now}

    def split(self, asked: Range, attributes: Mapping[str, object], now: int) -> Split:
        """Part a range for an event; parts in which nobody wants it are left out, and so answered for."""
        split = self.graph.split(asked)
        return split._replace(parts=[part for part in split.parts if self._is_wanted(part, attributes, now)])

    def is_safe(self, name: str) -> bool:
        """Return whether a subscription, as it is now, may be acknowledged."""
        return name not in self._unsafe

    def owed_us(self, now: int) -> int:
        """Return how long others may rely on what was told here: the next owner of its keys waits as long."""
        return self._leases.owed_us(self.place, now)

    def is_quiet(self, now: int) -> bool:
        """Return whether all is known and told: nothing need be said again soon."""
        is_known = all(self._is_known(node, edge, now) for node, edge in self._edges.items())
        return is_known and not self._acks_owed and not self._unaware(now)

    def _is_wanted(self, part: GraphPart, attributes: Mapping[str, object], now: int) -> bool:
        return accepts(self.rows(part.node, now), attributes)

    def _is_known(self, node: int, edge: _Edge, now: int) -> bool:
        return edge.until > now and edge.range.encloses(self.graph.responsible[node], self.size)

    # -- what may happen -----------------------------------------------------------------------------------------------

    def relink(self, own: Range, links: Mapping[int, int], now: int, owed_us: int = 0) -> Outgoing:
        """Take other keys or edges. `owed_us`: how long others may rely on what was told of the new keys."""
        return self.change(now, {}, own, links, owed_us)

    def want(self, name: str, rows: Rows, now: int) -> Outgoing:
        """Take a subscription here that is new, changed or gone."""
        return self.change(now, {name: rows}, self.graph.own, self._begins)

    def change(
        self, now: int, wanted: Mapping[str, Rows], own: Range, links: Mapping[int, int], owed_us: int = 0
    ) -> Outgoing:
        """Take both at once: nobody is to hear of new keys without what is wanted there.

        A name without rows is gone.
        """
        self._leases.inherit(self.place, owed_us, now)
        if own != self.graph.own or links != self._begins:
            self._begins = dict(links)
            self._draw(own, now)
        if wanted:
            self._wanted.update(wanted)
            for name in [name for name, rows in wanted.items() if not rows]:
                del self._wanted[name]
            self._here = tuple([row for each in self._wanted.values() for row in each])
        said = self._refresh(now)
        unaware = self._unaware(now)
        for name, rows in wanted.items():
            self._unsafe.pop(name, None)
            if rows:
                self._unsafe[name] = unaware
        return said + self._acknowledge(now)

    def _draw(self, own: Range, now: int) -> None:
        self.graph = Graph(self.size, self.place, own, self._begins)
        self._edges = {node: self._edges.get(node) or _Edge(now) for node in self.graph.nodes}

    def begin_anew(self, node: int, now: int) -> Outgoing:
        """Forget what an edge told, as another member serves there now, or the same after a restart."""
        if node in self._edges:
            self._edges[node] = _Edge(now)
        self._acks_owed = [each for each in self._acks_owed if each[0] != node]
        return self._refresh(now)

    def asked_anew(self, source: int) -> None:
        """Note that one whose edge leads here is another now, or has restarted: its questions have other times."""
        lease = self._leases.granted.get(source)
        if lease is not None:
            lease.at = -1

    def heard(self, source: int, message: EdgeMessage, now: int) -> Outgoing:
        """Take a message of another member; one that makes no sense is dropped."""
        match message:
            case EdgeQuery():
                return self._take_query(source, message, now) if self._is_sound(message.range) else []
            case EdgeState():
                is_sound = self._is_sound(message.range) and message.at <= now and message.good_us <= self._lease_us
                return self._take_state(source, message, now) if is_sound else []
            case EdgeAck():
                lease = self._leases.granted.get(source)
                if lease is not None and message.number <= lease.number:
                    lease.acked = max(lease.acked, message.number)
                return self._acknowledge(now)

    def _is_sound(self, range_: Range) -> bool:
        return 0 <= range_.begin < self.size and 0 <= range_.length <= self.size

    def again(self, now: int) -> Outgoing:
        """Return what to say now and then: questions, and what was not acknowledged; new edges are asked apart."""
        asks = self._ask([node for node, edge in self._edges.items() if edge.is_asked], now)
        states = self._refresh(now)
        told = {node for node, _ in states}
        for node in self._unaware(now):
            if node not in told:
                states.append((node, self._state(self._leases.granted[node])))
        return asks + states + self._acknowledge(now)

    def ask_new(self, now: int) -> Outgoing:
        """Ask where edges lead that were not asked yet.

        A member that does so before it has found all its edges asks one for what another will answer for, and is told
        of it as long as that is good.
        """
        return self._ask([node for node, edge in self._edges.items() if not edge.is_asked], now)

    def _ask(self, nodes: Iterable[int], now: int) -> Outgoing:
        said: Outgoing = []
        for node in nodes:
            edge = self._edges[node]
            edge.is_asked = True
            said.append((node, EdgeQuery(self.graph.responsible[node], now, edge.number)))
        return said

    def remake(self, now: int) -> Outgoing:
        """Draw what is wanted together anew, by what events are like now; whatever changes is told."""
        for lease in self._leases.granted.values():
            lease.table = self._table()
        return self._refresh(now)

    # -- those whose edges lead here -----------------------------------------------------------------------------------

    def _take_query(self, source: int, ask: EdgeQuery, now: int) -> Outgoing:
        own = self.graph.own
        lease = self._leases.granted.get(source)
        is_new = lease is None or lease.until <= now
        if source == self.place or not ask.range.meets(own, self.size) or (is_new and self._is_full(now)):
            return [(source, EdgeState(self._number, Range(own.begin, 0), ALL, ask.at, 0))]
        if lease is None or is_new:
            lease = self._leases.granted[source] = _FilterLease(self._table())
            lease.acked = self._number  # all that it was told before is over: nobody waits for it to know that
        end = ask.range.end(self.size)
        if ask.at < lease.at or (len(lease.ends) >= ENDS_MAX and end not in lease.ends):
            return []  # an older question, come late, or too many
        lease.at = ask.at
        is_aware = lease.acked >= lease.number
        lease.good_us = self._good_us(source, Range(own.begin, self._reach(end)), now) if is_aware else 0
        until = now + granter_us(lease.good_us)
        lease.promised = max(lease.promised, now + lease.good_us)
        lease.until = max(lease.until, until)
        lease.ends[end] = max(lease.ends.get(end, now), until)
        said = [each for each in self._refresh(now) if each[0] != source]
        state = self._state(lease)
        return [*said, (source, state._replace(rows=None) if ask.known == lease.number else state)]

    def _is_full(self, now: int) -> bool:
        leases = self._leases.granted
        return len(leases) >= GRANTED_MAX and all(lease.until > now for lease in leases.values())

    def _reach(self, end: int) -> int:
        """Return how far it is from where this member's keys begin to an end; to itself, once round."""
        return (end - self.graph.own.begin - 1) % self.size + 1

    def _good_us(self, source: int, range_: Range, now: int) -> int:
        """Return how long what is told may be good: as long as all that it must rest on."""
        good_us = self._lease_us
        for node, edge in self._edges.items():
            if self.graph.responsible[node].meets(range_, self.size) and self._is_lower(node, source):
                left_us = edge.until - now
                if self._is_known(node, edge, now) and left_us * LEAST >= self._lease_us:
                    good_us = min(good_us, left_us)
        return good_us

    def _is_lower(self, node: int, source: int) -> bool:
        """Return whether what is told to one may rest on an edge: nothing ever rests on itself."""
        return level(self.place, node, self.size) < level(source, self.place, self.size)

    def _refresh(self, now: int) -> Outgoing:
        """Bring what was told up to date; whatever changes is told, to each all at once."""
        said: Outgoing = []
        granted = self._leases.granted = {
            source: lease for source, lease in self._leases.granted.items() if lease.until > now
        }
        for source, lease in granted.items():
            lease.ends = {end: until for end, until in lease.ends.items() if until > now}
            range_ = Range(self.graph.own.begin, max(map(self._reach, lease.ends)))
            self._fill(lease, source, range_, now)
            if lease.number < 0 or lease.range != range_ or lease.table.rows != lease.rows:
                lease.range, lease.rows = range_, lease.table.rows
                self._number = lease.number = max(self._number + 1, now)
                said.append((source, self._state(lease)))
        return said

    def _fill(self, lease: _FilterLease, source: int, range_: Range, now: int) -> None:
        """Fill the table of a range: what is wanted here, and behind each edge that answers for some of it."""
        if lease.graph is not self.graph or lease.range != range_:
            lease.graph = self.graph
            lease.has_gap = bool(self.graph.split(range_).left)
            meeting = (node for node in self._edges if self.graph.responsible[node].meets(range_, self.size))
            lease.rests_on = [(node, self._is_lower(node, source)) for node in meeting]
        sources: dict[Hashable, Rows] = {HERE: self._here}
        if lease.has_gap:
            sources[NOBODY] = ALL
        for node, is_lower in lease.rests_on:
            edge = self._edges[node]
            is_good = is_lower and self._is_known(node, edge, now) and edge.until >= lease.promised
            sources[node] = edge.rows if is_good else ALL
        for each in [each for each in lease.table.sources if each not in sources]:
            lease.table.remove(each)
        for each, rows in sources.items():
            lease.table.replace(each, rows)

    def _state(self, lease: _FilterLease) -> EdgeState:
        return EdgeState(lease.number, lease.range, lease.rows, lease.at, lease.good_us, lease.acked < lease.number)

    # -- those to whom edges lead --------------------------------------------------------------------------------------

    def _take_state(self, source: int, state: EdgeState, now: int) -> Outgoing:
        edge = self._edges.get(source)
        if edge is not None and state.at >= edge.since:
            if state.number < edge.number or (state.rows is None and state.number != edge.number):
                return []  # a newer one has come before, or what it is about has not
            if state.range.length:  # else it only says where its keys begin
                edge.number = state.number
                edge.range, edge.rows = state.range, edge.rows if state.rows is None else state.rows
                edge.until = max(edge.until, state.at + state.good_us)
            if self._begins[source] != state.range.begin:
                self._begins[source] = state.range.begin
                self._draw(self.graph.own, now)
        said = self._refresh(now)
        if state.is_pending and all((source, state.number) != acks[:2] for acks in self._acks_owed):
            unaware = {
                node: number
                for node, number in self._unaware(now).items()
                if self._leases.granted[node].range.meets(state.range, self.size)
            }
            self._acks_owed.append((source, state.number, unaware))
            del self._acks_owed[:-ACKS_OWED_MAX]  # who is owed says it again
        return said + self._acknowledge(now)

    # -- who knows -----------------------------------------------------------------------------------------------------

    def _unaware(self, now: int) -> dict[int, int]:
        """Return who was told something that it has not acknowledged, and the number of that."""
        return {
            node: lease.number
            for node, lease in self._leases.granted.items()
            if lease.until > now and lease.acked < lease.number
        }

    def _is_known_to(self, unaware: Mapping[int, int], now: int) -> bool:
        """Return whether all who had to know something do, or rely on nothing told here any more."""
        for node, number in unaware.items():
            lease = self._leases.granted.get(node)
            if lease is not None and lease.until > now and lease.acked < number:
                return False
        return True

    def _acknowledge(self, now: int) -> Outgoing:
        """Acknowledge what is known further up."""
        if now < self.ready_at:
            return []
        self._unsafe = {name: who for name, who in self._unsafe.items() if not self._is_known_to(who, now)}
        acks, self._acks_owed = self._acks_owed, []
        said: Outgoing = []
        for node, number, unaware in acks:
            if self._is_known_to(unaware, now):
                said.append((node, EdgeAck(number)))
            else:
                self._acks_owed.append((node, number, unaware))
        return said
