"""Paper E: filters routed over the Chord graph."""

from __future__ import annotations

from meetpoint.lab.experiments.experiment import Experiment, Part, grid
from meetpoint.lab.experiments.rebeca.claims import CLAIMS
from meetpoint.lab.experiments.rebeca.figures import FIGURES
from meetpoint.lab.experiments.rebeca.halves import run_halves
from meetpoint.lab.experiments.rebeca.printed import run_steps, run_unsubscribing
from meetpoint.lab.experiments.rebeca.reserves import run_survival
from meetpoint.lab.experiments.rebeca.trees import run_load, run_notices, run_trees
from meetpoint.lab.experiments.rebeca.updates import run_updates
from meetpoint.schemes.rebeca.tables import STRATEGIES

__all__ = ["EXPERIMENT"]

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
        Part(
            name="trees",
            says="Depth of trees, edges out and in; model",
            run=run_trees,
            full=grid(nodes=(16, 64, 256, 1024, 4096, 16_384), ids=_IDS, roots=32),
            quick=grid(nodes=(16, 64, 256, 1024), ids=_IDS, roots=32),
        ),
        Part(
            name="load",
            says="Who hands on how much, when everybody publishes; model",
            run=run_load,
            full=grid(nodes=(16, 64, 256, 512), ids=_IDS),
            quick=grid(nodes=(16, 64), ids=_IDS),
        ),
        Part(
            name="notices",
            says="Messages of node-location and node-join; model",
            run=run_notices,
            full=grid(nodes=(16, 64, 256, 1024, 4096), ids=_IDS, askers=32),
            quick=grid(nodes=(16, 64, 256), ids=_IDS, askers=32),
        ),
        Part(
            name="steps",
            says="How far an update travels; model",
            run=run_steps,
            full=grid(nodes=(16, 64, 256, 1024, 4096), subscriptions=10),
            quick=grid(nodes=(16, 64, 256), subscriptions=10),
        ),
        Part(
            name="unsubscribing",
            says="What is left of filters when subscriptions end; model",
            run=run_unsubscribing,
            full=grid(nodes=32, subscriptions=200, rule=("printed", "corrected"), ended=_ENDED),
            quick=grid(nodes=32, subscriptions=200, rule=("printed", "corrected"), ended=(0.0, 0.5, 1.0)),
        ),
        Part(
            name="updates",
            says="Updates, rows and ways for nothing by strategy; simulated",
            run=run_updates,
            full=grid(nodes=16, strategy=STRATEGIES, subscriptions=(50, 100, 200, 400), sampled=2000, events=150),
            quick=grid(nodes=16, strategy=STRATEGIES, subscriptions=(50, 100), sampled=2000, events=150),
            seeds=2,
            quick_seeds=1,
        ),
        Part(
            name="share",
            says="What imperfect merging costs and saves, by the share that it may let through for nothing; simulated",
            run=run_updates,
            full=grid(nodes=16, strategy="imperfect", subscriptions=100, sampled=2000, events=150, share=_SHARES),
            quick=grid(nodes=16, strategy="imperfect", subscriptions=100, sampled=2000, events=150, share=_SHARES),
            seeds=2,
            quick_seeds=1,
        ),
        Part(
            name="survival",
            says="Half of the members fail at once: whole rings; model",
            run=run_survival,
            full=(
                *grid(nodes=(64, 256, 1024), per_level=(1, 2), trials=20_000, repairs=50),
                *grid(nodes=(4096, 16_384), per_level=(1, 2), trials=5_000, repairs=10),
            ),
            quick=grid(nodes=(64, 256, 1024), per_level=(1, 2), trials=20_000, repairs=50),
        ),
        Part(
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
