"""A few events, which are matched against all segments by one call.

An event that is matched alone takes less time to look up than Python takes to hand its parts to a kernel, and there are
a dozen kernels to a segment, and dozens of segments while subscriptions change. So the parts of the events are laid
side by side once, and each segment keeps a table of where its arrays are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from meetpoint.language.names import find, split_name
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
from meetpoint.matching.index.lines import Array, Line, LineSort
from meetpoint.matching.tables.column_parts import Parts, PartSort
from meetpoint.matching.tables.prepared_columns import EPOCH, WORD

if TYPE_CHECKING:
    from meetpoint.matching.index.state import Held

__all__ = ["Card", "Few", "Found", "Key", "Together", "match_few"]

_BYTES_MAX = 1 << 16
"""Bytes of texts that are laid side by side; a few events may be some of many, with the texts of others between."""
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
"""On which lines the values of a part have ranks, and how they are found."""
_MICROSECOND = timedelta(microseconds=1)
_WHOLE = 1 << 53
"""Integers up to here are doubles."""
_ROOM, _ROOM_MAX = 1 << 14, 1 << 21
"""Room for matches, to begin with and at most."""
_FREE_MAX = 2
_TABLES_MAX = 16
"""Combinations of parts of events whose tables are kept."""

Key = tuple[tuple[str, PartSort, int], ...]
"""Of each row of a few events the attribute, the class of its values, and the scale of decimals."""
Lines = Mapping[str, Mapping[LineSort, tuple[int, Line]]]
"""The lines of each attribute of a segment, and their slots."""


class Few(NamedTuple):
    """The parts of a few events as rows of arrays."""

    key: Key
    valid: Array  # bool[parts, events]
    values: Array  # float64[parts, events]: doubles
    keys: Array  # int64[parts, events]: all else that is compared as a number
    data: Array
    starts: Array  # int64[parts, events] of texts, in `data`
    ends: Array

    @staticmethod
    def of(parts: Parts, events: int) -> Few | None:
        """None where they have to be matched as many are."""
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
        return Few(key, valid, values, keys, np.concatenate(texts), starts, ends)

    @staticmethod
    def of_one(event: Mapping[str, object], together: Together) -> Few | None:
        """The same of one event of plain values, without a detour; None where it has others.

        Otherwise events would be of as many keys as there are ways to lack something and to leave out a fraction: so an
        attribute that it lacks is as if of the class that it was last seen of, and an integer is a double where that
        lies between the same cuts.
        """
        sorts, odd = together.sorts, together.odd
        key: list[tuple[str, PartSort, int]] = []
        values: list[float] = []
        keys: list[int] = []
        ends: list[int] = []
        text = b""
        valid: list[bool] = []
        for name, path in together.paths:
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
                sort, whole = PartSort.INSTANT, (value - EPOCH) // _MICROSECOND
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
        return Few(
            tuple(key),
            np.array(valid, np.bool_).reshape(-1, 1),
            np.array(values, np.float64).reshape(-1, 1),
            np.array(keys, np.int64).reshape(-1, 1),
            np.frombuffer(bytearray(text), np.uint8),
            places[:count],
            places[1:],
        )


_NOTHING = np.zeros(0, np.uint8)


class Card:
    """A table of the arrays of one segment, for events with certain parts; it keeps the arrays."""

    def __init__(self, slots: int) -> None:
        self.table = np.zeros(TABLE, np.int64)
        self.table[-1] = slots
        self._kept: list[Array] = []

    def of(self, key: Key, lines: Lines, always: Sequence[int], grams: Mapping[str, Grams], hurried: bool) -> Card:
        """The same table with what events of these parts need; `hurried` does without a grid."""
        made = Card(int(self.table[-1]))
        made.table[:] = self.table
        made._kept = [*self._kept]
        made._set_steps(key, lines, always, hurried)
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
        self.table[at : at + 2] = self._place(array, FIELDS[name])

    def _place(self, array: Array, dtype: Any) -> tuple[int, int]:
        """Where an array is and how long, which must be of this type without gaps, or is copied into one."""
        self._kept.append(np.ascontiguousarray(array, dtype))
        return int(self._kept[-1].ctypes.data), array.size

    def _set_steps(self, key: Key, lines: Lines, always: Sequence[int], hurried: bool) -> None:
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
                    fields, wide = self._cuts(found, line, scale, hurried)
                    steps.append((found, row, slot, *fields))
                    scales.append(wide)
        self.put("steps", np.array(steps, np.int64).reshape(-1, STEP_FIELDS))
        self.put("scales", np.array(scales, np.float64))

    def _cuts(self, found: int, line: Line, scale: int, hurried: bool) -> tuple[tuple[int, ...], tuple[float, float]]:
        """Where the cuts of a line are, as fields of a step, and the scale of its grid."""
        if found == TRUTH_STEP:
            return _NO_FIELDS, (0.0, 0.0)
        if found in (TEXT_STEP, BACK_STEP):
            offsets, data = self._place(line.offsets, np.int64), self._place(line.data, np.uint8)
            return (offsets[0], line.cuts, *data, 0, 0, 0), (0.0, 0.0)
        if found == NUMBER_STEP:
            cuts = line.hurried_floats if hurried else line.floats
        else:
            cuts = line.instants if line.key.sort is LineSort.INSTANT else line.scaled(scale)
        keys, grid = self._place(cuts.keys, np.int64), self._place(cuts.grid, np.int32)
        return (keys[0], cuts.cuts, *grid, cuts.first, cuts.shift, cuts.base), (cuts.least, cuts.scale)


_NO_FIELDS = (0,) * (STEP_FIELDS - 3)
_PLACE = {name: 2 * at for at, name in enumerate(FIELDS)}
_OWN = _PLACE["dead"]
"""Where that begins which is not the segment's but its holder's."""


class Together:
    """The segments of one moment."""

    def __init__(self, held: Sequence[Held]) -> None:
        self._held = held
        self._tables: dict[Key, tuple[Array, list[Card]]] = {}
        names: set[str] = set().union(*(one.segment.encoder.names for one in held))
        self.paths = [(name, split_name(name)) for name in sorted(names)]
        self.sorts: dict[str, PartSort] = {}
        self.odd = frozenset().union(*(one.segment.encoder.odd_names for one in held))
        self.has_ids = all(one.plain is not None for one in held)

    def prepare_as(self, before: Together) -> None:
        """Make the tables that others had, if events still have the same parts."""
        self.sorts = before.sorts
        if self.paths == before.paths:
            for key in list(before._tables):
                self.tables(key)

    def tables(self, key: Key) -> Array | None:
        """The tables of all segments for events with certain parts; None where one of them has none."""
        made = self._tables.get(key)
        if made is None:
            if len(self._tables) >= _TABLES_MAX:
                self._tables.clear()
            cards = [card for held in self._held if (card := held.segment.card(key)) is not None]
            if len(cards) < len(self._held):
                return None
            tables = np.stack([card.table for card in cards])
            tables[:, _OWN : TABLE - 1] = [held.own_places for held in self._held]
            made = self._tables[key] = tables, cards
        return made[0]


class Found(NamedTuple):
    """The matches of a few events, segment by segment."""

    numbers: Array
    events: Array
    orders: Array
    ids: Array  # nothing where not all are integers
    ends: list[int]  # where those of each segment end


class _Room:
    """What `few_avx512` writes on, and its results."""

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


_free: list[_Room] = []


def match_few(together: Together, few: Few, base: int, vector: bool) -> Found | None:
    """All matches of a few events; None where they have to be matched as many are."""
    tables = together.tables(few.key)
    if tables is None:
        return None
    ranks = max(few.valid.shape[1], 1) * int(tables[:, -1].max())
    match = (few_avx512 if vector else few_portable).brief  # type: ignore[attr-defined]
    ends = np.empty(len(tables), np.int64)
    try:
        room = _free.pop()
    except IndexError:
        room = _Room(_ROOM, ranks)
    if len(room.ranks) < ranks:
        room.ranks = np.empty(ranks, np.int32)
    while (found := match(tables, base, *few[1:], *room.arrays, ends)) < 0:
        if room.size >= _ROOM_MAX:
            return None
        room = _Room(2 * room.size, ranks)
    numbers, events = room.pairs[:, :found].copy()
    orders, ids = room.told[:, :found].copy()
    if len(_free) < _FREE_MAX:
        _free.append(room)
    return Found(numbers, events, orders, ids if together.has_ids else _NOTHING, ends.tolist())
