"""The smaller parts of experiments B to D: what must come out of them, and how their claims are judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from meetpoint.lab.experiments import named
from meetpoint.lab.experiments.dmm.model import run_codes, run_weaving
from meetpoint.lab.experiments.dmm.networks import run_routes, run_traffic, steps_of
from meetpoint.lab.experiments.experiment import Parameter, Verdict
from meetpoint.lab.experiments.reach.cubes import run_rules, run_siblings, run_tables
from meetpoint.lab.experiments.reach.events import run_crashes
from meetpoint.lab.experiments.strings.storage import FORMS, run_examples, run_spreading, run_storing
from meetpoint.lab.experiments.strings.traffic import run_order, run_overlays
from tests.lab.experiments.judging import made_up

SEEDS = (1, 2)
Made = tuple[str, Mapping[str, Parameter], Mapping[str, float]]


# -- strings -----------------------------------------------------------------------------------------------------------


def test_an_affix_is_two_lookups_as_printed_and_one_at_brokers() -> None:
    found = {kind: run_storing({"kind": kind, "nodes": 64, "constraints": 300}, 1) for kind in FORMS}
    for kind in ("equality", "prefix", "suffix"):
        assert (found[kind]["lookups"], found[kind]["update_lookups"]) == (1, 2)
        assert 3.0 < found[kind]["hops"] < 4.0
    assert (found["affix"]["lookups"], found["affix"]["update_lookups"]) == (2, 4)
    assert found["affix"]["hops"] > 1.8 * found["equality"]["hops"]
    assert found["affix"]["hops_of_ours"] < 1.2 * found["equality"]["hops_of_ours"]


def test_examples_1_and_2_meet_only_without_stars() -> None:
    assert run_examples({}, 1) == {
        "subscription_1_bare": 1,
        "subscription_2_bare": 0,
        "subscription_1_starred": 0,
        "subscription_2_starred": 0,
        "subscription_1_by_oracle": 1,
        "subscription_2_by_oracle": 0,
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_selective_attributes_first_send_less_and_coordinated_does_not_care(seed: int) -> None:
    first, last = (
        run_order({"order": order, "attributes": 10, "nodes": 16, "subscriptions": 1000, "events": 200}, seed)
        for order in ("selective first", "selective last")
    )
    assert first["hybrid_subids"] < 0.6 * last["hybrid_subids"]
    assert first["distributed_subids"] < 0.8 * last["distributed_subids"]
    assert first["coordinated_subids"] == pytest.approx(last["coordinated_subids"], rel=0.2), "only origins differ"


@pytest.mark.parametrize("seed", SEEDS)
def test_few_values_are_uneven_and_more_attributes_or_longer_values_even_them_out(seed: int) -> None:
    def fullest(load: str, length: int, attributes: int) -> float:
        fixed: dict[str, Parameter] = {"theta": 0.5, "nodes": 64, "keys": 60_000}
        return run_spreading({"load": load, "length": length, "attributes": attributes, **fixed}, seed)["max_to_mean"]

    assert fullest("stored", 1, 1) > 1.5 * fullest("stored", 1, 20) > 1.5 * fullest("stored", 7, 20)
    assert fullest("asked for values", 7, 6) == pytest.approx(fullest("stored", 7, 6), rel=0.1)
    assert fullest("asked for all", 7, 6) > 1.15 * fullest("stored", 7, 6), "letters that many values begin with"


def test_strings_come_to_the_same_on_every_overlay() -> None:
    found = [
        run_overlays({"overlay": overlay, "nodes": 8, "subscriptions": 30, "events": 10}, 1)
        for overlay in ("chord", "pastry", "hypercube")
    ]
    assert len({each["notifications"] for each in found}) == 1
    assert len({each["messages_per_event"] for each in found}) == 3


# -- the hypercube -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [4, 32])
def test_tables_have_as_many_nodes_as_ids_have_bits(nodes: int) -> None:
    found = run_tables({"nodes": nodes, "events": 20}, 1)
    assert found["links_least"] == found["links_most"] == nodes.bit_length() - 1
    assert found["edges"] > found["strangers"] == 0


def test_the_papers_examples_of_tables_and_joins_are_ours() -> None:
    assert set(run_rules({}, 1).values()) == {1}


@pytest.mark.parametrize("seed", SEEDS)
def test_some_siblings_are_split_further_where_nodes_are_no_power_of_two(seed: int) -> None:
    found = run_siblings({"nodes": 6, "networks": 20}, seed)
    assert 0.05 < found["split_share"] < 0.5
    assert found["unknown"] == 0


def test_a_crash_loses_nothing_and_most_comes_meanwhile() -> None:
    found = run_crashes({"nodes": 8, "crashed": 1, "subscriptions": 24, "events": 8}, 1)
    assert found["expected"] > 2 * found["late"]


# -- small networks ----------------------------------------------------------------------------------------------------


def test_steps_are_the_logarithm_rounded_up() -> None:
    assert [steps_of(peers) for peers in (2, 15, 16, 17, 256, 257)] == [1, 1, 1, 2, 2, 3]


def test_pastry_takes_a_hop_more_than_the_formula_at_most() -> None:
    found = run_routes({"peers": 64, "lookups": 200}, 1)
    assert found["hops"] < steps_of(64) < found["hops_max"] + 1 <= steps_of(64) + 2
    assert found["rows"] <= found["links"] < 63


@pytest.mark.parametrize("domain", [2, 4, 8, 64])
def test_figure_4_is_right_on_powers_of_two(domain: int) -> None:
    assert run_codes({"domain": domain}, 1) == {
        "halvings": domain - 1,
        "overlapping": 0,
        "lost_carelessly": 0,
        "lost_by_ours": 0,
    }


@pytest.mark.parametrize("domain", [3, 7, 33])
def test_figure_4_overlaps_where_the_first_middle_is_a_value(domain: int) -> None:
    found = run_codes({"domain": domain}, 1)
    assert found["overlapping"] > 0
    assert (found["lost_carelessly"], found["lost_by_ours"]) == (1, 0)


def test_a_boolean_caps_the_depth_as_printed() -> None:
    assert run_weaving({"bits": 9}, 1) == {"as_printed": 2, "as_corrected": 10}


@pytest.mark.parametrize("seed", SEEDS)
def test_fewer_peers_take_less_in_all_and_more_each(seed: int) -> None:
    few, many = (run_traffic({"peers": peers, "subscriptions": 40, "events": 20}, seed) for peers in (2, 12))
    assert few["bytes_per_event"] < many["bytes_per_event"]
    assert few["bytes_per_event_and_peer"] > many["bytes_per_event_and_peer"]


# -- claims ------------------------------------------------------------------------------------------------------------


def stored(hops: Mapping[str, float], updates: float = 2) -> list[Made]:
    """By the kind of constraint, hops at 16 nodes, and two more for each fourfold."""
    return [
        (
            "storing",
            {"kind": kind, "nodes": nodes},
            {
                "hops": (hops[kind] + level) * (1 + (kind == "affix")),
                "update_lookups": updates * (1 + (kind == "affix")),
                "hops_of_ours": 1.0,
            },
        )
        for kind in FORMS
        for level, nodes in enumerate((16, 64, 256))
    ]


def examples(bare: tuple[int, int], starred: int) -> list[Made]:
    named_ = {"subscription_1_bare": bare[0], "subscription_2_bare": bare[1], "subscription_1_starred": starred}
    return [("examples", {}, named_)]


def ordered(first: float, last: float) -> list[Made]:
    return [
        ("order", {"order": order, "attributes": 10}, {"distributed_subids": sent, "hybrid_subids": sent})
        for order, sent in (("selective first", first), ("at random", last), ("selective last", last))
    ]


def traffic(figure: int, **metrics: tuple[float, float]) -> list[Made]:
    return [
        (
            "traffic",
            {"figure": figure, "constraints": "equality", "attributes": 10, "theta": theta},
            {name: values[at] for name, values in metrics.items()},
        )
        for at, theta in enumerate((0.1, 1.0))
    ]


def spread_out(loads: Mapping[tuple[int, int], float], values: float = 1.0, everything: float = 1.0) -> list[Made]:
    """By the length of values and the number of attributes; then what asking has."""
    made: list[Made] = [
        (
            "spreading",
            {"load": "stored", "length": length, "attributes": attributes},
            {"max_to_mean": load, "max_to_min": load},
        )
        for (length, attributes), load in loads.items()
    ]
    for load, ratio in (("asked for values", values), ("asked for all", everything)):
        found = ratio * loads[7, 6]
        made.append(("spreading", {"load": load, "length": 7, "attributes": 6}, {"max_to_mean": found}))
    return made


EVEN = {(1, 6): 9.0, (1, 60): 2.0, (7, 6): 1.1, (7, 60): 1.0}


def ran_on(chord: float, pastry: float) -> list[Made]:
    costs = {"messages_per_event": 9.0, "messages_per_subscription": 3.0}
    return [
        ("overlays", {"overlay": overlay}, {"notifications": count, **costs})
        for overlay, count in (("chord", chord), ("pastry", pastry))
    ]


def routed(hops_max: float, rows: float = 20.0) -> list[Made]:
    metrics = {"hops": 1.9, "hops_max": hops_max, "longer_share": float(hops_max > 2), "links": 25.0, "rows": rows}
    return [("routes", {"peers": 64}, metrics)]


def coded(three: float, four: float) -> list[Made]:
    return [
        ("codes", {"domain": domain}, {"overlapping": count, "lost_carelessly": 0, "lost_by_ours": 0})
        for domain, count in ((3, three), (4, four))
    ]


def woven(*printed: float) -> list[Made]:
    return [
        ("weaving", {"bits": bits}, {"as_printed": length, "as_corrected": 1 + bits})
        for bits, length in zip((1, 8), printed, strict=True)
    ]


def took(few: float, many: float) -> list[Made]:
    return [
        ("traffic", {"peers": peers}, {"bytes_per_event": total, "bytes_per_event_and_peer": total / peers})
        for peers, total in ((2, few), (30, many))
    ]


ONE = dict.fromkeys(FORMS, 2.5)
RULES = dict.fromkeys(("neighbours", "hosted", "split", "told_of_join", "dropped"), 1.0)


@pytest.mark.parametrize(
    ("experiment", "claim", "cells", "verdict"),
    [
        ("strings", "B11", stored(ONE), "reproduced"),
        ("strings", "B11", stored({**ONE, "suffix": 4.0}), "not reproduced"),
        ("strings", "B11", stored({**ONE, "affix": 1.5}), "not reproduced"),
        ("strings", "B12", stored(ONE), "reproduced"),
        ("strings", "B12", stored(ONE, updates=3), "not reproduced"),
        ("strings", "B13", stored(ONE), "reproduced"),
        ("strings", "B13", stored({**ONE, "affix": 200}), "not reproduced"),
        ("strings", "B14", examples((1, 0), 0), "reproduced"),
        ("strings", "B14", examples((1, 1), 0), "not reproduced"),
        ("strings", "B15", examples((1, 0), 1), "reproduced"),
        ("strings", "B15", examples((1, 0), 0), "not reproduced"),
        ("strings", "B16", ordered(5, 9), "reproduced"),
        ("strings", "B16", ordered(9, 9), "not reproduced"),
        ("strings", "B17", traffic(9, corrected_coordinated_subids=(9, 9), matches=(1, 2)), "reproduced"),
        ("strings", "B17", traffic(9, corrected_coordinated_subids=(9, 9), matches=(1, 9)), "not reproduced"),
        ("strings", "B18", traffic(11, attributes_held=(5, 4)), "reproduced"),
        ("strings", "B18", traffic(11, attributes_held=(5, 5)), "not reproduced"),
        ("strings", "B19", spread_out(EVEN), "reproduced"),
        ("strings", "B19", spread_out({**EVEN, (7, 60): 1.2}), "in part"),
        ("strings", "B19", spread_out({**EVEN, (1, 60): 10.0}), "not reproduced"),
        ("strings", "B20", spread_out(EVEN), "reproduced"),
        ("strings", "B20", spread_out({**EVEN, (1, 6): 1.0}), "not reproduced"),
        ("strings", "B21", spread_out(EVEN), "reproduced"),
        ("strings", "B21", spread_out(EVEN, everything=2), "in part"),
        ("strings", "B21", spread_out(EVEN, values=2), "not reproduced"),
        ("strings", "B22", ran_on(30, 30), "reproduced"),
        ("strings", "B22", ran_on(30, 29), "not reproduced"),
        ("reach", "C22", [("tables", {"nodes": 8}, {"links_least": 3, "links_most": 3})], "reproduced"),
        ("reach", "C22", [("tables", {"nodes": 8}, {"links_least": 3, "links_most": 4})], "not reproduced"),
        ("reach", "C23", [("tables", {"nodes": 8}, {"edges": 9, "strangers": 0})], "reproduced"),
        ("reach", "C23", [("tables", {"nodes": 8}, {"edges": 9, "strangers": 1})], "not reproduced"),
        ("reach", "C24", [("rules", {}, RULES)], "reproduced"),
        ("reach", "C24", [("rules", {}, {**RULES, "split": 0})], "in part"),
        ("reach", "C25", [("siblings", {"nodes": 6}, {"split_share": 0, "unknown": 0})], "reproduced"),
        ("reach", "C25", [("siblings", {"nodes": 6}, {"split_share": 0.2, "unknown": 0})], "in part"),
        ("reach", "C25", [("siblings", {"nodes": 6}, {"split_share": 0.2, "unknown": 1})], "not reproduced"),
        ("reach", "C26", [("crashes", {"nodes": 8, "crashed": 1}, {"expected": 9, "late": 2})], "reproduced"),
        ("reach", "C26", [("crashes", {"nodes": 8, "crashed": 1}, {"expected": 9, "late": 9})], "not reproduced"),
        ("dmm", "D16", routed(2), "reproduced"),
        ("dmm", "D16", routed(3), "in part"),
        ("dmm", "D16", routed(4), "not reproduced"),
        ("dmm", "D17", routed(2), "reproduced"),
        ("dmm", "D17", routed(2, rows=60), "not reproduced"),
        ("dmm", "D18", [("balance", {"stored": "keys", "peers": 10}, {"largest_share": 0.12})], "reproduced"),
        ("dmm", "D18", [("balance", {"stored": "keys", "peers": 10}, {"largest_share": 0.3})], "not reproduced"),
        ("dmm", "D19", coded(0, 0), "reproduced"),
        ("dmm", "D19", coded(1, 0), "in part"),
        ("dmm", "D19", coded(1, 1), "not reproduced"),
        ("dmm", "D20", woven(2, 9), "reproduced"),
        ("dmm", "D20", woven(2, 2), "in part"),
        ("dmm", "D20", woven(1, 2), "not reproduced"),
        ("dmm", "D21", took(300, 600), "reproduced"),
        ("dmm", "D21", took(600, 300), "in part"),
        ("dmm", "D21", took(300, 6000), "in part"),
    ],
)
def test_claims_are_judged_by_what_was_measured(
    experiment: str, claim: str, cells: list[Any], verdict: Verdict
) -> None:
    (found,) = named(experiment)
    (its,) = (each for each in found.claims if each.id == claim)
    judged = its.judge(made_up(found, *cells))
    assert judged.verdict == verdict
    assert judged.ours
    assert judged.why
