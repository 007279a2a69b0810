"""Token buckets: how fast a client may publish for long, and how much at once.

Nothing is refused or dropped: whoever has taken more than there was is not read from until the debt is paid, and TCP
holds it up. A client's bucket outlives its connections, so that it gains nothing by connecting anew.
"""

from __future__ import annotations

from typing import Final

from meetpoint.broker.config import Limits

__all__ = ["TokenBucket", "TokenBuckets"]

PAUSE_S: Final = 0.02
"""For at least so long a client is not read from, so that it is not stopped for each event."""


class TokenBucket:
    """Fills at a rate up to a burst; a rate of 0 is no limit."""

    __slots__ = ("_at", "_burst", "_level", "_rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take some, also where there is less; how long to wait before the next."""
        if not self._rate:
            return 0.0
        self._fill(now)
        self._level -= amount
        return max(PAUSE_S, -self._level / self._rate) if self._level < 0 else 0.0

    def is_full(self, now: float) -> bool:
        """Whether nothing of it is taken."""
        self._fill(now)
        return not self._rate or self._level >= self._burst

    def _fill(self, now: float) -> None:
        self._level = min(self._burst, self._level + max(0.0, now - self._at) * self._rate)
        self._at = now


class TokenBuckets:
    """Those of all clients: one for events and one for their bytes each."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._of: dict[str, tuple[TokenBucket, TokenBucket]] = {}

    def take(self, client: str, size: int, now: float) -> float:
        """A client has published an event of so many bytes; how long it is not to be read from."""
        pair = self._of.get(client)
        if pair is None:
            said = self._limits
            pair = self._of[client] = (
                TokenBucket(said.publish_per_s, said.publish_burst, now),
                TokenBucket(said.publish_bytes_per_s, said.publish_bytes_burst, now),
            )
        return max(pair[0].take(1, now), pair[1].take(size, now))

    def look(self, now: float) -> None:
        """Called now and then: who has published nothing for a while is forgotten."""
        for client in [client for client, (one, two) in self._of.items() if one.is_full(now) and two.is_full(now)]:
            del self._of[client]

    def __len__(self) -> int:
        return len(self._of)
