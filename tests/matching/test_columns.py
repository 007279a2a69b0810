"""Columns against the oracle, on every type a column can have; and backtests against counting by hand."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from meetpoint.errors import EventError, LimitError
from meetpoint.language import Filter, clean_attributes, parse_filter
from meetpoint.language.syntax.render import render_constraint
from meetpoint.matching.backtest import SAMPLES_MAX, Backtest, backtest, read_width
from meetpoint.matching.scan import evaluate
from meetpoint.matching.tables.columns import ColumnBatch, Columns
from tests.workloads import random_events, random_filter

COLUMNS = pa.schema(
    [
        ("i", pa.int64()),
        ("binary", pa.int16()),
        ("d", pa.decimal128(18, 4)),
        ("f", pa.float64()),
        ("date", pa.float32()),
        ("s", pa.string()),
        ("user", pa.dictionary(pa.int8(), pa.string())),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("o", pa.struct([("x", pa.int64()), ("odd name", pa.large_string())])),
    ]
)
OTHER_TYPES = {
    "i": pa.decimal128(38, 0),
    "binary": pa.uint64(),
    "d": pa.decimal128(38, 10),
    "t": pa.timestamp("ns"),
    "user": pa.string_view(),
    "f": pa.float64(),
}


def table_of(events: list[Any], schema: pa.Schema) -> pa.Table:
    columns = []
    for field in schema:
        values = [event.get(field.name) for event in events]
        if pa.types.is_unsigned_integer(field.type):
            values = [None if v is None else abs(v) for v in values]
        columns.append(pa.array(values, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows = []
    for row in table.to_pylist():
        if hasattr(row.get("t"), "to_pydatetime"):
            row["t"] = row["t"].to_pydatetime()
        rows.append(clean_attributes(row))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_columns_and_oracle_accept_the_same_rows(seed: int, other: bool) -> None:
    rng = random.Random(seed)
    schema = COLUMNS
    if other:
        schema = pa.schema([(f.name, OTHER_TYPES.get(f.name, f.type)) for f in COLUMNS])
    table = table_of([dict(event) for event in random_events(rng, 60)], schema)
    events = rows_of(table)
    (batch,) = table.combine_chunks().to_batches()
    whole, part = Columns.of_batch(batch), Columns.of_batch(batch.slice(13, 29))
    for _ in range(250):
        try:
            filter_ = parse_filter(random_filter(rng))
        except LimitError:
            continue
        wanted = [n for n, event in enumerate(events) if evaluate(filter_.tree, event) is True]
        assert whole.accepted(filter_).tolist() == wanted, filter_.text
        assert part.accepted(filter_).tolist() == [n - 13 for n in wanted if 13 <= n < 42], filter_.text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_rows_and_oracle_accept_the_same_rows_whatever_kinds_they_mix(seed: int) -> None:
    rng = random.Random(50 + seed)
    events = [dict(event) for event in random_events(rng, 80)]
    for event in events:
        event["i"] = rng.choice([event.get("i"), event.get("f"), event.get("d"), event.get("s"), 2**70, event.get("o")])
        event["s"] = rng.choice([event.get("s"), event.get("b"), event.get("t")])
    columns = Columns.of_rows([clean_attributes(event) for event in events])
    for _ in range(200):
        try:
            filter_ = parse_filter(random_filter(rng))
        except LimitError:
            continue
        wanted = [n for n, event in enumerate(events) if evaluate(filter_.tree, clean_attributes(event)) is True]
        assert columns.accepted(filter_).tolist() == wanted, filter_.text


def accepted(text: str, array: pa.Array) -> list[int]:
    return Columns.of_batch(pa.record_batch({"x": array})).accepted(parse_filter(text)).tolist()  # type: ignore[no-any-return]


def test_bounds_beyond_a_columns_type_neither_overflow_nor_match() -> None:
    tiny = pa.array([-128, 0, 127], pa.int8())
    assert accepted("x < 1000", tiny) == [0, 1, 2]
    assert accepted("x > 127", tiny) == []
    assert accepted("x >= 126.5", tiny) == [2]
    assert accepted("x = 0.5", tiny) == []
    assert accepted("x != 300", tiny) == [0, 1, 2]
    large = pa.array([0, 2**63, 2**64 - 1], pa.uint64())
    assert accepted("x >= 9223372036854775808", large) == [1, 2]
    assert accepted("x > 18446744073709551615", large) == []
    assert accepted("x > -1", large) == [0, 1, 2]


def test_columns_of_other_types_are_only_present_or_absent() -> None:
    lists = pa.array([[1], None, []], pa.list_(pa.int8()))
    assert accepted("x IS NOT NULL", lists) == [0, 2]
    assert accepted("x IS NULL", lists) == [1]
    assert accepted("x = 1 OR x != 1", lists) == []
    assert accepted("x IS NULL", pa.nulls(2)) == [0, 1]
    assert accepted("y IS NULL", lists) == [0, 1, 2]


def test_a_null_struct_has_no_fields() -> None:
    structs = pa.array([{"y": 1}, None, {"y": None}])
    assert accepted("x.y = 1", structs) == [0]
    assert accepted("x.y IS NULL", structs) == [1, 2]
    assert accepted("x IS NULL", structs) == [1]
    assert accepted("x.z IS NULL", structs) == [0, 1, 2]


def test_timestamps_finer_than_a_microsecond_are_refused() -> None:
    with pytest.raises(EventError, match=r"column x .* round them"):
        accepted("x > TIMESTAMP '2026-01-01'", pa.array([1], pa.timestamp("ns")))


def test_a_column_that_occurs_twice_is_refused() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(EventError, match="column x occurs 2 times"):
        Columns.of_batch(batch).accepted(parse_filter("x = 1"))


def test_run_ends_are_decoded_wherever_they_stand() -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 5], pa.int32()), pa.array([7, None, 9]))
    assert accepted("x > 6", runs) == [0, 1, 3, 4]
    assert accepted("x IS NULL", runs) == [2]
    assert accepted("x = 9", runs.slice(2)) == [1, 2]
    nested = pa.StructArray.from_arrays([runs], ["y"])
    assert accepted("x.y = 9", nested) == [3, 4]
    batch = pa.record_batch({"x": runs, "e": pa.array(["a"] * 5).dictionary_encode()})
    assert Columns.of_batch(batch).values("x") == [7, 7, None, 9, 9]
    assert Columns.of_batch(batch).row(3) == {"x": 9, "e": "a"}


@pytest.mark.parametrize("type_", [pa.decimal32(5, 2), pa.decimal64(12, 2)])
def test_short_decimals_are_exact(type_: Any) -> None:
    array = pa.array([Decimal("8.30"), None, Decimal("-8.31"), Decimal("8.70")], pa.decimal128(5, 2)).cast(type_)
    assert accepted("x BETWEEN 8.30 AND 8.70", array) == [0, 3]
    assert accepted("x < -8.305", array) == [2]
    assert accepted("x IN (8.7)", array.slice(1)) == [2]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("ticks", [2**62, -(2**62)])
def test_timestamps_outside_the_years_are_refused_as_what_they_are(unit: str, ticks: int) -> None:
    array = pa.array([0, ticks], pa.timestamp(unit, tz="UTC"))
    columns = Columns.of_batch(pa.record_batch({"x": array, "o": pa.StructArray.from_arrays([array], ["y"])}))
    for ask in (
        lambda: columns.values("x"),
        lambda: columns.values("o.y"),
        columns.rows,
        lambda: columns.row(1),
        lambda: columns.instants("x"),
        lambda: backtest(parse_filter("TRUE"), pa.table({"x": array}), time="x"),
    ):
        with pytest.raises(EventError, match=r"events: column (x|o\.y) has timestamps outside the years 1 to 9999"):
            ask()


def test_the_first_and_the_last_instant_are_read_and_counted() -> None:
    ends = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    array = pa.array(ends, pa.timestamp("us"))
    assert Columns.of_batch(pa.record_batch({"x": array})).values("x") == ends
    result = backtest(parse_filter("TRUE"), pa.table({"x": array}), time="x", width=timedelta(weeks=52))
    assert [bucket.events for bucket in result.timeline()] == [1, 1]
    whole_seconds = pa.array([-62135596800, 253402300799], pa.timestamp("s"))
    assert Columns.of_batch(pa.record_batch({"x": whole_seconds})).row(0) == {"x": ends[0]}


def test_what_python_cannot_hold_names_its_column() -> None:
    batch = pa.record_batch({"when": pa.array([2**31 - 1], pa.date32())})
    with pytest.raises(EventError, match="column when cannot be read"):
        Columns.of_batch(batch).rows()
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pytest.raises(EventError, match="column x occurs twice"):
        Columns.of_batch(twice).row(0)


# -- backtest ----------------------------------------------------------------------------------------------------------


def without(filter_: Filter, text: str) -> list[Filter]:
    """The filter with one constraint dropped, wherever it stands."""
    found = []
    for number, conjunction in enumerate(filter_.conjunctions):
        for name, constraint in conjunction.constraints:
            if render_constraint(name, constraint) == text:
                kept = tuple(pair for pair in conjunction.constraints if pair != (name, constraint))
                others = filter_.conjunctions[:number] + filter_.conjunctions[number + 1 :]
                found.append(Filter("", (*others, type(conjunction)(kept))))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_hits_near_misses_and_buckets_are_those_counted_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    table = table_of([dict(event) for event in random_events(rng, 300)], COLUMNS)
    events = rows_of(table)
    width = timedelta(hours=1)
    for _ in range(25):
        filter_ = parse_filter(random_filter(rng, 1))
        result = backtest(filter_, table.to_batches(max_chunksize=70), time="t", width=width)
        hits = [n for n, event in enumerate(events) if filter_.accepts(event)]
        assert (result.events, result.hits) == (300, len(hits))
        assert [sample.row for sample in result.samples] == hits[:SAMPLES_MAX]
        texts = {render_constraint(*pair) for c in filter_.conjunctions for pair in c.constraints}
        expected = Counter(
            {
                text: sum(not filter_.accepts(e) and any(f.accepts(e) for f in without(filter_, text)) for e in events)
                for text in texts
            }
        )
        assert result.near_misses == +expected
        by_hand: dict[datetime, list[int]] = {}
        for number, event in enumerate(events):
            if event.get("t") is not None:
                start = event["t"].replace(minute=0, second=0, microsecond=0)
                by_hand.setdefault(start, []).append(number in hits)
        assert result.buckets == {start: (len(v), sum(v)) for start, v in by_hand.items()}
        assert result.untimed == sum(event.get("t") is None for event in events)


def test_parts_add_up_to_the_whole_in_any_grouping() -> None:
    rng = random.Random(9)
    table = table_of([dict(event) for event in random_events(rng, 200)], COLUMNS)
    filter_ = parse_filter("i > 0 AND f < 8.3 OR s LIKE 'A%'")
    whole = backtest(filter_, table, time="t")
    parts = [backtest(filter_, table.slice(start, 50), time="t", first_row=start) for start in (150, 0, 100, 50)]
    assert parts[0] + (parts[1] + (parts[2] + parts[3])) == whole
    assert ((parts[3] + parts[1]) + parts[0]) + parts[2] == whole
    assert isinstance(whole, Backtest)


def test_what_is_counted_is_shown() -> None:
    rows = [{"price": p, "at": datetime(2026, 1, 1, h, tzinfo=UTC)} for h, p in enumerate([8.5, 9.0, 8.6, 8.75])]
    result = backtest(parse_filter("price BETWEEN 8.30 AND 8.70"), pa.Table.from_pylist(rows), time="at")
    assert (result.hits, result.rate) == (2, 0.5)
    assert result.near_misses == {"price BETWEEN 8.3 AND 8.7": 2}
    assert [(b.start.hour, b.events, b.hits, b.rate) for b in result.timeline()] == [
        (0, 1, 1, 1.0), (1, 1, 0, 0.0), (2, 1, 1, 1.0), (3, 1, 0, 0.0)
    ]  # fmt: skip
    assert result.to_dict()["samples"][0] == {"row": 0, "attributes": rows[0]}


def test_an_empty_table_and_a_filter_that_never_holds() -> None:
    empty = table_of([], COLUMNS)
    assert backtest(parse_filter("i > 0"), empty, time="t").to_dict()["rate"] == 0.0
    table = pa.table({"i": [1]})
    assert backtest(parse_filter("i > 0 AND i < 0"), table).hits == 0
    assert backtest(parse_filter("TRUE"), table).hits == 1


@pytest.mark.parametrize(
    ("time", "message"),
    [("nope", "have no attribute nope"), ("price", "price does not hold timestamps"), ("o.z", "no attribute o.z")],
)
def test_a_time_column_that_is_none_is_refused(time: str, message: str) -> None:
    table = pa.table({"price": [8.5], "o": [{"y": 1}]})
    with pytest.raises(EventError, match=message):
        backtest(parse_filter("price > 1"), table, time=time)


def test_batches_without_a_time_are_untimed_and_only_all_of_them_are_refused() -> None:
    at = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
    none = pa.nulls(1, pa.timestamp("us", tz="UTC"))
    batches = [
        pa.record_batch({"x": [1], "at": none}),
        pa.record_batch({"x": [2], "at": at}),
        pa.record_batch({"x": [3]}),
    ]
    result = backtest(parse_filter("x > 0"), batches, time="at")
    assert (result.untimed, result.hits, len(result.buckets)) == (2, 3, 1)
    with pytest.raises(EventError, match="have no attribute at"):
        backtest(parse_filter("x > 0"), [batches[0], batches[2]], time="at")


def test_values_that_are_no_timestamps_beside_some_that_are_count_as_untimed() -> None:
    rows = Columns.of_rows([{"at": datetime(2026, 1, 1, tzinfo=UTC)}, {"at": "soon"}, {"at": 5}])
    result = backtest(parse_filter("TRUE"), [ColumnBatch([4, 7, 9], rows)], time="at")
    assert (result.untimed, len(result.buckets)) == (2, 1)
    assert [sample.row for sample in result.samples] == [4, 7, 9]


@pytest.mark.parametrize("width", [timedelta(0), timedelta.max, 5, None])
def test_a_width_that_is_none_is_refused(width: Any) -> None:
    with pytest.raises(EventError, match="backtest: "):
        backtest(parse_filter("TRUE"), pa.table({"x": [1]}), width=width)


def test_widths_are_read_as_people_write_them() -> None:
    assert [read_width(text) for text in ("30s", "15m", "1H", "1d", "2w")] == [
        timedelta(seconds=30), timedelta(minutes=15), timedelta(hours=1), timedelta(days=1), timedelta(weeks=2)
    ]  # fmt: skip
    for text in ("", "h", "0h", "1y", "-1h", "1.5h", "9" * 5000 + "h", "999999999999999w", "4000000d", "١h"):
        with pytest.raises(EventError, match="is not a width"):
            read_width(text)


def test_decimals_of_any_width_are_exact() -> None:
    for type_ in (pa.decimal128(4, 2), pa.decimal128(38, 2), pa.decimal256(50, 2)):
        array = pa.array([Decimal("8.30"), None, Decimal("-8.31"), Decimal("8.70")], type_)
        assert accepted("x BETWEEN 8.30 AND 8.70", array) == [0, 3]
        assert accepted("x < -8.305", array) == [2]
        assert accepted("x IN (8.3, 8.7000)", array) == [0, 3]
