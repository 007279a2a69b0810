"""Attribute names.

An attribute of a nested event is addressed by a path of segments. Its one canonical spelling is the segments joined by
dots, a segment in backticks (a backtick in it doubled) where it is not a plain word: `order.price`, `` `a.b`.c ``. That
spelling is what schemas, normal forms and statistics use as a key, and it is what a filter's text may say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

__all__ = ["NAME_LENGTH_MAX", "RESERVED", "TENANT", "find", "join_name", "show_name", "split_name"]

RESERVED = frozenset({"AND", "BETWEEN", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})
"""Words that a filter's text may use as an attribute name only within backticks."""

NAME_LENGTH_MAX = 1_000
"""Characters of a name in a filter: names are remembered, and whoever writes filters chooses how long they are."""

TENANT = "$tenant"
"""The attribute by which brokers keep events of tenants apart. They add it, so that no schema need declare it."""

_SHOWN_MAX = 120
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SEGMENT = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")


def quote_segment(segment: str) -> str:
    """One segment as it stands in a canonical name."""
    if _PLAIN.fullmatch(segment) and segment.upper() not in RESERVED:
        return segment
    return "`" + segment.replace("`", "``") + "`"


def join_name(segments: Sequence[str]) -> str:
    """The canonical name of a path: `("order", "price")` is `order.price`."""
    return ".".join(map(quote_segment, segments))


def show_name(segments: Sequence[str]) -> str:
    """A canonical name as an error's text shows it: on one line, and not longer than a line."""
    name = join_name(segments)
    if len(name) > _SHOWN_MAX:
        name = name[:_SHOWN_MAX] + "…"
    return name if name.isprintable() else repr(name)[1:-1]


@lru_cache(maxsize=4096)
def split_name(name: str) -> tuple[str, ...]:
    """The path of a canonical name; the inverse of `join_name`. Also reads unquoted odd segments (`größe.x`)."""
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
    """The value at a path; None where any part of the path is missing, since a missing attribute is NULL."""
    value: object = attributes
    for segment in path:
        if type(value) is not dict and not isinstance(value, Mapping):
            return None
        value = value.get(segment)
    return value
