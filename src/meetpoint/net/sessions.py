"""Clients: what they ask, what they are told, and who takes the notifications of a name.

A name has at most one taker: the connection that last said `Present`, or, for what is taken once, the one that
subscribed. A notification that nobody takes is answered with `Absent` on the spot, and its events wait. A connection
that ends is absent from all its names.

A client that does not read: so many bytes are written ahead; after that, what is taken once is dropped and counted, and
the rest is held back, unencoded, until there is room. It is bounded by the window, since nothing that was not sent is
acknowledged; and should the client take nothing for a while its connection is closed, and all of it waits at the home.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from meetpoint.net.connection import Connection
from meetpoint.net.logs import Log
from meetpoint.net.metrics import Counts
from meetpoint.protocol.effects import Notify, Outcome, Published, Refused, Stored
from meetpoint.protocol.inputs import (
    Absent,
    Acknowledge,
    Asked,
    Declare,
    Input,
    Leave,
    Present,
    Publish,
    Reject,
    RequestOf,
    Subscribe,
    Terms,
    Unsubscribe,
    Update,
)
from meetpoint.protocol.messages import Message
from meetpoint.wire import Codec, WireError
from meetpoint.wire.clients import (
    FROM_CLIENTS,
    TO_CLIENTS,
    Ask,
    CloseSoon,
    Ended,
    Notification,
    Told,
    Word,
)

__all__ = ["CLIENT_CODEC", "Clients", "Session"]

CLIENT_CODEC: Final = Codec(FROM_CLIENTS)
_ENCODE: Final = Codec(TO_CLIENTS).encode
_WRITES: Final = (Publish, Subscribe, Update, Unsubscribe, Declare)
_QUIET: Final = (Acknowledge, Reject)
"""What is mostly asked without wanting an answer, and need not be remembered then."""
_NOBODY: Final = 0
"""The number of a request whose answer nobody waits for."""


class Session:
    """One client's connection."""

    def __init__(self, clients: Clients, connection: Connection, client: str) -> None:
        self._clients = clients
        self.connection = connection
        self.client = client
        self.names: dict[str, None] = {}
        self.passing: dict[str, None] = {}
        """Of the names, those of subscriptions that are taken once."""
        self.is_out_of_order = False
        """Whether an event was refused for now: what the client had sent after it must not overtake it."""
        self._held: deque[Notification] = deque()
        self._kinds: dict[type, Callable[[int, Any], None]] = {
            Publish: self._publish,
            Present: self._present,
            Absent: self._absent,
            Subscribe: self._subscribe,
            Leave: self._leave,
        }

    # -- what it asks --------------------------------------------------------------------------------------------------

    def take(self, message: Message) -> None:
        """A message of the client."""
        assert type(message) is Ask
        clients = self._clients
        clients.counts.totals["requests"] += 1
        what = message.what
        kind = type(what)
        request = message.request
        if clients.is_closing and kind not in (Acknowledge, Reject):
            self._refuse_for_now(request, kind, "this broker stops; ask another")
            return
        if clients.is_full and kind in _WRITES:
            self._refuse_for_now(request, kind, "this broker's disk is full; ask again later, or ask another")
            return
        if kind is Acknowledge or kind is Reject:
            clients.ask(self, request, what)  # type: ignore[arg-type]
            return
        handler = self._kinds.get(kind)
        if handler is not None:
            handler(request, what)
        elif kind in clients.readers:
            clients.readers[kind](self, request, what)
        else:
            clients.ask(self, request, what)  # type: ignore[arg-type]

    def _refuse_for_now(self, request: int, kind: type, reason: str) -> None:
        self.is_out_of_order = self.is_out_of_order or kind is Publish
        self.tell(request, Refused(reason, retry=True))

    def _publish(self, request: int, what: Publish) -> None:
        if self.is_out_of_order:
            self._refuse_for_now(request, Publish, "an event before this one was refused; connect anew and send both")
            return
        self._clients.ask(self, request, what)
        if self._clients.is_congested:
            self._clients.hold(self)

    def _subscribe(self, request: int, what: Subscribe) -> None:
        if what.terms.durable or self._clients.taker(what.name) is not None:
            self._clients.ask(self, request, self._owned(what))
            return
        self._clients.give(what.name, self)
        self.passing[what.name] = None
        self._clients.ask(self, request, self._owned(what))

    def _owned(self, what: Subscribe) -> Subscribe:
        if what.terms.owner or not self.client:
            return what
        terms = what.terms
        owned = Terms(terms.durable, self.client, terms.labels, terms.lifetime_us, terms.paused)
        return Subscribe(what.name, what.filter, owned)

    def _present(self, request: int, what: Present) -> None:
        self._clients.give(what.name, self)
        self._clients.ask(self, request, what)

    def _absent(self, request: int, what: Absent) -> None:
        taker = self._clients.taker(what.name)
        if taker is None or taker is self:
            self._clients.take_away(what.name)
            self._clients.ask(self, request, what)
        else:
            self.tell(request, Stored())  # another one takes it by now

    def _leave(self, request: int, what: Leave) -> None:
        if self.is_near:
            self._clients.ask(self, request, what)
        else:
            reason = "a broker is asked to leave from its own machine only; run the command there"
            self.tell(request, Refused(reason, retry=False))

    @property
    def is_near(self) -> bool:
        """Whether the client is on the broker's own machine."""
        transport = self.connection.transport
        if transport is None:
            return False
        theirs, ours = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
        return bool(theirs and ours) and (theirs[0] == ours[0] or ipaddress.ip_address(theirs[0]).is_loopback)

    # -- what it is told -----------------------------------------------------------------------------------------------

    def tell(self, request: int, word: Word) -> None:
        """Answer, where an answer is wanted."""
        if request != _NOBODY:
            self._say(Told(request, word))

    def end(self, name: str, reason: str, *, moved: bool) -> None:
        """Nothing more comes for a name."""
        self._say(Ended(name, reason, moved))

    def close_soon(self, reason: str, others: tuple[str, ...]) -> None:
        """This broker stops."""
        self._say(CloseSoon(reason, others))

    def notify(self, effect: Notify, names: tuple[str, ...]) -> None:
        """Bring an event to names that this client takes."""
        connection = self.connection
        if connection.queued_bytes > self._clients.queue_max:
            names = self._without_passing(names)
        elif not self._held:
            self._count(names, effect.redelivered)
            connection.say(_ENCODE(Notification(effect.event, names, effect.content, effect.redelivered)))
            return
        if names:
            self._held.append(Notification(effect.event, names, effect.content, effect.redelivered))

    def _without_passing(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if not self.passing:
            return names
        kept = tuple(name for name in names if name not in self.passing)
        self._clients.counts.totals["dropped_to_clients"] += len(names) - len(kept)
        return kept

    def _count(self, names: tuple[str, ...], redelivered: bool) -> None:
        totals = self._clients.counts.totals
        totals["notifications"] += 1
        totals["deliveries"] += len(names)
        if redelivered:
            totals["redeliveries"] += len(names)

    def drained(self) -> None:
        """There is room again: what was held back goes, as far as it fits."""
        held, connection = self._held, self.connection
        while held and connection.queued_bytes <= self._clients.queue_max // 2:
            notification = held.popleft()
            names = tuple(name for name in notification.names if name in self.names)
            if names:
                self._count(names, notification.redelivered)
                connection.say(
                    _ENCODE(Notification(notification.event, names, notification.content, notification.redelivered))
                )

    def _say(self, message: Message) -> None:
        if not self.connection.is_over:
            self.connection.say(_ENCODE(message))

    @property
    def queued(self) -> int:
        """How many notifications are held back."""
        return len(self._held)

    def refused(self, error: WireError) -> None:
        """What is no message is answered with nothing: it has no number."""
        self._clients.counts.wire_errors[error.kind] += 1
        self._clients.log.say(logging.WARNING, "client_unreadable", client=self.client, problem=str(error))
        self.connection.close(str(error))

    def closed(self, reason: str) -> None:
        """The client is gone."""
        self._held.clear()
        self._clients.gone(self, reason)


class Clients:
    """All clients of a broker."""

    def __init__(self, counts: Counts, log: Log, queue_max: int, hand: Callable[[Input], None]) -> None:
        self.counts = counts
        self.log = log
        self.queue_max = queue_max
        self._hand = hand
        self.sessions: dict[Session, None] = {}
        self._takers: dict[str, Session] = {}
        self._asked: dict[int, tuple[Session | None, int, RequestOf, asyncio.Future[Outcome] | None]] = {}
        self._number = _NOBODY
        self._waiting: dict[Session, None] = {}
        self.readers: dict[type, Callable[[Session, int, Any], None]] = {}
        self.is_closing = False
        self.is_full = False
        """Whether the disk is."""
        self.is_congested = False
        """Whether too much is under way for more to be published."""

    # -- asking --------------------------------------------------------------------------------------------------------

    def ask(self, session: Session | None, request: int, what: RequestOf) -> None:
        """Ask the node for a client."""
        if request == _NOBODY and type(what) in _QUIET:
            self._hand(Asked(_NOBODY, what))
            return
        self._number = number = self._number + 1
        self._asked[number] = (session, request, what, None)
        self._hand(Asked(number, what))

    def ask_self(self, what: RequestOf) -> asyncio.Future[Outcome]:
        """Ask the node for the broker itself."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._number = number = self._number + 1
        self._asked[number] = (None, _NOBODY, what, future)
        self._hand(Asked(number, what))
        return future

    def answered(self, number: int, outcome: Outcome) -> None:
        """The node answers."""
        asked = self._asked.pop(number, None)
        if asked is None:
            return
        session, request, what, future = asked
        kind = type(outcome)
        if kind is Published:
            self.counts.totals["events_published"] += 1
        elif kind is Refused:
            self.counts.totals["refusals"] += 1
        if future is not None and not future.done():
            future.set_result(outcome)
        if session is None:
            return
        if isinstance(outcome, Refused):
            self._was_refused(session, what, outcome)
        elif type(what) is Unsubscribe:
            self._unsubscribed(session, what.name)
        session.tell(request, outcome)

    def _was_refused(self, session: Session, what: RequestOf, outcome: Refused) -> None:
        if type(what) is Publish and outcome.retry:
            session.is_out_of_order = True
        name = what.name if isinstance(what, (Present, Subscribe)) else ""
        if self._takers.get(name) is session and (isinstance(what, Present) or name in session.passing):
            self.take_away(name)

    def _unsubscribed(self, session: Session, name: str) -> None:
        taker = self.take_away(name)
        if taker is not None and taker is not session:
            taker.end(name, "it was unsubscribed by another client", moved=False)

    @property
    def unanswered(self) -> int:
        """How many answers clients wait for."""
        return sum(
            session is not None and request != _NOBODY and not session.connection.is_over
            for session, request, _, _ in self._asked.values()
        )

    # -- who takes what ------------------------------------------------------------------------------------------------

    def taker(self, name: str) -> Session | None:
        """Who takes the notifications of a name."""
        return self._takers.get(name)

    def give(self, name: str, session: Session) -> None:
        """A client takes a name from now on; whoever had it is told."""
        former = self._takers.get(name)
        if former is session:
            return
        if former is not None:
            is_passing = name in former.passing
            self.take_away(name)
            former.end(name, "another client takes it now", moved=False)
            if is_passing:
                session.passing[name] = None
            else:
                self._hand(Asked(_NOBODY, Absent(name)))  # what the former one had and did not acknowledge comes again
        self._takers[name] = session
        session.names[name] = None

    def take_away(self, name: str) -> Session | None:
        """Nobody takes a name from now on."""
        session = self._takers.pop(name, None)
        if session is not None:
            session.names.pop(name, None)
            session.passing.pop(name, None)
        return session

    def names(self) -> Iterable[str]:
        """All names that someone takes."""
        return self._takers

    def moved(self, names: Iterable[str], reason: str) -> None:
        """The homes of these names are elsewhere, or will be."""
        for name in names:
            session = self.take_away(name)
            if session is not None:
                session.end(name, reason, moved=True)

    def ended(self, name: str, reason: str) -> None:
        """A subscription is over."""
        session = self.take_away(name)
        if session is not None:
            session.end(name, reason, moved=False)

    def notify(self, effect: Notify) -> None:
        """Bring an event to whoever takes it; the node hears of names that nobody takes."""
        takers = self._takers
        names = effect.names
        if len(names) == 1:
            session = takers.get(names[0])
            if session is not None:
                session.notify(effect, names)
            else:
                self._unclaimed(names[0])
            return
        by_session: dict[Session | None, list[str]] = {}
        for name in names:
            by_session.setdefault(takers.get(name), []).append(name)
        for each, theirs in by_session.items():
            if each is not None:
                each.notify(effect, tuple(theirs))
            else:
                for name in theirs:
                    self._unclaimed(name)

    def _unclaimed(self, name: str) -> None:
        self.counts.totals["unclaimed"] += 1
        self._hand(Asked(_NOBODY, Absent(name)))

    # -- coming and going ----------------------------------------------------------------------------------------------

    def came(self, session: Session) -> None:
        """A client has connected."""
        self.sessions[session] = None
        self.log.say(logging.DEBUG, "client_connected", client=session.client)

    def gone(self, session: Session, reason: str) -> None:
        """A client has not been there any longer since now."""
        self.sessions.pop(session, None)
        self._waiting.pop(session, None)
        self.log.say(logging.DEBUG, "client_gone", client=session.client, reason=reason)
        for name in list(session.names):
            self.take_away(name)
            self._hand(Asked(_NOBODY, Absent(name)))

    def hold(self, session: Session) -> None:
        """Read nothing more from a client that publishes, for now."""
        if session not in self._waiting:
            self._waiting[session] = None
            self.counts.totals["held_clients"] += 1
            session.connection.hold(True)

    def release(self) -> None:
        """Read from all of them again."""
        waiting, self._waiting = self._waiting, {}
        for session in waiting:
            session.connection.hold(False)

    @property
    def held_back(self) -> int:
        """How many notifications wait for room."""
        return sum(session.queued for session in self.sessions)

    @property
    def queued_bytes(self) -> int:
        """How many bytes are still to be written."""
        return sum(session.connection.queued_bytes for session in self.sessions)

    def look(self, now: float) -> None:
        """Called now and then: close what stalls."""
        for session in list(self.sessions):
            session.connection.look(now)
