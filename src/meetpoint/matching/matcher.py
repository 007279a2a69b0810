"""The protocol of matchers, and a matcher in plain Python for some hundreds of filters.

A matcher holds filters under ids and says which of them accept an event. It returns all matches, never a page of them,
each id once, in the order in which the ids were first added. Attributes are clean ones, as an `Event` holds them
(`language.clean_attributes` makes them so).

`SmallMatcher` needs nothing installed and nothing compiled. A conjunction that wants an attribute to be one of a few
values (`symbol = 'OTE'`, `gate IN (3, 4)`) is only satisfied by an event that has one of them. So it is filed under
those values; an event tries the filters under its own values, and the filters that name none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from meetpoint.language.filters.constraints import Constraint, NumberSet, TextSet
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.intervals import Intervals
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.names import find, split_name

__all__ = ["Matcher", "SmallMatcher", "can_index", "postponed_index"]


Id = TypeVar("Id", bound=Hashable)


class Matcher(Protocol[Id]):
    """A set of filters under ids that says which of them accept an event."""

    def add(self, subscription: Id, filter_: Filter) -> None:
        """Add a filter under a new id; KeyError if the id is taken."""

    def remove(self, subscription: Id) -> None:
        """Remove an id without a trace; KeyError if it is unknown."""

    def update(self, subscription: Id, filter_: Filter) -> None:
        """Replace the filter of an id; KeyError if it is unknown."""

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        """Return the ids of all filters that accept one event."""

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        """Return the ids for each of several events, in their order."""

    def __len__(self) -> int:
        """Return the number of ids."""


def can_index() -> bool:
    """Return whether a caller that can do without should make an `Index` now.

    While its kernels are compiled elsewhere, making one would block for half a minute.
    """
    for each in _postponing:
        each.is_wanted = True
    return not _postponing


class Postponed:
    """A period without an index, and whether a caller would have made one."""

    def __init__(self) -> None:
        self.is_wanted = False


@contextmanager
def postponed_index() -> Iterator[Postponed]:
    """Make `can_index` false in this process for a while."""
    postponed = Postponed()
    _postponing.append(postponed)
    try:
        yield postponed
    finally:
        _postponing.remove(postponed)


_postponing: list[Postponed] = []
"""The periods that last now; of the whole process, as compiled code is."""


POINTS_MAX: Final = 16
"""Values under which one conjunction is filed."""

Path: TypeAlias = tuple[str, ...]
Point: TypeAlias = tuple[Path, object]


class SmallMatcher(Generic[Id]):
    """A `Matcher` in plain Python, which files filters under the values that they ask for."""

    def __init__(self, filters: Iterable[tuple[Id, Filter]] = ()) -> None:
        self._filters: dict[Id, Filter] = {}
        self._orders: dict[Id, int] = {}
        self._next = 0
        self._points_of: dict[Id, frozenset[Point]] = {}
        self._filed: dict[Point, dict[Id, None]] = {}
        self._paths: Counter[Path] = Counter()
        self._unfiled: dict[Id, None] = {}
        for id_, filter_ in filters:
            self.add(id_, filter_)

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, subscription: Id, filter_: Filter) -> None:
        """Add a filter under a new id; KeyError if the id is taken."""
        if subscription in self._filters:
            raise KeyError(subscription)
        self._orders[subscription] = self._next
        self._next += 1
        self._file(subscription, filter_)

    def remove(self, subscription: Id) -> None:
        """Remove an id without a trace; KeyError if it is unknown."""
        self._unfile(subscription)
        del self._orders[subscription]

    def update(self, subscription: Id, filter_: Filter) -> None:
        """Replace the filter of an id; KeyError if it is unknown."""
        self._unfile(subscription)
        self._file(subscription, filter_)

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        """Return the ids of all filters that accept one event, in the order in which they were first added."""
        tried = self._unfiled
        for path in self._paths:
            value = find(attributes, path)
            # Nothing is filed under values of other classes, and a nested object has no hash to look it up by.
            if type(value) in _POINTED and (some := self._filed.get((path, value))):
                tried = tried | some
        filters = self._filters
        return sorted((id_ for id_ in tried if filters[id_].accepts(attributes)), key=self._orders.__getitem__)

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        """Return the ids for each of several events, as `match` does."""
        return [self.match(attributes) for attributes in events]

    def _file(self, id_: Id, filter_: Filter) -> None:
        self._filters[id_] = filter_
        points: set[Point] = set()
        for conjunction in filter_.conjunctions:
            ways = _ways(conjunction)
            if not ways:
                self._unfiled[id_] = None
                return
            points |= min(ways, key=lambda way: (len(way), self._count(way)))
        self._points_of[id_] = frozenset(points)
        for point in points:
            if point not in self._filed:
                self._filed[point] = {}
                self._paths[point[0]] += 1
            self._filed[point][id_] = None

    def _unfile(self, id_: Id) -> None:
        del self._filters[id_]
        self._unfiled.pop(id_, None)
        for point in self._points_of.pop(id_, ()):
            del self._filed[point][id_]
            if not self._filed[point]:
                del self._filed[point]
                self._paths[point[0]] -= 1
                if not self._paths[point[0]]:
                    del self._paths[point[0]]

    def _count(self, points: Iterable[Point]) -> int:
        return sum(len(self._filed.get(point, ())) for point in points)


_POINTED: Final = frozenset((str, int, float, Decimal))
"""Classes of values that a dict finds as filters compare them: 1, 1.0 and 1.00 are one key."""


def _ways(conjunction: Conjunction) -> list[frozenset[Point]]:
    """Return, for each attribute that must have one of a few values, those values."""
    found = []
    for name, constraint in conjunction.constraints:
        values = _values(constraint)
        if values is not None and len(values) <= POINTS_MAX:
            path = split_name(name)
            found.append(frozenset((path, value) for value in values))
    return found


def _values(constraint: Constraint) -> list[object] | None:
    """Return all values that a constraint may accept, if they are single ones; else None."""
    if isinstance(constraint, TextSet):
        return _points(constraint.intervals)
    if isinstance(constraint, NumberSet):
        exact, floats = _points(constraint.exact), _points(constraint.for_floats())
        return None if exact is None or floats is None else exact + floats
    return None


def _points(intervals: Intervals) -> list[object] | None:
    return [each.low for each in intervals] if all(each.is_point for each in intervals) else None
