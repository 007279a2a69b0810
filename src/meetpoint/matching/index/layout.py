"""The layout of a segment: from rank form to buckets, as the kernels scan them.

A conjunction is filed under one *access* constraint, the one that the fewest events satisfy. A value or a prefix has a
bucket of its own, which contains or excludes any other of its line. A range is filed under the cells that it overlaps,
of some 256 that equally many events fall into, or sixteen of them at once. A pattern has a bucket. A conjunction
without any of these (`a != 1`) is filed under "there is a value on this line". The other tests of the conjunction run
when an event comes to the bucket, the most selective test first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meetpoint.matching.index.encoder import Encoded, is_substring
from meetpoint.matching.index.kernels.bucket_scan import BLOCK, MULTIPLE, SIDE_FITS, SIDED, Buckets, Sides
from meetpoint.matching.index.kernels.build import (
    choose,
    fill_sides,
    fill_tests,
    fill_zones,
    first_tests,
    nest,
    order_tests,
)
from meetpoint.matching.index.kernels.jit import PADDING
from meetpoint.matching.index.lines import Array
from meetpoint.matching.index.rank_form import NESTED, RankForm, grouped, runs

__all__ = ["BucketTables", "Layout", "build", "build_flat"]


CELLS = 256
"""Cells of a line of ranges, with equally many events in each as far as the sample tells."""
COARSE = 16
"""Cells that make a coarse one."""


class SampleStatistics(NamedTuple):
    """Statistics of sample events: the ranks on each line, sorted, of those that have a value there."""

    ranks: list[Array]
    fits: Array  # float64[patterns] part of the events
    events: list[int]  # of how many events the ranks of each line are
    seen: bool  # whether they are of real events


class Cells:
    """Cells of the lines that have ranges: `starts[slot]` are the ranks at which cells begin, 0 first.

    Sixteen neighbouring cells make a coarse one, whose number follows those of the fine ones. A range is filed under
    the coarse cells that it covers whole, so that it has at most some forty entries however wide it is.
    """

    def __init__(self, rows: RankForm, line: Array, statistics: SampleStatistics) -> None:
        self.starts: list[Array] = []
        self.chance: list[Array] = []
        self._cuts = [one.cuts for one in rows.lines]
        self.coarse = COARSE
        ranged = np.bincount(line[(rows.line & NESTED == 0) & (rows.first <= rows.last)], minlength=len(rows.lines))
        for slot, held in enumerate(statistics.ranks):
            if not ranged[slot] or not len(held):
                self.starts.append(np.zeros(1, np.int32))
                self.chance.append(np.ones(1))
                continue
            wanted = int(min(CELLS, max(16, ranged[slot] // 4)))
            starts = np.unique(np.concatenate([[0], held[np.arange(1, wanted) * len(held) // wanted]])).astype(np.int32)
            counts = np.diff(np.searchsorted(held, np.append(starts, rows.lines[slot].cuts + 1)))
            self.starts.append(starts)
            self.chance.append((counts + 1.0 / len(starts)) / (statistics.events[slot] + 1))

    def count(self, slot: int) -> int:
        """Return how many cells a line has, fine and coarse."""
        fine = len(self.starts[slot])
        return fine + -(-fine // self.coarse)

    def of(self, slot: int, ranks: Array) -> Array:
        """Return the fine cell that each rank is in."""
        return (np.searchsorted(self.starts[slot], ranks, "right") - 1).astype(np.int64)

    def cover(self, slot: int, first: Array, last: Array) -> tuple[Array, Array, Array]:
        """Return the cells of ranges: which range, its cell, and whether the cell is only partly in the range."""
        bounds = np.append(self.starts[slot], self._cuts[slot] + 1)
        begin, end = self.of(slot, first), self.of(slot, last)
        whole_begin = begin + (bounds[begin] < first)
        whole_end = end + 1 - (bounds[end + 1] - 1 > last)
        coarse_begin, coarse_end = -(-whole_begin // self.coarse), whole_end // self.coarse
        none = coarse_begin >= coarse_end
        left_end = np.where(none, end + 1, coarse_begin * self.coarse)
        right_begin = np.where(none, end + 1, coarse_end * self.coarse)
        fine = len(self.starts[slot])
        which, cell = zip(
            runs(begin, left_end),
            runs(right_begin, end + 1),
            runs(np.where(none, 0, fine + coarse_begin), np.where(none, 0, fine + coarse_end)),
            strict=True,
        )
        ranges, cells = np.concatenate(which), np.concatenate(cell)
        inside = np.minimum(cells, fine - 1)  # a coarse cell is always covered
        partly = (bounds[inside] < first[ranges]) | (bounds[inside + 1] - 1 > last[ranges])
        return ranges, cells, partly & (cells < fine)


FLAT_MAX = 600_000
"""Entries up to which there are no coarse cells: a few more entries, and fewer buckets for an event."""
_PATTERN_SHARE = 1e-3
"""The part of the events that a pattern is expected to fit if there is no sample."""
_CROWD = 0.003
"""The part of the events that must have a rank for it to get a bucket of its own."""
_CROWDS = 0.1, 0.02
"""More entries that such buckets may cost, as a part of all: with room, and without."""
_MEETING = 50
"""Entries that can be tested in the time that an event takes to come to a bucket."""
_BYTE_SLOTS = 256
"""Slots that a byte can name."""
_FLAG_BITS = SIDED.bit_length() - 1
_COPY_COST = 2e-6
"""Cost of one more entry of a conjunction, as a part of the events: memory must pay for itself."""


class BucketTables(NamedTuple):
    """Tables from ranks and patterns to buckets: by slot through `head`, then to the enclosing bucket by `parent`."""

    slots: Array  # int32
    offsets: Array  # int64 where the ranks of a slot begin in head
    head: Array  # int32 a bucket, or -1
    parent: Array  # int32[buckets + 1], -1 at the end
    fit_bucket: Array  # int32[patterns]


class Layout(NamedTuple):
    """The arrays that the kernels need to match events."""

    access: BucketTables
    buckets: Buckets
    sides: Sides


def build(rows: RankForm, sample: Encoded | None, guessed: bool = False) -> Layout:
    """Return the layout for rows; `sample` are events like those to come, None if nothing is known of them.

    They may be `guessed`, from a schema: then attributes that they lack are unknown, not rare.
    """
    statistics = _statistics(rows, sample, guessed)
    line = (rows.line & ~np.uint32(NESTED)).astype(np.int64)
    share = _shares(rows, line, statistics)
    cells = Cells(rows, line, statistics)
    cost, root = _costs(rows, line, share, cells, statistics)
    fits = rows.side & 3 == SIDE_FITS
    side_cost = np.where(
        fits, statistics.fits[np.where(fits, rows.side >> 2, 0)] if len(rows.patterns) else 0.0, np.inf
    )
    chosen, chosen_side = choose(rows.start, cost, rows.side_start, side_cost)
    nodes = _Nodes(rows, line, root, chosen)
    entries, places = _entries(rows, line, statistics, cells, nodes, root, chosen, chosen_side)
    buckets, sides, bucket_of = _lay_out(rows, line, share, entries, places.total)
    return Layout(_access(rows, cells, nodes, places, bucket_of), buckets, sides)


def build_flat(rows: RankForm, always: int) -> Layout:
    """Return a layout with one bucket, to which all events come: `always` is the slot that leads there.

    It is made in a fraction of the time, and for a few thousand subscriptions zones rule out most of the blocks.
    """
    line = (rows.line & ~np.uint32(NESTED)).astype(np.int64)
    ranks = np.array([one.cuts + 1 for one in rows.lines], np.int64)[line]
    width = rows.last.astype(np.int64) - rows.first + 1
    share = np.where(width > 0, width, width + ranks) / ranks
    count = len(rows.owner)
    none = np.full(count, -1)
    whole = _Entries(np.zeros(count, np.int64), np.arange(count, dtype=np.int32), none, np.zeros(count, np.bool_), none)
    buckets, sides, bucket_of = _lay_out(rows, line, share, whole, 1)
    access = BucketTables(
        np.array([always], np.int32),
        np.zeros(1, np.int64),
        np.array([bucket_of[0], -1], np.int32),
        np.full(len(buckets.begin), -1, np.int32),
        np.full(len(rows.patterns), -1, np.int32),
    )
    return Layout(access, buckets, sides)


# -- statistics --------------------------------------------------------------------------------------------------------


def _statistics(rows: RankForm, sample: Encoded | None, guessed: bool) -> SampleStatistics:
    """Return statistics of the sample; where a guess says nothing, bounds count as values."""
    ranks = []
    events = []
    for slot, line in enumerate(rows.lines):
        held = np.sort(sample.ranks[:, slot]) if sample is not None else np.zeros(0, np.int32)
        held = held[np.searchsorted(held, 0) :]
        known = sample is not None and (len(held) > 0 or not guessed)
        ranks.append(held if known else np.arange(line.cuts + 1, dtype=np.int32))
        events.append(len(sample.ranks) if known and sample is not None else line.cuts + 1)
    fits = np.full(len(rows.patterns), _PATTERN_SHARE)
    if sample is not None and not guessed:
        fits = (np.bincount(sample.fit, minlength=len(rows.patterns)) + 0.1) / (len(sample.ranks) + 1)
    return SampleStatistics(ranks, fits, events, sample is not None and not guessed)


def _shares(rows: RankForm, line: Array, statistics: SampleStatistics) -> Array:
    """Return the part of the events that satisfies each test; without a sample, by the number of bounds within."""
    share = np.zeros(len(line))
    tests_of = grouped(line, len(rows.lines))
    for slot, held in enumerate(statistics.ranks):
        mine = tests_of[slot]
        if not len(mine):
            continue
        first, last = rows.first[mine], rows.last[mine]
        ranks = rows.lines[slot].cuts + 1
        below = np.zeros(ranks + 1, np.int64)  # how many events have a lower rank
        np.cumsum(np.bincount(held, minlength=ranks), out=below[1:])
        inside = below[last + 1] - below[first] + np.where(first > last, len(held), 0)
        width = last - first + 1 + np.where(first > last, ranks, 0)
        share[mine] = (inside + width / ranks) / (statistics.events[slot] + 1)
    return share


def _costs(
    rows: RankForm, line: Array, share: Array, cells: Cells, statistics: SampleStatistics
) -> tuple[Array, Array]:
    """Return the part of the events that each test leads to its conjunction, and which tests are presence only."""
    cost = share.copy()
    nested = rows.line & NESTED != 0
    root = ~nested
    tests_of = grouped(line, len(rows.lines))
    for slot, held in enumerate(statistics.ranks):
        mine = tests_of[slot][~nested[tests_of[slot]]]
        if not len(mine):
            continue
        there = (len(held) + 0.5) / (statistics.events[slot] + 1)
        cost[mine] = there + 1e-3  # a root of a nested range is as wide, and needs no second test
        ranges = mine[rows.first[mine] <= rows.last[mine]]
        begin, end = cells.of(slot, rows.first[ranges]), cells.of(slot, rows.last[ranges])
        chance = np.concatenate([[0.0], np.cumsum(cells.chance[slot])])
        filed = chance[end + 1] - chance[begin] + _COPY_COST * np.minimum(end - begin, 2 * COARSE)
        better = filed < there
        cost[ranges[better]] = filed[better]
        root[ranges[better]] = False
    return cost, root


class _Nodes:
    """The nested ranges under which conjunctions are filed, outer ones before inner ones; each is a bucket."""

    def __init__(self, rows: RankForm, line: Array, root: Array, chosen: Array) -> None:
        cuts = np.array([one.cuts for one in rows.lines], np.int64)
        self.offsets = np.concatenate([[0], np.cumsum(cuts + 1)])
        test = chosen[chosen >= 0]
        test = test[(rows.line[test] & NESTED != 0) | root[test]]
        slot = line[test]
        first = np.where(root[test], 0, rows.first[test]).astype(np.int64)
        last = np.where(root[test], cuts[slot], rows.last[test]).astype(np.int64)
        begin = self.offsets[slot] + first
        width = last - first
        key = begin << 32 | (0xFFFFFFFF - width)  # at the same beginning the wider one first
        self.keys, self.of_test = np.unique(key, return_inverse=True)
        self.tests = test
        self.begin = self.keys >> 32
        self.width = 0xFFFFFFFF - (self.keys & 0xFFFFFFFF)
        self.slot = np.searchsorted(self.offsets, self.begin, "right") - 1
        self.parent = np.full(len(self.keys), -1, np.int32)
        self.head = np.full(int(self.offsets[-1]), -1, np.int32)
        nest(self.begin, self.width, self.head, self.parent)

    def crowded(self, statistics: SampleStatistics, budget: int) -> tuple[Array, list[Array]]:
        """Return ranks that many events have and that lie within several nodes, and the nodes of each.

        One bucket is quicker for an event than five, so these ranks get buckets of their own with all entries of their
        nodes. The entries are at most `budget`: the most useful ranks first.
        """
        if not statistics.seen:
            return np.zeros(0, np.int64), []
        ranks = np.concatenate(
            [np.zeros(0, np.int64)] + [self.offsets[slot] + held for slot, held in enumerate(statistics.ranks)]
        )
        found, counts = np.unique(ranks[self.head[ranks] >= 0], return_counts=True)
        often = counts >= _CROWD * max(statistics.events, default=0)
        sizes = np.bincount(self.of_test, minlength=len(self.keys))
        chains: list[tuple[float, int, Array]] = []
        for rank, count in zip(found[often].tolist(), counts[often].tolist(), strict=True):
            chain = []
            node = int(self.head[rank])
            while node >= 0:
                chain.append(node)
                node = int(self.parent[node])
            if len(chain) > 1:
                within = np.array(chain)
                chains.append((count * (len(chain) - 1) / int(sizes[within].sum()), rank, within))
        chosen: list[tuple[int, Array]] = []
        for _, rank, within in sorted(chains, key=lambda one: -one[0]):
            budget -= int(sizes[within].sum())
            if budget >= 0:
                chosen.append((rank, within))
        return np.array([rank for rank, _ in chosen], np.int64), [within for _, within in chosen]


# -- layout ------------------------------------------------------------------------------------------------------------


class _Entries(NamedTuple):
    bucket: Array
    conj: Array
    access: Array  # the test that leads here, -1
    again: Array  # whether it has to be tested again
    side: Array  # the side test that leads here, -1


class _BucketNumbers(NamedTuple):
    """The numbers of buckets: those of nodes begin at 0."""

    cells: Array  # [lines] where those of the line's cells begin, -1
    patterns: Array  # [patterns] that of each pattern, -1
    crowded: Array  # ranks that have a bucket of their own
    crowds: int  # where the buckets of these begin
    total: int


def _entries(
    rows: RankForm,
    line: Array,
    statistics: SampleStatistics,
    cells: Cells,
    nodes: _Nodes,
    root: Array,
    chosen: Array,
    chosen_side: Array,
) -> tuple[_Entries, _BucketNumbers]:
    """Return an entry for each bucket of each conjunction."""
    conj = np.arange(len(chosen), dtype=np.int32)
    by_test = chosen >= 0
    is_node = by_test.copy()
    is_node[by_test] = (rows.line[chosen[by_test]] & NESTED != 0) | root[chosen[by_test]]
    count = len(nodes.keys)
    pieces = [
        _Entries(nodes.of_test, conj[is_node], chosen[is_node], root[chosen[is_node]], np.full(is_node.sum(), -1))
    ]
    cell_base = np.full(len(rows.lines), -1, np.int64)
    filed = np.flatnonzero(by_test & ~is_node)
    slots = line[chosen[filed]]
    flat = 0
    filed_of = grouped(slots, len(rows.lines))
    for slot in np.unique(slots).tolist():
        test = chosen[filed[filed_of[slot]]]
        flat += int((cells.of(slot, rows.last[test]) - cells.of(slot, rows.first[test]) + 1).sum())
    has_room = flat <= FLAT_MAX
    if has_room:
        cells.coarse = CELLS  # one bucket to come to
    for slot in np.unique(slots).tolist():
        cell_base[slot] = count
        mine = filed[filed_of[slot]]
        test = chosen[mine]
        first, last = rows.first[test], rows.last[test]
        which, cell, again = cells.cover(slot, first, last)
        pieces.append(_Entries(count + cell, conj[mine[which]], test[which], again, np.full(len(which), -1)))
        count += cells.count(slot)
    by_side = np.flatnonzero(chosen_side >= 0)
    pattern = rows.side[chosen_side[by_side]] >> 2
    home = _filing_patterns(rows, statistics, np.bincount(pattern, minlength=len(rows.patterns)))[pattern]
    asked, which = np.unique(home, return_inverse=True)
    fit_bucket = np.full(len(rows.patterns), -1, np.int32)
    fit_bucket[asked] = count + np.arange(len(asked))
    none = np.full(len(by_side), -1)
    leads = np.where(home == pattern, chosen_side[by_side], -1)
    pieces.append(_Entries(count + which, conj[by_side], none, np.zeros(len(by_side), np.bool_), leads))
    count += len(asked)
    more = _CROWDS[0 if has_room else 1] * sum(len(piece.conj) for piece in pieces)
    crowded, chains = nodes.crowded(statistics, int(more))
    by_node = np.argsort(nodes.of_test, kind="stable")
    starts = np.searchsorted(nodes.of_test[by_node], np.arange(len(nodes.keys) + 1))
    within = np.concatenate([np.zeros(0, np.int64), *chains])
    which, at = runs(starts[within], starts[within + 1])
    of = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    copied = _Entries(*(column[by_node[at]] for column in pieces[0]))
    pieces.append(copied._replace(bucket=count + of[which]))
    places = _BucketNumbers(cell_base, fit_bucket, crowded, count, count + len(chains))
    return _Entries(*(np.concatenate(column) for column in zip(*pieces, strict=True))), places


def _filing_patterns(rows: RankForm, statistics: SampleStatistics, sizes: Array) -> Array:
    """Return for each pattern the pattern under whose bucket its conjunctions are filed.

    A text that contains `abcde` contains `abc` as well. If few other texts do, the conjunctions of the first are filed
    under the second, and the first is a side test: an event comes to one bucket rather than to two.
    """
    numbers: dict[str, dict[str, int]] = {}
    for n in np.flatnonzero(sizes).tolist():
        attribute, pattern = rows.patterns[n]
        if is_substring(pattern):
            numbers.setdefault(attribute, {})[pattern.pieces[1]] = n
    home = np.arange(len(rows.patterns))
    for number_of in numbers.values():
        for text, n in number_of.items():
            for length in range(1, len(text)):
                shorter = number_of.get(text[:length])
                if shorter is not None:
                    more = statistics.fits[shorter] - statistics.fits[n]
                    if sizes[n] * more < _MEETING * statistics.fits[n]:
                        home[n] = shorter
                        break
    return home


def _lay_out(rows: RankForm, line: Array, share: Array, entries: _Entries, total: int) -> tuple[Buckets, Sides, Array]:
    """Return the buckets with their entries, and the number of each of `total` of them: -1 if it has none."""
    order = np.arange(len(rows.line), dtype=np.int32)
    order_tests(rows.start, share, order)
    test_count = np.diff(rows.start)[entries.conj] - (entries.access >= 0) + entries.again
    side_count = np.diff(rows.side_start)[entries.conj] - (entries.side >= 0)
    flags = np.where(side_count > 0, SIDED, 0) | np.where(rows.multiple[entries.conj], MULTIPLE, 0)
    entries, test_count, flags, side_count = _arrange(rows, line, share, order, entries, test_count, flags, side_count)
    run = _fresh((entries.bucket << 2) | (flags >> _FLAG_BITS))  # blocks hold entries of one bucket with the same flags
    within = np.arange(len(run)) - np.flatnonzero(run)[np.cumsum(run) - 1]
    begins = np.flatnonzero(within % BLOCK == 0)
    sizes = np.diff(np.append(begins, len(within)))
    block = np.left_shift(1, sizes).astype(np.uint32) - np.uint32(1) | flags[begins].astype(np.uint32)
    used, first_block = np.unique(entries.bucket[begins], return_index=True)
    bucket_of = np.full(total, -1, np.int32)
    bucket_of[used] = np.arange(len(used))
    of = np.repeat(np.arange(len(begins)), sizes)
    at = np.arange(len(within)) - begins[of] + BLOCK * of  # the place of each entry

    tests = np.maximum.reduceat(test_count, begins) if len(begins) else begins
    test = np.concatenate([[0], np.cumsum(tests)]).astype(np.int32)
    room = BLOCK * int(test[-1]) + PADDING
    slot = np.zeros(room, np.uint8 if len(rows.lines) <= _BYTE_SLOTS else np.uint16)
    low, width = np.zeros(room, np.int32), np.full(room, 0xFFFFFFFF, np.uint32)
    fill_tests(
        entries.conj, entries.access, entries.again, BLOCK * test[of].astype(np.int64) + at % BLOCK, rows.start, order,
        share, line, rows.first, rows.last, int(np.diff(rows.start).max(initial=0)), slot, low, width,
    )  # fmt: skip
    zones = [np.zeros(len(begins) + PADDING, kind) for kind in (slot.dtype, np.int32, np.uint32)]
    fill_zones(block, test, slot, low, width, *zones)

    sided = np.flatnonzero(flags & SIDED)
    side_out = np.zeros(int(side_count[sided].sum()), np.int32)
    side_start = np.zeros(len(sided) + 1, np.int32)
    fill_sides(entries.conj[sided], entries.side[sided], rows.side_start, rows.side, side_start, side_out)
    block_sides = np.where(block & SIDED, sizes, 0)
    side = (np.cumsum(block_sides) - block_sides).astype(np.int32) if len(sided) else np.zeros(0, np.int32)
    number = np.zeros(BLOCK * len(begins) + PADDING, np.int32)
    number[at] = rows.owner[entries.conj]
    begin = np.append(first_block, len(begins)).astype(np.int32)
    buckets = Buckets(begin, block, test, side, number, slot, low, width, *zones)
    sides = Sides(side_start, side_out, rows.set_start, rows.set_line, rows.set_first, rows.set_last)
    return buckets, sides, bucket_of


def _fresh(keys: Array) -> Array:
    """Return which keys differ from the one before."""
    fresh: Array = np.ones(len(keys), np.bool_)
    fresh[1:] = keys[1:] != keys[:-1]
    return fresh


def _arrange(
    rows: RankForm,
    line: Array,
    share: Array,
    order: Array,
    entries: _Entries,
    test_count: Array,
    flags: Array,
    side_count: Array,
) -> tuple[_Entries, Array, Array, Array]:
    """Return entries by bucket, flags and number of tests, and then by their first test, so that zones are narrow.

    Sixteen neighbours should have first tests of one slot with bounds that lie together: sorted by the lower bound, cut
    into slabs of about as many entries as the square root allows, and within a slab sorted by the upper bound.
    """
    first = np.full(len(test_count), -1, np.int32)
    most = int(np.diff(rows.start).max(initial=0))
    first_tests(entries.conj, entries.access, entries.again, rows.start, order, share, most, first)
    has = first >= 0
    slot, low, high = (
        np.where(has, column[first], 0) if has.any() else first for column in (line, rows.first, rows.last)
    )
    section = (entries.bucket << 16) | ((flags >> _FLAG_BITS) << 14) | test_count
    by_low = np.lexsort((low, slot, section))
    run = _fresh(section[by_low]) | _fresh(slot[by_low])
    begins = np.flatnonzero(run)
    sizes = np.diff(np.append(begins, len(section)))
    which = np.cumsum(run) - 1
    slab = np.maximum(BLOCK, np.ceil(np.sqrt(sizes / BLOCK)).astype(np.int64) * BLOCK)
    within = (np.arange(len(section)) - begins[which]) // slab[which]
    arranged = by_low[np.lexsort((high[by_low], within, which))]
    return (
        _Entries(*(column[arranged] for column in entries)),
        test_count[arranged],
        flags[arranged],
        side_count[arranged],
    )


def _access(rows: RankForm, cells: Cells, nodes: _Nodes, places: _BucketNumbers, bucket_of: Array) -> BucketTables:
    """Return the tables from ranks to buckets."""
    new_parent = np.full(int((bucket_of >= 0).sum()) + 1, -1, np.int32)
    has = nodes.parent >= 0
    new_parent[: len(has)][has] = bucket_of[nodes.parent[has]]  # every node has an entry, and nodes come first
    head = np.where(nodes.head >= 0, bucket_of[np.maximum(nodes.head, 0)], -1) if len(bucket_of) else nodes.head
    head[places.crowded] = bucket_of[places.crowds + np.arange(len(places.crowded))]
    slots = np.unique(nodes.slot).tolist()
    tables = [head[nodes.offsets[slot] : nodes.offsets[slot + 1]] for slot in slots]
    for slot in np.flatnonzero(places.cells >= 0).tolist():
        starts = cells.starts[slot]
        widths = np.diff(np.append(starts, rows.lines[slot].cuts + 1))
        fine = bucket_of[places.cells[slot] : places.cells[slot] + len(starts)]
        coarse = bucket_of[places.cells[slot] + len(starts) + np.arange(len(starts)) // cells.coarse]
        new_parent[fine[fine >= 0]] = coarse[fine >= 0]
        slots.append(slot)
        tables.append(np.repeat(np.where(fine >= 0, fine, coarse), widths))
    offsets = np.concatenate([[0], np.cumsum([len(table) for table in tables])])[: len(tables)].astype(np.int64)
    whole = np.concatenate([np.zeros(0, np.int32), *tables]).astype(np.int32)
    found = np.where(places.patterns >= 0, bucket_of[np.maximum(places.patterns, 0)], -1).astype(np.int32)
    return BucketTables(np.array(slots, np.int32), offsets, whole, new_parent, found)
