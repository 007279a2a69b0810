"""Who began a network is lost just when others have come."""

from __future__ import annotations

from typing import Any

import pytest

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import OVERLAYS
from meetpoint.lab.sim import Network
from meetpoint.lab.sim.engine import Process


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("newcomers", [2, 4])
def test_those_who_joined_at_once_find_each_other_without_the_founder(overlay: str, newcomers: int) -> None:
    """Each may know the founder alone by then, so that no pointer leads from one to the other."""
    lonely = 0
    for seed in range(10):
        net = Network(overlay=overlay, scheme="flood", nodes=1 + newcomers, seed=seed)
        net.family.founders(1)
        (founder,) = net.cluster.found(1)
        _run(net, 2)
        joined = [net.cluster.join() for _ in range(newcomers)]
        while not all(net.family.is_ready(process.node) for process in joined):
            _run(net, 0.01)
        net.cluster.crash(founder)
        _run(net, 3)
        lonely += sum(not _neighbours(process) for process in joined)
        _run(net, 25)
        links = {process.address: _neighbours(process) for process in joined}
        for address in links:
            reached = {address}
            while more := {each for one in reached for each in links[one]} - reached:
                reached |= more
            assert reached == set(links), (seed, links)
    if overlay == "chord":
        assert lonely, "else this tells nothing"


def _neighbours(process: Process) -> set[str]:
    node: Any = process.node
    return {peer.address for peer in node.overlay.neighbours(4)}


def _run(net: Network, seconds: float) -> None:
    net.engine.run(net.engine.now + int(seconds * SECOND_US))
