"""Paper E, section 2.1: the four strategies, as tables of one edge."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from meetpoint.language import parse_filter
from meetpoint.schemes.rebeca import tables
from meetpoint.schemes.rebeca.tables import (
    ALL,
    STRATEGIES,
    FilterTable,
    RowChange,
    Rows,
    Sample,
    Strategy,
    accepts,
    make_table,
)
from tests.workloads import random_events, random_filter

EXACT = [strategy for strategy in STRATEGIES if strategy != "imperfect"]


def rows(*texts: str) -> Rows:
    """The conjunctions of filters."""
    return tuple(row for text in texts for row in parse_filter(text).conjunctions)


def numbers(count: int) -> list[Mapping[str, object]]:
    return [{"a": number, "b": number % 7} for number in range(count)]


def union(table: FilterTable) -> Rows:
    return tuple(row for source in table.sources.values() for row in source)


WIDE, NARROW, OTHER = rows("a > 10"), rows("a > 20"), rows("b = 1")


def test_simple_keeps_every_row() -> None:
    table = make_table("simple")
    table.replace("x", WIDE + NARROW)
    assert table.replace("y", WIDE) == RowChange(WIDE, ())
    assert table.rows == WIDE + NARROW + WIDE
    assert table.remove("x") == RowChange((), NARROW + WIDE)
    assert table.rows == WIDE


def test_identity_keeps_equal_rows_once_until_the_last_is_gone() -> None:
    table = make_table("identity")
    table.replace("x", WIDE + NARROW)
    assert table.replace("y", WIDE) == RowChange((), ())
    assert table.replace("x", NARROW) == RowChange((), ()), "y still wants it"
    assert table.remove("y") == RowChange((), WIDE)


@pytest.mark.parametrize("strategy", ["covering", "merging", "imperfect"])
def test_a_covered_row_is_not_told(strategy: Strategy) -> None:
    table = make_table(strategy)
    table.replace("x", WIDE)
    assert table.replace("y", NARROW) == RowChange((), ())
    assert table.replace("z", OTHER) == RowChange(OTHER, ())


@pytest.mark.parametrize("strategy", ["covering", "merging", "imperfect"])
def test_a_covering_row_that_goes_brings_back_what_it_covered_in_the_same_change(strategy: Strategy) -> None:
    table = make_table(strategy)
    table.replace("x", WIDE)
    table.replace("y", NARROW)
    table.replace("z", rows("a > 20 AND b = 1"))
    assert table.remove("x") == RowChange(NARROW, WIDE)
    assert table.remove("y") == RowChange(rows("a > 20 AND b = 1"), NARROW)


def test_a_covering_row_that_comes_replaces_what_it_covers_in_the_same_change() -> None:
    table = make_table("covering")
    table.replace("x", NARROW)
    assert table.replace("y", WIDE) == RowChange(WIDE, NARROW)


def test_rows_that_make_one_exactly_are_one() -> None:
    table = make_table("merging")
    table.replace("x", rows("a BETWEEN 0 AND 5 AND b = 1"))
    assert table.replace("y", rows("a BETWEEN 5 AND 9 AND b = 1")) == RowChange(
        rows("a BETWEEN 0 AND 9 AND b = 1"), rows("a BETWEEN 0 AND 5 AND b = 1")
    )
    table.replace("z", rows("a BETWEEN 0 AND 9 AND b = 2"))
    assert table.rows == rows("a BETWEEN 0 AND 9 AND b IN (1, 2)")
    table.replace("w", rows("a BETWEEN 2 AND 7 AND b IN (1, 2)"))
    assert table.rows == rows("a BETWEEN 0 AND 9 AND b IN (1, 2)"), "no row that came in covers it, the merged one does"
    table.remove("x")
    assert not accepts(table.rows, {"a": 1, "b": 1})
    assert accepts(table.rows, {"a": 3, "b": 1})


def test_other_rows_are_merged_only_within_the_share() -> None:
    apart = rows("a < 40 AND b < 3", "a >= 50 AND b < 4")
    for share, expected in ((0.05, 2), (0.3, 1)):
        table = make_table("imperfect", Sample(numbers(100)), share)
        table.replace("x", apart)
        assert len(table.rows) == expected
    for sample in (Sample(), Sample([{"c": 1}] * 50)):
        nothing_known = make_table("imperfect", sample, 0.3)
        nothing_known.replace("x", apart)
        assert len(nothing_known.rows) == 2, "what was never seen is no proof"


def test_what_accepts_everything_is_the_whole_table() -> None:
    for strategy in STRATEGIES:
        table = make_table(strategy, Sample(numbers(20)))
        table.replace("x", WIDE + OTHER)
        told = table.rows
        assert table.replace("y", ALL) == RowChange(ALL, told)
        assert table.remove("y") == RowChange(told, ALL)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_table_accepts_what_came_in_and_nothing_else_but_for_the_share(strategy: Strategy, seed: int) -> None:
    rng = random.Random(seed)
    events = random_events(rng, 60)
    sample, share = Sample(events), rng.choice([0.02, 0.1, 0.4])
    table = make_table(strategy, sample, share)
    told: list[object] = []
    for _ in range(60):
        source = rng.randrange(8)
        texts = [random_filter(rng, rng.choice([0, 1, 2])) for _ in range(rng.randrange(4))]
        change = table.replace(source, rows(*texts))
        for row in change.removed:
            told.remove(row)
        told += change.added
        assert sorted(map(repr, told)) == sorted(map(repr, table.rows)), "changes tell all"
        wanted = [accepts(union(table), event) for event in events]
        got = [accepts(table.rows, event) for event in events]
        assert all(mine >= theirs for mine, theirs in zip(got, wanted, strict=True))
        if strategy == "imperfect":
            assert sum(got) - sum(wanted) <= share * sum(got)
        else:
            assert got == wanted


@pytest.mark.parametrize("seed", range(5))
def test_each_strategy_has_at_most_the_rows_of_the_one_before(seed: int) -> None:
    rng = random.Random(seed)
    sample = Sample(numbers(200))
    tables = [make_table(strategy, sample, 0.2) for strategy in STRATEGIES]
    for source in range(40):
        low, b = rng.randrange(180), rng.randrange(4)
        text = f"a BETWEEN {low} AND {low + rng.choice([5, 20, 60])} AND b <= {b}"
        for table in tables:
            table.replace(source, rows(text))
    sizes = [len(table.rows) for table in tables]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[2], sizes


def test_a_table_that_would_be_too_long_accepts_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_MAX", 2)
    table = make_table("covering")
    table.replace("x", rows("a = 1", "b = 1"))
    assert len(table.rows) == 2
    table.replace("y", rows("c = 1"))
    assert table.rows == ALL
    table.remove("x")
    assert table.rows == rows("c = 1")
