"""Whole networks with faults, in which `meet` leaves out what is covered and spreads events along routes: neither is
of any one scheme. Filters are nested, so that most are covered by others.
"""

from __future__ import annotations

from random import Random

import pytest

from meetpoint.lab.sim.run import RunConfig, make_network
from meetpoint.lab.sim.scenario import Network
from meetpoint.lab.sim.workload import Workload
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.dissemination import multicast
from meetpoint.placement.dissemination.fanout import SingleFlight
from meetpoint.placement.entries.covered_placement import CoveredPlacement
from meetpoint.schemes import meet
from tests.placement.eyes import held_by_nobody, held_twice, misplaced, parts
from tests.placement.test_covering import maximal


class _Codes:
    def code(self, conjunction: Conjunction) -> str:
        return ""


class SparingMeet(meet.Meet):
    """`meet` with both."""

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        home_manager: HomeManager,
        node: NodeSettings,
        settings: meet.MeetSettings,
    ) -> None:
        super().__init__(runtime, overlay, home_manager, node, settings)
        placement = self._placement
        self._placement = CoveredPlacement(runtime, home_manager, self, placement._installer, _Codes())
        self._single_flight = SingleFlight(self._multicast.bring)


def nested(chance: Random) -> str:
    price, volume = 5 * chance.randrange(1, 40), 500 * chance.randrange(20)
    texts = (
        f"price > {price}",
        f"price > {price} AND volume > {volume}",
        f"price > {price} AND price <= {price + 50}",
        f"exchange = 'LSE' AND price > {price}",
        f"exchange = 'LSE' AND price > {price} OR volume > {9_000 + volume // 10}",
        "exchange = 'LSE'",
    )
    return chance.choice(texts)


@pytest.fixture
def sparing(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(1)
    monkeypatch.setattr(meet, "Meet", SparingMeet)
    monkeypatch.setattr(Workload, "filter", lambda self: nested(chance))
    monkeypatch.setattr(multicast, "STRAIGHT_MAX", 1)


def run(seed: int, faults: str, nodes: int = 8) -> Network:
    config = RunConfig(
        nodes=nodes, subscriptions=60, events=30, lookups=0, faults=faults, fault_seconds=20, recovery_seconds=45
    )
    net = make_network(config, seed)
    net.run()
    counts = net.report().counts
    assert counts == dict.fromkeys(counts, 0), net.report().problems
    return net


def placed_and_held(net: Network) -> tuple[int, int]:
    """How many conjunctions are placed, of how many; each home places the maximal ones."""
    placed = held = 0
    for _, _, placement, homes in parts(net):
        for home in homes.values():
            subscriptions = {
                name: (found.number, each)
                for name, each in home.filters.items()
                if (found := home.subscription(name)) is not None
            }
            assert isinstance(placement, CoveredPlacement)
            covering = placement._here[home.id].covering
            wanted = maximal(subscriptions)
            assert {(name, at) for name in subscriptions for at in covering.placed(name)} == wanted
            placed += len(wanted)
            held += sum(len(each.conjunctions) for _, each in subscriptions.values())
    return placed, held


@pytest.mark.slow
@pytest.mark.usefixtures("sparing")
@pytest.mark.parametrize("faults", ["none", "churn", "all"])
@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_and_nothing_is_placed_in_vain(seed: int, faults: str) -> None:
    net = run(seed, faults)
    placed, held = placed_and_held(net)
    assert placed < 0.75 * held
    assert held_twice(net) == held_by_nobody(net) == misplaced(net) == []
    assert net.report().observed["event_spread"] > 0
    assert net.report().observed.get("spread_malformed", 0) == 0
