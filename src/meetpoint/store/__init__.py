"""What a broker keeps: records on disk with a sync before every promise, and a journal of what became of events."""

from meetpoint.store.errors import StoreError
from meetpoint.store.journal import JournalLine
from meetpoint.store.recovery import Recovered
from meetpoint.store.store import LATENCY_BOUNDS_S, Identity, Store, StoreMeasures, StoreState

__all__ = [
    "LATENCY_BOUNDS_S",
    "Identity",
    "JournalLine",
    "Recovered",
    "Store",
    "StoreError",
    "StoreMeasures",
    "StoreState",
]
