"""The matcher for a few filters against the oracle, while filters come, change and go."""

from __future__ import annotations

import math
import random
from decimal import Decimal

import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Filter, clean_attributes, parse_filter
from meetpoint.matching import Scan
from meetpoint.matching.matcher import POINTS_MAX, SmallMatcher
from tests.workloads import TYPES, random_events, random_filter


def some_filter(rng: random.Random) -> Filter:
    while True:
        try:
            return parse_filter(random_filter(rng, rng.choice((0, 1, 1, 3))))
        except LimitError:
            continue


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_it_says_what_the_oracle_says_whatever_comes_and_goes(seed: int) -> None:
    rng = random.Random(seed)
    events = [clean_attributes(event) for event in random_events(rng, 12)]
    for event in random_events(rng, 12):  # without a schema an attribute may hold anything
        names = [name for name in TYPES if "." not in name]
        values = [event.get(name) for name in names]
        rng.shuffle(values)
        events.append(clean_attributes(dict(zip(names, values, strict=True))))
    scan: Scan[int] = Scan()
    small: SmallMatcher[int] = SmallMatcher()
    held: list[int] = []
    matched = pointed = 0
    for number in range(300):
        what = rng.random()
        if what < 0.6 or not held:
            filter_ = some_filter(rng)
            scan.add(number, filter_)
            small.add(number, filter_)
            held.append(number)
        elif what < 0.8:
            changed, filter_ = rng.choice(held), some_filter(rng)
            scan.update(changed, filter_)
            small.update(changed, filter_)
        else:
            gone = held.pop(rng.randrange(len(held)))
            scan.remove(gone)
            small.remove(gone)
        for event in rng.sample(events, 4):
            found = small.match(event)
            assert found == scan.match(event), (seed, number, event)
            matched += len(found)
        pointed += len(small._points_of)
    assert len(small) == len(held)
    assert small.match_batch(events) == [scan.match(event) for event in events]
    assert matched > 1000
    assert pointed > 1000, "many are filed under values"
    for number in held:
        small.remove(number)
    left = [small._filed, small._paths, small._unfiled, small._points_of, small._orders]
    assert not any(left)


@pytest.mark.parametrize(
    ("text", "value", "is_accepted"),
    [
        ("x = 1", 1, True),
        ("x = 1", 1.0, True),
        ("x = 1", Decimal("1.00"), True),
        ("x = 1", True, False),
        ("x = 1", "1", False),
        ("x = 0", -0.0, True),
        ("x = 0.1", 0.1, True),
        ("x = 0.1", Decimal("0.1"), True),
        ("x = 9007199254740993", 2.0**53, True),  # as doubles they are one, as in Spark
        ("x = 9007199254740993", 2**53, False),
        ("x IN (1, 2)", math.nan, False),
        ("x NOT IN (1, 2)", math.nan, True),
    ],
)
def test_values_are_found_as_filters_compare_them(text: str, value: object, is_accepted: bool) -> None:
    filter_ = parse_filter(text)
    small: SmallMatcher[str] = SmallMatcher([("s", filter_)])
    event = clean_attributes({"x": value})
    assert small.match(event) == (["s"] if is_accepted else [])
    scan: Scan[str] = Scan()
    scan.add("s", filter_)
    assert scan.match(event) == small.match(event)


def test_what_names_values_is_tried_only_where_an_event_has_one() -> None:
    small = SmallMatcher((number, parse_filter(f"k = {number} AND n > 0")) for number in range(100))
    small.add(-1, parse_filter(f"k IN ({', '.join(map(str, range(POINTS_MAX + 1)))})"))
    small.add(-2, parse_filter("k = 5 OR n > 7"))
    assert sorted(small._unfiled) == [-2, -1]
    assert small.match({"k": 5, "n": 1}) == [5, -1, -2]
    assert small.match({"k": {"k": 5}, "n": 8}) == [-2]


def test_a_conjunction_is_filed_where_fewest_are() -> None:
    small = SmallMatcher((at, parse_filter(f"market = 'NYSE' AND symbol = 'S{at}'")) for at in range(50))
    assert max(map(len, small._filed.values())) <= 2


def test_ids_are_taken_once_and_known() -> None:
    small: SmallMatcher[str] = SmallMatcher()
    small.add("a", parse_filter("x = 1"))
    with pytest.raises(KeyError):
        small.add("a", parse_filter("x = 2"))
    with pytest.raises(KeyError):
        small.remove("b")
    with pytest.raises(KeyError):
        small.update("b", parse_filter("x = 1"))
    small.update("a", parse_filter("x = 2"))
    assert (small.match({"x": 1}), small.match({"x": 2})) == ([], ["a"])
