"""Those who look on at each step of the node, while anyone wants to know: the driver calls nobody otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from meetpoint.node.node import Node
from meetpoint.node.runtime.effects import Effect
from meetpoint.node.runtime.inputs import Input

__all__ = ["StepHooks", "Watch"]

Watch: TypeAlias = Callable[[Input, Sequence[Effect], int], None]
"""Takes an input, what the node wants done about it, and the time."""


class StepHooks:
    """Some who look on, by name; while there are any, the node tells what becomes of events."""

    def __init__(self, node: Node, look_on: Callable[[Watch | None], None]) -> None:
        self._node = node
        self._look_on = look_on
        self._all: dict[str, Watch] = {}
        self._was_traced = False

    def set(self, name: str, watch: Watch | None) -> None:
        """Somebody looks on from now on, or not any longer."""
        had = bool(self._all)
        if watch is None:
            self._all.pop(name, None)
        else:
            self._all[name] = watch
        if self._all and not had:
            self._was_traced, self._node.is_traced = self._node.is_traced, True
        elif had and not self._all:
            self._node.is_traced = self._was_traced
        self._look_on(self._each if self._all else None)

    @property
    def has_tracing(self) -> bool:
        """Whether the node tells what becomes of events, also when nobody looks on."""
        return self._was_traced if self._all else self._node.is_traced

    def _each(self, item: Input, effects: Sequence[Effect], now: int) -> None:
        for watch in tuple(self._all.values()):
            watch(item, effects, now)
