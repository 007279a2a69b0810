"""Schemas from YAML, and schemas from the events themselves.

    name: trades                 # optional
    attributes:
      stock: string              # a type alone, or
      price: {type: decimal, min: 0, max: 1000, precision: 0.01}
      order.side: string         # a nested attribute by its dotted path

Only the structure is YAML's: every name, type and number is read from its text as written. So `no` and `on` are names,
1.10 is exactly 1.10, and a number may stand in quotes or not. Anchors, aliases and tags are refused, and every error
has its line and column. PyYAML is imported only when a schema is read or written.

Inference finds the narrowest schema that every row conforms to:

- The type is the one that all values have. Integers among floats are floats if each equals one exactly, integers among
  decimals are decimals; any other mixture is refused with the attribute, both types and the row.
- The bounds are the least and the greatest value seen. A float that was once NaN or infinite has no bounds, since those
  would refuse it.
- The precision is 1 for integers, the finest step seen for decimals (0.01 for 8.30), none for floats.
- NULL says nothing: an attribute that is only NULL is left out. Attributes come in the order of their first value.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from meetpoint.errors import EventError, SchemaError
from meetpoint.language.names import join_name, show_name
from meetpoint.language.schema.schema import (
    Attribute,
    Bound,
    Schema,
    SchemaTree,
    add_to_tree,
    read_bound,
    show_value,
    write_bound,
)
from meetpoint.language.values import Scalar, Type, Value, clean_attributes, type_of

if TYPE_CHECKING:
    import yaml

__all__ = ["infer_schema", "read_schema", "write_schema"]


_NESTING_MAX = 8
_TOP_KEYS = ("name", "attributes")
_BOUNDS = {"min": "minimum", "max": "maximum", "precision": "precision"}
_ATTRIBUTE_KEYS = ("type", *_BOUNDS)
_KEY_MAX = 1_000  # a longer one, as names become that are written in escapes, must be marked as a key
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
_TYPES = ", ".join(Type)
_OTHER_NAMES = {
    "bigint": "integer", "bool": "boolean", "date": "timestamp", "datetime": "timestamp", "double": "float",
    "int": "integer", "int64": "integer", "long": "integer", "number": "decimal", "numeric": "decimal",
    "real": "float", "str": "string", "text": "string", "time": "timestamp", "varchar": "string",
}  # fmt: skip


def read_schema(source: str | os.PathLike[str]) -> Schema:
    """Return a schema from a text (str) or a file (Path); SchemaError with line and column."""
    if isinstance(source, str):
        return _YamlReader("schema").read(source)
    where = f"schema {os.fspath(source)}"
    try:
        text = Path(source).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SchemaError(f"{where}: cannot be read: {error.strerror}; check the path") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{where}: is not UTF-8 at byte {error.start}; save it as UTF-8") from None
    return _YamlReader(where).read(text)


class _YamlReader:
    def __init__(self, where: str) -> None:
        self.where = where

    def read(self, text: str) -> Schema:
        top = self.mapping(self.compose(text), "the schema", _TOP_KEYS)
        if "attributes" not in top:
            self.refuse(None, "there is no key `attributes`", "write `attributes:` and below it a name and type a line")
        name = self.text(top["name"][1], "name") if "name" in top else None
        attributes: list[Attribute] = []
        tree: SchemaTree = {}
        for key, (key_node, value) in self.mapping(top["attributes"][1], "`attributes`", None).items():
            attributes.append(self.attribute(key, key_node, value))
            try:  # the schema would find this too, but without the position
                add_to_tree(tree, attributes[-1])
            except SchemaError as error:
                self.refuse(key_node, str(error).removeprefix("schema: "))
        try:
            return Schema(tuple(attributes), name)
        except SchemaError as error:
            self.refuse(None, str(error).removeprefix("schema: "))

    def compose(self, text: str) -> yaml.Node:
        import yaml

        reader = self

        class PlainLoader(yaml.SafeLoader):
            """A loader that composes nodes, and refuses all that would make a node mean more than its text."""

            depth = 0

            def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
                event = self.peek_event()  # type: ignore[no-untyped-call]
                if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                    reader.refuse(event, "anchors and aliases are not read", "write the value out")
                if getattr(event, "tag", None) is not None:
                    reader.refuse(event, f"the tag {show_value(event.tag)} is not read", "remove it")
                if self.depth > _NESTING_MAX:
                    reader.refuse(event, "this nests deeper than any schema", "see docs/events.md")
                self.depth += 1
                node = super().compose_node(parent, index)
                self.depth -= 1
                return node

        try:
            node: yaml.Node | None = yaml.compose(text, Loader=PlainLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
            problem = " ".join(f"{error.context or ''} {error.problem or ''}".split())
            raise SchemaError(f"{self.where}{place}: is not YAML: {problem}; see docs/events.md") from None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            place = f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"
            raise SchemaError(f"{self.where}, {place}: holds a character that YAML does not allow; remove it") from None
        except (ValueError, OverflowError):  # from PyYAML: a directive or an escape with an absurd number
            raise SchemaError(f"{self.where}: is not YAML that can be read; see docs/events.md") from None
        if node is None:
            self.refuse(None, "there is nothing in it", "write `attributes:` and below it a name and type a line")
        return node

    def mapping(
        self, node: yaml.Node, what: str, known: tuple[str, ...] | None
    ) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return the keys of a mapping with the nodes of key and value; refuse duplicate and unknown keys."""
        import yaml

        if not isinstance(node, yaml.MappingNode):
            hint = "write `key: value` lines"
            if what == "the schema":
                hint = "write `attributes:` and lines below it, or pass a Path to read a file"
            self.refuse(node, f"{what} is not a mapping", hint)
        found: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value in node.value:
            key = self.text(key_node, "a key")
            if key in found:
                self.refuse(key_node, f"key {show_value(key)} occurs twice", "keep one of them")
            if known is not None and key not in known:
                near = get_close_matches(key[:200], known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known here: {', '.join(known)}"
                self.refuse(key_node, f"unknown key {show_value(key)} in {what}", hint)
            found[key] = (key_node, value)
        return found

    def text(self, node: yaml.Node, what: str) -> str:
        import yaml

        if not isinstance(node, yaml.ScalarNode):
            self.refuse(node, f"{what} is not a plain value", "write one word or number")
        text = node.value
        assert isinstance(text, str)
        return text

    def attribute(self, key: str, key_node: yaml.Node, value: yaml.Node) -> Attribute:
        import yaml

        fields: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        if isinstance(value, yaml.MappingNode):
            fields = self.mapping(value, f"attribute {show_value(key)}", _ATTRIBUTE_KEYS)
            if "type" not in fields:
                self.refuse(key_node, f"attribute {show_value(key)} has no type", f"add `type:`, one of {_TYPES}")
        type_ = self.type(fields["type"][1] if fields else value, key)
        bounds: dict[str, Any] = {}
        for name, field in _BOUNDS.items():
            if name not in fields:
                continue
            node = fields[name][1]
            try:
                bounds[field] = read_bound(type_, field, self.text(node, name))
            except ValueError as error:
                self.refuse(node, f"{name} of attribute {show_value(key)} {error}")
        try:
            return Attribute(key, type_, **bounds)
        except SchemaError as error:
            self.refuse(key_node, str(error).removeprefix("schema: "))

    def type(self, node: yaml.Node, key: str) -> Type:
        text = self.text(node, f"the type of {show_value(key)}")
        try:
            return Type(text)
        except ValueError:
            near = get_close_matches(text[:200], list(Type), n=1)
            meant = _OTHER_NAMES.get(text.lower()) or (near[0] if near else None)
            hint = f"did you mean {meant}?" if meant else f"write one of {_TYPES}"
            problem = f"unknown type {show_value(text)} of" if text else "no type for"
            self.refuse(node, f"{problem} attribute {show_value(key)}", hint)

    def refuse(self, node: Any, problem: str, hint: str | None = None) -> NoReturn:
        line, column = (0, 0) if node is None else (node.start_mark.line, node.start_mark.column)
        place = f"{self.where}, line {line + 1}, column {column + 1}"
        raise SchemaError(f"{place}: {problem}{'' if hint is None else '; ' + hint}")


def write_schema(schema: Schema) -> str:
    """Return the YAML of a schema, one line for each attribute: the inverse of `read_schema`."""
    lines = [] if schema.name is None else [f"name: {_quote(schema.name)}"]
    if not schema.attributes:
        return "\n".join([*lines, "attributes: {}", ""])
    lines.append("attributes:")
    for attribute in schema:
        bounds = [
            f"{key}: {write_bound(bound) if not isinstance(bound, datetime) else _quote(write_bound(bound))}"
            for key, field in _BOUNDS.items()
            if (bound := getattr(attribute, field)) is not None
        ]
        what = f"{{{', '.join([f'type: {attribute.type}', *bounds])}}}" if bounds else str(attribute.type)
        key = _quote(attribute.name)
        lines += [f"  {key}: {what}"] if len(key) <= _KEY_MAX else [f"  ? {key}", f"  : {what}"]
    return "\n".join([*lines, ""])


def _quote(text: str) -> str:
    """Return a text as a YAML scalar on one line, in quotes unless it is plain words."""
    if _PLAIN.fullmatch(text):
        return text
    import yaml

    quoted = yaml.safe_dump(text, default_style='"', allow_unicode=False, width=float("inf"))
    assert isinstance(quoted, str)
    return quoted.removesuffix("\n")


_Path = tuple[str, ...]
_WIDER = {
    frozenset({Type.INTEGER, Type.FLOAT}): Type.FLOAT,
    frozenset({Type.INTEGER, Type.DECIMAL}): Type.DECIMAL,
}


def infer_schema(rows: Iterable[Mapping[str, object]]) -> Schema:
    """Return the narrowest schema that the rows conform to. Errors count rows from 1."""
    columns: dict[_Path, _Column] = {}
    objects: dict[_Path, int] = {}
    for row, attributes in enumerate(rows, 1):
        try:
            clean = clean_attributes(attributes)
        except EventError as error:
            raise EventError(f"row {row}: {error}") from None
        _observe(clean, (), row, columns, objects)
    return Schema(tuple(column.attribute(path) for path, column in columns.items()))


def _observe(
    attributes: Mapping[str, Value], path: _Path, row: int, columns: dict[_Path, _Column], objects: dict[_Path, int]
) -> None:
    for name, value in attributes.items():
        here = (*path, name)
        if value is None:
            continue
        if isinstance(value, Mapping):
            if here in columns:
                raise _mixture(here, columns[here].type, columns[here].row, "object", row)
            objects.setdefault(here, row)
            _observe(value, here, row, columns, objects)
            continue
        type_ = type_of(value)
        assert type_ is not None
        if here in objects:
            raise _mixture(here, "object", objects[here], type_, row)
        column = columns.get(here)
        if column is None:
            column = columns[here] = _Column(type_, row)
        column.observe(value, type_, here, row)


class _Column:
    """The values seen of one attribute so far."""

    def __init__(self, type_: Type, row: int) -> None:
        self.type = type_
        self.row = row
        self.least: Scalar = None
        self.greatest: Scalar = None
        self.unbounded = False
        self.scale = 0
        self.no_float: int | None = None
        """The row of an integer that no float equals."""

    def observe(self, value: Scalar, type_: Type, path: _Path, row: int) -> None:
        if type_ is not self.type:
            wider = _WIDER.get(frozenset({type_, self.type}))
            if wider is None:
                raise _mixture(path, self.type, self.row, type_, row)
            self.type = wider
        if isinstance(value, str | bool):
            return
        if isinstance(value, int) and self.no_float is None and float(value) != value:
            self.no_float = row
        if self.type is Type.FLOAT and self.no_float is not None:
            raise SchemaError(
                f"schema: attribute {show_name(path)} has floats, and in row {self.no_float} an integer that no float "
                "equals; make them all decimals"
            )
        if isinstance(value, float) and not math.isfinite(value):
            self.unbounded = True
            return
        if isinstance(value, Decimal):
            exponent = value.as_tuple().exponent
            assert isinstance(exponent, int)
            self.scale = max(self.scale, -exponent)
        if self.least is None or value < self.least:  # type: ignore[operator]
            self.least = value
        if self.greatest is None or value > self.greatest:  # type: ignore[operator]
            self.greatest = value

    def attribute(self, path: _Path) -> Attribute:
        precision: int | Decimal | None = None
        if self.type is Type.INTEGER:
            precision = 1
        elif self.type is Type.DECIMAL:
            precision = Decimal((0, (1,), -self.scale))
        least = None if self.unbounded else self._bound(self.least)
        greatest = None if self.unbounded else self._bound(self.greatest)
        return Attribute(join_name(path), self.type, least, greatest, precision)

    def _bound(self, value: Scalar) -> Bound | None:
        if self.type is Type.FLOAT and value is not None:
            return Decimal(repr(float(value) + 0.0))  # type: ignore[arg-type]  # + 0.0 makes -0.0 a plain zero
        assert value is None or isinstance(value, int | Decimal | datetime)
        return value


def _mixture(path: _Path, before: str, before_row: int, now: str, row: int) -> SchemaError:
    return SchemaError(
        f"schema: attribute {show_name(path)} is of type {before} in row {before_row} and {now} in row {row}; "
        "convert one of them, or give the schema"
    )
