"""Limits that clients and brokers share."""

from __future__ import annotations

from typing import Final

__all__ = ["EVENT_BYTES_MAX", "SAME_ID_US", "SECOND_US", "WINDOW_MAX"]

SECOND_US = 1_000_000
WINDOW_MAX = 100_000
"""The most notifications that wait for acknowledgement, even if a subscriber wants more."""
EVENT_BYTES_MAX: Final = 256 << 10
"""The size of the largest event, in bytes: it fits into a message with the other fields."""
SAME_ID_US: Final = 120 * SECOND_US
"""The dedup window: within it, two events with one id are one."""
