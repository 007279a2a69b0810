"""`python -m benchmarks.balance` at its smallest, and that it measures what `lists` places."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import balance
from benchmarks.balance import NODES, PARTS, SCHEMA, loads, main, max_to_mean, max_to_min, word, zipf
from benchmarks.rings import hashed, spaced
from meetpoint.language.filters import parse_filter
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.ring import Ring
from meetpoint.schemes.lists.entries import entries_of
from meetpoint.schemes.lists.hashing import Hashing


def test_even_ids_balance_strings_hashed_ids_do_not_and_quantiles_balance_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--quick", "--json"])
    figures = {one["name"]: one["value"] for one in json.loads(capsys.readouterr().out)}
    even = [figures[f"max/min of {count} entries, θ 0.5, ids evenly spaced"] for count in ("2,000", "20,000")]
    assert 1 < even[1] < even[0], "the more entries, the nearer to 1"
    assert figures["max/min of 20,000 entries, θ 0.5, ids hashed"] > 150
    for name in ("prices", "ranks"):
        for ids in ("evenly spaced", "hashed"):
            linear, quantiles = (figures[f"max/mean of 2,000 {name}, {scale}, ids {ids}"] for scale in SCALES)
            assert quantiles < linear / 3
    main(["--quick", "--only", "numbers"])
    assert "entries" not in capsys.readouterr().out


SCALES = ("linear", "quantiles")


def test_keys_are_those_that_lists_places() -> None:
    ring = Ring()
    hashing = Hashing(ring)
    (conjunction,) = parse_filter(f"a3 = '{word(5)}'").conjunctions
    (entry,) = entries_of(hashing, conjunction, HomeId(b""), 0)
    assert entry.low == entry.high == hashing.text("a3", word(5))
    ordered = Hashing(ring, SCHEMA, order_preserving=True)
    (conjunction,) = parse_filter("price = 8.4").conjunctions
    (entry,) = entries_of(ordered, conjunction, HomeId(b""), 0)
    assert balance.placed_numbers("price", [8.4], None).tolist() == [int.from_bytes(entry.low[:8], "big")]


@pytest.mark.parametrize("place", [spaced, lambda ring, count: hashed(ring, count, 3)])
def test_a_key_is_counted_at_the_first_node_at_or_after_it(place: object) -> None:
    ring = Ring()
    nodes = sorted(place(ring, NODES))  # type: ignore[operator]
    keys = [ring.hash(b"%d" % number) for number in range(2_000)]
    by_hand = [0] * NODES
    for key in keys:
        by_hand[next((at for at, node in enumerate(nodes) if node >= key), 0)] += 1
    heads = np.array([int.from_bytes(key[:8], "big") for key in keys], np.uint64)
    load = loads(heads, nodes)
    assert load.tolist() == by_hand
    assert max_to_mean(load) == max(by_hand) * NODES / 2_000
    assert max_to_min(np.array([0, 6])) == 6


def test_words_have_one_rank_each_and_ranks_follow_zipf() -> None:
    assert len({word(rank) for rank in range(20_000)}) == 20_000
    assert {len(word(rank)) for rank in range(100)} == {7}
    for theta in (0.5, 1.0):
        drawn = zipf(np.random.default_rng(1), theta, 1_000, 200_000)
        assert 0 <= drawn.min() <= drawn.max() <= 999
        share = np.bincount(drawn, minlength=1_000)[99:500].sum() / 200_000
        whole = sum(number**-theta for number in range(1, 1_001))
        assert share == pytest.approx(sum(number**-theta for number in range(100, 501)) / whole, rel=0.1)


def test_parts_that_there_are_not_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "letters"])
    assert f"choose of {', '.join(PARTS)}" in capsys.readouterr().err
