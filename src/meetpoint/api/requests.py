"""Requests that a client makes of its broker."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from meetpoint.api.ids import EventKey

__all__ = [
    "Acknowledge",
    "Attach",
    "Declare",
    "Detach",
    "Forget",
    "Leave",
    "Lifetime",
    "Locate",
    "Lookup",
    "Publish",
    "Reject",
    "RequestOf",
    "Subscribe",
    "SubscriptionOptions",
    "Unsubscribe",
    "Update",
]

Lifetime: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
"""Microseconds that something lasts: up to 36,000 years, such that any time plus a lifetime is a time."""


class SubscriptionOptions(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a subscription is kept, beside its filter. It does not matter to which events match."""

    durable: bool = True
    """Whether what matches waits on disk until it is acknowledged; otherwise it comes at most once."""
    owner: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    lifetime_us: Lifetime | None = None
    """How long it lasts from now on; None: until it is ended."""
    paused: bool = False
    """What matches waits, and is not notified."""


class Subscribe(msgspec.Struct, frozen=True, array_like=True, tag="subscribe", gc=False):
    """Hold a filter under a name that is the client's choice, so that it may ask again without harm."""

    name: str
    filter: str
    terms: SubscriptionOptions = SubscriptionOptions()


class Update(msgspec.Struct, frozen=True, array_like=True, tag="update", gc=False):
    """Replace the filter of a subscription, or what else is said of it; None leaves it as it is."""

    name: str
    filter: str | None = None
    labels: tuple[tuple[str, str], ...] | None = None
    lifetime_us: Lifetime | None = None
    """Counted from now on; 0: until it is ended."""
    paused: bool | None = None


class Unsubscribe(msgspec.Struct, frozen=True, array_like=True, tag="unsubscribe", gc=False):
    """End a subscription."""

    name: str


class Publish(msgspec.Struct, frozen=True, array_like=True, tag="publish", gc=False):
    """Publish an event, as MessagePack (`language.event_msgpack`).

    `after` is the last event that the same publisher had acknowledged by another broker: this one is taken only when
    that one has reached its subscribers, or a bound is over, so that a publisher that moves keeps its order.
    """

    event: bytes
    after: EventKey | None = None


class Acknowledge(msgspec.Struct, frozen=True, array_like=True, tag="acknowledge", gc=False):
    """The subscribers of these names have what a `Notify` effect brought."""

    event: EventKey
    names: tuple[str, ...]


class Reject(msgspec.Struct, frozen=True, array_like=True, tag="reject", gc=False):
    """The subscribers of these names could not use what a `Notify` effect brought: it comes again, later."""

    event: EventKey
    names: tuple[str, ...]
    reason: str = ""
    final: bool = False
    """It does not come again: it is a dead letter at once."""


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="present", gc=False):
    """Someone takes notifications of a name from now on, at most `window` of them before the first is acknowledged."""

    name: str
    window: int


class Detach(msgspec.Struct, frozen=True, array_like=True, tag="absent", gc=False):
    """Nobody takes notifications of a name any more: what was notified and not acknowledged waits again."""

    name: str


class Locate(msgspec.Struct, frozen=True, array_like=True, tag="locate", gc=False):
    """Which broker hosts the subscription of a name."""

    name: str


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="forget", gc=False):
    """A dead letter is not wanted any more."""

    event: EventKey
    within: str = ""
    """Only by subscriptions whose names begin so; empty: by all."""


class Declare(msgspec.Struct, frozen=True, array_like=True, tag="declare", gc=False):
    """The schema of the network shall have these attributes too (YAML, `language.schema_yaml`)."""

    schema: str


class Lookup(msgspec.Struct, frozen=True, array_like=True, tag="lookup", gc=False):
    """Which node is responsible for a key."""

    key: bytes


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave", gc=False):
    """Hand everything over and go."""


RequestOf: TypeAlias = (
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
