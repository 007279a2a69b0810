"""The schema: which attributes events have, in an order that never changes.

An attribute's place in that order is its bit in bit vectors, so a schema evolves only by adding attributes at the end.
A schema is optional everywhere. Where there is one it decides how texts are read (a decimal in JSON), what a column's
type is, and which events and filters are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import TENANT, show_name
from meetpoint.language.schema.attribute import Attribute, show_value, with_article, write_bound
from meetpoint.language.values import Value, clean_attributes, text_problem

__all__ = ["ATTRIBUTES_MAX", "Attribute", "Schema", "Tree", "plant"]

ATTRIBUTES_MAX = 4096
"""Attributes of one schema."""

Tree: TypeAlias = "dict[str, Attribute | Tree]"


@dataclass(frozen=True, slots=True)
class Schema:
    """Attributes in their order. Iterating gives them; `in`, `[]` and `bit` take canonical names."""

    attributes: tuple[Attribute, ...] = ()
    name: str | None = None
    tree: Tree = field(init=False, repr=False, compare=False)
    """The attributes by the segments of their names, nested as events are. Not to be changed."""
    _bits: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(self.attributes))
        if len(self.attributes) > ATTRIBUTES_MAX:
            raise SchemaError(f"schema: {len(self.attributes)} attributes; at most {ATTRIBUTES_MAX} fit: split it")
        if self.name is not None and (problem := text_problem(self.name)) is not None:
            raise SchemaError(f"schema: its name {problem}")
        tree: Tree = {}
        for attribute in self.attributes:
            plant(tree, attribute)
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "_bits", {attribute.name: bit for bit, attribute in enumerate(self.attributes)})

    @staticmethod
    def from_yaml(source: str | os.PathLike[str]) -> Schema:
        """A schema from YAML: a str is the text itself, a Path is a file to read."""
        from meetpoint.language.schema.yaml import read_schema

        return read_schema(source)

    def to_yaml(self) -> str:
        """The YAML that `from_yaml` reads back as an equal schema."""
        from meetpoint.language.schema.yaml import write_schema

        return write_schema(self)

    @staticmethod
    def infer(rows: Iterable[Mapping[str, object]]) -> Schema:
        """The narrowest schema that the rows conform to: see `schema_infer`."""
        from meetpoint.language.schema.infer import infer_schema

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
        """The attribute of a name, or None."""
        bit = self._bits.get(name)
        return None if bit is None else self.attributes[bit]

    @property
    def names(self) -> tuple[str, ...]:
        """The canonical names, in order."""
        return tuple(self._bits)

    def bit(self, name: str) -> int:
        """The place of an attribute in bit vectors; SchemaError for a name the schema lacks."""
        bit = self._bits.get(name)
        if bit is None:
            raise SchemaError(f"schema: no attribute {show_value(name)}; {self._next_step(name)}")
        return bit

    def suggest(self, name: str) -> str | None:
        """The attribute that somebody who wrote `name` may have meant, if one is near."""
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
        """This schema and, at its end, what `newer` adds; SchemaError lists all that `newer` takes or changes."""
        differences = [text for old in self.attributes for text in _differences(old, newer.get(old.name))]
        if differences:
            raise SchemaError(
                f"schema: a schema evolves only by adding attributes, and here {'; '.join(differences)}: "
                "keep these as they were, and add an attribute under a new name"
            )
        added = tuple(attribute for attribute in newer.attributes if attribute.name not in self._bits)
        return Schema(self.attributes + added, self.name if newer.name is None else newer.name)

    def problems(self, attributes: Mapping[str, object]) -> list[str]:
        """All in which the attributes of an event differ from this schema, a sentence each; none: they conform."""
        return self._check(attributes)[1]

    def conform(self, attributes: Mapping[str, object]) -> dict[str, Value]:
        """The attributes, integers widened where the schema says float or decimal; EventError lists all problems.

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
        self, attributes: Mapping[str, Value], tree: Tree, path: tuple[str, ...], problems: list[str]
    ) -> dict[str, Value]:
        conforming: dict[str, Value] = {}
        for name, value in attributes.items():
            declared = tree.get(name)
            here = (*path, name)
            if declared is None:
                if _holds_nothing(value):  # NULL is the same as missing, declared or not
                    continue
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


def plant(tree: Tree, attribute: Attribute) -> None:
    """Adds an attribute to a tree; SchemaError where another one has its place."""
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
