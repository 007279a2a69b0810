"""The settings of `rebeca`, and how long nodes wait for each other down the graph."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from meetpoint.api.limits import SECOND_US

__all__ = ["HOPS_MAX", "STEP_US", "WITHIN_US", "RebecaSettings"]


class RebecaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `rebeca`, the same for all nodes of a network."""

    strategy: Literal["simple", "identity", "covering", "merging", "imperfect"] = "covering"
    """How what is wanted behind an edge is drawn together, from many rows to few (`tables`)."""
    share: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.1
    """Of the events that go down an edge, how many may do so for nothing, where rows are merged imperfectly."""
    lease_us: Annotated[int, msgspec.Meta(ge=1)] = 10 * SECOND_US
    """How long others may rely on what they were told. A subscription may wait so long for a broker that is silent, and
    one at a broker that has just restarted, or just got keys, does."""
    period_us: Annotated[int, msgspec.Meta(ge=1)] = SECOND_US
    """How often a broker asks those that its edges lead to, while there is any doubt; at rest, where trees have few
    levels, less often. A lease must last for as many of these as a tree has levels, and some more."""
    reserves_per_level: Annotated[float, msgspec.Meta(ge=0, le=16)] = 2
    """How many of the next brokers clockwise are kept in reserve, for each doubling of their number: with 2, half of
    all may fail at once and hardly ever all in the reserve of one; never fewer than one."""


WITHIN_US: Final = 3 * SECOND_US // 2
"""How long the origin of an event waits for the graph."""
STEP_US: Final = SECOND_US // 10
"""How much sooner a member gives up waiting than the one that handed the event to it."""
HOPS_MAX: Final = 1_000
