"""Effects: all that a node can want done. A driver applies those of one `Node.handle` in their order."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Outcome
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.records import Record

__all__ = [
    "Accepted",
    "Answer",
    "CancelTimer",
    "Effect",
    "Ended",
    "Notify",
    "Observe",
    "Persist",
    "Send",
    "SetTimer",
    "Step",
    "Stop",
    "Trace",
]


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send a message to a peer. It may be lost, and the sender must bear that."""

    to: Peer
    message: Message


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Hand in `Fired(timer)` at an instant of the node's own clock."""

    timer: int
    at: Instant


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Cancel a timer."""

    timer: int


class Notify(msgspec.Struct, frozen=True, gc=False):
    """Notify the subscribers of these names of an event, and `Acknowledge` it when they have it."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    redelivered: bool


class Ended(msgspec.Struct, frozen=True, gc=False):
    """Tell that a subscription has ended by itself: its lifetime is over, or its subscriber is gone."""

    name: str
    reason: str


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Answer a client."""

    request: int
    outcome: Outcome


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Put records on disk, all or none of them, after those of earlier tickets; then hand in `Persisted(ticket)`.

    Names in `erased` are to be forgotten without a trace. A driver may sync several tickets at once.
    """

    ticket: int
    records: tuple[Record, ...]
    erased: tuple[tuple[bytes, str], ...] = ()


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """Put an accepted event into the archive, then hand in `Archived`.

    The events of a home come in the order of their numbers; after a restart some come again.
    """

    event: EventKey
    content: bytes


class Observe(msgspec.Struct, frozen=True, gc=False):
    """Count or measure: a name, an amount, and a subject."""

    name: str
    value: int = 1
    subject: bytes = b""


Step: TypeAlias = Literal[
    "published", "visited", "brought", "settled", "taken", "repeated", "notified", "acknowledged", "rejected", "dead"
]


class Trace(msgspec.Struct, frozen=True, gc=False):
    """A step of an event at this node, for those who ask why. It is kept for a while, and nothing depends on it."""

    event: EventKey
    step: Step
    home: HomeId = HomeId(b"")
    """The home it came to, or was brought to."""
    names: tuple[str, ...] = ()
    """The subscriptions concerned; none where it came to a home and matched nothing there."""
    detail: str = ""
    content: bytes = b""
    """The event itself, where it was published."""


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Tell that the node has left: nothing of it is needed any more."""


Effect: TypeAlias = (
    Send | SetTimer | CancelTimer | Notify | Ended | Answer | Persist | Accepted | Observe | Trace | Stop
)  # fmt: skip
