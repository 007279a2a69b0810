"""Who may ask: tokens, and which pages of which sites.

A browser sends requests on behalf of any page that it shows, so the header Origin must be the gateway's own or one of a
list, exactly. Nothing is known of a browser but what a script of such a page sends: there are no cookies. The header
Host must be a name that the gateway is known by, else a stranger's name that leads here would make its page our own.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection

from meetpoint.errors import MeetpointError
from meetpoint.gateway.config import GatewaySettings
from meetpoint.gateway.connections import Caller
from meetpoint.gateway.http.errors import ApiError, unauthorised
from meetpoint.security.grants import TokenError

if TYPE_CHECKING:
    from meetpoint.gateway.http.routes import Role
    from meetpoint.security.grants import Grant
    from meetpoint.security.tokens import Verifier

__all__ = ["SUBPROTOCOL", "Door", "WebSocketToken"]

SUBPROTOCOL = "meetpoint.v1"
"""What a WebSocket speaks."""
WebSocketToken = "bearer."
"""A browser's WebSocket has no headers: its token comes as a second protocol that begins so."""
LOOK_S = 1.0
"""How often it is looked whether the files of tokens have changed, at the most."""

_log = logging.getLogger("meetpoint.gateway")


class Tokens:
    """The keys of tokens and what was revoked, as their files say: they are read again soon after they change."""

    def __init__(self, keys: str, revoked: str | None, network: str) -> None:
        self._keys = keys
        self._revoked = revoked
        self._network = network
        self._looked_at = time.monotonic()
        self._stamps = self._look()
        self._verifier = self._read()

    def grant(self, token: str) -> Grant:
        """What a token grants now; TokenError where it is refused."""
        if time.monotonic() - self._looked_at > LOOK_S:
            self._looked_at = time.monotonic()
            self._look_again()
        return self._verifier.read(token, time.time())

    def _look_again(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._verifier = self._read()
        except MeetpointError as error:
            _log.warning("tokens: %s; what was read before counts on", error)
        else:
            _log.info("tokens: %s was read again", self._keys if self._revoked is None else self._revoked)

    def _look(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self._keys, self._revoked) if path is not None]

    def _read(self) -> Verifier:
        from meetpoint.security.tokens import Verifier

        return Verifier(self._keys, self._revoked, self._network)


class Door:
    """Where requests come in."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._tokens: Tokens | None = None
        if settings.token_keys is not None:
            self._tokens = Tokens(settings.token_keys, settings.token_revoked, settings.network)

    def check_site(self, asked: HTTPConnection, *, changes: bool) -> None:
        """See that no other site's page asks."""
        host = asked.headers.get("host", "")
        if not self._settings.knows_host(_without_port(host)):
            raise ApiError(421, "host", f"this is not {host[:100]!r}; a gateway is told its names by `hosts`")
        origin = asked.headers.get("origin")
        if origin is not None and not self._is_known(origin, host):
            raise ApiError(403, "origin", f"pages of {origin[:100]!r} may not use this gateway; see `origins`")
        if changes and origin is None and asked.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise ApiError(403, "origin", "pages of other sites may not use this gateway; see `origins`")

    def _is_known(self, origin: str, host: str) -> bool:
        return origin in self._settings.origins or origin == f"{self._settings.scheme}://{host}"

    def is_elsewhere(self, asked: HTTPConnection) -> bool:
        """Whether a page of another site asks, which its browser must be told that it may."""
        return asked.headers.get("origin") in self._settings.origins

    def admit(self, asked: HTTPConnection, role: Role) -> Caller:
        """Who asks; ApiError where it may not."""
        if self._tokens is None or role == "anyone":
            return Caller()
        token = _token_of(asked)
        if not token:
            raise unauthorised("a token is needed: send the header Authorization: Bearer TOKEN")
        grant = self._tokens.grant(token)
        if (role == "observe" and not grant.may_observe) or (role == "operate" and not grant.may_operate):
            raise ApiError(403, "role", f"the token of {grant.client} has not the role {role}; ask for one that has")
        return Caller(token, grant)

    def why_not(self, caller: Caller) -> str | None:
        """Why a token that was let in does not count any longer, if it does not."""
        if self._tokens is None or caller.grant is None:
            return None
        try:
            self._tokens.grant(caller.token)
        except TokenError as error:
            return str(error)
        return None


def _stamp(path: str) -> tuple[int, int, int] | None:
    """What is another when a file has changed; None where there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _token_of(asked: HTTPConnection) -> str:
    kind, _, token = asked.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    if asked.scope["type"] == "websocket":
        for protocol in asked.scope.get("subprotocols", ()):
            if protocol.startswith(WebSocketToken):
                return str(protocol.removeprefix(WebSocketToken))
    return ""


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
