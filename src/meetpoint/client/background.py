"""An asyncio loop in a thread of its own, for callers that have none, or one that they must not block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from meetpoint.client.errors import NetworkError

__all__ = ["Background"]

T = TypeVar("T")

STOP_S = 10.0


class Background:
    """A loop that runs until it is stopped; its thread does not keep the program alive."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            asyncio.set_event_loop(None)

    @property
    def is_running(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive() and not self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something there, and wait for it here. Interrupted here, it is cancelled there."""
        if not self.is_running:
            coroutine.close()
            raise NetworkError("this client is closed; connect again")
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise NetworkError("this would wait for itself: use the asynchronous client inside a loop's callbacks")
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise NetworkError("this client was closed meanwhile; connect again") from None
        except BaseException:
            future.cancel()
            raise

    def call(self, what: Any, *args: Any) -> None:
        """Call something there, and do not wait."""
        if self.is_running:
            self._loop.call_soon_threadsafe(what, *args)

    def stop(self) -> None:
        """Cancel what still runs there, and end the thread."""
        if not self.is_running:
            return
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result(STOP_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()


async def _cancel_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
