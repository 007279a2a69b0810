"""What Chord nodes say to each other. Who sent a message comes with it from the driver, and is not repeated inside."""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays.routing import FindOwner, OwnerFound, RoutedMessage

__all__ = [
    "MESSAGES",
    "Busy",
    "ChordFind",
    "ChordFound",
    "ChordJoin",
    "ChordJoinReply",
    "ChordLeaving",
    "ChordRouted",
    "GetState",
    "NotMember",
    "NotifySuccessor",
    "Ping",
    "Pong",
    "StateReply",
    "SuccessorHint",
]


class GetState(Query, frozen=True, array_like=True, gc=False, tag="c.as"):
    """What are your predecessor and your successors? (stabilise)"""


class StateReply(Reply, frozen=True, array_like=True, gc=False, tag="c.ts"):
    """The pointers of a member. An artificial successor has the address ""."""

    prdc: Peer
    succ: tuple[Peer, ...]


class Busy(Reply, frozen=True, array_like=True, gc=False, tag="c.pe"):
    """A member whose own stabilise is under way: its list may change any moment. Ask again."""


class NotMember(Reply, frozen=True, array_like=True, gc=False, tag="c.sr"):
    """The node asked is up, but no member: it has not joined yet, or has left."""


class Ping(Query, frozen=True, array_like=True, gc=False, tag="c.pi"):
    """Are you a member? (rectify; fingers)"""


class Pong(Reply, frozen=True, array_like=True, gc=False, tag="c.po"):
    """Yes, and this is where my keys begin."""

    prdc: Peer


class NotifySuccessor(Message, frozen=True, array_like=True, gc=False, tag="c.cl"):
    """You are my first successor: I may be your predecessor. (The papers' "notify".)"""


class SuccessorHint(Message, frozen=True, array_like=True, gc=False, tag="c.hi"):
    """Members that may lie between you and your first successor."""

    peers: tuple[Peer, ...]


class ChordLeaving(Message, frozen=True, array_like=True, gc=False, tag="c.lv"):
    """A member leaves. It tells its neighbours, and `further` of those before it pass it on."""

    who: Peer
    prdc: Peer
    further: int


class ChordJoin(Message, frozen=True, array_like=True, gc=False, tag="c.sk"):
    """A joiner looks for its place: on its way to the member between whom and whose successor it lies."""

    joiner: Peer
    number: int
    hops: int
    attempt: int


class ChordJoinReply(Message, frozen=True, array_like=True, gc=False, tag="c.pl"):
    """Your place is after me, before these; and some of my passive list, so that what I know does not die with me."""

    number: int
    succ: tuple[Peer, ...]
    passive: tuple[Peer, ...] = ()


class ChordFind(FindOwner, frozen=True, array_like=True, gc=False, tag="c.fi"):
    """Who is responsible for a key? `final`: the sender takes the receiver for the one."""

    final: bool = False


class ChordFound(OwnerFound, frozen=True, array_like=True, gc=False, tag="c.lo"):
    """I am."""


class ChordRouted(RoutedMessage, frozen=True, array_like=True, gc=False, tag="c.ro"):
    """A message on its way to whoever is responsible for a key; `final` as above."""

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
