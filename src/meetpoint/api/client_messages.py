"""What clients and brokers say to each other, after the handshake.

A client asks (`Ask`) under a number of its own, and is told (`Told`) under the same; 0 wants no answer. Of requests
that came on one connection, those to publish are taken in their order. Notifications come unasked, for the names at
which the client is `Present`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Outcome
from meetpoint.api.requests import RequestOf, SubscriptionOptions

__all__ = [
    "Ask",
    "Broker",
    "BrokerStatus",
    "Brokers",
    "BrokersAre",
    "DeadLetterInfo",
    "DeadLetters",
    "DeadLettersAre",
    "Discard",
    "Ended",
    "Follow",
    "Followed",
    "FollowedIs",
    "GoAway",
    "Held",
    "History",
    "HistoryIs",
    "Journal",
    "JournalEntry",
    "JournalIs",
    "Notification",
    "ProgressIs",
    "ProgressOf",
    "Question",
    "Recent",
    "RecentEvent",
    "RecentIs",
    "RecentMatch",
    "SchemaIs",
    "SchemaOf",
    "Seen",
    "Status",
    "Stream",
    "Streams",
    "StreamsAre",
    "Subscriptions",
    "SubscriptionsAre",
    "Told",
    "TreePart",
    "View",
    "ViewIs",
    "Word",
]

EVERYTHING = "TRUE"
"""The filter that accepts every event."""
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


class ProgressOf(_Said, frozen=True, array_like=True, gc=False, tag="progress_of"):
    """How far this broker has come with a publisher of batches (`protocol.progress`)."""

    publisher: str


class Streams(_Said, frozen=True, array_like=True, gc=False, tag="streams"):
    """How far the archive of this broker has come."""


class History(_Said, frozen=True, array_like=True, gc=False, tag="history"):
    """The events of a stream in the archive, beyond one number and up to another, accepted from a moment on."""

    home: bytes
    stream: int
    after: int
    upto: int
    since_us: int = 0
    filter: str = EVERYTHING
    """Only events that it accepts."""


class View(_Said, frozen=True, array_like=True, gc=False, tag="view"):
    """What this broker's part of the overlay and of the scheme looks like."""


class Follow(_Said, frozen=True, array_like=True, gc=False, tag="follow"):
    """Remember, for some seconds, all that is said and done here about the event with this id."""

    id: str
    seconds: float = 30.0


class Followed(_Said, frozen=True, array_like=True, gc=False, tag="followed"):
    """What was seen of a followed event; also messages that do not name it, but belong to one of these threads."""

    id: str
    threads: tuple[bytes, ...] = ()


class Recent(_Said, frozen=True, array_like=True, gc=False, tag="recent"):
    """The last events here, those after a number; it is remembered for a while that somebody wants to know."""

    after: int = 0


Question: TypeAlias = (
    RequestOf | Brokers | Status | Subscriptions | DeadLetters | Discard | Journal | SchemaOf | ProgressOf
    | Streams | History | View | Follow | Followed | Recent
)  # fmt: skip


# -- what is answered --------------------------------------------------------------------------------------------------


class Broker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One broker as another knows it."""

    peer: Peer
    homes: int


class BrokersAre(_Said, frozen=True, array_like=True, gc=False, tag="brokers_are"):
    """All brokers, this one first."""

    brokers: tuple[Broker, ...]


class BrokerStatus(_Said, frozen=True, array_like=True, gc=False, tag="status_is"):
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
    terms: SubscriptionOptions
    queued: int
    is_present: bool
    subscribed_us: int
    """When it was made, by its broker's clock: microseconds since 1970."""
    matched: int = 0
    """How many events it has matched since its broker began to count them."""
    matched_lately: int = 0
    """How many in the last minute, more or less."""
    matched_us: int = 0
    """When it did last, within some seconds; 0: never, as far as is known."""
    counted_us: int = 0
    """Since when its broker counts; 0: it does not."""


class SubscriptionsAre(_Said, frozen=True, array_like=True, gc=False, tag="subscriptions_are"):
    """Some subscriptions; `more`: ask for those after the last."""

    subscriptions: tuple[Held, ...]
    more: bool


class DeadLetterInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that was not taken, by whom, and why."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    reason: str
    at_us: int


class DeadLettersAre(_Said, frozen=True, array_like=True, gc=False, tag="dead_letters_are"):
    """Some dead letters; `more`: ask for those after the last."""

    letters: tuple[DeadLetterInfo, ...]
    more: bool


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
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

    lines: tuple[JournalEntry, ...]


class SchemaIs(_Said, frozen=True, array_like=True, gc=False, tag="schema_is"):
    """The schema as YAML; empty where there is none."""

    schema: str


class ProgressIs(_Said, frozen=True, array_like=True, gc=False, tag="progress_is"):
    """The highest sequence that homes here accepted; 0: none."""

    sequence: int


class Stream(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What was accepted by one home, in the order of its numbers."""

    home: bytes
    stream: int
    is_here: bool
    """Whether this broker hosts the home, so that nobody knows better."""
    last: int
    """The highest number so far."""
    archived: int
    """All that was accepted up to this number is in the archive here."""


class StreamsAre(_Said, frozen=True, array_like=True, gc=False, tag="streams_are"):
    """All streams of which something is in the archive here, or will be. Brokers that share a folder say the same
    `archive`.
    """

    archive: str
    streams: tuple[Stream, ...]


class HistoryIs(_Said, frozen=True, array_like=True, gc=False, tag="history_is"):
    """Some events: number, when it was accepted (microseconds since 1970), content. All that are wanted up to `reached`
    are among them; ask for those beyond.
    """

    events: tuple[tuple[int, int, bytes], ...]
    reached: int


class TreePart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A region of a tree of regions: its code, how many entries lie there, and whether it is split."""

    code: str
    entries: int
    is_split: bool


class ViewIs(_Said, frozen=True, array_like=True, gc=False, tag="view_is"):
    """A broker's part of the overlay, and of the scheme where that has one that can be drawn."""

    peer: Peer
    state: str
    network: str
    overlay: str
    scheme: str
    links: tuple[tuple[bytes, str], ...]
    """To which nodes, and as what: successor, predecessor, finger, leaf, route or neighbour."""
    regions: tuple[str, ...]
    """Of a hypercube: the ids that it hosts, by their common bits."""
    tree: tuple[TreePart, ...] | None
    """The regions of a tree that are held here; None where the scheme has none."""


class Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing that was seen of a followed event at a broker."""

    number: int
    """In which order, among all that this broker has seen."""
    at_us: int
    step: str
    """`sent` or `received`; else what became of the event (`protocol.effects.Step`)."""
    peer: bytes = b""
    """To whom, or from whom."""
    kind: str = ""
    """The tag of the message that counts (`catalog.purposes`)."""
    thread: bytes = b""
    """What a question and its answer have in common, wherever they are seen."""
    names: tuple[str, ...] = ()
    detail: str = ""
    looked_at: int = -1
    """Among how many subscriptions it was looked for matches; -1: this is no such step."""


class FollowedIs(_Said, frozen=True, array_like=True, gc=False, tag="followed_is"):
    """What was seen, the oldest first; `event` is its key, where that is known here. Not all of it where `is_cut`."""

    event: EventKey | None
    seen: tuple[Seen, ...]
    is_cut: bool


class RecentEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that was published at a broker."""

    number: int
    at_us: int
    event: EventKey
    content: bytes


class RecentMatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that matched so many subscriptions of a home at a broker; or of which so many are told."""

    number: int
    at_us: int
    event: EventKey
    names: int
    is_told: bool


class RecentIs(_Said, frozen=True, array_like=True, gc=False, tag="recent_is"):
    """What is new, the oldest first; `last` is the number to ask with next time."""

    last: int
    events: tuple[RecentEvent, ...]
    matches: tuple[RecentMatch, ...]


Word: TypeAlias = (
    Outcome | BrokersAre | BrokerStatus | SubscriptionsAre | DeadLettersAre | JournalIs | SchemaIs | ProgressIs
    | StreamsAre | HistoryIs | ViewIs | FollowedIs | RecentIs
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


class GoAway(Message, frozen=True, array_like=True, gc=False, tag="close_soon"):
    """This broker stops: go to another one. It answers what it was asked before, and closes."""

    reason: str
    others: tuple[str, ...]


FROM_CLIENTS = (Ask,)
TO_CLIENTS = (Told, Notification, Ended, GoAway)
