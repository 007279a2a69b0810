"""The ring of ids, and all arithmetic on it.

A key is a string of bytes, big-endian, of one width in the whole network: two keys compare as the numbers they stand
for, and travel as they are. A node's id is a key too. Where a sum or a distance is needed, `Ring` goes over integers.

`between(a, x, b)` is the open arc clockwise from a to b, as in Zave's corrected Chord: from a node to itself it is the
whole circle but the node.
"""

from __future__ import annotations

import hashlib

from meetpoint.api.ids import Key, NodeId

__all__ = ["BITS_MAX", "Ring", "between", "between_or_end"]


BITS_MAX = 160
"""The width of an id, in bits, as Chord has it; tests and the papers' examples use smaller circles."""


def between(a: bytes, x: bytes, b: bytes) -> bool:
    """Return whether x lies on the open arc from a clockwise to b."""
    return a < x < b if a < b else x > a or x < b


def between_or_end(a: bytes, x: bytes, b: bytes) -> bool:
    """Return whether x lies from a, exclusive, clockwise to b, inclusive: the keys that b has after a."""
    return a < x <= b if a < b else x > a or x <= b


class Ring:
    """The circle of `bits`-bit numbers."""

    __slots__ = ("bits", "size", "width")

    def __init__(self, bits: int = BITS_MAX) -> None:
        if not 1 <= bits <= BITS_MAX:
            raise ValueError(f"a ring of {bits} bits; it has 1 to {BITS_MAX}")
        self.bits = bits
        self.size = 1 << bits
        self.width = (bits + 7) // 8

    def key(self, number: int) -> Key:
        """The key of a number, taken round the circle."""
        return Key((number % self.size).to_bytes(self.width, "big"))

    def number(self, key: bytes) -> int:
        """The number that a key stands for."""
        return int.from_bytes(key, "big")

    def node(self, number: int) -> NodeId:
        """The id of a node by its number."""
        return NodeId(self.key(number))

    def hash(self, data: bytes) -> Key:
        """A key that looks drawn at random, the same everywhere and in every run."""
        return self.key(int.from_bytes(hashlib.blake2b(data, digest_size=20).digest(), "big") >> (BITS_MAX - self.bits))

    def add(self, key: bytes, step: int) -> Key:
        """The key `step` further on, clockwise."""
        return self.key(int.from_bytes(key, "big") + step)

    def distance(self, a: bytes, b: bytes) -> int:
        """How far it is from a clockwise to b."""
        return (int.from_bytes(b, "big") - int.from_bytes(a, "big")) % self.size

    def holds(self, key: object) -> bool:
        """Return whether bytes from outside are a key of this ring."""
        return type(key) is bytes and len(key) == self.width and int.from_bytes(key, "big") < self.size
