"""Ids of events that came a short while ago, and for which names: a publisher that got no answer publishes the same
event again, maybe at another broker, under another key.

As long as an event is in the queue its record tells its id. When it leaves the queue, the same write puts its id into a
record with others that leave then (`recent/NUMBER`), which is erased when the time is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

__all__ = ["RECENT", "DedupRecord", "DedupWindow"]

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
        """For which names an id has been queued."""
        self._forget(now)
        known = self._names.get(id_)
        return () if known is None else known[1]

    def add(self, id_: str, names: Iterable[str], now: int) -> None:
        """An id is queued for some names that are new."""
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
        """What is to be kept of ids that leave the queue."""
        self._serial += 1
        name = f"{RECENT}{self._serial:012}"
        self._records.append((now, len(ids), name))
        self._kept += len(ids)
        return name, msgspec.msgpack.encode(DedupRecord(now, tuple(ids)))

    def outdated(self, now: int) -> list[str]:
        """The records that need not be kept any longer."""
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
