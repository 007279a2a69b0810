"""CloudEvents 1.0 as events, and events as CloudEvents.

A CloudEvent becomes an event whose attributes are its own: `type`, `source`, `subject`, extensions, and what it carries
under `data`. Filters see all of it: `type = 'order' AND data.price > 120`. Nothing is lost on the way there and back:

- `source` and `id`, which name it together, make the event's id, `ID@SOURCE` (`%` and `@` within ID are escaped), so
  that a repeat is known as one.
- `time` is the event's time, cut to microseconds; the text itself is an attribute.
- `data` that is JSON is the attribute `data`. Events hold no lists: where there is one, the whole is kept as text in
  `data_json`, and `data` is what is left without lists, for filters.
- `data` that is text is the attribute `data`; any other bytes are `data_base64`.

Names of CloudEvents are lower-case letters and digits, so the two names with an underscore cannot be taken. An event
that was no CloudEvent travels as one of type `meetpoint.event`, with its attributes as data, and comes back as it was.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

import msgspec
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.v1.event import CloudEvent

from meetpoint.errors import EventError
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import JsonNumber, check_json, read_raw
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_from_json, attributes_to_json
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import format_timestamp, parse_timestamp
from meetpoint.language.values import Value

__all__ = ["BATCH", "PLAIN_TYPE", "STRUCTURED", "EventDraft", "read_batch", "read_binary", "read_structured", "write"]

STRUCTURED: Final = "application/cloudevents+json"
BATCH: Final = "application/cloudevents-batch+json"
PLAIN_TYPE: Final = "meetpoint.event"
"""The CloudEvents type of an event that was no CloudEvent."""
_PLAIN_SOURCE: Final = "/meetpoint/"
_DATA: Final = ("data", "data_json", "data_base64")
_STRINGS: Final = ("specversion", "id", "source", "type", "subject", "datacontenttype", "dataschema")
_NAME: Final = re.compile(r"[a-z0-9]+")
_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_TIME: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_JSON_TYPE: Final = re.compile(r"[^/;]+/(?:[^/;]+\+)?json\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)
_TEXT_TYPE: Final = re.compile(
    r"(?:text/[^;]+|application/xml|[^/;]+/[^/;]+\+xml)\s*(?:;.*)?", re.IGNORECASE | re.DOTALL
)


class EventDraft(NamedTuple):
    """An event to publish; the client adds the rest of the envelope."""

    attributes: dict[str, Value]
    id: str | None = None
    time: datetime | None = None


# -- reading -----------------------------------------------------------------------------------------------------------


def read_structured(data: bytes, schema: Schema | None) -> EventDraft:
    """Read one CloudEvent in JSON."""
    check_json(data)
    return _from_members(read_raw(data, dict[str, msgspec.Raw]), schema)


def read_batch(data: bytes, schema: Schema | None) -> list[EventDraft]:
    """Read CloudEvents in a JSON array."""
    check_json(data)
    drafts = []
    for number, members in enumerate(read_raw(data, list[dict[str, msgspec.Raw]])):
        try:
            drafts.append(_from_members(members, schema))
        except (ApiError, EventError) as error:
            raise ApiError(422, "event", f"event {number} of the batch (from 0): {error}", number) from None
    return drafts


def read_binary(headers: Iterable[tuple[str, str]], body: bytes, schema: Schema | None) -> EventDraft:
    """Read a CloudEvent whose context is in HTTP's headers and whose data is the body."""
    context: dict[str, Any] = {}
    for name, value in headers:
        lowered = name.lower()
        if lowered == "content-type":
            attribute, read = "datacontenttype", value
        elif lowered.startswith("ce-"):
            attribute, read = lowered[3:], _read_header(lowered, value)
        else:
            continue
        if attribute in context:
            raise ApiError(422, "event", f"{attribute[:60]} is said by two headers; send one")
        context[attribute] = read
    if not body:
        return _draft(context, None, None, schema)
    media = context.get("datacontenttype", "application/json")
    if _JSON_TYPE.fullmatch(media):
        return _draft(context, body, None, schema)
    if _TEXT_TYPE.fullmatch(media):
        try:
            return _draft(context, encode_basestring(body.decode()).encode(), None, schema)
        except UnicodeDecodeError:
            pass  # in another encoding: bytes
    return _draft(context, None, base64.b64encode(body).decode(), schema)


def _read_header(name: str, value: str) -> str:
    """Return the text of a header: without quotes, then without percent signs, then as UTF-8."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _QUOTED_PAIR.sub(r"\1", value[1:-1])
    try:
        return unquote_to_bytes(value.encode("latin-1")).decode()  # as which HTTP's bytes were read
    except UnicodeDecodeError:
        raise ApiError(422, "event", f"the header {name[:60]}: is not percent-encoded UTF-8") from None


def _from_members(members: dict[str, msgspec.Raw], schema: Schema | None) -> EventDraft:
    data = members.pop("data", None)
    encoded = members.pop("data_base64", None)
    if data is not None and encoded is not None:
        raise ApiError(422, "event", "a CloudEvent has data or data_base64, not both")
    context = {}
    for name, raw in members.items():
        value = read_raw(bytes(raw), bool | int | str | None, name)  # type: ignore[arg-type]
        if value is not None:
            context[name] = value
    text = None
    if encoded is not None:
        text = read_raw(bytes(encoded), str, "data_base64")
        try:
            base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise ApiError(422, "event", "data_base64: is not base64") from None
    return _draft(context, None if data is None else bytes(data), text, schema)


def _draft(context: dict[str, Any], data: bytes | None, encoded: str | None, schema: Schema | None) -> EventDraft:
    """Return an event from a context and its data as JSON or as base64."""
    time = _check_context(context)
    if context["type"] == PLAIN_TYPE and context["source"].startswith(_PLAIN_SOURCE):
        if data is None:
            raise ApiError(422, "event", f"an event of type {PLAIN_TYPE} has its attributes as data; data is missing")
        return EventDraft(attributes_from_json(data, schema), context["id"], time)
    parts = [f"{encode_basestring(name)}:{_write(value)}" for name, value in context.items()]
    if encoded is not None:
        parts.append(f'"data_base64":{encode_basestring(encoded)}')
    elif data is not None:
        tree = check_json(data)
        visible, is_whole = _without_lists(tree)
        if visible is not _NOTHING:
            parts.append(f'"data":{_write(visible)}')
        if not is_whole:
            parts.append(f'"data_json":{encode_basestring(_write(tree))}')
    attributes = attributes_from_json("{" + ",".join(parts) + "}", schema)
    return EventDraft(attributes, f"{quote(context['id'], safe=_ID_SAFE)}@{context['source']}", time)


_ID_SAFE: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%@")


def _check_context(context: dict[str, Any]) -> datetime | None:
    """Check a context by CloudEvents 1.0; return its time."""
    for name in ("specversion", "id", "source", "type"):
        if name not in context:
            raise ApiError(422, "event", f"a CloudEvent has {name}; it is missing")
    for name in context:
        if not _NAME.fullmatch(name):
            raise ApiError(
                422, "event", f"a CloudEvent's attribute is called {name[:60]!r}; use lower-case letters and digits"
            )
    for name in _STRINGS:
        if not isinstance(context.get(name, ""), str):
            raise ApiError(422, "event", f"{name}: is not a string; write it in quotes")
    time = None
    checked = dict(context)
    if "time" in context:
        time = checked["time"] = _read_time(context["time"])
    else:
        checked["time"] = _SOME_TIME  # the package would fill in its own
    try:
        CloudEvent(checked)
    except CloudEventValidationError as error:
        first = next(iter(error.errors.values()))[0]
        raise ApiError(422, "event", f"this is no CloudEvent: {first}") from None
    return time


_SOME_TIME: Final = parse_timestamp("2026-01-01T00:00:00Z")


def _read_time(text: object) -> datetime:
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ApiError(422, "event", "time: write it as RFC 3339 does, like 2026-01-02T03:04:05.678901Z")
    date, clock, fraction, zone = match.groups("")
    try:
        return parse_timestamp(f"{date}T{clock}{fraction[:7]}{zone.upper()}")
    except ValueError as error:
        raise ApiError(422, "event", f"time: {error}") from None


_NOTHING: Final = object()


def _without_lists(value: Any) -> tuple[Any, bool]:
    """Return the part of a JSON value that an event can hold, and whether that is all of it."""
    if isinstance(value, list):
        return _NOTHING, False
    if not isinstance(value, dict):
        return value, True
    kept, is_whole = {}, True
    for name, part in value.items():
        found, is_part_whole = _without_lists(part)
        is_whole &= is_part_whole and name != ""
        if found is not _NOTHING and name != "":
            kept[name] = found
    return kept, is_whole


def _write(value: Any) -> str:
    """Return JSON of a checked value, with numbers as they were written."""
    match value:
        case JsonNumber():
            return str.__str__(value)
        case str():
            return encode_basestring(value)
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case list():
            return "[" + ",".join(map(_write, value)) + "]"
    assert isinstance(value, dict)
    return "{" + ",".join([f"{encode_basestring(name)}:{_write(part)}" for name, part in value.items()]) + "}"


# -- writing -----------------------------------------------------------------------------------------------------------


def write(event: Event) -> bytes:
    """Encode an event as one CloudEvent in JSON."""
    attributes = event.attributes
    if not _is_cloud_event(attributes):
        return _write_plain(event)
    text = attributes.get("data_json")
    if not isinstance(text, str):
        return attributes_to_json(attributes)
    context = {name: value for name, value in attributes.items() if name not in _DATA}
    return attributes_to_json(context)[:-1] + b',"data":' + text.encode() + b"}"


def _write_plain(event: Event) -> bytes:
    context = {
        "specversion": "1.0",
        "id": event.id,
        "source": _PLAIN_SOURCE + quote(event.publisher, safe="-._~"),
        "type": PLAIN_TYPE,
        "time": format_timestamp(event.time),
        "datacontenttype": "application/json",
        "sequence": str(event.sequence),
    }
    return attributes_to_json(context)[:-1] + b',"data":' + attributes_to_json(event.attributes) + b"}"


def _is_cloud_event(attributes: Mapping[str, object]) -> bool:
    """Return whether attributes are as `read_structured` makes them; publishers may send any."""
    if attributes.get("specversion") != "1.0":
        return False
    if not all(isinstance(attributes.get(name), str) and attributes[name] for name in ("id", "source", "type")):
        return False
    if attributes["type"] == PLAIN_TYPE:
        return False
    for name, value in attributes.items():
        if name not in _DATA and (not _NAME.fullmatch(name) or isinstance(value, dict | float)):
            return False
    for name in ("data_json", "data_base64"):
        if name in attributes and not isinstance(attributes[name], str):
            return False
    if "data_json" in attributes:
        try:
            check_json(str(attributes["data_json"]).encode())
        except ApiError:
            return False
    return not ("data_base64" in attributes and ("data" in attributes or "data_json" in attributes))
