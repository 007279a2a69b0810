"""What brokers that run `dmm` say to each other. All but `Reaching` travel as errands."""

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
    """One entry of a region as it travels: of which home, under which number there; no body: it was withdrawn."""

    home: HomeId
    number: int
    body: bytes


# -- walks -------------------------------------------------------------------------------------------------------------


class MatchRequest(Message, frozen=True, array_like=True, gc=False, tag="d.match"):
    """Bring an event to all whose entries in this region it matches. `attempt` is the origin's number for it."""

    code: str
    origin: Peer
    attempt: int
    event: EventKey
    settled: int
    content: bytes


class MatchReply(Message, frozen=True, array_like=True, gc=False, tag="d.matched"):
    """What became of it: all have the event, or it is for another region."""

    verdict: Verdict


class MatchPending(Message, frozen=True, array_like=True, gc=False, tag="d.reaching"):
    """Matching takes longer: the event is for these homes, of which one did not answer, and for no others."""

    attempt: int
    homes: tuple[HomeId, ...]


class AddEntry(Message, frozen=True, array_like=True, gc=False, tag="d.plant"):
    """Keep an entry in this region."""

    code: str
    item: RegionEntry


class RemoveEntry(Message, frozen=True, array_like=True, gc=False, tag="d.uproot"):
    """Forget an entry in this region, and remember a while that it was withdrawn."""

    code: str
    home: HomeId
    number: int


class EntryReply(Message, frozen=True, array_like=True, gc=False, tag="d.planted"):
    """What became of either: it is safe, or it is for another region, or the region cannot change just now."""

    verdict: Verdict


# -- from a region to its halves ---------------------------------------------------------------------------------------


class RegionCommand(Message, frozen=True, array_like=True, gc=False):
    """What a region wants of one of its halves; `turn` counts the changes of the region (`rules`)."""

    code: str
    epoch: int


class Preload(RegionCommand, frozen=True, array_like=True, gc=False, tag="d.sow"):
    """Keep these entries for when you are opened."""

    items: tuple[RegionEntry, ...]


class OpenHalf(RegionCommand, frozen=True, array_like=True, gc=False, tag="d.open"):
    """Serve."""


class CloseHalf(RegionCommand, frozen=True, array_like=True, gc=False, tag="d.close"):
    """Serve no longer, and hand over your entries, from one name on."""

    after: str


class DissolveHalf(RegionCommand, frozen=True, array_like=True, gc=False, tag="d.dissolve"):
    """You are not wanted any more."""


class CommandReply(Message, frozen=True, array_like=True, gc=False, tag="d.obeyed"):
    """It is safe. Or it is too late: a command of a later turn was here."""

    done: bool
    told: int


class CloseReply(Message, frozen=True, array_like=True, gc=False, tag="d.closed"):
    """Some of the entries, and whether there are more; None: the region cannot be closed, or was told otherwise."""

    items: tuple[RegionEntry, ...] | None
    more: bool
    told: int


# -- when to split and to merge ----------------------------------------------------------------------------------------


class ReviewHalves(Message, frozen=True, array_like=True, gc=False, tag="d.low"):
    """To a region: look at your halves. From one of them that has few entries left, or from a walk that misses one."""

    code: str
    """Of the region that is to look."""


class ReviewHalvesAck(Message, frozen=True, array_like=True, gc=False, tag="d.heeded"):
    """It was heard, and is looked at."""


class LoadQuery(Message, frozen=True, array_like=True, gc=False, tag="d.weigh"):
    """How many entries has this region, and how many has whoever holds its key in all regions?"""

    code: str


class LoadReply(Message, frozen=True, array_like=True, gc=False, tag="d.weighed"):
    """So many."""

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
