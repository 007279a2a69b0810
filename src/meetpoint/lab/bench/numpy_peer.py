"""NumPy without an index: every subscription over whole columns of events, one after the other.

It is what one writes first. Each constraint narrows the rows that the next one looks at, and a test of strings is made
once for all subscriptions that share it. Its time grows with subscriptions times events, so that it is measured on the
first events only, as many as `share` gives; events a second are those of that part. A call of NumPy costs something
however few the events, so that its rate would be higher with more of them at once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from meetpoint.lab.bench.peers import Digest, digest_of
from meetpoint.lab.bench.plain import plain_events
from meetpoint.lab.workloads.drafts import Array
from meetpoint.lab.workloads.longform import LONG_FORM

__all__ = ["NumpyPeer"]

TRIALS = 200_000_000
"""Subscriptions times events that are tried in one round."""
EVENTS_MIN = 1000

# Arrow's tests, since NumPy's drop a U+0000 at the end of a text.
_TESTS = {"eq": pc.equal, "prefix": pc.starts_with, "suffix": pc.ends_with, "contains": pc.match_substring}


class NumpyPeer:
    """Every subscription is tried on every event."""

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
        """Nothing: it has no index."""

    def share(self, events: pa.Table) -> pa.Table:
        return events.slice(0, max(EVENTS_MIN, TRIALS // max(1, len(self._ends))))

    def stage(self, events: pa.Table) -> None:
        """Numbers as they are, with NaN for NULL; strings as codes, the last of which is NULL."""
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
        """The events that one subscription accepts."""
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
        """Which events pass a test, decided once per distinct string."""
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
