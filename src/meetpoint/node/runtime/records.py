"""Records: what a node keeps on disk, each under its home and its name. The highest version wins.

A *home* is a broker's durable identity: its subscriptions, the events it has published that are on their way, and those
that wait for its subscribers. It has the id of the node that made it and lives there, until that node leaves and
another takes it over. Other nodes keep replicas of its records. Merging replicas is union by name and highest version,
in any order, any number of times. A record without a value says that the name was deleted. Records of the home `LOCAL`
are a node's own notes.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from meetpoint.api.ids import HomeId, Number

__all__ = ["LOCAL", "VERSIONS_PER_EPOCH", "Epoch", "Record"]


LOCAL = HomeId(b"")
"""The home of a node's own notes, which are not replicated."""

VERSIONS_PER_EPOCH = 2**40
"""Versions of records grow within an epoch of their home, and those of the next epoch begin above."""
Epoch: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**22 - 1)]
"""How often a home has moved, or come back without its disk; bounded so that a disk holds all versions."""


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A value under a home and a name; None where the name was deleted."""

    home: HomeId
    name: str
    version: Number
    value: bytes | None

    @property
    def size(self) -> int:
        """The bytes that it takes on the wire, about."""
        return len(self.home) + len(self.name) + len(self.value or b"") + 12
