"""Nodes crash while events are published: paper C's routing breaks down then (section 4.3); ours goes round them.

The nodes crash at once and are back before others would take their regions over; the others publish from then on. What
is counted is what the survivors' subscriptions should have had of the survivors' events, and had not yet when they were
about to be back. What is lost makes the cell fail.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged
from meetpoint.lab.experiments.reach.events import PLAIN, named
from meetpoint.lab.experiments.results import Results
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.faults.plans import Fault, Plan
from meetpoint.lab.sim.scenario import Network, Timing

__all__ = ["CRASH_CLAIMS", "run_crashes"]

DOWN_S: Final = 20.0
LOOKED_S: Final = 2.0
"""How long before they are back it is looked what has come."""
REST_S: Final = 5.0
ATTRIBUTES: Final = 6


class _Run:
    def __init__(self, nodes: int, crashed: int, seed: int) -> None:
        schema = "attributes:\n" + "".join(f"  {name}: integer\n" for name in named(ATTRIBUTES))
        config = NetworkConfig(overlay="hypercube", scheme="reach", reach=msgspec.structs.replace(PLAIN, schema=schema))
        plan = Plan("crash", {"clock_skew": Fault(0.1)}, seconds=DOWN_S)
        timing = Timing(recovery_s=30, quiet_s=20)
        self.net = Network("hypercube", "reach", nodes, seed, plan, kin=family_of(config), timing=timing)
        self.random = Random(f"crashes/{seed}")
        self.count = crashed
        self.down: set[str] = set()
        self.expected = self.late = 0

    def crash(self) -> None:
        """So many at once."""
        engine = self.net.engine
        alive = sorted(self.net.cluster.alive(), key=lambda each: each.address)
        for process in self.random.sample(alive, self.count):
            self.down.add(process.address)
            self.net.cluster.crash(process)
        engine.call(engine.now + int((DOWN_S - LOOKED_S) * SECOND_US), self.look)

    def look(self) -> None:
        """What has come of survivors' events to survivors' subscriptions."""
        history = self.net.clients.history
        for subscription in history.subscriptions.values():
            if subscription.address in self.down:
                continue
            filter_ = subscription.changes[-1].filter
            assert filter_ is not None
            came = {delivery.event for delivery in subscription.deliveries}
            for name, published in history.publications.items():
                is_ours = published.address not in self.down and published.acknowledged is not None
                if is_ours and filter_.conjunctions[0].accepts(published.event.attributes):
                    self.expected += 1
                    self.late += name not in came


def run_crashes(parameters: Parameters, seed: int) -> Metrics:
    """MeetpointError where anything is missed, or comes twice, when all are back."""
    nodes = int(parameters["nodes"])
    run = _Run(nodes, int(parameters["crashed"]), seed)
    names = named(ATTRIBUTES)
    for number in range(int(parameters["subscriptions"])):
        wanted = run.random.sample(names, 1 + number % 2)
        run.net.subscribe(" AND ".join(f"{name} > 0" for name in sorted(wanted)))
    run.net.happen(run.crash)
    for _ in range(int(parameters["events"])):
        run.net.publish(dict.fromkeys(run.random.sample(names, run.random.randint(1, ATTRIBUTES)), 1))
    run.net.rest(REST_S)
    run.net.run()
    report = run.net.report()
    if not report.good:
        raise MeetpointError(f"reach, seed {seed}: nodes crashed, and it was wrong: {'; '.join(report.problems)}")
    return {"expected": run.expected, "late": run.late}


def _judge(results: Results) -> Judged:
    counts = [int(crashed) for crashed in results.distinct("crashes", "crashed")]
    expected, late = (
        sum(sum(results.by_seed("crashes", metric, crashed=crashed).values()) for crashed in counts)
        for metric in ("expected", "late")
    )
    (nodes,) = results.distinct("crashes", "nodes")
    return Judged(
        ours=f"0 of {expected:,.0f} notifications lost with {' or '.join(map(str, counts))} of {nodes} nodes down for "
        f"{DOWN_S:.0f} s; {1 - late / expected:.0%} came while they were down",
        verdict="reproduced" if late < expected else "not reproduced",
        why="The paper's routing breaks down when a node on the way fails, as it says itself. Ours goes round it. What "
        "only the crashed node hosts waits until it is back, or until others take its region over after 30 s; what was "
        "acknowledged is on two disks. A run that loses anything, or notifies twice, fails.",
    )


CRASH_CLAIMS: Final = (
    Claim(
        id="C26",
        place="section 4.3; ours",
        says="Fault tolerance can be added: a crash loses no subscription, and routing goes round it.",
        number="none given (left open)",
        judge=_judge,
    ),
)
