"""Webhooks: events of a durable subscription, sent to a sink until it takes them.

A few quick tries, then the event goes back to its broker, which redelivers it later and makes it a dead letter in the
end. All tries of one round together are shorter than a broker waits for an acknowledgement. Only as many events as
requests go at once are taken from the broker; the others wait there, so that none expires here. Where a sink must be
left alone for longer, by its agreed rate or its Retry-After, the gateway detaches from the subscription: events wait at
their broker, and no try is counted.

Requests are signed as the Standard Webhooks specification says. A sink that shares the secret sees that a request comes
from the gateway and is not an old one: the signature covers the id, the time and the body. `webhook-id` stays the same
when an event is sent again, so that a sink recognizes a repeat.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp

from meetpoint.client.connection_pool import Backoff
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.subscription import Subscription
from meetpoint.errors import MeetpointError, one_line
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.events.cloud_events import STRUCTURED, write
from meetpoint.gateway.events.feeds import Position
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.subscriptions.sinks import (
    ORIGIN,
    UNASKED,
    UNREACHED_S,
    ConsentAnswer,
    RateLimiter,
    SinkResolver,
    SinkState,
    check_sink,
    read_consent,
    read_retry_after,
)

if TYPE_CHECKING:
    from meetpoint.gateway.config import GatewaySettings
    from meetpoint.gateway.gateway import Counters, Gateway


__all__ = ["PARALLEL_MAX", "Webhook", "WebhookSender", "make_secret", "read_secret", "sign"]


# -- signatures --------------------------------------------------------------------------------------------------------


PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
_BYTES_MIN, _BYTES_MAX = 16, 64


def make_secret() -> str:
    """Generate a secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def read_secret(text: str) -> bytes:
    """Return the bytes of a secret; raise ApiError where it is none."""
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if not _BYTES_MIN <= len(key) <= _BYTES_MAX:
        rule = f"{PREFIX} and {_BYTES_MIN} to {_BYTES_MAX} bytes in base64"
        raise ApiError(422, "secret", f"secret: write {rule}, or leave it out to get one")
    return key


def sign(key: bytes, id_: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the headers that sign a request with this id, time and body."""
    digest = hmac.new(key, b"%b.%d.%b" % (id_.encode(), at_s, body), hashlib.sha256).digest()
    return {
        "webhook-id": id_,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


# -- delivery ----------------------------------------------------------------------------------------------------------


PAUSES_S: Final = (0.5, 2.0)
"""The pauses before the second and the third try of a round."""
TRY_S: Final = 6.0
"""The time for a sink to answer."""
ROUND_S: Final = 27.0
"""All tries of one round end within this: less than the 30 s that a broker waits."""
HOLD_S: Final = 4.0
"""The longest wait of an event for its sink's rate; for longer ones it waits at its broker."""
PARALLEL_MAX: Final = 16
_AGAIN: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_BACK_OFF: Final = frozenset((429, 503))
"""The statuses with which Retry-After may ask for a pause."""
_GONE: Final = 410
_SINKS_MAX: Final = 200

_log = logging.getLogger("meetpoint.gateway")


class SinkResponse(NamedTuple):
    """The response of a sink: its status, or the reason why there is none."""

    status: int | None
    problem: str
    headers: Mapping[str, str] = {}

    @property
    def retry_after_s(self) -> float | None:
        """The pause that the sink asks for, if it does."""
        if self.status not in _BACK_OFF:
            return None
        return read_retry_after(self.headers.get("Retry-After"), time.time())


class WebhookSender:
    """Sends requests to sinks, for all webhooks of a gateway."""

    def __init__(self, settings: GatewaySettings, counters: Counters) -> None:
        self._counters = counters
        self._private_ok = settings.private_sinks
        self._consent = settings.sink_consent
        self._origin = settings.asks_as
        self._unasked_per_minute = None if settings.private_sinks else settings.limits.unasked_per_minute
        self._targets: weakref.WeakValueDictionary[str, SinkState] = weakref.WeakValueDictionary()
        self._hosts: weakref.WeakValueDictionary[str, RateLimiter] = weakref.WeakValueDictionary()
        connector = aiohttp.TCPConnector(resolver=SinkResolver(self._private_ok), use_dns_cache=False, limit=_SINKS_MAX)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TRY_S),
            trust_env=False,
            headers={"User-Agent": "meetpoint-gateway"},
        )

    def target(self, sink: str) -> SinkState:
        """Return the state that all webhooks with this sink share while one of them exists."""
        target = self._targets.get(sink)
        if target is None:
            host = urlsplit(sink).hostname or ""
            limiter = self._hosts.get(host) or self._hosts.setdefault(host, RateLimiter())
            target = self._targets[sink] = SinkState(lambda: self.ask(sink), limiter, self._unasked_per_minute)
        return target

    @property
    def is_required(self) -> bool:
        """Whether only sinks that agreed get events."""
        return self._consent == "require"

    async def ask(self, sink: str) -> ConsentAnswer:
        """Ask a sink whether it wants events."""
        if self._consent == "off":
            return UNASKED
        self._counters.add("webhook_asked")
        response = await self._request("OPTIONS", sink, None, {})
        if response.status is None:
            return ConsentAnswer("unknown", reason=f"it could not be asked: {response.problem}", lasts_s=UNREACHED_S)
        return read_consent(response.status, response.headers, self._origin)

    async def post(self, sink: str, body: bytes, headers: dict[str, str]) -> SinkResponse:
        """Send an event."""
        return await self._request("POST", sink, body, {"Content-Type": STRUCTURED, **headers})

    async def _request(self, method: str, sink: str, body: bytes | None, headers: dict[str, str]) -> SinkResponse:
        if self._consent != "off":
            headers = {ORIGIN: self._origin, **headers}
        try:
            check_sink(sink, self._private_ok)  # addresses without a name are not resolved, so they are seen here
            async with self._session.request(method, sink, data=body, headers=headers, allow_redirects=False) as answer:
                return SinkResponse(answer.status, f"the sink answered {answer.status}", answer.headers)
        except ApiError as error:
            problem = str(error)
        except TimeoutError:
            problem = f"no answer within {TRY_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            problem = one_line(str(error) or type(error).__name__)
        return SinkResponse(None, f"the sink could not be reached: {problem}")

    async def close(self) -> None:
        await self._session.close()


class Webhook:
    """A durable subscription whose events are sent to a sink."""

    def __init__(
        self, gateway: Gateway, sender: WebhookSender, caller: Caller, name: str, filter_: str, sink: str, key: bytes,
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
        self._target.expire()  # a new or changed subscription must not wait a day for a sink that has agreed by now
        self._is_backing_off = False
        self._busy: set[asyncio.Task[None]] = set()
        self.state: Literal["starting", "delivering", "failing", "stopped"] = "starting"
        self.problem: str | None = None
        self.consent: Literal["granted", "unknown", "refused"] | None = None
        self.delivered = 0
        self.failed = 0
        self._running = asyncio.create_task(self._run())

    @property
    def per_minute(self) -> int | None:
        """The most requests a minute to the sink; None: without limit."""
        return self._target.per_minute

    async def close(self) -> None:
        """Stop; events that the sink did not take wait at their broker."""
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
                    if ended is not None or not self._is_backing_off:
                        self._stop(ended or "it ended")
            except (RefusedError, ApiError) as error:
                self._stop(str(error))
            except NetworkError as error:
                self.state, self.problem, self._is_backing_off = "failing", str(error), False
                await backoff.wait()
            except MeetpointError as error:
                self._stop(str(error))

    async def _may_send(self) -> bool:
        """Ask the sink if that is due, wait for its rate; return whether it may be sent to."""
        answer = await self._target.consent()
        if answer.state == "gone":
            self._stop("the sink answered 410: it wants no more")
            return False
        self.consent = answer.state
        if answer.state == "refused" or (answer.state == "unknown" and self._sender.is_required):
            self.state, self.problem = "failing", f"the sink has not agreed to get events: {answer.reason}"
            await asyncio.sleep(self._target.due_s)
            return False
        await asyncio.sleep(self._target.wait_s())
        return True

    async def _deliver_all(self, subscription: Subscription) -> None:
        if not self._is_backing_off:
            self.state, self.problem = "delivering", None
        self._is_backing_off = False
        workers = [asyncio.create_task(self._deliver(subscription)) for _ in range(self._parallel)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            for worker in done:
                worker.result()
            if self._is_backing_off and (busy := self._busy - done):
                await asyncio.wait(busy)  # what is being sent is seen through, or it would be sent twice
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _deliver(self, subscription: Subscription) -> None:
        me = asyncio.current_task()
        assert me is not None
        while (
            not self._is_stopped and not self._is_backing_off and (delivered := await subscription.next_()) is not None
        ):
            if self._is_backing_off or self._target.is_due or self._target.wait_s() > HOLD_S:
                self._is_backing_off = True
                return
            self._busy.add(me)
            try:
                await self._settle(delivered, await self._post_until_taken(delivered))
            finally:
                self._busy.discard(me)

    async def _settle(self, delivered: Delivery, problem: str | None) -> None:
        try:
            if problem is None:
                await delivered.ack()
                self.delivered += 1
                self.state, self.problem = "delivering", None
                self._gateway.counters.add("webhook_delivered")
            elif not self._is_stopped:
                await delivered.nack(f"webhook: {problem}")
                self.failed += 1
                self.state, self.problem = "failing", problem
                self._gateway.counters.add("webhook_failed")
        except RefusedError:
            raise
        except NetworkError as error:
            _log.debug("webhook %s: %s", self._name, error)  # it comes again

    async def _post_until_taken(self, delivered: Delivery) -> str | None:
        """Try one round; return None when the sink has taken the event, else the problem."""
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
            self._gateway.counters.add("webhook_posts")
            response = await self._sender.post(self._sink, body, sign(self._key, id_, int(time.time()), body))
            problem = response.problem
            if response.status is not None:
                if 200 <= response.status < 300:
                    return None
                if response.status == _GONE:
                    self._stop("the sink answered 410: it wants no more")
                    return str(self.problem)
                if response.status not in _AGAIN:
                    break
                if (back_off := response.retry_after_s) is not None:
                    self._target.back_off(back_off)
        return problem

    @property
    def _is_stopped(self) -> bool:
        return self.state == "stopped"

    def _stop(self, reason: str) -> None:
        if not self._is_stopped:
            self.state, self.problem = "stopped", reason
