"""What a network that runs `dmm` may choose."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

__all__ = ["DmmSettings"]


class DmmSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all nodes of a network."""

    schema: str = ""
    """The attributes that are dimensions, as YAML; without any there is one region, which cannot be split."""
    threshold: Annotated[int, msgspec.Meta(ge=1)] = 100
    """A region with more entries is split, where that helps."""
    depth: Annotated[int, msgspec.Meta(ge=0, le=64)] = 32
    """How often the space is halved at most."""
    delegation: Literal["probed", "always", "never"] = "probed"
    """Whether regions are split: where the peers that are probed have room, whenever they are full, or never."""
    growth: Annotated[float, msgspec.Meta(ge=0)] = 0.125
    """A split that adds no more than this share of a region's entries needs no room; only for `probed`."""
    relief: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    """How much less full than this peer the fullest of those concerned must be after any other split."""
    coverage: Literal["covering", "uncovered"] = "covering"
    """Whether what another subscription of the same home covers is left out of the tree."""
    delivery: Literal["tree", "unicast"] = "tree"
    """How a leaf brings an event to many homes."""
