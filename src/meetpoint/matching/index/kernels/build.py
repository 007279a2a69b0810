"""Loops over all conjunctions and entries, for `build`."""

from __future__ import annotations

import numpy as np

from meetpoint.matching.index.kernels.bucket_scan import BLOCK, LANES, UNIFORM
from meetpoint.matching.index.kernels.jit import kernel, piece

__all__ = [
    "choose",
    "fill_sides",
    "fill_tests",
    "fill_zones",
    "first_tests",
    "group",
    "mark_cuts",
    "move_ranks",
    "nest",
    "order_tests",
]


@kernel
def group(numbers, starts, order):
    """The places of each number, in order, one number after the other: those of n begin at starts[n]."""
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
    """Which lines tests ask, and which cuts bound a test; the cuts of line n begin at begin[n]."""
    for t in range(len(line)):
        n = line[t]
        asked[n] = True
        if first[t] > 0:
            used[begin[n] + first[t] - 1] = True
        if begin[n] + last[t] < begin[n + 1]:
            used[begin[n] + last[t]] = True


@kernel
def move_ranks(line, first, last, begin, place, most, new_first, new_last):
    """The ranges of tests on lines whose cuts have new places; most[n] is the highest rank of line n now."""
    for t in range(len(line)):
        n = line[t]
        new_first[t] = place[begin[n] + first[t] - 1] + 1 if first[t] > 0 else 0
        new_last[t] = place[begin[n] + last[t]] if begin[n] + last[t] < begin[n + 1] else most[n]


@kernel
def choose(start, cost, side_start, side_cost):
    """For each conjunction the cheapest test, or -1 and the cheapest side test, or -1 twice where it has neither."""
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
    """Each rank's innermost node, and each node's next outer one; nodes are in the order of `_Nodes`."""
    for node in range(len(begin)):
        parent[node] = head[begin[node]]
        for rank in range(begin[node], begin[node] + width[node] + 1):
            head[rank] = node


@kernel
def order_tests(start, share, order):
    """The tests of each conjunction, the most selective first."""
    for c in range(len(start) - 1):
        for t in range(start[c], start[c + 1]):
            at = t
            while at > start[c] and share[order[at - 1]] > share[t]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = t


@piece
def _tests_of(c, access, again, start, order, share, found):
    """The tests of an entry in order, in `found`; how many. One that is asked again holds for every other event."""
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
    """The first test of each entry that has one."""
    found = np.zeros(most + 1, np.int32)
    for i in range(len(entry_conj)):
        if _tests_of(entry_conj[i], entry_access[i], entry_again[i], start, order, share, found) > 0:
            first[i] = found[0]


@kernel
def fill_tests(
    entry_conj, entry_access, entry_again, at, start, order, share, line, first, last, most, slot, low, width
):
    """Write the tests of entries, sixteen apart; where the first goes is given."""
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
    """Bounds around the first tests of each block; where they ask different slots, bounds around everything.

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
