"""Workloads: decided by the seed, of the sizes asked for, and the same when written as filters and read back."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.bench.peers import NumpyPeer
from meetpoint.lab.workloads.generator import BLOCK, default_subscriptions, generate
from meetpoint.lab.workloads.long_form import LONG_FORM, OPS, Workload, filter_texts, long_form
from meetpoint.lab.workloads.mixes import MIXES
from meetpoint.language.filters.filter import FilterParser, parse_filter
from meetpoint.matching.index import Index
from tests.work import count_calls

SHARES = {"wide": (0.04, 0.1), "narrow": (0.00005, 0.001), "selective": (0.0, 0.0001)}


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_the_seed_decides_everything(mix: str) -> None:
    one, same, other = (generate(mix, 500, 300, seed) for seed in (5, 5, 6))
    assert one == same
    assert one.subscriptions != other.subscriptions
    assert one.events != other.events


@pytest.mark.parametrize("mix", MIXES)
def test_a_larger_workload_begins_with_the_smaller(mix: str) -> None:
    small, large = generate(mix, 600, BLOCK + 5, seed=5), generate(mix, BLOCK + 700, 2 * BLOCK, seed=5)
    assert small.subscriptions == large.subscriptions.slice(0, small.subscriptions.num_rows)
    assert small.events == large.events.slice(0, BLOCK + 5)
    numbers = pc.unique(large.subscriptions["subscription"]).to_pylist()
    assert numbers == list(range(BLOCK + 700))
    assert large.events.slice(0, BLOCK) != large.events.slice(BLOCK, BLOCK)


@pytest.mark.parametrize("mix", MIXES)
def test_sizes_and_form_are_as_promised(mix: str) -> None:
    workload = generate(mix, 700, 300, seed=1)
    table = workload.subscriptions
    assert table.schema == LONG_FORM
    assert workload.events.num_rows == 300
    rows = list(zip(table["subscription"].to_pylist(), table["attribute"].to_pylist(), strict=True))
    assert rows == sorted(set(rows))
    assert {number for number, _ in rows} == set(range(700))
    assert set(table["attribute"].to_pylist()) <= set(workload.events.column_names)
    for op, low, high, text in zip(*(table[name].to_pylist() for name in LONG_FORM.names[2:]), strict=True):
        assert op in OPS
        if text is None:
            assert low == high if op == "eq" else low < high and op == "range"
        else:
            assert low is high is None
            assert op != "range"


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_an_event_matches_a_bounded_share(mix: str) -> None:
    workload = generate(mix, 5000, 200, seed=2)
    peer = NumpyPeer(workload.subscriptions, workload.events)
    peer.load()
    share = peer.match(workload.events) / 5000 / 200
    least, most = SHARES.get(mix, (0.001, 0.012))
    assert least < share < most


@pytest.mark.slow
def test_an_event_matches_about_ten_of_a_million_selective_subscriptions() -> None:
    workload = generate("selective", 100_000, 5000, seed=7)
    index = Index.from_columns(workload.subscriptions, sample=workload.events)
    assert 7 < 10 * index.counts(workload.events).mean() < 14


@pytest.mark.slow
def test_mixes_are_what_they_are_called() -> None:
    ops = {mix: set(generate(mix, 3000, 300, seed=3).subscriptions["op"].to_pylist()) for mix in MIXES}
    assert ops["ticks"] == set(OPS)
    assert ops["strings"] == {"eq", "prefix", "suffix", "contains"}
    assert ops["ranges"] <= {"range", "eq"}
    sparse = generate("sparse", 100, 1000, seed=3).events
    assert sparse.column_names == [f"a{number:02}" for number in range(64)]
    held = np.mean([sum(v is not None for v in row.values()) for row in sparse.to_pylist()])
    assert 5 < held < 7
    assert default_subscriptions("wide") * 10 == default_subscriptions("ticks") == 100_000


@pytest.mark.slow
def test_generating_takes_a_few_calls_for_each_subscription() -> None:
    """Columns are drawn, not rows: a million subscriptions take ten seconds at most."""
    generate("ticks", 1000, 1000, seed=7)  # what is imported and compiled is not counted
    assert count_calls(lambda: generate("ticks", 100_000, 1000, seed=7)) < 5 * 100_000


@pytest.mark.parametrize("mix", MIXES)
def test_filters_come_back_to_the_same_rows(mix: str) -> None:
    workload = generate(mix, 1000, 100, seed=4)
    parser = FilterParser()
    table, unsaid = long_form((number, parser.parse(text)) for number, text in filter_texts(workload))
    assert unsaid == []
    assert table == workload.subscriptions


def test_what_is_refused_names_the_choice() -> None:
    with pytest.raises(MeetpointError, match=r"mix 'dense'.*choose one of ticks, wide"):
        generate("dense", 10, 10, seed=1)
    with pytest.raises(MeetpointError, match="0 subscriptions"):
        generate("ticks", 0, 10, seed=1)
    with pytest.raises(MeetpointError, match="seed -1: a seed is not negative"):
        generate("ticks", 10, 10, seed=-1)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a = 5", ("a", "eq", 5.0, 5.0, None)),
        ("a = 'x'", ("a", "eq", None, None, "x")),
        ("a BETWEEN 1 AND 2.5", ("a", "range", 1.0, 2.5, None)),
        ("a >= 1 AND a <= 2", ("a", "range", 1.0, 2.0, None)),
        ("a > 1", ("a", "range", math.nextafter(1, 2), math.inf, None)),
        ("a < 1", ("a", "range", -math.inf, math.nextafter(1, 0), None)),
        ("(a <= 0 OR a > 0)", ("a", "range", -math.inf, math.inf, None)),
        ("a LIKE 'x%'", ("a", "prefix", None, None, "x")),
        ("startswith(a, '%')", ("a", "prefix", None, None, "%")),
        ("a LIKE '%x'", ("a", "suffix", None, None, "x")),
        ("contains(a, 'it''s')", ("a", "contains", None, None, "it's")),
        ("a LIKE '%'", ("a", "prefix", None, None, "")),
        ("a LIKE 'x%' AND a IN ('xy', 'z')", ("a", "eq", None, None, "xy")),
        ("order.`unit price` <= 2", ("order.`unit price`", "range", -math.inf, 2.0, None)),
    ],
)
def test_long_form_of_one_constraint(text: str, row: tuple[object, ...]) -> None:
    table, unsaid = long_form([(3, parse_filter(text))])
    assert unsaid == []
    assert [tuple(one.values()) for one in table.to_pylist()] == [(3, *row)]
    again = [parse_filter(said) for _, said in filter_texts(Workload("one", table, pa.table({})))]
    assert long_form(enumerate(again, 3)) == (table, [])


@pytest.mark.parametrize(
    "text",
    [
        "TRUE",
        "FALSE",
        "a = 1 OR b = 2",
        "a IN (1, 2)",
        "a != 1",
        "a NOT BETWEEN 1 AND 2",
        "a IS NULL",
        "a IS NOT NULL",
        "live",
        "a > 'x'",
        "a LIKE 'x_'",
        "a LIKE 'x%y'",
        "a NOT LIKE 'x%'",
        "a LIKE 'x%' AND a LIKE '%y'",
        "t > TIMESTAMP '2026-01-01'",
        "a >= 5.00000000000000000001",
        "a = 1 AND b IN ('x', 'y')",
    ],
)
def test_what_long_form_cannot_say_is_named(text: str) -> None:
    table, unsaid = long_form([(8, parse_filter(text)), (9, parse_filter("a = 1"))])
    assert unsaid == [8]
    assert table["subscription"].to_pylist() == [9]


def test_long_form_is_ordered_by_number() -> None:
    numbered = [(7, parse_filter("b = 1 AND a = 2")), (2, parse_filter("c = 1"))]
    table, _ = long_form(numbered)
    assert table["subscription"].to_pylist() == [2, 7, 7]
    assert table["attribute"].to_pylist() == ["c", "a", "b"]
    assert pc.all(pc.is_null(table["text"])).as_py()
