"""An answer that many ask for at once is found once: it is good for a moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["Shared"]

T = TypeVar("T")


class Shared(Generic[T]):
    """The last answer, for as long as it is good. Who asks meanwhile waits for the one who is finding it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._found: T | None = None
        self._until = 0.0
        self._finding = asyncio.Lock()

    async def get(self, find: Callable[[], Awaitable[T]]) -> T:
        """The answer, found now if need be."""
        async with self._finding:
            if self._found is None or time.monotonic() >= self._until:
                self._found = await find()
                self._until = time.monotonic() + self._seconds
            return self._found
