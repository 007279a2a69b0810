"""From one predicate of the tree to a maker: a function from the text's literals to a constraint.

A maker knows the predicate's shape (attribute, operator, which literals) and takes the literals as an argument, so
that one tree serves every filter of its shape. NOT is already pushed down to the predicates (`negated`): NOT of a
predicate is true exactly where the predicate is false, that is, for values of its kind outside its set.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TypeAlias

import msgspec

from meetpoint.language.filters.constraints import (
    ABSENT,
    EVERY_TEXT,
    PRESENT,
    Constraint,
    NumberSet,
    TextSet,
    TimestampSet,
    all_common,
    any_common,
    boolean_set,
    either,
    like_set,
    text_set,
)
from meetpoint.language.filters.intervals import Bound, Interval, Intervals, complement, intersect
from meetpoint.language.filters.like import Pattern, parse_like
from meetpoint.language.syntax.tree import (
    Between,
    Compare,
    Comparison,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Predicate,
    TextTest,
)
from meetpoint.language.values import Kind

__all__ = [
    "Atom",
    "End",
    "Maker",
    "all_of",
    "any_of",
    "make_atom",
]

Values: TypeAlias = Sequence[LiteralValue]
Maker: TypeAlias = Callable[[Values], Constraint | None]

_ORDER: dict[Comparison, Callable[..., bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE: dict[Comparison, Comparison] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Atom(msgspec.Struct, frozen=True):
    """A predicate on one attribute, ready to be made with the literals of a text.

    `unites` says that sets made here may be united to one set: all but strings with patterns, and presence.
    """

    attribute: str
    kind: Kind | None
    unites: bool
    make: Maker
    end: End | None = None
    patterns: int = 0  # how many LIKE patterns are in it


class End(msgspec.Struct, frozen=True):
    """A comparison that is one end of a range of numbers: at the literal in `slot`, included unless open."""

    is_low: bool
    is_open: bool
    slot: int


def make_atom(predicate: Predicate, negated: bool) -> Atom:
    """The atom of a predicate, or of its NOT."""
    attribute = predicate.attribute
    match predicate:
        case Compare(op=op, literal=literal):
            meant = _OPPOSITE[op] if negated else op
            end = End(meant[0] == ">", len(meant) == 1, literal.slot) if meant[0] in "<>" else None
            end = end if literal.kind is Kind.NUMBER else None
            return Atom(attribute, literal.kind, True, _comparison(literal, meant), end)
        case Between(low=low, high=high):
            return Atom(attribute, low.kind, True, _between(low, high, predicate.negated is not negated))
        case In(literals=literals):
            return Atom(attribute, literals[0].kind, True, _in(literals, predicate.negated is not negated))
        case Like():
            return Atom(attribute, Kind.STRING, False, _like(predicate, predicate.negated is not negated), patterns=1)
        case TextTest():
            return Atom(attribute, Kind.STRING, False, _text_test(predicate, negated), patterns=1)
        case IsNull():
            constraint = PRESENT if predicate.negated is not negated else ABSENT
            return Atom(attribute, None, False, lambda _: constraint)


def any_of(atoms: Sequence[Atom]) -> Atom:
    """One atom for the OR of several that unite, all on one attribute and of one kind."""
    makers = [atom.make for atom in atoms]

    def make(values: Values) -> Constraint | None:
        sets = [made for maker in makers if (made := maker(values)) is not None]
        if len(sets) > 2:
            return any_common(sets)  # type: ignore[arg-type]
        return reduce(either, sets) if sets else None  # type: ignore[arg-type]

    return Atom(atoms[0].attribute, atoms[0].kind, True, make)


def all_of(atoms: Sequence[Atom]) -> Atom:
    """One atom for the AND of several on one attribute and of one kind."""
    makers = [atom.make for atom in atoms]
    ends = [atom.end for atom in atoms if atom.end is not None]

    def make(values: Values) -> Constraint | None:
        sets = []
        for maker in makers:
            made = maker(values)
            if made is None:
                return None
            sets.append(made)
        return all_common(sets)

    unites = all(atom.unites for atom in atoms)
    if len(ends) == len(atoms) == 2 and ends[0].is_low is not ends[1].is_low:
        low, high = sorted(ends, key=lambda end: not end.is_low)
        return Atom(atoms[0].attribute, atoms[0].kind, unites, _range(low, high, make))
    return Atom(atoms[0].attribute, atoms[0].kind, unites, make, patterns=sum(atom.patterns for atom in atoms))


def _range(low: End, high: End, otherwise: Maker) -> Maker:
    """Two ends in the right order are one interval. In the wrong order they may still meet as doubles."""
    low_slot, low_open, high_slot, high_open = low.slot, low.is_open, high.slot, high.is_open

    def make(values: Values) -> Constraint | None:
        least, most = values[low_slot], values[high_slot]
        if least < most:  # type: ignore[operator]
            return NumberSet((Interval(least, low_open, most, high_open),))
        return otherwise(values)

    return make


def _line_set(kind: Kind, intervals: Intervals) -> Constraint | None:
    """Intervals on the line of a kind as a constraint of that kind."""
    if kind is Kind.NUMBER:
        return NumberSet(intervals) if intervals else None
    if kind is Kind.TIMESTAMP:
        return TimestampSet(intervals) if intervals else None
    return text_set(intersect(EVERY_TEXT, intervals), (), ())


def _interval(op: Comparison, value: Bound) -> Intervals:
    match op:
        case "=":
            return (Interval(value, False, value, False),)
        case "<":
            return (Interval(None, True, value, True),)
        case "<=":
            return (Interval(None, True, value, False),)
        case ">":
            return (Interval(value, True, None, True),)
        case ">=":
            return (Interval(value, False, None, True),)
        case "!=":
            return (Interval(None, True, value, True), Interval(value, True, None, True))


def _comparison(literal: Literal, op: Comparison) -> Maker:
    kind, slot = literal.kind, literal.slot
    if kind is Kind.BOOLEAN:
        constant = boolean_set(v for v in (False, True) if _ORDER[op](v, literal.value))
        return lambda _: constant
    if kind is Kind.NUMBER:
        return lambda values: NumberSet(_interval(op, values[slot]))
    if kind is Kind.STRING and op == "=":  # the commonest predicate of all is worth a shorter way
        return lambda values: TextSet((Interval(values[slot], False, values[slot], False),))
    return lambda values: _line_set(kind, _interval(op, values[slot]))


def _between(low: Literal, high: Literal, negated: bool) -> Maker:
    kind, low_slot, high_slot = low.kind, low.slot, high.slot
    from_low = Atom("", kind, True, _comparison(low, "<" if negated else ">="))
    to_high = Atom("", kind, True, _comparison(high, ">" if negated else "<="))
    halves = (any_of if negated else all_of)((from_low, to_high)).make
    if kind is not Kind.NUMBER or negated:
        return halves
    return _range(End(True, False, low_slot), End(False, False, high_slot), halves)


def _in(literals: tuple[Literal, ...], negated: bool) -> Maker:
    kind = literals[0].kind
    if kind is Kind.BOOLEAN:
        wanted = [literal.value for literal in literals]
        constant = boolean_set(v for v in (False, True) if (v in wanted) is not negated)
        return lambda _: constant
    slots = [literal.slot for literal in literals]

    def make(values: Values) -> Constraint | None:
        wanted = sorted({values[slot] for slot in slots})
        points = tuple([Interval(value, False, value, False) for value in wanted])
        if not negated:
            return TextSet(points) if kind is Kind.STRING else _line_set(kind, points)
        return _line_set(kind, complement(points))

    return make


def _like(predicate: Like, negated: bool) -> Maker:
    slot = predicate.pattern.slot
    if predicate.escape is None:
        return lambda values: like_set(parse_like(values[slot]), negated)  # type: ignore[arg-type]
    escape = predicate.escape.slot
    return lambda values: like_set(parse_like(values[slot], values[escape]), negated)  # type: ignore[arg-type]


def _text_test(predicate: TextTest, negated: bool) -> Maker:
    slot, test = predicate.text.slot, predicate.test

    def make(values: Values) -> Constraint | None:
        text = values[slot]
        assert isinstance(text, str)
        if not text:
            pieces: tuple[str, ...] = ("", "")
        elif test == "startswith":
            pieces = (text, "")
        elif test == "endswith":
            pieces = ("", text)
        else:
            pieces = ("", text, "")
        return like_set(Pattern(pieces), negated)

    return make
