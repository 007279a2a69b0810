"""What a batch of events holds under one attribute, as arrays: one part for each class of values that occurs."""

from __future__ import annotations

from enum import Enum, auto

import msgspec
import numpy as np

__all__ = ["Part", "PartSort"]


class PartSort(Enum):
    """The class of the values of a part, which says what its arrays hold."""

    FLOAT = auto()
    """float64."""
    INTEGER = auto()
    """int64."""
    DECIMAL = auto()
    """int64, the value times ten to the `scale`."""
    EXACT = auto()
    """Python objects: ints beyond 64 bits, and Decimals."""
    TEXT = auto()
    """Bytes of UTF-8: each text lies between its `starts` and its `ends`."""
    INSTANT = auto()
    """int64, microseconds since 1970."""
    BOOLEAN = auto()
    """bool."""
    OTHER = auto()
    """bool: there, but of no kind, such as a nested object."""


class Part(msgspec.Struct, frozen=True):
    """The values of one attribute that are of one class, for a batch of events. What is not valid means nothing."""

    sort: PartSort
    valid: np.ndarray | None
    """bool for each event; None: every event has a value of this part."""
    values: np.ndarray
    starts: np.ndarray | None = None
    """TEXT: where each text begins in `values`."""
    ends: np.ndarray | None = None
    """TEXT: where it ends."""
    scale: int = 0
    """DECIMAL: digits after the point."""
