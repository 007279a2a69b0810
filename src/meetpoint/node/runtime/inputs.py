"""Inputs: all that can happen to a node. A driver hands them to `Node.handle`, one at a time."""

from __future__ import annotations

from typing import NewType, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import NodeRequest
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.runtime.records import Record

__all__ = [
    "Archived",
    "ClientRequest",
    "ContactsFound",
    "Input",
    "Instant",
    "Measured",
    "PeerUnreachable",
    "Persisted",
    "Received",
    "Started",
    "TimerFired",
    "Withdrawn",
]

Instant = NewType("Instant", int)
"""Microseconds on the clock of the driver. Clocks of two nodes need not agree, and may jump when a node restarts."""


class Started(msgspec.Struct, frozen=True, gc=False):
    """The node is up, with what its disk still holds. It founds a network with `founders`, or joins by `contacts`."""

    records: tuple[Record, ...] = ()
    founders: tuple[Peer, ...] = ()
    contacts: tuple[Peer, ...] = ()


class ContactsFound(msgspec.Struct, frozen=True, gc=False):
    """Others were found since the node started: while it is in no network it may join by them too."""

    contacts: tuple[Peer, ...]


class Persisted(msgspec.Struct, frozen=True, gc=False):
    """The records of a `Persist` effect, and of all before it, are on disk."""

    ticket: int


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message came from a peer."""

    source: Peer
    message: Message


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """A timer's time has come."""

    timer: int


class PeerUnreachable(msgspec.Struct, frozen=True, gc=False):
    """The driver cannot reach a peer: its connection was refused or broke."""

    peer: Peer


class Archived(msgspec.Struct, frozen=True, gc=False):
    """All events that were `Accepted` of a home are in the archive, up to this one."""

    upto: EventKey


class Measured(msgspec.Struct, frozen=True, gc=False):
    """Tells what events are like, as it was measured over many of them (`Feedback`)."""

    feedback: Feedback


class ClientRequest(msgspec.Struct, frozen=True, gc=False):
    """A request of a client of this node; its answer carries `request`."""

    request: int
    what: NodeRequest


class Withdrawn(msgspec.Struct, frozen=True, gc=False):
    """A request to publish is void: its client was told to ask again later, or another broker.

    The event is not to be published by this request any more, unless it is already.
    """

    request: int


Input: TypeAlias = (
    Started
    | ContactsFound
    | Persisted
    | Received
    | TimerFired
    | PeerUnreachable
    | ClientRequest
    | Withdrawn
    | Archived
    | Measured
)
