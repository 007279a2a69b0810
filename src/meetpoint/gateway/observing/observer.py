"""One look at the network a second, shared by all who watch; none where nobody does.

Brokers are asked how they are, and for the last events (`net.recents`). Rates are what grew between two looks. An event
is shown once it is a little old, so that what it matched is known by then. Under load only some are shown, and it is
said how many were left out.
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

from meetpoint.api.client_messages import BrokerStatus, Recent, RecentIs, Status
from meetpoint.api.ids import EventKey, Peer
from meetpoint.client.network import Network
from meetpoint.errors import MeetpointError
from meetpoint.gateway.connections import Connections
from meetpoint.gateway.observing.shapes import BrokerRates, EventIs, Latency, LiveIs
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack

__all__ = ["Observer", "Shown", "moment_text"]

LOOK_S: Final = 1.0
PATIENCE_S: Final = 0.8
"""A broker that takes longer is silent, in this look."""
GIVE_UP_S: Final = 4.0
"""When nobody at all answers for so long, that is said."""
IDLE_S: Final = 60.0
"""So long after the last one who wanted to know, nobody looks any more."""
EVENTS_MAX: Final = 200
"""How many of the last events are remembered."""
EVENTS_SHOWN: Final = 20
"""How many are in one look."""
EVENT_BYTES_MAX: Final = 16 << 10
"""A larger event is not shown, and counted among those left out."""
RIPE_US: Final = 300_000
"""How old an event is before it is shown."""
LATENCIES_MAX: Final = 5_000
LATENCY_US: Final = 10_000_000
"""How far back latencies are taken from."""
NO_TOKEN: Final = "the gateway has no token of its own with the role observe; give it one (token_file)"

_log = logging.getLogger("meetpoint.gateway")


class Shown(msgspec.Struct):
    """One of the last events."""

    event: Event
    at_us: int
    matched: int = 0
    was_shown: bool = False

    def to_shape(self) -> EventIs:
        """As it is told."""
        event = self.event
        return EventIs(
            event.id, event.time.isoformat(), msgspec.Raw(attributes_to_json(event.attributes)), self.matched
        )  # fmt: skip


class Observer:
    """Looks on while anyone watches."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._task: asyncio.Task[None] | None = None
        self._used = 0.0
        self._looked = asyncio.Condition()
        self._looks = 0
        self._chunk = b""
        self._before: dict[bytes, BrokerStatus] = {}
        self._before_at = 0.0
        self._numbers: dict[bytes, int] = {}
        self._latencies: deque[tuple[int, float]] = deque(maxlen=LATENCIES_MAX)
        self._events: OrderedDict[EventKey, Shown] = OrderedDict()
        self._left_out = 0
        self.rates: dict[bytes, float] = {}
        """By broker, its messages and requests per second in the last look."""
        self.watchers = 0

    # -- those who watch -----------------------------------------------------------------------------------------------

    def use(self) -> None:
        """Somebody wants to know: go on for a while."""
        self._used = time.monotonic()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def events(self) -> list[Shown]:
        """The last events, the newest first: brokers tell theirs one after another."""
        return sorted(self._events.values(), key=lambda each: each.at_us, reverse=True)

    async def next(self, seen: int, timeout_s: float) -> tuple[int, bytes]:
        """The next look after one that was seen, with its number; nothing new after a while."""
        self.use()
        try:
            async with asyncio.timeout(timeout_s), self._looked:
                while self._looks <= seen:
                    await self._looked.wait()
        except TimeoutError:
            return seen, b""
        return self._looks, self._chunk

    # -- looking -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while time.monotonic() - self._used < IDLE_S or self.watchers:
            began = time.monotonic()
            try:
                async with asyncio.timeout(GIVE_UP_S), self._connections.own() as lease:
                    look = await self._look(lease.net)
            except MeetpointError as error:
                look = self._nothing(str(error))
            except TimeoutError:
                look = self._nothing(f"no broker answered within {GIVE_UP_S:g} s; it is tried on")
            except Exception:
                _log.exception("a look at the network failed")
                look = self._nothing("the look failed; the gateway's log says why")
            async with self._looked:
                self._looks += 1
                self._chunk = b"data: %b\n\n" % msgspec.json.encode(look)
                self._looked.notify_all()
            await asyncio.sleep(max(0.0, LOOK_S - (time.monotonic() - began)))
        self._before.clear()
        self._numbers.clear()

    def _nothing(self, problem: str) -> LiveIs:
        if "role" in problem or "token" in problem:
            problem = f"{NO_TOKEN}: {problem}"
        return LiveIs(moment_text(time.time_ns() // 1000), 0.0, 0.0, None, 0, 0, 0, [], [], 0, problem)

    async def _look(self, net: Network) -> LiveIs:
        status, recent = await asyncio.gather(
            net.ask_all(lambda peer: Status(), BrokerStatus, PATIENCE_S),
            net.ask_all(lambda peer: Recent(self._numbers.get(peer.id, 0)), RecentIs, PATIENCE_S),
        )
        now = time.monotonic()
        spent, self._before_at = now - self._before_at, now
        brokers = [self._rates(peer, told, spent) for peer, told in sorted(status.items(), key=lambda each: each[0].id)]
        self._before = {peer.id: told for peer, told in status.items() if told is not None}
        for peer, said in recent.items():
            if said is not None:
                self._learn(peer, said)
        for said in recent.values():
            if said is not None:
                self._match(said)
        now_us = time.time_ns() // 1000
        events = list(self._ripe(now_us))
        left_out, self._left_out = self._left_out, 0
        told_all = self._before.values()
        return LiveIs(
            moment_text(now_us),
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

    def _rates(self, peer: Peer, told: BrokerStatus | None, spent: float) -> BrokerRates:
        if told is None:
            self.rates.pop(peer.id, None)
            return BrokerRates(peer.id.hex(), peer.address, "silent", None, None, None)
        before = self._before.get(peer.id)
        queued = int(told.numbers.get("queued_events", 0))
        if before is None or before.up_s > told.up_s:
            return BrokerRates(peer.id.hex(), peer.address, told.state, None, None, queued)

        def grown(*names: str) -> float:
            more = sum(told.numbers.get(name, 0.0) - before.numbers.get(name, 0.0) for name in names)
            return max(0.0, more) / spent

        self.rates[peer.id] = grown("messages_in", "messages_out", "requests", "notifications")
        published, delivered = round(grown("events_published"), 1), round(grown("deliveries"), 1)
        return BrokerRates(peer.id.hex(), peer.address, told.state, published, delivered, queued)

    def _learn(self, peer: Peer, said: RecentIs) -> None:
        if said.last < self._numbers.get(peer.id, 0):
            self._numbers[peer.id] = 0  # it began anew; what it said of now comes in the next look
            return
        self._numbers[peer.id] = said.last
        for recent in said.events:
            if len(recent.content) > EVENT_BYTES_MAX:
                self._left_out += 1
            elif recent.event not in self._events:
                self._events[recent.event] = Shown(from_msgpack(recent.content), recent.at_us)
        while len(self._events) > EVENTS_MAX:
            _, gone = self._events.popitem(last=False)
            self._left_out += not gone.was_shown

    def _match(self, said: RecentIs) -> None:
        for match in said.matches:
            shown = self._events.get(match.event)
            if shown is None:
                continue
            if match.is_told:
                self._latencies.append((match.at_us, max(0, match.at_us - shown.at_us) / 1000))
            else:
                shown.matched += match.names

    def _ripe(self, now_us: int) -> Iterator[EventIs]:
        """Events that are old enough and were not shown, as many as one look has: the newest."""
        ripe = [each for each in self._events.values() if not each.was_shown and now_us - each.at_us >= RIPE_US]
        ripe.sort(key=lambda each: each.at_us)
        for each in ripe:
            each.was_shown = True
        self._left_out += max(0, len(ripe) - EVENTS_SHOWN)
        return (each.to_shape() for each in ripe[-EVENTS_SHOWN:])

    def _latency(self, now_us: int) -> Latency | None:
        found = sorted(ms for at_us, ms in self._latencies if now_us - at_us <= LATENCY_US)
        if not found:
            return None
        return Latency(round(found[len(found) // 2], 2), round(found[min(len(found) - 1, len(found) * 99 // 100)], 2))


def _total(told: Iterable[BrokerStatus], name: str) -> int:
    return int(sum(each.numbers.get(name, 0.0) for each in told))


def moment_text(at_us: int) -> str:
    """A moment as JSON has it."""
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat()
