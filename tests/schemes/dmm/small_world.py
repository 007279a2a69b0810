"""The small world of `tests/placement` with nodes that run `dmm`, overseen at every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop
from typing import Any

from meetpoint.api.limits import SECOND_US
from meetpoint.api.requests import Subscribe, Unsubscribe
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.dmm import Dmm, DmmSettings
from meetpoint.schemes.dmm.rules import RegionRecord
from meetpoint.schemes.dmm.space import ROOT, Code
from tests.schemes.dmm.tree_views import kept_of, misplaced, served_by_nobody, served_twice
from tests.schemes.small_world import SchemeWorld

SCHEMA = """
attributes:
  a: {type: integer, min: 0, max: 14}
  b: {type: integer, min: 0, max: 14}
"""
EAGER = DmmSettings(schema=SCHEMA, threshold=2, depth=4, delegation="always", coverage="uncovered")
"""Regions split and merge as soon as they may."""


NUMBERS = (3, 10, 20, 30, 40, 64)
"""Nodes such that the root and its halves lie at different ones: 40, 20 and 30, with a depth of 1 at 10, 64 and 3."""


class DmmWorld(SchemeWorld):
    """Nodes with `dmm`."""

    def __init__(self, *, seed: int = 1, dmm: DmmSettings = EAGER) -> None:
        self.dmm = dmm
        super().__init__(NUMBERS, seed=seed)

    def make(self, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Dmm:
        return Dmm(services, overlay, hosting, self.settings, self.dmm)

    def stepped(self) -> None:
        twice = served_twice(self.schemes())
        assert not twice, f"{twice} at {self.now}"

    # -- what is there -------------------------------------------------------------------------------------------------

    def schemes(self) -> Iterator[Any]:
        """The schemes of all nodes that are up, and can be."""
        for number in sorted(self.nodes):
            scheme = self.nodes[number].__dict__.get("scheme")
            if scheme is not None:
                yield scheme

    def record(self, code: Code = ROOT) -> RegionRecord | None:
        """Where a region stands, if anyone holds it."""
        return kept_of(self.schemes()).get(code)

    def leaves(self) -> list[Code]:
        """The regions that serve."""
        return sorted(code for code, kept in kept_of(self.schemes()).items() if kept.serves)

    def holder(self, code: Code = ROOT) -> int:
        """The node that answers for a region."""
        return next(number for number in sorted(self.nodes) if self.scheme(number)._regions.holder(code) is not None)

    def check_quiet(self) -> None:
        """All is settled, and everything is where it belongs."""
        self.check_arcs()
        assert served_by_nobody(self.schemes()) == []
        assert misplaced(list(self.schemes())) == []

    # -- what happens --------------------------------------------------------------------------------------------------

    def run_until(self, reached: Callable[[], bool], seconds: float = 60) -> None:
        """Run step by step until something is so."""
        until = self.now + int(seconds * SECOND_US)
        while not reached():
            assert self._queue, "nothing happens any more"
            assert self._queue[0][0] <= until, f"not reached in {seconds} s; the root is {self.record()}"
            self.now, _, call = heappop(self._queue)
            call()

    def restart(self, number: int, *, lose_disk: bool = False, after: float = 0.5) -> None:
        """A node crashes, and comes back a little later."""
        self.crash(number, lose_disk=lose_disk)
        self._later(int(after * SECOND_US), lambda: self.start(number, contacts=self.others(number)))

    def want(self, number: int, name: str, a: int, b: int | None = None) -> int:
        """Subscribe to a point, or to a line of them."""
        text = f"a = {a}" if b is None else f"a = {a} AND b = {b}"
        return self.ask(number, Subscribe(name, text))

    def end(self, number: int, name: str) -> int:
        """End a subscription."""
        return self.ask(number, Unsubscribe(name))
