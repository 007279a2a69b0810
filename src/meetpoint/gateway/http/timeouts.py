"""HTTP/1.1 for clients that say what they want soon: whoever connects, or begins a request, has some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from meetpoint.gateway.http.coalescing_transport import corked
from meetpoint.gateway.http.errors import refuse

__all__ = ["ABORT", "impatient"]

ABORT: Final = "meetpoint.abort"
"""Of a request's scope: what ends its connection at once, whatever still waits to be written."""


def impatient(header_s: float, count_refused: Callable[[str], None]) -> type[asyncio.Protocol]:
    """The protocol of connections whose headers must be there within so long, and must be HTTP."""

    class Impatient(H11Protocol):
        """One connection."""

        _waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(corked(transport))
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None:
                cast(dict[str, Any], self.cycle.scope)[ABORT] = self.transport.abort
            if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
                self._wait()
            else:
                self._wait_no_more()

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait_no_more()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            count_refused("http")
            answer = refuse(400, "http", "this is no request of HTTP/1.1, or its headers are too long")
            said = h11.Response(status_code=400, headers=[*answer.raw_headers, (b"connection", b"close")])
            for event in (said, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

        def _wait(self) -> None:
            if self._waiting is None:
                self._waiting = asyncio.get_running_loop().call_later(header_s, self._give_up)

        def _wait_no_more(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            count_refused("slow")
            self.transport.close()

    return Impatient
