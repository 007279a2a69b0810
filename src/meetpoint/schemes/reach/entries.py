"""What is kept of a conjunction at whoever holds the key of its id."""

from __future__ import annotations

import msgspec

from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.placement.entries.stored_entry import Item, Read, StoredEntry, owner_of, read_filed
from meetpoint.placement.messages import Entry
from meetpoint.schemes.reach.cube import Cube

__all__ = ["entry_of", "read_entry"]


def entry_of(cube: Cube, filed: StoredEntry, conjunction: Conjunction) -> Entry:
    """A conjunction, where it is to lie."""
    key = bytes(cube.key(cube.of_conjunction(conjunction)))
    return Entry(key, key, msgspec.msgpack.encode(filed))


def read_entry(cube: Cube, name: str, entry: Entry) -> Item[int] | None:
    """An entry as a peer has sent it, with its id; None where it is malformed, or lies elsewhere than its id does."""
    owner, found = owner_of(name), read_filed(entry.body)
    if owner is None or found is None:
        return None
    point = cube.of_conjunction(found[1])
    return Item(owner, Read(*found, point)) if entry.low == entry.high == cube.key(point) else None
