"""Paper C's subset routing as printed, faults and all: for experiments and tests. Nothing here runs on a broker.

"The ID of every child node in the tree is one Hamming distance away from its parent and has Hamming weight less by one"
(section 3.2), also "with varying length node IDs" (section 3.3). What goes wrong, each of which has a test:

- Where lengths differ, a neighbour that hosts subsets may have as many set bits as its parent, or more: 101 beside 11.
  It is no child, and what lies there or only below it is never reached.
- Both examples, figure 2 and event 1001, leave out the node with no set bit. It hosts ids such as 1000000, which is a
  subset of 1100111.
- Figure 2's caption says n = 8, but its event has 7 bits.

Who of several parents hands an event on is left to "a deterministic algorithm"; what is reached by none of them is
missed whatever that is, so all parents hand it on here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meetpoint.overlays.hypercube import Region, are_neighbours

__all__ = ["printed_children", "printed_reach"]


def printed_children(node: Region, links: Sequence[Region], with_zero: bool = False) -> list[Region]:
    """The children that a node finds. `with_zero`: also the one without set bits, which the examples leave out."""
    weight = node.bits.bit_count()
    children = [link for link in links if are_neighbours(node, link) and link.bits.bit_count() == weight - 1]
    return children if with_zero else [child for child in children if child.bits]


def printed_reach(root: Region, links: Callable[[Region], Sequence[Region]], with_zero: bool = False) -> list[Region]:
    """All nodes that an event comes to, from its rendezvous node, in the order of levels."""
    reached = [root]
    for node in reached:  # grows as we go
        reached += [child for child in printed_children(node, links(node), with_zero) if child not in reached]
    return reached
