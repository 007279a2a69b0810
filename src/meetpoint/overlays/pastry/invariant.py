"""The invariant of Pastry with leases, and the ideal, checked over what may be seen of all live members.

Apart from the rules that it judges: nothing here is used to run a node. After Lu, Merz and Weidenbach:

1. no ready node lies nearer to a ready node than the neighbour that it believes in on that side;
2. at most one ready node covers a key.

A node covers the keys nearer to it than to its neighbours; of two that are as near, the one before the key (counter-
clockwise) has it. The second follows from the first, and is checked by itself all the same, by arithmetic.

A caller that checks after every change asks again only when a `version` among the members' views has changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol

from meetpoint.node.runtime.ring import between

__all__ = ["Leaves", "broken", "closest", "departures", "stands"]


class Leaves(Protocol):
    """The part of a member's state that the invariant is about."""

    @property
    def ready(self) -> bool:
        """Whether it holds both leases."""

    @property
    def left(self) -> bytes:
        """Its neighbour before it; itself where it knows no other."""

    @property
    def right(self) -> bytes:
        """Its neighbour after it."""

    @property
    def leaves(self) -> Sequence[bytes]:
        """The nodes around it that it knows, clockwise."""


def broken(members: Mapping[bytes, Leaves], size: int) -> str | None:
    """What is wrong, in a sentence, or None; `size` is how many ids the circle has."""
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
    """The first node that is not ideal, in a sentence, or None: what must be so some time after the last change."""
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
    """Whether each of these, if they were all that is left, would know the next one on either side.

    That is what the protocol takes for granted of failures, as any does whose nodes know few others: where both ends of
    a gap have never heard of a node in it, only those that have failed knew that it was there.
    """
    order = sorted(members)
    count = len(order)
    for place, node in enumerate(order):
        leaves = members[node].leaves
        if not {order[place - 1], order[(place + 1) % count]} - {node} <= {*leaves}:
            return False
    return True


def closest(members: Sequence[bytes], key: bytes, size: int) -> bytes:
    """Who of some members, sorted, is responsible for a key."""
    at = bisect_left(members, key)
    after, before = members[at % len(members)], members[at - 1]
    if key == after:
        return after
    return after if _distance(key, after, size) < _distance(before, key, size) else before


def _distance(a: bytes, b: bytes, size: int) -> int:
    """How far it is from one id clockwise to another; from one to itself it is once round."""
    return (int.from_bytes(b, "big") - int.from_bytes(a, "big")) % size or size


def _hex(ids: Sequence[bytes]) -> str:
    return " ".join(entry.hex() for entry in ids)
