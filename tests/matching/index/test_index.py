"""The index against the oracle: random filters and events, with subscriptions coming and going; the ids compared."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meetpoint.errors import EventError, LimitError, MeetpointError, SchemaError, SetupError
from meetpoint.language import Attribute, Filter, Schema, Type, clean_attributes, parse_filter
from meetpoint.language.filters.like import Pattern
from meetpoint.matching.index import Index, JsonEvents, lsm, snapshot
from meetpoint.matching.index.kernels.jit import has_avx512
from meetpoint.matching.index.snapshot import PATH_VARIABLE
from meetpoint.matching.scan import Scan
from meetpoint.matching.tables.columns import parts_of_rows
from tests.matching.test_columns import COLUMNS, OTHER_TYPES, rows_of, table_of
from tests.tiers import SOAK
from tests.workloads import random_events, random_filter

PATHS = ["portable", *(["avx512"] if has_avx512() else [])]


@pytest.fixture(autouse=True)
def compile_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a handful of filters is compiled, so that it is the compiled code that is tested."""
    monkeypatch.setattr(lsm, "MEMTABLE_MAX_ALONE", 3)
    monkeypatch.setattr(lsm, "MEMTABLE_MAX", 3)


@pytest.fixture(params=PATHS)
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(PATH_VARIABLE, request.param)
    return str(request.param)


def filters(seed: int, count: int) -> list[Filter]:
    rng = random.Random(seed)
    made: list[Filter] = []
    while len(made) < count:
        with suppress(LimitError):
            made.append(parse_filter(random_filter(rng)))
    return made


def events_of(seed: int, count: int) -> list[dict[str, Any]]:
    return [dict(clean_attributes(event)) for event in random_events(random.Random(seed), count)]


def both(held: list[tuple[Any, Filter]], **options: Any) -> tuple[Index[Any], Scan[Any]]:
    scan: Scan[Any] = Scan()
    for id_, filter_ in held:
        scan.add(id_, filter_)
    return Index.from_filters(held, **options), scan


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12 if SOAK else 4))
@pytest.mark.parametrize("sampled", [False, True], ids=["unknown events", "sampled events"])
def test_any_filters_on_rows(seed: int, sampled: bool, path: str) -> None:
    events = events_of(seed, 150)
    index, scan = both(list(enumerate(filters(seed, 120))), sample=events[:40] if sampled else None)
    assert index.match_batch(events) == scan.match_batch(events)
    assert [index.match(event) for event in events[:10]] == scan.match_batch(events[:10])


def test_what_is_known_of_events_decides_where_a_filter_is_filed() -> None:
    """By a sample, else by the bounds of a schema, else by how many filters ask for what."""

    def led(filters: list[str], event: dict[str, Any], **options: Any) -> int:
        """How many buckets an event comes to."""
        index, _ = both(list(enumerate(map(parse_filter, filters))), **options)
        segment = index._snapshot.segments[0].segment
        scratch = segment.encoder.scratch()
        encoded = segment.encoder.encode(parts_of_rows([event], segment.encoder.names), 1, scratch)
        return len(segment._pairs(encoded, 1, scratch)[0])

    filters = [f"rare BETWEEN {n} AND {n + 1} AND often BETWEEN 0 AND {n % 3 + 1}" for n in range(0, 400, 2)]
    often, rare = {"often": 0.5}, {"rare": 17}
    sample = [{"often": n % 4, "rare": n} for n in range(400)]
    assert led(filters, often, sample=sample) == 0
    assert led(filters, rare, sample=sample) == 1
    bounds = Schema((Attribute("often", Type.FLOAT, Decimal(0), Decimal(3)), Attribute("rare", Type.INTEGER, 0, 400)))
    assert led(filters, often, schema=bounds) == 0
    assert led(filters, rare, schema=bounds) == 1
    assert led(filters, rare) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6 if SOAK else 3))
@pytest.mark.parametrize("other_types", [False, True])
def test_any_filters_on_arrow(seed: int, other_types: bool, path: str) -> None:
    """All results from one table, in every form."""
    schema = COLUMNS
    if other_types:
        schema = pa.schema([field.with_type(OTHER_TYPES.get(field.name, field.type)) for field in COLUMNS])
    table = table_of(random_events(random.Random(seed), 200), schema)
    index, scan = both(list(enumerate(filters(seed, 150))), sample=table)
    expected = scan.match_batch([clean_attributes(row) for row in rows_of(table)])
    pairs = index.table(table)
    found: list[set[int]] = [set() for _ in expected]
    for event, id_ in zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True):
        assert id_ not in found[event], "a pair came twice"
        found[event].add(id_)
    assert found == [set(ids) for ids in expected]
    assert [set(ids) for ids in index.lists(table).to_pylist()] == found
    assert index.counts(table).tolist() == [len(ids) for ids in expected]
    seen: list[Any] = []
    assert index.each_batch(table, seen.append) == pairs.num_rows == sum(len(some.events) for some in seen)


@pytest.mark.parametrize("size", [1, 3, 31, 33, 150])
def test_batches_of_any_size(size: int, path: str) -> None:
    table = table_of(random_events(random.Random(3), 150), COLUMNS)
    index, scan = both(list(enumerate(filters(3, 100))))
    expected = scan.match_batch([clean_attributes(row) for row in rows_of(table)])
    found = sorted(
        (event, pairs.ids[number])
        for pairs in index.pairs(table, batch=size)
        for event, number in zip(pairs.events.tolist(), pairs.subscriptions.tolist(), strict=True)
    )
    assert found == [(event, id_) for event, ids in enumerate(expected) for id_ in sorted(ids)]


@pytest.mark.slow
def test_output_larger_than_every_buffer(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Where the kernel stops at a full buffer and goes on with the next, nothing is lost and nothing comes twice."""
    from meetpoint.matching.index import segment

    monkeypatch.setattr(segment, "_OUTPUT", 1)
    texts = [
        "x >= 0",
        "x BETWEEN 1 AND 3 OR y = 1",
        "y = 1",
        "y != 7",
        "s LIKE 'a%'",
        "s LIKE '%b%' AND x < 4",
        "x = 2",
    ]
    index, scan = both([(number, parse_filter(texts[number % len(texts)])) for number in range(3000)])
    events: list[dict[str, Any]] = [{"x": n % 5, "y": n % 3, "s": ["ab", "ba", "c"][n % 3]} for n in range(70)]
    assert index.match_batch(events) == scan.match_batch(events)
    chunks = list(index.pairs(events))
    assert len(chunks) > 10


@pytest.mark.slow
def test_more_lines_than_registers_and_than_bytes(path: str) -> None:
    """Sixteen slots fit a register, 256 fit the byte that names them; there may be more of either."""
    for attributes in (40, 300, 3000):
        rng = random.Random(attributes)
        held = []
        for number in range(400):
            names = rng.sample(range(attributes), 2)
            texts = [f"a{n} BETWEEN {(low := rng.randint(0, 5))} AND {low + rng.randint(0, 3)}" for n in names]
            held.append((number, parse_filter(" AND ".join(texts))))
        events: list[dict[str, Any]] = [
            {f"a{n}": rng.randint(0, 8) for n in range(attributes) if rng.random() < 0.6} for _ in range(60)
        ]
        index, scan = both(held, sample=events[:10])
        assert index.match_batch(events) == scan.match_batch(events)


def test_outputs_of_two_sizes_are_not_mixed_up() -> None:
    """A caller that keeps one half of earlier results leaves a large array and a small one to be used again."""
    index = Index.from_filters((n, parse_filter(f"a{n % 40} = 7")) for n in range(20_000))
    event = {f"a{n}": 7 for n in range(40)}
    kept = list(index.pairs(pa.Table.from_pylist([event, event])))
    index.match(event)
    events = [pairs.events for pairs in kept]
    del kept
    assert index.match(event) == list(range(20_000))
    assert sum(map(len, events)) == 40_000


def test_patterns_that_begin_alike_are_told_apart_by_their_ends() -> None:
    """An event must not try all of them only because its text begins like theirs."""
    from meetpoint.matching.index.encoder import build_grams

    patterns = [("u", Pattern(("", f"https://example.org/item/{n:06}", ""))) for n in range(5000)]
    grams = build_grams(patterns)["u"]
    longest = int(np.diff(grams.begin).max())
    assert longest < 100
    index, _ = both([(n, parse_filter(f"u LIKE '%{p.pieces[1]}%'")) for n, (_, p) in enumerate(patterns)])
    assert index.match({"u": "see https://example.org/item/000123 and https://example.org/item/004999!"}) == [123, 4999]


ODD_NUMBERS = ["0.1", "0.10000000000000000555", "9007199254740993", "9007199254740992", "1152921504606846977", "1e300"]


def test_numbers_beyond_doubles(path: str) -> None:
    """Integers beyond 2**53, decimals, and literals that share a double, asked of exact values and of floats."""
    texts = [f"n {op} {number}" for op in ("=", "!=", "<", "<=", ">", ">=") for number in ODD_NUMBERS]
    texts += [f"n BETWEEN {a} AND {b}" for a in ODD_NUMBERS for b in ODD_NUMBERS]
    texts += [f"n IN ({a}, {b}, 5)" for a in ODD_NUMBERS for b in ODD_NUMBERS]
    values: list[Any] = [
        2**53,
        2**53 + 1,
        2**60,
        2**60 + 1,
        10**30,
        0,
        5,
        0.1,
        1e300,
        float(2**60),
        float("nan"),
        -1e308,
    ]
    values += [Decimal("0.1"), Decimal("0.10000000000000000555"), Decimal("0.100000000000000005"), Decimal(2**60 + 1)]
    index, scan = both(list(enumerate(map(parse_filter, texts))))
    events: list[dict[str, Any]] = [{"n": value} for value in values]
    assert index.match_batch(events) == scan.match_batch(events)


def test_a_subscription_is_found_once_however_many_alternatives_hold(path: str) -> None:
    text = "a = 1 OR b = 1 OR c = 1 OR (a = 1 AND b = 1) OR s LIKE '%x%' OR s LIKE 'x%'"
    index, _ = both([(n, parse_filter(text)) for n in range(50)])
    event: dict[str, Any] = {"a": 1, "b": 1, "c": 1, "s": "x"}
    assert index.match(event) == list(range(50))
    assert index.counts([event] * 40).tolist() == [50] * 40


def test_what_nothing_can_index(path: str) -> None:
    texts = [
        "TRUE",
        "s > 'a' AND s < 'a\\0'",
        "s > 'a' AND s < 'a\\0' AND NOT s LIKE '%b%'",
        "a IS NULL",
        "a != 1",
        "NOT (s LIKE '%x%')",
        "s LIKE '___'",
        "a IS NOT NULL",
        "NOT (s LIKE 'x%')",
    ]
    index, scan = both(list(enumerate(map(parse_filter, texts * 3))))
    events: list[dict[str, Any]] = [
        {},
        {"a": 1},
        {"a": 2, "s": "axb"},
        {"s": "äöü"},
        {"s": ""},
        {"s": "x"},
        {"a": "no"},
    ]
    assert index.match_batch(events) == scan.match_batch(events)


class Changes(RuleBasedStateMachine):
    """Any order of adding, removing, updating, merging, saving and matching."""

    def __init__(self) -> None:
        super().__init__()
        self.index: Index[str] = Index(sample=events_of(0, 30))
        self.scan: Scan[str] = Scan()
        self.ids: list[str] = []
        self.made = 0
        self.events = events_of(1, 40)

    @rule(seed=st.integers(0, 10_000), count=st.integers(1, 12))
    def add(self, seed: int, count: int) -> None:
        new = [(f"s{self.made + n}", f) for n, f in enumerate(filters(seed, count))]
        self.made += count
        self.index.add_many(new)
        for id_, filter_ in new:
            self.scan.add(id_, filter_)
            self.ids.append(id_)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.ids), unique=True, max_size=8)) if self.ids else []
        self.index.remove_many(chosen)
        for id_ in chosen:
            self.scan.remove(id_)
            self.ids.remove(id_)

    @rule(data=st.data(), seed=st.integers(0, 10_000))
    def update(self, data: st.DataObject, seed: int) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.ids), unique=True, max_size=8)) if self.ids else []
        new = list(zip(chosen, filters(seed, len(chosen)), strict=True))
        self.index.update_many(new)
        for id_, filter_ in new:
            self.scan.update(id_, filter_)

    @rule()
    def compact(self) -> None:
        self.index.compact()
        assert self.index.segments <= 1

    @rule()
    def reopen(self) -> None:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            self.index.save(Path(folder, "index"))
            self.index = Index.open(Path(folder, "index"))

    @invariant()
    def agree(self) -> None:
        assert len(self.index) == len(self.scan)
        assert self.index.match_batch(self.events) == self.scan.match_batch(self.events)


TestChanges = Changes.TestCase
TestChanges.settings = settings(max_examples=12, stateful_step_count=12, deadline=None)


@pytest.mark.slow
@pytest.mark.parametrize("joined", [100, 2], ids=["one by one", "joined"])
@pytest.mark.parametrize("sampled", [False, True], ids=["unknown events", "sampled events"])
def test_flat_segments_match_like_any_other(
    sampled: bool, joined: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any filters, those that ask nothing, and those that nothing satisfies; also after some are gone again."""
    monkeypatch.setattr(snapshot, "_FLAT_MERGE_COUNT", joined)
    monkeypatch.setattr(lsm, "pick_compaction", lambda held: ())
    held = list(enumerate(filters(3, 300) + [parse_filter(text) for text in ("TRUE", "FALSE", "s LIKE '%a%'")]))
    events = events_of(3, 120)
    index, scan = both(held[:20], sample=events[:30] if sampled else None)
    for begin in range(20, len(held), 40):
        index.add_many(held[begin : begin + 40])
        for id_, filter_ in held[begin : begin + 40]:
            scan.add(id_, filter_)
        if begin == 60:  # what is gone when its segment is joined
            index.remove_many(range(60, 90))
            for id_ in range(60, 90):
                scan.remove(id_)
    index.remove_many(range(100, 180))
    for id_ in range(100, 180):
        scan.remove(id_)
    assert [one.segment.flat for one in index._snapshot.segments] == [False] + [True] * (index.segments - 1)
    assert index.segments > 4 if joined == 100 else index.segments <= 4
    assert index.match_batch(events) == scan.match_batch(events)
    assert [index.match(event) for event in events[:30]] == scan.match_batch(events[:30])
    index.compact()
    assert [one.segment.flat for one in index._snapshot.segments] == [False]
    assert index.match_batch(events) == scan.match_batch(events)


def test_many_filters_and_the_first_are_flushed_to_a_compiled_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsm, "pick_compaction", lambda held: ())
    monkeypatch.setattr(lsm, "FLAT_MAX", 50)
    some = filters(4, 151)
    index = Index.from_filters(enumerate(some[:50]))
    index.add_many((50 + n, filter_) for n, filter_ in enumerate(some[50:100]))
    index.add_many((100 + n, filter_) for n, filter_ in enumerate(some[100:]))
    assert [(len(one), one.segment.flat) for one in index._snapshot.segments] == [(50, False), (50, True), (51, False)]


class _FakeSegment:
    """The attributes of a LiveSegment that compaction reads."""

    def __init__(self, length: int, flat: bool = False, dead: int = 0, lines: int = 1) -> None:
        self.length, self.tombstone_count = length, dead
        self.serials = range(length + dead)
        self.segment = SimpleNamespace(flat=flat, rows=SimpleNamespace(lines=range(lines)))

    def __len__(self) -> int:
        return self.length


@pytest.mark.parametrize(
    ("parts", "merged"),
    [
        ([_FakeSegment(100), _FakeSegment(40)], []),
        ([_FakeSegment(100), _FakeSegment(40), _FakeSegment(41)], [1, 2]),
        ([_FakeSegment(100), _FakeSegment(50), _FakeSegment(50)], [0, 1, 2]),
        ([_FakeSegment(1000), _FakeSegment(10, flat=True)], [1]),
        ([_FakeSegment(1000), _FakeSegment(20), _FakeSegment(10, flat=True), _FakeSegment(10, flat=True)], [1, 2, 3]),
        ([_FakeSegment(1000), _FakeSegment(20), _FakeSegment(10, flat=True), _FakeSegment(9, flat=True)], [2, 3]),
        ([_FakeSegment(80, dead=20), _FakeSegment(10)], []),
        ([_FakeSegment(79, dead=21), _FakeSegment(10)], [0]),
        ([_FakeSegment(10, lines=60_000), _FakeSegment(10, lines=6_000)], []),
        ([_FakeSegment(10, lines=60_000), _FakeSegment(10, flat=True, lines=6_000)], [1]),
        ([], []),
    ],
)
def test_segments_to_compact(parts: list[Any], merged: list[int]) -> None:
    found = snapshot.pick_compaction(tuple(parts))
    assert [parts.index(one) for one in found] == merged


@pytest.mark.parametrize(
    ("sizes", "busy", "joined"),
    [
        ([10] * 23, 0, 0),
        ([10] * 24, 0, 24),
        ([10] * 25, 0, 25),
        ([10] * 25, 2, 0),
        ([240, *[10] * 24], 0, 24),
        ([239, *[10] * 23], 0, 24),
        ([10] * 23 + [8000], 0, 24),
        ([6000] * 24, 0, 0),
        ([0] * 24, 0, 24),
        ([], 0, 0),
    ],
)
def test_flat_segments_to_merge(sizes: list[int], busy: int, joined: int) -> None:
    """The youngest of about one size, up to one under compaction, and no more than fit a flat segment."""
    parts: list[Any] = [_FakeSegment(5), *(_FakeSegment(size, flat=True) for size in sizes)]
    found = snapshot.pick_flat_merge(tuple(parts), frozenset(id(one.segment) for one in parts[: busy + 1]))
    assert list(found) == parts[len(parts) - joined :]


def test_segments_under_compaction_are_not_merged_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a compaction, filters are added until flat segments are merged, and compacted ones are removed."""
    monkeypatch.setattr(snapshot, "_FLAT_MERGE_COUNT", 2)
    monkeypatch.setattr(lsm, "_QUIET_S", 0.0)
    held = list(enumerate(filters(5, 200)))
    events = events_of(5, 40)
    index, scan = both(held[:40])
    index.compact()
    begun, goes_on = threading.Event(), threading.Event()
    compiling = index._compile

    def compile_late(rows: Any) -> Any:
        begun.set()
        goes_on.wait(60)
        return compiling(rows)

    monkeypatch.setattr(index, "_compile", compile_late)
    for begin in range(40, 200, 20):
        index.add_many(held[begin : begin + 20])
        for id_, filter_ in held[begin : begin + 20]:
            scan.add(id_, filter_)
        assert begun.wait(60)
    index.remove_many(range(30, 70))
    for id_ in range(30, 70):
        scan.remove(id_)
    assert index.match_batch(events) == scan.match_batch(events)
    goes_on.set()
    index.compact()
    assert index.match_batch(events) == scan.match_batch(events)
    assert len(index) == len(scan)


def test_changes_during_compaction_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """While segments are compacted, subscriptions are removed and updated, or all of a segment are removed."""
    monkeypatch.setattr(lsm, "pick_compaction", lambda held: ())
    one = parse_filter("a = 1")
    index = Index.from_filters((n, one) for n in range(10))
    for begin in (10, 20, 30):
        index.add_many((n, one) for n in range(begin, begin + 10))
    compiling = index._compile

    def compile_late(rows: Any) -> Any:
        index.remove_many([0, 15, *range(20, 30)])
        index.update_many([(5, parse_filter("a = 2")), *((n, one) for n in range(36, 40))])
        return compiling(rows)

    monkeypatch.setattr(index, "_compile", compile_late)
    index.remove_many([1, 31])
    index._compact_segments(index._snapshot.segments)
    assert index.match({"a": 1}) == [n for n in range(40) if n not in (0, 1, 5, 15, 31, *range(20, 30))]
    assert index.match({"a": 2}) == [5]
    assert len(index) == 26


def test_ids_are_those_that_are_equal() -> None:
    """Whatever their hashes are: many of these share one."""
    some = parse_filter("a = 1")
    index: Index[Any] = Index()
    index.add_many((n * 2**61, some) for n in range(200))
    index.add_many([("x", some), ((1, 2), some), (-1, some), (-2, some), (None, some)])
    assert 2.0**61 in index
    assert 0.0 in index
    with pytest.raises(KeyError, match="is held already"):
        index.add(2.0**61, some)
    index.remove_many([0.0, (1, 2), -2])
    assert [id_ in index for id_ in (0, (1, 2), -1, -2, None, "x")] == [False, False, True, False, True, True]
    with pytest.raises(TypeError, match="unhashable"):
        index.add([], some)


@pytest.mark.slow
def test_a_process_may_end_during_compaction() -> None:
    """Python ends threads that it does not wait for wherever they are, and C++ takes that for an error."""
    code = """
import threading, time
from meetpoint import parse_filter
from meetpoint.matching.index import Index, lsm
started, merge = threading.Event(), Index._compact_segments

def merge_for_long(self, some):
    started.set()
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        merge(self, self._snapshot.segments)
    print("merged")

lsm._QUIET_S, Index._compact_segments = 0.0, merge_for_long
index = Index.from_filters((n, parse_filter(f"a = {n} AND s = 'x{n}'")) for n in range(3000))
index.add_many((n, parse_filter(f"a = {n} AND s = 'x{n}'")) for n in range(3000, 6000))
started.wait()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "merged\n", "")


def test_ids_that_are_taken_or_unknown() -> None:
    some = parse_filter("a = 1")
    index, _ = both([(n, some) for n in range(10)])
    with pytest.raises(KeyError, match="5 is held already; update it instead"):
        index.add_many([(11, some), (5, some)])
    with pytest.raises(KeyError, match="12 is held already"):
        index.add_many([(12, some), (12, some)])
    with pytest.raises(KeyError, match="99 is not held; add it first"):
        index.update(99, some)
    with pytest.raises(KeyError, match="99 is not held"):
        index.remove_many([1, 99])
    with pytest.raises(KeyError, match="1 is named twice"):
        index.remove_many([1, 1])
    assert index.match({"a": 1}) == list(range(10)), "a change that is refused changes nothing"
    assert 5 in index
    assert 99 not in index


def test_removing_leaves_no_trace() -> None:
    kept = [(f"k{n}", parse_filter(f"x = {n} AND s LIKE '%k{n}%'")) for n in range(40)]
    gone = [(f"g{n}", parse_filter(f"y IN ({n}, {n + 1000}) AND s LIKE '%g{n}%' OR t = 'g{n}'")) for n in range(400)]
    plain, _ = both(kept)
    index, _ = both(kept + gone)
    index.remove_many([id_ for id_, _ in gone])
    index.compact()
    assert index.nbytes == plain.nbytes
    assert index.match({"y": 3, "s": "g3", "t": "g5"}) == []
    index.remove_many([id_ for id_, _ in kept])
    index.compact()
    assert (len(index), index.nbytes, index.segments) == (0, 0, 0)


def test_matching_goes_on_while_subscriptions_change() -> None:
    """A thread that matches sees each change whole: of two filters that are swapped together, exactly one holds."""
    odd, even = parse_filter("n = 1"), parse_filter("n = 2")
    index, _ = both([("a", odd), ("b", even)] + [(n, parse_filter(f"m = {n}")) for n in range(500)])
    stop = threading.Event()
    wrong: list[Any] = []

    def match() -> None:
        while not stop.is_set():
            found = index.match_batch([{"n": 1}, {"n": 2}])
            if sorted(map(len, found)) != [1, 1]:
                wrong.append(found)

    threads = [threading.Thread(target=match) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for n in range(150):
            index.update_many([("a", even if n % 2 == 0 else odd), ("b", odd if n % 2 == 0 else even)])
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_small_set_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lsm, "MEMTABLE_MAX_ALONE", 256)
    index, scan = both(list(enumerate(filters(5, 100))))
    events = events_of(5, 50)
    assert index.segments == 0
    assert index.match_batch(events) == scan.match_batch(events)
    assert index.table(events).num_rows == sum(map(len, scan.match_batch(events)))
    assert [set(ids) for ids in index.lists(events).to_pylist()] == [set(ids) for ids in scan.match_batch(events)]


def test_without_a_compiler_everything_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lsm, "can_compile", lambda: False)
    monkeypatch.setattr(snapshot, "can_compile", lambda: False)
    index, scan = both(list(enumerate(filters(6, 50))))
    events = events_of(6, 50)
    assert index.segments == 0
    assert index.match_batch(events) == scan.match_batch(events)
    for refused in (lambda: index.save(tmp_path / "x"), lambda: Index.open(tmp_path / "x")):
        with pytest.raises(SetupError, match=r"numba is not installed.*meetpoint\[fast\]"):
            refused()


def test_an_empty_index() -> None:
    index: Index[str] = Index()
    assert index.match({"a": 1}) == []
    assert index.table([{"a": 1}]).num_rows == 0
    assert index.counts([{"a": 1}]).tolist() == [0]
    assert index.lists([{"a": 1}]).to_pylist() == [[]]
    assert list(index.pairs([])) == []


# -- JSON lines --------------------------------------------------------------------------------------------------------

LINES = b"""\xef\xbb\xbf{"a": 1, "s": "x"}
{"a": 2.5, "o": {"x": 7}}

{"a": }
{"s": "\\u00e4b", "a": null}\r
[1]
{"a": 12345678901234567890123}"""


@pytest.mark.slow
@pytest.mark.parametrize("small", [False, True], ids=["compiled", "small"])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_json_lines(small: bool, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are set aside match nothing, though they lack whatever a filter wants to be missing."""
    monkeypatch.setattr(lsm, "MEMTABLE_MAX_ALONE", 256 if small else 3)
    monkeypatch.setattr(lsm, "BATCH", size)
    texts = ["a >= 1", "TRUE", "a IS NULL", "s LIKE '%b%'", "o.x = 7", "a > 1e20"]
    index, _ = both(list(enumerate(map(parse_filter, texts))))
    rejects: list[Any] = []
    pairs = index.table(JsonEvents(LINES, rejects=rejects))
    found = sorted(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True))
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 4), (3, 1), (3, 2), (3, 3), (5, 0), (5, 1), (5, 5)]
    assert [(r.row, r.reason.split(",")[0], r.raw) for r in rejects] == [(2, "line 4", '{"a": }'), (4, "line 6", "[1]")]
    assert index.counts(JsonEvents(LINES, rejects=[])).tolist() == [2, 3, 0, 3, 0, 3]
    with pytest.raises(EventError, match=r"events, row 2: line 4, .*; pass rejects=\[\] to set bad rows aside"):
        index.counts(JsonEvents(LINES))
    with pytest.raises(EventError, match="give the bytes of JSON lines"):
        JsonEvents("text")  # type: ignore[arg-type]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Index[Any], Path]:
    index, _ = both([(f"s{n}", f) for n, f in enumerate(filters(8, 200))], sample=events_of(8, 50))
    index.save(tmp_path / "index")
    return index, tmp_path / "index"


def test_a_saved_index_gives_the_same_answers(saved: Any, path: str) -> None:
    index, file = saved
    opened = Index.open(file)
    events = events_of(9, 100)
    assert opened.match_batch(events) == index.match_batch(events)
    assert opened.nbytes > 0
    opened.remove("s3")
    opened.add("new", parse_filter("TRUE"))
    assert "s3" not in opened
    assert opened.match(events[0])[-1] == "new"
    assert "s3" in Index.open(file), "the file is not changed"


def test_a_file_that_is_no_index_or_damaged_is_refused(saved: Any, tmp_path: Path) -> None:
    _, file = saved
    good = file.read_bytes()
    bad = tmp_path / "bad"
    for content, said in (
        (b"", "is empty"),
        (b"PAR1 and more", "not an index of Meetpoint"),
        (good[:16] + (99).to_bytes(8, "little") + good[24:], "of version 99"),
        (good[: len(good) // 2], "damaged|cut short"),
        (good[:200] + bytes([good[200] ^ 1]) + good[201:], "header's checksum"),
        (good[:-1000] + bytes([good[-1000] ^ 1]) + good[-999:], "damaged"),
    ):
        bad.write_bytes(content)
        with pytest.raises(MeetpointError, match=said):
            Index.open(bad)
    with pytest.raises(MeetpointError, match="check the path"):
        Index.open(tmp_path / "missing")


def test_saving_while_subscriptions_change_writes_what_there_was_at_one_moment(tmp_path: Path) -> None:
    index, _ = both([(n, parse_filter("a = 1")) for n in range(10)])
    stop = threading.Event()

    def change() -> None:
        at = 10
        while not stop.is_set():
            index.add(at, parse_filter("b = 1"))
            if at > 10:
                index.remove(at - 1)
            at += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(8):
            index.save(tmp_path / f"{number % 2}")
            assert len(Index.open(tmp_path / f"{number % 2}").match({"b": 1})) in ((0, 1, 2) if number == 0 else (1, 2))
    finally:
        stop.set()
        thread.join()
    assert {file.name for file in tmp_path.iterdir()} == {"0", "1"}


def test_a_file_cannot_be_saved_where_there_is_no_folder(tmp_path: Path) -> None:
    index, _ = both([(n, parse_filter("a = 1")) for n in range(10)])
    for where in (tmp_path / "missing" / "index", tmp_path):
        with pytest.raises(MeetpointError, match="check the folder"):
            index.save(where)


def test_an_id_that_is_none_stays_none(tmp_path: Path) -> None:
    index, _ = both([(id_, parse_filter("a = 1")) for id_ in (None, 1, 2, 3, 4)])
    index.save(tmp_path / "index")
    assert Index.open(tmp_path / "index").match({"a": 1}) == [None, 1, 2, 3, 4]


def test_ids_of_several_types_cannot_be_saved(tmp_path: Path) -> None:
    index, _ = both(
        [(1, parse_filter("a = 1")), ("x", parse_filter("a = 2")), *((n, parse_filter("a = 3")) for n in "abc")]
    )
    assert index.match({"a": 2}) == ["x"]
    with pytest.raises(MeetpointError, match="of different types"):
        index.table([{"a": 2}])
    with pytest.raises(MeetpointError, match="of different types"):
        index.lists([{"a": 2}])
    with pytest.raises(MeetpointError, match="of different types"):
        index.save(tmp_path / "index")
    assert not list(tmp_path.iterdir())


# -- columns and switches ----------------------------------------------------------------------------------------------


def test_constraints_in_columns(path: str) -> None:
    rows = [
        (7, "symbol", "eq", None, None, "IBM"),
        (7, "price", "range", 1.5, 2.5, None),
        (8, "symbol", "prefix", None, None, "I"),
        (9, "symbol", "suffix", None, None, "M"),
        (9, "note", "contains", None, None, "up"),
        (10, "price", "eq", 2.0, 2.0, None),
    ]
    names = ["subscription", "attribute", "op", "low", "high", "text"]
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=names)
    index = Index.from_columns(table)
    assert len(index) == 4
    assert index.match({"symbol": "IBM", "price": 2, "note": "it is up"}) == [7, 8, 9, 10]
    assert index.match({"symbol": "IM", "price": 2.6, "note": "down"}) == [8]
    with pytest.raises(MeetpointError, match="there is no column op"):
        Index.from_columns(table.drop_columns(["op"]))
    with pytest.raises(MeetpointError, match="given an object of class dict; give a pyarrow Table"):
        Index.from_columns({})


def constraints(*rows: tuple[Any, ...]) -> pa.Table:
    types = [pa.int64(), pa.string(), pa.string(), pa.float64(), pa.float64(), pa.string()]
    names = ["subscription", "attribute", "op", "low", "high", "text"]
    return pa.table([pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)], names=names)


def test_open_ends_and_what_nothing_or_anything_satisfies_in_columns(path: str) -> None:
    inf = float("inf")
    index = Index.from_columns(
        constraints(
            (1, "x", "range", -inf, 5.0, None),
            (2, "x", "range", 5.0, inf, None),
            (3, "x", "range", -inf, inf, None),
            (4, "x", "range", 5.0, 3.0, None),
            (5, "s", "contains", None, None, ""),
            (6, "s", "suffix", None, None, ""),
        )
    )
    assert index.match({"x": 10, "s": "any"}) == [2, 3, 5, 6]
    assert index.match({"x": -1.5}) == [1, 3]
    assert index.match({"x": 5, "s": ""}) == [1, 2, 3, 5, 6]
    assert index.match({"s": 5}) == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [(1, "x", "eq", 1.0, 1.0, None), (2, "x", "eq", 1.0, 1.0, None), (1, "x", "eq", 1.0, 1.0, None)],
            "1 do not stand",
        ),
        ([(None, "x", "eq", 1.0, 1.0, None)], "row 0: there is no subscription"),
        ([(1, None, "eq", 1.0, 1.0, None)], "row 0: there is no attribute"),
        ([(1, "x", None, 1.0, 1.0, None)], "row 0: there is no op"),
        ([(1, "x", "like", 1.0, 1.0, "a")], "column op has 'like'; use eq, range, prefix, suffix, contains"),
        ([(1, "x", "prefix", 5.0, 5.0, None)], "row 0: has no text"),
        ([(1, "x", "range", 5.0, 5.0, "a")], "row 0: is a range and has a text"),
        ([(1, "x", "eq", 1.0, 5.0, None)], "row 0: is an equality with two values"),
        ([(1, "x", "range", None, 5.0, None)], "row 0: has no low or no high"),
        ([(1, "x", "range", float("inf"), float("inf"), None)], "row 0: begins at inf"),
    ],
)
def test_columns_that_are_refused(rows: list[Any], said: str) -> None:
    with pytest.raises(MeetpointError, match=said):
        Index.from_columns(constraints(*rows))


def test_types_of_columns_that_are_refused() -> None:
    good = constraints((1, "x", "eq", 1.0, 1.0, None))
    for at, name, column, said in (
        (3, "low", pa.array([Decimal(1)]), "column low is of Arrow type decimal128"),
        (3, "low", pa.array([2**53 + 1]), "column low has integers beyond"),
        (1, "attribute", pa.array([5]), "column attribute is of Arrow type int64; give strings"),
    ):
        with pytest.raises(MeetpointError, match=said):
            Index.from_columns(good.set_column(at, name, column))
    assert Index.from_columns(good.set_column(3, "low", pa.array([1]))).match({"x": 1}) == [1]


def test_matches_within_matches_and_side_by_side() -> None:
    """Buffers belong to one match at a time, also where a callback or a second loop of the same thread matches too."""
    rng = random.Random(1)
    index, scan = both([(n, parse_filter(f"x >= {rng.random():.3f} AND y <= {rng.random():.3f}")) for n in range(300)])
    some: list[dict[str, Any]] = [{"x": rng.random(), "y": rng.random()} for _ in range(90)]
    other: list[dict[str, Any]] = [{"x": rng.random(), "y": rng.random()} for _ in range(90)]

    def answer(pairs: list[Any]) -> list[tuple[int, int]]:
        return sorted((e, n) for p in pairs for e, n in zip(p.events.tolist(), p.subscriptions.tolist(), strict=True))

    a, b = [], []
    for p, q in zip(index.pairs(some, batch=30), index.pairs(other, batch=30), strict=True):
        a.append(p)
        b.append(q)
        index.match_batch(other)
    assert answer(a) == [(e, n) for e, ids in enumerate(scan.match_batch(some)) for n in ids]
    assert answer(b) == [(e, n) for e, ids in enumerate(scan.match_batch(other)) for n in ids]


@pytest.mark.slow
def test_more_attributes_than_16_bits_can_number() -> None:
    with pytest.raises(LimitError, match="the limit is 65,536; split the subscriptions by attribute"):
        Index.from_columns(constraints(*((n, f"a{n}", "eq", 1.0, 1.0, None) for n in range(65_537))))
    index = Index.from_columns(constraints(*((n, f"a{n}", "eq", n, n, None) for n in range(33_000))))
    assert index.match({"a0": 0, "a32768": 32768, "a1": 5}) == [0, 32768]


def test_hostile_filters_and_texts_cost_little() -> None:
    """No clock: what would take minutes, or gigabytes, if each value were combined with each other one."""
    values = ", ".join(map(str, range(1500)))
    long = "a" * 20_000
    held = [
        (0, parse_filter(f"a IN ({values}) AND b IN ({values})")),
        (1, parse_filter(f"s LIKE '%{long}b%'")),
        *((2 + n, parse_filter(f"s LIKE '%{'a' * n}%' AND s LIKE 'a%'")) for n in range(1, 300)),
    ]
    index = Index.from_filters(held)
    assert index.nbytes < 3_000_000
    assert index.match_batch([{"a": 7, "b": 1499}, {"a": 7, "b": 1500}]) == [[0], []]
    assert index.match_batch([{"s": "a" * 100_000}, {"s": f"{long}b"}]) == [
        list(range(3, 302)),
        list(range(1, 302))[:1] + list(range(3, 302)),
    ]
    urls = [{"s": f"https://shop.example.org/{n:032}/index.html"} for n in range(3000)]
    assert index.counts(urls).tolist() == [0] * 3000


@pytest.mark.parametrize("bad", ["text", b"bytes", 5, {"a": 1}])
def test_samples_filters_and_events_of_no_use_are_refused_at_once(bad: Any) -> None:
    with pytest.raises(EventError, match="sample: given an object of class"):
        Index(sample=bad)
    index: Index[Any] = Index()
    with pytest.raises(MeetpointError, match="subscription 1: the filter is of class"):
        index.add(1, bad)
    index.add(1, parse_filter("a = 1"))
    if not isinstance(bad, dict):
        with pytest.raises(EventError, match="event: given an object of class"):
            index.match(bad)
    with pytest.raises(EventError, match="a row of class int"):
        list(index.pairs([5]))
    with pytest.raises(SchemaError, match="give a Schema"):
        Index(schema=bad)


@pytest.mark.parametrize(
    "sample", [JsonEvents(b'{"a": 1}\n' * 9), iter([{"a": 1}] * 9), pa.table({"a": [1, 2]}).to_reader()]
)
def test_samples_come_as_events_do(sample: Any) -> None:
    index, _ = both([(n, parse_filter(f"a = {n}")) for n in range(9)], sample=sample)
    assert index.match({"a": 3}) == [3]


def test_bounds_of_a_schema_may_lie_far_apart() -> None:
    times = Schema((Attribute("t", Type.TIMESTAMP, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)),))
    index, _ = both([(n, parse_filter(f"t > TIMESTAMP '20{n:02}-01-01'")) for n in range(9)], schema=times)
    assert index.match({"t": datetime(2002, 6, 1, tzinfo=UTC)}) == [0, 1, 2]


def test_rows_and_batches_in_one_list_are_numbered_in_their_order() -> None:
    index, _ = both([(n, parse_filter(f"a = {n}")) for n in range(9)])
    mixed = [{"a": 1}, pa.record_batch({"a": [2, 3]}), {"a": 4}]
    pairs = index.table(mixed)
    assert sorted(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True)) == [
        (0, 1), (1, 2), (2, 3), (3, 4),
    ]  # fmt: skip


def test_the_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = both([(n, parse_filter("a = 1")) for n in range(9)])
    with pytest.raises(MeetpointError, match="path is 'sse'; use auto, avx512, portable"):
        list(index.pairs([{"a": 1}], path="sse"))
    monkeypatch.setenv(PATH_VARIABLE, "mmx")
    with pytest.raises(SetupError, match="MEETPOINT_KERNEL is 'mmx'"):
        index.match({"a": 1})


@pytest.mark.parametrize("bad", [{"a": 1}, "text", b"bytes", 5, None])
def test_what_holds_no_events_is_refused(bad: Any) -> None:
    index, _ = both([(n, parse_filter("a = 1")) for n in range(9)])
    with pytest.raises(EventError, match="give a table, batches, a list of rows, or JsonEvents"):
        list(index.pairs(bad))


def test_pairs_stay_what_they_are_while_more_come() -> None:
    """Buffers are used again only when nobody holds what is in them."""
    index, _ = both([(n, parse_filter(f"a >= {n % 7}")) for n in range(200)])
    events: list[dict[str, Any]] = [{"a": n % 7} for n in range(300)]
    held = list(index.pairs(events, batch=10))
    copies = [(p.events.copy(), p.subscriptions.copy()) for p in index.pairs(events, batch=10)]
    assert len(held) > 20
    for pairs, (of, numbers) in zip(held, copies, strict=True):
        np.testing.assert_array_equal(pairs.events, of)
        np.testing.assert_array_equal(pairs.subscriptions, numbers)
