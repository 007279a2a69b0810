"""A few events against all segments by one call: Python takes longer between two kernels than the kernels take.

The addresses of a segment's arrays lie in a table, made once, so that a call has nothing to unpack. The GIL is kept, so
that one call at a time uses the arrays that segments have to write on (the marks of what was tried).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meetpoint.matching.index.kernels.bucket_scan import (
    Buckets,
    Sides,
    drop_dead,
    finish,
    list_pairs,
    match_avx512,
    match_portable,
)
from meetpoint.matching.index.kernels.jit import array_at, inlined, kernel, piece
from meetpoint.matching.index.kernels.patterns import FEW_FITS, Grams, fitting_patterns
from meetpoint.matching.index.kernels.ranks import STEP_FIELDS, few_ranks

__all__ = ["FIELDS", "GRAM_TYPES", "LAYOUT", "TABLE", "few_avx512", "few_portable"]

_ACCESS = {"slots": np.int32, "offsets": np.int64, "head": np.int32, "parent": np.int32, "fit_bucket": np.int32}
_BUCKETS = {
    "begin": np.int32, "block": np.uint32, "test": np.int32, "side": np.int32, "number": np.int32, "slot": np.uint8,
    "low": np.int32, "width": np.uint32, "zone_slot": np.uint8, "zone_low": np.int32, "zone_width": np.uint32,
}  # fmt: skip
_SIDES = {
    "side_start": np.int32, "side_test": np.int32, "set_start": np.int32, "set_slot": np.uint32, "set_first": np.int32,
    "set_last": np.int32,
}  # fmt: skip
LAYOUT = (*_ACCESS, *_BUCKETS, *_SIDES)
"""The arrays of a segment's layout, in its order."""
FIELDS: dict[str, Any] = {
    "steps": np.int64, "scales": np.float64, "grams": np.int64, **_ACCESS, **_BUCKETS, **_SIDES, "mark": np.int64,
    "fit_tried": np.int64, "tried": np.int64, "dead": np.uint8, "orders": np.int64, "ids": np.int64,
}  # fmt: skip
"""All arrays of a segment and their types; the table has the address and the length of each."""
TABLE = 2 * len(FIELDS) + 1
"""Numbers of a table; the last one is how many ranks an event has."""
GRAM_TYPES = np.int32, np.uint16, np.uint64, np.int64, np.uint64, np.int64, np.int64
"""The types of the arrays of Grams."""
_GRAM_FIELDS = 1 + 2 * len(GRAM_TYPES)
"""Numbers for each table of grams: the part whose texts it is for, then address and length of its arrays."""
(
    _STEPS, _SCALES, _GRAMS, _SLOTS, _OFFSETS, _HEAD, _PARENT, _FIT_BUCKET, _BEGIN, _BLOCK, _TEST, _SIDE, _NUMBER,
    _SLOT, _LOW, _WIDTH, _ZONE_SLOT, _ZONE_LOW, _ZONE_WIDTH, _SIDE_START, _SIDE_TEST, _SET_START, _SET_SLOT,
    _SET_FIRST, _SET_LAST, _MARK, _FIT_TRIED, _TRIED, _DEAD, _ORDERS, _IDS,
) = range(0, 2 * len(FIELDS), 2)  # fmt: skip


@inlined
def _array(table, field, dtype):
    return array_at(table[field], table[field + 1], dtype)


@piece
def _buckets(table):
    return Buckets(
        _array(table, _BEGIN, np.int32), _array(table, _BLOCK, np.uint32), _array(table, _TEST, np.int32),
        _array(table, _SIDE, np.int32), _array(table, _NUMBER, np.int32), _array(table, _SLOT, np.uint8),
        _array(table, _LOW, np.int32), _array(table, _WIDTH, np.uint32), _array(table, _ZONE_SLOT, np.uint8),
        _array(table, _ZONE_LOW, np.int32), _array(table, _ZONE_WIDTH, np.uint32),
    )  # fmt: skip


@piece
def _sides(table):
    return Sides(
        _array(table, _SIDE_START, np.int32), _array(table, _SIDE_TEST, np.int32), _array(table, _SET_START, np.int32),
        _array(table, _SET_SLOT, np.uint32), _array(table, _SET_FIRST, np.int32), _array(table, _SET_LAST, np.int32),
    )  # fmt: skip


@piece
def _fitting(table, e, valid, data, starts, ends, mark, fit, counts):
    """Write the patterns of a segment that fit an event to `fit`; return how many, or -1 without enough room."""
    tried = _array(table, _FIT_TRIED, np.int64)
    k = 0
    for g in range(0, table[_GRAMS + 1], _GRAM_FIELDS):
        gram = _array(table, _GRAMS, np.int64)[g : g + _GRAM_FIELDS]
        part, arrays = gram[0], gram[1:]
        if not valid[part, e]:
            continue
        grams = Grams(
            _array(arrays, 0, np.int32), _array(arrays, 2, np.uint16),
            _array(arrays, 4, np.uint64).reshape((arrays[5] >> 2, 4)), _array(arrays, 6, np.int64),
            _array(arrays, 8, np.uint64), _array(arrays, 10, np.int64), _array(arrays, 12, np.int64),
        )  # fmt: skip
        k += fitting_patterns(
            data, starts[part, e : e + 1], ends[part, e : e + 1], valid[part, e : e + 1], grams, tried, mark, fit[k:],
            counts,
        )  # fmt: skip
        if k > len(fit):
            return -1
    if k > FEW_FITS:
        fit[:k].sort()
    return k


@inlined
def _match(
    scan, tables, base, valid, values, keys, data, starts, ends, all_ranks, fit, buckets, met, held_block, held_event,
    held_lanes, more, more_of, numbers, events, orders, ids, ends_of,
):  # fmt: skip
    count = valid.shape[1]
    fit_start, fit_count = np.zeros(2, np.int64), np.zeros(1, np.int64)
    k = 0
    for s in range(len(tables)):
        table = tables[s]
        ranks = all_ranks[: count * table[TABLE - 1]].reshape((count, table[TABLE - 1]))
        steps = _array(table, _STEPS, np.int64).reshape((table[_STEPS + 1] // STEP_FIELDS, STEP_FIELDS))
        scales = _array(table, _SCALES, np.float64).reshape((len(steps), 2))
        few_ranks(steps, scales, valid, values, keys, data, starts, ends, ranks)
        of_segment, sides = _buckets(table), _sides(table)
        mark, tried = _array(table, _MARK, np.int64), _array(table, _TRIED, np.int64)
        first = k
        for e in range(count):
            event = ranks[e : e + 1]
            mark[0] += 1
            fit_start[1] = _fitting(table, e, valid, data, starts, ends, mark[0], fit, fit_count)
            if fit_start[1] < 0:
                return -1
            pairs = list_pairs(
                event, _array(table, _SLOTS, np.int32), _array(table, _OFFSETS, np.int64),
                _array(table, _HEAD, np.int32), _array(table, _PARENT, np.int32), fit_start, fit,
                _array(table, _FIT_BUCKET, np.int32), buckets, met,
            )  # fmt: skip
            if pairs >= len(buckets):
                return -1
            at, found, held = scan(
                buckets[:pairs], met, 0, base + e, event, of_segment, numbers[k:], events[k:], held_block, held_event,
                held_lanes,
            )  # fmt: skip
            if at < pairs:
                return -1
            found, again = finish(
                base + e, event, fit_start, fit, of_segment, sides, held_block[:held], held_event[:held],
                held_lanes[:held], found, numbers[k:], events[k:], more, more_of,
            )  # fmt: skip
            k += found
            for i in range(again):
                number = more[i]
                if tried[number] != mark[0]:
                    tried[number] = mark[0]
                    numbers[k] = number
                    events[k] = base + e
                    k += 1
        if table[_DEAD + 1] > 0:
            k = first + drop_dead(numbers[first:k], events[first:k], _array(table, _DEAD, np.uint8))
        order_of, id_of = _array(table, _ORDERS, np.int64), _array(table, _IDS, np.int64)
        for i in range(first, k):
            orders[i] = order_of[numbers[i]]
            if len(id_of) > 0:
                ids[i] = id_of[numbers[i]]
        ends_of[s] = k
    return k


@kernel
def few_avx512(
    tables, base, valid, values, keys, data, starts, ends, ranks, fit, buckets, met, held_block, held_event, held_lanes,
    more, more_of, numbers, events, orders, ids, ends_of,
):  # fmt: skip
    """Write all matches of a few events, segment by segment; return how many, or -1 if there is too little room.

    The parts of events are rows, as for `few_ranks`; events are numbered from `base` on. The matches of segment s end
    at ends_of[s]; each has the order, and the id if those of the segment are integers. All arguments between the events
    and the numbers are scratch.
    """
    return _match(
        match_avx512, tables, base, valid, values, keys, data, starts, ends, ranks, fit, buckets, met, held_block,
        held_event, held_lanes, more, more_of, numbers, events, orders, ids, ends_of,
    )  # fmt: skip


@kernel
def few_portable(
    tables, base, valid, values, keys, data, starts, ends, ranks, fit, buckets, met, held_block, held_event, held_lanes,
    more, more_of, numbers, events, orders, ids, ends_of,
):  # fmt: skip
    """Write the same pairs on any machine."""
    return _match(
        match_portable, tables, base, valid, values, keys, data, starts, ends, ranks, fit, buckets, met, held_block,
        held_event, held_lanes, more, more_of, numbers, events, orders, ids, ends_of,
    )  # fmt: skip
