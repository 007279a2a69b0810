"""Experiment A: numbers over Chord (paper A, "OPChord"). Its parts, figures and claims."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.experiment import ClaimedCurve, Experiment, ExperimentPart, Figure, Fit, Parameters, grid
from meetpoint.lab.experiments.opchord.claims import CLAIMS, half_log
from meetpoint.lab.experiments.opchord.examples import IDENTIFIER_CLAIMS, run_examples, run_identifiers
from meetpoint.lab.experiments.opchord.measurements import (
    JOINING_CLAIMS,
    run_balance,
    run_false_positives,
    run_joins,
    run_lookups,
    run_matches,
    run_small_stores,
    run_starts,
    run_stores,
    run_updates,
    run_wide_stores,
)

__all__ = ["EXPERIMENT"]

SIZES: Final = (16, 64, 256, 1024, 4096, 16384)
QUICK_SIZES: Final = (16, 256, 1024, 16384)
MILLION: Final = 1 << 20
MIDDLE: Final = 1024
"""The number of nodes, where another parameter varies."""
RANGE: Final = 16
"""The values of a range, where another parameter varies."""
ATTRIBUTES: Final = 5
HASHES: Final = ("chord", "opchord")
IDS: Final = ("every", "spaced", "hashed")


def _stores(sizes: tuple[int, ...], brokers: tuple[int, ...]) -> tuple[Parameters, ...]:
    wide = tuple(
        cell
        for nodes in sizes
        for values in (4, RANGE, 64)
        for cell in grid(how="model", ids=IDS, hash=HASHES, nodes=nodes, values=values, ranges=200)
        if values <= nodes and (cell["ids"] != "spaced" or values == RANGE)
    )
    return (
        *grid(how="model", ids=IDS, hash=HASHES, nodes=sizes, values=1, ranges=2000),
        *wide,
        *grid(how="brokers", ids="hashed", hash=HASHES, nodes=brokers, values=4, ranges=200),
    )


def _lookups(ideal: tuple[int, ...], simulated: tuple[int, ...], grown: tuple[int, ...]) -> tuple[Parameters, ...]:
    return (
        *grid(how="ideal", ids=IDS, nodes=ideal, lookups=5000),
        *grid(how="ideal", ids="hashed", nodes=MILLION, lookups=5000),
        *grid(how="simulated", ids="hashed", nodes=simulated, lookups=2000),
        *grid(how="grown", ids="hashed", nodes=grown, lookups=2000),
    )


def _matches(sizes: tuple[int, ...], attributes: tuple[int, ...], brokers: tuple[int, ...]) -> tuple[Parameters, ...]:
    def model(sizes: tuple[int, ...], attributes: tuple[int, ...]) -> tuple[Parameters, ...]:
        return grid(
            how="model", ids=("every", "hashed"), hash=HASHES, nodes=sizes, attributes=attributes, events=500
        )  # fmt: skip

    return (
        *model(sizes, (ATTRIBUTES,)),
        *model((MIDDLE,), tuple(each for each in attributes if each != ATTRIBUTES)),
        *grid(how="brokers", ids="hashed", hash="chord", nodes=brokers, attributes=ATTRIBUTES, events=200),
    )


def _updates(sizes: tuple[int, ...], moves: tuple[int, ...]) -> tuple[Parameters, ...]:
    return (
        *grid(ids="every", hash=HASHES, nodes=sizes, values=1, moved=7, ranges=500),
        *grid(ids="every", hash=HASHES, nodes=MIDDLE, values=RANGE, moved=moves, ranges=200),
    )


def _falses(sizes: tuple[int, ...], attributes: tuple[int, ...]) -> tuple[Parameters, ...]:
    fixed = {"ids": "hashed", "values": (1, 39), "subscriptions": 500, "events": 500}
    return (
        *grid(lists="without values", hash=HASHES, nodes=sizes, attributes=attributes, **fixed),  # type: ignore[arg-type]
        *grid(lists="with values", hash=HASHES, nodes=64, attributes=1, **fixed),  # type: ignore[arg-type]
    )


PARTS: Final = (
    ExperimentPart(
        name="lookup",
        says="hops of a lookup, on ideal rings and on simulated networks of real nodes",
        run=run_lookups,
        full=_lookups(SIZES, (16, 64, 256, 1024, 4096, 10_000, 32_768), (16, 64, 256, 1024, 2048)),
        quick=_lookups((16, 256, 4096), (16, 256, 1024, 10_000), (16, 256)),
        seeds=3,
    ),
    ExperimentPart(
        name="store",
        says="hops to store a range whose values are as far apart as nodes",
        run=run_stores,
        full=_stores(SIZES, (16, 64, 256)),
        quick=_stores(QUICK_SIZES, (16, 64)),
    ),
    ExperimentPart(
        name="wide",
        says="hops to store ranges of few values and of many more than there are nodes",
        run=run_wide_stores,
        full=grid(
            way=("chord, every value", "chord, once a node", "opchord"),
            ids="hashed",
            nodes=256,
            domain=65_536,
            values=(1, 4, 16, 64, 256, 1024, 4096, 16_384),
            ranges=10,
        ),
        quick=grid(
            way=("chord, every value", "chord, once a node", "opchord"),
            ids="hashed",
            nodes=256,
            domain=65_536,
            values=(1, 16, 256, 4096),
            ranges=10,
        ),
    ),
    ExperimentPart(
        name="small",
        says="hops to store all values of a domain that is smaller than the ring",
        run=run_small_stores,
        full=grid(way=("skipping", "every node"), ids="hashed", nodes=MIDDLE, domain=(4, 16, 64, 256, 1024), ranges=20),
        quick=grid(way=("skipping", "every node"), ids="hashed", nodes=MIDDLE, domain=(4, 64, 1024), ranges=20),
    ),
    ExperimentPart(
        name="match",
        says="hops to ask for the lists of an event",
        run=run_matches,
        full=_matches(SIZES, (1, 2, 3, 5, 7, 10), (16, 64, 256)),
        quick=_matches(QUICK_SIZES, (1, 5, 10), (16, 64)),
    ),
    ExperimentPart(
        name="update",
        says="hops to update a value, or a range that moves up",
        run=run_updates,
        full=_updates(SIZES, (1, 2, 4, 8, 16)),
        quick=_updates(QUICK_SIZES, (1, 4, 16)),
    ),
    ExperimentPart(
        name="balance",
        says="how evenly skewed values lie at nodes, by the hash",
        run=run_balance,
        full=grid(
            kind=("price", "rank"),
            scale=("plain hash", "linear", "quantiles"),
            ids=("spaced", "hashed"),
            nodes=128,
            count=100_000,
        ),
        quick=grid(
            kind=("price", "rank"),
            scale=("plain hash", "linear", "quantiles"),
            ids=("spaced", "hashed"),
            nodes=128,
            count=100_000,
        ),
    ),
    ExperimentPart(
        name="false",
        says="pairs of a subscription and an event that the paper's lists take for matches and are none",
        run=run_false_positives,
        full=_falses((16, 64, 256, 1024), (1, 2, 3)),
        quick=_falses((16, 64, 256), (1,)),
    ),
    ExperimentPart(
        name="examples",
        says="the paper's examples and rules, as printed and as brokers run them",
        run=run_examples,
        full=({},),
        quick=({},),
        seeds=1,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="joins",
        says="messages by which a node comes and goes, by Chord's own procedure",
        run=run_joins,
        full=grid(nodes=SIZES, changes=200),
        quick=grid(nodes=QUICK_SIZES, changes=200),
    ),
    ExperimentPart(
        name="starts",
        says="skewed values of several attributes, each from a place of its own on, or all from one",
        run=run_starts,
        full=grid(start=("its own", "one"), attributes=(1, 4, 16, 64), nodes=128, count=64_000),
        quick=grid(start=("its own", "one"), attributes=(1, 16), nodes=128, count=64_000),
    ),
    ExperimentPart(
        name="identifiers",
        says="figure 3's SubID, and two constraints on one attribute",
        run=run_identifiers,
        full=({},),
        quick=({},),
        seeds=1,
        quick_seeds=1,
    ),
)

_HASH_LABELS: Final = {"chord": "Chord, plain hash", "opchord": "OPChord, order-preserving hash"}
_IDS_LABELS: Final = {"every": "a node at every id", "spaced": "evenly spaced ids", "hashed": "hashed ids"}
_HOW_LABELS: Final = {
    "ideal": "ideal ring",
    "simulated": "simulated nodes",
    "grown": "simulated nodes, half of which joined",
    "model": "model",
    "brokers": "simulated brokers",
}
_HALF_LOG: Final = ClaimedCurve(label="paper: ½ log2 N", y=half_log)
_LOG: Final = Fit(model="log", until=1e6)

FIGURES: Final = (
    Figure(
        name="lookup-hops",
        title="A lookup on Chord",
        part="lookup",
        x="nodes",
        x_label="nodes",
        y="hops",
        y_label="mean hops of a lookup",
        lines="how",
        labels=_HOW_LABELS,
        where={"ids": "hashed"},
        log_x=True,
        drawn=(_HALF_LOG,),
        fit=_LOG,
        says="Simulated networks and the ideal ring have the same hops, in parallel with the paper's line; the ideal "
        "ring of a million nodes was built, so that the line drawn on from the simulated ones can be compared with it.",
    ),
    Figure(
        name="lookup-extra",
        title="What a lookup takes beside ½ log2 N",
        part="lookup",
        x="nodes",
        x_label="nodes",
        y="extra",
        y_label="mean hops less ½ log2 N",
        lines="ids",
        labels=_IDS_LABELS,
        where={"how": "ideal"},
        log_x=True,
        says="With a node at every id the paper's formula is exact. Otherwise a key lies between two nodes, and the "
        "step to its successor comes on top: a little less than one hop.",
    ),
    Figure(
        name="store-hops",
        title=f"Storing a range of {RANGE} values",
        part="store",
        x="nodes",
        x_label="nodes (as many values in the domain)",
        y="hops",
        y_label="mean hops",
        lines="hash",
        labels={**_HASH_LABELS, **_IDS_LABELS},
        panels="ids",
        where={"how": "model", "values": RANGE},
        log_x=True,
        drawn=(
            ClaimedCurve(label=f"paper: {RANGE} · ½ log2 N", y=lambda nodes: RANGE * half_log(nodes)),
            ClaimedCurve(label=f"paper: ½ log2 N + {RANGE - 1}", y=lambda nodes: half_log(nodes) + RANGE - 1),
        ),
        fit=_LOG,
        says="By the plain hash every value is a lookup; in order the second and all further values are a hop each.",
    ),
    Figure(
        name="store-values",
        title=f"Storing a range at {MIDDLE:,} nodes",
        part="store",
        x="values",
        x_label="values in the range",
        y="hops",
        y_label="mean hops",
        lines="hash",
        labels=_HASH_LABELS,
        where={"how": "model", "ids": "every", "nodes": MIDDLE},
        log_x=True,
        log_y=True,
        drawn=(
            ClaimedCurve(label="paper: r · ½ log2 N", y=lambda values: values * half_log(MIDDLE)),
            ClaimedCurve(label="paper: ½ log2 N + r - 1", y=lambda values: half_log(MIDDLE) + values - 1),
        ),
        says="One value costs the same by both; from there on the order-preserving hash is cheaper.",
    ),
    Figure(
        name="store-brokers",
        title="Storing a range of 4 values: model and simulated brokers",
        part="store",
        x="nodes",
        x_label="nodes (as many values in the domain)",
        y="hops",
        y_label="mean hops",
        lines="how",
        labels={**_HOW_LABELS, **_HASH_LABELS},
        panels="hash",
        where={"ids": "hashed", "values": 4},
        log_x=True,
        fit=_LOG,
        says="Brokers on a simulated network take the hops of the model. Their ids are hashes.",
    ),
    Figure(
        name="wide-ranges",
        title="Ranges that are wider than the ring",
        part="wide",
        x="values",
        x_label="values in the range (256 nodes, 65,536 values)",
        y="hops",
        y_label="mean hops",
        lines="way",
        log_x=True,
        log_y=True,
        drawn=(ClaimedCurve(label="paper: r · ½ log2 N", y=lambda values: values * half_log(256)),),
        says="A lookup a value goes on growing when every node has the range already. Brokers store a range of more "
        "than 256 values once a node, and it stops at the size of the ring; in order it takes the nodes of its arc.",
    ),
    Figure(
        name="small-domain",
        title=f"More nodes than values: {MIDDLE:,} nodes",
        part="small",
        x="domain",
        x_label="values in the domain, all of which are stored",
        y="hops",
        y_label="mean hops",
        lines="way",
        labels={"skipping": "on to the next value, by fingers", "every node": "along every node"},
        log_x=True,
        log_y=True,
        says="Empty stretches are skipped by routing: the fewer values there are, the more that saves.",
    ),
    Figure(
        name="match-attributes",
        title=f"Asking for the lists of an event at {MIDDLE:,} nodes",
        part="match",
        x="attributes",
        x_label="numbers in the event",
        y=("hops", "hops_with_always"),
        y_label="mean hops",
        labels={
            "hops": "as the paper counts",
            "hops_with_always": "with the key that brokers ask at in any case",
            **_IDS_LABELS,
        },
        panels="ids",
        where={"how": "model", "hash": "chord", "nodes": MIDDLE},
        drawn=(ClaimedCurve(label="paper: N_attr · ½ log2 N", y=lambda attributes: attributes * half_log(MIDDLE)),),
        says="One lookup for each attribute, whichever hash is used.",
    ),
    Figure(
        name="match-nodes",
        title=f"Asking for the lists of an event with {ATTRIBUTES} numbers",
        part="match",
        x="nodes",
        x_label="nodes",
        y="hops_with_always",
        y_label="mean hops",
        lines="how",
        labels=_HOW_LABELS,
        where={"ids": "hashed", "hash": "chord", "attributes": ATTRIBUTES},
        log_x=True,
        drawn=(ClaimedCurve(label=f"paper: {ATTRIBUTES} · ½ log2 N", y=lambda nodes: ATTRIBUTES * half_log(nodes)),),
        fit=_LOG,
        says="Brokers ask at one key more than the paper, for subscriptions that need no attribute, and each lookup "
        "takes nearly a hop more than ½ log2 N.",
    ),
    Figure(
        name="update-range",
        title=f"A range of {RANGE} values moves up, at {MIDDLE:,} nodes",
        part="update",
        x="moved",
        x_label="values that go, and as many come",
        y=("hops", "hops_of_ours"),
        y_label="mean hops",
        labels={"hops": "as printed", "hops_of_ours": "as brokers do it", **_HASH_LABELS},
        panels="hash",
        where={"values": RANGE},
        drawn=(ClaimedCurve(label="paper: k · log2 N", y=lambda moved: moved * 2 * half_log(MIDDLE)),),
        says="Brokers also change what lies at the ends of a range by the plain hash. In order they replace the one "
        "entry that lies along the whole arc.",
    ),
    Figure(
        name="balance",
        title="Skewed values at 128 nodes",
        part="balance",
        x="scale",
        x_label="hash",
        y="max_to_mean",
        y_label="largest load to the mean",
        lines="ids",
        labels={**_IDS_LABELS, "price": "log-normal prices", "rank": "whole numbers by Zipf's law, θ = 1"},
        panels="kind",
        log_y=True,
        says="All at one node would be 128. Neighbours stay together in order, and so do common values. A scale from "
        "quantiles balances them as well as the plain hash does.",
    ),
    Figure(
        name="false-positives",
        title="Wrong pairs of lists that hold no values",
        part="false",
        x="nodes",
        x_label="nodes",
        y="wrong_percent",
        y_label="wrong pairs, % of all pairs",
        lines="hash",
        labels={**_HASH_LABELS, 1: "subscriptions to 1 value", 39: "to ranges of 39 values"},
        panels="values",
        where={"lists": "without values", "attributes": 1},
        log_x=True,
        log_y=True,
        says="Pairs of a subscription and an event, one attribute of 2,001 values. By the plain hash a range of 39 "
        "values lies at most nodes of a small ring, and takes most events for its own.",
    ),
    Figure(
        name="joins",
        title="A node comes, or goes",
        part="joins",
        x="nodes",
        x_label="nodes",
        y=("join_messages", "leave_messages"),
        y_label="messages",
        labels={"join_messages": "a join", "leave_messages": "a leave"},
        log_x=True,
        drawn=(ClaimedCurve(label="log2² N", y=lambda nodes: (2 * half_log(nodes)) ** 2),),
        says="By Chord's own procedure, on an ideal ring with hashed ids. The paper gives no factor.",
    ),
    Figure(
        name="starts",
        title="Skewed values of several attributes at 128 nodes",
        part="starts",
        x="attributes",
        x_label="attributes",
        y="max_to_mean",
        y_label="largest load to the mean",
        lines="start",
        labels={"its own": "each begins at the hash of its name", "one": "all begin at one place"},
        log_x=True,
        log_y=True,
        says="All at one node would be 128. Where each attribute begins elsewhere, so do its low values.",
    ),
)

EXPERIMENT: Final = Experiment(
    name="opchord",
    title="Numbers over Chord (paper A)",
    about="Subscriptions lie at the keys of their values, and events ask at the keys of theirs. Compared are the plain "
    "hash, which needs a lookup for each value of a range, and the order-preserving one, which needs a walk. Where "
    "entries lie is said by the code that brokers run; hops are those of an ideal Chord ring, which tests compare with "
    "simulated networks, of up to tens of thousands of real nodes for lookups. The paper has formulas and two "
    "examples, no measurements. Not said there, and chosen here: domains have as many values as there are nodes, so "
    "that one step is one node; ranges, values and origins are uniform; ids are at every place of the ring (the "
    "paper's figures), evenly spaced, or hashes, as brokers' are. Skewed values are log-normal prices and numbers by "
    "Zipf's law.",
    parts=PARTS,
    figures=FIGURES,
    claims=(*CLAIMS, *JOINING_CLAIMS, *IDENTIFIER_CLAIMS),
)
