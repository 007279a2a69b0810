"""Experiment C: content-based multicast on a hypercube (paper C). Its parts, figures and claims."""

from __future__ import annotations

import math
from typing import Final

from meetpoint.lab.experiments.experiment import ClaimedCurve, Experiment, ExperimentPart, Figure, Fit, Parameter, grid
from meetpoint.lab.experiments.reach.claims import CLAIMS
from meetpoint.lab.experiments.reach.cubes import (
    RULE_CLAIMS,
    run_changes,
    run_churn,
    run_full,
    run_gaps,
    run_load,
    run_paths,
    run_printed,
    run_rules,
    run_shares,
    run_siblings,
    run_tables,
)
from meetpoint.lab.experiments.reach.events import (
    CRASH_CLAIMS,
    run_copies,
    run_crashes,
    run_examples,
    run_ids,
    run_pushing,
    run_quenching,
    run_sends,
    run_uneven_sends,
)

__all__ = ["EXPERIMENT"]


# -- parts -------------------------------------------------------------------------------------------------------------


SHARES_BITS: Final = 5
"""Bits of the ids whose whole distribution of ways is measured."""


def _set_bits(*lengths: int, events: int) -> tuple[dict[str, Parameter], ...]:
    """Return cells for ids of each length, events with each number of bits that choose nodes."""
    sizes = {"attributes": 8, "subscriptions": 12, "events": events}
    return tuple({"nodes": 1 << length, "set_bits": bits, **sizes} for length in lengths for bits in range(length + 1))


_QUENCHED = ("quenched", "unquenched")


def _rates(nodes: int, seconds: int, *rates: int) -> tuple[dict[str, Parameter], ...]:
    fixed: dict[str, Parameter] = {"nodes": nodes, "attributes": 6, "subscriptions": 4}
    return tuple(
        {**fixed, "events_per_s": rate, "events": rate * seconds, "quench": quench}
        for rate in rates
        for quench in _QUENCHED
    )


_POPULAR = {"attributes": 16, "equalities": 0.5}

PARTS: Final = (
    ExperimentPart(
        name="sends",
        says="messages with an event on ids of one length, by how many of its bits choose nodes",
        run=run_sends,
        full=_set_bits(2, 4, 6, events=60),
        quick=_set_bits(2, 4, events=30),
        seeds=3,
    ),
    ExperimentPart(
        name="uneven",
        says="messages with an event on ids of different lengths",
        run=run_uneven_sends,
        full=grid(nodes=(3, 6, 12, 24, 48), attributes=8, subscriptions=12, events=60),
        quick=grid(nodes=(6, 12), attributes=8, subscriptions=12, events=30),
        seeds=3,
    ),
    ExperimentPart(
        name="examples",
        says="the two events that the paper follows: whom they come to",
        run=run_examples,
        full=grid(nodes=16, event=("1001", "1100111")),
        quick=grid(nodes=16, event=("1001", "1100111")),
        seeds=3,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="paths",
        says="hops of a lookup",
        run=run_paths,
        full=grid(nodes=(8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256), lookups=400),
        quick=grid(nodes=(8, 16, 24, 32, 64), lookups=200),
    ),
    ExperimentPart(
        name="shares",
        says="which share of lookups takes how many hops",
        run=run_shares,
        full=grid(nodes=1 << SHARES_BITS, lookups=800, hops=range(SHARES_BITS + 1)),
        quick=grid(nodes=1 << SHARES_BITS, lookups=400, hops=range(SHARES_BITS + 1)),
    ),
    ExperimentPart(
        name="gaps",
        says="in the model, ways and tables where joins are passed on to the shortest id, and where they are not",
        run=run_gaps,
        full=grid(nodes=(32, 64, 128, 256, 512), attributes=16, lookups=1000, joins=("passed on", "anywhere")),
        quick=grid(nodes=(32, 128), attributes=16, lookups=500, joins=("passed on", "anywhere")),
    ),
    ExperimentPart(
        name="changes",
        says="nodes whose table is another one after a join or a leave",
        run=run_changes,
        full=grid(nodes=(16, 32, 64, 128, 256), changes=8),
        quick=grid(nodes=(16, 64), changes=4),
        seeds=3,
    ),
    ExperimentPart(
        name="churn",
        says="several leave and as many come at once: by how much lengths of ids differ",
        run=run_churn,
        full=grid(nodes=64, at_once=(1, 4, 16), turns=3),
        quick=grid(nodes=32, at_once=(1, 8), turns=2),
        seeds=3,
    ),
    ExperimentPart(
        name="full",
        says="more nodes than ids: how many host one",
        run=run_full,
        full=grid(nodes=(8, 12, 16, 20, 24), attributes=4) + grid(nodes=(24, 32, 40), attributes=5),
        quick=grid(nodes=(12, 16, 20), attributes=4),
        seeds=3,
    ),
    ExperimentPart(
        name="printed",
        says="nodes that the printed rule does not come to, in networks that grew by the rule of joins",
        run=run_printed,
        full=grid(nodes=(3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40), attributes=7, events=100),
        quick=grid(nodes=(4, 6, 8, 12, 16, 24, 32), attributes=7, events=50),
    ),
    ExperimentPart(
        name="load",
        says="in the model, how rendezvous, visits and handing on are spread over nodes, for random events",
        run=run_load,
        full=grid(nodes=64, attributes=8, events=8000, tree=("by hash", "lowest bit first")),
        quick=grid(nodes=32, attributes=8, events=2000, tree=("by hash", "lowest bit first")),
        seeds=3,
    ),
    ExperimentPart(
        name="quenching",
        says="messages an event, by how many subscriptions there are",
        run=run_quenching,
        full=grid(
            nodes=32, attributes=6, subscriptions=(0, 1, 4, 16, 64), events=600, events_per_s=20, quench=_QUENCHED
        ),
        quick=grid(nodes=16, attributes=6, subscriptions=(0, 4, 32), events=200, events_per_s=20, quench=_QUENCHED),
        seeds=3,
    ),
    ExperimentPart(
        name="rates",
        says="messages an event with four subscriptions, by how many events there are in a second",
        run=run_quenching,
        full=_rates(32, 60, 1, 5, 25),
        quick=_rates(16, 20, 2, 20),
        seeds=3,
    ),
    ExperimentPart(
        name="copies",
        says="four fifths of the events have the same attributes: with copies up the tree and without",
        run=run_copies,
        full=grid(
            nodes=32, attributes=6, subscriptions=64, events=1200, events_per_s=40, alike=0.8,
            copies=("copied", "uncopied"),
        ),
        quick=grid(
            nodes=16, attributes=6, subscriptions=32, events=200, events_per_s=40, alike=0.8,
            copies=("copied", "uncopied"),
        ),
        seeds=3,
    ),
    ExperimentPart(
        name="pushing",
        says="half of the subscriptions need the first two attributes: with ids pushed away and without",
        run=run_pushing,
        full=grid(
            nodes=32, attributes=8, subscriptions=320, events=600, events_per_s=20, popular=0.5, rest_s=90,
            pushing=("pushed", "unpushed"),
        ),
        quick=grid(
            nodes=16, attributes=8, subscriptions=160, events=60, events_per_s=20, popular=0.5, rest_s=60,
            pushing=("pushed", "unpushed"),
        ),
        seeds=3,
    ),
    ExperimentPart(
        name="overlays",
        says="the same subset routing on the hypercube and on rings",
        run=run_ids,
        full=grid(
            overlay=("hypercube", "pastry", "chord"), ids="attributes", nodes=32, subscriptions=320, events=200,
            **_POPULAR,
        ),
        quick=grid(
            overlay=("hypercube", "pastry", "chord"), ids="attributes", nodes=16, subscriptions=60, events=60,
            **_POPULAR,
        ),
        seeds=3,
    ),
    ExperimentPart(
        name="ids",
        says="ids by attributes, and by signatures of attributes and values",
        run=run_ids,
        full=grid(
            overlay="hypercube", ids=("attributes", "signatures 8", "signatures 16", "signatures 32"), nodes=32,
            attributes=16, equalities=(0.2, 0.9), subscriptions=320, events=200,
        ),
        quick=grid(
            overlay="hypercube", ids=("attributes", "signatures 16"), nodes=16,
            attributes=16, equalities=0.9, subscriptions=60, events=60,
        ),
        seeds=3,
    ),
    ExperimentPart(
        name="tables",
        says="how many nodes each knows, where ids have one length",
        run=run_tables,
        full=grid(nodes=(4, 8, 16, 64, 256), events=50),
        quick=grid(nodes=(4, 16), events=20),
        seeds=3,
    ),
    ExperimentPart(
        name="rules",
        says="the paper's examples of neighbours, hosting and a join",
        run=run_rules,
        full=({},),
        quick=({},),
        seeds=1,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="siblings",
        says="in the model, whose sibling was split further",
        run=run_siblings,
        full=grid(nodes=(6, 12, 24, 48, 96), networks=20),
        quick=grid(nodes=(6, 12, 24), networks=10),
        seeds=3,
    ),
    ExperimentPart(
        name="crashes",
        says="nodes crash while others publish, and are back after 20 s: what comes late",
        run=run_crashes,
        full=grid(nodes=16, crashed=(1, 2), subscriptions=48, events=14),
        quick=grid(nodes=8, crashed=1, subscriptions=24, events=12),
        seeds=3,
        quick_seeds=1,
    ),
)  # fmt: skip


# -- figures -----------------------------------------------------------------------------------------------------------


def _binomial(hops: float) -> float:
    return math.comb(SHARES_BITS, round(hops)) / 2**SHARES_BITS


FIGURES: Final = (
    Figure(
        name="sends",
        title="Sends below the rendezvous node",
        part="sends",
        x="set_bits",
        x_label="b: bits of the event that choose nodes",
        y="sends_below",
        y_label="sends an event, without the way to the rendezvous",
        lines="nodes",
        labels={nodes: f"{nodes} nodes" for nodes in (4, 16, 64)},
        drawn=(
            ClaimedCurve(label="2^b - 1", y=lambda bits: 2**bits - 1),
            ClaimedCurve(label="printed: 2^b", y=lambda bits: 2**bits),
        ),
        says="Each of the 2^b nodes that may host a subset gets the event once; the first has it from the publisher.",
    ),
    Figure(
        name="sends-and-way",
        title="All sends of an event",
        part="sends",
        x="set_bits",
        x_label="b: bits of the event that choose nodes",
        y=("sends", "sends_by_formula"),
        y_label="sends an event",
        labels={"sends": "measured", "sends_by_formula": "2^b - 1 + l, l the Hamming distance"},
        panels="nodes",
        says="The way to the rendezvous adds l, the Hamming distance from the publisher.",
    ),
    Figure(
        name="paths",
        title="Hops of a lookup",
        part="paths",
        x="nodes",
        x_label="nodes",
        y=("hops", "hops_max"),
        y_label="hops",
        labels={"hops": "mean", "hops_max": "longest"},
        log_x=True,
        drawn=(
            ClaimedCurve(label="m / 2, m = log2 of the nodes", y=lambda nodes: math.log2(nodes) / 2),
            ClaimedCurve(label="m", y=math.log2),
        ),
        fit=Fit(model="log"),
        says="With a power of two as nodes every lookup takes exactly the Hamming distance, m / 2 in the mean.",
    ),
    Figure(
        name="path-shares",
        title=f"How many hops lookups take, {2**SHARES_BITS} nodes",
        part="shares",
        x="hops",
        x_label="hops",
        y="share",
        y_label="share of lookups",
        drawn=(ClaimedCurve(label=f"distances of random ids of {SHARES_BITS} bits", y=_binomial),),
        says="The distribution is that of Hamming distances between random ids.",
    ),
    Figure(
        name="changes",
        title="Nodes that a join or a leave touches",
        part="changes",
        x="nodes",
        x_label="nodes",
        y=("join_touched", "leave_touched"),
        y_label="nodes with another table afterwards",
        labels={"join_touched": "join", "leave_touched": "leave"},
        log_x=True,
        drawn=(ClaimedCurve(label="log2 of the nodes", y=math.log2),),
        fit=Fit(model="log"),
        says="Both grow with the logarithm. A leave that is passed on moves two regions, and so touches more.",
    ),
    Figure(
        name="gap-paths",
        title="Ways where ids are uneven (model)",
        part="gaps",
        x="nodes",
        x_label="nodes",
        y=("hops_to_nodes", "hops_to_nodes_by_one_link_a_bit"),
        y_label="hops from node to node, mean",
        labels={"hops_to_nodes": "links to all neighbours", "hops_to_nodes_by_one_link_a_bit": "one link for each bit"},
        panels="joins",
        log_x=True,
        drawn=(ClaimedCurve(label="log2 of the nodes / 2", y=lambda nodes: math.log2(nodes) / 2),),
        says=(
            "Where joins are passed on to the shortest id, ids are even. Where anybody is split they differ by many "
            "bits: ways are longer with one link for each bit, and shorter with links to all neighbours."
        ),
    ),
    Figure(
        name="gap-links",
        title="What uneven ids cost: the largest table (model)",
        part="gaps",
        x="nodes",
        x_label="nodes",
        y="links_max",
        y_label="links of the node with most",
        lines="joins",
        labels={"passed on": "joins passed on to the shortest id", "anywhere": "whoever is asked is split"},
        log_x=True,
        log_y=True,
        drawn=(ClaimedCurve(label="m = log2 of the nodes", y=math.log2),),
        says="The rule of joins keeps tables small; without it some node knows most of the network.",
    ),
    Figure(
        name="churn",
        title="The global gap while nodes come and go at once",
        part="churn",
        x="at_once",
        x_label="nodes that leave, and that come, at once",
        y=("global_gap_while", "global_gap_after"),
        y_label="bits by which the longest and the shortest id differ, most",
        labels={"global_gap_while": "meanwhile", "global_gap_after": "when all is ideal again"},
        log_x=True,
    ),
    Figure(
        name="full",
        title="More nodes than ids",
        part="full",
        x="nodes",
        x_label="nodes that joined one by one",
        y="hosting",
        y_label="nodes that host ids",
        lines="attributes",
        labels={4: "n = 4", 5: "n = 5"},
        drawn=(ClaimedCurve(label="every node", y=lambda nodes: nodes),),
        says="2^n nodes at most host something; whoever comes then stands by, and serves clients.",
    ),
    Figure(
        name="printed",
        title="Nodes that the printed rule misses",
        part="printed",
        x="nodes",
        x_label="nodes, joined one by one, ids of 7 bits",
        y=("missed_share", "missed_with_zero_share"),
        y_label="share of the nodes that host a subset",
        labels={
            "missed_share": "as the examples have it",
            "missed_with_zero_share": "with the node of the empty suffix",
        },
        says=(
            "With ids of one length the rule misses only the node without set bits, which both examples leave out. "
            "Between powers of two it misses others as well. Ours misses none."
        ),
    ),
    Figure(
        name="trees",
        title="A tree for each event spreads the work (model)",
        part="load",
        x="tree",
        x_label="who hands on",
        y="handed_on_by_busiest",
        y_label="sends of the busiest node below the root, an event with all bits",
    ),
    Figure(
        name="load",
        title="Rendezvous are spread evenly, visits are not (model)",
        part="load",
        x="tree",
        x_label="who hands on",
        y=("rendezvous_top_to_mean", "visits_top_to_mean"),
        y_label="the busiest node, times the mean",
        labels={"rendezvous_top_to_mean": "is the rendezvous", "visits_top_to_mean": "is visited"},
        says="Every event comes to the node of the empty suffix, whatever tree is used.",
    ),
    Figure(
        name="quenching",
        title="What quenching saves",
        part="quenching",
        x="subscriptions",
        x_label="subscriptions",
        y="messages_per_event",
        y_label="messages an event, with those to know what is idle",
        lines="quench",
        says="It pays while most of the network is idle: a subscription wakes all nodes above its own.",
    ),
    Figure(
        name="quenching-rates",
        title="Quenching, by how often events come",
        part="rates",
        x="events_per_s",
        x_label="events a second, four subscriptions",
        y="messages_per_event",
        y_label="messages an event",
        lines="quench",
        log_x=True,
        says="What is known is good for ten seconds: rare events pay for asking and save little.",
    ),
    Figure(
        name="copies",
        title="Copies up the tree",
        part="copies",
        x="copies",
        x_label="subscriptions of busy nodes at those above them",
        y=("messages_per_event", "duties_busiest_per_event"),
        y_label="messages an event",
        labels={"messages_per_event": "all", "duties_busiest_per_event": "duties that come to the busiest node"},
        log_y=True,
    ),
    Figure(
        name="pushing",
        title="Ids pushed away from a full node",
        part="pushing",
        x="pushing",
        x_label="ids of the fullest node",
        y="entries_fullest",
        y_label="entries at the fullest node",
    ),
    Figure(
        name="overlays",
        title="Subset routing by overlay",
        part="overlays",
        x="overlay",
        x_label="overlay",
        y=("duties_per_event", "regions_per_event"),
        y_label="an event",
        labels={"duties_per_event": "messages with duties", "regions_per_event": "regions that serve it"},
        says="On the hypercube the next subset is one hop away; on a ring it is a route away.",
    ),
    Figure(
        name="ids",
        title="Ids by attributes and by signatures: messages",
        part="ids",
        x="ids",
        x_label="how ids are made (bits of a signature)",
        y="duties_per_event",
        y_label="messages with duties, an event",
        lines="equalities",
        labels={0.2: "a fifth of the constraints are equalities", 0.9: "nine tenths are"},
    ),
    Figure(
        name="ids-balance",
        title="Ids by attributes and by signatures: balance",
        part="ids",
        x="ids",
        x_label="how ids are made (bits of a signature)",
        y="fullest_share",
        y_label="share of all entries at the fullest node",
        lines="equalities",
        labels={0.2: "a fifth of the constraints are equalities", 0.9: "nine tenths are"},
    ),
)


# -- the experiment ----------------------------------------------------------------------------------------------------


EXPERIMENT: Final = Experiment(
    name="reach",
    title="Content-based multicast on a hypercube (paper C)",
    about=(
        "The paper has formulas and no measurements. Here they are measured: what is about messages in simulated "
        "networks of whole nodes, whose oracle judges every event; what is about the overlay alone on nodes that are "
        "nothing else, and whose tables are checked; what nodes would never do, on a model of the same rules. The "
        "paper says nothing of workloads: subscriptions need one to three attributes, each with a bound on its value, "
        "and events have random attributes, unless a part says otherwise. Sends count at every hop; answers do not. "
        "What runs is the corrected scheme; the rules as printed are asked for what they would miss."
    ),
    parts=PARTS,
    figures=FIGURES,
    claims=(*CLAIMS, *RULE_CLAIMS, *CRASH_CLAIMS),
)
