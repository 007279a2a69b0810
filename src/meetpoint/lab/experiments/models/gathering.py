"""How SubIDs are brought together and delivered (paper B, sections 5 and 6), as a model that counts what is sent.

The simulator takes hours for paper B's 10,000 subscriptions and 30,000 events. Here nothing is sent: a set of SubIDs is
one integer with a bit for each subscription, so that a step of matching is a few operations on integers, and what the
keys of a value say is found once for all events that hold it. Both versions are told in these terms, each with its own
lists: `corrected`, whose every count is that of simulated brokers (a test), and `printed`, whose every count is that of
`schemes.lists.printed` (a test). Subscriptions are conjunctions with one constraint an attribute, none of them IS NULL.

What is counted:

- *SubIDs*, each time that one is sent to another node: in answers, in lists that are passed on, in what the origin is
  told; those of deliveries apart.
- *lookups*, as the paper counts them: a question, its answer, a list that is passed on and what the origin is told are
  one each, also where a node happens to be the one that it asks.
- *messages*: a question, a list that is passed on and an event that is delivered count at each hop of an ideal ring, an
  answer and what the origin is told go straight; nobody sends to itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import msgspec

from meetpoint.lab.experiments.models.rings import IdealRing
from meetpoint.schemes.lists.collection import CollectionMode

__all__ = ["GatheringModel", "Lookups", "Sent", "members", "subset"]


class Lookups(NamedTuple):
    """What the keys of a value say, whatever else an event holds."""

    attribute: int
    """The number of the attribute; -1 for what every event asks."""
    owners: tuple[int, ...]
    """Which node has each key; that of the first leads the group."""
    answers: tuple[tuple[int, int], ...]
    """Nodes, and the SubIDs that each has to say at a key, where there are any."""
    led: int
    """Messages until the leader has all answers."""


class Sent(msgspec.Struct):
    """What the events came to so far."""

    lookups: int = 0
    messages: int = 0
    subids: int = 0
    """Until the origin knows what matches."""
    delivered_subids: int = 0
    """From the origin to homes."""
    walks: int = 0
    """Events that went round the ring."""


class _Heard(NamedTuple):
    """What the lists of a group say of an event."""

    found: int
    by_leader: int
    by_origin: int
    """SubIDs that are sent where that node asks."""


class _Asked(NamedTuple):
    """An event on its way."""

    groups: Sequence[Lookups]
    heard: Sequence[_Heard]
    origin: int
    within: int
    """Who declares nothing but what the event holds."""
    later: Sequence[int]
    """For each group, who declares the attribute of one after it."""


def subset(numbers: Sequence[int]) -> int:
    """A set of subscriptions by their numbers."""
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


def members(bits: int) -> Iterator[int]:
    """The numbers of the subscriptions of a set, the lowest first."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


class GatheringModel(ABC):
    """One network: `homes` are the nodes of subscriptions, `declared` the attributes of each, by their numbers."""

    prunes: bool
    """Whether list nodes leave out SubIDs that declare an attribute which the event lacks."""
    acknowledges: bool
    """Whether lists that are passed on, what the origin is told and deliveries are answered."""
    tells_always: bool
    """Whether in hybrid matching the origin is told also that nothing is certain yet."""

    def __init__(
        self, ring: IdealRing, names: Sequence[str], homes: Sequence[int], declared: Sequence[Sequence[int]]
    ) -> None:
        self.sent = {mode: Sent() for mode in CollectionMode}
        self._ring = ring
        self._numbers = {name: number for number, name in enumerate(names)}
        self._homes = homes
        self._everyone = (1 << len(homes)) - 1
        self._declaring = [0] * len(names)
        for number, attributes in enumerate(declared):
            for attribute in attributes:
                self._declaring[attribute] |= 1 << number
        self._known: dict[tuple[str, str], Lookups] = {}
        nodes = range(len(ring.nodes))
        between = [ring.ring.add(node, -1) for node in ring.nodes]  # all keys of a node are as far, but for its own id
        self._hops = [[ring.hops(source, between[to]) for to in nodes] for source in nodes]
        self._there_and_back = [[hops + (hops > 0) for hops in row] for row in self._hops]
        self._hops_home = [[ring.hops(source, ring.nodes[to]) for to in nodes] for source in nodes]

    # -- what a version says of its lists ------------------------------------------------------------------------------

    @abstractmethod
    def _look_up(self, attribute: str, value: str) -> Iterable[tuple[int, int]]:
        """For each key that an attribute of an event asks at, which node has it, and the SubIDs that it says."""

    def _for_every_event(self) -> Sequence[Lookups]:
        """What is asked beside."""
        return ()

    @abstractmethod
    def _deliver(self, sent: Sent, origin: int, matched: int) -> None:
        """Count what it takes to bring an event to the homes of what it matched."""

    # -- events --------------------------------------------------------------------------------------------------------

    def lookups(self, attribute: str, value: str) -> Lookups:
        """What the keys of a value say."""
        known = self._known.get((attribute, value))
        if known is None:
            known = self._known[attribute, value] = self._group(
                self._numbers[attribute], self._look_up(attribute, value)
            )
        return known

    def _group(self, attribute: int, said: Iterable[tuple[int, int]]) -> Lookups:
        owners, answers = zip(*said, strict=True)
        told = tuple((owner, answer) for owner, answer in zip(owners, answers, strict=True) if answer)
        led = sum(map(self._there_and_back[owners[0]].__getitem__, owners))
        return Lookups(attribute, owners, told, led)

    def selectivity_order(self, events: Sequence[Mapping[str, str]]) -> list[str]:
        """The attributes, first those whose constraints the fewest events satisfy; as `Feedback.attribute_order`."""
        hits = dict.fromkeys(self._numbers, 0)
        for event in events:
            for name, value in event.items():
                hits[name] += sum(answer.bit_count() for _, answer in self.lookups(name, value).answers)
        asked = {name: max(1, self._declaring[number].bit_count()) for name, number in self._numbers.items()}
        return sorted(hits, key=lambda name: (hits[name] / asked[name], name))

    def publish(self, event: Mapping[str, str], order: Sequence[str], origin: int) -> dict[CollectionMode, int]:
        """What an event matches that comes to a node, its attributes in some order, in each of the modes."""
        groups = [*(self.lookups(name, event[name]) for name in order), *self._for_every_event()]
        within = self._within({self._numbers[name] for name in event})
        heard = [self._hear(group, origin, within) for group in groups]
        asked = _Asked(groups, heard, origin, within, self._later(groups))
        found = {CollectionMode.COORDINATED: self._coordinate(asked)}
        for mode in (CollectionMode.DISTRIBUTED, CollectionMode.HYBRID):
            found[mode] = self._pass_along(mode, asked)
        for mode, matched in found.items():
            self._deliver(self.sent[mode], origin, matched)
        return found

    def _within(self, held: Set[int]) -> int:
        """Who declares nothing but what an event holds."""
        beyond = 0
        for attribute, declaring in enumerate(self._declaring):
            if attribute not in held:
                beyond |= declaring
        return self._everyone & ~beyond

    def _own(self, group: Lookups) -> int:
        """Who declares a group's attribute."""
        return self._declaring[group.attribute] if group.attribute >= 0 else 0

    def _later(self, groups: Sequence[Lookups]) -> list[int]:
        """For each group, who declares the attribute of one after it."""
        later = [0]
        for group in reversed(groups[1:]):
            later.append(later[-1] | self._own(group))
        return later[::-1]

    def _hear(self, group: Lookups, origin: int, within: int) -> _Heard:
        """All that the lists of a group say of an event."""
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
        return _Heard(found, said - at_leader, said - at_origin)

    def _coordinate(self, asked: _Asked) -> int:
        """Everyone answers the origin; what was found under all that it declares has matched."""
        sent = self.sent[CollectionMode.COORDINATED]
        matched = asked.within
        there_and_back = self._there_and_back[asked.origin].__getitem__
        for group, heard in zip(asked.groups, asked.heard, strict=True):
            sent.lookups += 2 * len(group.owners)
            sent.messages += sum(map(there_and_back, group.owners))
            sent.subids += heard.by_origin
            matched &= heard.found | ~self._own(group)
        return matched

    def _pass_along(self, mode: CollectionMode, asked: _Asked) -> int:
        """Group after group filters what came and what it found against each other."""
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
