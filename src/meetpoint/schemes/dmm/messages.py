"""Messages between brokers that run `dmm`. All but `MatchPending` travel as keyed requests."""

from __future__ import annotations

from typing import Final

import msgspec

from meetpoint.api.ids import EventKey, HomeId, NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.schemes.dmm.rules import Verdict

__all__ = [
    "MESSAGES",
    "AddEntry",
    "CloseHalf",
    "CloseReply",
    "CommandReply",
    "DissolveHalf",
    "EntryReply",
    "LoadQuery",
    "LoadReply",
    "MatchPending",
    "MatchReply",
    "MatchRequest",
    "OpenHalf",
    "Preload",
    "RegionCommand",
    "RegionEntry",
    "RemoveEntry",
    "ReviewHalves",
    "ReviewHalvesAck",
]


class RegionEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of a region as it travels: its home, and its number there; no body: it was withdrawn."""

    home: HomeId
    number: int
    body: bytes


# -- walks -------------------------------------------------------------------------------------------------------------


class MatchRequest(Message, frozen=True, tag="d.match"):
    """Bring an event to all whose entries in this region it matches. `attempt` is the origin's number for it."""

    code: str
    origin: Peer
    attempt: int
    event: EventKey
    settled: int
    content: bytes


class MatchReply(Message, frozen=True, tag="d.matched"):
    """Says that all have the event, or that it is for another region."""

    verdict: Verdict


class MatchPending(Message, frozen=True, tag="d.reaching"):
    """Says that a match takes longer, as one of the homes that it is for did not answer.

    The event is for these homes, and for no others.
    """

    attempt: int
    homes: tuple[HomeId, ...]


class AddEntry(Message, frozen=True, tag="d.plant"):
    """Keep an entry in this region."""

    code: str
    item: RegionEntry


class RemoveEntry(Message, frozen=True, tag="d.uproot"):
    """Forget an entry in this region, and remember a while that it was withdrawn."""

    code: str
    home: HomeId
    number: int


class EntryReply(Message, frozen=True, tag="d.planted"):
    """Says that a change is safe, or is for another region, or that the region cannot change just now."""

    verdict: Verdict


# -- from a region to its halves ---------------------------------------------------------------------------------------


class RegionCommand(Message, frozen=True):
    """A command of a region to one of its halves; `epoch` counts the changes of the region (`rules`)."""

    code: str
    epoch: int


class Preload(RegionCommand, frozen=True, tag="d.sow"):
    """Command to keep these entries for when the half is opened."""

    items: tuple[RegionEntry, ...]


class OpenHalf(RegionCommand, frozen=True, tag="d.open"):
    """Command to serve."""


class CloseHalf(RegionCommand, frozen=True, tag="d.close"):
    """Command to serve no longer, and to hand over the entries, from one name on."""

    after: str


class DissolveHalf(RegionCommand, frozen=True, tag="d.dissolve"):
    """Command to be gone."""


class CommandReply(Message, frozen=True, tag="d.obeyed"):
    """Says that a command is safely obeyed. Or it came too late, after a command of a later epoch."""

    done: bool
    parent_epoch: int


class CloseReply(Message, frozen=True, tag="d.closed"):
    """Some of the entries, and whether there are more; None: the region cannot be closed, or was told otherwise."""

    items: tuple[RegionEntry, ...] | None
    more: bool
    parent_epoch: int


# -- when to split and to merge ----------------------------------------------------------------------------------------


class ReviewHalves(Message, frozen=True, tag="d.low"):
    """Asks a region to look at its halves.

    One of them has few entries left, or a walk misses one.
    """

    code: str
    """The region that is to look."""


class ReviewHalvesAck(Message, frozen=True, tag="d.heeded"):
    """Says that a region looks at its halves."""


class LoadQuery(Message, frozen=True, tag="d.weigh"):
    """Asks how many entries this region has, and how many the owner of its key has in all regions."""

    code: str


class LoadReply(Message, frozen=True, tag="d.weighed"):
    """The load of a region and of its owner."""

    entries: int | None
    """None where it is no leaf, or one that changes."""
    node: NodeId
    load: int
    known: bool = True
    """Whether there is, or was, such a region."""


MESSAGES: Final[tuple[type[Message], ...]] = (
    MatchRequest,
    MatchReply,
    MatchPending,
    AddEntry,
    RemoveEntry,
    EntryReply,
    Preload,
    OpenHalf,
    CloseHalf,
    DissolveHalf,
    CommandReply,
    CloseReply,
    ReviewHalves,
    ReviewHalvesAck,
    LoadQuery,
    LoadReply,
)
