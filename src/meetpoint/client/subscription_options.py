"""What a user says of a subscription beside its filter, checked and as brokers want it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from meetpoint.client.errors import NetworkError

__all__ = ["Lifetime", "labels_of", "lifetime_us_of", "moment_us_of", "window_of"]

Lifetime: TypeAlias = timedelta | float | int | None
"""How long: a timedelta or seconds; None for ever."""

LIFETIME_US_MAX = 100 * 365 * 24 * 3600 * 1_000_000
WINDOW_MAX = 100_000


def labels_of(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Labels in order."""
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise NetworkError(f"label {name!r}: is {value!r}; labels are pairs of strings")
    return tuple(sorted(labels.items()))


def lifetime_us_of(lifetime: Lifetime) -> int | None:
    """A lifetime in microseconds."""
    if lifetime is None:
        return None
    seconds = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds * 1e6 <= LIFETIME_US_MAX:
        raise NetworkError(f"lifetime: is {lifetime!r}; give seconds above 0 or a timedelta")
    return max(1, int(seconds * 1e6))


def moment_us_of(moment: datetime | None, what: str) -> int:
    """A moment in microseconds since 1970; 0 for none."""
    if moment is None:
        return 0
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise NetworkError(f"{what}: is {moment!r}; give a datetime with a time zone, as datetime.now(UTC)")
    return max(0, round(moment.timestamp() * 1_000_000))


def window_of(window: int | None, default: int) -> int:
    """How many may be on their way."""
    if window is None:
        return default
    if type(window) is not int or not 1 <= window <= WINDOW_MAX:
        raise NetworkError(f"window: is {window!r}; give a number from 1 to {WINDOW_MAX}")
    return window
