"""A disk that keeps its promises and no more.

Tickets are written in order and synced in groups: one sync at a time, whatever comes meanwhile waits for the next. A
ticket is on disk when its sync has ended. A crash loses what was not: some first part of the waiting tickets survives,
each of them whole or not at all (the real store has a checksum per record and a transaction per ticket). A write that
fails never gets a second try: the node must crash.

Who passes the time is not this module's matter: `begin` and `end` are called by whoever has the clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import Record

__all__ = ["Disk"]


class Disk:
    """What one process has stored: it outlives the process, and may be lost."""

    __slots__ = ("_stored", "_syncing", "_waiting", "written")

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._stored: dict[tuple[bytes, str], Record] = {(r.home, r.name): r for r in records}
        self._waiting: list[Persist] = []
        self._syncing: list[Persist] = []
        self.written = 0

    @property
    def busy(self) -> bool:
        """Whether a sync is under way."""
        return bool(self._syncing)

    @property
    def unsynced(self) -> int:
        """How many tickets a crash may lose."""
        return len(self._syncing) + len(self._waiting)

    def write(self, effect: Persist) -> bool:
        """Take a ticket; true where a sync should begin now."""
        self._waiting.append(effect)
        return not self._syncing

    def begin(self) -> bool:
        """Sync all that waits; false where nothing does."""
        assert not self._syncing, "a sync is under way"
        self._syncing, self._waiting = self._waiting, []
        return bool(self._syncing)

    def end(self) -> list[int]:
        """The sync has ended: its tickets are on disk."""
        done, self._syncing = self._syncing, []
        for effect in done:
            self._apply(effect)
        return [effect.ticket for effect in done]

    def crash(self, random: Random) -> int:
        """The process dies: of the tickets not yet on disk a first part survives. Returns how many did not."""
        waiting = self._syncing + self._waiting
        self._syncing, self._waiting = [], []
        kept = random.randint(0, len(waiting))
        for effect in waiting[:kept]:
            self._apply(effect)
        return len(waiting) - kept

    def recover(self) -> tuple[Record, ...]:
        """All that is on disk, by home and name."""
        return tuple(self._stored[at] for at in sorted(self._stored))

    def _apply(self, effect: Persist) -> None:
        self.written += len(effect.records)
        for record in effect.records:
            self._stored[record.home, record.name] = record
        for at in effect.erased:
            self._stored.pop(at, None)
