"""Papers A and B as printed on a ring of brokers, as models: what would be sent is counted, not sent.

Corrected brokers cannot run what the papers print, so that `schemes.lists.printed` runs here over an ideal Chord ring.
`PrintedModel` runs it event by event, and encodes what would be sent, to count bytes. `PrintedGathering` has the same
lists and counts as `gathering` does, much faster: that both count the same is a test.

The messages are those of the live scheme, in the same envelopes, from the same codec: a question or a list that is
passed on counts at each hop, answers go straight. What the live scheme does beyond the papers is left out, in favour of
what is printed: nothing is acknowledged, repeated or kept safe, no event asks for what needs no attribute, and there
is no ring to keep up.

As printed, the origin contacts the home of every SubID apart, or sends the event round the ring where that is cheaper
for so many SubIDs. Homes take the SubID's word and do not filter; so what is wrong here would reach subscribers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from random import Random

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, Peer, home_of
from meetpoint.api.messages import Message
from meetpoint.catalog import make_codec
from meetpoint.lab.experiments.models.gathering import GatheringModel, Sent, members, subset
from meetpoint.lab.experiments.models.rings import IdealRing, hashed
from meetpoint.lab.printed.lists import PlainHash, PrintedNetwork, Sending, Sort, predicates_of
from meetpoint.lab.sim.compare.traffic import Traffic
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import attributes_to_msgpack, to_msgpack
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord.messages import ChordRouted
from meetpoint.placement.messages import Done, KeyedRequest
from meetpoint.placement.ownership.key_range import KeyRange
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode, homes_of, is_walk_cheaper
from meetpoint.schemes.lists.entries import ListSort
from meetpoint.schemes.lists.messages import ChainResult, ChainStep, DeliverToHomes, ListQuery, ListReply
from meetpoint.schemes.lists.scheme import VALUE
from meetpoint.schemes.lists.subids import AttributeBits, SubId

__all__ = ["Modelled", "PrintedGathering", "PrintedModel"]

_TIME = datetime(2026, 1, 1, tzinfo=UTC)


class Modelled(msgspec.Struct):
    """What the events came to so far."""

    subids: int = 0
    delivered_subids: int = 0
    """Those among them that went from the origin to homes."""
    missing: int = 0
    """True matches that are not found."""
    spurious: int = 0
    """What is found and is no match: homes would take it."""
    walks: int = 0
    """Events that went round the ring."""
    kinds: dict[str, Traffic] = {}
    """By the tag of the innermost message, as a `Meter` has them."""

    def count(self, message: Message, size: int, hops: int) -> None:
        """Some bytes went so many hops."""
        tag = str(message.__struct_config__.tag)
        self.kinds.setdefault(tag, Traffic()).add(Traffic(hops, hops * size))


class PrintedModel:
    """One network: subscriptions at homes drawn at random, events that come to nodes drawn at random."""

    def __init__(
        self,
        nodes: int,
        seed: int,
        mode: CollectionMode,
        schema: Schema,
        order: AttributeOrder,
        filters: Iterable[Filter],
    ) -> None:
        ring = Ring()
        self._random = Random(f"printed/{seed}")
        self._ring = IdealRing(ring, hashed(ring, nodes, seed))
        self._peers = [Peer(node, f"n{number}") for number, node in enumerate(self._ring.nodes)]
        self._homes = [home_of(node) for node in self._ring.nodes]
        self._mode = mode
        self._order = order
        self._encode = make_codec().encode
        self._numbers = [0] * nodes  # of errands, by origin
        self._published = [0] * nodes
        bits = AttributeBits(schema)
        self._network = PrintedNetwork(PlainHash(ring), self._ring.owner, bits=bits)
        for number, filter_ in enumerate(filters):
            (conjunction,) = filter_.conjunctions
            sub_id = SubId(self._random.choice(self._homes), number, bits.declare(conjunction.attributes))
            self._network.store(sub_id, predicates_of(conjunction, schema))
        self.found = Modelled()

    def publish(self, attributes: Mapping[str, str], expected: Sequence[int]) -> None:
        """An event at some node; `expected` are the numbers of the filters that it matches."""
        origin = self._random.randrange(len(self._peers))
        self._published[origin] += 1
        number = self._published[origin]
        event = EventKey(self._homes[origin], 1, number)
        content = to_msgpack(Event(f"e{number}", "simulated", number, _TIME, dict(attributes)))
        listen = self._listener(origin, event, content, [*sorted(attributes, key=self._order.key)])
        matched, counts = self._network.match(attributes, self._mode, origin, self._order, listen=listen)
        numbers = {sub_id.number for sub_id in matched}
        self.found.subids += counts.sub_ids
        self.found.missing += len(set(expected) - numbers)
        self.found.spurious += len(numbers.difference(expected))
        self._deliver(origin, event, content, matched)

    # -- what is sent --------------------------------------------------------------------------------------------------

    def _listener(
        self, origin: int, event: EventKey, content: bytes, groups: Sequence[str]
    ) -> Callable[[Sending], None]:
        told = 0

        def listen(sending: Sending) -> None:
            nonlocal told
            sub_ids = tuple(sending.sub_ids)
            if sending.what == "ask":
                value = attributes_to_msgpack({VALUE: sending.value})
                self._route(sending.source, sending.key, ListQuery(sending.attribute, (ListSort.VALUE,), value, 0))
            elif sending.what == "answer":
                self._answer(sending, ListReply(sub_ids))
            elif sending.what == "pass":
                group = groups.index(sending.attribute)
                chain = ChainStep(self._peers[origin], event.number, group, told, event, content, sub_ids)
                self._route(sending.source, sending.key, chain)
            else:
                told += 1
                message = ChainResult(told, event.number, groups.index(sending.attribute), told, sub_ids)
                self.found.count(message, len(self._encode(message)), 1)

        return listen

    def _route(self, source: int, key: Key, body: Message, *, hops: int | None = None) -> None:
        """An errand to a key: all its hops are equally long."""
        self._numbers[source] += 1
        peer = self._peers[source]
        errand = KeyedRequest(key, key, peer, self._numbers[source], 0, self._encode(body))
        routed = ChordRouted(key, peer, 1, self._encode(errand))
        self.found.count(body, len(self._encode(routed)), self._ring.hops(source, key) if hops is None else hops)

    def _answer(self, sending: Sending, body: Message) -> None:
        """The answer to the last errand of a node."""
        nodes, here = self._ring.nodes, sending.source
        arc = KeyRange(bytes(nodes[here - 1]), bytes(nodes[here]))
        number = self._numbers[sending.to]
        done = Done(number, sending.key, sending.key, 1, self._homes[here], arc, self._encode(body))
        self.found.count(body, len(self._encode(done)), 1)

    def _deliver(self, origin: int, event: EventKey, content: bytes, matched: Sequence[SubId]) -> None:
        nodes = len(self._peers)
        if is_walk_cheaper(len(matched), nodes):
            homes = tuple((home, tuple(numbers)) for home, numbers in homes_of(matched).items())
            self.found.walks += 1
            self._count_delivered(len(matched) * (nodes - 1))
            self._route(origin, self._ring.nodes[origin], DeliverToHomes(event, 0, homes, content), hops=nodes - 1)
            return
        for sub_id in matched:
            home = HomeId(sub_id.home)
            if home != self._homes[origin]:
                self._count_delivered(1)
                self._route(origin, Key(home), DeliverToHomes(event, 0, ((home, (sub_id.number,)),), content))

    def _count_delivered(self, subids: int) -> None:
        self.found.subids += subids
        self.found.delivered_subids += subids


class PrintedGathering(GatheringModel):
    """The same without bytes: lists as they are printed, one predicate an attribute."""

    prunes = False
    acknowledges = False
    tells_always = True

    def __init__(self, ring: IdealRing, schema: Schema, filters: Sequence[Filter], homes: Sequence[int]) -> None:
        self._hash = PlainHash(ring.ring)
        network = PrintedNetwork(self._hash, ring.owner)
        declared: list[list[int]] = []
        for number, (filter_, home) in enumerate(zip(filters, homes, strict=True)):
            (conjunction,) = filter_.conjunctions
            predicates = predicates_of(conjunction, schema)
            declared.append([schema.names.index(predicate.attribute) for predicate in predicates])
            assert len(set(declared[-1])) == len(predicates), "delivery lists are not told apart here"
            network.store(SubId(home_of(ring.nodes[home]), number, len(predicates)), predicates)
        super().__init__(ring, schema.names, homes, declared)
        self._held = {
            (*place, value): subset([sub_id.number for sub_id in sub_ids])
            for place, by_value in network.lists.items()
            for value, sub_ids in by_value.items()
        }

    def _look_up(self, attribute: str, value: str) -> Iterator[tuple[int, int]]:
        asked = [(Sort.EQUALITY, value)]
        for size in range(1, len(value) + 1):
            asked += [(Sort.SUFFIX, value[-size:]), (Sort.PREFIX, value[:size])]
        for sort, text in asked:
            owner = self._ring.owner(self._hash(attribute, text))
            yield owner, self._held.get((owner, attribute, sort, text), 0)

    def _deliver(self, sent: Sent, origin: int, matched: int) -> None:
        """To the home of every SubID apart, or round the ring."""
        nodes, count = len(self._ring.nodes), matched.bit_count()
        if is_walk_cheaper(count, nodes):
            sent.walks += 1
            sent.delivered_subids += count * (nodes - 1)
            sent.messages += nodes - 1
            return
        for number in members(matched):
            home = self._homes[number]
            if home != origin:
                sent.delivered_subids += 1
                sent.messages += self._hops_home[origin][home]
