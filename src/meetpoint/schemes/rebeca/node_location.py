"""Node-location: who has a key, found through the service itself (paper E, sections 5.1 and 5.3).

A node-location goes down the graph like an event, and instead of a filter it is tested by range inclusion: it goes down
the one edge whose part has its key. So it takes O(log N) messages to whoever has the key, or to where no edge leads on.
That one tells the origin who has the key, or the first from there on that it knows, and who follows.

- It is sent for every finger whose key nobody has who is known (`linking`), the nearest first, and again with growing
  pauses until somebody does. So what is lost is sent again, and an edge that is not right any more is looked for.
- A member that knows nobody has no edge to send anything down. It asks the neighbours that the overlay has whom they
  know from its own keys on. So it does where nobody is known for long who has the key after them: after a partition, or
  should so many fail that the graph falls apart, its parts find each other again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.rebeca.contacts import Contacts
from meetpoint.schemes.rebeca.edge_targets import BESIDE_MAX, EdgeTargets
from meetpoint.schemes.rebeca.member import Member
from meetpoint.schemes.rebeca.messages import (
    LocateNode,
    NeighbourQuery,
    NodeLocated,
    PackedContact,
    PackedRange,
    contacts_of,
)
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.ranges import Range
from meetpoint.schemes.rebeca.timeouts import HOPS_MAX

__all__ = ["NodeLocation"]

UNDER_WAY_MAX: Final = 2
"""How many keys a member looks for at a time: what the nearest tell is of use for those that lie further."""
PAUSE_PERIODS_MAX: Final = 16
"""For how many periods at most whoever looks for a key waits before it does again."""
LONELY_PERIODS: Final = 1
"""In every how many periods a member that knows nobody asks the overlay."""
GAP_PERIODS: Final = 15
"""In every how many one that does not know who has the key after its own does; and not sooner."""
NEIGHBOURS: Final = 4
"""How many neighbours of the overlay are asked."""
MOMENT: Final = 8
"""Which part of a period a member waits before it asks first: others may begin at the same time."""


class _SoughtKey:
    """A key that nobody has who is known: when it was looked for, and how long until it is again."""

    __slots__ = ("again_at", "at", "periods")

    def __init__(self) -> None:
        self.at = self.again_at = -1
        self.periods = 1


class _Search:
    """What a member here looks for."""

    __slots__ = ("asked_since", "is_settling", "member", "sought")

    def __init__(self, member: Member, asked_since: int) -> None:
        self.member = member
        self.sought: dict[int, _SoughtKey] = {}
        self.asked_since = asked_since
        """When the overlay was asked last, or need not have been."""
        self.is_settling = True

    @property
    def next_key(self) -> int:
        """The key after its own."""
        graph = self.member.edges.graph
        return graph.own.end(graph.size)


class NodeLocation:
    """All node-locations that begin at this node or come by.

    `find` gives a member of a home here; `learnt` is called when another member is known than before.
    """

    def __init__(
        self,
        services: Runtime,
        overlay: Overlay,
        contacts: Contacts,
        linking: EdgeTargets,
        period_us: int,
        find: Callable[[HomeId, bytes], Member | None],
        learnt: Callable[[], None],
    ) -> None:
        self._services = services
        self._overlay = overlay
        self._contacts = contacts
        self._linking = linking
        self._period_us = period_us
        self._find = find
        self._learnt = learnt
        self._own: dict[int, _Search] = {}  # by a member's life

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are about where nodes are."""
        return {LocateNode: self._locate, NeighbourQuery: self._where, NodeLocated: self._located}  # type: ignore[dict-item]

    def forget(self, lives: Collection[int]) -> None:
        """Only these members are here."""
        self._own = {life: own for life, own in self._own.items() if life in lives}

    def look(self, member: Member) -> None:
        """Look for whom a member here needs to know and does not."""
        if member.edges.graph.own.length == self._services.ring.size:
            return  # nobody else is there
        own = self._own.get(member.life)
        if own is None:
            waited = LONELY_PERIODS * self._period_us - self._period_us // MOMENT
            own = self._own[member.life] = _Search(member, self._services.now - waited)
        self._ask_overlay(member, own)
        self._look_for(member, own)

    def is_settling(self, member: Member) -> bool:
        """Whether a member has just begun, and looks for some of its edges for the first time."""
        own, now = self._own.get(member.life), self._services.now
        if own is not None and own.is_settling:
            sought = own.sought.values()
            is_first = any(each.at < 0 or (each.periods == 2 and now < each.again_at) for each in sought)
            own.is_settling = member.first is None or is_first
        return own is not None and own.is_settling

    # -- by the overlay ------------------------------------------------------------------------------------------------

    def _ask_overlay(self, member: Member, own: _Search) -> None:
        now, ring = self._services.now, self._services.ring
        if not self._linking.has_gap(member):
            own.asked_since = now
        if now < own.asked_since + (LONELY_PERIODS if member.first is None else GAP_PERIODS) * self._period_us:
            return
        own.asked_since = now
        key = bytes(ring.key(own.next_key))
        for peer in self._overlay.neighbours(NEIGHBOURS):
            self._services.send(peer, NeighbourQuery(key))

    def _where(self, source: Peer, where: NeighbourQuery) -> None:
        if self._services.ring.holds(where.key):
            self._answer(source, NodeLocated(where.key, self._linking.after(self._services.ring.number(where.key))))
        else:
            self._services.observe("notice_malformed")

    # -- by the graph --------------------------------------------------------------------------------------------------

    def _look_for(self, member: Member, own: _Search) -> None:
        now = self._services.now
        own.sought = {key: own.sought.get(key) or _SoughtKey() for key in self._linking.unknown(member)}
        under_way = sum(each.at >= 0 and now < each.at + self._period_us for each in own.sought.values())
        for key, each in own.sought.items():
            if under_way < UNDER_WAY_MAX and each.again_at <= now:
                under_way += 1
                each.at, each.again_at = now, now + each.periods * self._period_us
                each.periods = min(2 * each.periods, PAUSE_PERIODS_MAX)
                self._services.observe("rebeca_sought")
                everything = Range(member.edges.graph.own.begin, self._services.ring.size)
                self._walk(member, everything, key, self._services.me, 0)

    def _walk(self, member: Member, range_: Range, key: int, origin: Peer, hops: int) -> None:
        """Bring a node-location that has come to a member one edge nearer, or answer it."""
        ring = self._services.ring
        split = member.edges.graph.split(range_)
        if split.mine.holds(key, ring.size):
            self._answer(origin, self._here(member, key))
            return
        part = next((part for part in split.parts if part.range.holds(key, ring.size)), None)
        home = None if part is None else member.homes.get(part.node)
        host = None if home is None else self._contacts.host(home)
        if part is None or home is None or host is None or hops >= HOPS_MAX:
            self._answer(origin, NodeLocated(bytes(ring.key(key)), self._linking.after(key)))
            return
        place = bytes(ring.key(part.node))
        if host.id != self._services.me.id:
            stretch = PackedRange.of(ring, part.range)
            locate = LocateNode(Named(home, place), stretch, bytes(ring.key(key)), origin, hops + 1)
            self._services.send(host, locate)
            return
        below = self._find(home, place)
        if below is not None:
            self._walk(below, part.range, key, origin, hops)

    def _here(self, member: Member, key: int) -> NodeLocated:
        ring = self._services.ring
        known = (member.contact(self._services.me), *self._linking.reserve(member))
        return NodeLocated(bytes(ring.key(key)), tuple([PackedContact.of(ring, each) for each in known]))

    def _answer(self, origin: Peer, located: NodeLocated) -> None:
        if origin.id == self._services.me.id:
            self._located(origin, located)
        else:
            self._services.send(origin, located)

    def _locate(self, source: Peer, locate: LocateNode) -> None:
        ring = self._services.ring
        range_ = locate.range.range(ring)
        well = ring.holds(locate.to.home) and ring.holds(locate.to.place) and ring.holds(locate.key)
        if range_ is None or not well or not 0 <= locate.hops <= HOPS_MAX:
            self._services.observe("notice_malformed")
            return
        member = self._find(locate.to.home, locate.to.place)
        if member is not None:
            self._walk(member, range_, ring.number(locate.key), locate.origin, locate.hops)

    # -- what is found -------------------------------------------------------------------------------------------------

    def _located(self, source: Peer, located: NodeLocated) -> None:
        ring = self._services.ring
        found = contacts_of(ring, located.cards[:BESIDE_MAX]) if ring.holds(located.key) else None
        if found is None:
            self._services.observe("notice_malformed")
            return
        key = ring.number(located.key)
        asked = [own for own in self._own.values() if key == own.next_key]
        for own in asked:
            own.member.listed = own.member.listed or tuple(found)
        if found and (asked or any(key in own.sought for own in self._own.values())):  # else it is known by now
            is_own_word = source.id == found[0].host.id
            is_news = is_own_word and self._contacts.heard(found[0])
            if self._contacts.told(found[1:] if is_own_word else found) or is_news:
                self._learnt()
