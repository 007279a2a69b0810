"""Messages between clients and brokers, after the handshake.

A client sends a `Request` under a number of its own, and gets the `Response` under the same; 0 wants no response. A
broker takes requests to publish in the order in which they came on a connection. Notifications come by themselves, for
the names at which the client is attached.

Verbs (`Discard`, `Follow`, and those of `api.requests`) change something; an `XRequest` reads, and gets an `XReply`.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Outcome
from meetpoint.api.requests import NodeRequest, SubscriptionOptions

EVERYTHING = "TRUE"
"""The filter that accepts every event."""
PAGE_MAX = 500
"""The most entries of one reply; `after` asks for those that follow."""


class _Body(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The body of a `Request` or a `Response`."""


# -- requests that a broker answers without its node -------------------------------------------------------------------


class BrokersRequest(_Body, frozen=True, array_like=True, gc=False, tag="brokers"):
    """List all brokers of the network, as far as this one knows."""


class StatusRequest(_Body, frozen=True, array_like=True, gc=False, tag="status"):
    """Read the status of this broker."""


class SubscriptionsRequest(_Body, frozen=True, array_like=True, gc=False, tag="subscriptions"):
    """List the subscriptions that this broker hosts, in the order of their names."""

    owner: str = ""
    """List only this owner's; empty: all."""
    labels: tuple[tuple[str, str], ...] = ()
    """List only those that have all of these."""
    after: str = ""


class DeadLettersRequest(_Body, frozen=True, array_like=True, gc=False, tag="dead_letters"):
    """List the dead letters of the subscriptions that this broker hosts."""

    name: str = ""
    """List only this subscription's; empty: all."""
    after: EventKey | None = None


class Discard(_Body, frozen=True, array_like=True, gc=False, tag="discard"):
    """Delete a dead letter."""

    event: EventKey


class JournalRequest(_Body, frozen=True, array_like=True, gc=False, tag="journal"):
    """Read the steps of an event that this broker remembers, by its id or by its key."""

    id: str = ""
    key: EventKey | None = None


class SchemaRequest(_Body, frozen=True, array_like=True, gc=False, tag="schema_of"):
    """Read the schema that this broker checks filters and events against."""


class ProgressRequest(_Body, frozen=True, array_like=True, gc=False, tag="progress_of"):
    """Read the highest sequence that this broker accepted of a batch publisher (`ProducerSequences`)."""

    publisher: str


class StreamsRequest(_Body, frozen=True, array_like=True, gc=False, tag="streams"):
    """Read how far the archive of this broker has come."""


class HistoryRequest(_Body, frozen=True, array_like=True, gc=False, tag="history"):
    """Read events of a stream from the archive: after one number, up to another, accepted from a moment on."""

    home: bytes
    stream: int
    after: int
    upto: int
    since_us: int = 0
    filter: str = EVERYTHING
    """Read only the events that it accepts."""


class ViewRequest(_Body, frozen=True, array_like=True, gc=False, tag="view"):
    """Read this broker's part of the overlay and of the scheme."""


class Follow(_Body, frozen=True, array_like=True, gc=False, tag="follow"):
    """Record, for some seconds, all steps and messages about the event with this id."""

    id: str
    seconds: float = 30.0


class FollowedRequest(_Body, frozen=True, array_like=True, gc=False, tag="followed"):
    """Read the record of a followed event; also messages that do not name it, but belong to one of these threads."""

    id: str
    threads: tuple[bytes, ...] = ()


class RecentRequest(_Body, frozen=True, array_like=True, gc=False, tag="recent"):
    """Read the last events here, those after a number. The broker records them while somebody asks."""

    after: int = 0


RequestBody: TypeAlias = (
    NodeRequest | BrokersRequest | StatusRequest | SubscriptionsRequest | DeadLettersRequest | Discard | JournalRequest
    | SchemaRequest | ProgressRequest | StreamsRequest | HistoryRequest | ViewRequest | Follow | FollowedRequest
    | RecentRequest
)  # fmt: skip


# -- replies -----------------------------------------------------------------------------------------------------------


class Broker(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A broker as another one knows it."""

    peer: Peer
    homes: int


class BrokersReply(_Body, frozen=True, array_like=True, gc=False, tag="brokers_are"):
    """All brokers, this one first."""

    brokers: tuple[Broker, ...]


class BrokerStatus(_Body, frozen=True, array_like=True, gc=False, tag="status_is"):
    """The state of a broker, and its measurements by name (those of /metrics)."""

    peer: Peer
    state: str
    scheme: str
    version: str
    up_s: float
    numbers: dict[str, float]


class HostedSubscription(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A subscription as its home holds it."""

    name: str
    filter: str
    terms: SubscriptionOptions
    queued: int
    is_present: bool
    subscribed_us: int
    """The time of the subscription, by its broker's clock: microseconds since 1970."""
    matched: int = 0
    """The number of events that it has matched since its broker began to count."""
    matched_lately: int = 0
    """About as many in the last minute."""
    matched_us: int = 0
    """The time of the last match, within some seconds; 0: never, as far as is known."""
    counted_us: int = 0
    """The time since when its broker counts; 0: it does not."""


class SubscriptionsReply(_Body, frozen=True, array_like=True, gc=False, tag="subscriptions_are"):
    """A page of subscriptions; `more`: ask for those after the last."""

    subscriptions: tuple[HostedSubscription, ...]
    more: bool


class DeadLetterInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that some subscriptions did not take, and the reason."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    reason: str
    at_us: int


class DeadLettersReply(_Body, frozen=True, array_like=True, gc=False, tag="dead_letters_are"):
    """A page of dead letters; `more`: ask for those after the last."""

    letters: tuple[DeadLetterInfo, ...]
    more: bool


class JournalEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A step of an event at a broker (`node.runtime.effects.Trace`), with its time."""

    at_us: int
    event: EventKey
    step: str
    home: bytes
    names: tuple[str, ...]
    detail: str
    content: bytes


class JournalReply(_Body, frozen=True, array_like=True, gc=False, tag="journal_is"):
    """The steps that a broker remembers, the oldest first."""

    lines: tuple[JournalEntry, ...]


class SchemaReply(_Body, frozen=True, array_like=True, gc=False, tag="schema_is"):
    """The schema as YAML; empty where there is none."""

    schema: str


class ProgressReply(_Body, frozen=True, array_like=True, gc=False, tag="progress_is"):
    """The highest sequence that homes at this broker accepted; 0: none."""

    sequence: int


class Stream(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The events that one home accepted, in the order of their numbers."""

    home: bytes
    stream: int
    is_here: bool
    """Whether this broker hosts the home: then its numbers are the newest."""
    last: int
    """The highest number so far."""
    archived: int
    """All events up to this number are in the archive here."""


class StreamsReply(_Body, frozen=True, array_like=True, gc=False, tag="streams_are"):
    """All streams with events in the archive here, now or soon. Brokers that share a folder name the same `archive`."""

    archive: str
    streams: tuple[Stream, ...]


class HistoryReply(_Body, frozen=True, array_like=True, gc=False, tag="history_is"):
    """A page of events: number, time of acceptance (microseconds since 1970), content.

    It is complete up to the number `reached`; ask for those after it.
    """

    events: tuple[tuple[int, int, bytes], ...]
    reached: int


class TreePart(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A region of a tree of regions: its code, the number of entries there, and whether it is split."""

    code: str
    entries: int
    is_split: bool


class ViewReply(_Body, frozen=True, array_like=True, gc=False, tag="view_is"):
    """A broker's part of the overlay, and of the scheme where that has one that can be drawn."""

    peer: Peer
    state: str
    network: str
    overlay: str
    scheme: str
    links: tuple[tuple[bytes, str], ...]
    """The nodes it links to, each with its part: successor, predecessor, finger, leaf, route or neighbour."""
    regions: tuple[str, ...]
    """The ids that it hosts in a hypercube, by their common bits."""
    tree: tuple[TreePart, ...] | None
    """The regions of a tree that are held here; None where the scheme has none."""


class TraceStep(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A recorded step of a followed event at a broker."""

    number: int
    """Its place in the order of all steps that this broker has recorded."""
    at_us: int
    step: str
    """`sent` or `received` for a message; else a step of the event (`node.runtime.effects.Step`)."""
    peer: bytes = b""
    """The node that a message went to or came from."""
    kind: str = ""
    """The tag of the message (`catalog.purposes`)."""
    thread: bytes = b""
    """An id that a query and its reply share, at all brokers."""
    names: tuple[str, ...] = ()
    detail: str = ""
    looked_at: int = -1
    """The number of subscriptions that were searched for matches; -1: this is no such step."""


class FollowedReply(_Body, frozen=True, array_like=True, gc=False, tag="followed_is"):
    """The recorded steps, the oldest first; `event` is the key, if known here. `is_cut`: some steps are missing."""

    event: EventKey | None
    seen: tuple[TraceStep, ...]
    is_cut: bool


class RecentEvent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that was published at a broker."""

    number: int
    at_us: int
    event: EventKey
    content: bytes


class RecentMatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event that matched subscriptions of a home at a broker, and how many of them; or how many were notified."""

    number: int
    at_us: int
    event: EventKey
    names: int
    is_told: bool


class RecentReply(_Body, frozen=True, array_like=True, gc=False, tag="recent_is"):
    """The new events and matches, the oldest first; `last` is the number to ask with next time."""

    last: int
    events: tuple[RecentEvent, ...]
    matches: tuple[RecentMatch, ...]


ResponseBody: TypeAlias = (
    Outcome | BrokersReply | BrokerStatus | SubscriptionsReply | DeadLettersReply | JournalReply | SchemaReply
    | ProgressReply | StreamsReply | HistoryReply | ViewReply | FollowedReply | RecentReply
)  # fmt: skip


# -- messages ----------------------------------------------------------------------------------------------------------


class Request(Message, frozen=True, array_like=True, gc=False, tag="ask"):
    """A request of a client."""

    request: int
    what: RequestBody


class Response(Message, frozen=True, array_like=True, gc=False, tag="told"):
    """The response of a broker."""

    request: int
    word: ResponseBody


class Notification(Message, frozen=True, array_like=True, gc=False, tag="notification"):
    """An event, and the names of this client that it is for. Durable ones must acknowledge or reject it."""

    event: EventKey
    names: tuple[str, ...]
    content: bytes
    redelivered: bool


class Ended(Message, frozen=True, array_like=True, gc=False, tag="ended"):
    """The end of notifications for a name at this broker. `moved`: locate it and attach there; else it is over."""

    name: str
    reason: str
    moved: bool


class GoAway(Message, frozen=True, array_like=True, gc=False, tag="close_soon"):
    """The announcement that this broker stops: it answers earlier requests, and closes. Go to another one."""

    reason: str
    others: tuple[str, ...]


FROM_CLIENTS = (Request,)
TO_CLIENTS = (Response, Notification, Ended, GoAway)
