"""What a store held when it was opened, and how a node learns that something is missing.

A node takes a home for whole when it finds its own note that the home served here (`hosted/…`), and otherwise asks all
others for their copies and merges them with what it has. So where a record is damaged, the note of its home goes with
it, for good, in one transaction; the node writes it again when the home is whole. Where the damaged record is a node's
own note, or its home is not known here, so that the damage may be in the name of the home, nobody can say what is
missing: all such notes go, and the node starts as one that has lost its disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from meetpoint.api.ids import HomeId
from meetpoint.node.cluster.home_manager import HOSTED
from meetpoint.node.node import INCARNATION
from meetpoint.node.runtime.records import LOCAL, Record

__all__ = ["Recovered", "distrust", "vouches"]


class Recovered(msgspec.Struct, frozen=True):
    """All records that are sound, by home and name; and the names that were found damaged, as far as legible.

    They were set aside, and are reported this once; a node that starts with these records looks elsewhere for them.
    """

    records: tuple[Record, ...] = ()
    damaged: tuple[tuple[HomeId, str], ...] = ()


def vouches(record: Record) -> bool:
    """Whether a record is a node's note that what it has on disk is all there was."""
    return record.home == LOCAL and (record.name == INCARNATION or record.name.startswith(HOSTED))


def distrust(records: Sequence[Record], damaged: Iterable[HomeId]) -> list[Record]:
    """The records without the notes that a home is whole, for homes of which a record is damaged."""
    hit = set(damaged)
    if LOCAL in hit or not hit <= {record.home for record in records}:
        return [record for record in records if not vouches(record)]
    notes = {HOSTED + home.hex() for home in hit}
    return [record for record in records if record.home != LOCAL or record.name not in notes]
