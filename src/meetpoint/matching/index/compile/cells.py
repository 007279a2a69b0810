"""What is known of events, and the cells by which ranges are filed so that equally many events fall into each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meetpoint.matching.index.compile.rows import NESTED, Rows, runs
from meetpoint.matching.index.lines import Array

__all__ = ["CELLS", "COARSE", "Cells", "Statistics"]

CELLS = 256
"""Cells of a line of ranges: so many events in each as in the others, as far as the sample tells."""
COARSE = 16
"""Cells that make a coarse one."""


class Statistics(NamedTuple):
    """What the events are like: ranks of each line, sorted, of those that have a value there."""

    ranks: list[Array]
    fits: Array  # float64[patterns] part of the events
    events: list[int]  # of how many events the ranks of each line are
    seen: bool  # whether they are of real events


class Cells:
    """Cells of the lines that have ranges: `starts[slot]` are the ranks at which cells begin, 0 first.

    Sixteen neighbouring cells make a coarse one, whose number follows those of the fine ones; a range is filed under
    coarse cells where it covers them, so that it has at most some forty entries however wide it is.
    """

    def __init__(self, rows: Rows, line: Array, statistics: Statistics) -> None:
        self.starts: list[Array] = []
        self.chance: list[Array] = []
        self._cuts = [one.cuts for one in rows.lines]
        self.coarse = COARSE
        ranged = np.bincount(line[(rows.line & NESTED == 0) & (rows.first <= rows.last)], minlength=len(rows.lines))
        for slot, held in enumerate(statistics.ranks):
            if not ranged[slot] or not len(held):
                self.starts.append(np.zeros(1, np.int32))
                self.chance.append(np.ones(1))
                continue
            wanted = int(min(CELLS, max(16, ranged[slot] // 4)))
            starts = np.unique(np.concatenate([[0], held[np.arange(1, wanted) * len(held) // wanted]])).astype(np.int32)
            counts = np.diff(np.searchsorted(held, np.append(starts, rows.lines[slot].cuts + 1)))
            self.starts.append(starts)
            self.chance.append((counts + 1.0 / len(starts)) / (statistics.events[slot] + 1))

    def count(self, slot: int) -> int:
        """How many cells a line has, fine and coarse."""
        fine = len(self.starts[slot])
        return fine + -(-fine // self.coarse)

    def of(self, slot: int, ranks: Array) -> Array:
        """The fine cell that each rank is in."""
        return (np.searchsorted(self.starts[slot], ranks, "right") - 1).astype(np.int64)

    def cover(self, slot: int, first: Array, last: Array) -> tuple[Array, Array, Array]:
        """The cells of ranges: which range, its cell, and whether the cell is only partly in the range."""
        bounds = np.append(self.starts[slot], self._cuts[slot] + 1)
        begin, end = self.of(slot, first), self.of(slot, last)
        whole_begin = begin + (bounds[begin] < first)
        whole_end = end + 1 - (bounds[end + 1] - 1 > last)
        coarse_begin, coarse_end = -(-whole_begin // self.coarse), whole_end // self.coarse
        none = coarse_begin >= coarse_end
        left_end = np.where(none, end + 1, coarse_begin * self.coarse)
        right_begin = np.where(none, end + 1, coarse_end * self.coarse)
        fine = len(self.starts[slot])
        which, cell = zip(
            runs(begin, left_end),
            runs(right_begin, end + 1),
            runs(np.where(none, 0, fine + coarse_begin), np.where(none, 0, fine + coarse_end)),
            strict=True,
        )
        ranges, cells = np.concatenate(which), np.concatenate(cell)
        inside = np.minimum(cells, fine - 1)  # a coarse cell is always covered
        partly = (bounds[inside] < first[ranges]) | (bounds[inside + 1] - 1 > last[ranges])
        return ranges, cells, partly & (cells < fine)
