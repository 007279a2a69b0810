"""What is the case with one predicate and one event: a verdict, and the fact behind it in words.

A fact is structured first (a relation between the attribute's value and some literals) and worded second, so that a
test can check that it is true.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from enum import StrEnum

import msgspec

from meetpoint.errors import one_line
from meetpoint.language.filters.atoms import make_atom
from meetpoint.language.filters.constraints import accepts
from meetpoint.language.filters.like import PatternSort, parse_like
from meetpoint.language.names import find, split_name
from meetpoint.language.syntax.render import literal_text
from meetpoint.language.syntax.tree import (
    Between,
    Compare,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Predicate,
    TextTest,
    kind_compared,
    literals_of,
)
from meetpoint.language.timestamps import format_timestamp
from meetpoint.language.values import Attributes, Kind, kind_of

__all__ = [
    "Fact",
    "Relation",
    "judge",
    "show",
]

_SHOWN_MAX = 60
_LISTED_MAX = 5


class Relation(StrEnum):
    """How a value stands to the literals of a predicate."""

    MISSING = "missing"
    OTHER_KIND = "other kind"
    PRESENT = "present"
    BELOW = "below"
    EQUAL = "equal"
    ABOVE = "above"
    WITHIN = "within"
    LISTED = "listed"
    UNLISTED = "unlisted"
    FITS = "fits"
    UNFIT = "unfit"


class Fact(msgspec.Struct, frozen=True):
    """One true statement about an event."""

    attribute: str
    value: object
    relation: Relation
    literals: tuple[LiteralValue, ...]
    text: str


def judge(predicate: Predicate, attributes: Attributes) -> tuple[bool | None, Fact]:
    """Whether the predicate is TRUE, FALSE or NULL of an event's attributes, and why."""
    value = find(attributes, split_name(predicate.attribute))
    verdict = _verdict(predicate, value)
    return verdict, _fact(predicate, value)


def _verdict(predicate: Predicate, value: object) -> bool | None:
    values = {literal.slot: literal.value for literal in literals_of(predicate)}
    slots = [values.get(slot, False) for slot in range(max(values, default=-1) + 1)]
    for negated in (False, True):
        constraint = make_atom(predicate, negated).make(slots)
        if constraint is not None and accepts(constraint, value):
            return not negated
    return None


def _fact(predicate: Predicate, value: object) -> Fact:
    name = predicate.attribute
    literals = tuple(literal.value for literal in literals_of(predicate))
    if value is None:
        return Fact(name, value, Relation.MISSING, literals, f"{name} is missing")
    if isinstance(predicate, IsNull):
        return Fact(name, value, Relation.PRESENT, literals, f"{name} is {show(value)}")
    kind = kind_compared(predicate)
    if kind_of(value) is not kind:
        found = kind_of(value) or "object"
        text = f"{name} is {_article(found)} {found}, not {_article(str(kind))} {kind}: {show(value)}"
        return Fact(name, value, Relation.OTHER_KIND, literals, text)
    relation, words = _relation(predicate, value, literals)
    if relation is Relation.EQUAL:
        return Fact(name, value, relation, literals, f"{name} is {show(value)}")
    return Fact(name, value, relation, literals, f"{name} {show(value)} {words}")


def _relation(predicate: Predicate, value: object, literals: tuple[LiteralValue, ...]) -> tuple[Relation, str]:
    match predicate:
        case Compare(literal=literal):
            relation = _order(value, literal)
            if predicate.op in ("=", "!=") and literal.kind is not Kind.NUMBER:
                return relation, f"is not {_show_literal(literal)}"
            return relation, f"{_WORDS[literal.kind][relation]} {_show_literal(literal)}"
        case Between(low=low, high=high):
            to_low, to_high = _order(value, low), _order(value, high)
            if to_low is Relation.BELOW:
                return to_low, f"{_WORDS[low.kind][to_low]} {_show_literal(low)}"
            if to_high is Relation.ABOVE:
                return to_high, f"{_WORDS[low.kind][to_high]} {_show_literal(high)}"
            return Relation.WITHIN, f"is between {_show_literal(low)} and {_show_literal(high)}"
        case In(literals=listed):
            held = any(_order(value, literal) is Relation.EQUAL for literal in listed)
            shown = ", ".join(_show_literal(literal) for literal in listed[:_LISTED_MAX])
            more = f" and {len(listed) - _LISTED_MAX} more" if len(listed) > _LISTED_MAX else ""
            return (
                (Relation.LISTED, f"is one of {shown}{more}")
                if held
                else (Relation.UNLISTED, f"is none of {shown}{more}")
            )
        case Like():
            pattern = parse_like(*map(str, literals))
            fits = pattern.matches(str(value))
            words = (
                _like_words(pattern.sort, pattern.pieces, fits)
                or f"{_does(fits)} fit{_s(fits)} {_show_literal(predicate.pattern)}"
            )
            return (Relation.FITS if fits else Relation.UNFIT), words.strip()
        case TextTest(test=test):
            part = str(literals[0])
            verb = {"startswith": "begin", "endswith": "end", "contains": "contain"}[test]
            text = str(value)
            fits = {"startswith": text.startswith, "endswith": text.endswith, "contains": text.__contains__}[test](part)
            tail = "" if test == "contains" else " with"
            return (Relation.FITS if fits else Relation.UNFIT), _verb(verb, fits, tail, part)
        case IsNull():
            raise AssertionError("IS NULL has no literals")


def _order(value: object, literal: Literal) -> Relation:
    for op, relation in (("=", Relation.EQUAL), ("<", Relation.BELOW)):
        predicate = Compare("value", 0, 0, op, msgspec.structs.replace(literal, slot=0))  # type: ignore[arg-type]
        if literal.kind is Kind.BOOLEAN:
            holds = value == literal.value if op == "=" else value < literal.value  # type: ignore[operator]
        else:
            constraint = make_atom(predicate, False).make([literal.value])
            holds = constraint is not None and accepts(constraint, value)
        if holds:
            return relation
    return Relation.ABOVE


_WORDS = {
    Kind.NUMBER: {Relation.BELOW: "is below", Relation.EQUAL: "is", Relation.ABOVE: "is above"},
    Kind.STRING: {Relation.BELOW: "comes before", Relation.EQUAL: "is", Relation.ABOVE: "comes after"},
    Kind.TIMESTAMP: {Relation.BELOW: "is before", Relation.EQUAL: "is", Relation.ABOVE: "is after"},
    Kind.BOOLEAN: {Relation.BELOW: "is before", Relation.EQUAL: "is", Relation.ABOVE: "is after"},
}


def _like_words(sort: PatternSort, pieces: tuple[str, ...], fits: bool) -> str | None:
    match sort:
        case PatternSort.PREFIX if pieces[0]:
            return _verb("begin", fits, " with", pieces[0])
        case PatternSort.SUFFIX:
            return _verb("end", fits, " with", pieces[1])
        case PatternSort.SUBSTRING:
            return _verb("contain", fits, "", pieces[1])
    return None


def _verb(verb: str, fits: bool, tail: str, part: str) -> str:
    return f"{_does(fits)} {verb}{_s(fits)}{tail} {show(part)}".strip()


def _does(fits: bool) -> str:
    return "" if fits else "does not"


def _s(fits: bool) -> str:
    return "s" if fits else ""


def _article(word: str) -> str:
    return "an" if word[0] in "aeio" else "a"


def _show_literal(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, Decimal):
        return str(value)  # as written: 8.70, not 8.7
    return show(value)


def show(value: object) -> str:
    """A value in words, cut where it is long."""
    match value:
        case None:
            return "NULL"
        case str():
            return one_line(literal_text(value if len(value) <= _SHOWN_MAX else value[: _SHOWN_MAX - 1] + "…"))
        case datetime():
            return format_timestamp(value)
        case bool():
            return literal_text(value)
        case dict():
            return "an object"
        case _:
            return str(value)
