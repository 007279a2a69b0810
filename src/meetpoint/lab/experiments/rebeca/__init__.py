"""Experiment E: filters routed over the Chord graph (paper E). Its parts, figures and claims."""

from __future__ import annotations

from math import exp, log2

from meetpoint.lab.experiments.experiment import ClaimedCurve, Experiment, ExperimentPart, Figure, Fit, grid
from meetpoint.lab.experiments.rebeca.claims import CLAIMS
from meetpoint.lab.experiments.rebeca.model import (
    run_load,
    run_notices,
    run_steps,
    run_survival,
    run_trees,
    run_unsubscribing,
)
from meetpoint.lab.experiments.rebeca.networks import run_halves, run_updates
from meetpoint.schemes.rebeca.tables import STRATEGIES

__all__ = ["EXPERIMENT"]


# -- figures -----------------------------------------------------------------------------------------------------------


STRATEGY_LABELS = {
    "simple": "simple: every row",
    "identity": "identity: equal rows once",
    "covering": "covering",
    "merging": "merging, perfect",
    "imperfect": "merging, imperfect (10 %)",
}
RULE_LABELS = {"printed": "as printed", "corrected": "ours"}
RESERVE_LABELS = {1: "log2 N in reserve, as in the paper", 2: "2 log2 N in reserve, ours"}
IDS_LABELS = {"even": "at equal distances", "hashed": "hashed ids"}
_MEMBERS = "members of the graph, N"
_SUBSCRIPTIONS = "subscriptions, at 16 brokers"

FIGURES = (
    Figure(
        name="depth",
        title="How deep delivery trees are",
        part="trees",
        x="nodes",
        x_label=_MEMBERS,
        y="deepest",
        y_label="messages from the root to the deepest member",
        lines="ids",
        labels=IDS_LABELS,
        log_x=True,
        drawn=(ClaimedCurve(label="log2 N", y=log2),),
        fit=Fit(model="log"),
        says="The deepest of 32 trees, or of as many as there are members. With hashed ids they are about as deep as "
        "binomial ones.",
    ),
    Figure(
        name="depth-mean",
        title="How far a member is from the publisher",
        part="trees",
        x="nodes",
        x_label=_MEMBERS,
        y="depth_mean",
        y_label="messages from the root to a member, mean",
        lines="ids",
        labels=IDS_LABELS,
        log_x=True,
        drawn=(ClaimedCurve(label="½ log2 N", y=lambda nodes: log2(nodes) / 2),),
        fit=Fit(model="log"),
    ),
    Figure(
        name="edges",
        title="Edges of a member, with hashed ids",
        part="trees",
        x="nodes",
        x_label=_MEMBERS,
        y=("edges_out_most", "edges_in_most", "edges_in_least"),
        y_label="edges",
        labels={
            "edges_out_most": "out, the most",
            "edges_in_most": "in, the most",
            "edges_in_least": "in, the least",
        },
        where={"ids": "hashed"},
        log_x=True,
        log_y=True,
        drawn=(ClaimedCurve(label="log2 N", y=log2),),
        says="Who follows a long gap is the edge of many; who follows a short one, of its predecessor only.",
    ),
    Figure(
        name="load",
        title="Who hands events on: everybody publishes once, to all",
        part="load",
        x="nodes",
        x_label=_MEMBERS,
        y=("busiest_to_mean", "one_tree_busiest_to_mean"),
        y_label="the busiest member's sends, to the mean",
        labels={
            **IDS_LABELS,
            "busiest_to_mean": "a tree for each root",
            "one_tree_busiest_to_mean": "one tree for all",
        },
        panels="ids",
        log_x=True,
        drawn=(ClaimedCurve(label="even", y=lambda nodes: 1.0),),
        says="At equal distances a tree for each root is perfectly even; with hashed ids who follows a gap does more.",
    ),
    Figure(
        name="notices",
        title="Messages of maintenance",
        part="notices",
        x="nodes",
        x_label=_MEMBERS,
        y=("location_mean", "location_most", "join_mean"),
        y_label="messages",
        labels={
            **IDS_LABELS,
            "location_mean": "node-location, mean",
            "location_most": "node-location, the most",
            "join_mean": "node-join to all it is for, mean",
        },
        panels="ids",
        log_x=True,
        drawn=(ClaimedCurve(label="log2 N", y=log2),),
        fit=Fit(model="log"),
        says="A node-location is a lookup. A node-join is for log2 N members; with hashed ids these lie scattered.",
    ),
    Figure(
        name="update-steps",
        title="How far a filter update travels",
        part="steps",
        x="nodes",
        x_label=_MEMBERS,
        y="steps_most",
        y_label="updates, one after another, the most",
        log_x=True,
        drawn=(ClaimedCurve(label="log2 N", y=log2),),
        fit=Fit(model="log"),
    ),
    Figure(
        name="updates-by-members",
        title="How many are told of a subscription that nobody else has",
        part="steps",
        x="nodes",
        x_label=_MEMBERS,
        y="updates_per_subscription",
        y_label="updates a subscription",
        log_x=True,
        log_y=True,
        drawn=(ClaimedCurve(label="N − 1", y=lambda nodes: max(1.0, nodes - 1)),),
        fit=Fit(model="power"),
        says="Everybody is: what nobody wants elsewhere is covered by nothing.",
    ),
    Figure(
        name="rows",
        title="Rows in the filter of an edge",
        part="updates",
        x="subscriptions",
        x_label=_SUBSCRIPTIONS,
        y="rows_per_edge",
        y_label="rows, mean of all edges",
        lines="strategy",
        labels=STRATEGY_LABELS,
        log_x=True,
        log_y=True,
    ),
    Figure(
        name="updates",
        title="Updates for one more subscription",
        part="updates",
        x="subscriptions",
        x_label=_SUBSCRIPTIONS,
        y="updates_per_subscription",
        y_label="updates a subscription, of the last 50",
        lines="strategy",
        labels=STRATEGY_LABELS,
        log_x=True,
        says="Covering stops updates, the more the more is wanted already.",
    ),
    Figure(
        name="update-bytes",
        title="Bytes of updates for one more subscription",
        part="updates",
        x="subscriptions",
        x_label=_SUBSCRIPTIONS,
        y="update_bytes_per_subscription",
        y_label="bytes a subscription, of the last 50",
        lines="strategy",
        labels=STRATEGY_LABELS,
        log_x=True,
        log_y=True,
        says="An update carries the whole table, as in the paper.",
    ),
    Figure(
        name="for-nothing",
        title="Messages with events that lead to nobody",
        part="updates",
        x="subscriptions",
        x_label=_SUBSCRIPTIONS,
        y="for_nothing",
        y_label="share of messages that hand an event on",
        lines="strategy",
        labels=STRATEGY_LABELS,
        log_x=True,
        says="What all have in common is the graph's: an edge's filter is of all that it may ever answer for.",
    ),
    Figure(
        name="share",
        title="Imperfect merging: what it may let through, and what it does",
        part="share",
        x="share",
        x_label="share that each edge may let through for nothing, by its own sample",
        y="for_nothing",
        y_label="share of messages that hand an event on",
        drawn=(ClaimedCurve(label="as much", y=lambda share: share),),
        says="Each edge keeps the bound for itself and for the events that it has seen; along a way shares add up.",
    ),
    Figure(
        name="unsubscribing",
        title="What filters let through when subscriptions end",
        part="unsubscribing",
        x="ended",
        x_label="share of subscriptions that have ended",
        y="sends_per_event",
        y_label="messages that hand an event on, an event",
        lines="rule",
        labels=RULE_LABELS,
        says="As printed a smaller filter is covered by the one that is there, and never takes effect.",
    ),
    Figure(
        name="half-fails",
        title="Half of the members fail at once: rings that are whole by their reserves alone",
        part="survival",
        x="nodes",
        x_label=_MEMBERS,
        y="whole_alone",
        y_label="share of trials",
        lines="per_level",
        labels=RESERVE_LABELS,
        log_x=True,
        drawn=(
            ClaimedCurve(label="e^-½", y=lambda nodes: exp(-0.5)),
            ClaimedCurve(label="1 − 1/2N", y=lambda nodes: 1 - 1 / (2 * nodes)),
        ),
        says="With repair by fingers and incoming edges as well, all rings that were looked at are whole.",
    ),
    Figure(
        name="half-fails-running",
        title="Half of a running network fails: seconds until the ring of the graph is whole",
        part="halves",
        x="nodes",
        x_label="brokers",
        y=("whole_s", "whole_s_most"),
        y_label="seconds after the crash",
        labels={**RESERVE_LABELS, "whole_s": "median", "whole_s_most": "the longest"},
        panels="per_level",
        says="A survivor takes another for silent after three questions without an answer.",
    ),
)


# -- the experiment ----------------------------------------------------------------------------------------------------


_IDS = ("even", "hashed")
_ENDED = (0.0, 0.25, 0.5, 0.75, 1.0)
_SHARES = (0.02, 0.1, 0.3)

EXPERIMENT = Experiment(
    name="rebeca",
    title="Filters routed over the Chord graph (paper E)",
    about=(
        "The paper proves and does not measure; it says neither what is subscribed nor what is published. Trees, steps "
        "of updates, notices and reserves are a model by the functions that brokers run, with all edges right; tables, "
        "updates and crashes are of simulated networks, each judged by the oracle. Chosen: hashed ids or ids at equal "
        "distances; subscriptions for one of 40 topics, the first ones popular (Pareto), three in four with a range of "
        "prices; events with a topic and a price, all equally likely; 16 brokers."
    ),
    parts=(
        ExperimentPart(
            name="trees",
            says="Depth of trees, edges out and in; model",
            run=run_trees,
            full=grid(nodes=(16, 64, 256, 1024, 4096, 16_384), ids=_IDS, roots=32),
            quick=grid(nodes=(16, 64, 256, 1024), ids=_IDS, roots=32),
        ),
        ExperimentPart(
            name="load",
            says="Who hands on how much, when everybody publishes; model",
            run=run_load,
            full=grid(nodes=(16, 64, 256, 512), ids=_IDS),
            quick=grid(nodes=(16, 64), ids=_IDS),
        ),
        ExperimentPart(
            name="notices",
            says="Messages of node-location and node-join; model",
            run=run_notices,
            full=grid(nodes=(16, 64, 256, 1024, 4096), ids=_IDS, askers=32),
            quick=grid(nodes=(16, 64, 256), ids=_IDS, askers=32),
        ),
        ExperimentPart(
            name="steps",
            says="How far an update travels; model",
            run=run_steps,
            full=grid(nodes=(16, 64, 256, 1024, 4096), subscriptions=10),
            quick=grid(nodes=(16, 64, 256), subscriptions=10),
        ),
        ExperimentPart(
            name="unsubscribing",
            says="What is left of filters when subscriptions end; model",
            run=run_unsubscribing,
            full=grid(nodes=32, subscriptions=200, rule=("printed", "corrected"), ended=_ENDED),
            quick=grid(nodes=32, subscriptions=200, rule=("printed", "corrected"), ended=(0.0, 0.5, 1.0)),
        ),
        ExperimentPart(
            name="updates",
            says="Updates, rows and ways for nothing by strategy; simulated",
            run=run_updates,
            full=grid(nodes=16, strategy=STRATEGIES, subscriptions=(50, 100, 200, 400), sampled=2000, events=150),
            quick=grid(nodes=16, strategy=STRATEGIES, subscriptions=(50, 100), sampled=2000, events=150),
            seeds=2,
            quick_seeds=1,
        ),
        ExperimentPart(
            name="share",
            says="What imperfect merging costs and saves, by the share that it may let through for nothing; simulated",
            run=run_updates,
            full=grid(nodes=16, strategy="imperfect", subscriptions=100, sampled=2000, events=150, share=_SHARES),
            quick=grid(nodes=16, strategy="imperfect", subscriptions=100, sampled=2000, events=150, share=_SHARES),
            seeds=2,
            quick_seeds=1,
        ),
        ExperimentPart(
            name="survival",
            says="Half of the members fail at once: whole rings; model",
            run=run_survival,
            full=(
                *grid(nodes=(64, 256, 1024), per_level=(1, 2), trials=20_000, repairs=50),
                *grid(nodes=(4096, 16_384), per_level=(1, 2), trials=5_000, repairs=10),
            ),
            quick=grid(nodes=(64, 256, 1024), per_level=(1, 2), trials=20_000, repairs=50),
        ),
        ExperimentPart(
            name="halves",
            says="Half of the brokers crash, and are back after 35 s; simulated",
            run=run_halves,
            full=(
                *grid(nodes=16, per_level=(1, 2), runs=6),
                *grid(nodes=32, per_level=(1, 2), runs=1),
            ),
            quick=grid(nodes=16, per_level=(1, 2), runs=6),
        ),
    ),
    figures=FIGURES,
    claims=CLAIMS,
)
