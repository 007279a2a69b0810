"""The handshake: the first messages of a connection, which name both sides and choose the version.

The side that dials sends `Hello` with the versions that it speaks. The other side chooses the highest that both know
(`Welcome`), or sends the reason why not (`HelloRejected`) and closes. These frames have version 1 for ever, so that any
two releases understand each other so far. All later frames carry the version that was chosen.

    version 1   one message in a frame
    version 2   an array of messages in a frame
"""

from __future__ import annotations

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message

__all__ = ["HANDSHAKE_VERSION", "SPOKEN", "Hello", "HelloRejected", "NewIncarnation", "Welcome"]

HANDSHAKE_VERSION = 1
SPOKEN = (1, 2)
"""The lowest and the highest version that this code speaks."""


class Hello(Message, frozen=True, array_like=True, gc=False, tag="hello"):
    """The first message of the side that dials: a broker, with its identity, or a client."""

    speaks: tuple[int, int]
    network: str
    """The network's name; empty for a client that takes any."""
    peer: Peer | None = None
    client: str = ""
    """A client's name: the owner of its subscriptions, unless they name another."""
    token: str = ""
    way: str = ""
    """A broker's overlay, scheme and settings, which all brokers of a network must share."""


class Welcome(Message, frozen=True, array_like=True, gc=False, tag="welcome"):
    """The version of all later frames, and the broker that was reached."""

    version: int
    network: str
    broker: Peer
    way: str = ""
    """The network's overlay, scheme and settings."""


class HelloRejected(Message, frozen=True, array_like=True, gc=False, tag="unwelcome"):
    """The last message before the connection is closed. `retry`: the same hello may be accepted later."""

    reason: str
    retry: bool


class NewIncarnation(Message, frozen=True, array_like=True, gc=False, tag="iam"):
    """The new incarnation of a broker: its later messages on this connection are of that one."""

    peer: Peer
