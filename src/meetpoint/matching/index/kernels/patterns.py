"""The patterns that fit a text: found by a few of their bytes, then compared."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from meetpoint.matching.index.kernels.jit import address_of, inlined, kernel, long_at, ones, piece

__all__ = [
    "ANY_CHAR",
    "FEW_FITS",
    "GRAMS",
    "GRAMS2",
    "GRAMS3",
    "MASK",
    "NUMBER",
    "PERCENT",
    "PLACE",
    "WORD",
    "Grams",
    "file_patterns",
    "fitting_patterns",
    "gram_hash",
    "like",
    "sort_runs",
]

Array = Any
FEW_FITS = 16
"""Fitting patterns of an event that are left unsorted."""
_HALF, _LOWER = np.uint64(32), np.uint64(0xFFFFFFFF)
ANY_CHAR, PERCENT = 256, 257
"""Symbols of a pattern besides bytes: any one character, any text."""
WORD, MASK, PLACE, NUMBER = range(4)
"""The numbers of a pattern's record.

Its first eight bytes, and which of these it has; its length and its gram's place within it, or 0 and 0 if it is no
plain substring; its number within the segment.
"""
GRAMS3 = GRAMS2 = 1 << 16
"""Possible grams of three bytes, hashed, and of two bytes."""
GRAMS = GRAMS3 + GRAMS2 + 256
"""Possible grams of any length: those of three bytes, then those of two, then those of one."""
_TRIED = 12
"""Places of a pattern that are tried for its gram."""
_LONG = 32
"""The place of the last gram from which on grams that return within the pattern are avoided."""


class Grams(NamedTuple):
    """The patterns on one attribute, in the order of the grams they are found by: three, two or one of their bytes.

    A pattern is a run of symbols: bytes, 256 for any one character, 257 for any text.
    """

    symbol_start: Array  # [patterns + 1]
    symbol: Array
    record: Array  # uint64[patterns, 4] by WORD to NUMBER
    sizes: Array  # the lengths of grams that occur
    seen: Array  # uint64, a bit for each gram that a pattern has: three bytes hashed, two bytes, one byte
    before: Array  # how many bits there are before each of these words
    begin: Array  # [grams + 1] where the patterns of each begin; those from the last on have none


@inlined
def gram_hash(a, b, c):
    """Return sixteen bits of three bytes."""
    word = np.uint64(a) | (np.uint64(b) << np.uint64(8)) | (np.uint64(c) << np.uint64(16))
    return np.int64(((word * np.uint64(0x9E3779B1)) >> np.uint64(16)) & np.uint64(0xFFFF))


@piece
def _piece_fits(data, at, end, symbol, first, last):
    """Return where a piece that begins at `at` ends, or -1."""
    for s in range(first, last):
        if at >= end:
            return -1
        want = symbol[s]
        if want == ANY_CHAR:
            at += 1
            while at < end and (data[at] & 0xC0) == 0x80:
                at += 1
        elif data[at] == want:
            at += 1
        else:
            return -1
    return at


@kernel
def like(data, start, end, symbol, first, last):
    """Return whether a text fits a pattern: first piece in front, last at the back, others as far left as possible."""
    stop = first
    while stop < last and symbol[stop] != PERCENT:
        stop += 1
    at = _piece_fits(data, start, end, symbol, first, stop)
    if at < 0:
        return False
    if stop == last:
        return at == end
    back = last
    while symbol[back - 1] != PERCENT:
        back -= 1
    tail = end  # where the last piece must begin: as many characters from the end as it has
    for s in range(back, last):
        if symbol[s] == ANY_CHAR or (symbol[s] & 0xC0) != 0x80:
            if tail <= at:
                return False
            tail -= 1
            while tail > at and (data[tail] & 0xC0) == 0x80:
                tail -= 1
    if _piece_fits(data, tail, end, symbol, back, last) != end:
        return False
    piece = stop + 1
    while piece < back:
        stop = piece
        while symbol[stop] != PERCENT:
            stop += 1
        after = -1
        while at < tail:
            after = _piece_fits(data, at, tail, symbol, piece, stop)
            if after >= 0:
                break
            at += 1
            while at < tail and (data[at] & 0xC0) == 0x80:
                at += 1
        if after < 0:
            return False
        at = after
        piece = stop + 1
    return True


@piece
def _longest_run(symbol, begin, end):
    """Return where the longest run of bytes begins, the first of several, and how long it is."""
    best = length = 0
    first = begin
    for s in range(begin, end + 1):
        if s == end or symbol[s] >= ANY_CHAR:
            if s - first > length:
                best, length = first, s - first
            first = s + 1
    return best, length


@piece
def _times(symbol, begin, end, at):
    """Return how often the three bytes at a place occur in a run, without overlaps."""
    count = 0
    s = begin
    while s + 3 <= end:
        same = symbol[s] == symbol[at] and symbol[s + 1] == symbol[at + 1] and symbol[s + 2] == symbol[at + 2]
        count += same
        s += 3 if same else 1
    return count


@piece
def _rarest(symbol, begin, end, load):
    """Return where in a run of bytes the three begin that the fewest patterns were filed under so far.

    Many patterns may begin alike, and their common beginning would lead to all of them.
    """
    last = end - 3
    best, least, often = begin, np.int64(1 << 62), np.int64(0)
    at = begin
    while at <= last:
        held = np.int64(load[gram_hash(symbol[at], symbol[at + 1], symbol[at + 2])])
        if held <= least:
            times = np.int64(_times(symbol, begin, end, at)) if last - begin > _LONG else np.int64(0)
            if held < least or times < often:
                best, least, often = at, held, times
        at += 1
        if last - begin >= _TRIED and at == begin + _TRIED // 3:
            at = last - 2 * _TRIED // 3  # the beginning and the end of a long one
    return best


@kernel
def file_patterns(symbol_start, symbol, plain, number, load, place, record, has_size):
    """Write the gram under which each pattern is filed, or GRAMS if it has no byte, and its record.

    `plain` says which are substrings; `load` counts the patterns of each gram of three bytes; `has_size` is set for the
    lengths of grams that occur.
    """
    for p in range(len(place)):
        begin, length = _longest_run(symbol, symbol_start[p], symbol_start[p + 1])
        record[p, NUMBER] = number[p]
        if length == 0:
            place[p] = GRAMS
            continue
        size = min(length, 3)
        has_size[size] = True
        at = begin
        if size == 3:
            at = _rarest(symbol, begin, begin + length, load)
            place[p] = gram_hash(symbol[at], symbol[at + 1], symbol[at + 2])
            load[place[p]] += 1
        elif size == 2:
            place[p] = GRAMS3 + symbol[at] + (np.int64(symbol[at + 1]) << 8)
        else:
            place[p] = GRAMS3 + GRAMS2 + symbol[at]
        if plain[p]:
            for i in range(min(length, 8)):
                shift = np.uint64(8 * i)
                record[p, WORD] |= np.uint64(symbol[begin + i]) << shift
                record[p, MASK] |= np.uint64(0xFF) << shift
            record[p, PLACE] = np.uint64(length) << _HALF | np.uint64(at - begin)


@kernel
def fitting_patterns(data, starts, ends, valid, grams, tried, mark, out, counts):
    """Write the numbers of the patterns that fit each text, one after the other; `counts` says how many fit each.

    `tried` holds the mark of the last event for which a pattern was found or refused; marks begin after `mark`. Returns
    how many numbers there are, which may be more than `out` holds: then nothing after its end was written.
    """
    symbol_start, symbol, record = grams.symbol_start, grams.symbol, grams.record
    sizes, seen, before_word, begin_of = grams.sizes, grams.seen, grams.before, grams.begin
    room = len(out)
    address = address_of(data)
    safe = len(data) - 8  # where eight bytes may be read
    hit_at, hit_gram = np.empty(1024, np.int64), np.empty(1024, np.int64)  # first all grams, then what they lead to
    k = 0
    for e in range(len(starts)):
        before = k
        if valid[e]:
            start, end = starts[e], ends[e]
            stamp = mark + e + 1
            if end - start > len(hit_at):
                hit_at, hit_gram = np.empty(2 * (end - start), np.int64), np.empty(2 * (end - start), np.int64)
            for s in range(len(sizes)):
                hits = np.int64(0)
                if sizes[s] == 3:
                    for at in range(start, end - 2):
                        gram = gram_hash(data[at], data[at + 1], data[at + 2])
                        hit_at[hits], hit_gram[hits] = at, gram
                        hits += np.int64((seen[gram >> 6] >> np.uint64(gram & 63)) & np.uint64(1))
                elif sizes[s] == 2:
                    for at in range(start, end - 1):
                        gram = GRAMS3 + np.int64(data[at]) + (np.int64(data[at + 1]) << 8)
                        hit_at[hits], hit_gram[hits] = at, gram
                        hits += np.int64((seen[gram >> 6] >> np.uint64(gram & 63)) & np.uint64(1))
                else:
                    for at in range(start, end):
                        gram = GRAMS3 + GRAMS2 + np.int64(data[at])
                        hit_at[hits], hit_gram[hits] = at, gram
                        hits += np.int64((seen[gram >> 6] >> np.uint64(gram & 63)) & np.uint64(1))
                for hit in range(hits):
                    at = hit_at[hit]
                    gram = hit_gram[hit]
                    lower = (np.uint64(1) << np.uint64(gram & 63)) - np.uint64(1)
                    gram = before_word[gram >> 6] + ones(seen[gram >> 6] & lower)
                    for p in range(begin_of[gram], begin_of[gram + 1]):
                        number = np.int64(record[p, NUMBER])
                        place = record[p, PLACE]
                        length = np.int64(place >> _HALF)
                        begin = at - np.int64(place & _LOWER)
                        before_it = tried[number]
                        if 0 < length <= 8 and end <= safe:  # nearly all, so without a question but the loop's
                            word = long_at(address + max(begin, start))
                            fits = (
                                (begin >= start)
                                & (begin + length <= end)
                                & ((word ^ record[p, WORD]) & record[p, MASK] == 0)
                                & (before_it != stamp)
                            )
                            tried[number] = stamp if fits else before_it
                            if k < room:
                                out[k] = number
                            k += fits
                        elif before_it != stamp:
                            fits = False
                            if length == 0:
                                tried[number] = stamp
                                fits = like(data, start, end, symbol, symbol_start[p], symbol_start[p + 1])
                            elif begin >= start and begin + length <= end:
                                first = np.int64(symbol_start[p])
                                i = 0
                                while i < length and data[begin + i] == symbol[first + i]:
                                    i += 1
                                fits = bool(i >= length)
                            if fits:
                                tried[number] = stamp
                                if k < room:
                                    out[k] = number
                                k += 1
            for p in range(begin_of[len(begin_of) - 1], len(record)):
                if like(data, start, end, symbol, symbol_start[p], symbol_start[p + 1]):
                    if k < room:
                        out[k] = record[p, NUMBER]
                    k += 1
        counts[e] = k - before
    return k


@kernel
def sort_runs(starts, numbers):
    """Sort each run of more than a few numbers; shorter runs are searched one by one."""
    for r in range(len(starts) - 1):
        if starts[r + 1] - starts[r] > FEW_FITS:
            numbers[starts[r] : starts[r + 1]].sort()
