"""Workloads drawn from a seed: a mix decides the contents of events and the constraints of subscriptions.

All is drawn in whole columns, so that a million subscriptions take seconds, and in blocks, each from a seed of its own,
so that many processes can draw one workload. The same mix and seed give the same workload on every machine with the
same NumPy, and a larger one begins with the smaller.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.long_form import LONG_FORM, Rng, Workload
from meetpoint.lab.workloads.mixes import find_mix
from meetpoint.lab.workloads.zipf import Zipf
from meetpoint.language.values import Value

SUBSCRIPTIONS = 100_000
"""The default number of subscriptions."""
BLOCK = 4096
"""Events or subscriptions that are drawn from one seed."""

_WIDE_PART = 10
_VOCABULARY, _EVENTS, _SUBSCRIPTIONS = range(3)  # each draws from seeds of its own


def default_subscriptions(mix: str) -> int:
    """Return the default number of subscriptions of a mix: of wide ones a tenth, since each matches so much."""
    return SUBSCRIPTIONS // _WIDE_PART if mix == "wide" else SUBSCRIPTIONS


def generate(mix: str | Zipf, subscriptions: int, events: int, seed: int) -> Workload:
    """Draw subscriptions and events of a mix, by its name or, for `zipf`, its parameters."""
    mix = str(mix)
    check_sizes(mix, subscriptions, events, seed)
    blocks = Blocks(mix, seed)
    asked = [blocks.subscriptions(number, rows) for number, rows in _cut(subscriptions)]
    held = [blocks.events(number, rows) for number, rows in _cut(events)]
    return Workload(mix, pa.concat_tables(asked).combine_chunks(), pa.concat_tables(held).combine_chunks())


def event_rows(workload: Workload) -> Iterator[dict[str, Value]]:
    """Yield each event by its attributes, as one that is published; NULL is left out."""
    for row in workload.events.to_pylist():
        yield {name: value for name, value in row.items() if value is not None}


def check_sizes(mix: str, subscriptions: int, events: int, seed: int) -> None:
    """Raise MeetpointError where there is no such workload."""
    find_mix(mix)
    if subscriptions < 1 or events < 1:
        raise MeetpointError(f"a workload of {subscriptions} subscriptions and {events} events; ask for 1 each or more")
    if seed < 0:
        raise MeetpointError(f"seed {seed}: a seed is not negative; give 0 or more")


class Blocks:
    """A mix with its vocabulary. Any block of a workload is drawn from it, in any order and process."""

    def __init__(self, mix: str, seed: int) -> None:
        self._seed = seed
        self._mix = find_mix(mix)(self._rng(_VOCABULARY))

    def events(self, block: int, rows: int = BLOCK) -> pa.Table:
        """Draw the first events of a block, a column an attribute."""
        return self._mix.events(self._rng(_EVENTS, block), BLOCK).slice(0, rows)

    def subscriptions(self, block: int, rows: int = BLOCK) -> pa.Table:
        """Draw the first subscriptions of a block in long form, numbered within the whole workload."""
        table = self._mix.subscriptions(self._rng(_SUBSCRIPTIONS, block), BLOCK).table()
        numbers = table["subscription"].to_numpy()
        end = int(np.searchsorted(numbers, rows))
        return table.set_column(0, LONG_FORM.field(0), pa.array(numbers + block * BLOCK)).slice(0, end)

    def _rng(self, *stream: int) -> Rng:
        return np.random.default_rng([self._seed, *stream])


def _cut(rows: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks that so many rows come from: the number of each, and how many rows."""
    for block in range(-(-rows // BLOCK)):
        yield block, min(rows - block * BLOCK, BLOCK)
