"""The messages of Chord nodes. The driver tells who sent a message, so that messages do not repeat it."""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays.routing import FindOwner, OwnerFound, RoutedMessage

__all__ = [
    "MESSAGES", "Busy", "ChordFind", "ChordFound", "ChordJoin", "ChordJoinReply", "ChordLeaving", "ChordRouted",
    "GetState", "NotMember", "NotifySuccessor", "Ping", "Pong", "StateReply", "SuccessorHint",
]  # fmt: skip


class GetState(Query, frozen=True, array_like=True, gc=False, tag="c.as"):
    """A question for the predecessor and the successors of a member (stabilise)."""


class StateReply(Reply, frozen=True, array_like=True, gc=False, tag="c.ts"):
    """The pointers of a member; an artificial successor has the address ""."""

    prdc: Peer
    succ: tuple[Peer, ...]


class Busy(Reply, frozen=True, array_like=True, gc=False, tag="c.pe"):
    """An answer of a member whose own stabilise is under way: its list may change any moment, so ask again."""


class NotMember(Reply, frozen=True, array_like=True, gc=False, tag="c.sr"):
    """An answer of a node that is up but no member: it has not joined yet, or has left."""


class Ping(Query, frozen=True, array_like=True, gc=False, tag="c.pi"):
    """A question whether a node is a member (rectify; fingers)."""


class Pong(Reply, frozen=True, array_like=True, gc=False, tag="c.po"):
    """An answer that it is, and where its keys begin."""

    prdc: Peer


class NotifySuccessor(Message, frozen=True, array_like=True, gc=False, tag="c.cl"):
    """A message to the first successor: the sender may be its predecessor (the papers' "notify")."""


class SuccessorHint(Message, frozen=True, array_like=True, gc=False, tag="c.hi"):
    """Members that may lie between the receiver and its first successor."""

    peers: tuple[Peer, ...]


class ChordLeaving(Message, frozen=True, array_like=True, gc=False, tag="c.lv"):
    """A member leaves: it tells its neighbours, and `further` of those before it pass it on."""

    who: Peer
    prdc: Peer
    further: int


class ChordJoin(Message, frozen=True, array_like=True, gc=False, tag="c.sk"):
    """A joiner's question for its place, on its way to the member between whom and whose successor it lies."""

    joiner: Peer
    number: int
    hops: int
    attempt: int


class ChordJoinReply(Message, frozen=True, array_like=True, gc=False, tag="c.pl"):
    """The place of a joiner, after the sender and before `succ`; with some of the sender's passive list.

    Without that list, what the sender knows of other networks would die with it.
    """

    number: int
    succ: tuple[Peer, ...]
    passive: tuple[Peer, ...] = ()


class ChordFind(FindOwner, frozen=True, array_like=True, gc=False, tag="c.fi"):
    """Chord's question for the owner of a key; `final`: the sender takes the receiver for the owner."""

    final: bool = False


class ChordFound(OwnerFound, frozen=True, array_like=True, gc=False, tag="c.lo"):
    """Chord's answer of an owner."""


class ChordRouted(RoutedMessage, frozen=True, array_like=True, gc=False, tag="c.ro"):
    """Chord's routed message; `final` as above."""

    final: bool = False


MESSAGES: tuple[type[Message], ...] = (
    GetState,
    NotifySuccessor,
    ChordFind,
    SuccessorHint,
    ChordLeaving,
    ChordFound,
    Busy,
    Ping,
    ChordJoinReply,
    Pong,
    ChordRouted,
    ChordJoin,
    NotMember,
    StateReply,
)
