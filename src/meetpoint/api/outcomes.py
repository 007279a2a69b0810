"""Outcomes of the requests in `api.requests`."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer

__all__ = ["Found", "Located", "Outcome", "Published", "Refused", "Stored"]


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="stored", gc=False):
    """The request is done and stored: subscribed, updated, unsubscribed, acknowledged or left."""


class Published(msgspec.Struct, frozen=True, array_like=True, tag="published", gc=False):
    """The event is stored on two disks, under this key."""

    event: EventKey


class Found(msgspec.Struct, frozen=True, array_like=True, tag="found", gc=False):
    """The node that is responsible for a key, and the number of messages that finding it took."""

    peer: Peer
    hops: int


class Located(msgspec.Struct, frozen=True, array_like=True, tag="located", gc=False):
    """The broker that hosts a subscription; None where no home has one of this name."""

    host: Peer | None
    filter: str = ""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused", gc=False):
    """The request was refused. `retry`: the same may succeed later."""

    reason: str
    retry: bool


Outcome: TypeAlias = Stored | Published | Found | Located | Refused
