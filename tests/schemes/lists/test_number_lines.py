"""Values on the ring: order is kept, and whatever a constraint accepts meets it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from meetpoint.errors import MeetpointError
from meetpoint.language import Attribute, Interval, Kind, NumberSet, Schema, TimestampSet, Type
from meetpoint.language.filters.constraints import accepts, all_common, any_common
from meetpoint.language.filters.intervals import complement, point
from meetpoint.matching.keys.feedback import Feedback, MeasuredQuantiles
from meetpoint.matching.keys.statistics import Statistics
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Codes, Linear, Quantiles, Scale, measure
from meetpoint.schemes.lists.number_lines import Grid, Ordered, Piece, contains
from meetpoint.schemes.lists.value_hash import Hashing
from tests.language.strategies import FLOATS, INTEGERS, TIMESTAMPS, decimals

BITS = 40
SIZE = 1 << BITS

SCHEMA = Schema(
    (
        Attribute("grid", Type.DECIMAL, minimum=Decimal(0), maximum=Decimal(20), precision=Decimal("0.01")),
        Attribute("coarse", Type.FLOAT, minimum=Decimal("-7.5"), maximum=Decimal(9), precision=Decimal(3)),
        Attribute("even", Type.INTEGER, precision=2),
        Attribute("least", Type.INTEGER, minimum=-5),
        Attribute("long", Type.INTEGER, minimum=2**60, maximum=2**60 + 2000),
        Attribute("free", Type.FLOAT, minimum=Decimal(-1), maximum=Decimal(1)),
        Attribute("one", Type.DECIMAL, minimum=Decimal(3), maximum=Decimal(3)),
        Attribute("huge", Type.FLOAT, minimum=Decimal("-1e400"), precision=Decimal("0.5")),
        Attribute("skewed", Type.INTEGER, minimum=0, maximum=1000),
    )
)
NAMES = [*SCHEMA.names, "undeclared"]
SCALES: dict[str, Scale] = {"skewed": Quantiles.of([1, 2, 3, 5, 8, 100], SCHEMA["skewed"])}
HASHINGS = {
    "plain": Hashing(Ring(BITS), SCHEMA),
    "ordered": Hashing(Ring(BITS), SCHEMA, order_preserving=True, scales=SCALES),
    "small": Hashing(Ring(4), SCHEMA, order_preserving=True, scales=SCALES),
    "narrow": Hashing(Ring(BITS), SCHEMA, points_max=2),
}

# Numbers around the ends of the attributes, off and on their grids, and any others.
LITERALS: st.SearchStrategy[int | Decimal] = st.one_of(
    st.integers(-40, 120).map(lambda n: Decimal(n) / 4),
    st.integers(700, 900).map(lambda n: Decimal(n) / 100),
    st.sampled_from([Decimal("8.305"), Decimal("0.1"), Decimal("0.10000000000000000555"), 2**53 + 1, 2**60 + 7]),
    st.integers(2**60 - 3, 2**60 + 40),
    st.integers(-3, 1003),
    decimals(),
    INTEGERS,
)


@st.composite
def number_sets(draw: st.DrawFn) -> NumberSet:
    """Values, intervals, and their unions, intersections and complements."""

    def simple() -> NumberSet:
        if draw(st.booleans()):
            return NumberSet((point(draw(LITERALS)),))
        ends = sorted([draw(LITERALS), draw(LITERALS)])
        assume(ends[0] < ends[1])
        low, high = draw(st.sampled_from([(ends[0], ends[1]), (None, ends[1]), (ends[0], None)]))
        opens = (low is None or draw(st.booleans()), high is None or draw(st.booleans()))
        return NumberSet((Interval(low, opens[0], high, opens[1]),))

    sets = [simple() for _ in range(draw(st.integers(1, 3)))]
    if draw(st.booleans()):
        sets = [NumberSet(complement(each.exact)) for each in sets]
    made = sets[0] if len(sets) == 1 else draw(st.sampled_from([any_common, all_common]))(sets)
    assume(made is not None)
    assert isinstance(made, NumberSet)
    return made


@st.composite
def numbers_near(draw: st.DrawFn, near: NumberSet) -> int | float | Decimal:
    """A number at, or just beside, an end of a set; or any."""
    ends = [end for interval in near.exact for end in (interval.low, interval.high) if end is not None]
    if not ends or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(FLOATS, LITERALS))
    end = draw(st.sampled_from(ends))
    assert isinstance(end, int | Decimal)
    double = float(end)
    beside: list[int | float | Decimal] = [
        double,
        math.nextafter(double, -math.inf),
        math.nextafter(double, math.inf),
        end,
    ]
    steps = [Decimal("0.01"), Decimal("0.003"), Decimal(1), Decimal("1e-25")]
    beside += [end + sign * step for step in steps for sign in (1, -1) if -(10**9) < end < 10**9]
    return draw(st.sampled_from(beside))


def meets(pieces: tuple[Piece, ...], keys: tuple[bytes, ...], value: object) -> bool:
    return any(contains(piece.span, key) and accepts(piece.part, value) for piece in pieces for key in keys)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_a_number_meets_every_constraint_that_accepts_it_and_no_other(name: str, data: st.DataObject) -> None:
    constraint = data.draw(number_sets())
    value = data.draw(numbers_near(constraint))
    for hashing in HASHINGS.values():
        line = hashing.line(name, Kind.NUMBER)
        keys = line.keys(value)
        assert 1 <= len(keys) <= 2
        assert meets(line.pieces(constraint), keys, value) == accepts(constraint, value), (hashing, keys)


@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=4, unique=True).map(sorted),
    st.integers(-2, 12),
    st.booleans(),
    st.booleans(),
)
def test_a_timestamp_meets_every_constraint_that_accepts_it_and_no_other(
    ends: list[int], second: int, ordered: bool, declared: bool
) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    at = [start + timedelta(seconds=end) for end in ends]
    intervals = [Interval(low, True, high, False) for low, high in zip(at[::2], at[1::2], strict=False)]
    constraint = TimestampSet((Interval(None, True, start, True), *intervals))
    schema = Schema((Attribute("t", Type.TIMESTAMP, minimum=start, maximum=start + timedelta(seconds=8)),))
    line = Hashing(Ring(), schema if declared else None, order_preserving=ordered).line("t", Kind.TIMESTAMP)
    for microsecond in (-1, 0, 1):
        value = start + timedelta(seconds=second, microseconds=microsecond)
        assert meets(line.pieces(constraint), line.keys(value), value) == accepts(constraint, value)


@given(TIMESTAMPS, st.booleans())
def test_timestamps_at_the_ends_of_time_are_values_like_others(value: datetime, ordered: bool) -> None:
    line = Hashing(Ring(), order_preserving=ordered).line("t", Kind.TIMESTAMP)
    other = datetime(2000, 1, 1, tzinfo=UTC)
    for constraint in (TimestampSet((point(value),)), TimestampSet(complement((point(other),)))):
        assert meets(line.pieces(constraint), line.keys(value), value) == accepts(constraint, value)


@pytest.mark.parametrize("value", [8.4, Decimal("8.40"), Decimal("8.4")])
def test_a_number_lies_at_one_key_whichever_class_it_has(value: float | Decimal) -> None:
    for hashing in HASHINGS.values():
        for name in NAMES:
            line = hashing.line(name, Kind.NUMBER)
            assert line.keys(value) == line.keys(Decimal("8.400"))
            assert line.keys(7) == line.keys(7.0) == line.keys(Decimal(7))


@given(st.one_of(FLOATS, LITERALS), st.one_of(FLOATS, LITERALS))
@example(float(2**60), 2**60)
@example(0.1, Decimal("0.10000000000000000555"))
def test_scales_keep_the_order_of_measures(a: float | Decimal, b: float | Decimal) -> None:
    x, y = sorted((measure(a), measure(b)))
    for scale in (
        Linear(Fraction(0), Fraction(20), Fraction(1, 100)),
        Linear(Fraction(-1), Fraction(1)),
        Linear(Fraction(3), Fraction(3)),
        SCALES["skewed"],
        Quantiles.of([-0.5, 8.3, 1e30]),
        Codes(Kind.NUMBER),
    ):
        for size in (1, 8, SIZE):
            assert 0 <= scale.offset(x, size) <= scale.offset(y, size) < size


def test_measures_are_exact_and_floats_are_their_shortest_spelling() -> None:
    assert measure(0.1) == measure(Decimal("0.10")) == Fraction(1, 10)
    assert measure(Decimal("0.10000000000000000555")) > Fraction(1, 10)
    assert measure(-0.0) == measure(0) == 0
    assert measure(math.nan) == measure(math.inf) == math.inf
    assert measure(1e300) == 10**300
    assert measure(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000_000


# -- scales ------------------------------------------------------------------------------------------------------------


def test_a_linear_scale_is_the_corrected_formula_of_paper_A() -> None:
    """Deviation: with the precision under the line, every value has as much of the ring, the largest too."""
    scale = Linear.of(SCHEMA["grid"])
    assert scale == Linear(Fraction(0), Fraction(20), Fraction(1, 100))
    assert scale is not None
    for cents in (0, 1, 831, 1999, 2000):
        assert scale.offset(Fraction(cents, 100), SIZE) == cents * SIZE // 2001
    assert scale.offset(20, SIZE) == scale.offset(25, SIZE) == scale.offset(math.inf, SIZE) < SIZE
    assert scale.offset(-1, SIZE) == scale.offset(-math.inf, SIZE) == 0
    assert Linear.of(SCHEMA["even"]) is None


def test_a_scale_from_quantiles_gives_every_part_as_much_of_the_ring() -> None:
    """Half of the values lie below 3, a tenth of them above 100: both stay in proportion."""
    values = sorted(
        [n % 3 + n / 1000 for n in range(500)] + [3 + n / 4 for n in range(400)] + [100.0 + n for n in range(100)]
    )
    feedback = Feedback(Statistics(1000, {}), lines={"a": MeasuredQuantiles(Kind.NUMBER, tuple(values))})
    scale = Quantiles.of(feedback.quantiles("a", 100))
    sixteenths = [0] * 16
    for value in values:
        sixteenths[scale.offset(measure(value), 16)] += 1
    assert max(sixteenths) <= 1.35 * 1000 / 16
    linear = Linear(Fraction(0), Fraction(200))
    by_value = [linear.offset(measure(value), 16) for value in values]
    assert by_value.count(0) > 500, "evenly by value, half of them are at one node"


def test_a_value_that_is_many_quantiles_counts_once() -> None:
    assert Quantiles.of([1, 5, 5, 5, 9]).edges == tuple(map(Fraction, (-3, 1, 5, 9, 13)))
    assert Quantiles.of([5, 5]).edges == tuple(map(Fraction, (4, 5, 6)))
    skewed = SCHEMA["skewed"]
    assert Quantiles.of([-4, 0, 7, 1000, 2000], skewed).edges == tuple(map(Fraction, (0, 7, 1000)))
    assert Quantiles.of([3], SCHEMA["one"]).edges == tuple(map(Fraction, (3, 4)))
    with pytest.raises(MeetpointError, match="needs at least one cut; ask for two parts or more"):
        Quantiles.of([])


def test_quantiles_of_timestamps_are_a_scale_too() -> None:
    days = [datetime(2026, 1, day, tzinfo=UTC) for day in range(1, 29)]
    offsets = [Quantiles.of(days[1:]).offset(measure(day), 1000) for day in days]
    assert offsets == sorted(set(offsets))


# -- grids -------------------------------------------------------------------------------------------------------------


def test_a_grid_is_the_values_of_an_attribute() -> None:
    coarse = Grid.of(SCHEMA["coarse"])
    assert coarse is not None
    assert (coarse.low, coarse.high) == (Fraction("-7.5"), Fraction("7.5")), "-7.5, -4.5, ... and 9 is not on it"
    assert coarse.around(0) == (Fraction("-1.5"), Fraction("1.5"))
    assert coarse.around(Fraction("1.5")) == (Fraction("1.5"),)
    assert coarse.around(100) == coarse.around(math.inf) == coarse.around(Fraction("7.6")) == (Fraction("7.5"),)
    assert coarse.around(-8) == coarse.around(-math.inf) == (Fraction("-7.5"),)
    assert coarse.within(Interval(None, True, Fraction(0), True)) == (Fraction("-7.5"), Fraction("-1.5"))  # type: ignore[arg-type]
    assert Grid.of(SCHEMA["free"]) is None
    even = Grid.of(SCHEMA["even"])
    assert even is not None
    assert even.within(Interval(1, False, 7, False)) == (2, 6)
    assert even.within(Interval(2, True, 6, True)) == (4, 4)
    assert even.within(Interval(3, False, 3, False)) == (2, 2), "none in it: the one below"


def test_an_event_between_two_values_asks_at_both_and_one_beyond_the_ends_at_the_end() -> None:
    for ordered in (False, True):
        line = Hashing(Ring(), SCHEMA, order_preserving=ordered).line("grid", Kind.NUMBER)
        assert line.keys(8.305) == (*line.keys(8.30), *line.keys(8.31))
        assert line.keys(25) == line.keys(math.nan) == line.keys(20)
        assert line.keys(-1) == line.keys(0)


# -- ranges ------------------------------------------------------------------------------------------------------------


def test_a_range_of_many_values_lies_once_at_every_node_by_the_plain_hash() -> None:
    hashing = Hashing(Ring(), SCHEMA, points_max=100)
    for name, interval, count in (
        ("grid", Interval(1, False, Decimal("1.99"), False), 100),
        ("grid", Interval(1, False, 2, False), None),
        ("grid", Interval(None, True, Decimal("0.5"), False), 51),
        ("least", Interval(1, False, None, True), None),
        ("free", Interval(0, False, Decimal("0.01"), False), None),
        ("undeclared", Interval(1, False, 2, False), None),
        ("undeclared", point(1), 1),
    ):
        pieces = hashing.line(name, Kind.NUMBER).pieces(NumberSet((interval,)))
        if count is None:
            assert pieces == (Piece((hashing.ring.key(0), hashing.ring.key(-1)), NumberSet((interval,))),)
        else:
            assert len({piece.span for piece in pieces}) == len(pieces) == count
            assert all(low == high for (low, high), _ in pieces)


def test_a_range_is_one_arc_by_the_order_preserving_hash_and_what_is_not_equal_two() -> None:
    hashing = Hashing(Ring(), SCHEMA, order_preserving=True)
    line = hashing.line("grid", Kind.NUMBER)

    def arcs(constraint: Ordered) -> list[tuple[bytes, bytes]]:
        return [piece.span for piece in line.pieces(constraint)]

    def key(value: str) -> bytes:
        return line.keys(Decimal(value))[0]

    between = NumberSet((Interval(Decimal("8.30"), True, Decimal("8.70"), True),))
    assert arcs(between) == [(key("8.31"), key("8.69"))]
    assert arcs(NumberSet(complement((point(Decimal("8.4")),)))) == [(key("0"), key("8.39")), (key("8.41"), key("20"))]
    free = hashing.line("free", Kind.NUMBER).pieces(NumberSet(complement((point(0),))))
    assert len(free) == 1, "without a step the two halves touch"


@pytest.mark.slow
@given(st.sampled_from(["grid", "coarse", "long", "skewed", "least", "free"]), st.data())
def test_next_point_visits_exactly_the_keys_at_which_a_value_may_lie(name: str, data: st.DataObject) -> None:
    """On a small ring, from key to key along an arc."""
    hashing = HASHINGS["small"]
    ring = hashing.ring
    line = hashing.line(name, Kind.NUMBER)
    constraint = data.draw(number_sets())
    grid = Grid.of(SCHEMA[name])
    for piece in line.pieces(constraint):
        low, high = piece.span
        visited = [low]
        while (following := line.next_point(piece.span, visited[-1])) is not None:
            visited.append(following)
            assert len(visited) <= ring.size
        assert all(contains(piece.span, key) for key in visited)
        distances = [ring.distance(low, key) for key in visited]
        assert distances == sorted(set(distances))
        if grid is None or math.isinf(grid.high):
            assert len(visited) == ring.distance(low, high) + 1
        else:
            values = [grid.low + grid.step * n for n in range(int((grid.high - grid.low) / grid.step) + 1)]
            keys = {line.keys(Decimal(int(x * 100)) / 100)[0] for x in values}
            assert {*visited} | {low, high} == {key for key in keys if contains(piece.span, key)} | {low, high}
            assert high in visited


def test_next_point_skips_nodes_that_have_no_value() -> None:
    """Three values on a ring of 256 nodes: three nodes, however far apart."""
    schema = Schema((Attribute("a", Type.INTEGER, minimum=0, maximum=2),))
    hashing = Hashing(Ring(8), schema, order_preserving=True)
    line = hashing.line("a", Kind.NUMBER)
    (piece,) = line.pieces(NumberSet((Interval(0, False, None, True),)))
    visited = [piece.span[0]]
    while (following := line.next_point(piece.span, visited[-1])) is not None:
        visited.append(following)
    assert visited == [line.keys(value)[0] for value in range(3)]
    gaps = [hashing.ring.distance(a, b) for a, b in pairwise(visited)]
    assert all(gap >= 85 for gap in gaps)
