"""DuckDB as a content-based matcher: the access-predicate plan, and the strongest plan we know.

A plain join of events and subscriptions on all constraints tries every pair. Here the constraint that leads to a
subscription is an equality that DuckDB can hash: a value, the code of one of few values, the quantile cell of a number,
a prefix, a suffix or a substring. The other constraints are conditions of the same join, and strings of few values are
bits of a word. The plain peer joins a table a class of constraints; `access.Tuning` says what the tuned one does more.

What favours DuckDB: the tables of subscriptions, the codes and cells of events, and all prefixes, suffixes and
substrings of events' strings are made before anything is measured. The index encodes events while it is measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.errors import SetupError
from meetpoint.lab.bench.access import (
    PLAIN,
    TUNED,
    AccessKind,
    Attribute,
    AttributeKind,
    Check,
    TableGroup,
    Tuning,
    make_plan,
    read_attributes,
)
from meetpoint.lab.bench.peers import Digest, plain_events

if TYPE_CHECKING:
    import duckdb

_PARTS = {AccessKind.PREFIX: "substr({v}, 1, n)", AccessKind.SUFFIX: "right({v}, n)"}
_TESTS = {"prefix": "starts_with", "suffix": "ends_with", "contains": "contains"}


class DuckDBPeer:
    """DuckDB with hash joins. Where the sample is the events to come, the plan fits them best."""

    name = "duckdb"
    tuning: Tuning = PLAIN

    def __init__(self, subscriptions: pa.Table, events_sample: pa.Table) -> None:
        try:
            import duckdb
        except ImportError:
            raise SetupError("duckdb, the peer, is not installed; run: pip install 'meetpoint[bench]'") from None
        self._subscriptions = subscriptions
        self._sample = plain_events(events_sample).table
        self._attributes: dict[str, Attribute] = {}
        self._groups: list[TableGroup] = []
        self._texts: pa.Array = pa.array([], pa.string())
        self._staged: pa.Table | None = None
        self._statements: list[str] = []
        spill = Path(tempfile.gettempdir()) / "meetpoint-duckdb"  # where it puts what exceeds the memory, else in "."
        # One thread, as the index has: more would compare cores, not matchers.
        settings = {"threads": 1, "preserve_insertion_order": False, "temp_directory": str(spill)}
        self._connection = duckdb.connect(config=settings)

    @staticmethod
    def load_raw(connection: duckdb.DuckDBPyConnection, subscriptions: pa.Table) -> None:
        """Load the long form as one table: the least that DuckDB must do to hold subscriptions."""
        _put(connection, "raw", subscriptions)

    def load(self) -> None:
        self.load_raw(self._connection, self._subscriptions)

    def prepare(self) -> None:
        """Make the tables of the plan."""
        self._attributes = read_attributes(self._sample)
        plan = make_plan(self._subscriptions, self._attributes, self._sample.num_rows, self.tuning)
        self._groups, self._texts = plan.groups, plan.texts
        for number, group in enumerate(self._groups):
            _put(self._connection, f"s{number}", group.table)
        joins = [
            f"select e.event, s.subscription from {_events_of(group)} e join s{number} s on {_access(group)} = s.k"
            + (f" where {' and '.join(map(_condition, group.checks))}" if group.checks else "")
            for number, group in enumerate(self._groups)
        ]
        joins = joins or ["select event, 0::integer as subscription from e where false"]
        self._statements = [" union all ".join(joins)] if self.tuning.together else joins
        self._staged = None

    def share(self, events: pa.Table) -> pa.Table:
        return events

    def stage(self, events: pa.Table) -> None:
        """Make the events' table, and the tables of their strings' parts."""
        plain = plain_events(events).table
        if self._attributes and _has_new_values(plain, self._attributes):
            self._sample = pa.concat_tables([self._sample, plain], promote_options="default")
            self._attributes = {}
        if not self._attributes:
            self.prepare()
        columns = {"event": pa.array(np.arange(plain.num_rows, dtype=np.int32))}
        for attribute in self._attributes.values():
            columns |= _event_columns(attribute, plain, self._texts if self.tuning.codes else None)
        _put(self._connection, "e", pa.table(columns))
        for name, members in self._families():
            first = self._groups[members[0]]
            keys = " union ".join(f"select k from s{number}" for number in members)
            self._connection.execute(f"create or replace table keys{name} as {keys}")
            found = self._connection.execute(f"select list(distinct length(k)) from keys{name}").fetchone()
            assert found is not None
            self._connection.execute(_explosion(name, first.attribute, first.access, found[0]))
        self._staged = events

    def match(self, events: pa.Table) -> int:
        return sum(self._each(events))

    def pairs(self, events: pa.Table) -> pa.Table:
        found = [self._connection.sql("select * from pairs").to_arrow_table() for _ in self._each(events)]
        return pa.concat_tables(found, promote_options="permissive")

    def digest(self, events: pa.Table) -> Digest:
        digest = Digest(np.zeros(events.num_rows, np.int64), np.zeros(events.num_rows, np.int64))
        for _ in self._each(events):
            found = self._connection.execute(
                "select event, count(*), sum(subscription)::bigint from pairs group by event"
            ).fetchnumpy()
            event, count, total = found.values()
            digest.counts[event] += count
            digest.sums[event] += total
        return digest

    def _each(self, events: pa.Table) -> Iterator[int]:
        """Run each statement into the table `pairs`, which the next one overwrites, and yield its number of pairs."""
        if self._staged is not events:
            self.stage(events)
        for name, members in self._families():
            used = sorted({_column(check) for number in members for check in self._groups[number].checks})
            self._connection.execute(
                f"create or replace temp table h{name} as select {', '.join(f'e.{c}' for c in ('event', *used))}, x.k "
                f"from (select * from x{name} where k in (select k from keys{name})) x join e using (event)"
            )
        for statement in self._statements:
            made = self._connection.execute(f"create or replace temp table pairs as {statement}").fetchone()
            assert made is not None
            yield int(made[0])

    def _families(self) -> list[tuple[str, list[int]]]:
        """Return the groups that are found by parts of strings, by attribute and access."""
        named = [(_family(group), at) for at, group in enumerate(self._groups) if group.access >= AccessKind.PREFIX]
        return [(name, [at for _, at in some]) for name, some in groupby(named, key=lambda one: one[0])]


class TunedDuckDBPeer(DuckDBPeer):
    """DuckDB with every tuning that makes it quicker."""

    name = "duckdb-tuned"
    tuning = TUNED


def _put(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    connection.register("arriving", table)
    connection.execute(f"create or replace table {name} as select * from arriving")
    connection.unregister("arriving")


def _has_new_values(events: pa.Table, attributes: dict[str, Attribute]) -> bool:
    """Return whether events hold a value without a code, or NULL where the plan expects a number."""
    if not set(events.column_names) <= set(attributes):
        return True
    for name, attribute in attributes.items():
        column = events[name] if name in events.column_names else None
        if attribute.sort is AttributeKind.NUMBER and not attribute.nullable and (column is None or column.null_count):
            return True
        if attribute.sort is AttributeKind.CODED and column is not None:
            known = pc.is_in(column, pa.array(attribute.values, pa.string()), skip_nulls=True)
            if pc.any(pc.and_not(pc.is_valid(column), known)).as_py():
                return True
    return False


def _event_columns(attribute: Attribute, events: pa.Table, texts: pa.Array | None) -> dict[str, pa.Array]:
    """Return the columns of an attribute: v, the value; c, the code of one of few; d, of one of `texts`; b, the cell.

    NULL is NaN as a value, the code after the last of few, -1 of other strings, and in no cell.
    """
    number = attribute.number
    kind = pa.float64() if attribute.sort is AttributeKind.NUMBER else pa.string()
    if attribute.name in events.column_names:
        column = pa.concat_arrays([pa.array([], kind), *events[attribute.name].chunks])
    else:
        column = pa.nulls(events.num_rows, kind)
    if attribute.sort is AttributeKind.TEXT and texts is None:
        return {f"v{number}": column}
    if attribute.sort is AttributeKind.TEXT:
        code = pc.index_in(column, texts, skip_nulls=True).fill_null(-1)
        return {f"v{number}": column, f"d{number}": code}
    if attribute.sort is AttributeKind.CODED:
        code = pc.index_in(column, pa.array(attribute.values, pa.string()), skip_nulls=True)
        return {f"c{number}": code.fill_null(len(attribute.values)).cast(pa.int64())}
    assert attribute.cuts is not None
    values = column.fill_null(np.nan).to_numpy()
    cell = np.searchsorted(attribute.cuts, values, "right").astype(np.int32)
    return {f"v{number}": pa.array(values), f"b{number}": pa.array(cell, mask=np.isnan(values))}


def _explosion(name: str, attribute: Attribute, access: AccessKind, lengths: list[int]) -> str:
    """Return the statement for the parts of strings that could be keys: of the keys' lengths, each once an event."""
    v = f"v{attribute.number}"
    each = f"(select unnest({lengths}::bigint[]) as n)"
    if access is AccessKind.CONTAINS:
        places = f"select event, {v}, n, unnest(range(1, length({v}) - n + 2)) as place from e, {each}"
        return f"create or replace table x{name} as select distinct event, substr({v}, place, n) as k from ({places})"
    part = _PARTS[access].format(v=v)
    return f"create or replace table x{name} as select event, {part} as k from e, {each} where n <= length({v})"


def _family(group: TableGroup) -> str:
    return f"{group.attribute.number}_{group.access.value}"


def _events_of(group: TableGroup) -> str:
    return f"h{_family(group)}" if group.access >= AccessKind.PREFIX else "e"


def _access(group: TableGroup) -> str:
    if group.access >= AccessKind.PREFIX:
        return "e.k"
    value = "d" if pa.types.is_integer(group.table["k"].type) else "v"
    letter = {AccessKind.VALUE: value, AccessKind.CODE: "c", AccessKind.CELL: "b"}[group.access]
    return f"e.{letter}{group.attribute.number}"


def _column(check: Check) -> str:
    letter = {"mask": "c", "code": "d"}.get(check.test, "v")
    return f"{letter}{check.attribute.number}"


def _condition(check: Check) -> str:
    event = f"e.{_column(check)}"
    if check.test in ("range", "code"):
        low, high = check.columns
        return f"{event} >= s.{low} and {event} <= s.{high}"
    key = f"s.{check.columns[0]}"
    if check.test == "mask":
        return f"(({key} >> {event}) & 1) = 1"
    test = f"{event} = {key}" if check.test == "eq" else f"{_TESTS[check.test]}({event}, {key})"
    return f"({key} is null or {test})"
