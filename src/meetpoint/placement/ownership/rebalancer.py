"""Rebalancer: moves ranges to where the overlay says that they belong, where it says so (`Overlay.places`).

Now and then a node looks at what its homes own: a range that the overlay leads to another node belongs at that node's
own home, and one that it leads here at this node's. Where the overlay says so twice, a while apart, the range is given
there (`Ownership.give`). The overlay may err: then a range goes to where it does not belong, and later on; at every
moment at most one home owns it.

Meanwhile the overlay leads to a node that does not own the key. It is told who does, and passes on what comes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from meetpoint.api.ids import HomeId, NodeId, Peer, home_of
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Places, Span
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.key_range import KeyRange, arc_of, common, without
from meetpoint.placement.messages import NotOwner
from meetpoint.placement.ownership.ownership import Ownership
from meetpoint.placement.ownership.range_store import RangeListener

__all__ = ["FOLLOW_US", "STEADY_US", "Rebalancer"]

FOLLOW_US: Final = 2_000_000
"""How often a node looks."""
SOON_US: Final = 500_000
"""How soon after the overlay has changed."""
STEADY_US: Final = 4_000_000
"""How long the overlay must have led a key to the same node, before it is given there."""
FORGET_US: Final = 3 * FOLLOW_US
"""After how long an older look does not count."""
LOOKS_MAX: Final = 16
"""How many keys are looked up at a time."""
PINNED_EVERY: Final = 8
"""How many rounds there are until nodes are told that keys which the overlay leads to them stay here."""


class _Look(NamedTuple):
    """Where a key led at first, and since when it has."""

    node: NodeId
    span: Span
    since: int
    last: int


class Rebalancer:
    """Moves the ranges of the homes of one node."""

    def __init__(
        self, runtime: Runtime, home_manager: HomeManager, ownership: Ownership, listener: RangeListener, places: Places
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._ownership = ownership
        self._listener = listener
        self._places = places
        self._looks: dict[tuple[HomeId, bytes], _Look] = {}
        self._timer: int | None = None
        self._soon = False
        self._rounds = 0

    def home_started(self) -> None:
        """Begin to look: a home serves here."""
        if self._timer is None:
            self._wait(FOLLOW_US)

    def neighbours_changed(self) -> None:
        """Look soon: other keys may belong here now."""
        if self._timer is not None and not self._soon:
            self._runtime.cancel(self._timer)
            self._soon = True
            self._wait(SOON_US)

    def _wait(self, wait_us: int) -> None:
        self._timer = self._runtime.after(wait_us + self._runtime.random.randrange(wait_us // 4), self._look_round)

    def _look_round(self) -> None:
        self._soon = False
        self._rounds += 1
        self._wait(FOLLOW_US)
        now = self._runtime.now
        self._looks = {key: look for key, look in self._looks.items() if now - look.last <= FORGET_US}
        parts = [
            (self._home_manager.homes[home], part, stays)
            for home in sorted(self._home_manager.homes)
            if self._ownership.is_stable(home)
            for part, stays in self._misplaced(home)
        ]
        for home, part, stays in parts[:LOOKS_MAX]:
            self._look(home, part, stays, LOOKS_MAX // min(len(parts), LOOKS_MAX))

    def _misplaced(self, home: HomeId) -> list[tuple[KeyRange, bool]]:
        """Return what a home here owns and should not, as far as is known; and whether it stays nevertheless."""
        mine = self._places.mine()
        if mine is None:
            return []
        ring = self._runtime.ring
        here = [arc_of(ring, span) for span in mine] if home == home_of(self._runtime.me.id) else []
        elsewhere = without(ring, self._ownership.owned_ranges[home].arcs, here)
        pinned = self._listener.pinned(home)
        parts = [(part, False) for part in without(ring, elsewhere, pinned)]
        if pinned and self._rounds % PINNED_EVERY == 0:
            parts += [(part, True) for part in common(ring, elsewhere, pinned)]
        return parts

    def _look(self, home: Home, part: KeyRange, stays: bool, left: int) -> None:
        """Find out where the first key of a part leads to, and then the first that does not lead there."""
        key = self._runtime.ring.add(part.low, 1)

        def answered(peer: Peer | None, span: Span | None) -> None:
            if peer is None or span is None or not span.first <= key <= span.last:
                self._looks.pop((home.id, key), None)
                return
            ring = self._runtime.ring
            led = common(ring, (part,), (arc_of(ring, span),))
            arc = next(each for each in led if each.holds(key))
            if self._ownership.is_stable(home.id):
                self._led(home, key, arc, stays, peer, span)
            if arc.high != part.high and left > 1:
                self._look(home, KeyRange(arc.high, part.high), stays, left - 1)

        self._places.host_of(key, answered)

    def _led(self, home: Home, key: bytes, arc: KeyRange, stays: bool, peer: Peer, span: Span) -> None:
        """Tell a node that the overlay leads a range to it, and in time give it the range."""
        to, now = home_of(peer.id), self._runtime.now
        host = self._home_manager.directory.host(to)
        before = self._looks.pop((home.id, key), None)
        if to == home.id or host is None or host.id != peer.id:
            return  # where it belongs; or its new home does not serve yet
        if not stays:
            since = now if before is None or (before.node, before.span) != (peer.id, span) else before.since
            if now - since >= STEADY_US and self._ownership.give(home, arc, to):
                self._runtime.observe("arc_followed")
                return
            self._looks[home.id, key] = _Look(peer.id, span, since, now)
        if peer.id != self._runtime.me.id:
            self._runtime.send(peer, NotOwner(0, key, ((home.id, self._ownership.owned_ranges[home.id].arcs),)))
