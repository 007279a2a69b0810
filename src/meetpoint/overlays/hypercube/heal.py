"""Networks that were torn apart find together again.

A peer of the passive list is asked for an id of this node's own. If another hosts it there, the two greet each other
and settle who has it, and since they tell their neighbours, and those compare claims, it spreads from there (`upkeep`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.overlays import heal
from meetpoint.overlays.hypercube.keys import key_of

if TYPE_CHECKING:
    from meetpoint.api.ids import Key, Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.key_lookup import Finding
    from meetpoint.overlays.hypercube.settings import HypercubeSettings
    from meetpoint.overlays.hypercube.table import Table
    from meetpoint.overlays.hypercube.upkeep import Upkeep

__all__ = ["Healing"]


class Healing(heal.Healing):
    """One node's questions to those outside its network."""

    __slots__ = ("_table",)

    def __init__(
        self, services: Runtime, table: Table, finding: Finding, upkeep: Upkeep, settings: HypercubeSettings
    ) -> None:
        super().__init__(services, table.contacts, finding, upkeep, settings)
        self._table = table

    def _key(self) -> Key | None:
        table = self._table
        return key_of(self._services.ring, table.main.bits, table.dimensions) if table.pieces else None

    def _expects(self, found: Peer) -> bool:
        return found.id == self._table.id
