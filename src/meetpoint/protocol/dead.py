"""Dead letters of a home: events that subscribers did not take, until someone forgets them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import msgspec

from meetpoint.protocol.records import EventKey

__all__ = ["DEAD", "DeadLetter", "DeadLetters", "DeadRecord"]

DEAD: Final = "dead/"
REASON_MAX: Final = 500
"""How much is kept of the reasons, in characters."""


class DeadRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A dead letter as it is kept."""

    names: tuple[str, ...]
    content: bytes
    reason: str = ""
    at_us: int = 0


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """An event that subscribers did not take."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    reason: str
    at_us: int


class DeadLetters:
    """All of one home."""

    def __init__(self, most: int, bytes_max: int) -> None:
        self._most = most
        self._bytes_max = bytes_max
        self._letters: OrderedDict[EventKey, DeadRecord] = OrderedDict()  # the oldest first
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._letters)

    def recover(self, event: EventKey, record: DeadRecord) -> None:
        """Take back what was on disk."""
        self._letters[event] = record
        self._bytes += len(record.content)

    def put(self, event: EventKey, name: str, content: bytes, reason: str, now: int) -> list[EventKey]:
        """One more; returns those that had to be forgotten for it."""
        known = self._letters.pop(event, None)
        if known is None:
            self._bytes += len(content)
            self._letters[event] = DeadRecord((name,), content, reason[:REASON_MAX], now)
        else:
            reasons = known.reason if reason in known.reason else f"{known.reason}; {name}: {reason}"
            self._letters[event] = DeadRecord((*known.names, name), content, reasons[:REASON_MAX], now)
        forgotten = []
        while len(self._letters) > self._most or (self._bytes > self._bytes_max and len(self._letters) > 1):
            oldest = next(iter(self._letters))
            self.forget(oldest)
            forgotten.append(oldest)
        return forgotten

    def forget(self, event: EventKey) -> bool:
        """Nobody wants it; false where there is none."""
        record = self._letters.pop(event, None)
        if record is not None:
            self._bytes -= len(record.content)
        return record is not None

    def record(self, event: EventKey) -> bytes | None:
        """What is to be kept of one."""
        known = self._letters.get(event)
        return None if known is None else msgspec.msgpack.encode(known)

    def letters(self) -> Iterator[DeadLetter]:
        """All of them, the oldest first."""
        for event, each in self._letters.items():
            yield DeadLetter(event, each.names, each.content, each.reason, each.at_us)
