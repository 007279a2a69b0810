"""How networks that were torn apart, or founded apart, become one.

The corrected protocol alone never joins two rings: no pointer leads from one to the other. So peers that were
suspected, and peers that the node above remembers from former times, are kept in the passive list, and in about a third
of the periods one of them is asked, in turn. It is asked who comes after this node in the ring that *it* is in, by an
ordinary lookup that begins there:

- the answer lies before the first successor: the second half of stabilise is run toward it. That is the step of the
  rules for a nearer successor, however this node has come to know of it;
- it lies beyond: it is told that this node may be its predecessor, so that the one before it comes to know this node.

Links are asked the same now and then, often after a change and seldom in quiet times: where many fail at once a network
may fall into rings that only fingers connect, and all fingers may look right.

Whoever has adopted a nearer successor that does not know its former one tells it (`Hint`), so that this one too may
find a nearer successor: the two rings close like a zip, from each place where they touch, at the pace of messages.
While they do the invariant may not hold (two rings are none); `invariant.departures` says when they have become one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.node.runtime.ring import between
from meetpoint.overlays.chord.messages import Claim, Hint

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.key_lookup import Finding
    from meetpoint.overlays.chord.settings import ChordSettings
    from meetpoint.overlays.chord.table import Table
    from meetpoint.overlays.chord.upkeep import Upkeep

__all__ = ["Healing"]

UNSEEN = -1


class Healing:
    """One member's part in bringing rings together."""

    __slots__ = ("_agreed", "_asking", "_calm", "_finding", "_services", "_settings", "_table", "_version", "upkeep")

    upkeep: Upkeep

    def __init__(self, services: Runtime, table: Table, finding: Finding, settings: ChordSettings) -> None:
        self._services = services
        self._table = table
        self._finding = finding
        self._settings = settings
        self._asking = False
        self._agreed = 0  # how many in a row turned out to be in this ring
        self._calm = settings.calm_ticks  # for how many periods nothing has changed
        self._version = UNSEEN

    def tick(self) -> None:
        """A period has begun: perhaps ask one of the passive list."""
        if self._table.state is None or self._asking:
            return
        changed = self._version not in (self._table.version, UNSEEN)
        self._version = self._table.version
        self._calm = 0 if changed else self._calm + 1
        peer = self._choose()
        if peer is None:
            return
        self._asking = True
        after_me = self._services.ring.add(self._table.id, 1)
        self._finding.lookup_via(peer, after_me, lambda found, _: self._answered(peer, found))

    def _choose(self) -> Peer | None:
        """Whom to ask, if anyone."""
        chance = self._services.random
        links = self._table.clockwise()
        if not links or chance.random() < self._settings.merge_share:
            return self._table.contacts.take_turn()
        settled = self._calm >= self._settings.calm_ticks
        if chance.randrange(self._settings.audit_ticks * (8 if settled else 1)):
            return None
        return chance.choice(links)

    def _answered(self, asked: Peer, found: Peer | None) -> None:
        self._asking = False
        if found is not None and self._table.state is not None:
            self._table.heard(asked)
            self._consider(asked, found)
            self._table.tell()

    def _consider(self, asked: Peer, found: Peer) -> None:
        state = self._table.state
        assert state is not None, "only a member merges"
        if found.id == state.me:
            return
        if found.id == state.succ[0]:
            self._table.contacts.met(asked.id)  # its ring and this one agree: they are one here
            self._agreed += 1
            if self._agreed >= self._settings.agreed_max:
                self._table.contacts.settle()
            return
        self._agreed = 0
        self._table.contacts.learn(found)
        if between(state.me, found.id, state.succ[0]):
            self.upkeep.approach(found.id)
        else:
            self._services.send(found, Claim())

    def on_hint(self, source: Peer, message: Hint) -> None:
        """Another member knows of some that this one may not know."""
        state = self._table.state
        if state is None:
            return
        self._table.heard(source)
        nearest = state.succ[0]
        for peer in message.peers[: self._settings.successors]:
            if self._services.ring.holds(peer.id) and peer.address and peer.id != state.me:
                self._table.contacts.learn(peer)
                if between(state.me, peer.id, nearest):
                    nearest = peer.id
        if nearest != state.succ[0]:
            self.upkeep.approach(nearest)
        self._table.tell()

    def met(self, nearer: Peer, its_succ: tuple[bytes, ...], before: tuple[bytes, ...]) -> None:
        """A nearer successor was adopted; it should know those who came after this node until now."""
        if before[0] in (nearer.id, self._table.id) or before[0] in its_succ:
            return
        peers = tuple(peer for node in before if (peer := self._table.contacts.live(node)) and node != nearer.id)
        if peers:
            self._services.send(nearer, Hint(peers))
