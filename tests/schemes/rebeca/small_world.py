"""The small world of `tests/placement` with nodes that run `rebeca`, and a count of what they hand on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.node import Node
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.schemes.rebeca import Rebeca, RebecaSettings
from meetpoint.schemes.rebeca.member import Member
from meetpoint.schemes.rebeca.messages import ForwardEvent
from meetpoint.schemes.rebeca.tables import Rows
from tests.node.world import RING
from tests.schemes.small_world import SchemeWorld

NUMBERS = (4, 8, 12, 20, 28, 32, 41, 60)
QUICK = RebecaSettings(lease_us=4_000_000, period_us=400_000)

__all__ = ["NUMBERS", "QUICK", "RebecaWorld"]


class RebecaWorld(SchemeWorld):
    """Nodes with `rebeca`. `handed` is every message with a part: from whom, and to whom."""

    def __init__(self, numbers: Iterable[int] = NUMBERS, *, seed: int = 1, rebeca: RebecaSettings = QUICK) -> None:
        self.rebeca = rebeca
        self.handed: list[tuple[int, int, ForwardEvent]] = []
        super().__init__(numbers, seed=seed)

    def make(self, services: Runtime, overlay: Overlay, hosting: HomeManager) -> Rebeca:
        return Rebeca(services, overlay, hosting, self.settings, self.rebeca)

    def _send(self, node: Node, effect: Any) -> None:
        if isinstance(effect.message, ForwardEvent):
            source, to = (RING.number(peer.id) // 1000 for peer in (node.me, effect.to))
            self.handed.append((source, to, effect.message))
        super()._send(node, effect)

    # -- what is there -------------------------------------------------------------------------------------------------

    def parts_of_graph(self) -> Iterator[tuple[int, Member]]:
        """All members, with their nodes."""
        for number in sorted(self.nodes):
            for member in self.scheme(number).members.all():
                yield number, member

    def filters_now(self) -> dict[tuple[int, int], Rows]:
        """The filter of each edge, by its ends."""
        return {
            (member.edges.place, place): member.edges.rows(place, self.now)
            for _, member in self.parts_of_graph()
            for place in member.edges.graph.nodes
        }
