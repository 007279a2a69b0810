"""Entries of the scheme `lists`: one for each attribute of a conjunction (papers A, section 3.1, and B, section 4).

An entry lies over a span of keys, in one of two lists that an attribute has at a node: VALUE, where events ask by their
value, and ANY, where they ask whatever the value is.

| a constraint | where it lies |
| --- | --- |
| a string: `=`, IN | VALUE, the key of each value |
| LIKE 'OT%', '%SE', 'N%E', all with a fixed beginning or end | VALUE, the key of the longer; of the first if equal |
| other strings: `!=`, ranges, NOT LIKE, '%YS%', '%' alone, very long IN | ANY, the attribute's any key |
| a boolean | VALUE, the key of each value |
| numbers and timestamps | VALUE, where `number_lines` says |
| IS NOT NULL | ANY: the any key of a string, else the whole ring |
| IS NULL | nowhere: it goes along with the other entries; alone, with the always key |

Deviation: an entry carries its constraint, or the part of it that its keys are for, and is judged by the value itself
(paper B's footnote 2 keeps one text). So no list answers for half of an affix, for one of two prefixes, or for another
value that has the same node; an affix needs one place where the paper has two, and an attribute one where the paper has
one for each constraint. An entry also carries the attributes that must be missing.

An update moves what differs between two sets of entries: what is in both stays. (Paper A's rule for ranges, delete and
then store, leaves 4 to 9 behind when [1, 3] becomes [10, 12].)
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId, Key
from meetpoint.errors import FilterError
from meetpoint.language.filters.constraints import (
    PRESENT,
    Absent,
    BooleanSet,
    Constraint,
    NumberSet,
    Present,
    TextSet,
    TimestampSet,
    kind_accepted,
)
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.filters.like import ANY_CHAR
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.syntax.render import render_constraint
from meetpoint.language.values import Kind
from meetpoint.matching.keys.meet_keys import canonical_name
from meetpoint.schemes.lists.number_lines import Span, next_key, whole
from meetpoint.schemes.lists.subids import Declared, SubId
from meetpoint.schemes.lists.value_hash import PART_MAX, Hashing

__all__ = ["EVERY_EVENT", "ListEntry", "ListSort", "difference", "entries_of", "next_point", "pack", "unpack"]

EVERY_EVENT: Final = ""
"""In place of an attribute, for entries at the always key: no attribute has this name."""


class ListSort(IntEnum):
    """The two lists that an attribute has at a node."""

    VALUE = 0
    """Asked for with a value."""
    ANY = 1
    """Asked for whatever the value is."""


class ListEntry(msgspec.Struct, frozen=True, gc=False):
    """A SubID in the list of an attribute, over the keys from `low` clockwise to `high`, both included."""

    low: Key
    high: Key
    sub_id: SubId
    attribute: str
    constraint: Constraint
    sort: ListSort
    absent: Declared
    """Attributes that an event must not have."""
    scale: bytes = b""
    """The name of the scale by which the entry is placed; empty for a scale that the network began with."""


class _Packed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry without its keys, as it travels; `constraint` is the text of a filter, empty at the always key."""

    sub_id: SubId
    constraint: str
    sort: ListSort
    absent: Declared


class _Scaled(_Packed, frozen=True, array_like=True, gc=False):
    """An entry that is placed by a scale with a name: others travel as they did before scales had names."""

    scale: bytes = b""


def entries_of(hashing: Hashing, conjunction: Conjunction, home: HomeId, number: int) -> tuple[ListEntry, ...]:
    """Return all entries of a conjunction of a home, which has a number for it."""
    placed: list[tuple[str, Constraint]] = []
    absent: list[str] = []
    for spelt, constraint in conjunction.constraints:
        name = canonical_name(spelt)
        if isinstance(constraint, Absent):
            absent.append(name)
        else:
            placed.append((name, constraint))
    sub_id = SubId(home, number, hashing.bits.declare(name for name, _ in placed))
    missing = hashing.bits.declare(absent)
    if not placed:
        return (ListEntry(hashing.always, hashing.always, sub_id, EVERY_EVENT, PRESENT, ListSort.ANY, missing),)
    made: list[ListEntry] = []
    for name, constraint in placed:
        sort, pieces = _pieces(hashing, name, constraint)
        scale = hashing.mark(name) if isinstance(constraint, NumberSet | TimestampSet) else b""
        made += [ListEntry(low, high, sub_id, name, part, sort, missing, scale) for (low, high), part in pieces]
    return tuple(made)


def _pieces(hashing: Hashing, name: str, constraint: Constraint) -> tuple[ListSort, Iterable[tuple[Span, Constraint]]]:
    """Return in which list, and over which keys, the parts of a constraint lie."""
    match constraint:
        case NumberSet():
            return ListSort.VALUE, hashing.line(name, Kind.NUMBER).pieces(constraint)
        case TimestampSet():
            return ListSort.VALUE, hashing.line(name, Kind.TIMESTAMP).pieces(constraint)
        case BooleanSet(values):
            return ListSort.VALUE, [(_at(hashing.truth(name, value)), BooleanSet((value,))) for value in values]
        case TextSet(intervals=points) if len(points) <= hashing.points_max and all(p.is_point for p in points):
            return ListSort.VALUE, [(_at(hashing.text(name, str(p.low))), TextSet((p,))) for p in points]
        case TextSet():
            text = _longest_part(constraint)
            if text:
                return ListSort.VALUE, [(_at(hashing.text(name, text)), constraint)]
            return ListSort.ANY, [(_at(hashing.any(name)), constraint)]
        case Present():
            span = _at(hashing.any(name)) if hashing.is_text(name) else whole(hashing.ring)
            return ListSort.ANY, [(span, constraint)]
    raise AssertionError(f"{constraint} is not placed")


def _at(key: Key) -> Span:
    return key, key


def _longest_part(constraint: TextSet) -> str:
    """Return the longest text, of those asked for, with which every accepted string begins or ends."""
    longest = ""
    for pattern in constraint.like:
        head = pattern.pieces[0].partition(ANY_CHAR)[0][:PART_MAX]
        tail = pattern.pieces[-1].rpartition(ANY_CHAR)[2][-PART_MAX:]
        longest = max(longest, head, tail, key=len)  # the first of equals
    return longest


def difference(old: Iterable[ListEntry], new: Iterable[ListEntry]) -> tuple[list[ListEntry], list[ListEntry]]:
    """Return what an update places and what it removes; what both have stays where it is."""
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    return [entry for entry in after if entry not in before], [entry for entry in before if entry not in after]


def next_point(hashing: Hashing, entry: ListEntry, after: bytes) -> Key | None:
    """Return the next key of an entry, after one of it, at which an event may ask.

    Nodes that own no such key need not have the entry. Where the entry lies by another scale than the hashing has, it
    is the very next key.
    """
    span = entry.low, entry.high
    kind = kind_accepted(entry.constraint)
    if kind in (Kind.NUMBER, Kind.TIMESTAMP) and entry.scale == hashing.mark(entry.attribute):
        return hashing.line(entry.attribute, kind).next_point(span, after)
    return next_key(hashing.ring, span, after)


# -- as bytes ----------------------------------------------------------------------------------------------------------


def pack(entry: ListEntry) -> bytes:
    """Pack an entry without its keys."""
    text = "" if entry.attribute == EVERY_EVENT else render_constraint(entry.attribute, entry.constraint)
    packed = (entry.sub_id, text, entry.sort, entry.absent)
    return msgspec.msgpack.encode(_Scaled(*packed, entry.scale) if entry.scale else _Packed(*packed))


def unpack(low: Key, high: Key, body: bytes) -> ListEntry:
    """Unpack the entry over a span; ValueError where the bytes are malformed."""
    try:
        packed = msgspec.msgpack.decode(body, type=_Scaled)
        conjunctions = parse_filter(packed.constraint).conjunctions if packed.constraint else ()
    except (msgspec.DecodeError, UnicodeDecodeError, FilterError) as error:
        raise ValueError(f"no entry of a list: {error}") from None
    if not packed.constraint:
        return ListEntry(low, high, packed.sub_id, EVERY_EVENT, PRESENT, packed.sort, packed.absent)
    if len(conjunctions) != 1 or len(conjunctions[0].constraints) != 1:
        raise ValueError("no entry of a list: it holds other than one constraint")
    ((name, constraint),) = conjunctions[0].constraints
    return ListEntry(low, high, packed.sub_id, name, constraint, packed.sort, packed.absent, packed.scale)
