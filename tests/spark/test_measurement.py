"""What is measured on Spark equals what is counted by hand."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from meetpoint.errors import LimitError, MeetpointError
from meetpoint.lab.workloads.generator import generate
from meetpoint.lab.workloads.long_form import filter_texts
from meetpoint.language import Kind, clean_attributes, parse_filter
from meetpoint.language.filters.filter import Filter
from meetpoint.language.names import find, split_name
from meetpoint.language.syntax.render import render_constraint
from meetpoint.matching.index import Index
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.matching.keys.key_plan import KeyPlan, Statistics
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.matching.scan import Scan
from meetpoint.spark.statistics import measurement
from meetpoint.spark.statistics.measurement import Measurement, measure
from meetpoint.spark.subscriptions.subscriptions import Subscriptions
from tests.matching.test_feedback import candidates
from tests.workloads import START, TYPES, random_events, random_filter

COLUMNS = pa.schema(
    [
        ("i", pa.int64()),
        ("binary", pa.int32()),
        ("d", pa.decimal128(20, 4)),
        ("f", pa.float64()),
        ("date", pa.float32()),
        ("s", pa.string()),
        ("user", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", "UTC")),
        ("o", pa.struct([("x", pa.int64()), ("odd name", pa.string())])),
        ("day", pa.date32()),
        ("nothing", pa.string()),
    ]
)
EVENTS, FILTERS = 500, 600
Counts = Mapping[Any, int]


class Case:
    """A workload, what was measured of it, and the rows and filters to count by hand."""

    def __init__(self, spark: Any) -> None:
        rng = random.Random(51)
        rows = [
            {**event, "day": date(2026, 1, 1) if rng.random() < 0.5 else None} for event in random_events(rng, EVENTS)
        ]
        with np.errstate(over="ignore"):
            self.table = pa.Table.from_pylist(rows, COLUMNS)
        self.rows = [clean_attributes(row) for row in self.table.drop_columns(["day"]).to_pylist()]
        texts: list[str] = []
        while len(texts) < FILTERS:
            try:
                texts.append(parse_filter(random_filter(rng, depth=2)).text)
            except LimitError:
                continue
        self.filters = dict(enumerate(map(parse_filter, texts)))
        asked = pa.table({"id": range(FILTERS + 2), "filter": [*texts, "price >", None]})
        scan: Scan[int] = Scan()
        for number, filter_ in self.filters.items():
            scan.add(number, filter_)
        self.answers = scan.match_batch(self.rows)
        pairs = [(event, found) for event, answer in enumerate(self.answers) for found in answer]
        hits = pa.table({"event": [event for event, _ in pairs], "subscription": [found for _, found in pairs]})
        self.events = spark.createDataFrame(self.table).repartition(3)
        self.subscriptions = spark.createDataFrame(asked).repartition(2)
        self.hits = spark.createDataFrame(hits)
        self.measured: Measurement = measure(self.events, self.subscriptions, self.hits, top=7)

    def values(self, name: str) -> list[Any]:
        return [value for row in self.rows if (value := find(row, split_name(name))) is not None]


@pytest.fixture(scope="module")
def case(spark: Any) -> Case:
    return Case(spark)


def same_value(value: Any) -> Any:
    """A value as a dictionary may hold it: NaN is one value, and -0.0 is 0.0."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def test_attributes_are_counted(case: Case) -> None:
    held = {one.name: one for one in case.measured.attributes}
    assert case.measured.events == EVENTS
    assert list(held) == [*list(TYPES)[:9], "o", "o.`odd name`", "o.x", "day", "nothing"]
    for name, type_ in TYPES.items():
        one, values = held[name], case.values(name)
        assert one.type == type_
        assert one.there == len(values) / EVENTS
        assert one.kinds == {type_.kind: one.there}
        counts = Counter(map(same_value, values))
        assert one.distinct == pytest.approx(len(counts), rel=0.1, abs=1)
        expected = sorted(counts.values(), reverse=True)[:7]
        assert [common.events for common in one.common] == expected
        assert all(counts[same_value(common.value)] == common.events for common in one.common)
        assert [common.share for common in one.common] == [count / EVENTS for count in expected]
    assert held["o"].there == sum("o" in row and row["o"] is not None for row in case.rows) / EVENTS
    assert (held["o"].type, held["o"].kinds, held["day"].type) == ("object", {}, "date")
    assert held["day"].there == 1 - case.table["day"].null_count / EVENTS
    assert (held["nothing"].there, held["nothing"].common, held["nothing"].distinct) == (0.0, (), 0)


@pytest.mark.parametrize("name", ["i", "binary", "d", "f", "date", "t", "o.x"])
def test_quantiles_are_those_of_the_values_in_order(case: Case, name: str) -> None:
    one = next(one for one in case.measured.attributes if one.name == name)
    values = sorted(value for value in case.values(name) if value == value)  # NaN apart
    expected = [values[max(math.ceil(part * len(values)) - 1, 0)] for part in (0, 0.25, 0.5, 0.75, 1)]
    if name in ("i", "o.x"):  # beyond 2**53 as doubles
        expected = [int(float(value)) for value in expected]
    assert list(one.quantiles) == (expected if name == "t" else pytest.approx(list(map(float, expected))))


def test_constraints_are_counted_on_both_sides(case: Case) -> None:
    uses: Counter[str] = Counter()
    single: dict[str, Filter] = {}
    for filter_ in case.filters.values():
        texts = {render_constraint(n, c) for conjunction in filter_.conjunctions for n, c in conjunction.constraints}
        uses.update(texts)
        single.update((text, parse_filter(text)) for text in texts)
    assert len(uses) < measurement.CONSTRAINTS_MAX  # so that all are measured
    found = {one.constraint: one for one in case.measured.constraints}
    assert {text: one.subscriptions for text, one in found.items()} == uses
    scan: Scan[str] = Scan()
    for text, filter_ in single.items():
        scan.add(text, filter_)
    met = Counter(text for answer in scan.match_batch(case.rows) for text in answer)
    assert {text: one.events for text, one in found.items()} == {text: met[text] for text in uses}
    assert all(one.share == one.events / EVENTS for one in found.values())
    assert [one.subscriptions for one in case.measured.constraints] == sorted(uses.values(), reverse=True)
    for name, share in case.measured.feedback.selectivity.items():
        mine = [one for one in found.values() if one.attribute == name]
        total = sum(one.subscriptions for one in mine)
        assert share == pytest.approx(sum(one.subscriptions * one.share for one in mine) / total)


def test_keys_are_counted_on_both_sides(case: Case) -> None:
    plan = KeyPlan(case.measured.feedback.statistics, names=[one.name for one in case.measured.attributes])
    uses = Counter(key for filter_ in case.filters.values() for key in plan.keys_of_filter(filter_))
    assert len(uses) < measurement.KEYS_MAX
    met = Counter(key for row in case.rows for key in plan.keys_of_event(row) if key in uses)
    expected = Counter({str(key): (uses[key], met[key]) for key in uses})
    assert {one.key: (one.subscriptions, one.events) for one in case.measured.keys} == expected
    assert {key.sort for key in uses} == set(KeySort)
    loads = [one.candidates for one in case.measured.keys]
    assert loads == sorted(loads, reverse=True)


def test_matches_are_counted_by_subscription(case: Case) -> None:
    matches = case.measured.matches
    counts = Counter(found for answer in case.answers for found in answer)
    ids = [*range(FILTERS), FILTERS, FILTERS + 1]
    silent = sorted(id_ for id_ in ids if not counts[id_])
    assert matches is not None
    assert matches.pairs == counts.total()
    assert list(matches.top) == sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:7]
    assert matches.silent == len(silent) > 7
    assert list(matches.silent_ids) == silent[:7]
    ordered = sorted(counts[id_] for id_ in ids)
    expected = [ordered[max(math.ceil(part * len(ordered)) - 1, 0)] for part in (0, 0.25, 0.5, 0.75, 1)]
    assert list(matches.quantiles) == expected
    assert (case.measured.subscriptions, case.measured.refused) == (len(ids), 2)


def test_statistics_are_those_of_all_events(case: Case) -> None:
    """As they would be made of the rows themselves; quantiles stand for a thousandth of the values each."""
    found, expected = case.measured.feedback.statistics, Statistics.of_events(case.rows)
    assert found.rows == expected.rows == EVENTS
    plan = KeyPlan(expected, names=[*TYPES, "o"])
    keys = {key for row in case.rows for key in plan.keys_of_event(row)}
    for key in keys:
        relative, absolute = (0.02, 0.002) if key.sort is KeySort.CELL else (1e-9, 0.0)
        assert found.share((key,)) == pytest.approx(expected.share((key,)), rel=relative, abs=absolute), key


def test_a_few_common_constraints_and_keys_are_counted_where_there_are_many(
    spark: Any, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "CONSTRAINTS_MAX", 10)
    monkeypatch.setattr(measurement, "KEYS_MAX", 5)
    monkeypatch.setattr(measurement, "DRAWN_MAX", 1000)
    few = measure(case.events, case.subscriptions)
    assert few.constraints == case.measured.constraints[:10]
    assert len(few.keys) == 5
    assert set(few.keys) <= set(case.measured.keys)
    assert few.feedback.selectivity == pytest.approx(case.measured.feedback.selectivity)


def test_the_report_is_read_and_saved(case: Case, tmp_path: Path) -> None:
    text = case.measured.text()
    assert text.startswith(f"{EVENTS} events, 14 attributes, {FILTERS + 2} subscriptions (2 refused)")
    assert "silent subscriptions: " in text
    assert "o.`odd name`" in text
    assert all(one.constraint.splitlines()[0][:20] in text for one in case.measured.constraints[:7])
    case.measured.save(tmp_path / "measured.json")
    saved = json.loads((tmp_path / "measured.json").read_text())
    assert saved == json.loads(msgspec.json.encode(case.measured.to_dict()))
    floats = next(one for one in saved["attributes"] if one["name"] == "f")
    assert floats["quantiles"][0] == "-inf"
    assert set(saved["attribute_order"]) == set(TYPES)
    with pytest.raises(MeetpointError, match=r"measured.json: .*; check the folder"):
        case.measured.save(tmp_path / "none" / "measured.json")


def test_feedback_of_spark_is_a_file_for_matchers(case: Case, tmp_path: Path) -> None:
    case.measured.feedback.save(tmp_path / "feedback")
    feedback = Feedback.load(tmp_path / "feedback")
    assert feedback == case.measured.feedback
    assert feedback.events == EVENTS
    sample = feedback.sample
    assert sample is not None
    assert sample.num_rows == EVENTS
    assert "day" not in sample.column_names
    index = Index.from_filters(case.filters.items(), sample=sample)
    assert [sorted(ids) for ids in index.match_batch(case.rows)] == [sorted(ids) for ids in case.answers]
    cuts = feedback.quantiles("binary", 4)
    assert cuts == sorted(cuts)
    assert len(cuts) == 3


def test_feedback_leads_to_fewer_candidates(spark: Any) -> None:
    workload = generate("skewed", 500, 2000, 9)
    filters = [parse_filter(text) for _, text in filter_texts(workload)]
    rows = [clean_attributes(row) for row in workload.events.slice(0, 300).to_pylist()]
    feedback = measure(spark.createDataFrame(workload.events)).feedback
    guessed, told = (candidates(KeyPlan(statistics), filters, rows) for statistics in (None, feedback.statistics))
    assert told < 0.7 * guessed


def test_of_many_events_a_sample_is_kept(spark: Any) -> None:
    local = "TIMESTAMP_NTZ '2026-01-01' + make_dt_interval(0, 0, 0, id) AS local"
    measured = measure(spark.range(20_000).selectExpr("id", "concat('text ', id % 10) AS text", local))
    sample = measured.feedback.sample
    assert sample is not None
    assert sample.num_rows == 2000
    assert sample.column_names == ["id", "text", "local"]
    assert 9000 < np.mean(sample["id"].to_pylist()) < 11_000
    assert measured.matches is None
    assert measured.subscriptions is None
    assert measured.feedback.quantiles("id", 4) == pytest.approx([5000, 10_000, 15_000], rel=0.01)
    _, text, local_time = measured.attributes
    assert {common.events for common in text.common} == {2000}
    assert local_time.quantiles[4] == START + timedelta(seconds=19_999)
    middle = measured.feedback.quantiles("local", 2)[0]
    assert isinstance(middle, datetime)
    assert abs(middle - START - timedelta(seconds=10_000)) < timedelta(seconds=100)


def test_what_is_empty_is_measured_too(spark: Any) -> None:
    none = spark.createDataFrame(pa.table({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())}))
    asked = spark.createDataFrame(pa.table({"id": ["x"], "filter": ["TRUE OR b = 1"]}))
    nobody = spark.createDataFrame(pa.table({"subscription": pa.array([], pa.string())}))
    measured = measure(none, asked, nobody)
    assert (measured.events, measured.subscriptions, measured.constraints) == (0, 1, ())
    assert [(one.key, one.subscriptions, one.events) for one in measured.keys] == [("always", 1, 0)]
    assert measured.matches is not None
    assert (measured.matches.silent, measured.matches.silent_ids) == (1, ("x",))
    assert measured.feedback.sample is None
    assert measured.text().startswith("0 events")
    assert KeyPlan(measured.feedback.statistics).keys_of_filter(parse_filter("a = 1")) == (
        MeetKey(KeySort.VALUE, "a", Kind.NUMBER, 0, 0x3FF0000000000000),
    )


def test_lists_of_matches_and_subscriptions_of_our_own_are_taken_too(spark: Any) -> None:
    events = spark.createDataFrame(pa.table({"a": [1, 2, 3]}))
    texts = spark.createDataFrame(pa.table({"id": [1, 2, 3], "filter": ["a > 1", "a = 3", "b = 1"]}))
    lists = spark.createDataFrame(pa.table({"subscriptions": pa.array([[], [1], [1, 2]], pa.list_(pa.int64()))}))
    measured = measure(events, Subscriptions.from_dataframe(texts), lists)
    assert measured.matches is not None
    assert measured.matches.top == ((1, 2), (2, 1))
    assert measured.matches.silent_ids == (3,)
    assert {one.constraint: one.events for one in measured.constraints} == {"a > 1": 2, "a = 3": 1, "b = 1": 0}
    alone = measure(events, hits=lists).matches
    assert alone is not None
    assert (alone.silent, alone.quantiles, alone.top) == (None, (1, 1, 1, 2, 2), ((1, 2), (2, 1)))


def test_what_cannot_be_measured_is_refused_before_any_job(spark: Any) -> None:
    events = spark.createDataFrame(pa.table({"a": [1]}))
    texts = spark.createDataFrame(pa.table({"id": [1], "filter": ["a > 1"]}))
    stream = spark.readStream.format("rate").load()
    other_ids = spark.createDataFrame(pa.table({"subscription": ["x"]}))
    cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
        (([{"a": 1}],), {}, "events: given an object of class list; give a Spark DataFrame"),
        ((stream,), {}, "events: the DataFrame is a stream"),
        ((events, {"x": "a > 1"}), {}, "subscriptions: given an object of class dict"),
        ((events, events), {}, "subscriptions: there is no column id; the columns are a"),
        (
            (events, texts.select("id", texts.id.alias("filter"))),
            {},
            "column filter is of type bigint; give the filters",
        ),
        ((events, texts, events), {}, "hits: there is no column subscription; the columns are a"),
        ((events, texts, other_ids), {}, "hits: column subscription is of type string, .* of type bigint"),
        ((events,), {"top": 0}, "measure: top is 0"),
    ]
    for given, options, message in cases:
        with pytest.raises(MeetpointError, match=message):
            measure(*given, **options)


def test_decimals_are_shown_as_they_are(case: Case) -> None:
    one = next(one for one in case.measured.attributes if one.name == "d")
    assert {type(common.value) for common in one.common} == {Decimal}
