"""Grants: the names, rights, roles and lifetime that a token gives a client, and what they permit.

An event may be published, or delivered, where a filter of `allow` accepts it and none of `deny` does. A subscription is
permitted where every event that it could accept may be delivered: the allowed filters must cover its filter, and no
denied filter may overlap it. The filter algebra answers both questions; where it is not sure, the answer is a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import msgspec

from meetpoint.errors import FilterError, MeetpointError, one_line
from meetpoint.language.filters.algebra import covers, overlaps
from meetpoint.language.filters.filter import Filter, on_one_line, parse_filter
from meetpoint.language.names import split_name

__all__ = [
    "EVERYTHING",
    "FILTERS_MAX",
    "RESERVED_PREFIX",
    "Grant",
    "Permit",
    "Rights",
    "Role",
    "TokenError",
    "TokenProblem",
    "reserved_name",
    "show_time",
]


EVERYTHING = "*"
"""The text that stands for all events, in place of a filter."""
FILTERS_MAX = 64
"""The most filters in all lists of one token."""
RESERVED_PREFIX = "$"
"""The first character of attributes that are the network's own: clients may not publish or filter by them."""
SHOWN_MAX = 200
"""The most characters of a filter in a reason."""

Role: TypeAlias = Literal["observe", "operate"]
TokenProblem: TypeAlias = Literal["missing", "malformed", "signature", "expired", "not_yet", "revoked", "network"]


class TokenError(MeetpointError):
    """A token was refused: `kind` is for programs and counters, `reason` for the client."""

    def __init__(self, kind: TokenProblem, reason: str) -> None:
        self.kind: TokenProblem = kind
        self.reason = reason
        super().__init__(kind, reason)

    def __str__(self) -> str:
        return one_line(f"token: {self.reason}")


class Rights(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The events that a filter of `allow` accepts and none of `deny` does; without `allow`, none."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @property
    def is_everything(self) -> bool:
        return EVERYTHING in self.allow and not self.deny


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a genuine token."""

    client: str
    tenant: str = ""
    publish: Rights = Rights()
    subscribe: Rights = Rights()
    roles: tuple[Role, ...] = ()
    id: str = ""
    key: str = ""
    """The id of the key that signed it."""
    begins: float = 0.0
    expires: float
    """Seconds since 1970, as `begins`."""

    @property
    def may_observe(self) -> bool:
        """Whether the client may read the state of the network; every role may."""
        return bool(self.roles)

    @property
    def may_operate(self) -> bool:
        """Whether the client may act on all subscriptions, on schemas and on brokers."""
        return "operate" in self.roles


def show_time(at: float) -> str:
    """Format a moment (seconds since 1970) for people."""
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return "a time beyond all years"


class Permit:
    """The rights of one grant, with parsed filters; TokenError where a filter is refused."""

    def __init__(self, grant: Grant) -> None:
        lists = (grant.publish.allow, grant.publish.deny, grant.subscribe.allow, grant.subscribe.deny)
        if sum(map(len, lists)) > FILTERS_MAX:
            raise TokenError("malformed", f"it has over {FILTERS_MAX} filters; join some with OR")
        self.grant = grant
        self._publish = _ParsedRights(grant.publish, "publish")
        self._subscribe = _ParsedRights(grant.subscribe, "subscribe")

    def why_not_publish(self, attributes: Mapping[str, object]) -> str | None:
        """Return why an event may not be published, or None where it may."""
        rights = self._publish
        if rights.is_everything:
            return None
        if not any(one.accepts(attributes) for one in rights.allow):
            return rights.only("publishing")
        for one in rights.deny:
            if one.accepts(attributes):
                return f"the token denies publishing what is {_shown(one.text)}"
        return None

    def why_not_subscribe(self, wanted: Filter) -> str | None:
        """Return why a filter may not be subscribed to and what to add to it, or None where it may."""
        rights = self._subscribe
        if rights.is_everything:
            return None
        if not rights.allow:
            return rights.only("subscribing to")
        # `covers` says no where it cannot prove it, so a doubt is a refusal and never a leak.
        if not covers(rights.allowed, wanted):
            return f"{rights.only('subscribing to')}; add to the filter: AND ({_shown(rights.allowed.text)})"
        for one in rights.deny:
            if overlaps(one, wanted):
                denied = _shown(one.text)
                return f"the token denies what is {denied}, and the filter could accept it; add: AND NOT ({denied})"
        return None

    def may_receive(self, attributes: Mapping[str, object]) -> bool:
        """Return whether an event may be delivered to the client."""
        rights = self._subscribe
        if rights.is_everything:
            return True
        return any(one.accepts(attributes) for one in rights.allow) and not any(
            one.accepts(attributes) for one in rights.deny
        )


class _ParsedRights:
    """Rights with parsed filters."""

    def __init__(self, rights: Rights, what: str) -> None:
        self.is_everything = rights.is_everything
        self.allow = _parsed(rights.allow, f"{what}.allow")
        self.deny = _parsed(rights.deny, f"{what}.deny")
        text = self.allow[0].text if len(self.allow) == 1 else " OR ".join(f"({one.text})" for one in self.allow)
        self.allowed = Filter(text, tuple(each for one in self.allow for each in one.conjunctions))
        """The whole `allow` list as one filter."""

    def only(self, doing: str) -> str:
        if not self.allow:
            return f"the token permits {doing} nothing"
        return f"the token permits {doing} only what is {_shown(self.allowed.text)}"


def reserved_name(wanted: Filter) -> str | None:
    """Return the first of the network's own attributes that a filter names, or None."""
    for conjunction in wanted.conjunctions:
        for name in conjunction.attributes:
            if split_name(name)[0].startswith(RESERVED_PREFIX):
                return name
    return None


def _parsed(texts: Sequence[str], where: str) -> tuple[Filter, ...]:
    found = []
    for text in texts:
        try:
            one = parse_filter("TRUE" if text == EVERYTHING else text)
        except FilterError as error:
            raise TokenError("malformed", f"{where}: {_shown(text)}: {error}") from None
        if (name := reserved_name(one)) is not None:
            raise TokenError("malformed", f"{where}: {name} is the network's own attribute; leave it out")
        found.append(one)
    return tuple(found)


def _shown(text: str) -> str:
    said = on_one_line(text)
    return one_line(said if len(said) <= SHOWN_MAX else said[:SHOWN_MAX] + "…")
