"""What a peer is: another way to match the same subscriptions with the same events, measured in the same run."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa

from meetpoint.lab.workloads.drafts import Array

__all__ = ["Digest", "Peer", "digest_of"]


class Digest(msgspec.Struct, frozen=True, eq=False):
    """Pairs in short: per event the number of subscriptions and the sum of their numbers.

    Two sides that agree on both agree on the count, and a wrong subscription does not hide behind a right count.
    """

    counts: Array
    sums: Array

    def difference(self, other: Digest) -> int | None:
        """The first event on which two digests differ; of the events that only one has, none is asked."""
        shared = min(len(self.counts), len(other.counts))
        differ = (self.counts[:shared] != other.counts[:shared]) | (self.sums[:shared] != other.sums[:shared])
        return int(differ.argmax()) if differ.any() else None


def digest_of(events: Any, subscriptions: Any, count: int) -> Digest:
    """The digest of pairs, for so many events."""
    sums = np.bincount(events, weights=subscriptions, minlength=count)  # exact: far below 2 ** 53
    return Digest(np.bincount(events, minlength=count), sums.astype(np.int64))


class Peer(Protocol):
    """Holds a workload's subscriptions, and finds all pairs of an event and a subscription that accepts it."""

    name: str

    def load(self) -> None:
        """Take the subscriptions in as they are: what is measured as loading."""

    def prepare(self) -> None:
        """Whatever else makes matching fast; not measured."""

    def share(self, events: pa.Table) -> pa.Table:
        """The first of the events, as many as can be measured in a short time."""

    def stage(self, events: pa.Table) -> None:
        """Bring events into the form that matching starts from; not measured."""

    def match(self, events: pa.Table) -> int:
        """Materialise all pairs and say how many they are."""

    def pairs(self, events: pa.Table) -> pa.Table:
        """The pairs themselves, in the columns event and subscription."""

    def digest(self, events: pa.Table) -> Digest:
        """The pairs in short."""
