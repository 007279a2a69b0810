"""The syntax tree of a filter, before any normal form.

`matching.scan`, the oracle, walks this tree and nothing else, and `explain` shows it. Every predicate knows its stretch
of the text (`start`, `end`), and every literal its number in the text (`slot`, from 0): so a second filter of the same
shape reuses the tree with other literals.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from meetpoint.language.values import Kind

__all__ = [
    "BARE_SLOT",
    "And",
    "Between",
    "Compare",
    "Comparison",
    "Constant",
    "In",
    "IsNull",
    "Like",
    "Literal",
    "LiteralValue",
    "Node",
    "Not",
    "Or",
    "Predicate",
    "TextTest",
    "kind_compared",
    "literals_of",
    "predicates",
]

LiteralValue: TypeAlias = int | Decimal | str | bool | datetime
Comparison: TypeAlias = OneOf["=", "!=", "<", "<=", ">", ">="]

BARE_SLOT = -1
"""The slot of a literal that is a word (TRUE, FALSE) or implied: it belongs to the shape."""


class Literal(msgspec.Struct, frozen=True):
    """A constant. A number is exact: an int or a Decimal, never a float."""

    kind: Kind
    value: LiteralValue
    slot: int
    negative: bool = False  # a minus sign stands before the slot's text


class _Spanned(msgspec.Struct, frozen=True):
    attribute: str
    start: int
    end: int


class Compare(_Spanned, frozen=True):
    """`attribute op literal`; a bare boolean attribute is `attribute = TRUE`."""

    op: Comparison
    literal: Literal


class Between(_Spanned, frozen=True):
    """`attribute [NOT] BETWEEN low AND high`, both ends included."""

    low: Literal
    high: Literal
    negated: bool


class In(_Spanned, frozen=True):
    """`attribute [NOT] IN (literal, ...)`, all of one kind."""

    literals: tuple[Literal, ...]
    negated: bool


class Like(_Spanned, frozen=True):
    """`attribute [NOT] LIKE pattern [ESCAPE escape]`; the pattern as written, its escape still in it."""

    pattern: Literal
    escape: Literal | None
    negated: bool


class TextTest(_Spanned, frozen=True):
    """`startswith(attribute, text)` and its two siblings."""

    test: OneOf["startswith", "endswith", "contains"]
    text: Literal


class IsNull(_Spanned, frozen=True):
    """`attribute IS [NOT] NULL`."""

    negated: bool


class Constant(msgspec.Struct, frozen=True):
    """`TRUE` or `FALSE` standing for a whole condition."""

    value: bool
    start: int
    end: int


class Not(msgspec.Struct, frozen=True):
    child: Node


class And(msgspec.Struct, frozen=True):
    children: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    children: tuple[Node, ...]


Predicate: TypeAlias = Compare | Between | In | Like | TextTest | IsNull
Node: TypeAlias = Predicate | Constant | Not | And | Or


def predicates(node: Node) -> Iterator[Predicate]:
    """Yield every predicate of a tree, from left to right."""
    match node:
        case And(children) | Or(children):
            for child in children:
                yield from predicates(child)
        case Not(child):
            yield from predicates(child)
        case Constant():
            return
        case _:
            yield node


def literals_of(predicate: Predicate) -> tuple[Literal, ...]:
    """Return the literals of a predicate in the order of the text."""
    match predicate:
        case Compare():
            return (predicate.literal,)
        case Between():
            return predicate.low, predicate.high
        case In():
            return predicate.literals
        case Like():
            return (predicate.pattern,) if predicate.escape is None else (predicate.pattern, predicate.escape)
        case TextTest():
            return (predicate.text,)
        case IsNull():
            return ()


def kind_compared(predicate: Predicate) -> Kind | None:
    """Return the kind of a predicate's literals; None for IS NULL, which takes any kind."""
    match predicate:
        case Compare():
            return predicate.literal.kind
        case Between():
            return predicate.low.kind
        case In():
            return predicate.literals[0].kind
        case Like() | TextTest():
            return Kind.STRING
        case IsNull():
            return None
