"""What a network that runs `meet` may choose."""

from __future__ import annotations

import msgspec

from meetpoint.api.limits import SECOND_US

__all__ = ["MeetSettings"]


class MeetSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all nodes of a network."""

    lease_us: int = 10 * SECOND_US
    """How long a summary is good for. A subscription may wait so long for a broker that was lost with one."""
    crowded: int = 256
    """How many entries lie under one key at one node; further ones go to its children."""
    children: int = 8
    """Among how many further keys the entries of a crowded one are spread."""
    plan: bytes = b""
    """A `matching.KeyPlan` as bytes: which constraint of a filter is the most selective. Empty: by a guess."""
