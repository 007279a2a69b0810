"""Routing and lookups on the hypercube. A node that stands by goes through its sponsor; an answer names its region."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.overlays import key_lookup
from meetpoint.overlays.hypercube.keys import point_of, span_of
from meetpoint.overlays.hypercube.messages import Find, Located, Routed
from meetpoint.overlays.hypercube.regions import packed, unpacked

if TYPE_CHECKING:
    from collections.abc import Callable

    from meetpoint.api.ids import Key, Peer
    from meetpoint.node.overlay import Span
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.regions import Region
    from meetpoint.overlays.hypercube.settings import HypercubeSettings
    from meetpoint.overlays.hypercube.table import Table

__all__ = ["Finding"]


class Finding(key_lookup.Finding):
    """One node's part in routing and lookups."""

    __slots__ = ("_named", "_table")

    name = "hypercube"
    find = Find
    routed = Routed

    def __init__(
        self, services: Runtime, table: Table, settings: HypercubeSettings, deliver: key_lookup.Deliver
    ) -> None:
        self._table = table
        self._named: Region | None = None  # the region that the answer names which is being taken just now
        super().__init__(services, settings, deliver)

    def _point(self, key: bytes) -> int:
        return point_of(self._services.ring, key, self._table.dimensions)

    def _is_member(self) -> bool:
        return self._table.joined

    def _is_here(self, key: bytes) -> bool:
        return self._table.hosts(self._point(key))

    def _next_hop(self, key: bytes, care: int) -> Peer | None:
        return self._table.next_hop(self._point(key), care)

    def _answer(self, message: key_lookup.Find) -> Located:
        return Located(message.number, message.hops, packed(self._table.around(self._point(message.key))))

    def on_located(self, source: Peer, message: key_lookup.Located) -> None:
        """The answer to a lookup."""
        assert isinstance(message, Located), "as handlers have it"
        self._named = unpacked(message.region, self._table.dimensions)
        if self._named is None:
            self._observe("malformed")
        else:
            super().on_located(source, message)
        self._named = None

    def host_of(self, key: Key, then: Callable[[Peer | None, Span | None], None]) -> None:
        """Find the host of a key, and its region around it."""

        def found(peer: Peer | None, hops: int) -> None:
            region, point = self._named, self._point(key)
            if peer is not None and peer.id == self._table.id:
                region = self._table.around(point)
            if peer is None or region is None or not region.hosts(point):
                then(None, None)
            else:
                then(peer, span_of(self._services.ring, region))

        self.lookup(key, found)
