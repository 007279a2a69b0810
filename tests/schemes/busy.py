"""Whole simulated networks that are busy while faults happen, whatever their scheme: subscriptions come, change and go
at all times, and events are published at all times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Final

import msgspec

from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.faults import read_plan
from meetpoint.lab.sim.scenario import Network, Phase, Timing
from tests.tiers import SOAK

__all__ = ["FAULTS", "OVERLAYS_AND_FAULTS", "Busy", "judge", "network"]

FAULTS: Final = ("none", "churn", "partition", "lossy", "disk", "all")
OVERLAYS_AND_FAULTS: Final = tuple(
    (overlay, faults)
    for at, faults in enumerate(FAULTS)
    for turn, overlay in enumerate(OVERLAYS)
    if SOAK or faults == "all" or turn == at % len(OVERLAYS)
)
"""Every plan of faults on an overlay, and all faults together on each; `make soak` takes every pair."""
TIMING = Timing(recovery_s=45, quiet_s=60)


def network(
    config: NetworkConfig,
    nodes: int,
    seed: int,
    faults: str = "none",
    *,
    fault_s: float = 20,
    founders: int | None = None,
    timing: Timing = TIMING,
) -> Network:
    """A network of this configuration; faults last so many seconds."""
    plan = read_plan(faults)
    if plan.faults:
        plan = msgspec.structs.replace(plan, seconds=fault_s)
    family = family_of(config)
    return Network(config.overlay, config.scheme, nodes, seed, plan, family=family, founders=founders, timing=timing)


class Busy(msgspec.Struct, frozen=True, kw_only=True):
    """What clients do: how filters and events are drawn, and how many there are of each."""

    draw_filter: Callable[[Random], str]
    draw_event: Callable[[Random], Mapping[str, object]]
    subscriptions: int
    ended: int
    changed: int
    """Of the subscriptions from the beginning, those that end and those that change later."""
    added: int
    events: int

    def keep(self, net: Network, random: Random) -> Network:
        """Have it all done, in some order."""
        names = [net.subscribe(self.draw_filter(random)) for _ in range(self.subscriptions)]
        phases: tuple[Phase, ...] = ("faults", "faults", "recovery", "after")
        ended, changed = random.sample(names, self.ended), random.sample(names, self.changed)
        actions: list[Callable[[], object]] = [
            *(partial(net.unsubscribe, name, phase=random.choice(phases)) for name in ended),
            *(partial(net.update, name, self.draw_filter(random), phase="faults") for name in changed),
            *(partial(net.subscribe, self.draw_filter(random), phase="faults") for _ in range(self.added)),
            *(
                partial(net.publish, self.draw_event(random), phase=("load", *phases)[number % 5])
                for number in range(self.events)
            ),
        ]
        random.shuffle(actions)
        for action in actions:
            action()
        return net


def judge(net: Network, *unwanted: str) -> dict[str, int]:
    """Run; nothing is missed, and nothing was observed whose name ends so. What was observed."""
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert not [name for name in report.observed if name.endswith(("_malformed", *unwanted))]
    return report.observed
