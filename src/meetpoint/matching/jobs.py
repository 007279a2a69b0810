"""The jobs of the command line for Python: `match`, `backtest`, `lint` on files, tables, frames and plain rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError, MeetpointError
from meetpoint.language.filters.constraints import kind_accepted
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.filters.lint import LintItem, LintReport, Oddity
from meetpoint.language.filters.lint import lint as lint_filters
from meetpoint.language.schema.schema import Schema, show_value
from meetpoint.language.values import Kind
from meetpoint.matching import backtest as core
from meetpoint.matching.backtest import Backtest, check_name
from meetpoint.matching.index import Index
from meetpoint.matching.io.events import Events, load_events
from meetpoint.matching.io.rejects import Reject, Rejected, reject
from meetpoint.matching.io.subscriptions import (
    LoadedSubscription,
    Subscriptions,
    UnparsedSubscription,
    id_problem,
    load_subscriptions,
    unparsed_subscriptions,
)
from meetpoint.matching.tables.columns import ColumnBatch, Columns

__all__ = [
    "Mismatch",
    "backtest",
    "count_mismatches",
    "lint",
    "lint_rows",
    "load_events",
    "load_subscriptions",
    "match",
    "matches",
]

_TRIED_MAX, _TRIED_ROWS = 10_000, 100
"""Subscriptions, and rows for so many, up to which no index is made: its kernels may have to be compiled first."""

Mismatch: TypeAlias = tuple[str, Kind]
"""An attribute, and the kind as which it is compared."""


def match(
    events: Events,
    subscriptions: Subscriptions,
    *,
    event_id: str | None = None,
    schema: Schema | None = None,
    rejects: list[Reject] | None = None,
) -> pa.Table:
    """Return a table with the columns event and subscription: all pairs where the subscription accepts the event.

    Events are a path (.jsonl, .csv, .parquet), an Arrow table, batches or a reader, a pandas frame, or rows;
    subscriptions a path, a mapping of id to filter, an Arrow table, a frame, or rows with `id` and `filter`. An event
    is named by its row number, or by the value of `event_id`. Bad rows raise, unless `rejects` is a list: then they are
    put there and the good ones are done.

        match([{"price": 9}], {"ann": "price > 8"}).to_pylist()  # [{'event': 0, 'subscription': 'ann'}]
    """
    rejected = _raise if rejects is None else rejects.append
    held = load_subscriptions(subscriptions, rejected, schema)
    found = matches(load_events(events, rejected, schema), held, event_id, rejected)
    tables = [pairs for _, pairs in found]
    return pa.concat_tables([pairs for pairs in tables if pairs.num_rows] or tables[:1])


def matches(
    batches: Iterable[ColumnBatch], subscriptions: list[LoadedSubscription], event_id: str | None, rejected: Rejected
) -> Iterator[tuple[int, pa.Table]]:
    """Yield for each batch the number of events and the pairs, ordered by event and then by subscription.

    There is at least one table, even an empty one, so that a result always has its columns. All tables that are not
    empty have the same types. Events without the value that names them are rejected.
    """
    names = _Names("subscriptions: the ids")
    ids = names.array([s.id for s in subscriptions]) if subscriptions else pa.array([], pa.string())
    if event_id is not None:
        check_name("--event-id", event_id)
    events = _Names(f"events: the values of {event_id}")
    none_yet = True
    index: Index[int] | None = None
    work = 0
    for batch in batches:
        work += len(subscriptions) * len(batch.rows)
        if index is None and (len(subscriptions) > _TRIED_MAX or work > _TRIED_MAX * _TRIED_ROWS):
            index = Index.from_filters(enumerate(s.filter for s in subscriptions), sample=batch.columns)
        rows, whose = (
            _match_by_columns(batch.columns, subscriptions) if index is None else index.match_columns(batch.columns)
        )
        if event_id is None:
            named = pa.array(batch.rows, pa.int64())
        else:
            values = _event_ids(batch, event_id, rejected)
            named = events.array(values)
            kept = np.fromiter((v is not None for v in values), np.bool_, count=len(values))[rows]
            rows, whose = rows[kept], whose[kept]
        yield (
            len(batch.rows),
            pa.table({"event": named.take(pa.array(rows)), "subscription": ids.take(pa.array(whose))}),
        )
        none_yet = False
    if none_yet:
        yield 0, pa.table({"event": pa.array([], pa.int64()), "subscription": ids[:0]})


def _match_by_columns(columns: Columns, subscriptions: list[LoadedSubscription]) -> tuple[Any, Any]:
    """Return row numbers and places of subscriptions, as `Index.match_columns` does, by trying every filter."""
    found = [columns.accepted(s.filter) for s in subscriptions]
    rows = np.concatenate([np.zeros(0, np.int64), *found])
    whose = np.repeat(np.arange(len(found)), [len(accepted) for accepted in found])
    order = np.argsort(rows, kind="stable")
    return rows[order], whose[order]


def _event_ids(batch: ColumnBatch, name: str, rejected: Rejected) -> list[object]:
    """Return the names of events; None for one that is rejected because it has none."""
    values = list(batch.columns.values(name))
    for at, value in enumerate(values):
        if (problem := id_problem(value)) is not None:
            reason = (
                f"{name}, which is to name the event, {problem.replace('give it one', 'choose another --event-id')}"
            )
            rejected(reject("events", batch.rows[at], reason, batch.columns.row(at)))
            values[at] = None
    return values


class _Names:
    """Names of one type over all batches.

    They are never cast, since 1 and 1.0 and "1" are different names.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._class: type | None = None
        self._type: Any = None

    def array(self, values: list[Any]) -> pa.Array:
        """Return the names as a column; EventError if they differ in type, from each other or from earlier ones."""
        for cls in {type(value) for value in values if value is not None}:
            self._class = self._class or cls
            if cls is not self._class:
                self._refuse()
        try:
            array = pa.array(values)
        except (pa.ArrowException, OverflowError, ValueError):
            self._refuse()
        if self._class is not None and len(array) > array.null_count:
            self._type = self._type or array.type
            if array.type != self._type:
                self._refuse()
        return array

    def _refuse(self) -> None:
        raise EventError(f"{self._what} are of different types; make all of them strings, or all integers")


def count_mismatches(
    batches: Iterable[ColumnBatch], filters: Iterable[Filter], mismatches: Counter[Mismatch]
) -> Iterator[ColumnBatch]:
    """Yield the same batches, and count the events whose value is of another kind than a constraint on it."""
    compared = {
        (name, kind)
        for filter_ in filters
        for conjunction in filter_.conjunctions
        for name, constraint in conjunction.constraints
        if (kind := kind_accepted(constraint)) is not None
    }
    for batch in batches:
        for name, kind in sorted(compared):
            mismatches[name, kind] += batch.columns.of_other_kinds(name, kind)
        yield batch


def backtest(
    filter_: str | Filter,
    events: Events,
    *,
    time: str | None = None,
    width: timedelta | str = timedelta(hours=1),
    schema: Schema | None = None,
    rejects: list[Reject] | None = None,
) -> Backtest:
    """Return what a filter would have done on events, given as for `match`; `time` names the timeline's attribute.

    `width` is that of the timeline's buckets, also as a text: 30s, 15m, 1h, 1d, 1w.
    """
    if not isinstance(filter_, str | Filter):
        raise MeetpointError(f"backtest: the filter is of class {type(filter_).__name__}; give a text or a Filter")
    wanted = parse_filter(filter_, schema) if isinstance(filter_, str) else filter_
    rejected = _raise if rejects is None else rejects.append
    return core.backtest(wanted, load_events(events, rejected, schema), time=time, width=width)


def lint(
    subscriptions: Subscriptions, *, schema: Schema | None = None, rejects: list[Reject] | None = None
) -> LintReport:
    """Return the findings on subscriptions, given as for `match`; rows without a good id or a filter are bad rows.

    A filter that is refused is a finding, and is put into `rejects` too if that is a list.
    """
    if rejects is None:
        return lint_rows(subscriptions, _raise, schema, lambda refused: None)
    return lint_rows(subscriptions, rejects.append, schema, rejects.append)


def lint_rows(subscriptions: Subscriptions, rejected: Rejected, schema: Schema | None, refused: Rejected) -> LintReport:
    """Return the findings; pass bad rows to a callback one by one, and then the rows of refused filters to another."""
    held: dict[object, UnparsedSubscription] = {}

    def read() -> Iterator[LintItem]:
        for one in unparsed_subscriptions(subscriptions, rejected):
            held[one.id] = one
            yield LintItem(one.id, one.text, one.subscriber)

    report = lint_filters(read(), schema)
    for finding in report.findings:
        if finding.oddity is Oddity.REFUSED:
            one = held[finding.id]
            refused(reject("subscriptions", one.row, f"id {show_value(one.id)}: {finding.message}", one.text))
    return report


def _raise(rejected: Reject) -> None:
    raise MeetpointError(
        f"{rejected.input}, row {rejected.row}: {rejected.reason}; pass rejects=[] to set bad rows aside"
    )
