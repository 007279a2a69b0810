"""Node-join: those whose edge a member is to be hear of it, through the service itself (paper E, sections 5.1 and 5.3).

A node-join goes down the graph like an event, and instead of a filter it is tested by ranges of the circle: it goes
down an edge only where the edge's part has a key in common with its *targets*. These are the places that an edge leads
from to the member's keys, for every k; so just those hear of it whose edge it is to be, and who lies on the way to
them.

It is sent when a member begins, and when one has got keys that it had not. Whoever hands it on answers for that, and
names what was *left*: targets where no edge leads, or where nobody answered in time. What was left is sent again, with
growing pauses. One that comes twice does no harm. What is lost for good is not missed: whoever has another edge sees,
when that says where its keys begin, that it is not the right one any more (`linking`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Final

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.rebeca.contacts import Contact, Contacts
from meetpoint.schemes.rebeca.graph import GraphPart, fingered_by
from meetpoint.schemes.rebeca.member import Member
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.messages import NodeJoined, NodeJoinedReply, PackedContact, PackedRange, ranges_of
from meetpoint.schemes.rebeca.ranges import RANGES_MAX, Range, merged
from meetpoint.schemes.rebeca.timeouts import HOPS_MAX, STEP_US, WITHIN_US

__all__ = ["TRIES_MAX", "NodeJoin"]

TRIES_MAX: Final = 6
"""How often one is sent, if something is left each time; the pauses grow from two periods to 32."""
WORKING_MAX: Final = 256
"""How many a node hands on at a time; any further one is left."""


class _Announcement:
    """What others are to hear of a member here."""

    __slots__ = ("at", "is_under_way", "targets", "tries")

    def __init__(self) -> None:
        self.targets: list[Range] = []
        self.tries = 0
        self.at = 0
        self.is_under_way = False


class NodeJoin:
    """All node-joins that begin at this node or come by.

    `find` gives a member of a home here; `learnt` is called when another member is known than before.
    """

    def __init__(
        self,
        services: Runtime,
        contacts: Contacts,
        period_us: int,
        find: Callable[[HomeId, bytes], Member | None],
        learnt: Callable[[], None],
    ) -> None:
        self._services = services
        self._contacts = contacts
        self._period_us = period_us
        self._find = find
        self._learnt = learnt
        self._own: dict[int, _Announcement] = {}  # by a member's life
        self._working = 0

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are about members that have joined."""
        return {NodeJoined: self._join}  # type: ignore[dict-item]

    # -- of members here -----------------------------------------------------------------------------------------------

    def gained(self, member: Member, keys: Range) -> None:
        """A member here has keys that it had not: others are to hear of it, once it knows some itself."""
        own = self._own.setdefault(member.life, _Announcement())
        own.targets += fingered_by(keys, self._services.ring.size)
        own.tries, own.at = 0, self._services.now + self._period_us

    def forget(self, lives: Collection[int]) -> None:
        """Only these members are here."""
        self._own = {life: own for life, own in self._own.items() if life in lives}

    def look(self, member: Member) -> None:
        """Tell what is to be told now."""
        own, size = self._own.get(member.life), self._services.ring.size
        if own is None or not own.targets or own.is_under_way or own.at > self._services.now or member.first is None:
            return
        targets, own.targets, own.is_under_way = merged(own.targets, size), [], True

        def told(left: list[Range]) -> None:
            own.is_under_way = False
            own.tries += 1
            own.at = self._services.now + (self._period_us << own.tries)
            if own.tries < TRIES_MAX:
                own.targets += left

        everything = Range(member.edges.graph.own.begin, size)
        self._pass_on(member, everything, targets, member.contact(self._services.me), 0, WITHIN_US, told)

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
        size, place = self._services.ring.size, member.edges.place
        split = member.edges.graph.split(range_)
        is_meant = split.mine.holds(place, size) and any(each.holds(place, size) for each in targets)
        if is_meant and self._contacts.heard(joined):
            self._learnt()
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
        ring = self._services.ring
        home, place = member.homes.get(part.node), bytes(ring.key(part.node))
        host = None if home is None else self._contacts.host(home)
        if home is None or host is None:
            done(targets)
            return
        if host.id == self._services.me.id:
            below = self._find(home, place)
            if below is None:
                done(targets)
            else:
                self._pass_on(below, part.range, targets, joined, hops, within_us, done)
            return
        self._services.observe("rebeca_join_handed")
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

        self._services.ask(
            host,
            lambda each: NodeJoined(each, Named(home, place), stretch, stretches, card, hops + 1, within_us),
            answered,
            within_us,
        )

    def _join(self, source: Peer, join: NodeJoined) -> None:
        ring = self._services.ring
        range_, targets, joined = join.range.range(ring), ranges_of(ring, join.targets), join.card.contact(ring)
        well = ring.holds(join.to.home) and ring.holds(join.to.place) and 0 <= join.hops <= HOPS_MAX
        if range_ is None or targets is None or len(targets) > RANGES_MAX or joined is None or not well:
            self._services.observe("notice_malformed")
            return
        member = self._find(join.to.home, join.to.place)
        if member is None or self._working >= WORKING_MAX:
            self._services.send(source, NodeJoinedReply(join.request, join.targets))
            return
        within_us = min(max(join.within_us, 0), WITHIN_US)
        reply = partial(self._reply, source, join.request)
        self._pass_on(member, range_, targets, joined, join.hops, within_us - STEP_US // 2, reply)

    def _reply(self, to: Peer, request: int, left: list[Range]) -> None:
        ring = self._services.ring
        self._services.send(to, NodeJoinedReply(request, tuple(PackedRange.of(ring, each) for each in left)))

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self._working >= 0


def _common(ranges: Iterable[Range], others: Collection[Range], size: int) -> list[Range]:
    """The keys that lie in some ranges and in others too."""
    return [found for each in ranges for other in others for found in each.common(other, size)]
