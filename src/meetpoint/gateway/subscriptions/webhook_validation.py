"""Whether a sink wants events, and how many: the abuse protection of CloudEvents' web hooks.

Whoever may subscribe names an address, which need not be its own. So the sink is asked first, by OPTIONS with the
header WebHook-Request-Origin; one that agrees answers WebHook-Allowed-Origin with that name or `*`, and may say in
WebHook-Allowed-Rate how many requests a minute it takes. One that names others wants nothing. Most sinks know nothing
of this: `ask` sends to them all the same, slowly where they may be strangers', `require` does not.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "ORIGIN", "UNASKED", "UNREACHED_S", "Agreed", "Consent", "Target", "Turns", "read_agreement", "read_retry_after",
]  # fmt: skip

Consent: TypeAlias = Literal["require", "ask", "off"]
"""Whether sinks must agree, are asked, or are not."""

ORIGIN: Final = "WebHook-Request-Origin"
ALLOWED_ORIGIN: Final = "WebHook-Allowed-Origin"
ALLOWED_RATE: Final = "WebHook-Allowed-Rate"
GONE: Final = 410
GRANTED_S: Final = 86_400.0
"""A sink that agreed is asked again after a day,"""
OTHERWISE_S: Final = 600.0
"""one that did not after ten minutes,"""
UNREACHED_S: Final = 60.0
"""and one that could not be reached after one."""
RETRY_AFTER_MAX_S: Final = 600.0
"""A sink that wants to be left alone for longer is tried after this."""
MINUTE_S: Final = 60.0
_RATE: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class Agreed(NamedTuple):
    """What a sink said."""

    state: Literal["granted", "unknown", "refused", "gone"]
    per_minute: int | None = None
    """How many requests it takes; None: as many as come."""
    reason: str = ""
    """Why it is not granted."""
    lasts_s: float = OTHERWISE_S


UNASKED: Final = Agreed("granted", lasts_s=float("inf"))
"""What counts where nobody is asked."""


def read_agreement(status: int, headers: Mapping[str, str], origin: str) -> Agreed:
    """What the answer to the question says."""
    if status == GONE:
        return Agreed("gone", reason="it answered 410 to OPTIONS")
    allowed = headers.get(ALLOWED_ORIGIN, "").strip()
    if not 200 <= status < 300 or not allowed:
        said = f"{status} to OPTIONS" if not 200 <= status < 300 else f"OPTIONS without {ALLOWED_ORIGIN}"
        return Agreed("unknown", reason=f"it answered {said}")
    if allowed != "*" and allowed.lower() != origin.lower():
        return Agreed("refused", reason=f"it wants events of {allowed[:100]}, and these are of {origin}")
    rate = headers.get(ALLOWED_RATE, "*").strip()
    if rate == "*":
        return Agreed("granted", lasts_s=GRANTED_S)
    if not _RATE.fullmatch(rate):
        return Agreed("unknown", reason=f"its {ALLOWED_RATE} is no number: {rate[:20]}")
    if not int(rate):
        return Agreed("refused", reason=f"its {ALLOWED_RATE} is 0")
    return Agreed("granted", int(rate), lasts_s=GRANTED_S)


def read_retry_after(text: str | None, now: float) -> float | None:
    """How long a sink wants to be left alone, of the header Retry-After, within bounds; None where it does not say."""
    if text is None:
        return None
    said = text.strip()
    if _RATE.fullmatch(said):
        return min(float(said), RETRY_AFTER_MAX_S)
    try:
        at = parsedate_to_datetime(said).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, at - now), RETRY_AFTER_MAX_S)


class Turns:
    """Some requests a minute and never more: a sixth of them at once, the others spread."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = time.monotonic if clock is None else clock
        self._next = 0.0
        self._not_before = 0.0

    def wait_s(self, per_minute: int | None) -> float:
        """How long until the next may go."""
        now = self._clock()
        wait = self._not_before - now
        if per_minute is not None:
            every_s, at_once = _spread(per_minute)
            wait = max(wait, self._next - (at_once - 1) * every_s - now)
        return max(0.0, wait)

    def take(self, per_minute: int | None) -> None:
        """One goes, when its time has come."""
        if per_minute is not None:
            self._next = max(self._clock(), self._next) + _spread(per_minute)[0]

    def rest(self, seconds: float) -> None:
        """None goes for so long."""
        self._not_before = max(self._not_before, self._clock() + seconds)


def _spread(per_minute: int) -> tuple[float, int]:
    """After how long there is one more, and how many may go at once: so that no minute has more of them."""
    at_once = max(1, per_minute // 6)
    return MINUTE_S / (per_minute - at_once + 1), at_once


class Target:
    """A sink, as all webhooks that go there share it."""

    def __init__(
        self, ask: Callable[[], Awaitable[Agreed]], strangers: Turns, strangers_per_minute: int | None
    ) -> None:
        self._ask = ask
        self._strangers = strangers
        """The turns of all sinks at its host that did not agree, whose paths somebody may have made up."""
        self._strangers_per_minute = strangers_per_minute
        self._turns = Turns()
        self._asking = asyncio.Lock()
        self._said: Agreed | None = None
        self._until = 0.0

    @property
    def is_due(self) -> bool:
        """Whether it is to be asked."""
        return self._said is None or time.monotonic() >= self._until

    @property
    def due_s(self) -> float:
        """In how long it is to be asked again."""
        return max(0.0, self._until - time.monotonic())

    @property
    def per_minute(self) -> int | None:
        """How many requests it gets at most."""
        if self._said is None:
            return None
        return self._said.per_minute if self._said.state == "granted" else self._strangers_per_minute

    def ask_again(self) -> None:
        """What it said counts until it says something else."""
        self._until = 0.0

    async def agreed(self) -> Agreed:
        """What it says; it is asked where that is to be done. One that agreed and is away now has agreed."""
        async with self._asking:
            if self._said is None or self.is_due:
                said = await self._ask()
                is_kept = said.state == "unknown" and said.lasts_s == UNREACHED_S and self._said is not None
                if self._said is None or not is_kept:
                    self._said = said
                self._until = time.monotonic() + said.lasts_s
            return self._said

    def wait_s(self) -> float:
        """How long until the next request may go there."""
        if self._is_stranger:
            return max(self._turns.wait_s(None), self._strangers.wait_s(self.per_minute))
        return self._turns.wait_s(self.per_minute)

    def take(self) -> None:
        """A request goes there, when its time has come."""
        (self._strangers if self._is_stranger else self._turns).take(self.per_minute)

    def rest(self, seconds: float) -> None:
        """None goes there for so long."""
        self._turns.rest(seconds)

    @property
    def _is_stranger(self) -> bool:
        return self._said is not None and self._said.state != "granted"
