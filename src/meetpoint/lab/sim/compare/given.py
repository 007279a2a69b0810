"""The filters and the events that networks are given to be compared: drawn from a seed, or a user's own, from files.

Files are read as `meetpoint match` reads them, and no further than so many rows: what is no subscription, or no event,
is set aside with a reason. Reading files takes pyarrow; the simulator itself does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import msgspec

from meetpoint.errors import EventError, FilterError
from meetpoint.lab.sim.workload import SCHEMA, Workload
from meetpoint.language.filters.filter import FilterParser
from meetpoint.language.schema.schema import Schema, show_value
from meetpoint.language.values import Value, clean_attributes

if TYPE_CHECKING:
    from meetpoint.matching.io.rejects import Reject, Rejected

__all__ = ["Given", "drawn", "read_given"]

Row = TypeVar("Row")


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What clients subscribe to, what they publish, and the schema that schemes are told, if any."""

    filters: tuple[str, ...]
    events: tuple[Mapping[str, Value], ...]
    schema: str = ""
    """As YAML."""
    more_filters: bool = False
    more_events: bool = False
    """Whether the files have rows beyond those that were asked for."""


def drawn(seed: int, filters: int, events: int) -> Given:
    """The simulator's own workload."""
    workload = Workload(seed)
    return Given(
        filters=tuple(workload.filter() for _ in range(filters)),
        events=tuple(workload.event() for _ in range(events)),
        schema=SCHEMA,
    )


def read_given(
    filters_path: str,
    events_path: str,
    schema: Schema | None,
    filters_max: int,
    events_max: int,
    rejected: Rejected,
) -> Given:
    """The first good rows of two files; those before the last one taken that are not good are set aside."""
    filters, more_filters = _first(filters_max, partial(_filters, filters_path, schema), rejected)
    events, more_events = _first(events_max, partial(_events, events_path, schema), rejected)
    return Given(
        filters=tuple(filters),
        events=tuple(events),
        schema="" if schema is None else schema.to_yaml(),
        more_filters=more_filters,
        more_events=more_events,
    )


def _first(
    most: int, read: Callable[[Rejected], Iterator[tuple[int, Row]]], rejected: Rejected
) -> tuple[list[Row], bool]:
    """So many rows, and whether there are more. Files are read in batches: what lies beyond the last is not judged."""
    aside: list[Reject] = []
    found = list(islice(read(aside.append), most + 1))
    more = len(found) > most
    taken = found[:most]
    for each in sorted(aside, key=lambda each: each.row):
        if not more or (taken and each.row < taken[-1][0]):
            rejected(each)
    return [row for _, row in taken], more


def _filters(path: str, schema: Schema | None, rejected: Rejected) -> Iterator[tuple[int, str]]:
    from meetpoint.matching.io.rejects import reject
    from meetpoint.matching.io.subscriptions import unparsed_subscriptions

    parser = FilterParser(schema)
    for one in unparsed_subscriptions(path, rejected):
        try:
            parser.parse(one.text)
        except FilterError as error:
            rejected(reject("subscriptions", one.row, f"id {show_value(one.id)}: {error}", one.text))
        else:
            yield one.row, one.text


def _events(path: str, schema: Schema | None, rejected: Rejected) -> Iterator[tuple[int, dict[str, Value]]]:
    from meetpoint.matching.io.events import read_events
    from meetpoint.matching.io.rejects import reject

    for batch in read_events(path, rejected, schema):
        for number, row in zip(batch.rows, batch.columns.rows(), strict=True):
            try:
                yield number, clean_attributes(row)
            except EventError as error:
                rejected(reject("events", number, str(error), row))
