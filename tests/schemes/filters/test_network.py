"""Whole networks: nothing is missed under faults, on any overlay, and all strategies come to the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
import pytest

from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.overlays.hypercube import HypercubeSettings
from meetpoint.schemes.filters import STRATEGIES, FiltersSettings
from meetpoint.schemes.filters.reserves import reserve_count
from meetpoint.sim.families import family_of
from meetpoint.sim.plans import read_plan
from meetpoint.sim.scenario import Network, Phase, Timing
from tests.schemes.dmm.seeing import schemes
from tests.schemes.filters.halves import halve

NAMES = "abc"
FAULTS = ("none", "churn", "partition", "lossy", "disk", "all")


def network(
    overlay: str,
    seed: int,
    settings: FiltersSettings,
    faults: str = "none",
    *,
    nodes: int = 8,
    founders: int | None = None,
    dimensions: int = 64,
) -> Network:
    """A network that runs `filters`."""
    plan = read_plan(faults)
    if plan.faults:
        plan = msgspec.structs.replace(plan, seconds=15)
    cube = HypercubeSettings(dimensions=dimensions)
    kin = family_of(NetworkConfig(overlay=overlay, scheme="filters", filters=settings, hypercube=cube))
    timing = Timing(recovery_s=40, quiet_s=45)
    return Network(overlay, "filters", nodes, seed, plan, kin=kin, founders=founders, timing=timing)


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


def busy(net: Network, seed: int) -> Network:
    """Subscriptions and events at all times."""
    random = Random(f"filters/{seed}")
    names = [net.subscribe(draw_filter(random)) for _ in range(20)]
    phases: tuple[Phase, ...] = ("faults", "faults", "recovery", "after")
    actions: list[Callable[[], object]] = [
        *(partial(net.unsubscribe, name, phase=random.choice(phases)) for name in random.sample(names, 8)),
        *(partial(net.update, name, draw_filter(random), phase="faults") for name in random.sample(names, 5)),
        *(partial(net.subscribe, draw_filter(random), phase="faults") for _ in range(8)),
        *(partial(net.publish, draw_event(random), phase=("load", *phases)[number % 5]) for number in range(40)),
    ]
    random.shuffle(actions)
    for action in actions:
        action()
    return net


def run(net: Network) -> dict[str, int]:
    """Run, judge, and say what was observed."""
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert report.notifications_expected > 20
    assert not [name for name in report.observed if name.endswith("_malformed")]
    assert all(not scheme._members._waiting for scheme in schemes(net))
    return report.observed


CASES = (
    *(("chord", faults) for faults in FAULTS),
    *(("pastry", faults) for faults in ("churn", "lossy")),
    *(("hypercube", faults) for faults in ("churn", "all")),
)


@pytest.mark.parametrize(("overlay", "faults"), CASES)
def test_whatever_befalls_a_network_nothing_is_missed(overlay: str, faults: str) -> None:
    seed = 2 * FAULTS.index(faults) + list(OVERLAYS).index(overlay)
    settings = FiltersSettings(strategy=STRATEGIES[seed % len(STRATEGIES)])
    observed = run(busy(network(overlay, seed, settings, faults, founders=4 if seed % 2 else None), seed))
    assert observed["filters_handed"] > 20


@pytest.mark.parametrize("faults", ["none", "churn"])
def test_where_nodes_stand_by_and_hold_no_key_nothing_is_missed(faults: str) -> None:
    """A hypercube with four places: most homes hold nothing, and others answer for them."""
    net = busy(network("hypercube", 3, FiltersSettings(), faults, nodes=9, dimensions=2), 3)
    run(net)
    if faults == "none":
        places = [len(scheme._members.all()) for scheme in schemes(net)]
        assert sorted(places) == [0] * 5 + [1] * 4


def test_all_strategies_give_the_same_notifications() -> None:
    came = []
    for strategy in STRATEGIES:
        net = busy(network("chord", 7, FiltersSettings(strategy=strategy), nodes=6), 7)
        run(net)
        came.append({name: sorted(events) for name, events in net.notifications.items()})
    assert came[0]
    assert all(each == came[0] for each in came)


def test_when_half_of_the_nodes_fail_at_once_the_others_go_on_and_nothing_is_lost() -> None:
    halved = halve(3, 8, reserve_count(8))
    assert halved.is_whole
    assert halved.expected > 10
    assert halved.missed == 0
    assert halved.is_exact, halved.problems


def test_at_rest_an_event_comes_to_a_node_at_most_once_and_by_the_graph() -> None:
    net = network("chord", 5, FiltersSettings(), nodes=16)
    for number in range(16):
        net.subscribe(f"a = {number % 4}")
    for number in range(40):
        net.publish({"a": number % 6}, phase="after")
    observed = run(net)
    assert observed.get("filters_left", 0) == observed.get("errand_again", 0) == 0
    assert observed["filters_handed"] < 40 * 15, "to everyone it would be as many"
    assert net.report().event_hops.max <= 5
