"""/api/network: all brokers, whom their tables link, what each holds of a tree of regions, and how busy each is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from meetpoint.api.client_messages import BrokerStatus, Status, View, ViewIs
from meetpoint.api.ids import Peer
from meetpoint.client.network import Network
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.observing.shapes import BrokerIs, LinkIs, NetworkIs, TreeIs

__all__ = ["draw"]

PATIENCE_S: Final = 1.5
GIVE_UP_S: Final = 5.0
SILENT: Final = "silent"
_NUMBERS: Final[tuple[str, ...]] = (
    "subscriptions", "homes", "queued_events", "unsettled_events", "clients", "peers_in", "peers_out", "copies",
    "events_published", "events_taken", "events_matched", "deliveries", "dead_letters", "messages_in", "messages_out",
    "refusals", "store_bytes",
)  # fmt: skip


async def draw(net: Network, rates: Mapping[bytes, float]) -> NetworkIs:
    """The network as it is now; `rates` says how busy brokers are."""
    nobody = ApiError(503, "network", "no broker answers; see: meetpoint top", headers={"Retry-After": "1"})
    try:
        async with asyncio.timeout(GIVE_UP_S):
            views, status = await asyncio.gather(
                net.ask_all(lambda peer: View(), ViewIs, PATIENCE_S),
                net.ask_all(lambda peer: Status(), BrokerStatus, PATIENCE_S),
            )
    except TimeoutError:
        raise nobody from None
    first = next((view for view in views.values() if view is not None), None)
    if first is None:
        raise nobody
    known = {bytes(peer.id) for peer in views}
    load = _loads(rates, status)
    brokers = [
        _broker(peer, view, status.get(peer), known, load.get(peer.id, 0.0))
        for peer, view in sorted(views.items(), key=lambda each: each[0].id)
    ]
    tree = [
        TreeIs(part.code, peer.id.hex(), part.entries, part.is_split)
        for peer, view in views.items()
        if view is not None
        for part in view.tree or ()
    ]
    has_tree = any(view is not None and view.tree is not None for view in views.values())
    tree.sort(key=lambda part: (len(part.code), part.code))
    return NetworkIs(first.network, first.scheme, first.overlay, brokers, False, tree if has_tree else None)


def _broker(peer: Peer, view: ViewIs | None, status: BrokerStatus | None, known: set[bytes], load: float) -> BrokerIs:
    place = int.from_bytes(peer.id, "big") / 256 ** len(peer.id)
    numbers = {} if status is None else {name: status.numbers[name] for name in _NUMBERS if name in status.numbers}
    if view is None:
        return BrokerIs(peer.id.hex(), peer.address, SILENT, place, 0.0, numbers, [], [], "it does not answer")
    links = [LinkIs(node.hex(), kind) for node, kind in view.links if node in known]
    return BrokerIs(peer.id.hex(), peer.address, view.state, place, load, numbers, links, list(view.regions))


def _loads(rates: Mapping[bytes, float], status: Mapping[Peer, BrokerStatus | None]) -> dict[bytes, float]:
    """By broker, how busy it is compared with the busiest."""
    weights = {bytes(peer.id): rates.get(peer.id, 0.0) for peer in status}
    if not any(weights.values()):
        weights = {
            bytes(peer.id): 0.0 if told is None else told.numbers.get("subscriptions", 0.0)
            for peer, told in status.items()
        }
    most = max(weights.values(), default=0.0)
    return {node: round(weight / most, 4) if most else 0.0 for node, weight in weights.items()}
