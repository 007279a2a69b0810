"""Dead letters of a home: events that subscribers did not take, until a client forgets them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

import msgspec

from meetpoint.api.ids import EventKey

__all__ = ["DEAD", "REASON_MAX", "DeadLetter", "DeadLetters", "DeadRecord"]

DEAD: Final = "dead/"
REASON_MAX: Final = 500
"""How much is kept of the reasons, in characters."""


class DeadRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of a dead letter."""

    names: tuple[str, ...]
    content: bytes
    reason: str = ""
    """The reason of the first name."""
    at_us: int = 0
    others: tuple[str, ...] = ()
    """The reasons of the names that follow; empty where it is the same."""

    def reason_of(self, place: int) -> str:
        """Return why the subscriber of a name did not take it."""
        return (self.others[place - 1] if 0 < place <= len(self.others) else "") or self.reason


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """An event that subscribers did not take."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    reason: str
    at_us: int


class DeadLetters:
    """The dead letters of one home, within limits."""

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
        """Add a dead letter; return those that had to be forgotten for it."""
        known = self._letters.pop(event, None)
        if known is None:
            self._bytes += len(content)
            self._letters[event] = DeadRecord((name,), content, reason[:REASON_MAX], now)
        else:
            kept = "" if reason[:REASON_MAX] == known.reason else reason[:REASON_MAX]
            others = (*known.others, *[""] * (len(known.names) - 1 - len(known.others)), kept)
            self._letters[event] = DeadRecord((*known.names, name), content, known.reason, now, others)
        forgotten = []
        while len(self._letters) > self._most or (self._bytes > self._bytes_max and len(self._letters) > 1):
            oldest = next(iter(self._letters))
            self.forget(oldest)
            forgotten.append(oldest)
        return forgotten

    def forget(self, event: EventKey, within: str = "") -> bool:
        """Forget a dead letter for names that begin so; return whether any of them had it."""
        record = self._letters.get(event)
        if record is None or not any(name.startswith(within) for name in record.names):
            return False
        left = [place for place, name in enumerate(record.names) if not name.startswith(within)]
        if left:
            first, *rest = [record.reason_of(place) for place in left]
            others = tuple("" if reason == first else reason for reason in rest)
            names = tuple(record.names[place] for place in left)
            self._letters[event] = DeadRecord(names, record.content, first, record.at_us, others)
        else:
            del self._letters[event]
            self._bytes -= len(record.content)
        return True

    def record(self, event: EventKey) -> bytes | None:
        """Return the record of a dead letter; None where there is none."""
        known = self._letters.get(event)
        return None if known is None else msgspec.msgpack.encode(known)

    def letters(self, within: str = "") -> Iterator[DeadLetter]:
        """Yield those of names that begin so, the oldest first, with what is said of these names."""
        for event, each in self._letters.items():
            places = [place for place, name in enumerate(each.names) if name.startswith(within)]
            if places:
                names = tuple(each.names[place] for place in places)
                yield DeadLetter(event, names, each.content, _told(each, places), each.at_us)


def _told(record: DeadRecord, places: list[int]) -> str:
    """Return the reasons, each once: the first as it is, the others with whose they are."""
    first, *rest = places
    told = {record.reason_of(first): ""}
    for place in rest:
        told.setdefault(record.reason_of(place), f"{record.names[place]}: ")
    return "; ".join(whose + reason for reason, whose in told.items())[:REASON_MAX]
