"""Statistics: the share of events that have a key, by a sample or counts of events, by a schema, or by a guess.

A plan decides by shares of events alone. A wrong share costs work and misses nothing.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from meetpoint.language.schema.schema import Attribute
from meetpoint.language.values import Kind, Type, clean_attributes, kind_of
from meetpoint.matching.keys.meet_keys import (
    LADDERS,
    PARTS,
    PREFIX_MAX,
    KeySort,
    MeetKey,
    Spans,
    code_of,
    double_of,
    edge_of,
    joined,
    parts_of,
    place_of,
    shorten,
    walk,
)

__all__ = [
    "AttributeStatistics",
    "Frequencies",
    "LineStatistics",
    "Statistics",
    "TextStatistics",
    "declared_share",
    "guessed_share",
    "text_statistics",
]

ROWS_MAX = 4096
"""Events of a sample from which statistics are made; of more, a fair sample is kept."""
ATTRIBUTES_MAX = 1024
"""Attributes that statistics hold: the most frequent ones."""
COMMON_MAX = 256
"""Values of an attribute counted one by one."""
PARTS_MAX = 2048
"""Prefixes, suffixes or grams of an attribute counted one by one."""
QUANTILES = 1024
"""Places of an attribute's values that are kept, evenly spread among them."""

_CHARACTERS_MAX = 50_000  # of an attribute's texts, whose parts are counted

_T = TypeVar("_T", int, str)

# -- statistics --------------------------------------------------------------------------------------------------------


class Frequencies(msgspec.Struct, Generic[_T], frozen=True):
    """The shares of events that have common things, and the share to expect of any other thing."""

    common: dict[_T, float]
    other: float

    @staticmethod
    def of(counts: Counter[_T], rows: float, common_max: int) -> Frequencies[_T]:
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        rest = [count for _, count in ordered[common_max:]]
        return Frequencies.of_common(dict(ordered[:common_max]), rows, sum(rest), len(rest))

    @staticmethod
    def of_common(common: Mapping[_T, int], rows: float, rest: int, others: int) -> Frequencies[_T]:
        """Return frequencies from the counts of common things; of `others` only their sum, the `rest`, is known."""
        other = rest / others if rest > 0 and others > 0 else 0.5  # never seen is rare, not impossible
        return Frequencies({thing: count / rows for thing, count in common.items()}, other / rows)

    def share(self, thing: _T) -> float:
        return self.common.get(thing, self.other)


class LineStatistics(msgspec.Struct, frozen=True):
    """Statistics of values of one kind that have codes: frequencies of some, and the places of some, in order."""

    values: Frequencies[int]
    places: tuple[int, ...]


class TextStatistics(msgspec.Struct, frozen=True):
    """Statistics of strings: frequencies of some, and of their prefixes, suffixes and grams."""

    values: Frequencies[str]
    parts: dict[KeySort, Frequencies[str]]


class AttributeStatistics(msgspec.Struct, frozen=True):
    """Statistics of one attribute: the share of events that have it, by kind, and statistics of its values."""

    there: float
    kinds: dict[Kind, float]
    lines: dict[Kind, LineStatistics]
    text: TextStatistics | None

    @staticmethod
    def of_object(there: float) -> AttributeStatistics:
        """Return statistics of an attribute that holds values of no kind, or none at all."""
        return AttributeStatistics(there, {}, {}, None)

    @staticmethod
    def of_line(there: float, kind: Kind, values: Frequencies[int], codes: Iterable[int]) -> AttributeStatistics:
        """Return statistics of values of one kind that have codes.

        `codes` are in order, at least one, and each stands for equally many events.
        """
        places = tuple(place_of(kind, code) for code in codes) if kind in LADDERS else ()
        return AttributeStatistics(there, {kind: there}, {kind: LineStatistics(values, places)}, None)

    @staticmethod
    def of_text(
        there: float, values: Frequencies[str], parts: Mapping[KeySort, Frequencies[str]]
    ) -> AttributeStatistics:
        """Return statistics of strings."""
        return AttributeStatistics(there, {Kind.STRING: there}, {}, TextStatistics(values, dict(parts)))

    def share(self, keys: Sequence[MeetKey], places: Spans = ()) -> float:
        """Return the share of events with one of some keys, as in Statistics; 0 for a key never seen."""
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
    """Statistics of a sample of events: how many events have a key."""

    rows: int
    attributes: dict[str, AttributeStatistics]

    @staticmethod
    def of_events(rows: Iterable[Mapping[str, object]], *, rows_max: int = ROWS_MAX) -> Statistics:
        """Return statistics of events' attributes, or of a fair sample of many; equal rows give equal statistics."""
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
        """Return the share of events expected to have one of some disjoint keys of one sort on one attribute.

        One cell may stand for all of them if `places` are given.
        """
        least = 0.5 / max(self.rows, 1)
        held = self.attributes.get(keys[0].attribute)
        if held is None:
            return 1.0 if keys[0].sort in (KeySort.MISSING, KeySort.ALWAYS) else least * guessed_share(keys, places)
        return held.share(keys, places) or least * guessed_share(keys, places)


def _attribute_statistics(values: list[object], rows: int) -> AttributeStatistics:
    kinds = Counter(kind for value in values if (kind := kind_of(value)) is not None)
    texts = [value for value in values if isinstance(value, str)]
    lines = {kind: sorted(code_of(v) for v in values if kind_of(v) is kind) for kind in kinds if kind != Kind.STRING}
    return AttributeStatistics(
        there=len(values) / rows,
        kinds={kind: kinds[kind] / rows for kind in sorted(kinds)},
        lines={kind: _line_statistics(kind, lines[kind], rows) for kind in sorted(lines)},
        text=text_statistics(texts, rows) if texts else None,
    )


def _line_statistics(kind: Kind, codes: list[int], rows: int) -> LineStatistics:
    count = min(len(codes), QUANTILES) if kind in LADDERS else 0
    places = tuple(place_of(kind, codes[at * len(codes) // count]) for at in range(count))
    return LineStatistics(Frequencies.of(Counter(codes), rows, COMMON_MAX), places)


def text_statistics(texts: list[str], rows: int) -> TextStatistics:
    """Return statistics of strings, held by some of so many events; parts of enough characters are counted."""
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
        Frequencies.of(Counter(map(shorten, texts)), rows, COMMON_MAX),
        {sort: Frequencies.of(counted, scaled, PARTS_MAX) for sort, counted in counts.items()},
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


def guessed_share(keys: Sequence[MeetKey], places: Spans = ()) -> float:
    """Return a share by the keys alone."""
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
    """Return the share of values before a place."""
    at = bisect_left(spread, place, key=lambda point: point[0])
    if at == 0 or at == len(spread):
        return 1.0 if at else 0.0
    (low, below), (high, above) = spread[at - 1 : at + 1]
    return below + (above - below) * ((place - low) / (high - low))


def declared_share(attribute: Attribute, keys: Sequence[MeetKey], places: Spans) -> float:
    """Return a share by an attribute's type and bounds, as if its values were even between them."""
    first = keys[0]
    kind = attribute.type.kind
    if first.sort in (KeySort.THERE, KeySort.MISSING) and not first.kind:
        return guessed_share(keys, places)
    if (first.kind or Kind.STRING) != kind:
        return 0.0  # no event that conforms has a value of another kind
    least, most = attribute.minimum, attribute.maximum
    if first.sort not in (KeySort.VALUE, KeySort.CELL) or least is None or most is None:
        return guessed_share(keys, places)
    low, high = _on_line(kind, code_of(least)), _on_line(kind, code_of(most))
    if not math.isfinite(high - low):
        return guessed_share(keys, places)
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
