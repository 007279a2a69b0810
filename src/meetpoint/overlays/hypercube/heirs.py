"""Ids without a host: those of a dead node, which its neighbours take over in turn, and others, of whom none is known.

The host of `heir_point` takes a lost region over at once. It knows the neighbours of the lost node from its last word,
and tells them. Should it be dead too, they follow one after another, and in the end anyone. An id next to this node of
which no host is known, and none was, is looked for by routing, and claimed with the least right if nobody answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

import msgspec

from meetpoint.overlays.hypercube.claims import TAKEN, UNHEARD, Claim, mirrors, overlap, uncovered
from meetpoint.overlays.hypercube.regions import Region, apart, are_neighbours
from meetpoint.overlays.hypercube.rules import heir_point

if TYPE_CHECKING:
    from collections.abc import Callable

    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.settings import HypercubeSettings
    from meetpoint.overlays.hypercube.table import Table, Word

__all__ = ["Heirs"]

LOST_MAX = 256


class Lost(msgspec.Struct):
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

    def __call__(self, region: Region, epoch: int, links: Iterable[Claim], kept: bytes = b"") -> None:
        """It is told to `links`; `kept`: the node that may have it back."""


class Heirs:
    """One node's part in it. `claim` claims a region, `look` looks for the host of an id and greets it."""

    __slots__ = ("_claim", "_holes", "_look", "_lost", "_services", "_settings", "_table")

    def __init__(
        self,
        services: Runtime,
        table: Table,
        settings: HypercubeSettings,
        claim: Claiming,
        look: Callable[[int], None],
    ) -> None:
        self._services = services
        self._table = table
        self._settings = settings
        self._claim = claim
        self._look = look
        self._lost: dict[Region, Lost] = {}
        self._holes: dict[Region, Hole] = {}

    # -- the dead ------------------------------------------------------------------------------------------------------

    def lose(self, word: Word, left: bool) -> None:
        """What a node claimed, by its last word, has no host; `left`: it has said so itself."""
        now = self._services.now
        for claim in word.claims:
            if len(self._lost) < LOST_MAX:
                self._lost[claim.region] = Lost(claim, left, now, now + self._long_us(), word.links)

    def _long_us(self) -> int:
        wait = self._settings.claim_us
        return wait + self._services.random.randrange(wait)

    def see_to(self) -> None:
        """Take over what a dead node hosted, if it is this node's turn and nobody has."""
        table, now = self._table, self._services.now
        for region, lost in sorted(self._lost.items()):
            others = [each.region for word in table.words.values() for each in word.claims]
            parts = uncovered(region, [*table.pieces, *others]) if table.is_near(region) else []
            if not parts:
                del self._lost[region]
            elif now >= min(lost.due, lost.since + self._behind(lost) * self._settings.heir_us):
                del self._lost[region]
                self._services.observe("hypercube_taken_over")
                claim = lost.claim
                epoch = claim.epoch + 1 if lost.left else claim.epoch - TAKEN
                kept = b"" if lost.left else claim.kept or claim.node
                for part in parts:
                    self._claim(part, epoch, lost.links, kept)
                table.refresh()

    def _behind(self, lost: Lost) -> int:
        """How many neighbours of a lost region are to take it over before this one: none, where this is its heir."""
        region, table = lost.claim.region, self._table
        point = heir_point(region)
        if table.hosts(point):
            return 0
        near = [each for each in lost.links if are_neighbours(each.region, region)]
        near.sort(key=lambda each: (not each.region.hosts(point), -apart(each.region, region), each.region))
        order = list(dict.fromkeys(each.node for each in near))
        ahead = order[: order.index(table.id)] if table.id in order else order
        return 1 + sum(node not in table.contacts.suspects for node in ahead)

    # -- holes ---------------------------------------------------------------------------------------------------------

    def look_round(self) -> None:
        """See whether all ids next to this node have a host, and look for those that have had none for a while."""
        table, now, settings = self._table, self._services.now, self._settings
        covered = [*table.pieces, *(each.region for each in table.links)]
        holes: dict[Region, Hole] = {}
        for piece in sorted(table.pieces):
            for mirror in mirrors(piece):
                for part in uncovered(mirror, covered):
                    known = self._holes.get(part)
                    holes[part] = known or Hole(now + settings.hole_us, now + self._long_us())
        self._holes = holes
        for region, hole in holes.items():
            if any(overlap(region, lost) for lost in self._lost):
                continue
            if now >= hole.due and not any(overlap(region, each) for each in table.pieces):
                self._services.observe("hypercube_hole")
                self._claim(region, UNHEARD, table.links)
            elif now >= hole.look:
                hole.look = now + settings.hole_us
                self._look(region.bits)

    # -- limits --------------------------------------------------------------------------------------------------------

    def needed(self) -> Iterable[bytes]:
        """The nodes that may be told of a takeover."""
        return (each.node for lost in self._lost.values() for each in lost.links)

    def clear(self) -> None:
        """This node has left."""
        self._lost.clear()
        self._holes.clear()

    def check(self) -> None:
        """Assert the limits."""
        assert len(self._lost) <= LOST_MAX, "what is lost has a limit"
