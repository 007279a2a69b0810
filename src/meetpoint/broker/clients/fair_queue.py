"""Turns at reading files for clients: few at a time, and of one client one after the other.

Files are read by threads, of which the loop has a handful for everything, also for finding the addresses of other
brokers and for writing to the archive. So what one client asks at once waits in a line of its own, and never takes more
threads than are left for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from meetpoint.api.client_messages import Word
from meetpoint.broker.clients.session import Session

__all__ = ["FairQueue"]


class _Line:
    """What one client waits for."""

    def __init__(self) -> None:
        self.next: Final = asyncio.Lock()
        self.length = 0


class FairQueue:
    """Whose turn it is to have something read."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._lines: dict[str, _Line] = {}
        self._reading: set[asyncio.Task[None]] = set()

    def read(self, session: Session, request: int, look: Callable[[], Word]) -> None:
        """Answer a request with what a thread finds, in its turn; `look` raises nothing."""
        task = asyncio.get_running_loop().create_task(self._answer(session, request, look))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _answer(self, session: Session, request: int, look: Callable[[], Word]) -> None:
        line = self._lines.setdefault(session.key, _Line())
        line.length += 1
        try:
            async with line.next, self._free:
                if session.connection.is_over:  # nobody waits for it any longer
                    return
                word = await asyncio.to_thread(look)
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[session.key]
        session.tell(request, word)

    async def close(self) -> None:
        """Wait for what is being read."""
        if self._reading:
            await asyncio.wait(set(self._reading))
