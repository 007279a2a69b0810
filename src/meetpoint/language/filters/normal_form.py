"""The normal form: a filter as a disjunction of conjunctions, each with at most one constraint per attribute.

NOT is pushed down to the predicates. That is sound under SQL's three-valued logic: De Morgan's laws hold in it, a
filter accepts an event only where it is TRUE, and a tree of AND and OR is TRUE exactly where the two-valued tree is
that asks of each predicate "is it TRUE?". NOT of a predicate is true exactly where the predicate is false, that is, for
values of its kind outside its set. An OR of predicates on one attribute is united to one set before anything is
multiplied out, so `a = 1 OR a = 2` is one conjunction and `(a = 1 OR a = 2) AND b = 3` is one too.

`Shape` is the normal form of all filters whose texts differ only in literals; `Shape.fill` makes one of them. A shape
has an atom for each predicate. An atom's *maker* knows the predicate's attribute, operator and literal slots, and makes
the constraint from the literals of a text, so that one tree serves every filter of its shape.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import TypeAlias

import msgspec

from meetpoint.errors import LimitError
from meetpoint.language.filters.constraints import (
    ABSENT,
    EVERY_TEXT,
    PRESENT,
    Constraint,
    NumberSet,
    TextSet,
    TimestampSet,
    accepts,
    all_common,
    any_common,
    boolean_set,
    both,
    either,
    like_set,
    text_set,
)
from meetpoint.language.filters.intervals import Bound, Interval, Intervals, complement, intersect
from meetpoint.language.filters.like import Pattern, parse_like
from meetpoint.language.names import find, split_name
from meetpoint.language.syntax.tree import (
    And,
    Between,
    Compare,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Node,
    Not,
    Or,
    Predicate,
    TextTest,
)
from meetpoint.language.values import Kind

__all__ = ["CONJUNCTIONS_MAX", "CONSTRAINTS_MAX", "Conjunction", "Shape", "make_atom"]


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
    """A predicate on one attribute, and the maker of its constraint.

    `unites` says that sets made here may be united to one set: all but strings with patterns, and presence.
    """

    attribute: str
    kind: Kind | None
    unites: bool
    make: Maker
    end: End | None = None
    patterns: int = 0  # how many LIKE patterns are in it


class End(msgspec.Struct, frozen=True):
    """A comparison that is one end of a range of numbers, at the literal in `slot`, included unless open."""

    is_low: bool
    is_open: bool
    slot: int


def make_atom(predicate: Predicate, negated: bool) -> Atom:
    """Return the atom of a predicate, or of its NOT."""
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
    """Return the atom of an OR of several atoms that unite, all on one attribute and of one kind."""
    makers = [atom.make for atom in atoms]

    def make(values: Values) -> Constraint | None:
        sets = [made for maker in makers if (made := maker(values)) is not None]
        if len(sets) > 2:
            return any_common(sets)  # type: ignore[arg-type]
        return reduce(either, sets) if sets else None  # type: ignore[arg-type]

    return Atom(atoms[0].attribute, atoms[0].kind, True, make)


def all_of(atoms: Sequence[Atom]) -> Atom:
    """Return the atom of an AND of several atoms on one attribute and of one kind."""
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
    """Return a maker of one interval from two ends in the right order; in the wrong order they may meet as doubles."""
    low_slot, low_open, high_slot, high_open = low.slot, low.is_open, high.slot, high.is_open

    def make(values: Values) -> Constraint | None:
        least, most = values[low_slot], values[high_slot]
        if least < most:  # type: ignore[operator]
            return NumberSet((Interval(least, low_open, most, high_open),))
        return otherwise(values)

    return make


def _line_set(kind: Kind, intervals: Intervals) -> Constraint | None:
    """Return intervals on the line of a kind as a constraint of that kind."""
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


CONJUNCTIONS_MAX = 64
"""Conjunctions of one filter."""
CONSTRAINTS_MAX = 64
"""Constraints, that is attributes, of one conjunction."""
PATTERNS_MAX = 32
"""LIKE patterns, and startswith and its siblings, on one attribute of one conjunction."""
TRIED_MAX = 4_000_000
"""Characters of all strings of a filter times its patterns: each pattern is tried with the strings beside it.

A pattern that several alternatives share is counted once, as it is tried once.
"""


class Conjunction(msgspec.Struct, frozen=True, gc=False):
    """Constraints on distinct attributes, sorted by name; all must hold. Without any it accepts every event."""

    constraints: tuple[tuple[str, Constraint], ...]

    def accepts(self, attributes: Mapping[str, object]) -> bool:
        """Return whether clean attributes satisfy every constraint."""
        for name, constraint in self.constraints:  # noqa: SIM110 - a third faster than all() over a generator
            if not accepts(constraint, find(attributes, split_name(name))):
                return False
        return True

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the constrained attributes."""
        return tuple(name for name, _ in self.constraints)


class _All(msgspec.Struct, frozen=True):
    parts: tuple[_Positive, ...]


class _Any(msgspec.Struct, frozen=True):
    parts: tuple[_Positive, ...]


_Positive: TypeAlias = Atom | _All | _Any
_TRUE = _All(())
_FALSE = _Any(())

_Plan: TypeAlias = tuple[tuple[str, Maker, tuple[Maker, ...]], ...]
_Known: TypeAlias = dict[tuple[Maker, ...], Constraint | None]
"""Constraints that were made already: alternatives have much in common."""


class Shape:
    """The normal form of a tree with its literals left open."""

    __slots__ = ("_patterns", "_plans")

    def __init__(self, tree: Node, text: str) -> None:
        alternatives = _expand(_positive(tree, False), text)
        self._plans: tuple[_Plan, ...] = tuple(_plan(atoms, text) for atoms in alternatives)
        groups = {tuple(atom.make for atom in group): group for atoms in alternatives for group in _by_attribute(atoms)}
        self._patterns = sum(atom.patterns for group in groups.values() for atom in group)

    @property
    def constraints(self) -> int:
        """The number of constraints of all conjunctions, before those of one attribute become one."""
        return sum(1 + len(more) for plan in self._plans for _, _, more in plan)

    def fill(self, values: Sequence[LiteralValue], text: str) -> tuple[Conjunction, ...]:
        """Return the conjunctions for the literals of one text, by slot, without those that nothing satisfies."""
        if self._patterns:
            self._check_patterns(values, text)
        known: _Known | None = {} if len(self._plans) > 1 else None  # a single alternative shares nothing
        made = [c for plan in self._plans if (c := _fill(plan, values, known)) is not None]
        return tuple(dict.fromkeys(made)) if len(made) > 1 else tuple(made)

    def _check_patterns(self, values: Sequence[LiteralValue], text: str) -> None:
        characters = sum(len(value) for value in values if isinstance(value, str))
        if self._patterns * characters > TRIED_MAX:
            raise LimitError.of_whole(
                f"the filter has {self._patterns} patterns when its ORs are multiplied out, beside strings of "
                f"{characters} characters, and the limit is {TRIED_MAX} for the one times the other",
                "split the filter into several subscriptions",
                text,
            )


def _fill(plan: _Plan, values: Sequence[LiteralValue], known: _Known | None) -> Conjunction | None:
    constraints: list[tuple[str, Constraint]] = []
    for attribute, make, more in plan:
        if known is None:
            constraint = make(values) if not more else _join((make, *more), values)
        else:
            key = (make, *more)
            if key not in known:
                known[key] = _join(key, values)
            constraint = known[key]
        if constraint is None:
            return None
        constraints.append((attribute, constraint))
    return Conjunction(tuple(constraints))


def _join(makers: tuple[Maker, ...], values: Sequence[LiteralValue]) -> Constraint | None:
    constraint = makers[0](values)
    for make in makers[1:]:
        following = make(values)
        if constraint is None or following is None:
            return None
        constraint = both(constraint, following)
    return constraint


def _positive(node: Node, negated: bool) -> _Positive:
    """Return the tree without NOT; chains are flat, and the parts of one AND or OR on one attribute are one atom."""
    match node:
        case Not(child):
            return _positive(child, not negated)
        case Constant(value):
            return _TRUE if value is not negated else _FALSE
        case And(children) | Or(children):
            parts = [_positive(child, negated) for child in children]
            if isinstance(node, And) is not negated:
                flat = chain.from_iterable(p.parts if isinstance(p, _All) else (p,) for p in parts)
                return _one(_All, _draw_together(flat, within_and=True))
            flat = chain.from_iterable(p.parts if isinstance(p, _Any) else (p,) for p in parts)
            return _one(_Any, _draw_together(flat, within_and=False))
        case _:
            return make_atom(node, negated)


def _one(sort: type[_All] | type[_Any], parts: tuple[_Positive, ...]) -> _Positive:
    if (_FALSE if sort is _All else _TRUE) in parts:
        return _FALSE if sort is _All else _TRUE
    return parts[0] if len(parts) == 1 else sort(parts)


def _draw_together(parts: Iterable[_Positive], *, within_and: bool) -> tuple[_Positive, ...]:
    out: dict[object, list[_Positive]] = {}
    for number, part in enumerate(parts):
        joins = isinstance(part, Atom) and part.kind is not None and (within_and or part.unites)
        key: object = (part.attribute, part.kind) if joins and isinstance(part, Atom) else number
        out.setdefault(key, []).append(part)
    combine = all_of if within_and else any_of
    return tuple(
        combine([atom for atom in group if isinstance(atom, Atom)]) if len(group) > 1 else group[0]
        for group in out.values()
    )


def _expand(node: _Positive, text: str) -> list[tuple[Atom, ...]]:
    """Multiply out; refuse before the product is built."""
    if isinstance(node, Atom):
        return [(node,)]
    if isinstance(node, _Any):
        alternatives = list(chain.from_iterable(_expand(part, text) for part in node.parts))
        _check_count(len(alternatives), text)
        return alternatives
    product: list[tuple[Atom, ...]] = [()]
    for part in node.parts:
        choices = _expand(part, text)
        _check_count(len(product) * len(choices), text)
        product = [(*left, *right) for left in product for right in choices]
    return product


def _check_count(count: int, text: str) -> None:
    if count > CONJUNCTIONS_MAX:
        raise LimitError.of_whole(
            f"the filter has more than {CONJUNCTIONS_MAX} alternatives when its ORs are multiplied out",
            "write IN for many values of one attribute, or split the filter into several subscriptions",
            text,
        )


def _plan(atoms: tuple[Atom, ...], text: str) -> _Plan:
    groups = _by_attribute(atoms)
    for group in groups:
        if (count := sum(atom.patterns for atom in group)) > PATTERNS_MAX:
            raise LimitError.of_whole(
                f"the filter has {count} patterns on {group[0].attribute} at once, and the limit is {PATTERNS_MAX}",
                "split the filter into several subscriptions",
                text,
            )
    if len(groups) > CONSTRAINTS_MAX:
        raise LimitError.of_whole(
            f"the filter constrains {len(groups)} attributes at once, and the limit is {CONSTRAINTS_MAX}",
            "split the filter into several subscriptions",
            text,
        )
    return tuple((group[0].attribute, group[0].make, tuple(atom.make for atom in group[1:])) for group in groups)


def _by_attribute(atoms: Iterable[Atom]) -> list[list[Atom]]:
    """Return the atoms of each attribute, in the order of the attributes' names."""
    by_attribute: dict[str, list[Atom]] = {}
    for atom in atoms:
        by_attribute.setdefault(atom.attribute, []).append(atom)
    return [by_attribute[name] for name in sorted(by_attribute)]
