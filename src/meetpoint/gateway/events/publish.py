"""POST /events: one event as JSON, or CloudEvents, one or many.

JSON is always the envelope, `{"attributes": {…}, "id"?: …, "time"?: …}`: an event may have an attribute of any name, so
nothing else could tell an envelope from attributes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from meetpoint.gateway.connections import Lease
from meetpoint.gateway.events.cloud_events import (
    BATCH,
    STRUCTURED,
    EventDraft,
    read_batch,
    read_binary,
    read_structured,
)
from meetpoint.gateway.gateway import Gateway, RouteGroup
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import JSON, Body, Call, ResponseSpec, Route, json_response, read_json
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import parse_timestamp

__all__ = ["Attributes", "Envelope", "PublishResult", "PublishRoutes", "publish", "read_envelope"]

Attributes = Annotated[
    msgspec.Raw,
    Meta(
        extra_json_schema={
            "type": "object",
            "description": "Names to strings, numbers, booleans, null, or objects of them. No lists.",
            "additionalProperties": {"type": ["string", "number", "boolean", "null", "object"]},
            "examples": [{"symbol": "OTE", "price": 121.5}],
        }
    ),
]
"""An event's attributes as they were written: a schema decides their types."""


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to publish."""

    attributes: Attributes
    id: Annotated[str, Meta(min_length=1, description="Two events with one id, within two minutes, are one")] | None = (
        None
    )
    time: Annotated[str, Meta(description="Like 2026-01-02T03:04:05.678901Z; without one, now")] | None = None


class CloudEventBody(msgspec.Struct, frozen=True):
    """A CloudEvent as JSON; further members are its extensions."""

    specversion: Annotated[str, Meta(pattern="^1\\.0$")]
    id: Annotated[str, Meta(min_length=1)]
    source: Annotated[str, Meta(min_length=1)]
    type: Annotated[str, Meta(min_length=1)]
    subject: Annotated[str, Meta(min_length=1)] | None = None
    time: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] | None = None
    datacontenttype: Annotated[str, Meta(min_length=1)] | None = None
    dataschema: Annotated[str, Meta(min_length=1)] | None = None
    data: Any = None


class PublishResult(msgspec.Struct, frozen=True):
    """The ids of published events: they are on disk, at two brokers where there are two."""

    ids: list[str]


def read_envelope(envelope: Envelope, schema: Schema | None) -> EventDraft:
    """Read an envelope; raise ApiError or EventError where it is no event."""
    time = None
    if envelope.time is not None:
        try:
            time = parse_timestamp(envelope.time)
        except ValueError as error:
            raise ApiError(422, "event", f"time: {error}") from None
    return EventDraft(attributes_from_json(bytes(envelope.attributes), schema), envelope.id, time)


async def publish(gateway: Gateway, lease: Lease, drafts: Sequence[EventDraft]) -> list[str]:
    """Publish events in order; return their ids once all are on disk."""
    events = [lease.net.event(draft.attributes, draft.id, draft.time) for draft in drafts]
    done = await asyncio.gather(*(lease.net.publish_nowait(event) for event in events), return_exceptions=True)
    failed = [result for result in done if isinstance(result, BaseException)]
    gateway.counters.add("events_published", len(done) - len(failed))
    if failed:
        raise failed[0]
    return [event.id for event in events]


class PublishRoutes(RouteGroup):
    """The route POST /events."""

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="POST",
                path="/events",
                handler=self._publish,
                summary="Publish",
                description=(
                    "One event as JSON, or CloudEvents 1.0: structured, batched, or binary (headers ce-*, and a body "
                    "of any content type). Of a batch that does not fit nothing is published."
                ),
                body=Body({JSON: Envelope, STRUCTURED: CloudEventBody, BATCH: list[CloudEventBody]}, raw=True),
                responses={200: ResponseSpec("It is published", PublishResult)},
            ),
        )

    async def _publish(self, call: Call) -> Response:
        async with call.lease() as lease:
            drafts = self._read(call, await lease.schema())
            return json_response(PublishResult(await publish(call.gateway, lease, drafts)))

    def _read(self, call: Call, schema: Schema | None) -> list[EventDraft]:
        if call.media == STRUCTURED:
            return [read_structured(call.data, schema)]
        if call.media == BATCH:
            drafts = read_batch(call.data, schema)
            most = call.gateway.settings.limits.batch_max
            if len(drafts) > most:
                raise ApiError(413, "size", f"a batch of {len(drafts):,} events; send at most {most:,}")
            return drafts
        if "ce-specversion" in call.request.headers:
            return [read_binary(call.request.headers.items(), call.data, schema)]
        return [read_envelope(read_json(call.data, Envelope), schema)]
