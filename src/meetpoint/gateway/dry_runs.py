"""POST /explain, /lint, /match: dry runs of filters. No event is published, no subscription is made."""

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
from meetpoint.gateway.gateway import RouteGroup
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import JSON, Body, Call, ResponseSpec, Route, json_response
from meetpoint.language.events.json import attributes_from_json
from meetpoint.language.filters.explain import explain
from meetpoint.language.filters.filter import Filter, FilterParser, parse_filter
from meetpoint.language.filters.lint import lint
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Value

__all__ = ["DryRunRoutes"]

Text = Annotated[str, Meta(min_length=1, max_length=65_536)]


class ExplainBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter and an event's attributes."""

    filter: Text
    event: Attributes


class ExplainResult(msgspec.Struct, frozen=True):
    """The reason why a filter accepts an event, or why not."""

    accepted: bool
    verdict: str
    """`true`, `false` or `unknown`, which is SQL's NULL."""
    reason: str
    text: str
    """The whole explanation, as lines for people."""
    tree: dict[str, Any]


class LintBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Filters of one subscriber."""

    filters: list[str]


class LintFinding(msgspec.Struct, frozen=True, omit_defaults=True):
    """A finding about one filter; `other` is the one that it repeats, or that covers it."""

    filter: int
    kind: str
    message: str
    other: int | None = None


class LintResult(msgspec.Struct, frozen=True):
    """The findings of all filters."""

    filters: int
    findings: list[LintFinding]
    cut_short: int
    """The number of filters that were not compared with all others, for lack of time."""


class MatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Filters, and attributes of events."""

    filters: list[Text]
    events: list[Attributes]


class MatchResult(msgspec.Struct, frozen=True):
    """The numbers of the filters that accept each event, counted from 0."""

    matches: list[list[int]]


class DryRunRoutes(RouteGroup):
    """The routes /explain, /lint and /match."""

    @property
    def routes(self) -> Sequence[Route]:
        return (
            Route(
                method="POST",
                path="/explain",
                handler=self._explain,
                summary="Why a filter accepts an event, or why not",
                body=Body({JSON: ExplainBody}),
                responses={200: ResponseSpec("The verdict, with its reason", ExplainResult)},
            ),
            Route(
                method="POST",
                path="/lint",
                handler=self._lint,
                summary="What is odd about filters: refused, duplicate, covered, never or always true",
                body=Body({JSON: LintBody}),
                responses={200: ResponseSpec("All findings", LintResult)},
            ),
            Route(
                method="POST",
                path="/match",
                handler=self._match,
                summary="Which filters accept which events",
                body=Body({JSON: MatchBody}),
                responses={200: ResponseSpec("The filters of each event", MatchResult)},
            ),
        )

    async def _explain(self, call: Call) -> Response:
        body: ExplainBody = call.body
        schema = await _schema(call)
        filter_, event = await asyncio.to_thread(parse_filter, body.filter, schema), bytes(body.event)
        found = await asyncio.to_thread(explain, filter_, attributes_from_json(event, schema))
        whole = found.to_dict()
        return json_response(ExplainResult(found.accepted, whole["verdict"], found.reason, found.text(), whole["tree"]))

    async def _lint(self, call: Call) -> Response:
        body: LintBody = call.body
        limits = call.gateway.settings.limits
        if len(body.filters) > limits.dry_filters:
            raise ApiError(413, "size", f"{len(body.filters):,} filters; send at most {limits.dry_filters:,}")
        schema = await _schema(call)
        report = await asyncio.to_thread(lint, enumerate(body.filters), schema, compare_s=limits.dry_s)
        findings = [
            LintFinding(
                int(str(each.id)), str(each.oddity), each.message, None if each.other is None else int(str(each.other))
            )
            for each in report.findings
        ]
        return json_response(LintResult(report.filters, findings, report.cut_short))

    async def _match(self, call: Call) -> Response:
        body: MatchBody = call.body
        limits = call.gateway.settings.limits
        for what, count, most in (
            ("filters", len(body.filters), limits.dry_filters),
            ("events", len(body.events), limits.dry_events),
            ("pairs of a filter and an event", len(body.filters) * len(body.events), limits.dry_pairs),
        ):
            if count > most:
                raise ApiError(413, "size", f"{count:,} {what}; send at most {most:,}")
        schema = await _schema(call)
        return json_response(MatchResult(await asyncio.to_thread(_match_all, body, schema, limits.dry_s)))


async def _schema(call: Call) -> Schema | None:
    async with call.lease() as lease:
        return await lease.schema()


def _match_all(body: MatchBody, schema: Schema | None, seconds: float) -> list[list[int]]:
    parser = FilterParser(schema)
    filters: list[Filter] = []
    for number, text in enumerate(body.filters):
        try:
            filters.append(parser.parse(text))
        except FilterError as error:
            raise ApiError(422, "filter", f"filter {number} (from 0): {error}", error.start) from None
    events: list[dict[str, Value]] = []
    for number, raw in enumerate(body.events):
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
