"""The fast matcher: subscriptions compiled into an index that NumPy arrays and compiled loops search."""

from meetpoint.matching.index.events import JsonEvents
from meetpoint.matching.index.live import Index
from meetpoint.matching.index.state import Pairs

__all__ = ["Index", "JsonEvents", "Pairs"]
