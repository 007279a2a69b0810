"""The settings of a Chord node; all members of a network should use the same."""

from __future__ import annotations

from dataclasses import dataclass

from meetpoint.api.limits import SECOND_US

__all__ = ["ChordSettings"]


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
