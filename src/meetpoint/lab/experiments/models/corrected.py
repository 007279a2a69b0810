"""The scheme `lists` as brokers run it, as a model that counts what is sent: see `gathering`.

What lies where, which keys an event asks, and what a list node says there is the scheme's own code. That SubIDs,
messages and matches are those of simulated brokers, mode by mode, is a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from meetpoint.api.ids import home_of
from meetpoint.lab.experiments.models.gathering import GatheringModel, Lookups, Sent, members, subset
from meetpoint.lab.experiments.models.rings import IdealRing
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.schemes.lists.collection import AttributeLists, AttributeOrder, groups_of, is_walk_cheaper
from meetpoint.schemes.lists.entries import EVERY_EVENT, entries_of
from meetpoint.schemes.lists.subids import FlatEvent
from meetpoint.schemes.lists.value_hash import Hashing

__all__ = ["CorrectedModel"]


class CorrectedModel(GatheringModel):
    """One network without faults; the home of each filter is a node by its number."""

    prunes = True
    acknowledges = True
    tells_always = False

    def __init__(self, ring: IdealRing, schema: Schema, filters: Sequence[Filter], homes: Sequence[int]) -> None:
        self._hashing = Hashing(ring.ring, schema)
        self._lists = [AttributeLists() for _ in ring.nodes]
        declared: list[list[int]] = []
        for number, (filter_, home) in enumerate(zip(filters, homes, strict=True)):
            (conjunction,) = filter_.conjunctions
            for entry in entries_of(self._hashing, conjunction, home_of(ring.nodes[home]), number):
                assert entry.low == entry.high, "a string lies at one key"
                assert entry.attribute != EVERY_EVENT and not entry.absent, "no IS NULL"  # noqa: PT018
                self._lists[ring.owner(entry.low)].add(entry)
            declared.append([schema.names.index(name) for name in conjunction.attributes])
        super().__init__(ring, schema.names, homes, declared)
        self._whole = self._hashing.bits.gather(schema.names)
        *_, every = groups_of(self._hashing, FlatEvent({}, self._whole), AttributeOrder())
        self._every = [self._group(-1, [(ring.owner(lookup.key), 0) for lookup in every.lookups])]

    def _look_up(self, attribute: str, value: str) -> Iterator[tuple[int, int]]:
        # As if the event had every attribute: `GatheringModel` prunes by those that it has.
        flat = FlatEvent({attribute: value}, self._whole)
        for lookup in groups_of(self._hashing, flat, AttributeOrder())[0].lookups:
            owner = self._ring.owner(lookup.key)
            yield owner, subset([sub_id.number for sub_id in self._lists[owner].answer(lookup, flat)])

    def _for_every_event(self) -> Sequence[Lookups]:
        return self._every

    def _deliver(self, sent: Sent, origin: int, matched: int) -> None:
        """To each home once, or round the ring and back, where each node answers."""
        at_home: dict[int, int] = {}
        for number in members(matched):
            at_home[self._homes[number]] = at_home.get(self._homes[number], 0) + 1
        nodes = len(self._lists)
        if is_walk_cheaper(len(at_home), nodes):
            sent.walks += 1
            sent.delivered_subids += matched.bit_count() * nodes
            sent.messages += nodes + nodes - 1
            return
        for home, count in at_home.items():
            if home != origin:
                sent.delivered_subids += count
                sent.messages += self._hops_home[origin][home] + 1
