"""The corrected scheme in memory: nodes on a ring, what they hold, and events that go round. No messages, no time.

Entries are placed as a network would, from node to node by `next_point`, and packed and unpacked on the way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from meetpoint.api.ids import HomeId, Key, NodeId
from meetpoint.language import Filter
from meetpoint.schemes.lists.collection import (
    AttributeLists,
    AttributeOrder,
    CollectionMode,
    coordinated,
    distributed_step,
    groups_of,
    hybrid_step,
)
from meetpoint.schemes.lists.entries import ListEntry, difference, entries_of, next_point, pack, unpack
from meetpoint.schemes.lists.subids import SubId, conjunction_number
from meetpoint.schemes.lists.value_hash import Hashing

HOME = HomeId(b"home")


class Model:
    """One network."""

    def __init__(self, hashing: Hashing, nodes: Iterable[NodeId], order: AttributeOrder | None = None) -> None:
        self.hashing = hashing
        self.nodes = sorted(nodes)
        self.order = AttributeOrder(hashing.schema) if order is None else order
        self.lists = {node: AttributeLists() for node in self.nodes}
        self.entries: dict[int, tuple[ListEntry, ...]] = {}
        self.filters: dict[int, Filter] = {}
        self.sent = 0
        """SubIDs sent by the last event, counted each time."""

    def owner(self, key: bytes) -> NodeId:
        return self.nodes[bisect_left(self.nodes, key) % len(self.nodes)]

    def holders(self, entry: ListEntry) -> list[NodeId]:
        """The nodes that get an entry, in the order of a walk along it."""
        at: Key | None = entry.low
        holders: dict[NodeId, None] = {}
        while at is not None:
            node = self.owner(at)
            holders[node] = None
            last = (
                node
                if self.hashing.ring.distance(entry.low, node) >= self.hashing.ring.distance(entry.low, at)
                else entry.high
            )
            at = next_point(self.hashing, entry, last)
        return [*holders]

    # -- subscriptions -------------------------------------------------------------------------------------------------

    def subscribe(self, number: int, filter_: Filter) -> None:
        self.update(number, filter_)

    def update(self, number: int, filter_: Filter | None) -> tuple[list[ListEntry], list[ListEntry]]:
        """Move what differs; what was placed and what was removed."""
        new = () if filter_ is None else self.entries_of(number, filter_)
        placed, removed = difference(self.entries.get(number, ()), new)
        for entry in placed:
            self.place(entry)
        for entry in removed:
            self.remove(entry)
        self.entries[number] = new
        self.filters.pop(number, None)
        if filter_ is not None:
            self.filters[number] = filter_
        return placed, removed

    def entries_of(self, number: int, filter_: Filter) -> tuple[ListEntry, ...]:
        return tuple(
            entry
            for place, conjunction in enumerate(filter_.conjunctions)
            for entry in entries_of(self.hashing, conjunction, HOME, conjunction_number(number, place))
        )

    def place(self, entry: ListEntry) -> None:
        body = pack(entry)
        for node in self.holders(entry):
            self.lists[node].add(unpack(entry.low, entry.high, body))

    def remove(self, entry: ListEntry) -> None:
        for node in self.holders(entry):
            self.lists[node].discard(entry)

    # -- events --------------------------------------------------------------------------------------------------------

    def matches(
        self, attributes: Mapping[str, object], mode: CollectionMode = CollectionMode.COORDINATED
    ) -> list[SubId]:
        """What comes to the origin, which is no list node itself, as a match."""
        event = self.hashing.bits.flatten(attributes)
        groups = groups_of(self.hashing, event, self.order)
        self.sent = 0
        found: dict[str, list[SubId]] = {}
        come: list[SubId] = []
        done: list[SubId] = []
        checked = self.hashing.bits.gather(())
        for group in groups:
            leader = self.owner(group.lookups[0].key)
            local: list[SubId] = []
            for lookup in group.lookups:
                node = self.owner(lookup.key)
                answer = self.lists[node].answer(lookup, event)
                self.sent += len(answer) if mode is CollectionMode.COORDINATED or node != leader else 0
                local += answer
            own = self.hashing.bits.gather((group.attribute,))
            if mode is CollectionMode.COORDINATED:
                found[group.attribute] = local
            elif mode is CollectionMode.DISTRIBUTED:
                come = distributed_step(come, local, own, checked)
                self.sent += len(come)
            else:
                now, come = hybrid_step(come, local, own, checked)
                self.sent += len(now) + len(come)
                done += now
            checked |= own
        if mode is CollectionMode.COORDINATED:
            return coordinated(found)
        if mode is CollectionMode.DISTRIBUTED:
            return come
        assert not come, "all attributes were checked"
        return done

    def delivered(
        self, attributes: Mapping[str, object], mode: CollectionMode = CollectionMode.COORDINATED
    ) -> list[int]:
        """The subscriptions notified: those that their home finds to accept the event."""
        if not self.matches(attributes, mode):
            return []
        return [number for number, filter_ in self.filters.items() if filter_.accepts(attributes)]


def numbers(sub_ids: Iterable[SubId]) -> list[int]:
    """The subscriptions of some SubIDs, sorted, none twice."""
    return sorted({conjunction.number // conjunction_number(1, 0) for conjunction in sub_ids})


def spaced(hashing: Hashing, count: int) -> Sequence[NodeId]:
    """So many nodes, evenly spaced."""
    return [hashing.ring.node(hashing.ring.size * at // count) for at in range(count)]
