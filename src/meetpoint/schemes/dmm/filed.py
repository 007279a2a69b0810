"""What is kept of a region at whoever holds its key: its record, and its entries, each under a name that says of which
region it is. All of it lies at the region's key, so that it moves with the arc that the key lies on.

| name | what |
| --- | --- |
| `region/CODE` | where the region stands (`rules.Kept`) |
| `HOME/NUMBER/CODE` | a conjunction of a home, under the number that the home gave it; empty: it was withdrawn |
"""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.protocol.records import HomeId
from meetpoint.protocol.ring import Key, Ring
from meetpoint.rendezvous.filed import NUMBER_MAX, Read, read_filed
from meetpoint.schemes.dmm.rules import Kept
from meetpoint.schemes.dmm.space import Box, Code, Space

__all__ = [
    "REGION",
    "item_name",
    "key_of",
    "read_body",
    "read_kept",
    "read_name",
    "region_name",
]

REGION: Final = "region/"


def key_of(ring: Ring, space: Space, code: Code) -> Key:
    """Where a region lies on the circle; in a space of another depth elsewhere: that is another tree."""
    return ring.hash(b"dmm %d " % space.depth + space.digest + code.encode())


def region_name(code: Code) -> str:
    """The name of a region's record."""
    return REGION + code


def item_name(home: HomeId, number: int, code: Code) -> str:
    """The name of an entry of a region."""
    return f"{home.hex()}/{number}/{code}"


def read_name(name: str, space: Space) -> tuple[HomeId, int, Code] | None:
    """What the name of an entry says; None where it is malformed, as a peer's may be."""
    home, _, rest = name.partition("/")
    number, _, code = rest.partition("/")
    try:
        read = HomeId(bytes.fromhex(home)), int(number), Code(code)
    except ValueError:
        return None
    return read if space.is_code(code) and 0 <= read[1] < NUMBER_MAX and item_name(*read) == name else None


def read_kept(body: bytes) -> Kept | None:
    """A region's record."""
    try:
        return msgspec.msgpack.decode(body, type=Kept)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_body(body: bytes, space: Space) -> Read[Box] | None:
    """An entry's body, and its box; None where it is malformed."""
    found = read_filed(body)
    return None if found is None else Read(*found, space.box(found[1]))
