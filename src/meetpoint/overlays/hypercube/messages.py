"""What nodes of a hypercube say to each other. Who sent a message comes with it from the driver.

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
    "MESSAGES",
    "Heartbeat",
    "HostSearch",
    "HostedRegion",
    "HypercubeFind",
    "HypercubeFound",
    "HypercubeJoin",
    "HypercubeLeaving",
    "HypercubeRouted",
    "JoinRefused",
    "Life",
    "NeighbourRegion",
    "Offer",
    "RegionReserved",
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


# -- upkeep ------------------------------------------------------------------------------------------------------------


class Heartbeat(Message, frozen=True, array_like=True, gc=False, tag="h.be"):
    """I am here, and this is what I host. With `asks`: say the same, at once.

    `version` counts the changes of what I could say, `seen` is that of yours whose links I know. `links` are told where
    you do not know them. `standby_count` stand by here, or I stand by at `sponsor`. `standby_peers` are told with the links: who
    stands by here, and to those also who does next to it, as they may be all who are left some day.
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
    """I am gone, in this life."""

    life: Life


class RegionReserved(Message, frozen=True, array_like=True, gc=False, tag="h.ke"):
    """On its way to the host of the id that a silent node would ask for first: its region is kept at `holder`."""

    node: bytes
    holder: Peer
    hops: int


# -- places ------------------------------------------------------------------------------------------------------------


class HypercubeJoin(Message, frozen=True, array_like=True, gc=False, tag="h.jo"):
    """A node looks for a place: on its way to the host of `target_key`, then, as `to_lightest` says, to where regions are largest.

    One that is a standby (`is_standby`) by already wants a region and nothing less.
    """

    joiner: Peer
    life: Life
    target_key: Key
    hops: int
    to_lightest: bool = False
    is_standby: bool = False


class Offer(Message, frozen=True, array_like=True, gc=False, tag="h.of"):
    """You, in this life, may claim a region, in this epoch; these are its neighbours, and some of my passive list."""

    life: Life
    region: bytes
    epoch: int
    links: tuple[NeighbourRegion, ...]
    passive: tuple[Peer, ...] = ()


class StandBy(Message, frozen=True, array_like=True, gc=False, tag="h.sb"):
    """There is no region for you, in this life; stand by here."""

    life: Life


class JoinRefused(Message, frozen=True, array_like=True, gc=False, tag="h.no"):
    """Nor can you, in this life, stand by here."""

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
    """Who is responsible for a key?"""


class HypercubeFound(OwnerFound, frozen=True, array_like=True, gc=False, tag="h.lo"):
    """I am, with all of this region."""

    region: bytes


class HypercubeRouted(RoutedMessage, frozen=True, array_like=True, gc=False, tag="h.ro"):
    """A message on its way to whoever is responsible for a key."""


MESSAGES: tuple[type[Message], ...] = (
    Heartbeat, HypercubeFind, HypercubeJoin, RegionReserved, HypercubeLeaving, HypercubeFound, Offer, JoinRefused, HypercubeRouted, StandBy, HostSearch,
)  # fmt: skip
