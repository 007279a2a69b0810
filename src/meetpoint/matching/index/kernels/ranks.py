"""Values as ranks: how many cuts of a line lie below each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meetpoint.matching.index.kernels.compiling import inlined, kernel, piece

__all__ = ["TextCache", "line_ranks", "text_ranks"]

Array = Any
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@kernel
def line_ranks(keys, valid, thresholds, grid, first, shift, base, ranks, slot):
    """How many thresholds are at most each key, plus `base`; `grid` narrows the search by the key's highest bits."""
    count = len(thresholds)
    for e in range(len(keys)):
        if not valid[e]:
            continue
        key = keys[e]
        if count == 0 or key < first:
            ranks[e, slot] = base
            continue
        far = (np.uint64(key) - np.uint64(first)) >> np.uint64(shift)
        if far >= np.uint64(len(grid) - 1):
            ranks[e, slot] = base + count
            continue
        cell = np.int64(far)
        low = np.int64(grid[cell])
        high = np.int64(grid[cell + 1])
        while low < high:
            middle = (low + high) >> 1
            if thresholds[middle] <= key:
                low = middle + 1
            else:
                high = middle
        ranks[e, slot] = base + low


class TextCache(NamedTuple):
    """Ranks of texts seen before, by hash. `filled` holds how many there are and how many of the bytes are used."""

    filled: Array  # [2]
    hash: Array  # [capacity] 0 is a free place
    start: Array
    length: Array
    forward: Array  # rank on the line of texts
    backward: Array  # rank on the line of texts read backwards
    data: Array


@inlined
def _hash(data, start, end):
    h = np.uint64(end - start) * _MULTIPLIER
    for i in range(start, end):
        h = (h ^ np.uint64(data[i])) * np.uint64(0x100000001B3)
    h ^= h >> np.uint64(29)
    return h | np.uint64(1)


@piece
def _compare(data, start, end, cut_start, cut_end, cuts, backwards):
    """Whether a cut is at most a text, byte by byte; backwards is by characters, and the cut is turned already."""
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
    """Ranks of texts forwards and backwards (a slot of -1: not wanted), by the cache or by search."""
    capacity = len(cache.hash)
    mask = np.uint64(capacity - 1)
    for e in range(len(starts)):
        if not valid[e]:
            continue
        start, end = starts[e], ends[e]
        length = end - start
        h = _hash(data, start, end)
        place = np.int64(h & mask)
        found = False
        while cache.hash[place] != 0:
            if cache.hash[place] == h and cache.length[place] == length:
                at = cache.start[place]
                found = True
                for i in range(length):
                    if cache.data[at + i] != data[start + i]:
                        found = False
                        break
                if found:
                    break
            place = (place + 1) & (capacity - 1)
        if found:
            if slot >= 0:
                ranks[e, slot] = cache.forward[place]
            if back_slot >= 0:
                ranks[e, back_slot] = cache.backward[place]
            continue
        forward = backward = np.int64(0)
        if slot >= 0:
            forward = _text_rank(data, start, end, offsets, cuts, False)
            ranks[e, slot] = forward
        if back_slot >= 0:
            backward = _text_rank(data, start, end, back_offsets, back_cuts, True)
            ranks[e, back_slot] = backward
        if 2 * cache.filled[0] < capacity and cache.filled[1] + length <= len(cache.data):
            at = cache.filled[1]
            for i in range(length):
                cache.data[at + i] = data[start + i]
            cache.hash[place] = h
            cache.start[place] = at
            cache.length[place] = length
            cache.forward[place] = forward
            cache.backward[place] = backward
            cache.filled[0] += 1
            cache.filled[1] += length
