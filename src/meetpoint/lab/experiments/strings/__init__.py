"""Paper B: string attributes over any DHT."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.experiment import Experiment
from meetpoint.lab.experiments.strings.claims import CLAIMS
from meetpoint.lab.experiments.strings.figures import FIGURES
from meetpoint.lab.experiments.strings.ordering import ORDERING_CLAIMS
from meetpoint.lab.experiments.strings.overlays import OVERLAY_CLAIMS
from meetpoint.lab.experiments.strings.parts import PARTS
from meetpoint.lab.experiments.strings.spreading import SPREADING_CLAIMS
from meetpoint.lab.experiments.strings.storing import STORING_CLAIMS

__all__ = ["EXPERIMENT"]

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
