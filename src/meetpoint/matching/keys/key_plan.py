"""The key plan: which constraint of a conjunction it is filed under, and the keys in use.

A conjunction is filed under the constraint that the fewest events are expected to satisfy. The expectation comes from
statistics of events, else from a schema, else from a guess. A wrong one costs work and misses nothing, since an event's
keys do not depend on it. So a plan may be replaced while conjunctions stay filed as they were.

An event cannot list one sort of key by itself: MISSING, for the attributes it lacks. It has them for the names that the
plan knows, those of its schema and those given to it. `a IS NULL` on any other name, and on its own, is filed under
ALWAYS; beside any other constraint IS NULL never leads to a conjunction at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from meetpoint.language.filters.constraints import Absent, NumberSet, TimestampSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find, split_name
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import kind_of
from meetpoint.matching.keys.meet_keys import (
    ALWAYS,
    CELLS_MAX,
    LADDERS,
    KeyClass,
    KeySort,
    MeetKey,
    Spans,
    candidates,
    canonical_name,
    code_of,
    keys_of_event,
    line_of,
    parts_of,
    place_of,
    shorten,
    walk,
)
from meetpoint.matching.keys.statistics import Statistics, declared_share, guessed_share

__all__ = ["AccessPath", "KeyPlan", "LiveKeys", "Statistics"]

VERSION = 1
"""The version of a plan's bytes and of the meaning of its keys: nodes that differ in it must not share keys."""

_CELLS_WORTH = 0.8
"""The share that cells must stay below, as a part of the share of THERE or of fewer cells."""

_LINES = NumberSet | TimestampSet
_ORDER = {KeySort.VALUE: 0, KeySort.PREFIX: 1, KeySort.SUFFIX: 1, KeySort.GRAM: 2, KeySort.CELL: 3, KeySort.THERE: 4}

# -- the plan ----------------------------------------------------------------------------------------------------------


class AccessPath(msgspec.Struct, frozen=True):
    """The way to file a conjunction: its constraint, the share of events expected there, and the keys."""

    attribute: str
    sort: KeySort
    share: float
    keys: tuple[MeetKey, ...]


class _Stored(msgspec.Struct, frozen=True):
    version: int
    statistics: Statistics | None
    schema: str | None
    names: tuple[str, ...]
    cells_max: int


class KeyPlan:
    """A plan of the keys under which conjunctions are filed. Equal plans decide the same, on any machine.

    `names` are attributes, beside those of the schema, for which an event that lacks them has a MISSING key.
    """

    def __init__(
        self,
        statistics: Statistics | None = None,
        schema: Schema | None = None,
        *,
        names: Iterable[str] = (),
        cells_max: int = CELLS_MAX,
    ) -> None:
        self.statistics = statistics
        self.schema = schema
        self.names = tuple(sorted(set(map(canonical_name, names))))
        self.cells_max = cells_max
        known = (*(schema.names if schema else ()), *self.names)
        self._missing = {MeetKey(KeySort.MISSING, name): split_name(name) for name in known}

    def share(self, keys: Sequence[MeetKey], places: Spans = ()) -> float:
        """Return the share of events expected to have one of some keys, as in Statistics."""
        if self.statistics is not None and self.statistics.rows:
            return self.statistics.share(keys, places)
        declared = None if self.schema is None else self.schema.get(keys[0].attribute)
        return guessed_share(keys, places) if declared is None else declared_share(declared, keys, places)

    def access(self, conjunction: Conjunction) -> AccessPath:
        """Return the way to file a conjunction that the fewest events are expected to take.

        Among equals: values, then prefixes and suffixes, grams, cells, presence; then the longer text, then the name.
        """
        fine = self.statistics is not None or self.schema is not None
        best: tuple[float, int, int, str] | None = None
        chosen: tuple[MeetKey, ...] = (ALWAYS,)
        for name, constraint in sorted(conjunction.constraints, key=lambda pair: isinstance(pair[1], _LINES)):
            if isinstance(constraint, Absent):
                continue
            name = canonical_name(name)
            if best is not None and isinstance(constraint, _LINES):
                kind, _, places = line_of(constraint)
                if places and self.share((MeetKey(KeySort.CELL, name, kind),), places) > best[0]:
                    continue  # no cover is better than the range, and covers cost time
            there: float | None = None
            for keys in candidates(name, constraint, self.cells_max, fine):
                if not keys:
                    return AccessPath(name, KeySort.VALUE, 0.0, ())  # nothing satisfies it
                first, share = keys[0], self.share(keys)
                if first.sort is KeySort.CELL:
                    there = self.share((MeetKey(KeySort.THERE, name, first.kind),)) if there is None else there
                    if share > _CELLS_WORTH * there:
                        continue
                    there = share
                rank = (share, _ORDER[first.sort], -first.size if first.text else 0, name)
                if best is None or rank < best:
                    best, chosen = rank, keys
        if best is None:
            missing = [MeetKey(KeySort.MISSING, canonical_name(name)) for name in conjunction.attributes]
            known = [(self.share((key,)), key) for key in missing if key in self._missing]
            chosen = (min(known)[1],) if known else (ALWAYS,)
        return AccessPath(chosen[0].attribute, chosen[0].sort, self.share(chosen) if best is None else best[0], chosen)

    def keys_of(self, conjunction: Conjunction) -> tuple[MeetKey, ...]:
        """Return the keys under which a conjunction is filed; none if nothing satisfies it."""
        return self.access(conjunction).keys

    def keys_of_filter(self, filter_: Filter) -> tuple[MeetKey, ...]:
        """Return the keys of all conjunctions of a filter, none twice."""
        return tuple(dict.fromkeys(key for conjunction in filter_.conjunctions for key in self.keys_of(conjunction)))

    def keys_of_event(self, attributes: Mapping[str, object]) -> frozenset[MeetKey]:
        """Return all keys that clean attributes could satisfy. Long texts have many grams: see `live`, KeyClasses."""
        return keys_of_event(attributes, self._missing)

    def live(self, keys: Iterable[MeetKey] = ()) -> LiveKeys:
        """Return a set of keys in use, which an event looks up instead of listing all its keys."""
        return LiveKeys(keys)

    def to_bytes(self) -> bytes:
        """Return the plan for another process; equal plans give equal bytes."""
        schema = None if self.schema is None else self.schema.to_yaml()
        return msgspec.msgpack.encode(_Stored(VERSION, self.statistics, schema, self.names, self.cells_max))

    @staticmethod
    def from_bytes(data: bytes) -> KeyPlan:
        """Return the plan of bytes: the inverse of `to_bytes`. ValueError for no plan, or another version."""
        # The version alone first: the other fields of another version may not decode, with an error that says nothing.
        found = msgspec.msgpack.decode(data, type=dict[str, msgspec.Raw]).get("version")
        if found is None or msgspec.msgpack.decode(found) != VERSION:
            raise ValueError(f"this is no key plan of version {VERSION}: make it with the Meetpoint that reads it")
        stored = msgspec.msgpack.decode(data, type=_Stored)
        schema = None if stored.schema is None else Schema.from_yaml(stored.schema)
        return KeyPlan(stored.statistics, schema, names=stored.names, cells_max=stored.cells_max)

    def __reduce__(self) -> tuple[object, ...]:
        return KeyPlan.from_bytes, (self.to_bytes(),)


# -- keys in use -------------------------------------------------------------------------------------------------------


_Tables: TypeAlias = dict[tuple[KeySort, str, int], dict[int | str, MeetKey]]
"""The keys of one attribute: by sort, kind and size, then by their content."""


class LiveKeys:
    """The keys in use, each with a count, which finds those that an event has."""

    __slots__ = ("_counts", "_missing", "_tables")

    def __init__(self, keys: Iterable[MeetKey] = ()) -> None:
        self._counts: dict[MeetKey, int] = {}
        self._tables: dict[str, _Tables] = {}
        self._missing: dict[MeetKey, tuple[str, ...]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: MeetKey) -> None:
        """Count one more use of a key."""
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count:
            tables = self._tables.setdefault(key.attribute, {})
            tables.setdefault((key.sort, key.kind, key.size), {})[key.text or key.number] = key
            if key.sort is KeySort.MISSING:
                self._missing[key] = split_name(key.attribute)

    def discard(self, key: MeetKey) -> None:
        """Count one use of a key less; KeyError if there is none."""
        count = self._counts.pop(key)
        if count > 1:
            self._counts[key] = count - 1
            return
        tables = self._tables[key.attribute]
        table = tables[key.sort, key.kind, key.size]
        self._missing.pop(key, None)
        del table[key.text or key.number]
        if not table:
            del tables[key.sort, key.kind, key.size]
        if not tables:
            del self._tables[key.attribute]

    def __contains__(self, key: MeetKey) -> bool:
        return key in self._counts

    def __iter__(self) -> Iterator[MeetKey]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def classes(self) -> frozenset[KeyClass]:
        """The classes of the keys in use, for programs that make an event's keys elsewhere."""
        return frozenset(
            KeyClass(sort, name, kind, size) for name, tables in self._tables.items() for sort, kind, size in tables
        )

    def keys_of_event(self, attributes: Mapping[str, object]) -> frozenset[MeetKey]:
        """Return the keys in use that clean attributes could satisfy: no others, however long a text is."""
        found = [ALWAYS] if ALWAYS in self._counts else []
        for name, value in walk(attributes):
            if (tables := self._tables.get(name)) is not None:
                found += _found(tables, value)
        found += [key for key, path in self._missing.items() if find(attributes, path) is None]
        return frozenset(found)


def _found(tables: _Tables, value: object) -> Iterator[MeetKey]:
    kind = kind_of(value)
    text = value if isinstance(value, str) else None
    code = 0 if text is not None or kind is None else code_of(value)
    place = place_of(kind, code) if kind in LADDERS else 0
    for (sort, wanted, size), table in tables.items():
        if wanted and wanted != kind:
            continue
        if sort is KeySort.THERE:
            yield from table.values()
        elif text is None:
            if wanted and (key := table.get(place >> size if sort is KeySort.CELL else code)) is not None:
                yield key
        elif sort is KeySort.VALUE:
            if (key := table.get(shorten(text) or 0)) is not None:
                yield key
        elif sort is KeySort.GRAM and len(table) < len(text):
            yield from (key for key in table.values() if key.text in text)
        elif sort is not KeySort.MISSING:
            yield from (key for part in parts_of(sort, size, text) if (key := table.get(part)) is not None)
