"""Experiment D: multidimensional matching in small networks (paper D). Its parts, figures and claims."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.dmm.claims import CLAIMS
from meetpoint.lab.experiments.dmm.model import (
    CODE_CLAIMS,
    DEPTH,
    RUNAWAY_AT,
    STORED,
    SUBSCRIPTIONS,
    THRESHOLD,
    run_balance,
    run_codes,
    run_covering,
    run_probe,
    run_shares,
    run_totals,
    run_weaving,
)
from meetpoint.lab.experiments.dmm.networks import (
    PASTRY_CLAIMS,
    TRAFFIC_CLAIMS,
    run_lookups,
    run_routes,
    run_traffic,
    run_walks,
    steps_of,
)
from meetpoint.lab.experiments.experiment import (
    ClaimedCurve,
    Experiment,
    ExperimentPart,
    Figure,
    Parameter,
    Parameters,
    grid,
)
from meetpoint.schemes.dmm.rules import DmmSettings

__all__ = ["EXPERIMENT"]


# -- parts -------------------------------------------------------------------------------------------------------------


_PAPER: Final[dict[str, Parameter]] = {"subscriptions": SUBSCRIPTIONS, "threshold": THRESHOLD, "depth": DEPTH}
_OURS = DmmSettings()
_STOPPED_AT: Final = 16
"""The depth limit for rules that stop by themselves, or should."""


def _rules(
    kinds: tuple[str, ...], peers: tuple[int, ...], runaway_peers: tuple[int, ...]
) -> tuple[dict[str, Parameter], ...]:
    fixed: dict[str, Parameter] = {"subscriptions": SUBSCRIPTIONS, "threshold": _OURS.threshold}
    return grid(rule=("ours", "3 random peers"), kind=kinds, peers=peers, depth=_STOPPED_AT, **fixed) + grid(
        rule="none", kind=kinds, peers=runaway_peers, depth=RUNAWAY_AT, **fixed
    )


def _tuned(peers: tuple[int, ...]) -> tuple[dict[str, Parameter], ...]:
    """Return cells of our rule with other settings, coarse subscriptions."""
    return tuple(
        {
            "rule": "ours", "kind": "coarse", "peers": count, "subscriptions": SUBSCRIPTIONS,
            "threshold": _OURS.threshold, "depth": _STOPPED_AT, "relief": relief, "growth": growth,
            "tuned": f"relief {relief:g}, growth {growth:g}",
        }
        for relief, growth in ((_OURS.relief, _OURS.growth), (0.05, 0.125), (0.5, 0.125), (0.2, 0.5), (0.2, 0.0))
        for count in peers
    )  # fmt: skip


_KINDS = ("coarse", "fine", "fine, then coarse")

PARTS: Final = (
    ExperimentPart(
        name="shares",
        says="the curves of figures 6 to 9: what the emptiest peers hold together",
        run=run_shares,
        full=grid(stored=STORED, peers=(2, 10, 20, 30), percent=(20, 40, 60, 80, 100), **_PAPER),
        quick=grid(stored=STORED, peers=(2, 10, 30), percent=(20, 40, 60, 80, 100), **_PAPER),
        seeds=3,
    ),
    ExperimentPart(
        name="balance",
        says="the share of the fullest fifth, by the number of peers",
        run=run_balance,
        full=grid(stored=STORED, peers=(2, 5, 10, 15, 20, 25, 30), **_PAPER),
        quick=grid(stored=STORED, peers=(2, 10, 30), **_PAPER),
        seeds=9,
        quick_seeds=3,
    ),
    ExperimentPart(
        name="totals",
        says="plain delegation by threshold and depth limit: entries for a subscription",
        run=run_totals,
        full=grid(
            kind=("coarse", "fine"), threshold=(10, 30, 100, 300), depth=(3, 4, 5, 6, 8, 10), peers=30,
            subscriptions=SUBSCRIPTIONS,
        ),
        quick=grid(kind=("coarse", "fine"), threshold=(10, 100), depth=(3, 5, 6), peers=30, subscriptions=SUBSCRIPTIONS)
        + grid(kind="coarse", threshold=100, depth=10, peers=30, subscriptions=SUBSCRIPTIONS),
        seeds=5,
    ),
    ExperimentPart(
        name="covering",
        says="figure 9: subscriptions that stop where a wider one has passed",
        run=run_covering,
        full=grid(ways=("not covered", "cached", "routed"), peers=(2, 5, 10, 15, 20, 25, 30), **_PAPER),
        quick=grid(ways=("not covered", "cached", "routed"), peers=(2, 10, 30), **_PAPER),
        seeds=9,
        quick_seeds=3,
    ),
    ExperimentPart(
        name="probe",
        says="what stops delegation: the two peers concerned are asked, three random ones, or nobody",
        run=run_probe,
        full=_rules(_KINDS, (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30), (2, 5, 10, 20, 30)),
        quick=_rules(_KINDS, (2, 3, 4, 10, 30), (2, 30)),
        seeds=9,
        quick_seeds=5,
    ),
    ExperimentPart(
        name="tuning",
        says="our rule with other settings",
        run=run_probe,
        full=_tuned((2, 10, 30)),
        quick=_tuned((2, 30)),
        seeds=9,
    ),
    ExperimentPart(
        name="lookups",
        says="hops of a lookup in small Pastry networks",
        run=run_lookups,
        full=grid(routes=("cached", "not cached"), peers=(2, 5, 10, 15, 20, 25, 30), before_each=60, lookups=300),
        quick=grid(routes=("cached", "not cached"), peers=(2, 10, 30), before_each=60, lookups=200),
        seeds=5,
    ),
    ExperimentPart(
        name="walks",
        says="what it takes an event to find its leaf",
        run=run_walks,
        full=grid(
            overlay=("chord", "pastry"), nodes=(16, 64), subscriptions=600, threshold=10, depth=16, events=100
        ),
        quick=grid(overlay=("chord", "pastry"), nodes=8, subscriptions=100, threshold=10, depth=16, events=20),
        seeds=3,
    ),
    ExperimentPart(
        name="routes",
        says="hops and links of larger Pastry networks without cached routes",
        run=run_routes,
        full=grid(peers=(16, 64, 256), lookups=1000),
        quick=grid(peers=(16, 64), lookups=200),
        seeds=3,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="codes",
        says="figure 4's halves, by the size of the domain",
        run=run_codes,
        full=grid(domain=range(2, 65)),
        quick=grid(domain=(2, 3, 4, 7, 10, 16, 31, 32)),
        seeds=1,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="weaving",
        says="figure 5's code of a boolean and a number",
        run=run_weaving,
        full=grid(bits=(1, 2, 4, 8, 16)),
        quick=grid(bits=(1, 8)),
        seeds=1,
        quick_seeds=1,
    ),
    ExperimentPart(
        name="traffic",
        says="what an event takes, by the number of peers",
        run=run_traffic,
        full=grid(peers=(2, 5, 10, 20, 30), subscriptions=300, events=200),
        quick=grid(peers=(2, 10), subscriptions=60, events=40),
        seeds=3,
        quick_seeds=2,
    ),
)  # fmt: skip


# -- figures -----------------------------------------------------------------------------------------------------------


_PEERS = {peers: f"{peers} peers" for peers in (2, 10, 20, 30)}
_IDEAL = ClaimedCurve(label="ideal", y=lambda percent: percent / 100)


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
        drawn=(ClaimedCurve(label="ideal, ten peers or more", y=lambda peers: max(1, round(peers / 5)) / peers),),
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
        drawn=(ClaimedCurve(label="the paper: more than 20", y=lambda depth: 20),),
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
        drawn=(ClaimedCurve(label="one peer that has everything", y=lambda peers: SUBSCRIPTIONS),),
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
        drawn=(ClaimedCurve(label="the paper: one hop", y=lambda peers: 1),),
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
        drawn=(ClaimedCurve(label="the paper: ⌈log N⌉ to the base 16", y=lambda peers: steps_of(int(peers))),),
    ),
)


# -- the experiment ----------------------------------------------------------------------------------------------------


EXPERIMENT: Final = Experiment(
    name="dmm",
    title="Multidimensional matching on few peers (paper D)",
    about=(
        "Subscriptions to one attribute with values from 1 to 2^18, fine (one value) or coarse (a random lower and "
        "upper value), on 2 to 30 peers with random 128-bit ids. The load of a peer is how many entries of the tree it "
        "holds, as in the paper. Figures 6 to 9 are of a model that shares space, keys and the rule of splits with "
        "brokers; lookups and walks are of simulated networks. The paper gives neither the threshold above which a "
        f"region is split nor the limit of depth: where a part does not say otherwise they are {THRESHOLD} and "
        f"{DEPTH}, with which all of its figures come out. It does not define balance either; here the fullest fifth "
        "of the peers is looked at, which of random keys has about two fifths."
    ),
    parts=PARTS,
    figures=FIGURES,
    claims=(*CLAIMS, *PASTRY_CLAIMS, *CODE_CLAIMS, *TRAFFIC_CLAIMS),
)
