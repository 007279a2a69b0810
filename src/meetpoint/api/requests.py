"""Requests that a client sends and a broker hands to its node."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey

Lifetime: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
"""Microseconds that something lasts: up to 36,000 years, such that any time plus a lifetime is a time."""


class SubscriptionOptions(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The options of a subscription beside its filter. They do not change which events match."""

    durable: bool = True
    """Whether matching events wait on disk until they are acknowledged; otherwise they come at most once."""
    owner: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    lifetime_us: Lifetime | None = None
    """The lifetime from now on; None: until it is unsubscribed."""
    paused: bool = False
    """Whether matching events wait without notifications."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="subscribe", gc=False):
    """Hold a filter under a name that the client chose, so that it may send the request again without harm."""

    name: str
    filter: str
    terms: SubscriptionOptions = SubscriptionOptions()


class Update(msgspec.Struct, frozen=True, array_like=True, tag="update", gc=False):
    """Change the filter or options of a subscription; None leaves each as it is."""

    name: str
    filter: str | None = None
    labels: tuple[tuple[str, str], ...] | None = None
    lifetime_us: Lifetime | None = None
    """The lifetime from now on; 0: until it is unsubscribed."""
    paused: bool | None = None


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag="unsubscribe", gc=False):
    """End a subscription."""

    name: str


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="publish", gc=False):
    """Publish an event, as MessagePack (`language.events.msgpack`).

    `after` is the last event of the same publisher that another broker acknowledged. The broker takes this one only
    when that one has reached its subscribers, or a bound is over, so that a publisher that moves keeps its order.
    """

    event: bytes
    after: EventKey | None = None


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge", gc=False):
    """Acknowledge an event for the subscriptions of these names."""

    event: EventKey
    names: tuple[str, ...]


class Reject(msgspec.Struct, frozen=True, array_like=True, tag="reject", gc=False):
    """Reject an event for the subscriptions of these names: it comes again, later."""

    event: EventKey
    names: tuple[str, ...]
    reason: str = ""
    final: bool = False
    """Whether it becomes a dead letter at once, and does not come again."""


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="present", gc=False):
    """Take notifications of a name from now on, at most `window` of them before the first is acknowledged."""

    name: str
    window: int


class Detach(msgspec.Struct, frozen=True, array_like=True, tag="absent", gc=False):
    """Take no more notifications of a name: notified events without an acknowledgement wait again."""

    name: str


class Locate(msgspec.Struct, frozen=True, array_like=True, tag="locate", gc=False):
    """Locate the broker that hosts the subscription of a name."""

    name: str


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="forget", gc=False):
    """Delete a dead letter."""

    event: EventKey
    within: str = ""
    """Delete it only for subscriptions whose names begin so; empty: for all."""


class Declare(msgspec.Struct, frozen=True, array_like=True, tag="declare", gc=False):
    """Add attributes to the schema of the network (YAML, `language.schema.yaml`)."""

    schema: str


class Lookup(msgspec.Struct, frozen=True, array_like=True, tag="lookup", gc=False):
    """Look up the node that is responsible for a key."""

    key: bytes


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave", gc=False):
    """Hand everything over and go."""


NodeRequest: TypeAlias = (
    Subscribe
    | Update
    | Unsubscribe
    | Publish
    | Acknowledge
    | Reject
    | Attach
    | Detach
    | Locate
    | Forget
    | Declare
    | Lookup
    | Leave
)
