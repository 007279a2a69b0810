"""How a connection begins: who speaks, and in which version.

Whoever dials says `Hello` with the versions that it speaks; the other side chooses the highest that both know
(`Welcome`), or says why it will not (`HelloRejected`) and closes. These frames have version 1 for ever, so that any two
sides understand each other at least so far. All later frames carry the version that was chosen.

    version 1   one message in a frame
    version 2   an array of messages in a frame
"""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message

__all__ = ["HANDSHAKE_VERSION", "SPOKEN", "Hello", "HelloRejected", "IAm", "Welcome"]

HANDSHAKE_VERSION = 1
SPOKEN = (1, 2)
"""The lowest and the highest version that this code speaks."""


class Hello(Message, frozen=True, array_like=True, gc=False, tag="hello"):
    """The first words of whoever dials: a broker, which says who it is, or a client."""

    speaks: tuple[int, int]
    network: str
    """The network's name; empty for a client that takes any."""
    peer: Peer | None = None
    client: str = ""
    """A client's own name: the owner of its subscriptions, where it says no other."""
    token: str = ""
    way: str = ""
    """A broker's overlay, scheme and settings, as all brokers of a network must have them."""


class Welcome(Message, frozen=True, array_like=True, gc=False, tag="welcome"):
    """The version that is spoken from now on, and who has been reached."""

    version: int
    network: str
    broker: Peer
    way: str = ""
    """The network's overlay, scheme and settings."""


class HelloRejected(Message, frozen=True, array_like=True, gc=False, tag="unwelcome"):
    """The last words before the connection is closed. `retry`: the same may be welcome later."""

    reason: str
    retry: bool


class IAm(Message, frozen=True, array_like=True, gc=False, tag="iam"):
    """A broker has come to a new incarnation: what it says after this, it says as that."""

    peer: Peer
