"""The normal form against the oracle: two evaluations that share nothing but the tree they start from."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Kind, clean_attributes, parse_filter
from meetpoint.language.syntax.tree import And, Not, Or, predicates
from meetpoint.matching import Scan
from meetpoint.matching.scan import evaluate
from tests.workloads import TYPES, random_events, random_filter


@pytest.mark.parametrize("seed", range(8))
def test_normal_form_and_tree_accept_the_same_events(seed: int) -> None:
    rng = random.Random(seed)
    events = [clean_attributes(event) for event in random_events(rng, 40)]
    matched = pairs = refused = 0
    used: Counter[str] = Counter()
    for _ in range(250):
        text = random_filter(rng)
        try:
            filter_ = parse_filter(text)
        except LimitError:  # multiplied out, a few deep ones have over 64 alternatives
            refused += 1
            continue
        used.update(type(p).__name__ for p in predicates(filter_.tree))
        used[type(filter_.tree).__name__] += 1
        for event in events:
            verdict = evaluate(filter_.tree, event) is True
            assert filter_.accepts(event) is verdict, (seed, text, event)
            matched += verdict
            pairs += 1
    assert 0.2 < matched / pairs < 0.8
    assert refused < 25
    assert {"Compare", "Between", "In", "Like", "TextTest", "IsNull", And.__name__, Or.__name__, Not.__name__} <= set(
        used
    )


@pytest.mark.parametrize("seed", range(4))
def test_mixed_kinds_are_null_in_the_tree_and_in_the_normal_form(seed: int) -> None:
    """Without a schema an attribute may hold anything: shuffle the values among the attributes."""
    rng = random.Random(1000 + seed)
    events = []
    for event in random_events(rng, 40):
        names = [name for name in TYPES if "." not in name]
        values = [event.get(name) for name in names]
        rng.shuffle(values)
        events.append(clean_attributes(dict(zip(names, values, strict=True))))
    scan: Scan[int] = Scan()
    filters = {}
    for number in range(200):
        try:
            filters[number] = parse_filter(random_filter(rng, 2))
        except LimitError:
            continue
        scan.add(number, filters[number])
    for event in events:
        assert scan.match(event) == [number for number, f in filters.items() if f.accepts(event)]
    assert scan.mismatches.total() > 1000
    assert any(kind is Kind.STRING and held == "number" for _, kind, held in scan.mismatches)
