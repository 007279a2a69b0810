"""What a broker writes down: one line per thing that happened, as text or as JSON, never one per event at INFO.

An entry has a name (`event=`) and fields. The loggers are those of the standard library, below `meetpoint`; a program
that runs brokers inside itself decides what becomes of them, and `set_up` is for one that is a broker.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from meetpoint.broker.config import Logging

__all__ = ["Log", "set_up"]

_LOGGER = logging.getLogger("meetpoint.broker")


class Log:
    """Where one broker of this process writes."""

    def __init__(self) -> None:
        self.broker = ""

    def say(self, level: int, event: str, **fields: Any) -> None:
        """Write that something happened."""
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
        """One line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = f"{time} {record.levelname} {record.getMessage()}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        """One object."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = getattr(record, "fields", None) or {"event": "log", "message": record.getMessage()}
        said = {"time": time, "level": record.levelname.lower(), **fields}
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def set_up(config: Logging) -> None:
    """Write all that Meetpoint says to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if config.format == "json" else _Text())
    logger = logging.getLogger("meetpoint")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(config.level.upper())
