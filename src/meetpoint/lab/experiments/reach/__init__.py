"""Paper C: content-based multicast on a hypercube."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.experiment import Experiment
from meetpoint.lab.experiments.reach.claims import CLAIMS
from meetpoint.lab.experiments.reach.crashes import CRASH_CLAIMS
from meetpoint.lab.experiments.reach.figures import FIGURES
from meetpoint.lab.experiments.reach.parts import PARTS
from meetpoint.lab.experiments.reach.rules import RULE_CLAIMS

__all__ = ["EXPERIMENT"]

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
