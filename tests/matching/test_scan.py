from __future__ import annotations

import itertools

import pytest

from meetpoint.language import Kind, parse_filter
from meetpoint.matching import Matcher, Scan
from meetpoint.matching.scan import evaluate


def test_three_valued_logic_is_that_of_sql() -> None:
    """x is TRUE, FALSE or NULL (missing) for each of two attributes; the truth tables are written out."""
    values = {"T": True, "F": False, "N": None}
    conjunction = {"TT": "T", "TF": "F", "TN": "N", "FF": "F", "FN": "F", "NN": "N"}
    disjunction = {"TT": "T", "TF": "T", "TN": "T", "FF": "F", "FN": "N", "NN": "N"}
    for a, b in itertools.product("TFN", repeat=2):
        event = {"a": values[a], "b": values[b]}
        key = "".join(sorted(a + b, key="TFN".index))
        assert evaluate(parse_filter("a AND b").tree, event) is values[conjunction[key]]
        assert evaluate(parse_filter("a OR b").tree, event) is values[disjunction[key]]
    for a, negated in (("T", "F"), ("F", "T"), ("N", "N")):
        assert evaluate(parse_filter("NOT a").tree, {"a": values[a]}) is values[negated]


def test_a_matcher_returns_every_match_once_in_the_order_of_adding() -> None:
    matcher: Matcher[int] = Scan()
    for number in range(1000, 0, -1):
        matcher.add(number, parse_filter("a > 0 OR b > 0"))
    assert matcher.match({"a": 1, "b": 1}) == list(range(1000, 0, -1))
    assert matcher.match_batch([{"a": 1}, {}, {"b": 1}]) == [list(range(1000, 0, -1)), [], list(range(1000, 0, -1))]
    assert len(matcher) == 1000


def test_update_replaces_and_remove_leaves_no_trace() -> None:
    matcher: Matcher[str] = Scan()
    matcher.add("s", parse_filter("a = 1"))
    matcher.update("s", parse_filter("a = 2"))
    assert (matcher.match({"a": 1}), matcher.match({"a": 2})) == ([], ["s"])
    matcher.remove("s")
    assert (matcher.match({"a": 2}), len(matcher)) == ([], 0)
    matcher.add("s", parse_filter("a = 3"))
    assert matcher.match({"a": 3}) == ["s"]


def test_an_id_is_added_once_and_only_known_ones_change() -> None:
    matcher: Scan[str] = Scan()
    matcher.add("s", parse_filter("a = 1"))
    with pytest.raises(KeyError, match="update it instead"):
        matcher.add("s", parse_filter("a = 2"))
    with pytest.raises(KeyError, match="add it first"):
        matcher.update("t", parse_filter("a = 2"))
    with pytest.raises(KeyError, match="is not held"):
        matcher.remove("t")
    assert matcher.match({"a": 1}) == ["s"]


def test_a_value_of_another_kind_is_null_and_counted() -> None:
    matcher: Scan[int] = Scan()
    matcher.add(1, parse_filter("a = 1"))
    matcher.add(2, parse_filter("NOT a = 1"))
    matcher.add(3, parse_filter("a IS NOT NULL"))
    assert matcher.match({"a": "1"}) == [3]
    assert matcher.match({"a": {"b": 1}}) == [3]
    assert matcher.match({"a": True}) == [3]
    assert matcher.mismatches == {
        ("a", Kind.NUMBER, "string"): 2,
        ("a", Kind.NUMBER, "object"): 2,
        ("a", Kind.NUMBER, "boolean"): 2,
    }


def test_nested_and_missing_paths() -> None:
    inner = parse_filter("o.x = 1").tree
    assert evaluate(inner, {"o": {"x": 1}}) is True
    assert evaluate(inner, {"o": {"y": 1}}) is None
    assert evaluate(inner, {"o": 1}) is None
    assert evaluate(inner, {"o.x": 1}) is None
    assert evaluate(parse_filter("`o.x` = 1").tree, {"o.x": 1}) is True
