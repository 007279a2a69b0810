"""Subset routing: from an event to every node that hosts a subset of its id, each exactly once (paper C, section 3.2).

A node is *required* if its id, read as bits, is a subset of the event's lowest bits: only then does its region hold an
id that is. The node of the empty suffix, all zeros, always is. An event first goes to the host of its own id. From
there it is handed on in *duties*: a duty fixes some bits and leaves the others free, and whoever has it answers for all
required nodes that agree with what is fixed. It serves its own ids, and parts the rest: for each bit that is free, set
in the event, and one of its own id's, a new duty has that bit cleared, and those dealt with before it as they are here.
These have nothing in common and leave nothing out. A duty goes to its *head*, the host of the event's id with the fixed
bits in place; that differs from where it comes from in one bit, so that it is a neighbour, one hop away.

The order in which bits are dealt with makes the tree. With ids of one length any order will do, and a public hash of
the message's id chooses it, so that the load spreads. With ids of different lengths an order can bring a duty to a node
whose id is too short to have a bit that is fixed, and then it gets two. Dealing with the lowest bits first never does:
two regions differ in a bit that both have, below all that only one has. So the hash turns only the lowest `floor` bits,
and the others follow in order. Where no id is shorter than `floor`, each required node is reached exactly once, with
one message each: 2^b - 1 where all ids have m bits, b of them set in the event. A floor that is too high (a node has
left since) costs a second message to some, which serve once, and never misses any: each duty still has a head. A floor
of 0 is always exact.

Deviations: the paper's rule, from a node to those at Hamming distance 1 with one bit less, misses nodes where lengths
differ (`printed`); and its examples leave out the node of the empty suffix.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, NamedTuple

from meetpoint.overlays.hypercube import Region

__all__ = ["EVERYTHING", "FLOOR_MAX", "Duty", "Tree", "head_point", "is_required", "parts", "tree_of"]

FLOOR_MAX: Final = 32
"""Bits that a tree turns: more nodes than 2^32 there are none."""


class Duty(NamedTuple):
    """Required nodes with these bits at the positions that are fixed."""

    fixed: int
    bits: int


EVERYTHING: Final = Duty(0, 0)
"""All required nodes: the duty of whoever hosts the event's id."""


class Tree(NamedTuple):
    """In which order bits are dealt with: the lowest ones as said here, then the others from the lowest."""

    lowest: tuple[int, ...] = ()

    def positions(self, length: int) -> Iterator[int]:
        """All positions of an id of a length."""
        yield from (position for position in self.lowest if position < length)
        yield from range(len(self.lowest), length)


def tree_of(message: str, floor: int) -> Tree:
    """The tree of a message, the same at every node. `floor`: no node's id is known to be shorter."""
    floor = min(floor, FLOOR_MAX)
    drawn = blake2b(message.encode(), digest_size=2 * FLOOR_MAX, person=b"meetpoint tree 1").digest()
    return Tree(tuple(sorted(range(floor), key=lambda at: (drawn[2 * at : 2 * at + 2], at))))


def is_required(region: Region, event: int) -> bool:
    """Whether a region holds a subset of an event's id."""
    return region.bits & ~event == 0


def head_point(event: int, duty: Duty) -> int:
    """The id whose host is to have a duty."""
    return event & ~duty.fixed | duty.bits


def parts(me: Region, event: int, duty: Duty, tree: Tree) -> list[Duty]:
    """What the head of a duty hands on."""
    assert me.hosts(head_point(event, duty)), "a duty is its head's"
    handed: list[Duty] = []
    for position in tree.positions(me.length):
        bit = 1 << position
        if event & bit and not duty.fixed & bit:
            handed.append(Duty(duty.fixed | bit, duty.bits))
            duty = Duty(duty.fixed | bit, duty.bits | bit)
    return handed
