"""Small batches: a few events are matched with all segments by one call of a kernel.

To look up a single event takes less time than Python takes to hand its parts to a kernel. A segment has a dozen
kernels, and there are dozens of segments while subscriptions change. So the parts of the events are laid side by side
once, and each segment keeps a table of the addresses of its arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meetpoint.language.names import find, split_name
from meetpoint.language.timestamps import EPOCH, MICROSECOND
from meetpoint.matching.index.kernels.bucket_scan import BLOCK
from meetpoint.matching.index.kernels.few_scan import (
    FIELDS,
    GRAM_TYPES,
    TABLE,
    few_avx512,
    few_portable,
)
from meetpoint.matching.index.kernels.jit import FEW_EVENTS
from meetpoint.matching.index.kernels.patterns import Grams
from meetpoint.matching.index.kernels.ranks import (
    BACK_STEP,
    KEY_STEP,
    NUMBER_STEP,
    STEP_FIELDS,
    TEXT_STEP,
    THERE_STEP,
    TRUTH_STEP,
    ZERO_STEP,
)
from meetpoint.matching.index.lines import Array, LineSort, RankLine
from meetpoint.matching.tables.columns import ColumnParts, PartSort
from meetpoint.matching.tables.prepared_columns import WORD

if TYPE_CHECKING:
    from meetpoint.matching.index.snapshot import LiveSegment

__all__ = ["AddressTable", "PartKey", "SegmentGroup", "SmallBatch", "SmallBatchMatches", "match_small_batch"]


_BYTES_MAX = 1 << 16
"""Bytes of texts that are laid side by side; the texts of other events may lie between those of a few."""
_NUMBERS = LineSort.NUMBER, LineSort.ODD_NUMBER
_OF_PART = {
    PartSort.FLOAT: tuple((sort, NUMBER_STEP) for sort in _NUMBERS),
    PartSort.INTEGER: tuple((sort, KEY_STEP) for sort in _NUMBERS),
    PartSort.DECIMAL: tuple((sort, KEY_STEP) for sort in _NUMBERS),
    PartSort.INSTANT: ((LineSort.INSTANT, KEY_STEP),),
    PartSort.BOOLEAN: ((LineSort.BOOLEAN, TRUTH_STEP),),
    PartSort.TEXT: ((LineSort.TEXT, TEXT_STEP), (LineSort.TEXT_BACK, BACK_STEP)),
    PartSort.OTHER: (),
}
"""The lines on which the values of a part have ranks, and how these are found."""
_WHOLE = 1 << 53
"""Integers up to here are doubles."""
_ROOM, _ROOM_MAX = 1 << 14, 1 << 21
"""Room for matches, to begin with and at most."""
_WORKSPACES_MAX = 2
_TABLES_MAX = 16
"""Combinations of parts of events whose tables are kept."""

PartKey = tuple[tuple[str, PartSort, int], ...]
"""The attribute, the class of values, and the scale of decimals, of each row of a small batch."""
Lines = Mapping[str, Mapping[LineSort, tuple[int, RankLine]]]
"""The lines of each attribute of a segment, and their slots."""


class SmallBatch(NamedTuple):
    """The parts of a few events as rows of arrays."""

    key: PartKey
    valid: Array  # bool[parts, events]
    values: Array  # float64[parts, events]: doubles
    keys: Array  # int64[parts, events]: all else that is compared as a number
    data: Array
    starts: Array  # int64[parts, events] of texts, in `data`
    ends: Array

    @staticmethod
    def of(parts: ColumnParts, events: int) -> SmallBatch | None:
        """Return a small batch of parts; None if the events must be matched as a large batch."""
        rows = [(name, part) for name in sorted(parts) for part in parts[name]]
        if events >= FEW_EVENTS or any(part.sort not in _OF_PART for _, part in rows):
            return None
        shape = len(rows), events
        valid, values, keys = np.ones(shape, np.bool_), np.zeros(shape), np.zeros(shape, np.int64)
        starts, ends = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        texts = [_NOTHING]
        before = 0
        for row, (_, part) in enumerate(rows):
            if part.valid is not None:
                valid[row] = part.valid
            if part.sort is not PartSort.TEXT:
                (values if part.sort is PartSort.FLOAT else keys)[row] = part.values
                continue
            assert part.starts is not None
            assert part.ends is not None
            held = valid[row]
            if not held.any():
                continue
            least, most = int(part.starts[held].min()), int(part.ends[held].max())
            texts.append(part.values[least:most])
            starts[row], ends[row] = part.starts, part.ends
            starts[row] += before - least
            ends[row] += before - least
            before += len(texts[-1])
            if before > _BYTES_MAX:
                return None
        key = tuple((name, part.sort, part.scale) for name, part in rows)
        return SmallBatch(key, valid, values, keys, np.concatenate(texts), starts, ends)

    @staticmethod
    def of_one(event: Mapping[str, object], group: SegmentGroup) -> SmallBatch | None:
        """Return a small batch of one event, without a detour over parts; None if it has other than plain values.

        A missing attribute gets the class that it last had, and an integer is a double if that lies between the same
        cuts. Else events would have as many keys, each with its own tables, as there are ways to lack something and to
        leave out a fraction.
        """
        sorts, odd = group.sorts, group.odd
        key: list[tuple[str, PartSort, int]] = []
        values: list[float] = []
        keys: list[int] = []
        ends: list[int] = []
        text = b""
        valid: list[bool] = []
        for name, path in group.paths:
            value = event.get(path[0]) if len(path) == 1 else find(event, path)
            double, whole = 0.0, 0
            valid.append(value is not None)
            if type(value) is float:
                sort, double = PartSort.FLOAT, value
            elif type(value) is str:
                sort = PartSort.TEXT
                try:
                    text += value.encode()
                except UnicodeEncodeError:
                    return None
            elif type(value) is int and -_WHOLE <= value <= _WHOLE and name not in odd:
                sort, double = PartSort.FLOAT, float(value)
            elif type(value) is int and WORD[0] <= value <= WORD[1]:
                sort, whole = PartSort.INTEGER, value
            elif type(value) is bool:
                sort, whole = PartSort.BOOLEAN, int(value)
            elif type(value) is datetime:
                sort, whole = PartSort.INSTANT, (value - EPOCH) // MICROSECOND
            elif value is None:
                sort = sorts.get(name, PartSort.FLOAT)
            else:
                return None
            sorts[name] = sort
            key.append((name, sort, 0))
            values.append(double)
            keys.append(whole)
            ends.append(len(text))
        count = len(key)
        places = np.array([0, *ends], np.int64).reshape(-1, 1)
        return SmallBatch(
            tuple(key),
            np.array(valid, np.bool_).reshape(-1, 1),
            np.array(values, np.float64).reshape(-1, 1),
            np.array(keys, np.int64).reshape(-1, 1),
            np.frombuffer(bytearray(text), np.uint8),
            places[:count],
            places[1:],
        )


_NOTHING = np.zeros(0, np.uint8)


class AddressTable:
    """A table of the addresses of one segment's arrays, for events with certain parts; it keeps the arrays."""

    def __init__(self, slots: int) -> None:
        self.numbers = np.zeros(TABLE, np.int64)
        self.numbers[-1] = slots
        self._kept: list[Array] = []

    def of(
        self, key: PartKey, lines: Lines, always: Sequence[int], grams: Mapping[str, Grams], flat: bool
    ) -> AddressTable:
        """Return the table with what events of these parts need; `flat` segments do without a grid."""
        made = AddressTable(int(self.numbers[-1]))
        made.numbers[:] = self.numbers
        made._kept = [*self._kept]
        made._set_steps(key, lines, always, flat)
        tables: list[int] = []
        for row, (name, sort, _) in enumerate(key):
            if sort is PartSort.TEXT and name in grams:
                tables.append(row)
                for array, dtype in zip(grams[name], GRAM_TYPES, strict=True):
                    tables += made._place(array, dtype)
        made.put("grams", np.array(tables, np.int64))
        return made

    def put(self, name: str, array: Array) -> None:
        """Note where an array of the segment is."""
        at = _PLACE[name]
        self.numbers[at : at + 2] = self._place(array, FIELDS[name])

    def _place(self, array: Array, dtype: Any) -> tuple[int, int]:
        """Return an array's address and length; it is copied unless it has this type and no gaps."""
        self._kept.append(np.ascontiguousarray(array, dtype))
        return int(self._kept[-1].ctypes.data), array.size

    def _set_steps(self, key: PartKey, lines: Lines, always: Sequence[int], flat: bool) -> None:
        present = [(name, held[LineSort.PRESENCE][0]) for name, held in lines.items() if LineSort.PRESENCE in held]
        steps = [(ZERO_STEP, 0, slot, *_NO_FIELDS) for slot in (*always, *(slot for _, slot in present))]
        scales = [(0.0, 0.0)] * len(steps)
        slot_of = dict(present)
        for row, (name, part, scale) in enumerate(key):
            if name in slot_of:
                steps.append((THERE_STEP, row, slot_of[name], *_NO_FIELDS))
                scales.append((0.0, 0.0))
            of_sort = lines.get(name, {})
            for sort, found in _OF_PART[part]:
                if sort in of_sort:
                    slot, line = of_sort[sort]
                    fields, wide = self._cuts(found, line, scale, flat)
                    steps.append((found, row, slot, *fields))
                    scales.append(wide)
        self.put("steps", np.array(steps, np.int64).reshape(-1, STEP_FIELDS))
        self.put("scales", np.array(scales, np.float64))

    def _cuts(self, found: int, line: RankLine, scale: int, flat: bool) -> tuple[tuple[int, ...], tuple[float, float]]:
        """Return where the cuts of a line are, as fields of a step, and the scale of its grid."""
        if found == TRUTH_STEP:
            return _NO_FIELDS, (0.0, 0.0)
        if found in (TEXT_STEP, BACK_STEP):
            offsets, data = self._place(line.offsets, np.int64), self._place(line.data, np.uint8)
            return (offsets[0], line.cuts, *data, 0, 0, 0), (0.0, 0.0)
        if found == NUMBER_STEP:
            cuts = line.floats_without_grid if flat else line.floats
        else:
            cuts = line.instants if line.key.sort is LineSort.INSTANT else line.scaled(scale)
        keys, grid = self._place(cuts.keys, np.int64), self._place(cuts.grid, np.int32)
        return (keys[0], cuts.cuts, *grid, cuts.first, cuts.shift, cuts.base), (cuts.least, cuts.scale)


_NO_FIELDS = (0,) * (STEP_FIELDS - 3)
_PLACE = {name: 2 * at for at, name in enumerate(FIELDS)}
_OWN = _PLACE["dead"]
"""Where the addresses of the LiveSegment begin, after those of its segment."""


class SegmentGroup:
    """The segments of one snapshot, with their address tables."""

    def __init__(self, segments: Sequence[LiveSegment]) -> None:
        self._segments = segments
        self._tables: dict[PartKey, tuple[Array, list[AddressTable]]] = {}
        names: set[str] = set().union(*(live.segment.encoder.names for live in segments))
        self.paths = [(name, split_name(name)) for name in sorted(names)]
        self.sorts: dict[str, PartSort] = {}
        self.odd = frozenset().union(*(live.segment.encoder.odd_names for live in segments))
        self.has_ids = all(live.integer_ids is not None for live in segments)

    def prepare_as(self, before: SegmentGroup) -> None:
        """Make the tables that another group had, if events still have the same parts."""
        self.sorts = before.sorts
        if self.paths == before.paths:
            for key in list(before._tables):
                self.tables(key)

    def tables(self, key: PartKey) -> Array | None:
        """Return the tables of all segments for events with certain parts; None if a segment has none."""
        made = self._tables.get(key)
        if made is None:
            if len(self._tables) >= _TABLES_MAX:
                self._tables.clear()
            found = [table for live in self._segments if (table := live.segment.address_table(key)) is not None]
            if len(found) < len(self._segments):
                return None
            tables = np.stack([table.numbers for table in found])
            tables[:, _OWN : TABLE - 1] = [live.own_addresses for live in self._segments]
            made = self._tables[key] = tables, found
        return made[0]


class SmallBatchMatches(NamedTuple):
    """The matches of a few events, segment by segment."""

    numbers: Array
    events: Array
    orders: Array
    ids: Array  # nothing where not all are integers
    ends: list[int]  # where those of each segment end


class _Workspace:
    """The scratch memory and the results of a kernel for small batches."""

    def __init__(self, room: int, ranks: int) -> None:
        self.size = room
        self.ranks = np.empty(ranks, np.int32)
        self.held = np.empty((3, room // BLOCK), np.int32)
        self.scratch = np.empty((5, room), np.int32)
        self.pairs, self.told = np.empty((2, room), np.int32), np.empty((2, room), np.int64)

    @property
    def arrays(self) -> tuple[Array, ...]:
        fit, buckets, met, more, more_of = self.scratch
        return self.ranks, fit, buckets, met, *self.held, more, more_of, *self.pairs, *self.told


_workspaces: list[_Workspace] = []


def match_small_batch(group: SegmentGroup, batch: SmallBatch, base: int, vector: bool) -> SmallBatchMatches | None:
    """Return all matches of a few events; None if they must be matched as a large batch."""
    tables = group.tables(batch.key)
    if tables is None:
        return None
    ranks = max(batch.valid.shape[1], 1) * int(tables[:, -1].max())
    match = (few_avx512 if vector else few_portable).brief  # type: ignore[attr-defined]
    ends = np.empty(len(tables), np.int64)
    try:
        workspace = _workspaces.pop()
    except IndexError:
        workspace = _Workspace(_ROOM, ranks)
    if len(workspace.ranks) < ranks:
        workspace.ranks = np.empty(ranks, np.int32)
    while (found := match(tables, base, *batch[1:], *workspace.arrays, ends)) < 0:
        if workspace.size >= _ROOM_MAX:
            return None
        workspace = _Workspace(2 * workspace.size, ranks)
    numbers, events = workspace.pairs[:, :found].copy()
    orders, ids = workspace.told[:, :found].copy()
    if len(_workspaces) < _WORKSPACES_MAX:
        _workspaces.append(workspace)
    return SmallBatchMatches(numbers, events, orders, ids if group.has_ids else _NOTHING, ends.tolist())
