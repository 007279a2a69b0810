"""`Filter`: a text and its normal form. `FilterParser`: text to Filter, fast for many texts of few shapes.

Applications make filters from templates, so that millions of them differ only in literals. One regular expression
splits a text at its literals; the texts between them are its shape. The first filter of a shape is parsed in full, the
following ones only read their literals and fill the shape. A text in which the splitter and the parser do not find the
same literals is never cached, and a literal that cannot be read sends its text to the full parser for the error
message. So the cache can change the speed and nothing else.

A schema refuses a filter that compares an attribute with a literal of another kind: there are no implicit casts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import TypeAlias

import msgspec

from meetpoint.errors import FilterError, one_line
from meetpoint.language.filters.like import check_pattern, read_pattern
from meetpoint.language.filters.normal_form import Conjunction, Shape
from meetpoint.language.names import TENANT, join_name
from meetpoint.language.schema.schema import Schema
from meetpoint.language.syntax.lexer import (
    LITERAL,
    QUOTED_NAME,
    STRING,
    BadLiteralError,
    check_text,
    read_number,
    read_string,
    read_timestamp,
)
from meetpoint.language.syntax.parser import parse_tree
from meetpoint.language.syntax.tree import (
    IsNull,
    Like,
    Literal,
    LiteralValue,
    Node,
    Predicate,
    kind_compared,
    literals_of,
    predicates,
)
from meetpoint.language.values import Kind

__all__ = ["Filter", "FilterParser", "on_one_line", "parse_filter"]


SHAPES_MAX = 4096
"""Shapes that one parser caches; the oldest goes first."""
SHAPES_WEIGHT_MAX = 200_000
"""Weight of all cached shapes, in parts of about 100 bytes: some 20 MB.

A bound on their number alone would not do, since strangers choose how large their filters are.
"""
SHAPE_WEIGHT_MAX = 2_000
"""Weight of one cached shape."""
_PART_CHARACTERS = 64

_LITERAL = re.compile(f"({LITERAL})", re.DOTALL)
_STRING = re.compile(STRING, re.DOTALL)
_LITERAL_OR_QUOTED = re.compile(rf"{_LITERAL.pattern}|({QUOTED_NAME})", re.DOTALL)

Reader: TypeAlias = Callable[[str], LiteralValue]


class Filter(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A filter: its text, its normal form, and its tree on demand. Equal filters have equal normal forms."""

    text: str
    conjunctions: tuple[Conjunction, ...]
    _tree: Node | None = None

    @property
    def tree(self) -> Node:
        """The syntax tree of the text."""
        if self._tree is None:
            msgspec.structs.force_setattr(self, "_tree", parse_tree(self.text))
        assert self._tree is not None
        return self._tree

    def accepts(self, attributes: Mapping[str, object]) -> bool:
        """Return whether clean attributes (an Event's) satisfy the filter, by its normal form."""
        for conjunction in self.conjunctions:  # noqa: SIM110 - a third faster than any() over a generator
            if conjunction.accepts(attributes):
                return True
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.conjunctions == other.conjunctions

    def __hash__(self) -> int:
        return hash(self.conjunctions)

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[object, ...]:
        return parse_filter, (self.text,)


class FilterParser:
    """A parser of filters against one schema, or none; it caches their shapes (none with `shapes_max=0`)."""

    def __init__(self, schema: Schema | None = None, *, shapes_max: int = SHAPES_MAX) -> None:
        self.schema = schema
        self._shapes_max = shapes_max
        self._shapes: dict[tuple[object, ...], _CachedShape] = {}
        self._weight = 0

    def parse(self, text: str) -> Filter:
        """Return the filter of a text; FilterError if it has none."""
        check_text(text)
        if "`" in text:
            parts = _LITERAL_OR_QUOTED.split(text)
            literals = [literal for literal in parts[1::3] if literal is not None]
            between = (*parts[::3], *parts[2::3])
        else:
            parts = _LITERAL.split(text)
            literals = parts[1::2]
            between = (*parts[::2],)
        key = (*between, *[literal[0] < "." for literal in literals])  # a quote, or the beginning of a number
        # A text with an open string has the key of one with a closed string, and would be filled instead of refused.
        cached = None if not parts[-1] and _is_open(literals) else self._shapes.get(key)
        if cached is not None:
            conjunctions = cached.fill(literals, text)
            if conjunctions is not None:
                return Filter(text, conjunctions)
        filter_, shape = self._parse_whole(text)
        if cached is None and shape.fits(literals, filter_.tree):
            self._remember(key, text, shape)
        return filter_

    def parse_all(self, texts: Iterable[str]) -> list[Filter]:
        """Return every text's filter, in order; the first that is refused raises."""
        return [self.parse(text) for text in texts]

    def _parse_whole(self, text: str) -> tuple[Filter, _CachedShape]:
        tree = parse_tree(text)
        if self.schema is not None:
            check_kinds(tree, self.schema, text)
        shape = Shape(tree, text)
        values = [literal.value for literal in _slotted(tree)]
        return Filter(text, shape.fill(values, text), tree), _CachedShape(shape, tree)

    def _remember(self, key: tuple[object, ...], text: str, shape: _CachedShape) -> None:
        shape.weight = len(key) + len(text) // _PART_CHARACTERS + shape.constraints
        if shape.weight > SHAPE_WEIGHT_MAX:
            return
        self._shapes[key] = shape
        self._weight += shape.weight
        while self._shapes and (len(self._shapes) > self._shapes_max or self._weight > SHAPES_WEIGHT_MAX):
            oldest = self._shapes.pop(next(iter(self._shapes)), None)  # another thread may have dropped it just now
            self._weight -= oldest.weight if oldest is not None else 0


def _is_open(literals: list[str]) -> bool:
    """Return whether a text ends in a string that is never closed: the splitter takes it to the end."""
    return bool(literals) and literals[-1][0] in "'\"" and _STRING.fullmatch(literals[-1]) is None


class _CachedShape:
    """A shape with the readers for the literals of another text of it."""

    __slots__ = ("_escapes", "_readers", "_shape", "weight")

    def __init__(self, shape: Shape, tree: Node) -> None:
        self._shape = shape
        self.weight = 0
        self._readers: list[Reader] = [_reader(literal) for literal in _slotted(tree)]
        self._escapes: list[tuple[int, int]] = []
        for predicate in predicates(tree):
            if isinstance(predicate, Like) and predicate.escape is None:
                self._readers[predicate.pattern.slot] = read_pattern
            elif isinstance(predicate, Like) and predicate.escape is not None:
                self._escapes.append((predicate.pattern.slot, predicate.escape.slot))

    @property
    def constraints(self) -> int:
        """The number of constraints of its conjunctions."""
        return self._shape.constraints

    def fits(self, literals: list[str], tree: Node) -> bool:
        """Return whether the splitter found exactly the literals that the parser found."""
        return len(literals) == len(self._readers) and all(
            read(text) == literal.value
            for read, text, literal in zip(self._readers, literals, _slotted(tree), strict=True)
        )

    def fill(self, literals: list[str], text: str) -> tuple[Conjunction, ...] | None:
        """Return the normal form for other literals; None if one of them cannot be read."""
        try:
            values = [read(text) for read, text in zip(self._readers, literals, strict=True)]
            for pattern, escape in self._escapes:
                _check_escape(values[pattern], values[escape])
        except BadLiteralError:
            return None
        return self._shape.fill(values, text)


def _check_escape(pattern: LiteralValue, escape: LiteralValue) -> None:
    assert isinstance(pattern, str)
    assert isinstance(escape, str)
    if len(escape) != 1:
        raise BadLiteralError("ESCAPE takes one character", "write ESCAPE '!'")
    check_pattern(pattern, escape)


def _reader(literal: Literal) -> Reader:
    if literal.kind is Kind.TIMESTAMP:
        return read_timestamp
    if literal.kind is Kind.STRING:
        return read_string
    return partial(read_number, negative=True) if literal.negative else read_number


def on_one_line(text: str) -> str:
    """Return a piece of a filter's text with white space between its words squeezed; literals stay as they are."""
    parts = _LITERAL.split(text)
    for at, part in enumerate(parts):
        parts[at] = re.sub(r"\s+", " ", part) if at % 2 == 0 else part
    return one_line("".join(parts).strip())


def _slotted(tree: Node) -> list[Literal]:
    """Return the literals that stand in slots, by slot."""
    return [literal for p in predicates(tree) for literal in literals_of(p) if literal.slot >= 0]


@lru_cache(maxsize=16)
def _parser_for(schema: Schema | None) -> FilterParser:
    return FilterParser(schema)


def parse_filter(text: str, schema: Schema | None = None) -> Filter:
    """Return the filter of a text, checked against a schema if there is one; FilterError if it is refused.

    For many filters keep a FilterParser.

        parse_filter("price > 8.30 AND symbol LIKE 'OT%'").accepts({"price": 8.5, "symbol": "OTE"})  # True
    """
    return _parser_for(schema).parse(text)


_TENANT = join_name((TENANT,))
_HINTS = {
    Kind.NUMBER: "write a number, without quotes",
    Kind.STRING: "write a string in single quotes",
    Kind.BOOLEAN: "write TRUE or FALSE",
    Kind.TIMESTAMP: "write TIMESTAMP '2026-01-31 12:00:00'",
}


def check_kinds(tree: Node, schema: Schema, text: str) -> None:
    """Refuse the first predicate whose attribute the schema lacks or declares of another kind."""
    for predicate in predicates(tree):
        name = predicate.attribute
        if name == _TENANT:
            continue
        if name not in schema:
            _check_unknown(predicate, schema, text)
            continue
        compared = kind_compared(predicate)
        declared = schema[name].type
        if compared is not None and compared is not declared.kind:
            raise FilterError(
                f"{name} is of type {declared} and is compared with a {compared}",
                _HINTS[declared.kind],
                text=text,
                start=predicate.start,
                end=predicate.end,
            )


def _check_unknown(predicate: Predicate, schema: Schema, text: str) -> None:
    name = predicate.attribute
    if any(known.startswith(name + ".") for known in schema.names):
        if isinstance(predicate, IsNull):
            return
        problem = f"{name} is an object"
        hint = "name one of its attributes: " + ", ".join(n for n in schema.names if n.startswith(name + "."))
    else:
        problem = f"the schema has no attribute {name}"
        guess = schema.suggest(name)
        hint = f"did you mean {guess}?" if guess else "its attributes are " + ", ".join(schema.names)
    raise FilterError(problem, hint, text=text, start=predicate.start, end=predicate.end)
