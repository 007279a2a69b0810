"""Balance (section 7.2): values of 7 letters of 6 attributes by Zipf's law, on evenly spaced ids and on hashed ones."""

from __future__ import annotations

from meetpoint.lab.experiments.cells import Parameters
from meetpoint.lab.experiments.models.balance import loads, max_to_mean, max_to_min, placed_words
from meetpoint.lab.experiments.models.rings import hashed, spaced
from meetpoint.node.runtime.ring import Ring

__all__ = ["run"]


def run(parameters: Parameters, seed: int) -> dict[str, float]:
    """How evenly entries lie at nodes."""
    nodes, ring = int(parameters["nodes"]), Ring()
    ids = spaced(ring, nodes) if parameters["ids"] == "spaced" else hashed(ring, nodes, seed)
    load = loads(placed_words(float(parameters["theta"]), int(parameters["entries"]), seed), ids)
    return {"max_to_min": max_to_min(load), "max_to_mean": max_to_mean(load)}
