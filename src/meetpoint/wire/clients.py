"""What clients and brokers say to each other, after the handshake.

A client asks (`Ask`) under a number of its own, and is told (`Told`) under the same; 0 wants no answer. Of requests
that came on one connection, those to publish are taken in their order. Notifications come unasked, for the names at
which the client is `Present`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from meetpoint.protocol.effects import Outcome
from meetpoint.protocol.inputs import RequestOf, Terms
from meetpoint.protocol.messages import Message, Peer
from meetpoint.protocol.records import EventKey

__all__ = [
    "Ask",
    "Broker",
    "Brokers",
    "BrokersAre",
    "CloseSoon",
    "DeadLetter",
    "DeadLetters",
    "DeadLettersAre",
    "Discard",
    "Ended",
    "Held",
    "Journal",
    "JournalIs",
    "Line",
    "Notification",
    "Question",
    "SchemaIs",
    "SchemaOf",
    "Status",
    "StatusIs",
    "Subscriptions",
    "SubscriptionsAre",
    "Told",
    "Word",
]

PAGE_MAX = 500
"""How many things an answer lists; `after` asks for those that follow."""


class _Said(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A part of an `Ask` or a `Told`."""


# -- what is asked beside the requests to the node ---------------------------------------------------------------------


class Brokers(_Said, frozen=True, array_like=True, gc=False, tag="brokers"):
    """All brokers of the network, as far as this one knows."""


class Status(_Said, frozen=True, array_like=True, gc=False, tag="status"):
    """How this broker is."""


class Subscriptions(_Said, frozen=True, array_like=True, gc=False, tag="subscriptions"):
    """The subscriptions that are hosted at this broker, in the order of their names."""

    owner: str = ""
    """Only this owner's; empty: all."""
    labels: tuple[tuple[str, str], ...] = ()
    """Only those that have all of these."""
    after: str = ""


class DeadLetters(_Said, frozen=True, array_like=True, gc=False, tag="dead_letters"):
    """Events that subscribers hosted at this broker did not take."""

    name: str = ""
    """Only this subscription's; empty: all."""
    after: EventKey | None = None


class Discard(_Said, frozen=True, array_like=True, gc=False, tag="discard"):
    """Forget a dead letter."""

    event: EventKey


class Journal(_Said, frozen=True, array_like=True, gc=False, tag="journal"):
    """What this broker remembers of an event, by its id or by its key."""

    id: str = ""
    key: EventKey | None = None


class SchemaOf(_Said, frozen=True, array_like=True, gc=False, tag="schema_of"):
    """The schema that this broker checks filters and events against."""


Question: TypeAlias = (
    RequestOf | Brokers | Status | Subscriptions | DeadLetters | Discard | Journal | SchemaOf
)  # fmt: skip


# -- what is answered --------------------------------------------------------------------------------------------------


class Broker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One broker as another knows it."""

    peer: Peer
    homes: int


class BrokersAre(_Said, frozen=True, array_like=True, gc=False, tag="brokers_are"):
    """All brokers, this one first."""

    brokers: tuple[Broker, ...]


class StatusIs(_Said, frozen=True, array_like=True, gc=False, tag="status_is"):
    """How a broker is: its state, and its measurements by name (those of /metrics)."""

    peer: Peer
    state: str
    scheme: str
    version: str
    up_s: float
    numbers: dict[str, float]


class Held(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One subscription as its home holds it."""

    name: str
    filter: str
    terms: Terms
    queued: int
    is_present: bool
    subscribed_us: int
    """When it was made, by its broker's clock: microseconds since 1970."""


class SubscriptionsAre(_Said, frozen=True, array_like=True, gc=False, tag="subscriptions_are"):
    """Some subscriptions; `more`: ask for those after the last."""

    subscriptions: tuple[Held, ...]
    more: bool


class DeadLetter(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that was not taken, by whom, and why."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    reason: str
    at_us: int


class DeadLettersAre(_Said, frozen=True, array_like=True, gc=False, tag="dead_letters_are"):
    """Some dead letters; `more`: ask for those after the last."""

    letters: tuple[DeadLetter, ...]
    more: bool


class Line(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that became of an event at a broker (`protocol.effects.Trace`), and when."""

    at_us: int
    event: EventKey
    step: str
    home: bytes
    names: tuple[str, ...]
    detail: str
    content: bytes


class JournalIs(_Said, frozen=True, array_like=True, gc=False, tag="journal_is"):
    """What a broker remembers, the oldest first."""

    lines: tuple[Line, ...]


class SchemaIs(_Said, frozen=True, array_like=True, gc=False, tag="schema_is"):
    """The schema as YAML; empty where there is none."""

    schema: str


Word: TypeAlias = (
    Outcome | BrokersAre | StatusIs | SubscriptionsAre | DeadLettersAre | JournalIs | SchemaIs
)  # fmt: skip


# -- messages ----------------------------------------------------------------------------------------------------------


class Ask(Message, frozen=True, array_like=True, gc=False, tag="ask"):
    """A client asks."""

    request: int
    what: Question


class Told(Message, frozen=True, array_like=True, gc=False, tag="told"):
    """A broker answers."""

    request: int
    word: Word


class Notification(Message, frozen=True, array_like=True, gc=False, tag="notification"):
    """An event, and for which names of this client; to be acknowledged or rejected where they are durable."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    redelivered: bool


class Ended(Message, frozen=True, array_like=True, gc=False, tag="ended"):
    """Nothing more comes for a name here. `moved`: locate it, and be present there; else it is over."""

    name: str
    reason: str
    moved: bool


class CloseSoon(Message, frozen=True, array_like=True, gc=False, tag="close_soon"):
    """This broker stops: go to another one. It answers what it was asked before, and closes."""

    reason: str
    others: tuple[str, ...]


FROM_CLIENTS = (Ask,)
TO_CLIENTS = (Told, Notification, Ended, CloseSoon)
