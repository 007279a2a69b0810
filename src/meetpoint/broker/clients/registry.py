"""The registry of all clients of a broker: attached names, answers that are waited for, and clients that are held up.

At most one session is attached to a name: the one that last said `Attach`, or, for an ephemeral subscription, the one
that subscribed. A notification without one is answered with `Detach` on the spot, and its events wait. A session that
ends is detached from all its names.

A client that publishes is not read from while too much is under way here, or while it has published faster than it may
(`quotas`). A client whose token does not count any longer is told so, and its connection is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from meetpoint.api.outcomes import Outcome, Published, Refused
from meetpoint.api.requests import Acknowledge, Attach, Detach, NodeRequest, Publish, Reject, Subscribe, Unsubscribe
from meetpoint.broker.clients.authorization import Authorizer, SessionPolicy
from meetpoint.broker.clients.quotas import Quotas, TokenBuckets
from meetpoint.broker.config import Limits
from meetpoint.broker.observe.logs import Log, Refusals
from meetpoint.broker.observe.metrics import Counts
from meetpoint.node.node import Node
from meetpoint.node.runtime.effects import Notify
from meetpoint.node.runtime.inputs import ClientRequest, Input, Withdrawn

if TYPE_CHECKING:
    from meetpoint.broker.clients.session import Session

__all__ = ["DISK_FULL", "NOBODY", "ClientRegistry"]

NOBODY: Final = 0
"""The number of a request whose answer nobody waits for."""
DISK_FULL: Final = "this broker's disk is full; ask again later, or ask another"
_QUIET: Final = (Acknowledge, Reject)
"""Requests that mostly want no answer, and need not be remembered then."""


class ClientRegistry:
    """The clients of one broker."""

    def __init__(
        self,
        node: Node,
        limits: Limits,
        counts: Counts,
        log: Log,
        refusals: Refusals,
        authorizer: Authorizer,
        submit: Callable[[Input], None],
    ) -> None:
        self._node = node
        self.counts = counts
        self.log = log
        self.refusals = refusals
        self.authorizer = authorizer
        self.queue_max = limits.client_queue_bytes
        self.quotas = Quotas(limits, node)
        self._buckets = TokenBuckets(limits)
        self._submit = submit
        self.sessions: dict[Session, None] = {}
        self._attached: dict[str, Session] = {}
        self._asked: dict[int, tuple[Session | None, int, NodeRequest, asyncio.Future[Outcome] | None]] = {}
        self._number = NOBODY
        self.requests_max = limits.requests_under_way
        self._waiting: dict[Session, None] = {}
        self._paused: dict[Session, asyncio.TimerHandle] = {}
        self._connections = 0
        self.query_handlers: dict[type, Callable[[Session, int, Any], None]] = {}
        self.is_closing = False
        self.is_full = False
        """Whether the disk is full."""
        self.is_congested = False
        """Whether too much is under way for more to be published."""

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, session: Session | None, request: int, what: NodeRequest) -> None:
        """Submit a client's request to the node."""
        if request == NOBODY and type(what) in _QUIET:
            self._submit(ClientRequest(NOBODY, what))
            return
        self._number = number = self._number + 1
        self._asked[number] = (session, request, what, None)
        self._submit(ClientRequest(number, what))

    def ask_self(self, what: NodeRequest) -> asyncio.Future[Outcome]:
        """Submit a request of the broker itself to the node."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._number = number = self._number + 1
        self._asked[number] = (None, NOBODY, what, future)
        self._submit(ClientRequest(number, what))
        return future

    def answered(self, number: int, outcome: Outcome) -> None:
        """Pass on the node's answer."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        session, request, what, future = asked
        kind = type(outcome)
        if kind is Published:
            self.counts.totals["events_published"] += 1
        if future is not None and not future.done():
            future.set_result(outcome)
        if session is None:
            return
        if isinstance(outcome, Refused):
            self._was_refused(session, what, outcome)
        elif type(what) is Unsubscribe:
            self._unsubscribed(session, what.name)
        session.answer(request, outcome)

    def withdraw(self) -> None:
        """Refuse events that will not be on disk for a while, so that their publishers bring them elsewhere."""
        for number in [number for number, (_, _, what, _) in self._asked.items() if type(what) is Publish]:
            self._submit(Withdrawn(number))
            self.answered(number, Refused(DISK_FULL, retry=True))

    def _was_refused(self, session: Session, what: NodeRequest, outcome: Refused) -> None:
        kind = "request" if not outcome.retry else "disk_full" if self.is_full else "not_ready"
        session.refuse(kind, outcome.reason)
        if type(what) is Publish and outcome.retry:
            session.is_out_of_order = True
        name = what.name if isinstance(what, (Attach, Subscribe)) else ""
        if self._attached.get(name) is session and (isinstance(what, Attach) or name in session.ephemeral):
            self.detach(name)

    def _unsubscribed(self, session: Session, name: str) -> None:
        attached = self.detach(name)
        if attached is not None and attached is not session:
            attached.end(name, "it was unsubscribed by another client", moved=False)

    @property
    def unanswered(self) -> int:
        """Number of answers that clients wait for."""
        return sum(
            session is not None and request != NOBODY and not session.connection.is_over
            for session, request, _, _ in self._asked.values()
        )

    # -- who takes what ------------------------------------------------------------------------------------------------

    def attached(self, name: str) -> Session | None:
        """Return the session that is attached to a name."""
        return self._attached.get(name)

    def attach(self, name: str, session: Session) -> None:
        """Attach a session to a name; the one before is told."""
        former = self._attached.get(name)
        if former is session:
            return
        if former is not None:
            is_ephemeral = name in former.ephemeral
            self.detach(name)
            former.end(name, "another client takes it now", moved=False)
            if is_ephemeral:
                session.ephemeral[name] = None
            else:
                self._submit(
                    ClientRequest(NOBODY, Detach(name))
                )  # what the former one had and did not acknowledge comes again
        self._attached[name] = session
        session.names[name] = None

    def detach(self, name: str) -> Session | None:
        """Detach any session from a name."""
        session = self._attached.pop(name, None)
        if session is not None:
            session.names.pop(name, None)
            session.ephemeral.pop(name, None)
        return session

    def names(self) -> Iterable[str]:
        """Return all names with an attached session."""
        return self._attached

    def moved(self, names: Iterable[str], reason: str) -> None:
        """End the delivery of names whose homes are elsewhere, or will be."""
        for name in names:
            session = self.detach(name)
            if session is not None:
                session.end(name, reason, moved=True)

    def ended(self, name: str, reason: str) -> None:
        """End the delivery of a subscription that has ended."""
        session = self.detach(name)
        if session is not None:
            session.end(name, reason, moved=False)

    def notify(self, effect: Notify) -> None:
        """Deliver an event to attached sessions; the node hears of names without one."""
        attached = self._attached
        names = effect.names
        if len(names) == 1:
            session = attached.get(names[0])
            if session is not None:
                session.notify(effect, names)
            else:
                self._unclaimed(names[0])
            return
        by_session: dict[Session | None, list[str]] = {}
        for name in names:
            by_session.setdefault(attached.get(name), []).append(name)
        for each, theirs in by_session.items():
            if each is not None:
                each.notify(effect, tuple(theirs))
            else:
                for name in theirs:
                    self._unclaimed(name)

    def _unclaimed(self, name: str) -> None:
        self.counts.totals["unclaimed"] += 1
        self._submit(ClientRequest(NOBODY, Detach(name)))

    # -- coming and going ----------------------------------------------------------------------------------------------

    def admit(self, client: str, token: str) -> tuple[str, SessionPolicy | None]:
        """Return the key and the policy of a client that says hello; raise DeniedError where it may not connect.

        The key is its name by the token, or the name that it says, or one like no other.
        """
        policy = self.authorizer.admit(client, token)
        self._connections += 1
        key = policy.scope.owner if policy is not None else client or f"connection {self._connections}"
        self.quotas.check_connection(key)
        if policy is not None:
            policy.schema = lambda: self._node.schema
            policy.filter_of = self._filter_of
        return key, policy

    def _filter_of(self, name: str) -> str | None:
        home = self._node.home_manager.find(name)
        held = None if home is None else home.subscription(name)
        return None if held is None else held.filter

    def connected(self, session: Session) -> None:
        """Add a session."""
        self.sessions[session] = None
        self.quotas.connected(session.key)
        self.log.write(logging.DEBUG, "client_connected", client=session.key)

    def disconnected(self, session: Session, reason: str) -> None:
        """Remove a session, and detach it from its names."""
        if session in self.sessions:
            del self.sessions[session]
            self.quotas.disconnected(session.key)
        if session.connection.closed_for is not None:
            self.counts.totals["stalls"] += 1
            session.refuse(*session.connection.closed_for)
        self._waiting.pop(session, None)
        if session in self._paused:
            self._paused.pop(session).cancel()
        self.log.write(logging.DEBUG, "client_gone", client=session.key, reason=reason)
        for name in list(session.names):
            self.detach(name)
            self._submit(ClientRequest(NOBODY, Detach(name)))

    def recheck_tokens(self) -> None:
        """Close the sessions whose token does not count any longer."""
        for session in list(self.sessions):
            denied = None if session.policy is None else self.authorizer.why_not(session.policy)
            if denied is not None:
                session.refuse(denied.kind, denied.reason)
                session.send_go_away(denied.reason, ())
                session.connection.close(denied.reason)

    # -- who is not read from ------------------------------------------------------------------------------------------

    def published(self, session: Session, size: int) -> None:
        """Count published bytes; the client may have to wait before it is read from again."""
        loop = asyncio.get_running_loop()
        wait_s = self._buckets.take(session.key, size, loop.time())
        if wait_s and session not in self._paused:
            self._paused[session] = loop.call_later(wait_s, self._resume, session)
            self.counts.totals["throttled_clients"] += 1
        if self.is_congested and session not in self._waiting:
            self._waiting[session] = None
            self.counts.totals["held_clients"] += 1
        self.hold(session)

    def hold(self, session: Session) -> None:
        """Read from a client, or hold it: it may have published too much, or wait for too many answers."""
        is_busy = session.in_flight > self.requests_max
        session.connection.hold(is_busy or session in self._paused or session in self._waiting)

    def _resume(self, session: Session) -> None:
        self._paused.pop(session, None)
        self.hold(session)

    def release(self) -> None:
        """Read again from all that were held because too much was under way."""
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            self.hold(session)

    @property
    def held_back(self) -> int:
        """Number of notifications that wait for room."""
        return sum(session.queued for session in self.sessions)

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that are still to be written."""
        return sum(session.connection.queued_bytes for session in self.sessions)

    def tick(self, now: float) -> None:
        """Close stalled sessions, and those with expired tokens; called now and then."""
        for session in list(self.sessions):
            session.connection.tick(now)
        self.recheck_tokens()
        self._buckets.tick(now)
