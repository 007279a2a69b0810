"""What it takes to bring entries of `lists` to their nodes, and events to what they ask for, on an ideal Chord ring.

Where entries lie is said by the code that brokers run (`schemes.lists`); the way is theirs too: to the first key by
routing, then, from node to node, to the next key at which an event may ask (`rendezvous.errands`). That hops are those
of a simulated network is a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from meetpoint.api.ids import HomeId, Key
from meetpoint.lab.experiments.models.rings import IdealRing, hashed, spaced
from meetpoint.language.filters.filter import parse_filter
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.entries import ListEntry, entries_of, next_point
from meetpoint.schemes.lists.number_lines import next_key
from meetpoint.schemes.lists.value_hash import Hashing

__all__ = ["Ids", "Walked", "entries_for", "ideal_ring", "walk"]

Ids: TypeAlias = Literal["every", "spaced", "hashed"]
"""Where nodes are: at every id of a ring that has no more of them, as in the paper's figures; evenly spaced on the ring
of 160 bits; at the hashes of their names, as brokers are."""


def ideal_ring(ids: Ids, nodes: int, seed: int) -> IdealRing:
    """A ring of so many nodes, a power of 2 where they are at every id."""
    if ids == "every":
        small = Ring(nodes.bit_length() - 1)
        assert small.size == nodes, f"{nodes} is no power of 2"
        return IdealRing(small, spaced(small, nodes))
    return IdealRing(Ring(), spaced(Ring(), nodes) if ids == "spaced" else hashed(Ring(), nodes, seed))


def entries_for(hashing: Hashing, filter_: str) -> tuple[ListEntry, ...]:
    """What is placed for a filter of one conjunction."""
    (conjunction,) = parse_filter(filter_).conjunctions
    return entries_of(hashing, conjunction, HomeId(b""), 0)


class Walked(NamedTuple):
    """What it took to bring something to all its nodes."""

    hops: int
    """Messages from the origin, and from node to node."""
    nodes: tuple[int, ...]
    """Those that were reached for it, in order, each once."""
    answers: int
    """Messages back to the origin, one from each stop of a walk that is not at the origin."""


def walk(
    ring: IdealRing, hashing: Hashing, origin: int, entries: Iterable[ListEntry], *, skipping: bool = True
) -> Walked:
    """Bring entries to their keys, each by a walk of its own; without `skipping` to every node of their arcs."""
    hops = answers = 0
    reached: dict[int, None] = {}
    size = hashing.ring.distance
    for entry in entries:
        at, key = origin, entry.low
        while True:
            hops += ring.hops(at, key)
            at = ring.owner(key)
            reached[at] = None
            answers += at != origin
            last = ring.nodes[at]
            if size(key, last) >= size(key, entry.high):
                break
            onward = next_point(hashing, entry, last) if skipping else next_key(hashing.ring, _span(entry), last)
            if onward is None:
                break
            key = onward
    return Walked(hops, tuple(reached), answers)


def _span(entry: ListEntry) -> tuple[Key, Key]:
    return entry.low, entry.high
