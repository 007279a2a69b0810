"""The sides of the comparison of brokers, and the subscriptions and events that all of them are given.

RabbitMQ's headers exchange can hold these subscriptions too: a subscription is two or three equalities of strings.
However many there are, an event matches about one of them: four events of five are made to fit a subscription drawn at
random, the fifth is drawn freely and mostly matches none. So the work to find the match grows with the number of
subscriptions, and the number of notifications does not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

Equalities = tuple[tuple[str, str], ...]
"""A subscription: each attribute has this value."""

_SYMBOLS = 20_000
_EXCHANGES = ("NYSE", "NASDAQ", "LSE", "XETRA", "TSE", "HKEX", "SSE", "BSE", "ASX", "TSX", "SIX", "JSE")
_SECTORS = tuple(f"{field}-{part}" for field in ("tech", "energy", "health", "retail") for part in ("eu", "us", "asia"))
_FITTING = 0.8


def filter_text(subscription: Equalities) -> str:
    """Return the subscription as a filter."""
    return " AND ".join(f"{name} = '{value}'" for name, value in subscription)


class OfferedLoad(msgspec.Struct, frozen=True):
    """Subscriptions, their assignment to `consumers`, and events without end."""

    subscriptions: tuple[Equalities, ...]
    consumers: int
    seed: int

    @staticmethod
    def draw(count: int, consumers: int, seed: int) -> OfferedLoad:
        """Draw so many subscriptions, all different."""
        rng = random.Random(f"subscriptions {seed}")
        drawn: dict[Equalities, None] = {}
        while len(drawn) < count:
            drawn[_subscription(rng)] = None
        return OfferedLoad(tuple(drawn), min(consumers, count), seed)

    def of(self, consumer: int) -> list[tuple[int, Equalities]]:
        """Return a consumer's subscriptions with their numbers: every so many-th."""
        every = range(consumer, len(self.subscriptions), self.consumers)
        return [(number, self.subscriptions[number]) for number in every]

    def events(self, purpose: str) -> Iterator[dict[str, str]]:
        """Yield events without end; another purpose draws others."""
        rng = random.Random(f"events {purpose} {self.seed}")
        while True:
            event = {"symbol": _symbol(rng), "exchange": rng.choice(_EXCHANGES), "sector": rng.choice(_SECTORS)}
            if rng.random() < _FITTING:
                event.update(rng.choice(self.subscriptions))
            yield event

    def finder(self) -> Finder:
        return Finder(self.subscriptions)


class Finder:
    """The expected matches of an event, found by the shapes of subscriptions, apart from everything that is
    measured.
    """

    def __init__(self, subscriptions: Sequence[Equalities]) -> None:
        self._shapes: dict[tuple[str, ...], dict[tuple[str, ...], int]] = {}
        for number, subscription in enumerate(subscriptions):
            names, values = zip(*subscription, strict=True)
            self._shapes.setdefault(names, {})[values] = number

    def find(self, event: Mapping[str, str]) -> list[int]:
        found = (held.get(tuple(map(event.__getitem__, names))) for names, held in self._shapes.items())
        return [number for number in found if number is not None]


def _symbol(rng: random.Random) -> str:
    return f"S{rng.randrange(_SYMBOLS):05}"


def _subscription(rng: random.Random) -> Equalities:
    chosen = [("symbol", _symbol(rng)), ("exchange", rng.choice(_EXCHANGES))]
    if rng.random() < 0.3:
        chosen.append(("sector", rng.choice(_SECTORS)))
    return tuple(chosen)


# -- sides -------------------------------------------------------------------------------------------------------------


Address: TypeAlias = tuple[str, ...]
"""The servers of a side, host:port each."""

OnDelivery: TypeAlias = Callable[[int, int, int], None]
"""A callback for each delivery: the event's number, its time of sending (monotonic nanoseconds), and the target."""


class Publisher(Protocol):
    """A publisher with several events in flight."""

    def publish(self, number: int, event: Mapping[str, str]) -> asyncio.Future[None]:
        """Send an event; the future is done with its acknowledgement."""


class Side(Protocol):
    """A system that brings events to subscribers. It is pickled to another process, so it holds no live objects."""

    name: str
    kept: str
    """The place where an acknowledged event is kept."""

    def servers(self, folder: Path) -> AbstractContextManager[Address]:
        """Start the servers; SetupError where they are not installed."""

    def receiving(self, address: Address, offered: OfferedLoad, seen: OnDelivery) -> AbstractAsyncContextManager[None]:
        """Hold all subscriptions and receive; ready once they are in force."""

    def publishing(self, address: Address) -> AbstractAsyncContextManager[Publisher]:
        """Connect one publisher."""

    def targets(self, offered: OfferedLoad, matched: list[int]) -> int:
        """Return the number of deliveries of an event that matches these subscriptions."""
