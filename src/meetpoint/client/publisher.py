"""Publishing: many events on their way at once, in order, each until it is acknowledged.

Events go over a connection of their own: a broker that has too much to write stops reading from it, and what
subscriptions acknowledge must not wait behind that. They are sent in the order in which they were handed in. When the
connection is lost, or a broker refuses one for now, all that have no answer are sent again in that order, over a new
connection, maybe to another broker, under the same ids, so that no subscriber gets one of them twice. An event that
goes to another broker than the last acknowledged one carries the key of that one (`after`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial

from meetpoint.api.client_messages import Word
from meetpoint.api.ids import EventKey, home_of
from meetpoint.api.limits import EVENT_BYTES_MAX
from meetpoint.api.outcomes import Published, Refused
from meetpoint.api.requests import Publish
from meetpoint.client.backoff import Backoff
from meetpoint.client.connection import Connection
from meetpoint.client.connection_pool import ConnectionPool
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import EventError, MeetpointError
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack

__all__ = ["IN_FLIGHT", "Publisher"]

IN_FLIGHT = 1_000
"""How many events are sent before the first of them is acknowledged."""
IN_FLIGHT_BYTES = 8 << 20
"""And about how many bytes of them."""
AFTER_S = 30.0
"""How long a broker may wait for another one, where an event follows what was published there."""
LOOK_S = 0.5
"""How often events that have waited too long are looked for."""


class _Pending:
    """An event that is not acknowledged yet."""

    __slots__ = ("content", "deadline", "future", "id")

    def __init__(self, content: bytes, id_: str, deadline: float, future: asyncio.Future[EventKey]) -> None:
        self.content = content
        self.id = id_
        self.deadline = deadline
        self.future = future


class _Stretch:
    """What is sent over one link, until that is lost or takes no more."""

    __slots__ = ("bytes", "flying", "halted", "link", "moved_on", "over", "refused")

    def __init__(self, link: Connection) -> None:
        self.link = link
        self.flying: dict[int, _Pending] = {}
        self.bytes = 0
        self.refused: set[int] = set()
        self.halted = False
        self.moved_on = False
        """Whether any event was acknowledged over it."""
        self.over = asyncio.Event()
        link.on_lost.append(self.over.set)

    def halt(self) -> None:
        """Send no more; what was sent is waited for."""
        self.halted = True
        self.look()

    def look(self) -> None:
        """It is over, once halted, when every event that was sent is answered or given up."""
        if self.halted and all(n in self.refused or pending.future.done() for n, pending in self.flying.items()):
            self.over.set()

    def left(self) -> list[_Pending]:
        """What is to be sent again, in its order."""
        return [pending for pending in self.flying.values() if not pending.future.done()]


class Publisher:
    """The publishing half of a client."""

    def __init__(self, links: ConnectionPool, timeout_s: float, in_flight: int) -> None:
        self.in_flight = in_flight
        self._links = links
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[_Pending] = deque()
        self._stretch: _Stretch | None = None
        self._numbers = 0
        self._last: EventKey | None = None
        self._problem = "no broker has taken it yet"
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._is_over = False

    def put(self, event: Event) -> asyncio.Future[EventKey]:
        """Hand an event in; the future has its key when it is acknowledged.

        An event whose future is cancelled before it was sent is never sent; later, it may have been published or not.
        """
        if self._is_over:
            raise NetworkError("this client is closed; connect again")
        content = to_msgpack(event)
        if len(content) > EVENT_BYTES_MAX:
            raise EventError(f"event: is {len(content)} bytes long; at most {EVENT_BYTES_MAX} are carried, so split it")
        future: asyncio.Future[EventKey] = self._loop.create_future()
        self._unsent.append(_Pending(content, event.id, self._loop.time() + self._timeout_s, future))
        if self._task is None:
            self._task = self._loop.create_task(self._run(), name="meetpoint publisher")
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK_S, self._look)
        self._wake.set()
        self._pump()
        return future

    async def close(self) -> None:
        """Stop; what is not acknowledged by now may have been published or not."""
        self._is_over = True
        if self._looking is not None:
            self._looking.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        for pending in self._unsent:
            _fail(pending, NetworkError(f"event {pending.id}: the client was closed before it was acknowledged"))

    # -- sending -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """One link after the other, as long as there is something to publish."""
        backoff = Backoff()
        while True:
            while not self._unsent:
                self._wake.clear()
                await self._wake.wait()
            try:
                link = await self._links.apart()
            except NetworkError as error:
                self._problem = str(error)
                if isinstance(error, RefusedError):
                    self._fail_all(error)
                await backoff.wait()
                continue
            if await self._use(link):
                backoff.reset()
            else:
                await backoff.wait()

    async def _use(self, link: Connection) -> bool:
        """Publish over a link, while it lasts; whether anything was acknowledged, and no refusal ended it."""
        stretch = self._stretch = _Stretch(link)
        link.on_closing.append(stretch.halt)
        try:
            self._pump()
            await stretch.over.wait()
        finally:
            self._stretch = None
            self._unsent.extendleft(reversed(stretch.left()))
            await link.close()
        return stretch.moved_on and not stretch.refused

    def _pump(self) -> None:
        stretch, unsent = self._stretch, self._unsent
        if stretch is None:
            return
        link, flying = stretch.link, stretch.flying
        while unsent and not stretch.halted and len(flying) < self.in_flight and stretch.bytes < IN_FLIGHT_BYTES:
            pending = unsent.popleft()
            if pending.future.done():
                continue
            after = self._last
            if after is not None and after.home == home_of(link.broker.id):
                after = None
            if after is not None:
                pending.deadline = max(pending.deadline, self._loop.time() + AFTER_S + self._timeout_s)
            self._numbers += 1
            flying[self._numbers] = pending
            stretch.bytes += len(pending.content)
            link.ask(Publish(pending.content, after), partial(self._answered, stretch, self._numbers))

    def _answered(self, stretch: _Stretch, number: int, word: Word | None) -> None:
        if word is None or stretch is not self._stretch:
            return  # the link is lost: it is sent again
        pending = stretch.flying[number]
        match word:
            case Published(key):
                stretch.moved_on = True
                if self._last is None or self._last.home != key.home or self._last < key:
                    self._last = key
                if not pending.future.done():
                    pending.future.set_result(key)
            case Refused(reason, True):
                self._problem = f"{stretch.link.address} refuses it for now: {reason}"
                stretch.refused.add(number)
                stretch.halt()
                return
            case Refused(reason, _):
                _fail(pending, EventError(reason))
            case _:
                _fail(pending, NetworkError(f"event {pending.id}: {stretch.link.address} answered something else"))
        del stretch.flying[number]
        stretch.bytes -= len(pending.content)
        stretch.look()
        self._pump()

    # -- giving up -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Give up on what has waited too long."""
        self._looking = None
        now = self._loop.time()
        flying = [] if self._stretch is None else list(self._stretch.flying.values())
        for pending in [*flying, *self._unsent]:
            if pending.deadline <= now:
                _fail(
                    pending,
                    NetworkError(
                        f"event {pending.id}: not acknowledged in time, it may have been published or not; "
                        f"{self._problem}"
                    ),
                )
        if self._stretch is not None:
            self._stretch.look()
        while self._unsent and self._unsent[0].future.done():
            self._unsent.popleft()
        if flying or self._unsent:
            self._looking = self._loop.call_later(LOOK_S, self._look)

    def _fail_all(self, error: NetworkError) -> None:
        for pending in self._unsent:
            _fail(pending, error)
        self._unsent.clear()


def _fail(pending: _Pending, error: MeetpointError) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)
        pending.future.exception()  # nobody need wait for it
