"""Messages between members about filters (`edges`), from node to node.

A message goes directly to the node that hosts the other's home; between members of one node nothing is sent. Each
message names both ends with their lives: what was told by or to a former one does not count, so that numbers and times
need no clock that all share. Each also tells who is there and where its keys begin (`contacts`). A member that asks the
first of those that its edges lead to hears, when that has changed, who follows (`member`).
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.syntax.render import render
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.entry_table import conjunction_in
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.rebeca.contacts import Contact, Contacts
from meetpoint.schemes.rebeca.edges import EdgeAck, EdgeQuery, EdgeState, Outgoing
from meetpoint.schemes.rebeca.graph import Range
from meetpoint.schemes.rebeca.member import BESIDE_MAX, EdgeTargets, Member, digest_of
from meetpoint.schemes.rebeca.messages import (
    UNASKED,
    FilterAck,
    FilterQuery,
    FilterUpdate,
    NeighbourList,
    NoSuchMember,
    PackedRange,
    contacts_of,
)
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.tables import EVERYTHING, ROWS_MAX, Rows

if TYPE_CHECKING:
    from meetpoint.schemes.rebeca.members import Members

__all__ = ["NUMBER_MAX", "FilterUpdates"]

NUMBER_MAX: Final = 1 << 62
TELLERS_MAX: Final = 1_024
"""Members that edges lead to or led to before; those before are forgotten."""
ARCS_MAX: Final = 64
"""Ranges that are read of one home."""

Told: TypeAlias = FilterQuery | FilterUpdate | FilterAck | NoSuchMember | NeighbourList


class FilterUpdates:
    """All messages about filters that members of this node send and take."""

    def __init__(
        self,
        runtime: Runtime,
        home_manager: HomeManager,
        ownership: Ownership,
        contacts: Contacts,
        targets: EdgeTargets,
        members: Members,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._ownership = ownership
        self._contacts = contacts
        self._targets = targets
        self._members = members
        self._round = 0
        self._asked_in: dict[HomeId, int] = {}  # in which round
        self._queue: deque[Told] = deque()
        self._busy = False

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about filters."""
        return dict.fromkeys((FilterQuery, FilterUpdate, FilterAck, NoSuchMember, NeighbourList), self._received)

    def begin_round(self) -> None:
        """Begin a round: from now on a home that is asked again has one more question unanswered."""
        self._round += 1
        self._asked_in = {home: at for home, at in self._asked_in.items() if at + 1 >= self._round}

    # -- what is said --------------------------------------------------------------------------------------------------

    def say(self, member: Member, said: Outgoing) -> None:
        """Send what a member says."""
        ring = self._runtime.ring
        for place, message in said:
            key = bytes(ring.key(place))
            match message:
                case EdgeQuery():
                    home = member.homes.get(place)
                    if home is not None:
                        self._ask(member, Named(home, key, _life(member, place)), message)
                case EdgeState():
                    asker = member.askers.get(place)
                    if asker is not None:
                        rows = None if message.rows is None else tuple(map(_text, message.rows))
                        stretch = PackedRange.of(ring, message.range)
                        told = FilterUpdate(
                            Named(asker[0], key, asker[1]), member.name, message.number, stretch, rows, message.at,
                            message.good_us, message.is_pending,
                        )  # fmt: skip
                        self._send(asker[0], told)
                case EdgeAck():
                    teller = member.tellers.get(place)
                    if teller is not None:
                        self._send(teller[0], FilterAck(Named(teller[0], key, teller[1]), member.name, message.number))
        self._members.call_back_all(member.home)

    def probe(self, member: Member, contact: Contact) -> None:
        """Ask a member that no edge leads to whether it is there."""
        nothing = EdgeQuery(Range(member.edges.place, 0), self._runtime.now)
        self._ask(member, Named(contact.home, bytes(self._runtime.ring.key(contact.place))), nothing)

    def _ask(self, member: Member, to: Named, ask: EdgeQuery) -> None:
        ring = self._runtime.ring
        if not self._is_here(to.home) and self._asked_in.get(to.home) != self._round:
            self._asked_in[to.home] = self._round
            self._contacts.missed(to.home)
        place, listed = ring.number(to.place), UNASKED
        if place == member.first:
            listed = member.listed_by[1] if member.listed_by[0] == place else 0
        begin = bytes(ring.key(member.edges.graph.own.begin))
        stretch = PackedRange.of(ring, ask.range)
        self._send(to.home, FilterQuery(to, member.name, stretch, ask.at, ask.known, begin, listed))

    def _is_here(self, home: HomeId) -> bool:
        return home in self._home_manager.homes

    def _send(self, home: HomeId, message: Told) -> None:
        host = self._contacts.host(home)
        if host is None:
            return
        if host.id != self._runtime.me.id:
            self._runtime.send(host, message)
        elif self._is_here(home):
            self._queue.append(message)

    def work(self) -> None:
        """Let members of this node hear each other, one after another."""
        if self._busy:
            return
        self._busy = True
        while self._queue:
            self._heard(self._runtime.me, self._queue.popleft())
        self._busy = False

    # -- what is heard -------------------------------------------------------------------------------------------------

    def _received(self, source: Peer, message: Message) -> None:
        assert isinstance(message, FilterQuery | FilterUpdate | FilterAck | NoSuchMember | NeighbourList)
        ring = self._runtime.ring
        named = (message.to, message.source)
        if not all(ring.holds(each.home) and ring.holds(each.place) for each in named):
            self._runtime.observe("filter_malformed")
            return
        self._heard(source, message)
        self.work()

    def _heard(self, source: Peer, message: Told) -> None:
        if self._contacts.answered(message.source.home):
            self._members.look_soon()
        member = self._members.find(message.to.home, message.to.place)
        is_meant = member is not None and message.to.life == member.life
        match message:
            case FilterQuery():
                self._filter_query(source, member, message)
            case FilterUpdate():
                self._filter_update(source, member if is_meant else None, message)
            case FilterAck():
                if member is not None and is_meant and 0 <= message.number < NUMBER_MAX:
                    self._hear(member, message.source, EdgeAck(message.number))
            case NoSuchMember():
                self._no_such_member(source, message)
            case NeighbourList():
                self._neighbour_list(member if is_meant else None, message)

    def _hear(self, member: Member, source: Named, message: EdgeQuery | EdgeState | EdgeAck) -> None:
        place = self._runtime.ring.number(source.place)
        self.say(member, member.edges.heard(place, message, self._runtime.now))

    def _meet(self, source: Peer, named: Named, begin: int) -> None:
        """Learn from a message where the keys of its source begin."""
        contact = Contact(named.home, self._runtime.ring.number(named.place), begin, source)
        if self._contacts.heard(contact):
            self._members.look_soon()

    def _filter_query(self, source: Peer, member: Member | None, want: FilterQuery) -> None:
        ring = self._runtime.ring
        range_ = want.range.range(ring)
        if range_ is None or not 0 <= want.at < NUMBER_MAX or not ring.holds(want.begin):
            self._runtime.observe("filter_malformed")
            return
        self._meet(source, want.source, ring.number(want.begin))
        if member is None:
            self._answer_absent(source, want)
            return
        place = ring.number(want.source.place)
        asker = (want.source.home, want.source.life)
        if member.askers.get(place) != asker:
            member.askers[place] = asker
            member.edges.asked_anew(place)
        known = want.known if want.to.life == member.life else -1
        self._hear(member, want.source, EdgeQuery(range_, want.at, known))
        if want.listed != UNASKED:
            cards = self._targets.beside(member, place)
            if digest_of(cards) != want.listed:
                self._send(want.source.home, NeighbourList(want.source, member.name, cards))
        if len(member.askers) > 2 * len(member.edges.granted):
            member.askers = {each: who for each, who in member.askers.items() if each in member.edges.granted}

    def _answer_absent(self, source: Peer, want: FilterQuery) -> None:
        if not self._is_here(want.to.home):
            return
        me = Named(want.to.home, want.to.place)
        absent = NoSuchMember(want.source, me, self._ownership.arcs(want.to.home))
        if source.id == self._runtime.me.id:
            self._queue.append(absent)
        else:
            self._runtime.send(source, absent)

    def _filter_update(self, source: Peer, member: Member | None, message: FilterUpdate) -> None:
        ring = self._runtime.ring
        range_ = message.range.range(ring)
        times = (message.number, message.at, message.good_us)
        if range_ is None or not all(0 <= each < NUMBER_MAX for each in times):
            self._runtime.observe("filter_malformed")
            return
        if member is None:
            return  # told to one that is not here any more
        self._meet(source, message.source, range_.begin)
        place, teller = ring.number(message.source.place), (message.source.home, message.source.life)
        since, known = member.edges.since(place), member.tellers.get(place)
        if since is not None and message.at < since:
            return
        member.tellers[place] = teller
        if since is not None:
            member.homes[place] = message.source.home
            if known is not None and known[1] != teller[1]:
                # Another serves there now: what it says counts from the next question on.
                self.say(member, member.edges.begin_anew(place, self._runtime.now))
                return
        if len(member.tellers) > TELLERS_MAX:
            member.tellers = {each: who for each, who in member.tellers.items() if member.edges.since(each) is not None}
        rows = None if message.rows is None else self._rows(message.rows)
        state = EdgeState(
            message.number, range_, rows, message.at, message.good_us, message.is_pending
        )  # fmt: skip
        self._hear(member, message.source, state)

    def _rows(self, texts: tuple[str, ...]) -> Rows:
        """Read rows; one that cannot be read accepts everything."""
        if len(texts) > ROWS_MAX:
            return (EVERYTHING,)
        rows = [conjunction_in(text, 0) for text in texts]
        if None in rows:
            self._runtime.observe("filter_malformed")
        return tuple([EVERYTHING if row is None else row for row in rows])

    def _neighbour_list(self, member: Member | None, message: NeighbourList) -> None:
        ring = self._runtime.ring
        listed = contacts_of(ring, message.cards[:BESIDE_MAX])
        if listed is None:
            self._runtime.observe("filter_malformed")
            return
        place = ring.number(message.source.place)
        if member is None or place != member.first:
            return  # another is the first by now
        member.listed, member.listed_by = tuple(listed), (place, digest_of(message.cards))
        if self._contacts.told(listed):
            self._members.look_soon()

    def _no_such_member(self, source: Peer, message: NoSuchMember) -> None:
        ring = self._runtime.ring
        home = message.source.home
        if not all(ring.holds(arc.low) and ring.holds(arc.high) for arc in message.arcs):
            self._runtime.observe("filter_malformed")
        elif not self._is_here(home):
            self._contacts.absent(ring.number(message.source.place))
            for arc in message.arcs[:ARCS_MAX]:
                begin = ring.number(ring.add(arc.low, 1))
                self._contacts.heard(Contact(home, ring.number(arc.high), begin, source))
            self._members.look_soon()

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert not self._queue or self._busy


def _life(member: Member, place: int) -> int:
    """Return the life of one that has told something; 0 where none has."""
    return member.tellers[place][1] if place in member.tellers else 0


@lru_cache(maxsize=4_096)
def _text(row: Conjunction) -> str:
    return render((row,))
