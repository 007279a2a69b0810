"""Sinks of webhooks: which addresses they may have, whether they agreed to get events, and how many.

Addresses. A subscriber names an address to which the gateway then sends requests: it must not lead to what only the
gateway can reach. So a sink is https, at an address of the public internet. A name is resolved for each connection, and
the connection goes to the very address that was checked: a name that leads elsewhere a moment later gains nothing.
Redirects are not followed. For private networks, `private_sinks` lifts both rules.

Consent (the abuse protection of CloudEvents' web hooks). A subscriber need not own the address that it names. So the
sink is asked first, by OPTIONS with the header WebHook-Request-Origin; a sink that agrees answers WebHook-Allowed-
Origin with that name or `*`, and may limit requests a minute by WebHook-Allowed-Rate. A sink that names other origins
wants nothing. Most sinks do not know the question: `ask` sends to them all the same, slowly where they may be
strangers', `require` does not.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from aiohttp import abc

from meetpoint.gateway.http.errors import ApiError

__all__ = [
    "ORIGIN",
    "UNASKED",
    "UNREACHED_S",
    "ConsentAnswer",
    "RateLimiter",
    "SinkResolver",
    "SinkState",
    "check_sink",
    "is_public",
    "read_consent",
    "read_retry_after",
]


# -- addresses ---------------------------------------------------------------------------------------------------------


URL_MAX: Final = 2000
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether an IP address is public, also where it only wraps another one."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if inner is None and ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast and not ip.is_reserved


def check_sink(url: str, private_ok: bool) -> str:
    """Return a url that may be a sink, as far as that shows without resolving names; else raise ApiError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _bad("is no URL") from None
    if len(url) > URL_MAX or not url.isascii() or any(c <= " " for c in url):
        raise _bad(f"is a URL of printable ASCII, at most {URL_MAX:,} characters")
    if parts.scheme != "https" and not (private_ok and parts.scheme == "http"):
        raise _bad("begins with https://")
    if not host or port == 0:
        raise _bad("names a host")
    if parts.username is not None or parts.password is not None:
        raise _bad("has no user and password in it")
    if parts.fragment:
        raise _bad("has no fragment")
    if private_ok:
        return url
    # A host that is an address is checked here: the resolver is never asked for it.
    try:
        ipaddress.ip_address(host)
    except ValueError:
        if host.lower() == "localhost" or host.lower().endswith((".localhost", ".local", ".internal")):
            raise _bad("is not on this machine or in its network") from None
        return url
    if not is_public(host):
        raise _bad("is at an address of the public internet")
    return url


def _bad(rule: str) -> ApiError:
    return ApiError(422, "sink", f"sink: see that it {rule}")


class SinkResolver(abc.AbstractResolver):
    """Resolves names to addresses that a sink may have."""

    def __init__(self, private_ok: bool) -> None:
        self._private_ok = private_ok

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[abc.ResolveResult]:
        """Return all addresses of a name; raise OSError where one of them is not allowed."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM)
        results = []
        for family_, _, proto, _, target in found:
            address = str(target[0])
            if not self._private_ok and not is_public(address):
                raise OSError(None, f"{host} leads to an address that is not of the public internet")
            results.append(
                abc.ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=family_,
                    proto=proto,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        return results

    async def close(self) -> None:
        """Nothing to release."""


# -- consent and rates -------------------------------------------------------------------------------------------------


ORIGIN: Final = "WebHook-Request-Origin"
ALLOWED_ORIGIN: Final = "WebHook-Allowed-Origin"
ALLOWED_RATE: Final = "WebHook-Allowed-Rate"
GONE: Final = 410
GRANTED_S: Final = 86_400.0
"""A sink that agreed is asked again after this."""
OTHERWISE_S: Final = 600.0
"""A sink that did not agree is asked again after this."""
UNREACHED_S: Final = 60.0
"""A sink that could not be reached is asked again after this."""
RETRY_AFTER_MAX_S: Final = 600.0
"""The longest pause that a sink can ask for."""
MINUTE_S: Final = 60.0
_RATE: Final = re.compile(r"[0-9]{1,9}", re.ASCII)


class ConsentAnswer(NamedTuple):
    """A sink's answer to the question."""

    state: Literal["granted", "unknown", "refused", "gone"]
    per_minute: int | None = None
    """The requests that it takes a minute; None: without limit."""
    reason: str = ""
    """The reason why it is not granted."""
    lasts_s: float = OTHERWISE_S


UNASKED: Final = ConsentAnswer("granted", lasts_s=float("inf"))
"""The answer where nobody is asked."""


def read_consent(status: int, headers: Mapping[str, str], origin: str) -> ConsentAnswer:
    """Read the answer from a response to OPTIONS."""
    if status == GONE:
        return ConsentAnswer("gone", reason="it answered 410 to OPTIONS")
    allowed = headers.get(ALLOWED_ORIGIN, "").strip()
    if not 200 <= status < 300 or not allowed:
        answer = f"{status} to OPTIONS" if not 200 <= status < 300 else f"OPTIONS without {ALLOWED_ORIGIN}"
        return ConsentAnswer("unknown", reason=f"it answered {answer}")
    if allowed != "*" and allowed.lower() != origin.lower():
        return ConsentAnswer("refused", reason=f"it wants events of {allowed[:100]}, and these are of {origin}")
    rate = headers.get(ALLOWED_RATE, "*").strip()
    if rate == "*":
        return ConsentAnswer("granted", lasts_s=GRANTED_S)
    if not _RATE.fullmatch(rate):
        return ConsentAnswer("unknown", reason=f"its {ALLOWED_RATE} is no number: {rate[:20]}")
    if not int(rate):
        return ConsentAnswer("refused", reason=f"its {ALLOWED_RATE} is 0")
    return ConsentAnswer("granted", int(rate), lasts_s=GRANTED_S)


def read_retry_after(text: str | None, now: float) -> float | None:
    """Return the pause that the header Retry-After asks for, within bounds, or None."""
    if text is None:
        return None
    answer = text.strip()
    if _RATE.fullmatch(answer):
        return min(float(answer), RETRY_AFTER_MAX_S)
    try:
        at = parsedate_to_datetime(answer).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(0.0, at - now), RETRY_AFTER_MAX_S)


class RateLimiter:
    """Limits requests a minute: a sixth of them at once, the others spread."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = time.monotonic if clock is None else clock
        self._next = 0.0
        self._not_before = 0.0

    def wait_s(self, per_minute: int | None) -> float:
        """Return the time until the next request may go."""
        now = self._clock()
        wait = self._not_before - now
        if per_minute is not None:
            every_s, at_once = _spread(per_minute)
            wait = max(wait, self._next - (at_once - 1) * every_s - now)
        return max(0.0, wait)

    def take(self, per_minute: int | None) -> None:
        """Count a request that goes."""
        if per_minute is not None:
            self._next = max(self._clock(), self._next) + _spread(per_minute)[0]

    def back_off(self, seconds: float) -> None:
        """Let no request go for so long."""
        self._not_before = max(self._not_before, self._clock() + seconds)


def _spread(per_minute: int) -> tuple[float, int]:
    """Return the time between requests and the size of a burst, such that no minute has more of them."""
    at_once = max(1, per_minute // 6)
    return MINUTE_S / (per_minute - at_once + 1), at_once


class SinkState:
    """The consent and rate of one sink, shared by all webhooks that go there."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[ConsentAnswer]],
        unconsented_limiter: RateLimiter,
        unconsented_per_minute: int | None,
    ) -> None:
        self._ask = ask
        self._unconsented_limiter = unconsented_limiter
        """The limiter of all sinks at its host that did not agree: their paths may be made up."""
        self._unconsented_per_minute = unconsented_per_minute
        self._limiter = RateLimiter()
        self._ask_lock = asyncio.Lock()
        self._answer: ConsentAnswer | None = None
        self._until = 0.0

    @property
    def is_due(self) -> bool:
        """Whether the sink must be asked."""
        return self._answer is None or time.monotonic() >= self._until

    @property
    def due_s(self) -> float:
        """The time until it is asked again."""
        return max(0.0, self._until - time.monotonic())

    @property
    def per_minute(self) -> int | None:
        """The most requests a minute; None: without limit."""
        if self._answer is None:
            return None
        return self._answer.per_minute if self._answer.state == "granted" else self._unconsented_per_minute

    def expire(self) -> None:
        """Ask again next time; the last answer holds until there is another."""
        self._until = 0.0

    async def consent(self) -> ConsentAnswer:
        """Return the sink's answer, and ask first where that is due.

        A sink that agreed and cannot be reached now has agreed.
        """
        async with self._ask_lock:  # webhooks that share the sink would otherwise ask it once each
            if self._answer is None or self.is_due:
                answer = await self._ask()
                is_kept = answer.state == "unknown" and answer.lasts_s == UNREACHED_S and self._answer is not None
                if self._answer is None or not is_kept:
                    self._answer = answer
                self._until = time.monotonic() + answer.lasts_s
            return self._answer

    def wait_s(self) -> float:
        """Return the time until the next request may go there."""
        if self._is_unconsented:
            return max(self._limiter.wait_s(None), self._unconsented_limiter.wait_s(self.per_minute))
        return self._limiter.wait_s(self.per_minute)

    def take(self) -> None:
        """Count a request that goes there."""
        (self._unconsented_limiter if self._is_unconsented else self._limiter).take(self.per_minute)

    def back_off(self, seconds: float) -> None:
        """Let no request go there for so long."""
        self._limiter.back_off(seconds)

    @property
    def _is_unconsented(self) -> bool:
        return self._answer is not None and self._answer.state != "granted"
