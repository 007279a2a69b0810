"""Delivery (section 5.1): a message to each of k homes, or one walk round the ring, on rings of hashed ids.

The paper's rule sends messages where k · ½ log2 N < N. What a message really takes is measured, and with it the number
of homes from which on the walk is shorter.
"""

from __future__ import annotations

from math import ceil
from random import Random
from statistics import fmean
from typing import Final

from meetpoint.lab.experiments.cells import Parameters
from meetpoint.lab.experiments.models.rings import IdealRing, hashed
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import is_walk_cheaper

__all__ = ["measure_crossover", "measure_delivery"]

TRIALS: Final = 200
PAIRS: Final = 4_000


def measure_delivery(parameters: Parameters, seed: int) -> dict[str, float]:
    """Hops to so many distinct homes from some node, on average; the walk; and what the rule takes."""
    nodes, homes = int(parameters["nodes"]), int(parameters["homes"])
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    random = Random(f"delivery/{seed}/{homes}")
    hops = [
        sum(ring.hops(origin, ring.nodes[home]) for home in random.sample(range(nodes), homes))
        for origin in (random.randrange(nodes) for _ in range(TRIALS))
    ]
    walks = is_walk_cheaper(homes, nodes)
    return {
        "unicast_hops": fmean(hops),
        "walk_hops": nodes,
        "policy_hops": nodes if walks else fmean(hops),
    }


def measure_crossover(parameters: Parameters, seed: int) -> dict[str, float]:
    """From how many homes on the walk takes no more hops: measured, and by the rule."""
    nodes = int(parameters["nodes"])
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    random = Random(f"crossover/{seed}")
    pairs = ((random.randrange(nodes), ring.nodes[random.randrange(nodes)]) for _ in range(PAIRS))
    hops = fmean(ring.hops(origin, home) for origin, home in pairs)
    by_rule = next(homes for homes in range(1, nodes + 1) if is_walk_cheaper(homes, nodes))
    return {"hops": hops, "measured_homes": ceil(nodes / hops), "rule_homes": by_rule}
