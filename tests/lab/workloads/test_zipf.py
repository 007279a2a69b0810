"""The workload with parameters is what they say: Zipf's law, shares and widths; and it is the same everywhere."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
import pytest

from meetpoint.errors import MeetpointError
from meetpoint.lab.workloads.generator import event_rows, generate
from meetpoint.lab.workloads.long_form import Workload, filter_texts
from meetpoint.lab.workloads.zipf import Zipf
from meetpoint.language.filters.filter import FilterParser
from meetpoint.language.schema.schema import Schema
from meetpoint.matching import Scan
from meetpoint.matching.index import Index

ROWS = 20_000


def slope(counts: list[int]) -> float:
    """Of the logarithms against those of the ranks: -θ where counts follow Zipf's law."""
    ranks = np.log(np.arange(1, len(counts) + 1))
    return float(np.polyfit(ranks, np.log(counts), 1)[0])


def values_drawn(workload: Workload, attribute: str) -> list[int]:
    """How often each value was drawn, the most popular first; of these the first, which chance orders least."""
    held = workload.events[attribute].drop_null().to_pylist()
    return [count for _, count in Counter(held).most_common(12)]


@pytest.mark.parametrize("theta", [0.4, 0.8, 1.2])
def test_values_are_popular_by_zipfs_law(theta: float) -> None:
    workload = generate(Zipf(attributes=4, values=50, values_theta=theta, held=4), 1, ROWS, seed=3)
    for attribute in ("a01", "a02", "a03", "a04"):
        assert abs(slope(values_drawn(workload, attribute)) + theta) < 0.1


@pytest.mark.parametrize("theta", [0.4, 0.8, 1.2])
def test_attributes_are_popular_by_zipfs_law_in_events_and_subscriptions(theta: float) -> None:
    shape = Zipf(attributes=10, attributes_theta=theta, held=1, constraints=1)
    workload = generate(shape, ROWS, ROWS, seed=3)
    held = [ROWS - workload.events[name].null_count for name in shape.names]
    asked = Counter(workload.subscriptions["attribute"].to_pylist())
    assert abs(slope(held) + theta) < 0.1
    assert abs(slope([asked[name] for name in shape.names]) + theta) < 0.1


def test_without_skew_all_are_alike() -> None:
    shape = Zipf(attributes=5, attributes_theta=0, values=10, values_theta=0, held=1)
    workload = generate(shape, 1, ROWS, seed=4)
    held = [ROWS - workload.events[name].null_count for name in shape.names]
    assert max(held) < 1.1 * min(held)
    drawn = values_drawn(workload, "a01")
    assert max(drawn) < 1.25 * min(drawn)


@pytest.mark.parametrize(("strings", "expected"), [(0, 0), (0.25, 5), (0.5, 10), (1, 20)])
def test_strings_have_their_share_and_the_schema_says_which(strings: float, expected: int) -> None:
    shape = Zipf(attributes=20, strings=strings)
    workload = generate(shape, 500, 500, seed=5)
    types = Counter(str(field.type) for field in workload.events.schema)
    assert (types["string"], types["double"]) == (expected, 20 - expected)
    schema = Schema.from_yaml(shape.schema)
    parser = FilterParser(schema)
    assert len([parser.parse(text) for _, text in filter_texts(workload)]) == 500
    for event in event_rows(workload):
        for name, value in event.items():
            assert isinstance(value, str | float)
            assert schema[name].problem(value) is None


@pytest.mark.parametrize("width", [0.02, 0.1, 0.4])
def test_a_range_accepts_its_width_of_the_events_on_average(width: float) -> None:
    shape = Zipf(attributes=3, strings=0, values=500, width=width, held=3, constraints=1, values_theta=0.6)
    workload = generate(shape, 2000, 2000, seed=6)
    share = Index.from_columns(workload.subscriptions, sample=workload.events).counts(workload.events).mean() / 2000
    assert abs(share / width - 1) < 0.15
    assert set(workload.subscriptions["op"].to_pylist()) == {"range"}


def test_a_range_of_one_value_is_that_value_and_popular_as_in_events() -> None:
    shape = Zipf(attributes=1, strings=0, values=200, width=0.001, values_theta=1.0)
    workload = generate(shape, 4000, 4000, seed=6)
    assert set(workload.subscriptions["op"].to_pylist()) == {"eq"}
    asked = Counter(workload.subscriptions["low"].to_pylist()).most_common(1)
    assert asked[0][0] == Counter(workload.events["a01"].to_pylist()).most_common(1)[0][0]


def test_sizes_are_as_told_and_no_more_than_there_are() -> None:
    workload = generate(Zipf(attributes=6, held=4, constraints=5), 3000, 300, seed=8)
    assert {len(event) for event in event_rows(workload)} == {4}
    sizes = Counter(Counter(workload.subscriptions["subscription"].to_pylist()).values())
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert min(sizes.values()) > 500
    few = generate(Zipf(attributes=2), 100, 10, seed=8)
    assert {len(event) for event in event_rows(few)} == {2}


def test_the_oracle_finds_what_the_index_finds() -> None:
    workload = generate("zipf:values=20,width=0.3", 300, 60, seed=9)
    scan: Scan[int] = Scan()
    parser = FilterParser()
    for number, text in filter_texts(workload):
        scan.add(number, parser.parse(text))
    found = sum(len(scan.match(event)) for event in event_rows(workload))
    assert found == Index.from_columns(workload.subscriptions, sample=workload.events).counts(workload.events).sum()
    assert found > 300


def test_a_text_and_parameters_say_the_same() -> None:
    shape = Zipf(attributes=20, values_theta=0.9, strings=0.25)
    assert Zipf.read("attributes=20, values_theta=0.9,strings=0.25") == shape
    assert str(shape).startswith("zipf:attributes=20,")
    assert Zipf.read(str(shape).removeprefix("zipf:")) == shape
    assert Zipf.read("") == Zipf()
    told, same = generate("zipf:attributes=20,values_theta=0.9,strings=0.25", 50, 50, 1), generate(shape, 50, 50, 1)
    assert (told.subscriptions, told.events) == (same.subscriptions, same.events)


@pytest.mark.parametrize("changed", [{"values_theta": 0.7}, {"width": 0.2}, {"held": 3}, {"strings": 0.25}])
def test_every_parameter_matters(changed: dict[str, float]) -> None:
    plain, other = (generate(shape, 50, 50, 1) for shape in (Zipf(), msgspec.structs.replace(Zipf(), **changed)))
    assert (plain.subscriptions, plain.events) != (other.subscriptions, other.events)


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("zipf:atributes=3", "'atributes' is no parameter; there are attributes, attributes_theta, values"),
        ("zipf:attributes", "attributes is ''; give a whole number"),
        ("zipf:attributes=2.5", "attributes is '2.5'; give a whole number"),
        ("zipf:width=wide", "width is 'wide'; give a number"),
        ("zipf:width=0.1,width=0.2", "width is told twice"),
        ("zipf:attributes=0", "attributes is 0; give 1 to 500"),
        ("zipf:values=0", "values is 0; give 1 to 100000"),
        ("zipf:values_theta=-0.1", "values_theta is -0.1; give 0 to 4"),
        ("zipf:attributes_theta=nan", "attributes_theta is nan; give 0 to 4"),
        ("zipf:strings=1.5", "strings is 1.5; give 0 to 1"),
        ("zipf:width=-1", "width is -1.0; give 0 to 1"),
        ("zipf:constraints=0", "constraints is 0; give 1 to 500"),
        ("zipf:held=0", "held is 0; give 1 to 500"),
        ("ticks:attributes=3", "ticks has no parameters; write ticks, or take zipf"),
    ],
)
def test_what_is_no_workload_is_refused_with_a_way_out(mix: str, message: str) -> None:
    with pytest.raises(MeetpointError, match=message):
        generate(mix, 10, 10, seed=1)
