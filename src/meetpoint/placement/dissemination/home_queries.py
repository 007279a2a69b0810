"""Questions to homes, wherever they are hosted: here, at a peer, or nowhere just now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Answerer", "HomeQueries", "Then"]

Then: TypeAlias = Callable[[Reply | None], None]
Answerer: TypeAlias = Callable[[Any, Callable[[Reply], None]], None]
"""Takes a question, and a way to answer it, now or later or never."""


class HomeQueries:
    """Asks homes, and has questions to homes here answered."""

    def __init__(self, services: Runtime, hosting: HomeManager) -> None:
        self._services = services
        self._hosting = hosting
        self._answerers: dict[type[Message], Answerer] = {}

    def answer(self, kind: type[Query], answerer: Answerer) -> None:
        """Have questions of one kind answered."""
        self._answerers[kind] = answerer

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are such questions."""
        return dict.fromkeys(self._answerers, self._received)

    def _received(self, source: Peer, message: Message) -> None:
        self._answerers[type(message)](message, lambda reply: self._services.send(source, reply))

    def ask(self, home: bytes, query: Callable[[int], Query], then: Then, timeout_us: int) -> None:
        """Ask a home; None where it has no answer in time, or nobody knows where it is."""
        host = self._hosting.directory.host(home)
        if host is None:
            self._services.after(timeout_us, lambda: then(None))
        elif host.id != self._services.me.id:
            self._services.ask(host, query, then, timeout_us)
        else:
            self._ask_here(query(0), then, timeout_us)

    def _ask_here(self, question: Query, then: Then, timeout_us: int) -> None:
        waiting = True

        def answered(reply: Reply | None) -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                self._services.cancel(timer)
                then(reply)

        timer = self._services.after(timeout_us, lambda: answered(None))
        self._answerers[type(question)](question, answered)
