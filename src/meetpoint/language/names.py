"""Attribute names: their canonical spelling, and the values that they lead to.

An attribute of a nested event has a path of segments. Its canonical name is the segments joined by dots; a segment that
is not a plain word stands in backticks, and a backtick in it is doubled: `order.price`, `` `a.b`.c ``. Schemas, normal
forms and statistics use canonical names as keys, and filters may use them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["NAME_LENGTH_MAX", "RESERVED", "TENANT", "find", "join_name", "show_name", "split_name"]

RESERVED = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})
"""Words that a filter's text may use as an attribute name only within backticks."""

NAME_LENGTH_MAX = 1_000
"""Characters of a name in a filter. Names are cached, and strangers choose how long they are."""

TENANT = "$tenant"
"""The attribute by which brokers keep the events of tenants apart. Brokers add it, so no schema declares it."""

_SHOWN_MAX = 120
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SEGMENT = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def quote_segment(segment: str) -> str:
    """Return a segment as it stands in a canonical name."""
    if _PLAIN.fullmatch(segment) and segment.upper() not in RESERVED:
        return segment
    return "`" + segment.replace("`", "``") + "`"


def join_name(segments: Sequence[str]) -> str:
    """Return the canonical name of a path: `("order", "price")` is `order.price`."""
    return ".".join(map(quote_segment, segments))


def show_name(segments: Sequence[str]) -> str:
    """Return a canonical name as an error's text shows it: on one line, and not longer than a line."""
    name = join_name(segments)
    if len(name) > _SHOWN_MAX:
        name = name[:_SHOWN_MAX] + "…"
    return name if name.isprintable() else repr(name)[1:-1]


@lru_cache(maxsize=4096)
def split_name(name: str) -> tuple[str, ...]:
    """Return the path of a canonical name: the inverse of `join_name`. Also reads odd unquoted segments (`größe.x`)."""
    segments: list[str] = []
    at = 0
    while True:
        match = _SEGMENT.match(name, at)
        if match is None:
            raise ValueError(f"{name!r} is not an attribute name: expected a name at offset {at}")
        segments.append(match[1].replace("``", "`") if match[1] is not None else match[2])
        at = match.end()
        if at == len(name):
            return tuple(segments)
        if name[at] != ".":
            raise ValueError(f"{name!r} is not an attribute name: expected a dot at offset {at}")
        at += 1


def find(attributes: Mapping[str, object], path: tuple[str, ...]) -> object:
    """Return the value at a path; None if a part of the path is missing, since a missing attribute is NULL."""
    value: object = attributes
    for segment in path:
        if type(value) is not dict and not isinstance(value, Mapping):
            return None
        value = value.get(segment)
    return value
