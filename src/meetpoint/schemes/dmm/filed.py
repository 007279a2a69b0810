"""What is kept of a region at whoever holds its key: its record, and its entries, each under a name that says of which
region it is. All of it lies at the region's key, so that it moves with the arc that the key lies on.

| name | what |
| --- | --- |
| `region/CODE` | where the region stands (`rules.Kept`) |
| `HOME/NUMBER/CODE` | a conjunction of a home, under the number that the home gave it; empty: it was withdrawn |
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from meetpoint.language.filters import Filter
from meetpoint.language.normal import CONJUNCTIONS_MAX, Conjunction
from meetpoint.protocol.records import HomeId
from meetpoint.protocol.ring import Key, Ring
from meetpoint.rendezvous.conjunctions import conjunction_in
from meetpoint.schemes.dmm.rules import Kept
from meetpoint.schemes.dmm.space import Box, Code, Space

__all__ = [
    "REGION",
    "Filed",
    "Read",
    "item_name",
    "key_of",
    "read_body",
    "read_kept",
    "read_name",
    "region_name",
]

REGION: Final = "region/"
NUMBER_MAX: Final = 1 << 63
SUBSCRIPTION_MAX: Final = 1 << 48


class Filed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One conjunction of a subscription."""

    number: int
    """Of the subscription at its home."""
    at: int
    """Which conjunction of the filter it is."""
    text: str

    @property
    def subid(self) -> int:
        """The conjunction's id at its home."""
        return self.number * CONJUNCTIONS_MAX + self.at


class Read(NamedTuple):
    """An entry that was read."""

    filed: Filed
    conjunction: Conjunction
    box: Box

    @property
    def filter(self) -> Filter:
        """What an index takes."""
        return Filter(self.filed.text, (self.conjunction,))


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


def read_body(body: bytes, space: Space) -> Read | None:
    """An entry's body; None where it is malformed."""
    try:
        filed = msgspec.msgpack.decode(body, type=Filed)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not 0 <= filed.number < SUBSCRIPTION_MAX:
        return None
    conjunction = conjunction_in(filed.text, filed.at)
    return None if conjunction is None else Read(filed, conjunction, space.box(conjunction))
