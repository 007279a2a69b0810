"""Events meet the buckets they lead to, and the entries of a bucket are tested.

(bucket, event) pairs are sorted by bucket, so that a bucket is read once for all its events. A test holds where `rank -
low`, unsigned, is at most `width`. `match_portable` runs anywhere, `match_avx512` with the instructions of `simd`; they
find the same pairs in the same order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meetpoint.matching.index.kernels.compiling import address_of, inlined, kernel, piece
from meetpoint.matching.index.kernels.simd import (
    compress16,
    copy16,
    fetch_test16,
    fetch_wide_test16,
    gather_test16,
    lowest,
    permute_test16,
    splat16,
    splat_test16,
)

__all__ = [
    "BLOCK",
    "COUNT",
    "ENTRY",
    "FLAGS",
    "MULTIPLE",
    "SECTION",
    "SIDE",
    "SIDED",
    "SIDE_FITS",
    "SIDE_FITS_NOT",
    "SIDE_IN_SET",
    "TEST",
    "TESTS",
    "ZONE",
    "Buckets",
    "Sides",
    "list_pairs",
    "match_avx512",
    "match_portable",
    "sort_pairs",
]

Array = Any
BLOCK = 16
"""Entries that a zone sums up, and that one vector instruction tests."""
SIDED, MULTIPLE = 1, 2
"""Flags of a section: its entries have side tests; its subscriptions could match an event by several entries."""
SIDE_FITS, SIDE_FITS_NOT, SIDE_IN_SET = 0, 1, 2
"""What a side test asks, in its two lowest bits: a pattern fits, it does not, the rank is in a set."""

ENTRY, COUNT, TESTS, FLAGS, TEST, ZONE, SIDE = range(7)
"""Of a section: its first entry, how many there are, tests of each, flags, first test, first zone or -1, first side."""
SECTION = 8

_FOUR = np.int64(4)
_FULL = np.int64(0xFFFF)


class Buckets(NamedTuple):
    """What the buckets hold.

    A section is a run of entries of one bucket with equally many tests, column by column: first all first tests, which
    are in the order of their slots, then all second ones.
    """

    begin: Array  # [buckets + 1] where the sections of a bucket begin
    section: Array  # [sections, 8] by ENTRY to SIDE
    number: Array  # [entries] the subscription's number
    slot: Array  # [tests] which rank of the event is tested
    low: Array
    width: Array
    zone_slot: Array  # the same for a zone, with bounds around those of its sixteen entries' first tests
    zone_low: Array
    zone_width: Array


class Sides(NamedTuple):
    """Tests that are no interval of one line: each is a number and, in its lowest two bits, what is asked."""

    start: Array  # where the side tests of an entry begin
    test: Array
    set_start: Array  # [sets + 1]
    set_slot: Array  # [sets]
    set_first: Array  # intervals of ranks, in order
    set_last: Array


@kernel
def list_pairs(ranks, slots, offsets, head, parent, fit_start, fit, fit_bucket, buckets, events):
    """The buckets that each event leads to, in the order of events; how many, which may be more than there is room."""
    k = 0
    room = len(buckets)
    for e in range(len(ranks)):
        for a in range(len(slots)):
            rank = ranks[e, slots[a]]
            if rank < 0:
                continue
            bucket = head[offsets[a] + rank]
            while bucket >= 0:
                if k < room:
                    buckets[k] = bucket
                    events[k] = e
                k += 1
                bucket = parent[bucket]
        for i in range(fit_start[e], fit_start[e + 1]):
            bucket = fit_bucket[fit[i]]
            if bucket >= 0:
                if k < room:
                    buckets[k] = bucket
                    events[k] = e
                k += 1
    return k


@kernel
def sort_pairs(buckets, events, starts, sorted_buckets, sorted_events):
    """Pairs in the order of buckets; `starts` has a place per bucket and one more, all of them overwritten."""
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
    """Whether the side tests of an entry hold for an event."""
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
    """Sixteen tests from `t` on, given the addresses of the arrays; `wide` slots have two bytes."""
    if wide:
        return fetch_wide_test16(slot + 2 * t, low + _FOUR * t, width + _FOUR * t, event)
    return fetch_test16(slot + t, low + _FOUR * t, width + _FOUR * t, event)


@kernel
def match_portable(
    buckets, events, start, base, ranks, fit_start, fit, b, sides, out_number, out_event, more_number, more_event
):
    """Scan the pairs from `start` on; the next pair, and how many matches were written to the two outputs.

    A pair is begun only where all entries of its bucket would fit what is left of both outputs. Events are numbered
    from `base` on. Sections of subscriptions that may match an event twice write to the second output, from 0 on.
    """
    begin, section, number, slots_of = b.begin, b.section, b.number, b.slot
    slot, low, width = address_of(b.slot), address_of(b.low), address_of(b.width)
    zone_slot, zone_low, zone_width = b.zone_slot, b.zone_low, b.zone_width
    side_start, side_test, set_start, set_slot = sides.start, sides.test, sides.set_start, sides.set_slot
    set_first, set_last = sides.set_first, sides.set_last
    slots = np.int64(ranks.shape[1])
    rows = address_of(ranks)
    wide = b.slot.itemsize == 2
    k = m = np.int64(0)
    for p in range(start, len(buckets)):
        first, last = begin[buckets[p]], begin[buckets[p] + 1]
        e = np.int64(events[p])
        size = np.int64(section[last - 1, ENTRY]) + section[last - 1, COUNT] - section[first, ENTRY] + BLOCK
        if k + size > len(out_number) or m + size > len(more_number):
            return p, k, m
        event = rows + e * slots * _FOUR
        named = base + e
        for s in range(first, last):
            entry, n = np.int64(section[s, ENTRY]), np.int64(section[s, COUNT])
            tests, flags = section[s, TESTS], section[s, FLAGS]
            test, zone = np.int64(section[s, TEST]), np.int64(section[s, ZONE])
            if tests == 0 and flags == 0:
                for i in range(n):
                    out_number[k + i] = number[entry + i]
                    out_event[k + i] = named
                k += n
                continue
            for i in range(0, n, BLOCK):
                if zone >= 0:
                    z = zone + (i >> 4)
                    if np.uint32(ranks[e, zone_slot[z]] - zone_low[z]) > zone_width[z]:
                        continue
                hold = _FULL if n - i >= BLOCK else (np.int64(1) << (n - i)) - 1
                t = test + i
                last_of_block = test + (i + BLOCK if n - i >= BLOCK else n) - 1
                if tests > 0:
                    if slots_of[t] == slots_of[last_of_block]:
                        rank = np.int64(ranks[e, slots_of[t]])
                        hold &= splat_test16(rank, low + _FOUR * t, width + _FOUR * t)
                    else:
                        hold &= _fetch_block(wide, slot, low, width, event, t)
                for _ in range(1, tests):
                    if hold == 0:
                        break
                    t += n
                    hold &= _fetch_block(wide, slot, low, width, event, t)
                while hold != 0:
                    j = i + lowest(hold)
                    hold &= hold - 1
                    if flags & SIDED and not _sides_hold(
                        side_start, side_test, set_start, set_slot, set_first, set_last, section[s, SIDE] + j,
                        e, ranks, fit_start, fit,
                    ):  # fmt: skip
                        continue
                    if flags & MULTIPLE:
                        more_number[m] = number[entry + j]
                        more_event[m] = e
                        m += 1
                    else:
                        out_number[k] = number[entry + j]
                        out_event[k] = named
                        k += 1
    return len(buckets), k, m


@inlined
def _test_block(narrow, slot, low, width, event, t):
    """Sixteen tests from `t` on, given the addresses of the arrays."""
    if narrow:
        return permute_test16(slot + t, low + _FOUR * t, width + _FOUR * t, event)
    return gather_test16(slot + t, low + _FOUR * t, width + _FOUR * t, event)


@kernel
def match_avx512(
    buckets, events, start, base, ranks, fit_start, fit, b, sides, out_number, out_event, more_number, more_event
):
    """The same as `match_portable`, sixteen entries at a time."""
    begin, section, numbers = b.begin, b.section, b.number
    number, slot, low, width = address_of(b.number), address_of(b.slot), address_of(b.low), address_of(b.width)
    zone_slot, zone_low, zone_width = address_of(b.zone_slot), address_of(b.zone_low), address_of(b.zone_width)
    side_start, side_test, set_start, set_slot = sides.start, sides.test, sides.set_start, sides.set_slot
    set_first, set_last = sides.set_first, sides.set_last
    outs, events_out = address_of(out_number), address_of(out_event)
    slots = np.int64(ranks.shape[1])
    narrow = slots == 16
    rows = address_of(ranks)
    k = m = np.int64(0)
    for p in range(start, len(buckets)):
        first, last = begin[buckets[p]], begin[buckets[p] + 1]
        e = np.int64(events[p])
        size = np.int64(section[last - 1, ENTRY]) + section[last - 1, COUNT] - section[first, ENTRY] + BLOCK
        if k + size > len(out_number) or m + size > len(more_number):
            return p, k, m
        event = rows + e * slots * _FOUR
        named = base + e
        for s in range(first, last):
            entry, n = np.int64(section[s, ENTRY]), np.int64(section[s, COUNT])
            tests, flags = section[s, TESTS], section[s, FLAGS]
            test, zone = np.int64(section[s, TEST]), np.int64(section[s, ZONE])
            if tests == 0 and flags == 0:
                for i in range(0, n, BLOCK):
                    copy16(number + _FOUR * (entry + i), outs + _FOUR * (k + i))
                    splat16(events_out + _FOUR * (k + i), named)
                k += n
                continue
            for z in range(0, n, BLOCK * BLOCK):
                left = (n - z + BLOCK - 1) >> 4
                blocks = _FULL if left >= BLOCK else (np.int64(1) << left) - 1
                if zone >= 0:
                    blocks &= _test_block(narrow, zone_slot, zone_low, zone_width, event, zone + (z >> 4))
                while blocks != 0:
                    i = z + (lowest(blocks) << 4)
                    blocks &= blocks - 1
                    hold = _FULL if n - i >= BLOCK else (np.int64(1) << (n - i)) - 1
                    t = test + i
                    if tests > 0:
                        hold &= _test_block(narrow, slot, low, width, event, t)
                    if tests > 1:
                        hold &= _test_block(narrow, slot, low, width, event, t + n)
                    for _ in range(2, tests):
                        if hold == 0:
                            break
                        t += n
                        hold &= _test_block(narrow, slot, low, width, event, t + n)
                    if flags == 0:
                        splat16(events_out + _FOUR * k, named)
                        k += compress16(number + _FOUR * (entry + i), outs + _FOUR * k, hold)
                        continue
                    while hold != 0:
                        j = i + lowest(hold)
                        hold &= hold - 1
                        if flags & SIDED and not _sides_hold(
                            side_start, side_test, set_start, set_slot, set_first, set_last, section[s, SIDE] + j,
                            e, ranks, fit_start, fit,
                        ):  # fmt: skip
                            continue
                        if flags & MULTIPLE:
                            more_number[m] = numbers[entry + j]
                            more_event[m] = e
                            m += 1
                        else:
                            out_number[k] = numbers[entry + j]
                            out_event[k] = named
                            k += 1
    return len(buckets), k, m
