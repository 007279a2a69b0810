"""Filters of the CloudEvents Subscriptions API: our text accepts exactly what the specification says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from meetpoint.errors import LimitError
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.subscriptions.dialects import FilterDialect, filter_text
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import Schema

NAMES = ("type", "subject", "ext")
TEXTS = ("a", "ab", "b%", "5", "-5", "true", "it's", "\\")
VALUES = {"type": TEXTS, "subject": TEXTS, "ext": (*TEXTS, 5, -5, True, False)}

leaves = st.builds(
    lambda how, named: {how: named},
    st.sampled_from(["exact", "prefix", "suffix"]),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS), min_size=1, max_size=2),
)
dialects: st.SearchStrategy[Any] = st.recursive(
    leaves,
    lambda inner: (
        st.builds(
            lambda how, parts: {how: parts}, st.sampled_from(["all", "any"]), st.lists(inner, min_size=1, max_size=2)
        )
        | st.builds(lambda part: {"not": part}, inner)
    ),
    max_leaves=3,
)
events = st.fixed_dictionaries({}, optional={name: st.sampled_from(VALUES[name]) for name in NAMES})


def accepts(said: dict[str, Any], event: dict[str, Any]) -> bool:
    """The specification, in two values: an attribute that is missing matches nothing."""
    ((how, what),) = said.items()
    if how == "not":
        return not accepts(what, event)
    if how in ("all", "any"):
        return (all if how == "all" else any)(accepts(each, event) for each in what)
    return all(name in event and _matches(how, event[name], wanted) for name, wanted in what.items())


def _matches(how: str, value: object, wanted: str) -> bool:
    if how == "exact":
        return (str(value).lower() if isinstance(value, bool) else str(value)) == wanted
    if not isinstance(value, str):
        return False
    return value.startswith(wanted) if how == "prefix" else value.endswith(wanted)


@given(st.lists(dialects, min_size=1, max_size=2), st.lists(events, min_size=1, max_size=8))
def test_a_dialect_accepts_what_the_specification_says(said: list[dict[str, Any]], seen: list[dict[str, Any]]) -> None:
    try:
        text = filter_text(msgspec.convert(said, list[FilterDialect]), None, None, None)
    except LimitError:
        assume(False)
    wanted = parse_filter(text)
    for event in seen:
        assert wanted.accepts(event) == all(accepts(each, event) for each in said), (text, event)


def read(*said: dict[str, Any], **beside: Any) -> str:
    dialects = msgspec.convert(list(said), list[FilterDialect])
    return filter_text(dialects, beside.get("types"), beside.get("source"), beside.get("schema"))


def test_types_and_a_source_are_conditions_too() -> None:
    wanted = parse_filter(read({"sql": "data.price > 1"}, types=["a", "it's"], source="/s"))
    assert wanted.accepts({"type": "it's", "source": "/s", "data": {"price": 2}})
    assert not wanted.accepts({"type": "it's", "source": "/t", "data": {"price": 2}})
    assert not wanted.accepts({"type": "b", "source": "/s", "data": {"price": 2}})
    assert read() == "TRUE"


def test_what_a_schema_declares_is_compared_as_that() -> None:
    schema = Schema.from_yaml("attributes:\n  ext: {type: string}\n  n: {type: integer, min: 0, max: 9}\n")
    assert read({"not": {"exact": {"ext": "5"}}}, schema=schema) == "(ext IS NULL) OR (NOT (ext = '5'))"
    assert read({"exact": {"n": "5"}}, schema=schema) == "n = 5"
    assert read({"exact": {"n": "x"}}, schema=schema) == "FALSE"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "has one of exact, prefix"),
        ({"sql": "a = 1", "exact": {"a": "1"}}, "this one has 2 of them"),
        ({"sql": "EXISTS subject"}, "EXISTS a is written a IS NOT NULL"),
        ({"sql": "UPPER(type) = 'A'"}, "column 1"),
        ({"exact": {"a..b": "x"}}, "'a..b'"),
    ],
)
def test_what_is_no_filter_of_ours_is_refused_kindly(said: dict[str, Any], words: str) -> None:
    with pytest.raises(ApiError, match=words) as raised:
        read(said)
    assert raised.value.status == 422


def test_nesting_has_an_end() -> None:
    said: dict[str, Any] = {"sql": "a = 1"}
    for _ in range(16):
        said = {"not": said}
    assert read(said) == "a = 1"
    with pytest.raises(ApiError, match="nest deeper than 16"):
        read({"not": said})
