"""Half of the nodes of a running network fail at once: does the ring hold, and do the others go on?

python -m tests.schemes.filters.halves [SEEDS [NODES]]
"""

from __future__ import annotations

import sys
from random import Random
from typing import Any, NamedTuple

from meetpoint.catalog import NetworkConfig
from meetpoint.overlays.chord import ChordSettings
from meetpoint.overlays.chord import invariant as chord_invariant
from meetpoint.protocol.inputs import MICROSECONDS
from meetpoint.schemes.filters.reserves import reserve_count
from meetpoint.sim.families import family_of
from meetpoint.sim.plans import Fault, Plan
from meetpoint.sim.scenario import Network, Timing

__all__ = ["Halved", "halve"]

DOWN_S = 50.0
"""How long they are down."""
REPAIR_S = 25.0
"""How long the others have before they publish."""
VALUES = 4


class Halved(NamedTuple):
    """What became of one network."""

    is_whole: bool
    """Whether the survivors make one ring, as it should be, before the others are back."""
    expected: int
    """Notifications of survivors' events to survivors' subscriptions, while the others are down."""
    missed: int
    """Those that did not come while the others were down."""
    left: int
    """Ranges that the graph left to errands."""
    is_exact: bool
    """Whether all that was published came to all, once, when all were back."""
    problems: list[str]


def halve(seed: int, nodes: int, successors: int) -> Halved:
    """Run a network in which half of the nodes crash at once, and are back later."""
    chord = ChordSettings(successors=successors)
    kin = family_of(NetworkConfig(overlay="chord", scheme="filters", chord=chord))
    plan = Plan("half", {"clock_skew": Fault(0.1)}, seconds=DOWN_S)
    net = Network("chord", "filters", nodes, seed, plan, kin=kin, timing=Timing(recovery_s=60, quiet_s=60))
    random = Random(f"half/{seed}")
    for number in range(2 * nodes):
        net.subscribe(f"a = {number % VALUES}")
    crashed: dict[str, None] = {}
    found: dict[str, Any] = {}

    def crash() -> None:
        victims = random.sample(sorted(net.cluster.alive(), key=lambda each: each.address), nodes // 2)
        for process in victims:
            crashed[process.address] = None
            net.cluster.crash(process)
        net.engine.call(net.engine.now + int((DOWN_S - 3) * MICROSECONDS), look)

    def look() -> None:
        views: dict[bytes, Any] = {bytes(each.peer.id): each.viewing() for each in net.cluster.alive()}
        history = net.clients.history
        expected = missed = 0
        for subscription in history.subscriptions.values():
            if subscription.address in crashed:
                continue
            came = {delivery.event for delivery in subscription.deliveries}
            filter_ = subscription.changes[-1].filter
            assert filter_ is not None
            for name, published in history.publications.items():
                is_wanted = filter_.conjunctions[0].accepts(published.event.attributes)
                if is_wanted and published.acknowledged is not None and published.address not in crashed:
                    expected += 1
                    missed += name not in came
        found.update(whole=chord_invariant.departures(views, successors) is None, expected=expected, missed=missed)

    net._say("faults", crash)
    net.rest(REPAIR_S, phase="faults")
    for number in range(12):
        net.publish({"a": number % VALUES}, phase="faults")
    net.rest(15, phase="faults")
    for number in range(8):
        net.publish({"a": number % VALUES}, phase="after")
    net.run()
    report = net.report()
    return Halved(
        found["whole"], found["expected"], found["missed"], report.observed.get("filters_left", 0), report.good,
        report.problems,
    )  # fmt: skip


def main() -> None:
    """Print a table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    say = sys.stdout.write
    say("| nodes | successors | whole | missed of expected while half are down | exact when all are back |\n")
    for successors in (max(1, reserve_count(nodes, 1)), reserve_count(nodes)):
        runs = [halve(seed, nodes, successors) for seed in range(seeds)]
        whole, exact = sum(run.is_whole for run in runs), sum(run.is_exact for run in runs)
        missed, expected = sum(run.missed for run in runs), sum(run.expected for run in runs)
        say(f"| {nodes} | {successors} | {whole} of {seeds} | {missed} of {expected} | {exact} of {seeds} |\n")
        sys.stdout.flush()
        for seed, run in enumerate(runs):
            if not (run.is_exact and run.is_whole):
                say(f"{seed}: {run}\n")


if __name__ == "__main__":
    main()
