"""Each compiled loop against a plain twin: what its docstring says, in Python that nobody would call fast.

Arguments have the types with which the package calls the kernels, what is read-only included, so that the code on disk
is shared with it and next to nothing is compiled for the tests alone.
"""

from __future__ import annotations

import ctypes
import math
import os
import random
import subprocess
import sys
from bisect import bisect_right
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
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

from meetpoint.language import clean_attributes
from meetpoint.language.filters.constraints import EVERY_TEXT, PRESENT, BooleanSet, NumberSet, TextSet, TimestampSet
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.filters.intervals import Interval
from meetpoint.language.filters.like import ANY_CHAR, Pattern, PatternSort, parse_like, prefix_interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.matching.index import Index, lsm, small_batch
from meetpoint.matching.index.bulk_reader import read_chunk
from meetpoint.matching.index.encoder import build_grams, read_only
from meetpoint.matching.index.kernels import (
    bucket_scan,
    build,
    few_scan,
    filter_scan,
    jit,
    patterns,
    ranks,
)
from meetpoint.matching.index.kernels.bucket_scan import (
    BLOCK,
    LANES,
    MULTIPLE,
    SIDE_FITS,
    SIDE_FITS_NOT,
    SIDE_IN_SET,
    SIDED,
    UNIFORM,
    ZONED_MIN,
    Buckets,
    Sides,
)
from meetpoint.matching.index.kernels.filter_scan import (
    BACK,
    HIGH,
    HIGH_AFTER,
    LOW,
    LOW_AFTER,
    NUMBER,
    POINT,
    SUBSTRING,
    TEXT,
)
from meetpoint.matching.index.kernels.jit import PADDING, has_avx512
from meetpoint.matching.index.kernels.patterns import FEW_FITS
from meetpoint.matching.index.kernels.ranks import EIGHT
from meetpoint.matching.index.lines import Array, LineKey, LineSort, RankLine, Thresholds, text_line
from meetpoint.matching.index.rank_form import group_starts
from meetpoint.matching.index.small_batch import (
    AddressTable,
    SegmentGroup,
    SmallBatch,
    SmallBatchMatches,
    match_small_batch,
)
from meetpoint.matching.scan import Scan
from meetpoint.matching.tables.columns import ColumnPart, PartSort, parts_of_rows
from tests.tiers import SOAK
from tests.workloads import random_events, random_filter

WORD = (-(2**63), 2**63 - 1)
UNTOUCHED = -7
"""Stands where a kernel has no business."""
CHARACTERS = "ab\0\x7f\x80é\u07ff\u0800€\ud7ff\ue000\uffff\U00010000🙂\U0010ffff"
"""The first and last characters of each length in UTF-8, and those around the surrogates."""


def copies(arguments: tuple[Any, ...]) -> list[Any]:
    """Read-only arrays cannot be changed, and a copy of one would be of another type to numba."""
    return [a.copy() if isinstance(a, np.ndarray) and a.flags.writeable else a for a in arguments]


def agree(name: str, *arguments: Any) -> Any:
    """Kernel and twin return the same and leave the same in all arrays; what they return."""
    of_kernel, of_twin = copies(arguments), copies(arguments)
    found, expected = KERNELS[name](*of_kernel), TWINS[name](*of_twin)
    np.testing.assert_equal(found, expected)
    for at, (a, b) in enumerate(zip(of_kernel, of_twin, strict=True)):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b, err_msg=f"{name}: argument {at}")
    return found


def untouched(length: int, dtype: Any = np.int32) -> Array:
    return np.full(length, UNTOUCHED, dtype)


def starts_of(counts: Sequence[int], dtype: Any = np.int32) -> Array:
    return np.concatenate([[0], np.cumsum(counts)]).astype(dtype)


# -- the twins ---------------------------------------------------------------------------------------------------------


def line_ranks(
    keys: Array, valid: Array, thresholds: Array, count: int, grid: Array, first: int, shift: int, base: int,
    out: Array, slot: int,
) -> None:  # fmt: skip
    cuts = thresholds.tolist()[:count]
    for e, key in enumerate(keys.tolist()):
        if valid[e]:
            out[e, slot] = base + bisect_right(cuts, key)


def double_ranks(
    values: Array, valid: Array, thresholds: Array, count: int, grid: Array, first: int, shift: int, least: float,
    scale: float, base: int, out: Array, slot: int,
) -> None:  # fmt: skip
    """The order of doubles is that of their bits without the sign, turned around where there is one."""
    keys: list[int] = []
    for word, value in zip(values.view(np.int64).tolist(), values.tolist(), strict=True):
        size = word % 2**63
        keys.append(WORD[1] if math.isnan(value) else 0 if value == 0 else size if word >= 0 else -1 - size)
    line_ranks(np.array(keys, np.int64), valid, thresholds, count, grid, first, shift, base, out, slot)


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


def few_ranks(
    steps: Array, scales: Array, valid: Array, values: Array, keys: Array, data: Array, starts: Array, ends: Array,
    out: Array,
) -> None:  # fmt: skip
    """Step by step, with the twins of the kernels for many events."""
    out[:] = -1
    for (sort, part, slot, at, count, other, length, first, shift, base), (least, scale) in zip(
        steps.tolist(), scales.tolist(), strict=True
    ):
        if sort in (ranks.NUMBER_STEP, ranks.KEY_STEP):
            cuts = array_at(at, count + EIGHT, np.int64), count, array_at(other, length, np.int32)
            if sort == ranks.NUMBER_STEP:
                double_ranks(values[part], valid[part], *cuts, first, shift, least, scale, base, out, slot)
            else:
                line_ranks(keys[part], valid[part], *cuts, first, shift, base, out, slot)
        elif sort in (ranks.TEXT_STEP, ranks.BACK_STEP):
            texts = array_at(at, count + 1, np.int64), array_at(other, length, np.uint8)
            slots = (-1, slot) if sort == ranks.BACK_STEP else (slot, -1)
            text_ranks(data, starts[part], ends[part], valid[part], *texts, *texts, new_cache(4, 4), out, *slots)
        elif sort == ranks.ZERO_STEP:
            out[:, slot] = 0
        else:
            out[valid[part], slot] = keys[part][valid[part]] if sort == ranks.TRUTH_STEP else 1


def match_few_plainly(group: SegmentGroup, current: dict[int, Filter], events: Sequence[dict[str, Any]]) -> list[Any]:
    """For each segment the pairs of an event and a number whose filter, if it is the id's, accepts it."""
    scan: Scan[int] = Scan()
    for id_, filter_ in current.items():
        scan.add(id_, filter_)
    accepted = [set(ids) for ids in scan.match_batch(events)]
    return [
        [
            (e, number, order, id_)
            for e in range(len(events))
            for number, (order, id_, gone) in enumerate(
                zip(held.first_added.tolist(), held.ids, held.removed.tolist(), strict=True)
            )
            if not gone and id_ in accepted[e]
        ]
        for held in group._segments
    ]


def array_at(address: int, length: int, dtype: Any) -> Array:
    return np.frombuffer(ctypes.string_at(address, length * np.dtype(dtype).itemsize), dtype)


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
    """Leave out one place: the kernel may write ahead there, which the twin does not."""
    found: list[tuple[int, int]] = []
    for slot, offset in zip(slots, offsets, strict=True):
        for e, rank in enumerate(ranks[:, slot].tolist()):
            bucket = head[offset + rank] if rank >= 0 else -1
            while bucket >= 0:
                found.append((bucket, e))
                bucket = parent[bucket]
    for e in range(len(ranks)):
        by_pattern = fit_bucket[fit[fit_start[e] : fit_start[e + 1]]]
        found += [(bucket, e) for bucket in by_pattern[by_pattern >= 0]]
    for at, pair in enumerate(found[: max(len(buckets) - 1, 0)]):
        buckets[at], events[at] = pair
    return len(found)


def sort_pairs(buckets: Array, events: Array, starts: Array, sorted_buckets: Array, sorted_events: Array) -> None:
    order = np.argsort(buckets, kind="stable")
    sorted_buckets[:], sorted_events[:] = buckets[order], events[order]


class Scanned(NamedTuple):
    """The result of a scan: its end, numbers with their events, and blocks held back, with event and entries."""

    end: int
    found: list[tuple[int, int]]
    held: list[tuple[int, int, int]]


def match(buckets: Array, events: Array, start: int, base: int, ranks: Array, b: Buckets, room: int) -> Scanned:
    """As long as all entries of a bucket and sixteen more have room. Zones only save time, so nobody looks at them."""
    scanned = Scanned(len(buckets), [], [])
    for p in range(start, len(buckets)):
        e = int(events[p])
        blocks = range(b.begin[buckets[p]], b.begin[buckets[p] + 1])
        if len(scanned.found) + (len(scanned.held) + len(blocks) + 1) * BLOCK > room:
            return scanned._replace(end=p)
        for block in blocks:
            tests = slice(BLOCK * b.test[block], BLOCK * b.test[block + 1])
            slot, low, width = (column[tests].reshape(-1, BLOCK) for column in (b.slot, b.low, b.width))
            holds = ((ranks[e, slot].astype(np.int64) - low) % 2**32 <= width).all(axis=0)
            holds &= b.block[block] >> np.arange(BLOCK) & 1 == 1
            lanes = np.flatnonzero(holds).tolist()
            if not b.block[block] & (SIDED | MULTIPLE):
                scanned.found.extend((int(b.number[BLOCK * block + lane]), base + e) for lane in lanes)
            elif lanes:
                scanned.held.append((block, e, sum(1 << lane for lane in lanes)))
    return scanned


def finish(
    base: int, ranks: Array, fit_start: Array, fit: Array, b: Buckets, sides: Sides, held_block: Array,
    held_event: Array, held_lanes: Array, k: int, out_number: Array, out_event: Array, more_number: Array,
    more_event: Array,
) -> tuple[int, int]:  # fmt: skip
    m = 0
    for block, e, lanes in zip(held_block.tolist(), held_event.tolist(), held_lanes.tolist(), strict=True):
        fits = fit[fit_start[e] : fit_start[e + 1]].tolist()
        for lane in range(BLOCK):
            if not lanes >> lane & 1:
                continue
            if b.block[block] & SIDED and not sides_hold(sides, b.side[block] + lane, ranks[e], fits):
                continue
            number = b.number[BLOCK * block + lane]
            if b.block[block] & MULTIPLE:
                more_number[m], more_event[m] = number, e
                m += 1
            else:
                out_number[k], out_event[k] = number, base + e
                k += 1
    return k, m


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
    for begin, end in pairwise(starts.tolist()):
        if end - begin > FEW_FITS:
            numbers[begin:end] = sorted(numbers[begin:end].tolist())


def drop_dead(numbers: Array, events: Array, dead: Array) -> tuple[Array, Array]:
    """Return the pairs that are kept; the kernel leaves anything behind them."""
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
    entry_conj: Array, entry_access: Array, entry_again: Array, at: Array, start: Array, order: Array, share: Array,
    line: Array, first: Array, last: Array, most: int, slot: Array, low: Array, width: Array,
) -> None:  # fmt: skip
    for i, entry in enumerate(zip(entry_conj, entry_access, entry_again, strict=True)):
        for j, t in enumerate(in_order(*entry, start, order, share)):
            place = at[i] + j * BLOCK
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
    block: Array, test: Array, slot: Array, low: Array, width: Array, zone_slot: Array, zone_low: Array,
    zone_width: Array,
) -> None:  # fmt: skip
    for b in range(len(block)):
        zone_slot[b], zone_low[b], zone_width[b] = 0, 0, 2**32 - 1
        entries = (int(block[b]) & LANES).bit_count()
        first = range(BLOCK * test[b], BLOCK * test[b] + entries) if test[b] < test[b + 1] else range(0)
        if len({int(slot[t]) for t in first}) == 1:
            block[b] |= UNIFORM
            lows, highs = [int(low[t]) for t in first], [int(low[t]) + int(width[t]) for t in first]
            if max(highs) < 2**31:
                zone_slot[b], zone_low[b], zone_width[b] = slot[first[0]], min(lows), max(highs) - min(lows)


def group(numbers: Array, starts: Array, order: Array) -> None:
    order[:] = np.argsort(numbers, kind="stable")
    starts[:] = starts_of(np.bincount(numbers, minlength=len(starts) - 1).tolist())


def mark_cuts(line: Array, first: Array, last: Array, begin: Array, asked: Array, used: Array) -> None:
    """A range of ranks is bounded by the cut before its first and the one behind its last, where there are such."""
    for n, low, high in zip(line.tolist(), first.tolist(), last.tolist(), strict=True):
        asked[n] = True
        cuts = range(begin[n], begin[n + 1])
        for at in (low - 1, high):
            if 0 <= at < len(cuts):
                used[cuts[at]] = True


def move_ranks(
    line: Array, first: Array, last: Array, begin: Array, place: Array, most: Array, new_first: Array, new_last: Array
) -> None:
    for t, (n, low, high) in enumerate(zip(line.tolist(), first.tolist(), last.tolist(), strict=True)):
        places = [*place[begin[n] : begin[n + 1]].tolist(), most[n]]
        new_first[t] = [0, *(at + 1 for at in places)][low]
        new_last[t] = places[high]


def file_patterns(
    symbol_start: Array, symbol: Array, plain: Array, number: Array, load: Array, place: Array, record: Array,
    has_size: Array,
) -> None:  # fmt: skip
    for p, (begin, end) in enumerate(pairwise(symbol_start.tolist())):
        spelled = "".join(chr(one) if one < 256 else "\ud800" for one in symbol[begin:end].tolist())
        run = max(spelled.split("\ud800"), key=len)
        record[p, 3] = number[p]
        if not run:
            place[p] = patterns.GRAMS
            continue
        grams = [run[at : at + 3] for at in range(max(len(run) - 2, 1))]
        tried = list(range(len(grams)))
        if len(grams) > 12:
            tried = tried[:4] + tried[-9:]
        hashes = {at: gram_hash(*grams[at].encode("latin-1")) for at in tried if len(run) > 2}
        at = min(hashes, key=lambda at: (load[hashes[at]], run.count(grams[at]) * (len(grams) > 33)), default=0)
        size = min(len(run), 3)
        has_size[size] = True
        code = [ord(c) for c in run[:2]]
        place[p] = hashes[at] if size == 3 else 2**16 + code[0] + 256 * code[1] if size == 2 else 2**17 + code[0]
        load[place[p] if size == 3 else 0] += size == 3
        if plain[p]:
            first = run[:8].encode("latin-1")
            record[p, 0] = int.from_bytes(first, "little")
            record[p, 1] = int.from_bytes(b"\xff" * len(first), "little")
            record[p, 2] = len(run) << 32 | at


Said = tuple[str, int, int, float, float, bytes, bytes]
"""A constraint: the name, the sort, the flags, two numbers and two texts."""


def read_filters(filters: Sequence[Filter]) -> list[list[Said] | None]:
    """For each filter its constraints, none where nothing satisfies it; None for one that is odd."""
    return [_said(filter_.conjunctions) for filter_ in filters]


def _said(conjunctions: Sequence[Conjunction]) -> list[Said] | None:
    if len(conjunctions) != 1:
        return None if conjunctions else []
    said = [_said_of(name, constraint) for name, constraint in conjunctions[0].constraints]
    good = [one for one in said if one is not None]
    return good if len(good) == len(said) > 0 else None


def _said_of(name: str, constraint: Any) -> Said | None:
    if isinstance(constraint, NumberSet) and constraint.doubles is None and len(constraint.exact) == 1:
        i = constraint.exact[0]
        if not all(b is None or _is_short(b) for b in (i.low, i.high)):
            return None
        flags = _flags(i.low is not None, i.low_open, i.high is not None, not i.high_open, i.low == i.high)
        return name, NUMBER, flags, float(i.low or 0), float(i.high or 0), b"", b""  # type: ignore[arg-type]
    if not isinstance(constraint, TextSet) or constraint.unlike or len(constraint.intervals) != 1:
        return None
    if not constraint.like:
        i = constraint.intervals[0]
        low = str(i.low or "").encode() + b"\0" * i.low_open
        high = b"" if i.high is None else str(i.high).encode() + b"\0" * (not i.high_open)
        empty = bool(low) and i.high is not None and low >= high
        nests = (i.low is not None and i.low == i.high) or (not low and i.high is None)
        flags = _flags(bool(low), False, i.high is not None, False, nests)
        return None if empty else (name, TEXT, flags, 0.0, 0.0, low, high)
    if len(constraint.like) > 1 or constraint.intervals != EVERY_TEXT:
        return None
    pieces = constraint.like[0].pieces
    if ANY_CHAR in "".join(pieces):
        return None
    if len(pieces) == 3 and not pieces[0] and not pieces[2]:
        return name, SUBSTRING, LOW | HIGH | POINT, 0.0, 0.0, pieces[1].encode(), b""
    if len(pieces) != 2 or bool(pieces[0]) == bool(pieces[1]):
        return None
    text = pieces[0] or pieces[1][::-1]
    if text.encode()[-1] in (0x7F, 0xBF):
        return None
    end = str(prefix_interval(text)[0].high).encode()
    return name, TEXT if pieces[0] else BACK, LOW | HIGH | POINT, 0.0, 0.0, text.encode(), end


def _is_short(bound: Any) -> bool:
    if isinstance(bound, Decimal):
        return len(str(bound)) <= 15 and "E" not in str(bound)
    return bool(abs(bound) <= 2**53)


def _flags(low: bool, low_after: bool, high: bool, high_after: bool, point: bool) -> int:
    both = LOW * low | LOW_AFTER * (low and low_after) | HIGH * high | HIGH_AFTER * (high and high_after)
    return both | POINT * point


def find_lines(sort: Array, offsets: Array, texts: Array, line: Array, first: Array) -> int:
    names = texts_between(offsets, texts)[:: filter_scan.TEXTS]
    known: dict[tuple[bytes, int], int] = {}
    for i, key in enumerate(zip(names, sort.tolist(), strict=True)):
        if key not in known:
            first[len(known)] = i
        line[i] = known.setdefault(key, len(known))
    return len(known)


def rank_constraints(
    starts: Array, order: Array, sort: Array, flags: Array, bounds: Array, offsets: Array, texts: Array, first: Array,
    last: Array, ends: Array, values: Array, after: Array, cut_offsets: Array, cut_data: Array,
) -> None:  # fmt: skip
    spelled = texts_between(offsets, texts)
    k = filled = 0
    cut_offsets[0] = 0
    for n, (begin, end) in enumerate(pairwise(starts.tolist())):
        lows: dict[int, Any] = {}
        highs: dict[int, Any] = {}
        kind = sort[order[begin]]
        for i in order[begin:end].tolist():
            is_low, is_high = flags[i] & LOW, flags[i] & HIGH and kind != SUBSTRING
            low: Any
            high: Any
            low, high = spelled[filter_scan.TEXTS * i + 1 :][:2]
            if kind == NUMBER:
                low = bounds[i, 0], bool(flags[i] & LOW_AFTER)
                high = bounds[i, 1], bool(flags[i] & HIGH_AFTER)
            lows |= {i: low} if is_low else {}
            highs |= {i: high} if is_high else {}
        cuts = sorted({*lows.values(), *highs.values()})
        for i in order[begin:end].tolist():
            if kind == SUBSTRING:
                first[i] = cuts.index(lows[i])
            else:
                first[i] = cuts.index(lows[i]) + 1 if i in lows else 0
                last[i] = cuts.index(highs[i]) if i in highs else len(cuts)
        for cut in cuts:
            if kind == NUMBER:
                values[k], after[k] = cut
            else:
                cut_data[filled : filled + len(cut)] = list(cut)
                filled += len(cut)
            k += 1
            cut_offsets[k] = filled
        ends[n] = k


TWINS: dict[str, Callable[..., Any]] = {
    "choose": choose,
    "double_ranks": double_ranks,
    "drop_dead": drop_dead,
    "drop_doubles": drop_doubles,
    "few_avx512": match_few_plainly,
    "few_portable": match_few_plainly,
    "few_ranks": few_ranks,
    "file_patterns": file_patterns,
    "fill_sides": fill_sides,
    "fill_tests": fill_tests,
    "fill_zones": fill_zones,
    "find_lines": find_lines,
    "finish": finish,
    "first_tests": first_tests,
    "fitting_patterns": fitting_patterns,
    "gram_hash": gram_hash,
    "group": group,
    "group_by_event": group_by_event,
    "like": like,
    "line_ranks": line_ranks,
    "list_pairs": list_pairs,
    "mark_cuts": mark_cuts,
    "match_avx512": match,
    "match_portable": match,
    "move_ranks": move_ranks,
    "nest": nest,
    "order_tests": order_tests,
    "rank_constraints": rank_constraints,
    "read_filters": read_filters,
    "sort_pairs": sort_pairs,
    "text_ranks": text_ranks,
    "sort_runs": sort_runs,
}


def compiled_in(module: ModuleType) -> dict[str, Any]:
    return {name: value for name in module.__all__ if isinstance(value := getattr(module, name), Dispatcher)}


KERNELS: dict[str, Callable[..., Any]] = {
    name: value
    for module in (build, few_scan, filter_scan, patterns, ranks, bucket_scan)
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
    grid = followed(cuts.grid, cuts.cuts + 4)
    by_key = (followed(cuts.keys, WORD[0]), cuts.cuts, grid, cuts.first, cuts.shift)
    for name, values, shared in (
        ("line_ranks", keys, (*by_key, cuts.base)),
        ("double_ranks", keys.view(np.float64), (*by_key, cuts.least, cuts.scale, cuts.base)),
    ):
        found, expected = (untouched(len(keys) * 16).reshape(-1, 16) for _ in range(2))
        KERNELS[name](read_only(values), read_only(valid), *shared, found, 3)
        TWINS[name](values, valid, *shared, expected, 3)
        np.testing.assert_array_equal(found, expected, err_msg=name)


def coarser_grid(cuts: Thresholds, shift: int) -> Thresholds:
    """Any grid serves, whatever its shift, as long as it has all of the cuts."""
    last = len(cuts.grid) - 2
    cells = [min(max(cut - cuts.first, 0) >> shift, last) for cut in cuts.keys.tolist()[: cuts.cuts]]
    grid = np.searchsorted(cells, np.arange(cells[-1] + 2)).astype(np.int32)
    return cuts._replace(grid=grid, shift=shift)


@given(keys_and_cuts(), st.integers(0, 2**20), st.integers(0, 63), st.randoms(use_true_random=False))
@example(([], []), 0, 0, random.Random(0))
@example(([], [1]), 0, 0, random.Random(0))
@example(([*WORD, 0], [*WORD]), 0, 0, random.Random(0))
@example(([*WORD, 0], [WORD[0]] * 3 + [WORD[1]] * 3), 5, 63, random.Random(0))
@example(([*WORD, 6, 7, 8], [7, 7, 7]), 5, 3, random.Random(0))
def test_keys_are_ranked(keys_cuts: tuple[list[int], list[int]], base: int, coarser: int, rng: random.Random) -> None:
    keys, sorted_cuts = (np.array(some, np.int64) for some in keys_cuts)
    valid = np.array([rng.random() < 0.8 for _ in keys], np.bool_)
    cuts = Thresholds.of(sorted_cuts)._replace(base=base)
    rank_lines(keys, valid, cuts)
    rank_lines(keys, np.zeros(len(keys), np.bool_), cuts)
    if keys_cuts[1]:
        rank_lines(keys, valid, coarser_grid(cuts, min(cuts.shift + coarser, 63)))


@pytest.mark.parametrize("count", range(21))
@pytest.mark.parametrize("apart", [0, 1, 3, 2**58])
@pytest.mark.parametrize("last", [WORD[1], WORD[1] - 1, 10, WORD[0] + 20 * 2**58])
def test_keys_are_ranked_among_a_few_cuts(count: int, apart: int, last: int) -> None:
    """Fewer than are compared at once, as many and more, each in one cell or in several, up to the largest key."""
    sorted_cuts = np.array([last - (count - 1 - n) * apart for n in range(count)], np.int64)
    near = {min(max(cut + d, WORD[0]), WORD[1]) for cut in sorted_cuts.tolist() for d in (-2, -1, 0, 1, 2)}
    keys = np.array(sorted({*near, *WORD, WORD[0] + 1, WORD[1] - 1, -1, 0, 1}), np.int64)
    cuts = Thresholds.of(sorted_cuts)
    assert len(cuts.keys) == count + EIGHT
    every = np.ones(len(keys), np.bool_)
    rank_lines(keys, every, cuts)
    for shift in (63, cuts.shift + 3) if count else ():
        rank_lines(keys, every, coarser_grid(cuts, shift))


def test_many_keys_are_ranked_among_many_cuts() -> None:
    """The cells of the grid hold many cuts here, few there."""
    rng = np.random.default_rng(1)
    cuts = np.sort(np.concatenate([rng.integers(*WORD, 3000), rng.integers(-1000, 1000, 3000)]))
    keys = np.concatenate([rng.integers(*WORD, 2000), cuts[::3], cuts[::5] + 1, rng.integers(-1200, 1200, 2000)])
    rank_lines(keys, np.ones(len(keys), np.bool_), Thresholds.of(cuts))


HUGE, TINY, LEAST = sys.float_info.max, sys.float_info.min, math.ulp(0.0)
DOUBLES = [0.0, LEAST, 2 * LEAST, TINY - LEAST, TINY, 0.1, 1.5, 1e300, HUGE / 2, HUGE, math.inf]
DOUBLES = [-value for value in reversed(DOUBLES)] + DOUBLES
ANY_DOUBLES = st.floats(width=64) | st.sampled_from(DOUBLES) | st.integers(-50, 50).map(lambda n: n / 8)


NEAR: list[Callable[[float], float]] = [
    float,
    lambda value: math.nextafter(value, math.inf),
    lambda value: math.nextafter(value, -math.inf),
]


def number_line(cut_at: set[float], sort: LineSort = LineSort.NUMBER) -> tuple[RankLine, list[tuple[float, bool]]]:
    """A line cut before and after doubles, and its cuts."""
    cuts = [(value, after) for value in sorted(cut_at) for after in (False, True)]
    values, after = np.array([v for v, _ in cuts], np.float64), np.array([a for _, a in cuts], np.bool_)
    return RankLine(LineKey("a", sort), values, after), cuts


def value_cell(value: float, least: float, scale: float, cells: int) -> int:
    """In which cell of a grid that is even on values a double lies: the last one for what is too large, and NaN."""
    far = (value - least) * scale
    return min(int(min(far, cells)), cells - 1) if far >= 1 else cells - 1 if math.isnan(value) else 0


def rank_doubles(values: Sequence[float], cuts: Thresholds, expected: Sequence[tuple[float, bool]]) -> None:
    """By what doubles are compared, and by the twin; where there is no value nothing is written."""
    held = np.array([*values, 1.5], np.float64)
    valid = np.arange(len(held)) < len(values)
    keys, grid = followed(cuts.keys, WORD[0]), followed(cuts.grid, cuts.cuts + 4)
    shared = (keys, cuts.cuts, grid, cuts.first, cuts.shift, cuts.least, cuts.scale, cuts.base)
    found, of_twin = (untouched(len(held) * 16).reshape(-1, 16) for _ in range(2))
    ranks.double_ranks(read_only(held), read_only(valid), *shared, found, 2)
    double_ranks(held, valid, *shared, of_twin, 2)
    np.testing.assert_array_equal(found, of_twin)
    assert found[:-1, 2].tolist() == [
        cuts.base + sum(math.isnan(value) or cut < value or (cut == value and not after) for cut, after in expected)
        for value in values
    ]


@given(
    st.lists(ANY_DOUBLES, max_size=20),
    st.sets(ANY_DOUBLES.filter(lambda value: not math.isnan(value)), max_size=40),
    st.sampled_from([LineSort.NUMBER, LineSort.ODD_NUMBER]),
)
@example([*DOUBLES, math.nan, -math.nan], set(DOUBLES), LineSort.NUMBER)
@example([*DOUBLES, math.nan], {LEAST * n for n in range(-40, 40)}, LineSort.NUMBER)
@example([*DOUBLES, math.nan], {HUGE, -HUGE}, LineSort.NUMBER)
@example([*DOUBLES, math.nan], {math.inf, -math.inf, 0.0}, LineSort.NUMBER)
def test_doubles_are_ranked(values: list[float], cut_at: set[float], sort: LineSort) -> None:
    """Cuts before and after some doubles; NaN is larger than all others."""
    line, cuts = number_line(cut_at, sort)
    assert line.floats.base == (sort is LineSort.ODD_NUMBER)
    rank_doubles([*values, *(near(value) for value in cut_at for near in NEAR)], line.floats, cuts)


@given(
    st.lists(ANY_DOUBLES, max_size=20),
    st.sets(ANY_DOUBLES.filter(lambda value: not math.isnan(value)), max_size=40),
    st.sampled_from(DOUBLES[1:-1]) | st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([LEAST, TINY, 1e-300, 1 / 3, 8.0, 1e300, HUGE]) | st.floats(LEAST, HUGE),
    st.integers(1, 40),
)
@example([*DOUBLES, math.nan, -math.nan], set(DOUBLES), -2.0, 8.0, 32)
@example([*DOUBLES, math.nan, -math.nan], set(DOUBLES), -HUGE, LEAST, 1)
@example([*DOUBLES, math.nan, -math.nan], set(DOUBLES), HUGE, HUGE, 40)
@example([-1.0, 0.0, 1.0, math.nan], {0.0}, 0.0, 1.0, 1)
def test_doubles_are_ranked_by_a_grid_on_values(
    values: list[float], cut_at: set[float], least: float, scale: float, cells: int
) -> None:
    """Any such grid serves, wherever it begins and ends and however many cuts lie in a cell, as long as it has all."""
    line, cuts = number_line(cut_at)
    cell = [value_cell(value, least, scale, cells) for value, _ in cuts]
    grid = np.searchsorted(cell, np.arange(cells + 1)).astype(np.int32)
    by_value = line.floats._replace(grid=grid, least=least, scale=scale, base=7)
    rank_doubles([*values, *(near(value) for value in cut_at for near in NEAR)], by_value, cuts)


@pytest.mark.parametrize(
    ("cut_at", "by_value"),
    [
        ([n / 4 for n in range(-2000, 2000)], True),
        ([n / 4 for n in range(-2000, 2000)] + [math.inf, -math.inf], True),
        ([n * (HUGE / 4000) for n in range(-1999, 2000)], True),
        ([n * (HUGE / 4000) for n in range(-4000, 4001)], False),  # so far apart that the distance is infinite
        ([n * TINY for n in range(-2000, 2000)], True),
        ([n * LEAST for n in range(-2000, 2000)], False),  # so near that there were infinitely many cells for 1
        ([s * 2.0**n for s in (-1, 1) for n in range(-1074, 1024)], False),
        ([7.25], False),
        ([math.inf, -math.inf], False),
        ([], False),
    ],
    ids=["even", "infinite", "huge", "too huge", "tiny", "too tiny", "of all sizes", "one", "only infinite", "none"],
)
def test_the_grid_that_suits_doubles_is_taken(cut_at: list[float], by_value: bool) -> None:
    line, _ = number_line(set(cut_at))
    assert (line.floats.scale != 0) == by_value
    picked = number_line(set(cut_at[:: max(len(cut_at) // 50, 1)]))[1]  # so that there is little to count
    values = [*DOUBLES, math.nan, *(near(value) for value, _ in picked for near in NEAR)]
    found, expected = (untouched(len(values) * 16).reshape(-1, 16) for _ in range(2))
    cuts = line.floats
    shared = (cuts.keys, cuts.cuts, cuts.grid, cuts.first, cuts.shift, cuts.least, cuts.scale, cuts.base)
    held, valid = read_only(np.array(values)), read_only(np.ones(len(values), np.bool_))
    ranks.double_ranks(held, valid, *shared, found, 0)
    double_ranks(held, valid, *shared, expected, 0)
    np.testing.assert_array_equal(found, expected)


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
        return Packed(*(read_only(array) for array in (np.frombuffer(bytearray(data), np.uint8), starts, ends, valid)))


def cuts_of(texts: Sequence[str], *, sort: LineSort = LineSort.TEXT) -> RankLine:
    """A line cut before and just behind texts, which are turned for the line of texts read backwards."""
    turned = [text[::-1] if sort is LineSort.TEXT_BACK else text for text in texts]
    return text_line(
        LineKey("a", sort), sorted({cut for text in turned for cut in (text.encode(), text.encode() + b"\0")})
    )


def new_cache(capacity: int, size: int) -> ranks.TextCache:
    """Return a cache with room for half as many texts as its capacity, and so many bytes of long ones."""
    return ranks.TextCache(np.zeros(2, np.int64), np.zeros((capacity, 4), np.uint64), np.zeros(size, np.uint8))


def rank_texts(
    texts: Sequence[str | None], line: RankLine, back_line: RankLine, cache: ranks.TextCache, *slots: int
) -> None:
    cuts = map(read_only, (line.offsets, line.data, back_line.offsets, back_line.data))
    shared = (*Packed.of(texts), *cuts, cache)
    found, expected = (untouched(len(texts) * 16).reshape(-1, 16) for _ in range(2))
    KERNELS["text_ranks"](*shared, found, *slots)
    TWINS["text_ranks"](*shared, expected, *slots)
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
    """A text in the cache has the ranks that it had on other lines, as long as the cache has room for it."""
    long = "long" * 9
    texts = ["", "aé", long, "b"]
    lines = cuts_of(["a", "c", "n"]), cuts_of(["", "é"], sort=LineSort.TEXT_BACK)
    cache = new_cache(8, 100)
    rank_texts(texts[:3], *lines, cache, 0, 1)
    others = cuts_of([]), cuts_of([], sort=LineSort.TEXT_BACK)
    found = untouched(4 * 16).reshape(4, 16)
    cuts = [read_only(array) for line in others for array in (line.offsets, line.data)]
    ranks.text_ranks(*Packed.of(texts), *cuts, cache, found, 0, 1)
    assert found[:, :2].tolist() == [[0, 1], [2, 4], [4, 2], [0, 0]]
    assert cache.filled.tolist() == [4, len(long)]


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.none() | ANY_DOUBLES, st.none() | TEXTS, st.none() | TEXTS), max_size=6),
    st.sets(ANY_DOUBLES.filter(lambda value: not math.isnan(value)), max_size=20),
    st.lists(TEXTS, max_size=8),
)
def test_a_few_events_are_ranked_on_all_lines(
    events: list[tuple[float | None, str | None, str | None]], cut_at: set[float], cuts: list[str]
) -> None:
    """All kinds of values, of attributes that have several kinds of them, or none."""
    numbers, texts, others = zip(*events, strict=True) if events else ((), (), ())
    has = np.array([number is not None for number in numbers], np.bool_)
    held = np.array([0.0 if number is None else number for number in numbers], np.float64)
    whole = np.arange(len(events), dtype=np.int64)
    packed, more = Packed.of(texts), Packed.of([*others, "more"])
    parts = {
        "t": [ColumnPart(PartSort.TEXT, packed.valid, packed.data, packed.starts, packed.ends)],
        "a": [
            ColumnPart(PartSort.FLOAT, has, held),
            ColumnPart(PartSort.TEXT, more.valid[:-1] & ~has, more.data, more.starts[:-1], more.ends[:-1]),
            ColumnPart(PartSort.BOOLEAN, ~has, has),
        ],
        "w": [ColumnPart(PartSort.INTEGER, ~has, whole), ColumnPart(PartSort.DECIMAL, has, whole, scale=2)],
        "i": [ColumnPart(PartSort.INSTANT, None, whole), ColumnPart(PartSort.OTHER, ~has, has)],
        "unknown": [ColumnPart(PartSort.FLOAT, has, held)],
    }
    some = SmallBatch.of(parts, len(events))
    assert some is not None
    of_texts = {LineSort.TEXT: (2, cuts_of(cuts)), LineSort.TEXT_BACK: (3, cuts_of(cuts, sort=LineSort.TEXT_BACK))}
    odd = {sort: (int(sort), number_line(cut_at, sort)[0]) for sort in (LineSort.NUMBER, LineSort.ODD_NUMBER)}
    instants = RankLine(LineKey("i", LineSort.INSTANT), np.array([1, 4]), np.zeros(2, np.bool_))
    small = RankLine(LineKey("w", LineSort.NUMBER), np.array([0.01, 1.0, 2.0]), np.array([False, True, False]))
    lines = {
        "t": of_texts,
        "a": {
            **odd,
            LineSort.TEXT: (5, cuts_of(cuts)),
            LineSort.BOOLEAN: (6, RankLine(LineKey("a", LineSort.BOOLEAN))),
        },
        "w": {LineSort.NUMBER: (7, small), LineSort.PRESENCE: (8, RankLine(LineKey("w", LineSort.PRESENCE)))},
        "i": {LineSort.INSTANT: (9, instants)},
        "none": {**of_texts, LineSort.PRESENCE: (10, RankLine(LineKey("none", LineSort.PRESENCE)))},
    }
    for flat in (True, False):
        table = AddressTable(16).of(some.key, lines, [11], {}, flat)
        at, count, scales_at, scale_count = table.numbers[:4].tolist()
        steps, scales = array_at(at, count, np.int64), array_at(scales_at, scale_count, np.float64)
        found, expected = (untouched(len(events) * 16).reshape(-1, 16) for _ in range(2))
        for rank, out in ((ranks.few_ranks, found), (few_ranks, expected)):
            rank(steps.reshape(-1, ranks.STEP_FIELDS), scales.reshape(-1, 2), *some[1:], out)
        np.testing.assert_array_equal(found, expected)
    line = cuts_of(cuts)
    for e, text in enumerate(texts):
        below = sum(cut <= text.encode() for cut in texts_between(line.offsets, line.data)) if text is not None else 0
        assert found[e, 2] == (-1 if text is None else below)
        value = e / 100 if has[e] else e
        assert found[e, 7] == (value >= 0.01) + (value > 1) + (value >= 2)
        assert found[e, [8, 9, 10, 11]].tolist() == [1, (e >= 1) + (e >= 4), 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_few_events_meet_all_segments(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled and flat segments with tombstones; one event or several, any values."""
    monkeypatch.setattr(lsm, "MEMTABLE_MAX_ALONE", 10)
    monkeypatch.setattr(lsm, "MEMTABLE_MAX", 10)
    monkeypatch.setattr(small_batch, "_ROOM", 64)
    monkeypatch.setattr(small_batch, "_workspaces", [])
    rng = random.Random(seed)
    made = iter([parse_filter(random_filter(rng, depth=2)) for _ in range(220)])
    index: Index[int] = Index()
    current = dict(zip(range(120), made, strict=False))
    index.add_many(current.items())
    for first in (120, 140, 160):
        more = dict(zip(range(first, first + 20), made, strict=False))
        index.add_many(more.items())
        changed = dict(zip(rng.sample(sorted(current), 12), made, strict=False))
        index.update_many(changed.items())
        current |= more | changed
    for id_ in rng.sample(sorted(current), 20):
        index.remove(id_)
        del current[id_]
    snapshot = index._snapshot
    assert len(snapshot.segments) > 3
    group = SegmentGroup(snapshot.segments)
    paths = ["few_portable", *(["few_avx512"] if has_avx512() else [])]
    events = [dict(clean_attributes(event)) for event in random_events(rng, 60)]
    for event in events[:30]:
        for name in [name for name, value in event.items() if isinstance(value, Decimal) or value_is_large(value)]:
            del event[name]
    alone = 0
    for begin, count in [*((n, 1) for n in range(40)), (40, 2), (42, 7), (49, 11), (60, 0)]:
        some = events[begin : begin + count]
        batches = [SmallBatch.of(parts_of_rows(some, [name for name, _ in group.paths]), count)]
        if count == 1:
            batches.append(SmallBatch.of_one(some[0], group))
            alone += batches[-1] is not None
        for batch in batches:
            if batch is None:
                assert any(isinstance(value, Decimal | dict) or value_is_large(value)
                           for event in some for value in event.values())  # fmt: skip
                continue
            for name in paths:
                found = match_small_batch(group, batch, 7, name == "few_avx512")
                assert found is not None
                expected = TWINS[name](group, current, some)
                assert [sorted(rows) for rows in rows_of(found, 7)] == expected
    assert alone > 5


def test_events_that_lack_something_share_their_tables() -> None:
    """And those whose numbers happen to be whole, unless a literal is no double."""
    texts = ["a > 0.5 AND b < 3", "b > 2 AND c = 'x'", "a = 1 AND c IS NULL", "d > 1152921504606846977"]
    index: Index[int] = Index.from_filters((n, parse_filter(texts[n % 4])) for n in range(400))
    events: list[dict[str, Any]] = [
        {"a": 1, "b": 2.5, "c": "x", "d": 2**60 + 2}, {"a": 0.75, "b": 2}, {"b": 3, "c": "x"}, {"a": 1}, {},
        {"d": 2**60 + 1},
    ]  # fmt: skip
    found = [{texts[id_ % 4] for id_ in index.match(event)} for event in events]
    assert found == [{texts[0], texts[1], texts[3]}, {texts[0]}, {texts[1]}, {texts[2]}, set(), set()]
    assert len(index._snapshot.group._tables) == 1


def value_is_large(value: Any) -> bool:
    return isinstance(value, int) and not WORD[0] <= value <= WORD[1]


def rows_of(found: SmallBatchMatches, base: int) -> list[list[tuple[int, ...]]]:
    """Return the matches of each segment."""
    columns = [column.tolist() for column in (found.events - base, found.numbers, found.orders, found.ids)]
    rows = list(zip(*columns, strict=True))
    return [rows[begin:end] for begin, end in zip([0, *found.ends], found.ends, strict=False)]


def test_what_is_too_much_for_a_few_events_is_matched_as_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    index: Index[int] = Index.from_filters((n, parse_filter("a >= 0")) for n in range(400))
    group = SegmentGroup(index._snapshot.segments)
    batch = SmallBatch.of_one({"a": 1}, group)
    assert batch is not None
    monkeypatch.setattr(small_batch, "_workspaces", [])
    monkeypatch.setattr(small_batch, "_ROOM", 64)
    monkeypatch.setattr(small_batch, "_ROOM_MAX", 256)
    assert match_small_batch(group, batch, 0, vector=False) is None
    assert index.match({"a": 1}) == list(range(400))
    monkeypatch.setattr(small_batch, "_ROOM_MAX", 512)
    found = match_small_batch(group, batch, 0, vector=False)
    assert found is not None
    assert sorted(found.ids.tolist()) == list(range(400))


def test_events_with_much_text_are_no_few() -> None:
    texts = Packed.of(["x" * 40_000, "y" * 40_000])
    part = ColumnPart(PartSort.TEXT, texts.valid, texts.data, texts.starts, texts.ends)
    assert SmallBatch.of({"a": [part]}, 2) is None
    assert SmallBatch.of({"a": [part]}, jit.FEW_EVENTS) is None
    one = ColumnPart(PartSort.TEXT, texts.valid[1:], texts.data, texts.starts[1:], texts.ends[1:])
    some = SmallBatch.of({"a": [one]}, 1)
    assert some is not None
    assert some.data.tobytes() == b"y" * 40_000


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


@pytest.mark.slow
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
    """Python cannot call it, so a loop that is compiled here does."""
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
        assert (out[min(found + 1, room) :] == UNTOUCHED).all()  # one may be written ahead
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


def test_texts_end_where_nothing_more_may_be_read() -> None:
    """Eight bytes cannot be read from the last texts on: by how much is all the same."""
    asked = Asked([parse_like(f"%{text}%") for text in ("a", "ab", "abc", "abcdefgh", "abcdefghi", "h", "gh", "é")])
    held = [*(parse_like(f"%{'abcdefgh'[:n]}%") for n in range(1, 9)), parse_like("%bcdefgh%")]
    for behind in range(12):
        text = "abcdefgh"
        data = np.frombuffer(bytearray(b"a" + text.encode() + b"h" * behind), np.uint8)
        starts, ends = np.array([1]), np.array([1 + len(text)])
        for some in (asked, Asked(held)):
            out, counts = untouched(20), untouched(1, np.int64)
            some.mark += 1
            found = patterns.fitting_patterns(
                *map(read_only, (data, starts, ends, np.ones(1, np.bool_))), some.grams, some.tried, some.mark, out,
                counts,
            )  # fmt: skip
            some.mark += 1
            assert sorted(out[:found].tolist()) == fitting_patterns([text], some.mine)[0]


def test_a_pattern_does_not_begin_before_its_text() -> None:
    """Its gram may occur in front of where it lies within the pattern, whatever comes behind the text."""
    asked = Asked([parse_like("%abcabcd%")])
    assert asked.grams is not None
    asked.grams.record[0, patterns.PLACE] = 7 << 32 | 3  # the second of its two equal grams
    assert asked.check(["abcabc", "d and more", "abcabcd", "abc", "abcabcabcd", "abcabc", "d and much more"]) == 2


@pytest.mark.parametrize("longest", [0, 3, FEW_FITS, FEW_FITS + 1, 200])
def test_runs_are_sorted(longest: int) -> None:
    rng = np.random.default_rng(longest)
    lengths = [*rng.integers(0, longest + 1, 30).tolist(), longest, 0, longest]
    starts = starts_of(lengths, np.int64)
    agree("sort_runs", starts, rng.integers(0, 50, starts[-1]).astype(np.int32))


# -- scanning ----------------------------------------------------------------------------------------------------------


class Ways:
    """Ways of events to buckets: chains of them, from slots and from patterns."""

    def __init__(self, seed: int, events: int, lines: int, pattern_count: int) -> None:
        rng = np.random.default_rng(seed)
        slots = rng.permutation(16)[:lines].astype(np.int32)
        cuts = rng.integers(0, 5, lines)
        offsets = starts_of((cuts + 1).tolist(), np.int64)
        count = int(rng.integers(1, 9))
        parent = [int(rng.integers(-1, max(bucket, 1))) if bucket else -1 for bucket in range(count)]
        head = rng.integers(-1, count, offsets[-1]).astype(np.int32)
        event_ranks = untouched(events * 16).reshape(events, 16)
        for slot, cut in zip(slots.tolist(), cuts.tolist(), strict=True):
            event_ranks[:, slot] = rng.integers(-1, cut + 1, events)
        fit_start = starts_of(rng.integers(0, 4 if pattern_count else 1, events).tolist(), np.int64)
        fit = rng.integers(0, max(pattern_count, 1), fit_start[-1]).astype(np.int32)
        fit_bucket = rng.integers(-1, count, pattern_count).astype(np.int32)
        way_up = np.array([*parent, -1], np.int32)
        self.ways = event_ranks, slots, offsets[:-1].copy(), head, way_up, fit_start, fit, fit_bucket

    def check(self, room: int) -> int:
        """Kernel and twin list the same pairs, as far as there is room; how many there are."""
        of_kernel, of_twin = ([untouched(room + 4) for _ in range(2)] for _ in range(2))
        found = bucket_scan.list_pairs(*self.ways, *(out[:room] for out in of_kernel))
        assert found == list_pairs(*self.ways, *(out[:room] for out in of_twin))
        listed = max(min(found, room - 1), 0)
        for a, b in zip(of_kernel, of_twin, strict=True):
            np.testing.assert_array_equal(a[:listed], b[:listed])
            assert (a[max(room - 1, 0) :] == UNTOUCHED).all(), "written behind the room"
            assert (a[listed + 1 :] == UNTOUCHED).all(), "written further ahead than one place"
        return int(found)


@given(st.integers(0, 2**32), st.integers(0, 6), st.integers(0, 4), st.integers(0, 8), st.integers(0, 40))
def test_pairs_are_listed(seed: int, events: int, lines: int, pattern_count: int, room: int) -> None:
    """With enough room or not: with one place more than pairs, as many, one less, none, and any number."""
    ways = Ways(seed, events, lines, pattern_count)
    count = ways.check(room)
    for other in {0, 1, max(count - 1, 0), count, count + 1, count + 2}:
        assert ways.check(other) == count


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9))), st.integers(6, 9))
@example([], 0)
def test_pairs_are_sorted(pairs: list[tuple[int, int]], count: int) -> None:
    buckets, events = np.array(pairs, np.int32).reshape(-1, 2).T.copy()
    by_kernel, by_twin = ((untouched(count + 1), *(untouched(len(pairs)) for _ in range(2))) for _ in range(2))
    bucket_scan.sort_pairs(buckets, events, *by_kernel)
    sort_pairs(buckets, events, *by_twin)
    np.testing.assert_array_equal(by_kernel[1:], by_twin[1:])  # what is left in `starts` means nothing


class BlockSpec(NamedTuple):
    """The specification of a block; the entries of a mixed one do not all have as many tests."""

    entries: int
    tests: int
    flags: int = 0
    mixed: bool = False


BLOCKS = st.builds(
    BlockSpec,
    st.sampled_from([1, 2, 15, 16]),
    st.integers(0, 5),
    st.sampled_from([0, 0, SIDED, MULTIPLE, SIDED | MULTIPLE]),
    st.booleans(),
)
BLOCK_COUNTS = [1, ZONED_MIN - 1, ZONED_MIN, 15, 16, 17, 33, 40]
"""Blocks of a bucket: without zones, with them, as many as one instruction tests, and more."""
BUCKETS = st.lists(BLOCKS, max_size=4) | st.builds(lambda block, n: [block] * n, BLOCKS, st.sampled_from(BLOCK_COUNTS))
IN_A_ROW = [0, 1, 2, 3, 4, 5, 6, 7, 9]
"""Events that meet a bucket one behind the other: by four, two and one."""
PATTERNS = 50


class Scene:
    """Random buckets, events and pairs. Ranks are 0 to 9, -1 and the largest; about three in four tests hold."""

    def __init__(self, specs: Sequence[Sequence[BlockSpec]], slots: int, events: int, seed: int) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.slots = slots
        self.ranks = rng.choice(
            np.array([*range(10), -1, 2**31 - 1], np.int32), (events, slots), p=[0.09] * 10 + [0.07, 0.03]
        )
        flat = [spec for bucket in specs for spec in bucket]
        self.plain = np.array([(1 << spec.entries) - 1 | spec.flags for spec in flat], np.uint32)
        block = self.plain.copy()
        test = starts_of([spec.tests for spec in flat])
        sides = [spec.entries if spec.flags & SIDED else 0 for spec in flat]
        padding = [np.zeros(PADDING, np.int64), np.zeros(PADDING, np.int64), np.full(PADDING, 2**32 - 1)]
        slot, low, width = (np.concatenate(some) for some in zip(*map(self._tests, flat), padding, strict=True))
        slot = slot.astype(np.uint8 if slots <= 256 else np.uint16)
        low, width = low.astype(np.int32), width.astype(np.uint32)
        zone = tuple(np.zeros(len(flat) + PADDING, dtype) for dtype in (slot.dtype, np.int32, np.uint32))
        fill_zones(block, test, slot, low, width, *zone)
        number = np.concatenate([rng.integers(0, 1000, BLOCK * len(flat)), np.full(PADDING, 5000)]).astype(np.int32)
        side = starts_of(sides)[:-1].copy()
        self.buckets = Buckets(
            starts_of([len(bucket) for bucket in specs]), block, test, side, number, slot, low, width, *zone
        )
        self.least_room = BLOCK * (1 + max(map(len, specs), default=0))
        fits = rng.choice([0, 1, 3, FEW_FITS, FEW_FITS + 1, 40], events).tolist()
        self.fit_start = starts_of(fits, np.int64)
        self.fit = np.zeros(self.fit_start[-1], np.int32)
        for n, (begin, end) in zip(fits, pairwise(self.fit_start.tolist()), strict=True):
            drawn = rng.choice(PATTERNS, n, replace=False)
            self.fit[begin:end] = drawn if n <= FEW_FITS else np.sort(drawn)
        self.sides = self._sides(sum(sides))
        self.meet(rng.choice(IN_A_ROW if events else [0], len(specs)).tolist())

    def meet(self, counts: Sequence[int]) -> None:
        """As many events for each bucket, in no order."""
        self.pairs: tuple[Array, Array] = (
            np.repeat(np.arange(len(counts)), counts).astype(np.int32),
            self.rng.integers(0, max(len(self.ranks), 1), sum(counts)).astype(np.int32),
        )

    def _tests(self, spec: BlockSpec) -> tuple[Array, Array, Array]:
        """First all first ones, which in some blocks lie together, so that their zone says no."""
        rng = self.rng
        shape = (spec.tests, BLOCK)
        slot = rng.integers(0, self.slots, shape)
        low = rng.integers(0, 5, shape)
        last = low + rng.integers(3, 8, shape)
        around = rng.random(shape) < 0.2  # all but the ranks from one to another
        low[around], last[around] = last[around] + 1, low[around] - 1
        together = rng.random()
        if spec.tests and together < 0.8:
            slot[0] = rng.integers(0, self.slots)
            if together < 0.6:
                low[0] = rng.integers(0, 8)
                last[0] = low[0] + rng.integers(0, 3, BLOCK)
        width = (last - low) % 2**32
        for odd_low, odd_width in ((0, 2**32 - 1), (2**31 - 1, 0), (2**31 - 1, 2**31 + 1), (5, 2**32 - 2)):
            some = rng.random(shape) < 0.02
            low[some], width[some] = odd_low, odd_width
        counts = np.where(np.arange(BLOCK) < spec.entries, spec.tests, 0)
        if spec.mixed:
            counts = np.minimum(counts, rng.integers(0, spec.tests + 1, BLOCK))
        always = np.arange(spec.tests)[:, None] >= counts
        slot[always], low[always], width[always] = 0, 0, 2**32 - 1
        return slot.reshape(-1), low.reshape(-1), width.reshape(-1)

    def _sides(self, entries: int) -> Sides:
        rng = self.rng
        start = starts_of(rng.integers(0, 3, entries).tolist())
        sets = [sorted(rng.choice(11, 2 * int(rng.integers(0, 4)), replace=False) - 1) for _ in range(6)]
        asked = rng.choice([SIDE_FITS, SIDE_FITS_NOT, SIDE_IN_SET], start[-1])
        argument = np.where(asked == SIDE_IN_SET, rng.integers(0, 6, start[-1]), rng.integers(0, PATTERNS, start[-1]))
        return Sides(
            start,
            (argument << 2 | asked).astype(np.int32),
            starts_of([len(bounds) // 2 for bounds in sets]),
            rng.integers(0, self.slots, len(sets)).astype(np.uint32),
            np.array([bound for bounds in sets for bound in bounds[::2]], np.int32),
            np.array([bound for bounds in sets for bound in bounds[1::2]], np.int32),
        )

    def everything_holds(self) -> None:
        """No test refuses anything any more, and there are no side tests."""
        b = self.buckets
        b.low[:], b.width[:] = 0, 2**32 - 1
        fill_zones(b.block, *b[2:3], *b[5:])
        self.sides = self.sides._replace(start=np.zeros_like(self.sides.start))

    def check(self, name: str, base: int, room: int) -> list[int]:
        """Scan all pairs, taken up again wherever an output is full, and finish; where that was.

        Outputs have exactly the room that is told, and untouched places behind it. The portable kernel goes on as long
        as there is room, the other one need not, but no further.
        """
        stops = [0]
        while stops[-1] < len(self.pairs[0]):
            outs = [untouched(length + PADDING) for length in (room, room, *[room // BLOCK] * 3)]
            views = [out[:-PADDING] for out in outs]
            at, k, held = KERNELS[name](*self.pairs, stops[-1], base, self.ranks, self.buckets, *views)
            assert all((out[-PADDING:] == UNTOUCHED).all() for out in outs), "written behind an output"
            assert at > stops[-1], "not even one pair was scanned"
            expected = match(*self.pairs, stops[-1], base, self.ranks, self.buckets, room)
            assert at == expected.end if name == "match_portable" else at <= expected.end
            if at < expected.end:
                buckets, events = (pairs[:at] for pairs in self.pairs)
                expected = match(buckets, events, stops[-1], base, self.ranks, self.buckets, 2**40)
            numbers, of, *back = (view.tolist() for view in views)
            assert sorted(zip(numbers[:k], of[:k], strict=True)) == sorted(expected.found)
            assert sorted(zip(*(column[:held] for column in back), strict=True)) == sorted(expected.held)
            self.check_finish(base, k, [view[:held] for view in views[2:]], room)
            stops.append(at)
        return stops

    def check_finish(self, base: int, k: int, held: list[Array], room: int) -> tuple[int, int]:
        """Ask the side tests of what was held back, with the same room as the scan had; how many matches there are."""
        of_kernel, of_twin = ([untouched(room + PADDING) for _ in range(4)] for _ in range(2))
        shared: tuple[Any, ...] = (base, self.ranks, self.fit_start, self.fit, self.buckets, self.sides, *held, k)
        told = finish(*shared, *(out[:room] for out in of_twin))
        assert bucket_scan.finish(*shared, *(out[:room] for out in of_kernel)) == told
        np.testing.assert_array_equal(of_kernel, of_twin)
        return told


AVX512 = pytest.mark.skipif(not has_avx512(), reason="this processor has no AVX-512")
EITHER = pytest.mark.parametrize("name", ["match_portable", pytest.param("match_avx512", marks=AVX512)])


@pytest.mark.slow
@EITHER
@given(
    st.lists(BUCKETS, min_size=1, max_size=4),
    st.sampled_from([16, 32, 256]),
    st.integers(0, 12),
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 5, 700, 5000]),
)
def test_buckets_are_scanned(
    name: str, specs: list[list[BlockSpec]], slots: int, events: int, seed: int, spare: int
) -> None:
    """Both kernels find what the twin finds; small outputs make them stop and go on."""
    scene = Scene(specs, slots, events, seed)
    scene.check(name, 1000, scene.least_room + spare)


@pytest.mark.slow
@EITHER
@given(st.lists(BUCKETS, min_size=1, max_size=4), st.lists(st.integers(0, 3), max_size=20), st.integers(0, 2**32))
def test_pairs_in_any_order_are_scanned(name: str, specs: list[list[BlockSpec]], buckets: list[int], seed: int) -> None:
    """The pairs of a few events are not sorted, and a bucket returns between others."""
    scene = Scene(specs, 16, 12, seed)
    scene.meet([0] * (len(specs) - 1) + [len(buckets)])
    scene.pairs[0][:] = np.array(buckets, np.int32) % len(specs)
    scene.check(name, 0, 10_000)


@EITHER
@pytest.mark.parametrize("between", [[0, 0, 1, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 1, 0]])
def test_a_bucket_returns_after_another_one(name: str, between: list[int]) -> None:
    scene = Scene([[BlockSpec(16, 1)], [BlockSpec(16, 1)]], 16, 6, 1)
    scene.pairs = np.array(between, np.int32), np.arange(len(between), dtype=np.int32)
    scene.check(name, 0, 10_000)


@pytest.mark.slow
@EITHER
@pytest.mark.parametrize("tests", range(6) if SOAK else (0, 1, 5))
@pytest.mark.parametrize("flags", [0, SIDED, MULTIPLE, SIDED | MULTIPLE])
def test_blocks_of_each_sort_are_scanned(name: str, tests: int, flags: int) -> None:
    """Each number of entries and many numbers of blocks, with as many slots as a register holds and with more."""
    for slots, mixed in ((16, False), (16, True), (32, True)):
        specs = [[BlockSpec(entries, tests, flags, mixed)] for entries in range(1, BLOCK + 1)]
        specs += [[BlockSpec(BLOCK, tests, flags, mixed)] * n for n in (ZONED_MIN - 1, ZONED_MIN, 16, 33)]
        specs.append([BlockSpec(5, tests, flags, mixed), BlockSpec(16, tests, 0, mixed), BlockSpec(3, 0, flags)])
        scene = Scene(specs, slots, 9, slots + tests)
        scene.meet([3] * len(specs))
        expected = match(*scene.pairs, 0, 7, scene.ranks, scene.buckets, 2**40)
        assert len(expected.held if flags else expected.found) > 20
        assert len(scene.check(name, 7, scene.least_room)) > 2
        assert len(scene.check(name, 7, 10**6)) == 2


@pytest.mark.slow
@EITHER
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 9] if SOAK else [1, 3, 4, 9])
@pytest.mark.parametrize("flags", [0, SIDED, MULTIPLE])
def test_as_many_events_in_a_row_are_scanned(name: str, count: int, flags: int) -> None:
    """In the first bucket, amidst others, and in the last; each tests are asked of each event, not of its neighbour."""
    for tests in (0, 1, 2, 4):
        blocks = [BlockSpec(16, tests, flags, mixed=True), BlockSpec(7, tests), BlockSpec(1, tests + 1, flags)]
        scene = Scene([blocks, blocks * 7, blocks[:1], blocks], 16, 20, count + tests)
        for counts in ([count] * 4, [count, 1, 0, count], [1, count, 2, count], [0, 0, 0, count]):
            scene.meet(counts)
            for room in (scene.least_room, scene.least_room + 40, 10**5):
                scene.check(name, 11, room)


@EITHER
def test_zones_of_one_event_do_not_refuse_another(name: str) -> None:
    """Each event needs a block of its own, of 40 that all others are refused by."""
    for count in (1, 2, 4, 40):
        scene = Scene([[BlockSpec(16, 1)] * 40], 16, 40, 1)
        b = scene.buckets
        b.slot[:], b.width[: 40 * BLOCK] = 3, 0
        b.low[: 40 * BLOCK] = np.repeat(np.arange(40), BLOCK)
        fill_zones(b.block, *b[2:3], *b[5:])
        scene.ranks[:, 3] = np.random.default_rng(0).permutation(40)
        scene.pairs = np.zeros(count, np.int32), np.arange(count, dtype=np.int32)
        scene.check(name, 0, 10**4)
        assert len(match(*scene.pairs, 0, 0, scene.ranks, b, 10**4).found) == count * BLOCK


@EITHER
def test_zones_are_looked_at(name: str) -> None:
    """From `ZONED_MIN` blocks on: if they say no although an entry would match, it is not found."""
    for blocks in (ZONED_MIN - 1, ZONED_MIN, 40):
        scene = Scene([[BlockSpec(16, 1)] * blocks], 16, 1, 1)
        scene.everything_holds()
        scene.meet([1])
        scene.buckets.zone_low[:], scene.buckets.zone_width[:] = 100, 0
        outs = [untouched(1000) for _ in range(5)]
        told = KERNELS[name](*scene.pairs, 0, 0, scene.ranks, scene.buckets, *outs)
        assert told == (1, BLOCK * blocks if blocks < ZONED_MIN else 0, 0)


@EITHER
@pytest.mark.parametrize("flags", [0, SIDED, MULTIPLE])
def test_a_pair_for_which_there_is_no_room_is_not_begun(name: str, flags: int) -> None:
    scene = Scene([[BlockSpec(1, 0, flags)] * 3], 16, 9, 1)
    for count in (1, 2, 4, 9):
        scene.meet([count])
        for room in (0, 1, 16, 4 * BLOCK - 1):
            outs = [untouched(room), untouched(room), *(untouched(4) for _ in range(3))]
            told = KERNELS[name](*scene.pairs, 0, 0, scene.ranks, scene.buckets, *outs)
            assert told == (0, 0, 0)
            assert all((out == UNTOUCHED).all() for out in outs)


@EITHER
@pytest.mark.parametrize("flags", [0, SIDED, MULTIPLE])
@pytest.mark.parametrize("entries", [1, 16])
def test_outputs_are_filled_to_the_last_place(name: str, flags: int, entries: int) -> None:
    """Everything matches, so that of each room as much is used as can be, and nothing behind it."""
    scene = Scene([[BlockSpec(entries, tests, flags)] * 2 for tests in range(3)], 16, 7, 1)
    scene.everything_holds()
    scene.meet([5, 2, 7])
    used = 2 * (BLOCK if flags else entries)  # what is held back might be sixteen matches
    for room in (n for n in range(3 * BLOCK, 15 * 2 * BLOCK + BLOCK) if n % BLOCK in (0, 1, 2, 15)):
        stops = scene.check(name, 0, room)
        assert max(b - a for a, b in pairwise(stops)) == min((room - 3 * BLOCK) // used + 1, 14)


@pytest.mark.parametrize("flags", [SIDED, MULTIPLE, SIDED | MULTIPLE])
def test_what_was_held_back_fills_outputs_to_the_last_place(flags: int) -> None:
    """Behind some that are there already, or from 0 on if an event may have them twice."""
    scene = Scene([[BlockSpec(16, 0, flags)] * 3], 16, 1, 1)
    scene.everything_holds()
    held = [np.array(column, np.int32) for column in ([0, 1, 2], [0, 0, 0], [LANES] * 3)]
    for k in (0, 1, 20):
        told = scene.check_finish(100, k, held, 48 if flags & MULTIPLE else k + 48)
        assert told == ((k, 48) if flags & MULTIPLE else (k + 48, 0))
    assert scene.check_finish(100, 3, [column[:0] for column in held], 3) == (3, 0)


@given(st.integers(0, 2**32), st.sampled_from([SIDED, SIDED | MULTIPLE]), st.integers(1, 16))
def test_sides_are_asked(seed: int, flags: int, entries: int) -> None:
    """Of any of the entries of a block, for events that few or many patterns fit."""
    scene = Scene([[BlockSpec(3, 0), BlockSpec(entries, 0, flags), BlockSpec(16, 0, flags)]], 16, 8, seed)
    rng = np.random.default_rng(seed)
    block = rng.integers(1, 3, 20)
    lanes = rng.integers(1, 2**16, 20) & scene.buckets.block[block] & LANES
    held = [column.astype(np.int32) for column in (block, rng.integers(0, 8, 20), lanes)]
    scene.check_finish(9, 0, held, 20 * BLOCK)


@pytest.mark.slow
@pytest.mark.parametrize("flags", [0, SIDED])
def test_more_slots_than_a_byte_can_name(flags: int) -> None:
    """Only the portable kernel: the other one is not used for them."""
    for seed in range(5):
        scene = Scene([[BlockSpec(16, tests, flags, seed > 2)] * 9 for tests in range(4)], 320, 5, seed)
        assert scene.buckets.slot.max() > 255
        scene.meet([3, 3, 3, 3])
        scene.check("match_portable", 0, 5000)
        scene.check("match_portable", 0, scene.least_room)


# -- results -----------------------------------------------------------------------------------------------------------

FOUND = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)))
"""Events and numbers, pair by pair."""


@pytest.mark.slow
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
    kept = bucket_scan.drop_dead(numbers, events, dead)
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
    Conjunctions, st.lists(st.lists(COSTS, max_size=5), max_size=6), st.integers(0, 18), st.integers(0, 2**32)
)


@given(CONJUNCTIONS)
def test_tests_are_ordered_and_written(held: Conjunctions) -> None:
    """Into blocks of five, sixteen apart; nothing else is written."""
    agree("order_tests", held.start, held.share, untouched(len(held.share)))
    tests = (held.start, held.order, held.share)
    agree("first_tests", *held.entries, *tests, held.most, np.full(len(held.conj), -1, np.int32))
    entry = np.arange(len(held.conj))
    at = BLOCK * (held.most + 1) * (entry // 5) + entry % 5
    length = BLOCK * (held.most + 1) * (len(entry) // 5 + 1) + PADDING
    columns = np.zeros(length, np.uint8), np.zeros(length, np.int32), np.full(length, 2**32 - 1, np.uint32)
    agree("fill_tests", *held.entries, at, *tests, held.line, held.first, held.last, held.most, *columns)


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


@given(st.lists(BLOCKS, max_size=9), st.sampled_from([16, 2, 320]), st.integers(0, 2**32))
@example([], 16, 0)
@example([BlockSpec(16, 0)], 16, 0)
def test_zones_are_bounds_around_a_block(specs: list[BlockSpec], slots: int, seed: int) -> None:
    """Blocks of one slot are marked; behind the last block nothing is written."""
    scene = Scene([specs], slots, 0, seed)
    b = scene.buckets
    zones = (np.full(len(zone), 77, zone.dtype) for zone in b[-3:])
    agree("fill_zones", scene.plain, b.test, b.slot, b.low, b.width, *zones)


@pytest.mark.parametrize("entries", range(1, BLOCK + 1))
def test_each_entry_counts_for_the_zone(entries: int) -> None:
    """And what lies behind the entries of a block does not."""
    block, test = np.array([(1 << entries) - 1 | MULTIPLE], np.uint32), np.array([0, 1], np.int32)
    for odd in range(BLOCK):
        for slot, low, width in (
            (4, 10, 5),
            (3, 9, 0),
            (3, 16, 0),
            (3, 2**31 - 1, 0),
            (3, 2**31 - 1, 1),
            (3, 12, 2**31),
        ):
            columns: list[Array] = [
                np.full(BLOCK, 3, np.uint8),
                np.full(BLOCK, 10, np.int32),
                np.full(BLOCK, 5, np.uint32),
            ]
            for column, value in zip(columns, (slot, low, width), strict=True):
                column[odd] = value
            zones = np.full(2, 77, np.uint8), np.full(2, 77, np.int32), np.full(2, 77, np.uint32)
            agree("fill_zones", block, test, *columns, *zones)


@given(st.lists(st.integers(0, 6), max_size=30))
def test_places_are_grouped(numbers: list[int]) -> None:
    agree("group", read_only(np.array(numbers, np.int64)), untouched(9, np.int64), untouched(len(numbers), np.int64))


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=12),
    st.randoms(use_true_random=False),
)
def test_cuts_are_marked_and_ranks_moved(
    cuts: list[int], tests: list[tuple[int, int, int]], rng: random.Random
) -> None:
    """Ranges of any ranks that there are, some of them going around."""
    line = [n % len(cuts) for n, _, _ in tests]
    bounds = [(min(a, cuts[n]), min(b, cuts[n])) for n, (_, a, b) in zip(line, tests, strict=True)]
    first, last = np.array(bounds, np.int32).reshape(-1, 2).T.copy()
    asked = [read_only(a) for a in (np.array(line, np.uint32), first, last, starts_of(cuts, np.int64))]
    agree("mark_cuts", *asked, np.zeros(len(cuts), np.bool_), np.zeros(sum(cuts), np.bool_))
    place = np.array([rng.randrange(50) for _ in range(sum(cuts))], np.int32)
    most = np.array([rng.randrange(50, 60) for _ in cuts], np.int32)
    agree("move_ranks", *asked, place, most, untouched(len(line)), untouched(len(line)))


@given(st.lists(LIKE, max_size=12), st.integers(0, 2))
@example([parse_like(f"%{'ab' * 30}%"), parse_like(f"%{'ab' * 30}c%"), parse_like(f"%x{'ab' * 30}%")], 0)
@example([parse_like("%"), parse_like("_"), parse_like("%é%"), parse_like("%ab%cde_"), parse_like("%abcdefghij%")], 1)
def test_patterns_are_filed(some: list[Pattern], load: int) -> None:
    """All on one attribute, where some grams lead to many patterns already."""
    spelled = [
        [
            one
            for at, piece in enumerate(pattern.pieces)
            for one in ([patterns.PERCENT] if at else [])
            + [b for c in piece for b in ([patterns.ANY_CHAR] if c == ANY_CHAR else c.encode())]
        ]
        for pattern in some
    ]
    plain = np.array([pattern.sort is PatternSort.SUBSTRING for pattern in some], np.bool_)
    spelled = [one[1:-1] if p else one for one, p in zip(spelled, plain, strict=True)]
    start, symbol = runs_of(spelled, np.uint16)
    loads = np.random.default_rng(load).integers(0, load + 1, 2**16).astype(np.int32)
    agree(
        "file_patterns", start, symbol, plain, np.arange(len(some)) + 3, loads, untouched(len(some), np.int64),
        np.zeros((len(some), 4), np.uint64), np.zeros(4, np.bool_),
    )  # fmt: skip


# -- filters -----------------------------------------------------------------------------------------------------------

LITERALS = (
    st.integers(-(2**53) - 2, 2**53 + 2)
    | st.sampled_from(
        [0, 127, 128, 255, 256, 65535, 65536, 2**32 - 1, 2**32, -1, -32, -33, -128, -129, -32769, -(2**31)]
    )
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
    | st.sampled_from([Decimal(text) for text in ("-0", "0.10", "1E+3", "-0.00", "999999999999.99", "0.1234567890123")])
    | st.integers(2**63 - 1, 2**66)
)
NAMES = st.sampled_from(["a", "b.c", "é", "n" * 31, "n" * 32, "n" * 300])
SHORT = st.text(alphabet=CHARACTERS, max_size=4) | st.sampled_from(["x" * 31, "x" * 32, "x" * 255, "x" * 70_000])


def intervals(bounds: st.SearchStrategy[Any]) -> st.SearchStrategy[Interval]:
    return st.builds(Interval, st.none() | bounds, st.booleans(), st.none() | bounds, st.booleans()) | st.builds(
        lambda value: Interval(value, False, value, False), bounds
    )


CONSTRAINTS = (
    st.builds(lambda i: NumberSet((i,)), intervals(LITERALS))
    | st.builds(lambda i: TextSet((i,)), intervals(SHORT))
    | st.builds(lambda pattern: TextSet(EVERY_TEXT, (pattern,)), LIKE)
    | st.sampled_from(
        [
            PRESENT,
            BooleanSet((True,)),
            NumberSet((Interval(1, False, 2, False), Interval(3, False, None, True))),
            NumberSet((Interval(1, False, 2, False),), (Interval(1.0, False, 2.0, False),)),
            TimestampSet((Interval(datetime(2024, 5, 6, 7, tzinfo=UTC), False, None, True),)),
            TextSet(EVERY_TEXT, (parse_like("a%"), parse_like("%b%"))),
            TextSet(EVERY_TEXT, (), (parse_like("%b%"),)),
            TextSet((Interval("a", False, None, True),), (parse_like("%b%"),)),
        ]
    )
)
FORMS = st.lists(
    st.builds(lambda some: Conjunction(tuple(some.items())), st.dictionaries(NAMES, CONSTRAINTS, max_size=4)),
    max_size=2,
)


@pytest.mark.slow
@given(st.lists(FORMS, max_size=8))
def test_filters_are_read(forms: list[list[Conjunction]]) -> None:
    check_read([Filter("", tuple(form)) for form in forms])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x >= 8.30", [("x", NUMBER, LOW, 8.3, 0.0, b"", b"")]),
        ("x < -0.5", [("x", NUMBER, HIGH, 0.0, -0.5, b"", b"")]),
        ("x > 7 AND s = 'é'", [("s", TEXT, LOW | HIGH | POINT, 0.0, 0.0, "é".encode(), "é\0".encode()),
                               ("x", NUMBER, LOW | LOW_AFTER, 7.0, 0.0, b"", b"")]),
        ("s LIKE 'OT%'", [("s", TEXT, LOW | HIGH | POINT, 0.0, 0.0, b"OT", b"OU")]),
        ("s LIKE '%é1'", [("s", BACK, LOW | HIGH | POINT, 0.0, 0.0, "1é".encode(), "1ê".encode())]),
        ("s LIKE '%abc%'", [("s", SUBSTRING, LOW | HIGH | POINT, 0.0, 0.0, b"abc", b"")]),
        ("s LIKE '%ÿ%' AND s LIKE 'a%'", None),
        ("s LIKE 'a_%'", None),
        ("x = 1 OR y = 2", None),
        ("x IN (1, 2)", None),
        ("x = 0.10000000000000000555", None),
        ("x IS NULL", None),
        ("x = 1 AND x = 2", []),
    ],
)  # fmt: skip
def test_what_is_read(text: str, said: list[Said] | None) -> None:
    filters = [parse_filter("z = 1"), parse_filter(text), parse_filter("z = 2")]
    assert check_read(filters)[1] == said


def check_read(filters: list[Filter]) -> list[list[Said] | None]:
    """Compare with the twin; what there is to read."""
    odd, owner, conjunction, sort, flags, bounds, offsets, texts = read_chunk(filters)
    found: list[list[Said] | None] = [None if is_odd else [] for is_odd in odd.tolist()]
    spelled = texts_between(offsets, texts)
    for k, (c, s, f, (low, high)) in enumerate(
        zip(conjunction.tolist(), sort.tolist(), flags.tolist(), bounds.tolist(), strict=True)
    ):
        name, *of = spelled[filter_scan.TEXTS * k :][: filter_scan.TEXTS]
        numbers = (low, high) if s == NUMBER else (0.0, 0.0)
        mine = found[owner[c]]
        assert mine is not None
        mine.append((name.decode(), s, f, *numbers, *of))
    assert len(spelled) == filter_scan.TEXTS * len(sort)
    assert found == TWINS["read_filters"](filters)
    return found


@given(st.lists(FORMS, max_size=8), st.integers(1, 4))
def test_constraints_are_ranked(forms: list[list[Conjunction]], times: int) -> None:
    check_ranked([Filter("", tuple(form)) for form in forms * times])


@pytest.mark.parametrize("seed", range(3))
def test_many_constraints_are_ranked(seed: int) -> None:
    """So many that runs of texts are merged several times; texts with the same beginning, and some in others."""
    rng = random.Random(seed)
    words = ["".join(rng.choice("ab\0é") for _ in range(rng.randrange(1, 12))) for _ in range(150)]
    words += [f"https://{word}" for word in words]
    filters: list[Filter] = []
    for _ in range(400):
        word, bound = rng.choice(words), rng.choice([-1, 1]) * rng.randrange(300) / rng.choice([1, 8, 1000])
        text = rng.choice(["s = '{}'", "s > '{}'", "s LIKE '{}%'", "t LIKE '%{}'", "t LIKE '%{}%'"]).format(word)
        filters.append(parse_filter(f"{text} AND x {rng.choice(['<', '<=', '=', '>', '>='])} {bound}"))
    assert check_ranked(filters) > 300


def check_ranked(filters: list[Filter]) -> int:
    """Compare with the twins; how many cuts there are."""
    _, _, _, sort, flags, bounds, offsets, texts = read_chunk(filters)
    line, met = untouched(len(sort)), untouched(len(sort))
    lines = agree("find_lines", sort, offsets, texts, line, met)
    build.find_lines(sort, offsets, texts, line, met)
    starts, order = group_starts(line, lines)
    ends, values, after = untouched(lines, np.int64), np.zeros(2 * len(sort)), np.zeros(2 * len(sort), np.bool_)
    cut_offsets, cut_data = untouched(2 * len(sort) + 1, np.int64), np.zeros(len(texts), np.uint8)
    first, last = untouched(len(sort)), untouched(len(sort))
    agree(
        "rank_constraints", starts, order, sort, flags, bounds, offsets, texts, first, last, ends, values, after,
        cut_offsets, cut_data,
    )  # fmt: skip
    build.rank_constraints(
        starts, order, sort, flags, bounds, offsets, texts, first, last, ends, values, after, cut_offsets, cut_data
    )
    return int(ends[-1]) if lines else 0


# -- how they are compiled ---------------------------------------------------------------------------------------------


def run(code: str, **environment: str) -> str:
    """Return what another Python prints."""
    inherited = {name: value for name, value in os.environ.items() if name != "MEETPOINT_KERNEL"}
    command = [sys.executable, "-c", code]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env={**inherited, **environment})
    assert told.returncode == 0, told.stderr
    return told.stdout.strip()


def test_code_on_disk_is_bound_to_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {path.stem for path in Path(jit.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(jit._FILES) == names
    dispatcher: Any = bucket_scan.drop_dead
    keys = [made._cache._index_key((), made.targetctx.codegen()) for made in (dispatcher, dispatcher.brief)]
    assert all(jit._SOURCE_HASH in key for key in keys)
    assert keys[0] != keys[1], "code that keeps the GIL and code that does not"
    hashes = {jit._source_hash()}
    for name in names:

        def changed(package: str, file: str, name: str = name) -> bytes:
            return (get_data(package, file) or b"") + b"\n" * (file == f"{name}.py")

        monkeypatch.setattr(jit, "get_data", changed)
        hashes.add(jit._source_hash())
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
@pytest.mark.slow
def test_numba_is_not_imported_by(code: str) -> None:
    """Numba takes longer to import than all else together, and few subscriptions need no compiled code."""
    assert run(f"import sys\n{code}\nprint('numba' in sys.modules)") == "False"


@pytest.mark.slow
def test_another_process_finds_the_code_on_disk(tmp_path: Path) -> None:
    code = """
import numpy as np
from meetpoint.matching.index.kernels.bucket_scan import drop_dead
assert drop_dead(np.arange(9, dtype=np.int32), np.zeros(9, np.int32), np.array([1, 1], np.uint8)) == 7
print(sum(drop_dead.stats.cache_hits.values()), sum(drop_dead.stats.cache_misses.values()))
"""
    assert [run(code, NUMBA_CACHE_DIR=str(tmp_path)) for _ in range(2)] == ["0 1", "1 0"]
