"""What a grant permits: filters of the token against events and against filters of subscriptions.

An event may be published, or handed over, where a filter of `allow` accepts it and none of `deny` does. A subscription
is permitted where every event that it could accept may be handed over: what is allowed must cover its filter, and
nothing denied may overlap it. Both questions are answered by the algebra, whose doubt is always a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meetpoint.errors import FilterError, one_line
from meetpoint.language.filters.algebra import covers, overlaps
from meetpoint.language.filters.filter import Filter, on_one_line, parse_filter
from meetpoint.language.names import split_name
from meetpoint.security.grants import EVERYTHING, FILTERS_MAX, Grant, Rights, TokenError

__all__ = ["RESERVED_PREFIX", "Permit", "reserved_name"]

RESERVED_PREFIX = "$"
"""Attributes whose names begin so are the network's own: no client may publish them or mention them in a filter."""
SHOWN_MAX = 200
"""Characters of a filter in a reason."""


class Permit:
    """The rights of one grant, parsed once. TokenError where its filters are none."""

    def __init__(self, grant: Grant) -> None:
        lists = (grant.publish.allow, grant.publish.deny, grant.subscribe.allow, grant.subscribe.deny)
        if sum(map(len, lists)) > FILTERS_MAX:
            raise TokenError("malformed", f"it has over {FILTERS_MAX} filters; join some with OR")
        self.grant = grant
        self._publish = _Lists(grant.publish, "publish")
        self._subscribe = _Lists(grant.subscribe, "subscribe")

    def why_not_publish(self, attributes: Mapping[str, object]) -> str | None:
        """Why an event may not be published, if it may not."""
        lists = self._publish
        if lists.is_everything:
            return None
        if not any(one.accepts(attributes) for one in lists.allow):
            return lists.only("publishing")
        for one in lists.deny:
            if one.accepts(attributes):
                return f"the token denies publishing what is {_shown(one.text)}"
        return None

    def why_not_subscribe(self, wanted: Filter) -> str | None:
        """Why a filter may not be subscribed to, if it may not: what is at fault, and what to add."""
        lists = self._subscribe
        if lists.is_everything:
            return None
        if not lists.allow:
            return lists.only("subscribing to")
        if not covers(lists.allowed, wanted):
            return f"{lists.only('subscribing to')}; add to the filter: AND ({_shown(lists.allowed.text)})"
        for one in lists.deny:
            if overlaps(one, wanted):
                denied = _shown(one.text)
                return f"the token denies what is {denied}, and the filter could accept it; add: AND NOT ({denied})"
        return None

    def may_receive(self, attributes: Mapping[str, object]) -> bool:
        """Whether an event may be handed over."""
        lists = self._subscribe
        if lists.is_everything:
            return True
        return any(one.accepts(attributes) for one in lists.allow) and not any(
            one.accepts(attributes) for one in lists.deny
        )


class _Lists:
    """Rights with their filters parsed."""

    def __init__(self, rights: Rights, what: str) -> None:
        self.is_everything = rights.is_everything
        self.allow = _parsed(rights.allow, f"{what}.allow")
        self.deny = _parsed(rights.deny, f"{what}.deny")
        text = self.allow[0].text if len(self.allow) == 1 else " OR ".join(f"({one.text})" for one in self.allow)
        self.allowed = Filter(text, tuple(each for one in self.allow for each in one.conjunctions))
        """What the list allows in all, as one filter."""

    def only(self, doing: str) -> str:
        if not self.allow:
            return f"the token permits {doing} nothing"
        return f"the token permits {doing} only what is {_shown(self.allowed.text)}"


def reserved_name(wanted: Filter) -> str | None:
    """The network's own attribute that a filter mentions, if it does."""
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
