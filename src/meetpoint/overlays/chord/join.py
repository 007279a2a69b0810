"""Coming and going.

A joiner asks a member for its place. The question travels like a lookup to the member between whom and whose first
successor the joiner's id lies, and that one answers with its list; nobody points at the joiner yet, so that it may take
its time (Zave, "join"). It then stabilises at once. A restart is a fresh join under the next incarnation: whoever sees
a joiner knows that its former incarnation is dead.

Who leaves tells the one before it and the one after it, so that the ring closes at once, and is silent from then on.
The word is passed on to those before it who may have it in their lists. To the rules a leave is a failure that is
noticed early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.node.runtime.ring import between
from meetpoint.overlays.chord.messages import Leaving, Placed, Seek

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.rules import Rules, State
    from meetpoint.overlays.chord.settings import ChordSettings
    from meetpoint.overlays.chord.table import Table
    from meetpoint.overlays.chord.upkeep import Upkeep

__all__ = ["Joining"]


class Joining:
    """How one node becomes a member and ceases to be one."""

    __slots__ = (
        "_become",
        "_contact",
        "_first",
        "_numbers",
        "_rules",
        "_services",
        "_settings",
        "_table",
        "_timer",
        "_upkeep",
        "_waiting",
    )

    def __init__(
        self,
        services: Runtime,
        table: Table,
        rules: Rules,
        upkeep: Upkeep,
        settings: ChordSettings,
        become: Callable[[State], None],
    ) -> None:
        self._services = services
        self._table = table
        self._rules = rules
        self._upkeep = upkeep
        self._settings = settings
        self._become = become
        self._contact: Peer | None = None
        self._numbers = 0
        self._first = 0  # the number of the first question of this join: answers to any since then are good
        self._timer = 0
        self._waiting = 0  # joiners that wait here

    # -- the joiner ----------------------------------------------------------------------------------------------------

    def join(self, contact: Peer) -> None:
        """Look for the place of this node through a member; again and again until it is found."""
        assert contact.id != self._table.id, "nobody joins through itself"
        if self._contact is None:
            self._first = self._numbers + 1
        else:
            self._services.cancel(self._timer)
        self._contact = contact
        self._seek()

    def stop(self) -> None:
        """Give up joining: this node has founded a network, or leaves."""
        if self._contact is not None:
            self._services.cancel(self._timer)
            self._contact = None

    def _seek(self) -> None:
        contact = self._contact
        assert contact is not None, "a joiner has a contact"
        self._numbers += 1
        care = (self._numbers - self._first) % self._settings.lookup_tries
        self._services.send(contact, Seek(self._services.me, self._numbers, 1, care))
        self._timer = self._services.after(self._settings.join_retry_us, self._seek)

    def on_placed(self, source: Peer, message: Placed) -> None:
        """A member has told this node its place."""
        holds = self._services.ring.holds
        if self._contact is None or not self._first <= message.number <= self._numbers:
            self._services.observe("reply_unexpected")
            return
        succ = message.succ[: self._rules.length]
        if not all(holds(peer.id) for peer in succ):
            self._services.observe("chord_malformed")
            return
        state = self._rules.join(self._table.id, source.id, tuple(peer.id for peer in succ))
        if state is None:
            return
        self.stop()
        self._table.contacts.learn(source)
        for peer in succ:
            self._table.contacts.learn(peer)
        for peer in message.passive[: self._settings.passive_told]:
            if holds(peer.id):
                self._table.contacts.remember(peer)
        self._become(state)

    # -- the members ---------------------------------------------------------------------------------------------------

    def on_seek(self, source: Peer, message: Seek) -> None:
        """A joiner looks for its place."""
        if not self._services.ring.holds(message.joiner.id) or message.care < 0:
            self._services.observe("chord_malformed")
        elif self._table.state is not None and message.joiner.id != self._table.id:
            self._forget_former(message.joiner)
            self._place(message)
            self._table.tell()

    def _forget_former(self, joiner: Peer) -> None:
        """A joiner is no member: if it was one before, that incarnation is dead."""
        known = self._table.contacts.peer(joiner.id)
        if (
            known is not None
            and known.incarnation < joiner.incarnation
            and self._table.suspect(known, self._services.now)
        ):
            self._upkeep.suspected(known)

    def _place(self, message: Seek) -> None:
        state = self._table.state
        if state is None:
            return
        joiner = message.joiner
        if between(state.me, joiner.id, state.succ[0]):
            if self._upkeep.busy:
                self._wait(message)
            else:
                passive = self._table.contacts.next_turns(self._settings.passive_told)
                self._services.send(joiner, Placed(message.number, self._upkeep.peers(state.succ), passive))
            return
        to, final = self._table.next_hop(joiner.id, message.care)
        if to is None or to.id == joiner.id:
            return  # it is a member, as far as this node knows
        if final:
            self._wait(message)  # the list begins with a dead member, and is about to move up
        elif message.hops < self._settings.hops_max:
            self._services.send(to, Seek(joiner, message.number, message.hops + 1, message.care))
        else:
            self._services.observe("chord_hops_exceeded")

    def _wait(self, message: Seek) -> None:
        if self._waiting < self._settings.seeks_max and message.hops < self._settings.hops_max:
            self._waiting += 1
            again = Seek(message.joiner, message.number, message.hops + 1, message.care)
            self._services.after(self._settings.pending_wait_us, lambda: self._waited(again))

    def _waited(self, message: Seek) -> None:
        self._waiting -= 1
        self._place(message)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Tell the neighbours, and be no member any more."""
        self.stop()
        state = self._table.state
        if state is None:
            return
        prdc, head = self._table.prdc(), self._table.head()
        word = Leaving(self._services.me, self._upkeep.peer(state.prdc), self._rules.length - 1)
        if head is not None:
            self._services.send(head, word)
        if prdc is not None and (head is None or prdc.id != head.id):
            self._services.send(prdc, word)
        self._table.commit(None)

    def on_leaving(self, source: Peer, message: Leaving) -> None:
        """A member leaves."""
        state, who = self._table.state, message.who
        if state is None or who.id == state.me or not self._services.ring.holds(message.prdc.id):
            return
        prdc = self._table.prdc()
        if not self._table.suspect(who, self._services.now):
            return
        if message.further > 0 and prdc is not None and who.id in state.succ and prdc.id not in (who.id, source.id):
            self._services.send(prdc, Leaving(who, message.prdc, min(message.further, self._rules.length) - 1))
        if state.prdc == who.id:
            self._upkeep.adopt(message.prdc)
        self._upkeep.suspected(who)
        self._table.tell()
