"""Whole columns get the verdicts of single rows, with the same reasons; what conforms fits the schema's columns."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from meetpoint.errors import EventError, SchemaError
from meetpoint.language import Attribute, Schema, Type
from meetpoint.language.events.arrow import attributes_from_arrow, attributes_to_arrow
from meetpoint.language.events.json import attributes_from_json, attributes_to_json
from meetpoint.matching.tables.conformance import ConformanceChecker, rows_as_json

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST = (datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
INTEGERS = [0, 1, -1, 5, 7, 10, 12, 15, 100, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
LONG = [*INTEGERS, 2**63, 2**64, 10**37, -(10**37)]
FLOATS = [
    0.0, -0.0, 0.05, 0.1, 0.15, 0.3, 0.30000000000000004, 1 / 3, 8.3, 8.300000000000001, -7.25, 100.0, 123456789.12,
    1e15, 1e16, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan,
]  # fmt: skip
DECIMAL_BOUNDS = [Decimal(x) for x in ("0", "0.1", "0.3", "-100", "100", "1000", "0.05", "-5", "99.99", "1e20")]
FLOAT_BOUNDS = [
    Decimal(x) for x in ("0.30000000000000004", "0.10000000000000000555", "8.3", "1e300", "1e400", "5e-324")
]
STEPS = [Decimal(x) for x in ("0.1", "0.01", "0.05", "1", "25", "0.25", "1e-10", "1e-16", "0.3", "3e-5", "7", "1e20")]


def integers(rng: random.Random) -> tuple[Attribute, pa.Array]:
    if rng.random() < 0.6:
        type_ = rng.choice([pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint64()])
        bounds = np.iinfo(type_.to_pandas_dtype())
        array = pa.array(some(rng, [n for n in INTEGERS if bounds.min <= n <= bounds.max]), type_)
    else:
        digits = rng.choice([3, 19, 20, 38])
        array = pa.array(some(rng, [Decimal(n) for n in LONG if abs(n) < 10**digits]), pa.decimal128(digits, 0))
    return declared(rng, Type.INTEGER, LONG, [1, 2, 5, 7, 2**40, 10**19]), array


def floats(rng: random.Random) -> tuple[Attribute, pa.Array]:
    if rng.random() < 0.7:
        more = [round(rng.uniform(-100, 100), rng.randint(0, 4)) for _ in range(8)]
        array = pa.array(some(rng, FLOATS + more), rng.choice([pa.float64(), pa.float32()]))
    else:
        array = pa.array(some(rng, INTEGERS), pa.int64())
    return declared(rng, Type.FLOAT, DECIMAL_BOUNDS + FLOAT_BOUNDS, STEPS), array


def decimals(rng: random.Random) -> tuple[Attribute, pa.Array]:
    attribute = declared(rng, Type.DECIMAL, DECIMAL_BOUNDS, [*STEPS, Decimal("1e-30"), Decimal(123456789)])
    if rng.random() < 0.2:
        return attribute, pa.array(some(rng, INTEGERS[:9]), rng.choice([pa.int32(), pa.int64()]))
    digits = rng.choice([3, 6, 10, 18, 19, 38])
    scale = rng.randint(0, min(digits, rng.choice([2, 4, 18, 38])))
    pool = []
    for _ in range(12):
        most = min(rng.choice([10, 1000, 10**6, 10**digits]), 10**digits) - 1
        counted = rng.randint(-most, most)
        if rng.random() < 0.5:  # of few digits after the point
            counted -= counted % 10 ** max(0, scale - 2)
        pool.append(Decimal((int(counted < 0), tuple(map(int, str(abs(counted)))), -scale)))
    held = [value for value in pool if len(value.as_tuple().digits) <= digits]
    return attribute, pa.array(some(rng, held), pa.decimal128(digits, scale))


def instants(rng: random.Random) -> tuple[Attribute, pa.Array]:
    types = [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Athens"), pa.timestamp("ns")]
    ticks = some(rng, [0, 1, -1, 1000, 10**15, FIRST - 1, FIRST, LAST, LAST + 1, 2**63 - 1, -(2**62)])
    bounds = [EPOCH, EPOCH + timedelta(microseconds=1), EPOCH + timedelta(days=9999)]
    return declared(rng, Type.TIMESTAMP, bounds, []), pa.array(ticks, pa.int64()).cast(rng.choice(types))


def texts(rng: random.Random) -> tuple[Attribute, pa.Array]:
    raw = pa.array(some(rng, [b"", b"abc", b"\xff", "ü".encode(), b"\xed\xa0\x80"]), pa.binary())
    return Attribute("x", Type.STRING), pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def some(rng: random.Random, pool: Sequence[Any]) -> list[Any]:
    return [None if rng.random() < 0.15 else rng.choice(pool) for _ in range(rng.randint(0, 12))]


def declared(rng: random.Random, type_: Type, bounds: Sequence[Any], steps: Sequence[Any]) -> Attribute:
    while True:
        low, high = (rng.choice(bounds) if rng.random() < 0.5 else None for _ in range(2))
        step = rng.choice(steps) if steps and rng.random() < 0.4 else None
        try:
            attribute = Attribute("x", type_, low, high, step)
            ConformanceChecker(Schema((attribute,)))  # not all bounds fit a column
        except SchemaError:
            continue
        return attribute


@pytest.mark.parametrize("kind", [integers, floats, decimals, instants, texts])
def test_columns_get_the_verdicts_of_their_rows(kind: Any) -> None:
    rng = random.Random(f"conforming {kind.__name__}")
    good = bad = 0
    for _ in range(300):
        attribute, array = kind(rng)
        array = array.slice(rng.choice([0, 0, 1]))
        schema, batch = Schema((attribute,)), pa.record_batch({"x": array})
        if rng.random() < 0.3:
            nulls = pa.array([rng.random() < 0.2 for _ in range(len(array))], pa.bool_())
            nested = pa.StructArray.from_arrays([array], names=["x"], mask=nulls)
            schema, batch = renamed(attribute, "o.x"), pa.record_batch({"o": nested})
        reasons: dict[int, str] = {}
        wanted = []
        for number in range(batch.num_rows):
            try:
                row = attributes_from_arrow(batch.slice(number, 1), schema)[0]
                wanted += attributes_from_arrow(attributes_to_arrow([row], schema), schema)
            except EventError as error:
                reasons[number] = str(error).removeprefix("row 1: ")
        conforming, problems = ConformanceChecker(schema).split(batch)
        assert problems == reasons, (schema, batch.to_pydict())
        assert repr(attributes_from_arrow(conforming, schema)) == repr(wanted), (schema, batch.to_pydict())
        good, bad = good + len(wanted), bad + len(reasons)
    assert good > 100
    assert bad > 100


def renamed(attribute: Attribute, name: str) -> Schema:
    return Schema((Attribute(name, attribute.type, attribute.minimum, attribute.maximum, attribute.precision),))


def test_only_rows_in_doubt_are_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> None:
        raise AssertionError("a row was looked at")

    monkeypatch.setattr("meetpoint.matching.tables.conformance.attributes_from_arrow", look)
    price = Attribute("x", Type.DECIMAL, Decimal(0), Decimal(1000), Decimal("0.01"))
    ratio = Attribute("y", Type.FLOAT, Decimal(0), Decimal(1), Decimal("0.001"))
    count = 1000
    batch = pa.record_batch(
        {
            "x": pa.array([Decimal(n).scaleb(-2) for n in range(count)], pa.decimal128(38, 18)),
            "y": pa.array([n / 1000 for n in range(count)]),
        }
    )
    conforming, problems = ConformanceChecker(Schema((price, ratio))).split(batch)
    assert (conforming.num_rows, problems) == (count, {})


def test_json_gets_the_verdicts_of_its_rows() -> None:
    schema = Schema(
        (
            Attribute("i", Type.INTEGER, 0),
            Attribute("d", Type.DECIMAL),
            Attribute("o.x", Type.INTEGER, maximum=9),
        )
    )
    lines = [
        '{"i": 1, "d": 8.30, "o": {"x": 9}}', '{"i": -1}', "{}", '{"o": null}', '{"o": {"x": 10}}', '{"o": {"y": 1}}',
        '{"o": {"y": null}}', '{"z": {"y": null}}', '{"i": 9223372036854775808}', '{"i": 9223372036854775807}',
        '{"d": 1e25}', '{"d": 1e-25}', '{"d": 1e19}', '{"i": 1.5}', '{"d": "x"}', "[]", "",
    ]  # fmt: skip
    reasons: dict[int, str] = {}
    rows = []
    for number, line in enumerate(lines):
        try:
            rows += attributes_from_arrow(attributes_to_arrow([attributes_from_json(line, schema)], schema), schema)
        except EventError as error:
            reasons[number] = str(error).removeprefix("row 1: ")
    conforming, problems = ConformanceChecker(schema).split_json([line.encode() for line in lines])
    assert problems == reasons
    assert attributes_from_arrow(conforming, schema) == rows
    assert (len(rows), len(reasons)) == (7, 10)


def test_rows_are_shown_as_json_whatever_they_hold() -> None:
    row = {"i": 1, "f": math.nan, "d": Decimal("8.30"), "t": EPOCH, "o": {"x": None}, "b": True, "n": None}
    assert rows_as_json(pa.RecordBatch.from_pylist([row])) == [attributes_to_json(row).decode()]
    odd = pa.record_batch(
        {
            "late": pa.array([LAST + 1], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "text": pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers()),
            "list": [[1]],
            "": [1],
        }
    )
    late = f"{LAST + 1} microseconds since 1970"
    assert rows_as_json(odd.select(range(3))) == [f'{{"late":"{late}","text":"\ufffd","list":"[1]"}}']
    assert rows_as_json(odd) == [str({"late": late, "text": "\ufffd", "list": "[1]", "": 1})]
