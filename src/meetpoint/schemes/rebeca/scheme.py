"""The scheme `rebeca`: events go down the edges of a graph where something is wanted behind them (paper E), corrected.

- A conjunction lies, whole, at the key of its home's id, with the owner of that: on a ring with the home itself, so
  that nothing is sent to place it. Elsewhere its home may own no key at all, and another answers for it.
- A home that owns keys is a member of the graph (`members`) and tells others what is wanted at these (`edges`). An
  entry is placed when all who may rely on being told know of it.
- An event goes round the whole ring from where it is published (`forwarding`). What the graph leaves, its origin brings
  there by keyed requests, directly to the owners of the keys: an event is complete only when every key was answered
  for.

So edges may be wrong, and nodes come and go: it costs messages and time, and never a match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from meetpoint.api.ids import HomeId
from meetpoint.api.messages import Message
from meetpoint.language.filters.filter import Filter
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.base import PlacementScheme
from meetpoint.placement.dissemination.dissemination import ATTEMPT_US, PublishAttempt
from meetpoint.placement.dissemination.fanout import HomeFanout, Recipients, event_bytes
from meetpoint.placement.entries.entry_table import Matched, StoredEntry
from meetpoint.placement.messages import Entry, Stored
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc
from meetpoint.schemes.rebeca.entries import MemberTables, entry_of, read_entry
from meetpoint.schemes.rebeca.forwarding import ForwardedEvent, Forwarding, Outcome
from meetpoint.schemes.rebeca.graph import Range, merged
from meetpoint.schemes.rebeca.members import Members
from meetpoint.schemes.rebeca.messages import ForwardAround, MatchRange, MatchRangeReply, PackedRange
from meetpoint.schemes.rebeca.settings import WITHIN_US, RebecaSettings

__all__ = ["Rebeca"]


class Rebeca(PlacementScheme):
    """The scheme `rebeca` at one node."""

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        home_manager: HomeManager,
        node: NodeSettings,
        settings: RebecaSettings,
    ) -> None:
        self._tables = MemberTables(runtime)
        super().__init__(runtime, overlay, home_manager, node, self._tables, straight=True)
        self.members = Members(
            runtime, overlay, home_manager, self._ownership, self._tables, settings
        )  # fmt: skip
        self._tables.listeners.append(self.members)
        self._forwarding = Forwarding(runtime, self._ownership, self._rpc, self._fanout, self._tables, self.members)

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        return {**super().handlers(), **self.members.handlers(), **self._forwarding.handlers()}

    def check(self) -> None:
        """Assert what must hold at all times."""
        super().check()
        self.members.check()
        self._forwarding.check()

    # -- placing -------------------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        return [entry_of(home, StoredEntry(number, at, filter_.text))]

    def _accept(self, home: Home, name: str, entry: Entry, answer: Callable[[Message], None]) -> None:
        """Place an entry at a home here."""
        if read_entry(name, entry) is None:
            self._runtime.observe("entry_malformed")
            return
        self._ownership.put(home, name, entry).then(
            lambda _: self.members.when_safe(home.id, name, lambda: answer(Stored()))
        )

    # -- carrying events -----------------------------------------------------------------------------------------------

    def _begin(self, attempt: PublishAttempt) -> None:
        attributes = attributes_of(attempt.content)
        event = ForwardedEvent(attempt.event, attempt.floor, attempt.content, attributes)
        root = self.members.root(attempt.event.home)
        until = self._runtime.now + ATTEMPT_US
        size = self._runtime.ring.size

        def passed(outcome: Outcome) -> None:
            if attempt.alive:
                self._runtime.observe("members_served", outcome.served, event_bytes(attempt.event))
                _DirectDelivery(self._runtime, self._rpc, self._fanout, attempt, outcome, until)

        if root is not None:
            everything = Range(root.edges.graph.own.begin, size)
            self._forwarding.pass_on(root, everything, event, 0, WITHIN_US, passed)
            return
        # This node owns no keys: the owner of the home's id begins for it.
        key = bytes(attempt.event.home)
        everything = Range(self._runtime.ring.number(key), size)

        def answered(answer: Message, from_afar: bool) -> None:
            outcome = self._forwarding.outcome_of(answer, everything)
            if outcome is not None:
                passed(outcome)

        carry = ForwardAround(attempt.event, attempt.floor, WITHIN_US, attempt.content)
        number = self._rpc.run(key, key, carry, lambda: None, answered=answered, straight=True)
        attempt.on_end = lambda: self._rpc.stop(number)


class _DirectDelivery:
    """The delivery of what the graph has left of an event: ranges, by keyed requests, and homes, directly."""

    def __init__(
        self,
        runtime: Runtime,
        rpc: KeyedRpc,
        fanout: HomeFanout,
        attempt: PublishAttempt,
        outcome: Outcome,
        until: int,
    ) -> None:
        self._runtime = runtime
        self._fanout = fanout
        self._attempt = attempt
        self._until = until
        self._ranges: dict[int, Range] = {}
        self._open: list[Mapping[HomeId, None]] = []
        ring = runtime.ring
        ranges = merged(outcome.left, ring.size)
        self._pending = 1 + len(ranges)
        numbers: list[int] = []

        def stop() -> None:
            for number in numbers:
                rpc.stop(number)

        attempt.may_reach = self._may_reach
        attempt.on_end = stop
        if ranges:
            runtime.observe("rebeca_left", len(ranges))
        self._ranges = dict(enumerate(ranges))
        self._deliver(outcome.homes)
        for at, range_ in enumerate(ranges):
            serve = MatchRange(PackedRange.of(ring, range_), attempt.event, attempt.floor, 0, attempt.content)
            first = bytes(ring.key(range_.begin))
            last = bytes(ring.add(first, range_.length - 1))
            numbers.append(
                rpc.run(first, last, serve, partial(self._range_is_done, at), answered=self._heard, straight=True)
            )
        self._one_is_done()

    def _heard(self, answer: Message, from_afar: bool) -> None:
        if isinstance(answer, MatchRangeReply) and all(self._runtime.ring.holds(home) for home, _ in answer.homes):
            self._deliver(dict(answer.homes))
        else:
            self._runtime.observe("event_malformed")
            self._pending += 1  # nobody answered for those keys: the attempt is in vain

    def _deliver(self, homes: Matched) -> None:
        """Bring the event to homes that did not say that they have it."""
        if not homes or not self._attempt.alive:
            return
        self._runtime.observe("rebeca_homes_left", len(homes))
        self._pending += 1
        attempt = self._attempt
        recipients = Recipients(homes)
        recipients.ended.then(lambda well: self._one_is_done() if well else None)
        left_us = self._until - self._runtime.now
        self._fanout.bring(attempt.event, attempt.floor, attempt.content, recipients, left_us)
        self._open.append(recipients.open)

    def _range_is_done(self, at: int) -> None:
        del self._ranges[at]
        self._one_is_done()

    def _one_is_done(self) -> None:
        self._pending -= 1
        if not self._pending:
            self._attempt.complete()

    def _may_reach(self, home: HomeId) -> bool:
        """Return whether the event may still come to a home, whose entries lie at its id."""
        ring = self._runtime.ring
        if any(home in open_ for open_ in self._open):
            return True
        return any(range_.holds(ring.number(home), ring.size) for range_ in self._ranges.values())
