"""Collection: from an event to the SubIDs that match it, and their homes (papers A, section 3.2, and B, sections 5, 6).

An event asks for the lists of each of its attributes: a *group* of lookups. A string of length l asks at every
beginning and every end of it, of which the whole is one: at most 2l - 1 keys, where the paper has 1 + 2l, and at the
attribute's any key. Everything else asks at one key (at two, if its schema should have refused it). And every event
asks at the always key, for conjunctions that need no attribute: it is part of k, the nodes contacted.

Three modes bring together what the lists say; all give exactly the conjunctions that accept the event:

- *coordinated*: all lists answer the origin, and a SubID matches that was found under every attribute it declares;
- *distributed*: the groups one after the other, the most selective first. A group's first node collects what its group
  found, filters it and what came from the group before against each other, and passes the rest on, at last to the
  origin;
- *hybrid*: the same, but a SubID all of whose attributes are checked goes to the origin at once.

`AttributeLists` is what a list node holds. Asked at a key, it gives the SubIDs of the entries over that key that the
event may satisfy: the constraint accepts the event's value, the event has every attribute that the SubID declares, and
none that must be missing. What cannot match is left out at every node, and never travels. (As printed, SubIDs that
declare an attribute which the event lacks go all the way, and arrive.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from math import log2
from typing import NamedTuple, TypeAlias

from meetpoint.api.ids import HomeId, Key
from meetpoint.language.filters.constraints import Constraint, accepts
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind, Type, kind_of
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.ownership import RangeListener
from meetpoint.schemes.lists.entries import EVERY_EVENT, ListEntry, ListSort, unpack
from meetpoint.schemes.lists.number_lines import Grid, Span, contains
from meetpoint.schemes.lists.subids import AttributeSet, FlatEvent, SubId, count
from meetpoint.schemes.lists.value_hash import PART_MAX, Hashing

__all__ = [
    "AttributeLists",
    "AttributeOrder",
    "CollectionMode",
    "Group",
    "ListStore",
    "Lookup",
    "coordinated",
    "dht_lookups",
    "distributed_step",
    "groups_of",
    "homes_of",
    "hybrid_step",
    "is_walk_cheaper",
    "pack_order",
    "read_entry",
    "read_order",
]


class CollectionMode(StrEnum):
    """How what the lists say is brought together."""

    COORDINATED = "coordinated"
    DISTRIBUTED = "distributed"
    HYBRID = "hybrid"


class Lookup(NamedTuple):
    """A request of an event at a key: the lists of an attribute."""

    key: Key
    attribute: str
    sorts: tuple[ListSort, ...]


class Group(NamedTuple):
    """The lookups of one attribute; the node of the first key leads the group."""

    attribute: str
    lookups: tuple[Lookup, ...]


_VALUE = (ListSort.VALUE,)
_ANY = (ListSort.ANY,)
_BOTH = (ListSort.VALUE, ListSort.ANY)

# -- lookups -----------------------------------------------------------------------------------------------------------


PACKED_MAX = 255
"""Attributes whose order is told. With more, all brokers go by names."""


class AttributeOrder:
    """The order in which attributes are asked for: the most selective first.

    First come those named in `first`, as `Feedback.attribute_order` names them. The others follow by the size of their
    domains, the largest first (paper B, section 6); an attribute that nobody has bounded counts as endless. Among
    equals by name.
    """

    def __init__(self, schema: Schema | None = None, first: Sequence[str] = ()) -> None:
        self._places = {name: place for place, name in reversed([*enumerate(first)])}
        self._sizes = {} if schema is None else {attribute.name: domain_size(attribute) for attribute in schema}

    def key(self, name: str) -> tuple[int, float, str]:
        """Return the key to sort an attribute by."""
        return self._places.get(name, len(self._places)), -self._sizes.get(name, math.inf), name


def pack_order(names: Iterable[str], order: AttributeOrder) -> bytes:
    """Pack an order of attributes: their places in alphabetical order; nothing where they are too many."""
    plain = sorted(names)
    return bytes(map(plain.index, sorted(plain, key=order.key))) if len(plain) <= PACKED_MAX else b""


def read_order(names: Iterable[str], packed: bytes) -> AttributeOrder | None:
    """Read an order that was packed for the same attributes; None where it is malformed."""
    plain = sorted(names)
    if len(plain) > PACKED_MAX:
        return AttributeOrder()
    if sorted(packed) != list(range(len(plain))):
        return None
    return AttributeOrder(None, [plain[place] for place in packed])


def domain_size(attribute: Attribute) -> float:
    """Return how many values a declared attribute may have."""
    if attribute.type is Type.BOOLEAN:
        return 2
    grid = None if attribute.type is Type.STRING else Grid.of(attribute)
    return math.inf if grid is None else grid.count(grid.low, grid.high)


def groups_of(hashing: Hashing, event: FlatEvent, order: AttributeOrder, others: Sequence[Hashing] = ()) -> list[Group]:
    """Return the lookups of an event, attribute by attribute in order; the last group is there for every event.

    `others` are further scales under which numbers may lie (`value_hash`).
    """
    groups = [
        Group(name, tuple(_lookups(hashing, name, event.values[name], others)))
        for name in sorted(event.values, key=order.key)
    ]
    groups.append(Group(EVERY_EVENT, (Lookup(hashing.always, EVERY_EVENT, _ANY),)))
    return groups


def _lookups(hashing: Hashing, name: str, value: object, others: Sequence[Hashing]) -> list[Lookup]:
    if isinstance(value, str):
        keys = [hashing.text(name, text) for text in texts_of(value)]
        return [*[Lookup(key, name, _VALUE) for key in keys], Lookup(hashing.any(name), name, _ANY)]
    kind = kind_of(value)
    if kind is Kind.BOOLEAN:
        lookups = [Lookup(hashing.truth(name, value is True), name, _BOTH)]
    elif kind is None:  # an object: that it is there lies over the whole ring, and the always key is asked anyway
        lookups = [Lookup(hashing.always, name, _ANY)]
    else:
        asked = dict.fromkeys(key for each in (hashing, *others) for key in each.line(name, kind).keys(value))
        first, *more = asked
        lookups = [Lookup(first, name, _BOTH), *[Lookup(key, name, _VALUE) for key in more]]
    if hashing.is_text(name):  # and should be a string
        lookups.append(Lookup(hashing.any(name), name, _ANY))
    return lookups


def texts_of(value: str) -> list[str]:
    """Return the texts under which a string may be found: itself, its beginnings, its ends; none twice."""
    length = min(len(value), PART_MAX)
    texts = [value]
    for size in range(length, 0, -1):
        texts += (value[:size], value[-size:])
    return [*dict.fromkeys(texts)]


# -- matching ----------------------------------------------------------------------------------------------------------


def coordinated(found: Mapping[str, Iterable[SubId]]) -> list[SubId]:
    """Return the SubIDs that were found under every attribute that they declare."""
    counts: dict[SubId, int] = {}
    for attribute, sub_ids in found.items():
        step = attribute != EVERY_EVENT
        for sub_id in dict.fromkeys(sub_ids):
            counts[sub_id] = counts.get(sub_id, 0) + step
    return [sub_id for sub_id, hits in counts.items() if hits == count(sub_id.attributes)]


def distributed_step(
    come: Iterable[SubId], local: Iterable[SubId], attribute: AttributeSet, checked: AttributeSet
) -> list[SubId]:
    """Return what a group passes on, from what came and what it found.

    `attribute` is the group's own, `checked` are those of all groups before. What came and declares the attribute must
    have been found here; what was found here and declares a checked attribute must have come.
    """
    here, there = dict.fromkeys(local), dict.fromkeys(come)
    kept = [sub_id for sub_id in there if sub_id in here or attribute.has_none(sub_id.attributes)]
    return kept + [sub_id for sub_id in here if sub_id not in there and checked.has_none(sub_id.attributes)]


def hybrid_step(
    come: Iterable[SubId], local: Iterable[SubId], attribute: AttributeSet, checked: AttributeSet
) -> tuple[list[SubId], list[SubId]]:
    """Return what a group tells the origin, since all of its attributes are checked now, and what it passes on."""
    now_checked = checked | attribute
    done: list[SubId] = []
    rest: list[SubId] = []
    for sub_id in distributed_step(come, local, attribute, checked):
        (done if now_checked.has_all(sub_id.attributes) else rest).append(sub_id)
    return done, rest


def dht_lookups(mode: CollectionMode, nodes: int) -> int:
    """Return how many DHT lookups an event takes that contacts so many nodes, one an attribute (section 7.1)."""
    return nodes + 1 if mode is CollectionMode.DISTRIBUTED else 2 * nodes


# -- delivery ----------------------------------------------------------------------------------------------------------


def homes_of(sub_ids: Iterable[SubId]) -> dict[HomeId, list[int]]:
    """Return each home once, in the order of homes, with the numbers of its conjunctions that match."""
    homes: dict[HomeId, list[int]] = {}
    for sub_id in sub_ids:
        homes.setdefault(sub_id.home, []).append(sub_id.number)
    return {home: sorted(homes[home]) for home in sorted(homes)}


def is_walk_cheaper(homes: int, nodes: int) -> bool:
    """Return whether one walk round a ring takes no more hops than a way to each home.

    Paper B, section 5.1: unicasts where k * ½ log2 N < N, else the walk. Deviation: the paper's k counts SubIDs; homes
    are what is contacted.
    """
    return homes * log2(nodes) / 2 >= nodes


# -- lists at a node ---------------------------------------------------------------------------------------------------

_Alike: TypeAlias = dict[Constraint, dict[ListEntry, None]]
"""Entries by their constraint, which is evaluated once for all of them."""


class _List:
    """A list of one attribute: entries at single keys, and over longer spans."""

    __slots__ = ("points", "spans")

    def __init__(self) -> None:
        self.points: dict[Span, _Alike] = {}
        self.spans: dict[Span, _Alike] = {}

    def table(self, entry: ListEntry) -> dict[Span, _Alike]:
        return self.points if entry.low == entry.high else self.spans

    def over(self, key: Key) -> Iterator[_Alike]:
        at = self.points.get((key, key))
        if at is not None:
            yield at
        for span, held in self.spans.items():
            if contains(span, key):
                yield held


class AttributeLists:
    """All lists of one node."""

    def __init__(self) -> None:
        self._lists: dict[tuple[str, ListSort], _List] = {}
        self._count = 0

    def __len__(self) -> int:
        """Return how many entries there are."""
        return self._count

    def add(self, entry: ListEntry) -> None:
        """Add an entry; do nothing where it is there already."""
        table = self._lists.setdefault((entry.attribute, entry.sort), _List()).table(entry)
        held = table.setdefault((entry.low, entry.high), {}).setdefault(entry.constraint, {})
        self._count += entry not in held
        held[entry] = None

    def discard(self, entry: ListEntry) -> None:
        """Remove an entry; do nothing where it is not there."""
        if (lists := self._lists.get((entry.attribute, entry.sort))) is None:
            return
        table = lists.table(entry)
        span = (entry.low, entry.high)
        alike = table.get(span, {})
        held = alike.get(entry.constraint, {})
        if entry not in held:
            return
        self._count -= 1
        del held[entry]
        if not held:
            del alike[entry.constraint]
        if not alike:
            del table[span]
        if not lists.points and not lists.spans:
            del self._lists[entry.attribute, entry.sort]

    def answer(self, lookup: Lookup, event: FlatEvent) -> list[SubId]:
        """Return the SubIDs that an event may satisfy, from the lists that a lookup asks for; none twice."""
        value = True if lookup.attribute == EVERY_EVENT else event.values[lookup.attribute]
        has_all, has_none = event.attributes.has_all, event.attributes.has_none
        found: dict[SubId, None] = {}
        for sort in lookup.sorts:
            held = self._lists.get((lookup.attribute, sort))
            if held is None:
                continue
            for alike in held.over(lookup.key):
                for constraint, entries in alike.items():
                    if accepts(constraint, value):
                        for entry in entries:
                            if has_all(entry.sub_id.attributes) and has_none(entry.absent):
                                found[entry.sub_id] = None
        return list(found)


class ListStore(RangeListener):
    """The lists of all homes here."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.lists: dict[HomeId, AttributeLists] = {}
        self._entries: dict[tuple[HomeId, str], ListEntry] = {}
        self._names: Counter[tuple[HomeId, ListEntry]] = Counter()  # what was left and is wanted again lies here twice

    def began(self, home: HomeId, owed_us: int | None) -> None:
        """Start a home that owns ranges here."""
        self.lists.setdefault(home, AttributeLists())

    def ended(self, home: HomeId) -> None:
        """Forget a home that owns nothing here any more."""
        self.lists.pop(home, None)
        for key in [key for key in self._entries if key[0] == home]:
            del self._names[home, self._entries.pop(key)]

    def added(self, home: HomeId, name: str, entry: Entry) -> None:
        """Add an entry to the lists of a home here."""
        read = read_entry(entry)
        if read is None:
            self._runtime.observe("entry_malformed")
        else:
            self._entries[home, name] = read
            self._names[home, read] += 1
            self.lists[home].add(read)

    def removed(self, home: HomeId, name: str) -> None:
        """Remove an entry from the lists of a home here."""
        read = self._entries.pop((home, name), None)
        if read is None:
            return
        self._names[home, read] -= 1
        if not self._names[home, read]:
            del self._names[home, read]
            self.lists[home].discard(read)


def read_entry(entry: Entry) -> ListEntry | None:
    """Read an entry as it is placed; None where a peer sent something else."""
    try:
        return unpack(Key(entry.low), Key(entry.high), entry.body)
    except ValueError:
        return None
