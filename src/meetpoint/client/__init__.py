"""The client: publish and subscribe from Python, with asyncio (`connect`) or without (`connect_sync`)."""

from meetpoint.client.delivered import Delivered
from meetpoint.client.errors import LinkLostError, NetworkError, RefusedError
from meetpoint.client.network import Network, connect
from meetpoint.client.subscription import Subscription
from meetpoint.client.sync import SyncDelivered, SyncNetwork, SyncSubscription, connect_sync

__all__ = [
    "Delivered",
    "LinkLostError",
    "Network",
    "NetworkError",
    "RefusedError",
    "Subscription",
    "SyncDelivered",
    "SyncNetwork",
    "SyncSubscription",
    "connect",
    "connect_sync",
]
