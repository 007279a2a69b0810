"""Where webhooks may go.

Whoever may subscribe names an address to which the gateway then sends requests: it must not lead to what only the
gateway can reach. So a sink is https, at an address of the public internet. What a name leads to is looked up for each
connection, and the connection goes to the very address that was looked at: a name that leads elsewhere a moment later
gains nothing. Redirects are not followed. For networks of one's own, `private_sinks` lifts both rules.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

from aiohttp import abc

from meetpoint.gateway.http.errors import ApiError

__all__ = ["SinkResolver", "check_sink", "is_public"]

URL_MAX: Final = 2000
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, also where it only wraps another one."""
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
    """See that an address may be a sink, as far as it can be seen without asking for names."""
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
    """Looks up names, and gives only addresses that a sink may have."""

    def __init__(self, private_ok: bool) -> None:
        self._private_ok = private_ok

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[abc.ResolveResult]:
        """All addresses of a name; OSError where one of them is not to be gone to."""
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
        """Nothing is held."""
