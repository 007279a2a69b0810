"""The collection and delivery of SubIDs (paper B, sections 5 and 6), as models that count messages.

The simulator takes hours for paper B's 10,000 subscriptions and 30,000 events. Here nothing is sent: a set of SubIDs is
one integer with a bit for each subscription, so that a step of matching is a few operations on integers, and the answer
of a value's keys is found once for all events that hold it. Each version has its own lists:

- `CorrectedModel`: the scheme `lists` as brokers run it, by the scheme's own code. That its SubIDs, messages and
  matches are those of simulated brokers, mode by mode, is a test.
- `PrintedCollection`: papers A and B as printed (`lab.printed`). `PrintedModel` runs them event by event, and encodes
  the messages, to count bytes. That both count the same is a test.

Subscriptions are conjunctions with one constraint an attribute, none of them IS NULL. Counted are:

- *SubIDs*, each time that one is sent to another node: in answers, in lists that are passed on, in the origin's
  results; those of deliveries apart.
- *lookups*, as the paper counts them: a question, its answer, a list that is passed on and a result to the origin are
  one each, also where a node happens to ask itself.
- *messages*: a question, a list that is passed on and an event that is delivered count at each hop of an ideal ring, an
  answer and a result go straight; nobody sends to itself.

The printed messages are those of the live scheme, in the same envelopes, from the same codec. The live scheme's
additions are left out, in favour of what is printed: nothing is acknowledged, repeated or kept safe, no event asks for
subscriptions without attributes, and there is no ring to keep up. As printed, the origin contacts the home of every
SubID apart, or sends the event round the ring where that is cheaper for so many SubIDs. Homes take the SubID's word
and do not filter; so a wrong match here would reach subscribers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Key, Peer, home_of
from meetpoint.api.messages import Message
from meetpoint.catalog import make_codec
from meetpoint.lab.experiments.rings import IdealRing, hashed
from meetpoint.lab.printed.papers_ab import PlainHash, PrintedNetwork, SentMessage, Sort, predicates_of
from meetpoint.lab.sim.observers import Traffic
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import attributes_to_msgpack, to_msgpack
from meetpoint.language.filters.filter import Filter
from meetpoint.language.schema.schema import Schema
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord.messages import ChordRouted
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import KeyedReply, KeyedRequest
from meetpoint.schemes.lists.collection import (
    AttributeLists,
    AttributeOrder,
    CollectionMode,
    groups_of,
    homes_of,
    is_walk_cheaper,
)
from meetpoint.schemes.lists.entries import EVERY_EVENT, ListSort, entries_of
from meetpoint.schemes.lists.messages import ChainResult, ChainStep, DeliverToHomes, ListQuery, ListReply
from meetpoint.schemes.lists.scheme import VALUE
from meetpoint.schemes.lists.subids import AttributeBits, FlatEvent, SubId
from meetpoint.schemes.lists.value_hash import Hashing


class ValueLookups(NamedTuple):
    """The answers of a value's keys, whatever else an event holds."""

    attribute: int
    """The number of the attribute; -1 for the keys that every event asks."""
    owners: tuple[int, ...]
    """The owner of each key; that of the first leads the group."""
    answers: tuple[tuple[int, int], ...]
    """Nodes, and the SubIDs that each has at a key, where there are any."""
    led: int
    """Messages until the leader has all answers."""


class SentCounts(msgspec.Struct):
    """The sums of the events so far."""

    lookups: int = 0
    messages: int = 0
    subids: int = 0
    """SubIDs sent until the origin knows the matches."""
    delivered_subids: int = 0
    """SubIDs sent from the origin to homes."""
    walks: int = 0
    """Events that went round the ring."""


class _GroupAnswer(NamedTuple):
    """The answers of a group's lists to an event."""

    found: int
    by_leader: int
    by_origin: int
    """SubIDs that are sent where that node asks."""


class _MatchedEvent(NamedTuple):
    """An event being matched."""

    groups: Sequence[ValueLookups]
    heard: Sequence[_GroupAnswer]
    origin: int
    within: int
    """Subscriptions that declare no attribute beyond the event's."""
    later: Sequence[int]
    """For each group, the subscriptions that declare the attribute of one after it."""


def subset(numbers: Sequence[int]) -> int:
    """Return a set of subscriptions by their numbers."""
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


def members(bits: int) -> Iterator[int]:
    """Yield the numbers of the subscriptions of a set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class CollectionModel(ABC):
    """A network: `homes` are the nodes of subscriptions, `declared` the attributes of each, by their numbers."""

    prunes: bool
    """Whether list nodes leave out SubIDs that declare an attribute which the event lacks."""
    acknowledges: bool
    """Whether passed lists, results to the origin and deliveries are answered."""
    tells_always: bool
    """Whether in hybrid matching the origin is told also that nothing is certain yet."""

    def __init__(
        self, ring: IdealRing, names: Sequence[str], homes: Sequence[int], declared: Sequence[Sequence[int]]
    ) -> None:
        self.sent = {mode: SentCounts() for mode in CollectionMode}
        self._ring = ring
        self._numbers = {name: number for number, name in enumerate(names)}
        self._homes = homes
        self._everyone = (1 << len(homes)) - 1
        self._declaring = [0] * len(names)
        for number, attributes in enumerate(declared):
            for attribute in attributes:
                self._declaring[attribute] |= 1 << number
        self._known: dict[tuple[str, str], ValueLookups] = {}
        nodes = range(len(ring.nodes))
        between = [ring.ring.add(node, -1) for node in ring.nodes]  # all keys of a node are as far, but for its own id
        self._hops = [[ring.hops(source, between[to]) for to in nodes] for source in nodes]
        self._there_and_back = [[hops + (hops > 0) for hops in row] for row in self._hops]
        self._hops_home = [[ring.hops(source, ring.nodes[to]) for to in nodes] for source in nodes]

    # -- what a version says of its lists ------------------------------------------------------------------------------

    @abstractmethod
    def _look_up(self, attribute: str, value: str) -> Iterable[tuple[int, int]]:
        """Return the owner of each key that an attribute of an event asks at, and the SubIDs there."""

    def _for_every_event(self) -> Sequence[ValueLookups]:
        """Return the lookups that every event makes besides."""
        return ()

    @abstractmethod
    def _deliver(self, sent: SentCounts, origin: int, matched: int) -> None:
        """Count the messages that bring an event to the homes of its matches."""

    # -- events --------------------------------------------------------------------------------------------------------

    def lookups(self, attribute: str, value: str) -> ValueLookups:
        """Return the answers of a value's keys."""
        known = self._known.get((attribute, value))
        if known is None:
            known = self._known[attribute, value] = self._group(
                self._numbers[attribute], self._look_up(attribute, value)
            )
        return known

    def _group(self, attribute: int, said: Iterable[tuple[int, int]]) -> ValueLookups:
        owners, answers = zip(*said, strict=True)
        told = tuple((owner, answer) for owner, answer in zip(owners, answers, strict=True) if answer)
        led = sum(map(self._there_and_back[owners[0]].__getitem__, owners))
        return ValueLookups(attribute, owners, told, led)

    def selectivity_order(self, events: Sequence[Mapping[str, str]]) -> list[str]:
        """Return the attributes, first those whose constraints the fewest events satisfy; as
        `Feedback.attribute_order`.
        """
        hits = dict.fromkeys(self._numbers, 0)
        for event in events:
            for name, value in event.items():
                hits[name] += sum(answer.bit_count() for _, answer in self.lookups(name, value).answers)
        asked = {name: max(1, self._declaring[number].bit_count()) for name, number in self._numbers.items()}
        return sorted(hits, key=lambda name: (hits[name] / asked[name], name))

    def publish(self, event: Mapping[str, str], order: Sequence[str], origin: int) -> dict[CollectionMode, int]:
        """Match an event that comes to a node, its attributes in some order, in each of the modes."""
        groups = [*(self.lookups(name, event[name]) for name in order), *self._for_every_event()]
        within = self._within({self._numbers[name] for name in event})
        heard = [self._hear(group, origin, within) for group in groups]
        asked = _MatchedEvent(groups, heard, origin, within, self._later(groups))
        found = {CollectionMode.COORDINATED: self._coordinate(asked)}
        for mode in (CollectionMode.DISTRIBUTED, CollectionMode.HYBRID):
            found[mode] = self._pass_along(mode, asked)
        for mode, matched in found.items():
            self._deliver(self.sent[mode], origin, matched)
        return found

    def _within(self, held: Set[int]) -> int:
        """Return the subscriptions that declare no attribute beyond the event's."""
        beyond = 0
        for attribute, declaring in enumerate(self._declaring):
            if attribute not in held:
                beyond |= declaring
        return self._everyone & ~beyond

    def _own(self, group: ValueLookups) -> int:
        """Return the subscriptions that declare a group's attribute."""
        return self._declaring[group.attribute] if group.attribute >= 0 else 0

    def _later(self, groups: Sequence[ValueLookups]) -> list[int]:
        """Return, for each group, the subscriptions that declare the attribute of one after it."""
        later = [0]
        for group in reversed(groups[1:]):
            later.append(later[-1] | self._own(group))
        return later[::-1]

    def _hear(self, group: ValueLookups, origin: int, within: int) -> _GroupAnswer:
        """Return the answers of a group's lists to an event."""
        leader, found, said, at_leader, at_origin = group.owners[0], 0, 0, 0, 0
        for owner, answer in group.answers:
            if self.prunes:
                answer &= within
            count = answer.bit_count()
            said += count
            if owner == leader:
                at_leader += count
            if owner == origin:
                at_origin += count
            found |= answer
        return _GroupAnswer(found, said - at_leader, said - at_origin)

    def _coordinate(self, asked: _MatchedEvent) -> int:
        """Let all nodes answer the origin. A SubID that was found under all its attributes has matched."""
        sent = self.sent[CollectionMode.COORDINATED]
        matched = asked.within
        there_and_back = self._there_and_back[asked.origin].__getitem__
        for group, heard in zip(asked.groups, asked.heard, strict=True):
            sent.lookups += 2 * len(group.owners)
            sent.messages += sum(map(there_and_back, group.owners))
            sent.subids += heard.by_origin
            matched &= heard.found | ~self._own(group)
        return matched

    def _pass_along(self, mode: CollectionMode, asked: _MatchedEvent) -> int:
        """Let each group filter the passed list and its own answers against each other."""
        sent = self.sent[mode]
        come, arrived, checked, before = 0, 0, 0, asked.origin
        for group, heard, later in zip(asked.groups, asked.heard, asked.later, strict=True):
            leader, here = group.owners[0], heard.found
            sent.lookups += 1 + 2 * (len(group.owners) - 1)
            sent.messages += group.led
            sent.subids += heard.by_leader
            if leader != before:
                sent.messages += self._hops[before][leader] + self.acknowledges
                sent.subids += come.bit_count()
            own = self._own(group)
            come = come & (here | ~own) | here & ~come & ~checked
            checked |= own
            before = leader
            is_last = group is asked.groups[-1]
            done = come if is_last else 0
            if mode is CollectionMode.HYBRID and not is_last:
                done = come & ~later & asked.within
            come ^= done
            if done or is_last or (mode is CollectionMode.HYBRID and self.tells_always):
                sent.lookups += 1
                if leader != asked.origin:
                    sent.messages += 1 + self.acknowledges
                    sent.subids += done.bit_count()
            arrived |= done
        return arrived


# -- the corrected version ---------------------------------------------------------------------------------------------


class CorrectedModel(CollectionModel):
    """The corrected version without faults; the home of each filter is a node by its number."""

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
        # As if the event had every attribute: `CollectionModel` prunes by those that it has.
        flat = FlatEvent({attribute: value}, self._whole)
        for lookup in groups_of(self._hashing, flat, AttributeOrder())[0].lookups:
            owner = self._ring.owner(lookup.key)
            yield owner, subset([sub_id.number for sub_id in self._lists[owner].answer(lookup, flat)])

    def _for_every_event(self) -> Sequence[ValueLookups]:
        return self._every

    def _deliver(self, sent: SentCounts, origin: int, matched: int) -> None:
        """Count a message to each home, or one round the ring and back, where each node answers."""
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


# -- the printed version -----------------------------------------------------------------------------------------------


_TIME = datetime(2026, 1, 1, tzinfo=UTC)


class PrintedCounts(msgspec.Struct):
    """The sums of the events so far, with bytes."""

    subids: int = 0
    delivered_subids: int = 0
    """SubIDs among them that went from the origin to homes."""
    missing: int = 0
    """True matches that are not found."""
    spurious: int = 0
    """Found SubIDs that are no match: homes would take them."""
    walks: int = 0
    """Events that went round the ring."""
    kinds: dict[str, Traffic] = {}
    """Traffic by the tag of the innermost message, as a `Meter` has it."""

    def count(self, message: Message, size: int, hops: int) -> None:
        """Count a message of so many bytes over so many hops."""
        tag = str(message.__struct_config__.tag)
        self.kinds.setdefault(tag, Traffic()).add(Traffic(hops, hops * size))


class PrintedModel:
    """A network as printed: subscriptions at random homes, events that come to random nodes."""

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
        self._numbers = [0] * nodes  # of keyed requests, by origin
        self._published = [0] * nodes
        bits = AttributeBits(schema)
        self._network = PrintedNetwork(PlainHash(ring), self._ring.owner, bits=bits)
        for number, filter_ in enumerate(filters):
            (conjunction,) = filter_.conjunctions
            sub_id = SubId(self._random.choice(self._homes), number, bits.declare(conjunction.attributes))
            self._network.store(sub_id, predicates_of(conjunction, schema))
        self.found = PrintedCounts()

    def publish(self, attributes: Mapping[str, str], expected: Sequence[int]) -> None:
        """Publish an event at some node; `expected` are the numbers of the filters that it matches."""
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
    ) -> Callable[[SentMessage], None]:
        told = 0

        def listen(sending: SentMessage) -> None:
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
        """Count a keyed request: all its hops are equally long."""
        self._numbers[source] += 1
        peer = self._peers[source]
        request = KeyedRequest(key, key, peer, self._numbers[source], 0, self._encode(body))
        routed = ChordRouted(key, peer, 1, self._encode(request))
        self.found.count(body, len(self._encode(routed)), self._ring.hops(source, key) if hops is None else hops)

    def _answer(self, sending: SentMessage, body: Message) -> None:
        """Count the answer to the last keyed request of a node."""
        nodes, here = self._ring.nodes, sending.source
        arc = KeyRange(bytes(nodes[here - 1]), bytes(nodes[here]))
        number = self._numbers[sending.to]
        done = KeyedReply(number, sending.key, sending.key, 1, self._homes[here], arc, self._encode(body))
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


class PrintedCollection(CollectionModel):
    """The printed version without bytes: lists with one predicate an attribute."""

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

    def _deliver(self, sent: SentCounts, origin: int, matched: int) -> None:
        """Count a message to the home of every SubID apart, or one walk round the ring."""
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
