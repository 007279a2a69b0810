"""The links between nodes: how long a message takes, and what may befall it on the way.

Without faults every pair of nodes has a delay of its own, the same in both directions and for every message, so that a
link is in order as a TCP connection is. Faults of links are in `Weather`, which the engine asks only while there is
one: a network without faults pays nothing for them.

- *delay*: a message is held up, and with it all that follow on its link (a clog).
- *reordering*: a message is held up and others overtake it.
- *loss*, *duplication*: no copy arrives, or two.
- *cuts*: from one group of nodes to the others, in one direction or both, nothing arrives.
- *slow nodes*: all that comes to or from a node takes longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from random import Random

import msgspec

__all__ = ["DELAY_US_MAX", "Cut", "Links", "Rates", "Weather"]

DELAY_US_MAX = 60_000
"""The longest that a message takes without faults."""

_DELAY_US_MIN = 500
_DELAY_US_MEDIAN = 5_000
_SPREAD = 0.8
_TABLE = 1024
_NOTHING: tuple[int, ...] = ()


class Links:
    """The delay of each pair of nodes, drawn once from a log-normal distribution."""

    __slots__ = ("_salt", "_table")

    def __init__(self, seed: int) -> None:
        random = Random(f"links/{seed}")
        drawn = (_DELAY_US_MEDIAN * random.lognormvariate(0, _SPREAD) for _ in range(_TABLE))
        self._table = [int(min(max(delay, _DELAY_US_MIN), DELAY_US_MAX)) for delay in drawn]
        self._salt = b"%d" % seed

    def delay_us(self, one: int, other: int) -> int:
        """How long a message takes between two nodes, given by their numbers."""
        pair = b"%d-%d" % ((one, other) if one < other else (other, one))
        return self._table[int.from_bytes(blake2b(pair, key=self._salt, digest_size=2).digest(), "big") % _TABLE]


class Rates(msgspec.Struct, frozen=True):
    """The share of messages that each fault of a link befalls, and how long the longest delay is."""

    delay: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_us_max: int = 2_000_000


class Cut(msgspec.Struct, frozen=True, eq=False):
    """Nothing passes from `group` to the others; where it is not one-way, nothing comes back either."""

    group: frozenset[int]
    one_way: bool


class Weather:
    """What befalls messages now. Counts what it did."""

    __slots__ = ("_arrived", "_random", "counts", "cuts", "rates", "slow")

    def __init__(self, random: Random, counts: Counter[str]) -> None:
        self._random = random
        self.counts = counts
        self.rates = Rates()
        self.cuts: list[Cut] = []
        self.slow: dict[int, int] = {}
        self._arrived: dict[tuple[int, int], int] = {}

    def arrivals(self, source: int, target: int, at: int) -> Sequence[int]:
        """When the copies of a message arrive that would arrive at `at`."""
        for cut in self.cuts:
            inside = source in cut.group
            if inside != (target in cut.group) and (inside or not cut.one_way):
                self.counts["cut_off"] += 1
                return _NOTHING
        rates = self.rates
        if rates.loss and self._strikes("loss", rates.loss):
            return _NOTHING
        if self.slow:
            at += self.slow.get(source, 0) + self.slow.get(target, 0)
        if rates.delay and self._strikes("delay", rates.delay):
            at += self._random.randint(1, rates.delay_us_max)
        link = (source, target)
        at = max(at, self._arrived.get(link, 0))
        if rates.reordering and self._strikes("reordering", rates.reordering):
            late = at + self._random.randint(1, rates.delay_us_max // 4)
            if rates.duplication and self._strikes("duplication", rates.duplication):
                return at, late
            return (late,)  # whoever is sent after it may come before it: the link's order does not see this one
        self._arrived[link] = at
        if rates.duplication and self._strikes("duplication", rates.duplication):
            return at, at + self._random.randint(1, rates.delay_us_max // 4)
        return (at,)

    def _strikes(self, kind: str, rate: float) -> bool:
        """Whether a fault befalls this message; the first one is struck, so that a fault asked for does happen."""
        if self._random.random() < rate or not self.counts[kind]:
            self.counts[kind] += 1
            return True
        return False
