"""The space against brute force: no event that a conjunction accepts lies outside its box; codes and regions agree."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from functools import cache
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.errors import LimitError
from meetpoint.language import Attribute, Schema, Type, Value, clean_attributes, parse_filter
from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.constraints import NumberSet, TextSet, accepts
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import Interval
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.schemes.dmm.space import ABSENT_CELL, ROOT, SPANS_MAX, Box, Code, Dimension, Point, Space, parent
from tests.language.strategies import SCALARS
from tests.schemes.declared import DECLARED
from tests.workloads import (
    DECIMALS,
    FLOATS,
    INTEGERS,
    START,
    STRINGS,
    TIMESTAMPS,
    literal,
    random_events,
    random_filter,
)

DEPTHS = (0, 1, 3, 16, 64)


def lies_in(point: Point, box: Box) -> bool:
    """By brute force: whether each cell of a point is in one of a box's spans."""
    return all(any(first <= cell <= last for first, last in spans) for cell, spans in zip(point, box, strict=True))


def holds(space: Space, code: Code, point: Point) -> bool:
    return all(low <= cell <= high for cell, (low, high) in zip(point, space.region(code).ranges, strict=True))


# -- no false negatives ------------------------------------------------------------------------------------------------


@cache
def conjunctions(seed: int) -> list[Conjunction]:
    rng = random.Random(seed)
    found: list[Conjunction] = []
    while len(found) < 120:
        try:
            found += parse_filter(random_filter(rng, rng.choice([0, 1, 2]))).conjunctions
        except LimitError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_an_accepted_event_lies_in_the_box_and_in_regions_that_meet_it(seed: int) -> None:
    space = Space.of(DECLARED, 16)
    events = [clean_attributes(event) for event in random_events(random.Random(seed), 60)]
    events += [{}, {"o": {}}, {"o": {"x": None}}, {"o": "a text", "i": "another", "s": 5}, {"o": {"x": {"deep": 1}}}]
    accepted = rejected = 0
    for conjunction in conjunctions(seed):
        box = space.box(conjunction)
        for event in events:
            point = space.point(event)
            if not conjunction.accepts(event):
                rejected += not lies_in(point, box)
                continue
            accepted += 1
            assert lies_in(point, box)
            code = space.code(point)
            assert all(space.meets(Code(code[:length]), box) for length in range(len(code) + 1))
            assert code.startswith(space.enclosing(box))
    assert accepted > 200
    assert rejected > 200  # the boxes tell something


TEXTS = st.one_of(st.sampled_from(STRINGS), st.text("AB\0\x7f€🙂", max_size=9))
BOUNDS = st.integers(-20, 20)
STEPS = st.sampled_from(["0.01", "0.1", "0.3", "1", "2", "7"])


@st.composite
def attributes(draw: st.DrawFn, name: str = "a") -> Attribute:
    """Of any type, with both bounds, one or none, with a step or without."""
    type_ = draw(st.sampled_from(tuple(Type)))
    low, high = sorted([draw(BOUNDS), draw(BOUNDS)])
    ends = draw(st.sampled_from([(low, high), (low, high), (low, high), (None, None), (low, None), (None, high)]))
    match type_:
        case Type.STRING | Type.BOOLEAN:
            return Attribute(name, type_)
        case Type.TIMESTAMP:
            minimum, maximum = [None if end is None else START + timedelta(microseconds=end) for end in ends]
            return Attribute(name, type_, minimum, maximum)
        case Type.INTEGER:
            return Attribute(name, type_, *ends, draw(st.sampled_from([None, 1, 3])))
    step = draw(st.none() | STEPS.map(Decimal))
    lowest, highest = [None if end is None else Decimal(end) / 8 for end in ends]
    return Attribute(name, type_, lowest, highest, step)


NEAR = st.one_of(
    st.integers(-25, 25),
    st.integers(-250, 250).map(lambda n: Decimal(n) / 8),
    st.integers(-2500, 2500).map(lambda n: n / 10),
    st.integers(-25, 25).map(lambda n: START + timedelta(microseconds=n)),
    st.booleans(),
    TEXTS,
)
EVENT_VALUES: st.SearchStrategy[Value] = st.one_of(
    NEAR,
    st.sampled_from([*INTEGERS, *DECIMALS, *FLOATS, *TIMESTAMPS]),
    SCALARS,
)
PATTERNS = st.text("AB_%€🙂", max_size=6)


@st.composite
def filters_on(draw: st.DrawFn, names: tuple[str, ...] = ("a",)) -> str:
    """A few predicates on each attribute, of any kind, with literals near the bounds that attributes have."""

    def one() -> str:
        name = draw(st.sampled_from(names))
        type_ = draw(st.sampled_from(tuple(Type)))
        rng = draw(st.randoms(use_true_random=False))

        def spelt() -> str:
            if type_ in (Type.STRING, Type.BOOLEAN, Type.TIMESTAMP) or rng.random() < 0.2:
                return literal(rng, type_)
            return str(Decimal(rng.randint(-250, 250)) / rng.choice([8, 10, 1]))

        if type_ is Type.STRING and rng.random() < 0.5:
            return f"{name} {rng.choice(['', 'NOT '])}LIKE '{draw(PATTERNS)}'"
        return rng.choice(
            [
                f"{name} {rng.choice(['=', '!=', '<', '<=', '>', '>='])} {spelt()}",
                f"{name} {rng.choice(['', 'NOT '])}IN ({spelt()}, {spelt()}, {spelt()})",
                f"{name} BETWEEN {spelt()} AND {spelt()}",
                f"{name} IS {rng.choice(['', 'NOT '])}NULL",
            ]
        )

    return " AND ".join(one() for _ in range(draw(st.integers(1, 3))))


def parsed(text: str) -> Filter:
    return parse_filter(text)


@given(attributes(), filters_on(), st.lists(EVENT_VALUES, min_size=1, max_size=8))
def test_the_spans_of_a_constraint_hold_the_cells_of_all_it_accepts(
    attribute: Attribute, text: str, values: list[Value]
) -> None:
    dimension = Dimension(attribute)
    space = Space.of(Schema((attribute,)), 64)
    clean = [clean_attributes({"a": value}) for value in (*values, None)]
    for conjunction in parsed(text).conjunctions:
        (spans,) = space.box(conjunction)
        assert list(spans) == sorted(spans)
        assert all(0 <= first <= last < dimension.cells for first, last in spans)
        assert all(a[1] + 1 < b[0] for a, b in pairwise(spans))
        for event in clean:
            if conjunction.accepts(event):
                cell = dimension.cell(event["a"])
                assert any(first <= cell <= last for first, last in spans)


NESTED = ("a", "b", "o.x", "o.y")


@st.composite
def nested_schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.sampled_from(NESTED), unique=True))
    return Schema(tuple(draw(attributes(name)) for name in names))


@st.composite
def nested_events(draw: st.DrawFn) -> dict[str, Value]:
    """With each of the attributes or without; now and then a value where an object would be."""
    event: dict[str, Value] = {name: draw(EVENT_VALUES) for name in ("a", "b") if draw(st.booleans())}
    if draw(st.booleans()):
        event["o"] = {name: draw(EVENT_VALUES) for name in ("x", "y") if draw(st.booleans())}
    elif draw(st.booleans()):
        event["o"] = draw(EVENT_VALUES)
    return event


@given(nested_schemas(), filters_on(NESTED), st.lists(nested_events(), min_size=1, max_size=5), st.sampled_from(DEPTHS))
def test_in_any_space_every_region_around_an_accepted_event_meets_the_box(
    schema: Schema, text: str, events: list[dict[str, Value]], depth: int
) -> None:
    space = Space.of(schema, depth)
    for conjunction in parsed(text).conjunctions:
        box = space.box(conjunction)
        assert all(box)
        for event in map(clean_attributes, events):
            point = space.point(event)
            code = space.code(point)
            assert space.is_code(code)
            assert holds(space, code, point)
            assert len(code) == depth or space.children(code) is None
            if conjunction.accepts(event):
                assert lies_in(point, box)
                assert all(space.meets(Code(code[:length]), box) for length in range(len(code) + 1))
                assert code.startswith(space.enclosing(box))


@given(attributes(), EVENT_VALUES, EVENT_VALUES)
def test_cells_keep_the_order_of_values(attribute: Attribute, a: Value, b: Value) -> None:
    clean = clean_attributes({"a": a, "b": b})
    x, y = clean["a"], clean["b"]
    dimension = Dimension(attribute)
    assert 0 <= dimension.cell(x) < dimension.cells
    if type(x) is not type(y) or x is None or x != x or y != y:
        return
    assert (dimension.cell(x) == ABSENT_CELL) == (dimension.cell(y) == ABSENT_CELL)
    if x <= y:  # type: ignore[operator]
        assert dimension.cell(x) <= dimension.cell(y)


@given(attributes(), filters_on(), filters_on())
def test_what_covers_has_a_code_that_begins_the_other(attribute: Attribute, wide: str, narrow: str) -> None:
    space = Space.of(Schema((attribute,)), 64)
    for d in parsed(f"{wide} AND {narrow}").conjunctions:
        for c in parsed(wide).conjunctions:
            if covers(Filter("", (c,)), Filter("", (d,))):
                assert space.enclosing(space.box(d)).startswith(space.enclosing(space.box(c)))


# -- what a dimension tells apart --------------------------------------------------------------------------------------


def spans_of(attribute: Attribute, text: str) -> tuple[tuple[int, int], ...]:
    (conjunction,) = parse_filter(text).conjunctions
    ((_, constraint),) = conjunction.constraints
    return Dimension(attribute).spans(constraint)


PAPER = Attribute("a", Type.INTEGER, minimum=1, maximum=2**18)
PRICE = Attribute("a", Type.DECIMAL, minimum=Decimal(0), maximum=Decimal(100), precision=Decimal("0.01"))


def test_cells_of_the_papers_attribute_are_its_values() -> None:
    dimension = Dimension(PAPER)
    assert dimension.cells == 2**18 + 1
    assert [dimension.cell(value) for value in (None, 1, 2, 2**18)] == [0, 1, 2, 2**18]
    assert spans_of(PAPER, "a BETWEEN 7 AND 12") == ((7, 12),)
    assert spans_of(PAPER, "a = 7") == ((7, 7),)


def test_values_beyond_the_bounds_lie_in_the_end_cells() -> None:
    dimension = Dimension(PAPER)
    for value in (0, -(10**37), -math.inf, -0.5, Decimal("0.99")):
        assert dimension.cell(value) == 1
    for value in (2**18 + 1, 10**37, math.inf, math.nan, Decimal("262144.5")):
        assert dimension.cell(value) == 2**18


def test_another_kind_is_as_good_as_absent() -> None:
    dimension = Dimension(PAPER)
    for value in ("7", True, START, {"deep": 7}, None):
        assert dimension.cell(value) == ABSENT_CELL
    assert spans_of(PAPER, "a = '7'") == ((ABSENT_CELL, ABSENT_CELL),)
    assert spans_of(PAPER, "a IS NULL") == ((ABSENT_CELL, ABSENT_CELL),)
    assert spans_of(PAPER, "a IS NOT NULL") == dimension.everything  # also what is of another kind


def test_an_open_end_counts_only_where_a_value_between_two_steps_could_lie_below_it() -> None:
    assert spans_of(PAPER, "a < 10") == ((1, 9),)
    assert spans_of(PAPER, "a > 10") == ((10, 2**18),)  # 10.5 lies in the cell of 10
    assert spans_of(PRICE, "a > 8.30 AND a < 8.70") == ((831, 870),)
    assert spans_of(PAPER, "a < 1") == ((1, 1),)  # what is below the minimum lies in the first cell


def test_a_float_lies_in_the_cell_of_its_shortest_spelling() -> None:
    dimension = Dimension(PRICE)
    assert dimension.cell(8.30) == dimension.cell(Decimal("8.30")) == 831
    assert dimension.cell(0.29) == 30  # 0.29 / 0.01 is 28.999999999999996


@pytest.mark.parametrize(
    ("text", "value"),
    [("a >= 9007199254740993", 2.0**53), ("a <= 9007199254740995", 2.0**53 + 4), ("a < 9007199254740995", 2.0**53 + 2)],
)
def test_a_float_that_a_rounded_literal_accepts_lies_in_its_spans(text: str, value: float) -> None:
    """The literal lies in another cell than the double nearest to it."""
    wide = Attribute("a", Type.INTEGER, minimum=0, maximum=2**60)
    (conjunction,) = parse_filter(text).conjunctions
    assert conjunction.accepts({"a": value})
    assert lies_in((Dimension(wide).cell(value),), (spans_of(wide, text),))


def test_what_floats_alone_satisfy_has_spans_too() -> None:
    constraint = NumberSet((), (Interval(5.0, False, 5.0, False),))
    assert accepts(constraint, 5.0)
    assert Dimension(PAPER).spans(constraint) == ((5, 5),)


@pytest.mark.parametrize(("end", "value"), [("A\0", "A"), ("ABCDEFG", "ABCDEF"), ("ABCDEFG", "ABCDEFA"), ("\0", "")])
def test_a_text_just_before_an_open_end_may_lie_in_its_cell(end: str, value: str) -> None:
    constraint = TextSet((Interval("", False, end, True),))
    dimension = Dimension(Attribute("a", Type.STRING))
    assert accepts(constraint, value)
    assert lies_in((dimension.cell(value),), (dimension.spans(constraint),))


def test_strings_lie_in_their_order_and_prefixes_are_spans() -> None:
    attribute = Attribute("a", Type.STRING)
    dimension = Dimension(attribute)
    texts = sorted([*STRINGS, "\ue000", "\uffffA", "\U0010ffff", "A\0", "AB" * 9])
    cells = [dimension.cell(text) for text in texts]
    assert cells == sorted(cells)
    ((low, high),) = spans_of(attribute, "a LIKE 'OT%'")
    inside = ["OT", "OTE", "OT\U0010ffff"]
    assert all(low <= dimension.cell(text) <= high for text in inside)
    assert not any(low <= dimension.cell(text) <= high for text in ("OS\U0010ffff", "OU", "O", ""))
    assert spans_of(attribute, "a LIKE '%SE'") == ((1, 2**48),)
    ((low, high),) = spans_of(attribute, "a LIKE '🙂_%'")
    assert low <= dimension.cell("🙂A") <= high < dimension.cell("🙃")


def test_many_values_make_few_spans_and_the_widest_gaps_stay() -> None:
    wide = Attribute("a", Type.INTEGER, minimum=0, maximum=10**9)
    values = [3 * n for n in range(500)] + [10**6 * n for n in range(1, 11)]
    spans = spans_of(wide, f"a IN ({', '.join(map(str, values))})")
    assert len(spans) == SPANS_MAX
    dimension = Dimension(wide)
    assert all(any(first <= dimension.cell(value) <= last for first, last in spans) for value in values)
    assert all((dimension.cell(10**6 * n),) * 2 in spans for n in range(1, 11))


def test_a_suffix_and_a_pattern_that_exclude_each_other_may_lie_anywhere() -> None:
    """They accept nothing; a box is never empty."""
    attribute = Attribute("a", Type.STRING)
    space = Space.of(Schema((attribute,)), 16)
    for conjunction in parse_filter("a LIKE '_B%' AND a LIKE 'A%' AND a < 'AB'").conjunctions:
        assert all(space.box(conjunction))


# -- regions -----------------------------------------------------------------------------------------------------------


@st.composite
def small_spaces(draw: st.DrawFn) -> Space:
    """Few cells, so that every point can be tried; odd and even numbers of them, and single ones."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=0, max_size=2))
    made = [Attribute(f"a{at}", Type.INTEGER, minimum=0, maximum=size) for at, size in enumerate(sizes)]
    if draw(st.booleans()):
        made.append(Attribute("b", Type.BOOLEAN))
    return Space.of(Schema(tuple(made)), draw(st.sampled_from(DEPTHS)))


def points(space: Space) -> Iterator[Point]:
    return product(*[range(dimension.cells) for dimension in space.dimensions])


def regions(space: Space, code: Code = ROOT) -> Iterator[Code]:
    yield code
    for child in space.children(code) or ():
        yield from regions(space, child)


@st.composite
def boxes(draw: st.DrawFn, space: Space) -> Box:
    box = []
    for dimension in space.dimensions:
        cells = draw(st.sets(st.integers(0, dimension.cells - 1), min_size=1))
        spans: list[tuple[int, int]] = []
        for cell in sorted(cells):
            if spans and cell == spans[-1][1] + 1:
                spans[-1] = (spans[-1][0], cell)
            else:
                spans.append((cell, cell))
        box.append(tuple(spans))
    return tuple(box)


@given(small_spaces())
def test_children_part_their_parent(space: Space) -> None:
    for code in regions(space):
        inside = [point for point in points(space) if holds(space, code, point)]
        assert inside
        children = space.children(code)
        if children is None:
            assert len(code) == space.depth or len(inside) == 1
            continue
        halves = [[point for point in inside if holds(space, child, point)] for child in children]
        assert sorted(halves[0] + halves[1]) == inside
        assert all(halves)
        assert [parent(child) for child in children] == [code, code]


@given(small_spaces())
def test_the_code_of_a_point_names_the_last_region_around_it(space: Space) -> None:
    for point in points(space):
        code = space.code(point)
        assert space.children(code) is None
        assert all(holds(space, Code(code[:length]), point) for length in range(len(code) + 1))


@given(small_spaces(), st.data())
def test_regions_meet_and_enclose_boxes_as_brute_force_says(space: Space, data: st.DataObject) -> None:
    box = data.draw(boxes(space))
    inside = [point for point in points(space) if lies_in(point, box)]
    enclosing = []
    for code in regions(space):
        assert space.meets(code, box) == any(holds(space, code, point) for point in inside)
        if all(holds(space, code, point) for point in inside):
            enclosing.append(code)
    assert space.enclosing(box) == max(enclosing, key=len)


@given(small_spaces(), st.text("01", max_size=20))
def test_is_code_tells_regions_from_other_texts(space: Space, text: str) -> None:
    assert space.is_code(text) == (text in set(regions(space)))


@pytest.mark.parametrize("text", ["2", "0x", "٠", "0" * 17, "\ud800"])
def test_what_is_no_code_is_refused_and_not_an_error(text: str) -> None:
    assert not Space.of(DECLARED, 16).is_code(text)


def test_a_dimension_that_is_exhausted_misses_its_turns() -> None:
    """A boolean is gone after two turns; as printed it would end the code there."""
    schema = Schema((Attribute("flag", Type.BOOLEAN), PAPER))
    space = Space.of(schema, 64)
    point = space.point({"a": 2**17, "flag": True})
    code = space.code(point)
    # a, flag, a, then flag = {True} is one cell: all other bits are a's.
    assert code[:3] == "011"
    region = space.region(code)
    assert region.axis is None
    assert region.ranges == tuple((cell, cell) for cell in point)
    assert len(code) == 1 + 18


def test_without_a_schema_there_is_one_region() -> None:
    space = Space.of(None, 16)
    (conjunction,) = parse_filter("a > 5").conjunctions
    assert space.point({"a": 7}) == ()
    assert space.box(conjunction) == ()
    assert space.code(()) == space.enclosing(()) == ROOT
    assert space.meets(ROOT, ())
    assert space.children(ROOT) is None


def test_at_the_depth_limit_no_region_is_halved() -> None:
    schema = Schema((PAPER,))
    assert Space.of(schema, 0).children(ROOT) is None
    space = Space.of(schema, 3)
    assert space.children(Code("01")) == ("010", "011")
    assert space.children(Code("010")) is None
    assert len(space.code((7,))) == 3


def test_the_order_in_which_a_schema_lists_attributes_does_not_matter() -> None:
    a, b = Attribute("a", Type.BOOLEAN), Attribute("b", Type.BOOLEAN)
    one, other = Space.of(Schema((a, b)), 8), Space.of(Schema((b, a)), 8)
    assert one.digest == other.digest
    assert one.point({"a": True}) == other.point({"a": True})


def test_another_attribute_or_bound_makes_another_digest() -> None:
    digests = {
        Space.of(schema, 8).digest
        for schema in (
            None,
            Schema((PAPER,)),
            Schema((Attribute("b", Type.INTEGER, minimum=1, maximum=2**18),)),
            Schema((Attribute("a", Type.INTEGER, minimum=1, maximum=2**17),)),
            Schema((Attribute("a", Type.DECIMAL, minimum=Decimal(1), maximum=Decimal(2**18)),)),
        )
    }
    assert len(digests) == 5
