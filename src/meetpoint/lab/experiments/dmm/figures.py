"""The pictures of experiment D: the paper's figures 6 to 9, and what it leaves open."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.cells import Parameters
from meetpoint.lab.experiments.dmm.parts import DEPTH, RUNAWAY_AT, STORED, SUBSCRIPTIONS, THRESHOLD
from meetpoint.lab.experiments.dmm.pastry import steps_of
from meetpoint.lab.experiments.experiment import Drawn, Figure

__all__ = ["FIGURES"]

_PEERS = {peers: f"{peers} peers" for peers in (2, 10, 20, 30)}
_IDEAL = Drawn(label="ideal", y=lambda percent: percent / 100)


def _curves(name: str, title: str, stored: str, says: str) -> Figure:
    assert stored in STORED
    where: Parameters = {"stored": stored}
    return Figure(
        name=name,
        title=title,
        part="shares",
        x="percent",
        x_label="percent of the peers, the emptiest first",
        y="held_share",
        y_label="share of all that is stored",
        lines="peers",
        labels=_PEERS,
        where=where,
        drawn=(_IDEAL,),
        says=says,
    )


FIGURES: Final = (
    _curves(
        "figure-6",
        "Figure 6: keys of the DHT",
        "keys",
        "Random ids part the circle unevenly: it bends, but nobody holds most.",
    ),
    _curves("figure-7a", "Figure 7 (a): fine subscriptions, no delegation", "fine", "One peer holds all of them."),
    _curves(
        "figure-7b",
        "Figure 7 (b): fine subscriptions, delegation",
        "fine delegated",
        f"Nearly as keys are spread (threshold {THRESHOLD}, depth {DEPTH}).",
    ),
    _curves("figure-8a", "Figure 8 (a): coarse subscriptions, no delegation", "coarse", "One peer holds all of them."),
    _curves(
        "figure-8b",
        "Figure 8 (b): coarse subscriptions, delegation",
        "coarse delegated",
        "Balanced in shape; what the shape hides is the total, below.",
    ),
    _curves(
        "figure-9",
        "Figure 9: coarse subscriptions, delegation and covering",
        "coarse delegated, covered",
        "Covering takes entries away and leaves the shape.",
    ),
    Figure(
        name="fullest-fifth",
        title="What the fullest fifth of the peers has",
        part="balance",
        x="peers",
        x_label="peers",
        y="top_fifth_share",
        y_label="share of all that is stored",
        lines="stored",
        drawn=(Drawn(label="ideal, ten peers or more", y=lambda peers: max(1, round(peers / 5)) / peers),),
        says="Of 2 and of 5 peers the fullest fifth is one peer.",
    ),
    Figure(
        name="totals",
        title="Coarse subscriptions: the total is a matter of depth",
        part="totals",
        x="depth",
        x_label="depth limit",
        y="entries_per_subscription",
        y_label="entries for a subscription",
        lines="threshold",
        labels={threshold: f"threshold {threshold}" for threshold in (10, 30, 100, 300)},
        where={"kind": "coarse"},
        log_y=True,
        drawn=(Drawn(label="the paper: more than 20", y=lambda depth: 20),),
        says="Nearly every leaf is over any threshold that would help, so each level nearly doubles the total.",
    ),
    Figure(
        name="fine-thresholds",
        title="Fine subscriptions: balance is a matter of the threshold",
        part="totals",
        x="depth",
        x_label="depth limit",
        y="top_fifth_share",
        y_label="share of the fullest fifth of the peers",
        lines="threshold",
        labels={threshold: f"threshold {threshold}" for threshold in (10, 30, 100, 300)},
        where={"kind": "fine"},
        says="With fewer leaves than peers most peers have nothing, whatever the depth limit is.",
    ),
    Figure(
        name="covering",
        title="Covering: the total by the number of peers",
        part="covering",
        x="peers",
        x_label="peers",
        y="entries_per_subscription",
        y_label="entries for a coarse subscription",
        lines="ways",
        labels={
            "not covered": "no covering",
            "cached": "covering, cached routes: one hop to the root",
            "routed": "covering, Pastry's routes",
        },
        log_y=True,
        says="It falls, and falls more with fewer peers: ways then meet more often.",
    ),
    Figure(
        name="probe-total",
        title="What stops runaway delegation: the total",
        part="probe",
        x="peers",
        x_label="peers",
        y="entries_per_subscription",
        y_label="entries for a coarse subscription",
        lines="rule",
        labels={"ours": "the two peers concerned are asked", "none": f"nobody is asked (depth limit {RUNAWAY_AT})"},
        where={"kind": "coarse"},
        log_y=True,
    ),
    Figure(
        name="probe-largest",
        title="What stops runaway delegation: the fullest peer",
        part="probe",
        x="peers",
        x_label="peers",
        y="largest_peer",
        y_label=f"entries at the fullest peer, {SUBSCRIPTIONS} coarse subscriptions",
        lines="rule",
        labels={"ours": "the two peers concerned are asked", "none": f"nobody is asked (depth limit {RUNAWAY_AT})"},
        where={"kind": "coarse"},
        log_y=True,
        drawn=(Drawn(label="one peer that has everything", y=lambda peers: SUBSCRIPTIONS),),
        says="Random peers may be others than those that get the halves; among few peers that happens.",
    ),
    Figure(
        name="tuning",
        title="Our rule with other settings",
        part="tuning",
        x="tuned",
        x_label="what a split must bring, and what it may add",
        y="entries_per_subscription",
        y_label="entries for a coarse subscription",
        lines="peers",
        labels=_PEERS,
    ),
    Figure(
        name="lookups",
        title="Hops of a lookup in small Pastry networks",
        part="lookups",
        x="peers",
        x_label="peers",
        y="hops_to_others",
        y_label="hops, keys of other peers, mean",
        lines="routes",
        drawn=(Drawn(label="the paper: one hop", y=lambda peers: 1),),
    ),
    Figure(
        name="walks",
        title="Regions that an event asks until it has found its leaf",
        part="walks",
        x="nodes",
        x_label="nodes",
        y=("regions_by_climbing", "regions_cold", "regions_near", "regions_warm"),
        y_label="regions asked, an event",
        labels={
            "regions_by_climbing": "climbing, as printed",
            "regions_cold": "binary search, no leaf known",
            "regions_near": "another leaf known",
            "regions_warm": "the leaf known",
        },
        panels="overlay",
        says="Climbing begins at the depth limit; a search on the length of the code asks a few.",
    ),
    Figure(
        name="traffic",
        title="What an event takes, in all and at each peer",
        part="traffic",
        x="peers",
        x_label="peers",
        y=("bytes_per_event", "bytes_per_event_and_peer"),
        y_label="bytes an event",
        labels={"bytes_per_event": "in all", "bytes_per_event_and_peer": "for each peer"},
        log_y=True,
        says="As the paper's preliminary results have it: the fewer peers, the less in all, and the more for each.",
    ),
    Figure(
        name="routes",
        title="Hops of a lookup in larger Pastry networks",
        part="routes",
        x="peers",
        x_label="peers",
        y=("hops", "hops_max"),
        y_label="hops, no cached routes",
        labels={"hops": "mean", "hops_max": "the longest"},
        log_x=True,
        drawn=(Drawn(label="the paper: ⌈log N⌉ to the base 16", y=lambda peers: steps_of(int(peers))),),
    ),
)
