"""The scan of buckets: events meet the buckets that they lead to, and the entries of a bucket are tested.

(bucket, event) pairs are sorted by bucket, so that a bucket is read once for all its events. A test holds where `rank -
low`, unsigned, is at most `width`. `match_portable` runs anywhere, `match_avx512` with the AVX-512 instructions of
`jit`; they find the same pairs, each in an order of its own.

Matches are then grouped by event, made unique, and dropped if their subscription has a tombstone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meetpoint.matching.index.kernels.jit import (
    address_of,
    compress16,
    fetch_test16,
    fetch_wide_test16,
    gather_test16,
    inlined,
    kernel,
    lowest,
    permute_test16,
    piece,
    splat16,
    splat_test16,
)
from meetpoint.matching.index.kernels.patterns import FEW_FITS

__all__ = [
    "BLOCK",
    "LANES",
    "MULTIPLE",
    "SIDED",
    "SIDE_FITS",
    "SIDE_FITS_NOT",
    "SIDE_IN_SET",
    "UNIFORM",
    "ZONED_MIN",
    "Buckets",
    "Sides",
    "drop_dead",
    "drop_doubles",
    "finish",
    "group_by_event",
    "list_pairs",
    "match_avx512",
    "match_portable",
    "sort_pairs",
]


Array = Any
BLOCK = 16
"""Entries that one vector instruction tests, and that a zone sums up."""
LANES = 0xFFFF
"""The bits of a block that say which of its sixteen places hold an entry."""
UNIFORM, SIDED, MULTIPLE = 1 << 16, 1 << 17, 1 << 18
"""Flags of a block.

Its first tests are all of one slot; its entries have side tests; its subscriptions could match an event by several
entries.
"""
ZONED_MIN = 6
"""Blocks of a bucket that make its zones worth a look."""
SIDE_FITS, SIDE_FITS_NOT, SIDE_IN_SET = 0, 1, 2
"""Questions of a side test, in its two lowest bits: a pattern fits, it does not, the rank is in a set."""

_BLOCK, _BYTES = np.int64(BLOCK), np.int64(4 * BLOCK)
_FOUR = np.int64(4)
_FULL = np.int64(LANES)


class Buckets(NamedTuple):
    """The contents of the buckets: blocks of up to sixteen entries, and their tests.

    All entries of a block have equally many tests, some of which always hold. They lie side by side: first all sixteen
    first tests, the most selective of each entry, then all second ones.
    """

    begin: Array  # int32[buckets + 1] where the blocks of a bucket begin
    block: Array  # uint32[blocks] which places hold an entry, and the flags above
    test: Array  # int32[blocks + 1] where the tests of a block begin, in sixteens
    side: Array  # int32[blocks] where the side tests of a sided block begin in Sides.start; nothing if there is none
    number: Array  # int32[16 * blocks] the subscription's number
    slot: Array  # [16 * tests] which rank of the event is tested
    low: Array
    width: Array
    zone_slot: Array  # [blocks] the same for a zone, with bounds around those of a block's first tests
    zone_low: Array
    zone_width: Array


class Sides(NamedTuple):
    """Side tests, which are no interval of one line: each is a number and, in its two lowest bits, the question."""

    start: Array  # where the side tests of an entry begin
    test: Array
    set_start: Array  # [sets + 1]
    set_slot: Array  # [sets]
    set_first: Array  # intervals of ranks, in order
    set_last: Array


@kernel
def list_pairs(ranks, slots, offsets, head, parent, fit_start, fit, fit_bucket, buckets, events):
    """List the buckets that each event leads to, slot by slot; return their number, which may exceed the room.

    One place of the room is written before it is known whether it is used. `parent` ends with a -1, so that the parent
    of no bucket, which is -1, is no bucket.
    """
    k = 0
    room = len(buckets) - 1
    for a in range(len(slots)):
        slot, offset = slots[a], offsets[a]
        for e in range(len(ranks)):
            rank = ranks[e, slot]
            if rank < 0:
                continue
            bucket = head[offset + rank]
            if k < room:  # one step without asking whether there is a bucket: most often there is
                buckets[k] = bucket
                events[k] = e
                k += bucket >= 0
                bucket = parent[bucket]
            while bucket >= 0:
                if k < room:
                    buckets[k] = bucket
                    events[k] = e
                k += 1
                bucket = parent[bucket]
    for e in range(len(ranks)):
        for i in range(fit_start[e], fit_start[e + 1]):
            bucket = fit_bucket[fit[i]]
            if k < room:
                buckets[k] = bucket
                events[k] = e
            k += bucket >= 0
    return k


@kernel
def sort_pairs(buckets, events, starts, sorted_buckets, sorted_events):
    """Sort pairs by bucket; `starts` has a place per bucket and one more, all of them overwritten."""
    starts[:] = 0
    for i in range(len(buckets)):
        starts[buckets[i] + 1] += 1
    for b in range(len(starts) - 1):
        starts[b + 1] += starts[b]
    for i in range(len(buckets)):
        bucket = buckets[i]
        at = starts[bucket]
        starts[bucket] = at + 1
        sorted_buckets[at] = bucket
        sorted_events[at] = events[i]


@piece
def _sides_hold(start, test, set_start, set_slot, set_first, set_last, q, e, ranks, fit_start, fit):
    """Return whether the side tests of an entry hold for an event."""
    for i in range(start[q], start[q + 1]):
        asked = test[i] & 3
        argument = test[i] >> 2
        if asked == SIDE_IN_SET:
            rank = ranks[e, set_slot[argument]]
            low, high = np.int64(set_start[argument]), np.int64(set_start[argument + 1])
            end = high
            while low < high:  # the first interval that ends at the rank or later
                middle = (low + high) >> 1
                if set_last[middle] < rank:
                    low = middle + 1
                else:
                    high = middle
            if low == end or rank < set_first[low]:
                return False
        else:
            low, high = fit_start[e], fit_start[e + 1]
            end = high
            if end - low <= FEW_FITS:
                while low < end and fit[low] != argument:
                    low += 1
            else:
                while low < high:
                    middle = (low + high) >> 1
                    if fit[middle] < argument:
                        low = middle + 1
                    else:
                        high = middle
            fits = low < end and fit[low] == argument
            if fits != (asked == SIDE_FITS):
                return False
    return True


@inlined
def _fetch_block(wide, slot, low, width, event, t):
    """Return the sixteen tests of number `t`, given the addresses of the arrays; `wide` slots have two bytes."""
    if wide:
        return fetch_wide_test16(slot + 2 * _BLOCK * t, low + _BYTES * t, width + _BYTES * t, event)
    return fetch_test16(slot + _BLOCK * t, low + _BYTES * t, width + _BYTES * t, event)


@kernel
def match_portable(buckets, events, start, base, ranks, b, out_number, out_event, held_block, held_event, held_lanes):
    """Scan the pairs from `start` on; return the next pair, the number of matches, and of blocks held back.

    A pair is begun only if all entries of its bucket, and sixteen more, would fit the room left. Events are numbered
    from `base` on. Blocks with side tests, and of subscriptions that may match an event twice, are held back for
    `finish`, with the entries whose tests hold.
    """
    begin, block_of, test, numbers, slots_of = b.begin, b.block, b.test, b.number, b.slot
    slot, low, width = address_of(b.slot), address_of(b.low), address_of(b.width)
    zone_slot, zone_low, zone_width = b.zone_slot, b.zone_low, b.zone_width
    slots = np.int64(ranks.shape[1])
    rows = address_of(ranks)
    wide = b.slot.itemsize == 2
    k = held = np.int64(0)
    for p in range(start, len(buckets)):
        first, last = np.int64(begin[buckets[p]]), np.int64(begin[buckets[p] + 1])
        e = np.int64(events[p])
        if k + (held + last - first + 1) * BLOCK > len(out_number):
            return p, k, held
        event = rows + e * slots * _FOUR
        zoned = last - first >= ZONED_MIN
        for block in range(first, last):
            if zoned and np.uint32(ranks[e, zone_slot[block]] - zone_low[block]) > zone_width[block]:
                continue
            info = np.int64(block_of[block])
            hold = info & _FULL
            t, end = np.int64(test[block]), np.int64(test[block + 1])
            if t < end:
                if info & UNIFORM:
                    rank = np.int64(ranks[e, slots_of[t * BLOCK]])
                    hold &= splat_test16(rank, low + _BYTES * t, width + _BYTES * t)
                else:
                    hold &= _fetch_block(wide, slot, low, width, event, t)
                t += 1
            while t < end and hold != 0:
                hold &= _fetch_block(wide, slot, low, width, event, t)
                t += 1
            if info >= SIDED:
                if hold != 0:
                    held_block[held], held_event[held], held_lanes[held] = block, e, hold
                    held += 1
                continue
            while hold != 0:
                out_number[k] = numbers[block * BLOCK + lowest(hold)]
                out_event[k] = base + e
                hold &= hold - 1
                k += 1
    return len(buckets), k, held


@inlined
def _test_block(narrow, slot, low, width, event, t):
    """Return sixteen tests from `t` on, given the addresses of the arrays."""
    if narrow:
        return permute_test16(slot + t, low + _FOUR * t, width + _FOUR * t, event)
    return gather_test16(slot + t, low + _FOUR * t, width + _FOUR * t, event)


@inlined
def _test_events(narrow, many, slot, low, width, rows, t, hold0, hold1, hold2, hold3):
    """Return sixteen tests for each of up to four events, of which there are `many`."""
    row0, row1, row2, row3 = rows
    hold0 &= _test_block(narrow, slot, low, width, row0, t)
    if many > 1:
        hold1 &= _test_block(narrow, slot, low, width, row1, t)
    if many > 2:
        hold2 &= _test_block(narrow, slot, low, width, row2, t)
        hold3 &= _test_block(narrow, slot, low, width, row3, t)
    return hold0, hold1, hold2, hold3


@inlined
def _scan_bucket(
    narrow, many, first, last, named, rows, block_of, test, number, tests, zones, outs, events_out, k,
    held_block, held_event, held_lanes, held, base,
):  # fmt: skip
    """Scan one bucket for four, two or one events: data that is loaded for one serves all of them."""
    slot, low, width = tests
    name0, name1, name2, name3 = named
    for z in range(first, last, BLOCK):
        blocks = _FULL if last - z >= BLOCK else (np.int64(1) << (last - z)) - 1
        if last - first >= ZONED_MIN:
            some0, some1, some2, some3 = _test_events(narrow, many, *zones, rows, z, blocks, blocks, blocks, blocks)
            blocks = some0
            if many > 1:
                blocks |= some1
            if many > 2:
                blocks |= some2 | some3
        while blocks != 0:
            block = z + lowest(blocks)
            blocks &= blocks - 1
            info = np.int64(block_of[block])
            hold0 = hold1 = hold2 = hold3 = info & _FULL
            t, end = np.int64(test[block]) * _BLOCK, np.int64(test[block + 1]) * _BLOCK
            if t < end:
                hold0, hold1, hold2, hold3 = _test_events(
                    narrow, many, slot, low, width, rows, t, hold0, hold1, hold2, hold3
                )
                t += BLOCK
                more = hold0
                if many > 1:
                    more |= hold1
                if many > 2:
                    more |= hold2 | hold3
                if many == 1 and t < end:  # without asking first: a wrong guess takes longer
                    hold0 &= _test_block(narrow, slot, low, width, rows[0], t)
                    t += BLOCK
                    more = hold0
                while t < end and more != 0:
                    hold0, hold1, hold2, hold3 = _test_events(
                        narrow, many, slot, low, width, rows, t, hold0, hold1, hold2, hold3
                    )
                    t += BLOCK
                    more = hold0
                    if many > 1:
                        more |= hold1
                    if many > 2:
                        more |= hold2 | hold3
            if info >= SIDED:
                held_block[held], held_event[held], held_lanes[held] = block, name0 - base, hold0
                held += hold0 != 0
                if many > 1:
                    held_block[held], held_event[held], held_lanes[held] = block, name1 - base, hold1
                    held += hold1 != 0
                if many > 2:
                    held_block[held], held_event[held], held_lanes[held] = block, name2 - base, hold2
                    held += hold2 != 0
                    held_block[held], held_event[held], held_lanes[held] = block, name3 - base, hold3
                    held += hold3 != 0
                continue
            numbers = number + _BYTES * block
            splat16(events_out + _FOUR * k, name0)
            k += compress16(numbers, outs + _FOUR * k, hold0)
            if many > 1:
                splat16(events_out + _FOUR * k, name1)
                k += compress16(numbers, outs + _FOUR * k, hold1)
            if many > 2:
                splat16(events_out + _FOUR * k, name2)
                k += compress16(numbers, outs + _FOUR * k, hold2)
                splat16(events_out + _FOUR * k, name3)
                k += compress16(numbers, outs + _FOUR * k, hold3)
    return k, held


@inlined
def _scan(narrow, buckets, events, start, base, ranks, b, out_number, out_event, held_block, held_event, held_lanes):
    begin, block_of, test = b.begin, b.block, b.test
    number = address_of(b.number)
    tests = address_of(b.slot), address_of(b.low), address_of(b.width)
    zones = address_of(b.zone_slot), address_of(b.zone_low), address_of(b.zone_width)
    outs, events_out = address_of(out_number), address_of(out_event)
    stride = np.int64(ranks.shape[1]) * _FOUR
    row = address_of(ranks)
    k = held = np.int64(0)
    p = np.int64(start)
    while p < len(buckets):
        bucket = buckets[p]
        first, last = np.int64(begin[bucket]), np.int64(begin[bucket + 1])
        e0 = e1 = e2 = e3 = np.int64(events[p])
        many = 1
        if p + 1 < len(buckets) and buckets[p + 1] == bucket:
            many = 2
            e1 = np.int64(events[p + 1])
            if p + 3 < len(buckets) and buckets[p + 2] == bucket and buckets[p + 3] == bucket:
                many = 4
                e2, e3 = np.int64(events[p + 2]), np.int64(events[p + 3])
        if k + (held + many * (last - first) + 1) * BLOCK > len(out_number):
            if many == 1 or k + (held + last - first + 1) * BLOCK > len(out_number):
                return p, k, held
            many = 1
        named = base + e0, base + e1, base + e2, base + e3
        rows = row + e0 * stride, row + e1 * stride, row + e2 * stride, row + e3 * stride
        if many == 4:
            k, held = _scan_bucket(
                narrow, 4, first, last, named, rows, block_of, test, number, tests, zones, outs, events_out, k,
                held_block, held_event, held_lanes, held, base,
            )  # fmt: skip
        elif many == 2:
            k, held = _scan_bucket(
                narrow, 2, first, last, named, rows, block_of, test, number, tests, zones, outs, events_out, k,
                held_block, held_event, held_lanes, held, base,
            )  # fmt: skip
        else:
            k, held = _scan_bucket(
                narrow, 1, first, last, named, rows, block_of, test, number, tests, zones, outs, events_out, k,
                held_block, held_event, held_lanes, held, base,
            )  # fmt: skip
        p += many
    return p, k, held


@kernel
def match_avx512(buckets, events, start, base, ranks, b, out_number, out_event, held_block, held_event, held_lanes):
    """Scan pairs like `match_portable`, sixteen entries at a time, and up to four events that meet a bucket.

    Branches are few, since mispredicted ones take the longest.
    """
    if ranks.shape[1] == BLOCK:
        return _scan(
            True, buckets, events, start, base, ranks, b, out_number, out_event, held_block, held_event, held_lanes
        )  # fmt: skip
    return _scan(
        False, buckets, events, start, base, ranks, b, out_number, out_event, held_block, held_event, held_lanes
    )  # fmt: skip


@kernel
def finish(
    base, ranks, fit_start, fit, b, sides, held_block, held_event, held_lanes, k, out_number, out_event, more_number,
    more_event,
):  # fmt: skip
    """Ask the side tests of blocks that were held back; return the number of matches in each of the two outputs.

    Matches that an event may have twice go to the second one, from 0 on, and their events are not numbered from `base`.
    """
    block_of, numbers, block_side, side_start, side_test = b.block, b.number, b.side, sides.start, sides.test
    set_start, set_slot, set_first, set_last = sides.set_start, sides.set_slot, sides.set_first, sides.set_last
    m = 0
    for i in range(len(held_block)):
        block, e, hold = held_block[i], held_event[i], np.int64(held_lanes[i])
        info = block_of[block]
        while hold != 0:
            lane = lowest(hold)
            hold &= hold - 1
            if info & SIDED and not _sides_hold(
                side_start, side_test, set_start, set_slot, set_first, set_last, block_side[block] + lane,
                e, ranks, fit_start, fit,
            ):  # fmt: skip
                continue
            if info & MULTIPLE:
                more_number[m] = numbers[block * BLOCK + lane]
                more_event[m] = e
                m += 1
            else:
                out_number[k] = numbers[block * BLOCK + lane]
                out_event[k] = base + e
                k += 1
    return k, m


@kernel
def group_by_event(events, numbers, starts, grouped):
    """Group numbers by event; those of event e begin at starts[e]."""
    starts[:] = 0
    for i in range(len(events)):
        starts[events[i] + 1] += 1
    for e in range(len(starts) - 1):
        starts[e + 1] += starts[e]
    for i in range(len(events)):
        e = events[i]
        grouped[starts[e]] = numbers[i]
        starts[e] += 1
    for e in range(len(starts) - 1, 0, -1):
        starts[e] = starts[e - 1]
    starts[0] = 0


@kernel
def drop_doubles(starts, grouped, tried, mark, base, out_event, out_number):
    """Keep each number once per event; `tried` holds the mark of the event in which a number was last seen."""
    k = 0
    for e in range(len(starts) - 1):
        stamp = mark + e + 1
        for i in range(starts[e], starts[e + 1]):
            number = grouped[i]
            if tried[number] != stamp:
                tried[number] = stamp
                out_event[k] = base + e
                out_number[k] = number
                k += 1
    return k


@kernel
def drop_dead(numbers, events, dead):
    """Keep, in place, the pairs whose number has no tombstone, a bit in `dead`; return how many they are."""
    k = 0
    for i in range(len(numbers)):
        number = numbers[i]
        numbers[k] = number
        events[k] = events[i]
        k += 1 - ((dead[number >> 3] >> (number & 7)) & 1)
    return k
