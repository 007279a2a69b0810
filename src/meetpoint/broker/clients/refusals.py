"""What a broker refuses: every refusal is counted by its kind, and said in the log once a minute per kind and culprit.

Whoever is refused again within the minute is only counted; when it is over one line says how many there were. So an
attack costs a number each time and a line a minute, and a log is read by people. Culprits that are remembered are
bounded too: when there are too many, those that come on top share one minute per kind.

`KINDS` is the list of all kinds, with what they mean; docs/operations.md has it with what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

from meetpoint.broker.observe.logs import Log
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.transport.connection import Connection

__all__ = ["KINDS", "QUIET_S", "Refusals", "host_of"]

QUIET_S: Final = 60.0
"""For so long the same refusal of the same culprit is only counted."""
CULPRITS_MAX: Final = 1_000
"""How many minutes are kept apart."""
CULPRIT_CHARS: Final = 200
"""How much of a culprit's name is remembered."""
FIELD_CHARS: Final = 500
"""How much of anything else is written down."""

KINDS: Final = {
    # the door
    "handshake_late": "A connection did not say who it is in time",
    "handshakes_full": "Too many connections had not said who they are",
    "handshake": "The first words were no hello, or one that makes no sense",
    "version": "No version of the wire that both sides speak",
    "network": "A broker or a client of another network",
    "way": "A broker with another overlay, scheme or settings, or with this broker's own name",
    "clients_full": "This broker had as many clients as limits.clients allows",
    "connections_full": "A client had as many connections as limits.connections_per_client allows",
    "plain": "A connection without TLS where TLS is spoken",
    "tls": "A TLS handshake that failed: an old version, another authority, no TLS at all",
    "certificate": "A broker's certificate that is missing, expired, revoked or of another network",
    "identity": "A broker that says it is another one than its certificate says, or changes its id",
    "token_missing": "A client without a token where one is needed",
    "token_malformed": "A token that is none, or is too long",
    "token_signature": "A token that no key of this broker has signed",
    "token_expired": "A token that is not valid any longer; also sessions that end for it",
    "token_not_yet": "A token that is not valid yet",
    "token_revoked": "A token that was revoked; also sessions that end for it",
    "token_network": "A token for another network",
    "token_client": "A client that says another name than its token does",
    "http": "An HTTP request that is none, or without a token that allows it",
    # what clients ask
    "role": "A request that needs the role observe or operate",
    "publish": "An event that the client's token does not let it publish",
    "subscribe": "A filter that the client's token does not let it subscribe",
    "delivery": "An event that a subscription matches and that the client's token does not let it receive any longer",
    "reserved": "An event, a filter or a name with something that brokers keep for themselves",
    "subscriptions_full": "A client with as many subscriptions as limits.subscriptions_per_client allows",
    "constraints_full": "A filter with more constraints than limits.constraints_per_filter allows",
    "request": "A request that makes no sense here: a bad filter or event, a name that is not there",
    "not_ready": "A request that the broker could not take for now",
    "disk_full": "A write while the disk was full",
    "stopping": "A request, or a connection, while the broker stops",
    # bytes and connections
    "frame_oversized": "A frame longer than allowed",
    "unreadable": "Bytes that were no frame or no message",
    "slow_frame": "A frame that was not complete in time",
    "stalled": "A connection that took nothing although there was something for it",
    "file_handles": "A connection that was not accepted, because no file handles were left",
    # brokers
    "peer": "A broker's message that it had no right to: an old deletion, an old record, another's home",
}
_ORDINARY: Final = frozenset({"request", "not_ready", "stopping"})
"""What happens in every network: said at INFO."""


class _Minute:
    """The time in which a refusal is only counted."""

    __slots__ = ("since", "unsaid")

    def __init__(self, since: float) -> None:
        self.since = since
        self.unsaid = 0


class Refusals:
    """All that one broker refuses."""

    def __init__(self, counts: Counts, log: Log, clock: Callable[[], float] = monotonic) -> None:
        self._counts = counts
        self._log = log
        self._clock = clock
        self._minutes: dict[tuple[str, str], _Minute] = {}
        counts.refusals.update(dict.fromkeys(KINDS, 0))  # what has not happened yet is shown too

    def refuse(self, kind: str, *, client: str = "", address: str = "", **fields: Any) -> None:
        """Something of a client, or from an address (the host, without a port), was refused; `fields` say more."""
        assert kind in KINDS, kind
        self._counts.refusals[kind] += 1
        minutes = self._minutes
        key = kind, (client or address)[:CULPRIT_CHARS]
        minute = minutes.get(key)
        if minute is None and len(minutes) >= CULPRITS_MAX:
            key = kind, ""
            minute = minutes.get(key)
        if minute is not None:
            minute.unsaid += 1
            return
        minutes[key] = _Minute(self._clock())
        self._say(kind, client=client[:CULPRIT_CHARS], address=address, **fields)

    def look(self) -> None:
        """Called now and then: a minute that is over says what was only counted; a quiet one is forgotten."""
        now = self._clock()
        over = [(key, minute) for key, minute in self._minutes.items() if now - minute.since >= QUIET_S]
        for key, minute in over:
            if not minute.unsaid:
                del self._minutes[key]
                continue
            kind, culprit = key
            self._say(kind, culprit=culprit or "several", more=minute.unsaid, in_s=round(now - minute.since))
            self._minutes[key] = _Minute(now)

    def _say(self, kind: str, **fields: Any) -> None:
        level = logging.INFO if kind in _ORDINARY else logging.WARNING
        told = {name: str(value)[:FIELD_CHARS] for name, value in fields.items() if value != ""}
        self._log.say(level, "refused", kind=kind, **told)


def host_of(connection: Connection) -> str:
    """The host that a connection comes from; a port says nothing of whose it is."""
    transport = connection.transport
    peer = None if transport is None else transport.get_extra_info("peername")
    return str(peer[0]) if peer else ""
