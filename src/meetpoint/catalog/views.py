"""Views of a node for drawing: its overlay links, its regions, and its part of paper D's tree."""

from __future__ import annotations

from collections.abc import Iterator

from meetpoint.node.overlay import OverlayView
from meetpoint.node.scheme import Scheme
from meetpoint.overlays.chord.routing import ChordView
from meetpoint.overlays.hypercube.routing import HypercubeView
from meetpoint.overlays.pastry.routing import PastryView
from meetpoint.schemes.dmm import Dmm

__all__ = ["links_of", "regions_of", "tree_of"]


def links_of(view: OverlayView) -> tuple[tuple[bytes, str], ...]:
    """Return the nodes in a node's overlay tables, each once, with its closest kind of link."""
    found: dict[bytes, str] = {}
    if view.joined:
        for node, kind in _links(view):
            found.setdefault(node, kind)
    return tuple(found.items())


def _links(view: OverlayView) -> Iterator[tuple[bytes, str]]:
    if isinstance(view, ChordView):
        yield from ((node, "successor") for node in view.succ[:1] if node != view.id)
        if view.prdc != view.id:
            yield view.prdc, "predecessor"
        yield from ((node, "successor") for node in view.succ[1:] if node != view.id)
        yield from ((node, "finger") for node in view.fingers if node != view.id)
    elif isinstance(view, PastryView):
        yield from ((node, "leaf") for node in view.leaves)
        yield from ((node, "route") for node in view.rows)
    elif isinstance(view, HypercubeView):
        yield from ((node, "neighbour") for _, node in view.links if node != view.id)
        if view.sponsor is not None:
            yield view.sponsor, "neighbour"


def regions_of(view: OverlayView) -> tuple[str, ...]:
    """Return the common last bits of each region of a hypercube's node; nothing for other overlays."""
    if not isinstance(view, HypercubeView):
        return ()
    return tuple(f"{region.bits:0{region.length}b}" if region.length else "" for region, _ in view.pieces)


def tree_of(scheme: Scheme) -> list[tuple[str, int, bool]] | None:
    """Return the regions of paper D's tree at this node: code, number of entries, whether it is split."""
    return scheme.tree() if isinstance(scheme, Dmm) else None
