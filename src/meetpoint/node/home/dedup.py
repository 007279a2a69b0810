"""Duplicates: ids of recent events, and how far publishers of batches have come.

A publisher that got no answer publishes the same event again, maybe at another broker, under another key. As long as an
event is in the queue its record tells its id. When it leaves the queue, the same write puts its id into a record with
others that leave then (`recent/NUMBER`), which is erased when the time is over (`DedupWindow`).

A program that publishes the rows of a batch, and starts again after a crash, must know which of them were accepted,
however long ago that was. Of a publisher whose name says that it publishes batches (`batch/NAME`) a home keeps the
highest sequence on its disks, in the write that keeps the event (`ProducerSequences`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from meetpoint.node.runtime.records import Record

__all__ = ["PROGRESS", "RECENT", "DedupRecord", "DedupWindow", "ProducerSequences", "is_of_batches"]


RECENT: Final = "recent/"


class DedupRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ids that left the queue at one time, each with the names it had been queued for."""

    at_us: int
    ids: tuple[tuple[str, tuple[str, ...]], ...]


class DedupWindow:
    """The recent ids of one home; times are of its node's clock."""

    def __init__(self, span_us: int, most: int) -> None:
        self._span_us = span_us
        self._most = most
        self._names: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._order: deque[tuple[int, str]] = deque()  # the oldest first; one that came again is in it again
        self._records: deque[tuple[int, int, str]] = deque()  # since when, how many ids, under which name
        self._kept = 0
        self._serial = 0

    def __len__(self) -> int:
        return len(self._names)

    def names(self, id_: str, now: int) -> tuple[str, ...]:
        """Return the names for which an id has been queued."""
        self._forget(now)
        known = self._names.get(id_)
        return () if known is None else known[1]

    def add(self, id_: str, names: Iterable[str], now: int) -> None:
        """Add names for which an id is queued."""
        known = self._names.get(id_)
        self._names[id_] = (now, tuple(names) if known is None else (*known[1], *names))
        self._order.append((now, id_))
        self._forget(now)

    def _forget(self, now: int) -> None:
        order, names = self._order, self._names
        while order and (now - order[0][0] >= self._span_us or len(names) > self._most):
            at, id_ = order.popleft()
            known = names.get(id_)
            if known is not None and known[0] == at:
                del names[id_]

    # -- on disk -------------------------------------------------------------------------------------------------------

    def recover(self, name: str, record: DedupRecord, now: int) -> None:
        """Take back what was on disk, the oldest record first, as if it had come now.

        Between two lives a clock may have been set, and another broker has another one: a record that seems to be an
        hour old, or an hour young, may be of a moment ago, and its publisher about to ask again.
        """
        self._serial = max(self._serial, int(name.removeprefix(RECENT)))
        self._records.append((now, len(record.ids), name))
        self._kept += len(record.ids)
        for id_, names in record.ids:
            self.add(id_, names, now)

    def record(self, ids: Sequence[tuple[str, tuple[str, ...]]], now: int) -> tuple[str, bytes]:
        """Return a record of ids that leave the queue."""
        self._serial += 1
        name = f"{RECENT}{self._serial:012}"
        self._records.append((now, len(ids), name))
        self._kept += len(ids)
        return name, msgspec.msgpack.encode(DedupRecord(now, tuple(ids)))

    def outdated(self, now: int) -> list[str]:
        """Return the names of records that need not be kept any longer."""
        names = []
        while self._records and (now - self._records[0][0] >= self._span_us or self._kept > self._most):
            _, count, name = self._records.popleft()
            self._kept -= count
            names.append(name)
        return names

    @property
    def due(self) -> int | None:
        """When a record is outdated next."""
        return self._records[0][0] + self._span_us if self._records else None


PROGRESS: Final = "progress/"
PUBLISHERS_MAX: Final = 1_000
"""How many publishers of batches a home remembers; the one that was silent for longest is forgotten."""
_MARK: Final = "batch/"


def is_of_batches(publisher: str) -> bool:
    """Return whether a publisher's name says that it publishes batches: its own, or behind its tenant's."""
    return publisher.startswith(_MARK) or f"/{_MARK}" in publisher


class ProducerSequences:
    """The highest sequence that a home accepted of each batch publisher."""

    def __init__(self, records: Iterable[Record]) -> None:
        said = sorted((record.version, record) for record in records if record.value is not None)
        self._sequences: dict[str, int] = {
            record.name.removeprefix(PROGRESS): msgspec.msgpack.decode(record.value or b"", type=int)
            for _, record in said
        }

    def __len__(self) -> int:
        return len(self._sequences)

    def get(self, publisher: str) -> int:
        """Return the highest sequence that was accepted; 0 where none was."""
        return self._sequences.get(publisher, 0)

    def put(self, publisher: str, sequence: int) -> tuple[list[tuple[str, bytes]], list[str]]:
        """Take note of an accepted event of a batch; return what is to be written for that, and what erased."""
        self._sequences.pop(publisher, None)
        self._sequences[publisher] = sequence
        erased = []
        if len(self._sequences) > PUBLISHERS_MAX:
            oldest = next(iter(self._sequences))
            del self._sequences[oldest]
            erased.append(PROGRESS + oldest)
        return [(PROGRESS + publisher, msgspec.msgpack.encode(sequence))], erased
