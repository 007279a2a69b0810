"""What is run of experiment B, at full size and quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meetpoint.experiments.cells import Parameter
from meetpoint.experiments.experiment import Part, grid
from meetpoint.experiments.strings import balance, delivering, lookups, traffic

__all__ = ["PARTS"]

NODES: Final = 128
THETAS: Final = (0.1, 0.4, 0.7, 1.0)
SCHEMAS: Final[dict[str, Sequence[Parameter]]] = {"attributes": (10, 50), "constraints": ("equality", "mixed")}
"""What the paper leaves open, and its figures depend on."""
LENGTHS: Final = tuple(range(1, 11))
HOMES: Final = (1, 4, 8, 16, 24, 32, 36, 40, 48, 64)

PARTS: Final = (
    Part(
        name="traffic",
        says="SubIDs, lookups and messages for an event, by all modes, corrected and as printed",
        run=traffic.run,
        full=grid(figure=traffic.FIGURES, theta=THETAS, **SCHEMAS, nodes=NODES, subscriptions=10_000, events=30_000),
        quick=grid(
            figure=traffic.FIGURES, theta=(0.1, 0.5, 1.0), **SCHEMAS, nodes=32, subscriptions=2_000, events=1_000
        ),
        seeds=2,
    ),
    Part(
        name="lookups",
        says="DHT lookups for an event, with one node an attribute",
        run=lookups.count_lookups,
        full=grid(attributes=range(1, 11), nodes=NODES),
        quick=grid(attributes=(1, 2, 5, 10), nodes=NODES),
    ),
    Part(
        name="keys",
        says="DHT lookups for one string",
        run=lookups.count_keys,
        full=grid(length=LENGTHS),
        quick=grid(length=(1, 3, 7)),
        seeds=2,
        quick_seeds=1,
    ),
    Part(
        name="delivery",
        says="hops to bring an event to its homes, each apart or by one walk",
        run=delivering.measure_delivery,
        full=grid(homes=HOMES, nodes=NODES),
        quick=grid(homes=(1, 16, 32, 40, 64), nodes=NODES),
    ),
    Part(
        name="crossover",
        says="from how many homes on a walk is shorter",
        run=delivering.measure_crossover,
        full=grid(nodes=(16, 32, 64, 128, 256, 512, 1024, 4096)),
        quick=grid(nodes=(16, 128, 1024)),
    ),
    Part(
        name="balance",
        says="the largest load of a node to the least",
        run=balance.run,
        full=grid(ids=("hashed", "spaced"), entries=(60_000, 1_000_000), theta=(0.5, 1.0), nodes=NODES),
        quick=grid(ids=("hashed", "spaced"), entries=(60_000, 1_000_000), theta=0.5, nodes=NODES),
        seeds=3,
    ),
)
