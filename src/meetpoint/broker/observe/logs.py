"""The log of a broker, and its refusals.

An entry is one line of text or JSON for one thing that happened, never one per event at INFO. It has a name (`event=`)
and fields. The loggers are those of the standard library, below `meetpoint`; a program that runs brokers inside itself
configures them, and `set_up` is for a process that is a broker.

Every refusal is counted by its kind, and logged once a minute per kind and culprit. A culprit that is refused again
within the minute is only counted; when it is over one line says how often. So an attack costs a number each time and a
line a minute, and people can read the log. Culprits that are remembered are bounded too: when there are too many, the
others share one minute per kind.

`KINDS` is the list of all kinds, with their meaning; docs/operations.md says what to do.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final

from meetpoint.broker.config import Logging
from meetpoint.broker.observe.metrics import Counts

__all__ = ["KINDS", "QUIET_S", "Log", "Refusals", "set_up"]

_LOGGER = logging.getLogger("meetpoint.broker")


class Log:
    """The log of one broker of this process."""

    def __init__(self) -> None:
        self.broker = ""

    def write(self, level: int, event: str, **fields: Any) -> None:
        """Write an entry."""
        if not _LOGGER.isEnabledFor(level):
            return
        error = fields.pop("error", None)
        fields = {"broker": self.broker, **fields}
        told = " ".join(f"{key}={_quoted(value)}" for key, value in fields.items())
        _LOGGER.log(
            level, "%s", f"event={event} {told}".rstrip(), extra={"fields": {"event": event, **fields}}, exc_info=error
        )


def _quoted(value: object) -> str:
    text = str(value)
    return text if text and text.isprintable() and not {" ", '"', "="} & set(text) else json.dumps(text)


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one line of text."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"{time} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = getattr(record, "fields", None) or {"event": "log", "message": record.getMessage()}
        said = {"time": time, "level": record.levelname.lower(), **fields}
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def set_up(config: Logging) -> None:
    """Write all of Meetpoint's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if config.format == "json" else _Text())
    logger = logging.getLogger("meetpoint")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(config.level.upper())


QUIET_S: Final = 60.0
"""Time in which the same refusal of the same culprit is only counted."""
CULPRITS_MAX: Final = 1_000
"""Number of culprits that are counted apart."""
CULPRIT_CHARS: Final = 200
"""Length to which a culprit's name is cut."""
FIELD_CHARS: Final = 500
"""Length to which any other field is cut."""

KINDS: Final = {
    # handshakes
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
"""Kinds that happen in every network, logged at INFO."""


class _QuietPeriod:
    """A time in which a refusal is only counted."""

    __slots__ = ("since", "unsaid")

    def __init__(self, since: float) -> None:
        self.since = since
        self.unsaid = 0


class Refusals:
    """The refusals of one broker."""

    def __init__(self, counts: Counts, log: Log, clock: Callable[[], float] = monotonic) -> None:
        self._counts = counts
        self._log = log
        self._clock = clock
        self._quiet: dict[tuple[str, str], _QuietPeriod] = {}
        counts.refusals.update(dict.fromkeys(KINDS, 0))  # what has not happened yet is shown too

    def refuse(self, kind: str, *, client: str = "", address: str = "", **fields: Any) -> None:
        """Count and log a refusal of a client, or of an address (the host, without a port); `fields` say more."""
        assert kind in KINDS, kind
        self._counts.refusals[kind] += 1
        minutes = self._quiet
        key = kind, (client or address)[:CULPRIT_CHARS]
        minute = minutes.get(key)
        if minute is None and len(minutes) >= CULPRITS_MAX:
            key = kind, ""
            minute = minutes.get(key)
        if minute is not None:
            minute.unsaid += 1
            return
        minutes[key] = _QuietPeriod(self._clock())
        self._say(kind, client=client[:CULPRIT_CHARS], address=address, **fields)

    def tick(self) -> None:
        """Log what was only counted in minutes that are over, and forget quiet ones; called now and then."""
        now = self._clock()
        over = [(key, minute) for key, minute in self._quiet.items() if now - minute.since >= QUIET_S]
        for key, minute in over:
            if not minute.unsaid:
                del self._quiet[key]
                continue
            kind, culprit = key
            self._say(kind, culprit=culprit or "several", more=minute.unsaid, in_s=round(now - minute.since))
            self._quiet[key] = _QuietPeriod(now)

    def _say(self, kind: str, **fields: Any) -> None:
        level = logging.INFO if kind in _ORDINARY else logging.WARNING
        told = {name: str(value)[:FIELD_CHARS] for name, value in fields.items() if value != ""}
        self._log.write(level, "refused", kind=kind, **told)
