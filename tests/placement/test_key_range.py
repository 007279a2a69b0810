"""Arcs against sets of numbers."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from meetpoint.node.overlay import Span
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.key_range import KeyRange, arc_of, common, founding_arcs, meets, without
from meetpoint.placement.ownership.range_store import joined

RING = Ring(4)
KEYS = [RING.key(number) for number in range(16)]


def keys_of(arc: KeyRange) -> set[bytes]:
    at, keys = RING.add(arc.low, 1), set()
    while True:
        keys.add(bytes(at))
        if at == arc.high:
            return keys
        at = RING.add(at, 1)


def keys_from(first: bytes, last: bytes) -> set[bytes]:
    return {bytes(RING.add(first, step)) for step in range(RING.distance(first, last) + 1)}


def test_an_arc_holds_what_follows_its_low_end_up_to_its_high_end() -> None:
    for low, high in product(KEYS, KEYS):
        arc = KeyRange(low, high)
        assert {bytes(key) for key in KEYS if arc.holds(key)} == keys_of(arc)


def test_an_arc_meets_a_span_where_they_share_a_key() -> None:
    for low, high, first, last in product(KEYS, KEYS, KEYS, KEYS):
        arc = KeyRange(low, high)
        assert meets(arc, first, last) == bool(keys_of(arc) & keys_from(first, last)), (arc, first, last)


def test_the_arcs_of_founders_share_the_circle() -> None:
    for homes in ([KEYS[3]], [KEYS[0], KEYS[15]], [KEYS[9], KEYS[2], KEYS[7]]):
        arcs = founding_arcs(homes)
        held = [key for arc in arcs.values() for key in keys_of(arc)]
        assert sorted(held) == sorted(map(bytes, KEYS))
        assert all(arc.high == home for home, arc in arcs.items())


@pytest.mark.slow
def test_arcs_that_touch_become_one() -> None:
    for a, b, c, d in product(KEYS, KEYS, KEYS, KEYS):
        arcs = [arc for arc in {KeyRange(a, b), KeyRange(c, d)} if arc.low != arc.high]
        if len(arcs) < 2 or keys_of(arcs[0]) & keys_of(arcs[1]):
            continue
        together = joined(arcs)
        assert {key for arc in together for key in keys_of(arc)} == keys_of(arcs[0]) | keys_of(arcs[1])
        touch = arcs[0].high == arcs[1].low or arcs[1].high == arcs[0].low
        assert len(together) == (1 if touch else 2)


def test_a_span_has_the_same_keys_as_its_arc() -> None:
    for first, last in combinations(KEYS, 2):
        assert keys_of(arc_of(RING, Span(first, last))) == keys_from(first, last)
    assert len(keys_of(arc_of(RING, Span(KEYS[0], KEYS[15])))) == 16


def test_what_arcs_have_in_common_and_what_they_have_alone() -> None:
    some = [KeyRange(low, high) for low, high in product(KEYS[::3], KEYS[::5])]
    pairs = [(), *((arc,) for arc in some), *combinations(some, 2)]
    for arcs, others in product(pairs[::3], pairs[::4]):
        keys = {key for arc in arcs for key in keys_of(arc)}
        foreign = {key for arc in others for key in keys_of(arc)}
        shared, alone = common(RING, arcs, others), without(RING, arcs, others)
        for parts, expected in ((shared, keys & foreign), (alone, keys - foreign)):
            assert sorted(key for arc in parts for key in keys_of(arc)) == sorted(expected)
            assert all(one.high != other.low for one in parts for other in parts if one != other), "as few as may be"
