"""The peers that a node knows, those it suspects, and the healing of networks that were torn apart.

The rules of an overlay speak of ids; `Contacts` turns an id into a peer to send to. An id without an address is an
artificial entry of a successor list, or a node that nobody has told about: this node treats it as nobody.

A suspicion is against one incarnation: news of a later one ends it, as does any message from the peer itself. A suspect
goes to the *passive list*: peers outside the network as this node sees it.

In some periods `PartitionHealing` asks one of the passive list for the owner of a key of this node's own, as its
network sees it. If that is a node that this one would not have named, there are two networks, and the two nodes greet
each other. The overlay does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from meetpoint.api.ids import Peer
from meetpoint.node.runtime.inputs import Instant

if TYPE_CHECKING:
    from meetpoint.api.ids import Key
    from meetpoint.node.runtime.runtime import Runtime
    from meetpoint.overlays.routing import Router

__all__ = ["Contacts", "PartitionHealing"]


class Contacts:
    """The address book of one node."""

    __slots__ = ("_known", "_known_max", "_me", "_passive", "_passive_max", "_urgent", "suspects")

    def __init__(self, me: bytes, known_max: int, passive_max: int) -> None:
        self._me = me
        self._known_max = known_max
        self._passive_max = passive_max
        self._known: dict[bytes, Peer] = {}
        self._urgent: dict[bytes, Peer] = {}  # of the passive list, who is to be asked first
        self._passive: dict[bytes, Peer] = {}  # and the others, in the order of their turns
        self.suspects: dict[bytes, tuple[int, Instant]] = {}
        """Suspected ids, with the incarnation and since when; read only."""

    def learn(self, peer: Peer) -> None:
        """Note a peer that someone told about; the latest incarnation is the one that counts."""
        known = self._known.get(peer.id)
        if known is not None and known.incarnation >= peer.incarnation:
            return
        if peer.address and peer.id != self._me:
            self._known[peer.id] = peer
            suspicion = self.suspects.get(peer.id)
            if suspicion is not None and suspicion[0] < peer.incarnation:
                del self.suspects[peer.id]

    def peer(self, node: bytes) -> Peer | None:
        """Return the peer of an id, suspected or not; None is nobody."""
        return self._known.get(node)

    def live(self, node: bytes) -> Peer | None:
        """Return the peer of an id, unless it is suspected."""
        return None if node in self.suspects else self._known.get(node)

    def askable(self, node: bytes, now: Instant, suspicion_us: int) -> Peer | None:
        """Return the peer of an id, unless it was found dead a short while ago."""
        suspicion = self.suspects.get(node)
        return None if suspicion is not None and now - suspicion[1] < suspicion_us else self._known.get(node)

    # -- suspicion -----------------------------------------------------------------------------------------------------

    def suspect(self, peer: Peer, now: Instant) -> bool:
        """Suspect a peer that was silent or has left; return whether that is news."""
        if peer.id == self._me:
            return False
        known = self._known.get(peer.id)
        if known is not None and known.incarnation > peer.incarnation:
            return False
        self.remember(peer)
        news = peer.id not in self.suspects
        self.suspects[peer.id] = (peer.incarnation, now)
        return news

    def heard(self, peer: Peer) -> bool:
        """Clear the suspicion of a peer that spoke as a member; return whether there was one.

        It stays in the passive list, as its network may be another.
        """
        self.learn(peer)
        suspicion = self.suspects.get(peer.id)
        if suspicion is None or suspicion[0] > peer.incarnation:
            return False
        del self.suspects[peer.id]
        return True

    # -- the passive list ----------------------------------------------------------------------------------------------

    def remember(self, peer: Peer, urgent: bool = True) -> None:
        """Put a peer into the passive list, urgent ones to be asked first; a full list drops its oldest entry."""
        if peer.id == self._me or not peer.address or peer.id in self._urgent or peer.id in self._passive:
            return
        while len(self._urgent) + len(self._passive) >= self._passive_max:
            turn = self._passive or self._urgent
            del turn[next(iter(turn))]
        (self._urgent if urgent else self._passive)[peer.id] = peer

    def remember_former(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list; of more than it holds, some at equal distances."""
        for peer in peers[:: max(1, -(-len(peers) // self._passive_max))]:
            self.learn(peer)
            self.remember(peer, urgent=False)

    def forget_unsuspected(self) -> None:
        """Drop the peers from the passive list that were never suspected: this network seems to be the only one."""
        self._passive = {node: peer for node, peer in self._passive.items() if node in self.suspects}

    def next_passive(self) -> Peer | None:
        """Return the next peer of the passive list to ask: urgent ones first, then all in rotation."""
        turn = self._urgent or self._passive
        if not turn:
            return None
        node = next(iter(turn))
        peer = turn.pop(node)
        self._passive[node] = peer
        return self._known.get(node, peer)

    def passive_sample(self, count: int) -> tuple[Peer, ...]:
        """Return the peers of the passive list that are next in rotation."""
        return tuple(islice(chain(self._urgent.values(), self._passive.values()), count))

    def forget_passive(self, node: bytes) -> None:
        """Drop a peer from the passive list: it is in this network."""
        self._urgent.pop(node, None)
        self._passive.pop(node, None)

    @property
    def passive(self) -> int:
        """Length of the passive list."""
        return len(self._urgent) + len(self._passive)

    # -- limits --------------------------------------------------------------------------------------------------------

    @property
    def needs_pruning(self) -> bool:
        """Whether it is time to prune."""
        return len(self._known) > self._known_max or len(self.suspects) > self._known_max

    def prune(self, needed: Collection[bytes]) -> None:
        """Forget the peers that no pointer names, where there are too many."""
        if len(self._known) > self._known_max:
            self._known = {node: peer for node, peer in self._known.items() if node in needed}
        if len(self.suspects) > self._known_max:
            self.suspects = {node: what for node, what in self.suspects.items() if node in needed}

    def check(self) -> None:
        """Assert the limits; between two prunings a little more may have come."""
        assert self.passive <= self._passive_max, "the passive list has a limit"
        assert self._me not in self._known, "a node does not write to itself"
        assert self._me not in self.suspects, "a node does not suspect itself"


class HealingSettings(Protocol):
    """The settings of an overlay that healing needs."""

    @property
    def merge_share(self) -> float:
        """Share of the periods in which a peer of the passive list is asked."""

    @property
    def agreed_max(self) -> int:
        """Number of agreeing answers in a row after which peers that were never suspected are left in peace."""


class Greeter(Protocol):
    """An overlay that can introduce this node to another."""

    def greet(self, peer: Peer) -> None:
        """Tell a node about this one, and ask for its state."""


class PartitionHealing:
    """The questions of one node to peers outside its network."""

    __slots__ = ("_agreed", "_contacts", "_greeter", "_router", "_runtime", "_settings")

    def __init__(
        self, runtime: Runtime, contacts: Contacts, router: Router, greeter: Greeter, settings: HealingSettings
    ) -> None:
        self._runtime = runtime
        self._contacts = contacts
        self._router = router
        self._greeter = greeter
        self._settings = settings
        self._agreed = 0

    # -- what an overlay adds ------------------------------------------------------------------------------------------

    def _key(self) -> Key | None:
        """Return the key to ask for; None where this node is in no network."""
        raise NotImplementedError

    def _expects(self, found: Peer) -> bool:
        """Return whether a peer is the owner of the key as this node sees it."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------------------

    def remember(self, peers: Sequence[Peer]) -> None:
        """Put peers from former times into the passive list, to be asked in rotation."""
        self._agreed = 0
        self._contacts.remember_former(peers)

    def tick(self) -> None:
        """Ask one peer of the passive list, in some of the periods."""
        key = self._key()
        if key is None or self._runtime.random.random() >= self._settings.merge_share:
            return
        peer = self._contacts.next_passive()
        if peer is not None:
            self._router.lookup_via(peer, key, lambda found, hops: self._found(peer, found))

    def _found(self, asked: Peer, found: Peer | None) -> None:
        if found is None:
            return
        if self._expects(found):
            self._contacts.forget_passive(asked.id)
            self._agreed += 1
            if self._agreed >= self._settings.agreed_max:
                self._contacts.forget_unsuspected()
        else:
            self._agreed = 0
            self._contacts.learn(found)
            self._greeter.greet(found)
