"""Bytes by which an event or a subscription is recognised in any message.

An event's id and its key, a subscription's name, are somewhere in the bytes of whatever is about it, however deep. So
who looks for them needs no knowledge of any scheme.
"""

from __future__ import annotations

import msgspec

from meetpoint.api.ids import EventKey

__all__ = ["Signs"]

_PACK = msgspec.msgpack.Encoder().encode


class Signs:
    """The bytes of one name or id, and of the key that an event got."""

    __slots__ = ("_all", "event")

    def __init__(self, *first: bytes) -> None:
        self._all = list(first)
        self.event: EventKey | None = None

    def learn(self, event: EventKey) -> None:
        """The key under which the event travels."""
        if self.event is None:
            self.event = event
            self._all += (_PACK(event), f"{event.home.hex()}/{event.stream}/{event.number}".encode())

    def are_in(self, data: bytes) -> bool:
        """Whether some bytes are about it."""
        return any(sign in data for sign in self._all)
