"""A scheme and its options in one word: as everywhere else (`catalog.spelling`)."""

from __future__ import annotations

from meetpoint.catalog.spelling import network_config, read_options, read_scheme

__all__ = ["network_config", "read_options", "read_scheme"]
