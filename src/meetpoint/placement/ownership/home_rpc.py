"""Requests to a home, wherever it is hosted: here, at a peer, or nowhere just now."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["Answerer", "HomeRpc"]

Answerer: TypeAlias = Callable[[Any], Signal[Reply] | None]
"""Answers a question to a home here, now or later; None: never, and the question comes again."""


class HomeRpc:
    """Asks homes, and has questions to homes here answered."""

    def __init__(self, runtime: Runtime, home_manager: HomeManager) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._answerers: dict[type[Message], Answerer] = {}

    def answer(self, kind: type[Query], answerer: Answerer) -> None:
        """Have questions of one kind answered."""
        self._answerers[kind] = answerer

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handler of questions to homes."""
        return dict.fromkeys(self._answerers, self._received)

    def _received(self, source: Peer, message: Message) -> None:
        answer = self._answerers[type(message)](message)
        if answer is not None:
            answer.then(lambda reply: self._runtime.send(source, reply))

    def ask(self, home: bytes, query: Query, timeout_us: int) -> Signal[Reply | None]:
        """Ask a home; None where it has no answer in time, or nobody knows where it is."""
        host = self._home_manager.directory.host(home)
        if host is not None and host.id != self._runtime.me.id:
            return self._runtime.ask(host, query, timeout_us)
        asked: Signal[Reply | None] = Signal()
        timer = self._runtime.after(timeout_us, partial(self._late, asked))
        if host is not None:
            answer = self._answerers[type(query)](query)
            if answer is not None:
                answer.then(partial(self._answered, asked, timer))
        return asked

    def _answered(self, asked: Signal[Reply | None], timer: int, reply: Reply) -> None:
        if not asked.is_set:
            self._runtime.cancel(timer)
            asked.set(reply)

    def _late(self, asked: Signal[Reply | None]) -> None:
        if not asked.is_set:
            asked.set(None)
