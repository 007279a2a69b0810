"""The storage of a broker: records on disk with a sync before every promise, and a journal of what became of events."""

from meetpoint.broker.storage.database import Recovered
from meetpoint.broker.storage.folder import StoreError
from meetpoint.broker.storage.journal import JournalLine
from meetpoint.broker.storage.store import LATENCY_BOUNDS_S, Identity, Store, StoreMeasures, StoreState

__all__ = [
    "LATENCY_BOUNDS_S", "Identity", "JournalLine", "Recovered", "Store", "StoreError", "StoreMeasures", "StoreState",
]  # fmt: skip
