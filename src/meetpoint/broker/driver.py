"""The driver: hands inputs to the node one at a time, and carries out its effects in order.

An input that comes while effects are being carried out waits until they are. A message or request with values that the
node did not expect costs that input: it is counted and logged, and the broker goes on. Where the node fails in any
other way nothing is certain any more but what is on disk: the broker ends, and restarts from there.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol

import msgspec

from meetpoint.api.codec import WireError
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Outcome, Refused
from meetpoint.broker.clock import Clock, Timers
from meetpoint.broker.observe.logs import Log
from meetpoint.broker.observe.metrics import Counts, MatchRates
from meetpoint.broker.observe.tracing import StepHook
from meetpoint.broker.storage import Store
from meetpoint.broker.transport.connection import FlushScheduler
from meetpoint.errors import MeetpointError
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.node import Node
from meetpoint.node.runtime.effects import (
    Accepted,
    Answer,
    CancelTimer,
    Ended,
    Notify,
    Observe,
    Persist,
    Send,
    SetTimer,
    Stop,
    Trace,
)
from meetpoint.node.runtime.inputs import ClientRequest, Input, Measured, Persisted, Received, TimerFired

__all__ = ["ClientSink", "Driver", "FeedbackLoader", "PeerSink"]

EVENT_HOPS = "event_hops"
PEER_REFUSED = "peer_refused"
SYNCED_S = 0.04
"""About how long at a time the node is told of what is on disk; longer than other slices, as it ends work."""
VERSION_MAX = 2**63 - 1
"""The largest number that the store holds."""
_OF_INPUT = (ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError, WireError, MeetpointError)
"""Errors that come of unexpected values; any other error means a step that was left half done."""
_STEPS = {
    "repeated": "events_repeated",
    "acknowledged": "acknowledged",
    "rejected": "rejected",
    "dead": "dead_letters",
}


class PeerSink(Protocol):
    """The receiver of messages to peers."""

    def send(self, to: Peer, message: Message) -> None:
        """Send a message to a peer."""

    def set_incarnation(self, me: Peer) -> None:
        """Tell peers that the node has come to a new incarnation."""

    def refused(self, node: bytes) -> None:
        """Note that a peer said what it had no right to say."""


class ClientSink(Protocol):
    """The receiver of answers and notifications."""

    def answered(self, number: int, outcome: Outcome) -> None:
        """Pass on the answer to a request."""

    def notify(self, effect: Notify) -> None:
        """Pass on an event for some names."""

    def ended(self, name: str, reason: str) -> None:
        """Pass on that a subscription has ended."""


class Driver:
    """The driver of one node."""

    peers: PeerSink
    clients: ClientSink

    def __init__(
        self,
        node: Node,
        clock: Clock,
        store: Store,
        scheduler: FlushScheduler,
        counts: Counts,
        log: Log,
        on_stop: Callable[[], None],
        on_broken: Callable[[str], None],
    ) -> None:
        self.node = node
        self._handle = node.handle
        self._clock = clock
        self._store = store
        self._scheduler = scheduler
        self._counts = counts
        self._log = log
        self._on_stop = on_stop
        self._on_broken = on_broken
        self._timers = Timers(scheduler.loop, clock, self._fired)
        self._tickets: deque[tuple[int, float]] = deque()
        self._now = clock.now()
        self._synced = 0
        self._is_submitting = False
        self._inputs: deque[Input] = deque()
        self._is_busy = False
        self._is_closed = False
        self._me = node.me
        self.archive: Callable[[Accepted], None]
        """Takes accepted events, where there is an archive."""
        self._hook: StepHook | None = None
        self.rates = MatchRates(self._now)
        self._others: dict[type, Callable[[Any], None]] = {
            Observe: self._observe,
            Accepted: lambda effect: self.archive(effect),
            Ended: lambda effect: self.clients.ended(effect.name, effect.reason),
            Stop: lambda effect: self._on_stop(),
        }

    # -- inputs --------------------------------------------------------------------------------------------------------

    def submit(self, item: Input) -> None:
        """Hand an input to the node, now or after those before it."""
        inputs = self._inputs
        inputs.append(item)
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while inputs:
                self._step(inputs.popleft())
        except Exception as error:  # of the driver's own: some effects of a step were not applied
            self._end(type(item).__name__, error)
        finally:
            self._is_busy = False
        self._scheduler.expect()

    def _step(self, item: Input) -> None:
        if self._is_closed:
            return
        now = self._now = self._clock.now()
        try:
            effects = self._handle(item, now)
        except Exception as error:
            self._failed(item, error)
            return
        if self.node.me is not self._me:
            self._me = self.node.me
            self.peers.set_incarnation(self._me)
        if self._hook is not None:
            self._hook(item, effects, now)
        effect: Any  # of which kind says its class, which a type checker does not follow
        for effect in effects:
            kind = type(effect)
            if kind is Trace:
                self._trace(effect)
            elif kind is Send:
                self.peers.send(effect.to, effect.message)
            elif kind is SetTimer:
                self._timers.set(effect.timer, effect.at)
            elif kind is CancelTimer:
                self._timers.cancel(effect.timer)
            elif kind is Persist:
                self._persist(effect)
            elif kind is Answer:
                self.clients.answered(effect.request, effect.outcome)
            elif kind is Notify:
                self.clients.notify(effect)
            else:
                self._others[kind](effect)

    def set_hook(self, hook: StepHook | None) -> None:
        """Set or remove the hook that sees each step."""
        self._hook = hook

    def _fired(self, timer: int) -> None:
        self.submit(TimerFired(timer))

    def persisted(self, ticket: int) -> None:
        """Note that a ticket and all before it are on disk."""
        if self._tickets:
            self._counts.store_s.add(perf_counter() - self._tickets[0][1])
        self._synced = ticket
        if not self._is_submitting:
            self._submit_persisted()

    def _submit_persisted(self) -> None:
        """Tell the node what is on disk, some milliseconds at a time: one sync may hold thousands of tickets."""
        self._is_submitting = False
        tickets = self._tickets
        until = perf_counter() + SYNCED_S
        while tickets and tickets[0][0] <= self._synced:
            self.submit(Persisted(tickets.popleft()[0]))
            if perf_counter() > until:
                self._is_submitting = True
                self._scheduler.loop.call_soon(self._submit_persisted)
                return

    def _persist(self, effect: Persist) -> None:
        records = effect.records
        for record in records:
            if not 0 <= record.version <= VERSION_MAX:  # only a liar's: the disk's numbers end there
                self._counts.totals["step_errors"] += 1
                self._log.write(logging.ERROR, "record_refused", name=record.name, version=record.version)
                records = tuple(each for each in records if 0 <= each.version <= VERSION_MAX)
                break
        self._tickets.append((effect.ticket, perf_counter()))
        self._store.persist(effect.ticket, records, effect.erased)

    # -- effects that are rarer ----------------------------------------------------------------------------------------

    def _observe(self, effect: Observe) -> None:
        self._counts.observed[effect.name] += effect.value
        if effect.name == EVENT_HOPS:
            self._counts.hops.add(effect.value)
        elif effect.name == PEER_REFUSED:
            self.peers.refused(effect.subject)

    def _trace(self, effect: Trace) -> None:
        total = _STEPS.get(effect.step)
        if total is not None:
            self._counts.totals[total] += len(effect.names) or 1
        elif effect.step == "taken":
            self._counts.totals["events_taken"] += 1
            if effect.names:
                self._counts.totals["events_matched"] += 1
                self.rates.matched(effect.names, self._now)
        self._store.note(self._now, effect)

    # -- ending --------------------------------------------------------------------------------------------------------

    def _failed(self, item: Input, error: Exception) -> None:
        self._counts.totals["step_errors"] += 1
        kind = type(item).__name__
        is_of_input = isinstance(error, _OF_INPUT)
        if isinstance(item, ClientRequest) and (
            is_of_input or isinstance(error, StopIteration)
        ):  # it hosts nothing, for now
            self._log.write(
                logging.ERROR, "request_failed", kind=type(item.what).__name__, problem=repr(error), error=error
            )
            self.clients.answered(item.request, Refused("this broker could not take it; its log says why", retry=False))
        elif isinstance(item, Received) and is_of_input:
            kind = type(item.message).__name__
            self._log.write(
                logging.ERROR, "message_failed", kind=kind, source=item.source.address, problem=repr(error), error=error
            )
        else:
            self._end(kind, error)

    def _end(self, kind: str, error: Exception) -> None:
        self._log.write(logging.CRITICAL, "node_failed", kind=kind, problem=repr(error), error=error)
        self.close()
        self._on_broken(f"the node failed at {kind}: {error!r}")

    def close(self) -> None:
        """Hand nothing more to the node."""
        self._is_closed = True
        self._inputs.clear()
        self._timers.close()

    @property
    def unsynced(self) -> int:
        """Number of writes that wait for the disk."""
        return len(self._tickets)

    @property
    def timers(self) -> int:
        """Number of timers that are set."""
        return len(self._timers)


class FeedbackLoader:
    """Loads the file of `meetpoint pipeline measure --feedback`, which says what events are like, whenever it changes.

    It changes no answer, only the work that an answer takes. So a missing or damaged file is logged, and no more.
    """

    def __init__(self, path: str, counts: Counts, log: Log, submit: Callable[[Input], None]) -> None:
        self._path = path
        self._counts = counts
        self._log = log
        self._submit = submit
        self._seen: tuple[int, int, int] | None = None
        self._problem = ""

    def tick(self) -> None:
        """Load the file if it has changed."""
        try:
            found = os.stat(self._path)
        except OSError as error:
            self._log_problem(f"{self._path}: {(error.strerror or str(error)).lower()}")
            return
        seen = found.st_mtime_ns, found.st_size, found.st_ino
        if seen == self._seen:
            return
        self._seen = seen
        try:
            feedback = Feedback.load(self._path)
        except MeetpointError as error:
            self._log_problem(str(error))
            return
        self._problem = ""
        self._counts.totals["feedback_loads"] += 1
        self._log.write(logging.INFO, "feedback_loaded", file=self._path, events=feedback.events)
        self._submit(Measured(feedback))

    def _log_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._log.write(logging.WARNING, "feedback_unreadable", problem=problem)
