"""Arithmetic on the circle of ids, against integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.ring import BITS_MAX, Ring, between, between_or_end

RING = Ring(4)


def on_arc(a: int, x: int, b: int, size: int) -> bool:
    """Walk from a until b or a comes: whether x is met before."""
    at = (a + 1) % size
    while at != b and at != a:
        if at == x:
            return True
        at = (at + 1) % size
    return False


@pytest.mark.parametrize("a", range(16))
@pytest.mark.parametrize("b", range(16))
def test_between_is_the_open_arc_clockwise(a: int, b: int) -> None:
    for x in range(16):
        keys = RING.key(a), RING.key(x), RING.key(b)
        assert between(*keys) == on_arc(a, x, b, 16)
        assert between_or_end(*keys) == (on_arc(a, x, b, 16) or x == b)


@given(st.integers(1, BITS_MAX), st.integers(0), st.integers(0))
def test_keys_order_add_and_measure_as_their_numbers(bits: int, a: int, b: int) -> None:
    ring = Ring(bits)
    a, b = a % ring.size, b % ring.size
    assert (ring.key(a) < ring.key(b)) == (a < b)
    assert ring.number(ring.add(ring.key(a), b)) == (a + b) % ring.size
    assert ring.add(ring.key(a), ring.distance(ring.key(a), ring.key(b))) == ring.key(b)
    assert ring.holds(ring.key(a))


@given(st.integers(1, BITS_MAX), st.binary(max_size=20))
def test_a_hash_is_a_key(bits: int, data: bytes) -> None:
    assert Ring(bits).holds(Ring(bits).hash(data))


@pytest.mark.parametrize("bits", [0, BITS_MAX + 1])
def test_a_ring_has_1_to_160_bits(bits: int) -> None:
    with pytest.raises(ValueError, match="160"):
        Ring(bits)


@pytest.mark.parametrize("key", [b"", b"\x00\x01", b"\x10", "a", None, 3])
def test_what_is_no_key_is_told(key: object) -> None:
    assert not RING.holds(key)
