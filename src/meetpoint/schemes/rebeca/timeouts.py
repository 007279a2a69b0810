"""How long those wait who hand something down the graph: each a little less than whoever handed it to it."""

from __future__ import annotations

from typing import Final

from meetpoint.api.limits import SECOND_US

__all__ = ["HOPS_MAX", "STEP_US", "WITHIN_US"]

WITHIN_US: Final = 3 * SECOND_US // 2
"""How long whoever begins waits for the graph."""
STEP_US: Final = SECOND_US // 10
"""How much sooner whoever hands on gives up waiting than whoever handed it to it."""
HOPS_MAX: Final = 1_000
