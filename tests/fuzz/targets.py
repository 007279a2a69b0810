"""What must hold of any bytes: a function for each target, which raises where it does not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final, TypeVar

from meetpoint.api.client_messages import FROM_CLIENTS, TO_CLIENTS
from meetpoint.api.codec import Codec, FrameReader, WireError, frames
from meetpoint.api.handshake import Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.api.messages import Message
from meetpoint.errors import EventError, FilterError, SchemaError
from meetpoint.gateway.events.cloud_events import read_batch, read_structured, write
from meetpoint.gateway.http.errors import ApiError
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_from_json, attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack, to_msgpack
from meetpoint.language.filters.algebra import canonical
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.schema.sources import read_schema, write_schema
from meetpoint.language.values import Value
from meetpoint.matching.scan import evaluate

__all__ = ["TARGETS", "Target"]

Found = TypeVar("Found")

_MOMENT: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
EVENTS: Final[tuple[dict[str, Value], ...]] = (
    {},
    {"a": 1, "b": "x", "c": True},
    {"a": 0.5, "b": "abc%_", "c": False, "o": {"a": Decimal("8.30"), "b": ""}},
    {"a": float("nan"), "b": "é🙂\n", "c": None},
    {"a": -(10**30), "b": _MOMENT, "c": "TRUE"},
)
"""What filters are tried on."""
SCHEMA: Final = read_schema("attributes: {a: {type: decimal, precision: 0.01}, b: string, o.n: float, o.t: timestamp}")
CODEC: Final = Codec((*FROM_CLIENTS, *TO_CLIENTS, Hello, Welcome, HelloRejected, NewIncarnation))
FRAME_MAX: Final = 4096

_remembering = FilterParser()
_forgetful = FilterParser(shapes_max=0)


def check_filter(data: bytes) -> None:
    """Any text is refused in one line that points into it, or is a filter that says the same in all ways to read it."""
    text = data.decode("utf-8", "surrogatepass") if _is_text(data) else data.decode("latin-1")
    filter_ = _parsed(_forgetful, text)
    again = _parsed(_remembering, text)
    if isinstance(filter_, FilterError):
        assert 0 <= filter_.start <= filter_.end <= len(text), filter_
        assert "\n" not in str(filter_), filter_
        assert str(again) == str(filter_)
        return
    assert again == filter_
    assert _remembering.parse(text) == filter_, "the second time, from its shape"
    simple = canonical(filter_)
    for attributes in EVENTS:
        expected = evaluate(filter_.tree, attributes) is True
        assert filter_.accepts(attributes) is expected, attributes
        assert simple.accepts(attributes) is expected, (simple, attributes)
    assert _forgetful.parse(simple.text) == simple, simple


def _parsed(parser: FilterParser, text: str) -> Filter | FilterError:
    try:
        return parser.parse(text)
    except FilterError as error:
        return error


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def check_event(data: bytes) -> None:
    """Any bytes are refused in one line, or are an event that, written and read again, is the same."""
    event = _refused_or(EventError, from_msgpack, data)
    if event is not None:
        again = to_msgpack(event)
        assert to_msgpack(from_msgpack(again)) == again


def _refused_or(
    errors: type[Exception] | tuple[type[Exception], ...], read: Callable[..., Found], *given: object
) -> Found | None:
    """What is read; None where it is refused, in one line."""
    try:
        return read(*given)
    except errors as error:
        said = str(error)
    assert "\n" not in said, said
    return None


def check_json(data: bytes) -> None:
    """Any bytes are refused in one line, or are attributes that, written and read again, are the same; with a schema
    too.
    """
    for schema in (None, SCHEMA):
        attributes = _refused_or(EventError, attributes_from_json, data, schema)
        if attributes is not None:
            again = attributes_to_json(attributes)
            assert attributes_to_json(attributes_from_json(again, schema)) == again


def check_cloud_event(data: bytes) -> None:
    """Any bytes are refused in one line, or are a CloudEvent that an event can hold, and that is written as one."""
    for schema in (None, SCHEMA):
        one = _refused_or((ApiError, EventError), read_structured, data, schema)
        for drafts in (None if one is None else [one], _refused_or((ApiError, EventError), read_batch, data, schema)):
            for draft in drafts or ():
                event = Event(draft.id or "e", "p", 1, draft.time or _MOMENT, draft.attributes)
                from_msgpack(to_msgpack(event))
                read_structured(write(event), None)


def check_schema(data: bytes) -> None:
    """Any text is refused, or is a schema that, written and read again, is the same."""
    text = data.decode("utf-8", "replace")
    try:
        schema = read_schema(text)
    except SchemaError:
        return
    assert read_schema(write_schema(schema)) == schema


def check_frames(data: bytes) -> None:
    """Any bytes, however they are cut, are the same messages and then the same WireError, or none.

    The first byte says how they are cut, the second in which version they are.
    """
    if len(data) < 2:
        return
    step, version, stream = 1 + data[0] % 64, 1 + data[1] % 2, data[2:]
    whole = _read(stream, len(stream) or 1, version)
    assert _read(stream, step, version) == whole
    messages = whole[0]
    if messages:
        pieces = [CODEC.encode(message) for message in messages]
        assert [CODEC.encode(each) for each in _read(frames(pieces, version), step, version, 1 << 20)[0]] == pieces


def _read(stream: bytes, step: int, version: int, frame_max: int = FRAME_MAX) -> tuple[list[Message], list[str]]:
    """All messages, and the kinds of what was refused."""
    reader = FrameReader(frame_max, version)
    found: list[Message] = []
    refused: list[str] = []
    try:
        for at in range(0, len(stream), step):
            for piece in reader.feed(stream[at : at + step]):
                found += CODEC.decode_frame(piece, version, lambda error: refused.append(error.kind))
            if reader.problem is not None:
                raise reader.problem
    except WireError as error:
        refused.append(error.kind)
    assert reader.held <= len(stream)
    return found, refused


class Target:
    """One thing to fuzz: what must hold, what to begin with, and words that inputs are made of."""

    def __init__(self, check: Callable[[bytes], None], seeds: tuple[bytes, ...], words: tuple[bytes, ...]) -> None:
        self.check = check
        self.seeds = seeds
        self.words = words


_EVENT: Final = to_msgpack(Event("e", "p", 1, _MOMENT, {"a": 1, "d": Decimal("1.5"), "o": {"x": None}, "t": _MOMENT}))
_HELLO: Final = CODEC.encode(Hello((1, 2), "meetpoint"))

TARGETS: Final = {
    "parser": Target(
        check_filter,
        (
            b"a > 1 AND (b LIKE 'x%_' ESCAPE '!' OR NOT c)",
            b"o.a BETWEEN -1.5 AND 1e3 OR b IN ('x', 'y') OR a IS NOT NULL",
            b"contains(b, \"x\") AND b >= TIMESTAMP '2026-01-31 12:00:00' AND `b` <> '' OR TRUE",
        ),
        tuple(
            b" AND | OR |NOT |BETWEEN | IN (| LIKE '| ESCAPE '|IS NULL|TIMESTAMP '|TRUE|FALSE|<=|>=|<>|!=|%|_|\\|''|`|"
            b"1e|startswith(|endswith(|contains(|a|b|c|o.a|o.b|)|,".split(b"|")
        ),
    ),
    "frames": Target(
        check_frames,
        (
            b"\x05\x00" + frames([_HELLO], 1),
            b"\x05\x01" + frames([_HELLO, _HELLO], 2),
            b"\x01\x01" + struct.pack(">I", 3) + b"\x02\x91\xc0",
        ),
        (b"\xa3ask", b"\xa6status", b"\xa7publish", b"\xa5hello", b"\xdc", b"\xdd\xff\xff\xff\xff", b"\x00\x00\x00"),
    ),
    "events": Target(
        check_event,
        (_EVENT, to_msgpack(Event("e", "p", 0, _MOMENT, {}))),
        (b"\xc7\x03\x01", b"\xd6\xff", b"\xd7\xff", b"\xc7\x0c\xff", b"\x81\xa1", b"\xcb\x7f\xf8", b"\xdf", b"NaN"),
    ),
    "json": Target(
        check_json,
        (b'{"a": 1.50, "b": "x", "o": {"n": -0.0, "t": "2026-01-31T12:00:00Z"}}', b'{"a": 123456789012345678901}'),
        tuple(
            b'{"|":|"}|,"|\\u|\\ud800|1e400|-0|null|true|NaN|Infinity|[|]|"a"|"b"|"o"|"n"|"t"|2026-01-31T'.split(b"|")
        ),
    ),
    "cloudevents": Target(
        check_cloud_event,
        (
            b'{"specversion":"1.0","id":"1","source":"/a","type":"t","time":"2026-01-31T12:00:00Z","data":{"a":[1]}}',
            b'[{"specversion":"1.0","id":"1","source":"/a","type":"t","data_base64":"aGk=","ext":5}]',
        ),
        tuple(
            b'"specversion":"1.0"|"id":|"source":|"type":|"time":|"data":|"data_base64":|"datacontenttype":|"subject":|'
            b'{|}|[|]|,|null|"text/plain"|"application/json"|\\ud800|1e400|%40'.split(b"|")
        ),
    ),
    "schema": Target(
        check_schema,
        (
            b"name: ticks\nattributes:\n  a: {type: decimal, precision: 0.01, min: 0}\n  b: string\n",
            b"attributes: {o.n: {type: integer, max: 9}, t: timestamp}",
        ),
        tuple(
            b"attributes:|name:|{type: |integer|decimal|float|string|boolean|timestamp|precision: |min: |max: |"
            b"values: [|]|}|, |\n  |&a |*a|!!python/object|<<: |---\n|.inf|.nan|1e400|null|\t".split(b"|")
        ),
    ),
}
