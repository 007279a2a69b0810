"""The same strings on several overlays: the paper's solution is to run on any DHT (abstract, sections 2.3 and 8)."""

from __future__ import annotations

from typing import Final

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged
from meetpoint.lab.experiments.results import NotMeasured, Results
from meetpoint.lab.sim.compare.compare import Trial, measure_with_report
from meetpoint.lab.sim.compare.given import Given
from meetpoint.lab.workloads.paper_b import PaperB

__all__ = ["OVERLAY_CLAIMS", "run_overlays"]


def run_overlays(parameters: Parameters, seed: int) -> Metrics:
    """Simulated brokers that run `lists`; MeetpointError where anything is missed, or wrong."""
    workload = PaperB(seed=seed, attributes=10, values_theta=1.0)
    given = Given(
        filters=tuple(workload.subscriptions(int(parameters["subscriptions"]))),
        events=tuple(workload.events(int(parameters["events"]))),
        schema=workload.schema,
    )
    overlay = str(parameters["overlay"])
    trial = Trial(scheme="lists", overlay=overlay, nodes=int(parameters["nodes"]), seed=seed)
    costs, _ = measure_with_report(trial, given)
    if not costs.good:
        raise MeetpointError(f"strings: {overlay}, seed {seed}: the network was wrong: {'; '.join(costs.problems)}")
    assert costs.event is not None
    assert costs.subscription is not None
    return {
        "notifications": costs.notifications_expected,
        "messages_per_event": costs.event_by_purpose["events"].messages,
        "messages_per_subscription": costs.subscription.messages,
    }


def _judge(results: Results) -> Judged:
    overlays = [str(overlay) for overlay in results.distinct("overlays", "overlay")]
    if len(overlays) < 2:
        raise NotMeasured("overlays: only one was run")
    found = {
        overlay: [
            results.spread("overlays", f"messages_per_{what}", overlay=overlay) for what in ("event", "subscription")
        ]
        for overlay in overlays
    }
    notified = {overlay: results.by_seed("overlays", "notifications", overlay=overlay) for overlay in overlays}
    is_same = len({tuple(sorted(each.items())) for each in notified.values()}) == 1
    total = sum(notified[overlays[0]].values())
    return Judged(
        ours="; ".join(
            f"{overlay}: {event.told(0)} messages an event, {subscription.told(0)} a subscription"
            for overlay, (event, subscription) in found.items()
        ),
        verdict="reproduced" if is_same and total else "not reproduced",
        why=f"Brokers on three overlays, the same strings: on each the oracle expects {total:.0f} notifications and "
        "finds neither more nor fewer, or the run would have failed. What differs is how many hops a lookup takes.",
    )


OVERLAY_CLAIMS: Final = (
    Claim(
        id="B22",
        place="abstract, sections 2.3 and 8",
        says="The solution is independent of the DHT.",
        number="none given",
        judge=_judge,
    ),
)
