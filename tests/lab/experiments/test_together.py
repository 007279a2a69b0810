"""All schemes on one workload: what a cell measures, and how our own claims are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import pytest

from meetpoint.catalog.catalog import SCHEMES
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments import together
from meetpoint.lab.experiments.experiment import Cell, Judged, Metrics, Parameters, ResultRow, Results, run_cell
from meetpoint.lab.experiments.together import EXPERIMENT, given_for, run_costs
from meetpoint.lab.experiments.together.figures import BASE
from meetpoint.lab.sim.comparison import Costs, Trial, TrialInput, measure, measure_with_report
from meetpoint.lab.sim.judge import RunReport

SMALL: Parameters = {"nodes": 6, "subscriptions": 40, "width": 0.2, "held": 8, "events": 30}
SEEDS = (1, 2)


@cache
def costs_of(scheme: str, seed: int = 1) -> Metrics:
    return run_costs({**SMALL, "scheme": scheme}, seed)


# -- what a cell measures ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["meet", "lists:hybrid"])
def test_a_cell_gives_the_same_figures_again(scheme: str) -> None:
    assert run_costs({**SMALL, "scheme": scheme}, 1) == costs_of(scheme)


def test_all_schemes_have_the_same_subscriptions_and_events() -> None:
    matches = {costs_of(scheme)["matches_per_event"] for scheme in SCHEMES}
    assert len(matches) == 1
    assert matches.pop() > 0.2


def test_another_seed_is_another_workload() -> None:
    assert given_for(SMALL, 1).filters != given_for(SMALL, 2).filters
    assert given_for(SMALL, 1).events != given_for(SMALL, 2).events


def test_a_wider_range_matches_more_and_a_larger_workload_begins_with_the_smaller() -> None:
    narrow, wide = (run_costs({**SMALL, "scheme": "flood", "width": width}, 1) for width in (0.01, 0.5))
    assert narrow["matches_per_event"] < wide["matches_per_event"]
    more = given_for({**SMALL, "subscriptions": 60}, 1)
    assert more.filters[:40] == given_for(SMALL, 1).filters


@pytest.mark.parametrize("seed", SEEDS)
def test_schemes_differ_as_they_are_said_to(seed: int) -> None:
    flood, lists, meet, dmm = (costs_of(scheme, seed) for scheme in ("flood", "lists", "meet", "dmm"))
    assert flood["bringing_messages_per_event"] == 2 * (6 - 1)
    assert flood["visited_nodes"] == 6
    assert flood["entries_per_subscription"] == flood["subids_per_event"] == 0
    assert "fullest_to_mean" not in flood
    assert lists["bytes_per_event"] > max(each["bytes_per_event"] for each in (flood, meet, dmm))
    assert lists["entries_per_subscription"] > 4 > meet["entries_per_subscription"] > dmm["entries_per_subscription"]
    assert lists["subids_per_match"] > 1 >= meet["subids_per_match"] > 0
    assert dmm["fullest_to_mean"] == 6
    assert dmm["visited_nodes"] < meet["visited_nodes"] < 6
    assert meet["hops_most"] <= 2 < lists["hops"]


def test_a_subid_is_counted_each_time_that_it_is_sent() -> None:
    trial = Trial(scheme="lists", nodes=6, seed=1)
    costs, report = measure_with_report(trial, given_for(SMALL, 1))
    assert costs.good
    assert costs_of("lists")["subids_per_event"] == report.subids / 30 > 0


def test_comparing_says_what_it_said() -> None:
    given = given_for({**SMALL, "events": 5}, 1)
    trial = Trial(scheme="flood", nodes=3, seed=1)
    ours, (theirs, _) = measure(trial, given), measure_with_report(trial, given)
    ours.cpu_s = theirs.cpu_s = 0.0
    assert ours == theirs


def test_a_run_that_is_wrong_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_one_missing(trial: Trial, given: TrialInput) -> tuple[Costs, RunReport]:
        costs, report = measure_with_report(trial, given)
        costs.counts["missing"] = 1
        return costs, report

    monkeypatch.setattr(together, "measure_with_report", with_one_missing)
    with pytest.raises(MeetpointError, match="is wrong"):
        run_costs({**SMALL, "scheme": "flood", "events": 5}, 1)


# -- grids, figures and claims -----------------------------------------------------------------------------------------


def test_what_is_run_quickly_is_a_part_of_the_whole_and_each_has_the_baseline_of_every_scheme() -> None:
    part = EXPERIMENT.part("costs")
    assert all(cell in part.full for cell in part.quick)
    assert len({str(sorted(cell.items())) for cell in part.full}) == len(part.full), "no cell twice"
    for cells in (part.quick, part.full):
        for scheme in SCHEMES:
            assert any(cell["scheme"] == scheme and BASE.items() <= cell.items() for cell in cells)


def test_figures_are_of_what_is_measured() -> None:
    found = {*costs_of("meet")}
    for figure in EXPERIMENT.figures:
        assert isinstance(figure.y, str)
        assert figure.y in found, figure.name
        assert figure.x in BASE
    names = [figure.name for figure in EXPERIMENT.figures]
    assert len({*names}) == len(names)


EXPECTED: Mapping[str, Metrics] = {
    "flood": {"subids_per_match": 0, "entries_per_subscription": 0, "busiest_to_mean": 1, "hops": 2, "ms": 40},
    "lists": {"subids_per_match": 9, "entries_per_subscription": 40, "busiest_to_mean": 2, "hops": 8, "ms": 120},
    "meet": {"subids_per_match": 0.9, "entries_per_subscription": 2, "busiest_to_mean": 2, "hops": 2, "ms": 38},
    "dmm": {"subids_per_match": 0.9, "entries_per_subscription": 1, "busiest_to_mean": 9, "hops": 4, "ms": 60},
    "reach": {"subids_per_match": 0.9, "entries_per_subscription": 1, "busiest_to_mean": 2, "hops": 6, "ms": 70},
    "rebeca": {"subids_per_match": 0, "entries_per_subscription": 1, "busiest_to_mean": 3, "hops": 3, "ms": 45},
}
FULLEST = {"lists": 3.0, "meet": 4.0, "dmm": 32.0, "reach": 8.0, "rebeca": 2.0}


def as_expected(its: Parameters) -> dict[str, float]:
    """What a scheme costs where everything is as we say."""
    scheme, nodes, held = str(its["scheme"]).split(":")[0], float(its["nodes"]), float(its["held"])
    to_all = 2 * (nodes - 1)
    bringing = {"flood": to_all, "lists": 300, "meet": 4 * nodes**0.5, "dmm": 6, "reach": nodes, "rebeca": 5}[scheme]
    found = {
        **EXPECTED[scheme],
        "bringing_messages_per_event": bringing,
        "bytes_per_event": 100 * bringing + 1e5 * (scheme == "lists"),
        "messages_per_subscription": nodes if scheme == "rebeca" else 10,
        "bytes_per_subscription": 9e4 if scheme == "rebeca" else 1e3,
        "upkeep_messages_per_node_s": 9 if scheme == "rebeca" else 3,
        "visited_share": held / 16 if scheme == "reach" else 0.5,
        "hops_most": EXPECTED[scheme]["hops"],
    }
    return found if scheme == "flood" else {**found, "fullest_to_mean": FULLEST[scheme]}


def rows_of(its: Parameters, metrics: Metrics) -> Iterator[ResultRow]:
    for seed in SEEDS:
        yield from run_cell(Cell.of("together", "costs", its, seed), lambda its, seed: metrics)


def made_up(change: Callable[[Parameters], Metrics] = lambda its: {}) -> Results:
    cells = EXPERIMENT.part("costs").quick
    return Results(row for its in cells for row in rows_of(its, {**as_expected(its), **change(its)}))


def judged(results: Results) -> dict[str, Judged]:
    return {claim.id: claim.judge(results) for claim in EXPERIMENT.claims}


def test_where_all_is_as_we_say_all_claims_are_reproduced() -> None:
    verdicts = {id_: each.verdict for id_, each in judged(made_up()).items()}
    assert verdicts == {claim.id: "reproduced" for claim in EXPERIMENT.claims}


def only(scheme: str, **metrics: float) -> Callable[[Parameters], Metrics]:
    return lambda its: metrics if its["scheme"] == scheme else {}


OTHERWISE: Mapping[str, tuple[Callable[[Parameters], Metrics], str]] = {
    "T1": (only("meet", subids_per_match=1.2), "not reproduced"),
    "T2": (only("reach", subids_per_match=2), "not reproduced"),
    "T3": (only("flood", bringing_messages_per_event=20), "not reproduced"),
    "T4": (only("flood", bytes_per_event=1e7), "not reproduced"),
    "T5": (lambda its: {"bringing_messages_per_event": float(its["nodes"])}, "not reproduced"),
    "T6": (only("reach", visited_share=0.9), "not reproduced"),
    "T7": (only("rebeca", upkeep_messages_per_node_s=3, bringing_messages_per_event=900), "not reproduced"),
    "T8": (only("meet", ms=90), "not reproduced"),
    "T9": (only("meet", hops_most=3), "not reproduced"),
    "T10": (lambda its: {"bringing_messages_per_event": float(its["nodes"])}, "not reproduced"),
    "T11": (only("meet", entries_per_subscription=5), "not reproduced"),
    "T12": (lambda its: {"fullest_to_mean": 40.0} if its["scheme"] in ("rebeca", "reach") else {}, "not reproduced"),
    "T13": (
        only(
            "meet",
            bringing_messages_per_event=1,
            bytes_per_event=1,
            ms=1,
            messages_per_subscription=1,
            busiest_to_mean=0.5,
            upkeep_messages_per_node_s=1,
        ),
        "not reproduced",
    ),
}


@pytest.mark.parametrize("id_", OTHERWISE)
def test_where_it_is_otherwise_the_claim_is_not_reproduced(id_: str) -> None:
    change, verdict = OTHERWISE[id_]
    assert judged(made_up(change))[id_].verdict == verdict


def test_every_claim_is_tried_both_ways() -> None:
    assert [claim.id for claim in EXPERIMENT.claims] == list(OTHERWISE)
