"""A store that is open in this process, and what it has told."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage import Store, StoreState
from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import Record

HOME, OTHER = HomeId(b"\x01" * 20), HomeId(b"\xfe" * 20)
WAIT_S = 120.0


def record(name: str, value: bytes | None = b"v", home: HomeId = HOME, version: int = 1) -> Record:
    return Record(home, name, version, value)


class Opened:
    """Hands tickets in, and waits for what is told."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.told: list[int] = []
        self.states: list[StoreState] = []
        self._changed = threading.Condition()
        self._ticket = 0
        store.start(self._persisted, self._state)

    def _persisted(self, ticket: int) -> None:
        with self._changed:
            self.told.append(ticket)
            self._changed.notify_all()

    def _state(self, state: StoreState) -> None:
        with self._changed:
            self.states.append(state)
            self._changed.notify_all()

    def persist(self, *records: Record, erased: tuple[tuple[bytes, str], ...] = ()) -> int:
        self._ticket += 1
        self.store.persist(self._ticket, records, erased)
        return self._ticket

    def take(self, effect: Persist) -> None:
        self._ticket = effect.ticket
        self.store.persist(effect.ticket, effect.records, effect.erased)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, WAIT_S), f"{what}: not within {WAIT_S:.0f} s; {self.states}"

    def settle(self) -> None:
        """All that was handed in is told."""
        if self._ticket:
            self.until(lambda: bool(self.told) and self.told[-1] == self._ticket, f"ticket {self._ticket}")

    def put(self, *records: Record, erased: tuple[tuple[bytes, str], ...] = ()) -> None:
        self.persist(*records, erased=erased)
        self.settle()


@contextlib.contextmanager
def opened(path: Path | None, factory: type[sqlite3.Connection] = sqlite3.Connection) -> Iterator[Opened]:
    """A store that is closed in the end."""
    store = Store.open(path, factory=factory)
    try:
        yield Opened(store)
    finally:
        store.close()


def kept(path: Path) -> tuple[Record, ...]:
    """Return the contents of a store."""
    store = Store.open(path)
    try:
        return store.recovered.records
    finally:
        store.close()
