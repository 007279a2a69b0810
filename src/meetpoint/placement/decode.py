"""What peers sent inside of messages, read: None where it is malformed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from meetpoint.errors import EventError
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["read_attributes", "read_body"]

BodyT = TypeVar("BodyT", bound=msgspec.Struct)


def read_body(body: bytes, kind: type[BodyT]) -> BodyT | None:
    """What an entry says, or another body that travels and is kept."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read_attributes(services: Runtime, content: bytes) -> Mapping[str, object] | None:
    """What an event holds."""
    try:
        return attributes_of(content)
    except EventError:
        services.observe("event_malformed")
        return None
