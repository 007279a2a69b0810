"""Loops over all conjunctions and entries, for `build`."""

from __future__ import annotations

import numpy as np

from meetpoint.matching.index.kernels.compiling import kernel, piece
from meetpoint.matching.index.kernels.scanning import BLOCK, COUNT, TEST, ZONE

__all__ = ["choose", "fill_sides", "fill_tests", "fill_zones", "first_tests", "merge_small", "nest", "order_tests"]


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
    entry_conj, entry_access, entry_again, at, stride, start, order, share, line, first, last, most, slot, low, width
):
    """Write the tests of entries: where the first goes and how far apart an entry's tests lie is given."""
    found = np.zeros(most + 1, np.int32)
    for i in range(len(entry_conj)):
        place = at[i]
        for j in range(_tests_of(entry_conj[i], entry_access[i], entry_again[i], start, order, share, found)):
            t = found[j]
            slot[place], low[place], width[place] = line[t], first[t], np.uint32(last[t] - first[t])
            place += stride[i]


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
def fill_zones(sections, slot, low, width, zone_slot, zone_low, zone_width):
    """Bounds around the first tests of sixteen entries; where they ask different slots, bounds around everything."""
    for s in range(len(sections)):
        if sections[s, ZONE] < 0:
            continue
        n = sections[s, COUNT]
        for z in range((n + BLOCK - 1) // BLOCK):
            begin = np.int64(sections[s, TEST]) + z * BLOCK
            end = min(begin + BLOCK, np.int64(sections[s, TEST]) + n)
            least = np.int64(low[begin])
            most = np.int64(0)
            bounded = True
            for t in range(begin, end):
                top = np.int64(low[t]) + np.int64(width[t])
                if slot[t] != slot[begin] or top > 0x7FFFFFFF:  # another slot, or going around
                    bounded = False
                least = min(least, np.int64(low[t]))
                most = max(most, top)
            q = sections[s, ZONE] + z
            zone_slot[q] = slot[begin]
            zone_low[q] = least if bounded else 0
            zone_width[q] = most - least if bounded else 0xFFFFFFFF


@kernel
def merge_small(keys, counts, least, target):
    """Which section each small section joins: the next one of its bucket and flags, whose entries have more tests."""
    pending = 0
    for i in range(len(keys)):
        pending += counts[i]
        joins = pending < least and i + 1 < len(keys) and keys[i] >> 14 == keys[i + 1] >> 14
        target[i] = i + 1 if joins else i
        if not joins:
            pending = 0
    for i in range(len(keys) - 1, -1, -1):
        target[i] = target[target[i]] if target[i] != i else i
