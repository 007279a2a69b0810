"""The fast matcher: subscriptions compiled into an index that NumPy arrays and compiled loops search."""

from meetpoint.matching.index.live import Index, Pairs

__all__ = ["Index", "Pairs"]
