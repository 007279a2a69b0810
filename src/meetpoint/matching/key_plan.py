"""Which constraint of a conjunction leads to it: the plan, the statistics behind it, and the keys in use.

A conjunction is filed under the constraint that the fewest events are expected to satisfy. What is expected comes from
a sample of events, else from a schema, else from a guess; where it is wrong the work grows and nothing is missed, since
an event's keys do not depend on it. So a plan may be replaced while conjunctions stay filed as they were.

One sort of key an event cannot list by itself: MISSING, for the attributes it lacks. It has them for the names that
the plan knows, those of its schema and those given to it. `a IS NULL` on any other name, and on its own, is filed
under ALWAYS; beside any other constraint IS NULL never leads to a conjunction at all.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

import msgspec

from meetpoint.language.attribute import Attribute
from meetpoint.language.constraints import Absent, NumberSet, TimestampSet
from meetpoint.language.filters import Filter
from meetpoint.language.names import find, split_name
from meetpoint.language.normal import Conjunction
from meetpoint.language.schema import Schema
from meetpoint.language.values import Kind, Type, clean_attributes, kind_of
from meetpoint.matching.keys import (
    ALWAYS,
    CELLS_MAX,
    LADDERS,
    PARTS,
    PREFIX_MAX,
    KeyClass,
    KeySort,
    MeetKey,
    Spans,
    candidates,
    canonical_name,
    code_of,
    double_of,
    edge_of,
    joined,
    keys_of_event,
    line_of,
    parts_of,
    place_of,
    shorten,
    walk,
)

__all__ = ["Access", "KeyPlan", "LiveKeys", "Statistics"]

VERSION = 1
"""Of a plan's bytes, and of what its keys mean: nodes that differ in it must not share keys."""
ROWS_MAX = 4096
"""Events that statistics are made from; of more, a fair sample is kept."""
ATTRIBUTES_MAX = 1024
"""Attributes that statistics hold: those most often there."""

_COMMON_MAX = 256  # values of an attribute counted one by one
_PARTS_MAX = 2048  # prefixes, suffixes or grams of an attribute counted one by one
_QUANTILES = 1024
_CHARACTERS_MAX = 50_000  # of an attribute's texts, whose parts are counted
_CELLS_WORTH = 0.8
"""Cells must hold a smaller part than this of what is found without them: by THERE, one key, or by fewer cells."""

_T = TypeVar("_T", int, str)
_LINES = NumberSet | TimestampSet
_ORDER = {KeySort.VALUE: 0, KeySort.PREFIX: 1, KeySort.SUFFIX: 1, KeySort.GRAM: 2, KeySort.CELL: 3, KeySort.THERE: 4}

# -- statistics --------------------------------------------------------------------------------------------------------


class Frequencies(msgspec.Struct, Generic[_T], frozen=True):
    """The shares of events that have common things, and the share to expect of any other thing."""

    common: dict[_T, float]
    other: float

    @staticmethod
    def of(counts: Counter[_T], rows: float, common_max: int) -> Frequencies[_T]:
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        rest = [count for _, count in ordered[common_max:]]
        other = sum(rest) / len(rest) if rest else 0.5  # never seen is rare, not impossible
        return Frequencies({thing: count / rows for thing, count in ordered[:common_max]}, other / rows)

    def share(self, thing: _T) -> float:
        return self.common.get(thing, self.other)


class LineStatistics(msgspec.Struct, frozen=True):
    """Of values of one kind that have codes: how common some are, and where some of them lie, in order."""

    values: Frequencies[int]
    places: tuple[int, ...]


class TextStatistics(msgspec.Struct, frozen=True):
    """Of strings: how common some are, and their prefixes, suffixes and grams."""

    values: Frequencies[str]
    parts: dict[KeySort, Frequencies[str]]


class AttributeStatistics(msgspec.Struct, frozen=True):
    """Of one attribute: the share of events that have it, and have it of a kind, and what those hold."""

    there: float
    kinds: dict[Kind, float]
    lines: dict[Kind, LineStatistics]
    text: TextStatistics | None

    def share(self, keys: Sequence[MeetKey], places: Spans = ()) -> float:
        """The share of events with one of some keys, as in Statistics; 0 for what was never seen."""
        first = keys[0]
        sort, kind = first.sort, first.kind
        if sort is KeySort.THERE:
            return self.kinds.get(Kind(kind), 0.0) if kind else self.there
        if sort is KeySort.MISSING:
            return 1.0 - self.there
        if sort in PARTS or kind == Kind.STRING:
            if self.text is None:
                return 0.0
            found = self.text.values if sort is KeySort.VALUE else self.text.parts[sort]
            return min(sum([found.share(key.text) for key in keys]), self.kinds[Kind.STRING])
        line = self.lines.get(Kind(kind))
        if line is None:
            return 0.0
        if sort is KeySort.VALUE:
            return min(sum([line.values.share(key.number) for key in keys]), self.kinds[Kind(kind)])
        hits = 0
        for low, high in places or _places(keys):
            hits += bisect_right(line.places, high) - bisect_left(line.places, low)
        return max(hits, 0.5) / len(line.places) * self.kinds[Kind(kind)]


class Statistics(msgspec.Struct, frozen=True):
    """What a sample of events says about how many events have a key."""

    rows: int
    attributes: dict[str, AttributeStatistics]

    @staticmethod
    def of_events(rows: Iterable[Mapping[str, object]], *, rows_max: int = ROWS_MAX) -> Statistics:
        """From events' attributes; from a fair sample where they are many. The same rows give the same statistics."""
        sample: list[Mapping[str, object]] = []
        chance = random.Random(0)
        for number, row in enumerate(rows):
            if number < rows_max:
                sample.append(row)
            elif (place := chance.randrange(number + 1)) < rows_max:
                sample[place] = row
        held: dict[str, list[object]] = {}
        for row in sample:
            for name, value in walk(clean_attributes(row)):
                held.setdefault(name, []).append(value)
        kept = sorted(held, key=lambda name: (-len(held[name]), name))[:ATTRIBUTES_MAX]
        return Statistics(len(sample), {name: _attribute_statistics(held[name], len(sample)) for name in sorted(kept)})

    def share(self, keys: Sequence[MeetKey], places: Spans = ()) -> float:
        """The share of events expected to have one of some disjoint keys of one sort on one attribute.

        Instead of all cells, one may come with the places in question.
        """
        least = 0.5 / max(self.rows, 1)
        held = self.attributes.get(keys[0].attribute)
        if held is None:
            return 1.0 if keys[0].sort in (KeySort.MISSING, KeySort.ALWAYS) else least * _guess(keys, places)
        return held.share(keys, places) or least * _guess(keys, places)


def _attribute_statistics(values: list[object], rows: int) -> AttributeStatistics:
    kinds = Counter(kind for value in values if (kind := kind_of(value)) is not None)
    texts = [value for value in values if isinstance(value, str)]
    lines = {kind: sorted(code_of(v) for v in values if kind_of(v) is kind) for kind in kinds if kind != Kind.STRING}
    return AttributeStatistics(
        there=len(values) / rows,
        kinds={kind: kinds[kind] / rows for kind in sorted(kinds)},
        lines={kind: _line_statistics(kind, lines[kind], rows) for kind in sorted(lines)},
        text=_text_statistics(texts, rows) if texts else None,
    )


def _line_statistics(kind: Kind, codes: list[int], rows: int) -> LineStatistics:
    count = min(len(codes), _QUANTILES) if kind in LADDERS else 0
    places = tuple(place_of(kind, codes[at * len(codes) // count]) for at in range(count))
    return LineStatistics(Frequencies.of(Counter(codes), rows, _COMMON_MAX), places)


def _text_statistics(texts: list[str], rows: int) -> TextStatistics:
    counts: dict[KeySort, Counter[str]] = {sort: Counter() for sort in PARTS}
    seen = characters = 0
    for text in texts:
        if characters > _CHARACTERS_MAX:
            break
        seen += 1
        read = text[:_CHARACTERS_MAX]
        characters += len(read)
        for sort, counted in counts.items():
            for size in range(1, PREFIX_MAX + 1):
                counted.update(parts_of(sort, size, read))
    scaled = rows * seen / len(texts)  # as if only so many events had been seen
    return TextStatistics(
        Frequencies.of(Counter(map(shorten, texts)), rows, _COMMON_MAX),
        {sort: Frequencies.of(counted, scaled, _PARTS_MAX) for sort, counted in counts.items()},
    )


# -- estimates without a sample ----------------------------------------------------------------------------------------

_LENGTH_GUESS = {KeySort.PREFIX: (0.15, 0.05, 0.02), KeySort.SUFFIX: (0.15, 0.05, 0.02), KeySort.GRAM: (0.3, 0.1, 0.03)}
_SORT_GUESS = {KeySort.ALWAYS: 1.0, KeySort.MISSING: 0.1, KeySort.THERE: 0.9}
_THERE_GUESS = _SORT_GUESS[KeySort.THERE]
_VALUE_GUESS, _CELL_LEAST, _DECLARED_LEAST = 0.01, 0.02, 0.001
_YEAR = 31_556_952_000_000

# How numbers and instants may lie where nothing is known: the share of values before each, and evenly between.
_SPREAD: dict[str, list[tuple[int, float]]] = {
    Kind.NUMBER: [
        (place_of(Kind.NUMBER, code_of(number)), before)
        for number, before in {-1e20: 0.0, -1e7: 0.01, -0.01: 0.08, 0.0: 0.1, 0.01: 0.2, 1e7: 0.97, 1e20: 1.0}.items()
    ],
    Kind.TIMESTAMP: [
        ((year - 1970) * _YEAR, before)
        for year, before in {1827: 0.0, 1970: 0.02, 2000: 0.1, 2020: 0.4, 2040: 0.97, 2112: 1.0}.items()
    ],
}


def _places(cells: Sequence[MeetKey]) -> Spans:
    return joined([cell.span for cell in cells], near=1)


def _guess(keys: Sequence[MeetKey], places: Spans = ()) -> float:
    first = keys[0]
    match first.sort:
        case KeySort.VALUE:
            one = _THERE_GUESS / 2 if first.kind == Kind.BOOLEAN else _VALUE_GUESS
            return min(one * len(keys), _THERE_GUESS)
        case KeySort.CELL:
            spread = _SPREAD[first.kind]
            runs = places or _places(keys)
            share = sum([_before(spread, high + 1) - _before(spread, low) for low, high in runs])
            return max(share * _THERE_GUESS, _CELL_LEAST)
        case KeySort.PREFIX | KeySort.SUFFIX | KeySort.GRAM:
            return min(sum(_LENGTH_GUESS[first.sort][key.size - 1] for key in keys), _THERE_GUESS)
    return _SORT_GUESS[first.sort]


def _before(spread: Sequence[tuple[int, float]], place: int) -> float:
    """The share of values before a place."""
    at = bisect_left(spread, place, key=lambda point: point[0])
    if at == 0 or at == len(spread):
        return 1.0 if at else 0.0
    (low, below), (high, above) = spread[at - 1 : at + 1]
    return below + (above - below) * ((place - low) / (high - low))


def _declared(attribute: Attribute, keys: Sequence[MeetKey], places: Spans) -> float:
    """By an attribute's type and bounds, its values taken as even between them."""
    first = keys[0]
    kind = attribute.type.kind
    if first.sort in (KeySort.THERE, KeySort.MISSING) and not first.kind:
        return _guess(keys, places)
    if (first.kind or Kind.STRING) != kind:
        return 0.0  # no event that conforms has a value of another kind
    least, most = attribute.minimum, attribute.maximum
    if first.sort not in (KeySort.VALUE, KeySort.CELL) or least is None or most is None:
        return _guess(keys, places)
    low, high = _on_line(kind, code_of(least)), _on_line(kind, code_of(most))
    if not math.isfinite(high - low):
        return _guess(keys, places)
    if first.sort is KeySort.VALUE:
        step = float(attribute.precision or (attribute.type is Type.INTEGER))
        within = sum(low <= _on_line(kind, key.number) <= high for key in keys)
        one = 1 / ((high - low) / step + 1) if step else _VALUE_GUESS / 2
        return min(within * max(one, _DECLARED_LEAST), 1.0) * _THERE_GUESS
    covered = 0.0
    for begin, end in places or _places(keys):
        covered += max(min(edge_of(kind, end + 1), high) - max(edge_of(kind, begin), low), 0.0)
    return max(covered / (high - low) if high > low else 1.0, 2 * _DECLARED_LEAST) * _THERE_GUESS


def _on_line(kind: Kind, code: int) -> float:
    return float(code) if kind is Kind.TIMESTAMP else double_of(code)


# -- the plan ----------------------------------------------------------------------------------------------------------


class Access(msgspec.Struct, frozen=True):
    """How a conjunction is filed: under which constraint, the share of events expected there, and its keys."""

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
    """Decides under which keys conjunctions are filed. Plans with the same contents decide the same, anywhere.

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
        """The share of events expected to have one of some keys, as in Statistics."""
        if self.statistics is not None and self.statistics.rows:
            return self.statistics.share(keys, places)
        declared = None if self.schema is None else self.schema.get(keys[0].attribute)
        return _guess(keys, places) if declared is None else _declared(declared, keys, places)

    def access(self, conjunction: Conjunction) -> Access:
        """The way to file a conjunction that the fewest events are expected to take.

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
                    return Access(name, KeySort.VALUE, 0.0, ())  # nothing satisfies it
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
        return Access(chosen[0].attribute, chosen[0].sort, self.share(chosen) if best is None else best[0], chosen)

    def keys_of(self, conjunction: Conjunction) -> tuple[MeetKey, ...]:
        """The keys under which a conjunction is filed; none where nothing satisfies it."""
        return self.access(conjunction).keys

    def keys_of_filter(self, filter_: Filter) -> tuple[MeetKey, ...]:
        """The keys of all conjunctions of a filter, none twice."""
        return tuple(dict.fromkeys(key for conjunction in filter_.conjunctions for key in self.keys_of(conjunction)))

    def keys_of_event(self, attributes: Mapping[str, object]) -> frozenset[MeetKey]:
        """All keys that clean attributes could satisfy. A long text has many grams: see `live` and KeyClasses."""
        return keys_of_event(attributes, self._missing)

    def live(self, keys: Iterable[MeetKey] = ()) -> LiveKeys:
        """The keys in use, to be asked instead of all that an event could have."""
        return LiveKeys(keys)

    def to_bytes(self) -> bytes:
        """The plan for another process; equal plans give equal bytes."""
        schema = None if self.schema is None else self.schema.to_yaml()
        return msgspec.msgpack.encode(_Stored(VERSION, self.statistics, schema, self.names, self.cells_max))

    @staticmethod
    def from_bytes(data: bytes) -> KeyPlan:
        """The inverse of `to_bytes`; ValueError where the bytes are no plan, or one of another version."""
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
"""Of one attribute: by sort, kind and size, the keys by what they hold."""


class LiveKeys:
    """The keys that something is filed under, each counted, and which of them an event has."""

    __slots__ = ("_counts", "_missing", "_tables")

    def __init__(self, keys: Iterable[MeetKey] = ()) -> None:
        self._counts: dict[MeetKey, int] = {}
        self._tables: dict[str, _Tables] = {}
        self._missing: dict[MeetKey, tuple[str, ...]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: MeetKey) -> None:
        """One more use of a key."""
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if not count:
            tables = self._tables.setdefault(key.attribute, {})
            tables.setdefault((key.sort, key.kind, key.size), {})[key.text or key.number] = key
            if key.sort is KeySort.MISSING:
                self._missing[key] = split_name(key.attribute)

    def discard(self, key: MeetKey) -> None:
        """One use of a key less; KeyError where there is none."""
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
        """What is in use, in brief: for whoever makes an event's keys elsewhere."""
        return frozenset(
            KeyClass(sort, name, kind, size) for name, tables in self._tables.items() for sort, kind, size in tables
        )

    def keys_of_event(self, attributes: Mapping[str, object]) -> frozenset[MeetKey]:
        """The keys in use that clean attributes could satisfy: no others, however long a text is."""
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
