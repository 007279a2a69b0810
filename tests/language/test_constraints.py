"""Sets of values: the interval operations against membership, and the two lines that numbers live on."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meetpoint.errors import FilterError, LimitError
from meetpoint.language import Absent, BooleanSet, FilterParser, NumberSet, Present, parse_filter
from meetpoint.language.filters.constraints import ABSENT, PRESENT, accepts, both
from meetpoint.language.filters.intervals import (
    EVERYTHING,
    Interval,
    Intervals,
    complement,
    contains,
    intersect,
    normalize,
    union,
)

bounds = st.none() | st.integers(0, 8)
intervals = st.builds(
    lambda low, low_open, high, high_open: Interval(low, low is None or low_open, high, high is None or high_open),
    bounds,
    st.booleans(),
    bounds,
    st.booleans(),
)
sets = st.lists(intervals, max_size=12).map(normalize)
PROBES = [n / 2 for n in range(-3, 20)]


def held(a: Intervals) -> list[bool]:
    return [contains(a, probe) for probe in PROBES]


@given(sets, sets)
def test_operations_on_sets_are_those_on_membership(a: Intervals, b: Intervals) -> None:
    assert held(union(a, b)) == [x or y for x, y in zip(held(a), held(b), strict=True)]
    assert held(intersect(a, b)) == [x and y for x, y in zip(held(a), held(b), strict=True)]
    assert held(complement(a)) == [not x for x in held(a)]


@given(sets, sets)
def test_equal_sets_are_spelt_the_same(a: Intervals, b: Intervals) -> None:
    assert complement(complement(a)) == a
    assert complement(union(a, b)) == intersect(complement(a), complement(b))
    assert normalize(reversed(a)) == a
    assert union(a, complement(a)) == EVERYTHING
    assert intersect(a, complement(a)) == ()


def test_large_sets_find_their_members_by_bisection() -> None:
    odd = normalize(Interval(n, False, n, False) for n in range(1, 200, 2))
    assert [n for n in range(-1, 202) if contains(odd, n)] == list(range(1, 200, 2))
    assert [n for n in range(-1, 202) if contains(complement(odd), n)] == [-1, *range(0, 200, 2), 200, 201]


def holds(text: str, value: object) -> bool:
    return parse_filter(text).accepts({"x": value})


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        # a float meets the double nearest to the literal
        ("x = 0.1", 0.1, True),
        ("x >= 8.20", 8.2, True),
        ("x > 0.1", 0.1, False),
        ("x >= 0.10000000000000000555", 0.1, True),
        ("x = 9007199254740993", 2.0**53, True),
        # an integer or a decimal meets the literal itself
        ("x = 0.1", Decimal("0.1"), True),
        ("x >= 0.10000000000000000555", Decimal("0.1"), False),
        ("x = 9007199254740993", 2**53, False),
        ("x = 9007199254740992.0", 2**53, True),
        ("x = 1e2", 100, True),
        ("x > 5e-324", 0, False),
        # NaN is the largest, zeros are equal
        ("x > 1e308", math.nan, True),
        ("x != 5", math.nan, True),
        ("x <= 5", math.nan, False),
        ("x NOT BETWEEN 1 AND 2", math.nan, True),
        ("x NOT IN (1, 2)", math.nan, True),
        ("x > 1e308", math.inf, True),
        ("x = 0", -0.0, True),
        ("x = -0", 0.0, True),
        ("x < 0", -0.0, False),
    ],
)
def test_numbers_compare_exactly(text: str, value: object, expected: bool) -> None:
    assert holds(text, value) is expected


def test_literals_that_round_to_one_double_keep_both_lines_right() -> None:
    """0.1 and 0.10000000000000000555 are two decimals and one double."""
    near = "0.10000000000000000555"
    assert not holds(f"x > 0.1 AND x >= {near}", 0.1)
    assert holds(f"x > 0.1 AND x >= {near}", Decimal(near))
    assert holds(f"x >= {near} AND x <= 0.1", 0.1)
    assert not holds(f"x >= {near} AND x <= 0.1", Decimal("0.1"))
    assert holds(f"x BETWEEN {near} AND 0.1", 0.1)
    assert not holds(f"x NOT BETWEEN {near} AND 0.1", 0.1)
    assert holds(f"x < {near} OR x > {near}", Decimal("0.1"))
    assert not holds(f"x < 0.1 OR x > {near}", 0.1)
    assert parse_filter(f"x > {near} AND x < 0.1").conjunctions == ()


@pytest.mark.slow
@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from(["<", "<=", "=", "!=", ">=", ">"]), st.integers(0, 6)), min_size=1, max_size=5),
    st.data(),
)
def test_any_chain_of_close_literals_agrees_with_its_parts(chain: list[tuple[str, int]], data: st.DataObject) -> None:
    """All literals lie within one or two doubles of 0.1, so that rounding decides."""
    parts = [f"x {op} 0.1000000000000000{step}" for op, step in chain]
    joined = f" {data.draw(st.sampled_from(['AND', 'OR']))} ".join(parts)
    negated = data.draw(st.booleans())
    for value in (0.1, math.nextafter(0.1, 0), math.nextafter(0.1, 1), Decimal("0.10000000000000003"), Decimal("0.1")):
        each = [holds(part, value) for part in parts]
        expected = all(each) if " AND " in joined else any(each)
        assert holds(f"NOT ({joined})" if negated else joined, value) is (expected is not negated)


def test_presence_and_absence_combine() -> None:
    number = NumberSet(EVERYTHING)
    assert both(ABSENT, ABSENT) == ABSENT
    assert both(ABSENT, PRESENT) is None
    assert both(PRESENT, number) == both(number, PRESENT) == number
    assert both(number, BooleanSet((True,))) is None
    assert [accepts(Absent(), v) for v in (None, 0)] == [True, False]
    present: tuple[object, ...] = (0, "", {})
    assert not accepts(Present(), None)
    assert all(accepts(Present(), value) for value in present)


@pytest.mark.parametrize(
    ("text", "conjunctions"),
    [
        ("a = 1 OR a = 2 OR a = 3", 1),
        ("a = 1 OR a = 'x'", 2),
        ("(a = 1 OR a = 2) AND (b = 1 OR c = 1)", 2),
        ("a = 1 OR a = 1 AND a = 1", 1),
        ("NOT (a BETWEEN 1 AND 2 AND b IN (1, 2))", 2),
        ("a = 1 AND a = 2", 0),
        ("a = 1 AND a IS NULL", 0),
        ("a = 1 AND a = 'x'", 0),
        ("s < ''", 0),
        ("TRUE", 1),
        ("FALSE", 0),
        ("a = 1 OR TRUE", 1),
        ("a = 1 AND FALSE", 0),
        ("s LIKE 'a%' OR s LIKE 'b%'", 2),
        ("s LIKE 'a%' AND s NOT LIKE 'a%'", 0),
        ("s NOT LIKE '%'", 0),
    ],
)
def test_normal_forms_are_as_small_as_the_text_allows(text: str, conjunctions: int) -> None:
    assert len(parse_filter(text).conjunctions) == conjunctions


def test_64_conjunctions_are_accepted_and_more_refused() -> None:
    factors = [f"(a{n} = 1 OR b{n} = 1)" for n in range(7)]
    assert len(parse_filter(" AND ".join(factors[:6])).conjunctions) == 64
    with pytest.raises(LimitError, match="more than 64 alternatives"):
        parse_filter(" AND ".join(factors))
    assert len(parse_filter(" OR ".join(f"a{n} = 1" for n in range(64))).conjunctions) == 64
    with pytest.raises(LimitError, match="more than 64 alternatives"):
        parse_filter(" OR ".join(f"a{n} = 1" for n in range(65)))
    values = ", ".join(map(str, range(5000)))
    assert len(parse_filter(f"a IN ({values})").conjunctions) == 1
    with pytest.raises(LimitError):  # and a huge product is refused before it is built
        parse_filter(" AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(2000)))


def test_patterns_are_tried_with_strings_only_so_often() -> None:
    alternatives = " OR ".join(
        "(" + " AND ".join(f"x NOT LIKE '%{n}{m}_a%'" for m in range(8)) + f" AND b{n} = 1)" for n in range(64)
    )
    parser = FilterParser()
    assert len(parser.parse(f"x = 'a' AND ({alternatives})").conjunctions) == 64
    with pytest.raises(
        LimitError, match="512 patterns when its ORs are multiplied out"
    ):  # also where its shape is known
        parser.parse(f"x = '{'a' * 20_000}' AND ({alternatives})")
    unlike = " AND ".join(f"x NOT LIKE '%{n}_a%'" for n in range(32))
    factors = " AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(6))
    assert len(parse_filter(f"x = '{'a' * 50_000}' AND {unlike} AND {factors}").conjunctions) == 64, (
        "tried once for all"
    )


def test_32_patterns_on_one_attribute_are_accepted_and_more_refused() -> None:
    parts = [f"s LIKE '%{n}%'" for n in range(33)]
    assert parse_filter(" AND ".join(parts[:32])).conjunctions
    assert parse_filter(" OR ".join(parts)).conjunctions
    with pytest.raises(LimitError, match="33 patterns on s"):
        parse_filter(" AND ".join(parts))
    with pytest.raises(LimitError, match="33 patterns on s"):
        parse_filter(f"NOT ({' OR '.join(parts)})")


@pytest.mark.slow
def test_long_filters_of_one_attribute_are_drawn_together_at_once() -> None:
    """Pairwise, each of these would take a quarter of an hour."""
    many = range(4000)
    (united,) = parse_filter(" OR ".join(f"x={n}" for n in many)).conjunctions
    assert united == parse_filter(f"x IN ({', '.join(map(str, many))})").conjunctions[0]
    (common,) = parse_filter(" AND ".join(f"x!={n}" for n in many)).conjunctions
    assert common == parse_filter(f"x NOT IN ({', '.join(map(str, many))})").conjunctions[0]
    (texts,) = parse_filter(" AND ".join(f"s!='{n}'" for n in many)).conjunctions
    assert texts == parse_filter(f"s NOT IN ({', '.join(repr(str(n)) for n in many)})").conjunctions[0]
    with pytest.raises(FilterError, match="never closed"):
        parse_filter("a = '" + "\\'" * 30_000)
    head = "a" * 30_000
    assert len(parse_filter(f"s LIKE '{head}%' AND s NOT LIKE '{head}%b'").conjunctions) == 1


@pytest.mark.parametrize(
    "text", ["a = '\\'", "a = 'x", "a = '", 'a = "x', "a = 'x''", "`a b` = 'x\\'", "a = 1 AND b = 'x"]
)
def test_a_string_that_is_never_closed_is_refused_also_when_the_shape_is_known(text: str) -> None:
    parser = FilterParser()
    for known in ("a = 'x'", 'a = "x"', "`a b` = 'x'", "a = 1 AND b = 'x'"):
        parser.parse(known)
    with pytest.raises(FilterError, match="never closed"):
        parser.parse(text)


def test_64_constraints_are_accepted_and_more_refused() -> None:
    parts = [f"a{n} = 1" for n in range(65)]
    assert len(parse_filter(" AND ".join(parts[:64])).conjunctions[0].constraints) == 64
    with pytest.raises(LimitError, match="constrains 65 attributes"):
        parse_filter(" AND ".join(parts))
