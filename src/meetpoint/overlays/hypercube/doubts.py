"""Nodes that may be dead: each is asked a few times, with pauses, until it speaks or is dead."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.settings import HypercubeSettings

__all__ = ["Doubts"]


class Doubt(msgspec.Struct):
    """How often a node was asked, the timer until the next step, and whether that is for an answer."""

    timer: int
    tries: int = 0
    asked: bool = False


class Doubts:
    """One node's. `ask` asks one, `dead` is told of one that did not answer, and `then` is called after each step."""

    __slots__ = ("_ask", "_dead", "_doubts", "_services", "_settings", "_then")

    def __init__(
        self,
        services: Runtime,
        settings: HypercubeSettings,
        ask: Callable[[bytes], None],
        dead: Callable[[bytes], None],
        then: Callable[[], None],
    ) -> None:
        self._services = services
        self._settings = settings
        self._ask = ask
        self._dead = dead
        self._then = then
        self._doubts: dict[bytes, Doubt] = {}

    def __contains__(self, node: bytes) -> bool:
        return node in self._doubts

    def begin(self, node: bytes) -> None:
        """A node was silent for long: ask it."""
        if node not in self._doubts:
            self._doubts[node] = Doubt(self._later(self._settings.again_us, lambda: self._question(node)))

    def reported(self, node: bytes) -> None:
        """The driver could not reach a node; if it was just asked, that is its answer."""
        doubt = self._doubts.get(node)
        if doubt is None:
            self.begin(node)
        elif doubt.asked:
            self._services.cancel(doubt.timer)
            self._unanswered(node)

    def drop(self, node: bytes) -> None:
        """It has spoken, or does not matter any more."""
        doubt = self._doubts.pop(node, None)
        if doubt is not None:
            self._services.cancel(doubt.timer)

    def clear(self) -> None:
        """This node has left."""
        for node in list(self._doubts):
            self.drop(node)

    def _question(self, node: bytes) -> None:
        doubt = self._doubts[node]
        doubt.asked = True
        doubt.timer = self._later(self._settings.ask_timeout_us, lambda: self._unanswered(node))
        self._ask(node)

    def _unanswered(self, node: bytes) -> None:
        doubt = self._doubts[node]
        doubt.asked = False
        doubt.tries += 1
        if doubt.tries < self._settings.ask_tries:
            doubt.timer = self._later(self._settings.again_us, lambda: self._question(node))
        else:
            del self._doubts[node]
            self._dead(node)

    def _later(self, delay_us: int, act: Callable[[], None]) -> int:
        def due() -> None:
            act()
            self._then()

        return self._services.after(delay_us, due)
