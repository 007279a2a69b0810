"""The kinds of networks there are, as the simulator sees them: how nodes are made, and each overlay's invariants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from meetpoint.catalog import NetworkConfig, make_codec, make_node
from meetpoint.overlays.chord import invariant
from meetpoint.protocol.messages import Peer
from meetpoint.protocol.ring import Ring
from meetpoint.sim.checkers import first_from
from meetpoint.sim.engine import SimulatedNode

__all__ = ["ChordFamily", "family_of"]


class ChordFamily:
    """Any scheme on Chord."""

    def __init__(self, config: NetworkConfig) -> None:
        self.config = config
        self.codec = make_codec()
        self.ring = Ring(config.bits)
        self._length = config.chord.successors
        self.base = 0
        """How many principals there must be; as many as the founders make possible."""

    def make(self, peer: Peer, seed: int) -> SimulatedNode:
        """A new node."""
        return make_node(self.config, peer, seed, self.codec)

    def founders(self, count: int) -> None:
        """So many nodes begin the network at once."""
        self.base = self._length + 1 if count > self._length else 0

    def is_member(self, view: Any) -> bool:
        """Whether a node with such a view has become a member and still is one."""
        return bool(view.joined)

    def is_ready(self, node: Any) -> bool:
        """Whether a node serves clients."""
        return bool(node.state == "ready")

    def viewing(self, node: Any) -> Callable[[], object]:
        """What gives the node's pointers: the same object until they change."""
        view: Callable[[], object] = node.overlay.view
        return view

    def differ(self, old: Any, new: Any) -> bool:
        """The invariant is about membership and successor lists."""
        return bool(old.succ != new.succ or old.joined != new.joined)

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        """What is wrong with the ring."""
        return invariant.broken(views, min(self.base, len(views)))

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Whether these, if they were all that is left, would still be a ring, with as many principals as proven.

        Each must keep one successor more than the proof asks for: an answer on its way may carry an older list.
        """
        spare = min(2, len(views) - 1)
        return (
            len(views) > max(self.base, 1)
            and self.broken(views) is None
            and all(sum(node in views for node in view.succ) >= spare for view in views.values())
        )

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        """Which pointer is not ideal."""
        return invariant.departures(views, self._length)

    def responsible(self, members: Sequence[bytes], key: bytes) -> bytes:
        """Who has a key."""
        return first_from(members, key)


def family_of(config: NetworkConfig) -> ChordFamily:
    """How the networks of a configuration are simulated."""
    assert config.overlay == "chord", f"nothing is known here of the overlay {config.overlay}"
    return ChordFamily(config)
