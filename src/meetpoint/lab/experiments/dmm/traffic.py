"""What an event takes in all, and at each peer, by the number of peers: paper D's preliminary results (section 7)."""

from __future__ import annotations

from typing import Final

from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged, Verdict
from meetpoint.lab.experiments.results import Results
from meetpoint.lab.sim.compare.compare import Trial, measure_with_report
from meetpoint.lab.sim.compare.given import Given
from meetpoint.lab.workloads.generating import event_rows, filter_texts, generate
from meetpoint.lab.workloads.zipf import Zipf

__all__ = ["TRAFFIC_CLAIMS", "run_traffic"]


def run_traffic(parameters: Parameters, seed: int) -> Metrics:
    """Simulated brokers on Pastry; MeetpointError where anything is missed, or wrong."""
    peers, events = int(parameters["peers"]), int(parameters["events"])
    shape = Zipf(width=0.05, held=8)
    made = generate(shape, int(parameters["subscriptions"]), events, seed)
    given = Given(
        filters=tuple(text for _, text in filter_texts(made)), events=tuple(event_rows(made)), schema=shape.schema
    )
    costs, _ = measure_with_report(Trial(scheme="dmm", overlay="pastry", nodes=peers, seed=seed), given)
    if not costs.good:
        raise MeetpointError(f"dmm, seed {seed}: the network was wrong: {'; '.join(costs.problems)}")
    bringing = costs.event_by_purpose["events"]
    return {
        "bytes_per_event": bringing.bytes,
        "bytes_per_event_and_peer": bringing.bytes / peers,
        "messages_per_event": bringing.messages,
    }


def _verdict(holds: bool, in_part: bool = False) -> Verdict:
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


def _judge(results: Results) -> Judged:
    sizes = [int(peers) for peers in results.distinct("traffic", "peers")]
    (few, all_few), (many, all_many) = (
        (
            results.spread("traffic", "bytes_per_event_and_peer", peers=peers),
            results.spread("traffic", "bytes_per_event", peers=peers),
        )
        for peers in (sizes[0], sizes[-1])
    )
    falls, rises = all_few.high < all_many.low, few.low > many.high
    return Judged(
        ours=f"{all_few.told(0)} bytes an event with {sizes[0]} peers, {all_many.told(0)} with {sizes[-1]}; "
        f"{few.told(0)} and {many.told(0)} for each peer",
        verdict=_verdict(falls and rises, falls or rises),
        why="Bytes that find an event's leaf and notify its subscribers, on simulated brokers; what keeps a network "
        "up, and events safe, is left out. Between few peers more of the way is within a peer.",
    )


TRAFFIC_CLAIMS: Final = (
    Claim(
        id="D21",
        place="section 7",
        says="The smaller the network, the less bandwidth matching takes in all, and the more load has each peer.",
        number="none given (preliminary results)",
        judge=_judge,
    ),
)
