"""Maintenance of the hypercube with messages: heartbeats and claims keep true who hosts what.

In every period a node sends its neighbours a *heartbeat*: what it hosts, and, where they do not know them yet, its own
neighbours. When what it hosts changes it sends one at once. All that they know of it follows from its last heartbeat,
so that a lost one costs a period and a repeated one nothing. A node that is told of one that it would have as a
neighbour, or competes with, greets it, and believes only what that one says itself.

Silent nodes are asked, and what a dead node hosted is taken over (`takeover`). Whatever goes wrong in this, and
whatever two sides of a torn network did meanwhile, is resolved by claims (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from meetpoint.overlays.hypercube.messages import Heartbeat, HostedRegion, HypercubeLeaving, Life, NeighbourRegion
from meetpoint.overlays.hypercube.regions import Region, packed, unpacked
from meetpoint.overlays.hypercube.routing import PeerState, Piece
from meetpoint.overlays.hypercube.rules import EPOCH_MAX, Claim, overlap, subtract, uncovered
from meetpoint.overlays.hypercube.takeover import FailureDetector, Takeover

if TYPE_CHECKING:
    from meetpoint.api.ids import Peer
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.hypercube.hypercube import Hypercube
    from meetpoint.overlays.hypercube.routing import HypercubeTable
    from meetpoint.overlays.hypercube.rules import HypercubeSettings

__all__ = ["HypercubeMaintenance"]

PIECES_MAX = 256
LINKS_MAX = 2048
"""Largest number of links in a heartbeat; one with more is malformed."""
STANDBY_PEERS_MAX = 32
NOT_SEEN = 0
"""The version of links that were never told."""
NO_LIFE: Life = (0, -1)


class HypercubeMaintenance:
    """Heartbeats and claims of one node."""

    __slots__ = (
        "_acked", "_announce", "_failure_detector", "_greeted_at", "_heard", "_runtime", "_settings", "_table",
        "_takeover", "life", "overlay",
    )  # fmt: skip

    overlay: Hypercube
    """Set once, by the overlay itself."""

    def __init__(self, runtime: Runtime, table: HypercubeTable, settings: HypercubeSettings) -> None:
        self._runtime = runtime
        self._table = table
        self._settings = settings
        self.life: Life = NO_LIFE
        """The current life of this node."""
        self._heard: dict[bytes, tuple[Life, int]] = {}  # in which life a node spoke last, and when
        self._acked: dict[bytes, int] = {}  # which version of this node's links another knows
        self._greeted_at: dict[bytes, int] = {}
        self._failure_detector = FailureDetector(runtime, settings, self)
        self._takeover = Takeover(runtime, table, settings, self)
        self._announce = False  # neighbours are told at the end of this step

    # -- beginning and ending ------------------------------------------------------------------------------------------

    def begin_life(self) -> None:
        """Begin to join or to found; the life before is over."""
        self.life = (self._runtime.me.incarnation, int(self._runtime.now))

    def leave(self) -> None:
        """Tell all partners that this node leaves, and forget everything."""
        for node in list(self._partners()):
            peer = self._table.contacts.peer(node)
            if peer is not None:
                self._runtime.send(peer, HypercubeLeaving(self.life))
        self._table.pieces.clear()
        self._table.peer_states.clear()
        self._table.standbys.clear()
        self._table.sponsor = None
        self._takeover.clear()
        self._failure_detector.clear()
        self._announce = False

    # -- pieces --------------------------------------------------------------------------------------------------------

    def claim(self, region: Region, epoch: int, links: Iterable[Claim], reserved_for: bytes = b"") -> None:
        """Host a region from now on; `links` are those next to it, as somebody knew them."""
        now = self._runtime.now
        for part in uncovered(region, list(self._table.pieces)):
            self._table.pieces[part] = Piece(
                epoch, now, reserved_for, now + self._settings.fallow_us if reserved_for else 0
            )
        self._table.sponsor = None
        self.mark_changed()
        for each in links:
            self.hear_of(each)

    def mark_changed(self) -> None:
        """Announce at the end of this step what this node hosts, or where it stands by."""
        self._table.invalidate()
        self._announce = True

    def hear_of(self, claim: Claim) -> None:
        """Greet a node that hosts what matters here, by another's word; the word counts until it answers.

        A suspected node is greeted, too, if it was not lately: others hear of it, so it may live.
        """
        contacts = self._table.contacts
        peer = contacts.askable(claim.node, self._runtime.now, self._settings.silent_us)
        if peer is None:
            return
        wait_us = self._settings.period_us
        matters = self.assume(claim, wait_us) if contacts.live(claim.node) else self._table.concerns((claim,))
        if matters and not (self._announce and peer.id in self._table.peer_states):
            self.greet(peer)

    def assume(self, claim: Claim, wait_us: int) -> bool:
        """Take a claim for true whose node has not spoken yet; return whether it matters, and is news.

        The node is asked if it stays silent.
        """
        table = self._table
        state = table.peer_states.get(claim.node) or PeerState(NO_LIFE, 0, (), hearsay=True)
        if not state.hearsay or claim in state.claims or not table.concerns((claim,)):
            return False
        if len(table.peer_states) >= self._settings.known_max or len(state.claims) >= PIECES_MAX:
            return False
        state.claims += (claim,)
        table.peer_states[claim.node] = state
        at = self._runtime.now + wait_us - self._settings.silent_us
        self._heard[claim.node] = (self._heard.get(claim.node, (NO_LIFE, 0))[0], at)
        table.invalidate()
        return True

    def _cede(self, claims: Iterable[Claim]) -> bool:
        """Cede what others claim with more right; return whether any of them claims something with less."""
        weaker = False
        for claim in claims:
            for region in [each for each in self._table.pieces if overlap(each, claim.region)]:
                piece = self._table.pieces[region]
                if claim.strength < (piece.epoch, self._table.id):
                    weaker = True
                    continue
                del self._table.pieces[region]
                for part in subtract(region, claim.region):
                    self._table.pieces[part] = msgspec.structs.replace(piece)
                self.mark_changed()
        return weaker

    def finish_step(self) -> None:
        """Finish a step: do what follows from it, and tell others."""
        self._table.refresh()
        self._takeover.take_over_due()
        self.overlay.on_step()
        self._table.refresh()
        if self._announce:
            self._announce = False
            for node in list(self._partners()):
                state = self._table.peer_states.get(node)
                self.send_heartbeat(node, asks=state is not None and state.hearsay)
            self._forget()
        if self._table.joined and not self._table.pieces and self._table.sponsor is None:
            self.overlay.on_place_lost()
        self._table.report_changes()

    def _partners(self) -> Iterable[bytes]:
        """Return the nodes with which heartbeats are exchanged."""
        table = self._table
        partners = dict.fromkeys((*table.peer_states, *table.standbys))
        if table.sponsor is not None:
            partners[table.sponsor] = None
        return partners

    def _forget(self) -> None:
        """Forget the states of nodes that are no neighbours any more."""
        table = self._table
        for node in [node for node, state in table.peer_states.items() if not self._is_relevant(node, state.claims)]:
            del table.peer_states[node]
            self._failure_detector.drop(node)
            table.invalidate()
        table.refresh()

    def _is_relevant(self, node: bytes, claims: Iterable[Claim]) -> bool:
        table = self._table
        return node in table.standbys or node == table.sponsor or table.concerns(claims)

    # -- heartbeats ----------------------------------------------------------------------------------------------------

    def greet(self, peer: Peer) -> None:
        """Tell a node what this one hosts, and ask the same; not too often."""
        now = self._runtime.now
        at = self._greeted_at.get(peer.id)
        if peer.id == self._table.id or (at is not None and now - at < self._settings.greet_us):
            return
        self._greeted_at[peer.id] = now
        self._send_heartbeat(peer, asks=True)

    def send_heartbeat(self, node: bytes, asks: bool = False) -> None:
        """Tell a node what this one hosts."""
        peer = self._table.contacts.peer(node)
        if peer is not None:
            self._send_heartbeat(peer, asks)

    def _send_heartbeat(self, peer: Peer, asks: bool, seen: int | None = None) -> None:
        table = self._table
        table.refresh()
        state = table.peer_states.get(peer.id)
        knows = self._acked.get(peer.id) == table.version
        if seen is None:
            seen = NOT_SEEN if state is None else state.seen
        pieces = tuple(
            HostedRegion(packed(each), piece.epoch, piece.reserved_for) for each, piece in sorted(table.pieces.items())
        )
        links, standby_peers = (None, ()) if knows else (self.links(table.links), self._standby_peers(peer.id))
        standby_count, sponsor = len(table.standbys), table.sponsor or b""
        self._runtime.send(
            peer, Heartbeat(self.life, table.version, seen, pieces, standby_count, sponsor, asks, links, standby_peers)
        )  # fmt: skip

    def _standby_peers(self, node: bytes) -> tuple[Peer, ...]:
        """Return the standbys to tell a node: those here, and for one of them also those of neighbours."""
        table = self._table
        standby_peers = list(table.standbys)
        if node in table.standbys:
            standby_peers += [
                each
                for state in table.peer_states.values()
                for each in state.standby_peers
                if each not in standby_peers
            ]
        peers = (table.contacts.live(each) for each in standby_peers if each != node)
        return tuple(peer for peer in peers if peer is not None)[:STANDBY_PEERS_MAX]

    def links(self, claims: Iterable[Claim]) -> tuple[NeighbourRegion, ...]:
        """Return claims as they are told, as far as their nodes are known."""
        peers = ((claim, self.peer(claim.node)) for claim in claims)
        return tuple(
            NeighbourRegion(packed(claim.region), claim.epoch, peer) for claim, peer in peers if peer is not None
        )

    def peer(self, node: bytes) -> Peer | None:
        """Return the peer of an id, also this one."""
        return self._runtime.me if node == self._table.id else self._table.contacts.peer(node)

    def read(self, links: Sequence[NeighbourRegion]) -> list[Claim] | None:
        """Return claims as they were told; None where they are malformed."""
        claims = []
        holds = self._runtime.ring.holds
        for near in links[: LINKS_MAX + 1]:
            region = self.read_region(near.region, near.epoch)
            if region is None or not holds(near.peer.id) or not near.peer.address:
                return None
            claims.append(Claim(region, near.epoch, near.peer.id))
        return None if len(claims) > LINKS_MAX else claims

    def read_region(self, data: bytes, epoch: int) -> Region | None:
        """Return a region that is claimed in an epoch; None where it is malformed."""
        return unpacked(data, self._table.dimensions) if abs(epoch) < EPOCH_MAX else None

    def learn(self, links: Iterable[NeighbourRegion]) -> None:
        """Learn the peers of links, once these are read."""
        for near in links:
            self._table.contacts.learn(near.peer)

    def _learn_standby_peers(self, standby_peers: Sequence[Peer]) -> tuple[bytes, ...]:
        well = [
            peer for peer in standby_peers[:STANDBY_PEERS_MAX] if self._runtime.ring.holds(peer.id) and peer.address
        ]
        for peer in well:
            self._table.contacts.learn(peer)
        return tuple(peer.id for peer in well)

    def on_heartbeat(self, source: Peer, message: Heartbeat) -> None:
        """Take in what another node hosts, and answer where it asks or does not know this node's links."""
        if self._is_known(source.id, message):
            self.accept_life(source, message.life)
            self._acked[source.id] = message.seen
            return
        read = self._read(source, message)
        if read is None:
            self._runtime.observe("hypercube_malformed")
            return
        claims, links = read
        if not self.accept_life(source, message.life):
            return
        table = self._table
        old = table.peer_states.get(source.id)
        if old is not None and not old.hearsay and old.version > message.version:
            self._runtime.observe("hypercube_late")
            return
        if old is not None and old.hearsay and not message.pieces:
            self._drop_peer_state(source.id, left=False)  # it has begun anew before it was ever heard
            old = None
        self._acked[source.id] = message.seen
        self._update_standbys(source, message)
        seen = message.version
        if links is not None:
            self.learn(message.links or ())
        if self._is_relevant(source.id, claims) and (
            old is not None or len(table.peer_states) < self._settings.known_max
        ):
            state = PeerState(message.life, message.version, claims, message.standby_count)
            if links is not None:
                state.links, state.seen, state.standby_peers = (
                    tuple(links),
                    seen,
                    self._learn_standby_peers(message.standby_peers),
                )
            elif old is not None:
                state.links, state.seen, state.standby_peers = old.links, old.seen, old.standby_peers
            seen = state.seen
            table.peer_states[source.id] = state
            if old is None or old.claims != claims or old.standby_count != message.standby_count:
                table.invalidate()
        elif old is not None:
            del table.peer_states[source.id]
            table.invalidate()
        weaker = self._cede(claims)
        self._inform_rivals(claims)
        for claim in links or ():
            if claim.node not in table.peer_states:
                self.hear_of(claim)
        table.refresh()
        if message.asks or message.seen != table.version:
            self._send_heartbeat(source, asks=False, seen=seen)
        elif weaker:
            self.greet(source)

    def _is_known(self, node: bytes, message: Heartbeat) -> bool:
        """Return whether a heartbeat says only what is known, and needs no answer, as nearly all do."""
        table = self._table
        state = table.peer_states.get(node)
        if state is None or message.asks or message.links is not None or message.seen != table.version:
            return False
        if (state.life, state.version, state.seen) != (message.life, message.version, message.version):
            return False
        return bool(message.pieces) and not any(
            overlap(p, claim.region) for p in table.pieces for claim in state.claims
        )

    def _read(self, source: Peer, message: Heartbeat) -> tuple[tuple[Claim, ...], list[Claim] | None] | None:
        """Return the claims and the links of a heartbeat; None where it is malformed."""
        links = None if message.links is None else self.read(message.links)
        if (links is None) != (message.links is None) or len(message.pieces) > PIECES_MAX or message.standby_count < 0:
            return None
        claims = []
        for held in message.pieces:
            region = self.read_region(held.region, held.epoch)
            if region is None or (held.reserved_for and not self._runtime.ring.holds(held.reserved_for)):
                return None
            claims.append(Claim(region, held.epoch, source.id, held.reserved_for))
        return tuple(claims), links

    def _update_standbys(self, source: Peer, message: Heartbeat) -> None:
        """Update the standbys here, and this node's sponsor, by a heartbeat."""
        table = self._table
        here = message.sponsor == table.id and not message.pieces
        if not here and table.standbys.pop(source.id, None) is not None:
            table.invalidate()
        if not message.pieces and source.id not in table.standbys and (here or not message.sponsor):
            self.overlay.on_placeless(source, message.life, here)
        if source.id == table.sponsor and not message.pieces:
            table.sponsor = None
            self.mark_changed()

    def _inform_rivals(self, claims: Sequence[Claim]) -> None:
        """Send those that claim the same regions this node's links, which say who has them."""
        table = self._table
        for node, state in list(table.peer_states.items()):
            for claim in claims:
                if node != claim.node and any(overlap(claim.region, each.region) for each in state.claims):
                    self._acked.pop(node, None)
                    peer = table.contacts.peer(node)
                    if peer is not None:
                        self.greet(peer)
                    break

    # -- lives ---------------------------------------------------------------------------------------------------------

    def accept_life(self, peer: Peer, life: Life) -> bool:
        """Note the life in which a node speaks; return whether the message counts.

        A message of an earlier life is late, or from a node that has lost its disk: that where the later life has been
        silent for long.
        """
        table, now = self._table, self._runtime.now
        known, at = self._heard.get(peer.id, (life, now))
        if life < known and now - at < self._settings.silent_us:
            self._runtime.observe("hypercube_former_life")
            return False
        self._heard[peer.id] = (life, now)
        table.contacts.heard(peer)
        self._failure_detector.drop(peer.id)
        state = table.peer_states.get(peer.id)
        if state is not None and not state.hearsay and state.life != life:
            self._drop_peer_state(peer.id, left=False)
            if table.standbys.pop(peer.id, None) is not None:
                table.invalidate()
        return True

    def _drop_peer_state(self, node: bytes, left: bool) -> None:
        """Forget a node that is dead or has begun anew, and orphan its regions."""
        state = self._table.peer_states.pop(node, None)
        self._acked.pop(node, None)
        if state is not None:
            self._table.invalidate()
            self._takeover.orphan_regions(state, left)

    def on_leaving(self, source: Peer, message: HypercubeLeaving) -> None:
        """Drop a node that has left."""
        known, _ = self._heard.get(source.id, (message.life, 0))
        if known != message.life and known != NO_LIFE:
            return
        self._table.contacts.suspect(source, self._runtime.now)
        self._drop_node(source.id, left=True)

    # -- the dead ------------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer) -> None:
        """Suspect a peer that was found silent; it is asked, unless it was just now."""
        self._table.contacts.suspect(peer, self._runtime.now)
        if peer.id in self._partners():
            self._failure_detector.reported(peer.id)
        self.finish_step()

    def ask(self, node: bytes) -> None:
        """Ask a node whether it lives."""
        self.send_heartbeat(node, asks=True)

    def declare_dead(self, node: bytes) -> None:
        """Take a node for dead that did not answer."""
        peer = self._table.contacts.peer(node)
        if peer is not None:
            self._table.contacts.suspect(peer, self._runtime.now)
        self._drop_node(node, left=False)

    def _drop_node(self, node: bytes, left: bool) -> None:
        table = self._table
        self._failure_detector.drop(node)
        self._drop_peer_state(node, left)
        if table.standbys.pop(node, None) is not None:
            table.invalidate()
        if table.sponsor == node:
            table.sponsor = None
            table.invalidate()

    def find_host(self, point: int) -> None:
        """Look up the host of an id, and greet it."""
        self.overlay.find_host(point, self.greet)

    # -- in every period -----------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Send heartbeats, ask silent neighbours, and look for missing hosts."""
        table, now = self._table, self._runtime.now
        self._forget()
        self._refresh_rivals()
        for region, piece in table.pieces.items():
            if piece.reserved_for and now >= piece.until:
                table.pieces[region] = msgspec.structs.replace(piece, reserved_for=b"")
                self.mark_changed()
        for node in list(self._partners()):
            if node in self._failure_detector:
                continue
            if now - self._heard.setdefault(node, (NO_LIFE, now))[1] >= self._settings.silent_us:
                self._failure_detector.start(node)
            else:
                self.send_heartbeat(node)
        self._takeover.check_holes()
        self._prune()

    def _refresh_rivals(self) -> None:
        """Tell nodes whose claims do not count here again who has what they claim, until that is resolved."""
        table = self._table
        for node, state in table.peer_states.items():
            if any(claim not in table.links for claim in state.claims if table.concerns((claim,))):
                self._acked.pop(node, None)

    def _prune(self) -> None:
        """Forget what is known of nodes that are no contacts any more."""
        table, most = self._table, 2 * self._settings.known_max
        if table.contacts.needs_pruning:
            needed = {
                *self._partners(),
                *(each.node for state in table.peer_states.values() for each in state.links),
            }
            needed.update(self._takeover.needed())
            table.contacts.prune(needed)
        for known in (self._heard, self._acked, self._greeted_at):
            if len(known) > most:
                partners = self._partners()
                for node in [node for node in known if node not in partners]:
                    known.pop(node)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert len(self._table.peer_states) <= self._settings.known_max, "words have a limit"
        self._takeover.check()
