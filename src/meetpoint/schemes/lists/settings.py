"""What a network that runs `lists` may choose."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["ListsSettings"]


class ListsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all nodes of a network."""

    mode: Literal["coordinated", "distributed", "hybrid"] = "coordinated"
    """How what the lists say is brought together."""
    hash: Literal["plain", "order"] = "plain"
    """Where numbers lie: anywhere, or in their order."""
    schema: str = ""
    """The schema of events, as YAML; without one, attributes are undeclared."""
    first: tuple[str, ...] = ()
    """Attributes in the order of their selectivity, the most selective first; else the largest domains come first."""
    quantiles: dict[str, tuple[float, ...]] = {}
    """By attribute, values that cut its events into equal parts: then `order` keeps skewed values balanced."""
