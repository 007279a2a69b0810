"""How a client reaches brokers: which, with TLS or without, and who it says that it is.

With TLS the client sees that a broker's certificate is of the authority that it was told of, and for the host that it
dialled. A token may be a function: it is called for each connection, so that one that was renewed is used.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
from collections.abc import Callable
from typing import TypeAlias

from meetpoint.api.handshake import SPOKEN, Hello
from meetpoint.client.address import read_address, read_url
from meetpoint.client.connection import Connection
from meetpoint.client.errors import NetworkError
from meetpoint.errors import MeetpointError, one_line

__all__ = ["HANDSHAKE_S", "Dialer", "Token"]

HANDSHAKE_S = 5.0
"""How long a broker may take to be reached and to say welcome."""
GOODBYE_S = 1.0
"""How long a broker may take to confirm the end of TLS."""

Token: TypeAlias = str | Callable[[], str]
"""What a client shows at the door, or what gives it: then it is asked for each connection."""


class Dialer:
    """Makes the connections of one client."""

    def __init__(
        self,
        url: str,
        client: str = "",
        *,
        network: str = "",
        token: Token = "",
        ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url = read_url(url)
        self.client = client
        self._network = network
        self._token = token
        self._context = _context(ca) if self.url.is_tls else None
        if ca is not None and self._context is None:
            raise NetworkError(f"ca: {ca} is for TLS, and the url begins with mp://; write mps://, or leave ca out")

    async def dial(self, address: str, timeout_s: float = HANDSHAKE_S) -> Connection:
        """A link to the broker at an address; NetworkError says why there is none."""
        host, port = read_address(address)
        hello = Hello(SPOKEN, self._network, None, self.client, self._fresh_token())
        loop = asyncio.get_running_loop()
        link: Connection | None = None
        is_tls = self._context is not None
        try:
            async with asyncio.timeout(timeout_s):
                _, link = await loop.create_connection(
                    lambda: Connection(hello, address),
                    host,
                    port,
                    ssl=self._context,
                    server_hostname=host if is_tls else None,
                    ssl_shutdown_timeout=GOODBYE_S if is_tls else None,
                )
                await link.wait_welcome()
                return link
        except TimeoutError:
            raise NetworkError(
                f"broker {address}: no answer within {timeout_s:g} s; is it up, and does it hear?"
            ) from None
        except ssl.SSLError as error:
            raise NetworkError(f"broker {address}: {_tls_problem(error)}") from None
        except OSError as error:
            if _is_refused(error):
                raise NetworkError(f"nothing listens at {address}; start one with: meetpoint up") from None
            reason = one_line(str(error.strerror or error))
            raise NetworkError(f"broker {address}: cannot be reached: {reason}") from None
        finally:
            if link is not None and not link.is_open:
                link.abort("it was not welcome")

    def _fresh_token(self) -> str:
        if isinstance(self._token, str):
            return self._token
        try:
            found = self._token()
        except MeetpointError:
            raise
        except Exception as error:
            raise NetworkError(f"token: the function that gives it failed: {one_line(repr(error))}") from error
        if not isinstance(found, str):
            raise NetworkError(f"token: the function gave a {type(found).__name__}; it must return the token as a str")
        return found


def _context(ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    """Trusts one authority; without one those that the machine trusts."""
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        reason = "holds no certificate in PEM" if isinstance(error, ssl.SSLError) else (error.strerror or "").lower()
        raise NetworkError(f"ca {ca}: {reason}; give the file ca.pem of the network's authority") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _tls_problem(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not accepted: {one_line(error.verify_message.rstrip('.'))}; "
            "give the authority's with ca= (--ca), and connect to a host that the certificate names"
        )
    words = (error.reason or str(error)).lower().replace("_", " ")
    if "wrong version number" in words:
        return "it speaks no TLS; connect by mp://, or give the broker a certificate"
    return f"the TLS handshake failed: {one_line(words)}"


def _is_refused(error: OSError) -> bool:
    """Whether nobody listens; of a name with several addresses asyncio tells all that went wrong in one text."""
    told = re.findall(r"\[Errno (\d+)\]", str(error))
    return isinstance(error, ConnectionRefusedError) or (bool(told) and all(int(n) == errno.ECONNREFUSED for n in told))
