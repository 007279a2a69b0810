"""The steps of Pastry's leaf sets, as pure functions from state to state.

After LuPastry (Tianxiang Lu, "Formal Verification of the Pastry Protocol", 2013; Azmy, Merz and Weidenbach, "A
Machine-Checked Correctness Proof for Pastry", 2018), which is proven for networks where nodes join and none fails. What
failures need is ours: leases that end. The same functions are searched exhaustively in the tests and run by
`pastry.Pastry`; `invariant` says what they keep.

What a node holds:

- `leaves`: the members around it that it has heard from, clockwise; at most `half` on each side, and its neighbours. A
  *member* is a node that has been ready.
- `near`: its neighbours on the left (counter-clockwise) and on the right; itself where it knows no other.
- `leases`: on each side, from whom it holds a lease, if from anyone: the word of its neighbour there that it will not
  let go of this node. It is held until it expires, also when a nearer neighbour is taken; when a neighbour is dropped
  it is void, but for the lease of its own that a node had when it was alone.
- `grants`: on each side, to whom it has given such a lease that may not have ended. A lease binds both: whoever gives
  one may still count on the lease of its former neighbour, which the one that takes it has come before.
- `unprobed`: whom a joiner has been told of and has not heard from yet. While there are any, or before, it *waits*.
- `helping`: the joiner that this node helps.
- `joiners`: who has probed this node, and was no member then.

A node is `wait`ing until it has heard from all leaves it was told of, then `ok`, and `ready` while it holds the leases
of both neighbours. One that is alone holds its own. Only ready nodes deliver keys and help joiners.

The steps, each by one node; what another said (`PeerStatus`) is its state at one instant:

| step | when | what |
| --- | --- | --- |
| `found` | a network begins | ideal leaves, all leases held and granted |
| `help` | asked by a joiner between it and its right neighbour | if ready and helping nobody else: help it |
| `welcome` | a joiner is told the leaves of its helper | all of them are to be probed |
| `probed` | a joiner probes it | known as a joiner |
| `heard` | another has spoken | a member is a leaf; a *ready* one nearer than a neighbour takes its place |
| `probe_answered` | one probed has answered with its leaves | a leaf; a joiner probes those it did not know of |
| `probe_failed` | one probed is dead | a joiner does without; after the last it is ok, with the nearest as neighbours |
| `grant` | another asks for leases | see below; the one granted is neighbour, and not dropped before the end |
| `granted` | a neighbour has granted a lease | held |
| `expire` | a lease was not renewed in time | not held: not ready |
| `grant_ended` | later than that, by the granter's clock | the granter may drop the other |
| `drop` | another is found dead, and no lease or joiner hinders | no leaf; the next one is neighbour, without a lease |
| `pass_over` | a joiner is asked again, and is dead or still none | not a joiner any more |
| `drop_former` | another is seen in a later life | dropped, leases or not: its former life is dead |
| `helped` | the joiner is ready, or took too long | help the next |
| `retire` | not ready for long, and nobody has a lease from it | begin again as a joiner, in a later life |

**Who is granted a lease.** Members grant: nodes that have been ready. One gets it that has this node for its neighbour
and is the neighbour on that side, or is nearer than the neighbour and

- is *ready*: then it is in another ring, which this one meets; a nearer neighbour takes keys away, it never adds any;
- or nobody has a lease on that side, and so counts on this node to let nobody in, and this node is not alone;
- or *names the very neighbour that it would replace* as its own on that side. A newcomer gets the lease of its left
  neighbour first, and only with that held the lease of the right one: so each gap between two nodes is opened in one
  place, at its left end, by one newcomer at a time, and whoever names another neighbour is behind the times.

Deviation: in LuPastry the node that covers a joiner's id helps it, which may be either end of a gap, and that it helps
nobody else meanwhile is all that keeps two joiners apart; a helper that crashes forgets. Here the helper is the left
end, and what keeps two apart is what they must name; helping one at a time only saves them the trouble.

All members of a network should use the same settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from meetpoint.api.limits import SECOND_US
from meetpoint.node.runtime.ring import between

__all__ = [
    "LEFT", "RIGHT", "BothSides", "HeldLeases", "PastryRules", "PastrySettings", "PastryState", "PeerStatus", "Side",
    "is_ready",
]  # fmt: skip

Side: TypeAlias = Literal[0, 1]
LEFT: Final = 0
RIGHT: Final = 1
_SIDES: Final[tuple[Side, Side]] = (LEFT, RIGHT)

BothSides: TypeAlias = tuple[bool, bool]
"""A property that holds or not, on the left and on the right."""
HeldLeases: TypeAlias = tuple[bytes | None, bytes | None]
_NONE: Final[HeldLeases] = (None, None)

_T = TypeVar("_T")


class PastryState(NamedTuple):
    """The state that one node holds for the maintenance of its leaf set."""

    me: bytes
    near: tuple[bytes, bytes]
    leases: HeldLeases = _NONE
    grants: tuple[tuple[bytes, ...], tuple[bytes, ...]] = ((), ())
    leaves: tuple[bytes, ...] = ()
    unprobed: tuple[bytes, ...] = ()
    waits: bool = False
    member: bool = True
    """Whether it has been ready before: such a node goes on alone when all others are gone; a joiner begins again."""
    helping: bytes | None = None
    joiners: tuple[bytes, ...] = ()


class PeerStatus(NamedTuple):
    """The status that a node tells of itself when it asks for a lease."""

    node: bytes
    near: tuple[bytes, bytes]
    leases: HeldLeases
    waits: bool
    member: bool

    @property
    def ready(self) -> bool:
        """Whether it holds both leases."""
        return not self.waits and None not in self.leases


def is_ready(state: PastryState) -> bool:
    """Return whether a node holds both leases: only then it delivers keys and helps joiners."""
    return not state.waits and None not in state.leases


class PastryRules:
    """The steps, for leaf sets of `half` nodes on each side."""

    __slots__ = ("half",)

    def __init__(self, half: int) -> None:
        assert half >= 1, "a node needs a neighbour on each side"
        self.half = half

    # -- beginning -----------------------------------------------------------------------------------------------------

    def found(self, me: bytes, others: Iterable[bytes]) -> PastryState:
        """Return a node of a network that begins, with these around it; one alone is ready."""
        leaves = self._leaves_among(me, others, ())
        left, right = (leaves[-1], leaves[0]) if leaves else (me, me)
        grants = ((left,), (right,)) if leaves else ((), ())
        return PastryState(me, (left, right), (left, right), grants, leaves)

    def help(self, state: PastryState, joiner: bytes) -> PastryState | None:
        """Help a joiner whose place is between this node and its right neighbour; None: not this one, or not now."""
        if not is_ready(state) or not self.in_gap(state, joiner) or state.helping not in (None, joiner):
            return None
        return state._replace(helping=joiner)

    def in_gap(self, state: PastryState, node: bytes) -> bool:
        """Return whether an id lies between a node and its right neighbour."""
        return node != state.me and between(state.me, node, state.near[RIGHT])

    def helped(self, state: PastryState, joiner: bytes) -> PastryState:
        """Stop helping a joiner that is ready, or has taken too long."""
        return state._replace(helping=None) if state.helping == joiner else state

    def welcome(self, me: bytes, helper: bytes, its_leaves: Iterable[bytes]) -> PastryState:
        """Begin as a joiner with the leaves of its helper, all of which are to be probed."""
        told = sorted({helper, *its_leaves} - {me})
        return PastryState(me, (me, me), unprobed=tuple(told), waits=True, member=False)

    def status_of(self, state: PastryState) -> PeerStatus:
        """Return the status that a node tells of itself."""
        return PeerStatus(state.me, state.near, state.leases, state.waits, state.member)

    def retire(self, state: PastryState) -> PastryState | None:
        """Give up a place that others no longer see, to join anew; None while anyone holds a lease from here.

        Nobody counts on a joiner: it may begin again at any time.
        """
        if state.member and any(state.grants):
            return None
        return PastryState(state.me, (state.me, state.me), waits=True, member=False)

    # -- probes --------------------------------------------------------------------------------------------------------

    def probed(self, state: PastryState, status: PeerStatus) -> PastryState:
        """Note a node that probes this one; a joiner is remembered, as it may be a member next time."""
        if not status.member and status.node not in (state.me, *state.joiners):
            near = self._leaves_among(state.me, (*state.leaves, *state.joiners, status.node), ())
            state = state._replace(joiners=tuple(node for node in near if node not in state.leaves))
        return self.heard(state, status)

    def pass_over(self, state: PastryState, node: bytes) -> PastryState:
        """Forget a joiner that was asked again: a member now, or dead, or a joiner that will ask for leases."""
        return state._replace(joiners=tuple(each for each in state.joiners if each != node))

    def probe_answered(self, state: PastryState, status: PeerStatus, its_leaves: Iterable[bytes]) -> PastryState:
        """Take in the answer of a node that was probed: it lives."""
        state = self.heard(state, status)
        if state.waits:
            known = {state.me, status.node, *state.leaves, *state.unprobed}
            wanted = self._leaves_among(state.me, (*known, *its_leaves), ())
            fresh = [node for node in wanted if node not in known]
            rest = [node for node in state.unprobed if node != status.node]
            state = self._advance(state._replace(unprobed=tuple(sorted((*rest, *fresh)))))
        return state

    def probe_failed(self, state: PastryState, node: bytes) -> PastryState:
        """Do without a node that a joiner was told of: it is dead."""
        state = state._replace(unprobed=tuple(each for each in state.unprobed if each != node))
        return self._advance(state)

    def _advance(self, state: PastryState) -> PastryState:
        """Make a joiner ok that has heard from all; one that has heard from nobody must be helped again."""
        if not state.waits or state.unprobed or not state.leaves:
            return state
        return state._replace(waits=False, near=(state.leaves[-1], state.leaves[0]))

    def heard(self, state: PastryState, status: PeerStatus) -> PastryState:
        """Take in a node that has spoken: a member is a leaf, and a nearer one may become a neighbour."""
        node = status.node
        if node == state.me or not status.member:
            return state
        if node in state.joiners:
            state = self.pass_over(state, node)
        if node not in state.leaves:
            state = state._replace(leaves=self._leaves_among(state.me, (*state.leaves, node), state.near))
        if state.waits or status.waits or node not in state.leaves:
            return state
        for side in _SIDES:
            free = not state.grants[side] and state.near[side] != state.me
            if self.is_nearer(state, side, node) and (status.ready or free):
                state = self._adopt(state, side, node)
        return state

    # -- leases --------------------------------------------------------------------------------------------------------

    def grant(self, state: PastryState, status: PeerStatus) -> tuple[PastryState, BothSides]:
        """Grant leases to a node that asks; return the state, and the sides on which it has one now."""
        given = []
        for side in _SIDES:
            may = state.member and not status.waits and status.near[1 - side] == state.me
            if may and state.near[side] != status.node:
                may = self.is_nearer(state, side, status.node) and self.may_enter(state, side, status)
            if may:
                state = self._adopt(state, side, status.node)
                state = self._bind(state, side, status.node)
            given.append(may)
        return state, (given[LEFT], given[RIGHT])

    def may_enter(self, state: PastryState, side: Side, status: PeerStatus) -> bool:
        """Return whether a nearer node may become the neighbour on a side and get a lease."""
        if status.ready:
            return True
        names = status.near[side] == state.near[side] and (side == RIGHT or status.leases[LEFT] == status.near[LEFT])
        return names or (not state.grants[side] and state.near[side] != state.me)

    def granted(self, state: PastryState, node: bytes, sides: BothSides) -> PastryState:
        """Hold the lease of a neighbour, where it says on which of *its* sides this node has one."""
        for side in _SIDES:
            if sides[1 - side] and state.near[side] == node and not state.waits:
                state = state._replace(leases=_with(state.leases, side, node))
                state = self._bind(state, side, node)
        return state._replace(member=True) if is_ready(state) and not state.member else state

    def _bind(self, state: PastryState, side: Side, node: bytes) -> PastryState:
        """Bind a node to a side, so that neither lets go while the other may count on it."""
        if node in state.grants[side]:
            return state
        return state._replace(grants=_with(state.grants, side, (*state.grants[side], node)))

    def expire(self, state: PastryState, side: Side) -> PastryState:
        """Drop a lease that was not renewed in time; a node that is alone holds its own, which does not end."""
        if state.near[side] == state.me:
            return state
        return state._replace(leases=_with(state.leases, side, None))

    def grant_ended(self, state: PastryState, side: Side, node: bytes) -> PastryState:
        """Drop a grant that has ended: certainly the node does not count on it any more."""
        left = tuple(each for each in state.grants[side] if each != node)
        return state._replace(grants=_with(state.grants, side, left))

    # -- the dead ------------------------------------------------------------------------------------------------------

    def drop(self, state: PastryState, node: bytes) -> PastryState | None:
        """Drop a dead node; None while it may hold a lease from here, or a joiner must be asked first."""
        if node in state.grants[LEFT] or node in state.grants[RIGHT]:
            return None
        leaves = tuple(each for each in state.leaves if each != node)
        before = state
        state = state._replace(leaves=leaves, helping=None if state.helping == node else state.helping)
        if not leaves and not state.waits:
            state = self._alone(state)
        for side in _SIDES:
            if leaves and state.near[side] == node:
                nearest = leaves[-1] if side == LEFT else leaves[0]
                kept = state.me if state.leases[side] == state.me else None
                state = state._replace(near=_with(state.near, side, nearest), leases=_with(state.leases, side, kept))
            if before.near[side] == node and any(self.is_nearer(state, side, each) for each in state.joiners):
                return None
        return state

    def drop_former(self, state: PastryState, node: bytes) -> PastryState:
        """Drop a node that has come back in a later life, with its leases: the life before is dead."""
        for side in _SIDES:
            state = self.grant_ended(state, side, node)
        return self.drop(self.pass_over(state, node), node) or state

    def _alone(self, state: PastryState) -> PastryState:
        """Go on without any other node: a joiner must be helped again, a member is a network of one."""
        alone = state._replace(near=(state.me, state.me))
        return alone._replace(leases=alone.near) if state.member else alone._replace(leases=_NONE, waits=True)

    # -- neighbours and leaves -----------------------------------------------------------------------------------------

    def is_nearer(self, state: PastryState, side: Side, node: bytes) -> bool:
        """Return whether a node lies between this one and its neighbour on a side."""
        if node == state.me:
            return False
        neighbour = state.near[side]
        return between(neighbour, node, state.me) if side == LEFT else between(state.me, node, neighbour)

    def _adopt(self, state: PastryState, side: Side, node: bytes) -> PastryState:
        """Take a neighbour that is nearer, or the same; the lease of the one before is still good."""
        near = _with(state.near, side, node)
        return state._replace(near=near, leaves=self._leaves_among(state.me, (*state.leaves, node), near))

    def unknown(self, state: PastryState, told: Iterable[bytes]) -> list[bytes]:
        """Return the nodes named by another that this one would have for leaves, and has not heard from."""
        kept = self._leaves_among(state.me, (*state.leaves, *told), state.near)
        return [node for node in kept if node not in state.leaves]

    def is_missed(self, other: bytes, its_leaves: Sequence[bytes], node: bytes) -> bool:
        """Return whether another node lacks a leaf that it should have: it has not met it, or found it dead."""
        return node not in (other, *its_leaves) and node in self._leaves_among(other, (*its_leaves, node), ())

    def _leaves_among(self, me: bytes, nodes: Iterable[bytes], near: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return the leaves among some nodes, clockwise: the nearest on each side, and the neighbours."""
        order = sorted({*nodes} - {me})
        at = sum(node < me for node in order)
        clockwise = order[at:] + order[:at]
        if len(clockwise) <= 2 * self.half:
            return tuple(clockwise)
        last = len(clockwise) - self.half
        return tuple(
            node for place, node in enumerate(clockwise) if place < self.half or place >= last or node in near
        )  # fmt: skip


def _with(both: tuple[_T, _T], side: Side, value: _T) -> tuple[_T, _T]:
    return (value, both[RIGHT]) if side == LEFT else (both[LEFT], value)


@dataclass(frozen=True, slots=True)
class PastrySettings:
    """Lengths, periods and limits.

    A dead neighbour is found within a period and `greet_tries` timeouts, 2.9 s at most as it stands, and at once where
    the driver reports the peer lost; its keys fall to others when the lease granted to it has ended.
    """

    digit_bits: int = 4
    """b: ids are read in digits of so many bits, and a hop gains one of them. It divides 8, so that no digit is cut."""

    half: int = 4
    """How many leaves a node knows on each side: as many neighbours less one may fail at once."""

    cache_max: int = 64
    """Number of nodes met in passing that are remembered as links; a network as small is then one hop wide."""

    period_us: int = SECOND_US
    """How often leases are renewed; each time an eighth of it more or less, by chance."""

    lease_us: int = 3 * SECOND_US
    """How long a lease lasts for who holds it, counted from the question; who grants it waits an eighth longer."""

    greet_timeout_us: int = SECOND_US // 2
    greet_tries: int = 3
    """Number of greetings in a row without an answer after which a node is suspected."""

    again_us: int = SECOND_US // 10
    """How long to wait before a greeting that was not answered, or did not bring a lease, is repeated."""

    join_retry_us: int = SECOND_US
    joiners_max: int = 16
    """Number of joiners that wait at a node until it has helped those before them."""

    help_us: int = 3 * SECOND_US
    """Time that a node helps one joiner before it takes it for lost."""

    patience_us: int = 4 * SECOND_US
    """Time, or up to twice that, that a joiner waits for its leases before it begins anew; a member twice as long."""

    verify_ticks: int = 4
    """Number of periods after which a leaf that is no neighbour is greeted."""

    repair_ticks: int = 8
    """Number of periods after which a free place of the routing table is looked for; at once after a change."""

    merge_share: float = 0.3
    """Share of the periods in which a peer of the passive list is asked."""

    agreed_max: int = 8
    """Number of agreeing answers in a row after which peers that were never suspected are left in peace."""

    lookup_timeout_us: int = SECOND_US
    lookup_tries: int = 5
    lookups_max: int = 1024

    hops_max: int = 64
    """Number of hops after which a message is dropped."""

    passive_max: int = 64
    passive_told: int = 8
    """Number of peers of its passive list that a node tells to one that joins after it."""

    known_max: int = 512

    def __post_init__(self) -> None:
        assert self.digit_bits in (1, 2, 4, 8), "digit_bits: a digit has 1, 2, 4 or 8 bits"
        assert self.half >= 1, "half: a node needs a neighbour on each side"
        assert self.greet_tries >= 1, "silence is heard only after a question"
        assert self.lease_us > self.period_us, "a lease is renewed before it ends"
        assert self.lookup_tries >= 1, "a lookup is tried at least once"
