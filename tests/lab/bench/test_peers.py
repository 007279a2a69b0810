"""DuckDB, NumPy and the oracle find the same pairs on every mix, and on values that are odd on purpose."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from meetpoint.lab.bench import access
from meetpoint.lab.bench.access import AccessKind, Tuning, make_plan, read_attributes
from meetpoint.lab.bench.duckdb_peer import DuckDBPeer, TunedDuckDBPeer
from meetpoint.lab.bench.peers import NumpyPeer, Peer, digest_of, plain_events
from meetpoint.lab.workloads.generator import generate
from meetpoint.lab.workloads.long_form import LONG_FORM, Workload, filter_texts
from meetpoint.lab.workloads.mixes import MIXES
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.values import clean_attributes
from meetpoint.matching.index import Index
from meetpoint.matching.index.kernels.jit import has_avx512
from meetpoint.matching.scan import Scan
from tests.tiers import SOAK

Pair = tuple[int, int]
DUCKDB = [DuckDBPeer, TunedDuckDBPeer]
PEERS: list[Callable[[pa.Table, pa.Table], Peer]] = [*DUCKDB, NumpyPeer]
EVENTS = 200 if SOAK else 100
"""How many are put to the oracle, which is slow."""


def pairs_of(peer: Peer, events: pa.Table) -> list[Pair]:
    peer.load()
    peer.prepare()
    found = peer.pairs(events)
    return sorted(zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True))


def oracle(workload: Workload) -> list[Pair]:
    scan: Scan[int] = Scan()
    for number, text in filter_texts(workload):
        scan.add(number, parse_filter(text))
    answers = scan.match_batch(map(clean_attributes, workload.events.to_pylist()))
    return sorted((event, number) for event, found in enumerate(answers) for number in found)


def long_rows(*rows: tuple[int, str, str, float | None, float | None, str | None]) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=LONG_FORM)


@functools.cache
def judged(mix: str) -> tuple[Workload, list[Pair]]:
    """A workload of a mix, and what the oracle finds."""
    workload = generate(mix, 400, EVENTS, seed=12)
    return workload, oracle(workload)


every_mix = pytest.mark.parametrize("mix", [pytest.param(mix, marks=pytest.mark.xdist_group(mix)) for mix in MIXES])
"""The tests of a mix in one process, so that the oracle is asked once."""


@every_mix
def test_all_agree_on_every_mix(mix: str) -> None:
    workload, expected = judged(mix)
    assert len(expected) > {"narrow": 0, "selective": -1}.get(mix, 20)
    for make in PEERS:
        assert pairs_of(make(workload.subscriptions, workload.events), workload.events) == expected, make


@pytest.mark.parametrize("path", ["portable", *(["avx512"] if has_avx512() else [])])
@every_mix
def test_the_index_agrees_with_the_oracle_on_every_mix(mix: str, path: str) -> None:
    """By its ids, made from columns and from filters, while subscriptions go and come back."""
    workload, expected = judged(mix)
    held = [(number, parse_filter(text)) for number, text in filter_texts(workload)]
    for index in (
        Index.from_columns(workload.subscriptions, sample=workload.events),
        Index.from_filters(held, sample=workload.events),
        Index.from_filters(held),
    ):
        for gone in (range(0), range(0, 400, 3)):
            index.remove_many(gone)
            found = index.table(workload.events, path=path)
            pairs = zip(found["event"].to_pylist(), found["subscription"].to_pylist(), strict=True)
            assert sorted(pairs) == [pair for pair in expected if pair[1] not in gone]
        index.add_many(held[number] for number in gone)
        index.compact()
        assert sorted(len(ids) for ids in index.lists(workload.events, path=path).to_pylist()) == sorted(
            np.bincount([event for event, _ in expected], minlength=EVENTS).tolist()
        )


@pytest.mark.parametrize("peer", DUCKDB)
@pytest.mark.parametrize("mix", MIXES if SOAK else ["ticks", "strings", "sparse"])
def test_every_kind_of_table_gives_the_same_pairs(
    mix: str, peer: type[DuckDBPeer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables split to the last, equalities of numbers on their own, patterns found by their beginnings."""
    monkeypatch.setattr(access, "_SPLIT_MIN", 1.0)
    monkeypatch.setattr(access, "POINTS_MIN", 1)
    monkeypatch.setattr(access, "PIECES_MAX", 1)
    monkeypatch.setattr(access, "FEW", 3)
    workload = generate(mix, 400, 100, seed=12)
    reference = pairs_of(NumpyPeer(workload.subscriptions, workload.events), workload.events)
    assert pairs_of(peer(workload.subscriptions, workload.events), workload.events) == reference


@pytest.mark.parametrize("option", Tuning.__struct_fields__)
@pytest.mark.parametrize("mix", ["ticks", "strings", "sparse"])
def test_every_option_gives_the_same_pairs(mix: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DuckDBPeer, "tuning", Tuning(**{option: True}))
    workload = generate(mix, 300, 100, seed=13)
    reference = pairs_of(NumpyPeer(workload.subscriptions, workload.events), workload.events)
    assert pairs_of(DuckDBPeer(workload.subscriptions, workload.events), workload.events) == reference


def test_the_plain_plan_takes_constraints_in_a_fixed_order() -> None:
    workload = generate("ticks", 3000, 1000, seed=14)
    plan = make_plan(workload.subscriptions, read_attributes(workload.events), workload.events.num_rows)
    found = {
        (group.access, group.attribute.name): set(group.table["subscription"].to_pylist()) for group in plan.groups
    }
    numbers = ["price", "high", "low", "volume", "change"]
    assert len(found) == len(plan.groups)
    assert set(found) == {
        (AccessKind.CONTAINS, "headline"),
        (AccessKind.VALUE, "symbol"),
        (AccessKind.PREFIX, "symbol"),
        (AccessKind.SUFFIX, "symbol"),
        (AccessKind.CODE, "sector"),
        (AccessKind.CODE, "exchange"),
        *((AccessKind.CELL, name) for name in numbers),
    }
    rows = workload.subscriptions.to_pylist()
    asking = {
        name: {row["subscription"] for row in rows if row["attribute"] == name} for name in workload.events.column_names
    }
    rest = asking["symbol"] - asking["headline"]
    assert found[AccessKind.CONTAINS, "headline"] == asking["headline"]
    assert (
        found[AccessKind.VALUE, "symbol"] | found[AccessKind.PREFIX, "symbol"] | found[AccessKind.SUFFIX, "symbol"]
        == rest
    )
    assert found[AccessKind.CODE, "sector"] == asking["sector"] - asking["symbol"] - asking["headline"]
    for group in plan.groups:
        assert {check.attribute.name for check in group.checks if check.test == "range"} == set(numbers)


ODD = pa.table(
    {
        "x": pa.array([0.0, -0.0, math.nan, math.inf, -math.inf, None, 5.0, 5.000000000000001]),
        "s": pa.array(["", "aaa", "a\0b", "é🙂", "%_\\", None, "'", "🙂🙂"]),
        "t": pa.array([f"text {n}" for n in range(7)] + [None]),
    }
)


@pytest.mark.parametrize("few", [60, 2])
@pytest.mark.parametrize("make", PEERS)
def test_odd_values_are_judged_as_the_oracle_does(
    make: Callable[[pa.Table, pa.Table], Peer], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "FEW", few)
    subscriptions = long_rows(
        (0, "x", "eq", 0.0, 0.0, None),
        (1, "x", "range", 5.000000000000001, math.inf, None),
        (2, "x", "range", -math.inf, 5.0, None),
        (3, "x", "range", -math.inf, math.inf, None),
        (4, "s", "eq", None, None, ""),
        (5, "s", "prefix", None, None, ""),
        (6, "s", "suffix", None, None, ""),
        (7, "s", "contains", None, None, ""),
        (8, "s", "contains", None, None, "aa"),
        (9, "s", "suffix", None, None, "🙂"),
        (10, "s", "contains", None, None, "🙂"),
        (11, "s", "eq", None, None, "%_\\"),
        (12, "s", "contains", None, None, "%_"),
        (13, "s", "eq", None, None, "'"),
        (14, "x", "eq", None, None, "5"),
        (15, "s", "range", 1.0, 2.0, None),
        (16, "nowhere", "prefix", None, None, "a"),
        (17, "s", "prefix", None, None, "a\0"),
        (18, "s", "prefix", None, None, "a"),
        (18, "x", "range", -10.0, 10.0, None),
        (19, "s", "suffix", None, None, "zzz"),
        (20, "s", "prefix", None, None, ""),
        (20, "t", "contains", None, None, "ext 1"),
        (20, "x", "range", -1.0, math.inf, None),
    )
    workload = Workload("odd", subscriptions, ODD)
    assert pairs_of(make(subscriptions, ODD), ODD) == oracle(workload)


@pytest.mark.parametrize("make", PEERS)
def test_no_subscription_and_no_event(make: Callable[[pa.Table, pa.Table], Peer]) -> None:
    workload = generate("ticks", 10, 10, seed=1)
    assert pairs_of(make(workload.subscriptions[:0], workload.events), workload.events) == []
    assert pairs_of(make(workload.subscriptions, workload.events[:0]), workload.events[:0]) == []


@pytest.mark.parametrize("make", DUCKDB)
def test_events_unlike_the_sample_are_matched_too(make: type[DuckDBPeer]) -> None:
    workload = generate("ticks", 300, 300, seed=3)
    peer = make(workload.subscriptions, workload.events[:3])
    reference = pairs_of(NumpyPeer(workload.subscriptions, workload.events), workload.events)
    assert pairs_of(peer, workload.events) == reference


@pytest.mark.parametrize("make", DUCKDB)
def test_a_number_that_was_always_there_may_be_missing_later(make: type[DuckDBPeer]) -> None:
    workload = generate("ticks", 150, 60, seed=3)
    holes = pa.array([None if n % 3 else float(n) for n in range(60)])
    later = workload.events.set_column(workload.events.column_names.index("price"), "price", holes)
    for events in (later, workload.events.drop_columns(["volume"])):
        peer = make(workload.subscriptions, workload.events)
        peer.match(workload.events)
        assert pairs_of(peer, events) == oracle(Workload("later", workload.subscriptions, events))


def test_numbers_of_subscriptions_may_have_gaps_and_exceed_32_bits() -> None:
    subscriptions = long_rows(*((n, "x", "range", 0.0, 5.0, None) for n in (-3, 7, 2**40)))
    events = pa.table({"x": [1.0, 9.0]})
    for make in PEERS:
        assert pairs_of(make(subscriptions, events), events) == [(0, -3), (0, 7), (0, 2**40)]


@pytest.mark.parametrize("make", PEERS)
def test_the_digest_is_that_of_the_pairs(make: Callable[[pa.Table, pa.Table], Peer]) -> None:
    workload = generate("skewed", 200, 100, seed=4)
    peer = make(workload.subscriptions, workload.events)
    pairs = pairs_of(peer, workload.events)
    digest = peer.digest(workload.events)
    expected = digest_of(np.array(pairs)[:, 0], np.array(pairs)[:, 1], 100)
    assert digest.difference(expected) is None
    swapped = [(event, 5 if at == 7 else number) for at, (event, number) in enumerate(pairs)]
    assert digest.difference(digest_of(np.array(swapped)[:, 0], np.array(swapped)[:, 1], 100)) == pairs[7][0]


def test_numpy_takes_a_part_of_the_events() -> None:
    workload = generate("ticks", 2000, 300, seed=5)
    peer = NumpyPeer(workload.subscriptions, workload.events)
    peer.load()
    assert peer.share(workload.events).num_rows == 300
    assert peer.share(pa.table({"x": np.zeros(200_000)})).num_rows == 100_000


def test_plain_events_say_what_they_leave_out() -> None:
    day = pa.array([1, 2], pa.timestamp("s"))
    events = pa.table(
        {
            "n": pa.array([1, None], pa.int32()),
            "big": pa.array([1, 10**15], pa.int64()),
            "price": pa.array([Decimal("1.50"), None]),
            "exact": pa.array([Decimal("1.5000000000000001"), None]),
            "sort": pa.array(["a", "b"]).dictionary_encode(),
            "order": pa.array([{"total": 1.0, "a.b": "x", "day": None}, None]),
            "live": pa.array([True, False]),
            "day": day,
        }
    )
    plain = plain_events(events)
    assert plain.unfit == {"big", "exact", "live", "day", "order.day"}
    assert plain.table.to_pylist() == [
        {"n": 1.0, "price": 1.5, "sort": "a", "order.total": 1.0, "order.`a.b`": "x"},
        {"n": None, "price": None, "sort": "b", "order.total": None, "order.`a.b`": None},
    ]
