"""Access control: tokens, and which pages of which sites may ask.

A browser sends requests on behalf of any page that it shows, so the header Origin must be the gateway's own or one of a
list, exactly. There are no cookies: a browser identifies itself only by what a script of such a page sends. The header
Host must be a known name of the gateway; otherwise a foreign name that leads here would make its page our own (DNS
rebinding).
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
from meetpoint.gateway.http.errors import ApiError, unauthorized
from meetpoint.security.grants import TokenError

if TYPE_CHECKING:
    from meetpoint.gateway.http.routes import Role
    from meetpoint.security.grants import Grant
    from meetpoint.security.tokens import Verifier

__all__ = ["BEARER_PROTOCOL", "SUBPROTOCOL", "AccessControl"]

SUBPROTOCOL = "meetpoint.v1"
"""The protocol that a WebSocket speaks."""
BEARER_PROTOCOL = "bearer."
"""The prefix of a second protocol that is the token: a browser's WebSocket cannot send headers."""
CHECK_EVERY_S = 1.0
"""The files of tokens are checked for changes at most this often."""

_log = logging.getLogger("meetpoint.gateway")


class TokenChecker:
    """Checks tokens against the files of keys and revocations, and reads these again soon after they change."""

    def __init__(self, keys: str, revoked: str | None, network: str) -> None:
        self._keys = keys
        self._revoked = revoked
        self._network = network
        self._checked_at = time.monotonic()
        self._stamps = self._stamps_now()
        self._verifier = self._read()

    def grant(self, token: str) -> Grant:
        """Return the grant of a token now; raise TokenError where it is refused."""
        if time.monotonic() - self._checked_at > CHECK_EVERY_S:
            self._checked_at = time.monotonic()
            self._reload_if_changed()
        return self._verifier.read(token, time.time())

    def _reload_if_changed(self) -> None:
        stamps = self._stamps_now()
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self._verifier = self._read()
        except MeetpointError as error:
            _log.warning("tokens: %s; what was read before counts on", error)
        else:
            _log.info("tokens: %s was read again", self._keys if self._revoked is None else self._revoked)

    def _stamps_now(self) -> list[tuple[int, int, int] | None]:
        return [_stamp(path) for path in (self._keys, self._revoked) if path is not None]

    def _read(self) -> Verifier:
        from meetpoint.security.tokens import Verifier

        return Verifier(self._keys, self._revoked, self._network)


class AccessControl:
    """Decides who may use the gateway."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._tokens: TokenChecker | None = None
        if settings.token_keys is not None:
            self._tokens = TokenChecker(settings.token_keys, settings.token_revoked, settings.network)

    def check_site(self, request: HTTPConnection, *, changes: bool) -> None:
        """Raise ApiError where a page of a site that is not allowed asks."""
        host = request.headers.get("host", "")
        if not self._settings.knows_host(_without_port(host)):
            raise ApiError(421, "host", f"this is not {host[:100]!r}; a gateway is told its names by `hosts`")
        origin = request.headers.get("origin")
        if origin is not None and not self._is_known(origin, host):
            raise ApiError(403, "origin", f"pages of {origin[:100]!r} may not use this gateway; see `origins`")
        # Older browsers send no Origin with some cross-site requests that change something.
        if changes and origin is None and request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
            raise ApiError(403, "origin", "pages of other sites may not use this gateway; see `origins`")

    def _is_known(self, origin: str, host: str) -> bool:
        return origin in self._settings.origins or origin == f"{self._settings.scheme}://{host}"

    def is_cross_origin(self, request: HTTPConnection) -> bool:
        """Return whether a page of another, allowed site asks: its browser needs CORS headers."""
        return request.headers.get("origin") in self._settings.origins

    def admit(self, request: HTTPConnection, role: Role) -> Caller:
        """Return the caller of a request; raise ApiError where it may not ask."""
        if self._tokens is None or role == "anyone":
            return Caller()
        token = _token_of(request)
        if not token:
            raise unauthorized("a token is needed: send the header Authorization: Bearer TOKEN")
        grant = self._tokens.grant(token)
        if (role == "observe" and not grant.may_observe) or (role == "operate" and not grant.may_operate):
            raise ApiError(403, "role", f"the token of {grant.client} has not the role {role}; ask for one that has")
        return Caller(token, grant)

    def why_not_valid(self, caller: Caller) -> str | None:
        """Return why a token that was admitted is no longer valid, or None."""
        if self._tokens is None or caller.grant is None:
            return None
        try:
            self._tokens.grant(caller.token)
        except TokenError as error:
            return str(error)
        return None


def _stamp(path: str) -> tuple[int, int, int] | None:
    """Return a value that changes with the file; None where there is no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def _token_of(request: HTTPConnection) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return token.strip()
    if request.scope["type"] == "websocket":
        for protocol in request.scope.get("subprotocols", ()):
            if protocol.startswith(BEARER_PROTOCOL):
                return str(protocol.removeprefix(BEARER_PROTOCOL))
    return ""


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]
