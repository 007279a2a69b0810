"""POST /explain, /lint, /match: what filters would do. No event is published, no subscription is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from meetpoint.errors import EventError, FilterError
from meetpoint.gateway.events.publish import Attributes
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import JSON, Answer, Body, Call, Route, answer
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.filters.explain import explain
from meetpoint.language.filters.filter import Filter, FilterParser, parse_filter
from meetpoint.language.filters.lint import lint
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Value

__all__ = ["DryRuns"]

Text = Annotated[str, Meta(min_length=1, max_length=65_536)]


class Explain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter and an event's attributes."""

    filter: Text
    event: Attributes


class Explained(msgspec.Struct, frozen=True):
    """Why a filter accepts an event, or why not."""

    accepted: bool
    verdict: str
    """`true`, `false` or `unknown`, which is SQL's NULL."""
    reason: str
    text: str
    """The whole, as lines for people."""
    tree: dict[str, Any]


class Lint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Filters of one subscriber."""

    filters: list[str]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is odd about one of them; `other` is the one that it repeats, or that covers it."""

    filter: int
    kind: str
    message: str
    other: int | None = None


class Linted(msgspec.Struct, frozen=True):
    """All that is odd."""

    filters: int
    findings: list[Finding]
    cut_short: int
    """Filters that were not compared with all others, since that would take too long."""


class Match(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Filters, and attributes of events."""

    filters: list[Text]
    events: list[Attributes]


class Matched(msgspec.Struct, frozen=True):
    """For each event, the numbers of the filters that accept it, counted from 0."""

    matches: list[list[int]]


class DryRuns:
    """The part that tries."""

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="POST",
                path="/explain",
                handler=self._explain,
                summary="Why a filter accepts an event, or why not",
                body=Body({JSON: Explain}),
                answers={200: Answer("The verdict, with its reason", Explained)},
            ),
            Route(
                method="POST",
                path="/lint",
                handler=self._lint,
                summary="What is odd about filters: refused, duplicate, covered, never or always true",
                body=Body({JSON: Lint}),
                answers={200: Answer("All findings", Linted)},
            ),
            Route(
                method="POST",
                path="/match",
                handler=self._match,
                summary="Which filters accept which events",
                body=Body({JSON: Match}),
                answers={200: Answer("The filters of each event", Matched)},
            ),
        )

    async def start(self, gateway: Gateway) -> None:
        pass

    async def stop(self) -> None:
        pass

    async def _explain(self, call: Call) -> Response:
        said: Explain = call.body
        schema = await _schema(call)
        filter_, event = await asyncio.to_thread(parse_filter, said.filter, schema), bytes(said.event)
        found = await asyncio.to_thread(explain, filter_, attributes_from_json(event, schema))
        whole = found.to_dict()
        return answer(Explained(found.accepted, whole["verdict"], found.reason, found.text(), whole["tree"]))

    async def _lint(self, call: Call) -> Response:
        said: Lint = call.body
        limits = call.gateway.settings.limits
        if len(said.filters) > limits.dry_filters:
            raise ApiError(413, "size", f"{len(said.filters):,} filters; send at most {limits.dry_filters:,}")
        schema = await _schema(call)
        report = await asyncio.to_thread(lint, enumerate(said.filters), schema, compare_s=limits.dry_s)
        findings = [
            Finding(
                int(str(each.id)), str(each.oddity), each.message, None if each.other is None else int(str(each.other))
            )
            for each in report.findings
        ]
        return answer(Linted(report.filters, findings, report.cut_short))

    async def _match(self, call: Call) -> Response:
        said: Match = call.body
        limits = call.gateway.settings.limits
        for what, count, most in (
            ("filters", len(said.filters), limits.dry_filters),
            ("events", len(said.events), limits.dry_events),
            ("pairs of a filter and an event", len(said.filters) * len(said.events), limits.dry_pairs),
        ):
            if count > most:
                raise ApiError(413, "size", f"{count:,} {what}; send at most {most:,}")
        schema = await _schema(call)
        return answer(Matched(await asyncio.to_thread(_try_all, said, schema, limits.dry_s)))


async def _schema(call: Call) -> Schema | None:
    async with call.lease() as lease:
        return await lease.schema()


def _try_all(said: Match, schema: Schema | None, seconds: float) -> list[list[int]]:
    parser = FilterParser(schema)
    filters: list[Filter] = []
    for number, text in enumerate(said.filters):
        try:
            filters.append(parser.parse(text))
        except FilterError as error:
            raise ApiError(422, "filter", f"filter {number} (from 0): {error}", error.start) from None
    events: list[dict[str, Value]] = []
    for number, raw in enumerate(said.events):
        try:
            events.append(attributes_from_json(bytes(raw), schema))
        except EventError as error:
            raise ApiError(422, "event", f"event {number} (from 0): {error}") from None
    until = monotonic() + seconds
    matches: list[list[int]] = [[] for _ in events]
    for number, event in enumerate(events):
        for wanted, filter_ in enumerate(filters):
            if monotonic() > until:
                raise ApiError(413, "size", f"{number:,} of {len(events):,} events took {seconds:g} s; send fewer")
            if filter_.accepts(event):
                matches[number].append(wanted)
    return matches
