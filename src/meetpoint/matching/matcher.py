"""What every matcher does: hold filters under ids, and say which of them accept an event.

All matches are returned, never a page of them, each id once, in the order in which the ids were first added. Attributes
are clean ones, as an `Event` holds them (`language.clean_attributes` makes them so).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Protocol, TypeVar

from meetpoint.language.filters.filter import Filter

__all__ = ["Matcher", "can_index", "postponed_index"]

Id = TypeVar("Id", bound=Hashable)


class Matcher(Protocol[Id]):
    """A set of filters under ids, and the one question asked of it."""

    def add(self, subscription: Id, filter_: Filter) -> None:
        """Hold a filter under a new id; KeyError where the id is taken."""

    def remove(self, subscription: Id) -> None:
        """Forget an id without a trace; KeyError where it is unknown."""

    def update(self, subscription: Id, filter_: Filter) -> None:
        """Replace the filter of a known id; KeyError where it is unknown."""

    def match(self, attributes: Mapping[str, object]) -> list[Id]:
        """The ids of all filters that accept one event."""

    def match_batch(self, events: Iterable[Mapping[str, object]]) -> list[list[Id]]:
        """The same for each of several events, in their order."""

    def __len__(self) -> int:
        """How many ids are held."""


def can_index() -> bool:
    """Whether an `Index` can be made now, by whoever can also do without.

    It needs what is not installed with Meetpoint itself; and while its loops are compiled elsewhere it is not worth
    standing still for.
    """
    for each in _postponing:
        each.is_wanted = True
    return not _postponing and _has_parts()


class Postponed:
    """A while without an index, and whether anyone would have had one."""

    def __init__(self) -> None:
        self.is_wanted = False


@contextmanager
def postponed_index() -> Iterator[Postponed]:
    """Whoever in this process can do without an index goes on so for a while."""
    postponed = Postponed()
    _postponing.append(postponed)
    try:
        yield postponed
    finally:
        _postponing.remove(postponed)


_postponing: list[Postponed] = []
"""Of the whole process, as what is compiled is."""


@cache
def _has_parts() -> bool:
    return all(find_spec(name) is not None for name in ("numpy", "pyarrow"))
