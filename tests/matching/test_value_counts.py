"""Counts of values in columns, against counts by hand."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from meetpoint.language.values import Type
from meetpoint.matching.keys.meet_keys import PARTS, KeySort, parts_of, shorten
from meetpoint.matching.keys.value_counts import EventValueCounts, ValueCounts, read_value, show_value

TEXTS = ["", "a", "ab", "abc", "abcd", "🙂", "🙂ä🙂", "x" * 64, "x" * 65, "x" * 66, None]


def counted(event_counts: EventValueCounts) -> dict[tuple[str, KeySort], Counter[str]]:
    found: dict[tuple[str, KeySort], Counter[str]] = {}
    for name, sort, text, count in event_counts.rows():
        found.setdefault((name, sort), Counter())[text] += count
    return found


def test_texts_are_counted_with_their_prefixes_and_suffixes() -> None:
    texts = [text for text in TEXTS for _ in range(3)]
    event_counts = EventValueCounts({"s": Type.STRING})
    for at in range(0, len(texts), 7):
        event_counts.add(pa.record_batch([pa.array(texts[at : at + 7], pa.string())], names=["s"]))
    there = [text for text in texts if text is not None]
    expected = {("s", KeySort.VALUE): Counter(map(shorten, there))}
    for sort in PARTS[:2]:
        expected["s", sort] = Counter(
            part for text in there for size in (1, 2, 3) for part in parts_of(sort, size, text)
        )
    assert counted(event_counts) == expected


@pytest.mark.parametrize(
    ("type_", "arrow", "values"),
    [
        (Type.INTEGER, pa.int64(), [2**53, 2**53 + 1, -5]),
        (Type.INTEGER, pa.int8(), [1, 2, -5]),
        (Type.FLOAT, pa.float64(), [math.nan, math.inf, 0.0, 0.1, 5e-324]),
        (Type.FLOAT, pa.float32(), [math.nan, 0.0, 0.5]),
        (Type.DECIMAL, pa.decimal128(20, 4), [Decimal("8.3000"), Decimal("-1.0000")]),
        (Type.BOOLEAN, pa.bool_(), [True, False]),
        (
            Type.TIMESTAMP,
            pa.timestamp("us", "UTC"),
            [datetime(2026, 1, 1, 12, 30, 0, 7, UTC), datetime(1900, 1, 1, tzinfo=UTC)],
        ),
    ],
)
def test_values_of_every_type_are_counted_and_read_again(type_: Type, arrow: Any, values: list[Any]) -> None:
    rows = [value for number, value in enumerate(values) for _ in range(number + 1)] + [None]
    event_counts = EventValueCounts({"o.x": type_, "none": Type.STRING})
    for some in (rows, rows[::-1], [None]):
        inner = pa.StructArray.from_arrays([pa.array(some, arrow)], names=["x"])
        event_counts.add(pa.record_batch([inner, pa.nulls(len(some), pa.string())], names=["o", "none"]))
    found = list(event_counts.rows())
    assert {(name, sort) for name, sort, _, _ in found} == {("o.x", KeySort.VALUE)}
    read = {repr(read_value(text, type_)): count for _, _, text, count in found}
    assert read == {repr(value): 2 * (number + 1) for number, value in enumerate(values)}


def test_zero_has_one_sign_and_nan_is_one_value() -> None:
    event_counts = EventValueCounts({"f": Type.FLOAT})
    event_counts.add(pa.record_batch([pa.array([0.0, -0.0, math.nan, -math.nan, None])], names=["f"]))
    assert sorted((text, count) for _, _, text, count in event_counts.rows()) == [("0.0", 2), ("nan", 2)]


def test_what_is_common_is_kept_where_memory_is_short() -> None:
    value_counts = ValueCounts(capacity=16)
    for batch in range(50):
        rare = [f"rare {batch} {number}" for number in range(10)]
        value_counts.add(pa.array(["common"] * 5 + ["usual"] * 3 + rare))
    values, counts = value_counts.counts()
    found = dict(zip(values.to_pylist(), counts, strict=True))
    assert len(found) <= 2 * 16
    assert (found["common"], found["usual"]) == (250, 150)


def test_nothing_counted_is_nothing() -> None:
    assert list(EventValueCounts({"a": Type.INTEGER}).rows()) == []
    value_counts = ValueCounts()
    assert value_counts.counts()[1] == []
    value_counts.add(pa.array([None], pa.string()))
    assert value_counts.counts()[1] == []


def test_values_are_shown_so_that_they_are_read_again() -> None:
    assert show_value(datetime(2026, 1, 1, tzinfo=UTC)).startswith("2026-01-01")
    assert read_value(show_value("text"), Type.STRING) == "text"
