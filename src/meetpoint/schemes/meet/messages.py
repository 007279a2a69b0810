"""What brokers that run `meet` say to each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.meet.entries import is_key

__all__ = [
    "MESSAGES",
    "KeyGroup",
    "KeySummary",
    "MatchPending",
    "MatchReply",
    "MatchRequest",
    "SummaryUpdate",
    "SummaryUpdateAck",
    "group_keys",
    "ungroup_keys",
]


class KeyGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Keys that differ only in what they hold: a number or a text each."""

    sort: KeySort
    attribute: str
    kind: str
    size: int
    items: tuple[int | str, ...]


def group_keys(keys: Iterable[MeetKey]) -> tuple[KeyGroup, ...]:
    """Keys in few bytes."""
    groups: dict[tuple[KeySort, str, str, int], list[int | str]] = {}
    for key in sorted(keys):
        groups.setdefault((key.sort, key.attribute, key.kind, key.size), []).append(key.text or key.number)
    return tuple(KeyGroup(*about, tuple(items)) for about, items in groups.items())


def ungroup_keys(groups: Iterable[KeyGroup]) -> list[MeetKey]:
    """The keys again; what a peer sent that is none is left out."""
    keys = [
        MeetKey(group.sort, group.attribute, group.kind, group.size, *((0, item) if isinstance(item, str) else (item,)))
        for group in groups
        for item in group.items
    ]
    return list(filter(is_key, keys))


class KeySummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Which keys are in use at a home: all of them, or what changed since a serial that was known."""

    base: int
    """Serials of one base go together; another one begins with all keys."""
    serial: int
    since: int
    whole: bool
    added: tuple[KeyGroup, ...]
    removed: tuple[KeyGroup, ...]


class MatchRequest(Query, frozen=True, array_like=True, gc=False, tag="visit"):
    """Bring an event to all whose filters at this home match; and what is known there of its summary and arcs."""

    home: HomeId
    event: EventKey
    settled: int
    base: int
    serial: int
    version: int
    content: bytes


class MatchReply(Reply, frozen=True, array_like=True, gc=False, tag="visited"):
    """All have it: or, where nothing is held here or not yet, it is to be tried again."""

    done: bool
    version: int
    arcs: tuple[KeyRange, ...] | None
    """What the home holds, where another version was known."""
    summary: KeySummary | None
    more: tuple[bytes, ...]
    """Further keys to visit: those of crowded ones."""


class MatchPending(Message, frozen=True, array_like=True, gc=False, tag="matched"):
    """A visit takes longer: the event is for these homes, of which one did not answer, and for no others by the keys
    that the visited home holds.
    """

    home: HomeId
    event: EventKey
    arcs: tuple[KeyRange, ...]
    more: tuple[bytes, ...]
    homes: tuple[HomeId, ...]


class SummaryUpdate(Query, frozen=True, array_like=True, gc=False, tag="used"):
    """Keys are in use that were not, at a home whose summary you have; and the version of its arcs."""

    home: HomeId
    version: int
    summary: KeySummary


class SummaryUpdateAck(Reply, frozen=True, array_like=True, gc=False, tag="noted"):
    """Which serial is known here now; none where there is no such summary."""

    base: int
    serial: int


MESSAGES: Final[tuple[type[Message], ...]] = (MatchRequest, MatchReply, MatchPending, SummaryUpdate, SummaryUpdateAck)
