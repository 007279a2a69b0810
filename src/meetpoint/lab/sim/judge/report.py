"""What a run tells: six counts that must be 0, the faults it suffered, and its figures. One JSON object."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

__all__ = ["PROBLEMS_SHOWN", "Report", "Spread", "spread"]

PROBLEMS_SHOWN = 20


class Spread(msgspec.Struct, frozen=True):
    """Mean, median and maximum of a figure."""

    mean: float
    p50: float
    max: float


def spread(values: Iterable[int]) -> Spread:
    """Of some values; all 0 of none."""
    order = sorted(values)
    if not order:
        return Spread(0.0, 0.0, 0.0)
    return Spread(round(sum(order) / len(order), 3), float(order[len(order) // 2]), float(order[-1]))


class Report(msgspec.Struct, kw_only=True):
    """One run."""

    overlay: str
    scheme: str
    nodes: int
    seed: int
    faults: str
    detector: str

    missing: int = 0
    duplicate: int = 0
    spurious: int = 0
    out_of_order: int = 0
    invariants_broken: int = 0
    lookups_wrong: int = 0

    injected: dict[str, int] = {}
    never_injected: list[str] = []
    problems: list[str] = []
    """The first things that were wrong, a sentence each."""

    subscriptions: int = 0
    changes: int = 0
    events: int = 0
    events_acknowledged: int = 0
    notifications: int = 0
    notifications_expected: int = 0
    redelivered: int = 0
    lookups: int = 0
    live_again_s: float | None = None
    """How long after healing all nodes served again and all pointers were ideal."""

    lookup_hops: Spread = Spread(0, 0, 0)
    event_hops: Spread = Spread(0, 0, 0)
    """Messages on the way of an event to each node that it came to first by the scheme's own way."""
    event_delay_ms: Spread = Spread(0, 0, 0)
    """From asking to publish until a subscriber was notified first."""
    messages: int = 0
    messages_per_node: Spread = Spread(0, 0, 0)
    messages_by_kind: dict[str, int] = {}
    """By the tag of the kind."""
    bytes: int = 0
    bytes_per_node: Spread = Spread(0, 0, 0)
    subids: int = 0
    subids_per_event: Spread = Spread(0, 0, 0)
    notifications_per_subscription: Spread = Spread(0, 0, 0)
    observed: dict[str, int] = {}

    virtual_s: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """What the run took, without its judgement: on the clock, and of one core."""
    messages_per_s: float = 0.0
    """Messages in a second of one core."""
    digest: str = ""

    @property
    def counts(self) -> dict[str, int]:
        """The six that must be 0."""
        return {
            "missing": self.missing,
            "duplicate": self.duplicate,
            "spurious": self.spurious,
            "out_of_order": self.out_of_order,
            "invariants_broken": self.invariants_broken,
            "lookups_wrong": self.lookups_wrong,
        }

    @property
    def good(self) -> bool:
        """Whether all six are, and every fault that was asked for happened."""
        return not any(self.counts.values()) and not self.never_injected
