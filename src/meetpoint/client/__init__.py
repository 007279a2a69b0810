"""The client: publish and subscribe from Python, with asyncio (`connect`) or without (`connect_sync`)."""

from meetpoint.api.ids import EventId
from meetpoint.client.delivery import Delivery
from meetpoint.client.errors import ConnectionLostError, NetworkError, RefusedError
from meetpoint.client.network import Network, connect
from meetpoint.client.subscription import Subscription
from meetpoint.client.sync import SyncDelivery, SyncNetwork, SyncSubscription, connect_sync

__all__ = [
    "ConnectionLostError",
    "Delivery",
    "EventId",
    "Network",
    "NetworkError",
    "RefusedError",
    "Subscription",
    "SyncDelivery",
    "SyncNetwork",
    "SyncSubscription",
    "connect",
    "connect_sync",
]
