"""Entries of the scheme `meet`: conjunctions under meet keys, the same keys as in the index and on Spark."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from meetpoint.api.ids import Key
from meetpoint.language.filters.filter import Filter
from meetpoint.language.names import split_name
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.entries.entry_table import SUBSCRIPTION_MAX, conjunction_in
from meetpoint.placement.messages import Entry, read_body

__all__ = [
    "PATH_MAX",
    "KeyEntry",
    "child_entry",
    "child_keys",
    "crowded_mark",
    "entries_of",
    "is_key",
    "place_of",
    "read_key_entry",
]

PATH_MAX = 7
"""The longest path from a key to a conjunction: a child at the end of so long a path takes all that comes."""


class KeyEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A conjunction under one of its keys. Without a text it marks a key that is crowded and has children."""

    key: MeetKey
    path: tuple[int, ...]
    """The way from the key to the child under which the conjunction lies; most lie under the key itself."""
    number: int
    """The number of the subscription at its home."""
    at: int
    """The place of the conjunction in its filter."""
    text: str


def place_of(ring: Ring, key: MeetKey, path: tuple[int, ...] = ()) -> Key:
    """Return where a key, or a child of it, lies on the ring."""
    return ring.hash(bytes(path) + key.digest(256).to_bytes(32, "big")) if path else _place(key, ring.bits)


@lru_cache(maxsize=65_536)
def _place(key: MeetKey, bits: int) -> Key:
    return Ring(bits).key(key.digest(bits))


def entries_of(ring: Ring, plan: KeyPlan, number: int, filter_: Filter, at: int) -> list[Entry]:
    """Return the entries that let every event that a conjunction accepts meet it."""
    keys = plan.keys_of(filter_.conjunctions[at])
    return [_entry(ring, KeyEntry(key, (), number, at, filter_.text)) for key in keys]


def child_entry(ring: Ring, name: str, read: KeyEntry, children: int) -> Entry:
    """Return the entry of a conjunction under a child of its key.

    The name of the entry draws the child, at every step of the path anew.
    """
    drawn = ring.number(ring.hash(bytes(read.path) + name.encode()))
    path = (*read.path, drawn % children)
    return _entry(ring, msgspec.structs.replace(read, path=path))


def child_keys(ring: Ring, key: MeetKey, path: tuple[int, ...], children: int) -> tuple[bytes, ...]:
    """Return where all children of a key lie."""
    return tuple(place_of(ring, key, (*path, number)) for number in range(children))


def crowded_mark(ring: Ring, read: KeyEntry) -> tuple[str, Entry]:
    """Return the mark that says that a key is crowded, and its name."""
    name = f"crowded/{read.key.digest(128):032x}/{'.'.join(map(str, read.path))}"
    return name, _entry(ring, KeyEntry(read.key, read.path, 0, 0, ""))


def _entry(ring: Ring, read: KeyEntry) -> Entry:
    place = place_of(ring, read.key, read.path)
    return Entry(place, place, msgspec.msgpack.encode(read))


def read_key_entry(body: bytes) -> KeyEntry | None:
    """Read the body of an entry; None where it is malformed, as a peer's may be."""
    read = read_body(body, KeyEntry)
    if read is None:
        return None
    well = len(read.path) <= PATH_MAX and all(0 <= step < 256 for step in read.path) and is_key(read.key)
    well = well and 0 <= read.number < SUBSCRIPTION_MAX
    return read if well and (not read.text or conjunction_in(read.text, read.at) is not None) else None


def is_key(key: MeetKey) -> bool:
    """Return whether a key that a peer sent can be one."""
    if not (0 <= key.size < 64 and -(2**63) <= key.number < 2**63) or (key.text and key.number):
        return False
    try:
        return key.sort is not KeySort.MISSING or bool(split_name(key.attribute))
    except ValueError:
        return False
