"""A conjunction as it is placed, whole: whose it is, its text, and where its scheme has it lie."""

from __future__ import annotations

from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX, Conjunction
from meetpoint.placement.decode import read_body
from meetpoint.placement.entries.conjunctions import conjunction_in
from meetpoint.placement.entries.installer import entry_name

__all__ = ["NUMBER_MAX", "SUBSCRIPTION_MAX", "Item", "Read", "StoredEntry", "owner_of", "read_filed", "read_name"]

NUMBER_MAX: Final = 1 << 63
"""Numbers that homes give to what they place are below."""
SUBSCRIPTION_MAX: Final = 1 << 48

PlaceT = TypeVar("PlaceT")


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One conjunction of a subscription: the body of its entry."""

    number: int
    """Of the subscription at its home."""
    at: int
    """Which conjunction of the filter it is."""
    text: str

    @property
    def subid(self) -> int:
        """The conjunction's id at its home."""
        return self.number * CONJUNCTIONS_MAX + self.at


class Read(NamedTuple, Generic[PlaceT]):
    """One that was read, and where it lies, as the scheme sees it."""

    filed: StoredEntry
    conjunction: Conjunction
    place: PlaceT

    @property
    def filter(self) -> Filter:
        """What an index takes."""
        return Filter(self.filed.text, (self.conjunction,))


class Item(NamedTuple, Generic[PlaceT]):
    """And whose it is."""

    home: HomeId
    read: Read[PlaceT]


def read_filed(body: bytes) -> tuple[StoredEntry, Conjunction] | None:
    """The body of an entry as a peer has sent it; None where it is malformed."""
    filed = read_body(body, StoredEntry)
    if filed is None or not 0 <= filed.number < SUBSCRIPTION_MAX:
        return None
    conjunction = conjunction_in(filed.text, filed.at)
    return None if conjunction is None else (filed, conjunction)


def read_name(name: str) -> tuple[HomeId, int] | None:
    """Whose entry it is, and its number there, by the name that `planting` gave it; None where it is none."""
    home, _, number = name.partition("/")
    try:
        read = HomeId(bytes.fromhex(home)), int(number)
    except ValueError:
        return None
    return read if 0 <= read[1] < NUMBER_MAX and entry_name(*read) == name else None


def owner_of(name: str) -> HomeId | None:
    """Whose entry it is; None where it is none."""
    read = read_name(name)
    return None if read is None else read[0]
