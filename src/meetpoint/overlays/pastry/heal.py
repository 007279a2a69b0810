"""Networks that were torn apart find together again.

A peer of the passive list is asked for this node's own id. If who is found is neither this node nor a leaf of it, the
two greet each other, the nearer one becomes a neighbour on each side, and leaves spread the word of leaves (`upkeep`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.api.ids import Key
from meetpoint.overlays import heal

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.key_lookup import Finding
    from meetpoint.overlays.pastry.settings import PastrySettings
    from meetpoint.overlays.pastry.table import Table
    from meetpoint.overlays.pastry.upkeep import Upkeep

__all__ = ["Healing"]


class Healing(heal.Healing):
    """One node's questions to those outside its network."""

    __slots__ = ("_table",)

    def __init__(
        self, services: Runtime, table: Table, finding: Finding, upkeep: Upkeep, settings: PastrySettings
    ) -> None:
        super().__init__(services, table.contacts, finding, upkeep, settings)
        self._table = table

    def _key(self) -> Key | None:
        return Key(self._table.id) if self._table.is_ready else None

    def _expects(self, found: Peer) -> bool:
        state = self._table.state
        return state is not None and (found.id == state.me or found.id in state.leaves)

    def _found(self, asked: Peer, found: Peer | None) -> None:
        if found is not None and self._table.state is not None:
            self._table.heard(asked)
            super()._found(asked, found)
            self._table.tell()
