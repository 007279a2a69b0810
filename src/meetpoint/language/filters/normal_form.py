"""The normal form: a filter as a disjunction of conjunctions, each with at most one constraint per attribute.

NOT is pushed down to the predicates. That is sound under SQL's three-valued logic: De Morgan's laws hold in it, a
filter accepts an event only where it is TRUE, and a tree of AND and OR is TRUE exactly where the two-valued tree is
that asks of each predicate "is it TRUE?". What an OR says of one attribute is united to one set before anything is
multiplied out, so `a = 1 OR a = 2` is one conjunction and `(a = 1 OR a = 2) AND b = 3` is one too.

`Shape` is the normal form of all filters whose texts differ only in literals; `Shape.fill` makes one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TypeAlias

import msgspec

from meetpoint.errors import LimitError
from meetpoint.language.filters.atoms import Atom, Maker, all_of, any_of, make_atom
from meetpoint.language.filters.constraints import Constraint, accepts, both
from meetpoint.language.names import find, split_name
from meetpoint.language.syntax.tree import And, Constant, LiteralValue, Node, Not, Or

__all__ = ["CONJUNCTIONS_MAX", "CONSTRAINTS_MAX", "PATTERNS_MAX", "TRIED_MAX", "Conjunction", "Shape"]

CONJUNCTIONS_MAX = 64
"""Conjunctions of one filter."""
CONSTRAINTS_MAX = 64
"""Constraints, that is attributes, of one conjunction."""
PATTERNS_MAX = 32
"""LIKE patterns, and startswith and its siblings, on one attribute of one conjunction."""
TRIED_MAX = 4_000_000
"""Characters of all strings of a filter times patterns, which are tried with the strings that stand beside them. What
several alternatives ask of an attribute in the same words is counted once, as it is tried once.
"""


class Conjunction(msgspec.Struct, frozen=True, gc=False):
    """Constraints on distinct attributes, sorted by name; all must hold. Without any it accepts every event."""

    constraints: tuple[tuple[str, Constraint], ...]

    def accepts(self, attributes: Mapping[str, object]) -> bool:
        """Whether clean attributes satisfy every constraint."""
        for name, constraint in self.constraints:  # noqa: SIM110 - a third faster than all() over a generator
            if not accepts(constraint, find(attributes, split_name(name))):
                return False
        return True

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names of the attributes constrained."""
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
"""What was made already: alternatives have much in common."""


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
        """How many constraints all conjunctions have, before those of one attribute become one."""
        return sum(1 + len(more) for plan in self._plans for _, _, more in plan)

    def fill(self, values: Sequence[LiteralValue], text: str) -> tuple[Conjunction, ...]:
        """The conjunctions for the literals of one text, by slot; those that nothing satisfies are left out."""
        if self._patterns:
            self._check_patterns(values, text)
        known: _Known | None = {} if len(self._plans) > 1 else None
        made = [c for plan in self._plans if (c := _fill(plan, values, known)) is not None]
        return tuple(dict.fromkeys(made)) if len(made) > 1 else tuple(made)

    def _check_patterns(self, values: Sequence[LiteralValue], text: str) -> None:
        characters = sum(len(value) for value in values if isinstance(value, str))
        if self._patterns * characters > TRIED_MAX:
            raise LimitError(
                f"the filter has {self._patterns} patterns when its ORs are multiplied out, beside strings of "
                f"{characters} characters, and the limit is {TRIED_MAX} for the one times the other",
                "split the filter into several subscriptions",
                text=text,
                start=0,
                end=len(text),
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
    """The tree without NOT; chains flat, and what one AND or OR says of one attribute drawn together."""
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
    """Multiply out, refusing before the product is built."""
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
        raise LimitError(
            f"the filter has more than {CONJUNCTIONS_MAX} alternatives when its ORs are multiplied out",
            "write IN for many values of one attribute, or split the filter into several subscriptions",
            text=text,
            start=0,
            end=len(text),
        )


def _plan(atoms: tuple[Atom, ...], text: str) -> _Plan:
    groups = _by_attribute(atoms)
    for group in groups:
        if (count := sum(atom.patterns for atom in group)) > PATTERNS_MAX:
            raise LimitError(
                f"the filter has {count} patterns on {group[0].attribute} at once, and the limit is {PATTERNS_MAX}",
                "split the filter into several subscriptions",
                text=text,
                start=0,
                end=len(text),
            )
    if len(groups) > CONSTRAINTS_MAX:
        raise LimitError(
            f"the filter constrains {len(groups)} attributes at once, and the limit is {CONSTRAINTS_MAX}",
            "split the filter into several subscriptions",
            text=text,
            start=0,
            end=len(text),
        )
    return tuple((group[0].attribute, group[0].make, tuple(atom.make for atom in group[1:])) for group in groups)


def _by_attribute(atoms: Iterable[Atom]) -> list[list[Atom]]:
    """The atoms of each attribute, in the order of the attributes' names."""
    by_attribute: dict[str, list[Atom]] = {}
    for atom in atoms:
        by_attribute.setdefault(atom.attribute, []).append(atom)
    return [by_attribute[name] for name in sorted(by_attribute)]
