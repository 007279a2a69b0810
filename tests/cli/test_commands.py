"""explain, lint, backtest, schema infer and demo: good input, bad input, empty input."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import meetpoint as mp
from meetpoint.cli.flights import make_alerts, read_flights
from meetpoint.lab.demo.demo import run_demo
from tests.cli.conftest import Command

TICK = '{"symbol": "OTE", "price": 8.75}'


# -- explain -----------------------------------------------------------------------------------------------------------


def test_explain_tells_the_reason_from_text_file_and_stream(meetpoint: Command, tmp_path: Path) -> None:
    file = tmp_path / "event.json"
    file.write_text(TICK)
    expected = (
        "✗ not accepted: price 8.75 is above 8.70\n"
        "✗ AND\n"
        "├─ ✗ price < 8.70       price 8.75 is above 8.70\n"
        "└─ ✓ symbol LIKE 'OT%'  symbol 'OTE' begins with 'OT'\n"
    )
    text = "price < 8.70 AND symbol LIKE 'OT%'"
    assert meetpoint("explain", text, TICK) == (0, expected, "")
    assert meetpoint("explain", text, file) == (0, expected, "")
    assert meetpoint("explain", text, "-", stdin=TICK.encode()) == (0, expected, "")


def test_explain_json_is_one_object(meetpoint: Command) -> None:
    ran = meetpoint("explain", "price < 8.70", TICK, "--json")
    assert json.loads(ran.out)["reason"] == "price 8.75 is above 8.70"
    assert ran.out.count("\n") == 1


@pytest.mark.parametrize(
    ("filter_", "event", "message"),
    [
        ("price <", TICK, "filter, column 8: the filter ends where a literal is expected after <"),
        ("price < 5", '{"price": ', "event"),
        ("price < 5", "[1]", "neither a JSON object nor a file"),
        ("price < 5", '{"price": [1]}', "price"),
        ("price < 5", "", "neither a JSON object nor a file"),
    ],
)
def test_explain_refuses_bad_input(meetpoint: Command, filter_: str, event: str, message: str) -> None:
    ran = meetpoint("explain", filter_, event)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_a_refused_filter_is_shown_with_a_pointer(meetpoint: Command) -> None:
    ran = meetpoint("explain", "price > 8 AND upper(symbol) = 'OTE'", TICK)
    assert ran.err.splitlines()[1:] == ["price > 8 AND upper(symbol) = 'OTE'", "              ^^^^^"]


def test_explain_reads_decimals_exactly_with_a_schema(meetpoint: Command, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("attributes: {price: decimal}")
    event = '{"price": 0.10000000000000000001}'
    assert json.loads(meetpoint("explain", "price > 0.1", event, "--json").out)["accepted"] is False
    assert json.loads(meetpoint("explain", "price > 0.1", event, "--schema", schema, "--json").out)["accepted"] is True
    assert meetpoint("explain", "price = 'x'", event, "--schema", schema).code == 2


# -- lint --------------------------------------------------------------------------------------------------------------


def subs(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_lint_lists_what_is_odd(meetpoint: Command, tmp_path: Path) -> None:
    file = subs(
        tmp_path / "subs.jsonl",
        [
            {"id": "a", "filter": "price > 5", "subscriber": "x"},
            {"id": "b", "filter": "price > 6", "subscriber": "x"},
            {"id": "c", "filter": "price > 6", "subscriber": "y"},
        ],
    )
    ran = meetpoint("lint", file)
    assert ran.code == 0
    assert "b   covered  whatever it accepts, a accepts too: price > 5" in ran.out
    assert ran.out.endswith("3 filters: 1 covered\n")
    told = json.loads(meetpoint("lint", file, "--json").out)
    assert told["counts"] == {"covered": 1}
    assert told["findings"][0]["other"] == "a"


def test_lint_counts_refused_filters_as_set_aside(meetpoint: Command, tmp_path: Path) -> None:
    file = subs(tmp_path / "subs.jsonl", [{"id": 1, "filter": "price >"}, {"id": 2, "filter": "[bold]"}, {"id": 3}])
    aside = tmp_path / "aside.jsonl"
    ran = meetpoint("lint", file, "--rejects", aside)
    assert ran.code == 1
    assert "2 filters: 2 refused" in ran.out
    told = {row["row"]: row["reason"] for row in map(json.loads, aside.read_text().splitlines())}
    assert told[2] == "id 3: the subscription has no filter; write one, or TRUE for all events"
    assert told[0].startswith("id 1: filter, column 8: the filter ends")
    assert sorted(told) == [0, 1, 2]


def test_lint_checks_against_a_schema_and_shows_only_the_first(meetpoint: Command, tmp_path: Path) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("attributes: {price: {type: decimal, max: 1000}}")
    file = subs(tmp_path / "subs.jsonl", [{"id": n, "filter": f"price > {5000 + n}"} for n in range(50)])
    ran = meetpoint("lint", file, "--schema", schema)
    assert "lies outside the schema: price has maximum 1000" in ran.out
    assert "… and 30 more; --json lists all" in ran.out


def test_lint_of_nothing(meetpoint: Command, tmp_path: Path) -> None:
    assert meetpoint("lint", subs(tmp_path / "subs.jsonl", [])) == (0, "0 filters: nothing odd\n", "")
    assert meetpoint("lint", tmp_path / "nope.csv").code == 2


def test_lint_in_python_takes_mappings_and_files(tmp_path: Path) -> None:
    assert str(mp.lint({"a": "x > 5", "b": "x > 6"})) == "2 filters: 1 covered"
    file = subs(tmp_path / "subs.jsonl", [{"id": "a", "filter": "x > 5"}, {"id": "b", "filter": "x > 5.0"}])
    assert mp.lint(file).counts() == {"duplicate": 1}
    with pytest.raises(mp.MeetpointError, match="id of the subscription is missing"):
        mp.lint([{"filter": "x > 5"}])


# -- backtest ----------------------------------------------------------------------------------------------------------

HISTORY = [{"price": 8.0 + n / 10, "at": f"2026-01-0{1 + n // 3}T0{n}:00:00Z"} for n in range(9)]


def history(directory: Path, kind: str) -> Path:
    path = directory / f"history.{kind}"
    if kind == "csv":
        path.write_text("price,at\n" + "".join(f"{row['price']},{row['at']}\n" for row in HISTORY))
    elif kind == "parquet":
        table = pa.Table.from_pylist(HISTORY)
        at = table.column("at").cast(pa.timestamp("us", tz="UTC"))
        pq.write_table(table.set_column(1, "at", at), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in HISTORY))
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_backtest_counts_the_same_in_every_format(meetpoint: Command, tmp_path: Path, kind: str) -> None:
    schema = tmp_path / "schema.yaml"
    schema.write_text("attributes: {price: float, at: timestamp}")
    options = ["--schema", schema] if kind == "jsonl" else []
    arguments = ["backtest", "price >= 8.40", "--events", history(tmp_path, kind), "--time", "at", "--bucket", "1d"]
    ran = meetpoint(*arguments, *options, "--json")
    told = json.loads(ran.out)
    assert (told["events"], told["hits"], told["near_misses"]) == (9, 5, {"price >= 8.4": 4})
    assert [(b["start"][:10], b["events"], b["hits"]) for b in told["timeline"]] == [
        ("2026-01-01", 3, 0),
        ("2026-01-02", 3, 2),
        ("2026-01-03", 3, 3),
    ]
    ran = meetpoint(*arguments, *options)
    assert ran.code == 0
    assert "5 of 9 events accepted (55.556%)" in ran.out
    assert "row 4: price=8.4" in ran.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["price >", "--events", "DATA"], "the filter ends"),
        (["price > 5", "--events", "nope.csv"], "nope.csv: no such file"),
        (["price > 5", "--events", "DATA", "--time", "when"], "have no attribute when"),
        (["price > 5", "--events", "DATA", "--time", "price"], "price does not hold timestamps"),
        (["price > 5", "--events", "DATA", "--bucket", "1y"], "'1y' is not a width; write a number and"),
    ],
)
def test_backtest_refuses_bad_input(meetpoint: Command, tmp_path: Path, arguments: list[str], message: str) -> None:
    data = history(tmp_path, "csv")
    ran = meetpoint("backtest", *[data if a == "DATA" else a for a in arguments])
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err


def test_backtest_of_nothing_and_of_half_bad_lines(meetpoint: Command) -> None:
    assert meetpoint("backtest", "x > 1", "--events", "-").out == "0 of 0 events accepted (no events)\n"
    ran = meetpoint("backtest", "x > 1", "--events", "-", "--json", stdin=b'{"x": 2}\nnonsense\n{"x": 0}\n')
    assert ran.code == 1
    assert json.loads(ran.out)["hits"] == 1
    assert "line 2" in ran.err


def test_backtest_in_python_takes_frames_tables_and_rows() -> None:
    table = pa.table({"x": [1, 2, None]})
    for data in (table, table.to_pandas(), table.to_pylist()):
        result = mp.backtest("x >= 2", data)
        assert (result.events, result.hits) == (3, 1)


# -- schema infer ------------------------------------------------------------------------------------------------------


def test_an_inferred_schema_reads_back_and_fits(meetpoint: Command, tmp_path: Path) -> None:
    out = tmp_path / "schema.yaml"
    stdin = b'{"price": 8.5, "n": 1, "o": {"x": "a"}}\n{"price": 9, "n": null}\n'
    assert meetpoint("schema", "infer", "-", "--out", out, stdin=stdin).code == 0
    schema = mp.Schema.from_yaml(out)
    assert {a.name: str(a.type) for a in schema} == {"price": "float", "n": "integer", "o.x": "string"}
    assert schema.problems({"price": 8.5, "n": 1}) == []
    shown = meetpoint("schema", "infer", "-", stdin=stdin)
    assert mp.Schema.from_yaml(shown.out) == schema


def test_kinds_that_do_not_mix_are_refused(meetpoint: Command) -> None:
    ran = meetpoint("schema", "infer", "-", stdin=b'{"x": 1}\n{"x": "a"}\n')
    assert (ran.code, ran.out) == (2, "")
    assert "x" in ran.err


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_help_names_every_command(meetpoint: Command) -> None:
    ran = meetpoint("--help")
    assert ran.code == 0
    for command in ("match", "explain", "lint", "backtest", "schema", "pipeline", "demo"):
        assert command in ran.out
    assert meetpoint("--version").out == f"meetpoint {mp.__version__}\n"
    assert meetpoint("nonsense").code == 2


def test_alerts_are_the_same_every_time_and_all_parse() -> None:
    alerts = make_alerts(400)
    assert alerts == make_alerts(400)
    assert len(alerts) == 400
    columns = set(read_flights(1).column_names)
    for text in alerts.values():
        filter_ = mp.parse_filter(text)
        assert {name for c in filter_.conjunctions for name in c.attributes} <= columns


@pytest.mark.slow
def test_the_demo_tells_its_story(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from rich.console import Console

    run_demo(Console(width=120), flights=5000, alerts=120, with_spark=False, report=tmp_path)
    told = capsys.readouterr().out
    assert "5,000 flights from New York in 2013, 120 alerts" in told
    assert "finds the same pairs" in told
    assert "not accepted:" in told
    assert "filter, column 20: upper(...) is a function" in told
    assert "120 filters:" in told
    assert "of 5,000 events accepted" in told
    assert "exactly the right ones" in told
