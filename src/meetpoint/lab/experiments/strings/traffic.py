"""Figures 9 to 11: how many SubIDs are sent for an event, by the three modes, corrected and as printed.

All modes and both versions get the same subscriptions at the same homes, the same events at the same brokers, and the
attributes in the same order of selectivity, so that they are compared within a cell. What is corrected must find what
the index finds, for every event and in every mode, or the cell fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

import msgspec

from meetpoint.lab.experiments.cells import Parameters
from meetpoint.lab.experiments.models.corrected import CorrectedModel
from meetpoint.lab.experiments.models.gathering import GatheringModel, subset
from meetpoint.lab.experiments.models.printed import PrintedGathering
from meetpoint.lab.experiments.models.rings import IdealRing, hashed
from meetpoint.lab.workloads.paper_b import PaperB
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.index import Index
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import CollectionMode

__all__ = ["FIGURES", "VERSIONS", "run", "workload_of"]

FIGURES: Final = (9, 10, 11)
VERSIONS: Final[dict[str, type[CorrectedModel] | type[PrintedGathering]]] = {
    "corrected": CorrectedModel,
    "printed": PrintedGathering,
}
MEASURED: Final = 2_000
"""Events on which the selectivity of attributes is measured, as Spark measures it for brokers."""
_COUNTED: Final = ("lookups", "messages", "subids", "delivered_subids", "walks")


def workload_of(parameters: Parameters, seed: int) -> PaperB:
    """What θ says of: values where those of all attributes are alike (9), else attributes (10, 11)."""
    figure, theta = int(parameters["figure"]), float(parameters["theta"])
    skews: dict[int, PaperB] = {
        9: PaperB(attributes_theta=0.6, values_theta=theta),
        10: PaperB(attributes_theta=theta, values_theta=0.5),
        11: PaperB(attributes_theta=theta, skew="unpopular"),
    }
    constraints = "equality" if parameters["constraints"] == "equality" else "mixed"
    return msgspec.structs.replace(
        skews[figure], seed=seed, attributes=int(parameters["attributes"]), constraints=constraints
    )


def run(parameters: Parameters, seed: int) -> dict[str, float]:
    """What is sent for an event, on average."""
    workload = workload_of(parameters, seed)
    parser = FilterParser()
    filters = [parser.parse(text) for text in workload.subscriptions(int(parameters["subscriptions"]))]
    events = list(workload.events(int(parameters["events"])))
    expected = [subset(numbers) for numbers in Index.from_filters(enumerate(filters)).match_batch(events)]
    random = Random(f"strings/{seed}")
    nodes = int(parameters["nodes"])
    homes = [random.randrange(nodes) for _ in filters]
    origins = [random.randrange(nodes) for _ in events]
    models = _models(nodes, seed, Schema.from_yaml(workload.schema), filters, homes)
    place = {name: at for at, name in enumerate(models["corrected"].selectivity_order(events[:MEASURED]))}
    wrong = dict.fromkeys((f"printed_{mode}_{what}" for mode in CollectionMode for what in ("missing", "spurious")), 0)
    for event, origin, right in zip(events, origins, expected, strict=True):
        order = sorted(event, key=place.__getitem__)
        found = models["corrected"].publish(event, order, origin)
        if any(each != right for each in found.values()):
            raise AssertionError(f"{event}: the corrected version and the index do not find the same")
        for mode, each in models["printed"].publish(event, order, origin).items():
            wrong[f"printed_{mode}_missing"] += (right & ~each).bit_count()
            wrong[f"printed_{mode}_spurious"] += (each & ~right).bit_count()
    sums = {
        "matches": sum(map(int.bit_count, expected)),
        "attributes_held": sum(map(len, events)),
        **wrong,
        **{name: count for version, model in models.items() for name, count in _counts(version, model)},
    }
    return {name: count / len(events) for name, count in sums.items()}


def _models(
    nodes: int, seed: int, schema: Schema, filters: Sequence[Filter], homes: Sequence[int]
) -> dict[str, GatheringModel]:
    ring = IdealRing(Ring(), hashed(Ring(), nodes, seed))
    return {name: version(ring, schema, filters, homes) for name, version in VERSIONS.items()}


def _counts(version: str, model: GatheringModel) -> Iterator[tuple[str, int]]:
    for mode, sent in model.sent.items():
        for what in _COUNTED:
            yield f"{version}_{mode}_{what}", getattr(sent, what)
