"""Chord, corrected: one node's part of the ring.

`rules` has the steps of the upkeep as pure functions, `upkeep` runs them with messages; `joining`, `finding`, `fingers`
and `merging` are what their names say; `table` holds the pointers. A node knows only what messages tell it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from meetpoint.api.ids import Key, Peer
from meetpoint.api.messages import Message
from meetpoint.node.overlay import Handler, Places, Upcalls
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.assembled import Assembled
from meetpoint.overlays.chord.fingers import Fingers
from meetpoint.overlays.chord.heal import Healing
from meetpoint.overlays.chord.join import Joining
from meetpoint.overlays.chord.key_lookup import Finding
from meetpoint.overlays.chord.messages import AskState, Claim, Find, Hint, Leaving, Located, Ping, Placed, Routed, Seek
from meetpoint.overlays.chord.rules import Rules, State
from meetpoint.overlays.chord.settings import ChordSettings
from meetpoint.overlays.chord.table import ChordView, Table
from meetpoint.overlays.chord.upkeep import Upkeep
from meetpoint.overlays.contacts import Contacts

__all__ = ["Chord"]


class Chord(Assembled):
    """An `Overlay`."""

    places: Places | None = None

    __slots__ = (
        "_finding",
        "_fingers",
        "_joining",
        "_left",
        "_merging",
        "_rules",
        "_services",
        "_settings",
        "_table",
        "_timer",
        "_upcalls",
        "_upkeep",
        "view",
    )

    def __init__(
        self,
        services: Runtime,
        upcalls: Upcalls,
        settings: ChordSettings | None = None,
        rules: Callable[[int, Callable[[bytes], bytes]], Rules] = Rules,
    ) -> None:
        settings = settings or ChordSettings()
        ring = services.ring
        self._services = services
        self._settings = settings
        self._upcalls = upcalls
        self._rules = rules(settings.successors, lambda node: ring.add(node, 1))
        contacts = Contacts(services.me.id, settings.known_max, settings.passive_max)
        self._table = Table(services.me.id, ring, contacts, settings.shortcuts, upcalls.neighbours_changed)
        self._finding = Finding(services, self._table, settings, upcalls.delivered)
        self._merging = Healing(services, self._table, self._finding, settings)
        self._upkeep = Upkeep(services, self._table, self._rules, settings, self._merging.met)
        self._merging.upkeep = self._upkeep
        self._fingers = Fingers(services, self._table, self._finding, settings, self.suspect)
        self._joining = Joining(services, self._table, self._rules, self._upkeep, settings, self._become)
        self.view: Callable[[], ChordView] = self._table.view
        """The pointers as they are; the same object until they change."""
        self._timer: int | None = None
        self._left = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Which messages are Chord's, and who takes them. Replies go to whoever asked."""
        taken: dict[type[Message], Any] = {
            AskState: self._upkeep.on_ask_state,
            Claim: self._upkeep.on_claim,
            Find: self._finding.on_find,
            Hint: self._merging.on_hint,
            Leaving: self._joining.on_leaving,
            Located: self._finding.on_located,
            Ping: self._upkeep.on_ping,
            Placed: self._joining.on_placed,
            Routed: self._finding.on_routed,
            Seek: self._joining.on_seek,
        }
        return taken

    # -- coming and going ----------------------------------------------------------------------------------------------

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network with these peers, sorted by id, this node among them; pointers and fingers are ideal."""
        assert self._table.state is None, "a member founds nothing"
        self._joining.stop()
        me = self._table.id
        count = len(peers)
        at = bisect_left(peers, me, key=lambda peer: peer.id)
        assert at < count, "a founder is among the founders"
        assert peers[at].id == me, "a founder is among the founders, who are sorted by id"
        after = [peers[(at + step) % count] for step in range(1, min(self._settings.successors, count - 1) + 1)]
        for peer in (*after, peers[at - 1]):
            self._table.contacts.learn(peer)
        self._table.commit(self._rules.found(me, [peer.id for peer in after], peers[at - 1].id))
        self._fingers.found(peers)
        self._begin()

    def join(self, contact: Peer) -> None:
        """Become a member through one. A member takes it as a hint to where others may be."""
        if self._table.state is not None:
            self.remember((contact,))
        elif not self._left:
            self._joining.join(contact)

    def leave(self) -> None:
        """Tell the neighbours, and be silent from now on."""
        self._left = True
        self._joining.leave()
        if self._timer is not None:
            self._services.cancel(self._timer)
            self._timer = None

    def _become(self, state: State) -> None:
        self._table.commit(state)
        self._begin()
        self._upkeep.stabilise()

    def _begin(self) -> None:
        # The first period ends at any point of it, so that nodes that begin together do not go on together.
        self._timer = self._services.after(1 + self._services.random.randrange(self._settings.stabilise_us), self._tick)
        self._upcalls.joined()
        self._table.tell()

    def _tick(self) -> None:
        if self._table.state is None:
            return
        period = self._settings.stabilise_us
        delay = period - period // 4 + self._services.random.randrange(period // 2 + 1)
        self._timer = self._services.after(delay, self._tick)
        self._upkeep.tick()
        self._fingers.tick()
        self._merging.tick()
        self._table.prune()
        self._table.tell()

    # -- who lives -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Someone found a peer silent or unreachable. Of a former incarnation it says nothing about the present one."""
        if self._table.suspect(peer, self._services.now):
            self._upkeep.suspected(peer)
            self._table.tell()

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list: members of another ring among them make the two one."""
        self._table.contacts.remember_former(peers)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def next_hop(self, key: Key) -> Peer | None:
        """The link nearest before a key, or its owner; None where this node owns it or knows nobody."""
        return None if self._table.state is None else self._table.way(key)[0]

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """The first live successors; at most as many as the list holds."""
        return tuple(islice(self._table.successors(), count))
