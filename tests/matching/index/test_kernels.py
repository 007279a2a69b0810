"""Each compiled loop against a plain twin: what its docstring says, in Python that nobody would call fast.

Arguments have the types with which the package calls the kernels, what is read-only included, so that the code on disk
is shared with it and next to nothing is compiled for the tests alone.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from pkgutil import get_data
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numba import njit
from numba.core.dispatcher import Dispatcher

from meetpoint.language.like import ANY_CHAR, Pattern, PatternSort, parse_like
from meetpoint.matching.index.grams import build_grams
from meetpoint.matching.index.kernels import building, compiling, patterns, ranks, results, scanning
from meetpoint.matching.index.kernels.scanning import (
    BLOCK,
    COUNT,
    ENTRY,
    FLAGS,
    MULTIPLE,
    SECTION,
    SIDE,
    SIDE_FITS,
    SIDE_IN_SET,
    SIDED,
    TEST,
    TESTS,
    ZONE,
    Buckets,
    Sides,
)
from meetpoint.matching.index.kernels.simd import PADDING, has_avx512
from meetpoint.matching.index.lines import Array, Line, LineKey, LineSort, Thresholds, text_line

WORD = (-(2**63), 2**63 - 1)
UNTOUCHED = -7
"""Stands where a kernel has no business."""
CHARACTERS = "ab\0\x7f\x80é\u07ff\u0800€\ud7ff\ue000\uffff\U00010000🙂\U0010ffff"
"""The first and last characters of each length in UTF-8, and those around the surrogates."""


def copies(arguments: tuple[Any, ...]) -> list[Any]:
    """What is read-only cannot be changed, and a copy of it would be of another type to numba."""
    return [a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in arguments]


def agree(name: str, *arguments: Any) -> Any:
    """Kernel and twin return the same and leave the same in all arrays; what they return."""
    of_kernel, of_twin = copies(arguments), copies(arguments)
    found, expected = KERNELS[name](*of_kernel), TWINS[name](*of_twin)
    np.testing.assert_equal(found, expected)
    for at, (a, b) in enumerate(zip(of_kernel, of_twin, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"{name}: argument {at}")
    return found


def untouched(length: int, dtype: Any = np.int32) -> Array:
    return np.full(length, UNTOUCHED, dtype)


def starts_of(counts: Sequence[int], dtype: Any = np.int32) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(dtype)


# -- the twins ---------------------------------------------------------------------------------------------------------


def line_ranks(
    keys: Array, valid: Array, thresholds: Array, grid: Array, first: int, shift: int, base: int, out: Array, slot: int
) -> None:
    cuts = thresholds.tolist()
    for e, key in enumerate(keys.tolist()):
        if valid[e]:
            out[e, slot] = base + bisect_right(cuts, key)


def double_ranks(bits: Array, *rest: Any) -> None:
    """The order of doubles is that of their bits without the sign, turned around where there is one."""
    keys: list[int] = []
    for word, value in zip(bits.tolist(), bits.view(np.float64).tolist(), strict=True):
        size = word % 2**63
        keys.append(WORD[1] if math.isnan(value) else 0 if value == 0 else size if word >= 0 else -1 - size)
    line_ranks(np.array(keys, np.int64), *rest)


def text_ranks(
    data: Array, starts: Array, ends: Array, valid: Array, offsets: Array, cuts: Array, back_offsets: Array,
    back_cuts: Array, cache: ranks.TextCache, out: Array, slot: int, back_slot: int,
) -> None:  # fmt: skip
    for e in np.flatnonzero(valid):
        text = data.tobytes()[starts[e] : ends[e]]
        if slot >= 0:
            out[e, slot] = sum(cut <= text for cut in texts_between(offsets, cuts))
        if back_slot >= 0:
            turned = text.decode()[::-1].encode()
            out[e, back_slot] = sum(cut <= turned for cut in texts_between(back_offsets, back_cuts))


def texts_between(offsets: Array, data: Array) -> list[bytes]:
    whole = data.tobytes()
    return [whole[a:b] for a, b in pairwise(offsets.tolist())]


def gram_hash(a: int, b: int, c: int) -> int:
    """The upper half of the lower half of a product: what the tables of grams are made by."""
    return (int.from_bytes((a, b, c), "little") * 0x9E3779B1 & 0xFFFFFFFF) >> 16


def like(data: Array, start: int, end: int, symbol: Array, first: int, last: int) -> bool:
    pieces = [b""]
    for want in symbol[first:last].tolist():
        if want == patterns.PERCENT:
            pieces.append(b"")
        else:
            pieces[-1] += ANY_CHAR.encode("utf-8", "surrogatepass") if want == patterns.ANY_CHAR else bytes([want])
    pattern = Pattern(tuple(piece.decode("utf-8", "surrogatepass") for piece in pieces))
    return pattern.matches(data.tobytes()[start:end].decode())


def fitting_patterns(texts: Sequence[str | None], asked: Sequence[tuple[int, Pattern]]) -> list[list[int]]:
    """For each text the numbers of the patterns that fit it, in their order, which the kernel does not promise."""
    return [[number for number, pattern in asked if text is not None and pattern.matches(text)] for text in texts]


def list_pairs(
    ranks: Array, slots: Array, offsets: Array, head: Array, parent: Array, fit_start: Array, fit: Array,
    fit_bucket: Array, buckets: Array, events: Array,
) -> int:  # fmt: skip
    found: list[tuple[int, int]] = []
    for e, row in enumerate(ranks):
        for slot, offset in zip(slots, offsets, strict=True):
            bucket = head[offset + row[slot]] if row[slot] >= 0 else -1
            while bucket >= 0:
                found.append((bucket, e))
                bucket = parent[bucket]
        by_pattern = fit_bucket[fit[fit_start[e] : fit_start[e + 1]]]
        found += [(bucket, e) for bucket in by_pattern[by_pattern >= 0]]
    for at, pair in enumerate(found[: len(buckets)]):
        buckets[at], events[at] = pair
    return len(found)


def sort_pairs(buckets: Array, events: Array, starts: Array, sorted_buckets: Array, sorted_events: Array) -> None:
    order = np.argsort(buckets, kind="stable")
    sorted_buckets[:], sorted_events[:] = buckets[order], events[order]


class Matches(NamedTuple):
    """What a scan writes to its two outputs: numbers and events of each."""

    numbers: list[int]
    events: list[int]
    more_numbers: list[int]
    more_events: list[int]


def match(
    buckets: Array, events: Array, base: int, ranks: Array, fit_start: Array, fit: Array, b: Buckets, sides: Sides
) -> Matches:
    """All matches of all pairs. Zones only save time, so that they are not looked at."""
    found = Matches([], [], [], [])
    for bucket, e in zip(buckets.tolist(), events.tolist(), strict=True):
        fits = fit[fit_start[e] : fit_start[e + 1]].tolist()
        for section in b.section[b.begin[bucket] : b.begin[bucket + 1]].tolist():
            n, flags = section[COUNT], section[FLAGS]
            holds = np.ones(n, np.bool_)
            for begin in range(section[TEST], section[TEST] + n * section[TESTS], n):
                slot, low, width = (column[begin : begin + n] for column in (b.slot, b.low, b.width))
                holds &= (ranks[e, slot].astype(np.int64) - low) % 2**32 <= width
            for j in np.flatnonzero(holds).tolist():
                if flags & SIDED and not sides_hold(sides, section[SIDE] + j, ranks[e], fits):
                    continue
                number = int(b.number[section[ENTRY] + j])
                if flags & MULTIPLE:
                    found.more_numbers.append(number)
                    found.more_events.append(e)
                else:
                    found.numbers.append(number)
                    found.events.append(base + e)
    return found


def sides_hold(sides: Sides, entry: int, row: Array, fits: list[int]) -> bool:
    for test in sides.test[sides.start[entry] : sides.start[entry + 1]].tolist():
        asked, argument = test & 3, test >> 2
        if asked == SIDE_IN_SET:
            intervals = slice(sides.set_start[argument], sides.set_start[argument + 1])
            rank = row[sides.set_slot[argument]]
            holds = bool(((sides.set_first[intervals] <= rank) & (rank <= sides.set_last[intervals])).any())
        else:
            holds = (argument in fits) == (asked == SIDE_FITS)
        if not holds:
            return False
    return True


def group_by_event(events: Array, numbers: Array, starts: Array, grouped: Array) -> None:
    grouped[:] = numbers[np.argsort(events, kind="stable")]
    starts[:] = starts_of(np.bincount(events, minlength=len(starts) - 1).tolist())


def drop_doubles(
    starts: Array, grouped: Array, tried: Array, mark: int, base: int, out_event: Array, out_number: Array
) -> int:
    found: list[tuple[int, int]] = []
    for e, (begin, end) in enumerate(pairwise(starts.tolist())):
        found += [(base + e, number) for number in dict.fromkeys(grouped[begin:end].tolist())]
        tried[grouped[begin:end]] = mark + e + 1
    for at, pair in enumerate(found):
        out_event[at], out_number[at] = pair
    return len(found)


def sort_runs(starts: Array, numbers: Array) -> None:
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        numbers[begin:end] = sorted(numbers[begin:end].tolist())


def drop_dead(numbers: Array, events: Array, dead: Array) -> tuple[Array, Array]:
    """What is kept; what the kernel leaves behind it means nothing."""
    alive = np.unpackbits(dead, bitorder="little")[numbers] == 0
    return numbers[alive], events[alive]


def choose(start: Array, cost: Array, side_start: Array, side_cost: Array) -> tuple[Array, Array]:
    chosen: list[tuple[int, int]] = []
    for c in range(len(start) - 1):
        found = [(cost[t], 0, t) for t in range(start[c], start[c + 1])]
        found += [(side_cost[s], 1, s) for s in range(side_start[c], side_start[c + 1]) if side_cost[s] < np.inf]
        _, is_side, at = min(found, default=(0.0, 1, -1))
        chosen.append((-1, at) if is_side else (at, -1))
    made = np.array(chosen, np.int32).reshape(-1, 2)
    return made[:, 0], made[:, 1]


def nest(begin: Array, width: Array, head: Array, parent: Array) -> None:
    nodes = [range(b, b + w + 1) for b, w in zip(begin.tolist(), width.tolist(), strict=True)]

    def innermost(first: int, last: int, wider_than: int) -> int:
        around = [n for n, node in enumerate(nodes) if first in node and last in node and len(node) > wider_than]
        return min(around, key=lambda n: len(nodes[n]), default=-1)

    head[:] = [innermost(rank, rank, 0) for rank in range(len(head))]
    parent[:] = [innermost(node[0], node[-1], len(node)) for node in nodes]


def order_tests(start: Array, share: Array, order: Array) -> None:
    for a, b in pairwise(start.tolist()):
        order[a:b] = sorted(range(a, b), key=lambda t: float(share[t]))


def in_order(conj: int, access: int, again: bool, start: Array, order: Array, share: Array) -> list[int]:
    """An entry's tests: all but the one that leads to it, which is asked again as one that half of the events pass."""
    tests = [t for t in order[start[conj] : start[conj + 1]].tolist() if t != access]
    if again:
        tests.insert(bisect_right(tests, 0.5, key=lambda t: float(share[t])), access)
    return tests


def first_tests(
    entry_conj: Array, entry_access: Array, entry_again: Array, start: Array, order: Array, share: Array, most: int,
    first: Array,
) -> None:  # fmt: skip
    for i, entry in enumerate(zip(entry_conj, entry_access, entry_again, strict=True)):
        first[i] = (*in_order(*entry, start, order, share), first[i])[0]


def fill_tests(
    entry_conj: Array, entry_access: Array, entry_again: Array, at: Array, stride: Array, start: Array, order: Array,
    share: Array, line: Array, first: Array, last: Array, most: int, slot: Array, low: Array, width: Array,
) -> None:  # fmt: skip
    for i, entry in enumerate(zip(entry_conj, entry_access, entry_again, strict=True)):
        for j, t in enumerate(in_order(*entry, start, order, share)):
            place = at[i] + j * stride[i]
            slot[place], low[place], width[place] = line[t], first[t], (int(last[t]) - int(first[t])) % 2**32


def fill_sides(
    entry_conj: Array, entry_side: Array, side_start: Array, side: Array, out_start: Array, out: Array
) -> None:
    written: list[int] = []
    for i, (c, leads) in enumerate(zip(entry_conj, entry_side, strict=True)):
        written += [side[s] for s in range(side_start[c], side_start[c + 1]) if s != leads]
        out_start[i + 1] = len(written)
    out[: len(written)] = written


def fill_zones(
    sections: Array, slot: Array, low: Array, width: Array, zone_slot: Array, zone_low: Array, zone_width: Array
) -> None:
    for section in sections.tolist():
        tests = range(section[TEST], section[TEST] + section[COUNT])
        for z, at in enumerate(tests[::BLOCK] if section[ZONE] >= 0 else ()):
            sixteen = tests[at - tests[0] :][:BLOCK]
            lows = [int(low[t]) for t in sixteen]
            highs = [int(low[t]) + int(width[t]) for t in sixteen]
            bounded = len({int(slot[t]) for t in sixteen}) == 1 and max(highs) < 2**31
            q = section[ZONE] + z
            zone_slot[q] = slot[at]
            zone_low[q] = min(lows) if bounded else 0
            zone_width[q] = max(highs) - min(lows) if bounded else 2**32 - 1


def merge_small(keys: Array, counts: Array, least: int, target: Array) -> None:
    joined: list[int] = []
    for i in range(len(keys)):
        joined.append(i)
        alone = i + 1 == len(keys) or keys[i] >> 14 != keys[i + 1] >> 14
        if alone or counts[joined].sum() >= least:
            target[joined] = i
            joined = []


TWINS: dict[str, Callable[..., Any]] = {
    "choose": choose,
    "double_ranks": double_ranks,
    "drop_dead": drop_dead,
    "drop_doubles": drop_doubles,
    "fill_sides": fill_sides,
    "fill_tests": fill_tests,
    "fill_zones": fill_zones,
    "first_tests": first_tests,
    "fitting_patterns": fitting_patterns,
    "gram_hash": gram_hash,
    "group_by_event": group_by_event,
    "like": like,
    "line_ranks": line_ranks,
    "list_pairs": list_pairs,
    "match_avx512": match,
    "match_portable": match,
    "merge_small": merge_small,
    "nest": nest,
    "order_tests": order_tests,
    "sort_pairs": sort_pairs,
    "text_ranks": text_ranks,
    "sort_runs": sort_runs,
}


def compiled_in(module: ModuleType) -> dict[str, Any]:
    return {name: value for name in module.__all__ if isinstance(value := getattr(module, name), Dispatcher)}


KERNELS: dict[str, Callable[..., Any]] = {
    name: value
    for module in (building, patterns, ranks, results, scanning)
    for name, value in compiled_in(module).items()
}


def test_each_kernel_has_a_twin() -> None:
    assert sorted(KERNELS) == sorted(TWINS)


# -- ranks -------------------------------------------------------------------------------------------------------------

WORDS = st.integers(*WORD) | st.sampled_from([*WORD, WORD[0] + 1, WORD[1] - 1, -1, 0, 1]) | st.integers(-50, 50)


@st.composite
def keys_and_cuts(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Keys, and thresholds in order: near each other, far apart, and equal ones."""
    cuts = sorted(draw(st.lists(WORDS, max_size=12)))
    near = [min(max(cut + d, WORD[0]), WORD[1]) for cut in cuts for d in (-1, 0, 1)]
    return draw(st.lists(WORDS | st.sampled_from(near) if near else WORDS, max_size=20)), cuts


def followed(array: Array, by: int) -> Array:
    """The same array, with something behind it that would change a result."""
    return np.append(array, np.full(4, by, array.dtype))[:-4]


def rank_lines(keys: Array, valid: Array, cuts: Thresholds) -> None:
    """As keys, and as the bits of doubles."""
    cuts = cuts._replace(keys=followed(cuts.keys, WORD[0]), grid=followed(cuts.grid, len(cuts.keys) + 4))
    for name in ("line_ranks", "double_ranks"):
        found, expected = (untouched(len(keys) * 16).reshape(-1, 16) for _ in range(2))
        KERNELS[name](keys, valid, *cuts, found, 3)
        TWINS[name](keys, valid, *cuts, expected, 3)
        np.testing.assert_array_equal(found, expected)


@given(keys_and_cuts(), st.integers(0, 2**20), st.integers(0, 63), st.randoms(use_true_random=False))
@example(([], []), 0, 0, random.Random(0))
@example(([], [1]), 0, 0, random.Random(0))
@example(([*WORD, 0], [*WORD]), 0, 0, random.Random(0))
@example(([*WORD, 0], [WORD[0]] * 3 + [WORD[1]] * 3), 5, 63, random.Random(0))
@example(([*WORD, 6, 7, 8], [7, 7, 7]), 5, 3, random.Random(0))
def test_keys_are_ranked(keys_cuts: tuple[list[int], list[int]], base: int, coarser: int, rng: random.Random) -> None:
    keys, sorted_cuts = (np.array(some, np.int64) for some in keys_cuts)
    valid = np.array([rng.random() < 0.8 for _ in keys], np.bool_)
    cuts = Thresholds.of(sorted_cuts, base)
    rank_lines(keys, valid, cuts)
    rank_lines(keys, np.zeros(len(keys), np.bool_), cuts)
    if keys_cuts[1]:  # any grid serves, whatever its shift, as long as it has all of the cuts
        shift = min(cuts.shift + coarser, 63)
        cells = [(cut - cuts.first) >> shift for cut in keys_cuts[1]]
        grid = np.searchsorted(cells, np.arange(cells[-1] + 2)).astype(np.int32)
        rank_lines(keys, valid, cuts._replace(grid=grid, shift=shift))


def test_many_keys_are_ranked_among_many_cuts() -> None:
    """The cells of the grid hold many cuts here, few there."""
    rng = np.random.default_rng(1)
    cuts = np.sort(np.concatenate([rng.integers(*WORD, 3000), rng.integers(-1000, 1000, 3000)]))
    keys = np.concatenate([rng.integers(*WORD, 2000), cuts[::3], cuts[::5] + 1, rng.integers(-1200, 1200, 2000)])
    rank_lines(keys, np.ones(len(keys), np.bool_), Thresholds.of(cuts))


DOUBLES = [-math.inf, -1e300, -1.5, -5e-324, -0.0, 0.0, 5e-324, 0.1, 1.5, 1e300, math.inf]


@given(st.lists(st.floats(width=64) | st.sampled_from(DOUBLES), max_size=20), st.sets(st.sampled_from(DOUBLES)))
@example([*DOUBLES, math.nan, -math.nan], set(DOUBLES))
def test_doubles_are_ranked(values: list[float], cut_at: set[float]) -> None:
    """Cuts before and after some doubles; NaN is larger than all others."""
    cuts = [(value, after) for value in sorted(cut_at) for after in (False, True)]
    line = Line(
        LineKey("a", LineSort.NUMBER),
        np.array([v for v, _ in cuts], np.float64),
        np.array([a for _, a in cuts], np.bool_),
    )
    found = untouched(len(values) * 16).reshape(-1, 16)
    bits = np.array(values, np.float64).view(np.int64)
    ranks.double_ranks(bits, np.ones(len(bits), np.bool_), *line.floats, found, 0)
    assert found[:, 0].tolist() == [
        sum(math.isnan(value) or cut < value or (cut == value and not after) for cut, after in cuts) for value in values
    ]


TEXTS = st.text(st.sampled_from(CHARACTERS), max_size=6) | st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "🙂🙂"]),
    st.text(st.sampled_from("ab🙂"), max_size=9),
    st.sampled_from(["", "🙂🙂"]),
)
"""Some with the same first and last eight bytes as others."""


class Packed(NamedTuple):
    """Texts as a part holds them; what is not valid lies nowhere."""

    data: Array
    starts: Array
    ends: Array
    valid: Array

    @staticmethod
    def of(texts: Sequence[str | None]) -> Packed:
        encoded = [b"" if text is None else text.encode() for text in texts]
        data = b"before" + b"".join(encoded) + b"behind"
        ends = starts_of([len(b"before"), *map(len, encoded)], np.int64)[1:]
        starts, ends = ends[:-1].copy(), ends[1:].copy()
        valid = np.array([text is not None for text in texts], np.bool_)
        starts[~valid], ends[~valid] = 2**40, 2**41
        return Packed(np.frombuffer(bytearray(data), np.uint8), starts, ends, valid)


def cuts_of(texts: Sequence[str], *, sort: LineSort = LineSort.TEXT) -> Line:
    """A line cut before and just behind texts, which are turned for the line of texts read backwards."""
    turned = [text[::-1] if sort is LineSort.TEXT_BACK else text for text in texts]
    return text_line(
        LineKey("a", sort), sorted({cut for text in turned for cut in (text.encode(), text.encode() + b"\0")})
    )


def new_cache(capacity: int, size: int) -> ranks.TextCache:
    """One with room for half as many texts as its capacity, and so many bytes of long ones."""
    return ranks.TextCache(np.zeros(2, np.int64), np.zeros((capacity, 4), np.uint64), np.zeros(size, np.uint8))


def rank_texts(texts: Sequence[str | None], line: Line, back_line: Line, cache: ranks.TextCache, *slots: int) -> None:
    shared = (*Packed.of(texts), line.offsets, line.data, back_line.offsets, back_line.data, cache)
    found, expected = (untouched(len(texts) * 16).reshape(-1, 16) for _ in range(2))
    ranks.text_ranks(*shared, found, *slots)
    text_ranks(*shared, expected, *slots)
    np.testing.assert_array_equal(found, expected)
    assert 2 * cache.filled[0] <= len(cache.table)
    assert cache.filled[1] <= len(cache.data)


@given(
    st.lists(TEXTS, max_size=8),
    st.lists(TEXTS, max_size=8),
    st.data(),
    st.sampled_from([2, 4, 8, 64]),
    st.sampled_from([0, 1, 30, 1000]),
    st.sampled_from([(0, 1), (5, 2), (0, -1), (-1, 0), (-1, -1)]),
)
def test_texts_are_ranked(
    cuts: list[str], back_cuts: list[str], data: st.DataObject, capacity: int, size: int, slots: tuple[int, int]
) -> None:
    """Forwards and backwards, with a cache that is soon full of texts, or of bytes, and whose places collide."""
    near = [text + more for text in cuts + back_cuts for more in ("", "\0", "a")]
    one = st.none() | TEXTS | st.sampled_from(near) if near else st.none() | TEXTS
    line, back_line = cuts_of(cuts), cuts_of(back_cuts, sort=LineSort.TEXT_BACK)
    cache = new_cache(capacity, size)
    for _ in range(2):
        texts = data.draw(st.lists(one, max_size=12))
        for _ in range(2):  # the second time they are in the cache, as far as there is room
            rank_texts(texts, line, back_line, cache, *slots)


@pytest.mark.parametrize("capacity", [4, 64, 4096])
def test_texts_that_differ_in_one_byte_are_ranked(capacity: int) -> None:
    """A cut before and behind each, so that no other text of the same length, beginning or end has its ranks."""
    texts = ["x" * at + c + "x" * (n - at) for n in range(19) for at in range(n + 1) for c in "ay"]
    random.Random(3).shuffle(texts)
    line, back_line, cache = cuts_of(texts), cuts_of(texts, sort=LineSort.TEXT_BACK), new_cache(capacity, 20_000)
    for _ in range(2):
        rank_texts(texts, line, back_line, cache, 0, 1)


def test_long_texts_are_ranked() -> None:
    """Texts that differ from cuts only at their ends, or after many characters of several bytes."""
    long = "🙂é" * 700
    texts = ["", long, long + "a", "a" + long, long[:-1], long[1:], "é" + long[1:], long[:-1] + "ê", None]
    line, back_line = cuts_of([long, "z"]), cuts_of([long, "", "z"], sort=LineSort.TEXT_BACK)
    for size in (10_000, 1 << 20):
        rank_texts(texts, line, back_line, new_cache(64, size), 0, 1)


def test_no_texts_are_ranked() -> None:
    line, back_line = cuts_of(["a"]), cuts_of(["a"], sort=LineSort.TEXT_BACK)
    rank_texts([], line, back_line, new_cache(4, 4), 0, 1)
    rank_texts([None, None], line, back_line, new_cache(4, 4), 0, 1)


def test_a_text_seen_before_is_not_searched_again() -> None:
    """It has the ranks that it had on other lines, as long as the cache has room for it."""
    long = "long" * 9
    texts = ["", "aé", long, "b"]
    lines = cuts_of(["a", "c", "n"]), cuts_of(["", "é"], sort=LineSort.TEXT_BACK)
    cache = new_cache(8, 100)
    rank_texts(texts[:3], *lines, cache, 0, 1)
    others = cuts_of([]), cuts_of([], sort=LineSort.TEXT_BACK)
    found = untouched(4 * 16).reshape(4, 16)
    ranks.text_ranks(*Packed.of(texts), *(a for line in others for a in (line.offsets, line.data)), cache, found, 0, 1)
    assert found[:, :2].tolist() == [[0, 1], [2, 4], [4, 2], [0, 0]]
    assert cache.filled.tolist() == [4, len(long)]


# -- patterns ----------------------------------------------------------------------------------------------------------

PIECES = ["a", "b", "ab", "aba", "abab", "%", "_", r"\%", r"\_", "\\\\", "é", "€", "🙂", "\0"]
LIKE = st.lists(st.sampled_from(PIECES), max_size=7).map("".join).map(parse_like)
LIKE_TEXTS = st.text(st.sampled_from("aaabbb%_\\é€🙂\0"), max_size=9)
OF_EACH_SORT = ["ab", "", "é%", "%", "%🙂", "a%b", "é%é", "%ab%", "%é%", "a_b", "_", "%_%b", "a%b%_", "%a%b%", "_%🙂_"]


def symbols_of(pattern: Pattern) -> Array:
    symbols: list[int] = []
    for at, piece in enumerate(pattern.pieces):
        symbols += [patterns.PERCENT] if at else []
        for c in piece:
            symbols += [patterns.ANY_CHAR] if c == ANY_CHAR else c.encode()
    return np.array(symbols, np.uint16)


def check_like(pattern: Pattern, text: str) -> bool:
    """Kernel, twin and the language agree on whether a text fits; it and the pattern lie amidst others."""
    encoded = text.encode()
    data = np.frombuffer(bytearray("a🙂".encode() + encoded + "éa".encode()), np.uint8)
    symbols = symbols_of(pattern)
    around = np.array([patterns.PERCENT, ord("a")], np.uint16)
    held = np.concatenate([around, symbols, around])
    found = bool(agree("like", data, 5, 5 + len(encoded), held, 2, 2 + len(symbols)))
    assert found == pattern.matches(text)
    return found


@given(LIKE, LIKE_TEXTS)
def test_like(pattern: Pattern, text: str) -> None:
    check_like(pattern, text)


@given(LIKE, st.data())
def test_like_of_texts_made_from_the_pattern(pattern: Pattern, data: st.DataObject) -> None:
    """So that most of them fit: any character for `_`, any text for `%`."""
    one = st.sampled_from("ab€🙂")
    parts = [
        "".join(data.draw(one) if c == ANY_CHAR else c for c in piece) + (data.draw(LIKE_TEXTS) if at else "")
        for at, piece in enumerate(reversed(pattern.pieces))
    ]
    assert check_like(pattern, "".join(reversed(parts)))


def test_like_of_each_sort() -> None:
    made = [parse_like(text) for text in OF_EACH_SORT]
    assert {pattern.sort for pattern in made} == set(PatternSort)
    texts = ["", "a", "b", "ab", "aab", "abb", "é", "éé", "aé", "🙂", "é🙂", "a🙂b", "🙂🙂", "aéb🙂a", "\0", "%", "_"]
    assert {check_like(pattern, text) for pattern in made for text in texts} == {True, False}


def test_gram_hash() -> None:
    """It has no way from Python, so that a loop compiled here calls it."""
    hashed = patterns.gram_hash
    grams = np.random.default_rng(2).integers(0, 256, (5000, 3)).astype(np.uint8)
    grams[:3] = [[0, 0, 0], [255, 255, 255], [0, 0, 255]]
    found = njit(lambda grams: [hashed(g[0], g[1], g[2]) for g in grams])(grams)
    assert found == [gram_hash(*gram) for gram in grams.tolist()]


class Asked:
    """Patterns on two attributes, found by grams on the first, and what is kept between batches."""

    def __init__(self, mine: Sequence[Pattern], others: Sequence[Pattern] = (), seed: int = 0) -> None:
        rng = random.Random(seed)
        both = [("a", pattern) for pattern in mine] + [("b", pattern) for pattern in others]
        rng.shuffle(both)
        self.grams = build_grams(both).get("a")
        self.mine = [(number, pattern) for number, (attribute, pattern) in enumerate(both) if attribute == "a"]
        self.tried = np.zeros(max(len(both), 1), np.int64)
        self.mark = 0

    def fitting(self, texts: Sequence[str | None], room: int) -> tuple[int, list[int], list[int]]:
        """How many are said to fit, what was written, and how many fit each text."""
        out, counts = untouched(room + 4), untouched(len(texts), np.int64)
        mark, self.mark = self.mark, self.mark + len(texts)
        found = patterns.fitting_patterns(*Packed.of(texts), self.grams, self.tried, mark, out[:room], counts)
        assert (out[min(found, room) :] == UNTOUCHED).all()
        return found, out[: min(found, room)].tolist(), counts.tolist()

    def check(self, texts: Sequence[str | None]) -> int:
        """Compare with the twin, with room enough and with too little; how many fit."""
        expected = fitting_patterns(texts, self.mine)
        total = sum(map(len, expected))
        found, numbers, counts = self.fitting(texts, total)
        starts = starts_of(counts).tolist()
        assert found == total
        assert [sorted(numbers[a:b]) for a, b in pairwise(starts)] == expected
        for room in {0, 1, total // 2, max(total - 1, 0)}:
            assert self.fitting(texts, room) == (total, numbers[:room], counts)
        return total


@given(
    st.lists(LIKE, min_size=1, max_size=8),
    st.lists(LIKE, max_size=3),
    st.lists(st.lists(st.none() | LIKE_TEXTS, max_size=6), min_size=1, max_size=3),
    st.integers(0, 9),
)
def test_fitting_patterns(
    mine: list[Pattern], others: list[Pattern], batches: list[list[str | None]], seed: int
) -> None:
    asked = Asked(mine, others, seed)
    for texts in batches:
        asked.check(texts)


@pytest.mark.parametrize("seed", [0, 1])
def test_patterns_fit_long_texts(seed: int) -> None:
    """Longer than the room for hits at first, with hits at every byte of three, two and one, or at the very end."""
    likes = ["%aaa%", "%aa%", "%a%", "%b%", "%aab%", "%é%", "%éa", "a%", "%", "_%a", "%aaaaaaaa%", "%aabé", "%éé%"]
    asked = Asked([parse_like(text) for text in likes], seed=seed)
    texts = [
        "a" * n + tail for n in (0, 1, 2, 3, 1020, 1021, 1022, 1023, 1024, 1025, 3000) for tail in ("", "b", "é", "bé")
    ]
    assert asked.check(texts) > 0
    assert asked.check([text for n in range(4) for text in ("é" * 511 + "a" * n, None, "", "é" * 4000)]) > 0


def test_patterns_without_any_byte_fit() -> None:
    """No grams at all: each is tried on each text."""
    asked = Asked([parse_like(text) for text in ("", "_", "__", "%", "_%", "__%")])
    assert asked.check(["", "a", "é", "🙂é", "\0", "aaa", None]) > 0
    assert asked.check([]) == 0
    assert asked.check([None]) == 0


@pytest.mark.parametrize("seed", range(8))
def test_patterns_do_not_fit_across_texts(seed: int) -> None:
    """Texts lie one behind the other, and any piece of them all is a pattern, wherever its gram is."""
    rng = random.Random(seed)
    whole = "".join(rng.choice("abcdé🙂") for _ in range(60))
    ends = [(at, at + length) for at in range(len(whole)) for length in (1, 2, 3, 4, 6)]
    asked = Asked([parse_like(text) for text in sorted({f"%{whole[a:b]}%" for a, b in ends})], seed=seed)
    cuts = sorted({0, *(rng.randrange(60) for _ in range(25)), 60})
    assert asked.check([whole[a:b] for a, b in pairwise(cuts)]) > 0


def test_many_patterns_share_a_gram() -> None:
    """Chains of patterns, each of which is found once however often its gram occurs."""
    asked = Asked([parse_like(f"%aba{tail}%") for tail in ("", "a", "b", "ba", "bab", "bb", "é", "_", "_b", "%aba")])
    assert asked.check(["aba" * n + tail for n in range(5) for tail in ("", "b", "ba", "é", "aba")]) > 0


# -- scanning ----------------------------------------------------------------------------------------------------------

ROOM = st.integers(0, 40)


@given(st.integers(0, 2**32), st.integers(0, 6), st.integers(1, 4), st.integers(0, 8), ROOM)
def test_pairs_are_listed(seed: int, events: int, lines: int, pattern_count: int, room: int) -> None:
    """Through chains of buckets, from slots and from patterns, with enough room or not."""
    rng = np.random.default_rng(seed)
    slots = rng.permutation(16)[:lines].astype(np.int32)
    cuts = rng.integers(0, 5, lines)
    offsets = starts_of((cuts + 1).tolist(), np.int64)
    count = int(rng.integers(1, 9))
    parent = np.array([rng.integers(-1, max(bucket, 1)) if bucket else -1 for bucket in range(count)], np.int32)
    head = rng.integers(-1, count, offsets[-1]).astype(np.int32)
    event_ranks = untouched(events * 16).reshape(events, 16)
    for slot, cut in zip(slots.tolist(), cuts.tolist(), strict=True):
        event_ranks[:, slot] = rng.integers(-1, cut + 1, events)
    fit_start = starts_of(rng.integers(0, 4 if pattern_count else 1, events).tolist(), np.int64)
    fit = rng.integers(0, max(pattern_count, 1), fit_start[-1]).astype(np.int32)
    fit_bucket = rng.integers(-1, count, pattern_count).astype(np.int32)
    agree(
        "list_pairs", event_ranks, slots, offsets[:-1], head, parent, fit_start, fit, fit_bucket, untouched(room),
        untouched(room),
    )  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))), st.integers(6, 9))
@example([], 0)
def test_pairs_are_sorted(pairs: list[tuple[int, int]], count: int) -> None:
    buckets, events = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
    by_kernel, by_twin = ((untouched(count + 1), *(untouched(len(pairs)) for _ in range(2))) for _ in range(2))
    scanning.sort_pairs(buckets, events, *by_kernel)
    sort_pairs(buckets, events, *by_twin)
    np.testing.assert_array_equal(by_kernel[1:], by_twin[1:])  # what is left in `starts` means nothing


class SectionSpec(NamedTuple):
    """What a section shall be like."""

    entries: int
    tests: int
    flags: int
    zoned: bool


SECTIONS = st.builds(
    SectionSpec, st.sampled_from([1, 15, 16, 17, 48, 300]), st.integers(0, 5), st.integers(0, 3), st.booleans()
)


class Scene:
    """Random buckets, events and pairs. Ranks are 0 to 9, -1 and the largest; about three in four tests hold."""

    def __init__(self, specs: list[list[SectionSpec]], slots: int, events: int, seed: int, wide: bool = False) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.slots = slots
        self.ranks = rng.choice(
            np.array([*range(10), -1, 2**31 - 1], np.int32), (events, slots), p=[0.09] * 10 + [0.07, 0.03]
        )
        flat = [spec for bucket in specs for spec in bucket]
        entries = [spec.entries for spec in flat]
        section = np.zeros((len(flat), SECTION), np.int32)
        section[:, ENTRY] = starts_of(entries)[:-1]
        section[:, COUNT] = entries
        section[:, TESTS], section[:, FLAGS] = zip(*((spec.tests, spec.flags) for spec in flat), strict=True)
        section[:, TEST] = starts_of([spec.entries * spec.tests for spec in flat])[:-1]
        zones = [-(-spec.entries // BLOCK) if spec.zoned and spec.tests else 0 for spec in flat]
        section[:, ZONE] = np.where(zones, starts_of(zones)[:-1], -1)
        section[:, SIDE] = starts_of([spec.entries if spec.flags & SIDED else 0 for spec in flat])[:-1]
        tests = [self._tests(spec) for spec in flat]
        padding = [np.zeros(PADDING, np.int64), np.zeros(PADDING, np.int64), np.full(PADDING, 2**32 - 1)]
        slot, low, width = (np.concatenate([*some]) for some in zip(*tests, padding, strict=True))
        slot, low, width = slot.astype(np.uint16 if wide else np.uint8), low.astype(np.int32), width.astype(np.uint32)
        zone = tuple(np.zeros(sum(zones) + PADDING, dtype) for dtype in (slot.dtype, np.int32, np.uint32))
        fill_zones(section, slot, low, width, *zone)
        number = np.concatenate([rng.integers(0, 1000, sum(entries)), np.zeros(PADDING, np.int64)]).astype(np.int32)
        self.buckets = Buckets(starts_of([len(b) for b in specs]), section, number, slot, low, width, *zone)
        self.largest = max(sum(spec.entries for spec in bucket) for bucket in specs)
        self.fit_start = starts_of(rng.integers(0, 4, events).tolist(), np.int64)
        self.fit = rng.integers(0, 6, self.fit_start[-1]).astype(np.int32)
        for begin, end in zip(self.fit_start[:-1].tolist(), self.fit_start[1:].tolist(), strict=True):
            self.fit[begin:end].sort()
        self.sides = self._sides(sum(spec.entries for spec in flat if spec.flags & SIDED))
        pairs = int(rng.integers(0, 12)) if events else 0
        self.pairs: tuple[Array, Array] = (
            rng.integers(0, len(specs), pairs).astype(np.int32),
            rng.integers(0, max(events, 1), pairs).astype(np.int32),
        )

    def _tests(self, spec: SectionSpec) -> tuple[Array, Array, Array]:
        """Column by column; the first ones of some sixteen entries lie together, so that their zone says no."""
        rng, n = self.rng, spec.entries * spec.tests
        slot = rng.integers(0, self.slots, n)
        low = rng.integers(0, 5, n)
        last = low + rng.integers(3, 8, n)
        around = rng.random(n) < 0.2  # all but the ranks from one to another
        low[around], last[around] = last[around] + 1, low[around] - 1
        for at in range(0, spec.entries if spec.tests else 0, BLOCK):
            if rng.random() < 0.7:
                slot[at : at + BLOCK] = rng.integers(0, self.slots)
                low[at : at + BLOCK] = rng.integers(0, 8)
                last[at : at + BLOCK] = low[at : at + BLOCK] + rng.integers(0, 3, len(low[at : at + BLOCK]))
        if spec.tests:  # the first tests of a section are in the order of their slots
            order = np.argsort(slot[: spec.entries], kind="stable")
            for column in (slot, low, last):
                column[: spec.entries] = column[: spec.entries][order]
        width = (last - low) % 2**32
        for odd_low, odd_width in ((0, 2**32 - 1), (2**31 - 1, 0), (2**31 - 1, 2**31 + 1), (5, 2**32 - 2)):
            some = rng.random(n) < 0.02
            low[some], width[some] = odd_low, odd_width
        return slot, low, width

    def _sides(self, entries: int) -> Sides:
        rng = self.rng
        start = starts_of(rng.integers(0, 3, entries).tolist())
        sets = [sorted(rng.choice(11, 2 * int(rng.integers(0, 4)), replace=False) - 1) for _ in range(6)]
        return Sides(
            start,
            (rng.integers(0, 6, start[-1]) << 2 | rng.integers(0, 3, start[-1])).astype(np.int32),
            starts_of([len(bounds) // 2 for bounds in sets]),
            rng.integers(0, self.slots, len(sets)).astype(np.uint16),
            np.array([bound for bounds in sets for bound in bounds[::2]], np.int32),
            np.array([bound for bounds in sets for bound in bounds[1::2]], np.int32),
        )

    def expected(self, base: int) -> Matches:
        return match(*self.pairs, base, self.ranks, self.fit_start, self.fit, self.buckets, self.sides)

    def found(self, kernel: Callable[..., Any], base: int, room: int, more_room: int) -> tuple[Matches, list[int]]:
        """All matches, taken up again wherever an output was full, and where that was."""
        found = Matches([], [], [], [])
        at, stops = 0, [0]
        while at < len(self.pairs[0]):
            outs = [untouched(length + PADDING) for length in (room, room, more_room, more_room)]
            views = [out[:-PADDING] for out in outs]
            at, k, m = kernel(
                *self.pairs, at, base, self.ranks, self.fit_start, self.fit, self.buckets, self.sides, *views
            )
            assert all((out[-PADDING:] == UNTOUCHED).all() for out in outs), "written behind an output"
            assert at > stops[-1], "not even one pair was scanned"
            stops.append(at)
            for column, view, count in zip(found, views, (k, k, m, m), strict=True):
                column += view[:count].tolist()
        return found, stops


AVX512 = pytest.mark.skipif(not has_avx512(), reason="this processor has no AVX-512")
EITHER = pytest.mark.parametrize("name", ["match_portable", pytest.param("match_avx512", marks=AVX512)])


@EITHER
@given(
    st.lists(st.lists(SECTIONS, min_size=1, max_size=3), min_size=1, max_size=3),
    st.sampled_from([16, 32, 256]),
    st.integers(0, 5),
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 5, 700, 5000]),
    st.sampled_from([0, 1, 5, 700, 5000]),
)
def test_buckets_are_scanned(
    name: str,
    specs: list[list[SectionSpec]],
    slots: int,
    events: int,
    seed: int,
    spare: int,
    more_spare: int,
) -> None:
    """Both kernels find what the twin finds, in its order, and so the same; small outputs make them stop and go on."""
    scene = Scene(specs, slots, events, seed)
    room, more_room = (scene.largest + BLOCK + some for some in (spare, more_spare))
    found, _ = scene.found(KERNELS[name], 1000, room, more_room)
    assert found == scene.expected(1000)


@EITHER
@pytest.mark.parametrize("tests", range(6))
@pytest.mark.parametrize("flags", [0, SIDED, MULTIPLE, SIDED | MULTIPLE])
def test_sections_of_each_sort_are_scanned(name: str, tests: int, flags: int) -> None:
    """Each number of entries, with and without zones, with as many slots as a register holds and with more."""
    for slots in (16, 32):
        for zoned in (False, True):
            specs = [[SectionSpec(entries, tests, flags, zoned)] for entries in (1, 15, 16, 17, 48, 300)]
            scene = Scene([*specs, [spec for bucket in specs for spec in bucket]], slots, 3, slots + tests)
            pairs = np.indices((len(specs) + 1, 3)).reshape(2, -1).astype(np.int32)
            scene.pairs = pairs[0].copy(), pairs[1].copy()
            expected = scene.expected(7)
            assert expected.more_numbers if flags & MULTIPLE else expected.numbers
            small, stops = scene.found(KERNELS[name], 7, scene.largest + BLOCK, scene.largest + BLOCK)
            large, once = scene.found(KERNELS[name], 7, 10_000, 10_000)
            assert small == large == expected
            assert len(stops) > 2
            assert len(once) == 2


@EITHER
@pytest.mark.parametrize("rooms", [(0, 1000), (1000, 0), (47, 1000), (1000, 47)])
def test_a_pair_for_which_there_is_no_room_is_not_begun(name: str, rooms: tuple[int, int]) -> None:
    scene = Scene(
        [[SectionSpec(17, 1, 0, False)], [SectionSpec(48, 0, flags, False) for flags in (0, MULTIPLE)]], 16, 1, 1
    )
    buckets, events = np.array([0, 1], np.int32), np.zeros(2, np.int32)
    outs = [untouched(room) for room in (rooms[0], rooms[0], rooms[1], rooms[1])]
    told = KERNELS[name](
        buckets, events, 1, 0, scene.ranks, scene.fit_start, scene.fit, scene.buckets, scene.sides, *outs
    )
    assert told == (1, 0, 0)
    assert all((out == UNTOUCHED).all() for out in outs)


@EITHER
@pytest.mark.parametrize("flags", [0, MULTIPLE])
def test_outputs_are_filled_to_the_last_place(name: str, flags: int) -> None:
    """Everything matches, so that of each room as much is used as can be, and nothing behind it."""
    scene = Scene([[SectionSpec(17, tests, flags, False)] for tests in range(3)], 16, 2, 1)
    scene.buckets.low[:], scene.buckets.width[:] = 0, 2**32 - 1
    scene.pairs = np.arange(6, dtype=np.int32) % 3, np.arange(6, dtype=np.int32) % 2
    for room in range(17 + BLOCK, 7 * 17 + BLOCK):
        found, stops = scene.found(KERNELS[name], 0, room, room)
        assert found == scene.expected(0)
        assert max(b - a for a, b in pairwise(stops)) == min((room - BLOCK) // 17, 6)


def test_more_slots_than_a_byte_can_name() -> None:
    """Only the portable kernel: the other one is not used for them."""
    scene = Scene([[SectionSpec(60, tests, SIDED, True)] for tests in range(4)], 320, 5, 1, wide=True)
    assert scene.buckets.slot.max() > 255
    assert scene.found(scanning.match_portable, 0, 5000, 5000)[0] == scene.expected(0)


@AVX512
def test_both_kernels_stop_at_the_same_pairs() -> None:
    for seed in range(20):
        scene = Scene([[SectionSpec(48, 1, seed & 3, True)], [SectionSpec(17, 2, 0, False)] * 3], 16, 4, seed)
        rooms = scene.largest + BLOCK + seed, scene.largest + BLOCK + 2 * seed
        both = [scene.found(kernel, 0, *rooms) for kernel in (scanning.match_portable, scanning.match_avx512)]
        assert both[0] == both[1]


# -- results -----------------------------------------------------------------------------------------------------------

FOUND = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)))
"""Events and numbers, pair by pair."""


@given(FOUND, st.integers(7, 9), st.integers(0, 2**40), st.integers(0, 2**20))
@example([], 0, 0, 0)
@example([(0, 3)], 1, 0, 0)
def test_matches_are_grouped_and_doubles_dropped(
    pairs: list[tuple[int, int]], count: int, mark: int, base: int
) -> None:
    events, numbers = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
    starts, grouped = untouched(count + 1, np.int64), untouched(len(pairs))
    agree("group_by_event", events, numbers, starts, grouped)
    group_by_event(events, numbers, starts, grouped)
    tried = np.random.default_rng(mark).integers(0, mark + 1, 21)  # by events before
    kept = agree("drop_doubles", starts, grouped, tried, mark, base, events, numbers)
    assert kept == len(set(pairs))


@given(FOUND, st.sets(st.integers(0, 20)))
@example([], set())
@example([(0, 0)], {0})
@example([(0, n) for n in range(21)], set(range(21)))
def test_the_dead_are_dropped(pairs: list[tuple[int, int]], gone: set[int]) -> None:
    events, numbers = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
    dead = np.packbits([number in gone for number in range(21)], bitorder="little")
    expected = drop_dead(numbers, events, dead)
    kept = results.drop_dead(numbers, events, dead)
    np.testing.assert_array_equal((numbers[:kept], events[:kept]), expected)


# -- building ----------------------------------------------------------------------------------------------------------

COSTS = st.sampled_from([0.0, 1e-6, 0.25, 0.5, np.nextafter(0.5, 1), 0.75, 1.0])


def runs_of(some: Sequence[Sequence[Any]], dtype: Any) -> tuple[Array, Array]:
    """Where each run begins, and all of them."""
    return starts_of([len(run) for run in some]), np.array([one for run in some for one in run], dtype)


@given(
    st.lists(st.tuples(st.lists(COSTS, max_size=4), st.lists(COSTS | st.just(np.inf), max_size=3)), max_size=6),
)
@example([])
@example([([], [])])
@example([([], [np.inf]), ([0.5], [0.5]), ([0.5, 0.5], [np.inf]), ([], [0.5, 0.5])])
def test_the_cheapest_is_chosen(costs: list[tuple[list[float], list[float]]]) -> None:
    tests, sides = ([pair[at] for pair in costs] for at in (0, 1))
    agree("choose", *runs_of(tests, np.float64), *runs_of(sides, np.float64))


@given(st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=15))
@example([])
@example([(0, 29), (0, 29), (0, 0), (29, 29)])
def test_ranges_nest(bounds: list[tuple[int, int]]) -> None:
    """Of random ranges those that nest or are apart, outer ones before inner ones."""
    kept: list[tuple[int, int]] = []
    for a, b in (sorted(pair) for pair in bounds):
        if all(b < c or d < a or a <= c <= d <= b or c <= a <= b <= d for c, d in kept) and (a, b) not in kept:
            kept.append((a, b))
    kept.sort(key=lambda pair: (pair[0], -pair[1]))
    begin, end = np.array(kept, np.int64).reshape(-1, 2).T.copy()
    agree("nest", begin, end - begin, np.full(30, -1, np.int32), np.full(len(kept), -1, np.int32))


class Conjunctions:
    """Conjunctions with their tests and side tests, and entries that some of these lead to."""

    def __init__(self, shares: list[list[float]], entries: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.start, self.share = runs_of(shares, np.float64)
        tests = len(self.share)
        self.order = np.zeros(tests, np.int32)
        order_tests(self.start, self.share, self.order)
        self.most = max(map(len, shares), default=0)
        self.line = rng.integers(0, 256, tests)
        self.first, self.last = rng.choice(np.array([0, 1, 5, 9, 2**31 - 1], np.int32), (2, tests))
        self.side_start, self.side = runs_of(
            [rng.integers(0, 99, rng.integers(0, 4)).tolist() for _ in shares], np.int32
        )
        self.conj = rng.integers(0, len(shares), entries if shares else 0).astype(np.int32)
        self.access, self.again = np.full(len(self.conj), -1), np.zeros(len(self.conj), np.bool_)
        self.lead = self.access.copy()
        for i, c in enumerate(self.conj):
            if rng.random() < 0.7 and self.start[c] < self.start[c + 1]:
                self.access[i], self.again[i] = rng.integers(self.start[c], self.start[c + 1]), rng.random() < 0.5
            elif self.side_start[c] < self.side_start[c + 1]:
                self.lead[i] = rng.integers(self.side_start[c], self.side_start[c + 1])

    @property
    def entries(self) -> tuple[Array, Array, Array]:
        return self.conj, self.access, self.again


CONJUNCTIONS = st.builds(
    Conjunctions, st.lists(st.lists(COSTS, max_size=5), max_size=6), st.integers(0, 12), st.integers(0, 2**32)
)


@given(CONJUNCTIONS)
def test_tests_are_ordered_and_written(held: Conjunctions) -> None:
    """Into two sections, column by column, of which one lies behind the other; nothing else is written."""
    agree("order_tests", held.start, held.share, untouched(len(held.share)))
    tests = (held.start, held.order, held.share)
    agree("first_tests", *held.entries, *tests, held.most, np.full(len(held.conj), -1, np.int32))
    n = len(held.conj)
    sizes = np.array([n - n // 3, n // 3])
    which = np.repeat([0, 1], sizes)
    at = np.where(which == 0, np.arange(n), sizes[0] * (held.most + 1) + np.arange(n) - sizes[0])
    length = n * (held.most + 1) + PADDING
    columns = np.zeros(length, np.uint8), np.zeros(length, np.int32), np.full(length, 2**32 - 1, np.uint32)
    agree("fill_tests", *held.entries, at, sizes[which], *tests, held.line, held.first, held.last, held.most, *columns)


@given(CONJUNCTIONS)
def test_side_tests_are_written(held: Conjunctions) -> None:
    n = len(held.conj)
    room = int((np.diff(held.side_start)[held.conj] - (held.lead >= 0)).sum())
    agree(
        "fill_sides",
        held.conj,
        held.lead,
        held.side_start,
        held.side,
        np.zeros(n + 1, np.int32),
        np.zeros(room, np.int32),
    )


@given(st.lists(SECTIONS, min_size=1, max_size=3), st.integers(0, 2**32))
@example([SectionSpec(0, 0, 0, False)], 0)
def test_zones_are_bounds_around_sixteen(specs: list[SectionSpec], seed: int) -> None:
    scene = Scene([specs], 16, 0, seed)
    b = scene.buckets
    agree("fill_zones", b.section, b.slot, b.low, b.width, *(np.full(len(z), 77, z.dtype) for z in b[-3:]))


def test_no_zones_are_filled() -> None:
    none = np.zeros(0, np.uint8), np.zeros(0, np.int32), np.zeros(0, np.uint32)
    agree("fill_zones", np.zeros((0, SECTION), np.int32), *none, *none)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 6)), unique=True),
    st.data(),
    st.sampled_from([0, 1, 12]),
)
def test_small_sections_are_merged(found: list[tuple[int, int, int]], data: st.DataObject, least: int) -> None:
    keys = np.sort(np.array([bucket << 16 | flags << 14 | tests for bucket, flags, tests in found], np.int64))
    counts = data.draw(st.lists(st.integers(1, 14), min_size=len(keys), max_size=len(keys)))
    agree("merge_small", keys, np.array(counts, np.int64), least, np.zeros(len(keys), np.int64))


# -- how they are compiled ---------------------------------------------------------------------------------------------


def run(code: str, **environment: str) -> str:
    """What another Python prints."""
    inherited = {name: value for name, value in os.environ.items() if name != "MEETPOINT_KERNEL"}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env={**inherited, **environment})
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def test_code_on_disk_is_bound_to_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {path.stem for path in Path(compiling.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(compiling._FILES) == names
    dispatcher: Any = results.drop_dead
    assert dispatcher._cache._index_key((), dispatcher.targetctx.codegen())[-1] == compiling._SOURCE_HASH
    hashes = {compiling._source_hash()}
    for name in names:

        def changed(package: str, file: str, name: str = name) -> bytes:
            return (get_data(package, file) or b"") + b"\n" * (file == f"{name}.py")

        monkeypatch.setattr(compiling, "get_data", changed)
        hashes.add(compiling._source_hash())
    assert len(hashes) == len(names) + 1


@pytest.mark.parametrize(
    "code",
    [
        "import meetpoint",
        "from meetpoint.matching.index import Index",
        """
from meetpoint import parse_filter
from meetpoint.matching.index import Index
index = Index.from_filters((n, parse_filter(f"a >= {n} AND s LIKE '%{n}%'")) for n in range(10))
assert index.match({"a": 5, "s": "2 and 4"}) == [2, 4]
assert index.match_batch([{"a": 0, "s": "0"}, {}]) == [[0], []]
""",
    ],
    ids=["the package", "the index", "ten subscriptions"],
)
def test_numba_is_not_imported_by(code: str) -> None:
    """It takes longer than all else together, and few subscriptions need no compiled code."""
    assert run(f"import sys\n{code}\nprint('numba' in sys.modules)") == "False"


def test_another_process_finds_the_code_on_disk(tmp_path: Path) -> None:
    code = """
import numpy as np
from meetpoint.matching.index.kernels.results import drop_dead
assert drop_dead(np.arange(9, dtype=np.int32), np.zeros(9, np.int32), np.array([1, 1], np.uint8)) == 7
print(sum(drop_dead.stats.cache_hits.values()), sum(drop_dead.stats.cache_misses.values()))
"""
    assert [run(code, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)] == ["0 1", "1 0"]


@pytest.mark.parametrize("longest", [0, 3, 16, 17, 200])
def test_runs_are_sorted(longest: int) -> None:
    rng = np.random.default_rng(longest)
    starts = starts_of(rng.integers(0, longest + 1, 30).tolist(), np.int64)
    numbers = rng.integers(0, 50, starts[-1]).astype(np.int32)
    expected = numbers.copy()
    patterns.sort_runs(starts, numbers)
    sort_runs(starts, expected)
    np.testing.assert_array_equal(numbers, expected)
