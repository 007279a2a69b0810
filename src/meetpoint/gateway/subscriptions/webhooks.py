"""Webhooks: what matches a durable subscription is sent to a sink that wants it, until it takes it.

A few quick tries of our own, then the event goes back to its broker, which brings it again later and makes it a dead
letter in the end. All tries of one round together are shorter than a broker waits for a word. As many events are on
their way as are sent at once; the others wait at the broker, so that none grows old here. Where a sink is to be left
alone for longer, by the rate that it agreed to or by its Retry-After, nobody takes the subscription meanwhile: events
wait at their broker, and no try is counted.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from meetpoint.client.backoff import Backoff
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.subscription import Subscription
from meetpoint.errors import MeetpointError, one_line
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.cloud_events import STRUCTURED, write
from meetpoint.gateway.events.positions import Position
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.subscriptions.signatures import sign
from meetpoint.gateway.subscriptions.sinks import SinkResolver, check_sink
from meetpoint.gateway.subscriptions.webhook_validation import (
    ORIGIN,
    UNASKED,
    UNREACHED_S,
    Agreed,
    Target,
    Turns,
    read_agreement,
    read_retry_after,
)

if TYPE_CHECKING:
    from meetpoint.gateway.config import GatewaySettings
    from meetpoint.gateway.gateway import Gateway

__all__ = ["PARALLEL_MAX", "Sender", "Webhook"]

PAUSES_S: Final = (0.5, 2.0)
"""Before the second and the third try of a round."""
TRY_S: Final = 6.0
"""How long a sink may take."""
ROUND_S: Final = 27.0
"""All tries of one round end within this: it is less than the 30 s that a broker waits."""
HOLD_S: Final = 4.0
"""How long an event may be held until the sink may be sent to; where it takes longer, it waits at its broker."""
PARALLEL_MAX: Final = 16
_AGAIN: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_LEFT_ALONE: Final = frozenset((429, 503))
"""With these a sink may say by Retry-After how long it wants to be left alone."""
_GONE: Final = 410
_SINKS_MAX: Final = 200

_log = logging.getLogger("meetpoint.gateway")


class Answered(NamedTuple):
    """What came of a request to a sink: its status, or why there is none."""

    status: int | None
    problem: str
    headers: Mapping[str, str] = {}

    @property
    def retry_after_s(self) -> float | None:
        """How long it wants to be left alone."""
        if self.status not in _LEFT_ALONE:
            return None
        return read_retry_after(self.headers.get("Retry-After"), time.time())


class Sender:
    """Speaks to sinks, for all webhooks of a gateway."""

    def __init__(self, settings: GatewaySettings, count: Callable[[str], None]) -> None:
        self._count = count
        self._private_ok = settings.private_sinks
        self._consent = settings.sink_consent
        self._origin = settings.asks_as
        self._unasked_per_minute = None if settings.private_sinks else settings.limits.unasked_per_minute
        self._targets: weakref.WeakValueDictionary[str, Target] = weakref.WeakValueDictionary()
        self._hosts: weakref.WeakValueDictionary[str, Turns] = weakref.WeakValueDictionary()
        connector = aiohttp.TCPConnector(resolver=SinkResolver(self._private_ok), use_dns_cache=False, limit=_SINKS_MAX)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TRY_S),
            trust_env=False,
            headers={"User-Agent": "meetpoint-gateway"},
        )

    def target(self, sink: str) -> Target:
        """What all webhooks with one sink share, as long as there is one of them."""
        target = self._targets.get(sink)
        if target is None:
            host = urlsplit(sink).hostname or ""
            turns = self._hosts.get(host) or self._hosts.setdefault(host, Turns())
            target = self._targets[sink] = Target(lambda: self.ask(sink), turns, self._unasked_per_minute)
        return target

    @property
    def is_required(self) -> bool:
        """Whether only sinks that agreed get anything."""
        return self._consent == "require"

    async def ask(self, sink: str) -> Agreed:
        """Whether a sink wants events."""
        if self._consent == "off":
            return UNASKED
        self._count("webhook_asked")
        answered = await self._request("OPTIONS", sink, None, {})
        if answered.status is None:
            return Agreed("unknown", reason=f"it could not be asked: {answered.problem}", lasts_s=UNREACHED_S)
        return read_agreement(answered.status, answered.headers, self._origin)

    async def post(self, sink: str, body: bytes, headers: dict[str, str]) -> Answered:
        """Send an event."""
        return await self._request("POST", sink, body, {"Content-Type": STRUCTURED, **headers})

    async def _request(self, method: str, sink: str, body: bytes | None, headers: dict[str, str]) -> Answered:
        if self._consent != "off":
            headers = {ORIGIN: self._origin, **headers}
        try:
            check_sink(sink, self._private_ok)  # addresses without a name are not resolved, so they are seen here
            async with self._session.request(method, sink, data=body, headers=headers, allow_redirects=False) as answer:
                return Answered(answer.status, f"the sink answered {answer.status}", answer.headers)
        except ApiError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"no answer within {TRY_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            problem = one_line(str(error) or type(error).__name__)
        return Answered(None, f"the sink could not be reached: {problem}")

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


class Webhook:
    """One durable subscription that is sent to a sink."""

    def __init__(
        self, gateway: Gateway, sender: Sender, caller: Caller, name: str, filter_: str, sink: str, key: bytes,
        parallel: int,
    ) -> None:  # fmt: skip
        self._gateway = gateway
        self._sender = sender
        self._caller = caller
        self._name = name
        self._filter = filter_
        self._sink = sink
        self._key = key
        self._parallel = parallel
        self._target = sender.target(sink)
        self._target.ask_again()
        self._is_resting = False
        self._busy: set[asyncio.Task[None]] = set()
        self.state: Literal["starting", "delivering", "failing", "stopped"] = "starting"
        self.problem: str | None = None
        self.consent: Literal["granted", "unknown", "refused"] | None = None
        self.delivered = 0
        self.failed = 0
        self._running = asyncio.create_task(self._run())

    @property
    def per_minute(self) -> int | None:
        """How many requests the sink gets at most."""
        return self._target.per_minute

    async def close(self) -> None:
        """Send no more; what was not taken waits at its broker."""
        self._running.cancel()
        await asyncio.wait({self._running})

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._is_stopped:
            try:
                if not await self._may_send():
                    continue
                async with self._gateway.connections.use(self._caller) as lease:
                    subscription = await lease.net.subscribe(
                        self._filter, durable=self._name, ack="manual", window=self._parallel
                    )
                    async with subscription:
                        await self._deliver_all(subscription)
                        ended = subscription.ended
                    if ended is not None or not self._is_resting:
                        self._stop(ended or "it ended")
            except (RefusedError, ApiError) as error:
                self._stop(str(error))
            except NetworkError as error:
                self.state, self.problem, self._is_resting = "failing", str(error), False
                await backoff.wait()
            except MeetpointError as error:
                self._stop(str(error))

    async def _may_send(self) -> bool:
        """Ask the sink, if that is to be done, and wait until it may be sent to; whether that is so."""
        said = await self._target.agreed()
        if said.state == "gone":
            self._stop("the sink answered 410: it wants no more")
            return False
        self.consent = said.state
        if said.state == "refused" or (said.state == "unknown" and self._sender.is_required):
            self.state, self.problem = "failing", f"the sink has not agreed to get events: {said.reason}"
            await asyncio.sleep(self._target.due_s)
            return False
        await asyncio.sleep(self._target.wait_s())
        return True

    async def _deliver_all(self, subscription: Subscription) -> None:
        if not self._is_resting:
            self.state, self.problem = "delivering", None
        self._is_resting = False
        workers = [asyncio.create_task(self._deliver(subscription)) for _ in range(self._parallel)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            for worker in done:
                worker.result()
            if self._is_resting and (busy := self._busy - done):
                await asyncio.wait(busy)  # what is being sent is seen through, or it would be sent twice
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _deliver(self, subscription: Subscription) -> None:
        me = asyncio.current_task()
        assert me is not None
        while not self._is_stopped and not self._is_resting and (delivered := await subscription.next_()) is not None:
            if self._is_resting or self._target.is_due or self._target.wait_s() > HOLD_S:
                self._is_resting = True
                return
            self._busy.add(me)
            try:
                await self._settle(delivered, await self._offer(delivered))
            finally:
                self._busy.discard(me)

    async def _settle(self, delivered: Delivery, problem: str | None) -> None:
        try:
            if problem is None:
                await delivered.ack()
                self.delivered += 1
                self.state, self.problem = "delivering", None
                self._gateway.counts.add("webhook_delivered")
            elif not self._is_stopped:
                await delivered.nack(f"webhook: {problem}")
                self.failed += 1
                self.state, self.problem = "failing", problem
                self._gateway.counts.add("webhook_failed")
        except RefusedError:
            raise
        except NetworkError as error:
            _log.debug("webhook %s: %s", self._name, error)  # it comes again

    async def _offer(self, delivered: Delivery) -> str | None:
        """One round of tries; None when the sink has taken it."""
        body = write(delivered.event)
        id_ = str(Position(delivered.key, 0))
        started = time.monotonic()
        problem = ""
        for pause in (0.0, *PAUSES_S):
            wait = max(pause, self._target.wait_s())
            if problem and time.monotonic() - started + wait + TRY_S > ROUND_S:
                break
            self._target.take()
            await asyncio.sleep(wait)
            self._gateway.counts.add("webhook_posts")
            answered = await self._sender.post(self._sink, body, sign(self._key, id_, int(time.time()), body))
            problem = answered.problem
            if answered.status is not None:
                if 200 <= answered.status < 300:
                    return None
                if answered.status == _GONE:
                    self._stop("the sink answered 410: it wants no more")
                    return str(self.problem)
                if answered.status not in _AGAIN:
                    break
                if (rest := answered.retry_after_s) is not None:
                    self._target.rest(rest)
        return problem

    @property
    def _is_stopped(self) -> bool:
        return self.state == "stopped"

    def _stop(self, reason: str) -> None:
        if not self._is_stopped:
            self.state, self.problem = "stopped", reason
