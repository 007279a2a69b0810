"""Where a node stands, as it tells others in the bits of one number beside the names of its neighbours."""

from __future__ import annotations

from typing import Final

from meetpoint.overlays.pastry.messages import Greet, Greeted
from meetpoint.overlays.pastry.rules import LEFT, Said, State

__all__ = ["read", "tell"]

HOLDS_LEFT: Final = 1
HOLDS_RIGHT: Final = 2
NEIGHBOURS_OWN: Final = 4
"""The lease that it holds on the left is of the neighbour that it names there, not of one before."""
WAITS: Final = 8
MEMBER: Final = 16
SOMEONE: Final = b""
"""Whose lease it is was not told: that it is held is all that matters."""


def tell(state: State) -> int:
    """Where a node stands, as it is told."""
    left, right = state.leases
    return (
        HOLDS_LEFT * (left is not None)
        | HOLDS_RIGHT * (right is not None)
        | NEIGHBOURS_OWN * (left == state.near[LEFT])
        | WAITS * state.waits
        | MEMBER * state.member
    )


def read(node: bytes, message: Greet | Greeted) -> Said:
    """What a node has told of where it stands."""
    standing, near = message.standing, message.near
    left = near[LEFT] if standing & NEIGHBOURS_OWN else SOMEONE
    return Said(
        node,
        near,
        (left if standing & HOLDS_LEFT else None, SOMEONE if standing & HOLDS_RIGHT else None),
        bool(standing & WAITS),
        bool(standing & MEMBER),
    )
