"""Arguments of `connect` and `subscribe`, checked: urls and addresses, labels, lifetimes, moments and windows.

A url is `mp://host:port`, with several brokers `mp://one:7400,two:7400`; with TLS it begins with `mps://`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple, TypeAlias

from meetpoint.api.limits import WINDOW_MAX
from meetpoint.client.errors import NetworkError
from meetpoint.errors import one_line

__all__ = ["Lifetime", "labels_of", "lifetime_us_of", "moment_us_of", "read_address", "read_url", "window_of"]

DEFAULT_PORT = 7400

Lifetime: TypeAlias = timedelta | float | int | None
"""A timedelta or seconds; None for ever."""

LIFETIME_US_MAX = 100 * 365 * 24 * 3600 * 1_000_000

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/@?#\[\],]+))(?::(?P<port>[0-9]{1,5}))?")
_EXAMPLE = (
    f"write mp://localhost:{DEFAULT_PORT}, or several as mp://one:{DEFAULT_PORT},two:{DEFAULT_PORT}; "
    "with TLS they begin with mps://"
)

# -- urls --------------------------------------------------------------------------------------------------------------


class Url(NamedTuple):
    """The addresses in a url, and whether brokers are reached by TLS."""

    addresses: tuple[str, ...]
    is_tls: bool

    @property
    def scheme(self) -> str:
        """The part before `://`."""
        return "mps" if self.is_tls else "mp"


def read_url(url: str) -> Url:
    """Read the addresses that a url names, each as host:port. Raises NetworkError where it names none."""
    if not isinstance(url, str):
        raise NetworkError(f"url: is of class {type(url).__name__}; {_EXAMPLE}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "mp", url
    if scheme not in ("mp", "mps"):
        raise NetworkError(f"url {one_line(url)!r}: begins with {one_line(scheme)}://; {_EXAMPLE}")
    found = [_read_part(part.strip(), url) for part in rest.rstrip("/").split(",")]
    return Url(tuple(dict.fromkeys(found)), scheme == "mps")


def _read_part(part: str, url: str) -> str:
    match = _ADDRESS.fullmatch(part)
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 65536:
        what = f"has no host and port in {one_line(part)!r}" if part else "has no host"
        raise NetworkError(f"url {one_line(url)!r}: {what}; {_EXAMPLE}")
    host = f"[{match['v6']}]" if match["v6"] else match["host"]
    return f"{host}:{int(match['port'] or DEFAULT_PORT)}"


def read_address(address: str) -> tuple[str, int]:
    """Split host:port into host and port, as sockets take them."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise NetworkError(f"address {one_line(address)!r}: is no host:port; a broker advertises where it is reached")
    return host.strip("[]"), int(port)


# -- subscriptions -----------------------------------------------------------------------------------------------------


def labels_of(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Sort labels by name, as brokers keep them."""
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise NetworkError(f"label {name!r}: is {value!r}; labels are pairs of strings")
    return tuple(sorted(labels.items()))


def lifetime_us_of(lifetime: Lifetime) -> int | None:
    """Convert a lifetime to microseconds."""
    if lifetime is None:
        return None
    seconds = lifetime.total_seconds() if isinstance(lifetime, timedelta) else lifetime
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds * 1e6 <= LIFETIME_US_MAX:
        raise NetworkError(f"lifetime: is {lifetime!r}; give seconds above 0 or a timedelta")
    return max(1, int(seconds * 1e6))


def moment_us_of(moment: datetime | None, what: str) -> int:
    """Convert a moment to microseconds since 1970; None to 0."""
    if moment is None:
        return 0
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise NetworkError(f"{what}: is {moment!r}; give a datetime with a time zone, as datetime.now(UTC)")
    return max(0, round(moment.timestamp() * 1_000_000))


def window_of(window: int | None, default: int) -> int:
    """Check a window, and take the default for None."""
    if window is None:
        return default
    if type(window) is not int or not 1 <= window <= WINDOW_MAX:
        raise NetworkError(f"window: is {window!r}; give a number from 1 to {WINDOW_MAX}")
    return window
