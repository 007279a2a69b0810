"""What all brokers are given: subscriptions that RabbitMQ's headers exchange can hold too, and events for them.

A subscription is two or three equalities of strings. However many there are, an event matches about one of them: four
events of five are made to fit a subscription drawn at random, the fifth is drawn freely and mostly matches none. So
what grows with the number of subscriptions is the work to find the match, and not the number of notifications.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import msgspec

__all__ = ["Equalities", "Offered", "filter_text"]

Equalities = tuple[tuple[str, str], ...]
"""A subscription: each attribute has this value."""

_SYMBOLS = 20_000
_EXCHANGES = ("NYSE", "NASDAQ", "LSE", "XETRA", "TSE", "HKEX", "SSE", "BSE", "ASX", "TSX", "SIX", "JSE")
_SECTORS = tuple(f"{field}-{part}" for field in ("tech", "energy", "health", "retail") for part in ("eu", "us", "asia"))
_FITTING = 0.8


def filter_text(subscription: Equalities) -> str:
    """The same as a filter."""
    return " AND ".join(f"{name} = '{value}'" for name, value in subscription)


class Offered(msgspec.Struct, frozen=True):
    """Subscriptions, which of `consumers` has which, and events without end."""

    subscriptions: tuple[Equalities, ...]
    consumers: int
    seed: int

    @staticmethod
    def draw(count: int, consumers: int, seed: int) -> Offered:
        """So many subscriptions, all different."""
        rng = random.Random(f"subscriptions {seed}")
        drawn: dict[Equalities, None] = {}
        while len(drawn) < count:
            drawn[_subscription(rng)] = None
        return Offered(tuple(drawn), min(consumers, count), seed)

    def of(self, consumer: int) -> list[tuple[int, Equalities]]:
        """A consumer's subscriptions with their numbers: every so many-th."""
        every = range(consumer, len(self.subscriptions), self.consumers)
        return [(number, self.subscriptions[number]) for number in every]

    def events(self, purpose: str) -> Iterator[dict[str, str]]:
        """Events without end; those of another purpose are others."""
        rng = random.Random(f"events {purpose} {self.seed}")
        while True:
            event = {"symbol": _symbol(rng), "exchange": rng.choice(_EXCHANGES), "sector": rng.choice(_SECTORS)}
            if rng.random() < _FITTING:
                event.update(rng.choice(self.subscriptions))
            yield event

    def finder(self) -> Finder:
        return Finder(self.subscriptions)


class Finder:
    """Which subscriptions an event matches, by what they look like: apart from everything that is measured."""

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
