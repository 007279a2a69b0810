"""Whole networks: nothing is missed under faults, on any overlay, and all strategies come to the same."""

from __future__ import annotations

from random import Random

import pytest

from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.lab.experiments.rebeca.networks import fail_half, graph_of
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.overlays.hypercube import HypercubeSettings
from meetpoint.schemes.rebeca import RebecaSettings
from meetpoint.schemes.rebeca.graph import fingers, following, reserve_count
from meetpoint.schemes.rebeca.tables import STRATEGIES
from tests.placement.eyes import schemes
from tests.schemes.busy import FAULTS, OVERLAYS_AND_FAULTS, Busy, judge, network
from tests.tiers import SOAK

NAMES = "abc"


def configured(settings: RebecaSettings, overlay: str = "chord", dimensions: int = 64) -> NetworkConfig:
    """A network that runs `rebeca`."""
    cube = HypercubeSettings(dimensions=dimensions)
    return NetworkConfig(overlay=overlay, scheme="rebeca", rebeca=settings, hypercube=cube)


def draw_filter(random: Random) -> str:
    def one() -> str:
        name = random.choice(NAMES)
        low = random.randrange(8)
        texts = (f"{name} = {low}", f"{name} BETWEEN {low} AND {low + 2}", f"{name} > 5", f"{name} IS NULL")
        return random.choice(texts)

    either = [" AND ".join(one() for _ in range(random.randrange(1, 3))) for _ in range(random.choice((1, 1, 2)))]
    return " OR ".join(f"({each})" for each in either)


def draw_event(random: Random) -> dict[str, object]:
    return {name: random.randrange(8) for name in NAMES if random.random() < 0.7}


BUSY = Busy(draw_filter=draw_filter, draw_event=draw_event, subscriptions=20, ended=8, changed=5, added=8, events=40)


def busy(config: NetworkConfig, seed: int, faults: str = "none", *, nodes: int = 8, join: bool = False) -> Network:
    """Subscriptions and events at all times."""
    timing = Timing(recovery_s=40, quiet_s=45)
    net = network(config, nodes, seed, faults, fault_s=15, founders=4 if join else None, timing=timing)
    return BUSY.keep(net, Random(f"filters/{seed}"))


def run(net: Network) -> dict[str, int]:
    """Run, judge, and say what was observed."""
    observed = judge(net)
    assert net.report().notifications_expected > 20
    assert all(not scheme.members._waiting for scheme in schemes(net))
    return observed


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "faults"), OVERLAYS_AND_FAULTS)
def test_whatever_befalls_a_network_nothing_is_missed(overlay: str, faults: str) -> None:
    seed = 2 * FAULTS.index(faults) + list(OVERLAYS).index(overlay)
    settings = RebecaSettings(strategy=STRATEGIES[seed % len(STRATEGIES)])
    observed = run(busy(configured(settings, overlay), seed, faults, join=bool(seed % 2)))
    assert observed["rebeca_handed"] > 20


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["none", "churn"])
def test_where_nodes_stand_by_and_hold_no_key_nothing_is_missed(faults: str) -> None:
    """A hypercube with four places: most homes hold nothing, and others answer for them."""
    net = busy(configured(RebecaSettings(), "hypercube", 2), 3, faults, nodes=9)
    run(net)
    if faults == "none":
        places = [len(scheme.members.all()) for scheme in schemes(net)]
        assert sorted(places) == [0] * 5 + [1] * 4


@pytest.mark.slow
def test_all_strategies_give_the_same_notifications() -> None:
    came = []
    for strategy in STRATEGIES:
        net = busy(configured(RebecaSettings(strategy=strategy)), 7, nodes=6)
        run(net)
        came.append({name: sorted(events) for name, events in net.notifications.items()})
    assert came[0]
    assert all(each == came[0] for each in came)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "per_level", "overlay"),
    [(3, 2, "chord"), (6, 0, "chord"), (2, 0, "pastry"), (5, 2, "hypercube")],
)
def test_when_half_of_the_nodes_fail_at_once_the_others_go_on_and_nothing_is_lost(
    seed: int, per_level: float, overlay: str
) -> None:
    """Two for each doubling are in reserve, or just one: then the ring is cut, and has to be mended."""
    halved = fail_half(seed, 8, per_level, overlay)
    assert halved.alone == bool(per_level)
    assert halved.whole_s is not None
    assert halved.expected > 10
    # On the hypercube what a survivor wants may lie with one that is down.
    assert halved.missed == 0 or overlay == "hypercube"
    assert halved.is_exact, halved.problems


def wrong_in_graph(net: Network) -> list[str]:
    """What edges and reserves are not as they should be."""
    members = {member.edges.place: (member, linking) for member, linking in graph_of(net)}
    places, size = sorted(members), net.family.ring.size
    wrong = []
    for place, (member, linking) in members.items():
        if list(member.edges.graph.nodes) != fingers(place, places, size):
            wrong.append(f"edges of {place:x}")
        count = reserve_count(len(linking._directory.homes()))
        if [each.place for each in linking.reserve(member)] != following(place, places, count, size):
            wrong.append(f"reserve of {place:x}")
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["none", "churn", "partition"] if SOAK else ["churn"])
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_on_every_overlay_edges_and_reserves_are_right_when_all_is_quiet(overlay: str, faults: str) -> None:
    net = busy(configured(RebecaSettings(), overlay), 4, faults, nodes=10)
    run(net)
    assert not wrong_in_graph(net)


@pytest.mark.slow
def test_at_rest_an_event_comes_to_a_node_at_most_once_and_by_the_graph() -> None:
    net = network(configured(RebecaSettings()), 16, 5)
    for number in range(16):
        net.subscribe(f"a = {number % 4}")
    for number in range(40):
        net.publish({"a": number % 6}, phase="after")
    observed = run(net)
    assert observed.get("rebeca_left", 0) == observed.get("errand_again", 0) == 0
    assert observed["rebeca_handed"] < 40 * 15, "to everyone it would be as many"
    assert net.report().event_hops.max <= 5
