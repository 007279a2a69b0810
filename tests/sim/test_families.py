"""Real nodes in the simulator: a whole one on an ideal overlay, an overlay without the rest, and Chord's own judges."""

from __future__ import annotations

import math

import pytest

from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.overlays.chord import ChordView
from meetpoint.sim import Network, Timing
from meetpoint.sim.families import family_of
from meetpoint.sim.run import RunConfig, make_network, run
from tests.sim.ideal import IdealFamily

SMALL = RunConfig(nodes=8, subscriptions=30, events=30, lookups=10, fault_seconds=20, recovery_seconds=30)


@pytest.mark.parametrize("faults", ["none", "churn", "partition", "lossy", "disk", "all"])
@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_keep_their_promises_whatever_the_overlay(faults: str, seed: int) -> None:
    kin = IdealFamily()
    net = make_network(RunConfig(**{**_fields(), "faults": faults}), seed, kin)  # type: ignore[arg-type]
    kin.is_up = lambda address: net.engine.processes[address].alive
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert report.notifications_expected > 0


def _fields() -> dict[str, object]:
    return {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}


@pytest.mark.parametrize("faults", ["none", "churn", "partition", "lossy"])
def test_an_overlay_alone_finds_every_key(faults: str) -> None:
    config = RunConfig(scheme="none", nodes=12, subscriptions=0, events=0, lookups=100, faults=faults, fault_seconds=20)
    report = run(config, 3)
    assert report.good, report.problems
    assert report.lookups == 100


def test_an_overlay_alone_takes_no_subscriptions() -> None:
    net = Network(scheme="none", nodes=2)
    with pytest.raises(MeetpointError, match="without a scheme nothing is subscribed or published"):
        net.subscribe("price > 1")


def test_a_lookup_takes_about_half_of_log_n_hops() -> None:
    net = Network(scheme="none", nodes=128, seed=1, timing=Timing(quiet_s=1))
    for _ in range(1000):
        net.lookup()
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert 0 <= report.lookup_hops.mean - math.log2(128) / 2 <= 1


def test_under_a_perfect_detector_the_invariant_is_looked_at_after_every_change() -> None:
    net = make_network(RunConfig(scheme="none", nodes=12, subscriptions=0, events=0, lookups=20, faults="churn",
                                 fault_seconds=30, detector="perfect"), 5)  # fmt: skip
    net.run()
    assert net.report().good, net.report().problems
    assert net.watch.looked > 50


def test_a_broken_pointer_is_seen() -> None:
    kin = family_of(NetworkConfig())
    kin.founders(5)
    ids = [bytes([number]) * 20 for number in (10, 20, 30, 40, 50, 60)]

    def view(at: int, *succ: int) -> ChordView:
        after = succ or [(at + step) % 6 for step in (1, 2, 3, 4)]
        return ChordView(True, ids[at], tuple(ids[i] for i in after), ids[at - 1], (), 1)  # type: ignore[arg-type]

    views = {ids[at]: view(at) for at in range(6)}
    assert kin.broken(views) is None
    assert kin.departures(views) is None
    assert kin.stands(views)
    views[ids[0]] = view(0, 2, 3, 4, 5)
    assert kin.broken(views) is None, "one member is skipped, and five principals are left"
    assert kin.departures(views) is not None
    views[ids[3]] = view(3, 5, 0, 1, 2)
    assert "4 principals, 5 needed" in str(kin.broken(views))
    assert not kin.stands(views)
    assert kin.differ(view(0), views[ids[0]])
    assert not kin.differ(view(0), view(0))
