"""What the node is told of a disk on which something is damaged: that it is missing.

A home of which a record is damaged is not taken for whole: without the note that says so, the node collects the copies
that others keep, and what this disk still has beside them (`protocol.hosting`).
"""

from __future__ import annotations

from meetpoint.protocol.hosting import HOSTED, MOVING
from meetpoint.protocol.records import LOCAL, Record
from meetpoint.store import Recovered

__all__ = ["sound"]


def sound(recovered: Recovered) -> tuple[Record, ...]:
    """The records that a node starts with."""
    doubtful = {HOSTED + home.hex() for home, _ in recovered.damaged if home != LOCAL}
    # A damaged note on a move: whether the home went, others know.
    moves = [name for home, name in recovered.damaged if home == LOCAL and name.startswith(MOVING)]
    doubtful |= {HOSTED + name.removeprefix(MOVING) for name in moves}
    if not doubtful:
        return recovered.records
    return tuple(record for record in recovered.records if record.home != LOCAL or record.name not in doubtful)
