"""The kernels that build segments: filters onto lines, and conjunctions into buckets.

`find_lines` and `rank_constraints` put the constraints of many filters on lines: the cuts of each line in order, and
the ranks that each constraint accepts. Sorting columns by Arrow and NumPy would take dozens of calls, after each of
which another thread may take the interpreter; here it is two calls without the interpreter lock.
"""

from __future__ import annotations

import numpy as np

from meetpoint.matching.index.kernels.bucket_scan import BLOCK, LANES, UNIFORM
from meetpoint.matching.index.kernels.filter_scan import HIGH, HIGH_AFTER, LOW, LOW_AFTER, NUMBER, SUBSTRING, TEXTS
from meetpoint.matching.index.kernels.jit import inlined, kernel, piece

__all__ = [
    "choose",
    "fill_sides",
    "fill_tests",
    "fill_zones",
    "find_lines",
    "first_tests",
    "group",
    "mark_cuts",
    "move_ranks",
    "nest",
    "order_tests",
    "rank_constraints",
]


@kernel
def group(numbers, starts, order):
    """Sort places by their numbers, keeping their order; the places of number n begin at starts[n]."""
    starts[:] = 0
    for i in range(len(numbers)):
        starts[numbers[i] + 1] += 1
    for n in range(len(starts) - 1):
        starts[n + 1] += starts[n]
    for i in range(len(numbers)):
        n = numbers[i]
        order[starts[n]] = i
        starts[n] += 1
    for n in range(len(starts) - 1, 0, -1):
        starts[n] = starts[n - 1]
    starts[0] = 0


@kernel
def mark_cuts(line, first, last, begin, asked, used):
    """Mark which lines have tests, and which cuts bound a test; the cuts of line n begin at begin[n]."""
    for t in range(len(line)):
        n = line[t]
        asked[n] = True
        if first[t] > 0:
            used[begin[n] + first[t] - 1] = True
        if begin[n] + last[t] < begin[n + 1]:
            used[begin[n] + last[t]] = True


@kernel
def move_ranks(line, first, last, begin, place, most, new_first, new_last):
    """Move the ranges of tests to lines whose cuts have new places; most[n] is the highest rank of line n now."""
    for t in range(len(line)):
        n = line[t]
        new_first[t] = place[begin[n] + first[t] - 1] + 1 if first[t] > 0 else 0
        new_last[t] = place[begin[n] + last[t]] if begin[n] + last[t] < begin[n + 1] else most[n]


@kernel
def choose(start, cost, side_start, side_cost):
    """Return each conjunction's cheapest test, or -1 and its cheapest side test, or -1 twice if it has neither."""
    n = len(start) - 1
    chosen = np.full(n, -1, np.int32)
    chosen_side = np.full(n, -1, np.int32)
    for c in range(n):
        best = np.inf
        for t in range(start[c], start[c + 1]):
            if cost[t] < best:
                best = cost[t]
                chosen[c] = t
        for s in range(side_start[c], side_start[c + 1]):
            if side_cost[s] < best:
                best = side_cost[s]
                chosen[c] = -1
                chosen_side[c] = s
    return chosen, chosen_side


@kernel
def nest(begin, width, head, parent):
    """Set each rank's innermost node, and each node's next outer one; nodes are in the order of `_Nodes`."""
    for node in range(len(begin)):
        parent[node] = head[begin[node]]
        for rank in range(begin[node], begin[node] + width[node] + 1):
            head[rank] = node


@kernel
def order_tests(start, share, order):
    """Order the tests of each conjunction, the most selective first."""
    for c in range(len(start) - 1):
        for t in range(start[c], start[c + 1]):
            at = t
            while at > start[c] and share[order[at - 1]] > share[t]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = t


@piece
def _tests_of(c, access, again, start, order, share, found):
    """Write the tests of an entry in order to `found`; return how many.

    The access test, if it is tested again, is placed as if it held for half of the events.
    """
    k = 0
    for j in range(start[c], start[c + 1]):
        t = order[j]
        if t == access:
            continue
        if again and share[t] > 0.5:
            found[k] = access
            k += 1
            again = False
        found[k] = t
        k += 1
    if again:
        found[k] = access
        k += 1
    return k


@kernel
def first_tests(entry_conj, entry_access, entry_again, start, order, share, most, first):
    """Set the first test of each entry that has one."""
    found = np.zeros(most + 1, np.int32)
    for i in range(len(entry_conj)):
        if _tests_of(entry_conj[i], entry_access[i], entry_again[i], start, order, share, found) > 0:
            first[i] = found[0]


@kernel
def fill_tests(
    entry_conj, entry_access, entry_again, at, start, order, share, line, first, last, most, slot, low, width
):
    """Write the tests of entries, sixteen apart; `at` is the place of the first."""
    found = np.zeros(most + 1, np.int32)
    for i in range(len(entry_conj)):
        place = at[i]
        for j in range(_tests_of(entry_conj[i], entry_access[i], entry_again[i], start, order, share, found)):
            t = found[j]
            slot[place], low[place], width[place] = line[t], first[t], np.uint32(last[t] - first[t])
            place += BLOCK


@kernel
def fill_sides(entry_conj, entry_side, side_start, side, out_start, out):
    """Write the side tests of entries, all but the one that leads to them."""
    k = 0
    for i in range(len(entry_conj)):
        c = entry_conj[i]
        for s in range(side_start[c], side_start[c + 1]):
            if s != entry_side[i]:
                out[k] = side[s]
                k += 1
        out_start[i + 1] = k


@kernel
def fill_zones(block, test, slot, low, width, zone_slot, zone_low, zone_width):
    """Write bounds around the first tests of each block; if they ask different slots, bounds around everything.

    Blocks whose first tests are all of one slot are marked so.
    """
    for b in range(len(block)):
        begin = np.int64(test[b]) * BLOCK
        zone_slot[b], zone_low[b], zone_width[b] = 0, 0, 0xFFFFFFFF
        if test[b] == test[b + 1]:
            continue
        least = np.int64(low[begin])
        most = np.int64(0)
        uniform = bounded = True
        lanes = block[b] & LANES
        lane = 0
        while (lanes >> lane) & 1:
            t = begin + lane
            top = np.int64(low[t]) + np.int64(width[t])
            if slot[t] != slot[begin]:
                uniform = False
            if top > 0x7FFFFFFF:  # going around
                bounded = False
            least = min(least, np.int64(low[t]))
            most = max(most, top)
            lane += 1
        if uniform:
            block[b] |= UNIFORM
            if bounded:
                zone_slot[b], zone_low[b], zone_width[b] = slot[begin], least, most - least


_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_SIGN = np.int64(-(2**63))
_BYTES = 256
_RUN = 8
"""Texts that are sorted by insertion, before runs of them are merged."""


@piece
def _hash(data, begin, end):
    mixed = _FNV_BASIS
    for i in range(begin, end):
        mixed = (mixed ^ np.uint64(data[i])) * _FNV_PRIME
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(0x7FFFFFFF))


@piece
def _same(data, begin, end, other, other_end):
    if end - begin != other_end - other:
        return False
    while begin < end and data[begin] == data[other]:
        begin += 1
        other += 1
    return begin == end


@piece
def _table(count):
    """Return a hash table with room for so many, and as many free places."""
    size = 16
    while size < 2 * count:
        size *= 2
    return np.full(size, -1, np.int32)


@kernel
def find_lines(sort, offsets, texts, line, first):
    """Set the line of each constraint, one line for each name and sort, numbered as met; return how many there are.

    The first constraint on line n is first[n].
    """
    table = _table(len(sort))
    lines = 0
    for i in range(len(sort)):
        begin, end = offsets[TEXTS * i], offsets[TEXTS * i + 1]
        at = (_hash(texts, begin, end) + sort[i]) & (len(table) - 1)
        while table[at] >= 0:
            other = first[table[at]]
            if sort[other] == sort[i] and _same(texts, begin, end, offsets[TEXTS * other], offsets[TEXTS * other + 1]):
                break
            at = (at + 1) & (len(table) - 1)
        if table[at] < 0:
            table[at] = lines
            first[lines] = i
            lines += 1
        line[i] = table[at]
    return lines


@inlined
def _sortable(value):
    """Return bits in the order of doubles; -0.0 is 0.0."""
    bits = np.float64(value + 0.0).view(np.int64)
    return np.uint64(~bits if bits < 0 else bits | _SIGN)


@inlined
def _pass(digit, order, other, counts):
    """Run one pass of a radix sort of `order`, into `other`; return whether anything moved."""
    counts[:] = 0
    for i in range(len(order)):
        counts[digit[order[i]]] += 1
    if len(order) == 0 or counts[digit[order[0]]] == len(order):
        return False
    before = 0
    for d in range(len(counts)):
        counts[d], before = before, before + counts[d]
    for i in range(len(order)):
        d = digit[order[i]]
        other[counts[d]] = order[i]
        counts[d] += 1
    return True


@piece
def _rank_numbers(cuts, flags, bounds, k, values, after, place):
    """Write the cuts of a line of numbers behind the first `k`, and the place of each; return their number then."""
    count = len(cuts)
    key, digit = np.empty(count, np.uint64), np.empty(count, np.int64)
    order, other, counts = np.arange(count), np.empty(count, np.int64), np.empty(_BYTES, np.int64)
    for i in range(count):
        record, side = cuts[i] >> 1, cuts[i] & 1
        key[i] = _sortable(bounds[record, side])
        digit[i] = 1 if flags[record] & (HIGH_AFTER if side else LOW_AFTER) else 0
    lies_after = digit.copy()
    for byte in range(9):
        if byte > 0:
            shift = np.uint64(8 * (byte - 1))
            for i in range(count):
                digit[i] = np.int64((key[i] >> shift) & np.uint64(0xFF))
        if _pass(digit, order, other, counts):
            order, other = other, order
    for i in range(count):
        one = order[i]
        if i == 0 or key[one] != key[order[i - 1]] or lies_after[one] != lies_after[order[i - 1]]:
            values[k] = bounds[cuts[one] >> 1, cuts[one] & 1]
            after[k] = lies_after[one] == 1
            k += 1
        place[cuts[one]] = k - 1
    return k


@inlined
def _text_of(cut, offsets):
    """Return where the text of a cut begins and ends."""
    at = TEXTS * (cut >> 1) + 1 + (cut & 1)
    return offsets[at], offsets[at + 1]


@piece
def _is_less(prefix, a, b, cuts, offsets, texts):
    """Return whether one text comes before another; the first eight bytes of both mostly decide."""
    if prefix[a] != prefix[b]:
        return prefix[a] < prefix[b]
    begin, end = _text_of(cuts[a], offsets)
    other, other_end = _text_of(cuts[b], offsets)
    for i in range(min(end - begin, other_end - other)):
        if texts[begin + i] != texts[other + i]:
            return texts[begin + i] < texts[other + i]
    return end - begin < other_end - other


@piece
def _sort_texts(order, prefix, cuts, offsets, texts):
    """Return numbers of texts in the order of the texts: short runs are sorted by insertion, then merged."""
    count = len(order)
    for begin in range(0, count, _RUN):
        for i in range(begin + 1, min(begin + _RUN, count)):
            one, at = order[i], i
            while at > begin and _is_less(prefix, one, order[at - 1], cuts, offsets, texts):
                order[at] = order[at - 1]
                at -= 1
            order[at] = one
    other = np.empty_like(order)
    width = _RUN
    while width < count:
        for begin in range(0, count, 2 * width):
            middle, end = min(begin + width, count), min(begin + 2 * width, count)
            a, b = begin, middle
            for at in range(begin, end):
                if b == end or (a < middle and not _is_less(prefix, order[b], order[a], cuts, offsets, texts)):
                    other[at] = order[a]
                    a += 1
                else:
                    other[at] = order[b]
                    b += 1
        order, other = other, order
        width *= 2
    return order


@piece
def _rank_texts(cuts, offsets, texts, k, cut_offsets, cut_data, place):
    """Write the cuts of a line of texts behind the first `k`, and the place of each; return how many there are then."""
    count = len(cuts)
    table, number = _table(count), np.empty(count, np.int32)
    distinct = 0
    order, prefix = np.empty(count, np.int32), np.empty(count, np.uint64)
    for i in range(count):
        begin, end = _text_of(cuts[i], offsets)
        at = _hash(texts, begin, end) & (len(table) - 1)
        while table[at] >= 0 and not _same(texts, begin, end, *_text_of(cuts[order[table[at]]], offsets)):
            at = (at + 1) & (len(table) - 1)
        if table[at] < 0:
            table[at] = distinct
            order[distinct] = i
            distinct += 1
            prefix[i] = 0
            for b in range(8):
                byte = texts[begin + b] if begin + b < end else 0
                prefix[i] = prefix[i] << np.uint64(8) | np.uint64(byte)
        number[i] = table[at]
    met = order[:distinct].copy()
    in_order = _sort_texts(order[:distinct], prefix, cuts, offsets, texts)
    rank = np.empty(count, np.int32)
    filled = cut_offsets[k]
    for i in range(distinct):
        rank[in_order[i]] = k
        begin, end = _text_of(cuts[in_order[i]], offsets)
        cut_data[filled : filled + end - begin] = texts[begin:end]
        filled += end - begin
        k += 1
        cut_offsets[k] = filled
    for i in range(count):
        place[cuts[i]] = rank[met[number[i]]]
    return k


@kernel
def rank_constraints(
    starts, order, sort, flags, bounds, offsets, texts, first, last, ends, values, after, cut_offsets, cut_data
):
    """Write the cuts of all lines, in order and each once, and the first and last rank of each constraint.

    The constraints on line n are those of `order` from starts[n] on, and its cuts end at ends[n]. Numbers have `values`
    and `after`, texts `cut_offsets` and `cut_data`. Substrings have no ranks: `first` is the number of one among those
    of its name.
    """
    place, cuts = np.empty(2 * len(sort), np.int32), np.empty(2 * len(sort), np.int64)
    k = 0
    cut_offsets[0] = 0
    for n in range(len(starts) - 1):
        begin = k
        line = order[starts[n] : starts[n + 1]]
        kind = sort[line[0]]
        count = 0
        for i in line:
            if flags[i] & LOW:
                cuts[count] = 2 * i
                count += 1
            if flags[i] & HIGH and kind != SUBSTRING:
                cuts[count] = 2 * i + 1
                count += 1
        if kind == NUMBER:
            k = _rank_numbers(cuts[:count], flags, bounds, k, values, after, place)
            cut_offsets[begin : k + 1] = cut_offsets[begin]
        else:
            k = _rank_texts(cuts[:count], offsets, texts, k, cut_offsets, cut_data, place)
        for i in line:
            if kind == SUBSTRING:
                first[i] = place[2 * i] - begin
            else:
                first[i] = place[2 * i] - begin + 1 if flags[i] & LOW else 0
                last[i] = place[2 * i + 1] - begin if flags[i] & HIGH else k - begin
        ends[n] = k
