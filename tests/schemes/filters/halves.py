"""Half of the nodes of a running network fail at once: does the graph hold together, and do the others go on?

python -m tests.schemes.filters.halves [SEEDS|FROM..TO [NODES [PER_LEVEL...]]]

Whether the ring of the graph is whole *by reserves alone* is read off the reserves that the nodes have at that moment:
each needs one that lives, and the first that does is then the next survivor. *With repair* is what really happens: the
first edge of every survivor leads to the next, at last.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from random import Random
from statistics import median
from typing import NamedTuple

from meetpoint.catalog import NetworkConfig
from meetpoint.protocol.inputs import MICROSECONDS
from meetpoint.schemes.filters import FiltersSettings
from meetpoint.schemes.filters.linking import Linking
from meetpoint.schemes.filters.member import Member
from meetpoint.sim.families import family_of
from meetpoint.sim.plans import Fault, Plan
from meetpoint.sim.scenario import Network, Timing

__all__ = ["Halved", "halve"]

DOWN_S = 35.0
"""How long they are down."""
REPAIR_S = 20.0
"""How long the others have before they publish."""
VALUES = 4


class Halved(NamedTuple):
    """What became of one network."""

    alone: bool
    """Whether the ring of the survivors would be whole by the reserves that they had, and nothing else."""
    whole_s: float | None
    """After how many seconds it was whole, to stay so until the others were back; None if it was not."""
    expected: int
    """Notifications of survivors' events to survivors' subscriptions, while the others are down."""
    missed: int
    """Those that did not come while the others were down."""
    is_exact: bool
    """Whether all that was published came to all, once, when all were back."""
    problems: list[str]


def graph_of(net: Network) -> Iterator[tuple[Member, Linking]]:
    """All members of the graph at nodes that are up."""
    for process in net.cluster.alive():
        members = process.node.scheme._members  # type: ignore[union-attr]
        for member in members.all():
            yield member, members._linking


def is_whole(net: Network) -> bool:
    """Whether every first edge leads to the next member at a node that is up."""
    first = {member.edges.place: member.first for member, _ in graph_of(net)}
    order = sorted(first)
    return all(first[place] == order[(at + 1) % len(order)] for at, place in enumerate(order))


def is_whole_alone(net: Network) -> bool:
    """Whether every reserve has one that is up."""
    up = {member.edges.place for member, _ in graph_of(net)}
    return all(any(each.place in up for each in linking.reserve(member)) for member, linking in graph_of(net))


class _Run:
    """A network in which half of the nodes crash at once, and are back later."""

    def __init__(self, seed: int, nodes: int, settings: FiltersSettings, overlay: str) -> None:
        kin = family_of(NetworkConfig(overlay=overlay, scheme="filters", filters=settings))
        plan = Plan("half", {"clock_skew": Fault(0.1)}, seconds=DOWN_S)
        timing = Timing(recovery_s=30, quiet_s=20)
        self.net = Network(overlay, "filters", nodes, seed, plan, kin=kin, timing=timing)
        self.random = Random(f"half/{seed}")
        self.nodes = nodes
        self.crashed: dict[str, None] = {}
        self.alone = False
        self.whole_s: float | None = None
        self.expected = self.missed = 0

    def crash(self) -> None:
        cluster, engine = self.net.cluster, self.net.engine
        for process in self.random.sample(sorted(cluster.alive(), key=lambda each: each.address), self.nodes // 2):
            self.crashed[process.address] = None
            cluster.crash(process)
        self.alone = is_whole_alone(self.net)
        for second in range(1, int(DOWN_S) - 2):
            engine.call(engine.now + second * MICROSECONDS, partial(self.look, second))
        engine.call(engine.now + int((DOWN_S - 3) * MICROSECONDS), self.count)

    def look(self, second: float) -> None:
        if not is_whole(self.net):
            self.whole_s = None
        elif self.whole_s is None:
            self.whole_s = second

    def count(self) -> None:
        history = self.net.clients.history
        for subscription in history.subscriptions.values():
            if subscription.address in self.crashed:
                continue
            came = {delivery.event for delivery in subscription.deliveries}
            filter_ = subscription.changes[-1].filter
            assert filter_ is not None
            for name, published in history.publications.items():
                is_wanted = filter_.conjunctions[0].accepts(published.event.attributes)
                if is_wanted and published.acknowledged is not None and published.address not in self.crashed:
                    self.expected += 1
                    self.missed += name not in came


def halve(seed: int, nodes: int, per_level: float, overlay: str = "chord") -> Halved:
    """Run a network in which half of the nodes crash at once, and are back later."""
    run = _Run(seed, nodes, FiltersSettings(reserves_per_level=per_level), overlay)
    net = run.net
    for number in range(2 * nodes):
        net.subscribe(f"a = {number % VALUES}")
    net._say("faults", run.crash)
    net.rest(REPAIR_S, phase="faults")
    for number in range(12):
        net.publish({"a": number % VALUES}, phase="faults")
    net.rest(12, phase="faults")
    for number in range(8):
        net.publish({"a": number % VALUES}, phase="after")
    net.run()
    report = net.report()
    return Halved(run.alone, run.whole_s, run.expected, run.missed, report.good, report.problems)


def main() -> None:
    """Print a table."""
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "10").rpartition("..")
    seeds = range(int(first or 0), int(last) + bool(first))
    nodes = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    say = sys.stdout.write
    say("| nodes | in reserve a level | whole by reserves alone | with repair | after s: median, most "
        "| missed by survivors | exact when all are back |\n")  # fmt: skip
    for per_level in map(float, sys.argv[3:] or ("1", "2")):
        runs = {seed: halve(seed, nodes, per_level) for seed in seeds}
        alone, exact = (sum(getattr(run, what) for run in runs.values()) for what in ("alone", "is_exact"))
        whole = [run.whole_s for run in runs.values() if run.whole_s is not None]
        missed, expected = (sum(getattr(run, what) for run in runs.values()) for what in ("missed", "expected"))
        say(f"| {nodes} | {per_level:g} | {alone} of {len(runs)} | {len(whole)} of {len(runs)} "
            f"| {median(whole):g}, {max(whole):g} | {missed} of {expected} | {exact} of {len(runs)} |\n")  # fmt: skip
        sys.stdout.flush()
        for seed, run in runs.items():
            if not run.is_exact or run.whole_s is None or run.missed:
                say(f"{seed}: {run}\n")


if __name__ == "__main__":
    main()
