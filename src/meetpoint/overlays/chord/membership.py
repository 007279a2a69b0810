"""Joining and leaving a ring, and merging rings that were torn apart.

A joiner asks a member for its place. The question travels like a lookup to the member between whom and whose first
successor the joiner's id lies, and that one answers with its list. Nobody points at the joiner yet, so it may take its
time (Zave, "join"); then it stabilises at once. A restart is a fresh join under the next incarnation: whoever sees a
joiner knows that its former incarnation is dead.

A node that leaves tells the ones before and after it, so that the ring closes at once, and is silent from then on. The
message is passed on to those before it who may have it in their lists. To the rules a leave is a failure that is
noticed early.

The corrected protocol alone never merges two rings, as no pointer leads from one to the other. So suspected peers, and
peers that the node above remembers from former times, are kept in the passive list. In about a third of the periods one
of them is asked who comes after this node in the ring that *it* is in, by an ordinary lookup that begins there:

- the answer lies before the first successor: the second half of stabilise runs toward it. That is the step of the
  rules for a nearer successor, however this node has come to know of it;
- it lies beyond: it is told that this node may be its predecessor, so that the one before it comes to know this node.

Links are asked the same now and then, often after a change and seldom in quiet times: where many fail at once, a
network may fall into rings that only fingers connect, and all fingers may look right.

A member that adopts a nearer successor which does not know the former one sends it a `SuccessorHint`, so that it too
may find a nearer successor. The two rings close like a zip, from each place where they touch, at the pace of messages.
Meanwhile the invariant may not hold (two rings are none); `invariant.departures` says when they have become one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.node.runtime.ring import between
from meetpoint.overlays.chord.messages import ChordJoin, ChordJoinReply, ChordLeaving, NotifySuccessor, SuccessorHint

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.chord import Chord
    from meetpoint.overlays.chord.maintenance import ChordMaintenance
    from meetpoint.overlays.chord.routing import ChordRouter, ChordTable
    from meetpoint.overlays.chord.rules import ChordRules, ChordSettings

__all__ = ["ChordMembership", "RingMerge"]


class ChordMembership:
    """Joining and leaving of one node, and the help it gives to joiners."""

    __slots__ = (
        "_contact", "_first", "_maintenance", "_numbers", "_overlay", "_rules", "_runtime", "_settings", "_table",
        "_timer", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        table: ChordTable,
        rules: ChordRules,
        maintenance: ChordMaintenance,
        settings: ChordSettings,
        overlay: Chord,
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._rules = rules
        self._maintenance = maintenance
        self._settings = settings
        self._overlay = overlay
        self._contact: Peer | None = None
        self._numbers = 0
        self._first = 0  # the number of the first question of this join: answers to any since then are good
        self._timer = 0
        self._waiting = 0  # joiners that wait here

    # -- the joiner ----------------------------------------------------------------------------------------------------

    def join(self, contact: Peer) -> None:
        """Look for the place of this node through a member; repeat until it is found."""
        assert contact.id != self._table.id, "nobody joins through itself"
        if self._contact is None:
            self._first = self._numbers + 1
        else:
            self._runtime.cancel(self._timer)
        self._contact = contact
        self._send_join()

    def stop(self) -> None:
        """Stop joining: this node has founded a network, or leaves."""
        if self._contact is not None:
            self._runtime.cancel(self._timer)
            self._contact = None

    def _send_join(self) -> None:
        contact = self._contact
        assert contact is not None, "a joiner has a contact"
        self._numbers += 1
        attempt = (self._numbers - self._first) % self._settings.lookup_tries
        self._runtime.send(contact, ChordJoin(self._runtime.me, self._numbers, 1, attempt))
        self._timer = self._runtime.after(self._settings.join_retry_us, self._send_join)

    def on_join_reply(self, source: Peer, message: ChordJoinReply) -> None:
        """Take the place that a member has found for this node."""
        holds = self._runtime.ring.holds
        if self._contact is None or not self._first <= message.number <= self._numbers:
            self._runtime.observe("reply_unexpected")
            return
        succ = message.succ[: self._rules.length]
        if not all(holds(peer.id) for peer in succ):
            self._runtime.observe("chord_malformed")
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
        self._overlay.become(state)

    # -- the members ---------------------------------------------------------------------------------------------------

    def on_join(self, source: Peer, message: ChordJoin) -> None:
        """Pass on a joiner's question, or answer it here."""
        if not self._runtime.ring.holds(message.joiner.id) or message.attempt < 0:
            self._runtime.observe("chord_malformed")
        elif self._table.state is not None and message.joiner.id != self._table.id:
            self._suspect_former(message.joiner)
            self._place(message)
            self._table.report_changes()

    def _suspect_former(self, joiner: Peer) -> None:
        """Suspect the former incarnation of a joiner: a joiner is no member."""
        known = self._table.contacts.peer(joiner.id)
        if (
            known is not None
            and known.incarnation < joiner.incarnation
            and self._table.suspect(known, self._runtime.now)
        ):
            self._maintenance.suspected(known)

    def _place(self, message: ChordJoin) -> None:
        state = self._table.state
        if state is None:
            return
        joiner = message.joiner
        if between(state.me, joiner.id, state.succ[0]):
            if self._maintenance.busy:
                self._wait(message)
            else:
                passive = self._table.contacts.passive_sample(self._settings.passive_told)
                self._runtime.send(joiner, ChordJoinReply(message.number, self._maintenance.peers(state.succ), passive))
            return
        to, final = self._table.next_hop(joiner.id, message.attempt)
        if to is None or to.id == joiner.id:
            return  # it is a member, as far as this node knows
        if final:
            self._wait(message)  # the list begins with a dead member, and is about to move up
        elif message.hops < self._settings.hops_max:
            self._runtime.send(to, ChordJoin(joiner, message.number, message.hops + 1, message.attempt))
        else:
            self._runtime.observe("chord_hops_exceeded")

    def _wait(self, message: ChordJoin) -> None:
        if self._waiting < self._settings.seeks_max and message.hops < self._settings.hops_max:
            self._waiting += 1
            again = ChordJoin(message.joiner, message.number, message.hops + 1, message.attempt)
            self._runtime.after(self._settings.pending_wait_us, lambda: self._waited(again))

    def _waited(self, message: ChordJoin) -> None:
        self._waiting -= 1
        self._place(message)

    # -- leaving -------------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Tell the neighbours, and cease to be a member."""
        self.stop()
        state = self._table.state
        if state is None:
            return
        prdc, head = self._table.prdc(), self._table.head()
        word = ChordLeaving(self._runtime.me, self._maintenance.peer(state.prdc), self._rules.length - 1)
        if head is not None:
            self._runtime.send(head, word)
        if prdc is not None and (head is None or prdc.id != head.id):
            self._runtime.send(prdc, word)
        self._table.commit(None)

    def on_leaving(self, source: Peer, message: ChordLeaving) -> None:
        """Drop a member that leaves, and pass the message on."""
        state, who = self._table.state, message.who
        if state is None or who.id == state.me or not self._runtime.ring.holds(message.prdc.id):
            return
        prdc = self._table.prdc()
        if not self._table.suspect(who, self._runtime.now):
            return
        if message.further > 0 and prdc is not None and who.id in state.succ and prdc.id not in (who.id, source.id):
            self._runtime.send(prdc, ChordLeaving(who, message.prdc, min(message.further, self._rules.length) - 1))
        if state.prdc == who.id:
            self._maintenance.adopt(message.prdc)
        self._maintenance.suspected(who)
        self._table.report_changes()


UNSEEN = -1


class RingMerge:
    """The part of one member in merging rings."""

    __slots__ = (
        "_agreed", "_asking", "_quiet_ticks", "_router", "_runtime", "_settings", "_table", "_version", "maintenance",
    )  # fmt: skip

    maintenance: ChordMaintenance

    def __init__(self, runtime: Runtime, table: ChordTable, router: ChordRouter, settings: ChordSettings) -> None:
        self._runtime = runtime
        self._table = table
        self._router = router
        self._settings = settings
        self._asking = False
        self._agreed = 0  # how many in a row turned out to be in this ring
        self._quiet_ticks = settings.calm_ticks  # for how many periods nothing has changed
        self._version = UNSEEN

    def tick(self) -> None:
        """Ask a peer outside the ring who comes after this node, in some of the periods."""
        if self._table.state is None or self._asking:
            return
        changed = self._version not in (self._table.version, UNSEEN)
        self._version = self._table.version
        self._quiet_ticks = 0 if changed else self._quiet_ticks + 1
        peer = self._choose()
        if peer is None:
            return
        self._asking = True
        after_me = self._runtime.ring.add(self._table.id, 1)
        self._router.lookup_via(peer, after_me, lambda found, _: self._answered(peer, found))

    def _choose(self) -> Peer | None:
        """Return the peer to ask, or None."""
        chance = self._runtime.random
        links = self._table.clockwise()
        if not links or chance.random() < self._settings.merge_share:
            return self._table.contacts.next_passive()
        settled = self._quiet_ticks >= self._settings.calm_ticks
        if chance.randrange(self._settings.audit_ticks * (8 if settled else 1)):
            return None
        return chance.choice(links)

    def _answered(self, asked: Peer, found: Peer | None) -> None:
        self._asking = False
        if found is not None and self._table.state is not None:
            self._table.heard(asked)
            self._consider(asked, found)
            self._table.report_changes()

    def _consider(self, asked: Peer, found: Peer) -> None:
        state = self._table.state
        assert state is not None, "only a member merges"
        if found.id == state.me:
            return
        if found.id == state.succ[0]:
            self._table.contacts.forget_passive(asked.id)  # its ring and this one agree: they are one here
            self._agreed += 1
            if self._agreed >= self._settings.agreed_max:
                self._table.contacts.forget_unsuspected()
            return
        self._agreed = 0
        self._table.contacts.learn(found)
        if between(state.me, found.id, state.succ[0]):
            self.maintenance.approach(found.id)
        else:
            self._runtime.send(found, NotifySuccessor())

    def on_hint(self, source: Peer, message: SuccessorHint) -> None:
        """Look for a nearer successor among members that another one names."""
        state = self._table.state
        if state is None:
            return
        self._table.heard(source)
        nearest = state.succ[0]
        for peer in message.peers[: self._settings.successors]:
            if self._runtime.ring.holds(peer.id) and peer.address and peer.id != state.me:
                self._table.contacts.learn(peer)
                if between(state.me, peer.id, nearest):
                    nearest = peer.id
        if nearest != state.succ[0]:
            self.maintenance.approach(nearest)
        self._table.report_changes()

    def on_successor_adopted(self, nearer: Peer, its_succ: tuple[bytes, ...], before: tuple[bytes, ...]) -> None:
        """Send a newly adopted successor the ones that followed this node until now, unless it knows them."""
        if before[0] in (nearer.id, self._table.id) or before[0] in its_succ:
            return
        peers = tuple(peer for node in before if (peer := self._table.contacts.live(node)) and node != nearer.id)
        if peers:
            self._runtime.send(nearer, SuccessorHint(peers))
