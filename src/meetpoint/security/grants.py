"""What a client was granted: names, rights as filters, roles, and until when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from meetpoint.errors import MeetpointError, one_line

__all__ = ["EVERYTHING", "FILTERS_MAX", "Grant", "Rights", "Role", "TokenError", "TokenProblem", "show_time"]

EVERYTHING = "*"
"""In place of a filter: every event."""
FILTERS_MAX = 64
"""Filters in all lists of one token."""

Role: TypeAlias = Literal["observe", "operate"]
TokenProblem: TypeAlias = Literal["missing", "malformed", "signature", "expired", "not_yet", "revoked", "network"]


class TokenError(MeetpointError):
    """A token was refused: `kind` for programs and counters, `reason` for whoever showed it."""

    def __init__(self, kind: TokenProblem, reason: str) -> None:
        self.kind: TokenProblem = kind
        self.reason = reason
        super().__init__(kind, reason)

    def __str__(self) -> str:
        return one_line(f"token: {self.reason}")


class Rights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which events: those that a filter of `allow` accepts and none of `deny` does. Nothing allowed is no event."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        return EVERYTHING in self.allow and not self.deny


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says, after it was found genuine."""

    client: str
    tenant: str = ""
    publish: Rights = Rights()
    subscribe: Rights = Rights()
    roles: tuple[Role, ...] = ()
    id: str = ""
    key: str = ""
    """The id of the key it was signed with."""
    begins: float = 0.0
    expires: float
    """Seconds since 1970."""

    @property
    def may_observe(self) -> bool:
        """Read what the network is doing; whoever operates it may, too."""
        return bool(self.roles)

    @property
    def may_operate(self) -> bool:
        """Act on everyone's subscriptions, on schemas and on brokers."""
        return "operate" in self.roles


def show_time(at: float) -> str:
    """A moment (seconds since 1970) as people read it."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "a time beyond all years"
