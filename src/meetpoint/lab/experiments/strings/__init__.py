"""Experiment B: string attributes over any DHT (paper B). Its parts, figures and claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from meetpoint.lab.experiments.experiment import ClaimedCurve, Experiment, ExperimentPart, Figure, Fit, Parameter, grid
from meetpoint.lab.experiments.strings.claims import CLAIMS
from meetpoint.lab.experiments.strings.storage import (
    FORMS,
    LOADS,
    SPREADING_CLAIMS,
    STORING_CLAIMS,
    run_balance,
    run_examples,
    run_spreading,
    run_storing,
)
from meetpoint.lab.experiments.strings.traffic import (
    ORDERING_CLAIMS,
    ORDERS,
    OVERLAY_CLAIMS,
    TRAFFIC_FIGURES,
    count_keys,
    count_lookups,
    measure_crossover,
    measure_delivery,
    run_order,
    run_overlays,
    run_traffic,
)
from meetpoint.schemes.lists.collection import CollectionMode

__all__ = ["EXPERIMENT"]


# -- parts -------------------------------------------------------------------------------------------------------------


NODES: Final = 128
THETAS: Final = (0.1, 0.4, 0.7, 1.0)
SCHEMAS: Final[dict[str, Sequence[Parameter]]] = {"attributes": (10, 50), "constraints": ("equality", "mixed")}
"""The choices that the paper leaves open, and its figures depend on."""
LENGTHS: Final = tuple(range(1, 11))
HOMES: Final = (1, 4, 8, 16, 24, 32, 36, 40, 48, 64)

_SPREAD: Final = (
    *grid(load="stored", length=(1, 2, 3, 7), attributes=(1, 6, 60), theta=0.5, nodes=NODES, keys=400_000),
    *grid(load=LOADS[1:], length=7, attributes=6, theta=0.5, nodes=NODES, keys=400_000),
)

PARTS: Final = (
    ExperimentPart(
        name="traffic",
        says="SubIDs, lookups and messages for an event, by all modes, corrected and as printed",
        run=run_traffic,
        full=grid(figure=TRAFFIC_FIGURES, theta=THETAS, **SCHEMAS, nodes=NODES, subscriptions=10_000, events=30_000),
        quick=grid(
            figure=TRAFFIC_FIGURES, theta=(0.1, 0.5, 1.0), **SCHEMAS, nodes=32, subscriptions=2_000, events=1_000
        ),
        seeds=2,
    ),
    ExperimentPart(
        name="lookups",
        says="DHT lookups for an event, with one node an attribute",
        run=count_lookups,
        full=grid(attributes=range(1, 11), nodes=NODES),
        quick=grid(attributes=(1, 2, 5, 10), nodes=NODES),
    ),
    ExperimentPart(
        name="keys",
        says="DHT lookups for one string",
        run=count_keys,
        full=grid(length=LENGTHS),
        quick=grid(length=(1, 3, 7)),
        seeds=2,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="delivery",
        says="hops to bring an event to its homes, each apart or by one walk",
        run=measure_delivery,
        full=grid(homes=HOMES, nodes=NODES),
        quick=grid(homes=(1, 16, 32, 40, 64), nodes=NODES),
    ),
    ExperimentPart(
        name="crossover",
        says="from how many homes on a walk is shorter",
        run=measure_crossover,
        full=grid(nodes=(16, 32, 64, 128, 256, 512, 1024, 4096)),
        quick=grid(nodes=(16, 128, 1024)),
    ),
    ExperimentPart(
        name="balance",
        says="the largest load of a node to the least",
        run=run_balance,
        full=grid(ids=("hashed", "spaced"), entries=(60_000, 1_000_000), theta=(0.5, 1.0), nodes=NODES),
        quick=grid(ids=("hashed", "spaced"), entries=(60_000, 1_000_000), theta=0.5, nodes=NODES),
        seeds=3,
    ),
    ExperimentPart(
        name="storing",
        says="hops to store a constraint on a string, and lookups to update it",
        run=run_storing,
        full=grid(kind=tuple(FORMS), nodes=(16, 64, 256, 1024, 4096), constraints=1_000),
        quick=grid(kind=tuple(FORMS), nodes=(16, 256), constraints=1_000),
        seeds=3,
    ),
    ExperimentPart(
        name="examples",
        says="the paper's examples 1 and 2",
        run=run_examples,
        full=({},),
        quick=({},),
        seeds=1,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="order",
        says="SubIDs for an event by the order in which its attributes are asked",
        run=run_order,
        full=grid(order=ORDERS, attributes=(10, 50), nodes=NODES, subscriptions=10_000, events=3_000),
        quick=grid(order=ORDERS, attributes=(10, 50), nodes=32, subscriptions=2_000, events=500),
        seeds=3,
    ),
    ExperimentPart(
        name="spreading",
        says="how evenly values lie, and are asked for, by their length and the number of attributes",
        run=run_spreading,
        full=_SPREAD,
        quick=tuple(cell for cell in _SPREAD if cell["length"] != 3),
        seeds=3,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="overlays",
        says="the same strings on several overlays, by simulated brokers",
        run=run_overlays,
        full=grid(overlay=("chord", "pastry", "hypercube"), nodes=32, subscriptions=200, events=60),
        quick=grid(overlay=("chord", "pastry", "hypercube"), nodes=16, subscriptions=60, events=20),
        seeds=3,
        quick_seeds=1,
    ),
)


# -- figures -----------------------------------------------------------------------------------------------------------


_VARIED: Final = {
    9: "θ of values, the same for all attributes; θ of attributes is 0.6",
    10: "θ of attributes; θ of values is 0.5",
    11: "θ of attributes; popular attributes have uniform values, unpopular ones skewed",
}
_ASKED: Final = {"equality": "values only", "mixed": "values, prefixes, suffixes and affixes"}
_SAYS: Final = {
    ("corrected", "equality"): "A value has one node, as where the paper reckons: what a group finds is with its "
    "leader, and is sent on once it is filtered.",
    ("corrected", "mixed"): "A group's leader collects from some ten nodes before it filters, so that distributed and "
    "hybrid send everything once more.",
    ("printed", "equality"): "As printed nothing is pruned: lists are many times as long as what could match.",
    ("printed", "mixed"): "As printed nothing is dropped that declares an attribute which the event lacks: such SubIDs "
    "are sent to the end by distributed and hybrid, and arrive.",
}


def _traffic() -> Iterator[Figure]:
    for figure, varied in _VARIED.items():
        for (version, constraints), says in _SAYS.items():
            yield Figure(
                name=f"figure-{figure}-{version}-{constraints}",
                title=f"Figure {figure}, {'as printed' if version == 'printed' else version}, "
                f"subscriptions ask for {_ASKED[constraints]}",
                part="traffic",
                x="theta",
                x_label=varied,
                y=tuple(f"{version}_{mode}_subids" for mode in CollectionMode),
                y_label="SubIDs sent an event, without deliveries",
                labels={
                    **{f"{version}_{mode}_subids": str(mode) for mode in CollectionMode},
                    10: "10 attributes",
                    50: "50 attributes",
                },
                panels="attributes",
                where={"figure": figure, "constraints": constraints},
                log_y=True,
                says=says,
            )


FIGURES: Final = (
    *_traffic(),
    Figure(
        name="wrong-as-printed",
        title="What is delivered wrongly as printed, workload of figure 9",
        part="traffic",
        x="theta",
        x_label=_VARIED[9],
        y=tuple(f"printed_{mode}_spurious" for mode in CollectionMode),
        y_label="subscriptions that an event reaches wrongly",
        labels={
            **{f"printed_{mode}_spurious": str(mode) for mode in CollectionMode},
            10: "10 attributes",
            50: "50 attributes",
        },
        panels="attributes",
        where={"figure": 9, "constraints": "mixed"},
        log_y=True,
        says="Coordinated takes half of an affix for the whole; distributed and hybrid take also what declares "
        "attributes that the event lacks. Both are 0 as corrected.",
    ),
    Figure(
        name="lookups",
        title="DHT lookups for an event, one node an attribute",
        part="lookups",
        x="attributes",
        x_label="k: nodes contacted, one for each attribute of the event",
        y=tuple(f"{mode}_lookups" for mode in CollectionMode),
        y_label="lookups",
        labels={f"{mode}_lookups": str(mode) for mode in CollectionMode},
        drawn=(
            ClaimedCurve(label="2k", y=lambda nodes: 2 * nodes),
            ClaimedCurve(label="k + 1", y=lambda nodes: nodes + 1),
        ),
        says="Exactly as the paper reckons, where an attribute has one node.",
    ),
    Figure(
        name="keys",
        title="Lookups for one string",
        part="keys",
        x="length",
        x_label="length of the value in characters",
        y=("printed_lookups", "distinct_keys", "corrected_lookups"),
        y_label="lookups",
        labels={
            "printed_lookups": "as printed",
            "distinct_keys": "distinct keys among them",
            "corrected_lookups": "corrected, with those for substrings and for events without attributes",
        },
        drawn=(
            ClaimedCurve(label="1 + 2l", y=lambda length: 1 + 2 * length),
            ClaimedCurve(label="2l - 1", y=lambda length: 2 * length - 1),
        ),
        says="The whole value is looked up three times as printed; once is enough.",
    ),
    Figure(
        name="delivery",
        title="Bringing an event to its homes, 128 brokers",
        part="delivery",
        x="homes",
        x_label="k: homes that want the event",
        y=("unicast_hops", "walk_hops", "policy_hops"),
        y_label="hops",
        labels={"unicast_hops": "to each apart", "walk_hops": "one walk", "policy_hops": "by the rule"},
        drawn=(ClaimedCurve(label="k · ½ log2 N", y=lambda homes: homes * math.log2(128) / 2),),
        where={"nodes": 128},
        says="The rule changes over about where the lines cross.",
    ),
    Figure(
        name="crossover",
        title="From how many homes on a walk is shorter",
        part="crossover",
        x="nodes",
        x_label="N: brokers",
        y=("measured_homes", "rule_homes"),
        y_label="homes",
        labels={"measured_homes": "measured", "rule_homes": "by the rule, k · ½ log2 N >= N"},
        log_x=True,
        log_y=True,
        says="To a node that is known by its id a message takes about ½ log2 N hops, as the rule has it.",
    ),
    Figure(
        name="balance",
        title="Balance of entries, 128 brokers, θ of values 0.5",
        part="balance",
        x="entries",
        x_label="entries of 6 attributes with values of 7 letters",
        y="max_to_min",
        y_label="largest load of a broker to the least",
        lines="ids",
        labels={"hashed": "hashed ids", "spaced": "evenly spaced ids"},
        where={"theta": 0.5},
        log_x=True,
        log_y=True,
        drawn=(ClaimedCurve(label="the paper: 1.07", y=lambda entries: 1.07),),
        says="1.07 takes evenly spaced ids and very many entries. Brokers have hashed ids.",
    ),
    Figure(
        name="storing",
        title="Storing a constraint on a string",
        part="storing",
        x="nodes",
        x_label="N: brokers",
        y="hops",
        y_label="mean hops, as printed",
        lines="kind",
        labels={"affix": "affix (the paper's containment)"},
        log_x=True,
        drawn=(
            ClaimedCurve(label="½ log2 N", y=lambda nodes: math.log2(nodes) / 2),
            ClaimedCurve(label="twice that", y=math.log2),
        ),
        fit=Fit(model="log"),
        says="A value, a prefix and a suffix are one lookup, an affix two; a lookup takes nearly a hop more than "
        "½ log2 N. Brokers store an affix once.",
    ),
    Figure(
        name="order",
        title="SubIDs by the order in which attributes are asked",
        part="order",
        x="order",
        x_label="order of attributes",
        y=tuple(f"{mode}_subids" for mode in CollectionMode),
        y_label="SubIDs sent an event, without deliveries",
        labels={**{f"{mode}_subids": str(mode) for mode in CollectionMode}, 10: "10 attributes", 50: "50 attributes"},
        panels="attributes",
        says="Coordinated matching asks all at once, so that the order is nothing to it. The others filter on the way: "
        "the shorter the first lists, the less is passed on.",
    ),
    Figure(
        name="spreading",
        title="Balance by the number of attributes, 128 evenly spaced brokers",
        part="spreading",
        x="attributes",
        x_label="attributes of the schema",
        y="max_to_mean",
        y_label="largest load to the mean",
        lines="length",
        labels={length: f"values of {length} letter{'s' if length > 1 else ''}" for length in (1, 2, 3, 7)},
        where={"load": "stored"},
        log_x=True,
        log_y=True,
        says="400,000 entries, θ of values 0.5. More attributes even out what few values make uneven; of many values "
        "there is nothing to even out.",
    ),
)


# -- the experiment ----------------------------------------------------------------------------------------------------


EXPERIMENT: Final = Experiment(
    name="strings",
    title="String attributes over DHTs (paper B)",
    about=(
        "Figures 9 to 11 count the SubIDs that are sent for an event, each time that one is sent, until its origin "
        "knows what matches; deliveries are counted apart. The paper gives 128 brokers, 10,000 subscriptions, 30,000 "
        "events, 1 to 10 attributes each and Zipf's law, but neither the number of attributes nor the constraints. "
        "Four schemas are run: 10 or 50 attributes of 1,000 values each, and subscriptions that ask for values only "
        "(equality), or for values (40 %), prefixes (25 %), suffixes (25 %) and affixes (10 %) (mixed). Attributes are "
        "asked in the order of "
        "their selectivity, measured on the first events. Both versions are models over an ideal ring: the corrected "
        "one sends exactly what simulated brokers send, message by message, which a test shows on small networks, and "
        "is compared with the index for every event; the other is the paper's algorithms as printed, which no broker "
        "runs."
    ),
    parts=PARTS,
    figures=FIGURES,
    claims=(*CLAIMS, *STORING_CLAIMS, *ORDERING_CLAIMS, *SPREADING_CLAIMS, *OVERLAY_CLAIMS),
)
