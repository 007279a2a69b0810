"""Pastry after LuPastry, with leases: one node's part of the network.

`rules` has the steps of maintenance as pure functions, and `maintenance` runs them with messages. `routing` holds the
links and routes, `membership` joins and heals. A node knows only what messages tell it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Handler, Places, Upcalls
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.base import OverlayBase
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.pastry.maintenance import PastryMaintenance
from meetpoint.overlays.pastry.membership import PastryHealing, PastryMembership
from meetpoint.overlays.pastry.messages import (
    Greet,
    PastryFind,
    PastryFound,
    PastryJoin,
    PastryJoinReply,
    PastryLeaving,
    PastryRouted,
)
from meetpoint.overlays.pastry.routing import PastryRouter, PastryTable, PastryView
from meetpoint.overlays.pastry.rules import PastryRules, PastrySettings

__all__ = ["Pastry"]


class Pastry(OverlayBase):
    """Pastry as an `Overlay`."""

    places: Places | None = None

    __slots__ = (
        "_founds", "_healing", "_left", "_maintenance", "_membership", "_router", "_rules", "_runtime", "_settings",
        "_table", "_ticks", "_upcalls", "_version", "view",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        upcalls: Upcalls,
        settings: PastrySettings | None = None,
        rules: Callable[[int], PastryRules] = PastryRules,
    ) -> None:
        settings = settings or PastrySettings()
        self._runtime = runtime
        self._settings = settings
        self._upcalls = upcalls
        self._rules = rules(settings.half)
        contacts = Contacts(runtime.me.id, settings.known_max, settings.passive_max)
        self._table: PastryTable = PastryTable(
            runtime.me.id, runtime.ring, contacts, settings, upcalls.neighbours_changed
        )
        self._router: PastryRouter = PastryRouter(runtime, self._table, settings, upcalls.delivered)
        self._maintenance: PastryMaintenance = PastryMaintenance(runtime, self._table, self._rules, settings)
        self._membership = PastryMembership(runtime, self._table, self._rules, self._maintenance, settings)
        self._maintenance.overlay = self
        self._healing = PastryHealing(runtime, self._table, self._router, self._maintenance, settings)
        self.view: Callable[[], PastryView] = self._table.view
        """Returns the links as they are; the same object until they change."""
        self._timer: int | None = None
        self._ticks = 0
        self._version = 0  # of the links, when a period began
        self._left = self._founds = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Return the handlers of Pastry's messages; replies go to the asker's callback."""
        taken: dict[type[Message], Any] = {
            PastryFind: self._router.on_find,
            Greet: self._maintenance.on_greet,
            PastryJoin: self._membership.on_join,
            PastryLeaving: self._maintenance.on_leaving,
            PastryFound: self._router.on_located,
            PastryRouted: self._router.on_routed,
            PastryJoinReply: self._membership.on_join_reply,
        }
        return {kind: partial(self._dispatch, handler) for kind, handler in taken.items()}

    def _dispatch(self, handler: Handler, source: Peer, message: Message) -> None:
        self._maintenance.check_expiry()
        handler(source, message)

    # -- coming and going ----------------------------------------------------------------------------------------------

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network with these peers, sorted by id, this node among them; leaves and table are ideal."""
        state = self._table.state
        assert state is None or not state.member, "a member founds nothing"
        self._membership.stop()
        if state is not None:
            self._maintenance.end()
        self._maintenance.begin_life()
        me = self._table.id
        count, half = len(peers), self._settings.half
        at = bisect_left(peers, me, key=lambda peer: peer.id)
        assert at < count, "a founder is among the founders"
        assert peers[at].id == me, "a founder is among the founders, who are sorted by id"
        steps = range(-half, half + 1) if count > 2 * half else range(count)
        near = {peer.id: peer for step in steps if (peer := peers[(at + step) % count]).id != me}
        for peer in near.values():
            self._table.contacts.learn(peer)
        self._table.found(peers)
        self._begin()
        self._founds = True  # all others know of this node already
        self._maintenance.begin(self._rules.found(me, list(near)))
        self._founds = False

    def join(self, contact: Peer) -> None:
        """Become a member through a contact; a member takes the contact as a hint to where others may be."""
        if self._table.is_ready:
            self.remember((contact,))
        elif not self._left:
            self._begin()
            if self._table.state is None:
                self._membership.join(contact)

    def leave(self) -> None:
        """Tell the leaves, and be silent from now on."""
        self._left = True
        self._membership.stop()
        self._maintenance.leave()
        self._table.leave()
        self._stop_ticks()

    def _begin(self) -> None:
        self._start_ticks(self._settings.period_us)

    def _tick(self) -> None:
        self._schedule_tick(self._settings.period_us, 8)
        self._ticks += 1
        self._maintenance.tick()
        self._repair()
        self._healing.tick()
        self._table.prune()
        self._maintenance.prune()
        self._table.report_changes()

    def _repair(self) -> None:
        """Look up a node for a free place of the routing table, and greet one link."""
        changed, self._version = self._version != self._table.version, self._table.version
        if not self._table.is_ready or not (changed or self._ticks % self._settings.repair_ticks == 0):
            return
        key = self._table.vacant(self._runtime.random)
        if key is not None:
            self._router.lookup(key, lambda peer, hops: None if peer is None else self._table.learn_row(peer))
        links = self._table.peers()
        if links:
            self._maintenance.greet(links[self._runtime.random.randrange(len(links))])

    # -- for its maintenance -------------------------------------------------------------------------------------------

    def on_ready(self) -> None:
        """Greet the leaves: this node has both leases, for the first time or again."""
        if not self._table.joined:
            self._table.join()
            self._upcalls.joined()
        if not self._founds:
            for peer in self._table.leaves():
                self._maintenance.greet(peer)

    def on_place_lost(self) -> None:
        """Join anew: the place of this node is lost."""
        if not self._left:
            self._membership.join_again()

    def on_node_ready(self, node: bytes) -> None:
        """Note that another node says that it is ready."""
        self._membership.on_node_ready(node)

    # -- who lives -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Suspect a peer that someone found silent; a former incarnation says nothing about the present one."""
        if self._table.suspect(peer, self._runtime.now):
            self._maintenance.suspected(peer)
            self._table.report_changes()

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list: members of another network among them make the two one."""
        self._healing.remember(peers)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message to the owner of a key; best effort."""
        self._maintenance.check_expiry()
        self._router.route(key, body)

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        """Find the owner of a key, and the messages it took; None where nobody answered in time."""
        self._maintenance.check_expiry()
        self._router.lookup(key, then)

    def next_hop(self, key: Key) -> Peer | None:
        """Return the link that a message for a key would go to; None where this node has it, or knows no route."""
        if self._table.state is None or self._table.covers(key):
            return None
        return self._table.next_hop(key)

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """Return the nearest live leaves, those on the right first; at most as many as there are."""
        return tuple(islice(self._table.leaves(), count))
