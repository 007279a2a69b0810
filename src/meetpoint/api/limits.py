"""Limits that clients and brokers share."""

from __future__ import annotations

from typing import Final

__all__ = ["EVENT_BYTES_MAX", "SAME_ID_US", "SECOND_US", "WINDOW_MAX"]

SECOND_US = 1_000_000
WINDOW_MAX = 100_000
"""How many notifications wait for their acknowledgement, whatever a subscriber says."""
EVENT_BYTES_MAX: Final = 256 << 10
"""The largest event, in bytes: a message carries it, and what else is said with it."""
SAME_ID_US: Final = 120 * SECOND_US
"""Within this time two events under one id are one."""
