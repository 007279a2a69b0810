"""What is kept of a region at whoever holds its key: its record, and its entries, each under a name that says of which
region it is. All of it lies at the region's key, so that it moves with the arc that the key lies on.

| name | what |
| --- | --- |
| `region/CODE` | where the region stands (`rules.Kept`) |
| `HOME/NUMBER/CODE` | a conjunction of a home, under the number that the home gave it; empty: it was withdrawn |
"""

from __future__ import annotations

from typing import Final

from meetpoint.api.ids import HomeId, Key
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement import decode
from meetpoint.placement.entries import stored_entry
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.entries.stored_entry import Read
from meetpoint.schemes.dmm.rules import RegionRecord
from meetpoint.schemes.dmm.space import Box, Code, Space

__all__ = [
    "REGION",
    "key_of",
    "read_body",
    "read_name",
    "read_record",
    "region_entry_name",
    "region_name",
]

REGION: Final = "region/"


def key_of(ring: Ring, space: Space, code: Code) -> Key:
    """Where a region lies on the circle; in a space of another depth elsewhere: that is another tree."""
    return ring.hash(b"dmm %d " % space.depth + space.digest + code.encode())


def region_name(code: Code) -> str:
    """The name of a region's record."""
    return REGION + code


def region_entry_name(home: HomeId, number: int, code: Code) -> str:
    """The name of an entry of a region."""
    return f"{entry_name(home, number)}/{code}"


def read_name(name: str, space: Space) -> tuple[HomeId, int, Code] | None:
    """What the name of an entry says; None where it is malformed, as a peer's may be."""
    entry, _, code = name.rpartition("/")
    read = stored_entry.read_name(entry)
    return None if read is None or not space.is_code(code) else (*read, Code(code))


def read_record(body: bytes) -> RegionRecord | None:
    """A region's record."""
    return decode.read_body(body, RegionRecord)


def read_body(body: bytes, space: Space) -> Read[Box] | None:
    """An entry's body, and its box; None where it is malformed."""
    found = stored_entry.read_filed(body)
    return None if found is None else Read(*found, space.box(found[1]))
