"""Point-to-point routing on regions of different lengths (paper C, sections 3.1 and 3.3). Pure: one step at one node.

A node's bits that differ from the target's are *wrong*. A step puts one of them right, the lowest first, and goes to
the neighbour that hosts the target with all other bits as they are here. So what is wrong there is wrong here, less
that bit: with ids of one length a path is exactly as long as the Hamming distance, with others never longer than the
wrong bits at its beginning, and it ends.

That neighbour has the longest suffix in common with the target, as the paper asks: all neighbours across the lowest
wrong bit agree with this node on its other bits, and this one with the target on those beyond.

Steps across different bits lead to different nodes. So where more than one bit is wrong, a node that is down can be
gone round, with no step more; where one is, the node that is down hosts the target.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from meetpoint.overlays.hypercube.regions import Region, distance

__all__ = ["next_hop"]


def next_hop(me: Region, links: Sequence[Region], target: int, avoid: Collection[Region] = ()) -> Region | None:
    """The neighbour to pass a message on to; None where this node hosts the target, or where no step leads nearer.

    `avoid` are neighbours that are taken to be down. Where none of the right ones is left, or tables are out of date,
    any step will do that leaves fewer wrong bits.
    """
    usable = [link for link in links if link not in avoid] if avoid else links
    wrong = (me.bits ^ target) & me.mask
    here = target ^ wrong  # the target, with the bits of this node
    left = wrong
    while left:
        lowest = left & -left
        for link in usable:
            if link.hosts(here ^ lowest):
                return link
        left ^= lowest
    nearer = [(distance(link, target), link) for link in usable]
    best = min(nearer, default=None)
    return best[1] if best is not None and best[0] < wrong.bit_count() else None
