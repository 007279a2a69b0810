"""/api/subscriptions: all of the network, found by words, in the order of how often they match or have not."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from meetpoint.api.client_messages import Held
from meetpoint.api.ids import Peer
from meetpoint.gateway.observing.observer import moment_text
from meetpoint.gateway.observing.shapes import SubscriptionIs, SubscriptionsIs

__all__ = ["Hosted", "Order", "list_subscriptions"]

PAGE: Final = 100

Hosted: TypeAlias = Mapping[Peer, list[Held] | None]
"""By broker, the subscriptions that it hosts; None: it does not answer."""
Order: TypeAlias = Literal["hot", "silent", "name"]


def list_subscriptions(hosted: Hosted, search: str, order: Order, after: str) -> SubscriptionsIs:
    """Of what brokers host, all that has the words of a search in its name, filter, owner or labels; after a name."""
    words = search.casefold().split()
    now_us = time.time_ns() // 1000
    found = [
        _shown(peer, held, now_us)
        for peer, here in hosted.items()
        for held in here or ()
        if all(word in _text(held) for word in words)
    ]
    found.sort(key=lambda each: each.name)
    if order == "hot":
        found.sort(key=lambda each: (-(each.per_minute or 0), -(each.delivered or 0)))
    elif order == "silent":
        found.sort(key=lambda each: -(float("inf") if each.silent_s is None else each.silent_s))
    first = next((place + 1 for place, each in enumerate(found) if each.name == after), 0) if after else 0
    page = found[first : first + PAGE]
    more = first + PAGE < len(found)
    return SubscriptionsIs(page, more, len(found), page[-1].name if more else None)


def _text(held: Held) -> str:
    labels = " ".join(f"{key}={value}" for key, value in held.terms.labels)
    return f"{held.name}\n{held.filter}\n{held.terms.owner}\n{labels}".casefold()


def _shown(peer: Peer, held: Held, now_us: int) -> SubscriptionIs:
    is_counted = held.counted_us > 0
    return SubscriptionIs(
        held.name,
        held.filter,
        held.terms.owner,
        dict(held.terms.labels),
        held.terms.durable,
        peer.id.hex(),
        held.queued,
        held.is_present,
        held.matched if is_counted else None,
        held.matched_lately if is_counted else None,
        round(max(0, now_us - held.matched_us) / 1e6, 1) if held.matched_us else None,
        moment_text(held.subscribed_us),
    )
