"""What is run of experiment B, at full size and quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meetpoint.lab.experiments.cells import Parameter
from meetpoint.lab.experiments.experiment import Part, grid
from meetpoint.lab.experiments.strings import (
    balance,
    delivering,
    lookups,
    ordering,
    overlays,
    spreading,
    storing,
    traffic,
)

__all__ = ["PARTS"]

NODES: Final = 128
THETAS: Final = (0.1, 0.4, 0.7, 1.0)
SCHEMAS: Final[dict[str, Sequence[Parameter]]] = {"attributes": (10, 50), "constraints": ("equality", "mixed")}
"""What the paper leaves open, and its figures depend on."""
LENGTHS: Final = tuple(range(1, 11))
HOMES: Final = (1, 4, 8, 16, 24, 32, 36, 40, 48, 64)

_SPREAD: Final = (
    *grid(load="stored", length=(1, 2, 3, 7), attributes=(1, 6, 60), theta=0.5, nodes=NODES, keys=400_000),
    *grid(load=spreading.LOADS[1:], length=7, attributes=6, theta=0.5, nodes=NODES, keys=400_000),
)

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
    Part(
        name="storing",
        says="hops to store a constraint on a string, and lookups to update it",
        run=storing.run_storing,
        full=grid(kind=tuple(storing.FORMS), nodes=(16, 64, 256, 1024, 4096), constraints=1_000),
        quick=grid(kind=tuple(storing.FORMS), nodes=(16, 256), constraints=1_000),
        seeds=3,
    ),
    Part(
        name="examples",
        says="the paper's examples 1 and 2",
        run=storing.run_examples,
        full=({},),
        quick=({},),
        seeds=1,
        quick_seeds=1,
    ),
    Part(
        name="order",
        says="SubIDs for an event by the order in which its attributes are asked",
        run=ordering.run_order,
        full=grid(order=ordering.ORDERS, attributes=(10, 50), nodes=NODES, subscriptions=10_000, events=3_000),
        quick=grid(order=ordering.ORDERS, attributes=(10, 50), nodes=32, subscriptions=2_000, events=500),
        seeds=3,
    ),
    Part(
        name="spreading",
        says="how evenly values lie, and are asked for, by their length and the number of attributes",
        run=spreading.run_spreading,
        full=_SPREAD,
        quick=tuple(cell for cell in _SPREAD if cell["length"] != 3),
        seeds=3,
        quick_seeds=1,
    ),
    Part(
        name="overlays",
        says="the same strings on several overlays, by simulated brokers",
        run=overlays.run_overlays,
        full=grid(overlay=("chord", "pastry", "hypercube"), nodes=32, subscriptions=200, events=60),
        quick=grid(overlay=("chord", "pastry", "hypercube"), nodes=16, subscriptions=60, events=20),
        seeds=3,
        quick_seeds=1,
    ),
)
