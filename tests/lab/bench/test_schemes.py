"""`python -m benchmarks.schemes` at its smallest: what is compared, what is told, and that it sees what is wrong."""

from __future__ import annotations

import json
from itertools import count

import msgspec
import pytest

from benchmarks import schemes
from benchmarks.schemes import (
    QUICK,
    SCHEMA,
    Case,
    Failure,
    Row,
    Truth,
    find_truth,
    goals,
    judge,
    main,
    measure,
    measure_all,
    read_scheme,
    selectivity_order,
    tables,
)
from meetpoint.catalog import NetworkConfig
from meetpoint.catalog.purposes import Purpose
from meetpoint.errors import MeetpointError
from meetpoint.lab.sim.clients import EPOCH
from meetpoint.lab.sim.judge import Change, DeliveryRecord, History, PublicationRecord, SubscriptionRecord
from meetpoint.lab.sim.observers import Traffic
from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import parse_filter
from meetpoint.matching.index import Index

SIX = ("missing", "duplicate", "spurious", "out_of_order", "invariants_broken", "lookups_wrong")


def test_the_quick_run_counts_and_judges(capsys: pytest.CaptureFixture[str]) -> None:
    main(["flood", "--quick", "--json"])
    ran = capsys.readouterr()
    told = {name: value for line in ran.out.splitlines() for name, value in json.loads(line).items()}
    flood = told["scheme"]
    assert flood["wrong"] == dict.fromkeys(SIX, 0)
    assert (flood["matches"], flood["subids"]) == (told["matches"], 0)
    assert told["matches"] > 10
    assert flood["kinds"]["flooding"]["messages"] == (QUICK.nodes - 1) * QUICK.events
    assert flood["traffic"]["summaries"] == flood["traffic"]["placing"] == {"messages": 0, "bytes": 0}
    for purpose in ("events", "safekeeping", "upkeep"):
        assert flood["traffic"][purpose]["messages"] > QUICK.events
    assert told["goals"] == []
    assert "flood: 60 of 60 published" in ran.err


def test_people_get_tables_and_sizes_may_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["flood", "--quick", "--nodes", "4", "--events", "20", "--values-theta", "0.9"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "4 nodes, 300 subscriptions, 20 events at 500/s, seed 7, θ of attributes 1.0, of values 0.9 (all)."
    )
    assert "by the index; of 20 events drawn at random Scan finds the same" in lines[1]
    assert lines[2].startswith("Most selective first: a")
    assert lines[3].startswith("flood: ")
    assert "all right" in lines[3]
    assert lines[5] == "Every notification came, once, and no other: flood."
    assert [line.split("  ")[0] for line in lines[6:] if line] == [
        "messages an event", "flood", "bytes an event", "flood",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["food"], "scheme: there is no 'food'; choose from: flood"),
        (["flood:fast"], "scheme flood has no options"),
        (["printed"], "as printed there are printed:coordinated, printed:distributed, printed:hybrid"),
        (["printed:order"], "as printed there are printed:coordinated"),
        (["--published-per-s", "0"], "more than 0 a second"),
        (["--events", "0"], "at least one node, one subscription and one event"),
        (["--values-theta", "3"], "θ of values is 3.0; give 0"),
        (["--skew", "odd"], "invalid choice: 'odd'"),
    ],
)
def test_a_mistake_is_told_before_anything_runs(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_a_scheme_that_loses_something_ends_in_failure_unless_it_is_as_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "find_truth", lambda case: Truth([[]]))
    monkeypatch.setattr(schemes, "measure", lambda scheme, case, truth: row(scheme, missing=2))
    with pytest.raises(SystemExit):
        main(["lists:hybrid"])
    assert "lists:hybrid: missing 2; e1 never came to s1." in capsys.readouterr().out
    main(["printed:hybrid"])
    assert "printed:hybrid: miss 0.200 of its 5.000 true matches, and reach 0.000" in capsys.readouterr().out


def test_a_scheme_that_fails_leaves_the_others_their_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(scheme: str, case: Case, truth: Truth) -> Row:
        if scheme == "lists:hybrid":
            raise MeetpointError("not today")
        return row(scheme)

    monkeypatch.setattr(schemes, "find_truth", lambda case: Truth([[]]))
    monkeypatch.setattr(schemes, "measure", measured)
    with pytest.raises(SystemExit):
        main(["flood", "lists:hybrid", "meet", "--jobs", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert "lists:hybrid failed: MeetpointError: not today" in lines
    assert [line.split()[0] for line in lines if line.startswith(("flood ", "meet "))] == ["flood", "meet"] * 2


def test_schemes_run_in_processes_of_their_own() -> None:
    case = msgspec.structs.replace(QUICK, nodes=3, subscriptions=20, events=4)
    truth = find_truth(case)
    found = {done.scheme: done for done in measure_all(["printed:hybrid", "printed:none"], case, truth, 2)}
    assert isinstance(found["printed:hybrid"], Row)
    assert found["printed:none"] == Failure(
        "printed:none",
        "SetupError: printed:none: as printed there are printed:coordinated, printed:distributed, printed:hybrid",
    )


# -- what schemes are given --------------------------------------------------------------------------------------------


def test_lists_is_given_the_schema_and_the_order_of_attributes() -> None:
    config = read_scheme("lists:hybrid:order", ("a09", "a01"))
    assert isinstance(config, NetworkConfig)
    assert (config.lists.mode, config.lists.hash) == ("hybrid", "order")
    assert (config.lists.first, config.lists.schema) == (("a09", "a01"), SCHEMA)


def test_the_order_of_attributes_is_by_the_share_of_events_that_satisfy_a_constraint() -> None:
    filters = [parse_filter(text) for text in ("a = 'x' AND b = 'y'", "a = 'z' AND c LIKE 'c%'", "d = 'none'")]
    events = [{"a": "x", "b": "y", "c": "cc"}, {"b": "y", "c": "c"}, {"b": "y"}, {"b": "other"}]
    # a: 1 hit of 2 * 4; b: 3 of 4; c: 2 of 4; d: none.
    assert selectivity_order(filters, events) == ("d", "a", "c", "b")


def test_as_printed_and_live_rows_tell_the_same_kinds() -> None:
    case = msgspec.structs.replace(QUICK, nodes=5, subscriptions=120, events=30)
    truth = find_truth(case)
    for mode in ("coordinated", "hybrid"):
        live, printed = measure(f"lists:{mode}", case, truth), measure(f"printed:{mode}", case, truth)
        assert live.is_right
        assert printed.matches == live.matches == truth.pairs
        assert set(printed.kinds) <= set(live.kinds)
        assert printed.subids > live.subids, "list nodes as printed do not look at the bits"
        assert printed.traffic["safekeeping"] == printed.traffic["upkeep"] == Traffic()


# -- the oracle --------------------------------------------------------------------------------------------------------


def test_an_index_that_is_wrong_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = find_truth(QUICK)
    assert truth.scanned == QUICK.events
    assert truth.scanned_matches == truth.pairs > 10
    whole = Index.match_batch

    def lossy(self: Index[int], events: list[dict[str, object]]) -> list[list[int]]:
        return [found[1:] for found in whole(self, events)]

    monkeypatch.setattr(Index, "match_batch", lossy)
    with pytest.raises(SystemExit, match="do not agree on"):
        find_truth(QUICK)


def test_a_run_is_judged_by_the_truth_it_is_given() -> None:
    case = msgspec.structs.replace(QUICK, nodes=3, events=30)
    truth = find_truth(case)
    first = next(number for number, found in enumerate(truth.matches) if found)
    without = [found if number != first else [] for number, found in enumerate(truth.matches)]
    beyond = [
        found if number != first else [*found, *{0, 1}.difference(found)] for number, found in enumerate(truth.matches)
    ]
    assert measure("flood", case, truth).is_right
    assert measure("flood", case, Truth(without)).wrong["spurious"] == len(truth.matches[first])
    assert measure("flood", case, Truth(beyond)).wrong["missing"] == len(beyond[first]) - len(truth.matches[first])


def history(*deliveries: tuple[str, str, bool], acknowledged: int | None = 5) -> History:
    """Two subscriptions and one event, and what came."""
    found, at = History(), count(20)
    filter_ = parse_filter("a01 = 'x'")
    for name in ("s1", "s2"):
        came = [DeliveryRecord(next(at), event, "n1", mark) for event, to, mark in deliveries if to == name]
        change = Change(filter_, "a01 = 'x'", 1, acknowledged)
        found.subscriptions[name] = SubscriptionRecord(name, "n1", [change], came)
    event = Event("e1", "simulated", 0, EPOCH, {"a01": "x"})
    found.publications["e1"] = PublicationRecord(event, b"", 10, 11)
    return found


@pytest.mark.parametrize(
    ("deliveries", "counts"),
    [
        ([("e1", "s1", False)], (0, 0, 0)),
        ([], (1, 0, 0)),
        ([("e1", "s1", True)], (0, 0, 0)),
        ([("e1", "s1", False), ("e1", "s1", True)], (0, 0, 0)),
        ([("e1", "s1", False), ("e1", "s1", False)], (0, 1, 0)),
        ([("e1", "s1", False), ("e1", "s2", False)], (0, 0, 1)),
        ([("e1", "s1", False), ("e9", "s1", False)], (0, 0, 1)),
        ([("e1", "s2", False)], (1, 0, 1)),
    ],
)
def test_what_is_missing_repeated_or_wrong_is_counted(
    deliveries: list[tuple[str, str, bool]], counts: tuple[int, int, int]
) -> None:
    verdict = judge(history(*deliveries), {"e1": {"s1"}})
    assert (len(verdict.missing), len(verdict.duplicate), len(verdict.spurious)) == counts
    assert verdict.expected == 1


def test_a_subscription_that_was_not_there_in_time_is_no_excuse() -> None:
    for acknowledged in (None, 11):
        with pytest.raises(MeetpointError, match="were not acknowledged"):
            judge(history(acknowledged=acknowledged), {"e1": {"s1"}})


# -- goals -------------------------------------------------------------------------------------------------------------


def row(scheme: str, subids: int = 0, messages: int = 100, size: int = 1000, missing: int = 0) -> Row:
    traffic: dict[Purpose, Traffic] = {
        "events": Traffic(messages - 10, size - 100),
        "placing": Traffic(),
        "summaries": Traffic(4, 40),
        "safekeeping": Traffic(6, 60),
        "upkeep": Traffic(7_000, 70_000),
    }
    return Row(
        scheme=scheme,
        events=10,
        matches=50,
        wrong={"missing": missing, "spurious": 0},
        problems=["e1 never came to s1"] if missing else [],
        subids=subids,
        traffic=traffic,
        kinds={},
        seconds=7.0,
        delay_ms=30.0,
        load_cpu_s=0.5,
        cpu_s=1.5,
        wall_s=2.0,
        memory_mb=100.0,
    )


def test_goals_are_ratios_and_upkeep_is_not_in_them() -> None:
    rows = [row("flood", size=900), row("lists:hybrid", messages=50), row("lists:coordinated", messages=80)]
    assert goals(rows) == []
    figures = goals([*rows, row("meet", subids=55, messages=40, size=990)])
    assert [(one.value, one.goal, one.met) for one in figures] == [
        (1.1, 1.1, True),
        (1.1, 1.0, False),
        (0.8, 1.0, True),
    ]
    assert [one.name for one in goals([rows[0], row("meet", subids=60)])] == [
        "meet: SubIDs a true match",
        "meet: bytes, to the least of all others",
    ]
    assert goals([row("meet", subids=60)])[0].met is False


def test_the_tables_tell_costs_by_event_and_upkeep_by_second() -> None:
    lines = [" ".join(line.split()) for line in tables([row("meet", subids=55)])]
    assert lines == [
        "messages an event messages events placing summaries safekeeping SubIDs a match",
        "meet 10 9 0 0.40 0.60 5.50 1.10",
        "",
        "bytes an event bytes events placing summaries safekeeping upkeep/s ms CPU s",
        "meet 100 90 0 4 6 10,000 30 1.50",
    ]


def test_the_paper_s_sizes_are_the_default() -> None:
    case = Case()
    assert (case.nodes, case.subscriptions, case.events) == (128, 10_000, 30_000)
    assert (case.timing.load_s, case.timing.calm_s) == (20, 60)
