"""Lint: the filters of a set that are refused, duplicate, covered, never or always true, or outside the schema.

Filters of different subscribers are never compared with each other. Within one subscriber a filter is compared only
with those that could cover it: each alternative of a filter is entered in an index under one *anchor*, a key that every
filter it covers can name too (a value, a prefix, a suffix, a cell of the number line). So a million filters take about
a minute and not a million million comparisons. The comparisons of one filter are bounded, and so is the time for
strangers' filters; `LintReport.cut_short` counts the filters that ran into a bound.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from time import monotonic
from typing import Any, TypeAlias

import msgspec

from meetpoint.errors import FilterError
from meetpoint.language.filters.algebra import covers
from meetpoint.language.filters.constraints import BooleanSet, Constraint, NumberSet, TextSet, TimestampSet
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.filters.intervals import Interval as _Interval
from meetpoint.language.filters.intervals import Intervals, intersect
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.filters.papers import grid_count
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.syntax.render import literal_text, render_constraint
from meetpoint.language.timestamps import EPOCH

__all__ = ["LintFinding", "LintItem", "LintReport", "Oddity", "lint"]

CANDIDATES_MAX = 200
"""Filters with which one filter is compared."""
POINTS_MAX = 16
"""Values of an alternative that are entered one by one; a longer list is entered under its attribute."""
AFFIX_MAX = 64
"""Characters of a prefix or suffix that serve as a key."""

Id: TypeAlias = Hashable


class Oddity(StrEnum):
    """A sort of finding, from worst to mildest."""

    REFUSED = "refused"
    OUTSIDE = "outside"
    NEVER = "never"
    ALWAYS = "always"
    DUPLICATE = "duplicate"
    COVERED = "covered"


class LintItem(msgspec.Struct, frozen=True):
    """A filter's text under an id, of a subscriber."""

    id: Id
    filter: str
    subscriber: Id = None


class LintFinding(msgspec.Struct, frozen=True):
    """An odd filter; `other` is the filter that it repeats or that covers it."""

    oddity: Oddity
    id: Id
    message: str
    other: Id = None


class LintReport(msgspec.Struct):
    """All findings in the order of the filters, and how thorough the search for covering filters was."""

    filters: int = 0
    findings: list[LintFinding] = msgspec.field(default_factory=list)
    cut_short: int = 0

    def counts(self) -> dict[Oddity, int]:
        found = Counter(finding.oddity for finding in self.findings)
        return {oddity: found[oddity] for oddity in Oddity if found[oddity]}

    def __str__(self) -> str:
        told = ", ".join(f"{count:,} {oddity}" for oddity, count in self.counts().items()) or "nothing odd"
        cut = f"; {self.cut_short:,} compared with some others only" if self.cut_short else ""
        return f"{self.filters:,} filters: {told}{cut}"


def lint(
    subscriptions: Mapping[Any, str] | Iterable[LintItem | tuple[Id, str]],
    schema: Schema | None = None,
    *,
    compare_s: float = math.inf,
) -> LintReport:
    """Return the findings on a set of filters: a mapping of id to text, (id, text) pairs or LintItems.

    `compare_s` bounds the time for comparing the filters of one subscriber, once they are read.

        print(lint({"ann": "price > 8", "bob": "price > 9"}))  # 2 filters: 1 covered
    """
    if isinstance(subscriptions, Mapping):
        subscriptions = subscriptions.items()
    groups: dict[Id, list[tuple[int, Id, str]]] = {}
    report = LintReport()
    for number, item in enumerate(subscriptions):
        one = item if isinstance(item, LintItem) else LintItem(*item)
        groups.setdefault(one.subscriber, []).append((number, one.id, one.filter))
        report.filters = number + 1
    parser = FilterParser(schema)
    found: list[tuple[int, LintFinding]] = []
    for members in groups.values():
        group = _Group(parser, report, compare_s)
        found.extend(group.findings(members))
    report.findings = [finding for _, finding in sorted(found, key=lambda pair: pair[0])]
    return report


class _Group:
    """The filters of one subscriber."""

    def __init__(self, parser: FilterParser, report: LintReport, compare_s: float) -> None:
        self._parser = parser
        self._report = report
        self._compare_s = compare_s
        self._held: list[tuple[int, Id, Filter]] = []
        self._index = _Index()

    def findings(self, members: list[tuple[int, Id, str]]) -> Iterator[tuple[int, LintFinding]]:
        first_of: dict[tuple[Conjunction, ...], Id] = {}
        for number, id_, text in members:
            try:
                filter_ = self._parser.parse(text)
            except FilterError as error:
                yield number, LintFinding(Oddity.REFUSED, id_, str(error))
                continue
            finding = self._alone(id_, filter_)
            if finding is not None:
                yield number, finding
                continue
            first = first_of.setdefault(filter_.conjunctions, id_)
            if len(first_of) > len(self._held):
                self._held.append((number, id_, filter_))
            else:
                yield number, LintFinding(Oddity.DUPLICATE, id_, f"says the same as {first}", first)
        if len(self._held) > 1:
            yield from self._covered()

    def _alone(self, id_: Id, filter_: Filter) -> LintFinding | None:
        """Return a finding on a filter by itself."""
        if not filter_.conjunctions:
            return LintFinding(Oddity.NEVER, id_, "no event can satisfy it: its conditions contradict each other")
        if covers(filter_, _EVERYTHING):
            return LintFinding(Oddity.ALWAYS, id_, "every event satisfies it")
        if self._parser.schema is not None:
            outside = _outside(filter_, self._parser.schema)
            if outside is not None:
                return LintFinding(Oddity.OUTSIDE, id_, outside)
        return None

    def _covered(self) -> Iterator[tuple[int, LintFinding]]:
        for position, (_, _, filter_) in enumerate(self._held):
            self._index.enter(position, filter_)
        self._index.sort()
        until = monotonic() + self._compare_s
        for position, (number, id_, filter_) in enumerate(self._held):
            for tried, candidate in enumerate(self._index.candidates(filter_)):
                if tried == CANDIDATES_MAX or monotonic() > until:
                    self._report.cut_short += 1
                    break
                _, other_id, other = self._held[candidate]
                if candidate == position or not covers(other, filter_):
                    continue
                if candidate > position and covers(filter_, other):
                    continue  # the two say the same in other words: the later one is told
                message = f"whatever it accepts, {other_id} accepts too: {_shortened(other.text)}"
                yield number, LintFinding(Oddity.COVERED, id_, message, other_id)
                break


_EVERYTHING = Filter("TRUE", (Conjunction(()),))


def _shortened(text: str) -> str:
    return text if len(text) <= 100 else text[:99] + "…"


# -- anchors -----------------------------------------------------------------------------------------------------------


_Key: TypeAlias = tuple[object, ...]


class _Index:
    """An index of filters by the attributes and one anchor of each of their alternatives.

    A filter that covers another constrains no attribute that the other leaves free, and has its anchor among the keys
    of the other's first alternative, provided that one alternative alone covers that one. Under each key the widest
    stand first, so that a search that is cut short has seen the likeliest.
    """

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._entries: dict[int, dict[_Key, list[tuple[int, int]]]] = {}
        self._levels: dict[tuple[int, str], set[int]] = {}

    def enter(self, position: int, filter_: Filter) -> None:
        for conjunction in filter_.conjunctions:
            entries = self._entries.setdefault(self._attributes(conjunction), {})
            breadth = sum(map(_breadth, (constraint for _, constraint in conjunction.constraints)))
            for anchor in self._anchors(conjunction):
                entries.setdefault(anchor, []).append((-breadth, position))

    def sort(self) -> None:
        """Put the widest filters first, once all are entered."""
        for entries in self._entries.values():
            for held in entries.values():
                held.sort()

    def candidates(self, filter_: Filter) -> Iterator[int]:
        seen: set[int] = set()
        first = filter_.conjunctions[0]
        constrained = self._attributes(first)
        for attributes, entries in self._entries.items():
            if attributes & ~constrained:
                continue
            for key in self._keys(first, attributes):
                for _, position in entries.get(key, ()):
                    if position not in seen:
                        seen.add(position)
                        yield position

    def _attributes(self, conjunction: Conjunction) -> int:
        """Return the attributes of an alternative as a set of bits."""
        bits = 0
        for name, _ in conjunction.constraints:
            bits |= 1 << self._bits.setdefault(name, len(self._bits))
        return bits

    def _anchors(self, conjunction: Conjunction) -> list[_Key]:
        attributes = self._attributes(conjunction)
        best: tuple[int, list[_Key]] = (9, [()])
        for name, constraint in conjunction.constraints:
            best = min(best, _anchor(name, constraint), key=lambda found: found[0])
        if best[0] == _CELL:
            anchor_name, level, _ = best[1][0]
            assert isinstance(anchor_name, str)
            assert isinstance(level, int)
            self._levels.setdefault((attributes, anchor_name), set()).add(level)
        return best[1]

    def _keys(self, conjunction: Conjunction, attributes: int) -> Iterator[_Key]:
        for name, constraint in conjunction.constraints:
            intervals = _intervals(constraint)
            if intervals and intervals[0].is_point:
                yield (name, "=", intervals[0].low)
            if isinstance(constraint, TextSet):
                yield from _text_keys(name, constraint)
            elif intervals and (levels := self._levels.get((attributes, name))):
                low, high = _hull(intervals)
                least = (low ^ high).bit_length()
                yield from ((name, level, low >> level) for level in sorted(levels) if level >= least)
            yield (name, "*")
        yield ()


_CELL = 3


def _anchor(name: str, constraint: Constraint) -> tuple[int, list[_Key]]:
    """Return how selective an anchor of this constraint is (0 is best), and its keys."""
    intervals = _intervals(constraint)
    if intervals and len(intervals) <= POINTS_MAX and all(i.is_point for i in intervals):
        return 0, [(name, "=", i.low) for i in intervals]
    match constraint:
        case TextSet(like=(pattern, *_)) if pattern.pieces[0] and len(pattern.pieces) == 2 and not pattern.pieces[1]:
            return 1, [(name, "^", pattern.pieces[0][:AFFIX_MAX])]
        case TextSet(like=(pattern, *_)) if len(pattern.pieces) == 2 and not pattern.pieces[0]:
            return 2, [(name, "$", pattern.pieces[1][-AFFIX_MAX:])]
        case NumberSet() | TimestampSet() if intervals:
            low, high = _hull(intervals)
            level = (low ^ high).bit_length()
            return _CELL, [(name, level, low >> level)]
    return 4, [(name, "*")]


def _breadth(constraint: Constraint) -> int:
    """Return how much of its line a set of numbers or instants spans; 0 for other constraints."""
    if isinstance(constraint, NumberSet | TimestampSet) and (intervals := _intervals(constraint)):
        low, high = _hull(intervals)
        return (high - low) >> 32
    return 0


def _text_keys(name: str, constraint: TextSet) -> Iterator[tuple[object, ...]]:
    first = constraint.intervals[0]
    heads = [str(first.low)]  # whatever prefix covers an interval, its lower end has too
    tails = [str(first.low)] if first.is_point else []
    heads += [pattern.pieces[0] for pattern in constraint.like]
    tails += [pattern.pieces[-1] for pattern in constraint.like]
    for head in heads:
        yield from ((name, "^", head[:length]) for length in range(min(len(head), AFFIX_MAX), 0, -1))
    for tail in tails:
        yield from ((name, "$", tail[-length:]) for length in range(min(len(tail), AFFIX_MAX), 0, -1))


def _intervals(constraint: Constraint) -> Intervals:
    match constraint:
        case NumberSet():
            return constraint.exact
        case TimestampSet() | TextSet():
            return constraint.intervals
        case BooleanSet(values):
            return tuple(_Interval(value, False, value, False) for value in values)
    return ()


def _hull(intervals: Intervals) -> tuple[int, int]:
    """Return the first and last place of a set, on a line of 2**64 places in the values' order."""
    low, high = intervals[0].low, intervals[-1].high
    return (0 if low is None else _place(low)), (2**64 - 1 if high is None else _place(high))


def _place(bound: object) -> int:
    seconds = (bound - EPOCH).total_seconds() if isinstance(bound, datetime) else float(bound)  # type: ignore[arg-type]
    (bits,) = struct.unpack(">q", struct.pack(">d", seconds + 0.0))
    return int(bits + 2**63 if bits >= 0 else -1 - (bits & 2**63 - 1) + 2**63)


# -- the schema --------------------------------------------------------------------------------------------------------


def _outside(filter_: Filter, schema: Schema) -> str | None:
    """Return the first constraint that no value within the schema's bounds satisfies, in words."""
    for conjunction in filter_.conjunctions:
        for name, constraint in conjunction.constraints:
            attribute = schema.get(name)
            if attribute is not None and not _within_schema(attribute, constraint):
                return f"{render_constraint(name, constraint)} lies outside the schema: {_described(attribute)}"
    return None


def _within_schema(attribute: Attribute, constraint: Constraint) -> bool:
    if not isinstance(constraint, NumberSet | TimestampSet):
        return True
    bounds = (_Interval(attribute.minimum, attribute.minimum is None, attribute.maximum, attribute.maximum is None),)
    intervals = _intervals(constraint)
    if isinstance(constraint, TimestampSet) or attribute.precision is None:
        return bool(intersect(intervals, bounds))
    within = intersect(intervals, bounds)
    bounded = all(i.low is not None and i.high is not None for i in within)
    return bool(within) and (not bounded or grid_count(attribute, NumberSet(within)) > 0)


def _described(attribute: Attribute) -> str:
    bounds = {"minimum": attribute.minimum, "maximum": attribute.maximum, "precision": attribute.precision}
    said = [f"{field} {literal_text(bound)}" for field, bound in bounds.items() if bound is not None]
    return f"{attribute.name} has {', '.join(said)}"
