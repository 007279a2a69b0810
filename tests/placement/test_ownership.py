"""Whole networks, seen with eyes that no node has: at every moment at most one home holds a key, and in the end one."""

from __future__ import annotations

import pytest

from meetpoint.api.ids import HomeId
from meetpoint.lab.sim.run import RunConfig, make_network
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.ownership.range_store import GivenRange, OwnedRanges, split
from tests.placement.eyes import Overseen, arcs_held, held_by_nobody, held_twice, led_elsewhere, misplaced

LOOK_EVERY = 50


def watch(net: Network) -> None:
    """Runs a network and looks at all its arcs every so many steps: nobody holds what another does."""
    overseen = Overseen(net, lambda: held_twice(net), LOOK_EVERY)
    net.run()
    assert overseen.looks


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["none", "churn", "disk", "all"])
@pytest.mark.parametrize(("nodes", "founders"), [(8, None), (10, 3)])
def test_every_key_has_one_holder_with_all_that_belongs_there(faults: str, nodes: int, founders: int | None) -> None:
    for seed in (1, 2):
        net = make_network(
            RunConfig(
                scheme="meet", nodes=nodes, founders=founders, subscriptions=40, events=20, lookups=0, faults=faults,
                fault_seconds=20, recovery_seconds=45,
            ),
            seed,
        )  # fmt: skip
        watch(net)
        assert held_twice(net) == []
        assert held_by_nobody(net) == []
        assert misplaced(net) == []
        assert net.report().counts == dict.fromkeys(net.report().counts, 0)


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["none", "churn", "disk", "all"])
@pytest.mark.parametrize(("nodes", "founders"), [(8, None), (10, 1)])
def test_what_homes_hold_follows_an_overlay_that_says_whose_keys_are(
    faults: str, nodes: int, founders: int | None
) -> None:
    net = make_network(
        RunConfig(
            overlay="hypercube", scheme="meet", nodes=nodes, founders=founders, subscriptions=40, events=20, lookups=0,
            faults=faults, fault_seconds=20, recovery_seconds=45,
        ),
        3,
    )  # fmt: skip
    watch(net)
    assert held_twice(net) == held_by_nobody(net) == misplaced(net) == led_elsewhere(net) == []
    assert net.report().counts == dict.fromkeys(net.report().counts, 0)


def test_nodes_that_come_share_what_one_held_and_give_it_back_when_they_go() -> None:
    net = Network(scheme="meet", nodes=6, founders=1, seed=3, timing=Timing(quiet_s=150.0))
    names = [net.subscribe(f"symbol = 'S{number}'") for number in range(60)]
    for process in range(1, 5):
        net._say("after", lambda at=process: net.cluster.leave(net.cluster.processes[-1]))  # type: ignore[misc]
    events = [net.publish({"symbol": f"S{number}"}) for number in range(60)]
    net.run()
    assert net.notifications == {name: [event] for name, event in zip(names, events, strict=True)}
    assert len(net.cluster.alive()) == 2
    assert held_twice(net) == held_by_nobody(net) == misplaced(net) == []
    homes = {home for process in net.cluster.alive() for home in process.node.home_manager.homes}  # type: ignore[union-attr]
    assert {home.split("/")[1] for home, _ in arcs_held(net)} <= {home.hex()[:6] for home in homes}


def test_a_mutant_that_keeps_what_it_gave_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The eyes see: were an arc not taken from its giver, two would hold it."""

    def wrong(owned: OwnedRanges, arc: KeyRange, home: HomeId) -> tuple[GivenRange, OwnedRanges]:
        given, after = split(owned, arc, home)
        return given, OwnedRanges(after.version, owned.arcs, after.given, after.taken)

    monkeypatch.setattr("meetpoint.placement.ownership.range_claim.split", wrong)
    net = Network(scheme="meet", nodes=4, founders=1, seed=1)
    with pytest.raises(AssertionError, match="both hold"):
        watch(net)
