"""A subscription as its client holds it: it stays attached to the broker that hosts it, wherever that is.

Durable: what matches waits at a broker until it is acknowledged. When its connection is lost, what has come and was not
handed out yet is dropped, since all of it comes again, marked; what was handed out may still be acknowledged, at the
host of then. Ephemeral: it lives as long as the connection and is made anew on another; what happened between is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.api.requests import (
    Acknowledge,
    Attach,
    Detach,
    Reject,
    RequestOf,
    Subscribe,
    SubscriptionOptions,
    Unsubscribe,
    Update,
)
from meetpoint.client.backoff import Backoff
from meetpoint.client.connection import Connection
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import ConnectionLostError, NetworkError, RefusedError
from meetpoint.client.incoming_message import IncomingMessage
from meetpoint.client.replay import Replay
from meetpoint.client.subscription_options import Lifetime, labels_of, lifetime_us_of
from meetpoint.errors import EventError

if TYPE_CHECKING:
    from meetpoint.client.network import Network

__all__ = ["EPHEMERAL_WINDOW", "WINDOW", "Ack", "Subscription"]

Ack: TypeAlias = Literal["auto", "manual"]

WINDOW = 256
"""How many events of a durable subscription are brought before the first is acknowledged."""
EPHEMERAL_WINDOW = 10_000
"""How many events of an ephemeral subscription wait in the client to be read; more are dropped and counted."""
SEEN_MAX = 20_000
"""How many ids of events a subscription remembers, to mark a repeat that the broker could not know of."""
CLOSE_S = 2.0

_log = logging.getLogger("meetpoint.client")


class Subscription:
    """One subscription. `async for event in subscription` reads it, until it ends."""

    def __init__(
        self,
        net: Network,
        name: str,
        filter_: str,
        terms: SubscriptionOptions,
        window: int,
        ack: Ack,
        until: float | None,
    ) -> None:
        self.name = name
        self.filter = filter_
        self.durable = terms.durable
        self.window = window
        self.ack = ack
        self.ended: str | None = None
        """Why nothing more comes: its lifetime is over, another client took it, it was closed. None while it lives."""
        self.dropped = 0
        """Events of an ephemeral subscription that were not read in time."""
        self._net = net
        self._terms = terms
        self._until = until
        self._loop = asyncio.get_running_loop()
        self._wire_name = name
        self._made = 0
        self._host: Peer | None = None
        self._link: Connection | None = None
        self._is_present = False
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._queue: OrderedDict[EventKey, tuple[Connection, IncomingMessage]] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._late: dict[EventKey, None] = {}
        self._keeper: asyncio.Task[None] | None = None
        self.replay: Replay | None = None
        """What came before it, if that was asked for."""

    # -- reading -------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivery]:
        return _Reading(self, None)

    def events(self, timeout: float | None = None) -> AsyncIterator[Delivery]:
        """Its events, until it ends, or until none has come for `timeout` seconds."""
        return _Reading(self, timeout)

    @property
    def waiting(self) -> int:
        """How many events have come and were not read yet."""
        return len(self._queue)

    @property
    def is_attached(self) -> bool:
        """Whether a broker brings its events now."""
        return self._is_present and self._link is not None and self._link.is_open

    async def next_(self) -> Delivery | None:
        """The next event; None when it has ended. Cancelled, it takes nothing away."""
        while True:
            if self.replay is not None and (found := await self._replayed(self.replay)) is not None:
                return found
            if (delivered := self.poll()) is not None:
                return delivered
            if self.ended is not None:
                return None
            self._arrived.clear()
            await self._arrived.wait()

    def poll(self) -> Delivery | None:
        """The next event of those that have come already; None where there is none, or history is read first."""
        if self.replay is not None and not self.replay.is_over:
            return None
        while self._queue:
            key, (link, arrival) = self._queue.popitem(last=False)
            try:
                event = arrival.event
            except EventError as error:
                self._say(Reject(key, (self._wire_name,), str(error)), link)
                continue
            if self.replay is not None and self.replay.covers(key, event):
                self._pass_over(key, link)
                continue
            again = arrival.notification.redelivered or event.id in self._seen
            self._seen[event.id] = None
            self._seen.move_to_end(event.id)
            if len(self._seen) > SEEN_MAX:
                self._seen.popitem(last=False)
            return Delivery(event, key, arrival.names, again, self, link)
        return None

    async def _replayed(self, replay: Replay) -> Delivery | None:
        """The next event of history, as long as there is one."""
        while not replay.is_over:
            found = await replay.next()
            if found is not None:
                delivered = Delivery(found.event, found.key, (self.name,), False, self, None)
                delivered.is_settled = True  # no broker waits for a word of it
                return delivered
            if replay.has_gap:
                await replay.extend()
                continue
            for key in [key for key in self._queue if replay.has_read(key)]:
                self._pass_over(key, self._queue.pop(key)[0])
        return None

    def _pass_over(self, key: EventKey, link: Connection) -> None:
        """What came as history does not come again."""
        self._say(Acknowledge(key, (self._wire_name,)), link)

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def settle_soon(self, delivered: Delivery) -> None:
        """Acknowledge without waiting; where no broker can be told now, when one can."""
        if delivered.is_settled or not self.durable:
            return
        delivered.is_settled = True
        self._queue.pop(delivered.key, None)
        self._say(Acknowledge(delivered.key, (self._wire_name,)), delivered.link)

    def _say(self, what: Acknowledge | Reject, link: Connection | None) -> None:
        if link is None or not link.is_open:
            if self._link is None or not self._link.is_open:
                if isinstance(what, Acknowledge) and self.ended is None:
                    self._late[what.event] = None
                return
            link = self._link
        link.tell(what)

    async def settle(self, delivered: Delivery, reason: str | None) -> None:
        """Acknowledge, or reject for a reason, and wait until the broker has noted it."""
        if delivered.is_settled or not self.durable:
            return
        names = (self._wire_name,)
        what = Acknowledge(delivered.key, names) if reason is None else Reject(delivered.key, names, reason)
        delivered.is_settled = True
        self._queue.pop(delivered.key, None)
        if self.ended is not None:
            self._say(what, delivered.link)  # nobody can promise anything of it any more
            return
        try:
            await self._ask(what, delivered.link)
        except BaseException:
            delivered.is_settled = False
            raise

    # -- changing ------------------------------------------------------------------------------------------------------

    async def update(
        self,
        filter: str | None = None,  # noqa: A002 - as everywhere in the client
        *,
        labels: dict[str, str] | None = None,
        lifetime: Lifetime = None,
    ) -> None:
        """Another filter, other labels or another lifetime (from now on); what is None stays as it is."""
        if filter is not None:
            self._net.parse(filter)
        said = None if labels is None else labels_of(labels)
        lifetime_us = lifetime_us_of(lifetime)
        try:
            await self._ask(Update(self._wire_name, filter, said, lifetime_us))
        except RefusedError:
            if filter is not None:
                await self._net.parse_there(filter)
            raise
        if filter is not None:
            self.filter = filter
        if said is not None:
            self._terms = msgspec.structs.replace(self._terms, labels=said)
        if lifetime_us is not None:
            self._until = self._loop.time() + lifetime_us / 1e6

    async def pause(self) -> None:
        """Let what matches wait (an ephemeral subscription: let it pass). What has come already may still be read."""
        await self._pause(True)

    async def resume(self) -> None:
        """Go on after a pause, with what waited first."""
        await self._pause(False)

    async def _pause(self, paused: bool) -> None:
        await self._ask(Update(self._wire_name, paused=paused))
        self._terms = msgspec.structs.replace(self._terms, paused=paused)

    async def unsubscribe(self) -> None:
        """End it for good, with all that waits for it."""
        if self.ended is None:
            await self._ask(Unsubscribe(self._wire_name))
            self._queue.clear()
            self.finish("it was unsubscribed")
        await self._stop()

    async def close(self) -> None:
        """Read no more. A durable subscription stays, and what was not acknowledged comes to whoever takes it next."""
        link, was = self._link, self.ended
        self.finish("it was closed")
        self._queue.clear()
        await self._stop()
        if was is None and link is not None and link.is_open:
            link.listeners.pop(self._wire_name, None)
            what = Detach(self._wire_name) if self.durable else Unsubscribe(self._wire_name)
            try:
                async with asyncio.timeout(CLOSE_S):
                    await link.asked(what)
            except (TimeoutError, NetworkError):
                pass  # the broker sees that nobody takes it

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, what: RequestOf, link: Connection | None = None) -> None:
        """Ask the host, the host of then if it moves, until it has done so or the time is over."""
        backoff = Backoff()
        problem = "no broker hosts it now"
        try:
            async with asyncio.timeout(self._net.timeout_s):
                while True:
                    link = link if link is not None and link.is_open else await self._attached()
                    try:
                        word = await link.asked(what)
                    except ConnectionLostError as error:
                        problem = str(error)
                    else:
                        if isinstance(word, Stored):
                            return
                        if isinstance(word, Refused) and not word.retry:
                            raise RefusedError(word.reason)
                        problem = word.reason if isinstance(word, Refused) else "another answer came"
                        link = None
                    await backoff.wait()
        except TimeoutError:
            raise NetworkError(
                f"subscription {self.name}: not done within {self._net.timeout_s:g} s: {problem}; try again later"
            ) from None

    async def _attached(self) -> Connection:
        while True:
            if self.ended is not None:
                raise NetworkError(f"subscription {self.name}: {self.ended}; subscribe again")
            if self._is_present and self._link is not None and self._link.is_open:
                return self._link
            self._changed.clear()
            await self._changed.wait()

    # -- what the links tell -------------------------------------------------------------------------------------------

    def take(self, link: Connection, arrival: IncomingMessage) -> None:
        """An event came."""
        if self.ended is not None:
            return
        key, replay = arrival.key, self.replay
        if key in self._late:
            return  # it is acknowledged already; the broker learns it as soon as it can be told
        if replay is not None and replay.is_over and replay.has_read(key):
            self._pass_over(key, link)
            return
        if len(self._queue) >= self.window:
            if not self.durable and replay is not None and not replay.is_over:
                replay.has_gap = True
            elif not self.durable:
                if not self.dropped:
                    _log.warning("subscription %s: events are dropped, they come faster than they are read", self.name)
                self.dropped += 1
            return  # a durable one comes again
        self._queue.setdefault(key, (link, arrival))
        self._arrived.set()

    def end(self, link: Connection, reason: str, moved: bool) -> None:
        """The broker brings no more."""
        if link is self._link:
            if moved:  # a durable one is looked for, an ephemeral one made anew
                self.lose(link)
            else:
                self.finish(reason)

    def lose(self, link: Connection) -> None:
        """The link is lost, or the subscription is no longer there."""
        if link is self._link:
            self._link, self._is_present = None, False
            if self.durable:
                self._queue.clear()
            self._changed.set()

    def finish(self, reason: str) -> None:
        """Nothing more comes; what has come may be read."""
        if self.ended is None:
            self.ended = reason
            if self._link is not None:
                self._link.listeners.pop(self._wire_name, None)
            self._late.clear()
            self._net.drop(self)
        self._arrived.set()
        self._changed.set()

    # -- staying attached ----------------------------------------------------------------------------------------------

    async def begin(self, replace: bool) -> None:
        """Make it, or take the one there is; after that it stays attached by itself."""
        backoff = Backoff()
        problem = "no broker could be asked"
        try:
            async with asyncio.timeout(self._net.timeout_s):
                while True:
                    try:
                        if await (self._take_or_make(replace) if self.durable else self._make()):
                            break
                        problem = "the broker that hosts it could not be asked"
                    except RefusedError:
                        raise
                    except NetworkError as error:
                        problem = str(error)
                    await backoff.wait()
        except TimeoutError:
            self.finish("it was never made")
            raise NetworkError(
                f"subscription {self.name}: not made within {self._net.timeout_s:g} s: {problem}; try again later"
            ) from None
        except BaseException as error:
            self.finish(str(error))
            raise
        self._keeper = self._loop.create_task(self._keep(), name=f"meetpoint subscription {self.name}")

    async def _keep(self) -> None:
        try:
            await self._stay()
        except Exception as error:
            _log.exception("subscription %s is lost", self.name)
            self.finish(f"the client failed at it: {error!r}")

    async def _stay(self) -> None:
        backoff = Backoff()
        while self.ended is None:
            if self._link is not None:
                backoff.reset()
                self._changed.clear()
                await self._changed.wait()
                continue
            try:
                if await (self._reattach() if self.durable else self._make()):
                    continue
            except RefusedError as error:
                self.finish(str(error))
            except NetworkError as error:
                _log.debug("subscription %s: %s", self.name, error)
            await backoff.wait()

    async def _make(self) -> bool:
        """An ephemeral one, at the broker that is asked, under a name that no other life of it had."""
        terms = self._terms
        if self._until is not None:
            left = self._until - self._loop.time()
            if left <= 0:
                self.finish("its lifetime is over")
                return True
            terms = msgspec.structs.replace(terms, lifetime_us=max(1, int(left * 1e6)))
        link = await self._net.links.main()
        self._made += 1
        self._wire_name = self.name if self._made == 1 else f"{self.name}~{self._made}"
        return await self._attach(link, Subscribe(self._wire_name, self.filter, terms))

    async def _take_or_make(self, replace: bool) -> bool:
        """A durable one: that which there is, or a new one at the broker that is asked."""
        located = await self._net.locate_once(self.name)
        if located.host is None:
            link = await self._net.links.main()
            return await self._attach(link, Subscribe(self.name, self.filter, self._terms))
        is_same = self._net.is_same_filter(located.filter, self.filter)
        if not is_same and not replace:
            raise RefusedError(
                f"subscription {self.name}: there is one with the filter {located.filter}; "
                "take another name, or say replace=True to change its filter"
            )
        change = Update(
            self.name,
            None if is_same else self.filter,
            self._terms.labels or None,
            self._terms.lifetime_us,
        )
        self._host = located.host
        link = await self._net.links.to(located.host)
        return await self._attach(link, None if change == Update(self.name) else change)

    async def _reattach(self) -> bool:
        """A durable one again: where it was last, or else where it is now."""
        former, self._host = self._host, None
        if former is not None:
            link = self._net.links.open_to(former)
            if link is not None and await self._attach(link, None):
                return True
        located = await self._net.locate_once(self.name)
        if located.host is None:
            self.finish("there is no subscription of this name any more")
            return True
        return await self._attach(await self._net.links.to(located.host), None)

    async def _attach(self, link: Connection, first: Subscribe | Update | None) -> bool:
        """Be present at a broker; `first` is asked before. False: not there now, it is to be located."""
        name = self._wire_name
        if self.durable:
            await self._net.claim(self)
        link.listeners[name] = self
        self._link = link
        try:
            asked: list[Subscribe | Update | Attach] = [] if first is None else [first]
            if self.durable:  # who makes an ephemeral one is present at it
                asked.append(Attach(name, self.window))
            for key in self._late:
                link.tell(Acknowledge(key, (name,)))
            for what in asked:
                word = await link.asked(what)
                if isinstance(word, Refused):
                    if not word.retry and what is first:
                        raise RefusedError(word.reason)
                    self._detach(link)
                    return False
        except BaseException:
            self._detach(link)
            raise
        if self._link is not link:
            return False  # lost meanwhile
        self._late.clear()
        self._host = link.broker
        self._is_present = True
        self._changed.set()
        return True

    def _detach(self, link: Connection) -> None:
        if link.listeners.get(self._wire_name) is self:
            del link.listeners[self._wire_name]
        self.lose(link)

    async def _stop(self) -> None:
        if self.replay is not None:
            self.replay.close()
        keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper is not asyncio.current_task():
            keeper.cancel()
            await asyncio.wait({keeper})


class _Reading:
    """One reader of a subscription. Several share its events; each acknowledges what it was given."""

    def __init__(self, subscription: Subscription, timeout_s: float | None) -> None:
        self._subscription = subscription
        self._timeout_s = timeout_s
        self._last: Delivery | None = None

    def __aiter__(self) -> _Reading:
        return self

    async def __anext__(self) -> Delivery:
        subscription = self._subscription
        if self._last is not None and subscription.ack == "auto":
            subscription.settle_soon(self._last)
        self._last = None
        try:
            async with asyncio.timeout(self._timeout_s):
                self._last = await subscription.next_()
        except TimeoutError:
            self._last = None
        if self._last is None:
            raise StopAsyncIteration
        return self._last
