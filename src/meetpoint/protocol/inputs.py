"""All that can happen to a node. A driver hands these to `Node.handle`, one at a time."""

from __future__ import annotations

from typing import NewType, TypeAlias

import msgspec

from meetpoint.protocol.messages import Message, Peer
from meetpoint.protocol.records import EventKey, Record

__all__ = [
    "MICROSECONDS",
    "Acknowledge",
    "Asked",
    "Fired",
    "Input",
    "Instant",
    "Leave",
    "Lookup",
    "Lost",
    "Persisted",
    "Publish",
    "Received",
    "RequestOf",
    "Started",
    "Subscribe",
    "Unsubscribe",
    "Update",
]

Instant = NewType("Instant", int)
"""Microseconds on the clock of the driver. Clocks of two nodes need not agree, and may jump when a node restarts."""

MICROSECONDS = 1_000_000


class Started(msgspec.Struct, frozen=True, gc=False):
    """The node is up, with what its disk still holds. It founds a network with `founders`, or joins by `contacts`."""

    records: tuple[Record, ...] = ()
    founders: tuple[Peer, ...] = ()
    contacts: tuple[Peer, ...] = ()


class Persisted(msgspec.Struct, frozen=True, gc=False):
    """The records of a `Persist` effect, and of all before it, are on disk."""

    ticket: int


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message came from a peer."""

    source: Peer
    message: Message


class Fired(msgspec.Struct, frozen=True, gc=False):
    """A timer's time has come."""

    timer: int


class Lost(msgspec.Struct, frozen=True, gc=False):
    """The driver cannot reach a peer: its connection was refused or broke."""

    peer: Peer


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """Hold a filter under a name that is the client's choice, so that it may ask again without harm."""

    name: str
    filter: str


class Update(msgspec.Struct, frozen=True, gc=False):
    """Replace the filter of a subscription."""

    name: str
    filter: str


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    """End a subscription."""

    name: str


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Publish an event, as MessagePack (`language.event_msgpack`)."""

    event: bytes


class Acknowledge(msgspec.Struct, frozen=True, gc=False):
    """The subscriber has what a `Notify` effect brought."""

    event: EventKey
    names: tuple[str, ...]


class Lookup(msgspec.Struct, frozen=True, gc=False):
    """Which node is responsible for a key."""

    key: bytes


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Hand everything over and go."""


RequestOf: TypeAlias = Subscribe | Update | Unsubscribe | Publish | Acknowledge | Lookup | Leave


class Asked(msgspec.Struct, frozen=True, gc=False):
    """A client of this node asks for something; the answer carries `request`."""

    request: int
    what: RequestOf


Input: TypeAlias = Started | Persisted | Received | Fired | Lost | Asked
