"""Whole networks under faults, overseen: regions split, merge, are given up and taken over, and nothing is missed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest

from meetpoint.catalog import NetworkConfig
from meetpoint.lab.sim.scenario import Network
from meetpoint.schemes.dmm import DmmSettings
from tests.placement.eyes import Overseen, schemes
from tests.schemes.busy import FAULTS, OVERLAYS_AND_FAULTS, Busy, judge, network
from tests.schemes.dmm.tree_views import misplaced, served_by_nobody, served_twice
from tests.tiers import SOAK

SCHEMA = """
attributes:
  a: {type: integer, min: 0, max: 62}
  b: {type: integer, min: 0, max: 62}
"""
SETTINGS = DmmSettings(schema=SCHEMA, threshold=6, depth=6, delegation="always")


def draw_filter(random: Random) -> str:
    """Mostly small boxes, some that are wide, missing values, and two boxes at once."""

    def span(name: str) -> str:
        low = random.randrange(63)
        return f"{name} BETWEEN {low} AND {low + random.choice((0, 1, 3, 8, 12))}"

    shapes: list[tuple[float, Callable[[], str]]] = [
        (0.8, lambda: f"{span('a')} AND {span('b')}"),
        (0.05, lambda: span("a")),
        (0.02, lambda: "a IS NULL"),
        (0.02, lambda: "b >= 0"),
        (0.06, lambda: f"({span('a')}) OR ({span('b')} AND a < 20)"),
        (0.05, lambda: span("b")),
    ]
    return random.choices([make for _, make in shapes], [weight for weight, _ in shapes])[0]()


def draw_event(random: Random) -> dict[str, object]:
    return {name: random.randrange(63) for name in ("a", "b") if random.random() < 0.9}


BUSY = Busy(draw_filter=draw_filter, draw_event=draw_event, subscriptions=36, ended=31, changed=7, added=12, events=60)


def make(seed: int, faults: str, overlay: str, settings: DmmSettings = SETTINGS) -> Network:
    """Many subscriptions come, and most of them go while faults happen."""
    config = NetworkConfig(overlay=overlay, scheme="dmm", dmm=settings)
    net = network(config, 10, seed, faults, fault_s=25, founders=5 if seed % 2 else None)
    return BUSY.keep(net, Random(f"regions/{seed}"))


def run(net: Network) -> dict[str, int]:
    """Run, judge, and say what was observed."""
    Overseen(net, lambda: served_twice(schemes(net)), 10)
    observed = judge(net, "_lost", "_stray")
    assert served_by_nobody(schemes(net)) == []
    assert misplaced(list(schemes(net))) == []
    return observed


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "faults"), OVERLAYS_AND_FAULTS)
def test_regions_come_and_go_and_nothing_is_missed(overlay: str, faults: str) -> None:
    seed = FAULTS.index(faults) + 1
    observed = [run(make(seed, faults, overlay)) for seed in ((seed, seed + 20) if SOAK else (seed,))]
    assert min(each["region_split"] for each in observed) >= 10
    assert sum(each.get("region_merged", 0) for each in observed) >= 1


@pytest.mark.slow
def test_under_faults_splits_are_given_up_and_taken_over() -> None:
    happened = {"region_splitting_given_up": 0, "region_resumed": 0, "region_merged": 0}
    for seed in range(19, 28):
        observed = run(make(seed, "all", "chord"))
        happened = {name: count + observed.get(name, 0) for name, count in happened.items()}
        if all(happened.values()):
            break
    assert all(happened.values()), happened


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"delegation": "probed"}, {"coverage": "uncovered", "delivery": "unicast"}])
def test_other_settings_miss_nothing_either(options: dict[str, str]) -> None:
    run(make(7, "all", "chord", msgspec.structs.replace(SETTINGS, **options)))
