"""The failure detector, and the takeover of ids without a host.

A node that may be dead is asked a few times, with pauses, until it speaks or is dead. Its region is *orphaned*. The
host of `takeover_point` takes that over at once: it knows the neighbours of the dead node from its last heartbeat, and
tells them. Should it be dead too, they follow one after another, and in the end any node does.

A *hole* is ids next to this node of which no host is known, and none was. Their host is looked for by routing, and if
nobody answers they are claimed with the least right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from meetpoint.overlays.hypercube.regions import Region, apart, are_neighbours
from meetpoint.overlays.hypercube.rules import (
    TAKEOVER_EPOCHS,
    UNHEARD_EPOCH,
    Claim,
    mirror_regions,
    overlap,
    takeover_point,
    uncovered,
)

if TYPE_CHECKING:
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.maintenance import HypercubeMaintenance
    from meetpoint.overlays.hypercube.routing import HypercubeTable, PeerState
    from meetpoint.overlays.hypercube.rules import HypercubeSettings

__all__ = ["FailureDetector", "Takeover"]


class Probe(msgspec.Struct):
    """A node that is being asked: the timer until the next step, the tries, and whether an answer is awaited."""

    timer: int
    tries: int = 0
    asked: bool = False


class FailureDetector:
    """The nodes that one node asks whether they live."""

    __slots__ = (
        "_maintenance",
        "_probes",
        "_runtime",
        "_settings",
    )

    def __init__(
        self,
        runtime: Runtime,
        settings: HypercubeSettings,
        maintenance: HypercubeMaintenance,
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._maintenance = maintenance
        self._probes: dict[bytes, Probe] = {}

    def __contains__(self, node: bytes) -> bool:
        return node in self._probes

    def start(self, node: bytes) -> None:
        """Ask a node that was silent for long."""
        if node not in self._probes:
            self._probes[node] = Probe(self._retry_later(self._settings.again_us, lambda: self._ask_again(node)))

    def reported(self, node: bytes) -> None:
        """Start asking a node that the driver could not reach; if it was just asked, that counts as silence."""
        probe = self._probes.get(node)
        if probe is None:
            self.start(node)
        elif probe.asked:
            self._runtime.cancel(probe.timer)
            self._unanswered(node)

    def drop(self, node: bytes) -> None:
        """Stop asking a node that has spoken, or does not matter any more."""
        probe = self._probes.pop(node, None)
        if probe is not None:
            self._runtime.cancel(probe.timer)

    def clear(self) -> None:
        """Stop asking all, as this node leaves."""
        for node in list(self._probes):
            self.drop(node)

    def _ask_again(self, node: bytes) -> None:
        probe = self._probes[node]
        probe.asked = True
        probe.timer = self._retry_later(self._settings.ask_timeout_us, lambda: self._unanswered(node))
        self._maintenance.ask(node)

    def _unanswered(self, node: bytes) -> None:
        probe = self._probes[node]
        probe.asked = False
        probe.tries += 1
        if probe.tries < self._settings.ask_tries:
            probe.timer = self._retry_later(self._settings.again_us, lambda: self._ask_again(node))
        else:
            del self._probes[node]
            self._maintenance.declare_dead(node)

    def _retry_later(self, delay_us: int, act: Callable[[], None]) -> int:
        def due() -> None:
            act()
            self._maintenance.finish_step()

        return self._runtime.after(delay_us, due)


ORPHANS_MAX = 256


class OrphanedRegion(msgspec.Struct):
    """A claim of a dead node: since when, when any node may claim it, and its neighbours as it knew them."""

    claim: Claim
    left: bool
    since: int
    due: int
    links: tuple[Claim, ...]


class Hole(msgspec.Struct):
    """Ids without a known host: when they are looked for next, and when claimed."""

    look: int
    due: int


class Takeover:
    """The part of one node in finding hosts for orphaned regions and holes."""

    __slots__ = ("_holes", "_maintenance", "_orphans", "_runtime", "_settings", "_table")

    def __init__(
        self,
        runtime: Runtime,
        table: HypercubeTable,
        settings: HypercubeSettings,
        maintenance: HypercubeMaintenance,
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._settings = settings
        self._maintenance = maintenance
        self._orphans: dict[Region, OrphanedRegion] = {}
        self._holes: dict[Region, Hole] = {}

    # -- the dead ------------------------------------------------------------------------------------------------------

    def orphan_regions(self, state: PeerState, left: bool) -> None:
        """Note that the claims of a node have no host; `left`: it has said so itself."""
        now = self._runtime.now
        for claim in state.claims:
            if len(self._orphans) < ORPHANS_MAX:
                self._orphans[claim.region] = OrphanedRegion(
                    claim, left, now, now + self._claim_delay_us(), state.links
                )

    def _claim_delay_us(self) -> int:
        wait = self._settings.claim_us
        return wait + self._runtime.random.randrange(wait)

    def take_over_due(self) -> None:
        """Take over what a dead node hosted, if it is this node's turn and nobody has."""
        table, now = self._table, self._runtime.now
        for region, orphan in sorted(self._orphans.items()):
            others = [each.region for state in table.peer_states.values() for each in state.claims]
            parts = uncovered(region, [*table.pieces, *others]) if table.is_near(region) else []
            if not parts:
                del self._orphans[region]
            elif now >= min(orphan.due, orphan.since + self._rank(orphan) * self._settings.heir_us):
                del self._orphans[region]
                self._runtime.observe("hypercube_taken_over")
                claim = orphan.claim
                epoch = claim.epoch + 1 if orphan.left else claim.epoch - TAKEOVER_EPOCHS
                reserved_for = b"" if orphan.left else claim.reserved_for or claim.node
                for part in parts:
                    self._maintenance.claim(part, epoch, orphan.links, reserved_for)
                table.refresh()

    def _rank(self, orphan: OrphanedRegion) -> int:
        """Return how many neighbours of an orphaned region are to take it over before this one."""
        region, table = orphan.claim.region, self._table
        point = takeover_point(region)
        if table.hosts(point):
            return 0
        near = [each for each in orphan.links if are_neighbours(each.region, region)]
        near.sort(key=lambda each: (not each.region.hosts(point), -apart(each.region, region), each.region))
        order = list(dict.fromkeys(each.node for each in near))
        ahead = order[: order.index(table.id)] if table.id in order else order
        return 1 + sum(node not in table.contacts.suspects for node in ahead)

    # -- holes ---------------------------------------------------------------------------------------------------------

    def check_holes(self) -> None:
        """Look for hosts of holes next to this node, and claim the holes in the end."""
        table, now, settings = self._table, self._runtime.now, self._settings
        covered = [*table.pieces, *(each.region for each in table.links)]
        holes: dict[Region, Hole] = {}
        for piece in sorted(table.pieces):
            for mirror in mirror_regions(piece):
                for part in uncovered(mirror, covered):
                    known = self._holes.get(part)
                    holes[part] = known or Hole(now + settings.hole_us, now + self._claim_delay_us())
        self._holes = holes
        for region, hole in holes.items():
            if any(overlap(region, orphan) for orphan in self._orphans):
                continue
            if now >= hole.due and not any(overlap(region, each) for each in table.pieces):
                self._runtime.observe("hypercube_hole")
                self._maintenance.claim(region, UNHEARD_EPOCH, table.links)
            elif now >= hole.look:
                hole.look = now + settings.hole_us
                self._maintenance.find_host(region.bits)

    # -- limits --------------------------------------------------------------------------------------------------------

    def needed(self) -> Iterable[bytes]:
        """Yield the nodes that may be told of a takeover."""
        return (each.node for orphan in self._orphans.values() for each in orphan.links)

    def clear(self) -> None:
        """Forget all, as this node leaves."""
        self._orphans.clear()
        self._holes.clear()

    def check(self) -> None:
        """Assert the limits."""
        assert len(self._orphans) <= ORPHANS_MAX, "what is lost has a limit"
