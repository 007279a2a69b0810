"""`meetpoint sim --compare`: one table, one object, a user's own files, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from meetpoint.catalog import SCHEMES
from meetpoint.lab.cli.comparison import columns_of, told_best
from meetpoint.lab.sim import comparison as comparing
from meetpoint.lab.sim.clients import Clients
from meetpoint.lab.sim.comparison import Costs, PerUnit
from tests.cli.conftest import Command

FEW = ("--nodes", 3, "--subscriptions", 6, "--events", 3)
SCHEMA = "attributes:\n  symbol: string\n  price: {type: integer, min: 0, max: 100}\n"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes take their time to start."""
    monkeypatch.setattr(comparing, "cores", lambda: 1)


@pytest.fixture
def own(tmp_path: Path) -> tuple[object, ...]:
    """Five subscriptions and four events, two of them bad."""
    filters = ["price > 50", "symbol = 'OTE'", "price >", "price <= 50 AND symbol LIKE 'O%'"]
    rows = [f'u{number},"{text}"' for number, text in enumerate(filters)]
    (tmp_path / "alerts.csv").write_text("\n".join(["id,filter", *rows, ""]))
    events = ['{"symbol": "OTE", "price": 60}', '{"symbol": "BARC", "price": 60}', "{oops", '{"price": 10}']
    (tmp_path / "ticks.jsonl").write_text("\n".join(events))
    (tmp_path / "trades.yaml").write_text(SCHEMA)
    return "--filters", tmp_path / "alerts.csv", "--data", tmp_path / "ticks.jsonl"


def test_people_get_one_table_of_all_schemes(meetpoint: Command) -> None:
    ran = meetpoint("sim", "--compare", *FEW)
    assert (ran.code, ran.err) == (0, "")
    head, columns, overlays, *rows = ran.out.splitlines()
    assert head.startswith("3 nodes, 6 subscriptions, 3 events at 50 a second, seed 7, no faults; ")
    assert columns.split() == list(SCHEMES)
    assert overlays.split()[1:] == ["hypercube" if scheme == "reach" else "chord" for scheme in SCHEMES]
    assert any(row.startswith("messages an event") for row in rows)
    wrong = next(row for row in rows if row.startswith("wrong, by the oracle"))
    assert wrong.split()[-len(SCHEMES) :] == ["none"] * len(SCHEMES)
    assert any("fewest messages an event" in row for row in rows)


def test_programs_get_one_object_with_the_same_figures(meetpoint: Command) -> None:
    arguments = ("sim", "--compare", *FEW, "--scheme", "meet, lists:hybrid:order", "--scheme", "meet")
    ran = meetpoint(*arguments, "--overlay", "pastry", "--json")
    told = json.loads(ran.out)
    assert (ran.code, ran.err, ran.out.count("\n")) == (0, "", 1)
    assert (told["nodes"], told["subscriptions"], told["events"], told["seed"]) == (3, 6, 3, 7)
    assert [(each["scheme"], each["overlay"]) for each in told["schemes"]] == [
        ("meet", "pastry"),
        ("lists:hybrid:order", "pastry"),
    ]
    assert told["good"] is True
    meet = told["schemes"][0]
    shown = meetpoint(*arguments, "--overlay", "pastry").out.splitlines()
    row = next(line for line in shown if line.startswith("ms until notified, median"))
    assert row.split()[4] == f"{meet['event_delay_ms']['p50']:,.0f}"


@pytest.mark.slow
def test_several_seeds_give_means_with_how_far_the_farthest_is(meetpoint: Command) -> None:
    arguments = ("sim", "--compare", *FEW, "--scheme", "flood,lists,rebeca:merging")
    ran = meetpoint(*arguments, "--seeds", "3..5", "--json")
    told = json.loads(ran.out)
    assert (ran.code, ran.err, told["seeds"], "seed" in told) == (0, "", [3, 4, 5], False)
    assert [(each["scheme"], each["seed"]) for each in told["schemes"]] == [
        (scheme, seed) for scheme in ("flood", "lists", "rebeca:merging") for seed in (3, 4, 5)
    ]
    alone = json.loads(meetpoint(*arguments, "--seed", 4, "--json").out)["schemes"]
    for one, many in zip(alone, told["schemes"][1::3], strict=True):
        assert {**one, "cpu_s": 0} == {**many, "cpu_s": 0}  # a seed is a run, whatever comes before it
    head, columns, _, *rows = meetpoint(*arguments, "--seed", 3, "--seeds", 3).out.splitlines()
    assert ", seeds 3 to 5, no faults; " in head
    assert columns.split() == ["flood", "lists", "rebeca:merging"]
    row = next(row for row in rows if row.startswith("bytes an event"))
    shown = [text.split("±") for text in re.sub(" +±", "±", row.removeprefix("bytes an event")).split()]
    assert len(shown) == 3
    for at, (mean, farthest) in enumerate(shown):
        values = [each["event"]["bytes"] for each in told["schemes"][3 * at : 3 * at + 3]]
        expected = sum(values) / 3
        assert mean == f"{expected:,.0f}"
        assert farthest == f"{max(expected - min(values), max(values) - expected) / expected:.0%}"
    assert any(row.startswith("figures are means of 3 seeds, ±") for row in rows)


def costs_of(scheme: str, seed: int, messages: float, wrong: int = 0) -> Costs:
    return Costs(
        scheme=scheme,
        overlay="chord",
        seed=seed,
        counts={"missing": wrong},
        problems=[],
        notifications=1,
        notifications_expected=1,
        event=PerUnit(messages, 100.0),
        event_by_purpose={},
        event_delay_ms=None,
        event_hops=None,
        visited=None,
        alone=1,
        busiest=None,
        subscription=None,
        subscription_ms=None,
        entries=None,
        fullest=None,
        upkeep=PerUnit(1.0, 1.0),
        virtual_s=1.0,
        cpu_s=1.0,
    )


def test_best_is_who_was_best_on_a_seed_and_never_wrong() -> None:
    first, second = costs_of("meet", 1, 5.0), costs_of("meet", 2, 9.0)
    runs = [
        first,
        second,
        costs_of("dmm", 1, 6.0),
        costs_of("dmm", 2, 6.0),
        costs_of("flood", 1, 9),
        costs_of("flood", 2, 9),
    ]
    assert told_best(columns_of(runs)) == ["meet and dmm: fewest messages an event"]  # and all bytes are the same
    runs[1] = costs_of("meet", 2, 4.0, wrong=1)
    assert told_best(columns_of(runs)) == ["dmm: fewest messages an event"]
    assert told_best(columns_of(runs[:4])) == []  # there is nobody else


def test_your_own_files_are_the_same_for_all_seeds(meetpoint: Command, own: tuple[object, ...]) -> None:
    ran = meetpoint("sim", "--compare", *own, "--nodes", 4, "--scheme", "flood", "--seeds", 2, "--json")
    told = json.loads(ran.out)
    assert told["seeds"] == [7, 8]
    assert [each["notifications_expected"] for each in told["schemes"]] == [3, 3]
    assert told["schemes"][0]["event_delay_ms"] != told["schemes"][1]["event_delay_ms"]  # but not the nodes
    shown = meetpoint("sim", "--compare", *own, "--nodes", 2, "--scheme", "flood", "--seeds", 2).out
    assert "; 3 matches (1.0 an event)" in shown


def test_your_own_files_are_read_as_match_reads_them(meetpoint: Command, own: tuple[object, ...]) -> None:
    ran = meetpoint("sim", "--compare", *own, "--nodes", 3, "--scheme", "meet,flood", "--json")
    told = json.loads(ran.out)
    assert ran.code == 1
    assert (told["subscriptions"], told["events"], told["set_aside"]) == (3, 3, 2)
    assert (told["more_subscriptions"], told["more_events"], told["good"]) == (False, False, True)
    assert {each["notifications_expected"] for each in told["schemes"]} == {3}  # u0 twice, u1 once
    assert (
        "2 rows were set aside; name --rejects FILE to keep them. The first: subscriptions, row 2: id 'u2'" in ran.err
    )


def test_bad_rows_are_kept_where_that_is_asked(meetpoint: Command, own: tuple[object, ...], tmp_path: Path) -> None:
    kept = tmp_path / "bad.jsonl"
    ran = meetpoint("sim", "--compare", *own, "--nodes", 2, "--scheme", "flood", "--rejects", kept)
    assert ran.code == 1
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [(row["input"], row["row"]) for row in rows] == [("subscriptions", 2), ("events", 2)]


def test_what_is_taken_of_a_long_file_is_told(meetpoint: Command, own: tuple[object, ...]) -> None:
    limits = ("--subscriptions", 2, "--events", 2)
    ran = meetpoint("sim", "--compare", *own, *limits, "--nodes", 2, "--scheme", "flood")
    assert (ran.code, ran.err) == (0, "")  # what is bad lies beyond
    head = ran.out.splitlines()
    assert head[1].endswith("alerts.csv: the first 2; there are more, and --subscriptions takes more")
    assert head[2].endswith("ticks.jsonl: the first 2; there are more, and --events takes more")
    ran = meetpoint("sim", "--compare", *own, "--nodes", 2, "--scheme", "flood")
    assert ran.out.splitlines()[1].endswith("alerts.csv: all 3")


def test_parquet_will_do_and_a_schema_is_told_to_who_can_use_it(meetpoint: Command, tmp_path: Path) -> None:
    filters, data, schema = (tmp_path / name for name in ("subs.parquet", "events.parquet", "trades.yaml"))
    texts = [f"price >= {10 * n} AND symbol = 'S{n}'" for n in range(5)]
    pq.write_table(pa.table({"id": range(5), "filter": texts}), filters)
    pq.write_table(pa.table({"symbol": ["S1", "S2"], "price": [50, 5]}), data)
    schema.write_text(SCHEMA)
    arguments = ("sim", "--compare", "--subs", filters, "--events-file", data, "--nodes", 3, "--scheme", "meet,reach")
    ran = meetpoint(*arguments, "--schema", schema, "--json")
    assert (ran.code, ran.err) == (0, "")
    told = json.loads(ran.out)
    assert (told["schema"], [each["notifications"] for each in told["schemes"]]) == (str(schema), [1, 1])
    without = meetpoint(*arguments)
    assert without.code == 0
    assert "without a schema dmm and reach keep all at one node" in without.out
    assert "without a schema" not in meetpoint(*arguments, "--schema", schema).out


def test_what_does_not_fit_the_schema_is_set_aside(meetpoint: Command, own: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "trades.yaml").write_text("attributes: {symbol: integer, price: integer}")
    arguments = ("sim", "--compare", *own, "--schema", tmp_path / "trades.yaml", "--nodes", 2, "--scheme", "flood")
    ran = meetpoint(*arguments, "--json")
    told = json.loads(ran.out)
    assert (ran.code, told["subscriptions"], told["events"], told["set_aside"]) == (1, 1, 1, 6)
    (tmp_path / "ticks.jsonl").write_text('{"symbol": "OTE"}\n')
    ran = meetpoint(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert "ticks.jsonl: there is no good event in it; 4 rows were set aside" in ran.err
    assert ran.err.count("\n") == 1


def test_a_scheme_that_is_wrong_is_exit_code_1_with_the_command_that_repeats_it(
    meetpoint: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clients, "_notified", lambda self, process, effect: None)
    ran = meetpoint("sim", "--compare", "--nodes", 2, "--subscriptions", 30, "--events", 3, "--scheme", "flood")
    assert ran.code == 1
    first, second, *_ = ran.err.splitlines()
    assert first.startswith("meetpoint: flood: missing ")
    assert (
        "repeat it with: meetpoint sim --compare --scheme flood --overlay chord --nodes 2 --subscriptions 30" in first
    )
    assert "never came to" in second
    assert "missing" in next(row for row in ran.out.splitlines() if row.startswith("wrong, by the oracle"))
    few = ("--nodes", 2, "--subscriptions", 30, "--events", 3, "--scheme", "flood,meet")
    ran = meetpoint("sim", "--compare", *few, "--seeds", "4..5")
    told = [line for line in ran.err.splitlines() if "repeat it with" in line]
    assert [line.split(": missing")[0] for line in told] == [
        f"meetpoint: {scheme}, seed {seed}" for scheme in ("flood", "meet") for seed in (4, 5)
    ]
    assert [line.partition(" --seed ")[2][:1] for line in told] == ["4", "5", "4", "5"]
    assert "fewest" not in ran.out  # who is wrong is not the best


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--compare", "--scheme", "meet,food"), "scheme: there is no 'food'; choose from: flood"),
        (("--compare", "--scheme", "meet,"), "scheme: there is no ''; choose from: flood"),
        (("--compare", "--scheme", "lists:hybrd"), "scheme lists: there is no 'hybrd'; choose from"),
        (("--compare", "--scheme", "none"), "none is only the overlay"),
        (("--compare", "--overlay", "cord"), "overlay: there is no 'cord'; choose from: chord"),
        (("--compare", "--faults", "churn"), "Invalid value for --faults: it does not go with --compare"),
        (("--compare", "--seeds", "5..1"), "the second number is not below the first"),
        (("--compare", "--seeds", "0"), "'0' are no seeds; the second number is not below the first, and there are 1"),
        (("--compare", "--lookups", "5"), "Invalid value for --lookups: it does not go with --compare"),
        (("--compare", "--filters", "a.csv"), "--filters and --data go together; name both files"),
        (("--compare", "--data", "a.csv"), "--filters and --data go together; name both files"),
        (("--compare", "--schema", "a.yaml"), "--schema is for your own files; name them with --filters and --data"),
        (
            ("--compare", "--filters", "no.csv", "--data", "no.jsonl"),
            "no.csv: no such file or directory; check the path",
        ),
        (("--compare", "--filters", "-", "--data", "-"), "--filters and --data are both standard input"),
        (("--compare", "--per-second", "0"), "Invalid value for '--per-second'"),
        (("--filters", "a.csv"), "Invalid value for --filters: it is for --compare; add that."),
        (("--scheme", "meet,flood"), "several schemes are for --compare; name one."),
    ],
)
def test_a_mistake_is_told_in_one_line_with_exit_code_2(
    meetpoint: Command, arguments: tuple[str, ...], message: str
) -> None:
    ran = meetpoint("sim", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_a_file_without_a_filter_column_is_refused(meetpoint: Command, own: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "alerts.csv").write_text("id,where\nu1,price > 1\n")
    ran = meetpoint("sim", "--compare", *own)
    assert (ran.code, ran.out) == (2, "")
    assert "alerts.csv: there is no column filter; the columns are id, where" in ran.err
