"""Where a reader of a stream is: what the header Last-Event-ID brings back."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.gateway.http.errors import ApiError

__all__ = ["Position"]

_TEXT: Final = re.compile(r"([0-9a-f]{2,128})-([0-9]{1,19})-([0-9]{1,19})-([0-9]{1,16})", re.ASCII)


class Position(NamedTuple):
    """An event by its key, and when the gateway got it (microseconds since 1970)."""

    key: EventKey
    at_us: int

    def __str__(self) -> str:
        return f"{self.key.home.hex()}-{self.key.stream}-{self.key.number}-{self.at_us}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """The position that a text names."""
        match = _TEXT.fullmatch(text)
        if match is None or len(match[1]) % 2:
            raise ApiError(400, "position", "the header Last-Event-ID is none that this gateway gave; leave it out")
        home, stream, number, at_us = match.groups()
        return cls(EventKey(HomeId(bytes.fromhex(home)), int(stream), int(number)), int(at_us))
