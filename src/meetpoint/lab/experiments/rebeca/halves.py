"""Half of the nodes of a running network fail at once: does the graph hold together, and do the others go on?

The nodes crash together; the survivors publish from then on, an event a second; the others are back later. Whether the
ring of the graph is whole *by reserves alone* is read off the reserves that the survivors have at that moment: each
needs one that lives, and the first that does is then the next survivor. *With repair* is what really happens: the first
edge of every survivor leads to the next, at last.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from statistics import mean, median
from typing import Any, NamedTuple

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.faults.plans import Fault, Plan
from meetpoint.lab.sim.judge.history import Publication, Subscription
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.schemes.rebeca import RebecaSettings
from meetpoint.schemes.rebeca.member import EdgeTargets, Member

__all__ = ["Halved", "graph_of", "halve", "run_halves"]

DOWN_S = 35.0
"""How long they are down."""
EVENTS = 24
REST_S = 11.0
"""How long nobody publishes before they are back."""
LOOKED_S = 3.0
"""How long before that it is looked what has come."""
PROMPT_S = 1.0
"""An event that is notified of within this was not held up; without faults it takes less than half of it."""
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
    waited: int
    """Those that came later than `PROMPT_S` after they were published."""
    last_waited_s: float
    """How long after the crash the last of these was published; 0 where there are none."""
    longest_s: float
    """How long the longest wait was."""
    is_exact: bool
    """Whether all that was published came to all, once, when all were back."""
    problems: list[str]


def graph_of(net: Network) -> Iterator[tuple[Member, EdgeTargets]]:
    """All members of the graph at nodes that are up."""
    for process in net.cluster.alive():
        node: Any = process.node
        members = node.scheme.members
        for member in members.all():
            yield member, members.targets


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

    def __init__(self, seed: int, nodes: int, settings: RebecaSettings, overlay: str) -> None:
        kin = family_of(NetworkConfig(overlay=overlay, scheme="rebeca", rebeca=settings))
        plan = Plan("half", {"clock_skew": Fault(0.1)}, seconds=DOWN_S)
        timing = Timing(recovery_s=30, quiet_s=20)
        self.net = Network(overlay, "rebeca", nodes, seed, plan, kin=kin, timing=timing)
        self.random = Random(f"half/{seed}")
        self.nodes = nodes
        self.crashed: dict[str, None] = {}
        self.crashed_at = 0
        self.alone = False
        self.whole_s: float | None = None
        self.expected = self.missed = 0
        self.waited = 0
        self.last_waited_s = self.longest_s = 0.0

    def crash(self) -> None:
        cluster, engine = self.net.cluster, self.net.engine
        self.crashed_at = engine.now
        for process in self.random.sample(sorted(cluster.alive(), key=lambda each: each.address), self.nodes // 2):
            self.crashed[process.address] = None
            cluster.crash(process)
        self.alone = is_whole_alone(self.net)
        for second in range(1, int(DOWN_S) - 2):
            engine.call(engine.now + second * SECOND_US, partial(self.look, second))
        engine.call(engine.now + int((DOWN_S - LOOKED_S) * SECOND_US), self.count)

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
            filter_ = subscription.changes[-1].filter
            assert filter_ is not None
            for name, published in history.publications.items():
                is_wanted = filter_.conjunctions[0].accepts(published.event.attributes)
                if is_wanted and published.acknowledged is not None and published.address not in self.crashed:
                    self.expected += 1
                    self.note(subscription, name, published)

    def note(self, subscription: Subscription, name: str, published: Publication) -> None:
        """When a survivor was notified of a survivor's event."""
        came = next((delivery.at for delivery in subscription.deliveries if delivery.event == name), None)
        if came is None:
            self.missed += 1
            return
        waited_s = (came - published.asked) / SECOND_US
        self.longest_s = max(self.longest_s, waited_s)
        if waited_s > PROMPT_S:
            self.waited += 1
            self.last_waited_s = max(self.last_waited_s, (published.asked - self.crashed_at) / SECOND_US)


def halve(seed: int, nodes: int, per_level: float, overlay: str = "chord") -> Halved:
    """Run a network in which half of the nodes crash at once, and are back later."""
    run = _Run(seed, nodes, RebecaSettings(reserves_per_level=per_level), overlay)
    net = run.net
    for number in range(2 * nodes):
        net.subscribe(f"a = {number % VALUES}")
    net.happen(run.crash)
    for number in range(EVENTS):
        net.publish({"a": number % VALUES})
    net.rest(REST_S)
    for number in range(8):
        net.publish({"a": number % VALUES}, phase="after")
    net.run()
    report = net.report()
    waits = (run.waited, run.last_waited_s, run.longest_s)
    return Halved(run.alone, run.whole_s, run.expected, run.missed, *waits, report.good, report.problems)


def run_halves(parameters: Parameters, seed: int) -> Metrics:
    """Some networks, each of its own seed."""
    found = []
    for number in range(int(parameters["runs"])):
        halved = halve(1000 * seed + number, int(parameters["nodes"]), float(parameters["per_level"]))
        if not halved.is_exact:
            raise MeetpointError(f"rebeca: half of a network failed, {parameters}: {'; '.join(halved.problems)}")
        found.append(halved)
    whole_s = [halved.whole_s for halved in found if halved.whole_s is not None]
    metrics = {
        "whole_alone": mean(halved.alone for halved in found),
        "whole_repaired": len(whole_s) / len(found),
        "expected": sum(halved.expected for halved in found),
        "missed": sum(halved.missed for halved in found),
        "waited_share": sum(halved.waited for halved in found) / sum(halved.expected for halved in found),
        "last_waited_s": max(halved.last_waited_s for halved in found),
        "longest_wait_s": max(halved.longest_s for halved in found),
    }
    return {**metrics, "whole_s": median(whole_s), "whole_s_most": max(whole_s)} if whole_s else metrics
