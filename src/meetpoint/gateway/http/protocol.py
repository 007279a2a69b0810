"""HTTP/1.1 for uvicorn: time limits for headers, and fewer system calls.

A client has some seconds to send the headers of a request, counted from its first byte or from the start of the
connection. Writes of one turn of the event loop are sent together: uvicorn writes the head and the body of a response
one after the other, and a system call for each is a good part of what a small request costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from meetpoint.gateway.http.errors import error_response

__all__ = ["ABORT_KEY", "coalesced", "http_protocol"]


class CoalescingTransport:
    """A transport that sends all writes of one turn of the event loop together."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send with the next flush."""
        if data:
            if not self._waiting:
                self._loop.call_soon(self._flush)
            self._waiting.append(data)

    def writelines(self, parts: list[bytes]) -> None:
        """Send with the next flush."""
        for part in parts:
            self.write(part)

    def write_eof(self) -> None:
        """Flush, then close the writing side."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Flush, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once and drop what was not sent."""
        self._waiting.clear()
        self._transport.abort()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))


def coalesced(transport: asyncio.Transport) -> asyncio.Transport:
    """Wrap a transport in a `CoalescingTransport`."""
    return cast(asyncio.Transport, CoalescingTransport(transport))


ABORT_KEY: Final = "meetpoint.abort"
"""The key, in a request's scope, of a function that closes its connection at once, whatever waits to be written."""


def http_protocol(header_s: float, count_refused: Callable[[str], None]) -> type[asyncio.Protocol]:
    """Return a protocol class whose connections must send headers within `header_s`."""

    class HttpProtocol(H11Protocol):
        """A connection with its header timer."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(coalesced(transport))
            self._start_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None:
                cast(dict[str, Any], self.cycle.scope)[ABORT_KEY] = self.transport.abort
            if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
                self._start_timer()
            else:
                self._stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            count_refused("http")
            error = error_response(400, "http", "this is no request of HTTP/1.1, or its headers are too long")
            response = h11.Response(status_code=400, headers=[*error.raw_headers, (b"connection", b"close")])
            for event in (response, h11.Data(data=bytes(error.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def _start_timer(self) -> None:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().call_later(header_s, self._time_out)

        def _stop_timer(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _time_out(self) -> None:
            count_refused("slow")
            self.transport.close()

    return HttpProtocol
