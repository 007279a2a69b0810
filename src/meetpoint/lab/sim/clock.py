"""Virtual time: when it begins, and how it is told."""

from __future__ import annotations

from typing import Final

from meetpoint.api.limits import SECOND_US

__all__ = ["BEGINNING", "told"]

BEGINNING: Final = 1_000 * SECOND_US
"""When a simulation begins: late enough that a clock that is behind is not before zero."""


def told(time: int | None) -> str:
    """A time as people read it: seconds from the beginning."""
    return "never" if time is None else f"{(time - BEGINNING) / SECOND_US:.6f} s"
