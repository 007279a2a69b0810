"""Chord as corrected by Zave: one node's part of the ring.

`rules` has the steps of maintenance as pure functions, and `maintenance` runs them with messages. `routing` holds the
pointers and routes, `fingers` keeps routes short, `membership` joins, leaves and merges rings. A node knows only what
messages tell it.
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
from meetpoint.overlays.base import OverlayBase
from meetpoint.overlays.chord.fingers import Fingers
from meetpoint.overlays.chord.maintenance import ChordMaintenance
from meetpoint.overlays.chord.membership import ChordMembership, RingMerge
from meetpoint.overlays.chord.messages import (
    ChordFind,
    ChordFound,
    ChordJoin,
    ChordJoinReply,
    ChordLeaving,
    ChordRouted,
    GetState,
    NotifySuccessor,
    Ping,
    SuccessorHint,
)
from meetpoint.overlays.chord.routing import ChordRouter, ChordTable, ChordView
from meetpoint.overlays.chord.rules import ChordRules, ChordSettings, ChordState
from meetpoint.overlays.contacts import Contacts

__all__ = ["Chord"]


class Chord(OverlayBase):
    """Chord as an `Overlay`."""

    places: Places | None = None

    __slots__ = (
        "_fingers", "_left", "_maintenance", "_membership", "_ring_merge", "_router", "_rules", "_runtime",
        "_settings", "_table", "_upcalls", "view",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        upcalls: Upcalls,
        settings: ChordSettings | None = None,
        rules: Callable[[int, Callable[[bytes], bytes]], ChordRules] = ChordRules,
    ) -> None:
        settings = settings or ChordSettings()
        ring = runtime.ring
        self._runtime = runtime
        self._settings = settings
        self._upcalls = upcalls
        self._rules = rules(settings.successors, lambda node: ring.add(node, 1))
        contacts = Contacts(runtime.me.id, settings.known_max, settings.passive_max)
        self._table: ChordTable = ChordTable(
            runtime.me.id, ring, contacts, settings.shortcuts, upcalls.neighbours_changed
        )
        self._router: ChordRouter = ChordRouter(runtime, self._table, settings, upcalls.delivered)
        self._ring_merge = RingMerge(runtime, self._table, self._router, settings)
        self._maintenance: ChordMaintenance = ChordMaintenance(
            runtime, self._table, self._rules, settings, self._ring_merge
        )
        self._ring_merge.maintenance = self._maintenance
        self._fingers = Fingers(runtime, self._table, self._router, settings, self)
        self._membership = ChordMembership(runtime, self._table, self._rules, self._maintenance, settings, self)
        self.view: Callable[[], ChordView] = self._table.view
        """Returns the pointers as they are; the same object until they change."""
        self._timer: int | None = None
        self._left = False

    def handlers(self) -> Mapping[type[Message], Handler]:
        """Return the handlers of Chord's messages; replies go to the asker's callback."""
        taken: dict[type[Message], Any] = {
            GetState: self._maintenance.on_get_state,
            NotifySuccessor: self._maintenance.on_notify,
            ChordFind: self._router.on_find,
            SuccessorHint: self._ring_merge.on_hint,
            ChordLeaving: self._membership.on_leaving,
            ChordFound: self._router.on_located,
            Ping: self._maintenance.on_ping,
            ChordJoinReply: self._membership.on_join_reply,
            ChordRouted: self._router.on_routed,
            ChordJoin: self._membership.on_join,
        }
        return taken

    # -- coming and going ----------------------------------------------------------------------------------------------

    def found(self, peers: Sequence[Peer]) -> None:
        """Begin a network with these peers, sorted by id, this node among them; pointers and fingers are ideal."""
        assert self._table.state is None, "a member founds nothing"
        self._membership.stop()
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
        """Become a member through a contact; a member takes the contact as a hint to where others may be."""
        if self._table.state is not None:
            self.remember((contact,))
        elif not self._left:
            self._membership.join(contact)

    def leave(self) -> None:
        """Tell the neighbours, and be silent from now on."""
        self._left = True
        self._membership.leave()
        self._stop_ticks()

    def become(self, state: ChordState) -> None:
        """Become a member with a state that joining has found."""
        self._table.commit(state)
        self._begin()
        self._maintenance.stabilise()

    def _begin(self) -> None:
        self._start_ticks(self._settings.stabilise_us)
        self._upcalls.joined()
        self._table.report_changes()

    def _tick(self) -> None:
        if self._table.state is None:
            return
        self._schedule_tick(self._settings.stabilise_us, 4)
        self._maintenance.tick()
        self._fingers.tick()
        self._ring_merge.tick()
        self._table.prune()
        self._table.report_changes()

    # -- who lives -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Suspect a peer that someone found silent; a former incarnation says nothing about the present one."""
        if self._table.suspect(peer, self._runtime.now):
            self._maintenance.suspected(peer)
            self._table.report_changes()

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list: members of another ring among them make the two one."""
        self._table.contacts.remember_former(peers)

    # -- keys ----------------------------------------------------------------------------------------------------------

    def next_hop(self, key: Key) -> Peer | None:
        """Return the link nearest before a key, or its owner; None where this node owns it or knows nobody."""
        return None if self._table.state is None else self._table.route_of(key)[0]

    # -- peers ---------------------------------------------------------------------------------------------------------

    def neighbours(self, count: int) -> tuple[Peer, ...]:
        """Return the first live successors; at most as many as the list holds."""
        return tuple(islice(self._table.successors(), count))
