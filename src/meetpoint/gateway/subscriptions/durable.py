"""A durable subscription read as a stream, which has no way to acknowledge.

So what was sent counts as taken after a while on a connection that still stands; when it breaks, what was sent last
comes again, but for what the reader shows that it has seen: the header Last-Event-ID names the last event that it got,
and the gateway remembers in which order it sent what was not acknowledged. Whoever wants to say what is done, event by
event, reads by WebSocket.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from meetpoint.api.ids import EventKey
from meetpoint.client.delivery import Delivery
from meetpoint.client.subscription import Subscription
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.feeds import Format, frame, notice
from meetpoint.gateway.events.positions import Position
from meetpoint.gateway.http.errors import ApiError

if TYPE_CHECKING:
    from meetpoint.gateway.gateway import Gateway

__all__ = ["DurableReader", "Durables"]

WINDOW: Final = 5000
"""Events that are brought before the first is acknowledged: at the pace of `confirm_s`, so many in that time."""
CHUNK_BYTES: Final = 64 << 10
REMEMBERED_MAX: Final = 1000
"""Names of which it is remembered what was sent last."""


class DurableReader:
    """One stream of one durable subscription."""

    def __init__(
        self,
        subscription: Subscription,
        held: AsyncExitStack,
        form: Format,
        confirm_s: float,
        seen: frozenset[EventKey],
    ) -> None:
        self._subscription = subscription
        self._held = held
        self._form = form
        self._confirm_s = confirm_s
        self._seen = seen
        self._sent: OrderedDict[EventKey, tuple[Delivery, float]] = OrderedDict()
        self._loop = asyncio.get_running_loop()
        self._is_over = False

    @property
    def unconfirmed(self) -> list[EventKey]:
        """What was sent and not acknowledged, in the order of sending."""
        return list(self._sent)

    async def next(self, timeout_s: float) -> tuple[bytes, int] | None:
        """Some events; nothing of it after `timeout_s`; None: nothing more comes."""
        if self._is_over:
            return None
        until = self._loop.time() + timeout_s
        while True:
            self._confirm()
            wait = until - self._loop.time()
            if self._sent:
                first = next(iter(self._sent.values()))[1]
                wait = min(wait, max(0.01, first + self._confirm_s - self._loop.time()))
            try:
                async with asyncio.timeout(max(0.0, wait)):
                    delivered = await self._subscription.next_()
            except TimeoutError:
                if self._loop.time() >= until:
                    return b"", 0
                continue
            chunk, events = await self._gather(delivered)
            if events or self._is_over:
                return chunk, events

    async def _gather(self, delivered: Delivery | None) -> tuple[bytes, int]:
        """One event and those that wait behind it."""
        parts: list[bytes] = []
        size = 0
        while True:
            if delivered is None:
                self._is_over = True
                parts.append(notice("ended", {"reason": self._subscription.ended or "it ended"}))
                return b"".join(parts), len(parts) - 1
            if delivered.key in self._seen:
                self._subscription.settle_soon(delivered)
            else:
                text = frame(delivered, self._form).text
                self._sent[delivered.key] = delivered, self._loop.time()
                self._sent.move_to_end(delivered.key)
                parts.append(text)
                size += len(text)
            if size > CHUNK_BYTES or not self._subscription.waiting:
                return b"".join(parts), len(parts)
            delivered = await self._subscription.next_()

    def _confirm(self) -> None:
        before = self._loop.time() - self._confirm_s
        while self._sent:
            key, (delivered, at) = next(iter(self._sent.items()))
            if at > before:
                return
            del self._sent[key]
            self._subscription.settle_soon(delivered)

    async def close(self) -> None:
        """Read no more; what is not acknowledged comes again."""
        await self._subscription.close()
        await self._held.aclose()


class Durables:
    """What the gateway knows of readers of durable subscriptions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._unconfirmed: OrderedDict[tuple[str, str], list[EventKey]] = OrderedDict()

    async def open(
        self, caller: Caller, name: str, filter_: str | None, form: Format, after: Position | None
    ) -> DurableReader:
        """A reader of the subscription of a name, which is made where there is none."""
        held = AsyncExitStack()
        try:
            lease = await held.enter_async_context(self._gateway.connections.use(caller))
            if filter_ is None:
                located = await lease.net.locate(name)
                if located.host is None:
                    raise ApiError(404, "not_found", f"there is no subscription {name!r}; give a filter to make one")
                filter_ = located.filter
            subscription = await lease.net.subscribe(filter_, durable=name, ack="manual", window=WINDOW)
            seen = self._seen((caller.owner, name), after)
            return DurableReader(subscription, held, form, self._gateway.settings.limits.confirm_s, seen)
        except BaseException:
            await held.aclose()
            raise

    def _seen(self, whose: tuple[str, str], after: Position | None) -> frozenset[EventKey]:
        sent = self._unconfirmed.pop(whose, [])
        if after is None:
            return frozenset()
        self._gateway.counts.add("streams_resumed")
        if after.key not in sent:
            return frozenset((after.key,))
        return frozenset(sent[: sent.index(after.key) + 1])

    async def leave(self, caller: Caller, name: str, reader: DurableReader) -> None:
        """A reader goes."""
        if reader.unconfirmed:
            self._unconfirmed[caller.owner, name] = reader.unconfirmed
            while len(self._unconfirmed) > REMEMBERED_MAX:
                self._unconfirmed.popitem(last=False)
        await reader.close()
