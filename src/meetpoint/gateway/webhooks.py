"""Webhooks: what matches a durable subscription is sent to a sink, until it takes it.

A few quick tries of our own, then the event goes back to its broker, which brings it again later and makes it a dead
letter in the end. All tries of one round together are shorter than a broker waits for a word. As many events are on
their way as are sent at once; the others wait at the broker, so that none grows old here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final, Literal

import aiohttp

from meetpoint.client.backoff import Backoff
from meetpoint.client.delivered import Delivered
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.subscription import Subscription
from meetpoint.errors import MeetpointError, one_line
from meetpoint.gateway.cloud_events import STRUCTURED, write
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.errors import ApiError
from meetpoint.gateway.positions import Position
from meetpoint.gateway.signing import sign
from meetpoint.gateway.sinks import SinkResolver, check_sink

if TYPE_CHECKING:
    from meetpoint.gateway.gateway import Gateway

__all__ = ["PARALLEL_MAX", "Sender", "Webhook"]

PAUSES_S: Final = (0.5, 2.0)
"""Before the second and the third try of a round."""
TRY_S: Final = 6.0
"""How long a sink may take: three times that, and the pauses, are less than the 30 s that a broker waits."""
PARALLEL_MAX: Final = 16
_AGAIN: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_GONE: Final = 410
_SINKS_MAX: Final = 200

_log = logging.getLogger("meetpoint.gateway")


class Sender:
    """Posts to sinks, for all webhooks of a gateway."""

    def __init__(self, private_ok: bool) -> None:
        self._private_ok = private_ok
        connector = aiohttp.TCPConnector(resolver=SinkResolver(private_ok), use_dns_cache=False, limit=_SINKS_MAX)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=TRY_S),
            trust_env=False,
            headers={"User-Agent": "meetpoint-gateway"},
        )

    async def post(self, sink: str, body: bytes, headers: dict[str, str]) -> int | str:
        """The status that a sink answered, or why there is none."""
        try:
            check_sink(sink, self._private_ok)  # addresses without a name are not resolved, so they are seen here
            async with self._session.post(
                sink, data=body, headers={"Content-Type": STRUCTURED, **headers}, allow_redirects=False
            ) as answer:
                return answer.status
        except ApiError as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {TRY_S:g} s"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return one_line(str(error) or type(error).__name__)

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
        self.state: Literal["starting", "delivering", "failing", "stopped"] = "starting"
        self.problem: str | None = None
        self.delivered = 0
        self.failed = 0
        self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Send no more; what was not taken waits at its broker."""
        self._running.cancel()
        await asyncio.wait({self._running})

    async def _run(self) -> None:
        backoff = Backoff()
        while not self._is_stopped:
            try:
                async with self._gateway.connections.use(self._caller) as lease:
                    subscription = await lease.net.subscribe(
                        self._filter, durable=self._name, ack="manual", window=self._parallel
                    )
                    async with subscription:
                        await self._deliver_all(subscription)
                    self._stop(subscription.ended or "it ended")
            except (RefusedError, ApiError) as error:
                self._stop(str(error))
            except NetworkError as error:
                self.state, self.problem = "failing", str(error)
                await backoff.wait()
            except MeetpointError as error:
                self._stop(str(error))

    async def _deliver_all(self, subscription: Subscription) -> None:
        self.state, self.problem = "delivering", None
        workers = [asyncio.create_task(self._deliver(subscription)) for _ in range(self._parallel)]
        try:
            done, _ = await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
            for worker in done:
                worker.result()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def _deliver(self, subscription: Subscription) -> None:
        while not self._is_stopped and (delivered := await subscription.next_()) is not None:
            problem = await self._offer(delivered)
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

    async def _offer(self, delivered: Delivered) -> str | None:
        """One round of tries; None when the sink has taken it."""
        body = write(delivered.event)
        id_ = str(Position(delivered.key, 0))
        said: int | str = ""
        for pause in (0.0, *PAUSES_S):
            await asyncio.sleep(pause)
            self._gateway.counts.add("webhook_posts")
            said = await self._sender.post(self._sink, body, sign(self._key, id_, int(time.time()), body))
            if isinstance(said, int):
                if 200 <= said < 300:
                    return None
                if said == _GONE:
                    self._stop("the sink answered 410: it wants no more")
                    return str(self.problem)
                if said not in _AGAIN:
                    break
        return f"the sink answered {said}" if isinstance(said, int) else f"the sink could not be reached: {said}"

    @property
    def _is_stopped(self) -> bool:
        return self.state == "stopped"

    def _stop(self, reason: str) -> None:
        if not self._is_stopped:
            self.state, self.problem = "stopped", reason
