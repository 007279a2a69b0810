"""Chord rings that nothing happens to: who has a key, and how many messages a key is away."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from meetpoint.api.ids import NodeId
from meetpoint.node.runtime.ring import Ring

__all__ = ["IdealRing", "hashed", "spaced"]


def hashed(ring: Ring, count: int, seed: int) -> list[NodeId]:
    """So many nodes, anywhere."""
    return [NodeId(ring.hash(b"node %d of %d" % (number, seed))) for number in range(count)]


def spaced(ring: Ring, count: int) -> list[NodeId]:
    """So many nodes, all equally far from the next."""
    return [ring.node(ring.size * number // count) for number in range(count)]


class IdealRing:
    """Nodes with ideal pointers: each has its successor, and the first node at or after its id + 2^k for every k.

    A message goes to the link nearest before its key, until that is this node: then to its successor. So does a node
    (`overlays.chord.table`); that hops are the same is a test.
    """

    def __init__(self, ring: Ring, nodes: Sequence[NodeId]) -> None:
        self.ring = ring
        self.nodes = sorted(nodes)
        self._links: dict[int, list[NodeId]] = {}  # of nodes that were come by: of a million, few are
        self._hops: dict[tuple[int, int, bool], int] = {}

    def owner(self, key: bytes) -> int:
        """The number of the node that has a key: the first at or after it."""
        return bisect_left(self.nodes, key) % len(self.nodes)

    def hops(self, source: int, key: bytes) -> int:
        """How many messages it takes from a node to the one that has a key."""
        owner = self.owner(key)
        # No node lies between the owner and the one before it: all keys there are equally far, but for the owner's id.
        known = (source, owner, self.nodes[owner] == key)
        hops = self._hops.get(known)
        if hops is None:
            hops = self._hops[known] = self._walk(source, owner, key)
        return hops

    def _walk(self, at: int, owner: int, key: bytes) -> int:
        hops = 0
        while at != owner:
            links = self._links.get(at) or self._links_of(at)
            before = links[bisect_right(links, key) - 1]
            at = (at + 1) % len(self.nodes) if before == self.nodes[at] else self.owner(before)
            hops += 1
        return hops

    def links(self, at: int) -> list[NodeId]:
        """The other nodes that a node knows."""
        return [node for node in self._links.get(at) or self._links_of(at) if node != self.nodes[at]]

    def _links_of(self, at: int) -> list[NodeId]:
        """The node itself and its links, sorted; the shorter steps all lead to its successor."""
        node, ring = self.nodes[at], self.ring
        successor = self.nodes[(at + 1) % len(self.nodes)]
        near = max(ring.distance(node, successor).bit_length() - 1, 0)
        points = (ring.add(node, 1 << exponent) for exponent in range(near, ring.bits))
        links = sorted({node, *(self.nodes[self.owner(point)] for point in points)})
        self._links[at] = links
        return links
