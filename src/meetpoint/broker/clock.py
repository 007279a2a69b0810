"""A broker's clock: wall-clock microseconds since 1970 as it starts, and from then on time that never goes back.

Leases, lifetimes and timers are by this clock, so that nothing ends early or late when the machine's clock is set. What
others judge by the wall (tokens, certificates) is judged by the wall here too.
"""

from __future__ import annotations

from time import monotonic_ns, time_ns

from meetpoint.node.runtime.inputs import Instant

__all__ = ["Clock"]


class Clock:
    """One life's clock. Should the machine's clock be set, this one goes on as it was until the next start."""

    __slots__ = ("_offset_ns",)

    def __init__(self) -> None:
        self._offset_ns = time_ns() - monotonic_ns()

    def now(self) -> Instant:
        """Microseconds since 1970."""
        return Instant((monotonic_ns() + self._offset_ns) // 1000)

    @property
    def off_s(self) -> float:
        """How much more the machine's clock shows by now: it was set since, or goes wrong."""
        return (time_ns() - monotonic_ns() - self._offset_ns) / 1e9
