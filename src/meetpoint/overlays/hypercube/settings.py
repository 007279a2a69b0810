"""The settings of a hypercube's node; all members of a network should use the same."""

from __future__ import annotations

from dataclasses import dataclass

from meetpoint.api.limits import SECOND_US

__all__ = ["HypercubeSettings"]


@dataclass(frozen=True, slots=True)
class HypercubeSettings:
    """Periods and limits.

    A dead neighbour is found within `silent_us`, a period and `ask_tries` timeouts, and at once where the driver
    reports the peer lost. Its region is then hosted by another at once, and reserved for it for `fallow_us`.
    """

    dimensions: int = 64
    """How many bits of a key choose its node, at most: 2^dimensions nodes can host something, others stand by. A scheme
    that places things by ids of its own says itself how many bits these have."""

    period_us: int = SECOND_US
    """How often a node tells its neighbours that it is there; each time an eighth of it more or less, by chance."""

    silent_us: int = 3 * SECOND_US
    """Time of silence after which a neighbour is asked."""

    ask_timeout_us: int = SECOND_US // 2
    ask_tries: int = 2
    """Number of questions in a row without an answer after which a node is taken for dead."""

    again_us: int = SECOND_US // 10
    """How long to wait before a question that was not answered is repeated."""

    greet_us: int = SECOND_US
    """How long to wait before one that is not known as a neighbour is greeted again."""

    hole_us: int = 2 * SECOND_US
    """Time that an id next to this node may have no known host before it is looked for."""

    claim_us: int = 5 * SECOND_US
    """Time, or up to twice that, before this node claims it."""

    heir_us: int = SECOND_US
    """Time between the neighbours of a dead node that take over in turn what the first has not."""

    fallow_us: int = 30 * SECOND_US
    """Time that a region is reserved for the node that fell silent."""

    tidy_us: int = 2 * SECOND_US
    """How often, an eighth more or less, a host is looked for, where a node has a region too many."""

    offer_us: int = 2 * SECOND_US
    """How long an offer is waited for."""

    join_retry_us: int = SECOND_US
    rejoin_us: int = 15 * SECOND_US
    """How often a standby asks for a region."""

    joiners_max: int = 16
    """Number of joiners that wait at a node until those before them have what they were offered."""

    merge_share: float = 0.3
    """Share of the periods in which a peer of the passive list is asked."""

    agreed_max: int = 8
    """Number of agreeing answers in a row after which peers that were never suspected are left in peace."""

    lookup_timeout_us: int = SECOND_US
    lookup_tries: int = 5
    lookups_max: int = 1024

    hops_max: int = 400
    """Number of hops after which a message is dropped; a path has as many hops as an id has bits."""

    passive_max: int = 64
    passive_told: int = 8
    """Number of peers of its passive list that a node tells to one that it offers a region."""

    known_max: int = 512

    def __post_init__(self) -> None:
        assert self.dimensions >= 1, "dimensions: an id has at least one bit"
        assert self.ask_tries >= 1, "silence is heard only after a question"
        assert self.silent_us > self.period_us, "a neighbour has time to speak"
        assert self.lookup_tries >= 1, "a lookup is tried at least once"
