"""Routing and lookups on Pastry.

Only ready nodes deliver (`rules`). Deviation: in LuPastry only they pass messages on, too; here any member does, and
what would be its own while it waits for a lease is dropped. Who is met on the way is remembered: the origin of what
passes by, and whoever answers (`table`, the route cache).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.overlays import key_lookup
from meetpoint.overlays.pastry.messages import Find, Located, Routed

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.settings import PastrySettings
    from meetpoint.overlays.pastry.table import Table

__all__ = ["Finding"]


class Finding(key_lookup.Finding):
    """One node's part in routing and lookups."""

    __slots__ = ("_table",)

    name = "pastry"
    find = Find
    routed = Routed

    def __init__(self, services: Runtime, table: Table, settings: PastrySettings, deliver: key_lookup.Deliver) -> None:
        self._table = table
        super().__init__(services, settings, deliver)

    def _is_member(self) -> bool:
        return self._table.joined

    def _may_look_up(self) -> bool:
        return self._table.state is not None

    def _is_here(self, key: bytes) -> bool:
        return self._table.is_ready and self._table.covers(key)

    def _passes(self, key: bytes) -> bool:
        table = self._table
        return table.state is not None and not table.state.waits and not table.covers(key)

    def _next_hop(self, key: bytes, care: int) -> Peer | None:
        return self._table.next_hop(key, care)

    def _met(self, source: Peer, other: Peer) -> None:
        self._table.heard(source)
        self._table.learn_cache(source)
        self._table.learn_cache(other)

    def _way_of(self, source: Peer, message: key_lookup.Find) -> Peer | None:
        if message.key != message.asker.id:
            return super()._way_of(source, message)
        # A node asks about its own id: it goes to whoever has it here, where that node may be unknown.
        if not self._table.is_ready or message.hops >= self._limits.hops_max:
            return self._services.me
        return self._table.next_hop_beside(message.key)

    def _answer(self, message: key_lookup.Find) -> Located:
        return Located(message.number, message.hops)
