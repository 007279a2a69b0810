"""Loads are counted where `lists` places keys, and what is drawn is as skewed as it is said to be."""

from __future__ import annotations

import numpy as np
import pytest

from meetpoint.lab.experiments.rings import (
    ATTRIBUTES,
    LENGTH,
    NUMBERS,
    draw_numbers,
    entries_for,
    hashed,
    loads,
    max_to_mean,
    max_to_min,
    placed_numbers,
    placed_words,
    quantiles,
    spaced,
    word,
    zipf,
)
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.value_hash import Hashing

NODES = 128


def head(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")


def test_keys_are_those_that_lists_places() -> None:
    ring = Ring()
    words = {
        head(entry.low)
        for rank in range(50)
        for at in range(ATTRIBUTES)
        for entry in entries_for(Hashing(ring), f"a{at} = '{word(rank)}'")
    }
    drawn = placed_words(1.0, 200, 3).tolist()
    assert sum(key in words for key in drawn) > 20, "small ranks are common"
    for in_order in (True, False):
        (entry,) = entries_for(Hashing(ring, NUMBERS, order_preserving=in_order), "price = 8.4")
        assert placed_numbers("price", [8.4], in_order=in_order).tolist() == [head(entry.low)]
    scale = quantiles(draw_numbers("price", 1_000, 1), NUMBERS["price"], 16)
    (entry,) = entries_for(Hashing(ring, NUMBERS, order_preserving=True, scales={"price": scale}), "price = 8.4")
    assert placed_numbers("price", [8.4], scale).tolist() == [head(entry.low)]


@pytest.mark.parametrize("place", [spaced, lambda ring, count: hashed(ring, count, 3)])
def test_a_key_is_counted_at_the_first_node_at_or_after_it(place: object) -> None:
    ring = Ring()
    nodes = sorted(place(ring, NODES))  # type: ignore[operator]
    keys = [ring.hash(b"%d" % number) for number in range(2_000)]
    by_hand = [0] * NODES
    for key in keys:
        by_hand[next((at for at, node in enumerate(nodes) if node >= key), 0)] += 1
    load = loads(np.array([head(key) for key in keys], np.uint64), nodes)
    assert load.tolist() == by_hand
    assert max_to_mean(load) == max(by_hand) * NODES / 2_000
    assert max_to_min(np.array([0, 6])) == 6


def test_words_have_one_rank_each_and_ranks_follow_zipf() -> None:
    assert len({word(rank) for rank in range(20_000)}) == 20_000
    assert {len(word(rank)) for rank in range(100)} == {LENGTH}
    for theta in (0.5, 1.0):
        drawn = zipf(np.random.default_rng(1), theta, 1_000, 200_000)
        assert 0 <= drawn.min() <= drawn.max() <= 999
        share = np.bincount(drawn, minlength=1_000)[99:500].sum() / 200_000
        whole = sum(number**-theta for number in range(1, 1_001))
        assert share == pytest.approx(sum(number**-theta for number in range(100, 501)) / whole, rel=0.1)


def test_a_scale_of_quantiles_has_as_many_parts_as_it_was_asked_for() -> None:
    scale = quantiles(draw_numbers("price", 5_000, 1), NUMBERS["price"], 32)
    assert len(scale.edges) == 33
    assert [float(end) for end in (scale.edges[0], scale.edges[-1])] == [0, 10_000]
