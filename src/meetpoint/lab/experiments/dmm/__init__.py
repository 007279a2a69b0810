"""Paper D: multidimensional matching in small networks."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.dmm.claims import CLAIMS
from meetpoint.lab.experiments.dmm.codes import CODE_CLAIMS
from meetpoint.lab.experiments.dmm.figures import FIGURES
from meetpoint.lab.experiments.dmm.parts import DEPTH, PARTS, THRESHOLD
from meetpoint.lab.experiments.dmm.pastry import PASTRY_CLAIMS
from meetpoint.lab.experiments.dmm.traffic import TRAFFIC_CLAIMS
from meetpoint.lab.experiments.experiment import Experiment

__all__ = ["EXPERIMENT"]

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
