"""Which conjunctions of a home are placed: the maximal ones, found without comparing all with all."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.syntax.render import render
from meetpoint.placement.entries import covering as covering_module
from meetpoint.placement.entries.covering import CODE_MAX, Covering, Extents, encloses, ranges_of
from tests.tiers import SOAK
from tests.workloads import random_filter


class Plain:
    """A scheme that knows nothing."""

    def code(self, conjunction: Conjunction) -> str:
        return ""


class Halves:
    """A scheme that halves the line of `a` from 0 to 16, as often as it can."""

    def code(self, conjunction: Conjunction) -> str:
        constraint = dict(conjunction.constraints).get("a")
        intervals = getattr(constraint, "exact", ())
        if not intervals or intervals[0].low is None or intervals[-1].high is None:
            return ""
        low, high, code = 0, 16, ""
        first, last = intervals[0].low, intervals[-1].high
        while high - low > 1:
            middle = (low + high) // 2
            if last < middle:
                high, code = middle, code + "0"
            elif first >= middle and last < high:
                low, code = middle, code + "1"
            else:
                break
        return code


RANGES = [f"{name} >= {low} AND {name} <= {high}" for name in "ab" for low in (0, 2, 4) for high in (4, 6, 15)]
FILTERS = [
    *RANGES,
    *(f"{one} AND {other}" for one in RANGES[:9:2] for other in RANGES[9::2]),
    "a > 1", "a > 2", "b < 9", "a > 2 OR b < 9", "a = 3", "a IN (3, 5)", "a = 3 OR a = 3 AND b = 1", "a IS NULL",
    "a IS NOT NULL", "TRUE", "a > 9 AND a < 1", "s = 'x'", "s LIKE 'x%'", "s LIKE 'xy%'", "s > 'w' AND s < 'z'",
    "s LIKE '%y'",
    "a = 4 OR b = 4 OR s = 'xy'", "t > TIMESTAMP '2024-01-01'", "t > TIMESTAMP '2025-01-01'", "flag", "NOT flag",
    "a >= 0.1", "a > 0.1", "a >= 0.10000000000000000555", "b IS NOT NULL AND a > 2",
]  # fmt: skip
filters = st.sampled_from(FILTERS).map(parse_filter)


def maximal(subscriptions: dict[str, tuple[int, Filter]]) -> set[tuple[str, int]]:
    """All conjunctions that no other covers: none that is wider, nor one that means the same and comes first."""
    held = [
        (number, at, name, Filter("", (conjunction,)))
        for name, (number, filter_) in subscriptions.items()
        for at, conjunction in enumerate(filter_.conjunctions)
    ]

    def comes_first(one: tuple[int, int, str, Filter], other: tuple[int, int, str, Filter]) -> bool:
        if one[3].conjunctions == other[3].conjunctions:
            return one[:2] < other[:2]
        return render(one[3].conjunctions) < render(other[3].conjunctions)

    def is_covered(each: tuple[int, int, str, Filter]) -> bool:
        return any(
            other is not each
            and covers(other[3], each[3])
            and (not covers(each[3], other[3]) or comes_first(other, each))
            for other in held
        )

    return {(each[2], each[1]) for each in held if not is_covered(each)}


class Changing(RuleBasedStateMachine):
    """Subscriptions come, change and go: what is placed is always what all compared with all say."""

    def __init__(self) -> None:
        super().__init__()
        self.coverings = [Covering(Plain()), Covering(Halves())]
        self.subscriptions: dict[str, tuple[int, Filter]] = {}
        self.numbers = 0

    def change(self, name: str, number: int, filter_: Filter | None) -> None:
        for covering in self.coverings:
            others = [each for each in self.subscriptions if each != name]
            before = {each: covering.placed(each) for each in others}
            told = covering.change(name, number, filter_)
            changed = {each for each in others if before[each] != covering.placed(each)}
            assert set(told) - {name} == changed
            assert len(told) == len(set(told))

    @rule(name=st.sampled_from("pqrstuvw"), filter_=filters)
    def put(self, name: str, filter_: Filter) -> None:
        if name not in self.subscriptions:
            self.numbers += 1
        number = self.subscriptions.get(name, (self.numbers, filter_))[0]
        self.change(name, number, filter_)
        self.subscriptions[name] = (number, filter_)

    @rule(name=st.sampled_from("pqrstuvw"))
    def end(self, name: str) -> None:
        self.change(name, 0, None)
        self.subscriptions.pop(name, None)

    @rule(name=st.sampled_from("pqrstuvw"), filter_=filters)
    def come_again(self, name: str, filter_: Filter) -> None:
        self.numbers += 1
        self.change(name, self.numbers, filter_)
        self.subscriptions[name] = (self.numbers, filter_)

    @invariant()
    def placed_are_the_maximal_ones(self) -> None:
        for covering in self.coverings:
            covering.check()
            placed = {(name, at) for name in self.subscriptions for at in covering.placed(name)}
            assert placed == maximal(self.subscriptions)

    @invariant()
    def coverers_cover(self) -> None:
        for covering in self.coverings:
            for name, version in self.subscriptions.items():
                assert covering.version(name) == version
                placed = [
                    Filter("", (self.subscriptions[each][1].conjunctions[at],))
                    for each in (name, *covering.coverers(name))
                    for at in covering.placed(each)
                ]
                for conjunction in version[1].conjunctions:
                    assert any(covers(wide, Filter("", (conjunction,))) for wide in placed)


TestChanging = Changing.TestCase
TestChanging.settings = settings(max_examples=1000 if SOAK else 60, stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_left_out_is_covered_by_something_placed(seed: int) -> None:
    """With LIKE patterns of all sorts the algebra may be uncertain; then too nothing is left out wrongly."""
    chance = random.Random(seed)
    covering = Covering(Plain())
    held: dict[str, Filter] = {}
    for step in range(120):
        name = f"s{chance.randrange(25)}"
        filter_ = None if chance.random() < 0.3 else parse_filter(random_filter(chance, depth=2))
        covering.change(name, step, filter_)
        held.pop(name, None)
        if filter_ is not None:
            held[name] = filter_
        covering.check()
    placed = Filter("", tuple(held[name].conjunctions[at] for name in held for at in covering.placed(name)))
    for filter_ in held.values():
        for conjunction in filter_.conjunctions:
            chosen = [Filter("", (each,)) for each in placed.conjunctions]
            narrow = Filter("", (conjunction,))
            assert any(covers(wide, narrow) for wide in chosen) or covers(placed, narrow)


def test_chains_hang_together_whichever_end_goes_first() -> None:
    for order in (range(1, 50), range(49, 0, -1)):
        covering = Covering(Plain())
        for number in range(50):
            covering.change(f"s{number}", number, parse_filter(f"a > {50 - number}"))
        assert covering.placed("s49") == [0]
        assert covering.coverers("s0") == ["s49"]
        for number in order:
            covering.change(f"s{number}", number, None)
        assert covering.placed("s0") == [0]
        assert covering.coverers("s0") == []


def test_of_equal_ones_the_oldest_is_placed() -> None:
    covering = Covering(Plain())
    for number in (5, 3, 9):
        covering.change(f"s{number}", number, parse_filter("a > 1 AND b < 2"))
    assert [covering.placed(f"s{number}") for number in (5, 3, 9)] == [[], [0], []]
    assert covering.change("s3", 0, None) == ["s3", "s5"]
    assert covering.coverers("s9") == ["s5"]


def test_a_filter_may_cover_parts_of_itself() -> None:
    covering = Covering(Plain())
    covering.change("s", 1, parse_filter("a > 1 AND b = 1 OR a > 1 OR c = 1"))
    assert covering.placed("s") == [1, 2]
    assert covering.coverers("s") == []


# -- extents -----------------------------------------------------------------------------------------------------------


@given(wide=filters, narrow=filters)
def test_what_covers_encloses(wide: Filter, narrow: Filter) -> None:
    for one in wide.conjunctions:
        for other in narrow.conjunctions:
            if not covers(Filter("", (one,)), Filter("", (other,))):
                continue
            assert set(one.attributes) <= set(other.attributes)
            for scheme in (Plain(), Halves()):
                made: Extents[str] = Extents()
                made.add("wide", one.attributes, ranges_of(one, scheme.code(one)))
                ranges = ranges_of(other, scheme.code(other))
                assert list(made.enclosing(other.attributes, ranges)) == ["wide"]
                made.add("narrow", other.attributes, ranges)
                assert "narrow" in made.within(one.attributes, ranges_of(one, scheme.code(one)))


codes = st.text("01", max_size=CODE_MAX)


@given(one=codes, other=codes)
def test_codes_enclose_what_they_are_prefixes_of(one: str, other: str) -> None:
    everything = Conjunction(())
    assert encloses(ranges_of(everything, one), ranges_of(everything, other)) == other.startswith(one)


class Boxes(RuleBasedStateMachine):
    """Things with two attributes or fewer, against a list; as columns from the second on."""

    columns_from = 2

    attributes = st.sampled_from([(), ("a",), ("b",), ("a", "b")])
    corners = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda pair: (float(min(pair)), float(max(pair))))

    def __init__(self) -> None:
        super().__init__()
        self._before, covering_module.COLUMNS_FROM = covering_module.COLUMNS_FROM, self.columns_from  # type: ignore[misc]
        self.extents: Extents[int] = Extents()
        self.held: dict[int, tuple[tuple[str, ...], tuple[tuple[float, float], ...]]] = {}
        self.count = 0

    def ranges(self, attributes: tuple[str, ...], data: st.DataObject) -> tuple[tuple[float, float], ...]:
        return tuple(data.draw(self.corners) for _ in range(1 + 2 * len(attributes)))

    @rule(attributes=attributes, data=st.data())
    def add(self, attributes: tuple[str, ...], data: st.DataObject) -> None:
        self.count += 1
        self.held[self.count] = attributes, self.ranges(attributes, data)
        self.extents.add(self.count, *self.held[self.count])

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.held:
            each = data.draw(st.sampled_from(sorted(self.held)))
            del self.held[each]
            self.extents.remove(each)

    @rule(attributes=attributes, data=st.data())
    def look(self, attributes: tuple[str, ...], data: st.DataObject) -> None:
        ranges = self.ranges(attributes, data)
        asked = by_name(attributes, ranges)
        held = {each: by_name(*what) for each, what in self.held.items()}
        enclosing = [each for each, what in held.items() if lies_in(asked, what)]
        within = [each for each, what in held.items() if lies_in(what, asked)]
        assert sorted(self.extents.enclosing(attributes, ranges)) == enclosing
        assert sorted(self.extents.within(attributes, ranges)) == within
        assert len(self.extents) == len(held)

    def teardown(self) -> None:
        covering_module.COLUMNS_FROM = self._before  # type: ignore[misc]


class FewBoxes(Boxes):
    """The same, never as columns."""

    columns_from = 1_000


def by_name(
    attributes: tuple[str, ...], ranges: tuple[tuple[float, float], ...]
) -> dict[tuple[str, int], tuple[float, float]]:
    names = [("", 0), *((name, which) for name in attributes for which in (0, 1))]
    return dict(zip(names, ranges, strict=True))


def lies_in(
    inner: dict[tuple[str, int], tuple[float, float]], outer: dict[tuple[str, int], tuple[float, float]]
) -> bool:
    return all(
        name in inner and low <= inner[name][0] and inner[name][1] <= high for name, (low, high) in outer.items()
    )


TestBoxes = Boxes.TestCase
TestBoxes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestFewBoxes = FewBoxes.TestCase
TestFewBoxes.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_without_numpy_they_are_compared_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    covering = Covering(Plain())
    for number in range(2 * covering_module.COLUMNS_FROM):
        covering.change(f"s{number}", number, parse_filter(f"a > {number} AND b < {number}"))
    covering.change("wide", 1_000, parse_filter("a >= 0"))
    assert covering.placed("wide") == [0]
    assert covering.coverers("s100") == ["wide"]


# -- many --------------------------------------------------------------------------------------------------------------


def box(chance: random.Random) -> str:
    a, b = chance.uniform(0, 1000), chance.uniform(0, 1000)
    return f"a >= {a:.2f} AND a <= {a + 50:.2f} AND b >= {b:.2f} AND b <= {b + 50:.2f}"


MANY_COUNT = 3_000
numbers = count()
MANY: dict[str, Callable[[random.Random], str]] = {
    "boxes": box,
    "symbols": lambda chance: f"s = 'SYMBOL{chance.randrange(500)}' AND a > {chance.randrange(10_000)}",
    "equal": lambda chance: "a > 5",
    "none covers another": lambda chance: (lambda n: f"a > {n} AND b < {n}")(next(numbers)),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", MANY)
def test_thousands_are_not_compared_with_each_other(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(1)
    covering = Covering(Plain())
    asked = 0

    def count_covers(wide: Filter, narrow: Filter) -> bool:
        nonlocal asked
        asked += 1
        return covers(wide, narrow)

    monkeypatch.setattr("meetpoint.placement.entries.covering.covers", count_covers)
    for number in range(MANY_COUNT):
        covering.change(f"s{number}", number, parse_filter(MANY[what](chance)))
    assert asked <= 10 * MANY_COUNT
    order = list(range(MANY_COUNT))
    chance.shuffle(order)
    for number in order:
        covering.change(f"s{number}", number, None)
    assert asked <= 40 * MANY_COUNT
