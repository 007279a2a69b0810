"""The schema of events: their attributes in an order that never changes, with types and bounds.

An attribute's place in that order is its bit in bit vectors, so a schema evolves only by adding attributes at the end.
A schema is optional everywhere. It decides how texts are read (a decimal in JSON), the types of columns, and which
events and filters are refused.

- Bounds of integers are ints, of decimals and floats exact Decimals, of timestamps datetimes; strings and booleans have
  no bounds. Only numbers have a precision: the step between two values.
- The grid of values is `minimum + k * precision`; without a minimum it is `k * precision`.
- A float is measured by its shortest decimal spelling: 0.1 lies on a grid of 0.1 and is not above a maximum of 0.1,
  although the double nearest to 0.1 is a little more.
- NaN lies within no bounds and on no grid; it is allowed if neither is declared. An integer may stand for a float or a
  decimal that it equals exactly.
- NULL, and so a missing attribute, is always allowed.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from fractions import Fraction
from typing import TypeAlias

import msgspec

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import TENANT, join_name, show_name, split_name
from meetpoint.language.timestamps import format_timestamp, parse_timestamp
from meetpoint.language.values import (
    DIGITS_MAX,
    Scalar,
    Type,
    Value,
    clean_attributes,
    fits_decimal,
    text_problem,
    to_utc,
    type_of,
)

__all__ = [
    "ATTRIBUTES_MAX",
    "Attribute",
    "Bound",
    "Schema",
    "SchemaTree",
    "add_to_tree",
    "read_bound",
    "show_value",
    "with_article",
    "write_bound",
]


Bound: TypeAlias = int | Decimal | datetime

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER_TYPES = (Type.INTEGER, Type.FLOAT, Type.DECIMAL)
_FLOAT_EXPONENT_MAX = 400
_TEXT_MAX = 400
_SHOWN_MAX = 60


class Attribute(msgspec.Struct, frozen=True):
    """An attribute of a schema: a name, a type, and the bounds and precision of its values.

    The name is brought to its canonical spelling. SchemaError if the parts contradict each other.
    """

    name: str
    type: Type
    minimum: Bound | None = None
    maximum: Bound | None = None
    precision: int | Decimal | None = None

    def __post_init__(self) -> None:
        try:
            name = join_name(split_name(self.name))
        except ValueError as error:
            raise SchemaError(f"schema: {error}; quote odd parts of a name with backticks") from None
        if (problem := text_problem(name)) is not None:
            raise SchemaError(f"schema: the name of attribute {show_name(split_name(name))} {problem}")
        msgspec.structs.force_setattr(self, "name", name)
        msgspec.structs.force_setattr(self, "type", Type(self.type))
        for bound in ("minimum", "maximum", "precision"):
            given = getattr(self, bound)
            if given is not None:
                try:
                    msgspec.structs.force_setattr(self, bound, _check_bound(self.type, bound, given))
                except ValueError as error:
                    raise SchemaError(f"schema: attribute {self.shown}: {bound} {error}") from None
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:  # type: ignore[operator]
            raise SchemaError(
                f"schema: attribute {self.shown}: minimum {write_bound(self.minimum)} is above "
                f"maximum {write_bound(self.maximum)}; swap them"
            )

    @property
    def path(self) -> tuple[str, ...]:
        """The segments of the name."""
        return split_name(self.name)

    @property
    def shown(self) -> str:
        """The name for the text of an error."""
        return show_name(self.path)

    def widen(self, value: Scalar) -> Scalar:
        """Return a value as one of this type: an integer becomes the float or decimal that equals it.

        If that cannot be done, ValueError says what the value `is`.
        """
        if value is None or (found := type_of(value)) is self.type:
            return value
        if found is Type.INTEGER and self.type is Type.DECIMAL:
            return Decimal(value)  # type: ignore[arg-type]
        if found is Type.INTEGER and self.type is Type.FLOAT:
            widened = float(value)  # type: ignore[arg-type]
            if widened != value:
                raise ValueError(f"is {show_value(value)}, which no float equals; declare a decimal, or round it")
            return widened
        raise ValueError(f"is {show_value(value)}, {with_article(found)}; send {with_article(self.type)}")

    def problem(self, value: Scalar) -> str | None:
        """Return how a value of this type violates the bounds or the grid; None if it does not."""
        if value is None or (self.minimum is None and self.maximum is None and self.precision is None):
            return None
        if isinstance(value, float) and math.isnan(value):
            return "is NaN, which lies within no bounds; send null"
        measured = Decimal(repr(value)) if isinstance(value, float) else value
        if self.minimum is not None and measured < self.minimum:  # type: ignore[operator]
            return f"is {show_value(value)}, below the minimum {write_bound(self.minimum)}"
        if self.maximum is not None and measured > self.maximum:  # type: ignore[operator]
            return f"is {show_value(value)}, above the maximum {write_bound(self.maximum)}"
        if self.precision is not None and not self._on_grid(measured):
            origin = "" if self.minimum is None else f" from {write_bound(self.minimum)}"
            return f"is {show_value(value)}, not a whole number of steps of {self.precision}{origin}"
        return None

    def _on_grid(self, measured: object) -> bool:
        origin = 0 if self.minimum is None else self.minimum
        assert isinstance(measured, int | Decimal)
        assert isinstance(origin, int | Decimal)
        assert self.precision is not None
        if isinstance(measured, Decimal) and not measured.is_finite():
            return False
        steps = (Fraction(measured) - Fraction(origin)) / Fraction(
            self.precision
        )  # Decimal's own % rounds to 28 digits
        return bool(steps.denominator == 1)


def read_bound(type_: Type, field: str, text: str) -> Bound:
    """Return a minimum, maximum or precision from its text, exactly; ValueError says what it `is` instead."""
    if type_ is Type.TIMESTAMP and field != "precision":
        try:
            return parse_timestamp(text)
        except ValueError as error:
            raise ValueError(f"is wrong: {error}") from None
    if type_ not in _NUMBER_TYPES:
        raise ValueError(f"does not apply to {with_article(type_)}; remove it")
    if len(text) > _TEXT_MAX:
        raise ValueError(f"is a number of {len(text)} characters; at most {DIGITS_MAX} digits are exact: shorten it")
    if type_ is Type.INTEGER:
        if _INTEGER.fullmatch(text) is None:
            raise ValueError(f"is {show_value(text)}; write an integer, digits only")
        return _check_bound(type_, field, int(text))
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"is {show_value(text)}; write a number like 0.01")
    return _check_bound(type_, field, Decimal(text))


def write_bound(bound: Bound) -> str:
    """Return a bound as text: the inverse of `read_bound`."""
    return format_timestamp(bound) if isinstance(bound, datetime) else str(bound)


def show_value(value: object) -> str:
    """Return a value for the text of an error: on one line and short."""
    if isinstance(value, datetime):
        return format_timestamp(value)
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…"


def _check_bound(type_: Type, field: str, bound: object) -> Bound:
    """Return a bound in the class that its type wants; ValueError says what it `is` instead."""
    if type_ is Type.TIMESTAMP and field != "precision":
        if not isinstance(bound, datetime):
            raise ValueError(f"is of class {type(bound).__name__}; give a datetime")
        return to_utc(bound)
    if type_ not in _NUMBER_TYPES:
        raise ValueError(f"does not apply to {with_article(type_)}; remove it")
    if type(bound) is float and type_ is Type.FLOAT:
        bound = Decimal(repr(bound))
    if type_ is Type.INTEGER and type(bound) is not int:
        raise ValueError(f"is {show_value(bound)} of class {type(bound).__name__}; give an int")
    if type(bound) is int and type_ is not Type.INTEGER:
        bound = Decimal(bound)
    if not isinstance(bound, int | Decimal):
        raise ValueError(f"is of class {type(bound).__name__}; give a Decimal")
    if isinstance(bound, Decimal):
        _check_decimal(type_, bound)
    elif abs(bound) >= 10**DIGITS_MAX:
        raise ValueError(f"has more than {DIGITS_MAX} digits; shorten it")
    if field == "precision" and bound <= 0:
        raise ValueError(f"is {bound}; it must be above 0")
    return bound


def _check_decimal(type_: Type, bound: Decimal) -> None:
    if not bound.is_finite():
        raise ValueError(f"is {bound}; give a finite number or leave it out")
    if type_ is Type.DECIMAL and not fits_decimal(bound):
        raise ValueError(f"is {show_value(bound)}, which a decimal of {DIGITS_MAX} digits does not hold; shorten it")
    if len(bound.as_tuple().digits) > DIGITS_MAX or abs(bound.adjusted()) > _FLOAT_EXPONENT_MAX:
        raise ValueError(f"is {show_value(bound)}, outside the floats or of more than {DIGITS_MAX} digits; shorten it")


def with_article(type_: Type | None) -> str:
    """Return a type within a sentence: `an integer`; None is a nested object."""
    if type_ is None:
        return "an object"
    return f"an {type_}" if type_ is Type.INTEGER else f"a {type_}"


ATTRIBUTES_MAX = 4096
"""Attributes of one schema."""

SchemaTree: TypeAlias = "dict[str, Attribute | SchemaTree]"


@dataclass(frozen=True, slots=True)
class Schema:
    """Attributes in their order. Iteration yields them; `in`, `[]` and `bit` take canonical names.

    schema = Schema.from_yaml("attributes: {price: {type: decimal, min: 0, precision: 0.01}}")
    schema.conform({"price": 8})  # {'price': Decimal('8')}
    """

    attributes: tuple[Attribute, ...] = ()
    name: str | None = None
    tree: SchemaTree = field(init=False, repr=False, compare=False)
    """The attributes by the segments of their names, nested as events are; read only."""
    _bits: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if len(self.attributes) > ATTRIBUTES_MAX:
            raise SchemaError(f"schema: {len(self.attributes)} attributes; at most {ATTRIBUTES_MAX} fit: split it")
        if self.name is not None and (problem := text_problem(self.name)) is not None:
            raise SchemaError(f"schema: its name {problem}")
        tree: SchemaTree = {}
        for attribute in self.attributes:
            add_to_tree(tree, attribute)
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "_bits", {attribute.name: bit for bit, attribute in enumerate(self.attributes)})

    @staticmethod
    def from_yaml(source: str | os.PathLike[str]) -> Schema:
        """Return a schema from YAML: a str is the text itself, a Path is a file to read."""
        from meetpoint.language.schema.sources import read_schema

        return read_schema(source)

    def to_yaml(self) -> str:
        """Return the YAML that `from_yaml` reads back as an equal schema."""
        from meetpoint.language.schema.sources import write_schema

        return write_schema(self)

    @staticmethod
    def infer(rows: Iterable[Mapping[str, object]]) -> Schema:
        """Return the narrowest schema that the rows conform to: see `schema.sources`."""
        from meetpoint.language.schema.sources import infer_schema

        return infer_schema(rows)

    def __iter__(self) -> Iterator[Attribute]:
        return iter(self.attributes)

    def __len__(self) -> int:
        return len(self.attributes)

    def __contains__(self, name: object) -> bool:
        return name in self._bits

    def __getitem__(self, name: str) -> Attribute:
        return self.attributes[self.bit(name)]

    def get(self, name: str) -> Attribute | None:
        """Return the attribute of a name, or None."""
        bit = self._bits.get(name)
        return None if bit is None else self.attributes[bit]

    @property
    def names(self) -> tuple[str, ...]:
        """The canonical names, in order."""
        return tuple(self._bits)

    def bit(self, name: str) -> int:
        """Return the place of an attribute in bit vectors; SchemaError for a name that the schema lacks."""
        bit = self._bits.get(name)
        if bit is None:
            raise SchemaError(f"schema: no attribute {show_value(name)}; {self._next_step(name)}")
        return bit

    def suggest(self, name: str) -> str | None:
        """Return the attribute that a misspelt `name` probably means, or None."""
        folded = name.casefold()
        for known in self._bits:
            if known.casefold() == folded:
                return known
        last = folded.rpartition(".")[2]
        for known, bit in self._bits.items():
            if self.attributes[bit].path[-1].casefold() == last:
                return known
        near = get_close_matches(name[:200], self._bits, n=1)
        return near[0] if near else None

    def evolve(self, newer: Schema) -> Schema:
        """Return this schema with what `newer` adds; SchemaError lists all that `newer` removes or changes."""
        differences = [text for old in self.attributes for text in _differences(old, newer.get(old.name))]
        if differences:
            raise SchemaError(
                f"schema: a schema evolves only by adding attributes, and here {'; '.join(differences)}: "
                "keep these as they were, and add an attribute under a new name"
            )
        added = tuple(attribute for attribute in newer.attributes if attribute.name not in self._bits)
        return Schema(self.attributes + added, self.name if newer.name is None else newer.name)

    def problems(self, attributes: Mapping[str, object]) -> list[str]:
        """Return how the attributes of an event differ from this schema, a sentence each; none if they conform."""
        return self._check(attributes)[1]

    def conform(self, attributes: Mapping[str, object]) -> dict[str, Value]:
        """Return the attributes with integers widened to declared floats and decimals; EventError lists all problems.

        Undeclared attributes that are NULL are left out.
        """
        conforming, problems = self._check(attributes)
        if problems:
            raise EventError(f"event: {'; '.join(problems)}: change the event, or the schema")
        return conforming

    def _check(self, attributes: Mapping[str, object]) -> tuple[dict[str, Value], list[str]]:
        try:
            clean = clean_attributes(attributes)
        except EventError as error:
            return {}, [str(error).removeprefix("event: ")]
        problems: list[str] = []
        return self._check_object(clean, self.tree, (), problems), problems

    def _check_object(
        self, attributes: Mapping[str, Value], tree: SchemaTree, path: tuple[str, ...], problems: list[str]
    ) -> dict[str, Value]:
        conforming: dict[str, Value] = {}
        for name, value in attributes.items():
            declared = tree.get(name)
            here = (*path, name)
            if declared is None:
                if _holds_nothing(value):  # NULL is the same as missing, declared or not
                    continue
                # Brokers add it to events that publishers' schemas do not know of; a refusal would refuse every event.
                if here == (TENANT,):
                    conforming[name] = value
                    continue
                problems.append(f"{show_name(here)} is not in the schema ({self._next_step(show_name(here))})")
            elif value is None:
                conforming[name] = None
            elif isinstance(declared, dict):
                if isinstance(value, Mapping):
                    conforming[name] = self._check_object(value, declared, here, problems)
                else:
                    problems.append(f"{show_name(here)} is {show_value(value)}; send an object")
            elif isinstance(value, Mapping):
                problems.append(f"{show_name(here)} is an object; send {with_article(declared.type)}")
            else:
                try:
                    conforming[name] = declared.widen(value)
                    problem = declared.problem(conforming[name])  # type: ignore[arg-type]
                except ValueError as error:
                    problem = str(error)
                if problem is not None:
                    problems.append(f"{show_name(here)} {problem}")
        return conforming

    def _next_step(self, name: str) -> str:
        near = self.suggest(name)
        if near is not None:
            return f"did you mean {near}?"
        shown = ", ".join(self.names[:8]) + (", …" if len(self.names) > 8 else "")
        return f"it has {shown}" if shown else "it has no attributes"


def _holds_nothing(value: Value) -> bool:
    return value is None or (isinstance(value, Mapping) and all(map(_holds_nothing, value.values())))


def add_to_tree(tree: SchemaTree, attribute: Attribute) -> None:
    """Add an attribute to a tree; SchemaError if another one has its place."""
    *parents, leaf = attribute.path
    for depth, segment in enumerate(parents, 1):
        below = tree.setdefault(segment, {})
        if not isinstance(below, dict):
            raise SchemaError(
                f"schema: {attribute.shown} lies within {show_name(parents[:depth])}, "
                f"which is of type {below.type}; rename one of them"
            )
        tree = below
    there = tree.setdefault(leaf, attribute)
    if isinstance(there, dict):
        raise SchemaError(
            f"schema: {attribute.shown} is of type {attribute.type}, and another attribute lies within it; "
            "rename one of them"
        )
    if there is not attribute:
        raise SchemaError(f"schema: attribute {attribute.shown} is declared twice; keep one of them")


def _differences(old: Attribute, new: Attribute | None) -> list[str]:
    if new is None:
        return [f"{old.shown} is removed"]
    texts = []
    for what in ("type", "minimum", "maximum", "precision"):
        before, after = getattr(old, what), getattr(new, what)
        if before != after:
            shown = ["none" if bound is None else write_bound(bound) for bound in (before, after)]
            texts.append(f"the {what} of {old.shown} changes from {shown[0]} to {shown[1]}")
    return texts
