"""The subscriptions of a home, and which of them an event matches: in plain Python, or, where they are many, by an
index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

import msgspec

from meetpoint.api.requests import SubscriptionOptions, Update
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.matcher import Matcher, SmallMatcher, can_index

__all__ = ["Subscription", "SubscriptionInfo", "SubscriptionTable", "attributes_of", "event_of"]


class Subscription(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of a subscription: its number at this home, which never changes, its filter and options."""

    number: int
    filter: str
    terms: SubscriptionOptions = SubscriptionOptions()
    made_us: int = 0
    until_us: int | None = None
    """The time at which it ends by itself, by the clock of its node."""

    def updated(self, what: Update, now: int) -> Subscription:
        """Return the subscription with the changes of an update."""
        terms, until = self.terms, self.until_us
        if what.lifetime_us is not None:
            lifetime = what.lifetime_us or None
            until = None if lifetime is None else now + lifetime
            terms = msgspec.structs.replace(terms, lifetime_us=lifetime)
        if what.labels is not None:
            terms = msgspec.structs.replace(terms, labels=what.labels)
        if what.paused is not None:
            terms = msgspec.structs.replace(terms, paused=what.paused)
        text = self.filter if what.filter is None else what.filter
        return Subscription(self.number, text, terms, self.made_us, until)


class SubscriptionInfo(msgspec.Struct, frozen=True, gc=False):
    """A subscription as it is shown to clients."""

    name: str
    filter: str
    terms: SubscriptionOptions
    queued: int
    is_present: bool
    subscribed_us: int


class SubscriptionTable:
    """The subscriptions of one home by name. `index_from`: how many make an index worth its while."""

    def __init__(self, index_from: int) -> None:
        self.filters: dict[str, Filter] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.owned: Counter[str] = Counter()
        """The number of subscriptions of each owner."""
        self._index_from = index_from
        self._matcher: Matcher[str] = SmallMatcher()

    def has_index(self) -> bool:
        """Return whether they are so many that an index matches them."""
        return not isinstance(self._matcher, SmallMatcher)

    def __contains__(self, name: str) -> bool:
        return name in self.subscriptions

    def put(self, name: str, subscription: Subscription, filter_: Filter) -> None:
        """Add a subscription, or replace it."""
        is_new = name not in self.filters
        self._disown(self.subscriptions.get(name))
        self.subscriptions[name] = subscription
        self.owned[subscription.terms.owner] += 1
        before = self.filters.get(name)
        self.filters[name] = filter_
        if is_new:
            self._matcher.add(name, filter_)
        elif before != filter_:
            self._matcher.update(name, filter_)
        self._fit()

    def remove(self, name: str) -> Subscription | None:
        """Remove a subscription; return it."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            return None
        self._disown(subscription)
        del self.filters[name]
        self._matcher.remove(name)
        self._fit()
        return subscription

    def _disown(self, subscription: Subscription | None) -> None:
        if subscription is not None:
            owner = subscription.terms.owner
            self.owned[owner] -= 1
            if not self.owned[owner]:
                del self.owned[owner]

    def _fit(self) -> None:
        """Change to the matcher for so many subscriptions."""
        if not self.has_index():
            if len(self.filters) > self._index_from and can_index():
                from meetpoint.matching.index import Index  # most homes have few, and need no compiler

                self._matcher = Index.from_filters(self.filters.items())
        elif len(self.filters) < self._index_from // 2:
            self._matcher = SmallMatcher(self.filters.items())

    def match(self, attributes: Mapping[str, object]) -> list[str]:
        """Return the names whose filters accept an event."""
        self._fit()  # an index could not be made before
        return self._matcher.match(attributes)

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self.filters.keys() == self.subscriptions.keys()
        assert self.owned.total() == len(self.subscriptions)
        assert len(self._matcher) == len(self.filters)


@lru_cache(maxsize=256)
def event_of(content: bytes) -> Event:
    """Return the parsed event; it is parsed once for all homes at a node, and for all times it comes."""
    return from_msgpack(content)


def attributes_of(content: bytes) -> Mapping[str, object]:
    """Return the attributes of an event."""
    return event_of(content).attributes
