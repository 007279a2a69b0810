"""Maintenance of leaves and leases with messages: greetings, step by step as `rules` has them.

One question does it all. A *greeting* tells the sender's status and may ask for a lease; the answer tells the other's
status, whether the lease is granted, and, if they have changed, its leaves. A node that is told of one that it would
keep as a leaf greets it before it believes in it.

In quiet times a node greets its right neighbour in every period, which renews both leases: that of the left one by the
answer, that of the right one, who asked in the answer before, by the greeting itself (`echo`). A node that is not
greeted in time, or lacks a lease, greets by itself. `leases` says when leases end.

A node that is silent, or says that it has no place, is suspected until it speaks again (`contacts`); it is dropped as
soon as no lease of it can be left. A node that speaks in a later life than it was known in (`messages.Life`) has lost
all that it had before. A message of an *earlier* life may be late, or from a node that has lost its disk: its own
answer to a greeting decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from meetpoint.overlays.pastry.leases import LeaseTimer, UnreadyTimeout
from meetpoint.overlays.pastry.messages import (
    Greet,
    GreetReply,
    Life,
    NotMember,
    PastryLeaving,
    decode_status,
    encode_status,
)
from meetpoint.overlays.pastry.rules import LEFT, RIGHT, BothSides, PastryState, PeerStatus, Side, is_ready

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.api.messages import Reply
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.pastry.pastry import Pastry
    from meetpoint.overlays.pastry.routing import PastryTable
    from meetpoint.overlays.pastry.rules import PastryRules, PastrySettings

__all__ = ["PastryMaintenance"]

_SIDES: tuple[Side, Side] = (LEFT, RIGHT)
_UNSEEN = 0
"""The version of leaves that were never told."""
LEAVES_TICKS = 16
"""Number of periods after which a neighbour is asked for its leaves although they have not changed."""


class PastryMaintenance:
    """Greetings, leases and leaves of one node."""

    __slots__ = (
        "_asked_at", "_due", "_greeting", "_heard_at", "_leases", "_lives", "_owed", "_retiring", "_rules", "_runtime",
        "_seen", "_settings", "_table", "_ticks", "_unanswered", "_unready_timeout", "_watches_left", "life",
        "overlay",
    )  # fmt: skip

    overlay: Pastry
    """Set once, by the overlay itself."""

    def __init__(
        self,
        runtime: Runtime,
        table: PastryTable,
        rules: PastryRules,
        settings: PastrySettings,
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._rules = rules
        self._settings = settings
        self._leases = LeaseTimer(runtime, settings.lease_us, self._expire_leases)
        self.life: Life = (0, 0)
        """The current life of this node."""
        self._greeting: dict[bytes, Life] = {}  # who is greeted just now, and in which life of this node
        self._asked_at: dict[bytes, int] = {}  # when it was greeted last
        self._heard_at: dict[bytes, int] = {}  # when it spoke last
        self._unanswered: dict[bytes, int] = {}  # how many greetings in a row it has left unanswered
        self._owed: dict[bytes, tuple[int, int]] = {}  # the lease it will be told of: its stamp, and the sides
        self._seen: dict[bytes, int] = {}  # which version of its leaves this node knows
        self._lives: dict[bytes, Life] = {}  # by id, the life it was heard in
        self._ticks = 0
        self._due: dict[str, None] = {}  # what is done soon
        self._watches_left = False
        self._unready_timeout = UnreadyTimeout(runtime, settings)
        self._retiring = False  # this node waits for the leases that it granted to end, to join anew

    # -- beginning and ending ------------------------------------------------------------------------------------------

    def begin_life(self) -> None:
        """Begin to join or to found; the life before is over."""
        self.life = (self._runtime.me.incarnation, int(self._runtime.now))

    def begin(self, state: PastryState) -> None:
        """Take a place, or the promise of one."""
        for known in (self._greeting, self._asked_at, self._heard_at, self._unanswered, self._owed, self._seen):
            known.clear()
        self._leases.clear()
        self._retiring = False
        self._unready_timeout.begin()
        self._commit(state)
        for side in _SIDES:
            if state.leases[side] is not None:
                self._leases.hold(side, self._runtime.now)
            for node in state.grants[side]:
                self._leases.bind(side, node)
        self._advance()

    def end(self) -> None:
        """Give up the place; messages for that life are void."""
        self._leases.clear()
        self._greeting.clear()
        self._commit(None)

    def _commit(self, state: PastryState | None) -> None:
        before = self._table.state
        if before is state:
            return
        self._table.commit(state)
        if state is None:
            return
        for side in _SIDES:
            if before is not None and before.near[side] == state.me != state.near[side]:
                self._leases.hold(side, self._runtime.now)  # the lease of its own ends: it is not alone any more
        if before is not None and before.leaves != state.leaves and not state.waits:
            self._run_soon("spread", self._announce_leaves)
        was_ready = before is not None and is_ready(before)
        if is_ready(state) and not was_ready:
            self._retiring = False
            self.overlay.on_ready()
        elif was_ready and not is_ready(state):
            self._unready_timeout.begin()
            self._runtime.observe("pastry_unready")

    def _announce_leaves(self) -> None:
        """Greet the neighbours after a change of the leaves, so that they ask for them."""
        state = self._table.state
        for node in dict.fromkeys(() if state is None or state.waits else state.near):
            self._greet_known(node)

    def _run_soon(self, name: str, act: Callable[[], None]) -> None:
        """Run an action after a short pause; once, however often it is requested meanwhile."""
        if name in self._due:
            return
        self._due[name] = None

        def due() -> None:
            del self._due[name]
            act()
            self._table.report_changes()

        self._runtime.after(self._settings.again_us, due)

    # -- greeting ------------------------------------------------------------------------------------------------------

    def greet(self, peer: Peer) -> None:
        """Tell a node this one's status and ask for its own, with a lease where it is a neighbour.

        Only one greeting to a node is under way at a time.
        """
        state = self._table.state
        if state is None or peer.id in self._greeting or peer.id == self._table.id:
            return
        life, asked_at = self.life, self._runtime.now
        self._greeting[peer.id] = life
        self._asked_at[peer.id] = asked_at
        told, asks = encode_status(state), self._may_ask(state, peer.id)
        _, version = self._table.told()
        seen = _UNSEEN if state.waits or self._ticks % LEAVES_TICKS == 0 else self._seen.get(peer.id, _UNSEEN)
        echo, granted = self._owed.get(peer.id, (0, 0))

        def answered(reply: Reply | None) -> None:
            if self._greeting.get(peer.id) != life or self.life != life:
                return
            del self._greeting[peer.id]
            if isinstance(reply, GreetReply) and self._is_valid(reply):
                self._greeted(peer, reply, asked_at)
            elif isinstance(reply, NotMember):
                self.accept_life(peer, reply.life, fresh=True)
                self._mark_silent(peer)
            else:
                self._on_greet_timeout(peer)
            self._table.report_changes()

        self._runtime.ask(
            peer, Greet(0, life, state.near, told, asks, version, seen, echo, granted), self._settings.greet_timeout_us
        ).then(answered)

    def _may_ask(self, state: PastryState, node: bytes) -> bool:
        """Return whether to ask a node for a lease: a neighbour, and a joiner its left one first."""
        if state.waits or self._retiring or node not in state.near:
            return False
        return state.member or node == state.near[LEFT] or state.leases[LEFT] == state.near[LEFT]

    def _on_greet_timeout(self, peer: Peer) -> None:
        """Repeat a greeting that was not answered, or give up after enough tries."""
        unanswered = self._unanswered[peer.id] = self._unanswered.get(peer.id, 0) + 1
        if unanswered >= self._settings.greet_tries:
            self._mark_silent(peer)
            return
        life = self.life
        self._runtime.after(self._settings.again_us, lambda: self.greet(peer) if self.life == life else None)

    def _is_valid(self, message: Greet | GreetReply) -> bool:
        holds = self._runtime.ring.holds
        peers = (message.leaves or ()) if isinstance(message, GreetReply) else ()
        well = len(peers) <= 2 * self._settings.half + 2 and all(map(holds, message.near))
        if not well or not all(holds(peer.id) and peer.address for peer in peers):
            self._runtime.observe("pastry_malformed")
            return False
        return True

    def on_greet(self, source: Peer, message: Greet) -> None:
        """Answer a greeting: note the sender's status, and grant or take leases."""
        if not self._is_valid(message) or not self.accept_life(source, message.life):
            return
        state = self._table.state
        if state is None:
            self._runtime.send(source, NotMember(message.request, self.life))
            return
        status = decode_status(source.id, message)
        state = self._rules.probed(state, status)
        if message.granted and self.life[1] <= message.echo <= self._runtime.now:
            state = self._granted(state, source.id, message.granted, message.echo)
        state, granted = self._grant(state, status) if message.asks else (state, 0)
        self._commit(state)
        leaves, version = self._table.told()
        reply = GreetReply(
            message.request, self.life, state.near, encode_status(state), granted, self._may_ask(state, source.id),
            int(self._runtime.now), version, None if version == message.seen else leaves,
        )  # fmt: skip
        self._runtime.send(source, reply)
        self._note_ready(status)
        if source.id in state.near and self._seen.get(source.id) != message.version:
            self.greet(source)  # to be told its leaves
        self._table.report_changes()

    def _greeted(self, peer: Peer, reply: GreetReply, asked_at: int) -> None:
        """Take in the answer to a greeting."""
        state = self._table.state
        if state is None or not self.accept_life(peer, reply.life, fresh=True):
            return
        state = self._table.state
        assert state is not None, "whoever drops others stays"
        status = decode_status(peer.id, reply)
        told = [each.id for each in reply.leaves or ()]
        for each in reply.leaves or ():
            self._table.contacts.learn(each)
        self._seen[peer.id] = reply.version
        state = self._rules.pass_over(state, peer.id) if peer.id in state.joiners else state
        state = self._rules.probe_answered(state, status, told)
        state = self._granted(state, peer.id, reply.granted, asked_at)
        if reply.asks:
            state, granted = self._grant(state, status)
            self._owed[peer.id] = (reply.stamp, granted)
        self._commit(state)
        self._note_ready(status)
        if reply.leaves is not None and not state.waits:
            self._greet_unknown(state, peer.id, told)
        self._advance()

    def _greet_unknown(self, state: PastryState, teller: bytes, told: Sequence[bytes]) -> None:
        """Greet nodes that a teller named and this one would keep, and leaves that the teller does not have."""
        for node in self._rules.unknown(state, told):
            self._greet_known(node)
        for node in state.leaves:
            if self._rules.is_missed(teller, told, node):
                if node not in state.near:  # the teller may have found it silent: once more is enough
                    self._unanswered[node] = self._settings.greet_tries - 1
                self._greet_known(node)

    def _grant(self, state: PastryState, status: PeerStatus) -> tuple[PastryState, int]:
        if self._retiring:
            return state, 0
        state, given = self._rules.grant(state, status)
        for side in _SIDES:
            if given[side]:
                self._leases.bind(side, status.node)
        return state, given[LEFT] + 2 * given[RIGHT]

    def _granted(self, state: PastryState, node: bytes, sides: int, asked_at: int) -> PastryState:
        """Take leases that a node has granted on its sides, unless they were asked for too long ago."""
        if not sides or self._runtime.now - asked_at >= self._settings.lease_us:
            return state
        given: BothSides = (bool(sides & 1), bool(sides & 2))
        state = self._rules.granted(state, node, given)
        for side in _SIDES:
            if given[1 - side] and state.leases[side] == node:
                self._leases.hold(side, asked_at)
                self._leases.bind(side, node)
        return state

    def _note_ready(self, status: PeerStatus) -> None:
        if status.ready:
            self._unready_timeout.met_ready()
            self.overlay.on_node_ready(status.node)

    def _greet_known(self, node: bytes) -> None:
        peer = self._askable(node)
        if peer is not None:
            self.greet(peer)

    def _askable(self, node: bytes) -> Peer | None:
        return self._table.contacts.askable(node, self._runtime.now, self._settings.lease_us)

    # -- lives ---------------------------------------------------------------------------------------------------------

    def accept_life(self, peer: Peer, life: Life, fresh: bool = False) -> bool:
        """Note the life in which a node speaks; return whether the message counts.

        `fresh`: the node has just answered, so that this is its current life.
        """
        known = self._lives.get(peer.id, life)
        if life < known and not fresh:
            self._runtime.observe("pastry_former_life")
            self.greet(self._table.contacts.peer(peer.id) or peer)
            return False
        self._table.heard(peer)
        self._unanswered.pop(peer.id, None)
        self._heard_at[peer.id] = self._runtime.now
        self._lives[peer.id] = life
        if life != known:
            self._drop_former(peer.id)
        return True

    def _drop_former(self, node: bytes) -> None:
        """Drop what a node had in its former life."""
        state = self._table.state
        for known in (self._owed, self._seen):
            known.pop(node, None)
        self._leases.free(node)
        if state is not None:
            self._commit(self._rules.drop_former(state, node))
            self._advance()

    def on_leaving(self, source: Peer, message: PastryLeaving) -> None:
        """Drop a node that has left, or looks for another place."""
        if self._lives.get(source.id, message.life) == message.life:  # of another life it says nothing
            self._table.suspect(source, self._runtime.now)
            self._drop_former(source.id)
            self._table.report_changes()

    # -- leases --------------------------------------------------------------------------------------------------------

    def check_expiry(self) -> None:
        """Expire leases before anything else is done."""
        self._leases.check_expiry()

    def _expire_leases(self) -> None:
        """Expire leases that are over, held or granted."""
        state = self._table.state
        if state is None:
            return
        for side in _SIDES:
            if _is_held(state, side) and self._leases.remaining_us(side) <= 0:
                state = self._rules.expire(state, side)
        for side, node in self._leases.take_ended():
            state = self._rules.grant_ended(state, side, node)
        self._commit(state)
        self._drop_suspects()
        self._advance()
        self._table.report_changes()

    def _advance(self) -> None:
        """Ask for whatever is missing: probes of a joiner, then its leases, the left one first."""
        state = self._table.state
        if state is None:
            return
        for node in state.unprobed:
            peer = self._askable(node)
            if peer is None:
                state = self._rules.probe_failed(state, node)
            else:
                self.greet(peer)
        self._commit(state)
        if state.waits or is_ready(state) or self._retiring:
            return
        pause = self._runtime.now - self._settings.again_us
        for side in _SIDES:
            node = state.near[side]
            if state.leases[side] != node:
                if self._asked_at.get(node, pause) <= pause:
                    self._greet_known(node)
                if not state.member:
                    break
        self._run_soon("go on", self._advance)

    # -- the dead ------------------------------------------------------------------------------------------------------

    def _mark_silent(self, peer: Peer) -> None:
        """Suspect a node that did not answer, or has no place."""
        self._table.suspect(peer, self._runtime.now)
        self.suspected(peer)

    def suspected(self, peer: Peer) -> None:
        """Do without a node that is taken for dead."""
        state = self._table.state
        if state is None:
            return
        if peer.id in state.unprobed:
            state = self._rules.probe_failed(state, peer.id)
        if peer.id in state.joiners:
            state = self._rules.pass_over(state, peer.id)
        self._commit(state)
        if peer.id in state.near:
            for leaf in self._table.leaves():
                self.greet(leaf)  # whoever comes next may be dead as well: better to know in time
        self._drop_suspects()
        self._advance()

    def _drop_suspects(self) -> None:
        """Drop nodes that are taken for dead and have no lease any more."""
        state = self._table.state
        if state is None:
            return
        hindered = False
        for node in state.leaves:
            if self._table.contacts.live(node) is None:
                dropped = self._rules.drop(state, node)
                state = dropped or state
                hindered = hindered or dropped is None
        self._commit(state)
        for node in state.joiners if hindered else ():
            self._greet_known(node)  # whether one of them is a member by now decides who may be dropped

    # -- in every period -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Renew leases, greet one more leaf now and then, and drop the dead."""
        self._ticks += 1
        self._drop_suspects()
        state = self._table.state
        if state is None:
            return
        if is_ready(state) or not self._unready_timeout.is_over(state.member):
            self._retiring = False
        else:
            self._rejoin(state)
            return
        if not state.waits:
            self._greet_known(state.near[RIGHT])
            others = [node for node in state.leaves if node not in state.near]
            if others and self._ticks % self._settings.verify_ticks == 0:
                self._greet_known(others[self._ticks // self._settings.verify_ticks % len(others)])
            if not self._watches_left:
                self._watch_left()
        self._advance()

    def _watch_left(self) -> None:
        """Greet the left neighbour where it has not greeted in time, or its lease runs out."""
        state, now = self._table.state, self._runtime.now
        self._watches_left = state is not None and not state.waits and state.near[LEFT] != state.me
        if state is None or not self._watches_left:
            return
        left, patience = state.near[LEFT], self._settings.period_us * 5 // 4
        wait = min(
            self._heard_at.get(left, 0) + patience - now, self._leases.remaining_us(LEFT) - self._settings.lease_us // 4
        )
        if wait <= 0:
            self._greet_known(left)
            wait = self._settings.period_us
        self._runtime.after(wait, self._watch_left)

    def _rejoin(self, state: PastryState) -> None:
        """Give up a place that is not to be had, and join again.

        A member grants nothing more, and waits until nobody counts on it. So two members that hold each other's leases,
        and get no other, come loose.
        """
        self._retiring = True
        if self._rules.retire(state) is None:
            return
        self._runtime.observe("pastry_begins_anew")
        self.leave()
        self.overlay.on_place_lost()

    def leave(self) -> None:
        """Tell the leaves that this node goes, or goes to another place."""
        if self._table.state is not None:
            for peer in self._table.leaves():
                self._runtime.send(peer, PastryLeaving(self.life))
            self.end()

    def prune(self) -> None:
        """Forget what is known of nodes that are no contacts any more."""
        if len(self._lives) > 2 * self._settings.known_max:
            for known in (self._lives, self._asked_at, self._heard_at, self._unanswered, self._seen, self._owed):
                for node in [node for node in known if self._table.contacts.peer(node) is None]:
                    known.pop(node)

    def check(self) -> None:
        """Assert what must hold at all times."""
        state = self._table.state
        if state is not None:
            for side in _SIDES:
                assert not _is_held(state, side) or self._leases.remaining_us(side) >= 0, "a lease is over"
                for node in state.grants[side]:
                    assert self._leases.is_bound(side, node), "a grant without an end"


def _is_held(state: PastryState, side: Side) -> bool:
    """Return whether a node holds a lease that ends; that of one that is alone does not."""
    return state.leases[side] is not None and state.near[side] != state.me
