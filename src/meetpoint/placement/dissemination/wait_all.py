"""Waiting for several things that are done in any order."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["when_all"]


def when_all(count: int, then: Callable[[], None]) -> Callable[[], None]:
    """Return a callback to call when each of so many things is done; the last call calls `then`."""
    left = count

    def one_is_done() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            then()

    return one_is_done
