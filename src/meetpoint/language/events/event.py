"""The event, which is what publishers publish.

It is an envelope (publisher, sequence number, time) around attributes; filters see the attributes alone. An event is
checked when it is built and never changes, so the values of an event are always clean (`values.clean_attributes`).
`(publisher, sequence)` and `id` each identify one event; the publisher assigns them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from meetpoint.errors import EventError
from meetpoint.language.names import find, split_name
from meetpoint.language.values import Value, clean_attributes, text_problem, to_utc

__all__ = ["SEQUENCE_BOUND", "Event"]

if TYPE_CHECKING:
    _Contents = dict[str, Value]
else:
    _Contents = dict[str, Any]  # msgspec reads annotations when it runs and cannot follow a recursive one

SEQUENCE_BOUND = 2**63
"""The first number that is no sequence number: they fit a signed 64-bit column."""


class Event(msgspec.Struct, frozen=True):
    """An event. `attributes` may nest; `get` reads them by their canonical dotted names.

    event = Event("id-1", "ann", 0, datetime.now(UTC), {"order": {"price": 8.3}})
    event.get("order.price")  # 8.3
    """

    id: str
    publisher: str
    sequence: int
    time: datetime
    attributes: _Contents

    def __post_init__(self) -> None:
        _check_label("id", self.id)
        _check_label("publisher", self.publisher)
        if type(self.sequence) is not int or not 0 <= self.sequence < SEQUENCE_BOUND:
            shown = _show_sequence(self.sequence)
            raise EventError(f"event: sequence is {shown}; it must be an int from 0 to 2**63 - 1")
        if not isinstance(self.time, datetime):
            raise EventError(f"event: time is of class {type(self.time).__name__}; it must be a datetime")
        try:
            time = to_utc(self.time)
        except ValueError as error:
            raise EventError(f"event: time {error}") from None
        if not isinstance(self.attributes, Mapping):
            raise EventError(f"event: attributes is of class {type(self.attributes).__name__}; it must be a dict")
        # An event is frozen, and its clean values replace those given.
        msgspec.structs.force_setattr(self, "time", time)
        msgspec.structs.force_setattr(self, "attributes", clean_attributes(self.attributes))

    def get(self, name: str) -> Value:
        """Return the value of an attribute by its canonical name (`order.price`); None, as NULL, if it is missing."""
        return find(self.attributes, split_name(name))  # type: ignore[return-value]


def _check_label(field: str, value: object) -> None:
    if type(value) is not str:
        raise EventError(f"event: {field} is of class {type(value).__name__}; it must be a str")
    if not value:
        raise EventError(f"event: {field} is empty; give it at least one character")
    if (problem := text_problem(value)) is not None:
        raise EventError(f"event: {field} {problem}")


def _show_sequence(value: object) -> str:
    if type(value) is not int:
        return f"of class {type(value).__name__}"
    return str(value) if abs(value) < 10**40 else "a huge integer"
