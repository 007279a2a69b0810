"""Claims: what is left of them, point by point, against brute force over all ids."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.hypercube.regions import (
    WHOLE,
    Region,
    are_neighbours,
    key_of,
    packed,
    point_of,
    span_of,
    unpacked,
)
from meetpoint.overlays.hypercube.rules import (
    FIRST_EPOCH,
    TAKEOVER_EPOCHS,
    UNHEARD_EPOCH,
    Claim,
    founding_regions,
    mirror_regions,
    overlap,
    resolved,
    subtract,
    uncovered,
)

BITS = 5
POINTS = range(1 << BITS)

regions = st.integers(0, BITS).flatmap(lambda n: st.builds(Region, st.integers(0, (1 << n) - 1), st.just(n)))
claims = st.builds(Claim, regions, st.integers(-3, 3), st.sampled_from([b"a", b"b", b"c"]))


def points(*some: Region) -> set[int]:
    return {point for point in POINTS if any(region.hosts(point) for region in some)}


def are_apart(some: list[Region]) -> bool:
    return sum(len(points(each)) for each in some) == len(points(*some))


@given(regions, regions)
def test_minus_leaves_what_is_in_the_one_and_not_in_the_other(one: Region, other: Region) -> None:
    left = subtract(one, other)
    assert points(*left) == points(one) - points(other)
    assert are_apart(left)
    assert overlap(one, other) == bool(points(one) & points(other))


@given(regions, st.lists(regions, max_size=6))
def test_uncovered_is_what_none_of_them_has(region: Region, others: list[Region]) -> None:
    left = uncovered(region, others)
    assert points(*left) == points(region) - points(*others)
    assert are_apart(left)


@given(st.lists(claims, max_size=8), st.lists(regions, max_size=2))
def test_at_every_id_the_strongest_claim_counts(said: list[Claim], covered: list[Region]) -> None:
    left = resolved(said, covered)
    assert left == sorted(left)
    for point in POINTS:
        here = [claim for claim in said if claim.region.hosts(point)]
        counts = [(claim.epoch, claim.node) for claim in left if claim.region.hosts(point)]
        if not here or any(region.hosts(point) for region in covered):
            assert counts == []
        else:
            assert counts == [max((claim.epoch, claim.node) for claim in here)]


@given(st.lists(claims, max_size=8), st.randoms(use_true_random=False))
def test_it_does_not_matter_in_which_order_claims_were_heard(said: list[Claim], chance: random.Random) -> None:
    shuffled = sorted(said, key=lambda each: chance.random())
    assert points(*(each.region for each in resolved(said))) == points(*(each.region for each in said))
    owners = [{p: (c.epoch, c.node) for c in resolved(some) for p in points(c.region)} for some in (said, shuffled)]
    assert owners[0] == owners[1]


def test_who_gave_a_region_away_is_weaker_and_who_was_only_silent_is_stronger() -> None:
    had = Claim(Region.read("01"), FIRST_EPOCH, b"z")
    given_to = had._replace(epoch=had.epoch + 1, node=b"a")
    taken = had._replace(epoch=had.epoch - TAKEOVER_EPOCHS, node=b"zz")
    guessed = had._replace(epoch=UNHEARD_EPOCH, node=b"zzz")
    assert max((had, taken, guessed, given_to), key=lambda each: each.strength) == given_to
    assert max((had, taken, guessed), key=lambda each: each.strength) == had
    assert max((taken, guessed), key=lambda each: each.strength) == taken
    passed_on = taken._replace(epoch=taken.epoch + 1000)
    assert passed_on.strength < had.strength, "however often it was passed on since"


@given(regions)
def test_neighbours_are_those_who_have_a_part_of_a_mirror(region: Region) -> None:
    images = mirror_regions(region)
    assert len(images) == region.length
    for length in range(BITS + 1):
        for bits in range(1 << length):
            other = Region(bits, length)
            if not overlap(region, other):
                assert are_neighbours(region, other) == any(overlap(image, other) for image in images)


# -- keys and wire -----------------------------------------------------------------------------------------------------


@given(regions)
def test_a_region_travels_as_bytes(region: Region) -> None:
    assert unpacked(packed(region), BITS) == region
    assert unpacked(packed(region), region.length) == region
    assert region.length == 0 or unpacked(packed(region), region.length - 1) is None


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1", b"\0\1\2", b"\0\1\0\0", b"\0\5", b"\0\xff\0", b"\xff\xff"])
def test_bytes_that_are_no_region_are_none(data: bytes) -> None:
    assert unpacked(data, BITS) is None


@given(regions, st.integers(BITS, 16))
def test_a_region_is_one_span_of_keys(region: Region, ring_bits: int) -> None:
    ring = Ring(ring_bits)
    span = span_of(ring, region)
    for number in range(ring.size) if ring_bits < 8 else range(0, ring.size, 997):
        key = ring.key(number)
        assert (span.first <= key <= span.last) == region.hosts(point_of(ring, key, BITS))
    for point in POINTS:
        assert point_of(ring, key_of(ring, point, BITS), BITS) == point


# -- founding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 31, 32, 40])
def test_founders_part_all_ids_evenly_and_in_the_order_of_keys(count: int) -> None:
    some = founding_regions(count, BITS)
    assert len(some) == min(count, 32)
    assert points(*some) == points(WHOLE)
    assert are_apart(some)
    lengths = [region.length for region in some]
    assert max(lengths) - min(lengths) <= 1
    spans = [span_of(Ring(16), region) for region in some]
    assert spans == sorted(spans)
