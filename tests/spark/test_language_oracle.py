"""Spark SQL's own WHERE as the second oracle of the filter language.

Many random filters go through one Spark job as boolean columns and are compared, row by row, with `scan` and
with the normal form. In three places our rule is exact and Spark's is not, so there the text is rewritten before
Spark sees it, and docs/language.md says so: IN on numbers becomes OR (Spark casts the list to one type); a literal
with an exponent against BIGINT or DECIMAL is written out as a decimal (Spark compares as double); and an integer
column that meets a literal outside its range is cast to a decimal (Spark folds `i < 9223372036854775808` to TRUE,
even where i is NULL).
"""

from __future__ import annotations

import random
import re
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Kind, Type, clean_attributes, parse_filter
from meetpoint.language.filters.filter import Filter
from meetpoint.language.syntax.tree import (
    And,
    Between,
    Compare,
    Constant,
    In,
    Not,
    Or,
    Predicate,
    literals_of,
    predicates,
)
from meetpoint.matching.scan import evaluate
from tests.tiers import SOAK
from tests.workloads import TYPES, random_events, random_filter

FILTERS = 2000 if SOAK else 1000
EVENTS = 48

COLUMNS = (
    "i BIGINT, binary INT, d DECIMAL(20,4), f DOUBLE, date FLOAT, s STRING, user STRING, b BOOLEAN, t TIMESTAMP, "
    "o STRUCT<x: BIGINT, `odd name`: STRING>"
)


def spark_text(filter_: Filter) -> str:
    """The filter as Spark must read it to be exact: the very text but for those predicates."""
    text = filter_.text
    for predicate in sorted(predicates(filter_.tree), key=lambda p: -p.start):
        replacement = _rewritten(predicate, text[predicate.start : predicate.end])
        text = text[: predicate.start] + replacement + text[predicate.end :]
    return text


def _rewritten(predicate: Predicate, text: str) -> str:
    type_ = TYPES[predicate.attribute]
    exact = type_ in (Type.INTEGER, Type.DECIMAL)
    literals = literals_of(predicate)
    if not literals or literals[0].kind is not Kind.NUMBER:
        return text
    name = predicate.attribute
    numbers = [_number(literal.value, exact) for literal in literals]
    if type_ is Type.INTEGER and any(_is_large(literal.value) for literal in literals):
        name = f"CAST({name} AS DECIMAL(20, 0))"
    match predicate:
        case In(negated=negated):
            ored = " OR ".join(f"{name} = {number}" for number in numbers)
            return f"NOT ({ored})" if negated else f"({ored})"
        case Compare(op=op) if exact and (name != predicate.attribute or _has_exponent(text)):
            return f"{name} {op} {numbers[0]}"
        case Between(negated=negated) if exact and (name != predicate.attribute or _has_exponent(text)):
            return f"{name} {'NOT ' if negated else ''}BETWEEN {numbers[0]} AND {numbers[1]}"
    return text


def _is_large(value: object) -> bool:
    assert isinstance(value, int | Decimal)
    return not -(2**31) <= value < 2**31


def _has_exponent(text: str) -> bool:
    return re.search(r"[0-9.]e[-+0-9]", text, re.IGNORECASE) is not None


def _number(value: object, exact: bool) -> str:
    assert isinstance(value, int | Decimal)
    plain = str(value) if isinstance(value, int) else f"{value:f}"
    return plain if exact and len(plain) <= 38 else str(value)


@pytest.fixture(scope="module")
def workload() -> tuple[list[Filter], list[Any]]:
    rng = random.Random(20261115)
    filters: list[Filter] = []
    while len(filters) < FILTERS:
        try:
            filters.append(parse_filter(random_filter(rng)))
        except LimitError:
            continue
    events = []
    for event in random_events(rng, EVENTS):
        narrow = dict(event)
        if isinstance(value := narrow.get("date"), float):  # the FLOAT column: an event holds its widened double
            with np.errstate(over="ignore"):
                narrow["date"] = float(np.float32(value))
        events.append(clean_attributes(narrow))
    return filters, events


def test_scan_normal_form_and_spark_where_agree(interpreted: Any, workload: tuple[list[Filter], list[Any]]) -> None:
    filters, events = workload
    rows = [_row(event) for event in events]
    frame = interpreted.createDataFrame(rows, COLUMNS).coalesce(1)
    texts = [spark_text(filter_) for filter_ in filters]
    answers = frame.selectExpr(*[f"({text}) AS `{n}`" for n, text in enumerate(texts)]).collect()
    matched = 0
    hit: Counter[str] = Counter()
    wrong = []
    for event, answer in zip(events, answers, strict=True):
        for number, filter_ in enumerate(filters):
            verdict = evaluate(filter_.tree, event)
            if answer[number] is not verdict or filter_.accepts(event) is not (verdict is True):
                wrong.append((filter_.text, texts[number], event, verdict, filter_.accepts(event), answer[number]))
            if verdict is True:
                matched += 1
                hit.update(_operators(filter_))
    assert not wrong, f"{len(wrong)} pairs differ, first: {wrong[0]}"
    share = matched / (len(filters) * len(events))
    assert 0.2 <= share <= 0.8
    assert set(hit) == ALL_OPERATORS
    verbatim = sum(text == filter_.text for text, filter_ in zip(texts, filters, strict=True))
    assert verbatim > FILTERS / 4


def _row(event: Any) -> tuple[object, ...]:
    nested = event.get("o")
    columns = [event.get(name) for name in ("i", "binary", "d", "f", "date", "s", "user", "b", "t")]
    return (*columns, None if nested is None else (nested.get("x"), nested.get("odd name")))


ALL_OPERATORS = {
    "=", "!=", "<", "<=", ">", ">=", "Between", "NOT Between", "In", "NOT In", "Like", "NOT Like", "startswith",
    "endswith", "contains", "IsNull", "NOT IsNull", "And", "Or", "Not", "Constant",
}  # fmt: skip


def _operators(filter_: Filter) -> set[str]:
    found: set[str] = set()
    stack = [filter_.tree]
    while stack:
        node = stack.pop()
        match node:
            case And(children) | Or(children):
                stack.extend(children)
            case Not(child):
                stack.append(child)
            case Compare(op=op):
                found.add(op)
                continue
            case Constant():
                pass
            case _:
                if hasattr(node, "test"):
                    found.add(node.test)
                    continue
                if getattr(node, "negated", False):
                    found.add("NOT " + type(node).__name__)
                    continue
        found.add(type(node).__name__)
    return found
