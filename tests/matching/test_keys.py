from __future__ import annotations

import hashlib
import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import pairwise

import msgspec
import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Attribute, Filter, Schema, Type, parse_filter
from meetpoint.language.filters.constraints import Absent, NumberSet, TimestampSet
from meetpoint.language.filters.intervals import Interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.matching.keys.key_plan import KeyPlan, LiveKeys, Statistics
from meetpoint.matching.keys.meet_keys import (
    ALWAYS,
    CELLS_MAX,
    LADDERS,
    KeyClass,
    KeyClasses,
    KeySort,
    MeetKey,
    code_of,
    double_of,
)
from tests.workloads import NUMBER_TEXTS, START, TYPES, random_events, random_filter

NAMES = ("o", "o.x", "s")
NOTHING = KeyPlan(names=NAMES)
SCHEMA = Schema(
    (
        *(Attribute(name, type_) for name, type_ in TYPES.items() if name not in ("i", "f", "t")),
        Attribute("i", Type.INTEGER, minimum=-10, maximum=10),
        Attribute("f", Type.FLOAT, minimum=Decimal("-1e300"), maximum=Decimal(100)),
        Attribute("t", Type.TIMESTAMP, minimum=START, maximum=START + timedelta(days=10)),
    )
)


@cache
def plans() -> dict[str, KeyPlan]:
    rng = random.Random(9)
    statistics = Statistics.of_events(random_events(rng, 300))
    return {
        "nothing": NOTHING,
        "schema": KeyPlan(schema=SCHEMA),
        "statistics": KeyPlan(statistics, names=NAMES),
        "statistics and schema": KeyPlan(statistics, SCHEMA),
        "few cells": KeyPlan(cells_max=3),
    }


def random_filters(rng: random.Random, count: int) -> list[Filter]:
    filters: list[Filter] = []
    while len(filters) < count:
        try:
            filters.append(parse_filter(random_filter(rng)))
        except LimitError:
            continue
    return filters


def keys(text: str, plan: KeyPlan = NOTHING) -> list[str]:
    """The keys of a filter of one conjunction, as they read."""
    (conjunction,) = parse_filter(text).conjunctions
    return [str(key) for key in plan.keys_of(conjunction)]


def shared(conjunction: Conjunction, *events: Mapping[str, object], plan: KeyPlan = NOTHING) -> list[int]:
    """How many keys it shares with each event; the same by all ways to make an event's keys."""
    filed = set(plan.keys_of(conjunction))
    live = plan.live(filed)
    classes = KeyClasses(live.classes)
    counts = []
    for event in events:
        common = filed & plan.keys_of_event(event)
        assert live.keys_of_event(event) == common
        assert filed & classes.keys_of_event(event) == common
        counts.append(len(common))
    return counts


# -- the promise -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_a_conjunction_and_an_event_it_accepts_share_exactly_one_key(seed: int) -> None:
    rng = random.Random(seed)
    filters = random_filters(rng, 110)
    events = random_events(rng, 50)
    conjunctions = [conjunction for f in filters for conjunction in f.conjunctions]
    accepted = {(n, m) for n, c in enumerate(conjunctions) for m, event in enumerate(events) if c.accepts(event)}
    assert len(accepted) > 1000
    for plan in plans().values():
        filed = [frozenset(plan.keys_of(conjunction)) for conjunction in conjunctions]
        live = plan.live(key for some in filed for key in some)
        classes = KeyClasses(live.classes)
        for m, event in enumerate(events):
            all_keys = plan.keys_of_event(event)
            in_use = live.keys_of_event(event)
            assert in_use == {key for key in live if key in all_keys}
            assert in_use <= classes.keys_of_event(event) <= all_keys
            for n, some in enumerate(filed):
                common = len(some & in_use)
                assert common <= 1, (conjunctions[n], event)
                assert common == 1 or (n, m) not in accepted, (conjunctions[n], event)


@pytest.mark.parametrize("name", [*plans()])
def test_keys_are_few(name: str) -> None:
    plan = plans()[name]
    rng = random.Random(17)
    for f in random_filters(rng, 80):
        for conjunction in f.conjunctions:
            access = plan.access(conjunction)
            assert access.keys == plan.keys_of(conjunction)
            assert 0 <= access.share <= 1
            assert len({*access.keys}) == len(access.keys) <= CELLS_MAX
            assert {key.sort for key in access.keys} <= {access.sort}
            assert {key.attribute for key in access.keys} <= {access.attribute}
        assert len(set(plan.keys_of_filter(f))) == len(plan.keys_of_filter(f))
        assert set(plan.keys_of_filter(f)) == {key for c in f.conjunctions for key in plan.keys_of(c)}
    for event in random_events(rng, 50):
        assert len(plan.keys_of_event(event)) < 250
    wide = {
        "a": 1,
        "b": 2.5,
        "c": Decimal("3.5"),
        "d": True,
        "e": START,
        "g": "NYSE",
        "h": "OTIS",
        "i": "",
        "j": "🙂",
        "k": 7,
    }
    assert len(plan.keys_of_event(wide)) < 160


@pytest.mark.slow
def test_other_processes_make_the_same_keys() -> None:
    """A process with other hash seeds gets the plan as bytes, and its keys must have the same digests."""
    plan = KeyPlan(Statistics.of_events(random_events(random.Random(9), 300)), SCHEMA)
    script = "import sys; from tests.matching.test_keys import fingerprint; print(fingerprint(sys.stdin.buffer.read()))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=plan.to_bytes(),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"},
    )
    assert done.stdout.decode().strip() == fingerprint(plan.to_bytes())


def fingerprint(data: bytes) -> str:
    """Return a hash of all keys of a workload under a plan, and of statistics made here."""
    plan = KeyPlan.from_bytes(data)
    rng = random.Random(3)
    digests = [key.digest() for f in random_filters(rng, 100) for key in plan.keys_of_filter(f)]
    for event in random_events(rng, 20):
        digests += sorted(key.digest() for key in plan.keys_of_event(event))
    made = KeyPlan(Statistics.of_events(random_events(rng, 500), rows_max=200)).to_bytes()
    return hashlib.sha256(repr(digests).encode() + made).hexdigest()


# -- sorts of constraints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRUE", ["always"]),
        ("s = 'OTIS'", ["s value 'OTIS'"]),
        ("s = ''", ["s value ''"]),
        ("s IN ('B', 'A', 'B')", ["s value 'A'", "s value 'B'"]),
        ("s LIKE 'OTIS'", ["s value 'OTIS'"]),
        ("s LIKE 'OTIS%'", ["s prefix 'OTI'"]),
        ("s LIKE 'OT%'", ["s prefix 'OT'"]),
        ("startswith(s, 'O')", ["s prefix 'O'"]),
        ("startswith(s, '')", ["s there (string)"]),
        ("s LIKE '%'", ["s there (string)"]),
        ("s LIKE '_%'", ["s there (string)"]),
        ("s LIKE '___'", ["s there (string)"]),
        ("s LIKE '%NYSE'", ["s suffix 'YSE'"]),
        ("endswith(s, 'SE')", ["s suffix 'SE'"]),
        ("s LIKE 'N%YSE'", ["s suffix 'YSE'"]),
        ("s LIKE 'NYS%E'", ["s prefix 'NYS'"]),
        ("s LIKE 'NY_E%'", ["s prefix 'NY'"]),
        ("s LIKE '_YSE'", ["s suffix 'YSE'"]),
        ("s LIKE '%YS%'", ["s gram 'YS'"]),
        ("contains(s, 'YSEX')", ["s gram 'YSE'"]),
        ("s LIKE '%Y%'", ["s gram 'Y'"]),
        ("s LIKE '%Y%BCDE%'", ["s gram 'BCD'"]),
        ("s LIKE '_AB_CDE_'", ["s gram 'CDE'"]),
        ("s LIKE 'N%BCDE%'", ["s gram 'BCD'"]),
        ("s LIKE '🙂🙂🙂🙂%'", ["s prefix '🙂🙂🙂'"]),
        ("s LIKE '%A🙂'", ["s suffix 'A🙂'"]),
        ("s NOT LIKE 'OT%'", ["s there (string)"]),
        ("s != 'A'", ["s there (string)"]),
        ("s > 'A'", ["s there (string)"]),
        ("s >= 'OT' AND s < 'OU'", ["s prefix 'OT'"]),
        ("s BETWEEN 'OTA' AND 'OTZ'", ["s prefix 'OT'"]),
        ("s BETWEEN 'A' AND 'B'", ["s there (string)"]),
        ("s BETWEEN 'A' AND 'AZ' OR s = 'B' OR s = 'AB'", ["s prefix 'A'", "s prefix 'B'"]),
        ("s BETWEEN 'A' AND 'AX' OR s BETWEEN 'AZZA' AND 'AZZZ' OR s = 'B'", ["s prefix 'A'", "s prefix 'B'"]),
        ("s BETWEEN 'A' AND 'AZ' OR s = ''", ["s there (string)"]),
        ("b", ["b value TRUE"]),
        ("NOT b", ["b value FALSE"]),
        ("b IN (TRUE, FALSE)", ["b there (boolean)"]),
        ("x = 1", ["x value 1.0"]),
        ("x IN (1, 1.0, 2)", ["x value 1.0", "x value 2.0"]),
        ("x = 0.10000000000000000555", ["x value 0.1"]),
        ("x IN (0.1, 0.10000000000000000555)", ["x value 0.1"]),
        ("x > 0.1 AND x < 0.10000000000000000555", ["x value 0.1"]),
        ("x = 1152921504606846977", ["x value 1.152921504606847e+18"]),
        ("x = -0.0", ["x value 0.0"]),
        ("x BETWEEN 8 AND 12", ["x cell [8.0, 10.0)", "x cell [10.0, 12.0)", "x cell [12.0, 12.5)"]),
        (
            "x < 2",
            [
                "x cell [-inf, -1.0)",
                "x cell [-1.0, 0.0)",
                "x cell [0.0, 1.0)",
                "x cell [1.0, 2.0)",
                "x cell [2.0, 2.5)",
            ],
        ),
        ("x != 5", ["x there (number)"]),
        ("x >= 0", ["x there (number)"]),
        ("x BETWEEN -1e300 AND 1e300", ["x there (number)"]),
        ("t = TIMESTAMP '2026-01-01 00:00:00'", ["t value 2026-01-01T00:00:00.000000Z"]),
        ("x IS NOT NULL", ["x there"]),
        ("o IS NULL", ["o missing"]),
        ("unknown IS NULL", ["always"]),
        ("o.x IS NULL AND o IS NOT NULL", ["o there"]),
        ("o.`odd name` = 'A'", ["o.`odd name` value 'A'"]),
        ("x = 1 AND s LIKE 'OTIS%' AND t IS NOT NULL", ["x value 1.0"]),
        ("y = 1 AND x = 1", ["x value 1.0"]),
        ("s LIKE '%ABC' AND z LIKE 'ABC%'", ["s suffix 'ABC'"]),
    ],
)
def test_each_sort_of_constraint_has_its_keys(text: str, expected: list[str]) -> None:
    assert keys(text) == expected


def test_nothing_satisfies_a_range_between_two_microseconds() -> None:
    second = START + timedelta(microseconds=1)
    conjunction = Conjunction((("t", TimestampSet((Interval(START, True, second, True),))),))
    assert NOTHING.keys_of(conjunction) == ()
    assert NOTHING.access(conjunction).share == 0


def test_a_long_list_of_values_is_filed_by_what_holds_them() -> None:
    numbers = parse_filter(f"x IN ({', '.join(map(str, range(0, 5000, 7)))})").conjunctions[0]
    assert {key.sort for key in NOTHING.keys_of(numbers)} == {KeySort.CELL}
    texts = [f"{head}{n}" for head in "ABC" for n in range(200)]
    strings = parse_filter(f"s IN ({', '.join(map(repr, texts))})").conjunctions[0]
    assert [str(key) for key in NOTHING.keys_of(strings)] == ["s prefix 'A'", "s prefix 'B'", "s prefix 'C'"]
    assert {*shared(numbers, *({"x": number} for number in range(0, 5000, 7)))} == {1}
    assert {*shared(strings, *({"s": text} for text in texts))} == {1}


def test_a_long_text_makes_a_short_key() -> None:
    first, second = "x" * 10_000 + "1", "x" * 10_000 + "2"
    both = parse_filter(f"s IN ('{first}', '{second}')").conjunctions[0]
    assert all(len(key.text) < 100 for key in NOTHING.keys_of(both))
    assert len(NOTHING.keys_of(both)) == 2
    live = NOTHING.live(NOTHING.keys_of(both))
    assert [len(live.keys_of_event({"s": text})) for text in (first, second, first + "3")] == [1, 1, 0]


# -- numbers and timestamps --------------------------------------------------------------------------------------------


def test_codes_keep_the_order_of_doubles() -> None:
    doubles = [-math.inf, -1e300, -2.0, -1.0, -5e-324, 0.0, 5e-324, 0.1, 1.0, 2.0**53, 1e300, math.inf, math.nan]
    codes = [code_of(double) for double in doubles]
    assert codes == sorted(codes)
    assert len(set(codes)) == len(codes)
    assert [repr(double_of(code)) for code in codes] == [repr(double) for double in doubles]
    assert code_of(-0.0) == code_of(0.0) == code_of(0) == code_of(Decimal("0.00")) == 0
    assert code_of(1) == code_of(1.0) == code_of(Decimal("1.00")) == 0x3FF0_0000_0000_0000
    assert code_of(math.nextafter(1, 2)) == code_of(1) + 1
    assert code_of(2**60 + 1) == code_of(2**60)
    assert code_of(datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC)) == 5
    assert code_of(datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)) == -1_000_000


ODD = [
    *(-math.inf, math.inf, math.nan, -0.0, 0.0, 5e-324, -5e-324, 0.1, math.nextafter(0.1, 1), 8.3, 1e300, -1e300),
    *(2**53, 2**53 + 1, 2**60, 2**60 + 1, 10**38 - 1, -(10**38) + 1, 0, 1, -1, 5, 8, 83),
    *(float(2**53), float(2**60), 5.0, 2.0, 1.9999999999999998),
    *map(Decimal, ("0.1", "0.10000000000000000555", "0.10000000000000000001", "8.30", "8.3001", "-0.00", "1E+20")),
    *map(Decimal, ("1.99999999999999999999", "2.00000000000000000001")),
]


def check_numbers(text: str) -> None:
    for conjunction in parse_filter(text).conjunctions:
        assert len(NOTHING.keys_of(conjunction)) <= CELLS_MAX
        live = NOTHING.live(NOTHING.keys_of(conjunction))
        for value in ODD:
            common = len(live.keys_of_event({"x": value}))
            assert common <= 1
            assert common == 1 or not conjunction.accepts({"x": value}), (text, value)


def test_odd_numbers_meet_what_accepts_them() -> None:
    more = ["1152921504606846976", "1152921504606846977", "5e-324", "1.9999999999999998", "2", "1.7976931348623157E308"]
    for literal in [*NUMBER_TEXTS, *more]:
        for op in ("=", "<", ">=", "!="):
            check_numbers(f"x {op} {literal}")
    rng = random.Random(5)
    for _ in range(100):
        low, high, value = (rng.choice([*NUMBER_TEXTS, *more]) for _ in range(3))
        check_numbers(f"x BETWEEN {low} AND {high}")
        check_numbers(f"x > {low} AND x < {high} OR x = {value}")
        check_numbers(f"x IN ({low}, {high}, {value})")
        check_numbers(f"x > {low} AND x != {high}")


def test_the_view_of_floats_alone_is_covered() -> None:
    """0.1 < x < 0.10000000000000000555 holds for no float; this set holds for no exact number."""
    only_floats = Conjunction((("x", NumberSet((), (Interval(0.1, False, 0.1, False),))),))
    assert [str(key) for key in NOTHING.keys_of(only_floats)] == ["x value 0.1"]
    assert shared(only_floats, {"x": 0.1}) == [1]
    exact_and_floats = Conjunction(
        (("x", NumberSet((Interval(5, False, 6, False),), (Interval(8.0, True, None, True),))),)
    )
    for value in (5, Decimal("5.5"), 6, math.nextafter(8.0, 9), 1e300, math.inf, math.nan):
        assert exact_and_floats.accepts({"x": value})
        assert shared(exact_and_floats, {"x": value}) == [1]


@pytest.mark.parametrize("ulps", [1, 2, 100, 2**20])
def test_narrow_ranges_are_narrow(ulps: int) -> None:
    for low in (1.0, 0.1, -3.7, 1e-15, 2.0 - 2**-52, float(2**53)):
        high = double_of(code_of(low) + ulps)
        conjunction = Conjunction((("x", NumberSet((Interval(Decimal(low), False, Decimal(high), False),))),))
        made = NOTHING.keys_of(conjunction)
        assert len(made) <= CELLS_MAX
        assert {key.sort for key in made} == {KeySort.CELL}
        assert sum(last - first + 1 for first, last in (key.span for key in made)) <= 2**20 + ulps * 9 // 8 + 2**20
        assert shared(conjunction, *({"x": value} for value in (low, high, Decimal(low), Decimal(high)))) == [1] * 4
        assert shared(conjunction, {"x": low * 1.001}, {"x": low * 0.999}) == [0, 0]


def test_cells_are_disjoint_few_and_on_the_ladder() -> None:
    rng = random.Random(11)
    plan = KeyPlan(Statistics.of_events([{"x": -1e300}, {"x": 1e300}]))
    sizes = []
    for _ in range(500):
        low = rng.choice([-1, 1]) * 10 ** rng.uniform(-3, 6)
        high = low + 10 ** rng.uniform(-3, 4)
        conjunction = parse_filter(f"x BETWEEN {low:.6f} AND {high:.6f}").conjunctions[0]
        made = plan.keys_of(conjunction)
        assert len(made) <= CELLS_MAX
        assert {key.size for key in made} <= set(LADDERS["number"])
        spans = [key.span for key in made]
        assert spans == sorted(spans)
        assert all(a[1] < b[0] for a, b in pairwise(spans))
        within = [round(value, 6) for value in (low, high, rng.uniform(low, high))]
        assert shared(conjunction, *({"x": value} for value in within), plan=plan) == [1, 1, 1]
        sizes.append(len(made))
    assert sum(sizes) / len(sizes) < 10


def test_far_numbers_are_covered() -> None:
    """Beyond 2**64, and near zero, many numbers share a cell: it is one cell still, and holds the infinities."""
    for text in (
        "x > 1e200",
        "x > 1e200 AND x < 1e250",
        "x BETWEEN -1e-200 AND 1e-250",
        "x < -1e30",
        "x > 0 AND x < 1e-80",
    ):
        (conjunction,) = parse_filter(text).conjunctions
        for value in (
            1e201,
            1e240,
            math.inf,
            math.nan,
            0.0,
            -0.0,
            1e-260,
            -1e-201,
            -1e31,
            -math.inf,
            1e-100,
            5e-324,
            7,
        ):
            assert shared(conjunction, {"x": value}) == [1] or not conjunction.accepts({"x": value})
        assert shared(conjunction, {"x": 7}) == [0]


def test_ranges_of_timestamps() -> None:
    day = "t BETWEEN TIMESTAMP '2026-01-01 00:00:00' AND TIMESTAMP '2026-01-02 00:00:00'"
    late = "t > TIMESTAMP '2026-01-01 00:00:00'"
    early = "t < TIMESTAMP '2026-01-01 00:00:00'"
    ancient = "t < TIMESTAMP '1500-01-01 00:00:00'"
    instants = [
        *(START + timedelta(microseconds=m) for m in (-1, 0, 1, 10**10, 86_400_000_000, 86_400_000_001)),
        *(datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ]
    for text in (day, late, early, ancient):
        (conjunction,) = parse_filter(text).conjunctions
        assert {key.sort for key in NOTHING.keys_of(conjunction)} == {KeySort.CELL}
        for instant in instants:
            assert shared(conjunction, {"t": instant}) == [1] or not conjunction.accepts({"t": instant})
    assert shared(parse_filter(day).conjunctions[0], {"t": START + timedelta(days=2)}) == [0]
    assert keys(late)[0] == "t cell [2025-11-20T05:30:50.952704Z, 2026-01-10T03:11:37.463808Z)"
    assert keys(late)[-1].endswith(", …)")
    assert keys(ancient)[0].startswith("t cell […, ")


def test_kinds_do_not_meet() -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for text, value in (("a = 1", True), ("a = 1", "1"), ("a", 1), ("a = '1'", 1), ("a = 0", epoch), ("a > 0", epoch)):
        assert shared(parse_filter(text).conjunctions[0], {"a": value}) == [0]


# -- events ------------------------------------------------------------------------------------------------------------


def test_an_event_has_all_its_keys() -> None:
    event = {"s": "🙂AB", "o": {"x": 5, "none": None, "empty": {}}, "b": True}
    made = {str(key) for key in KeyPlan(names=["gone", "o.none", "s"]).keys_of_event(event)}
    cells = {text for text in made if " cell " in text}
    assert len(cells) == len(LADDERS["number"])
    assert made - cells == {
        *("always", "gone missing", "o.none missing", "o there", "o.empty there"),
        *("b there", "b there (boolean)", "b value TRUE", "o.x there", "o.x there (number)", "o.x value 5.0"),
        *("s there", "s there (string)", "s value '🙂AB'"),
        *("s prefix '🙂'", "s prefix '🙂A'", "s prefix '🙂AB'", "s suffix 'B'", "s suffix 'AB'", "s suffix '🙂AB'"),
        *("s gram '🙂'", "s gram 'A'", "s gram 'B'", "s gram '🙂A'", "s gram 'AB'", "s gram '🙂AB'"),
    }
    assert {str(key) for key in NOTHING.keys_of_event({"s": "", "o": {"x": 0}})} >= {"s value ''", "s there"}
    assert not [key for key in NOTHING.keys_of_event({"s": ""}) if key.sort in ("prefix", "suffix", "gram")]


def test_names_have_one_spelling() -> None:
    conjunction = Conjunction((("größe.x", NumberSet((Interval(5, False, 5, False),))),))
    assert [str(key) for key in NOTHING.keys_of(conjunction)] == ["`größe`.x value 5.0"]
    assert shared(conjunction, {"größe": {"x": 5}}) == [1]
    assert shared(parse_filter("`a.b` = 1").conjunctions[0], {"a": {"b": 1}}, {"a.b": 1}) == [0, 1]


def test_live_keys_are_counted() -> None:
    prefix, value, missing = (
        KeyPlan(names=["a"]).keys_of_filter(parse_filter(text))[0] for text in ("s LIKE 'OTIS%'", "s = ''", "a IS NULL")
    )
    live = LiveKeys([prefix, prefix, value, missing, ALWAYS])
    assert len(live) == 4
    assert live.keys_of_event({"s": "OTIS", "a": 1}) == {prefix, ALWAYS}
    assert live.keys_of_event({"s": ""}) == {value, missing, ALWAYS}
    assert live.classes == {
        KeyClass(KeySort.PREFIX, "s", "", 3),
        KeyClass(KeySort.VALUE, "s", "string"),
        KeyClass(KeySort.MISSING, "a"),
        KeyClass(KeySort.ALWAYS),
    }
    live.discard(prefix)
    assert prefix in live
    for key in (prefix, missing, ALWAYS):
        live.discard(key)
    assert live.keys_of_event({"s": "OTIS"}) == set()
    assert [*live] == [value]
    with pytest.raises(KeyError):
        live.discard(prefix)


def test_a_long_text_does_not_explode_where_few_keys_are_in_use() -> None:
    text = "".join(random.Random(1).choices("abcdefghij", k=20_000)) + "needle"
    live = NOTHING.live(NOTHING.keys_of_filter(parse_filter("contains(s, 'needle') OR contains(s, 'haystack')")))
    assert [str(key) for key in live.keys_of_event({"s": text})] == ["s gram 'nee'"]
    classes = KeyClasses(live.classes)
    assert {key.sort for key in classes.keys_of_event({"s": text, "u": text})} == {KeySort.GRAM, KeySort.ALWAYS}


# -- statistics --------------------------------------------------------------------------------------------------------


def events(count: int = 2000) -> list[dict[str, object]]:
    """Exchanges few, symbols many, prices between 8 and 12, urls that begin alike; `rare` is seldom there."""
    rng = random.Random(2)
    made: list[dict[str, object]] = []
    for n in range(count):
        word = "".join(rng.choices("abcdefghijklmnop", k=8))
        event: dict[str, object] = {
            "exchange": rng.choice(["NYSE", "NYSE", "NYSE", "NASDAQ"]),
            "symbol": word.upper(),
            "price": round(rng.uniform(8, 12), 2),
            "url": f"https://example.org/{word}",
            "time": START + timedelta(seconds=n),
            "open": n % 10 > 0,
        }
        if n % 100 == 0:
            event["rare"] = n
        made.append(event)
    return made


SAMPLE = Statistics.of_events(events())


@pytest.mark.parametrize(
    ("text", "without", "with_statistics"),
    [
        ("exchange = 'NYSE' AND symbol LIKE 'ABC%'", "exchange value", "symbol prefix"),
        ("exchange = 'NYSE' AND price BETWEEN 9 AND 9.1", "exchange value", "price cell"),
        ("exchange = 'NASDAQ' AND price BETWEEN 8 AND 11.9", "exchange value", "exchange value"),
        ("exchange = 'NYSE' AND rare IS NOT NULL", "exchange value", "rare there"),
        ("url LIKE 'https://example.org/abcd%'", "url prefix", "url gram"),
        ("open AND exchange LIKE 'NAS%'", "exchange prefix", "exchange prefix"),
        ("NOT open AND exchange LIKE 'NAS%'", "exchange prefix", "open value"),
        ("price > 20 AND symbol LIKE 'A%'", "symbol prefix", "price cell"),
        ("price > 2 AND symbol LIKE '%A%'", "symbol gram", "symbol gram"),
        ("price > 2", "price cell", "price there"),
        ("time >= TIMESTAMP '2026-01-01 00:30:00' AND exchange = 'NYSE'", "exchange value", "exchange value"),
        ("time < TIMESTAMP '2025-12-31 00:00:00' AND exchange = 'NYSE'", "exchange value", "time cell"),
    ],
)
def test_statistics_change_the_choice(text: str, without: str, with_statistics: str) -> None:
    (conjunction,) = parse_filter(text).conjunctions
    for plan, expected in ((NOTHING, without), (KeyPlan(SAMPLE), with_statistics)):
        access = plan.access(conjunction)
        assert f"{access.attribute} {access.sort}" == expected


def test_shares_are_near_the_truth() -> None:
    plan, sample = KeyPlan(SAMPLE), events()
    for text in (
        *("exchange = 'NASDAQ'", "exchange LIKE 'NY%'", "exchange LIKE '%SE'", "exchange LIKE '%ASD%'", "NOT open"),
        *(
            "price BETWEEN 9 AND 10",
            "price > 11",
            "rare IS NOT NULL",
            "rare > 1000",
            "symbol LIKE 'A%'",
            "url LIKE '%/a%'",
        ),
        *("time > TIMESTAMP '2026-01-01 00:20:00'", "price IN (9.01, 9.02, 9.03)"),
    ):
        (conjunction,) = parse_filter(text).conjunctions
        access = plan.access(conjunction)
        live = plan.live(access.keys)
        true_share = sum(1 for event in sample if live.keys_of_event(event)) / len(sample)
        assert access.share == pytest.approx(true_share, abs=0.02), text


@pytest.mark.parametrize("name", [*plans()])
def test_the_least_share_is_taken(name: str) -> None:
    plan = plans()[name]
    for f in random_filters(random.Random(12), 60):
        for conjunction in f.conjunctions:
            alone = [plan.access(Conjunction((c,))) for c in conjunction.constraints if not isinstance(c[1], Absent)]
            if alone:
                assert plan.access(conjunction).share == min(access.share for access in alone)


def test_more_cells_are_taken_only_where_they_hold_clearly_fewer_events() -> None:
    even = KeyPlan(Statistics.of_events({"x": n * 2} for n in range(1000)))
    close = KeyPlan(Statistics.of_events({"x": 990 + n / 20} for n in range(1000)))
    assert keys("x > 1000", even) == keys("x > 1000")
    assert keys("x > 1000", close)[0] == "x cell [1000.0, 1008.0)"
    assert len(keys("x > 1000")) < len(keys("x > 1000", close)) <= CELLS_MAX


def test_the_rarest_gram_is_taken() -> None:
    statistics = Statistics.of_events([{"s": "the the the"}] * 50 + [{"s": "hex"}])
    assert keys("contains(s, 'thex')") == ["s gram 'the'"]
    assert keys("contains(s, 'thex')", KeyPlan(statistics)) == ["s gram 'hex'"]


def test_a_schema_changes_the_choice() -> None:
    schema = Schema(
        (
            Attribute("grade", Type.INTEGER, minimum=1, maximum=4),
            Attribute("price", Type.DECIMAL, minimum=0, maximum=10_000, precision=Decimal("0.01")),
            Attribute(
                "ratio", Type.FLOAT, minimum=Decimal("-1e308"), maximum=Decimal("1e308"), precision=Decimal("1e-320")
            ),
            Attribute("when", Type.TIMESTAMP, minimum=START, maximum=START + timedelta(days=10)),
        )
    )
    plan = KeyPlan(schema=schema)
    text = "grade = 3 AND price BETWEEN 100 AND 110"
    assert keys(text)[0].startswith("grade value")
    assert keys(text, plan)[0].startswith("price cell")
    assert keys("grade = 3 AND price = 100", plan) == ["price value 100.0"]
    assert keys("grade = 3 AND when < TIMESTAMP '2026-01-01 01:00:00'", plan)[0].startswith("when cell")
    assert keys("ratio BETWEEN 1 AND 2 AND grade = 3", plan)[0].startswith("ratio cell")
    assert keys("ratio = 1 AND grade = 3", plan)[0].startswith("ratio value")
    assert keys("price IS NULL AND grade IS NULL", plan) == ["grade missing"]
    assert keys("grade = 'A' AND price = 1", plan) == ["grade value 'A'"]  # which no event has
    assert {str(key) for key in plan.keys_of_event({"grade": 1}) if key.sort is KeySort.MISSING} == {
        *("price missing", "ratio missing", "when missing")
    }


def test_statistics_are_bounded_and_fair() -> None:
    rng = random.Random(4)

    def rows() -> Sequence[dict[str, object]]:
        return [{"n": n, "s": "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=30))} for n in range(20_000)]

    statistics = Statistics.of_events(iter(rows()), rows_max=1000)
    assert statistics.rows == 1000
    assert len(KeyPlan(statistics).to_bytes()) < 200_000
    (half,) = parse_filter("n >= 10000").conjunctions
    assert KeyPlan(statistics).access(half).share == pytest.approx(0.6, abs=0.1)
    many = Statistics.of_events([{f"a{n}": 1 for n in range(3000)}])
    assert len(many.attributes) == 1024
    assert KeyPlan(Statistics.of_events([])).keys_of_filter(parse_filter("a = 1"))


# -- bytes -------------------------------------------------------------------------------------------------------------


def test_a_plan_survives_as_bytes() -> None:
    for plan in plans().values():
        data = plan.to_bytes()
        for again in (KeyPlan.from_bytes(data), pickle.loads(pickle.dumps(plan))):
            assert again.to_bytes() == data
            assert (again.statistics, again.schema) == (plan.statistics, plan.schema)
            for f in random_filters(random.Random(6), 50):
                assert again.keys_of_filter(f) == plan.keys_of_filter(f)


def test_a_plan_of_another_version_is_refused() -> None:
    stored = msgspec.msgpack.decode(NOTHING.to_bytes())
    with pytest.raises(ValueError, match="no key plan of version 1"):
        KeyPlan.from_bytes(msgspec.msgpack.encode({**stored, "version": 2, "statistics": "something else"}))
    with pytest.raises(ValueError, match="version"):
        KeyPlan.from_bytes(msgspec.msgpack.encode({}))


def test_keys_survive_as_bytes_and_have_an_order() -> None:
    made = sorted({key for event in random_events(random.Random(8), 20) for key in NOTHING.keys_of_event(event)})
    data = msgspec.msgpack.encode(made)
    again = msgspec.msgpack.decode(data, type=list[MeetKey])
    assert again == made
    assert {*again} == {*made}
    assert len({key.digest() for key in made}) == len(made)


def test_digests_are_fixed() -> None:
    """Brokers and partitions hold what was filed by digests: a change here is a new VERSION."""
    prefix = MeetKey(KeySort.PREFIX, "symbol", "", 3, 0, "OTI")
    assert str(prefix) == "symbol prefix 'OTI'"
    assert prefix.digest() == 6211023575980027188
    assert ALWAYS.digest() == 8305801687322763633
    assert MeetKey(KeySort.CELL, "x", "number", 52, -3).digest(16) == 52712
    assert prefix.digest(3) < 8
    assert prefix.digest(160).bit_length() in range(140, 161)
    assert (
        MeetKey(KeySort.VALUE, "ab", "string", 0, 0, "c").digest()
        != MeetKey(KeySort.VALUE, "a", "string", 0, 0, "bc").digest()
    )
    with pytest.raises(ValueError, match="1 to 512"):
        prefix.digest(513)
