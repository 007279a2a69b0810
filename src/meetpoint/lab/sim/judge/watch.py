"""Watches the overlay as a whole while it runs, with eyes that no node has.

Under a perfect failure detector the overlay's invariant must hold after every step, and a node may fail only where the
overlay's operating assumption allows it: where the invariant still holds without it. Otherwise it must hold from the
stated time after healing on. All views are looked at again only when some view has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from meetpoint.lab.sim.clock import told
from meetpoint.lab.sim.cluster import Cluster
from meetpoint.lab.sim.engine import Process

__all__ = ["BROKEN_MAX", "Overseer", "Watch"]

BROKEN_MAX = 100
"""How many broken invariants are told before a run stops looking."""


class Overseer(Protocol):
    """What is known of an overlay as a whole; each overlay has its own."""

    def differ(self, old: Any, new: Any) -> bool:
        """Whether two views of a node differ in what `broken` looks at."""

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        """What is wrong with the overlay, in a sentence, or None."""

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Whether the overlay's operating assumption allows these to be all that are left."""

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        """What is not as it should be some time after the last change, or None."""


class Watch:
    """Collects broken invariants. `active` says whether they count now."""

    def __init__(self, cluster: Cluster, overseer: Overseer) -> None:
        self.active = False
        self.broken: list[str] = []
        self.looked = 0
        self._cluster = cluster
        self._overseer = overseer
        cluster.on_end.append(self._ended)

    def begin(self) -> None:
        """From now on it counts."""
        self.active = True
        self._judge("when it began to count")

    def look(self, process: Process, old: object, new: object) -> None:
        """The view of a process has changed."""
        if self.active and (old is None or self._overseer.differ(old, new)):
            self._judge(f"after a step of {process.address}")

    def _ended(self, process: Process) -> None:
        if self.active:
            self._judge(f"after the end of {process.address}")

    def _judge(self, when: str) -> None:
        self.looked += 1
        views = self.views()
        wrong = self._overseer.broken(views) if views else None
        if wrong is not None and len(self.broken) < BROKEN_MAX:
            self.broken.append(f"at {told(self._cluster.engine.now)}, {when}: {wrong}")

    def views(self) -> dict[bytes, Any]:
        """The parts of all members that are up."""
        return {process.peer.id: process.view for process in self._cluster.members()}

    def is_ideal(self) -> str | None:
        """What is not ideal now, or None."""
        views = self.views()
        return self._overseer.departures(views) if views else "nobody is a member"

    def may_fail(self, process: Process) -> bool:
        """Whether the overlay's operating assumption allows a process to fail now.

        One that is leaving fails too, as the overlay sees it, but when, only itself knows: until then no other may.
        """
        if self._cluster.leaving:
            return False
        rest = self.views()
        return rest.pop(process.peer.id, None) is None or self._overseer.stands(rest)
