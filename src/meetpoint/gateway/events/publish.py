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
from meetpoint.gateway.events.cloud_events import BATCH, STRUCTURED, Draft, read_batch, read_binary, read_structured
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.bodies import read_json
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import JSON, Answer, Body, Call, Route, answer
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import parse_timestamp

__all__ = ["Attributes", "Envelope", "Published", "Publishing", "publish", "read_envelope"]

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
"""An event's attributes, left as they were written: a schema decides what they are."""


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to be published."""

    attributes: Attributes
    id: Annotated[str, Meta(min_length=1, description="Two events with one id, within two minutes, are one")] | None = (
        None
    )
    time: Annotated[str, Meta(description="Like 2026-01-02T03:04:05.678901Z; without one, now")] | None = None


class CloudEventIs(msgspec.Struct, frozen=True):
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


class Published(msgspec.Struct, frozen=True):
    """The ids of what was published: it is on disk, at two brokers where there are two."""

    ids: list[str]


def read_envelope(envelope: Envelope, schema: Schema | None) -> Draft:
    """An envelope's content."""
    time = None
    if envelope.time is not None:
        try:
            time = parse_timestamp(envelope.time)
        except ValueError as error:
            raise ApiError(422, "event", f"time: {error}") from None
    return Draft(attributes_from_json(bytes(envelope.attributes), schema), envelope.id, time)


async def publish(gateway: Gateway, lease: Lease, drafts: Sequence[Draft]) -> list[str]:
    """Publish, in order; returns the ids once all are on disk."""
    events = [lease.net.event(draft.attributes, draft.id, draft.time) for draft in drafts]
    done = await asyncio.gather(*(lease.net.put(event) for event in events), return_exceptions=True)
    failed = [result for result in done if isinstance(result, BaseException)]
    gateway.counts.add("events_published", len(done) - len(failed))
    if failed:
        raise failed[0]
    return [event.id for event in events]


class Publishing:
    """The part that publishes."""

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
                body=Body({JSON: Envelope, STRUCTURED: CloudEventIs, BATCH: list[CloudEventIs]}, raw=True),
                answers={200: Answer("It is published", Published)},
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def _publish(self, call: Call) -> Response:
        async with call.lease() as lease:
            drafts = self._read(call, await lease.schema())
            return answer(Published(await publish(call.gateway, lease, drafts)))

    def _read(self, call: Call, schema: Schema | None) -> list[Draft]:
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
