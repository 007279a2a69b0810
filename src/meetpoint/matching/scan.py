"""The oracle: it walks every filter's tree for every event, and follows SQL's three-valued logic to the letter.

It is not fast, and it shares nothing with the code that it judges: no normal form, no interval, no pattern matcher.
TRUE, FALSE and NULL are True, False and None. A predicate on NULL is NULL, and so is one on a value of another kind;
the latter is counted in `mismatches`, because it is usually a mistake.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, TypeVar

from meetpoint.language.names import find, split_name
from meetpoint.language.syntax.tree import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Node,
    Not,
    Or,
    Predicate,
    TextTest,
    kind_compared,
)
from meetpoint.language.values import Kind, kind_of

if TYPE_CHECKING:
    from meetpoint.language.filters.filter import Filter

__all__ = ["Mismatch", "Scan", "evaluate"]

Id = TypeVar("Id", bound=Hashable)
Mismatch = tuple[str, Kind, str]
"""An attribute, the kind a predicate compares it as, and what the event held instead."""


class Scan(Generic[Id]):
    """A Matcher that tries every filter on every event."""

    def __init__(self) -> None:
        self._filters: dict[Id, Filter] = {}
        self.mismatches: Counter[Mismatch] = Counter()

    def add(self, subscription: Id, filter_: Filter) -> None:
        if subscription in self._filters:
            raise KeyError(f"subscription {subscription!r} is held already; update it instead")
        self._filters[subscription] = filter_

    def remove(self, subscription: Id) -> None:
        if subscription not in self._filters:
            raise KeyError(f"subscription {subscription!r} is not held")
        del self._filters[subscription]

    def update(self, subscription: Id, filter_: Filter) -> None:
        if subscription not in self._filters:
            raise KeyError(f"subscription {subscription!r} is not held; add it first")
        self._filters[subscription] = filter_

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        return [id_ for id_, f in self._filters.items() if evaluate(f.tree, attributes, self.mismatches) is True]

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        return [self.match(attributes) for attributes in events]

    def __len__(self) -> int:
        return len(self._filters)


def evaluate(node: Node, attributes: Mapping[str, object], mismatches: Counter[Mismatch] | None = None) -> bool | None:
    """Return TRUE, FALSE or NULL, as SQL says."""
    match node:
        case Constant(value):
            return value
        case Not(child):
            verdict = evaluate(child, attributes, mismatches)
            return None if verdict is None else not verdict
        case And(children):
            verdicts = [evaluate(child, attributes, mismatches) for child in children]
            return False if False in verdicts else None if None in verdicts else True
        case Or(children):
            verdicts = [evaluate(child, attributes, mismatches) for child in children]
            return True if True in verdicts else None if None in verdicts else False
        case _:
            return _predicate(node, attributes, mismatches)


def _predicate(node: Predicate, attributes: Mapping[str, object], mismatches: Counter[Mismatch] | None) -> bool | None:
    value = find(attributes, split_name(node.attribute))
    if isinstance(node, IsNull):
        return (value is None) is not node.negated
    if value is None:
        return None
    compared = kind_compared(node)
    found = kind_of(value)
    if found is not compared:
        if mismatches is not None and compared is not None:
            mismatches[node.attribute, compared, found or "object"] += 1
        return None
    match node:
        case Compare(op=op, literal=literal):
            return _holds(op, _order(value, literal))
        case Between(low=low, high=high):
            return (_order(value, low) >= 0 and _order(value, high) <= 0) is not node.negated
        case In(literals=literals):
            return any(_order(value, literal) == 0 for literal in literals) is not node.negated
        case Like():
            escape = "\\" if node.escape is None else str(node.escape.value)
            return _like(str(value), str(node.pattern.value), escape) is not node.negated
        case TextTest(test=test, text=text):
            part = str(text.value)
            if test == "startswith":
                return str(value)[: len(part)] == part
            if test == "endswith":
                return part == "" or str(value)[-len(part) :] == part
            return part in str(value)


def _holds(op: str, order: int) -> bool:
    return {"=": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]


def _order(value: object, literal: Literal) -> int:
    """Return -1, 0 or 1 as the value lies before, at or after the literal, both of one kind."""
    other = literal.value
    if isinstance(value, float):
        if math.isnan(value):
            return 1  # no literal is NaN, and NaN is larger than every number
        assert isinstance(other, int | Decimal)
        other = float(other)  # type: ignore[assignment]  # a float meets the double nearest to the literal
    return (value > other) - (value < other)  # type: ignore[operator]


def _like(text: str, pattern: str, escape: str) -> bool:
    """Return whether a text fits a pattern.

    It keeps the set of pattern offsets that the text read so far can have reached.
    """
    symbols: list[tuple[str, bool]] = []  # (character, is it a wildcard)
    at = 0
    while at < len(pattern):
        if pattern[at] == escape:
            at += 1
            symbols.append((pattern[at], False))
        else:
            symbols.append((pattern[at], pattern[at] in "%_"))
        at += 1

    def skip_percent(reached: set[int]) -> set[int]:
        closed = set(reached)
        for offset in range(len(symbols)):
            if offset in closed and symbols[offset] == ("%", True):
                closed.add(offset + 1)
        return closed

    reached = skip_percent({0})
    for character in text:
        following: set[int] = set()
        for offset in sorted(reached):
            if offset == len(symbols):
                continue
            symbol, wildcard = symbols[offset]
            if wildcard and symbol == "%":
                following.add(offset)
            elif wildcard or symbol == character:
                following.add(offset + 1)
        reached = skip_percent(following)
    return len(symbols) in reached
