"""The jobs of the command line for Python: `match`, `backtest`, `lint` on files, tables, frames and plain rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from os import PathLike, fspath
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from meetpoint.errors import EventError, MeetpointError
from meetpoint.language.constraints import kind_accepted
from meetpoint.language.event import Event
from meetpoint.language.event_arrow import attributes_from_pandas
from meetpoint.language.filters import Filter, parse_filter
from meetpoint.language.lint import Report, Subscription
from meetpoint.language.lint import lint as lint_filters
from meetpoint.language.schema import Schema
from meetpoint.language.values import Kind, clean_attributes
from meetpoint.matching import backtest as core
from meetpoint.matching.backtest import Backtest
from meetpoint.matching.columns import Columns
from meetpoint.matching.sources import (
    BATCH_ROWS,
    Batch,
    Reject,
    Subscriber,
    check_subscriptions,
    read_events,
    read_subscriptions,
    subscription_rows,
)

__all__ = ["Mismatch", "backtest", "lint", "lint_rows", "load_events", "load_subscriptions", "match", "matches"]

Mismatch: TypeAlias = tuple[str, Kind]
"""An attribute, and the kind it is compared as."""

Events: TypeAlias = "str | PathLike[str] | pa.Table | pa.RecordBatch | Iterable[Event | Mapping[str, object]] | Any"
Subscriptions: TypeAlias = str | PathLike[str] | Mapping[Any, str | Filter] | Iterable[Mapping[str, Any]]


def match(
    events: Events,
    subscriptions: Subscriptions,
    *,
    event_id: str | None = None,
    schema: Schema | None = None,
    rejects: list[Reject] | None = None,
) -> pa.Table:
    """All pairs of an event and a subscription that accepts it, as a table with the columns event and subscription.

    Events are a path (.jsonl, .csv, .parquet), an Arrow table or batch, a pandas frame, or rows; subscriptions a path,
    a mapping of id to filter, or rows with `id` and `filter`. An event is named by its row number, or by the value of
    `event_id`. Bad rows raise, unless `rejects` is a list: then they are put there and the good ones are done.
    """
    rejected = _raise if rejects is None else rejects.append
    held = load_subscriptions(subscriptions, rejected, schema)
    tables = [pairs for _, pairs in matches(load_events(events, rejected, schema), held, event_id)]
    return pa.concat_tables(tables, promote_options="permissive")


def matches(
    batches: Iterable[Batch],
    subscriptions: list[Subscriber],
    event_id: str | None = None,
    mismatches: Counter[Mismatch] | None = None,
) -> Iterator[tuple[int, pa.Table]]:
    """Batch by batch, the number of events and the pairs, ordered by event and then by subscription.

    There is at least one table, though it may be empty, so that whatever is made of them has its columns. Events whose
    value is of another kind than some constraint on it are counted in `mismatches`.
    """
    compared = {
        (name, kind)
        for s in subscriptions
        for conjunction in s.filter.conjunctions
        for name, constraint in conjunction.constraints
        if (kind := kind_accepted(constraint)) is not None
    }
    ids = (
        _names("subscriptions: the ids", [s.id for s in subscriptions]) if subscriptions else pa.array([], pa.string())
    )
    none_yet = True
    for batch in batches:
        if mismatches is not None:
            for name, kind in sorted(compared):
                mismatches[name, kind] += batch.columns.of_other_kinds(name, kind)
        yield len(batch.rows), _pairs(batch, subscriptions, ids, event_id)
        none_yet = False
    if none_yet:
        yield 0, pa.table({"event": pa.array([], pa.int64()), "subscription": ids[:0]})


def _pairs(batch: Batch, subscriptions: list[Subscriber], ids: pa.Array, event_id: str | None) -> pa.Table:
    found = [batch.columns.accepted(s.filter) for s in subscriptions]
    rows = np.concatenate([*found, np.zeros(0, dtype=np.int64)])
    whose = np.repeat(np.arange(len(found)), [len(accepted) for accepted in found])
    order = np.argsort(rows, kind="stable")
    events = pa.array(batch.rows, pa.int64()) if event_id is None else _event_ids(batch, event_id)
    return pa.table({"event": events.take(pa.array(rows[order])), "subscription": ids.take(pa.array(whose[order]))})


def _event_ids(batch: Batch, name: str) -> pa.Array:
    values = batch.columns.values(name)
    if any(value is None for value in values):
        row = batch.rows[next(n for n, value in enumerate(values) if value is None)]
        raise EventError(f"events: row {row} has no {name}, which is to name the event; choose another --event-id")
    return _names(f"events: the values of {name}", values)


def _names(what: str, values: Sequence[object]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise EventError(f"{what} are of different types; make all of them strings, or all integers") from None


def backtest(
    filter_: str | Filter,
    events: Events,
    *,
    time: str | None = None,
    width: timedelta = timedelta(hours=1),
    schema: Schema | None = None,
    rejects: list[Reject] | None = None,
) -> Backtest:
    """What a filter would have done on events, given as for `match`; `time` names the attribute of the timeline."""
    wanted = parse_filter(filter_, schema) if isinstance(filter_, str) else filter_
    rejected = _raise if rejects is None else rejects.append
    batches = load_events(events, rejected, schema)
    return core.backtest(wanted, (batch.columns for batch in batches), time=time, width=width)


def lint(subscriptions: Subscriptions, *, schema: Schema | None = None, rejects: list[Reject] | None = None) -> Report:
    """What is odd about subscriptions, given as for `match`; rows without an id or a filter are bad rows."""
    return lint_rows(subscriptions, _raise if rejects is None else rejects.append, schema)


def lint_rows(subscriptions: Subscriptions, rejected: Callable[[Reject], None], schema: Schema | None) -> Report:
    """The same with bad rows handed on one by one."""
    if isinstance(subscriptions, str | PathLike):
        rows = subscription_rows(fspath(subscriptions), rejected)
    elif isinstance(subscriptions, Mapping):
        rows = enumerate({"id": id_, "filter": str(text)} for id_, text in subscriptions.items())
    else:
        rows = enumerate(subscriptions)
    return lint_filters(_lintable(rows, rejected), schema)


def _lintable(
    rows: Iterable[tuple[int, Mapping[str, Any]]], rejected: Callable[[Reject], None]
) -> Iterator[Subscription]:
    for number, row in rows:
        id_, text = row.get("id"), row.get("filter")
        if id_ is None or not isinstance(text, str):
            missing = "id" if id_ is None else "filter"
            rejected(Reject("subscriptions", number, f"the subscription has no {missing}; give it one", str(dict(row))))
        else:
            yield Subscription(id_, text, row.get("subscriber"))


def load_events(events: Events, rejected: Callable[[Reject], None], schema: Schema | None) -> Iterator[Batch]:
    """Whatever holds events, as batches."""
    if isinstance(events, str | PathLike):
        yield from read_events(fspath(events), rejected, schema)
    elif isinstance(events, pa.Table):
        first = 0
        for batch in events.to_batches(max_chunksize=BATCH_ROWS):
            yield Batch(range(first, first + batch.num_rows), Columns.of_batch(batch))
            first += batch.num_rows
    elif isinstance(events, pa.RecordBatch):
        yield Batch(range(events.num_rows), Columns.of_batch(events))
    elif hasattr(events, "iloc"):
        rows = attributes_from_pandas(events)
        yield Batch(range(len(rows)), Columns.of_rows(rows))
    else:
        yield from _row_batches(events, rejected, schema)


def _row_batches(
    events: Iterable[Event | Mapping[str, object]], rejected: Callable[[Reject], None], schema: Schema | None
) -> Iterator[Batch]:
    rows: list[Any] = []
    numbers: list[int] = []
    for number, event in enumerate(events):
        try:
            attributes = event.attributes if isinstance(event, Event) else clean_attributes(event)
            rows.append(attributes if schema is None else schema.conform(attributes))
            numbers.append(number)
        except EventError as error:
            rejected(Reject("events", number, str(error), str(event)[:1000]))
        if len(rows) == BATCH_ROWS:
            yield Batch(numbers, Columns.of_rows(rows))
            rows, numbers = [], []
    if rows:
        yield Batch(numbers, Columns.of_rows(rows))


def load_subscriptions(
    subscriptions: Subscriptions, rejected: Callable[[Reject], None], schema: Schema | None
) -> list[Subscriber]:
    """Whatever holds subscriptions, parsed."""
    if isinstance(subscriptions, str | PathLike):
        return read_subscriptions(fspath(subscriptions), rejected, schema)
    if isinstance(subscriptions, Mapping):
        texts = ({"id": id_, "filter": f.text if isinstance(f, Filter) else f} for id_, f in subscriptions.items())
        return check_subscriptions(enumerate(texts), rejected, schema)
    return check_subscriptions(enumerate(subscriptions), rejected, schema)


def _raise(reject: Reject) -> None:
    raise MeetpointError(f"{reject.input}, row {reject.row}: {reject.reason}; pass rejects=[] to set bad rows aside")
