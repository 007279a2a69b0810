"""Filters of the CloudEvents Subscriptions API, translated into texts of the filter language.

`exact`, `prefix` and `suffix` test attributes; `all`, `any` and `not` combine; `sql` is a text of the filter language.
In those dialects a missing attribute simply does not match, so `not` of it does, while in SQL it is NULL and so is its
NOT. Therefore `not` is pushed down to the attributes and says there what it means: another value, a value of another
kind, or none. An integer or a boolean is compared by how it is written, as the specification says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from meetpoint.errors import FilterError
from meetpoint.gateway.http.errors import ApiError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.names import join_name, split_name
from meetpoint.language.schema.schema import Schema
from meetpoint.language.syntax.render import literal_text
from meetpoint.language.values import Kind

__all__ = ["FilterDialect", "filter_text"]

NESTING_MAX: Final = 16
_TEXTS: Final = ("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema")
"""Attributes of CloudEvents that are always texts."""
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,37}", re.ASCII)
_OF_EVERY_KIND: Final = {
    Kind.NUMBER: "{name} < 0 OR {name} >= 0",
    Kind.BOOLEAN: "{name} = TRUE OR {name} = FALSE",
    Kind.TIMESTAMP: "{name} >= TIMESTAMP '0001-01-01'",
}

Named = Annotated[dict[Annotated[str, Meta(min_length=1)], Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]


class FilterDialect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A filter: exactly one of these."""

    exact: Annotated[Named, Meta(description="Attributes that have these values")] | None = None
    prefix: Annotated[Named, Meta(description="Attributes that begin so")] | None = None
    suffix: Annotated[Named, Meta(description="Attributes that end so")] | None = None
    all: Annotated[list[FilterDialect], Meta(min_length=1, description="All of these accept")] | None = None
    any: Annotated[list[FilterDialect], Meta(min_length=1, description="One of these accepts")] | None = None
    not_: Annotated[FilterDialect, Meta(description="This does not accept")] | None = msgspec.field(
        default=None, name="not"
    )
    sql: Annotated[str, Meta(min_length=1, description="A filter in Meetpoint's language")] | None = None


def filter_text(
    filters: Sequence[FilterDialect], types: Sequence[str] | None, source: str | None, schema: Schema | None
) -> str:
    """Return filters, types and a source as one text; raise FilterError or ApiError where that is no filter."""
    writer = _FilterWriter(schema)
    parts = [writer.write(each, False, 0) for each in filters]
    if types:
        parts.append(f"type IN ({', '.join(map(literal_text, types))})")
    if source is not None:
        parts.append(f"source = {literal_text(source)}")
    text = _joined(parts, "AND") if parts else "TRUE"
    parse_filter(text, schema)
    return text


class _FilterWriter:
    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema

    def write(self, dialect: FilterDialect, is_negated: bool, depth: int) -> str:
        """Return a filter as text, negated on demand."""
        if depth > NESTING_MAX:
            raise ApiError(422, "filter", f"filters nest deeper than {NESTING_MAX}; flatten them")
        given = [name for name in dialect.__struct_fields__ if getattr(dialect, name) is not None]
        if len(given) != 1:
            names = "exact, prefix, suffix, all, any, not, sql"
            raise ApiError(422, "filter", f"a filter has one of {names}; this one has {len(given)} of them")
        both = ("OR", "AND") if is_negated else ("AND", "OR")
        if dialect.exact is not None:
            return self._named(dialect.exact, _equal, is_negated, both[0])
        if dialect.prefix is not None:
            return self._named(dialect.prefix, _beginning, is_negated, both[0])
        if dialect.suffix is not None:
            return self._named(dialect.suffix, _ending, is_negated, both[0])
        if dialect.all is not None:
            return _joined([self.write(each, is_negated, depth + 1) for each in dialect.all], both[0])
        if dialect.any is not None:
            return _joined([self.write(each, is_negated, depth + 1) for each in dialect.any], both[1])
        if dialect.not_ is not None:
            return self.write(dialect.not_, not is_negated, depth + 1)
        assert dialect.sql is not None
        return self._sql(dialect.sql, is_negated)

    def _named(
        self, pairs: Mapping[str, str], say: Callable[[str, str], dict[Kind, str]], is_negated: bool, how: str
    ) -> str:
        return _joined([self._one(name, value, say, is_negated) for name, value in pairs.items()], how)

    def _one(self, name: str, value: str, say: Callable[[str, str], dict[Kind, str]], is_negated: bool) -> str:
        try:
            written = join_name(split_name(name))
        except ValueError as error:
            raise ApiError(422, "filter", f"attribute {name[:60]!r}: {error}") from None
        kinds = self._kinds(written)
        predicates = {kind: text for kind, text in say(written, value).items() if kind in kinds}
        if not is_negated:
            return _joined(predicates.values(), "OR") if predicates else "FALSE"
        parts = [f"{written} IS NULL"]
        for kind in kinds:
            opposite = f"NOT ({predicates[kind]})" if kind in predicates else _OF_EVERY_KIND[kind].format(name=written)
            parts.append(opposite)
        return _joined(parts, "OR")

    def _kinds(self, name: str) -> tuple[Kind, ...]:
        declared = None if self._schema is None else self._schema.get(name)
        if declared is not None:
            return (declared.type.kind,)
        return (Kind.STRING,) if name in _TEXTS else (Kind.STRING, Kind.NUMBER, Kind.BOOLEAN)

    def _sql(self, text: str, is_negated: bool) -> str:
        try:
            parse_filter(text, self._schema)
        except FilterError as error:
            hint = "of CESQL, what is in Meetpoint's own language is understood (EXISTS a is written a IS NOT NULL)"
            raise ApiError(422, "filter", f"sql: {error}; {hint}", error.start) from None
        return f"NOT ({text})" if is_negated else text


def _equal(name: str, value: str) -> dict[Kind, str]:
    found = {Kind.STRING: f"{name} = {literal_text(value)}"}
    if _INTEGER.fullmatch(value):
        found[Kind.NUMBER] = f"{name} = {value}"
    if value in ("true", "false"):
        found[Kind.BOOLEAN] = f"{name} = {value.upper()}"
    return found


def _beginning(name: str, value: str) -> dict[Kind, str]:
    return {Kind.STRING: f"startswith({name}, {literal_text(value)})"}


def _ending(name: str, value: str) -> dict[Kind, str]:
    return {Kind.STRING: f"endswith({name}, {literal_text(value)})"}


def _joined(parts: Iterable[str], how: str) -> str:
    listed = list(parts)
    return listed[0] if len(listed) == 1 else f" {how} ".join(f"({part})" for part in listed)
