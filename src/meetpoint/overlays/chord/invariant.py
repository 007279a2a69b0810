"""The invariant of the corrected Chord, and the ideal, checked over the states of all live members.

Apart from the rules that it judges: nothing here is used to run a node. After Zave (arXiv 1610.01140), section V:

- every member has a live entry in its successor list;
- there are at least r + 1 *principals*: members that no adjacent pair of any list, its owner in front, skips.

Implied by these, and asserted too: lists run clockwise without a duplicate; the first live successors form one ring, in
order; whoever is not on the ring leads to it. A network of fewer than r + 1 members cannot have that many principals
and is outside the proof; a caller asks for none there (`base=0`), and the rest is checked all the same.

A caller that checks after every change asks again only when a `version` among the members' views has changed. One check
takes about 4 us a member.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol

from meetpoint.node.runtime.ring import between

__all__ = ["Pointers", "broken", "departures"]


class Pointers(Protocol):
    """The part of a member's state that the invariant is about."""

    @property
    def succ(self) -> Sequence[bytes]:
        """The successor list."""

    @property
    def prdc(self) -> bytes:
        """The predecessor of the member."""


def broken(members: Mapping[bytes, Pointers], base: int) -> str | None:
    """Return what is wrong, in a sentence, or None; `base` principals must exist, r + 1 as proven."""
    order = sorted(members)
    rank = {member: place for place, member in enumerate(order)}
    nearest: dict[bytes, bytes] = {}
    skipped: set[bytes] = set()
    for member in order:
        succ = members[member].succ
        wrong = _disorder(member, succ)
        if wrong:
            return wrong
        for entry in succ:
            if entry in rank:
                nearest[member] = entry
                break
        else:
            return f"{member.hex()} has no live successor in {_hex(succ)}"
        _note_skipped(member, succ, order, rank, skipped)
    if len(order) - len(skipped) < base:
        return f"{len(order) - len(skipped)} principals, {base} needed; skipped: {_hex(sorted(skipped))}"
    return _disconnected(order, nearest)


def departures(members: Mapping[bytes, Pointers], length: int) -> str | None:
    """Return the first pointer that is not ideal, in a sentence, or None.

    There must be none some time after the last change.
    """
    order = sorted(members)
    count = len(order)
    for place, member in enumerate(order):
        wanted = [order[(place + step) % count] for step in range(1, min(length, count - 1) + 1)] or [member]
        succ = list(members[member].succ)
        if succ[: len(wanted)] != wanted or any(entry in members for entry in succ[len(wanted) :]):
            return f"{member.hex()} has successors {_hex(succ)}, not {_hex(wanted)}"
        if members[member].prdc != order[place - 1]:
            return f"{member.hex()} has predecessor {members[member].prdc.hex()}, not {order[place - 1].hex()}"
    return None


def _disorder(member: bytes, succ: Sequence[bytes]) -> str | None:
    if not succ:
        return f"{member.hex()} has no list"
    if succ[0] == member:  # alone, or about to meet the first other
        succ = succ[1:]
    last = member
    for entry in succ:
        if entry == member or not between(last, entry, member):
            return f"the list of {member.hex()} does not run clockwise: {_hex(succ)}"
        last = entry
    return None


def _note_skipped(
    member: bytes, succ: Sequence[bytes], order: Sequence[bytes], rank: Mapping[bytes, int], skipped: set[bytes]
) -> None:
    """Add the members that lie strictly between two adjacent entries."""
    count = len(order)
    before = rank[member]  # the place of the last member at or before the last entry
    for entry in succ:
        place = rank.get(entry)
        if place is None:
            at = bisect_left(order, entry) % count
            reached = (at - 1) % count
        else:
            at, reached = place, place
        for step in range(1, (at - before - 1) % count + 1):
            skipped.add(order[(before + step) % count])
        before = reached


def _disconnected(order: Sequence[bytes], nearest: Mapping[bytes, bytes]) -> str | None:
    """Return why the first live successors make no single ring, in order, to which all others lead; or None."""
    ring_of: dict[bytes, bytes] = {}  # member -> the ring it leads to, named by its least member
    rings: list[list[bytes]] = []
    for start in order:
        path: list[bytes] = []
        seen: dict[bytes, int] = {}
        at = start
        while at not in ring_of and at not in seen:
            seen[at] = len(path)
            path.append(at)
            at = nearest[at]
        if at in seen:
            ring = path[seen[at] :]
            rings.append(ring)
            name = min(ring)
        else:
            name = ring_of[at]
        for member in path:
            ring_of[member] = name
    if len(rings) != 1:
        return f"{len(rings)} rings: {'; '.join(_hex(ring) for ring in rings)}"
    ring = rings[0]
    first = ring.index(min(ring))
    turned = ring[first:] + ring[:first]
    if turned != sorted(ring):
        return f"the ring is not in order: {_hex(turned)}"
    return None


def _hex(ids: Sequence[bytes]) -> str:
    return " ".join(entry.hex() for entry in ids)
