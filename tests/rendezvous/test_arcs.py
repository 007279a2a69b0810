"""Arcs against sets of numbers."""

from __future__ import annotations

from itertools import product

from meetpoint.protocol.ring import Ring
from meetpoint.rendezvous.arcs import Arc, founding_arcs, meets
from meetpoint.rendezvous.holdings import joined

RING = Ring(4)
KEYS = [RING.key(number) for number in range(16)]


def keys_of(arc: Arc) -> set[bytes]:
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
        arc = Arc(low, high)
        assert {bytes(key) for key in KEYS if arc.holds(key)} == keys_of(arc)


def test_an_arc_meets_a_span_where_they_share_a_key() -> None:
    for low, high, first, last in product(KEYS, KEYS, KEYS, KEYS):
        arc = Arc(low, high)
        assert meets(arc, first, last) == bool(keys_of(arc) & keys_from(first, last)), (arc, first, last)


def test_the_arcs_of_founders_share_the_circle() -> None:
    for homes in ([KEYS[3]], [KEYS[0], KEYS[15]], [KEYS[9], KEYS[2], KEYS[7]]):
        arcs = founding_arcs(homes)
        held = [key for arc in arcs.values() for key in keys_of(arc)]
        assert sorted(held) == sorted(map(bytes, KEYS))
        assert all(arc.high == home for home, arc in arcs.items())


def test_arcs_that_touch_become_one() -> None:
    for a, b, c, d in product(KEYS, KEYS, KEYS, KEYS):
        arcs = [arc for arc in {Arc(a, b), Arc(c, d)} if arc.low != arc.high]
        if len(arcs) < 2 or keys_of(arcs[0]) & keys_of(arcs[1]):
            continue
        together = joined(arcs)
        assert {key for arc in together for key in keys_of(arc)} == keys_of(arcs[0]) | keys_of(arcs[1])
        touch = arcs[0].high == arcs[1].low or arcs[1].high == arcs[0].low
        assert len(together) == (1 if touch else 2)
