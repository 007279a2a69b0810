"""Joining: a joiner's way to its place, the help it gets there, and healing of networks that were torn apart.

A joiner asks a member for its place. The question travels like a lookup to the node between which and whose right
neighbour the joiner's id lies. That one helps one joiner at a time; others wait there. A joiner that is welcomed greets
all leaves it is told of, then asks for its leases (`maintenance`); if it does not get them it begins anew.

To heal a network, a peer of the passive list is asked for this node's own id. If the answer is neither this node nor a
leaf of it, the two greet each other, the nearer one becomes a neighbour on each side, and leaves tell each other of
leaves (`maintenance`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.api.ids import Key
from meetpoint.node.runtime.ring import between
from meetpoint.overlays.contacts import PartitionHealing
from meetpoint.overlays.pastry.messages import PastryJoin, PastryJoinReply
from meetpoint.overlays.pastry.rules import LEFT

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.maintenance import PastryMaintenance
    from meetpoint.overlays.pastry.routing import PastryRouter, PastryTable
    from meetpoint.overlays.pastry.rules import PastryRules, PastrySettings

__all__ = ["PastryHealing", "PastryMembership"]

CONTACTS_MAX = 8
"""Number of members that a joiner asks in turn."""


class PastryMembership:
    """Joining of one node, and the help it gives to joiners."""

    __slots__ = (
        "_contacts", "_first", "_maintenance", "_next_contact", "_numbers", "_retry_timer", "_rules", "_runtime",
        "_settings", "_table", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        table: PastryTable,
        rules: PastryRules,
        maintenance: PastryMaintenance,
        settings: PastrySettings,
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._rules = rules
        self._maintenance = maintenance
        self._settings = settings
        self._contacts: dict[bytes, Peer] = {}
        self._retry_timer: int | None = None
        self._numbers = 0
        self._first = 0  # the number of the first question of this join: answers to any since then are good
        self._next_contact = 0
        self._waiting: dict[bytes, PastryJoin] = {}

    # -- the joiner ----------------------------------------------------------------------------------------------------

    def join(self, contact: Peer) -> None:
        """Look for the place of this node through a member; repeat until it is found."""
        assert contact.id != self._table.id, "nobody joins through itself"
        self._contacts.pop(contact.id, None)
        self._contacts[contact.id] = contact
        while len(self._contacts) > CONTACTS_MAX:
            del self._contacts[next(iter(self._contacts))]
        self._next_contact = len(self._contacts) - 1  # the newest first
        if self._retry_timer is not None:
            self._runtime.cancel(self._retry_timer)
        else:
            self._begin()
        self._send_join()

    def join_again(self) -> None:
        """Look for another place through any known node: this one's is lost."""
        for peer in (*self._table.peers(), *self._table.contacts.passive_sample(CONTACTS_MAX))[:CONTACTS_MAX]:
            self._contacts.setdefault(peer.id, peer)
        self._begin()
        self._retry_later()

    def _begin(self) -> None:
        self._maintenance.begin_life()
        self._first = self._numbers + 1

    def stop(self) -> None:
        """Stop joining: this node has a place, or leaves."""
        if self._retry_timer is not None:
            self._runtime.cancel(self._retry_timer)
            self._retry_timer = None

    def _send_join(self) -> None:
        if not self._contacts:
            return
        self._numbers += 1
        contact = list(self._contacts.values())[self._next_contact % len(self._contacts)]
        self._next_contact += 1
        self._runtime.send(contact, PastryJoin(self._runtime.me, self._maintenance.life, self._numbers, 1))
        self._retry_later()

    def _retry_later(self) -> None:
        wait = self._settings.join_retry_us
        self._retry_timer = self._runtime.after(
            wait - wait // 4 + self._runtime.random.randrange(wait // 2), self._send_join
        )

    def on_join_reply(self, source: Peer, message: PastryJoinReply) -> None:
        """Take the place that a member has found for this node."""
        if self._retry_timer is None or not self._first <= message.number <= self._numbers:
            self._runtime.observe("reply_unexpected")
            return
        holds = self._runtime.ring.holds
        leaves = message.leaves[: 2 * self._settings.half + 2]
        if not all(holds(peer.id) and peer.address for peer in leaves):
            self._runtime.observe("pastry_malformed")
            return
        self.stop()
        for peer in (source, *leaves):
            self._table.contacts.learn(peer)
        for peer in message.passive[: self._settings.passive_told]:
            if holds(peer.id):
                self._table.contacts.remember(peer)
        self._maintenance.begin(self._rules.welcome(self._table.id, source.id, [peer.id for peer in leaves]))

    # -- the members ---------------------------------------------------------------------------------------------------

    def on_join(self, source: Peer, message: PastryJoin) -> None:
        """Pass on a joiner's question, or help it here."""
        joiner = message.joiner
        if not self._runtime.ring.holds(joiner.id) or not joiner.address or joiner.id == self._table.id:
            self._runtime.observe("pastry_malformed")
        elif self._maintenance.accept_life(joiner, message.life):
            self._route_join(message)
            self._table.report_changes()

    def _route_join(self, message: PastryJoin) -> None:
        state, table = self._table.state, self._table
        joiner = message.joiner
        if state is None or not table.is_ready:
            self._runtime.observe("pastry_not_ready")
            return
        if self._rules.in_gap(state, joiner.id):
            self._help(message)
            return
        left = table.contacts.live(state.near[LEFT])
        is_left = left is not None and between(left.id, joiner.id, state.me)
        to = left if is_left else table.next_hop(joiner.id)
        if to is None or to.id == joiner.id or message.hops >= self._settings.hops_max:
            self._runtime.observe("pastry_unroutable")  # it is a member, as far as this node knows
        else:
            self._runtime.send(to, PastryJoin(joiner, message.life, message.number, message.hops + 1))

    def _help(self, message: PastryJoin) -> None:
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
            self._runtime.after(self._settings.help_us, lambda: self._finish_help(joiner.id))
        self._table.commit(helping)
        contacts = self._table.contacts
        leaves = tuple(peer for node in state.leaves if (peer := contacts.live(node)) is not None)
        passive = contacts.passive_sample(self._settings.passive_told)
        self._runtime.send(joiner, PastryJoinReply(message.number, leaves, passive))

    def on_node_ready(self, node: bytes) -> None:
        """Help the next joiner, if this node is the one that was helped."""
        state = self._table.state
        if state is not None and state.helping == node:
            self._finish_help(node)

    def _finish_help(self, joiner: bytes) -> None:
        """Help the next joiner: this one is ready, or took too long."""
        state = self._table.state
        if state is None or state.helping != joiner:
            return
        self._table.commit(self._rules.helped(state, joiner))
        while self._waiting and self._table.is_ready:
            message = self._waiting.pop(next(iter(self._waiting)))
            self._route_join(message)
            state = self._table.state
            if state is None or state.helping is not None:
                return


class PastryHealing(PartitionHealing):
    """The questions of one node to peers outside its network."""

    __slots__ = ("_table",)

    def __init__(
        self,
        runtime: Runtime,
        table: PastryTable,
        router: PastryRouter,
        maintenance: PastryMaintenance,
        settings: PastrySettings,
    ) -> None:
        super().__init__(runtime, table.contacts, router, maintenance, settings)
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
            self._table.report_changes()
