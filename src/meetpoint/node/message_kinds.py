"""All messages that nodes exchange whatever their overlay and scheme."""

from __future__ import annotations

from typing import Final

from meetpoint.api.messages import Message
from meetpoint.node.cluster.directory import Sync, Synced
from meetpoint.node.cluster.home_manager import Confirm, Confirmed, HomeTakenOver, TakeOverHome
from meetpoint.node.cluster.replication import (
    FetchReplicas,
    ReplicasFetched,
    ReplicasHeld,
    ReplicasReleased,
    Replicate,
    ReplicateAck,
    StoreReplica,
    StoreReplicaAck,
)
from meetpoint.node.cluster.subscription_locator import LocateSubscription, SubscriptionLocation
from meetpoint.node.home.publisher_order import Watermark, Watermarked

__all__ = ["MESSAGES"]

MESSAGES: Final[tuple[type[Message], ...]] = (
    Sync,
    Synced,
    Replicate,
    ReplicateAck,
    FetchReplicas,
    ReplicasFetched,
    ReplicasHeld,
    StoreReplica,
    StoreReplicaAck,
    ReplicasReleased,
    TakeOverHome,
    HomeTakenOver,
    Confirm,
    Confirmed,
    LocateSubscription,
    SubscriptionLocation,
    Watermark,
    Watermarked,
)
