"""How far publishers of batches have come: the highest sequence that a home accepted of each.

A program that publishes the rows of a batch, and starts again after a crash, must know which of them were accepted,
however long ago that was. Brokers remember ids for two minutes only; of a publisher whose name says that it publishes
batches (`batch/NAME`) a home keeps the highest sequence on its disks, in the write that keeps the event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from meetpoint.node.runtime.records import Record

__all__ = ["PROGRESS", "ProducerSequences", "is_of_batches"]

PROGRESS: Final = "progress/"
PUBLISHERS_MAX: Final = 1_000
"""How many publishers of batches a home remembers; the one that was silent for longest is forgotten."""
_MARK: Final = "batch/"


def is_of_batches(publisher: str) -> bool:
    """Whether a publisher's name says so: its own, or behind whose it is (`net.tenancy`)."""
    return publisher.startswith(_MARK) or f"/{_MARK}" in publisher


class ProducerSequences:
    """What one home knows."""

    def __init__(self, records: Iterable[Record]) -> None:
        said = sorted((record.version, record) for record in records if record.value is not None)
        self._sequences: dict[str, int] = {
            record.name.removeprefix(PROGRESS): msgspec.msgpack.decode(record.value or b"", type=int)
            for _, record in said
        }

    def __len__(self) -> int:
        return len(self._sequences)

    def get(self, publisher: str) -> int:
        """The highest sequence that was accepted; 0 where none was."""
        return self._sequences.get(publisher, 0)

    def put(self, publisher: str, sequence: int) -> tuple[list[tuple[str, bytes]], list[str]]:
        """An event of a publisher of batches is accepted: what is to be written for that, and what erased."""
        self._sequences.pop(publisher, None)
        self._sequences[publisher] = sequence
        erased = []
        if len(self._sequences) > PUBLISHERS_MAX:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest]
            erased.append(PROGRESS + oldest)
        return [(PROGRESS + publisher, msgspec.msgpack.encode(sequence))], erased
