"""Messages between brokers that run `meet`."""

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
    """Keys that differ only in their item, a number or a text each."""

    sort: KeySort
    attribute: str
    kind: str
    size: int
    items: tuple[int | str, ...]


def group_keys(keys: Iterable[MeetKey]) -> tuple[KeyGroup, ...]:
    """Pack keys into few bytes."""
    groups: dict[tuple[KeySort, str, str, int], list[int | str]] = {}
    for key in sorted(keys):
        groups.setdefault((key.sort, key.attribute, key.kind, key.size), []).append(key.text or key.number)
    return tuple(KeyGroup(*about, tuple(items)) for about, items in groups.items())


def ungroup_keys(groups: Iterable[KeyGroup]) -> list[MeetKey]:
    """Unpack keys, and leave out what can be no key, as a peer's may be."""
    keys = [
        MeetKey(group.sort, group.attribute, group.kind, group.size, *((0, item) if isinstance(item, str) else (item,)))
        for group in groups
        for item in group.items
    ]
    return list(filter(is_key, keys))


class KeySummary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The keys in use at a home: all of them, or what changed since a serial that was known."""

    base: int
    """Serials of one base go together; another base begins with all keys."""
    serial: int
    since: int
    whole: bool
    added: tuple[KeyGroup, ...]
    removed: tuple[KeyGroup, ...]


class MatchRequest(Query, frozen=True, tag="visit"):
    """Asks a home to bring an event to all whose filters match there.

    It says which summary and ranges of the home the sender knows.
    """

    home: HomeId
    event: EventKey
    settled: int
    base: int
    serial: int
    version: int
    content: bytes


class MatchReply(Reply, frozen=True, tag="visited"):
    """Says that all have the event, or that it is to be tried again: the home owns nothing here, or not yet."""

    done: bool
    version: int
    arcs: tuple[KeyRange, ...] | None
    """The ranges of the home, where the sender knew another version."""
    summary: KeySummary | None
    more: tuple[bytes, ...]
    """Further keys to ask at: the children of crowded ones."""


class MatchPending(Message, frozen=True, tag="matched"):
    """Says that a match takes longer, as one of the homes that it is for did not answer.

    The event is for these homes, and for no others by the keys of the home that matches.
    """

    home: HomeId
    event: EventKey
    arcs: tuple[KeyRange, ...]
    more: tuple[bytes, ...]
    homes: tuple[HomeId, ...]


class SummaryUpdate(Query, frozen=True, tag="used"):
    """Tells the holder of a summary which keys came into use, and the version of the home's ranges."""

    home: HomeId
    version: int
    summary: KeySummary


class SummaryUpdateAck(Reply, frozen=True, tag="noted"):
    """Says which serial the holder knows now; none where it has no such summary."""

    base: int
    serial: int


MESSAGES: Final[tuple[type[Message], ...]] = (MatchRequest, MatchReply, MatchPending, SummaryUpdate, SummaryUpdateAck)
