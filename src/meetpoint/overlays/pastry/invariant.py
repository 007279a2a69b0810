"""The invariant of Pastry with leases, and the ideal, checked over snapshots of all live members.

It shares nothing with the rules that it judges, and nothing here runs a node. After Lu, Merz and Weidenbach:
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol

from meetpoint.node.runtime.ring import between

__all__ = ["Leaves", "broken", "closest", "departures", "stands"]


class Leaves(Protocol):
    """no ready node lies nearer to a ready node than the neighbour that it believes in on that side;"""

    @property
    def ready(self) -> bool:
        """Whether the member holds both leases."""

    @property
    def left(self) -> bytes:
        """The neighbour before the member; itself where it knows no other."""

    @property
    def right(self) -> bytes:
        """The neighbour after the member."""

    @property
    def leaves(self) -> Sequence[bytes]:
        """The nodes around the member that it knows, clockwise."""


def broken(members: Mapping[bytes, Leaves], size: int) -> str | None:
    """Return what is wrong, in a sentence, or None; `size` is the number of ids on the circle."""
    order = sorted(node for node in members if members[node].ready)
    if len(order) < 2:
        return None
    for place, node in enumerate(order):
        after = order[(place + 1) % len(order)]
        right, left = members[node].right, members[after].left
        if between(node, after, right):
            return f"{after.hex()} is ready, nearer to {node.hex()} than its right neighbour {right.hex()}"
        if between(left, node, after):
            return f"{node.hex()} is ready, nearer to {after.hex()} than its left neighbour {left.hex()}"
        reach = _distance(node, right, size) // 2  # so far beyond the one its keys go
        start = (_distance(left, after, size) - 1) // 2  # and from so far before the other
        if reach + start >= _distance(node, after, size):
            return f"{node.hex()}, before {right.hex()}, and {after.hex()}, after {left.hex()}, cover the same keys"
    return None


def departures(members: Mapping[bytes, Leaves], half: int) -> str | None:
    """Return the first node that is not ideal, in a sentence, or None.

    There must be none some time after the last change.
    """
    order = sorted(members)
    count = len(order)
    for place, node in enumerate(order):
        seen = members[node]
        if not seen.ready:
            return f"{node.hex()} is not ready"
        around = [order[(place + step) % count] for step in range(1, count)]
        wanted = around if len(around) <= 2 * half else around[:half] + around[-half:]
        if list(seen.leaves) != wanted:
            return f"{node.hex()} has the leaves {_hex(seen.leaves)}, not {_hex(wanted)}"
        left, right = (wanted[-1], wanted[0]) if wanted else (node, node)
        if (seen.left, seen.right) != (left, right):
            return f"{node.hex()} has the neighbours {_hex((seen.left, seen.right))}, not {_hex((left, right))}"
    return None


def stands(members: Mapping[bytes, Leaves]) -> bool:
    """Return whether each of these, if they were all that is left, would know the next one on either side.

    The protocol takes that for granted of failures, as does any whose nodes know few others: where both ends of a gap
    have never heard of a node in it, only those that have failed knew that it was there.
    """
    order = sorted(members)
    count = len(order)
    for place, node in enumerate(order):
        leaves = members[node].leaves
        if not {order[place - 1], order[(place + 1) % count]} - {node} <= {*leaves}:
            return False
    return True


def closest(members: Sequence[bytes], key: bytes, size: int) -> bytes:
    """Return the one of some members, sorted, that owns a key."""
    at = bisect_left(members, key)
    after, before = members[at % len(members)], members[at - 1]
    if key == after:
        return after
    return after if _distance(key, after, size) < _distance(before, key, size) else before


def _distance(a: bytes, b: bytes, size: int) -> int:
    """Return the distance clockwise from one id to another; from one to itself it is the whole circle."""
    return (int.from_bytes(b, "big") - int.from_bytes(a, "big")) % size or size


def _hex(ids: Sequence[bytes]) -> str:
    return " ".join(entry.hex() for entry in ids)
