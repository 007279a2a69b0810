"""Networks that were torn apart find together again: the questions that overlays have in common.

Whoever is dropped goes to the passive list (`contacts`). In some periods one of it is asked who is responsible, as its
network sees it, for a key of this node's own. If that is one whom this node would not have named, there are two
networks, and the two greet each other. What follows is the overlay's matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from meetpoint.api.ids import Key, Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.contacts import Contacts
    from meetpoint.overlays.key_lookup import Finding

__all__ = ["Healing"]


class Pace(Protocol):
    """What an overlay's settings say of it."""

    @property
    def merge_share(self) -> float:
        """In this share of the periods a peer of the passive list is asked."""

    @property
    def agreed_max(self) -> int:
        """After so many answers in a row that know of one network, peers never suspected are left in peace."""


class Greeting(Protocol):
    """An overlay's upkeep."""

    def greet(self, peer: Peer) -> None:
        """Tell a node of this one, and ask where it stands."""


class Healing:
    """One node's questions to those outside its network."""

    __slots__ = ("_agreed", "_contacts", "_finding", "_pace", "_services", "_upkeep")

    def __init__(self, services: Runtime, contacts: Contacts, finding: Finding, upkeep: Greeting, pace: Pace) -> None:
        self._services = services
        self._contacts = contacts
        self._finding = finding
        self._upkeep = upkeep
        self._pace = pace
        self._agreed = 0

    # -- what an overlay adds ------------------------------------------------------------------------------------------

    def _key(self) -> Key | None:
        """The key that is asked for; None where this node is in no network."""
        raise NotImplementedError

    def _expects(self, found: Peer) -> bool:
        """Whether that is who is responsible for it, as this node sees it."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------------------

    def remember(self, peers: Sequence[Peer]) -> None:
        """Peers from former times are asked in turn."""
        self._agreed = 0
        self._contacts.remember_former(peers)

    def tick(self) -> None:
        """In some periods, ask one."""
        key = self._key()
        if key is None or self._services.random.random() >= self._pace.merge_share:
            return
        peer = self._contacts.take_turn()
        if peer is not None:
            self._finding.lookup_via(peer, key, lambda found, hops: self._found(peer, found))

    def _found(self, asked: Peer, found: Peer | None) -> None:
        if found is None:
            return
        if self._expects(found):
            self._contacts.met(asked.id)
            self._agreed += 1
            if self._agreed >= self._pace.agreed_max:
                self._contacts.settle()
        else:
            self._agreed = 0
            self._contacts.learn(found)
            self._upkeep.greet(found)
