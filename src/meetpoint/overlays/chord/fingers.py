"""Keeping the fingers right at little cost (Stoica et al., "Chord", section 4.4, `fix_fingers`).

Finger k is the first member at or after me + 2^k. Those that the successor list shows cost nothing. Missing ones are
looked up, a few in each period, and one answer may serve several k. An existing finger is *verified* by a ping: the
answer says where its keys begin, and so whether it still is the first after me + 2^k. That takes two messages, and no
lookup. In quiet times one finger is verified every few periods; after a change one in each, until all have been.

Fingers only make routes short; the ring is right without them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from meetpoint.node.runtime.ring import between_or_end
from meetpoint.overlays.chord.messages import Ping, Pong

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.api.messages import Reply
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.chord.chord import Chord
    from meetpoint.overlays.chord.routing import ChordRouter, ChordTable
    from meetpoint.overlays.chord.rules import ChordSettings

__all__ = ["Fingers"]


class Fingers:
    """Maintenance of one member's fingers."""

    __slots__ = (
        "_complete",
        "_looking",
        "_overlay",
        "_router",
        "_runtime",
        "_seen",
        "_settings",
        "_table",
        "_ticks",
        "_unquiet",
        "_verified",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        table: ChordTable,
        router: ChordRouter,
        settings: ChordSettings,
        overlay: Chord,
    ) -> None:
        self._runtime = runtime
        self._table = table
        self._router = router
        self._settings = settings
        self._overlay = overlay
        self._complete = -1  # the version of the pointers at which no finger was missing
        self._looking: set[int] = set()  # exponents that are looked up now
        self._seen: tuple[bytes, ...] = ()  # the list of successors when fingers were last taken from it
        self._verified = -1  # the exponent that was verified last
        self._ticks = 0
        self._unquiet = 0  # how many periods more to verify in each

    def found(self, peers: Sequence[Peer]) -> None:
        """Point all fingers at members of a network that begins: `peers`, sorted by id."""
        ring, table = self._runtime.ring, self._table
        by_id = attrgetter("id")
        for exponent in range(ring.bits - 1, self._lowest() - 1, -1):
            at = bisect_left(peers, self._start(exponent), key=by_id)
            peer = peers[at if at < len(peers) else 0]
            table.contacts.learn(peer)
            table.point(exponent, peer.id)
        self._seen = self._succ()

    def tick(self) -> None:
        """Fill in missing fingers and verify one, as the quiet or the change before asks for."""
        if self._table.state is None:
            return
        missing = self._table.version != self._complete and self._fill()
        self._ticks += 1
        self._unquiet = len(self._table.fingers) if missing else max(0, self._unquiet - 1)
        if self._unquiet or self._ticks % self._settings.verify_ticks == 0:
            self._verify()

    def _fill(self) -> bool:
        """Take the fingers that cost nothing, and look up some of the others; return whether any is missing."""
        if self._succ() != self._seen:
            self._fill_from_successors()
            self._unquiet = len(self._table.fingers)
        self._fill_own()
        wanted = range(self._runtime.ring.bits - 1, self._lowest() - 1, -1)
        missing = [exponent for exponent in wanted if exponent not in self._table.fingers]
        for exponent in missing:
            if len(self._looking) >= self._settings.fingers_per_tick:
                break
            if exponent not in self._table.fingers and exponent not in self._looking:
                self._look_up(exponent)
        if not missing:
            self._complete = self._table.version
        return bool(missing)

    # -- from the list of successors -----------------------------------------------------------------------------------

    def _fill_from_successors(self) -> None:
        """Drop fingers that the successors have made needless, and take those that they show."""
        table = self._table
        self._seen = self._succ()
        lowest = self._lowest()
        for exponent in [k for k in table.fingers if k < lowest]:
            table.point(exponent, None)
        before = table.id
        exponent = lowest
        for peer in table.successors():
            while exponent < self._runtime.ring.bits and between_or_end(before, self._start(exponent), peer.id):
                table.point(exponent, peer.id)
                exponent += 1
            before = peer.id

    def _fill_own(self) -> None:
        """Point fingers whose start lies among this node's own keys at this node, and no others."""
        table = self._table
        for exponent in range(self._runtime.ring.bits - 1, self._lowest() - 1, -1):
            finger = table.fingers.get(exponent)
            if finger is None and table.owns(self._start(exponent)):
                table.point(exponent, table.id)
            elif finger == table.id and not table.owns(self._start(exponent)):
                table.point(exponent, None)

    def _succ(self) -> tuple[bytes, ...]:
        state = self._table.state
        assert state is not None, "only a member has fingers"
        return state.succ

    def _lowest(self) -> int:
        """Return the least exponent whose finger lies beyond the first successor."""
        head = self._table.head()
        if head is None:
            return self._runtime.ring.bits
        return self._runtime.ring.distance(self._table.id, head.id).bit_length()

    def _start(self, exponent: int) -> bytes:
        return self._runtime.ring.add(self._table.id, 1 << exponent)

    # -- by lookup -----------------------------------------------------------------------------------------------------

    def _look_up(self, exponent: int) -> None:
        self._looking.add(exponent)
        key = self._runtime.ring.add(self._table.id, 1 << exponent)
        self._router.lookup(key, lambda peer, _: self._on_found(exponent, peer))

    def _on_found(self, exponent: int, peer: Peer | None) -> None:
        self._looking.discard(exponent)
        if peer is None or self._table.state is None:
            return
        self._table.contacts.learn(peer)
        for k in self._served(exponent, peer.id):
            self._table.point(k, peer.id)

    def _served(self, exponent: int, node: bytes) -> Iterator[int]:
        """Yield the exponents, from one on, that a node serves as finger: their starts lie before it."""
        yield exponent
        start = self._start(exponent)
        while (exponent := exponent + 1) < self._runtime.ring.bits:
            if start == node or not between_or_end(start, self._start(exponent), node):
                return
            yield exponent

    # -- verifying -----------------------------------------------------------------------------------------------------

    def _verify(self) -> None:
        """Ask the next finger whether it is still the right one."""
        fingers = self._table.fingers
        own = self._table.id
        exponents = sorted(k for k, node in fingers.items() if node != own)
        if not exponents:
            return
        after = [k for k in exponents if k > self._verified]
        exponent = after[0] if after else exponents[0]
        node = fingers[exponent]
        self._verified = max(k for k in self._served(exponent, node) if fingers.get(k) == node)
        peer = self._table.contacts.live(node)
        if peer is None:
            self._table.point(exponent, None)
        else:
            self._ping(peer, exponent, 1)

    def _ping(self, peer: Peer, exponent: int, tries: int) -> None:
        self._runtime.ask(peer, Ping(0), self._settings.query_timeout_us).then(
            lambda reply: self._ponged(peer, exponent, tries, reply)
        )

    def _ponged(self, peer: Peer, exponent: int, tries: int, reply: Reply | None) -> None:
        if self._table.state is None or self._table.fingers.get(exponent) != peer.id:
            return
        if reply is None and tries < self._settings.query_tries:
            self._ping(peer, exponent, tries + 1)
        elif not isinstance(reply, Pong):
            self._overlay.suspect(peer)
        elif not between_or_end(reply.prdc.id, self._start(exponent), peer.id):
            self._table.point(exponent, None)
