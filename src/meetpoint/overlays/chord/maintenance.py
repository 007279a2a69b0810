"""Maintenance of the ring with messages: stabilise and rectify, step by step as `rules` has them.

A step of the rules reads another member's state at one instant; here that takes a query and its answer. While its own
query is under way a node answers others with `Busy`, so that nobody reads what is about to change and a step is as good
as atomic. Pings are always answered. A node that gets `Busy` gives up its own query, answers others meanwhile, and asks
again a little later. So nobody waits while being waited for, and a circle of waiting members comes loose.

A member that does not answer, or answers that it is none, counts as dead until it speaks again (`contacts`). An answer
equal to the last one, which left this node's state as it was, leaves it so again: in quiet times that is every answer.

Deviation: a dead first successor is followed by the next at once, in one period; a nearer successor that knows a still
nearer one is followed by the first half of the next stabilise, on the same answer. Deviation: a member does not notify
a successor that has it for its predecessor already, and ignores a notification from its predecessor: neither would
change anything. Deviation: a member whose successors are all gone is outside the proof; it becomes its own successor,
and finds the others again through the passive list (`membership`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.node.runtime.ring import between
from meetpoint.overlays.chord.messages import Busy, GetState, NotifySuccessor, NotMember, Ping, Pong, StateReply

if TYPE_CHECKING:
    from meetpoint.api.messages import Reply
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.membership import RingMerge
    from meetpoint.overlays.chord.routing import ChordTable
    from meetpoint.overlays.chord.rules import ChordRules, ChordSettings, ChordState

__all__ = ["ChordMaintenance"]


class ChordMaintenance:
    """Stabilise and rectify of one member."""

    __slots__ = (
        "_asked",
        "_next_candidate",
        "_pendings",
        "_pinged",
        "_question",
        "_ring_merge",
        "_rules",
        "_runtime",
        "_settings",
        "_steady",
        "_steps_taken",
        "_table",
        "_tries",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, table: ChordTable, rules: ChordRules, settings: ChordSettings, ring_merge: RingMerge
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._rules = rules
        self._settings = settings
        self._ring_merge = ring_merge
        self._asked: Peer | None = None  # whose state is asked for: this node is pending
        self._pinged: Peer | None = None  # whom rectify asks whether it lives
        self._question = 0  # answers to older questions come too late
        self._tries = 0
        self._pendings = 0
        self._steps_taken = 0
        self._steady: tuple[ChordState, Peer, tuple[Peer, ...]] | None = (
            None  # a state, and an answer that changes nothing
        )
        self._next_candidate: bytes | None = None  # whom to approach as soon as nothing is asked

    @property
    def busy(self) -> bool:
        """Whether a query of this node's stabilise is under way."""
        return self._asked is not None

    # -- stabilise, first half -----------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Stabilise once for this period."""
        self._pendings = 0
        self._steps_taken = 0
        self.stabilise()

    def stabilise(self) -> None:
        """Ask the first successor for its state, unless a query is under way."""
        if self._asked is not None or self._table.state is None:
            return
        self._drop_dead()
        state = self._state()
        head = state.succ[0]
        if head == state.me:
            self._step(*self._rules.first_live(state, state.prdc, state.succ))
        else:
            peer = self._askable(head)
            assert peer is not None, "a list whose first entry is dead moves up"
            self._ask(peer)
        self._table.report_changes()

    def _drop_dead(self) -> None:
        """Move the list up until its first entry is worth asking."""
        state = self._state()
        while state.succ[0] != state.me and self._askable(state.succ[0]) is None:
            if any(self._askable(node) is not None for node in state.succ):
                state, told = self._rules.first_dead(state)
            else:
                state = state._replace(succ=self._rules.listed(state.me, ()))
                told = state.me
                for peer in self._table.clockwise():
                    self._table.contacts.remember(peer)
            self._table.commit(state)
            self._notify(told)
            state = self._state()

    def _first_answered(self, reply: StateReply) -> None:
        before = self._state()
        succ = self._learn(reply)
        state, told = self._rules.first_live(before, reply.prdc.id, succ)
        if reply.prdc.id == state.me:
            told = None
        self._steady = (state, reply.prdc, reply.succ) if state == before and told is None else None
        self._step(state, told)

    def _step(self, state: ChordState, told: bytes | None) -> None:
        """Commit the result of the first half, and go on to the second where there is one."""
        self._table.commit(state)
        self._notify(told)
        if state.saved is None:
            self._approach_waiting()
            return
        peer = self._askable(state.saved)
        if peer is None:
            self._second_dead()
        else:
            self._ask(peer)

    # -- stabilise, second half ----------------------------------------------------------------------------------------

    def approach(self, node: bytes) -> None:
        """Run the second half toward a node that may be a nearer successor, now or after the query under way."""
        if self._asked is not None:
            self._next_candidate = node
            return
        state = self._table.state
        if state is None or not between(state.me, node, state.succ[0]) or node == state.me:
            return
        peer = self._table.contacts.peer(node)
        if peer is not None:
            self._table.commit(state._replace(saved=node))
            self._ask(peer)

    def _approach_waiting(self) -> None:
        node, self._next_candidate = self._next_candidate, None
        if node is not None:
            self.approach(node)

    def _second_answered(self, peer: Peer, reply: StateReply) -> None:
        state = self._state()
        before = state.succ
        succ = self._learn(reply)
        state, told = self._rules.second_live(state, succ)
        self._table.commit(state)
        self._notify(told)
        self._ring_merge.on_successor_adopted(peer, succ, before)
        if self._steps_taken < self._settings.walk_max and between(state.me, reply.prdc.id, peer.id):
            self._steps_taken += 1
            self._step(*self._rules.first_live(state, reply.prdc.id, succ))
        else:
            self._approach_waiting()

    def _second_dead(self) -> None:
        state, told = self._rules.second_dead(self._state())
        self._table.commit(state)
        self._notify(told)
        self._approach_waiting()

    # -- asking --------------------------------------------------------------------------------------------------------

    def _ask(self, peer: Peer, tries: int = 1) -> None:
        if peer.id in self._table.contacts.suspects:
            tries = self._settings.query_tries  # it has been silent before: once more is enough
        self._asked = peer
        self._tries = tries
        self._question += 1
        question = self._question
        self._runtime.ask(peer, GetState(0), self._settings.query_timeout_us).then(
            lambda reply: self._answered(question, reply)
        )

    def _answered(self, question: int, reply: Reply | None) -> None:
        peer = self._asked
        if question != self._question or peer is None:
            return
        if self._table.state is None:  # left meanwhile
            self._asked = None
            return
        if reply is None and self._tries < self._settings.query_tries:
            self._ask(peer, self._tries + 1)
            return
        self._asked = None
        if isinstance(reply, StateReply) and (self._table.state, reply.prdc, reply.succ) == self._steady:
            self._table.heard(peer)
            self._approach_waiting()
        elif isinstance(reply, StateReply) and self._holds(reply):
            self._table.heard(peer)
            if self._state().saved is None:
                self._first_answered(reply)
            else:
                self._second_answered(peer, reply)
        elif isinstance(reply, Busy):
            self._table.heard(peer)
            self._retry_later()
        else:
            self._table.suspect(peer, self._runtime.now)
            self._on_dead()
        self._table.report_changes()

    def _retry_later(self) -> None:
        """Give up the query to a busy node, so that others are answered, and ask again soon."""
        state = self._state()
        if state.saved is not None:
            self._table.commit(state._replace(saved=None))
        self._approach_waiting()
        self._pendings += 1
        if self._pendings <= self._settings.pending_tries:
            wait = self._settings.pending_wait_us
            self._runtime.after(wait // 2 + self._runtime.random.randrange(wait), self.stabilise)

    def _on_dead(self) -> None:
        """Handle the death of the node that was asked."""
        if self._state().saved is None:
            self.stabilise()
        else:
            self._second_dead()

    def suspected(self, peer: Peer) -> None:
        """Stop waiting for a peer that is suspected for reasons found elsewhere."""
        if self._asked is not None and self._asked.id == peer.id:
            self._question += 1
            self._asked = None
            self._on_dead()
        elif self._table.state is not None and self._table.state.succ[0] == peer.id:
            self.stabilise()
        if self._pinged is not None and self._pinged.id == peer.id:
            self._pinged = None
            self._check_candidate()

    def on_get_state(self, source: Peer, message: GetState) -> None:
        """Tell a member that stabilises this one's pointers, or that this one is busy."""
        state = self._table.state
        if state is None:
            self._runtime.send(source, NotMember(message.request))
            return
        self._table.heard(source)
        if self._asked is not None:
            self._runtime.send(source, Busy(message.request))
        else:
            self._runtime.send(source, StateReply(message.request, self.peer(state.prdc), self.peers(state.succ)))
        self._table.report_changes()

    # -- rectify -------------------------------------------------------------------------------------------------------

    def _notify(self, told: bytes | None) -> None:
        """Tell a member that this one may be its predecessor."""
        state = self._state()
        if told == state.me:
            self._table.commit(self._rules.notified(state, state.me))
            self._check_candidate()
        elif told is not None and (peer := self._askable(told)) is not None:
            self._runtime.send(peer, NotifySuccessor())

    def on_notify(self, source: Peer, message: NotifySuccessor) -> None:
        """Consider a member that says it may be this one's predecessor."""
        state = self._table.state
        if state is None:
            return
        self._table.heard(source)
        self._table.commit(self._rules.notified(state, source.id))
        self._check_candidate()
        self._table.report_changes()

    def adopt(self, prdc: Peer) -> None:
        """Adopt the predecessor of a predecessor that has left."""
        self._table.contacts.learn(prdc)
        self._table.commit(self._rules.rectify(self._rules.notified(self._state(), prdc.id), False))

    def _check_candidate(self) -> None:
        state = self._state()
        if state.candidate is None or self._pinged is not None:
            return
        if not self._rules.must_ping(state) or state.prdc in (state.candidate, state.me):
            self._table.commit(self._rules.rectify(state, True))
        elif (peer := self._askable(state.prdc)) is None:
            self._table.commit(self._rules.rectify(state, False))
        else:
            self._ping(peer, 1)

    def _ping(self, peer: Peer, tries: int) -> None:
        self._pinged = peer
        self._runtime.ask(peer, Ping(0), self._settings.query_timeout_us).then(
            lambda reply: self._ponged(peer, tries, reply)
        )

    def _ponged(self, peer: Peer, tries: int, reply: Reply | None) -> None:
        if self._pinged is not peer:
            return
        if self._table.state is None:
            self._pinged = None
            return
        if reply is None and tries < self._settings.query_tries:
            self._ping(peer, tries + 1)
            return
        self._pinged = None
        lives = isinstance(reply, Pong)
        if lives:
            self._table.heard(peer)
        else:
            self._table.suspect(peer, self._runtime.now)
        state = self._state()
        if state.prdc == peer.id and state.candidate is not None:
            self._table.commit(self._rules.rectify(state, lives))
        self._check_candidate()
        self._table.report_changes()

    def on_ping(self, source: Peer, message: Ping) -> None:
        """Answer whether this node is a member."""
        state = self._table.state
        if state is None:
            self._runtime.send(source, NotMember(message.request))
        else:
            self._runtime.send(source, Pong(message.request, self.peer(state.prdc)))

    # -- peers and ids -------------------------------------------------------------------------------------------------

    def peer(self, node: bytes) -> Peer:
        """Return a pointer as it is told to others; nobody has no address."""
        if node == self._table.id:
            return self._runtime.me
        return self._table.contacts.peer(node) or Peer(NodeId(Key(node)), "")

    def peers(self, nodes: tuple[bytes, ...]) -> tuple[Peer, ...]:
        """Return pointers as they are told to others."""
        return tuple(map(self.peer, nodes))

    def _learn(self, reply: StateReply) -> tuple[bytes, ...]:
        self._table.contacts.learn(reply.prdc)
        succ = reply.succ[: self._rules.length]
        for peer in succ:
            self._table.contacts.learn(peer)
        return tuple(peer.id for peer in succ)

    def _holds(self, reply: StateReply) -> bool:
        """Return whether the ids in a reply are ids of this ring."""
        holds = self._runtime.ring.holds
        return bool(reply.succ) and holds(reply.prdc.id) and all(holds(peer.id) for peer in reply.succ)

    def _askable(self, node: bytes) -> Peer | None:
        return self._table.contacts.askable(node, self._runtime.now, self._settings.suspicion_us)

    def _state(self) -> ChordState:
        state = self._table.state
        assert state is not None, "only a member keeps up the ring"
        return state

    def check(self) -> None:
        """Assert what must hold at all times."""
        state = self._table.state
        if state is not None:
            assert state.saved is None or self._asked is not None, "the second half is under way"
            assert state.candidate is None or self._pinged is not None, "a candidate waits only for a ping"
