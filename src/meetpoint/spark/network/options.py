"""The connection to a network: the options of `format("meetpoint")`, and a client in a thread of its own.

Spark's Python processes come and go, and have no event loop. So each connects for itself, when it needs to. The token
is read where a query is planned, and travels with its tasks: a token file need not be on every machine, and one that is
renewed counts from the next batch on.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from meetpoint.client.arguments import read_url
from meetpoint.client.connection_pool import Backoff
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.network import Connecting, Network, connect
from meetpoint.client.sync import Background
from meetpoint.errors import MeetpointError

__all__ = ["TIMEOUT_S", "ConnectionSettings", "NetworkClient", "QueryOptions"]

TIMEOUT_S: Final = 60.0
"""The time that brokers may be away before a task fails."""
_REACH: Final = ("url", "token", "tokenFile", "ca", "timeout")

T = TypeVar("T")


class ConnectionSettings(msgspec.Struct, frozen=True):
    """The address of a network, and the credentials for it."""

    url: str
    token: str = ""
    token_file: str = ""
    ca: str | None = None
    timeout_s: float = TIMEOUT_S

    def read_token(self) -> str:
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "is no text"
            raise MeetpointError(
                f"tokenFile {self.token_file}: {problem.lower()}; give a file that holds a token"
            ) from None

    def with_token(self) -> ConnectionSettings:
        """Return the same connection for other machines: with the token itself instead of its file."""
        return msgspec.structs.replace(self, token=self.read_token(), token_file="")


class QueryOptions:
    """The options of one query: known ones only, each converted to its type."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        allowed = {name.lower(): name for name in (*_REACH, *known)}
        for name in given:
            if name.lower() not in allowed:
                near = get_close_matches(name.lower(), allowed, n=1)
                hint = f"did you mean {allowed[near[0]]}?" if near else f"there are {', '.join(allowed.values())}"
                raise MeetpointError(f"option {name}: there is none of that name; {hint}")
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str, default: str = "") -> str:
        return self._given.get(name.lower(), default)

    def count(self, name: str, default: int) -> int:
        """Return an option that is a number from 1 on."""
        value = self.text(name)
        if not value:
            return default
        if not value.isascii() or not value.isdigit() or not 0 < int(value) < 2**63:
            raise MeetpointError(f"option {name}: is {value!r}; give a number from 1 on")
        return int(value)

    def connection(self) -> ConnectionSettings:
        url = self.text("url")
        if not url:
            raise MeetpointError("option url: is missing; say where brokers are, as mp://localhost:7400")
        read_url(url)
        if self.text("token") and self.text("tokenFile"):
            raise MeetpointError("options token and tokenFile: both are given; give one of them")
        value = self.text("timeout", str(TIMEOUT_S))
        try:
            timeout_s = float(value)
        except ValueError:
            timeout_s = 0.0
        if not 0 < timeout_s < 1e9:
            raise MeetpointError(f"option timeout: is {value!r}; give seconds above 0")
        return ConnectionSettings(url, self.text("token"), self.text("tokenFile"), self.text("ca") or None, timeout_s)


class NetworkClient:
    """A connection from a thread that has no event loop.

    `first` are addresses that are tried before those of the url. A `patient` one waits for brokers that are away.
    """

    def __init__(self, connection: ConnectionSettings, first: Iterable[str] = (), *, patient: bool = False) -> None:
        url = read_url(connection.url)
        addresses = dict.fromkeys((*first, *url.addresses))
        self._background = Background("meetpoint spark")
        connecting = connect(
            f"{url.scheme}://{','.join(addresses)}", token=connection.read_token, ca=connection.ca,
            timeout=connection.timeout_s,
        )  # fmt: skip
        try:
            self.net: Network = self.run(_connected(connecting, connection.timeout_s if patient else 0.0))
        except BaseException:
            self._background.stop()
            raise

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._background.run(coroutine)

    def close(self) -> None:
        if self._background.is_running:
            try:
                self.run(self.net.close())
            finally:
                self._background.stop()

    def __enter__(self) -> NetworkClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


async def _connected(connecting: Connecting, within_s: float) -> Network:
    backoff = Backoff()
    until = time.monotonic() + within_s
    while True:
        try:
            return await connecting
        except RefusedError:
            raise
        except NetworkError:
            if time.monotonic() >= until:
                raise
        await backoff.wait()
