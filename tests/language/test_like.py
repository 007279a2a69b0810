"""LIKE patterns against the oracle's own, slower reading of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meetpoint.errors import FilterError
from meetpoint.language import parse_filter
from meetpoint.language.filters.like import check_escapes, parse_like
from meetpoint.language.syntax.lexer import BadLiteralError
from meetpoint.matching.scan import _like

letters = st.text(alphabet="ab🙂", max_size=7)
patterns = st.text(alphabet="ab🙂%%_", max_size=9)


@pytest.mark.slow
@settings(max_examples=2000)
@given(patterns, letters)
def test_matches_agrees_with_the_oracle(pattern: str, text: str) -> None:
    assert parse_like(pattern).matches(text) is _like(text, pattern, "\\")


@settings(max_examples=500)
@given(st.text(alphabet="ab%_!", max_size=9), letters | st.text(alphabet="ab%_!", max_size=7), st.sampled_from("!%_"))
def test_escapes_agree_with_the_oracle(pattern: str, text: str, escape: str) -> None:
    try:
        check_escapes(pattern, escape)
    except BadLiteralError:
        return
    assert parse_like(pattern, escape).matches(text) is _like(text, pattern, escape)


@given(patterns)
def test_the_normal_spelling_reads_back_as_itself(pattern: str) -> None:
    settled = parse_like(pattern)
    assert parse_like(settled.text()) == settled


@pytest.mark.parametrize(
    ("one", "other"), [("%%", "%"), ("a%%b", "a%b"), ("%_", "_%"), ("a%_%_%b", "a__%b"), ("%_%_%", "__%")]
)
def test_patterns_that_say_the_same_are_spelt_the_same(one: str, other: str) -> None:
    assert parse_like(one) == parse_like(other)


def test_a_hostile_pattern_ends() -> None:
    """A backtracking matcher would not be done with this in a lifetime."""
    filter_ = parse_filter(f"a LIKE '{'%a_' * 30}%b'")
    assert not filter_.accepts({"a": "a" * 5000})


def test_one_long_piece_is_not_tried_anew_at_every_place() -> None:
    """Place by place this would take minutes: a quarter of a million places, and at each nearly all of the piece."""
    filter_ = parse_filter(f"a LIKE '%{'a_' * 498}b%'")
    assert not filter_.accepts({"a": "a" * 250_000})
    assert filter_.accepts({"a": "a" * 250_000 + "b" + "a" * 250_000})


def test_a_pattern_with_wildcards_has_a_greatest_length() -> None:
    assert parse_filter(f"a LIKE '{'_' * 1000}'")
    assert parse_filter(f"a LIKE '{'x' * 1001}%'")
    for escape in ("", " ESCAPE '!'"):
        with pytest.raises(FilterError, match="1001 characters, and the limit for one with _ is 1000"):
            parse_filter(f"a LIKE '{'_' * 1001}'{escape}")


def test_only_percent_underscore_and_the_escape_may_follow_it() -> None:
    for good in (r"\\%", r"\\_", r"\\\\", "x"):
        assert parse_filter(f"a LIKE '{good}'")
    for bad in (r"\\x", r"x\\", r"\\\\\\"):
        with pytest.raises(FilterError, match="escape"):
            parse_filter(f"a LIKE '{bad}'")
