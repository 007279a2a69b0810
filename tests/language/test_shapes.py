"""The shape cache changes the speed and nothing else."""

from __future__ import annotations

import pickle
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meetpoint.errors import FilterError, LimitError
from meetpoint.language.filters.filter import _LITERAL, SHAPES_WEIGHT_MAX, Filter, FilterParser, parse_filter
from meetpoint.language.syntax.lexer import NUMBER, STRING
from tests.workloads import NUMBER_TEXTS, PATTERNS, STRINGS, quote, random_filter

ODD_TEXTS = ["2026-01-31 12:00:00", "2026-13-01", "!", "", "x!y", r"\ud800"]
PIECES = (
    "a", "b1", "`q'1`", "`5`", " ", "=", "'x'", "'it''s'", '"x"', "5", "1.5", ".5", "e5", "-", "AND", "LIKE",
    "IN", "(", ")", ",", "timestamp", "'2026-01-01'", "5.", "_1", "1_", "é5", "'", "`", "\\",
)  # fmt: skip


def outcome(parser: FilterParser, text: str) -> object:
    """The normal form, or the refusal word for word."""
    try:
        return parser.parse(text).conjunctions
    except FilterError as error:
        return str(error), error.start, error.end


def with_other_literals(rng: random.Random, text: str) -> str:
    """A text of the same shape: each literal replaced by another of its lexical class, good or bad."""

    def other(match: re.Match[str]) -> str:
        if match[0][0] in "'\"":
            if rng.random() < 0.4:
                return f"'{rng.choice([*PATTERNS, *ODD_TEXTS])}'"
            return quote(rng, rng.choice(STRINGS))
        return rng.choice([n.strip("- ") for n in NUMBER_TEXTS] + ["9" * 39, "1e400"])

    return _LITERAL.sub(other, text)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_cached_and_uncached_results_are_identical(seed: int) -> None:
    rng = random.Random(seed)
    cached, uncached = FilterParser(), FilterParser(shapes_max=0)
    seen: set[str] = set()
    for _ in range(150):
        text = random_filter(rng)
        for _ in range(6):
            answer = outcome(uncached, text)
            assert outcome(cached, text) == answer, text
            seen.add(type(answer[0]).__name__ if answer else "")  # type: ignore[index]
            text = with_other_literals(rng, text)
    assert seen >= {"Conjunction", "str"}
    assert len(cached._shapes) > 100


@settings(max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_cached_and_uncached_agree_on_whatever_is_thrown_at_them(pieces: list[str]) -> None:
    cached, uncached = FilterParser(), FilterParser(shapes_max=0)
    text = "".join(pieces)
    for variant in (text, text.replace("5", "7"), text.replace("'x'", "'y''z'"), text):
        assert outcome(cached, variant) == outcome(uncached, variant)


@pytest.mark.slow
@settings(max_examples=1000)
@given(st.text(alphabet="a_15.eE+-'\"\\ \n", max_size=20))
def test_the_splitter_finds_the_literals_that_the_lexer_knows(text: str) -> None:
    """But for a string that is never closed, which the lexer refuses and the splitter takes to the end."""
    plain = re.compile(rf"((?:{STRING})|['\"].*|(?<![\w.]){NUMBER})", re.DOTALL)
    assert _LITERAL.split(text) == plain.split(text)


def test_a_second_filter_of_a_shape_is_not_parsed_again() -> None:
    parser = FilterParser()
    parser.parse("a = 1 AND b LIKE 'x%'")
    second = parser.parse("a = 2 AND b LIKE 'y%'")
    assert second._tree is None
    assert second == FilterParser(shapes_max=0).parse("a = 2 AND b LIKE 'y%'")
    assert second.tree == FilterParser(shapes_max=0).parse("a = 2 AND b LIKE 'y%'").tree


def test_numbers_and_strings_are_different_shapes() -> None:
    parser = FilterParser()
    assert parser.parse("a = 1") != parser.parse("a = '1'")
    assert parser.parse("a = '2'") == FilterParser().parse("a = '2'")


def test_a_long_literal_of_a_known_shape_is_still_refused() -> None:
    parser = FilterParser()
    parser.parse("a = 'x'")
    with pytest.raises(LimitError):
        parser.parse(f"a = '{'x' * 70_000}'")


def test_shapes_are_forgotten_past_their_limit() -> None:
    parser = FilterParser(shapes_max=3)
    for number in range(10):
        parser.parse(f"a{number}x = 1")
    assert len(parser._shapes) == 3


@pytest.mark.slow
def test_large_shapes_are_not_remembered_and_many_of_middle_size_only_in_part() -> None:
    parser = FilterParser()
    parser.parse(f"a IN ({', '.join('1' * 3000)})")
    either = [f"(a{n} = 1 OR b{n} = 2)" for n in range(6)]
    parser.parse(" AND ".join(either + [f"c{n} = 1" for n in range(50)]))
    assert not parser._shapes
    parser.parse("a = 1")
    for number in range(300):
        parser.parse(f"a{number}x IN ({', '.join('1' * 800)})")
    assert 50 < len(parser._shapes) < 200
    assert parser._weight == sum(shape.weight for shape in parser._shapes.values()) <= SHAPES_WEIGHT_MAX


def test_a_filter_survives_pickling() -> None:
    filter_ = parse_filter("a > 0.1 AND a >= 0.10000000000000000555")
    again = pickle.loads(pickle.dumps(filter_))
    assert isinstance(again, Filter)
    assert (again, again.text) == (filter_, filter_.text)
