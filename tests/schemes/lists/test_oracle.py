"""The corrected lists against brute force: before any home looks, exactly the conjunctions that accept an event."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache

import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Filter, Schema, clean_attributes, parse_filter
from meetpoint.matching import Scan
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Quantiles, Scale
from meetpoint.schemes.lists.collection import CollectionMode
from meetpoint.schemes.lists.subids import conjunction_number
from meetpoint.schemes.lists.value_hash import Hashing
from tests.schemes.declared import DECLARED
from tests.schemes.lists.model import Model, numbers
from tests.workloads import random_events, random_filter

SCALES: dict[str, Scale] = {
    "i": Quantiles.of([0, 1, 1, 2, 5], DECLARED["i"]),
    "f": Quantiles.of([-0.1, 0.1, 8.3]),
    "o.x": Quantiles.of([1]),
}
HASHES: dict[str, dict[str, object]] = {
    "plain": {},
    "ordered": {"order_preserving": True},
    "quantiles": {"order_preserving": True, "scales": SCALES},
    "few points": {"points_max": 1},
    "few arcs": {"points_max": 1, "order_preserving": True},
}


PRESENCE = [
    "o IS NOT NULL",
    "o IS NULL",
    "o IS NULL AND i IS NULL AND s IS NOT NULL",
    "user IS NOT NULL AND o.x IS NOT NULL",
    "o.x.deep IS NOT NULL",
    "o.x.deep IS NULL AND o IS NOT NULL",
    "TRUE",
]
"""Filters that ask of objects and of nothing at all."""

Workload = tuple[dict[int, Filter], list[Mapping[str, object]], list[list[int]]]


@cache
def workload(seed: int) -> Workload:
    """Filters by number, events, and which filters accept each."""
    rng = random.Random(seed)
    filters: dict[int, Filter] = {}
    for text in PRESENCE:
        filters[len(filters)] = parse_filter(text)
    while len(filters) < 100:
        try:
            filters[len(filters)] = parse_filter(random_filter(rng, rng.choice([0, 1, 2])))
        except LimitError:
            continue
    events: list[Mapping[str, object]] = [clean_attributes(event) for event in random_events(rng, 50)]
    events += [{}, {"o": {}}, {"o": {"x": None}}, {"o": "a text", "i": "another", "s": 5}, {"o": {"x": {"deep": 1}}}]
    scan: Scan[int] = Scan()
    for number, filter_ in filters.items():
        scan.add(number, filter_)
    return filters, events, [sorted(matched) for matched in scan.match_batch(events)]


def conjunctions(filters: Mapping[int, Filter], event: Mapping[str, object]) -> list[int]:
    """The numbers of all conjunctions that accept an event."""
    return [
        conjunction_number(number, place)
        for number, filter_ in filters.items()
        for place, conjunction in enumerate(filter_.conjunctions)
        if conjunction.accepts(event)
    ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("bits", [5, 160])
@pytest.mark.parametrize("schema", [DECLARED, None], ids=["declared", "undeclared"])
@pytest.mark.parametrize("name", HASHES)
def test_lists_find_exactly_what_brute_force_finds(name: str, schema: Schema | None, bits: int, seed: int) -> None:
    filters, events, expected = workload(seed)
    rng = random.Random(f"nodes {seed}")
    ring = Ring(bits)
    hashing = Hashing(ring, schema, **HASHES[name])  # type: ignore[arg-type]
    model = Model(hashing, {ring.node(rng.getrandbits(bits)) for _ in range(12)})
    for number, filter_ in filters.items():
        model.subscribe(number, filter_)
    for event, matched in zip(events, expected, strict=True):
        accepting = conjunctions(filters, event)
        for mode in CollectionMode:
            found = model.matches(event, mode)
            assert numbers(found) == matched, (mode, event)
            assert sorted(sub_id.number for sub_id in found) == accepting, (mode, event)
    for number in filters:
        model.update(number, None)
    assert not any(model.lists.values()), "deleting leaves nothing behind"


@pytest.mark.parametrize("ordered", [False, True])
def test_lists_stay_exact_through_updates(ordered: bool) -> None:
    rng = random.Random(9)
    ring = Ring()
    model = Model(
        Hashing(ring, DECLARED, order_preserving=ordered), [ring.node(rng.getrandbits(160)) for _ in range(16)]
    )
    for seed in (0, 1, 0):
        filters, events, expected = workload(seed)
        for number, filter_ in filters.items():
            model.update(number, filter_)
        for event, matched in zip(events, expected, strict=True):
            assert numbers(model.matches(event, CollectionMode.HYBRID)) == matched
