"""CloudEvents there and back: nothing is lost, and no event becomes another one."""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.gateway.events.cloud_events import EventDraft, read_batch, read_binary, read_structured, write
from meetpoint.gateway.http.errors import ApiError
from meetpoint.language.events.event import Event
from meetpoint.language.filters.filter import parse_filter

NOW = datetime(2026, 11, 16, 12, 0, 0, 123456, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.from_regex(r"[a-z0-9]{1,8}", fullmatch=True).filter(
    lambda name: name not in ("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data")
)
numbers = st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
cloud_events = st.fixed_dictionaries(
    {"specversion": st.just("1.0"), "id": texts.filter(bool), "source": texts.filter(bool), "type": texts.filter(bool)},
    optional={
        "subject": texts.filter(bool),
        "time": st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02t03:04:05.123456789+05:30"]),
        "datacontenttype": st.just("application/json"),
        "data": values,
    },
).flatmap(
    lambda event: st.dictionaries(names, texts | st.booleans() | st.integers(-(2**31), 2**31 - 1), max_size=3).map(
        lambda extensions: {**event, **extensions}
    )
)


def event_of(draft: EventDraft) -> Event:
    """As the network would carry it."""
    return Event(draft.id or "x", "someone", 7, draft.time or NOW, draft.attributes)


@pytest.mark.slow
@given(cloud_events)
def test_a_cloud_event_comes_back_as_it_was(event: dict[str, Any]) -> None:
    draft = read_structured(json.dumps(event).encode(), None)
    assert json.loads(write(event_of(draft))) == event


@pytest.mark.slow
@given(st.lists(cloud_events, max_size=3))
def test_a_batch_is_its_events(events: list[dict[str, Any]]) -> None:
    assert [json.loads(write(event_of(draft))) for draft in read_batch(json.dumps(events).encode(), None)] == events


scalars = st.none() | st.booleans() | numbers | texts
nested: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.dictionaries(texts.filter(bool), inner, max_size=3), max_leaves=5
)
plain = st.dictionaries(texts.filter(bool), nested, max_size=4)


@given(texts.filter(bool), plain)
def test_an_event_that_is_no_cloud_event_travels_as_one_and_comes_back(id_: str, attributes: dict[str, Any]) -> None:
    event = Event(id_, "some one/ü", 3, NOW, attributes)
    written = write(event)
    seen = json.loads(written)
    assert (seen["type"], seen["id"], seen["sequence"]) == ("meetpoint.event", id_, "3")
    draft = read_structured(written, None)
    assert (draft.id, draft.time, draft.attributes) == (id_, NOW, event.attributes)


@given(texts.filter(bool), texts.filter(bool), texts.filter(bool), texts.filter(bool))
def test_two_cloud_events_have_one_id_only_where_they_are_one(a: str, b: str, c: str, d: str) -> None:
    def id_of(id_: str, source: str) -> str | None:
        return read_structured(
            json.dumps({"specversion": "1.0", "id": id_, "source": source, "type": "t"}).encode(), None
        ).id

    assert (id_of(a, b) == id_of(c, d)) == ((a, b) == (c, d))
    assert id_of("a@b", "c") != id_of("a", "b@c")


@pytest.mark.parametrize(
    ("media", "body", "attribute", "value"),
    [
        ("application/json", b'{"a":1}', "data", {"a": 1}),
        ("application/problem+json; charset=utf-8", b'"x"', "data", "x"),
        ("text/plain", "ü".encode(), "data", "ü"),
        ("application/soap+xml", b"<a/>", "data", "<a/>"),
        ("text/plain; charset=latin-1", "ü".encode("latin-1"), "data_base64", "/A=="),
        ("application/octet-stream", b"text", "data_base64", "dGV4dA=="),
    ],
)
def test_a_body_becomes_data_by_its_content_type(media: str, body: bytes, attribute: str, value: object) -> None:
    headers = [
        ("Content-Type", media),
        ("CE-SpecVersion", "1.0"),
        ("ce-id", "1"),
        ("ce-source", "/%C3%BC"),
        ("ce-type", "t"),
    ]
    draft = read_binary(headers, body, None)
    assert draft.attributes[attribute] == value
    assert draft.attributes["source"] == "/ü"
    official = from_structured_event(HTTPMessage({}, write(event_of(draft))))
    expected = base64.b64decode(str(value)) if attribute == "data_base64" else value
    assert official.get_data() == expected


BINARY = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("plain", "plain"),
        ("%E2%82%AC%20%22%25", '€ "%'),
        ("€".encode().decode("latin-1"), "€"),  # bytes as they are, which a server reads so
        ('"quoted \\"text\\" \\\\ %41"', 'quoted "text" \\ A'),
        ('"', '"'),
        ('half"', 'half"'),
    ],
)
def test_a_header_is_read_as_cloud_events_has_it(header: str, value: str) -> None:
    draft = read_binary({**BINARY, "ce-subject": header}.items(), b"", None)
    assert draft.attributes["subject"] == value


def test_a_header_that_is_no_text_is_refused() -> None:
    for value in ("%E2%82", "ü"):  # half of a character, and one of latin-1
        with pytest.raises(ApiError, match="ce-subject: is not percent-encoded UTF-8"):
            read_binary({**BINARY, "ce-subject": value}.items(), b"", None)


def test_what_two_headers_say_is_refused() -> None:
    for twice in ([("ce-id", "2")], [("CE-ID", "1")], [("Content-Type", "a/b"), ("ce-datacontenttype", "c/d")]):
        with pytest.raises(ApiError, match=r"(id|datacontenttype) is said by two headers"):
            read_binary([*BINARY.items(), *twice], b"", None)


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type", "subject", "datacontenttype", "dataschema"])
def test_what_must_be_a_string_and_is_none_is_named(name: str) -> None:
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", name: 7}
    with pytest.raises(ApiError, match=f"^{name}: is not a string; write it in quotes$"):
        read_structured(json.dumps(event).encode(), None)


def test_filters_see_what_is_in_data_beside_lists() -> None:
    event = {
        "specversion": "1.0",
        "id": "1",
        "source": "/a",
        "type": "t",
        "data": {"price": 5, "tags": [{"x": 1}], "": 1},
    }
    draft = read_structured(json.dumps(event).encode(), None)
    assert parse_filter("type = 't' AND data.price = 5 AND data.tags IS NULL").accepts(draft.attributes)
    assert json.loads(write(event_of(draft))) == event


@pytest.mark.parametrize(
    "attributes",
    [
        {"data_json": '1,"id":"forged"'},
        {"data_json": "["},
        {"data_json": 5},
        {"data_base64": "AA==", "data": 1},
        {"Upper": "x"},
        {"nested": {"a": 1}},
        {"id": 5},
        {"type": "meetpoint.event"},
    ],
)
def test_whoever_publishes_half_a_cloud_event_forges_none(attributes: dict[str, Any]) -> None:
    whole = {"specversion": "1.0", "id": "1", "source": "/a", "type": "t", **attributes}
    seen = json.loads(write(Event("outer", "p", 1, NOW, whole)))
    assert (seen["id"], seen["type"], seen["data"]) == ("outer", "meetpoint.event", whole)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_refused(data: bytes) -> None:
    for read in (read_structured, read_batch):
        with contextlib.suppress(ApiError):
            read(data, None)
