"""What a node keeps on disk: records, each under its home and its name, the highest version wins.

A *home* is a broker's durable identity: its subscriptions, what it has published and not yet handed on, what waits for
its subscribers. It has the id of the node that made it and lives there, until that node leaves and another adopts it.
Other nodes keep copies of its records. Merging copies is union by name and highest version, in any order, any number
of times. A record without a value says that the name was deleted. Records of the home `LOCAL` are a node's own notes.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from meetpoint.api.ids import HomeId, Number

__all__ = ["LOCAL", "VERSIONS_PER_EPOCH", "Epoch", "Record"]


LOCAL = HomeId(b"")
"""The home of a node's own notes, which nobody copies."""

VERSIONS_PER_EPOCH = 2**40
"""Versions of records grow within an epoch of their home, and those of the next epoch begin above."""
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**22 - 1)]
"""How often a home has moved, or come back without its disk: such that all versions are numbers that a disk holds."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that is kept. `value` is None where the name was deleted."""

    home: HomeId
    name: str
    version: Number
    value: bytes | None

    @property
    def size(self) -> int:
        """About how many bytes it takes on the wire."""
        return len(self.home) + len(self.name) + len(self.value or b"") + 12
