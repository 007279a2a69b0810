"""Nodes that may be dead: each is asked a few times, with pauses, until it speaks or is dead.

Ids without a host: those of a dead node, which its neighbours take over in turn, and others, of whom none is known.

The host of `takeover_point` takes a lost region over at once. It knows the neighbours of the lost node from its last word,
and tells them. Should it be dead too, they follow one after another, and in the end anyone. An id next to this node of
which no host is known, and none was, is looked for by routing, and claimed with the least right if nobody answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

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
    from collections.abc import Callable

    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.routing import HypercubeTable, PeerState
    from meetpoint.overlays.hypercube.settings import HypercubeSettings

__all__ = ["FailureDetector", "Takeover"]


class Probe(msgspec.Struct):
    """How often a node was asked, the timer until the next step, and whether that is for an answer."""

    timer: int
    tries: int = 0
    asked: bool = False


class FailureDetector:
    """One node's. `ask` asks one, `dead` is told of one that did not answer, and `then` is called after each step."""

    __slots__ = ("_ask", "_dead", "_probes", "_runtime", "_settings", "_then")

    def __init__(
        self,
        runtime: Runtime,
        settings: HypercubeSettings,
        ask: Callable[[bytes], None],
        dead: Callable[[bytes], None],
        then: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._settings = settings
        self._ask = ask
        self._dead = dead
        self._then = then
        self._probes: dict[bytes, Probe] = {}

    def __contains__(self, node: bytes) -> bool:
        return node in self._probes

    def start(self, node: bytes) -> None:
        """A node was silent for long: ask it."""
        if node not in self._probes:
            self._probes[node] = Probe(self._retry_later(self._settings.again_us, lambda: self._ask_again(node)))

    def reported(self, node: bytes) -> None:
        """The driver could not reach a node; if it was just asked, that is its answer."""
        probe = self._probes.get(node)
        if probe is None:
            self.start(node)
        elif probe.asked:
            self._runtime.cancel(probe.timer)
            self._unanswered(node)

    def drop(self, node: bytes) -> None:
        """It has spoken, or does not matter any more."""
        probe = self._probes.pop(node, None)
        if probe is not None:
            self._runtime.cancel(probe.timer)

    def clear(self) -> None:
        """This node has left."""
        for node in list(self._probes):
            self.drop(node)

    def _ask_again(self, node: bytes) -> None:
        probe = self._probes[node]
        probe.asked = True
        probe.timer = self._retry_later(self._settings.ask_timeout_us, lambda: self._unanswered(node))
        self._ask(node)

    def _unanswered(self, node: bytes) -> None:
        probe = self._probes[node]
        probe.asked = False
        probe.tries += 1
        if probe.tries < self._settings.ask_tries:
            probe.timer = self._retry_later(self._settings.again_us, lambda: self._ask_again(node))
        else:
            del self._probes[node]
            self._dead(node)

    def _retry_later(self, delay_us: int, act: Callable[[], None]) -> int:
        def due() -> None:
            act()
            self._then()

        return self._runtime.after(delay_us, due)


ORPHANS_MAX = 256


class OrphanedRegion(msgspec.Struct):
    """A claim of a node that is no more: since when, when anyone may claim it, and its neighbours as it knew them."""

    claim: Claim
    left: bool
    since: int
    due: int
    links: tuple[Claim, ...]


class Hole(msgspec.Struct):
    """Ids without a host that is known: when they are looked for next, and when claimed."""

    look: int
    due: int


class Claiming(Protocol):
    """How this node comes to host a region."""

    def __call__(self, region: Region, epoch: int, links: Iterable[Claim], reserved_for: bytes = b"") -> None:
        """It is told to `links`; `reserved_for`: the node that may have it back."""


class Takeover:
    """One node's part in it. `claim` claims a region, `look` looks for the host of an id and greets it."""

    __slots__ = ("_claim", "_holes", "_look", "_orphans", "_runtime", "_settings", "_table")

    def __init__(
        self,
        runtime: Runtime,
        table: HypercubeTable,
        settings: HypercubeSettings,
        claim: Claiming,
        look: Callable[[int], None],
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._settings = settings
        self._claim = claim
        self._look = look
        self._orphans: dict[Region, OrphanedRegion] = {}
        self._holes: dict[Region, Hole] = {}

    # -- the dead ------------------------------------------------------------------------------------------------------

    def orphan_regions(self, peer_state: PeerState, left: bool) -> None:
        """What a node claimed, by its last word, has no host; `left`: it has said so itself."""
        now = self._runtime.now
        for claim in peer_state.claims:
            if len(self._orphans) < ORPHANS_MAX:
                self._orphans[claim.region] = OrphanedRegion(
                    claim, left, now, now + self._claim_delay_us(), peer_state.links
                )

    def _claim_delay_us(self) -> int:
        wait = self._settings.claim_us
        return wait + self._runtime.random.randrange(wait)

    def take_over_due(self) -> None:
        """Take over what a dead node hosted, if it is this node's turn and nobody has."""
        table, now = self._table, self._runtime.now
        for region, orphan in sorted(self._orphans.items()):
            others = [each.region for peer_state in table.peer_states.values() for each in peer_state.claims]
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
                    self._claim(part, epoch, orphan.links, reserved_for)
                table.refresh()

    def _rank(self, orphan: OrphanedRegion) -> int:
        """How many neighbours of a lost region are to take it over before this one: none, where this is its heir."""
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
        """See whether all ids next to this node have a host, and look for those that have had none for a while."""
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
                self._claim(region, UNHEARD_EPOCH, table.links)
            elif now >= hole.look:
                hole.look = now + settings.hole_us
                self._look(region.bits)

    # -- limits --------------------------------------------------------------------------------------------------------

    def needed(self) -> Iterable[bytes]:
        """The nodes that may be told of a takeover."""
        return (each.node for orphan in self._orphans.values() for each in orphan.links)

    def clear(self) -> None:
        """This node has left."""
        self._orphans.clear()
        self._holes.clear()

    def check(self) -> None:
        """Assert the limits."""
        assert len(self._orphans) <= ORPHANS_MAX, "what is lost has a limit"
