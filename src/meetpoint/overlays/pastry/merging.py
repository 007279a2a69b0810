"""Networks that were torn apart find together again.

Whoever is dropped goes to the passive list (`contacts`). In some periods one of it is asked who is responsible, as its
network sees it, for this node's own id. If that is neither this node nor a leaf of it, there are two networks: the two
greet each other, the nearer one becomes a neighbour on each side, and leaves spread the word of leaves (`upkeep`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.protocol.ring import Key

if TYPE_CHECKING:
    from meetpoint.overlays.pastry.finding import Finding
    from meetpoint.overlays.pastry.settings import PastrySettings
    from meetpoint.overlays.pastry.table import Table
    from meetpoint.overlays.pastry.upkeep import Upkeep
    from meetpoint.protocol.messages import Peer
    from meetpoint.protocol.services import Services

__all__ = ["Merging"]


class Merging:
    """One node's questions to those outside its network."""

    __slots__ = ("_agreed", "_finding", "_services", "_settings", "_table", "_upkeep")

    def __init__(
        self, services: Services, table: Table, finding: Finding, upkeep: Upkeep, settings: PastrySettings
    ) -> None:
        self._services = services
        self._table = table
        self._finding = finding
        self._upkeep = upkeep
        self._settings = settings
        self._agreed = 0

    def remember(self, peers: list[Peer]) -> None:
        """Peers from former times are asked in turn."""
        self._agreed = 0
        for peer in peers:
            self._table.contacts.learn(peer)
            self._table.contacts.remember(peer, urgent=False)

    def tick(self) -> None:
        """In some periods, ask one."""
        if self._table.is_ready and self._services.random.random() < self._settings.merge_share:
            peer = self._table.contacts.take_turn()
            if peer is not None:
                key = Key(self._table.id)
                self._finding.lookup_via(peer, key, lambda found, hops: self._found(peer, found))

    def _found(self, asked: Peer, found: Peer | None) -> None:
        state = self._table.state
        if found is None or state is None:
            return
        self._table.heard(asked)
        if found.id == state.me or found.id in state.leaves:
            self._table.contacts.met(asked.id)
            self._agreed += 1
            if self._agreed >= self._settings.agreed_max:
                self._table.contacts.settle()
        else:
            self._agreed = 0
            self._table.contacts.learn(found)
            self._upkeep.greet(found)
        self._table.tell()
