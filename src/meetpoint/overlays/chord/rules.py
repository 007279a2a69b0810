"""The steps of the corrected Chord, as pure functions from state to state.

After Pamela Zave, "Reasoning about identifier spaces: how to make Chord correct" (arXiv 1610.01140), sections IV and V,
and her Alloy model of 2016. No published version of Chord keeps the invariants that it claims; this one keeps the one
in `invariant`, and the same functions are searched exhaustively in the tests and run by `chord.Chord`.

What a member holds:

- `succ`: exactly r ids, clockwise, without its own. Where fewer are known the list ends in *artificial* entries, each
  one more than the entry before it: they skip nobody, and count as dead.
- `prdc`: an id, never missing; a member that knows no other is its own predecessor.
- `saved`: between the two halves of stabilise, the id that is asked in the second.
- `candidate`: who last claimed to be the predecessor, until rectify has looked at it. It has a slot of its own: in one
  slot with `saved`, claims starve stabilisation.

A step reads the state of at most one other member, as it was at one instant. A step that ends stabilise also says whom
to tell: that member gets this one as its candidate.

Deviation: a list is cut where it would no longer run clockwise or would reach the member itself, and filled up with
artificial entries. With r + 1 principals, as proven, that never happens (the tests assert it); it is what lets a
network begin with a single member, whose own id then stands first in its list. On a circle that has fewer than r ids
between an entry and the member, a list may be shorter than r.

All members of a network should use the same settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meetpoint.api.limits import SECOND_US
from meetpoint.node.runtime.ring import between

__all__ = ["ChordRules", "ChordSettings", "ChordState"]


class ChordState(NamedTuple):
    """The state that one member holds for the maintenance of the ring."""

    me: bytes
    succ: tuple[bytes, ...]
    prdc: bytes
    saved: bytes | None = None
    candidate: bytes | None = None


class ChordRules:
    """The steps, for lists of `length` entries on a circle where `following` gives the next id."""

    __slots__ = ("following", "length")

    def __init__(self, length: int, following: Callable[[bytes], bytes]) -> None:
        assert length >= 1, "a member needs a successor"
        self.length = length
        self.following = following

    # -- beginning -----------------------------------------------------------------------------------------------------

    def found(self, me: bytes, after: Sequence[bytes], prdc: bytes) -> ChordState:
        """Return a member of a network that begins with ideal pointers; `after` follow it, nearest first."""
        return ChordState(me, self.listed(me, after), prdc)

    def join(self, me: bytes, member: bytes, its_succ: Sequence[bytes]) -> ChordState | None:
        """Become a member between another and its successor; None where this id does not lie there."""
        if not its_succ or me == member or not between(member, me, its_succ[0]):
            return None
        return ChordState(me, self.listed(me, its_succ), member)

    # -- stabilise -----------------------------------------------------------------------------------------------------

    def first_live(
        self, state: ChordState, its_prdc: bytes, its_succ: Sequence[bytes]
    ) -> tuple[ChordState, bytes | None]:
        """Take the answer of the first successor; if it knows a nearer one, the second half asks that."""
        head = state.succ[0]
        state = state._replace(succ=self.listed(state.me, (head, *its_succ)))
        if between(state.me, its_prdc, head):
            return state._replace(saved=its_prdc), None
        return state, head

    def first_dead(self, state: ChordState) -> tuple[ChordState, bytes | None]:
        """Move the list up: the first successor is dead."""
        state = state._replace(succ=self.listed(state.me, state.succ[1:]))
        return state, state.succ[0]

    def second_live(self, state: ChordState, its_succ: Sequence[bytes]) -> tuple[ChordState, bytes | None]:
        """Take the nearer node for the first successor: it has answered."""
        nearer = state.saved
        assert nearer is not None, "the second half follows the first"
        assert between(state.me, nearer, state.succ[0]), "a list does not change between the halves"
        return state._replace(succ=self.listed(state.me, (nearer, *its_succ)), saved=None), nearer

    def second_dead(self, state: ChordState) -> tuple[ChordState, bytes | None]:
        """Leave all as it is: the nearer node is dead."""
        assert state.saved is not None, "the second half follows the first"
        return state._replace(saved=None), state.succ[0]

    # -- rectify -------------------------------------------------------------------------------------------------------

    def notified(self, state: ChordState, candidate: bytes) -> ChordState:
        """Note a member that says that this one is its first successor, for rectify."""
        return state._replace(candidate=candidate)

    def must_ping(self, state: ChordState) -> bool:
        """Return whether rectify depends on the predecessor's being alive."""
        assert state.candidate is not None, "rectify follows a claim"
        return not between(state.prdc, state.candidate, state.me)

    def rectify(self, state: ChordState, prdc_lives: bool) -> ChordState:
        """Adopt the candidate where it is nearer than the predecessor, or where the predecessor is dead."""
        assert state.candidate is not None, "rectify follows a claim"
        if not prdc_lives or not self.must_ping(state):
            return state._replace(prdc=state.candidate, candidate=None)
        return state._replace(candidate=None)

    # -- lists ---------------------------------------------------------------------------------------------------------

    def listed(self, me: bytes, entries: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return a list of exactly r entries from these, clockwise from `me`."""
        succ: list[bytes] = []
        last = me
        for entry in entries:
            if len(succ) == self.length or entry == me or not between(last, entry, me):
                break
            succ.append(entry)
            last = entry
        if not succ:
            succ.append(me)
        while len(succ) < self.length:
            last = self.following(last)
            if last == me:
                break
            succ.append(last)
        return tuple(succ)


@dataclass(frozen=True, slots=True)
class ChordSettings:
    """Lengths, periods and limits.

    A dead successor is found within one period and `query_tries` timeouts: 2.75 s at most as it stands, and at once
    where the driver reports the peer lost.
    """

    successors: int = 4
    """r, the length of successor lists: r - 1 neighbours may fail at once. The proof begins at r + 1 members."""

    stabilise_us: int = SECOND_US
    """How often a member stabilises; each time a quarter of it more or less, by chance."""

    query_timeout_us: int = SECOND_US // 2
    query_tries: int = 3
    """Number of queries in a row without an answer after which a peer is suspected."""

    pending_wait_us: int = SECOND_US // 10
    pending_tries: int = 5
    """How soon, and how often in a period, a member is asked again that was busy."""

    walk_max: int = 64
    """Number of times in a period that a member goes on from a nearer successor to a still nearer one."""

    suspicion_us: int = 3 * SECOND_US
    """Time that a suspected peer is taken for dead without asking it again."""

    lookup_timeout_us: int = SECOND_US
    lookup_tries: int = 5
    lookups_max: int = 1024

    join_retry_us: int = SECOND_US
    seeks_max: int = 16
    """Number of joiners that may wait at one member until its own query is answered."""

    hops_max: int = 256
    """Number of hops after which a message is dropped."""

    fingers_per_tick: int = 2
    """Number of missing fingers that are looked up in one period."""

    verify_ticks: int = 4
    """Number of periods after which a finger is verified; for a while after a change it is each period."""

    merge_share: float = 0.3
    """Share of the periods in which a peer of the passive list is asked."""

    audit_ticks: int = 4
    calm_ticks: int = 64
    """About how often a link is asked the same, in periods; an eighth as often when nothing has changed for long."""

    agreed_max: int = 8
    """Number of agreeing answers in a row after which peers that were never suspected are left in peace."""

    passive_max: int = 64
    passive_told: int = 8
    """Number of peers of its passive list that a member tells to one that joins after it."""

    known_max: int = 512

    shortcuts: bool = False
    """Route over all successors, not only over the first and the fingers: fewer hops than the papers count."""

    def __post_init__(self) -> None:
        assert self.successors >= 1, "a member needs a successor"
        assert self.query_tries >= 1, "silence is heard only after a question"
        assert self.lookup_tries >= 1, "a lookup is tried at least once"
