"""The messages of a hypercube's nodes. The driver tells who sent a message, so that messages do not repeat it.

A *life* is one time that a node has joined: its incarnation, and by its own clock when it began to. What it claimed in
a former one is lost. A region travels as bytes (`regions.packed`), as its bits may be more than a number has.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.overlays.routing import FindOwner, OwnerFound, RoutedMessage

__all__ = [
    "MESSAGES", "Heartbeat", "HostSearch", "HostedRegion", "HypercubeFind", "HypercubeFound", "HypercubeJoin",
    "HypercubeLeaving", "HypercubeRouted", "JoinRefused", "Life", "NeighbourRegion", "Offer", "RegionReserved",
    "StandBy",
]  # fmt: skip

Life: TypeAlias = tuple[int, int]


class HostedRegion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A region that the sender hosts. `reserved_for`: the node that had it before, and may have it back."""

    region: bytes
    epoch: int
    reserved_for: bytes = b""


class NeighbourRegion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A region that someone else hosts, as the sender knows."""

    region: bytes
    epoch: int
    peer: Peer


# -- maintenance -------------------------------------------------------------------------------------------------------


class Heartbeat(Message, frozen=True, array_like=True, gc=False, tag="h.be"):
    """A heartbeat: what the sender hosts. With `asks`: answer with the same, at once.

    `version` counts the changes of what I could say, `seen` is that of yours whose links I know. `links` are told where
    you do not know them. `standby_count` stand by here, or I stand by at `sponsor`. `standby_peers` are told with the
    links: the standbys here, and to those also the standbys next to here, as they may be all who are left some day.
    """

    life: Life
    version: int
    seen: int
    pieces: tuple[HostedRegion, ...]
    standby_count: int = 0
    sponsor: bytes = b""
    asks: bool = False
    links: tuple[NeighbourRegion, ...] | None = None
    standby_peers: tuple[Peer, ...] = ()


class HypercubeLeaving(Message, frozen=True, array_like=True, gc=False, tag="h.lv"):
    """A node leaves, in this life."""

    life: Life


class RegionReserved(Message, frozen=True, array_like=True, gc=False, tag="h.ke"):
    """A region is reserved at `holder`; on its way to the host of the id that the silent node would ask for first."""

    node: bytes
    holder: Peer
    hops: int


# -- places ------------------------------------------------------------------------------------------------------------


class HypercubeJoin(Message, frozen=True, array_like=True, gc=False, tag="h.jo"):
    """A node looks for a place: on its way to the host of `target_key`, then, with `to_lightest`, to the largest
    regions.

    A standby (`is_standby`) wants a region and nothing less.
    """

    joiner: Peer
    life: Life
    target_key: Key
    hops: int
    to_lightest: bool = False
    is_standby: bool = False


class Offer(Message, frozen=True, array_like=True, gc=False, tag="h.of"):
    """An offer to a node in one of its lives: it may claim a region in an epoch.

    `links` are the region's neighbours, and `passive` is some of the sender's passive list.
    """

    life: Life
    region: bytes
    epoch: int
    links: tuple[NeighbourRegion, ...]
    passive: tuple[Peer, ...] = ()


class StandBy(Message, frozen=True, array_like=True, gc=False, tag="h.sb"):
    """An answer to a joiner, in one of its lives: there is no region for it, but it may stand by here."""

    life: Life


class JoinRefused(Message, frozen=True, array_like=True, gc=False, tag="h.no"):
    """An answer to a joiner, in one of its lives: it cannot even stand by here."""

    life: Life


class HostSearch(Message, frozen=True, array_like=True, gc=False, tag="h.wa"):
    """A region of `origin` needs a host: on its way to where one can be spared, now at the region `at`.

    `asked`: the sibling of `at` has no heavier neighbour. If `at` has none either, the two can be one.
    """

    origin: Peer
    region: bytes
    epoch: int
    links: tuple[NeighbourRegion, ...]
    at: bytes
    hops: int
    asked: bool = False


# -- keys --------------------------------------------------------------------------------------------------------------


class HypercubeFind(FindOwner, frozen=True, array_like=True, gc=False, tag="h.fi"):
    """The hypercube's question for the owner of a key."""


class HypercubeFound(OwnerFound, frozen=True, array_like=True, gc=False, tag="h.lo"):
    """The hypercube's answer of an owner, with its region around the key."""

    region: bytes


class HypercubeRouted(RoutedMessage, frozen=True, array_like=True, gc=False, tag="h.ro"):
    """The hypercube's routed message."""


MESSAGES: tuple[type[Message], ...] = (
    Heartbeat, HypercubeFind, HypercubeJoin, RegionReserved, HypercubeLeaving, HypercubeFound, Offer, JoinRefused,
    HypercubeRouted, StandBy, HostSearch,
)  # fmt: skip
