"""Peers of the matcher: other ways to match the same subscriptions with the same events, measured in one run.

Peers take events as flat columns of doubles and strings, one an attribute (`plain_events`). Doubles judge integers and
short decimals exactly as our language does, and NaN, our largest number, becomes infinity, which no bound of a long
form excludes unless it excludes NaN. Columns of which that is not true are named as unfit.

`NumpyPeer` has no index: every subscription is tried over whole columns of events, one after the other. It is the
first thing that one writes. Each constraint narrows the rows that the next one looks at, and a test of strings is made
once for all subscriptions that share it. Its time grows with subscriptions times events, so that it is measured on the
first events only, as many as `share` gives; events a second are those of that part. A call of NumPy costs something
however few the events, so that its rate would be higher with more of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.lab.workloads.long_form import DOUBLE_DIGITS, LONG_FORM, Array
from meetpoint.language.names import join_name


class Digest(msgspec.Struct, frozen=True, eq=False):
    """Pairs in short: per event the number of subscriptions and the sum of their numbers.

    Two sides that agree on both agree on the count, and a wrong subscription does not hide behind a right count.
    """

    counts: Array
    sums: Array

    def difference(self, other: Digest) -> int | None:
        """Return the first event on which two digests differ, among the events that both have."""
        shared = min(len(self.counts), len(other.counts))
        differ = (self.counts[:shared] != other.counts[:shared]) | (self.sums[:shared] != other.sums[:shared])
        return int(differ.argmax()) if differ.any() else None


def digest_of(events: Any, subscriptions: Any, count: int) -> Digest:
    """Return the digest of pairs, for so many events."""
    sums = np.bincount(events, weights=subscriptions, minlength=count)  # exact: far below 2 ** 53
    return Digest(np.bincount(events, minlength=count), sums.astype(np.int64))


class Peer(Protocol):
    """A matcher that holds a workload's subscriptions, and finds all pairs of an event and a subscription that accepts
    it.
    """

    name: str

    def load(self) -> None:
        """Load the subscriptions as they are; measured as loading."""

    def prepare(self) -> None:
        """Do everything else that makes matching fast; not measured."""

    def share(self, events: pa.Table) -> pa.Table:
        """Return the first of the events, as many as can be measured in a short time."""

    def stage(self, events: pa.Table) -> None:
        """Bring events into the form that matching starts from; not measured."""

    def match(self, events: pa.Table) -> int:
        """Materialise all pairs and return their number."""

    def pairs(self, events: pa.Table) -> pa.Table:
        """Return the pairs, in the columns event and subscription."""

    def digest(self, events: pa.Table) -> Digest:
        """Return the pairs in short."""


# -- plain events ------------------------------------------------------------------------------------------------------


_LARGEST = 10**DOUBLE_DIGITS


class PlainEvents(msgspec.Struct, frozen=True):
    """The columns by their attributes' canonical names, and the attributes that are of another kind or too exact."""

    table: pa.Table
    unfit: frozenset[str]


def plain_events(events: pa.Table) -> PlainEvents:
    """Make every column plain; a plain one stays as it is."""
    columns: dict[str, pa.Array] = {}
    unfit = set()
    for path, column in _leaves(events):
        plain = _plain(column)
        if plain is None:
            unfit.add(join_name(path))
        else:
            columns[join_name(path)] = plain
    if not columns:  # a table has no rows without a column
        columns["`no attribute`"] = pa.nulls(events.num_rows, pa.string())
    return PlainEvents(pa.table(columns), frozenset(unfit))


def _leaves(events: pa.Table) -> Iterator[tuple[tuple[str, ...], Any]]:
    waiting: list[tuple[tuple[str, ...], Any]] = [
        ((name,), events[name].combine_chunks()) for name in reversed(events.column_names)
    ]
    while waiting:
        path, column = waiting.pop()
        if isinstance(column, pa.ChunkedArray):  # of a table without any chunk
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_struct(column.type):
            inner = [column.type.field(at).name for at in range(column.type.num_fields)]
            waiting += [((*path, name), pc.struct_field(column, name)) for name in reversed(inner)]
        else:
            yield path, column


def _plain(column: Any) -> Any:
    """Return the column as doubles or strings; None where it cannot be."""
    type_ = column.type
    if pa.types.is_string(type_):
        return column
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return column.cast(pa.string())
    if pa.types.is_floating(type_):
        doubles = column.cast(pa.float64())
        values = doubles.to_numpy(zero_copy_only=False)
        odd = np.isnan(values) | (np.signbit(values) & (values == 0))
        if not odd.any() or (odd.sum() == column.null_count and not pc.any(pc.is_nan(doubles)).as_py()):
            return doubles
        return pa.array(np.where(np.isnan(values), np.inf, values) + 0.0, mask=column.is_null().to_numpy(False))
    if pa.types.is_integer(type_) or pa.types.is_decimal(type_):
        return _doubles(column)
    return None


def _doubles(column: Any) -> Any:
    if len(column) == column.null_count:
        return pa.nulls(len(column), pa.float64())
    if pa.types.is_integer(column.type):
        extremes = pc.min_max(column).as_py()
        return column.cast(pa.float64()) if extremes["min"] > -_LARGEST and extremes["max"] < _LARGEST else None
    values = column.to_pylist()
    if any(value is not None and _digits(value) > DOUBLE_DIGITS for value in values):
        return None
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def _digits(value: Decimal) -> int:
    return len(value.normalize().as_tuple().digits)


# -- NumPy -------------------------------------------------------------------------------------------------------------


TRIALS = 200_000_000
"""Subscriptions times events that are tried in one round."""
EVENTS_MIN = 1000

# Arrow's tests, since NumPy's drop a U+0000 at the end of a text.
_TESTS = {"eq": pc.equal, "prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}


class NumpyPeer:
    name = "numpy"

    def __init__(self, subscriptions: pa.Table, events_sample: pa.Table) -> None:
        self._table = subscriptions
        self._ids: Array = np.zeros(0, np.int64)
        self._rows: list[tuple[str, str, float | None, float | None, str | None]] = []
        self._ends: list[int] = []
        self._staged: pa.Table | None = None
        self._numbers: dict[str, Array] = {}
        self._codes: dict[str, tuple[pa.Array, Array]] = {}
        self._tests: dict[tuple[str, str, str], Array] = {}
        self._found: tuple[Array, Array] = (self._ids, self._ids)

    def load(self) -> None:
        columns = [self._table[name].to_pylist() for name in LONG_FORM.names[1:]]
        self._rows = list(zip(*columns, strict=True))
        owner = self._table["subscription"].to_numpy()
        ends = np.append(np.flatnonzero(np.diff(owner)) + 1, len(owner)) if len(owner) else np.zeros(0, np.int64)
        self._ids, self._ends = owner[ends - 1], ends.tolist()

    def prepare(self) -> None:
        """Do nothing: it has no index."""

    def share(self, events: pa.Table) -> pa.Table:
        return events.slice(0, max(EVENTS_MIN, TRIALS // max(1, len(self._ends))))

    def stage(self, events: pa.Table) -> None:
        """Take numbers as they are, with NaN for NULL, and strings as codes, the last of which is NULL."""
        self._numbers, self._codes, self._tests = {}, {}, {}
        plain = plain_events(events).table
        for name in plain.column_names:
            column = plain[name].combine_chunks()
            if pa.types.is_floating(column.type):
                self._numbers[name] = column.to_numpy(zero_copy_only=False)
            else:
                coded = column.dictionary_encode()
                self._codes[name] = coded.dictionary, np.asarray(coded.indices.fill_null(len(coded.dictionary)))
        self._staged = events

    def match(self, events: pa.Table) -> int:
        if self._staged is not events:
            self.stage(events)
        found: list[Array] = []
        begin = 0
        for end in self._ends:
            found.append(self._accepted(begin, end))
            begin = end
        whose = np.repeat(self._ids, [len(rows) for rows in found])
        self._found = np.concatenate([np.zeros(0, np.int64), *found]), whose
        return len(whose)

    def _accepted(self, begin: int, end: int) -> Array:
        """Return the events that one subscription accepts."""
        rows: Array | None = None
        for attribute, op, low, high, text in self._rows[begin:end]:
            if text is not None:
                if attribute not in self._codes:
                    return self._ids[:0]
                mask = self._test(attribute, op, text)
                rows = np.flatnonzero(mask) if rows is None else rows[mask[rows]]
            else:
                if attribute not in self._numbers:
                    return self._ids[:0]
                values = self._numbers[attribute] if rows is None else self._numbers[attribute][rows]
                here = np.flatnonzero((values >= low) & (values <= high))
                rows = here if rows is None else rows[here]
        assert rows is not None
        return rows

    def _test(self, attribute: str, op: str, text: str) -> Array:
        """Return which events pass a test, decided once per distinct string."""
        key = attribute, op, text
        mask = self._tests.get(key)
        if mask is None:
            values, codes = self._codes[attribute]
            passing = _TESTS[op](values, text).to_numpy(zero_copy_only=False)
            mask = self._tests[key] = np.append(passing, False)[codes]
        return mask

    def pairs(self, events: pa.Table) -> pa.Table:
        self.match(events)
        return pa.table(dict(zip(("event", "subscription"), self._found, strict=True)))

    def digest(self, events: pa.Table) -> Digest:
        self.match(events)
        return digest_of(*self._found, events.num_rows)
