"""Experiment C: formulas where they are exact, the model against simulated networks, directions, and claims."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import msgspec
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Metrics, Parameter
from meetpoint.lab.experiments.reach import EXPERIMENT
from meetpoint.lab.experiments.reach.cubes import (
    run_changes,
    run_churn,
    run_full,
    run_gaps,
    run_load,
    run_network,
    run_paths,
    run_printed,
    run_shares,
)
from meetpoint.lab.experiments.reach.events import (
    disseminate,
    run_copies,
    run_examples,
    run_ids,
    run_pushing,
    run_quenching,
    run_sends,
    run_uneven_sends,
    tables_of,
)
from meetpoint.lab.experiments.reach.model import Cube, even, joined, split_anywhere
from meetpoint.lab.sim.scenario import Network
from meetpoint.overlays.hypercube import Region
from meetpoint.overlays.hypercube.regions import point_of
from meetpoint.schemes.reach.ids import Tree, is_required, tree_of
from tests.lab.experiments.judging import Scale, check_asked, made_up

SEEDS = (1, 2)
SMALL = {"attributes": 6, "subscriptions": 8, "events": 20}


# -- what is exact -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("bits", [0, 1, 3])
def test_an_event_takes_2_to_the_b_less_1_and_l_sends(bits: int, seed: int) -> None:
    found = run_sends({"nodes": 8, "set_bits": bits, **SMALL}, seed)
    assert found["sends_below"] == 2**bits - 1
    assert found["sends"] == found["sends_by_formula"] == 2**bits - 1 + found["hops_to_rendezvous"]
    assert [found[name] for name in ("off_formula", "way_off_hamming", "nodes_twice", "nodes_missed")] == [0] * 4


@pytest.mark.parametrize("seed", SEEDS)
def test_with_ids_of_different_lengths_it_takes_one_for_each_required_node_beyond_the_first(seed: int) -> None:
    found = run_uneven_sends({"nodes": 11, **SMALL}, seed)
    assert found["sends_below"] == pytest.approx(found["nodes_required"] - 1)
    assert [found[name] for name in ("off_required", "way_above_distance", "nodes_twice", "nodes_missed")] == [0] * 4


@pytest.mark.parametrize(("event", "required"), [("1100111", 8), ("1001", 4)])
def test_the_papers_examples_leave_out_the_empty_suffix_and_ours_comes_there(event: str, required: int) -> None:
    found = run_examples({"nodes": 16, "event": event}, 1)
    assert found["nodes_required"] == found["nodes_reached"] == required
    assert found["nodes_reached_printed"] == required - 1
    assert (found["empty_suffix_printed"], found["empty_suffix"], found["notified"]) == (False, True, True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lookup_takes_the_hamming_distance_which_is_half_of_m(seed: int) -> None:
    found = run_paths({"nodes": 16, "lookups": 300}, seed)
    assert found["off_hamming"] == 0
    assert found["hops"] == pytest.approx(2, abs=0.2)
    assert found["hops_max"] == 4
    uneven = run_paths({"nodes": 12, "lookups": 300}, seed)
    assert uneven["off_hamming"] > uneven["above_hamming"] == 0
    assert 1.5 < uneven["hops"] < 2


def test_shares_of_lookups_are_those_of_random_distances() -> None:
    shares = [run_shares({"nodes": 8, "lookups": 400, "hops": hops}, 1)["share"] for hops in range(4)]
    assert sum(shares) == pytest.approx(1)
    assert shares == pytest.approx([1 / 8, 3 / 8, 3 / 8, 1 / 8], abs=0.08)


# -- the model is what nodes do ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("nodes", [8, 13])
def test_tables_and_ways_of_the_model_are_those_of_nodes(nodes: int) -> None:
    net = run_network(nodes, 3, 8, lookups=60, founders=1)
    tables = tables_of(net)
    model = Cube(tables.regions)
    assert {region: sorted(links) for region, links in tables.links.items()} == {
        region: sorted(links) for region, links in model.links.items()
    }
    place: dict[str, Region] = {}
    for process in net.cluster.processes:
        view: Any = process.view
        place[process.address] = view.pieces[0][0]
    for each in net.clients.history.lookups:
        way = model.way(place[each.address], point_of(net.family.ring, each.key, 8))
        assert len(way) - 1 == each.hops
        assert place[next(p.address for p in net.cluster.processes if p.peer.id == each.found)] == way[-1]


@pytest.mark.parametrize("nodes", [8, 11])
def test_the_model_hands_on_to_those_whom_nodes_hand_on_to(nodes: int) -> None:
    chance = Random(nodes)
    found = disseminate(nodes, 6, ["a00 <= 1"], [chance.getrandbits(6) for _ in range(15)], 1)
    cube = even(nodes, 6)
    for each in found:
        handed = cube.handed(each.event, Tree())
        assert sorted(there for _, there in handed) == sorted(each.reached)
        assert {cube.host(each.event), *(there for _, there in handed)} == each.required


def test_any_tree_of_the_model_comes_to_each_required_node_once() -> None:
    for seed in range(5):
        cube = joined(21, 7, Random(seed))
        floor = min(region.length for region in cube.regions)
        for event in range(0, 128, 9):
            reached = [cube.host(event), *(there for _, there in cube.handed(event, tree_of(f"{seed}", floor)))]
            assert sorted(reached) == [region for region in cube.regions if is_required(region, event)]


def test_a_way_by_one_link_a_bit_ends_at_the_host() -> None:
    chance = Random(1)
    cube = split_anywhere(60, 12, chance)
    thin = cube.thinned(chance)
    assert all(len(thin.links[region]) == region.length for region in cube.regions)
    for _ in range(100):
        start, target = chance.choice(cube.regions), chance.getrandbits(12)
        assert thin.way_by_lowest(start, target)[-1] == cube.way(start, target)[-1] == cube.host(target)


# -- directions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_the_printed_rule_misses_nodes_where_lengths_differ_and_ours_none(seed: int) -> None:
    parameters = {"attributes": 7, "events": 60}
    for nodes in (13, 24):
        found = run_printed({"nodes": nodes, **parameters}, seed)
        assert 0 < found["missed_with_zero"] < found["missed"] < found["nodes_required"]
        assert found["missed_by_ours"] == found["twice_by_ours"] == 0
    alone = run_printed({"nodes": 2, **parameters}, seed)
    assert alone["missed_with_zero"] == 0 < alone["missed"]


def test_a_change_touches_a_few_nodes_more_where_there_are_four_times_as_many() -> None:
    few, many = (run_changes({"nodes": nodes, "changes": 3}, 1) for nodes in (8, 32))
    for what in ("join_touched", "leave_touched"):
        assert 3 <= few[what] < many[what] < 2.2 * few[what]
    assert many["join_touched"] < many["leave_touched"], "a leave that is passed on moves two regions"


def test_lengths_stay_close_while_many_come_and_go() -> None:
    found = run_churn({"nodes": 16, "at_once": 4, "turns": 2}, 1)
    assert 1 <= found["global_gap_after"] <= found["global_gap_while"] <= 3
    assert 0 < found["settled_s"] <= found["settled_s_max"]


def test_more_nodes_than_ids_stand_by() -> None:
    found = run_full({"nodes": 11, "attributes": 3}, 1)
    assert found == {"members": 11, "hosting": 8, "standing_by": 3, "ids": 8}


def test_uneven_ids_shorten_ways_over_full_tables_and_lengthen_them_over_thin_ones() -> None:
    for seed in range(1, 5):
        rule, anywhere = (
            run_gaps({"nodes": 200, "attributes": 16, "lookups": 500, "joins": joins}, seed)
            for joins in ("passed on", "anywhere")
        )
        assert rule["global_gap"] <= 2 < anywhere["global_gap"]
        assert anywhere["hops_to_nodes"] < rule["hops_to_nodes"] < rule["hops_to_nodes_by_one_link_a_bit"]
        assert anywhere["hops_to_nodes_by_one_link_a_bit"] > rule["hops_to_nodes_by_one_link_a_bit"]
        assert anywhere["links_max"] > 4 * rule["links_max"]


def test_rendezvous_are_even_visits_are_not_and_trees_by_hash_spread_handing_on() -> None:
    hashed, one = (
        run_load({"nodes": 16, "attributes": 6, "events": 2000, "tree": tree}, 1)
        for tree in ("by hash", "lowest bit first")
    )
    assert hashed["rendezvous_top_to_mean"] < 1.3
    assert hashed["visits_top_to_mean"] > 2.5
    assert hashed["visits_of_busiest_share"] == 1, "every event comes to the node of the empty suffix"
    assert hashed["handed_on_by_busiest"] < 0.7 * one["handed_on_by_busiest"]


def both(
    run: Callable[[Mapping[str, Parameter], int], Metrics],
    option: str,
    values: tuple[str, str],
    parameters: dict[str, Parameter],
    seed: int,
) -> tuple[Metrics, Metrics]:
    one, other = (run({**parameters, option: value}, seed) for value in values)
    return one, other


@pytest.mark.parametrize("seed", [1, 2])
def test_quenching_saves_where_nothing_is_wanted_and_costs_where_everything_is(seed: int) -> None:
    fixed: dict[str, Parameter] = {"nodes": 8, "attributes": 6, "events": 120, "events_per_s": 20}
    ways = ("quenched", "unquenched")
    quenched, plain = both(run_quenching, "quench", ways, {**fixed, "subscriptions": 0}, seed)
    assert quenched["messages_per_event"] < 0.6 * plain["messages_per_event"]
    assert quenched["knowing_per_event"] > plain["knowing_per_event"] == 0
    quenched, plain = both(run_quenching, "quench", ways, {**fixed, "subscriptions": 24, "events": 60}, seed)
    assert plain["messages_per_event"] < quenched["messages_per_event"] < 1.3 * plain["messages_per_event"]


def test_copies_relieve_the_busiest() -> None:
    fixed: dict[str, Parameter] = {
        "nodes": 8, "attributes": 6, "subscriptions": 16, "events": 120, "events_per_s": 40, "alike": 0.8,
    }  # fmt: skip
    copied, plain = both(run_copies, "copies", ("copied", "uncopied"), fixed, 1)
    assert copied["duties_busiest_per_event"] < plain["duties_busiest_per_event"]
    assert copied["messages_per_event"] < 0.7 * plain["messages_per_event"]


def test_ids_that_are_pushed_away_relieve_the_fullest() -> None:
    fixed: dict[str, Parameter] = {
        "nodes": 8, "attributes": 8, "subscriptions": 80, "events": 10, "events_per_s": 20, "popular": 0.8,
        "rest_s": 40,
    }  # fmt: skip
    pushed, plain = both(run_pushing, "pushing", ("pushed", "unpushed"), fixed, 1)
    assert pushed["entries_fullest"] < 0.8 * plain["entries_fullest"]
    assert pushed["entries"] == plain["entries"]


def test_signatures_and_the_hypercube_take_fewer_messages() -> None:
    fixed: dict[str, Parameter] = {"attributes": 16, "nodes": 6, "subscriptions": 20, "events": 20, "equalities": 0.9}
    cube: dict[str, Parameter] = {**fixed, "overlay": "hypercube", "ids": "attributes"}
    plain = run_ids(cube, 0)
    assert run_ids({**cube, "ids": "signatures 8"}, 0)["duties_per_event"] < plain["duties_per_event"]
    for overlay in ("chord", "pastry"):
        ring = run_ids({**cube, "overlay": overlay}, 0)
        assert plain["duties_per_event"] < ring["duties_per_event"]
        assert plain["regions_per_event"] < ring["regions_per_event"], "an arc of a ring is several regions"


# -- cells -------------------------------------------------------------------------------------------------------------

TINY: dict[str, dict[str, Parameter]] = {
    "sends": {"nodes": 4, "set_bits": 1, "attributes": 4, "subscriptions": 4, "events": 4},
    "uneven": {"nodes": 3, "attributes": 4, "subscriptions": 4, "events": 4},
    "examples": {"nodes": 4, "event": "1001"},
    "paths": {"nodes": 4, "lookups": 20},
    "shares": {"nodes": 4, "lookups": 20, "hops": 1},
    "gaps": {"nodes": 8, "attributes": 6, "lookups": 20, "joins": "anywhere"},
    "changes": {"nodes": 4, "changes": 1},
    "churn": {"nodes": 6, "at_once": 1, "turns": 1},
    "full": {"nodes": 3, "attributes": 2},
    "printed": {"nodes": 3, "attributes": 4, "events": 10},
    "load": {"nodes": 4, "attributes": 4, "events": 20, "tree": "by hash"},
    "quenching": {
        "nodes": 4, "attributes": 6, "subscriptions": 2, "events": 20, "events_per_s": 20, "quench": "quenched",
    },
    "copies": {
        "nodes": 4, "attributes": 6, "subscriptions": 4, "events": 20, "events_per_s": 40, "alike": 0.8,
        "copies": "copied",
    },
    "pushing": {
        "nodes": 4, "attributes": 8, "subscriptions": 8, "events": 4, "events_per_s": 20, "popular": 0.8, "rest_s": 2,
        "pushing": "pushed",
    },
    "ids": {
        "overlay": "hypercube", "ids": "signatures 16", "nodes": 4, "attributes": 16, "equalities": 0.9,
        "subscriptions": 8, "events": 8,
    },
}  # fmt: skip
TINY |= {
    "tables": {"nodes": 4, "events": 5},
    "rules": {},
    "siblings": {"nodes": 6, "networks": 2},
    "crashes": {"nodes": 4, "crashed": 1, "subscriptions": 6, "events": 4},
}
TINY |= {"rates": TINY["quenching"], "overlays": TINY["ids"]}

ELSEWHERE = """
import json, sys
from meetpoint.lab.experiments.reach import EXPERIMENT
cells = json.loads(sys.stdin.read())
print(json.dumps({name: dict(EXPERIMENT.part(name).run(cell, 1)) for name, cell in cells.items()}))
"""


def test_a_cell_gives_the_same_figures_in_another_process() -> None:
    cells = {name: TINY[name] for name in ("sends", "changes", "printed", "quenching", "ids")}
    told = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps(cells),
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        capture_output=True,
        text=True,
        check=True,
    )
    here = {name: dict(EXPERIMENT.part(name).run(cell, 1)) for name, cell in cells.items()}
    assert json.loads(told.stdout) == json.loads(json.dumps(here))


def test_another_seed_gives_other_figures() -> None:
    one, other = (run_uneven_sends({"nodes": 6, **SMALL}, seed) for seed in SEEDS)
    assert one != other


def test_a_network_that_was_wrong_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Network.report
    monkeypatch.setattr(Network, "report", lambda net: msgspec.structs.replace(honest(net), missing=1))
    for name in ("sends", "examples", "paths", "quenching", "ids"):
        with pytest.raises(MeetpointError, match="the network was wrong"):
            EXPERIMENT.part(name).run(TINY[name], 1)


# -- claims and figures ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def metrics() -> dict[str, Metrics]:
    """What each part tells, from its smallest cell."""
    return {part.name: part.run(TINY[part.name], 1) for part in EXPERIMENT.parts}


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_claim_and_figure_finds_what_it_asks_for(metrics: dict[str, Metrics], scale: Scale) -> None:
    check_asked(EXPERIMENT, metrics, scale)
    assert len({claim.id for claim in EXPERIMENT.claims}) == len(EXPERIMENT.claims) == 26


def paths(nodes: int, **changed: float) -> tuple[str, dict[str, Parameter], dict[str, float]]:
    half = (nodes.bit_length() - 1) / 2
    found = {"hops": half, "hops_max": 2 * half, "hops_deviation": 1, "off_hamming": 0, "above_hamming": 0}
    return "paths", {"nodes": nodes}, {**found, "lookups": 100, **changed}


def changes(nodes: int, touched: float) -> tuple[str, dict[str, Parameter], dict[str, float]]:
    names = ("join_touched", "join_touched_max", "leave_touched", "leave_touched_max")
    return "changes", {"nodes": nodes}, dict.fromkeys(names, touched)


def by(part: str, option: str, **values: dict[str, float]) -> list[tuple[str, dict[str, Parameter], dict[str, float]]]:
    return [(part, {option: value}, metrics) for value, metrics in values.items()]


def gaps(hops: float, thin: float) -> list[tuple[str, dict[str, Parameter], dict[str, float]]]:
    """Where anybody is split; where joins are passed on it is 2."""
    return [
        (
            "gaps",
            {"nodes": 64, "joins": joins},
            {"hops_to_nodes": all_, "hops_to_nodes_by_one_link_a_bit": one, "global_gap": 2, "links_max": 9},
        )
        for joins, all_, one in (("passed on", 2.0, 2.0), ("anywhere", hops, thin))
    ]


EXAMPLE = {"nodes_required": 4.0, "nodes_reached_printed": 3.0, "nodes_reached": 4.0, "notified": 1.0}
SENT = {"off_formula": 0.0, "events": 9.0, "sends": 7.0, "nodes_twice": 0.0, "nodes_missed": 0.0}
UNEVEN = {"off_required": 0.0, "events": 9.0, "nodes_twice": 0.0, "nodes_missed": 0.0}
RULE = {"missed_by_ours": 0.0, "twice_by_ours": 0.0, "nodes_required": 50.0, "missed": 5.0, "missed_with_zero": 0.0}
AT: dict[str, Parameter] = {"nodes": 8, "set_bits": 3}
LOAD = {"rendezvous_top_to_mean": 1.2, "visits_top_to_mean": 4.0, "visits_of_busiest_share": 1.0}


@pytest.mark.parametrize(
    ("claim", "cells", "verdict"),
    [
        ("C1", [paths(8), paths(12)], "reproduced"),
        ("C1", [paths(8, off_hamming=1), paths(12)], "not reproduced"),
        ("C1", [paths(8), paths(12, above_hamming=1)], "not reproduced"),
        ("C2", [paths(64)], "reproduced"),
        ("C2", [paths(64, hops=4)], "not reproduced"),
        ("C3", [paths(48, hops=2.8)], "reproduced"),
        ("C3", [paths(48, hops=4)], "not reproduced"),
        ("C4", [("sends", AT, SENT)], "reproduced"),
        ("C4", [("sends", AT, {**SENT, "off_formula": 1})], "not reproduced"),
        ("C5", [("uneven", AT, UNEVEN)], "in part"),
        ("C5", [("uneven", AT, {**UNEVEN, "off_required": 1})], "not reproduced"),
        ("C6", [("sends", AT, SENT), ("uneven", AT, UNEVEN), ("printed", AT, RULE)], "reproduced"),
        ("C6", [("sends", AT, SENT), ("uneven", AT, {**UNEVEN, "nodes_missed": 1}), ("printed", AT, RULE)],
         "not reproduced"),
        ("C6", [("sends", AT, SENT), ("uneven", AT, UNEVEN), ("printed", AT, {**RULE, "twice_by_ours": 1})],
         "not reproduced"),
        ("C7", [("examples", {"event": "1001"}, {**EXAMPLE, "nodes_reached_printed": 4})], "reproduced"),
        ("C7", [("examples", {"event": "1001"}, EXAMPLE)], "not reproduced"),
        ("C8", [("printed", AT, RULE)], "reproduced"),
        ("C8", [("printed", AT, RULE), ("printed", {"nodes": 12}, {**RULE, "missed_with_zero": 2})], "not reproduced"),
        ("C9", [changes(16, 8), changes(256, 16)], "reproduced"),
        ("C9", [changes(16, 8), changes(256, 32)], "not reproduced"),
        ("C10", [changes(16, 8), changes(256, 16)], "reproduced"),
        ("C10", [changes(16, 8), changes(256, 32)], "not reproduced"),
        ("C11", [("full", {"nodes": 20, "attributes": 4}, {"hosting": 16, "members": 20})], "reproduced"),
        ("C11", [("full", {"nodes": 20, "attributes": 4}, {"hosting": 17, "members": 20})], "not reproduced"),
        ("C12", [("churn", {"at_once": 4}, {"global_gap_while": 3, "global_gap_after": 2, "settled_s": 1})],
         "reproduced"),
        ("C12", [("churn", {"at_once": 4}, {"global_gap_while": 3, "global_gap_after": 3, "settled_s": 1})],
         "not reproduced"),
        ("C13", gaps(3.0, 3.0), "reproduced"),
        ("C13", gaps(1.0, 3.0), "in part"),
        ("C13", gaps(1.0, 1.0), "not reproduced"),
        ("C14", by("overlays", "overlay", hypercube={"duties_per_event": 5}, chord={"duties_per_event": 9}),
         "reproduced"),
        ("C14", by("overlays", "overlay", hypercube={"duties_per_event": 5}, chord={"duties_per_event": 4}),
         "not reproduced"),
        ("C15", [("load", {"tree": tree}, {"handed_on_by_busiest": sends})
                 for tree, sends in (("by hash", 2), ("lowest bit first", 4))], "reproduced"),
        ("C15", [("load", {"tree": tree}, {"handed_on_by_busiest": 4}) for tree in ("by hash", "lowest bit first")],
         "not reproduced"),
        ("C16", [("ids", {"ids": ids, "equalities": 0.9}, {"duties_per_event": 5, "fullest_share": 0.2})
                 for ids in ("attributes", "signatures 16")], "reproduced"),
        ("C16", [("ids", {"ids": ids, "equalities": 0.9}, {"duties_per_event": 5, "fullest_share": share})
                 for ids, share in (("attributes", 0.2), ("signatures 16", 0.5))], "in part"),
        ("C17", [("load", {"tree": "by hash"}, {**LOAD, "visits_top_to_mean": 1.1})], "reproduced"),
        ("C17", [("load", {"tree": "by hash"}, LOAD)], "in part"),
        ("C17", [("load", {"tree": "by hash"}, {**LOAD, "rendezvous_top_to_mean": 3})], "not reproduced"),
        ("C18", by("copies", "copies", copied={"duties_busiest_per_event": 1, "messages_per_event": 1},
                   uncopied={"duties_busiest_per_event": 2, "messages_per_event": 1}), "reproduced"),
        ("C18", by("copies", "copies", copied={"duties_busiest_per_event": 2, "messages_per_event": 1},
                   uncopied={"duties_busiest_per_event": 2, "messages_per_event": 2}), "not reproduced"),
        ("C19", by("pushing", "pushing", pushed={"entries_fullest": 5, "messages_per_event": 1},
                   unpushed={"entries_fullest": 9, "messages_per_event": 1}), "reproduced"),
        ("C19", by("pushing", "pushing", pushed={"entries_fullest": 9, "messages_per_event": 1},
                   unpushed={"entries_fullest": 9, "messages_per_event": 1}), "not reproduced"),
        ("C20", [("quenching", {"subscriptions": count, "quench": quench}, {"messages_per_event": messages})
                 for count, quench, messages in
                 ((0, "quenched", 2), (0, "unquenched", 9), (9, "quenched", 9.5), (9, "unquenched", 9))], "in part"),
        ("C20", [("quenching", {"subscriptions": count, "quench": quench}, {"messages_per_event": messages})
                 for count, quench, messages in
                 ((0, "quenched", 9), (0, "unquenched", 9), (9, "quenched", 9.5), (9, "unquenched", 9))],
         "not reproduced"),
        ("C21", [paths(64)], "reproduced"),
        ("C21", [paths(64, hops_max=20)], "not reproduced"),
    ],
)  # fmt: skip
def test_claims_are_judged_by_what_was_measured(claim: str, cells: list[Any], verdict: str) -> None:
    (found,) = (each for each in EXPERIMENT.claims if each.id == claim)
    assert found.judge(made_up(EXPERIMENT, *cells)).verdict == verdict
