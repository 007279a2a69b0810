"""Coming: a joiner's way to its place, and the help it gets there.

A joiner asks a member for its place. The question travels like a lookup to the node between which and whose right
neighbour the joiner's id lies. That one helps one joiner at a time; others wait there for their turn. A joiner that is
welcomed greets all leaves it is told of, then asks for its leases (`upkeep`); if it does not get them it begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.node.runtime.ring import between
from meetpoint.overlays.pastry.messages import Join, Welcome
from meetpoint.overlays.pastry.rules import LEFT

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.rules import Rules
    from meetpoint.overlays.pastry.settings import PastrySettings
    from meetpoint.overlays.pastry.table import Table
    from meetpoint.overlays.pastry.upkeep import Upkeep

__all__ = ["Joining"]

CONTACTS_MAX = 8
"""How many members a joiner asks in turn."""


class Joining:
    """How one node becomes a member, and helps others to."""

    __slots__ = (
        "_contacts", "_first", "_numbers", "_rules", "_seeking", "_services", "_settings", "_table", "_turn", "_upkeep",
        "_waiting",
    )  # fmt: skip

    def __init__(self, services: Runtime, table: Table, rules: Rules, upkeep: Upkeep, settings: PastrySettings) -> None:
        self._services = services
        self._table = table
        self._rules = rules
        self._upkeep = upkeep
        self._settings = settings
        self._contacts: dict[bytes, Peer] = {}
        self._seeking: int | None = None
        self._numbers = 0
        self._first = 0  # the number of the first question of this join: answers to any since then are good
        self._turn = 0
        self._waiting: dict[bytes, Join] = {}
        upkeep.joiner_ready = self._is_ready

    # -- the joiner ----------------------------------------------------------------------------------------------------

    def join(self, contact: Peer) -> None:
        """Look for the place of this node through a member; again and again until it is found."""
        assert contact.id != self._table.id, "nobody joins through itself"
        self._contacts.pop(contact.id, None)
        self._contacts[contact.id] = contact
        while len(self._contacts) > CONTACTS_MAX:
            del self._contacts[next(iter(self._contacts))]
        self._turn = len(self._contacts) - 1  # the newest first
        if self._seeking is not None:
            self._services.cancel(self._seeking)
        else:
            self._begin()
        self._seek()

    def join_again(self) -> None:
        """The place of this node is lost: look for another through whomever it knows."""
        for peer in (*self._table.peers(), *self._table.contacts.next_turns(CONTACTS_MAX))[:CONTACTS_MAX]:
            self._contacts.setdefault(peer.id, peer)
        self._begin()
        self._later()

    def _begin(self) -> None:
        self._upkeep.begin_life()
        self._first = self._numbers + 1

    def stop(self) -> None:
        """Give up joining: this node has a place, or leaves."""
        if self._seeking is not None:
            self._services.cancel(self._seeking)
            self._seeking = None

    def _seek(self) -> None:
        if not self._contacts:
            return
        self._numbers += 1
        contact = list(self._contacts.values())[self._turn % len(self._contacts)]
        self._turn += 1
        self._services.send(contact, Join(self._services.me, self._upkeep.life, self._numbers, 1))
        self._later()

    def _later(self) -> None:
        wait = self._settings.join_retry_us
        self._seeking = self._services.after(wait - wait // 4 + self._services.random.randrange(wait // 2), self._seek)

    def on_welcome(self, source: Peer, message: Welcome) -> None:
        """A member has told this node its place."""
        if self._seeking is None or not self._first <= message.number <= self._numbers:
            self._services.observe("reply_unexpected")
            return
        holds = self._services.ring.holds
        leaves = message.leaves[: 2 * self._settings.half + 2]
        if not all(holds(peer.id) and peer.address for peer in leaves):
            self._services.observe("pastry_malformed")
            return
        self.stop()
        for peer in (source, *leaves):
            self._table.contacts.learn(peer)
        for peer in message.passive[: self._settings.passive_told]:
            if holds(peer.id):
                self._table.contacts.remember(peer)
        self._upkeep.begin(self._rules.welcome(self._table.id, source.id, [peer.id for peer in leaves]))

    # -- the members ---------------------------------------------------------------------------------------------------

    def on_join(self, source: Peer, message: Join) -> None:
        """A joiner looks for its place."""
        joiner = message.joiner
        if not self._services.ring.holds(joiner.id) or not joiner.address or joiner.id == self._table.id:
            self._services.observe("pastry_malformed")
        elif self._upkeep.meet(joiner, message.life):
            self._place(message)
            self._table.tell()

    def _place(self, message: Join) -> None:
        state, table = self._table.state, self._table
        joiner = message.joiner
        if state is None or not table.is_ready:
            self._services.observe("pastry_not_ready")
            return
        if self._rules.in_gap(state, joiner.id):
            self._help(message)
            return
        left = table.contacts.live(state.near[LEFT])
        is_left = left is not None and between(left.id, joiner.id, state.me)
        to = left if is_left else table.next_hop(joiner.id)
        if to is None or to.id == joiner.id or message.hops >= self._settings.hops_max:
            self._services.observe("pastry_unroutable")  # it is a member, as far as this node knows
        else:
            self._services.send(to, Join(joiner, message.life, message.number, message.hops + 1))

    def _help(self, message: Join) -> None:
        """Welcome a joiner, or let it wait until the one before it is done."""
        state, joiner = self._table.state, message.joiner
        assert state is not None, "only a member helps"
        helping = self._rules.help(state, joiner.id)
        if helping is None:
            if joiner.id in self._waiting or len(self._waiting) < self._settings.joiners_max:
                self._waiting[joiner.id] = message
            return
        self._waiting.pop(joiner.id, None)
        if state.helping is None:
            self._services.after(self._settings.help_us, lambda: self._is_over(joiner.id))
        self._table.commit(helping)
        contacts = self._table.contacts
        leaves = tuple(peer for node in state.leaves if (peer := contacts.live(node)) is not None)
        passive = contacts.next_turns(self._settings.passive_told)
        self._services.send(joiner, Welcome(message.number, leaves, passive))

    def _is_ready(self, node: bytes) -> None:
        state = self._table.state
        if state is not None and state.helping == node:
            self._is_over(node)

    def _is_over(self, joiner: bytes) -> None:
        """A joiner is ready, or took too long: help the next."""
        state = self._table.state
        if state is None or state.helping != joiner:
            return
        self._table.commit(self._rules.helped(state, joiner))
        while self._waiting and self._table.is_ready:
            message = self._waiting.pop(next(iter(self._waiting)))
            self._place(message)
            state = self._table.state
            if state is None or state.helping is not None:
                return
