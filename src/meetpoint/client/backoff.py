"""How long to wait before the next try: longer each time, and never all clients at once."""

from __future__ import annotations

import asyncio
import random

__all__ = ["Backoff"]


class Backoff:
    """Pauses between tries, from a twentieth of a second up to a bound."""

    def __init__(self, first_s: float = 0.05, most_s: float = 1.0) -> None:
        self._first = self._next = first_s
        self._most = most_s

    async def wait(self) -> None:
        """Pause."""
        pause = self._next * random.uniform(0.5, 1.0)
        self._next = min(self._most, self._next * 2)
        await asyncio.sleep(pause)

    def reset(self) -> None:
        """It worked: begin again with short ones."""
        self._next = self._first
