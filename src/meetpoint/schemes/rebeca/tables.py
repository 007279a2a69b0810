"""Filter tables: what is told of an edge, drawn together from what is wanted in several places (paper E, section 2.1).

A row is a conjunction. What comes in is kept by its source, and a source is replaced whole: rows that come and go do so
in one change. Five strategies, from many rows to few:

- *simple*: a row for every row that came in;
- *identity*: equal rows once;
- *covering*: only rows that no other covers (`placement.entries.covering`). A row that goes brings back those that it
  alone covered, in the same change;
- *merging*: of these, such as can be drawn together exactly to one (`language.filters.algebra.merge`) are one row;
- *imperfect*: also such as cannot, to the closest row that accepts both, as long as of the events that the table would
  accept at most a share is accepted for nothing. What events are like is learnt from a sample. Of a row that is not
  exact it is assumed that it accepts one event for nothing that the sample has not: what was never seen is no proof.
  Each table keeps the bound for itself: on a way of k edges up to k such shares add up.

Each accepts all that came in, and all but the last nothing else. A row without constraints accepts every event: it is
the whole table.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from meetpoint.errors import LimitError
from meetpoint.language.filters.algebra import covers, merge
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.placement.entries.covering import Covering

__all__ = [
    "ALL",
    "SAMPLE_MAX",
    "STRATEGIES",
    "FilterTable",
    "RowChange",
    "Rows",
    "Sample",
    "Strategy",
    "accepts",
    "make_table",
]

Rows: TypeAlias = tuple[Conjunction, ...]
Strategy: TypeAlias = Literal["simple", "identity", "covering", "merging", "imperfect"]
STRATEGIES: Final[tuple[Strategy, ...]] = get_args(Strategy)

EVERYTHING: Final = Conjunction(())
ALL: Final[Rows] = (EVERYTHING,)
"""The table that accepts every event."""
ROWS_MAX: Final = 4_096
"""Rows of a table. One that would have more accepts every event."""
SHARE: Final = 0.1
"""Of the events that a table accepts, how many may be accepted for nothing, where rows are merged imperfectly."""
SAMPLE_MAX: Final = 256
"""Events of a sample that are looked at."""


def accepts(rows: Iterable[Conjunction], attributes: Mapping[str, object]) -> bool:
    """Return whether a table accepts an event."""
    return any(row.accepts(attributes) for row in rows)


class RowChange(NamedTuple):
    """A change of a table: rows that it has now, and rows that it has no longer."""

    added: Rows
    removed: Rows


class FilterTable:
    """A table with every row that came in: the strategy `simple`, and the base of the others."""

    def __init__(self) -> None:
        self._sources: dict[Hashable, Rows] = {}
        self._rows: Rows = ()

    @property
    def rows(self) -> Rows:
        """The rows that are told."""
        return self._rows

    @property
    def sources(self) -> Mapping[Hashable, Rows]:
        """The rows that came in, by source."""
        return self._sources

    def add(self, source: Hashable, rows: Rows) -> RowChange:
        """Add rows of a source; return the change."""
        return self.replace(source, (*self._sources.get(source, ()), *rows))

    def remove(self, source: Hashable) -> RowChange:
        """Remove a source; return the change."""
        return self.replace(source, ())

    def replace(self, source: Hashable, rows: Rows) -> RowChange:
        """Replace all rows of a source; return the change."""
        before = self._sources.get(source, ())
        if before is rows or before == rows:
            return RowChange((), ())
        if rows:
            self._sources[source] = rows
        else:
            self._sources.pop(source, None)
        told, kept = self._rows, self._reduce(before, rows)
        self._rows = ALL if EVERYTHING in kept or len(kept) > ROWS_MAX else tuple(kept)
        return RowChange(_without(self._rows, told), _without(told, self._rows))

    def _reduce(self, before: Rows, after: Rows) -> Collection[Conjunction]:
        """Return the rows to tell, where a source had some before and has others now."""
        return [row for rows in self._sources.values() for row in rows]


class _Identity(FilterTable):
    """A table with equal rows once."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[Conjunction, int] = {}

    def _reduce(self, before: Rows, after: Rows) -> Collection[Conjunction]:
        for row in after:  # what comes before what goes: a row that stays is never gone
            self._counts[row] = self._counts.get(row, 0) + 1
            if self._counts[row] == 1:
                self._came(row)
        for row in before:
            self._counts[row] -= 1
            if not self._counts[row]:
                del self._counts[row]
                self._went(row)
        return self._kept()

    def _came(self, row: Conjunction) -> None:
        """Take a row that was not there."""

    def _went(self, row: Conjunction) -> None:
        """Drop a row that is not there any more."""

    def _kept(self) -> Collection[Conjunction]:
        return self._counts


class _Uncoded:
    """A coverage that knows nothing of conjunctions but what they accept."""

    def code(self, conjunction: Conjunction) -> str:
        return ""


class _Covering(_Identity):
    """A table of rows that no other covers."""

    def __init__(self) -> None:
        super().__init__()
        self._covering = Covering(_Uncoded())
        self._names: dict[Conjunction, str] = {}
        self._named: dict[str, Conjunction] = {}
        self._number = 0
        self._roots: dict[Conjunction, None] = {}

    def _came(self, row: Conjunction) -> None:
        self._number += 1
        name = self._names[row] = str(self._number)
        self._named[name] = row
        self._note(self._covering.change(name, self._number, Filter("", (row,))))

    def _went(self, row: Conjunction) -> None:
        name = self._names.pop(row)
        changed = self._covering.change(name, 0, None)
        self._note(changed)
        del self._named[name]

    def _note(self, names: Iterable[str]) -> None:
        rows = [(self._named[name], bool(self._covering.placed(name))) for name in names]
        for row, is_root in rows:
            if is_root and row not in self._roots:
                self._roots[row] = None
                self._rose(row)
        for row, is_root in rows:
            if not is_root and row in self._roots:
                del self._roots[row]
                self._sank(row)

    def _rose(self, row: Conjunction) -> None:
        """Take a row that no other covers."""

    def _sank(self, row: Conjunction) -> None:
        """Drop a row that another covers now, or that is gone."""

    def _kept(self) -> Collection[Conjunction]:
        return self._roots


class _Cluster:
    """Rows that are one row, exactly or not."""

    __slots__ = ("is_exact", "members", "row")

    def __init__(self, row: Conjunction, members: list[Conjunction], is_exact: bool = True) -> None:
        self.row = row
        self.members = members
        self.is_exact = is_exact


class _Merging(_Covering):
    """A table of rows that no other covers, drawn together."""

    def __init__(self) -> None:
        super().__init__()
        self._clusters: dict[Conjunction, _Cluster] = {}  # by the row that they are
        self._of: dict[Conjunction, _Cluster] = {}  # by each that went into it

    def _rose(self, row: Conjunction) -> None:
        self._gather(_Cluster(row, [row]))

    def _sank(self, row: Conjunction) -> None:
        cluster = self._of.pop(row)
        self._drop(cluster)
        for member in cluster.members:
            if member != row:
                self._gather(_Cluster(member, [member]))

    def _gather(self, cluster: _Cluster) -> None:
        """Unite a cluster with others as long as there is one that it unites with."""
        while (found := self._partner(cluster)) is not None:
            other, row, is_exact = found
            self._drop(other)
            is_exact = is_exact and other.is_exact and cluster.is_exact
            cluster = _Cluster(row, other.members + cluster.members, is_exact)
        self._clusters[cluster.row] = cluster
        for member in cluster.members:
            self._of[member] = cluster

    def _drop(self, cluster: _Cluster) -> None:
        del self._clusters[cluster.row]

    def _partner(self, cluster: _Cluster) -> tuple[_Cluster, Conjunction, bool] | None:
        for other in self._clusters.values():
            row = _exactly(other.row, cluster.row) or _wider(other, cluster) or _wider(cluster, other)
            if row is not None:
                return other, row, True
        return None

    def _kept(self) -> Collection[Conjunction]:
        return self._clusters


class Sample:
    """A sample of events, and which of them each row accepts; those to come are assumed to be like them."""

    def __init__(self, events: Sequence[Mapping[str, object]] = ()) -> None:
        self._events = list(events[-SAMPLE_MAX:])
        self._known: dict[Conjunction, int] = {}

    def accepted(self, row: Conjunction) -> int:
        """Return a bit for each event."""
        found = self._known.get(row)
        if found is None:
            if len(self._known) >= 64 * SAMPLE_MAX:
                self._known.clear()
            found = self._known[row] = sum(1 << at for at, event in enumerate(self._events) if row.accepts(event))
        return found

    def all_accepted(self, rows: Iterable[Conjunction]) -> int:
        """Return a bit for each event that a row accepts."""
        bits = 0
        for row in rows:
            bits |= self.accepted(row)
        return bits


class _Imperfect(_Merging):
    """A table of rows drawn together, also where that accepts more, up to a share of what it accepts."""

    def __init__(self, sample: Sample, share: float) -> None:
        super().__init__()
        self._sample = sample
        self._share = share

    def _partner(self, cluster: _Cluster) -> tuple[_Cluster, Conjunction, bool] | None:
        exact = super()._partner(cluster)
        if exact is not None:
            return exact
        wanted = self._sample.all_accepted([*self._roots, *cluster.members])
        accepted = self._sample.all_accepted([*self._clusters, cluster.row])
        guesses = self._guesses()
        for other in self._clusters.values():
            row = _closest(other.row, cluster.row)
            if row is None:
                continue
            if self._is_fair(accepted | self._sample.accepted(row), wanted, guesses + other.is_exact):
                return other, row, False
        return None

    def _is_fair(self, accepted: int, wanted: int, guesses: int) -> bool:
        """Return whether few enough are accepted for nothing, where so many rows are not exact."""
        return (accepted & ~wanted).bit_count() + guesses <= self._share * (accepted.bit_count() + guesses)

    def _guesses(self) -> int:
        return sum(not cluster.is_exact for cluster in self._clusters.values())

    def _kept(self) -> Collection[Conjunction]:
        accepted = self._sample.all_accepted(self._clusters)
        if not self._is_fair(accepted, self._sample.all_accepted(self._roots), self._guesses()):
            self._clusters.clear()  # less is wanted than when they were drawn together
            for row in self._roots:
                self._gather(_Cluster(row, [row]))
        return self._clusters


def make_table(strategy: Strategy, sample: Sample | None = None, share: float = SHARE) -> FilterTable:
    """Return an empty table. `sample` and `share` are for `imperfect`."""
    match strategy:
        case "simple":
            return FilterTable()
        case "identity":
            return _Identity()
        case "covering":
            return _Covering()
        case "merging":
            return _Merging()
        case "imperfect":
            return _Imperfect(sample or Sample(), share)


def _exactly(a: Conjunction, b: Conjunction) -> Conjunction | None:
    """Return the row that accepts what either does and nothing else; None where there is none."""
    if a.attributes != b.attributes:
        return None
    if sum(mine != other for mine, other in zip(a.constraints, b.constraints, strict=True)) != 1:
        return None  # where neither covers the other, nothing else can be one
    return _one(a, b, perfect=True)


def _wider(wide: _Cluster, narrow: _Cluster) -> Conjunction | None:
    """Return the row of a cluster that covers another, which none of its members did."""
    if len(wide.members) > 1 and covers(Filter("", (wide.row,)), Filter("", (narrow.row,))):
        return wide.row
    return None


def _closest(a: Conjunction, b: Conjunction) -> Conjunction | None:
    """Return a row that accepts what either does; None where nothing is left of what they ask for."""
    if not set(a.attributes) & set(b.attributes):
        return None
    return _one(a, b, perfect=False)


def _one(a: Conjunction, b: Conjunction, *, perfect: bool) -> Conjunction | None:
    try:
        merged = merge(Filter("", (a,)), Filter("", (b,)), perfect=perfect).conjunctions
    except LimitError:
        return None
    return merged[0] if len(merged) == 1 and merged[0] != EVERYTHING else None


def _without(rows: Rows, taken: Rows) -> Rows:
    """Return the rows that are not among others, each as often as it is there more often."""
    counts: dict[Conjunction, int] = {}
    for row in taken:
        counts[row] = counts.get(row, 0) + 1
    kept = []
    for row in rows:
        if counts.get(row, 0):
            counts[row] -= 1
        else:
            kept.append(row)
    return tuple(kept)
