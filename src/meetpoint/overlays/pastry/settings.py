"""The settings of a Pastry node; all members of a network should use the same."""

from __future__ import annotations

from dataclasses import dataclass

from meetpoint.api.limits import SECOND_US

__all__ = ["PastrySettings"]


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
