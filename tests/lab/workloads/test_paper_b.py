"""Paper B's workload is as stated: decided by its seed, drawn as it says, and with matches for the oracle to find."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.paper_b import (
    ATTRIBUTES,
    DRAWS_MAX,
    EVENTS,
    LENGTHS,
    SHARES,
    SUBSCRIPTIONS,
    VALUES,
    PaperB,
)
from meetpoint.language.filters.constraints import EVERY_TEXT, TextSet, accepts
from meetpoint.language.filters.filter import FilterParser
from meetpoint.language.filters.like import PatternSort
from meetpoint.language.schema.schema import Schema
from meetpoint.matching import Scan
from meetpoint.matching.index import Index
from tests.work import count_calls

PLAIN = PaperB()
FIGURE_11 = PaperB(skew="unpopular")


@pytest.mark.slow
def test_the_seed_decides_everything() -> None:
    for drawn in (PaperB.events, PaperB.subscriptions):
        one, same, other = (list(drawn(workload, 200)) for workload in (PLAIN, PaperB(), PaperB(seed=8)))
        assert one == same != other


def test_a_larger_workload_begins_with_the_smaller_in_whatever_order_they_are_drawn() -> None:
    events, subscriptions = PLAIN.events(), PLAIN.subscriptions()
    woven = [(next(events), next(subscriptions)) for _ in range(20)]
    assert woven == list(zip(PLAIN.events(20), PLAIN.subscriptions(20), strict=True))


@pytest.mark.slow
def test_the_schema_is_as_stated() -> None:
    assert (len(ATTRIBUTES), ATTRIBUTES[0], ATTRIBUTES[-1]) == (50, "a01", "a50")
    for attribute in ATTRIBUTES:
        values = PLAIN.values(attribute)
        assert len(set(values)) == len(values) == VALUES
        assert {len(value) for value in values} == set(range(LENGTHS[0], LENGTHS[1] + 1))
    assert PLAIN.values("a01") != PLAIN.values("a02")
    assert sum(1 for _ in PLAIN.events()) == EVENTS == 30_000
    assert sum(1 for _ in PLAIN.subscriptions()) == SUBSCRIPTIONS == 10_000


def test_another_schema_has_fewer_attributes_with_the_same_values() -> None:
    small = PaperB(attributes=10)
    assert small.names == ATTRIBUTES[:10]
    assert small.values("a10") == PLAIN.values("a10")
    assert {name for event in small.events(500) for name in event} == set(small.names)
    assert PLAIN.names == ATTRIBUTES
    assert Schema.from_yaml(small.schema).names == small.names
    steep = PaperB(attributes=10, skew="unpopular")
    drawn = Counter(event["a10"] for event in steep.events(3000) if "a10" in event)
    assert drawn[steep.values("a10")[0]] > 0.1 * drawn.total(), "the last one has θ = 1"


def test_constraints_may_all_be_values() -> None:
    plain = PaperB(constraints="equality")
    assert all("LIKE" not in text for text in plain.subscriptions(300))
    assert sum("LIKE" in text for text in PLAIN.subscriptions(300)) > 200
    assert list(plain.events(50)) == list(PLAIN.events(50))


def test_events_hold_one_to_ten_attributes_the_popular_ones_more_often() -> None:
    events = list(PLAIN.events(5000))
    sizes = Counter(map(len, events))
    assert set(sizes) == set(range(1, DRAWS_MAX + 1))
    held = Counter(name for event in events for name in event)
    popular, middle, rare = (sum(held[name] for name in ATTRIBUTES[at : at + 5]) for at in (0, 20, 45))
    assert popular > 1.8 * middle > 1.8 * 1.3 * rare
    assert all(value in PLAIN.values(name) for event in events[:200] for name, value in event.items())


def test_skew_makes_fewer_attributes() -> None:
    def mean(theta: float) -> float:
        return sum(map(len, PaperB(attributes_theta=theta).events(4000))) / 4000

    assert mean(0.1) > mean(0.6) > mean(1.0) > 4


@pytest.mark.slow
def test_values_are_drawn_by_their_rank() -> None:
    def share(workload: PaperB, attribute: str) -> float:
        """How often one of the hundred most popular values is drawn."""
        head = set(workload.values(attribute)[: VALUES // 10])
        drawn = [event[attribute] for event in workload.events(8000) if attribute in event]
        return sum(value in head for value in drawn) / len(drawn)

    for attribute in ("a01", "a40"):
        assert 0.22 < share(PLAIN, attribute) < 0.38
        assert 0.05 < share(PaperB(values_theta=0.0), attribute) < 0.15
    assert 0.05 < share(FIGURE_11, "a01") < 0.15
    assert share(FIGURE_11, "a25") < share(FIGURE_11, "a50")
    assert 0.55 < share(FIGURE_11, "a50") < 0.83


def sort_of(constraint: object) -> str:
    assert isinstance(constraint, TextSet)
    if constraint.intervals != EVERY_TEXT:
        return "equality"
    (pattern,) = constraint.like
    if pattern.sort is PatternSort.PREFIX:
        return "prefix"
    if pattern.sort is PatternSort.SUFFIX:
        return "suffix"
    assert len(pattern.pieces) == 2
    assert all(1 <= len(piece) <= 2 for piece in pattern.pieces)
    return "affix"


@pytest.mark.slow
def test_subscriptions_are_conjunctions_with_the_stated_mix_and_ask_for_what_exists() -> None:
    parser = FilterParser()
    found: Counter[str] = Counter()
    sizes = set()
    for text in PLAIN.subscriptions(500):
        (conjunction,) = parser.parse(text).conjunctions
        sizes.add(len(conjunction.constraints))
        for attribute, constraint in conjunction.constraints:
            found[sort_of(constraint)] += 1
            assert any(accepts(constraint, value) for value in PLAIN.values(attribute))
    assert sizes == set(range(1, DRAWS_MAX + 1))
    for kind, share in SHARES.items():
        assert abs(found[kind] / found.total() - share) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "least", "most"),
    [
        (PLAIN, 0.25, 0.5),
        (PaperB(values_theta=0.1), 0.1, 0.3),
        (PaperB(values_theta=1.0), 3.0, 8.0),
        (PaperB(attributes_theta=0.1, skew="unpopular"), 0.3, 0.8),
    ],
)
def test_an_event_matches_some_subscriptions_and_the_oracle_says_which(
    workload: PaperB, least: float, most: float
) -> None:
    parser = FilterParser()
    filters = [parser.parse(text) for text in workload.subscriptions(SUBSCRIPTIONS // 5)]
    events = list(workload.events(4000))
    matches = Index.from_filters(enumerate(filters)).match_batch(events)
    assert least < 5 * sum(map(len, matches)) / len(events) < most
    scan: Scan[int] = Scan()
    for number, filter_ in enumerate(filters):
        scan.add(number, filter_)
    matched = [number for number in range(len(events)) if matches[number]]
    for number in (0, 1, *matched[:5]):
        assert sorted(scan.match(events[number])) == sorted(matches[number])
    assert not scan.mismatches


@pytest.mark.slow
def test_drawing_takes_bounded_work_for_each() -> None:
    workload = msgspec.structs.replace(PLAIN, seed=9)
    drawn = 0

    def draw() -> None:
        nonlocal drawn
        drawn = sum(1 for _ in workload.events()) + sum(1 for _ in workload.subscriptions())

    assert count_calls(draw) < 160 * 40_000
    assert drawn == 40_000


def test_what_is_no_skew_is_refused() -> None:
    with pytest.raises(MeetpointError, match=r"paper B: θ of values is -0.1; give 0 \(all alike\) to 2"):
        PaperB(values_theta=-0.1)
    with pytest.raises(MeetpointError, match="θ of attributes is 3"):
        PaperB(attributes_theta=3)
    with pytest.raises(MeetpointError, match="100 attributes; give 2 to 99"):
        PaperB(attributes=100)
