"""The pictures of experiment B: its figures 9 to 11 for each schema, and what its sums say of hops and balance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from meetpoint.lab.experiments.experiment import Drawn, Figure, Fit
from meetpoint.schemes.lists.collection import CollectionMode

__all__ = ["FIGURES"]

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
        drawn=(Drawn(label="2k", y=lambda nodes: 2 * nodes), Drawn(label="k + 1", y=lambda nodes: nodes + 1)),
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
            Drawn(label="1 + 2l", y=lambda length: 1 + 2 * length),
            Drawn(label="2l - 1", y=lambda length: 2 * length - 1),
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
        drawn=(Drawn(label="k · ½ log2 N", y=lambda homes: homes * math.log2(128) / 2),),
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
        drawn=(Drawn(label="the paper: 1.07", y=lambda entries: 1.07),),
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
            Drawn(label="½ log2 N", y=lambda nodes: math.log2(nodes) / 2),
            Drawn(label="twice that", y=math.log2),
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
