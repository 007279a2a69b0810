"""The observer: one sample of the network a second, shared by all who watch.

It samples only while somebody watches. Brokers are asked for their status and their recent events. Rates are what grew
between two samples. An event is shown once it is `SHOW_AFTER_US` old, so that its matches are known by then. Under load
only some are shown, and `left_out` says how many were not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from meetpoint.api.client_messages import BrokerStatus, RecentReply, RecentRequest, StatusRequest
from meetpoint.api.ids import EventKey, Peer
from meetpoint.client.network import Network
from meetpoint.errors import MeetpointError
from meetpoint.gateway.connections import Connections
from meetpoint.gateway.dashboard.bodies import BrokerRates, Latency, LiveSample, RecentEvent
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["NetworkObserver", "ObservedEvent", "show_moment"]

SAMPLE_S: Final = 1.0
BROKER_TIMEOUT_S: Final = 0.8
"""A broker that takes longer is silent, in this sample."""
NETWORK_TIMEOUT_S: Final = 4.0
"""When no broker at all answers for so long, the sample says so."""
IDLE_S: Final = 60.0
"""Sampling goes on for so long after the last use."""
EVENTS_MAX: Final = 200
"""The most recent events that are remembered."""
EVENTS_SHOWN: Final = 20
"""The most events in one sample."""
EVENT_BYTES_MAX: Final = 16 << 10
"""A larger event is not shown, and counted among those left out."""
SHOW_AFTER_US: Final = 300_000
"""The age at which an event is shown."""
LATENCIES_MAX: Final = 5_000
LATENCY_US: Final = 10_000_000
"""The time from which latencies are taken."""
NO_TOKEN: Final = "the gateway has no token of its own with the role observe; give it one (token_file)"

_log = logging.getLogger("meetpoint.gateway")


class ObservedEvent(msgspec.Struct):
    """A recent event."""

    event: Event
    at_us: int
    matched: int = 0
    was_shown: bool = False

    def to_body(self) -> RecentEvent:
        event = self.event
        return RecentEvent(
            event.id, event.time.isoformat(), msgspec.Raw(attributes_to_json(event.attributes)), self.matched
        )  # fmt: skip


class NetworkObserver:
    """Samples the network while anyone watches."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._task: asyncio.Task[None] | None = None
        self._used_at = 0.0
        self._sampled = asyncio.Condition()
        self._samples = 0
        self._chunk = b""
        self._before: dict[bytes, BrokerStatus] = {}
        self._before_at = 0.0
        self._numbers: dict[bytes, int] = {}
        self._latencies: deque[tuple[int, float]] = deque(maxlen=LATENCIES_MAX)
        self._events: OrderedDict[EventKey, ObservedEvent] = OrderedDict()
        self._left_out = 0
        self.rates: dict[bytes, float] = {}
        """Messages and requests per second of each broker in the last sample."""
        self.watchers = 0

    # -- those who watch -----------------------------------------------------------------------------------------------

    def use(self) -> None:
        """Sample for the next `IDLE_S`."""
        self._used_at = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def events(self) -> list[ObservedEvent]:
        """Return recent events, the newest first: brokers answer one after another, so they came in no order."""
        return sorted(self._events.values(), key=lambda each: each.at_us, reverse=True)

    async def next(self, seen: int, timeout_s: float) -> tuple[int, bytes]:
        """Return the number and text of the next sample after `seen`; an empty text after `timeout_s`."""
        self.use()
        try:
            async with asyncio.timeout(timeout_s), self._sampled:
                while self._samples <= seen:
                    await self._sampled.wait()
        except TimeoutError:
            return seen, b""
        return self._samples, self._chunk

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while time.monotonic() - self._used_at < IDLE_S or self.watchers:
            began = time.monotonic()
            try:
                async with asyncio.timeout(NETWORK_TIMEOUT_S), self._connections.own() as lease:
                    sample = await self._sample(lease.net)
            except MeetpointError as error:
                sample = self._failed_sample(str(error))
            except TimeoutError:
                sample = self._failed_sample(f"no broker answered within {NETWORK_TIMEOUT_S:g} s; it is tried on")
            except Exception:
                _log.exception("a look at the network failed")
                sample = self._failed_sample("the look failed; the gateway's log says why")
            async with self._sampled:
                self._samples += 1
                self._chunk = b"data: %b\n\n" % msgspec.json.encode(sample)
                self._sampled.notify_all()
            await asyncio.sleep(max(0.0, SAMPLE_S - (time.monotonic() - began)))
        self._before.clear()
        self._numbers.clear()

    def _failed_sample(self, problem: str) -> LiveSample:
        if "role" in problem or "token" in problem:
            problem = f"{NO_TOKEN}: {problem}"
        return LiveSample(show_moment(time.time_ns() // 1000), 0.0, 0.0, None, 0, 0, 0, [], [], 0, problem)

    async def _sample(self, net: Network) -> LiveSample:
        status, recent = await asyncio.gather(
            net.ask_all(lambda peer: StatusRequest(), BrokerStatus, BROKER_TIMEOUT_S),
            net.ask_all(lambda peer: RecentRequest(self._numbers.get(peer.id, 0)), RecentReply, BROKER_TIMEOUT_S),
        )
        now = time.monotonic()
        elapsed_s, self._before_at = now - self._before_at, now
        brokers = [
            self._rates(peer, status, elapsed_s) for peer, status in sorted(status.items(), key=lambda each: each[0].id)
        ]
        self._before = {peer.id: status for peer, status in status.items() if status is not None}
        # All events first: a broker may report a match of an event that another one accepted.
        for peer, answer in recent.items():
            if answer is not None:
                self._add_events(peer, answer)
        for answer in recent.values():
            if answer is not None:
                self._add_matches(answer)
        now_us = time.time_ns() // 1000
        events = list(self._ready_to_show(now_us))
        left_out, self._left_out = self._left_out, 0
        told_all = self._before.values()
        return LiveSample(
            show_moment(now_us),
            round(sum(each.published_per_s or 0.0 for each in brokers), 1),
            round(sum(each.delivered_per_s or 0.0 for each in brokers), 1),
            self._latency(now_us),
            sum(each.queued or 0 for each in brokers),
            _total(told_all, "dead_letters"),
            _total(told_all, "subscriptions"),
            brokers,
            events,
            left_out,
        )

    def _rates(self, peer: Peer, status: BrokerStatus | None, elapsed_s: float) -> BrokerRates:
        if status is None:
            self.rates.pop(peer.id, None)
            return BrokerRates(peer.id.hex(), peer.address, "silent", None, None, None)
        before = self._before.get(peer.id)
        queued = int(status.numbers.get("queued_events", 0))
        if before is None or before.up_s > status.up_s:
            return BrokerRates(peer.id.hex(), peer.address, status.state, None, None, queued)

        def rate(*names: str) -> float:
            more = sum(status.numbers.get(name, 0.0) - before.numbers.get(name, 0.0) for name in names)
            return max(0.0, more) / elapsed_s

        self.rates[peer.id] = rate("messages_in", "messages_out", "requests", "notifications")
        published, delivered = round(rate("events_published"), 1), round(rate("deliveries"), 1)
        return BrokerRates(peer.id.hex(), peer.address, status.state, published, delivered, queued)

    def _add_events(self, peer: Peer, answer: RecentReply) -> None:
        if answer.last < self._numbers.get(peer.id, 0):
            self._numbers[peer.id] = 0  # it began anew; what it said of now comes in the next look
            return
        self._numbers[peer.id] = answer.last
        for recent in answer.events:
            if len(recent.content) > EVENT_BYTES_MAX:
                self._left_out += 1
            elif recent.event not in self._events:
                self._events[recent.event] = ObservedEvent(from_msgpack(recent.content), recent.at_us)
        while len(self._events) > EVENTS_MAX:
            _, evicted = self._events.popitem(last=False)
            self._left_out += not evicted.was_shown

    def _add_matches(self, answer: RecentReply) -> None:
        for match in answer.matches:
            shown = self._events.get(match.event)
            if shown is None:
                continue
            if match.is_told:
                self._latencies.append((match.at_us, max(0, match.at_us - shown.at_us) / 1000))
            else:
                shown.matched += match.names

    def _ready_to_show(self, now_us: int) -> Iterator[RecentEvent]:
        """Return the newest events that are old enough and were not shown."""
        ready = [each for each in self._events.values() if not each.was_shown and now_us - each.at_us >= SHOW_AFTER_US]
        ready.sort(key=lambda each: each.at_us)
        for each in ready:
            each.was_shown = True
        self._left_out += max(0, len(ready) - EVENTS_SHOWN)
        return (each.to_body() for each in ready[-EVENTS_SHOWN:])

    def _latency(self, now_us: int) -> Latency | None:
        found = sorted(ms for at_us, ms in self._latencies if now_us - at_us <= LATENCY_US)
        if not found:
            return None
        return Latency(round(found[len(found) // 2], 2), round(found[min(len(found) - 1, len(found) * 99 // 100)], 2))


def _total(status: Iterable[BrokerStatus], name: str) -> int:
    return int(sum(each.numbers.get(name, 0.0) for each in status))


def show_moment(at_us: int) -> str:
    """Return a moment as in JSON."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()
