"""The tables of a broker's configuration that are its own: limits, TLS, access, archive, log.

Those of the protocol, of overlays and of schemes are theirs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from meetpoint.api.frames import FRAME_MAX

__all__ = ["Access", "Archiving", "Limits", "Logging", "Tls"]

Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0)]
Rate = Annotated[float, Meta(ge=0)]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a broker holds, and how long it waits, before it says no."""

    frame_bytes: Annotated[int, Meta(ge=512 << 10, le=FRAME_MAX)] = FRAME_MAX
    """The longest frame that is read; a longer one closes the connection before anything is held for it."""
    peer_queue_bytes: Annotated[int, Meta(ge=1 << 20)] = 32 << 20
    """How many bytes wait to be sent to one other broker; what comes on top is dropped, its sender says it again."""
    client_queue_bytes: Annotated[int, Meta(ge=1 << 10)] = 8 << 20
    """How many bytes wait to be sent to one client; then what it takes once is dropped, and the rest waits its turn."""
    unsettled_events: Count = 100_000
    """How many events may be under way to their subscribers; above, no client that publishes is read from."""
    unsynced_writes: Count = 2_000
    """How many writes may wait for the disk; above, no client that publishes is read from."""
    clients: Count = 10_000
    """How many clients may be connected at one time."""
    handshakes: Count = 1_000
    """How many connections may be open at one time that have not yet said who they are; further ones are closed."""
    connections_per_client: Count = 1_000
    """How many connections one client, by its name, may have at one time."""
    subscriptions_per_client: Count = 1_000
    """How many subscriptions one client may have at one broker."""
    constraints_per_filter: Count = 64
    """How many constraints a filter may have, those of all its conjunctions together."""
    publish_per_s: Rate = 50_000.0
    """How many events a second one client may publish for long; one that is quicker is not read from for a while.
    0 sets no limit."""
    publish_burst: Count = 100_000
    """How many events one client may publish at once, however fast."""
    publish_bytes_per_s: Rate = 67_108_864.0
    """How many bytes of events a second one client may publish for long. 0 sets no limit."""
    publish_bytes_burst: Annotated[int, Meta(ge=FRAME_MAX)] = 134_217_728
    """How many bytes of events one client may publish at once, however fast."""
    requests_under_way: Count = 10_000
    """How many requests of one connection may wait for their answers; above, it is not read from."""
    handshake_s: Seconds = 5.0
    """How long a connection may take to say who it is."""
    frame_s: Seconds = 10.0
    """How long a frame may take from its first byte to its last."""
    stall_s: Seconds = 10.0
    """How long a connection may take nothing although there is something for it, before it is closed."""
    dial_s: Seconds = 2.0
    """How long another broker may take to accept a connection."""
    drain_s: Seconds = 10.0
    """How long a broker that stops waits for its last answers and its disk."""


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """How connections are encrypted, and how brokers know each other: TLS 1.3 with certificates of one authority."""

    certificate: str | None = None
    """The broker's certificate, PEM, as `meetpoint ca issue` makes it for its name. With one, every connection is
    TLS."""
    key: str | None = None
    """The private key of the certificate, PEM."""
    ca: str | None = None
    """The certificate of the authority that all brokers of the network have theirs from, PEM."""
    revoked: str | None = None
    """The authority's list of certificates that count no more, PEM, as `meetpoint ca revoke` writes it."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Who may connect as a client, and what it may do."""

    keys: str | None = None
    """The public keys that tokens are signed with, as `meetpoint token key` writes them. With them every client needs a
    token."""
    revoked: str | None = None
    """The tokens that count no more, as `meetpoint token revoke` writes them."""


class Archiving(msgspec.Struct, frozen=True, kw_only=True):
    """Whether what this broker accepts is kept for good, and where."""

    folder: str | None = None
    """The folder for Parquet files of what was accepted, by the hour; without one there are none. Brokers of a network
    may share one. It needs `pip install 'meetpoint[arrow]'`."""
    flush_s: Seconds = 1.0
    """How often files are written."""
    rows: Count = 50_000
    """From how many events on files are written at once."""


class Logging(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to standard error, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least that is written."""
    format: Literal["text", "json"] = "text"
    """One line of text, or one JSON object, per entry."""
