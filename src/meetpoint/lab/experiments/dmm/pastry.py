"""What paper D says of Pastry (section 2.2): how far keys are, how much a node knows, how many keys it stores."""

from __future__ import annotations

import statistics
from typing import Any, Final

from meetpoint.catalog import NetworkConfig
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.dmm.networks import judged
from meetpoint.lab.experiments.experiment import Claim, Judged, Verdict
from meetpoint.lab.experiments.results import Results
from meetpoint.lab.sim.bare import BareNodes
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.overlays.pastry import PastrySettings

__all__ = ["PASTRY_CLAIMS", "run_routes", "steps_of"]

DIGIT: Final = 1 << PastrySettings().digit_bits
"""Values of a digit: 2^b."""
EVEN: Final = 1.5
"""Keys are K/N each, more or less, where the fullest has at most so many times the mean."""


def steps_of(peers: int) -> int:
    """⌈log N⌉ to the base of a digit, in whole numbers."""
    steps, reach = 0, 1
    while reach < peers:
        steps += 1
        reach *= DIGIT
    return max(steps, 1)


def run_routes(parameters: Parameters, seed: int) -> Metrics:
    """Nodes that are only Pastry, and cache no routes: hops of random keys, and links."""
    peers = int(parameters["peers"])
    kin = family_of(NetworkConfig(overlay="pastry", pastry=PastrySettings(cache_max=0)), BareNodes())
    net = Network("pastry", "none", peers, seed, kin=kin, timing=Timing(calm_s=20.0, after_s=20.0, quiet_s=2.0))
    for _ in range(int(parameters["lookups"])):
        net.lookup()
    judged(net)
    hops = [each.hops for each in net.clients.history.lookups]
    views: list[Any] = [process.view for process in net.cluster.processes]
    known = [len({*view.leaves, *view.rows} - {bytes(view.id)}) for view in views]
    limit = steps_of(peers)
    return {
        "hops": statistics.mean(hops),
        "hops_max": max(hops),
        "longer_share": sum(each > limit for each in hops) / len(hops),
        "links": statistics.mean(known),
        "rows": statistics.mean(len(set(view.rows)) for view in views),
    }


def _verdict(holds: bool, in_part: bool = False) -> Verdict:
    return "reproduced" if holds else "in part" if in_part else "not reproduced"


def _sizes(results: Results) -> list[int]:
    return [int(peers) for peers in results.distinct("routes", "peers")]


def _judge_hops(results: Results) -> Judged:
    sizes = _sizes(results)
    hops = {peers: results.spread("routes", "hops", peers=peers) for peers in sizes}
    longer = {peers: results.spread("routes", "longer_share", peers=peers).high for peers in sizes}
    beyond = max(results.spread("routes", "hops_max", peers=peers).high - steps_of(peers) for peers in sizes)
    return Judged(
        ours="; ".join(
            f"{each.told()} at {peers} peers, where it is {steps_of(peers)}" for peers, each in hops.items()
        ),
        verdict=_verdict(beyond <= 0, beyond <= 1),
        why=f"Mean hops, digits of {DIGIT.bit_length() - 1} bits, no cached routes. Up to {max(longer.values()):.0%} "
        f"of the lookups take more than the formula says, by {max(beyond, 0):.0f} at most: the last step, from whoever "
        "shares the most digits with a key to the node that is numerically closest. The formula leaves it out.",
    )


def _judge_state(results: Results) -> Judged:
    sizes = _sizes(results)
    rows = {peers: results.spread("routes", "rows", peers=peers) for peers in sizes}
    links = results.spread("routes", "links", peers=sizes[-1])
    steps = {peers: rows[peers].median / ((DIGIT - 1) * steps_of(peers)) for peers in sizes}
    return Judged(
        ours=f"{rows[sizes[-1]].told(1)} in the table of {sizes[-1]} peers, {links.told(1)} with the leaf set",
        verdict=_verdict(max(steps.values()) <= 1),
        why="A row has a place for each other value of a digit, and there are about as many rows as hops: "
        + ", ".join(f"{rows[peers].median:.1f} of {(DIGIT - 1) * steps_of(peers)} places at {peers}" for peers in sizes)
        + ". Small networks have everybody in the leaf set anyhow.",
    )


def _judge_keys(results: Results) -> Judged:
    sizes = [int(peers) for peers in results.distinct("balance", "peers", stored="keys")]
    last = sizes[-1]
    shares = {peers: results.spread("balance", "largest_share", stored="keys", peers=peers) for peers in sizes}
    worst = {peers: peers * share.median for peers, share in shares.items()}
    return Judged(
        ours=f"the fullest of {last} peers has {worst[last]:.2f} times K/N ({last * shares[last].low:.2f} to "
        f"{last * shares[last].high:.2f}, {shares[last].seeds} seeds)",
        verdict=_verdict(max(worst.values()) <= EVEN, min(worst.values()) <= EVEN),
        why=f"1,000 keys; over all sizes {min(worst.values()):.2f} to {max(worst.values()):.2f}. Keys are spread "
        "evenly over the circle, peers are not: a random arc may be several times the mean. Ids at equal distances, or "
        "several ids a peer, make it true.",
    )


PASTRY_CLAIMS: Final = (
    Claim(
        id="D16",
        place="section 2.2",
        says="Pastry routes a message in ⌈log N⌉ hops, to the base 2^b.",
        number="⌈log_{2^b} N⌉",
        judge=_judge_hops,
    ),
    Claim(
        id="D17",
        place="section 2.2",
        says="That takes O(log N) state at a node.",
        number="O(log N)",
        judge=_judge_state,
    ),
    Claim(
        id="D18",
        place="section 2.2",
        says="Of K keys each of N nodes stores K/N, with high probability.",
        number="K/N",
        judge=_judge_keys,
    ),
)
