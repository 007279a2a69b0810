"""Where brokers are: `mp://host:port`, several as `mp://one:7400,two:7400`; with TLS `mps://`."""

from __future__ import annotations

import re
from typing import NamedTuple

from meetpoint.client.errors import NetworkError
from meetpoint.errors import one_line

__all__ = ["DEFAULT_PORT", "Url", "read_address", "read_url"]

DEFAULT_PORT = 7400

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/@?#\[\],]+))(?::(?P<port>[0-9]{1,5}))?")
_EXAMPLE = (
    f"write mp://localhost:{DEFAULT_PORT}, or several as mp://one:{DEFAULT_PORT},two:{DEFAULT_PORT}; "
    "with TLS they begin with mps://"
)


class Url(NamedTuple):
    """What a url says."""

    addresses: tuple[str, ...]
    is_tls: bool

    @property
    def scheme(self) -> str:
        """What it begins with."""
        return "mps" if self.is_tls else "mp"


def read_url(url: str) -> Url:
    """The addresses that a url names, each as host:port, and whether by TLS; NetworkError where it names none."""
    if not isinstance(url, str):
        raise NetworkError(f"url: is of class {type(url).__name__}; {_EXAMPLE}")
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "mp", url
    if scheme not in ("mp", "mps"):
        raise NetworkError(f"url {one_line(url)!r}: begins with {one_line(scheme)}://; {_EXAMPLE}")
    found = [_read(part.strip(), url) for part in rest.rstrip("/").split(",")]
    return Url(tuple(dict.fromkeys(found)), scheme == "mps")


def _read(part: str, url: str) -> str:
    match = _ADDRESS.fullmatch(part)
    if match is None or not 0 < int(match["port"] or DEFAULT_PORT) < 65536:
        what = f"has no host and port in {one_line(part)!r}" if part else "has no host"
        raise NetworkError(f"url {one_line(url)!r}: {what}; {_EXAMPLE}")
    host = f"[{match['v6']}]" if match["v6"] else match["host"]
    return f"{host}:{int(match['port'] or DEFAULT_PORT)}"


def read_address(address: str) -> tuple[str, int]:
    """Host and port as sockets want them."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise NetworkError(f"address {one_line(address)!r}: is no host:port; a broker advertises where it is reached")
    return host.strip("[]"), int(port)
