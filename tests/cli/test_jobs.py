"""The jobs in Python and on the command line: ids, names of events, schemas, and everything that may hold rows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meetpoint as mp
from meetpoint.matching.index import Index
from meetpoint.matching.io.rejects import Reject
from meetpoint.matching.jobs import matches
from meetpoint.matching.tables.columns import ColumnBatch, Columns
from tests.cli.conftest import Command

ROWS: list[dict[str, Any]] = [{"x": 1, "k": "a"}, {"x": 2, "k": "b"}]
PAIRS = [{"event": 1, "subscription": "s"}]
SUBS = {"s": "x > 1"}


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# -- ids ---------------------------------------------------------------------------------------------------------------

BAD_IDS: list[Any] = [
    {"filter": "TRUE"},
    {"id": None, "filter": "TRUE"},
    {"id": "", "filter": "TRUE"},
    {"id": {"a": 1}, "filter": "TRUE"},
    {"id": 2**63, "filter": "TRUE"},
    {"id": "again", "filter": "TRUE"},
    {"id": "o", "filter": "TRUE", "subscriber": {"a": 1}},
    {"id": "n", "filter": None},
    {"id": "n", "filter": 5},
]


def test_match_and_lint_set_aside_the_same_ids(meetpoint: Command, tmp_path: Path) -> None:
    subs = lines(tmp_path / "s.jsonl", [{"id": "again", "filter": "x > 1"}, *BAD_IDS])
    events = lines(tmp_path / "e.jsonl", ROWS)
    told = []
    for command in (["match", events, "--subs", subs], ["lint", subs]):
        aside = tmp_path / "aside.jsonl"
        assert meetpoint(*command, "--rejects", aside).code == 1
        told.append([(row["row"], row["reason"]) for row in map(json.loads, aside.read_text().splitlines())])
    assert told[0] == told[1]
    assert [row for row, _ in told[0]] == list(range(1, 10))
    reasons = [reason for _, reason in told[0]]
    assert reasons[3] == "the id of the subscription is an object; give it a string or an integer"
    assert reasons[4] == "the id of the subscription is 9223372036854775808, beyond 64 bits; write it as a string"
    assert reasons[5] == "id 'again': occurs a second time; rename it"
    assert reasons[6] == "id 'o': the subscriber is an object; give it a string or an integer"


def test_lists_as_ids_are_set_aside(meetpoint: Command, tmp_path: Path) -> None:
    subs = tmp_path / "s.parquet"
    pq.write_table(pa.table({"id": [["a"], ["b"]], "filter": ["x > 1", "x > 1"]}), subs)
    for command in (["match", lines(tmp_path / "e.jsonl", ROWS), "--subs", subs], ["lint", subs]):
        ran = meetpoint(*command)
        assert (ran.code, "the id of the subscription is a list" in ran.err) == (1, True)


def test_a_refused_filter_is_a_finding_and_a_reject_if_there_is_a_list() -> None:
    rejects: list[Reject] = []
    assert mp.lint({"a": "x >", "b": "x > 1"}, rejects=rejects).counts() == {"refused": 1}
    assert [(r.row, r.raw) for r in rejects] == [(0, "x >")]
    assert mp.lint({"a": "x >"}).counts() == {"refused": 1}


def test_ids_that_only_look_alike_are_refused_not_cast() -> None:
    with pytest.raises(mp.EventError, match="ids are of different types"):
        mp.match(ROWS, {1: "TRUE", 2.5: "TRUE"})
    assert mp.match(ROWS, {np.int64(7): "x > 1"}).to_pylist() == [{"event": 1, "subscription": 7}]


# -- names of events ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a..b", "`", ".a"])
def test_a_malformed_name_is_refused_with_its_option(meetpoint: Command, tmp_path: Path, name: str) -> None:
    events = lines(tmp_path / "e.jsonl", ROWS)
    subs = lines(tmp_path / "s.jsonl", [{"id": 1, "filter": "TRUE"}])
    ran = meetpoint("match", events, "--subs", subs, "--event-id", name)
    assert (ran.code, ran.out, ran.err.startswith("meetpoint: --event-id: ")) == (2, "", True)
    ran = meetpoint("backtest", "TRUE", "--events", events, "--time", name)
    assert (ran.code, ran.out, ran.err.startswith("meetpoint: --time: ")) == (2, "", True)


def test_events_without_a_name_are_set_aside() -> None:
    rejects: list[Reject] = []
    rows = [{"x": 2, "k": "a"}, {"x": 2}, {"x": 2, "k": {"o": 1}}, {"x": 2, "k": "b"}]
    found = mp.match(rows, SUBS, event_id="k", rejects=rejects)
    assert found.column("event").to_pylist() == ["a", "b"]
    assert [reject.row for reject in rejects] == [1, 2]
    with pytest.raises(mp.MeetpointError, match="row 1: k, which is to name the event, is missing"):
        mp.match(rows, SUBS, event_id="k")


@pytest.mark.parametrize("second", [1.0, "1", True])
def test_names_of_different_types_in_different_batches_are_refused(second: object) -> None:
    batches = [ColumnBatch([n], Columns.of_rows([{"k": k}])) for n, k in enumerate([None, 1, second])]
    with pytest.raises(mp.EventError, match="the values of k are of different types"):
        list(matches(batches, [], "k", lambda reject: None))


def test_batches_without_any_name_do_not_change_the_type() -> None:
    batches = [pa.record_batch({"k": pa.nulls(1)}), pa.record_batch({"k": [5]}), pa.record_batch({"x": [5]})]
    assert mp.match(batches, {"s": "TRUE"}, event_id="k", rejects=[]).to_pylist() == [{"event": 5, "subscription": "s"}]


# -- schemas -----------------------------------------------------------------------------------------------------------

SCHEMA = mp.Schema.from_yaml("attributes: {x: {type: integer, max: 1}, k: string, o.y: timestamp}")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": ["1"]}, "column x is of Arrow type string and the schema says integer"),
        ({"k": [1]}, "column k is of Arrow type int64 and the schema says string"),
        ({"o": [{"y": "soon"}]}, r"column o\.y is of Arrow type string and the schema says timestamp"),
        ({"o": [1]}, "column o is of Arrow type int64 and the schema says an object"),
        ({"x": [[1]]}, "column x is of Arrow type list"),
    ],
)
def test_a_column_of_another_kind_than_the_schema_says_is_refused(
    tmp_path: Path, columns: dict[str, Any], message: str
) -> None:
    table = pa.table(columns)
    pq.write_table(table, tmp_path / "e.parquet")
    for events in (table, table.to_batches(), tmp_path / "e.parquet"):
        with pytest.raises(mp.EventError, match=message):
            mp.match(events, {"s": "TRUE"}, schema=SCHEMA)


def test_a_frame_of_another_kind_is_refused_with_its_column() -> None:
    with pytest.raises(mp.EventError, match="attribute k is 1, an integer"):
        mp.match(pd.DataFrame({"k": [1]}), {"s": "TRUE"}, schema=SCHEMA)


def test_types_count_and_bounds_do_not() -> None:
    table = pa.table({"x": [5.5, 2], "k": pa.array(["a", "b"]).dictionary_encode(), "other": [1, 2], "o": pa.nulls(2)})
    assert mp.match(table, {"s": "x > 1"}, schema=SCHEMA).num_rows == 2
    rows = [{"x": 5, "other": 1}, {"x": 2, "o": {"y": datetime.now(UTC)}}]
    for events in (rows, pd.DataFrame({"x": [5, 2]})):
        assert mp.match(events, {"s": "x > 1"}, schema=SCHEMA).num_rows == 2
    rejects: list[Reject] = []
    bad = [{"x": "5"}, {"o": 1}, {"x": {"a": 1}}, {"o": {"y": "soon"}}]
    assert mp.match(bad, {"s": "TRUE"}, schema=SCHEMA, rejects=rejects).num_rows == 0
    assert len(rejects) == 4


# -- everything that may hold rows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "events",
    [
        ROWS,
        iter(ROWS),
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_batches(max_chunksize=1),
        pa.Table.from_pylist(ROWS).to_reader(max_chunksize=1),
        pd.DataFrame(ROWS),
        [mp.Event("i", "p", n, datetime.now(UTC), row) for n, row in enumerate(ROWS)],
    ],
    ids=lambda events: type(events).__name__,
)
def test_events_may_be_anything_that_holds_rows(events: Any) -> None:
    assert mp.match(events, SUBS).to_pylist() == PAIRS


@pytest.mark.parametrize(
    "subscriptions",
    [
        {"s": mp.parse_filter("x > 1")},
        [{"id": "s", "filter": mp.parse_filter("x > 1")}],
        pa.table({"id": ["s"], "filter": ["x > 1"], "more": [5]}),
        pa.record_batch({"id": ["s"], "filter": ["x > 1"]}),
        pd.DataFrame({"id": ["s"], "filter": ["x > 1"], "subscriber": [float("nan")]}),
        pd.DataFrame({"id": ["s"], "filter": [mp.parse_filter("x > 1")]}),
    ],
    ids=lambda held: type(held).__name__,
)
def test_subscriptions_may_be_anything_that_holds_rows(subscriptions: Any) -> None:
    assert mp.match(ROWS, subscriptions).to_pylist() == PAIRS
    assert mp.lint(subscriptions).filters == 1


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ({"x": 1}, r"given a single dict; put it in a list: \[event\]"),
        (mp.Event("i", "p", 0, datetime.now(UTC), {}), r"given a single Event; put it in a list"),
        (None, "given None; give a path, a table, a frame, or rows"),
        (5, "of class int"),
        (b"e.jsonl", "of class bytes"),
    ],
)
def test_what_holds_no_events_is_refused_with_the_next_step(events: Any, message: str) -> None:
    with pytest.raises(mp.MeetpointError, match=message):
        mp.match(events, SUBS)
    with pytest.raises(mp.MeetpointError, match=message):
        mp.backtest("x > 1", events)


@pytest.mark.parametrize("subscriptions", [None, 5, b"x", mp.parse_filter("TRUE"), pa.table({"id": [1]})])
def test_what_holds_no_subscriptions_is_refused_with_the_next_step(subscriptions: Any) -> None:
    for job in (lambda: mp.match(ROWS, subscriptions), lambda: mp.lint(subscriptions)):
        with pytest.raises(mp.MeetpointError, match=r"subscriptions: (given|there is no column)"):
            job()


def test_rows_that_are_no_rows_are_set_aside() -> None:
    rejects: list[Reject] = []
    events: list[Any] = [None, 5, "x", *ROWS]
    subscriptions: list[Any] = [None, ("s", "TRUE"), {"id": "s", "filter": "x > 1"}]
    assert mp.match(events, subscriptions, rejects=rejects).to_pylist() == [{"event": 4, "subscription": "s"}]
    assert [(r.input, r.row) for r in rejects] == [
        ("subscriptions", 0), ("subscriptions", 1), ("events", 0), ("events", 1), ("events", 2)
    ]  # fmt: skip


def test_a_width_may_be_a_text() -> None:
    rows = [{"x": 1, "t": datetime(2026, 1, 1, hour, tzinfo=UTC)} for hour in range(4)]
    assert mp.backtest("x > 0", rows, time="t", width="2h") == mp.backtest(
        "x > 0", rows, time="t", width=timedelta(hours=2)
    )
    with pytest.raises(mp.EventError, match="is not a width"):
        mp.backtest("x > 0", rows, time="t", width="2y")
    with pytest.raises(mp.MeetpointError, match="the filter is of class int"):
        mp.backtest(5, rows)  # type: ignore[arg-type]


def test_backtest_tells_values_of_another_kind_and_true_rows(meetpoint: Command) -> None:
    ran = meetpoint("backtest", "x > 1", "--events", "-", "--json", stdin=b'{"x": "8"}\nbad\n{"x": 8}\n')
    assert ran.err.splitlines()[0] == (
        "meetpoint: x is compared as a number and is of another kind in 1 events: NULL there"
    )
    assert json.loads(ran.out)["samples"] == [{"row": 2, "attributes": {"x": 8}}]


@pytest.mark.parametrize("tried_max", [0, 10_000], ids=["index", "every filter tried"])
def test_few_and_many_subscriptions_are_matched_alike(tried_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from meetpoint.matching import jobs

    monkeypatch.setattr(jobs, "_TRIED_MAX", tried_max)
    made: list[object] = []
    monkeypatch.setattr(Index, "from_filters", _noting(Index.from_filters, made))
    subscriptions = {f"s{n}": f"a = {n % 7} OR b > {n}" for n in range(400)}
    events = [{"a": n % 9, "b": n} for n in range(50)]
    pairs = jobs.match(events, subscriptions)
    expected = [
        (e, f"s{n}") for e, event in enumerate(events) for n in range(400) if event["a"] == n % 7 or event["b"] > n
    ]
    assert list(zip(pairs["event"].to_pylist(), pairs["subscription"].to_pylist(), strict=True)) == expected
    assert bool(made) is (tried_max == 0)


def _noting(function: Callable[..., Any], calls: list[object]) -> Callable[..., Any]:
    def noting(*arguments: Any, **options: Any) -> Any:
        calls.append(arguments)
        return function(*arguments, **options)

    return noting
