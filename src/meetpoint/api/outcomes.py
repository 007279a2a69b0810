"""Outcomes of the requests that a client makes."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer

__all__ = ["Found", "Located", "Outcome", "Published", "Refused", "Stored"]


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="stored", gc=False):
    """Subscribed, updated, unsubscribed, acknowledged or left: it is kept as promised."""


class Published(msgspec.Struct, frozen=True, array_like=True, tag="published", gc=False):
    """The event is kept on two disks, under this key."""

    event: EventKey


class Found(msgspec.Struct, frozen=True, array_like=True, tag="found", gc=False):
    """The node that is responsible for a key, and how many messages it took to find."""

    peer: Peer
    hops: int


class Located(msgspec.Struct, frozen=True, array_like=True, tag="located", gc=False):
    """Where a subscription is; None where no home has one of this name."""

    host: Peer | None
    filter: str = ""


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused", gc=False):
    """It was not done. `retry` says whether the same may succeed later."""

    reason: str
    retry: bool


Outcome: TypeAlias = Stored | Published | Found | Located | Refused
