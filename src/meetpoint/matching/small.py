"""A matcher for some hundreds of filters, in plain Python: it needs nothing installed and nothing compiled.

A conjunction that wants an attribute to be one of a few values (`symbol = 'OTE'`, `gate IN (3, 4)`) can only be
satisfied by an event that has one of them. So it lies under those values, and an event tries what lies under the values
that it has, and the filters that name none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from decimal import Decimal
from typing import Final, Generic, TypeAlias, TypeVar

from meetpoint.language.filters.constraints import Constraint, NumberSet, TextSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import Intervals
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find, split_name

__all__ = ["SmallMatcher"]

POINTS_MAX: Final = 16
"""A conjunction lies under so many values at the most."""

Id = TypeVar("Id", bound=Hashable)
Path: TypeAlias = tuple[str, ...]
Point: TypeAlias = tuple[Path, object]


class SmallMatcher(Generic[Id]):
    """A `Matcher`."""

    def __init__(self, filters: Iterable[tuple[Id, Filter]] = ()) -> None:
        self._filters: dict[Id, Filter] = {}
        self._orders: dict[Id, int] = {}
        self._next = 0
        self._places: dict[Id, frozenset[Point]] = {}
        self._under: dict[Point, dict[Id, None]] = {}
        self._paths: Counter[Path] = Counter()
        self._everywhere: dict[Id, None] = {}
        for id_, filter_ in filters:
            self.add(id_, filter_)

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, subscription: Id, filter_: Filter) -> None:
        """Hold a filter under a new id; KeyError where the id is taken."""
        if subscription in self._filters:
            raise KeyError(subscription)
        self._orders[subscription] = self._next
        self._next += 1
        self._put(subscription, filter_)

    def remove(self, subscription: Id) -> None:
        """Forget an id without a trace; KeyError where it is unknown."""
        self._take(subscription)
        del self._orders[subscription]

    def update(self, subscription: Id, filter_: Filter) -> None:
        """Replace the filter of a known id; KeyError where it is unknown."""
        self._take(subscription)
        self._put(subscription, filter_)

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        """The ids of all filters that accept one event, in the order in which they were first added."""
        tried = self._everywhere
        for path in self._paths:
            value = find(attributes, path)
            if type(value) in _POINTED and (some := self._under.get((path, value))):
                tried = tried | some
        filters = self._filters
        return sorted((id_ for id_ in tried if filters[id_].accepts(attributes)), key=self._orders.__getitem__)

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        """The same for each of several events, in their order."""
        return [self.match(attributes) for attributes in events]

    def _put(self, id_: Id, filter_: Filter) -> None:
        self._filters[id_] = filter_
        places: set[Point] = set()
        for conjunction in filter_.conjunctions:
            ways = _ways(conjunction)
            if not ways:
                self._everywhere[id_] = None
                return
            places |= min(ways, key=lambda points: (len(points), self._crowd(points)))
        self._places[id_] = frozenset(places)
        for place in places:
            if place not in self._under:
                self._under[place] = {}
                self._paths[place[0]] += 1
            self._under[place][id_] = None

    def _take(self, id_: Id) -> None:
        del self._filters[id_]
        self._everywhere.pop(id_, None)
        for place in self._places.pop(id_, ()):
            del self._under[place][id_]
            if not self._under[place]:
                del self._under[place]
                self._paths[place[0]] -= 1
                if not self._paths[place[0]]:
                    del self._paths[place[0]]

    def _crowd(self, points: Iterable[Point]) -> int:
        return sum(len(self._under.get(point, ())) for point in points)


_POINTED: Final = frozenset((str, int, float, Decimal))
"""Types of values that Python finds under each other as filters compare them: 1, 1.0 and 1.00 are one."""


def _ways(conjunction: Conjunction) -> list[frozenset[Point]]:
    """For each attribute that must have one of a few values: those."""
    found = []
    for name, constraint in conjunction.constraints:
        values = _values(constraint)
        if values is not None and len(values) <= POINTS_MAX:
            path = split_name(name)
            found.append(frozenset((path, value) for value in values))
    return found


def _values(constraint: Constraint) -> list[object] | None:
    """All values that a constraint may accept, where they are single ones."""
    if isinstance(constraint, TextSet):
        return _points(constraint.intervals)
    if isinstance(constraint, NumberSet):
        exact, floats = _points(constraint.exact), _points(constraint.for_floats())
        return None if exact is None or floats is None else exact + floats
    return None


def _points(intervals: Intervals) -> list[object] | None:
    return [each.low for each in intervals] if all(each.is_point for each in intervals) else None
