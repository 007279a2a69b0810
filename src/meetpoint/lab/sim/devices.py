"""Simulated clock, network links and disks.

Links: without faults every pair of nodes has its own delay, the same in both directions and for every message, so that
a link keeps its order as a TCP connection does. `LinkFaults` holds the faults of links. The engine asks it only while
there are some: a network without faults pays nothing for them.

- *delay*: a message is held up, and with it all that follow on its link (a clog).
- *reordering*: a message is held up and others overtake it.
- *loss*, *duplication*: no copy arrives, or two.
- *cuts*: from one group of nodes to the others, in one direction or both, nothing arrives.
- *slow nodes*: all that comes to or from a node takes longer.

Disk: tickets are written in order and synced in groups, one sync at a time; later tickets wait for the next. A ticket
is on disk when its sync has ended. A crash loses the others, except some first part of them, each whole or not at all
(the real store has a checksum per record and a transaction per ticket). A write that fails never gets a second try:
the node must crash. The caller has the clock and calls `begin` and `end`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from random import Random
from typing import Final

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import Record

# -- clock -------------------------------------------------------------------------------------------------------------


BEGINNING: Final = 1_000 * SECOND_US
"""The beginning of a simulation: late enough that a clock that is behind is not before zero."""


def show(time: int | None) -> str:
    """Return a time as people read it: seconds from the beginning."""
    return "never" if time is None else f"{(time - BEGINNING) / SECOND_US:.6f} s"


# -- links -------------------------------------------------------------------------------------------------------------


DELAY_US_MAX = 60_000
"""The longest delay of a message without faults."""

_DELAY_US_MIN = 500
_DELAY_US_MEDIAN = 5_000
_SPREAD = 0.8
_TABLE = 1024
_NOTHING: tuple[int, ...] = ()


class LinkDelays:
    """The delay of each pair of nodes, drawn once from a log-normal distribution."""

    __slots__ = ("_salt", "_table")

    def __init__(self, seed: int) -> None:
        random = Random(f"links/{seed}")
        # A table of draws, as a delay for each pair would take memory that grows with the square of the nodes.
        drawn = (_DELAY_US_MEDIAN * random.lognormvariate(0, _SPREAD) for _ in range(_TABLE))
        self._table = [int(min(max(delay, _DELAY_US_MIN), DELAY_US_MAX)) for delay in drawn]
        self._salt = b"%d" % seed

    def delay_us(self, one: int, other: int) -> int:
        """Return the delay of a message between two nodes, given by their numbers."""
        pair = b"%d-%d" % ((one, other) if one < other else (other, one))
        return self._table[int.from_bytes(blake2b(pair, key=self._salt, digest_size=2).digest(), "big") % _TABLE]


class LinkFaultRates(msgspec.Struct, frozen=True):
    """The share of messages that each fault of a link affects, and the longest delay."""

    delay: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay_us_max: int = 2_000_000


class Cut(msgspec.Struct, frozen=True, eq=False):
    """A partition: nothing passes from `group` to the others; where it is not one-way, nothing comes back either."""

    group: frozenset[int]
    one_way: bool


class LinkFaults:
    """The current faults of links, with counts of their effects."""

    __slots__ = ("_arrived", "_random", "counts", "cuts", "rates", "slow")

    def __init__(self, random: Random, counts: Counter[str]) -> None:
        self._random = random
        self.counts = counts
        self.rates = LinkFaultRates()
        self.cuts: list[Cut] = []
        self.slow: dict[int, int] = {}
        self._arrived: dict[tuple[int, int], int] = {}

    def arrivals(self, source: int, target: int, at: int) -> Sequence[int]:
        """Return when the copies of a message arrive that would arrive at `at`."""
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
            return (late,)  # a later message may overtake it, so the link's order must not know this one
        self._arrived[link] = at
        if rates.duplication and self._strikes("duplication", rates.duplication):
            return at, at + self._random.randint(1, rates.delay_us_max // 4)
        return (at,)

    def _strikes(self, kind: str, rate: float) -> bool:
        """Return whether a fault affects this message. The first message is affected, so that a fault asked for does
        happen.
        """
        if self._random.random() < rate or not self.counts[kind]:
            self.counts[kind] += 1
            return True
        return False


# -- disk --------------------------------------------------------------------------------------------------------------


class Disk:
    """The disk of one process: it outlives the process, and may be lost."""

    __slots__ = ("_stored", "_syncing", "_waiting", "written")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._stored: dict[tuple[bytes, str], Record] = {(r.home, r.name): r for r in records}
        self._waiting: list[Persist] = []
        self._syncing: list[Persist] = []
        self.written = 0

    @property
    def busy(self) -> bool:
        return bool(self._syncing)

    @property
    def unsynced(self) -> int:
        """The number of tickets that a crash may lose."""
        return len(self._syncing) + len(self._waiting)

    def write(self, effect: Persist) -> bool:
        """Take a ticket; true where a sync should begin now."""
        self._waiting.append(effect)
        return not self._syncing

    def begin(self) -> bool:
        """Sync all that waits; false where nothing does."""
        assert not self._syncing, "a sync is under way"
        self._syncing, self._waiting = self._waiting, []
        return bool(self._syncing)

    def end(self) -> list[int]:
        """End the sync: its tickets are on disk."""
        done, self._syncing = self._syncing, []
        for effect in done:
            self._apply(effect)
        return [effect.ticket for effect in done]

    def crash(self, random: Random) -> int:
        """Lose a last part of the tickets that are not yet on disk; return how many."""
        waiting = self._syncing + self._waiting
        self._syncing, self._waiting = [], []
        kept = random.randint(0, len(waiting))
        for effect in waiting[:kept]:
            self._apply(effect)
        return len(waiting) - kept

    def recover(self) -> tuple[Record, ...]:
        """Return all records, by home and name."""
        # In a fixed order, so that the order of writes cannot reach the node.
        return tuple(self._stored[at] for at in sorted(self._stored))

    def _apply(self, effect: Persist) -> None:
        self.written += len(effect.records)
        for record in effect.records:
            self._stored[record.home, record.name] = record
        for at in effect.erased:
            self._stored.pop(at, None)
