"""A connection on which what is written in one turn of the loop goes out together.

An answer's head and body are written one after the other; sent one by one they cost a call of the system each, which is
a good part of what a small request costs.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

__all__ = ["corked"]


class _Corked:
    """A transport around another one."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send soon."""
        if data:
            if not self._waiting:
                self._loop.call_soon(self._flush)
            self._waiting.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        """Send soon."""
        for part in parts:
            self.write(part)

    def write_eof(self) -> None:
        """Nothing more is written."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close when all is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is dropped."""
        self._waiting.clear()
        self._transport.abort()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def corked(transport: asyncio.Transport) -> asyncio.Transport:
    """The transport, with its writes put together."""
    return cast(asyncio.Transport, _Corked(transport))
