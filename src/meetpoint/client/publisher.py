"""The publishing half of a client: many events on their way at once, in order, each until it is acknowledged.

Events go over a connection of their own: a broker that has too much to write stops reading from it, and the
acknowledgements of subscriptions must not wait behind that. Events are sent in the order in which they were enqueued.
When the connection is lost, or a broker refuses one for now, all that have no answer are sent again in that order, over
a new connection, maybe to another broker, under the same ids, so that no subscriber gets one of them twice. An event
that goes to another broker than the last acknowledged one carries the key of that one (`after`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from meetpoint.api.client_messages import ResponseBody
from meetpoint.api.ids import EventId, EventKey, home_of
from meetpoint.api.limits import EVENT_BYTES_MAX
from meetpoint.api.outcomes import Published, Refused
from meetpoint.api.requests import Publish
from meetpoint.client.connection import Connection
from meetpoint.client.connection_pool import Backoff, ConnectionPool
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import EventError, MeetpointError
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack

__all__ = ["IN_FLIGHT", "Publisher"]

IN_FLIGHT = 1_000
"""The number of events that are sent before the first of them is acknowledged."""
IN_FLIGHT_BYTES = 8 << 20
"""About as many bytes of them are on their way at most."""
AFTER_S = 30.0
"""The time that one broker may wait for another, where an event follows events that were published there."""
CHECK_S = 0.5
"""The interval at which events that have waited too long are looked for."""


class _Pending:
    """An event that is not acknowledged yet."""

    __slots__ = ("content", "deadline", "future", "id")

    def __init__(self, content: bytes, id_: str, deadline: float, future: asyncio.Future[EventId]) -> None:
        self.content = content
        self.id = id_
        self.deadline = deadline
        self.future = future

    def fail(self, error: MeetpointError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # else asyncio logs an error that no caller waits for


class _Session:
    """The events that were sent over one connection, until that is lost or takes no more."""

    __slots__ = ("bytes", "connection", "has_progress", "in_flight", "is_halted", "over", "refused")

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.in_flight: dict[int, _Pending] = {}
        self.bytes = 0
        self.refused: set[int] = set()
        self.is_halted = False
        self.has_progress = False
        """Whether any event was acknowledged over it."""
        self.over = asyncio.Event()
        connection.on_lost.append(self.over.set)

    def halt(self) -> None:
        """Send no more, and wait for the answers to what was sent."""
        self.is_halted = True
        self.check_over()

    def check_over(self) -> None:
        """End the session, once halted, when every event that was sent is answered or given up."""
        if self.is_halted and all(n in self.refused or pending.future.done() for n, pending in self.in_flight.items()):
            self.over.set()

    def unanswered(self) -> list[_Pending]:
        """Return the events that must be sent again, in their order."""
        return [pending for pending in self.in_flight.values() if not pending.future.done()]


class Publisher:
    """The queue of events to publish, and the task that sends them."""

    def __init__(self, connections: ConnectionPool, timeout_s: float, in_flight: int) -> None:
        self.in_flight = in_flight
        self._connections = connections
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[_Pending] = deque()
        self._session: _Session | None = None
        self._numbers = 0
        self._last: EventKey | None = None
        self._problem = "no broker has taken it yet"
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.TimerHandle | None = None
        self._is_closed = False

    def enqueue(self, event: Event) -> asyncio.Future[EventId]:
        """Take an event; the future has its id and key when it is acknowledged.

        An event whose future is cancelled before it was sent is never sent; later, it may have been published or not.
        """
        if self._is_closed:
            raise NetworkError("this client is closed; connect again")
        content = to_msgpack(event)
        if len(content) > EVENT_BYTES_MAX:
            raise EventError(f"event: is {len(content)} bytes long; at most {EVENT_BYTES_MAX} are carried, so split it")
        future: asyncio.Future[EventId] = self._loop.create_future()
        self._unsent.append(_Pending(content, event.id, self._loop.time() + self._timeout_s, future))
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="meetpoint publisher")
        if self._checking is None:
            self._checking = self._loop.call_later(CHECK_S, self._check_deadlines)
        self._wake.set()
        self._send_more()
        return future

    async def close(self) -> None:
        """Stop; an event that is not acknowledged by now may have been published or not."""
        self._is_closed = True
        if self._checking is not None:
            self._checking.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        for pending in self._unsent:
            pending.fail(NetworkError(f"event {pending.id}: the client was closed before it was acknowledged"))

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Use one connection after the other, as long as there is something to publish."""
        backoff = Backoff()
        while True:
            while not self._unsent:
                self._wake.clear()
                await self._wake.wait()
            try:
                connection = await self._connections.dedicated()
            except NetworkError as error:
                self._problem = str(error)
                if isinstance(error, RefusedError):
                    self._fail_all(error)
                await backoff.wait()
                continue
            if await self._use(connection):
                backoff.reset()
            else:
                await backoff.wait()

    async def _use(self, connection: Connection) -> bool:
        """Publish over a connection while it lasts.

        Returns whether any event was acknowledged and no refusal ended the session.
        """
        session = self._session = _Session(connection)
        connection.on_closing.append(session.halt)
        try:
            self._send_more()
            await session.over.wait()
        finally:
            self._session = None
            self._unsent.extendleft(reversed(session.unanswered()))
            await connection.close()
        return session.has_progress and not session.refused

    def _send_more(self) -> None:
        session, unsent = self._session, self._unsent
        if session is None:
            return
        connection, sent = session.connection, session.in_flight
        while unsent and not session.is_halted and len(sent) < self.in_flight and session.bytes < IN_FLIGHT_BYTES:
            pending = unsent.popleft()
            if pending.future.done():
                continue
            after = self._last
            if after is not None and after.home == home_of(connection.broker.id):
                after = None
            if after is not None:
                # this broker waits for the other one first, which must not count as the event's own delay
                pending.deadline = max(pending.deadline, self._loop.time() + AFTER_S + self._timeout_s)
            self._numbers += 1
            sent[self._numbers] = pending
            session.bytes += len(pending.content)
            connection.request_nowait(
                Publish(pending.content, after), partial(self._on_response, session, self._numbers)
            )

    def _on_response(self, session: _Session, number: int, word: ResponseBody | None) -> None:
        if word is None or session is not self._session:
            return  # the connection is lost: it is sent again
        pending = session.in_flight[number]
        match word:
            case Published(key):
                session.has_progress = True
                if self._last is None or self._last.home != key.home or self._last < key:
                    self._last = key
                if not pending.future.done():
                    pending.future.set_result(EventId(pending.id, key))
            case Refused(reason, True):
                self._problem = f"{session.connection.address} refuses it for now: {reason}"
                session.refused.add(number)
                session.halt()
                return
            case Refused(reason, _):
                pending.fail(EventError(reason))
            case _:
                address = session.connection.address
                pending.fail(NetworkError(f"event {pending.id}: {address} answered something else"))
        del session.in_flight[number]
        session.bytes -= len(pending.content)
        session.check_over()
        self._send_more()

    # -- giving up -----------------------------------------------------------------------------------------------------

    def _check_deadlines(self) -> None:
        """Give up events that have waited too long."""
        self._checking = None
        now = self._loop.time()
        in_flight = [] if self._session is None else list(self._session.in_flight.values())
        for pending in [*in_flight, *self._unsent]:
            if pending.deadline <= now:
                pending.fail(
                    NetworkError(
                        f"event {pending.id}: not acknowledged in time, it may have been published or not; "
                        f"{self._problem}"
                    )
                )
        if self._session is not None:
            self._session.check_over()
        while self._unsent and self._unsent[0].future.done():
            self._unsent.popleft()
        if in_flight or self._unsent:
            self._checking = self._loop.call_later(CHECK_S, self._check_deadlines)

    def _fail_all(self, error: NetworkError) -> None:
        for pending in self._unsent:
            pending.fail(error)
        self._unsent.clear()
