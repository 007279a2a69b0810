"""How members of the graph find each other, through the service itself (paper E, sections 5.1 and 5.3).

**Node-location**: who has a key? A node-location goes down the graph like an event, and instead of a filter it is
tested by range inclusion: it goes down the one edge whose part has its key. So it takes O(log N) messages to the member
that has the key, or to where no edge leads on. That member tells the origin who has the key, or the first from there on
that it knows, and who follows.

- It is sent for every finger whose key nobody has who is known (`member`), the nearest first, and again with growing
  pauses until somebody does. So what is lost is sent again, and an edge that is not right any more is looked for.
- A member that knows nobody has no edge to send anything down. It asks the neighbours that the overlay has whom they
  know from its own keys on. So it does where nobody is known for long who has the key after them: after a partition, or
  should so many fail that the graph falls apart, its parts find each other again.

**Node-join**: those whose edge a member is to be hear of it. A node-join goes down the graph like an event, and instead
of a filter it is tested by ranges of the ring: it goes down an edge only where the edge's part has a key in common with
its *targets*. These are the places that an edge leads from to the member's keys, for every k; so just those hear of it
whose edge it is to be, and who lies on the way to them.

It is sent when a member begins, and when one has got keys that it had not. A node that hands it on answers for that,
and names what was *left*: targets where no edge leads, or where nobody answered in time. What was left is sent again,
with growing pauses. One that comes twice does no harm. What is lost for good is not missed: a member with another edge
sees, when that says where its keys begin, that it is not the right one any more (`member`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.rebeca.contacts import Contact, Contacts
from meetpoint.schemes.rebeca.graph import RANGES_MAX, GraphPart, Range, fingered_by, merged
from meetpoint.schemes.rebeca.member import BESIDE_MAX, EdgeTargets, Member
from meetpoint.schemes.rebeca.messages import (
    LocateNode,
    NeighbourQuery,
    NodeJoined,
    NodeJoinedReply,
    NodeLocated,
    PackedContact,
    PackedRange,
    contacts_of,
    ranges_of,
)
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.settings import HOPS_MAX, STEP_US, WITHIN_US

if TYPE_CHECKING:
    from meetpoint.schemes.rebeca.members import Members

__all__ = ["TRIES_MAX", "NodeJoin", "NodeLocation"]


UNDER_WAY_MAX: Final = 2
"""Keys that a member looks for at a time: what the nearest tell is of use for those that lie further."""
PAUSE_PERIODS_MAX: Final = 16
"""Periods at most that a member waits before it looks for a key again."""
LONELY_PERIODS: Final = 1
"""Periods after which a member that knows nobody asks the overlay again."""
GAP_PERIODS: Final = 15
"""Periods after which a member asks it that does not know who has the key after its own."""
NEIGHBOURS: Final = 4
"""Neighbours of the overlay that are asked."""
MOMENT: Final = 8
"""The part of a period that a member waits before it asks first: others may begin at the same time."""


class _SoughtKey:
    """A key that no known member has: when it was looked for, and how long until it is again."""

    __slots__ = ("again_at", "at", "periods")

    def __init__(self) -> None:
        self.at = self.again_at = -1
        self.periods = 1


class _Search:
    """The keys that a member here looks for."""

    __slots__ = ("asked_since", "is_settling", "member", "sought")

    def __init__(self, member: Member, asked_since: int) -> None:
        self.member = member
        self.sought: dict[int, _SoughtKey] = {}
        self.asked_since = asked_since
        """When the overlay was asked last, or need not have been."""
        self.is_settling = True

    @property
    def next_key(self) -> int:
        """The key after the member's own."""
        graph = self.member.edges.graph
        return graph.own.end(graph.size)


class NodeLocation:
    """All node-locations that begin at this node or come by."""

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        contacts: Contacts,
        targets: EdgeTargets,
        period_us: int,
        members: Members,
    ) -> None:
        self._runtime = runtime
        self._overlay = overlay
        self._contacts = contacts
        self._targets = targets
        self._period_us = period_us
        self._members = members
        self._own: dict[int, _Search] = {}  # by a member's life

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of node-locations."""
        return {LocateNode: self._locate_node, NeighbourQuery: self._neighbour_query, NodeLocated: self._node_located}  # type: ignore[dict-item]

    def forget(self, lives: Collection[int]) -> None:
        """Forget all members but these."""
        self._own = {life: own for life, own in self._own.items() if life in lives}

    def look(self, member: Member) -> None:
        """Look for the members that a member here needs to know and does not."""
        if member.edges.graph.own.length == self._runtime.ring.size:
            return  # nobody else is there
        own = self._own.get(member.life)
        if own is None:
            waited = LONELY_PERIODS * self._period_us - self._period_us // MOMENT
            own = self._own[member.life] = _Search(member, self._runtime.now - waited)
        self._ask_overlay(member, own)
        self._look_for(member, own)

    def is_settling(self, member: Member) -> bool:
        """Return whether a member has just begun, and looks for some of its edges for the first time."""
        own, now = self._own.get(member.life), self._runtime.now
        if own is not None and own.is_settling:
            sought = own.sought.values()
            is_first = any(each.at < 0 or (each.periods == 2 and now < each.again_at) for each in sought)
            own.is_settling = member.first is None or is_first
        return own is not None and own.is_settling

    # -- by the overlay ------------------------------------------------------------------------------------------------

    def _ask_overlay(self, member: Member, own: _Search) -> None:
        now, ring = self._runtime.now, self._runtime.ring
        if not self._targets.has_gap(member):
            own.asked_since = now
        if now < own.asked_since + (LONELY_PERIODS if member.first is None else GAP_PERIODS) * self._period_us:
            return
        own.asked_since = now
        key = bytes(ring.key(own.next_key))
        for peer in self._overlay.neighbours(NEIGHBOURS):
            self._runtime.send(peer, NeighbourQuery(key))

    def _neighbour_query(self, source: Peer, where: NeighbourQuery) -> None:
        if self._runtime.ring.holds(where.key):
            self._answer(source, NodeLocated(where.key, self._targets.after(self._runtime.ring.number(where.key))))
        else:
            self._runtime.observe("notice_malformed")

    # -- by the graph --------------------------------------------------------------------------------------------------

    def _look_for(self, member: Member, own: _Search) -> None:
        now = self._runtime.now
        own.sought = {key: own.sought.get(key) or _SoughtKey() for key in self._targets.unknown(member)}
        under_way = sum(each.at >= 0 and now < each.at + self._period_us for each in own.sought.values())
        for key, each in own.sought.items():
            if under_way < UNDER_WAY_MAX and each.again_at <= now:
                under_way += 1
                each.at, each.again_at = now, now + each.periods * self._period_us
                each.periods = min(2 * each.periods, PAUSE_PERIODS_MAX)
                self._runtime.observe("rebeca_sought")
                everything = Range(member.edges.graph.own.begin, self._runtime.ring.size)
                self._walk(member, everything, key, self._runtime.me, 0)

    def _walk(self, member: Member, range_: Range, key: int, origin: Peer, hops: int) -> None:
        """Bring a node-location that has come to a member one edge nearer, or answer it."""
        ring = self._runtime.ring
        split = member.edges.graph.split(range_)
        if split.mine.holds(key, ring.size):
            self._answer(origin, self._here(member, key))
            return
        part = next((part for part in split.parts if part.range.holds(key, ring.size)), None)
        home = None if part is None else member.homes.get(part.node)
        host = None if home is None else self._contacts.host(home)
        if part is None or home is None or host is None or hops >= HOPS_MAX:
            self._answer(origin, NodeLocated(bytes(ring.key(key)), self._targets.after(key)))
            return
        place = bytes(ring.key(part.node))
        if host.id != self._runtime.me.id:
            stretch = PackedRange.of(ring, part.range)
            locate = LocateNode(Named(home, place), stretch, bytes(ring.key(key)), origin, hops + 1)
            self._runtime.send(host, locate)
            return
        below = self._members.find(home, place)
        if below is not None:
            self._walk(below, part.range, key, origin, hops)

    def _here(self, member: Member, key: int) -> NodeLocated:
        ring = self._runtime.ring
        known = (member.contact(self._runtime.me), *self._targets.reserve(member))
        return NodeLocated(bytes(ring.key(key)), tuple([PackedContact.of(ring, each) for each in known]))

    def _answer(self, origin: Peer, located: NodeLocated) -> None:
        if origin.id == self._runtime.me.id:
            self._node_located(origin, located)
        else:
            self._runtime.send(origin, located)

    def _locate_node(self, source: Peer, locate: LocateNode) -> None:
        ring = self._runtime.ring
        range_ = locate.range.range(ring)
        well = ring.holds(locate.to.home) and ring.holds(locate.to.place) and ring.holds(locate.key)
        if range_ is None or not well or not 0 <= locate.hops <= HOPS_MAX:
            self._runtime.observe("notice_malformed")
            return
        member = self._members.find(locate.to.home, locate.to.place)
        if member is not None:
            self._walk(member, range_, ring.number(locate.key), locate.origin, locate.hops)

    # -- what is found -------------------------------------------------------------------------------------------------

    def _node_located(self, source: Peer, located: NodeLocated) -> None:
        ring = self._runtime.ring
        found = contacts_of(ring, located.cards[:BESIDE_MAX]) if ring.holds(located.key) else None
        if found is None:
            self._runtime.observe("notice_malformed")
            return
        key = ring.number(located.key)
        asked = [own for own in self._own.values() if key == own.next_key]
        for own in asked:
            own.member.listed = own.member.listed or tuple(found)
        if found and (asked or any(key in own.sought for own in self._own.values())):  # else it is known by now
            is_own_word = source.id == found[0].host.id
            is_news = is_own_word and self._contacts.heard(found[0])
            if self._contacts.told(found[1:] if is_own_word else found) or is_news:
                self._members.look_soon()


# -- node-join ---------------------------------------------------------------------------------------------------------

TRIES_MAX: Final = 6
"""How often one is sent, if something is left each time; the pauses grow from two periods to 32."""
WORKING_MAX: Final = 256
"""Node-joins that a node hands on at a time; any further one is left."""


class _Announcement:
    """The news of a member here that others are to hear."""

    __slots__ = ("at", "is_under_way", "targets", "tries")

    def __init__(self) -> None:
        self.targets: list[Range] = []
        self.tries = 0
        self.at = 0
        self.is_under_way = False


class NodeJoin:
    """All node-joins that begin at this node or come by."""

    def __init__(
        self,
        runtime: Runtime,
        contacts: Contacts,
        period_us: int,
        members: Members,
    ) -> None:
        self._runtime = runtime
        self._contacts = contacts
        self._period_us = period_us
        self._members = members
        self._own: dict[int, _Announcement] = {}  # by a member's life
        self._working = 0

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of node-joins."""
        return {NodeJoined: self._node_joined}  # type: ignore[dict-item]

    # -- of members here -----------------------------------------------------------------------------------------------

    def gained(self, member: Member, keys: Range) -> None:
        """Announce a member here that has keys it had not, once it knows some others itself."""
        own = self._own.setdefault(member.life, _Announcement())
        own.targets += fingered_by(keys, self._runtime.ring.size)
        own.tries, own.at = 0, self._runtime.now + self._period_us

    def forget(self, lives: Collection[int]) -> None:
        """Forget all members but these."""
        self._own = {life: own for life, own in self._own.items() if life in lives}

    def look(self, member: Member) -> None:
        """Send the node-join of a member that is due."""
        own, size = self._own.get(member.life), self._runtime.ring.size
        if own is None or not own.targets or own.is_under_way or own.at > self._runtime.now or member.first is None:
            return
        targets, own.targets, own.is_under_way = merged(own.targets, size), [], True

        def told(left: list[Range]) -> None:
            own.is_under_way = False
            own.tries += 1
            own.at = self._runtime.now + (self._period_us << own.tries)
            if own.tries < TRIES_MAX:
                own.targets += left

        everything = Range(member.edges.graph.own.begin, size)
        self._pass_on(member, everything, targets, member.contact(self._runtime.me), 0, WITHIN_US, told)

    # -- down the graph ------------------------------------------------------------------------------------------------

    def _pass_on(
        self,
        member: Member,
        range_: Range,
        targets: list[Range],
        joined: Contact,
        hops: int,
        within_us: int,
        then: Callable[[list[Range]], None],
    ) -> None:
        """Tell all in a range whose places lie in targets of a member that has joined; `then` with what is left."""
        size, place = self._runtime.ring.size, member.edges.place
        split = member.edges.graph.split(range_)
        is_meant = split.mine.holds(place, size) and any(each.holds(place, size) for each in targets)
        if is_meant and self._contacts.heard(joined):
            self._members.look_soon()
        left = _common(split.left, targets, size)
        parts = [(part, _common([part.range], targets, size)) for part in split.parts]
        parts = [(part, common) for part, common in parts if common]
        if within_us < 2 * STEP_US or hops >= HOPS_MAX:
            left += [each for _, common in parts for each in common]
            parts = []
        pending = 1 + len(parts)
        self._working += 1

        def done(found: Iterable[Range]) -> None:
            nonlocal pending
            left.extend(found)
            pending -= 1
            if not pending:
                self._working -= 1
                then(merged(left, size))

        for part, common in parts:
            self._hand_on(member, part, common, joined, hops, within_us - STEP_US, done)
        done(())

    def _hand_on(
        self,
        member: Member,
        part: GraphPart,
        targets: list[Range],
        joined: Contact,
        hops: int,
        within_us: int,
        done: Callable[[Iterable[Range]], None],
    ) -> None:
        ring = self._runtime.ring
        home, place = member.homes.get(part.node), bytes(ring.key(part.node))
        host = None if home is None else self._contacts.host(home)
        if home is None or host is None:
            done(targets)
            return
        if host.id == self._runtime.me.id:
            below = self._members.find(home, place)
            if below is None:
                done(targets)
            else:
                self._pass_on(below, part.range, targets, joined, hops, within_us, done)
            return
        self._runtime.observe("rebeca_join_handed")
        stretch, card = PackedRange.of(ring, part.range), PackedContact.of(ring, joined)
        stretches = tuple(PackedRange.of(ring, each) for each in targets)

        def answered(reply: Reply | None) -> None:
            left = ranges_of(ring, reply.left[:RANGES_MAX]) if isinstance(reply, NodeJoinedReply) else None
            if left is None:
                self._contacts.missed(home)
                done(targets)
            else:
                self._contacts.answered(home)
                done(_common(left, targets, ring.size))

        self._runtime.ask(
            host, NodeJoined(0, Named(home, place), stretch, stretches, card, hops + 1, within_us), within_us
        ).then(answered)

    def _node_joined(self, source: Peer, join: NodeJoined) -> None:
        ring = self._runtime.ring
        range_, targets, joined = join.range.range(ring), ranges_of(ring, join.targets), join.card.contact(ring)
        well = ring.holds(join.to.home) and ring.holds(join.to.place) and 0 <= join.hops <= HOPS_MAX
        if range_ is None or targets is None or len(targets) > RANGES_MAX or joined is None or not well:
            self._runtime.observe("notice_malformed")
            return
        member = self._members.find(join.to.home, join.to.place)
        if member is None or self._working >= WORKING_MAX:
            self._runtime.send(source, NodeJoinedReply(join.request, join.targets))
            return
        within_us = min(max(join.within_us, 0), WITHIN_US)
        reply = partial(self._reply, source, join.request)
        self._pass_on(member, range_, targets, joined, join.hops, within_us - STEP_US // 2, reply)

    def _reply(self, to: Peer, request: int, left: list[Range]) -> None:
        ring = self._runtime.ring
        self._runtime.send(to, NodeJoinedReply(request, tuple(PackedRange.of(ring, each) for each in left)))

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self._working >= 0


def _common(ranges: Iterable[Range], others: Collection[Range], size: int) -> list[Range]:
    """Return the keys that lie in some ranges and in others too."""
    return [found for each in ranges for other in others for found in each.common(other, size)]
