"""Whole networks under faults, overseen: regions split, merge, are given up and taken over, and nothing is missed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import msgspec
import pytest

from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.schemes.dmm import DmmSettings
from meetpoint.sim.families import family_of
from meetpoint.sim.plans import read_plan
from meetpoint.sim.scenario import Network, Phase, Timing
from tests.schemes.dmm.seeing import Overseen, misplaced, schemes, served_by_nobody

SCHEMA = """
attributes:
  a: {type: integer, min: 0, max: 62}
  b: {type: integer, min: 0, max: 62}
"""
SETTINGS = DmmSettings(schema=SCHEMA, threshold=6, depth=6, delegation="always")
SUBSCRIPTIONS, EVENTS = 36, 60
FAULTS = ("none", "churn", "partition", "lossy", "disk", "all")


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


def make(seed: int, faults: str, overlay: str, settings: DmmSettings = SETTINGS) -> Network:
    """Many subscriptions come, and most of them go while faults happen."""
    random = Random(f"regions/{seed}")
    plan = read_plan(faults)
    if plan.faults:
        plan = msgspec.structs.replace(plan, seconds=25)
    kin = family_of(NetworkConfig(overlay=overlay, scheme="dmm", dmm=settings))
    founders, timing = 5 if seed % 2 else None, Timing(recovery_s=45, quiet_s=60)
    net = Network(overlay, "dmm", 10, seed, plan, kin=kin, founders=founders, timing=timing)
    names = [net.subscribe(draw_filter(random)) for _ in range(SUBSCRIPTIONS)]
    phases: tuple[Phase, ...] = ("faults", "faults", "recovery", "after")
    gone, changed = random.sample(names, SUBSCRIPTIONS * 7 // 8), random.sample(names, SUBSCRIPTIONS // 5)
    actions: list[Callable[[], object]] = [
        *(partial(net.unsubscribe, name, phase=random.choice(phases)) for name in gone),
        *(partial(net.update, name, draw_filter(random), phase="faults") for name in changed),
        *(partial(net.subscribe, draw_filter(random), phase="faults") for _ in range(SUBSCRIPTIONS // 3)),
        *(partial(net.publish, draw_event(random), phase=("load", *phases)[number % 5]) for number in range(EVENTS)),
    ]
    random.shuffle(actions)
    for action in actions:
        action()
    return net


def run(net: Network) -> dict[str, int]:
    """Run, judge, and say what was observed."""
    Overseen(net, 10)
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert served_by_nobody(schemes(net)) == []
    assert misplaced(list(schemes(net))) == []
    assert not [name for name in report.observed if name.endswith(("_malformed", "_lost", "_stray"))]
    return report.observed


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("faults", FAULTS)
def test_regions_come_and_go_and_nothing_is_missed(overlay: str, faults: str) -> None:
    seed = FAULTS.index(faults) + 1
    observed = [run(make(seed, faults, overlay)) for seed in (seed, seed + 20)]
    assert min(each["region_split"] for each in observed) >= 10
    assert sum(each.get("region_merged", 0) for each in observed) >= 1


def test_under_faults_splits_are_given_up_and_taken_over() -> None:
    happened = {"region_splitting_given_up": 0, "region_resumed": 0, "region_merged": 0}
    for seed in range(11, 20):
        observed = run(make(seed, "all", "chord"))
        happened = {name: count + observed.get(name, 0) for name, count in happened.items()}
        if all(happened.values()):
            break
    assert all(happened.values()), happened


@pytest.mark.parametrize("options", [{"delegation": "probed"}, {"coverage": "uncovered", "delivery": "unicast"}])
def test_other_settings_miss_nothing_either(options: dict[str, str]) -> None:
    run(make(7, "all", "chord", msgspec.structs.replace(SETTINGS, **options)))
