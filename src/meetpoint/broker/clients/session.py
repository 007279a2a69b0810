"""A session: the connection of one client, with its requests and its deliveries.

The requests of a client with a token go through its policy first (`authorization`), and so does all that it is told.
Names are inside as the network has them; the client's own words are only on the wire.

For a client that does not read, so many bytes are written ahead. After that, deliveries to ephemeral subscriptions are
dropped and counted, and the rest is held back, unencoded, until there is room. That is bounded by the window, since
nothing that was not sent is acknowledged. Should the client take nothing for a while its connection is closed, and all
of it waits at the home.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from meetpoint.api.client_messages import (
    FROM_CLIENTS,
    TO_CLIENTS,
    Ended,
    GoAway,
    Notification,
    Request,
    Response,
    ResponseBody,
)
from meetpoint.api.codec import Codec, WireError
from meetpoint.api.ids import EventKey
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import (
    Acknowledge,
    Attach,
    Declare,
    Detach,
    Leave,
    Locate,
    Publish,
    Reject,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Update,
)
from meetpoint.broker.clients.authorization import NAME_MAX, DeniedError, SessionPolicy
from meetpoint.broker.clients.registry import DISK_FULL, NOBODY, ClientRegistry
from meetpoint.broker.transport.connection import Connection
from meetpoint.node.home.home import NAME_MAX as NAME_MAX_WITHIN
from meetpoint.node.runtime.effects import Notify

__all__ = ["CLIENT_CODEC", "Session"]

CLIENT_CODEC: Final = Codec(FROM_CLIENTS)
_ENCODE: Final = Codec(TO_CLIENTS).encode
_WRITES: Final = (Publish, Subscribe, Update, Unsubscribe, Declare)


class Session:
    """The session of one client."""

    def __init__(
        self, clients: ClientRegistry, connection: Connection, client: str, key: str, policy: SessionPolicy | None
    ) -> None:
        self._clients = clients
        self.connection = connection
        self.client = client
        self.key = key
        """The client's key where things are counted by clients."""
        self.policy = policy
        self._offender = {"client": key} if policy is not None else {"address": connection.host, "name": client}
        """The fields that name the client in the log: without a token, a name is only what somebody says."""
        self.names: dict[str, None] = {}
        self.ephemeral: dict[str, None] = {}
        """The attached names of ephemeral subscriptions."""
        self._made: dict[str, None] = {}
        """The names of subscriptions that were made by this session."""
        self.is_out_of_order = False
        """Whether an event was refused for now: what the client had sent after it must not overtake it."""
        self.in_flight = 0
        """Number of requests without an answer yet."""
        self._held: deque[tuple[Notify, tuple[str, ...]]] = deque()
        self._withheld: list[tuple[EventKey, tuple[str, ...], str]] = []
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            Publish: self._publish,
            Attach: self._attach,
            Detach: self._detach,
            Subscribe: self._subscribe,
            Update: self._update,
            Unsubscribe: self._unsubscribe,
            Locate: self._locate,
            Leave: self._leave,
        }

    # -- what it asks --------------------------------------------------------------------------------------------------

    def take(self, message: Message) -> None:
        """Take a message of the client."""
        assert type(message) is Request
        clients = self._clients
        clients.counts.totals["requests"] += 1
        what = message.what
        kind = type(what)
        request = message.request
        if request != NOBODY or kind not in (Acknowledge, Reject):
            self.in_flight += 1
            if self.in_flight > clients.requests_max:
                clients.hold(self)
        try:
            if clients.is_closing and kind not in (Acknowledge, Reject):
                raise self._not_now(kind, "stopping", "this broker stops; ask another")
            if clients.is_full and kind in _WRITES:
                raise self._not_now(kind, "disk_full", DISK_FULL)
            if self.policy is not None:
                what = self.policy.inward(what)
                kind = type(what)
            if kind is Acknowledge or kind is Reject:
                clients.ask(self, request, what)  # type: ignore[arg-type]
                return
            handler = self._handlers.get(kind)
            if handler is not None:
                handler(request, what)
            elif kind in clients.query_handlers:
                clients.query_handlers[kind](self, request, what)
            else:
                clients.ask(self, request, what)  # type: ignore[arg-type]
        except DeniedError as denied:
            self.refuse(denied.kind, denied.reason)
            self.answer(request, Refused(denied.reason, denied.retry))
            if type(message.what) is Publish:  # what is refused takes its time too
                clients.published(self, len(message.what.event))

    def refuse(self, kind: str, reason: str) -> None:
        """Count and log a refusal of this client."""
        self._clients.refusals.refuse(kind, reason=reason, **self._offender)

    def _not_now(self, kind: type, why: str, reason: str) -> DeniedError:
        self.is_out_of_order = self.is_out_of_order or kind is Publish
        return DeniedError(why, reason, retry=True)

    def _publish(self, request: int, what: Publish) -> None:
        if self.is_out_of_order:
            raise self._not_now(
                Publish, "not_ready", "an event before this one was refused; connect anew and send both"
            )
        self._clients.ask(self, request, what)
        self._clients.published(self, len(what.event))

    def _subscribe(self, request: int, what: Subscribe) -> None:
        what = self._owned(what)
        quotas = self._clients.quotas
        quotas.check_filter(self._own_filter(what.filter))
        quotas.check_labels(what.terms.owner, what.terms.labels)
        quotas.check_subscription(what, self._made)
        self._made[what.name] = None
        if not what.terms.durable and self._clients.attached(what.name) is None:
            self._clients.attach(what.name, self)
            self.ephemeral[what.name] = None
        self._clients.ask(self, request, what)

    def _own_filter(self, text: str) -> str:
        return text if self.policy is None else self.policy.scope.filter_outside(text)

    def _owned(self, what: Subscribe) -> Subscribe:
        if self.policy is None and len(what.name) > NAME_MAX:
            raise DeniedError("request", f"the name has {len(what.name)} characters; give it 1 to {NAME_MAX}")
        if what.terms.owner or not self.client:
            return what
        terms = what.terms
        owned = SubscriptionOptions(terms.durable, self.client, terms.labels, terms.lifetime_us, terms.paused)
        return Subscribe(what.name, what.filter, owned)

    def _update(self, request: int, what: Update) -> None:
        if what.filter is not None:
            self._clients.quotas.check_filter(self._own_filter(what.filter))
        if what.labels is not None:
            self._clients.quotas.check_labels("", what.labels)
        self._clients.ask(self, request, what)

    def _locate(self, request: int, what: Locate) -> None:
        if len(what.name) > NAME_MAX_WITHIN:  # all brokers are asked for it
            raise DeniedError("request", f"the name has {len(what.name)} characters; no subscription has such a name")
        self._clients.ask(self, request, what)

    def _unsubscribe(self, request: int, what: Unsubscribe) -> None:
        self._made.pop(what.name, None)
        self._clients.ask(self, request, what)

    def _attach(self, request: int, what: Attach) -> None:
        self._clients.attach(what.name, self)
        self._clients.ask(self, request, what)

    def _detach(self, request: int, what: Detach) -> None:
        attached = self._clients.attached(what.name)
        if attached is None or attached is self:
            self._clients.detach(what.name)
            self._clients.ask(self, request, what)
        else:
            self.answer(request, Stored())  # another one takes it by now

    def _leave(self, request: int, what: Leave) -> None:
        if self.policy is None and not self.is_near:
            raise DeniedError("role", "a broker is asked to leave from its own machine only; run the command there")
        self._clients.ask(self, request, what)

    @property
    def is_near(self) -> bool:
        """Whether the client is on the broker's own machine."""
        transport = self.connection.transport
        if transport is None:
            return False
        theirs, ours = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        return bool(theirs and ours) and (theirs[0] == ours[0] or ipaddress.ip_address(theirs[0]).is_loopback)

    # -- what it is told -----------------------------------------------------------------------------------------------

    def answer(self, request: int, word: ResponseBody) -> None:
        """Answer a request, where an answer is wanted."""
        self.in_flight -= 1
        if self.in_flight == self._clients.requests_max // 2:
            self._clients.hold(self)
        self.connection.refusals += type(word) is Refused
        if request != NOBODY:
            self._send(Response(request, word if self.policy is None else self.policy.outward(word)))

    def end(self, name: str, reason: str, *, moved: bool) -> None:
        """Tell that nothing more comes for a name."""
        (said,) = self._names_outside((name,))
        self._send(Ended(said, reason, moved))

    def send_go_away(self, reason: str, others: tuple[str, ...]) -> None:
        """Tell that this broker stops, or ends this session."""
        self._send(GoAway(reason, others))

    def _names_outside(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return names if self.policy is None else self.policy.scope.names_outside(names)

    def notify(self, effect: Notify, names: tuple[str, ...]) -> None:
        """Deliver an event to names of this client."""
        if self.policy is not None and (reason := self.policy.why_not_deliver(effect.content)) is not None:
            self._reject_delivery(effect.event, names, reason)
            return
        if self.connection.queued_bytes > self._clients.queue_max:
            names = self._without_ephemeral(names)
        elif not self._held:
            self._write(effect, names)
            return
        if names:
            self._held.append((effect, names))

    def _write(self, effect: Notify, names: tuple[str, ...]) -> None:
        totals = self._clients.counts.totals
        totals["notifications"] += 1
        totals["deliveries"] += len(names)
        if effect.redelivered:
            totals["redeliveries"] += len(names)
        content = effect.content
        if self.policy is not None:
            names, content = self._names_outside(names), self.policy.event_outside(content)
        self.connection.send(_ENCODE(Notification(effect.event, names, content, effect.redelivered)))

    def _without_ephemeral(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self.ephemeral:
            return names
        kept = tuple(name for name in names if name not in self.ephemeral)
        self._clients.counts.totals["dropped_to_clients"] += len(names) - len(kept)
        return kept

    def drained(self) -> None:
        """Deliver what was held back, as far as there is room."""
        held, connection = self._held, self.connection
        while held and connection.queued_bytes <= self._clients.queue_max // 2:
            effect, names = held.popleft()
            names = tuple(name for name in names if name in self.names)
            if names:
                self._write(effect, names)

    def _reject_delivery(self, event: EventKey, names: tuple[str, ...], reason: str) -> None:
        """Reject an event that may not be delivered: a durable subscription makes it a dead letter.

        The home is told in the next turn of the loop: it brings the next ones then, and there may be very many.
        """
        self.refuse("delivery", reason)
        if not self._withheld:
            asyncio.get_running_loop().call_soon(self._reject_withheld)
        self._withheld.append((event, names, reason))

    def _reject_withheld(self) -> None:
        withheld, self._withheld = self._withheld, []
        for event, names, reason in withheld:
            self._clients.ask(None, NOBODY, Reject(event, names, reason, final=True))

    def _send(self, message: Message) -> None:
        if not self.connection.is_over:
            self.connection.send(_ENCODE(message))

    @property
    def queued(self) -> int:
        """Number of notifications that are held back."""
        return len(self._held)

    def refused(self, error: WireError) -> None:
        """Count bytes that are no message, and close; they have no request number to answer."""
        clients = self._clients
        clients.counts.wire_errors[error.kind] += 1
        kind = "frame_oversized" if error.kind == "oversized" else "unreadable"
        self.refuse(kind, str(error))
        self.connection.close(str(error))

    def closed(self, reason: str) -> None:
        """End the session."""
        self._held.clear()
        self._clients.disconnected(self, reason)
