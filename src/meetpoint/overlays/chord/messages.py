"""What Chord nodes say to each other. Who sent a message comes with it from the driver, and is not repeated inside."""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.overlays import key_lookup

__all__ = [
    "MESSAGES",
    "AskState",
    "Claim",
    "Find",
    "Hint",
    "Leaving",
    "Located",
    "Pending",
    "Ping",
    "Placed",
    "Pong",
    "Routed",
    "Seek",
    "Stranger",
    "ToldState",
]


class AskState(Query, frozen=True, array_like=True, gc=False, tag="c.as"):
    """What are your predecessor and your successors? (stabilise)"""


class ToldState(Reply, frozen=True, array_like=True, gc=False, tag="c.ts"):
    """The pointers of a member. An artificial successor has the address ""."""

    prdc: Peer
    succ: tuple[Peer, ...]


class Pending(Reply, frozen=True, array_like=True, gc=False, tag="c.pe"):
    """A member whose own stabilise is under way: its list may change any moment. Ask again."""


class Stranger(Reply, frozen=True, array_like=True, gc=False, tag="c.sr"):
    """The node asked is up, but no member: it has not joined yet, or has left."""


class Ping(Query, frozen=True, array_like=True, gc=False, tag="c.pi"):
    """Are you a member? (rectify; fingers)"""


class Pong(Reply, frozen=True, array_like=True, gc=False, tag="c.po"):
    """Yes, and this is where my keys begin."""

    prdc: Peer


class Claim(Message, frozen=True, array_like=True, gc=False, tag="c.cl"):
    """You are my first successor: I may be your predecessor. (The papers' "notify".)"""


class Hint(Message, frozen=True, array_like=True, gc=False, tag="c.hi"):
    """Members that may lie between you and your first successor."""

    peers: tuple[Peer, ...]


class Leaving(Message, frozen=True, array_like=True, gc=False, tag="c.lv"):
    """A member leaves. It tells its neighbours, and `further` of those before it pass it on."""

    who: Peer
    prdc: Peer
    further: int


class Seek(Message, frozen=True, array_like=True, gc=False, tag="c.sk"):
    """A joiner looks for its place: on its way to the member between whom and whose successor it lies."""

    joiner: Peer
    number: int
    hops: int
    care: int


class Placed(Message, frozen=True, array_like=True, gc=False, tag="c.pl"):
    """Your place is after me, before these; and some of my passive list, so that what I know does not die with me."""

    number: int
    succ: tuple[Peer, ...]
    passive: tuple[Peer, ...] = ()


class Find(key_lookup.Find, frozen=True, array_like=True, gc=False, tag="c.fi"):
    """Who is responsible for a key? `final`: the sender takes the receiver for the one."""

    final: bool = False


class Located(key_lookup.Located, frozen=True, array_like=True, gc=False, tag="c.lo"):
    """I am."""


class Routed(key_lookup.Routed, frozen=True, array_like=True, gc=False, tag="c.ro"):
    """A message on its way to whoever is responsible for a key; `final` as above."""

    final: bool = False


MESSAGES: tuple[type[Message], ...] = (
    AskState,
    Claim,
    Find,
    Hint,
    Leaving,
    Located,
    Pending,
    Ping,
    Placed,
    Pong,
    Routed,
    Seek,
    Stranger,
    ToldState,
)
