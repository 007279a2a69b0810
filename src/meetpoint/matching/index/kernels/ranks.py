"""Ranks of values: how many cuts of a line lie below each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meetpoint.matching.index.kernels.jit import (
    address_of,
    array_at,
    at_most8,
    byte_at,
    inlined,
    kernel,
    long_at,
    piece,
    word_at,
)

__all__ = [
    "BACK_STEP",
    "EIGHT",
    "KEY_STEP",
    "NUMBER_STEP",
    "STEP_FIELDS",
    "TEXT_STEP",
    "THERE_STEP",
    "TRUTH_STEP",
    "ZERO_STEP",
    "TextCache",
    "double_ranks",
    "few_ranks",
    "line_ranks",
    "text_ranks",
]

Array = Any
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
EIGHT = 8
"""Thresholds that are compared at once: so many follow behind the last."""
NUMBER_STEP, TEXT_STEP, BACK_STEP, KEY_STEP, TRUTH_STEP, THERE_STEP, ZERO_STEP = range(7)
"""Sorts of steps of `few_ranks`.

The rank of a double, of a text, of a text backwards, of a key; a key that is a rank; 1 where there is a value; 0 for
every event.
"""
STEP_FIELDS = 10
"""Numbers of a step.

Its sort, its part, its slot; the address and number of cuts; the address and length of the grid or of the bytes of
texts; for a double or a key `first`, `shift` and `base`.
"""
_PROBES = 16
_LARGEST = np.int64(2**63 - 1)
_MINUS_ZERO = np.int64(-(2**63))
_INFINITY = np.int64(0x7FF0000000000000)


@inlined
def _rank_between(key, keys, thresholds, count, low, high):
    """Return how many of the first `count` thresholds are at most a key, a number between `low` and `high`.

    `keys` is the address of the thresholds. Behind `count` there are eight more, so that eight can be counted at once,
    which is quicker than guessing which half.
    """
    while high - low > EIGHT:
        middle = (low + high) >> 1
        if thresholds[middle] <= key:
            low = middle + 1
        else:
            high = middle
    return min(low + at_most8(keys + EIGHT * low, key), count)


@inlined
def _rank(key, keys, thresholds, count, grid, first, shift):
    """Return how many thresholds are at most a key; `grid` narrows the search by the key's distance from `first`.

    The first and the last cell are open on their outer side.
    """
    cell = np.int64(0)
    if key > first:
        far = (np.uint64(key) - np.uint64(first)) >> np.uint64(shift)
        cell = np.int64(min(far, np.uint64(len(grid) - 2)))
    return _rank_between(key, keys, thresholds, count, np.int64(grid[cell]), np.int64(grid[cell + 1]))


@kernel
def line_ranks(values, valid, thresholds, count, grid, first, shift, base, ranks, slot):
    """Write the rank of each valid key, counted from `base`: how many of `count` thresholds are at most the key."""
    keys = address_of(thresholds)
    for e in range(len(values)):
        if valid[e]:
            ranks[e, slot] = base + _rank(values[e], keys, thresholds, count, grid, first, shift)


@inlined
def _double_key(bits):
    """Return an integer of the same order as doubles; -0.0 is 0.0, NaN the largest."""
    if bits & _LARGEST > _INFINITY:
        return _LARGEST
    if bits < 0:
        return -(bits & _LARGEST) - 1 if bits != _MINUS_ZERO else np.int64(0)
    return bits


@inlined
def _double_rank(value, keys, thresholds, count, grid, cells, first, shift, least, scale):
    key = _double_key(np.float64(value).view(np.int64))
    if scale == 0.0:
        return _rank(key, keys, thresholds, count, grid, first, shift)
    far = (value - least) * scale
    cell = np.int64(0)
    if far >= 1.0:
        cell = np.int64(far) if far < cells else cells - 1
    elif value != value:
        cell = cells - 1
    return _rank_between(key, keys, thresholds, count, np.int64(grid[cell]), np.int64(grid[cell + 1]))


@kernel
def double_ranks(values, valid, thresholds, count, grid, first, shift, least, scale, base, ranks, slot):
    """Write the ranks of doubles, by their keys.

    The grid is even either on the keys or, if `scale` is not 0, on the values: `scale` cells for 1 from `least` on.
    """
    keys = address_of(thresholds)
    cells = np.int64(len(grid) - 1)
    for e in range(len(values)):
        if not valid[e]:
            continue
        rank = _double_rank(values[e], keys, thresholds, count, grid, cells, first, shift, least, scale)
        ranks[e, slot] = base + rank


class TextCache(NamedTuple):
    """Ranks of texts seen before, in a hash table: two words of the text, its length and place, its two ranks.

    A text of up to sixteen bytes is its length and its two words; longer ones are compared byte by byte. `filled` holds
    how many there are and how many of the bytes are used.
    """

    filled: Array  # [2]
    table: Array  # uint64[capacity, 4]; a length and place of 0 is a free one
    data: Array


@inlined
def _words(data, length):
    """Return the first and the last eight bytes at an address, or all of them if there are fewer."""
    if length >= 8:
        return long_at(data), long_at(data + length - 8)
    if length >= 4:
        return word_at(data) | word_at(data + length - 4) << np.uint64(32), np.uint64(0)
    if length == 0:
        return np.uint64(0), np.uint64(0)
    return (
        byte_at(data) | byte_at(data + (length >> 1)) << np.uint64(8) | byte_at(data + length - 1) << np.uint64(16),
        np.uint64(0),
    )


@piece
def _compare(data, start, end, cut_start, cut_end, cuts, backwards):
    """Return whether a cut is at most a text, byte by byte; backwards, by characters and with a reversed cut."""
    if not backwards:
        shared = min(end - start, cut_end - cut_start)
        for i in range(shared):
            a, b = data[start + i], cuts[cut_start + i]
            if a != b:
                return b < a
        return cut_end - cut_start <= end - start
    at, c = end, cut_start
    while at > start and c < cut_end:
        head = at - 1
        while head > start and (data[head] & 0xC0) == 0x80:
            head -= 1
        for i in range(head, at):
            if c == cut_end:
                return True
            a, b = data[i], cuts[c]
            if a != b:
                return b < a
            c += 1
        at = head
    return c == cut_end


@piece
def _text_rank(data, start, end, offsets, cuts, backwards):
    low, high = 0, len(offsets) - 1
    while low < high:
        middle = (low + high) >> 1
        if _compare(data, start, end, offsets[middle], offsets[middle + 1], cuts, backwards):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def text_ranks(data, starts, ends, valid, offsets, cuts, back_offsets, back_cuts, cache, ranks, slot, back_slot):
    """Write ranks of texts forwards and backwards (a slot of -1: not wanted), by the cache or by search."""
    filled, table, held = cache.filled, cache.table, cache.data
    address = address_of(data)
    capacity = len(table)
    for e in range(len(starts)):
        if not valid[e]:
            continue
        start, end = starts[e], ends[e]
        length = end - start
        first, last = _words(address + start, length)
        mixed = (first ^ (last >> np.uint64(31)) ^ (last << np.uint64(33)) ^ np.uint64(length)) * _MULTIPLIER
        for i in range(8, length - 8, 8):  # what lies between the first and the last eight bytes
            mixed = (mixed ^ (mixed >> np.uint64(29)) ^ long_at(address + start + i)) * _MULTIPLIER
        place = np.int64((mixed >> np.uint64(40)) & np.uint64(capacity - 1))
        found = False
        tried = 0
        while table[place, 2] != 0 and tried < _PROBES:
            tried += 1
            if (
                table[place, 0] == first
                and table[place, 1] == last
                and table[place, 2] >> np.uint64(32) == np.uint64(length + 1)
            ):
                found = True
                if length > 16:
                    at = np.int64(table[place, 2] & np.uint64(0xFFFFFFFF))
                    for i in range(length):
                        if held[at + i] != data[start + i]:
                            found = False
                            break
                if found:
                    break
            place = (place + 1) & (capacity - 1)
        if found:
            both = table[place, 3]
            if slot >= 0:
                ranks[e, slot] = np.int64(both >> np.uint64(32))
            if back_slot >= 0:
                ranks[e, back_slot] = np.int64(both & np.uint64(0xFFFFFFFF))
            continue
        forward = backward = np.int64(0)
        if slot >= 0:
            forward = _text_rank(data, start, end, offsets, cuts, False)
            ranks[e, slot] = forward
        if back_slot >= 0:
            backward = _text_rank(data, start, end, back_offsets, back_cuts, True)
            ranks[e, back_slot] = backward
        if table[place, 2] == 0 and 2 * filled[0] < capacity and (length <= 16 or filled[1] + length <= len(held)):
            at = filled[1]
            if length > 16:
                for i in range(length):
                    held[at + i] = data[start + i]
                filled[1] += length
            table[place, 0] = first
            table[place, 1] = last
            table[place, 2] = np.uint64(length + 1) << np.uint64(32) | np.uint64(at)
            table[place, 3] = np.uint64(forward) << np.uint64(32) | np.uint64(backward)
            filled[0] += 1


@inlined
def _few_numbers(step, scales, valid, values, keys, ranks):
    """Run one step of `few_ranks` for doubles or keys."""
    sort, part, slot, thresholds_at, count, cells = step[0], step[1], step[2], step[3], step[4], step[6] - 1
    first, shift, base = step[7], step[8], step[9]
    thresholds = array_at(thresholds_at, count + EIGHT, np.int64)
    grid = array_at(step[5], cells + 1, np.int32)
    for e in range(len(ranks)):
        if not valid[part, e]:
            continue
        if sort == NUMBER_STEP:
            rank = _double_rank(
                values[part, e], thresholds_at, thresholds, count, grid, cells, first, shift, scales[0], scales[1]
            )
        else:
            rank = _rank(keys[part, e], thresholds_at, thresholds, count, grid, first, shift)
        ranks[e, slot] = base + rank


@kernel
def few_ranks(steps, scales, valid, values, keys, data, starts, ends, ranks):
    """Write the ranks of a few events on all lines of a segment: calls of kernels would take longer than the search.

    `steps` says by STEP_FIELDS where the cuts of each line are, `scales` has `least` and `scale` of those of doubles;
    the parts of events are rows. Texts go without a cache, since a few events do not repeat them. A rank that no step
    finds is -1.
    """
    ranks[:] = -1
    for s in range(len(steps)):
        step = steps[s]
        sort, part, slot, count = step[0], step[1], step[2], step[4]
        if sort in (NUMBER_STEP, KEY_STEP):
            _few_numbers(step, scales[s], valid, values, keys, ranks)
        elif sort in (TEXT_STEP, BACK_STEP):
            offsets = array_at(step[3], count + 1, np.int64)
            cuts = array_at(step[5], step[6], np.uint8)
            for e in range(len(ranks)):
                if valid[part, e]:
                    ranks[e, slot] = _text_rank(data, starts[part, e], ends[part, e], offsets, cuts, sort == BACK_STEP)
        else:
            for e in range(len(ranks)):
                if sort == ZERO_STEP:
                    ranks[e, slot] = 0
                elif valid[part, e]:
                    ranks[e, slot] = keys[part, e] if sort == TRUTH_STEP else 1
