"""The algorithms of papers A and B as printed, faults and all: for experiments, and for tests that show the faults.

Nothing here runs on a broker. The network is a function from keys to the numbers of nodes; messages are counted and not
sent. The names of predicates are the ordinary ones; paper B calls a prefix a suffix and an affix containment.

These faults have a test each:

- Paper A's lists hold no values: values that share a node are taken for one another, and deleting one deletes all
  (`values_kept=False`). Paper B's footnote 2 keeps them.
- The order-preserving hash puts the largest value where the smallest is (`OrderPreservingHash`).
- Updating a range deletes, then stores, and leaves behind the values between an old range and one far above (`update`).
- Nobody rechecks: an event between two steps of an update may be delivered that matches neither version.
- Half of an affix counts as a prefix or a suffix, and halves that overlap count as both (`coordinated`).
- Constraints on one attribute are counted apart: with a value and a prefix there is one hit too many, and one of two
  prefixes is enough.
- `*` alone is stored where no event looks; so is every prefix and suffix if it is hashed with its star, as in paper B's
  example 1 (`starred=True`).
- Distributed and hybrid matching never drop a SubID that declares an attribute which the event lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from meetpoint.api.ids import Key
from meetpoint.errors import MeetpointError
from meetpoint.language.filters.constraints import EVERY_TEXT, Constraint, NumberSet, TextSet
from meetpoint.language.filters.like import Pattern, PatternSort
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.filters.papers import grid_values
from meetpoint.language.schema.schema import Schema
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.scales import Real, measure
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode, distributed_step, hybrid_step
from meetpoint.schemes.lists.subids import AttributeBits, SubId, count

PrintedValue: TypeAlias = str | int | float | Decimal


class Sort(StrEnum):
    """The kind of a predicate, and of its list; an affix is in two lists and a range with the values."""

    EQUALITY = "equality"
    RANGE = "range"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    AFFIX = "affix"


class Predicate(NamedTuple):
    """A constraint as the papers have it: one value, or all of a range; one text, or the two of an affix."""

    attribute: str
    sort: Sort
    values: tuple[PrintedValue, ...]


class Bounds(NamedTuple):
    """The first and the last value of a range."""

    low: int | Decimal
    high: int | Decimal


def _steps(low: int | Decimal, end: int | Decimal, step: int | Decimal) -> Iterator[int | Decimal]:
    while low < end:
        yield low
        low += step


def predicates_of(conjunction: Conjunction, schema: Schema | None = None) -> list[Predicate]:
    """Return a conjunction in the papers' terms; MeetpointError where they have none for it."""
    return [p for name, constraint in conjunction.constraints for p in _predicates(name, constraint, schema)]


def _predicates(name: str, constraint: Constraint, schema: Schema | None) -> Iterator[Predicate]:
    declared = None if schema is None else schema.get(name)
    match constraint:
        case TextSet(intervals=(interval,)) if interval.is_point:
            yield Predicate(name, Sort.EQUALITY, (str(interval.low),))
        case TextSet(intervals=intervals, like=like, unlike=()) if intervals == EVERY_TEXT:
            for pattern in like or (Pattern(("", "")),):
                if pattern.sort not in _PATTERNS:
                    raise _unknown(name)
                sort, pieces = _PATTERNS[pattern.sort]
                yield Predicate(name, sort, pattern.pieces[pieces])
        case NumberSet(exact=(interval,)) if interval.is_point:
            yield Predicate(name, Sort.EQUALITY, (interval.low,))  # type: ignore[arg-type]
        case NumberSet() if declared is not None:
            yield Predicate(name, Sort.RANGE, tuple(grid_values(declared, constraint)))
        case _:
            raise _unknown(name)


_PATTERNS = {
    PatternSort.PREFIX: (Sort.PREFIX, slice(0, 1)),
    PatternSort.SUFFIX: (Sort.SUFFIX, slice(1, 2)),
    PatternSort.AFFIX: (Sort.AFFIX, slice(0, 2)),
}


def _unknown(name: str) -> MeetpointError:
    return MeetpointError(
        f"the papers have no such constraint on {name}: as printed there are values, ranges of declared numbers, "
        "prefixes, suffixes and affixes"
    )


def _kept(value: PrintedValue) -> str | Real:
    """Return a value that is equal whichever class of numbers it has."""
    return value if isinstance(value, str) else measure(value)


# -- hashes ------------------------------------------------------------------------------------------------------------


class Hash(Protocol):
    """A function from a value of an attribute to its key."""

    def __call__(self, attribute: str, value: PrintedValue) -> Key: ...


class PlainHash:
    """The hash of the value alone (paper A, section 3.1.1): equal values of all attributes are at one node."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def __call__(self, attribute: str, value: PrintedValue) -> Key:
        return self.ring.hash(str(_kept(value)).encode())


class OrderPreservingHash(PlainHash):
    """The formula of paper A, section 4.1, for numbers whose attribute is declared with bounds."""

    def __init__(self, ring: Ring, schema: Schema) -> None:
        super().__init__(ring)
        self.schema = schema

    def __call__(self, attribute: str, value: PrintedValue) -> Key:
        declared = self.schema.get(attribute)
        if isinstance(value, str) or declared is None or declared.minimum is None or declared.maximum is None:
            return super().__call__(attribute, value)
        low, high = Fraction(measure(declared.minimum)), Fraction(measure(declared.maximum))
        offset = (Fraction(measure(value)) - low) * self.ring.size // (high - low)
        return self.ring.add(self.ring.hash(attribute.encode()), int(offset))


# -- the network -------------------------------------------------------------------------------------------------------


class MatchCounts(msgspec.Struct, frozen=True):
    """The cost of matching one event, before any delivery: lookups, messages, and SubIDs sent in them."""

    lookups: int
    messages: int
    sub_ids: int


class SentMessage(NamedTuple):
    """A message with its SubIDs, for a value or for the group of an attribute that has a key."""

    what: Literal["ask", "answer", "pass", "tell"]
    """A question goes to its key, and a list that is passed on to the key of the next value. The answer to a question,
    and the result for the origin, go to a known node."""
    source: int
    to: int
    attribute: str
    value: PrintedValue
    key: Key
    sub_ids: Sequence[SubId]


class _Found(NamedTuple):
    """The answer of one list of one node."""

    attribute: str
    sort: Sort
    value: PrintedValue
    key: Key
    node: int
    sub_ids: list[SubId]


_List: TypeAlias = dict[str | Real | None, dict[SubId, None]]
"""SubIDs by the value that placed them here; all under None where values are not kept."""


class PrintedNetwork:
    """Nodes with their lists. `where` gives the node of a key, `hops` the messages of a way."""

    def __init__(
        self,
        hash_: Hash,
        where: Callable[[Key], int],
        *,
        hops: Callable[[int, int], int] = lambda source, to: 1,
        values_kept: bool = True,
        starred: bool = False,
        bits: AttributeBits | None = None,
    ) -> None:
        self._hash = hash_
        self._where = where
        self._hops = hops
        self._values_kept = values_kept
        self._starred = starred
        self._bits = AttributeBits(None) if bits is None else bits
        self.lists: dict[tuple[int, str, Sort], _List] = {}

    # -- subscriptions (A, figure 4; B, figure 3) ----------------------------------------------------------------------

    def store(self, sub_id: SubId, predicates: Iterable[Predicate]) -> None:
        """Put a SubID into the lists of its predicates."""
        for predicate in predicates:
            for place, value in self._places(predicate):
                self.lists.setdefault(place, {}).setdefault(value, {})[sub_id] = None

    def delete(self, sub_id: SubId, predicates: Iterable[Predicate]) -> None:
        """Remove a SubID from the lists of its predicates."""
        for predicate in predicates:
            for place, value in self._places(predicate):
                self.lists.get(place, {}).get(value, {}).pop(sub_id, None)

    def update(self, sub_id: SubId, old: Predicate, new: Predicate) -> None:
        """Delete an old value or text, then store the new one."""
        self.delete(sub_id, [old])
        self.store(sub_id, [new])

    def update_range(self, sub_id: SubId, attribute: str, old: Bounds, new: Bounds, step: int | Decimal) -> None:
        """Change a range by paper A, section 3.1.2: delete the values that it leaves, then store those that it
        gains.
        """
        gone = [*_steps(old.low, new.low, step), *_steps(new.high + step, old.high + step, step)]
        come = [*_steps(new.low, old.low, step), *_steps(old.high + step, new.high + step, step)]
        self.delete(sub_id, [Predicate(attribute, Sort.RANGE, tuple(gone))])
        self.store(sub_id, [Predicate(attribute, Sort.RANGE, tuple(come))])

    def _places(self, predicate: Predicate) -> Iterator[tuple[tuple[int, str, Sort], str | Real | None]]:
        """Yield the lists of a predicate, by node, attribute and sort, and the value kept with a SubID there."""
        attribute, sort, values = predicate
        sorts = {Sort.RANGE: (Sort.EQUALITY,) * len(values), Sort.AFFIX: (Sort.PREFIX, Sort.SUFFIX)}.get(sort, (sort,))
        for each, value in zip(sorts, values, strict=True):
            hashed = value
            if self._starred and each is not Sort.EQUALITY:
                hashed = f"{value}*" if each is Sort.PREFIX else f"*{value}"
            node = self._where(self._hash(attribute, hashed))
            yield (node, attribute, each), _kept(value) if self._values_kept else None

    # -- events (A, figure 5; B, figures 4 and 5, section 6) -----------------------------------------------------------

    def match(
        self,
        event: Mapping[str, PrintedValue],
        mode: CollectionMode,
        origin: int,
        order: AttributeOrder,
        *,
        listen: Callable[[SentMessage], None] | None = None,
    ) -> tuple[list[SubId], MatchCounts]:
        """Return the SubIDs taken to match an event that came to a node, and the cost; `listen` gets each message."""
        groups = [[*self._collect(name, event[name])] for name in sorted(event, key=order.key)]
        tally = _Tally(self._hops, listen)
        if mode is CollectionMode.COORDINATED:
            matched = self._coordinated(groups, origin, tally)
        else:
            matched = self._group_by_group(groups, origin, mode, tally)
        return matched, MatchCounts(sum(map(len, groups)), tally.messages, tally.sub_ids)

    def _collect(self, attribute: str, value: PrintedValue) -> Iterator[_Found]:
        """Yield the lists of one attribute: of the value; of a text also each prefix's and each suffix's, 1 + 2l in
        all.
        """
        yield self._ask(attribute, Sort.EQUALITY, value)
        if isinstance(value, str):
            for size in range(1, len(value) + 1):
                yield self._ask(attribute, Sort.SUFFIX, value[-size:])
                yield self._ask(attribute, Sort.PREFIX, value[:size])

    def _ask(self, attribute: str, sort: Sort, value: PrintedValue) -> _Found:
        key = self._hash(attribute, value)
        node = self._where(key)
        held = self.lists.get((node, attribute, sort), {})
        sub_ids = [*held.get(_kept(value) if self._values_kept else None, ())]
        return _Found(attribute, sort, value, key, node, sub_ids)

    def _coordinated(self, groups: Sequence[Sequence[_Found]], origin: int, tally: _Tally) -> list[SubId]:
        """Let all nodes answer the origin, which counts the delivery lists that a SubID is in."""
        hits: dict[SubId, int] = {}
        for group in groups:
            by_sort = {sort: {s: None for found in group if found.sort is sort for s in found.sub_ids} for sort in Sort}
            # Only as a prefix, only as a suffix, or as both: of these three lists a SubID is in one.
            parts = by_sort[Sort.PREFIX] | by_sort[Sort.SUFFIX]
            for delivery in (by_sort[Sort.EQUALITY], parts):
                for sub_id in delivery:
                    hits[sub_id] = hits.get(sub_id, 0) + 1
        for found in (found for group in groups for found in group):
            tally.ask(origin, found)
        return [sub_id for sub_id, lists in hits.items() if lists == count(sub_id.attributes)]

    def _group_by_group(
        self, groups: Sequence[Sequence[_Found]], origin: int, mode: CollectionMode, tally: _Tally
    ) -> list[SubId]:
        """Let each group, led by the node of the value, filter the passed list against its own answers."""
        checked = self._bits.gather(())
        come: list[SubId] = []
        arrived: list[SubId] = []
        before = origin
        for group in groups:
            first = group[0]
            leader = first.node
            tally.send("pass", before, leader, first, come)
            for found in group[1:]:
                tally.ask(leader, found)
            local = [sub_id for found in group for sub_id in found.sub_ids]
            own = self._bits.gather((first.attribute,))
            if mode is CollectionMode.HYBRID and group is not groups[-1]:
                done, come = hybrid_step(come, local, own, checked)
                tally.send("tell", leader, origin, first, done)
                arrived += done
            else:
                come = distributed_step(come, local, own, checked)
            checked |= own
            before = leader
        if groups:
            tally.send("tell", before, origin, groups[-1][0], come)
        return arrived + come


class _Tally:
    """A counter of messages by their hops, and of the SubIDs in each message; nothing is sent to oneself."""

    def __init__(self, hops: Callable[[int, int], int], listen: Callable[[SentMessage], None] | None) -> None:
        self._hops = hops
        self._listen = listen
        self.messages = 0
        self.sub_ids = 0

    def ask(self, source: int, found: _Found) -> None:
        """Count a question and its answer."""
        self.send("ask", source, found.node, found, ())
        self.send("answer", found.node, source, found, found.sub_ids)

    def send(
        self,
        what: Literal["ask", "answer", "pass", "tell"],
        source: int,
        to: int,
        about: _Found,
        sub_ids: Sequence[SubId],
    ) -> None:
        if source == to:
            return
        self.messages += self._hops(source, to)
        self.sub_ids += len(sub_ids)
        if self._listen is not None:
            self._listen(SentMessage(what, source, to, about.attribute, about.value, about.key, sub_ids))
