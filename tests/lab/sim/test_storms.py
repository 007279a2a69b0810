"""Storms of joins on Pastry, watched after every step: the rules hold, and mutants of them are seen to break.

What the exhaustive search (`tests/overlays/pastry`) shows for few nodes and any order of messages, these show for whole
nodes with their timers: ten of them on two founders, all within a fifth of a second, under a perfect failure detector,
so that the invariant counts from the first step on.
"""

from __future__ import annotations

from typing import Any

import pytest

from meetpoint.api.ids import Peer
from meetpoint.catalog import NetworkConfig
from meetpoint.lab.sim import Network, RunReport, Timing
from meetpoint.lab.sim.families import BareNode, BareNodeFactory, family_of
from meetpoint.overlays.pastry import Pastry
from meetpoint.overlays.pastry.rules import PastryRules
from tests.overlays.pastry.mutants import HelpsAnyone, ReadyUnleased, TwoAtOnce

STORM = Timing(between_joins_s=0.02, start_s_max=30, calm_s=5, after_s=1, quiet_s=5)
SEEDS = range(1, 7)


class Ruled(BareNodeFactory):
    """Nodes that are only their overlay, by other rules."""

    def __init__(self, rules: type[PastryRules]) -> None:
        self._rules = rules

    def make(self, config: NetworkConfig, peer: Peer, seed: int, codec: Any) -> BareNode:
        node = BareNode(config, peer, seed, codec)
        node.overlay = Pastry(node._runtime, node, config.pastry, self._rules)
        node._handlers = dict(node.overlay.handlers())
        return node


def storm(rules: type[PastryRules], seed: int) -> RunReport:
    family = family_of(NetworkConfig(overlay="pastry"), Ruled(rules))
    net = Network("pastry", "none", 12, seed, detector="perfect", founders=2, timing=STORM, family=family)
    for _ in range(20):
        net.lookup()
    net.run()
    return net.report()


@pytest.mark.parametrize("seed", SEEDS)
def test_many_join_at_once_and_no_two_ready_nodes_overlap(seed: int) -> None:
    report = storm(PastryRules, seed)
    assert report.good, report.problems


def test_two_joiners_let_in_at_once_are_seen() -> None:
    broken = [storm(TwoAtOnce, seed) for seed in SEEDS]
    told = [report.problems[0] for report in broken if report.invariants_broken]
    assert told
    assert all("is ready, nearer to" in each or "cover the same keys" in each for each in told)


def test_nodes_that_are_ready_without_leases_are_seen() -> None:
    assert all(storm(ReadyUnleased, seed).invariants_broken for seed in SEEDS)


def test_helping_two_at_once_is_no_harm() -> None:
    """What keeps two joiners apart is whom they must name to get a lease."""
    for seed in SEEDS:
        report = storm(HelpsAnyone, seed)
        assert not report.invariants_broken, report.problems
