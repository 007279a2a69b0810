"""Events on their way down the graph: a member that gets one for a range serves its own keys, and hands on the rest.

A member answers when the homes that want the event in its own keys have it, and all parts that it handed on are
answered for. A part in which nobody wants it, by a filter that is good now, is answered for by that. Everything else is
*left*, and named in the answer: ranges without an edge, or of members that are silent or slow; and homes that did not
say soon enough that they have it. The event's origin sees to these itself (`scheme`).

Parts have nothing in common, so nobody gets it twice by the graph. Nothing of it is kept: what is lost is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.fanout import HomeFanout, when_all
from meetpoint.placement.entries.entry_table import Matched, add_to, by_home
from meetpoint.placement.messages import read_attributes
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc, Reached
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.schemes.rebeca.entries import MemberTables
from meetpoint.schemes.rebeca.graph import GraphPart, Range, merged
from meetpoint.schemes.rebeca.member import Member
from meetpoint.schemes.rebeca.members import Members
from meetpoint.schemes.rebeca.messages import (
    ForwardAround,
    ForwardAroundReply,
    ForwardEvent,
    ForwardReply,
    MatchRange,
    MatchRangeReply,
    PackedRange,
)
from meetpoint.schemes.rebeca.messages import MemberRef as Named
from meetpoint.schemes.rebeca.settings import HOPS_MAX, STEP_US, WITHIN_US
from meetpoint.wording import counted

__all__ = ["ForwardedEvent", "Forwarding", "Outcome"]

DELIVER_US: Final = SECOND_US // 2
"""How long a home may take to have an event, before that is left to the event's origin."""
WORKING_MAX: Final = 4_096
"""Ranges that a node works at; any further one is left."""


class ForwardedEvent(NamedTuple):
    """An event on its way."""

    key: EventKey
    settled: int
    content: bytes
    attributes: Mapping[str, object]


class Outcome:
    """The outcome of an event in a range: what was served, and what is left."""

    __slots__ = ("homes", "left", "served")

    def __init__(self) -> None:
        self.left: list[Range] = []
        self.homes: Matched = {}
        self.served = 0

    def leave(self, homes: Iterable[tuple[HomeId, tuple[int, ...]]]) -> None:
        """Note homes that have not said that they have the event."""
        add_to(self.homes, homes)


class Forwarding:
    """All events that come by this node."""

    def __init__(
        self,
        runtime: Runtime,
        ownership: Ownership,
        rpc: KeyedRpc,
        fanout: HomeFanout,
        tables: MemberTables,
        members: Members,
    ) -> None:
        self._runtime = runtime
        self._ownership = ownership
        self._fanout = fanout
        self._tables = tables
        self._members = members
        self._working = 0
        rpc.do(MatchRange, self._match_range)
        rpc.do(ForwardAround, self._forward_around)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of messages about events."""
        return {ForwardEvent: self._forward_event}  # type: ignore[dict-item]

    # -- for a range ---------------------------------------------------------------------------------------------------

    def pass_on(
        self,
        member: Member,
        range_: Range,
        event: ForwardedEvent,
        hops: int,
        within_us: int,
        then: Callable[[Outcome], None],
    ) -> None:
        """Bring an event to all in a range who want it; `then` once, in time."""
        split = member.edges.split(range_, event.attributes, self._runtime.now)
        outcome = Outcome()
        outcome.left += split.left
        parts = split.parts
        if within_us < 2 * STEP_US or hops >= HOPS_MAX:
            outcome.left += [part.range for part in parts]
            parts = []
        self._members.sample(event.attributes)
        self._working += 1

        def all_is_done() -> None:
            self._working -= 1
            then(outcome)

        one_is_done = when_all(1 + len(parts), all_is_done)
        for part in parts:
            self._hand_on(member, part, event, hops, within_us - STEP_US, outcome, one_is_done)
        if split.mine.length:
            outcome.served += 1
            self._runtime.observe("event_hops", hops)
            size = self._runtime.ring.size
            number = self._runtime.ring.number
            deliver_us = min(DELIVER_US, within_us - STEP_US)
            matched = self._deliver(
                member.home, event, lambda home: split.mine.holds(number(home), size), deliver_us, outcome, one_is_done
            )
            if self._runtime.tracing:
                told = f"matches of {counted(len(matched), 'home')}, handed on to {len(parts)}"
                self._runtime.trace(event.key, "visited", member.home, detail=told)
        else:
            one_is_done()

    def _hand_on(
        self,
        member: Member,
        part: GraphPart,
        event: ForwardedEvent,
        hops: int,
        within_us: int,
        outcome: Outcome,
        done: Callable[[], None],
    ) -> None:
        ring = self._runtime.ring
        home, place = member.homes.get(part.node), bytes(ring.key(part.node))
        host = None if home is None else self._members.host(home)
        if home is None or host is None:
            outcome.left.append(part.range)
            done()
            return
        self._runtime.observe("rebeca_handed")

        def passed(found: Outcome) -> None:
            outcome.left += found.left
            outcome.leave(found.homes.items())
            outcome.served += found.served
            done()

        if host.id == self._runtime.me.id:
            below = self._members.find(home, place)
            if below is None:
                outcome.left.append(part.range)
                done()
            else:
                self.pass_on(below, part.range, event, hops, within_us, passed)
            return

        def answered(reply: Reply | None) -> None:
            if isinstance(reply, ForwardReply):
                passed(self._read(reply, part.range))
                return
            self._runtime.observe("rebeca_unanswered")
            self._members.missed(home)
            outcome.left.append(part.range)
            done()

        stretch = PackedRange.of(ring, part.range)
        self._runtime.ask(
            host,
            ForwardEvent(0, Named(home, place), stretch, event.key, event.settled, hops + 1, within_us, event.content),
            within_us,
        ).then(answered)

    def _read(self, reply: ForwardReply | ForwardAroundReply, asked: Range) -> Outcome:
        """Read an answer; one that makes no sense answers for nothing."""
        ring = self._runtime.ring
        found = Outcome()
        ranges = [each.range(ring) for each in reply.left]
        if any(each is None for each in ranges) or not all(ring.holds(home) for home, _ in reply.homes):
            self._runtime.observe("event_malformed")
            found.left.append(asked)
            return found
        found.left = [each for each in ranges if each is not None]
        found.leave(reply.homes)
        found.served = min(max(reply.served, 0), 1 << 32)
        return found

    def _deliver(
        self,
        home: HomeId,
        event: ForwardedEvent,
        is_asked: Callable[[HomeId], bool],
        within_us: int,
        outcome: Outcome,
        done: Callable[[], None],
    ) -> Matched:
        """Bring an event to the homes that want it, of those whose entries lie at a home here."""
        matched = by_home(self._tables.at(home).match(event.attributes, is_asked))

        def delivered(left: Mapping[HomeId, tuple[int, ...]]) -> None:
            outcome.leave(left.items())
            done()

        self._fanout.bring_soon(event.key, event.settled, event.content, matched, within_us).then(delivered)
        return matched

    # -- what comes from others ----------------------------------------------------------------------------------------

    def _event(self, key: EventKey, settled: int, content: bytes) -> ForwardedEvent | None:
        if settled < 0:
            self._runtime.observe("event_malformed")
            return None
        attributes = read_attributes(self._runtime, content)
        return None if attributes is None else ForwardedEvent(key, settled, content, attributes)

    def _forward_event(self, source: Peer, hand: ForwardEvent) -> None:
        ring = self._runtime.ring
        range_ = hand.range.range(ring)
        well = ring.holds(hand.to.home) and ring.holds(hand.to.place) and 0 <= hand.hops <= HOPS_MAX
        event = self._event(hand.event, hand.settled, hand.content)
        if range_ is None or event is None or not well:
            self._runtime.observe("event_malformed")
            return
        member = self._members.find(hand.to.home, hand.to.place)
        if member is None or self._working >= WORKING_MAX:
            self._runtime.observe("rebeca_elsewhere")
            self._runtime.send(source, ForwardReply(hand.request, (hand.range,), (), 0))
            return

        def passed(outcome: Outcome) -> None:
            left = tuple(PackedRange.of(ring, each) for each in merged(outcome.left, ring.size))
            self._runtime.send(source, ForwardReply(hand.request, left, tuple(outcome.homes.items()), outcome.served))

        within_us = min(max(hand.within_us, 0), WITHIN_US)
        self.pass_on(member, range_, event, hand.hops, within_us - STEP_US // 2, passed)

    def _forward_around(
        self, home: Home, reached: Reached, carry: ForwardAround, answer: Callable[[Message], None]
    ) -> None:
        ring = self._runtime.ring
        event = self._event(carry.event, carry.settled, carry.content)
        root = self._members.root(home.id)
        if event is None or root is None or self._working >= WORKING_MAX:
            return

        def passed(outcome: Outcome) -> None:
            left = tuple(PackedRange.of(ring, each) for each in merged(outcome.left, ring.size))
            answer(ForwardAroundReply(left, tuple(outcome.homes.items()), outcome.served))

        within_us = min(max(carry.within_us, 0), WITHIN_US)
        everything = Range(root.edges.graph.own.begin, ring.size)
        self.pass_on(root, everything, event, min(reached.hops, HOPS_MAX), within_us, passed)

    def outcome_of(self, answer: Message, everything: Range) -> Outcome | None:
        """Return the outcome of an event that another forwarded; None where the answer is none."""
        return self._read(answer, everything) if isinstance(answer, ForwardAroundReply) else None

    def _match_range(self, home: Home, reached: Reached, serve: MatchRange, answer: Callable[[Message], None]) -> None:
        ring = self._runtime.ring
        range_ = serve.range.range(ring)
        event = self._event(serve.event, serve.settled, serve.content)
        if range_ is None or event is None:
            self._runtime.observe("event_malformed")
            return
        arc = self._ownership.arc(home.id, reached.key)
        outcome = Outcome()
        self._runtime.observe("event_hops", min(max(serve.hops, 0), HOPS_MAX) + reached.hops)
        matched = self._deliver(
            home.id,
            event,
            lambda owner: arc.holds(owner) and range_.holds(ring.number(owner), ring.size),
            DELIVER_US,
            outcome,
            lambda: answer(MatchRangeReply(tuple(outcome.homes.items()))),
        )
        if self._runtime.tracing:
            told = f"matches of {counted(len(matched), 'home')}, by an errand"
            self._runtime.trace(event.key, "visited", home.id, detail=told)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self._working >= 0
