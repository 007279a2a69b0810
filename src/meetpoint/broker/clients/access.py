"""Who may come in as a client: tokens that are read at the door, and looked at again while their sessions last."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from meetpoint.broker.clients.session_policy import DeniedError, SessionPolicy
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.logs import Log
from meetpoint.security.grants import Grant, TokenError

if TYPE_CHECKING:  # `jwt` is imported where there are tokens
    from meetpoint.security.tokens import Verifier

__all__ = ["Access"]


class Access:
    """The tokens of one broker. Without keys in its configuration everybody may come in, and do everything."""

    def __init__(self, config: BrokerConfig, log: Log, clock: Callable[[], float] = time.time) -> None:
        self._config = config
        self._log = log
        self._clock = clock
        self._verifier: Verifier | None = None
        self.reload()

    @property
    def is_guarded(self) -> bool:
        """Whether clients need tokens."""
        return self._verifier is not None

    def reload(self) -> None:
        """Read the files of keys and of revoked tokens anew; where that fails, what was read before stays."""
        said = self._config.access
        if said.keys is not None:
            from meetpoint.security.tokens import Verifier

            is_first = self._verifier is None
            self._verifier = Verifier(said.keys, said.revoked, self._config.network)
            if not is_first:
                self._log.say(logging.INFO, "tokens_reloaded", keys=said.keys, revoked=said.revoked)

    def read(self, token: str) -> Grant:
        """What a token grants; TokenError where it is refused. Asked only where tokens are needed."""
        assert self._verifier is not None
        return self._verifier.read(token, self._clock())

    def admit(self, client: str, token: str) -> SessionPolicy | None:
        """What a client that says hello may do; None: everything. DeniedError where it may not come in."""
        if self._verifier is None:
            return None
        try:
            grant = self.read(token)
            if client not in ("", grant.client):
                raise DeniedError(
                    "token_client",
                    f"you say that you are {client!r}, and the token is {grant.client!r}'s; leave the name out, "
                    "or connect with a token of that name",
                )
            return SessionPolicy(grant)
        except TokenError as error:
            raise DeniedError(f"token_{error.kind}", str(error)) from None

    def why_not(self, badge: SessionPolicy) -> DeniedError | None:
        """Why a token that was read before does not count any longer, if it does not."""
        if self._verifier is None:
            return None
        try:
            self._verifier.check(badge.grant, self._clock())
        except TokenError as error:
            return DeniedError(f"token_{error.kind}", str(error))
        return None
