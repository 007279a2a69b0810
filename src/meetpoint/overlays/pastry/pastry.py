"""Pastry after LuPastry, with leases: one node's part of the network.

`rules` has the steps of the upkeep as pure functions, `upkeep` runs them with messages; `joining`, `finding` and
`merging` are what their names say; `table` holds the links. A node knows only what messages tell it.
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
from meetpoint.overlays.assembled import Assembled
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.pastry.heal import Healing
from meetpoint.overlays.pastry.join import Joining
from meetpoint.overlays.pastry.key_lookup import Finding
from meetpoint.overlays.pastry.messages import Find, Greet, Join, Leaving, Located, Routed, Welcome
from meetpoint.overlays.pastry.rules import Rules
from meetpoint.overlays.pastry.settings import PastrySettings
from meetpoint.overlays.pastry.table import PastryView, Table
from meetpoint.overlays.pastry.upkeep import Upkeep

__all__ = ["Pastry"]


class Pastry(Assembled):
    """An `Overlay`."""

    places: Places | None = None

    __slots__ = (
        "_finding",
        "_founds",
        "_joining",
        "_left",
        "_merging",
        "_rules",
        "_services",
        "_settings",
        "_table",
        "_ticks",
        "_timer",
        "_upcalls",
        "_upkeep",
        "_version",
        "view",
    )

    def __init__(
        self,
        services: Runtime,
        upcalls: Upcalls,
        settings: PastrySettings | None = None,
        rules: Callable[[int], Rules] = Rules,
    ) -> None:
        settings = settings or PastrySettings()
        self._services = services
        self._settings = settings
        self._upcalls = upcalls
        self._rules = rules(settings.half)
        contacts = Contacts(services.me.id, settings.known_max, settings.passive_max)
        self._table = Table(services.me.id, services.ring, contacts, settings, upcalls.neighbours_changed)
        self._finding = Finding(services, self._table, settings, upcalls.delivered)
        self._upkeep = Upkeep(services, self._table, self._rules, settings, self._ready, self._lost)
        self._joining = Joining(services, self._table, self._rules, self._upkeep, settings)
        self._merging = Healing(services, self._table, self._finding, self._upkeep, settings)
        self.view: Callable[[], PastryView] = self._table.view
        """The links as they are; the same object until they change."""
        self._timer: int | None = None
        self._ticks = 0
        self._version = 0  # of the links, when a period began
        self._left = self._founds = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Which messages are Pastry's, and who takes them. Replies go to whoever asked."""
        taken: dict[type[Message], Any] = {
            Find: self._finding.on_find,
            Greet: self._upkeep.on_greet,
            Join: self._joining.on_join,
            Leaving: self._upkeep.on_leaving,
            Located: self._finding.on_located,
            Routed: self._finding.on_routed,
            Welcome: self._joining.on_welcome,
        }
        return {kind: partial(self._take, handler) for kind, handler in taken.items()}

    def _take(self, handler: Handler, source: Peer, message: Message) -> None:
        self._upkeep.look_at_the_clock()
        handler(source, message)

    # -- coming and going ----------------------------------------------------------------------------------------------

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network with these peers, sorted by id, this node among them; leaves and table are ideal."""
        state = self._table.state
        assert state is None or not state.member, "a member founds nothing"
        self._joining.stop()
        if state is not None:
            self._upkeep.end()
        self._upkeep.begin_life()
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
        self._upkeep.begin(self._rules.found(me, list(near)))
        self._founds = False

    def join(self, contact: Peer) -> None:
        """Become a member through one. A member takes it as a hint to where others may be."""
        if self._table.is_ready:
            self.remember((contact,))
        elif not self._left:
            self._begin()
            if self._table.state is None:
                self._joining.join(contact)

    def leave(self) -> None:
        """Tell the leaves, and be silent from now on."""
        self._left = True
        self._joining.stop()
        self._upkeep.leave()
        self._table.leave()
        if self._timer is not None:
            self._services.cancel(self._timer)
            self._timer = None

    def _begin(self) -> None:
        # The first period ends at any point of it, so that nodes that begin together do not go on together.
        if self._timer is None:
            self._timer = self._services.after(
                1 + self._services.random.randrange(self._settings.period_us), self._tick
            )  # fmt: skip

    def _ready(self) -> None:
        """This node has both leases: for the first time, or again."""
        if not self._table.joined:
            self._table.join()
            self._upcalls.joined()
        if not self._founds:
            for peer in self._table.leaves():
                self._upkeep.greet(peer)

    def _lost(self) -> None:
        """The place of this node is lost: it joins anew."""
        if not self._left:
            self._joining.join_again()

    def _tick(self) -> None:
        period = self._settings.period_us
        delay = period - period // 8 + self._services.random.randrange(period // 4 + 1)
        self._timer = self._services.after(delay, self._tick)
        self._ticks += 1
        self._upkeep.tick()
        self._repair()
        self._merging.tick()
        self._table.prune()
        self._upkeep.prune()
        self._table.tell()

    def _repair(self) -> None:
        """Look for a node for a free place of the routing table, and see whether one that has a place lives."""
        changed, self._version = self._version != self._table.version, self._table.version
        if not self._table.is_ready or not (changed or self._ticks % self._settings.repair_ticks == 0):
            return
        key = self._table.vacant(self._services.random)
        if key is not None:
            self._finding.lookup(key, lambda peer, hops: None if peer is None else self._table.learn_row(peer))
        links = self._table.peers()
        if links:
            self._upkeep.greet(links[self._services.random.randrange(len(links))])

    # -- who lives -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Someone found a peer silent or unreachable. Of a former incarnation it says nothing about the present one."""
        if self._table.suspect(peer, self._services.now):
            self._upkeep.suspected(peer)
            self._table.tell()

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list: members of another network among them make the two one."""
        self._merging.remember(peers)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def route(self, key: Key, body: Message) -> None:
        """Send a message to the owner of a key; best effort."""
        self._upkeep.look_at_the_clock()
        self._finding.route(key, body)

    def lookup(self, key: Key, then: Callable[[Peer | None, int], None]) -> None:
        """Find the owner of a key, and the messages it took; None where nobody answered in time."""
        self._upkeep.look_at_the_clock()
        self._finding.lookup(key, then)

    def next_hop(self, key: Key) -> Peer | None:
        """The link that a message for a key would go to; None where this node has it, or knows no way."""
        if self._table.state is None or self._table.covers(key):
            return None
        return self._table.next_hop(key)

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """The nearest live leaves, those on the right first; at most as many as there are."""
        return tuple(islice(self._table.leaves(), count))
