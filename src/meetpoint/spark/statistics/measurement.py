"""`measure`: statistics of events, of subscriptions, and of the matches between them.

It tells which values occur, which constraints accept events, at which keys many pairs meet, and which subscriptions
match nothing. The result is structures for a program, a text for people, and JSON for a file.

Events are read twice, and a third time where subscriptions are measured too; cache them if reading them takes long.
Counts are exact, with these exceptions: the number of distinct values; quantiles, which are off by at most a
ten-thousandth of all values; common values of attributes with very many (see `matching.keys.value_counts`). Constraints
and keys are counted for those that matter most, `CONSTRAINTS_MAX` and `KEYS_MAX` of them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from meetpoint.errors import MeetpointError, one_line
from meetpoint.language.values import Kind
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.matching.keys.key_plan import KeyPlan
from meetpoint.matching.keys.meet_keys import KeySort, MeetKey
from meetpoint.matching.keys.value_counts import read_value
from meetpoint.spark.columns import check_frame, schema_from_spark
from meetpoint.spark.statistics.counts import (
    ACCURACY,
    FILTER_ROWS,
    QUARTILES,
    ColumnStatistics,
    FilterCounter,
    SatisfiedCounter,
    ValueCounts,
    build_statistics,
    count_columns,
    count_values,
    selected,
)
from meetpoint.spark.subscriptions.subscriptions import Subscriptions
from meetpoint.spark.worker_files import check_workers

__all__ = ["CONSTRAINTS_MAX", "KEYS_MAX", "Measurement", "measure"]

_WIDTH = 48
"""The characters of a text in a column of the report."""
CONSTRAINTS_MAX = 1000
"""The most constraints that are counted: those that most subscriptions have."""
DRAWN_MAX = 32
"""The constraints of each attribute that are counted beside those, drawn from the rest, to estimate the rest."""
KEYS_MAX = 1000
"""The most meet keys that are counted: those at which most pairs are expected."""


class ValueShare(msgspec.Struct, frozen=True):
    """A value, the number of events that hold it, and their share of all events."""

    value: Any
    events: int
    share: float


class AttributeMeasure(msgspec.Struct, frozen=True):
    """The values that events hold under an attribute.

    `there` is the share of events that have it, `kinds` the share that have it of a kind, `distinct` about how many
    values there are. `quantiles` are the minimum, the quartiles and the maximum of numbers (without NaN) and
    timestamps.
    """

    name: str
    type: str
    there: float
    kinds: dict[Kind, float]
    distinct: int
    common: tuple[ValueShare, ...]
    quantiles: tuple[Any, ...]


class ConstraintMeasure(msgspec.Struct, frozen=True):
    """A constraint, its number of subscriptions, and of the events that satisfy it: their share is its selectivity."""

    constraint: str
    attribute: str
    subscriptions: int
    events: int
    share: float


class KeyMeasure(msgspec.Struct, frozen=True):
    """A meet key, the number of subscriptions stored under it, and of events that have it."""

    key: str
    subscriptions: int
    events: int

    @property
    def candidates(self) -> int:
        """The number of pairs that meet there and are checked."""
        return self.subscriptions * self.events


class MatchMeasure(msgspec.Struct, frozen=True):
    """Matches by subscription.

    `quantiles` are the minimum, the quartiles and the maximum of matches per subscription: of all subscriptions where
    they are known, else of those that match at all. `silent` is the number of those that match nothing, None where
    subscriptions are not known; `silent_ids` are some of them.
    """

    pairs: int
    top: tuple[tuple[Any, int], ...]
    quantiles: tuple[int, ...]
    silent: int | None
    silent_ids: tuple[Any, ...]


class Measurement(msgspec.Struct, frozen=True):
    """The statistics of events, of subscriptions, and of matches.

    `constraints` are those that most subscriptions have, and `keys` those at which most pairs meet, each list with the
    most at the beginning. `feedback` is the part that matchers and brokers load.
    """

    events: int
    attributes: tuple[AttributeMeasure, ...]
    subscriptions: int | None
    refused: int
    constraints: tuple[ConstraintMeasure, ...]
    keys: tuple[KeyMeasure, ...]
    matches: MatchMeasure | None
    feedback: Feedback
    top: int

    def to_dict(self) -> dict[str, Any]:
        """Return all of it ready for JSON, without the feedback, which has a file of its own."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("feedback", "top")}
        built: dict[str, Any] = msgspec.to_builtins(fields)
        for one in built["attributes"]:
            one["common"] = [{**common, "value": _for_json(common["value"])} for common in one["common"]]
            one["quantiles"] = [_for_json(value) for value in one["quantiles"]]
        built["keys"] = [
            {**one, "candidates": key.candidates} for one, key in zip(built["keys"], self.keys, strict=True)
        ]
        built["selectivity"] = {name: self.feedback.selectivity[name] for name in sorted(self.feedback.selectivity)}
        built["attribute_order"] = list(self.feedback.attribute_order())
        return built

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all of it as JSON; raise MeetpointError where the file cannot be written."""
        data = msgspec.json.format(msgspec.json.encode(self.to_dict()), indent=2)
        try:
            Path(path).write_bytes(data + b"\n")
        except OSError as error:
            where = os.fspath(path)
            raise MeetpointError(f"{where}: {(error.strerror or str(error)).lower()}; check the folder") from None

    def text(self) -> str:
        parts = [self._head(), self._attributes()]
        if self.subscriptions is not None:
            parts += [self._constraints(), self._keys()]
        if self.matches is not None:
            parts.append(_matches(self.matches))
        return "\n\n".join(part for part in parts if part)

    def _head(self) -> str:
        head = f"{self.events:,} events, {len(self.attributes)} attributes"
        if self.subscriptions is None:
            return head
        refused = f" ({self.refused:,} refused)" if self.refused else ""
        return f"{head}, {self.subscriptions:,} subscriptions{refused}"

    def _attributes(self) -> str:
        rows = []
        for one in self.attributes:
            common = ", ".join(f"{_show(v.value)} {_share(v.share)}" for v in one.common[:3])
            spread = " … ".join(_show(one.quantiles[at]) for at in (0, 2, 4)) if one.quantiles else ""
            rows.append((one.name, one.type, _share(one.there), f"{one.distinct:,}", common, spread))
        heads = ("attribute", "type", "there", "distinct", "most common", "least … median … most")
        return _table(heads, rows, "llrrll")

    def _constraints(self) -> str:
        rows = [(one.constraint, f"{one.subscriptions:,}", _share(one.share)) for one in self.constraints[: self.top]]
        return _table(("constraint", "subscriptions", "events"), rows, "lrr")

    def _keys(self) -> str:
        rows = [
            (one.key, f"{one.subscriptions:,}", f"{one.events:,}", f"{one.candidates:,}")
            for one in self.keys[: self.top]
        ]
        return _table(("meet key", "subscriptions", "events", "pairs to check"), rows, "lrrr")


def _matches(matches: MatchMeasure) -> str:
    lines = [f"{matches.pairs:,} matches"]
    if matches.quantiles:
        lines[0] += f"; a subscription has {' … '.join(f'{count:,}' for count in matches.quantiles)}"
    if matches.silent is not None:
        some = ", ".join(map(str, matches.silent_ids))
        lines.append(f"{matches.silent:,} silent subscriptions{f': {some}' if some else ''}")
    rows = [(str(id_), f"{count:,}") for id_, count in matches.top]
    return "\n".join(lines) + "\n\n" + _table(("subscription", "matches"), rows, "lr")


def _for_json(value: object) -> object:
    """Return a value as JSON holds it: NaN and the infinities become texts."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _share(share: float) -> str:
    return f"{share:.1%}" if share >= 0.001 or not share else f"{share:.2g}"


def _show(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> str:
    """Return columns side by side, each aligned to the left or right."""
    cells = [heads, *([_cut(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]
    lines = (
        "  ".join(
            cell.ljust(width) if side == "l" else cell.rjust(width)
            for cell, width, side in zip(row, widths, sides, strict=True)
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def _cut(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def measure(
    events: DataFrame,
    subscriptions: DataFrame | Subscriptions | None = None,
    hits: DataFrame | None = None,
    *,
    top: int = 20,
) -> Measurement:
    """Measure events, the subscriptions on them, and their matches.

    - `subscriptions`: Subscriptions, or a DataFrame with the columns `id` and `filter`.
    - `hits`: matches, as `match` gives them.
    - `top`: the number of common values, and of busy and silent subscriptions, that are named.

    Raise MeetpointError, before any job, where a DataFrame is a stream or lacks a column.

        found = measure(events, subscriptions, match(events, subscriptions))
        print(found.text())
    """
    _check(events, "events")
    texts = None if subscriptions is None else _texts_of(subscriptions)
    hit_ids = None if hits is None else _hits_of(hits, texts)
    if top < 1:
        raise MeetpointError(f"measure: top is {top}; ask for 1 or more")
    check_workers(events.sparkSession)
    schema = schema_from_spark(events.schema)
    rows, columns = count_columns(events, schema)
    counts = count_values(events, schema, rows)
    statistics = build_statistics(rows, columns, counts)
    filter_counts = _FilterCounts() if texts is None else _count_filters(texts, KeyPlan(statistics, names=columns))
    event_counts = _count_satisfied(events, filter_counts)
    lines = {name: column.line for name, column in columns.items() if column.line is not None}
    return Measurement(
        events=rows,
        attributes=tuple(_attribute_measure(name, column, counts, rows, top) for name, column in columns.items()),
        subscriptions=None if texts is None else filter_counts.filters + filter_counts.refused,
        refused=filter_counts.refused,
        constraints=_constraint_measures(filter_counts, event_counts, rows),
        keys=_key_measures(filter_counts, event_counts),
        matches=None if hit_ids is None else _matches_of(hit_ids, texts, top),
        feedback=Feedback(
            statistics, selectivity=_selectivity(filter_counts, event_counts, rows), lines=lines, sample=counts.sample
        ),
        top=top,
    )


# -- arguments ---------------------------------------------------------------------------------------------------------


def _check(frame: DataFrame, what: str) -> None:
    check_frame(frame, what)
    if frame.isStreaming:
        raise MeetpointError(f"{what}: the DataFrame is a stream; measure what a stream has written")


def _texts_of(subscriptions: DataFrame | Subscriptions) -> DataFrame:
    """Return the ids and filters of a DataFrame or of Subscriptions."""
    frame = subscriptions.filters if isinstance(subscriptions, Subscriptions) else subscriptions
    _check(frame, "subscriptions")
    for wanted in ("id", "filter"):
        if wanted not in frame.columns:
            shown = ", ".join(frame.columns)
            raise MeetpointError(f"subscriptions: there is no column {wanted}; the columns are {shown}")
    type_ = frame.schema["filter"].dataType.simpleString()
    if type_ != "string":
        raise MeetpointError(f"subscriptions: column filter is of type {type_}; give the filters as texts")
    return frame.select("id", "filter")


def _hits_of(hits: DataFrame, texts: DataFrame | None) -> DataFrame:
    """Return the ids of matches, one a pair, of pairs or of lists."""
    _check(hits, "hits")
    if "subscription" in hits.columns:
        ids = hits.select("subscription")
    elif "subscriptions" in hits.columns:
        ids = hits.select(F.explode("subscriptions").alias("subscription"))
    else:
        raise MeetpointError(
            f"hits: there is no column subscription; the columns are {', '.join(hits.columns)}: give what match gave"
        )
    if texts is not None:
        found, wanted = (frame.schema[0].dataType.simpleString() for frame in (ids, texts))
        if found != wanted:
            raise MeetpointError(
                f"hits: column subscription is of type {found}, and the ids of subscriptions are of type {wanted}; "
                "give the subscriptions that were matched"
            )
    return ids


# -- constraints and keys of subscriptions -----------------------------------------------------------------------------


class _CountedItem(msgspec.Struct, frozen=True):
    """A constraint or a key, and its number of subscriptions; drawn, where it is not one of the first."""

    attribute: str
    item: bytes
    uses: int
    is_drawn: bool = False


class _FilterCounts(msgspec.Struct, frozen=True):
    """The constraints and keys of filters; `uses` is the number of subscriptions that constrain each attribute."""

    filters: int = 0
    refused: int = 0
    uses: dict[str, int] = {}
    constraints: tuple[_CountedItem, ...] = ()
    keys: tuple[_CountedItem, ...] = ()


def _count_filters(texts: DataFrame, plan: KeyPlan) -> _FilterCounts:
    """Return the constraints that most filters have, some of the others, and the keys where most pairs are expected."""
    filters = texts.select(F.coalesce("filter", F.lit("")).alias("filter"))
    each = filters.mapInArrow(FilterCounter(plan.to_bytes()), from_arrow_schema(FILTER_ROWS))
    each = each.groupBy("sort", "attribute", "item").agg(F.sum("uses").alias("uses"), F.max("share").alias("share"))
    each = each.persist()
    try:
        totals = each.groupBy("sort", "attribute").agg(F.sum("uses").alias("uses")).toArrow().to_pylist()
        constraints, keys = each.where("sort = 'constraint'"), each.where("sort = 'key'")
        first = _counted_items(constraints.orderBy(F.desc("uses"), "item").limit(CONSTRAINTS_MAX))
        by_chance = Window.partitionBy("attribute").orderBy(F.xxhash64("item"), "item")
        drawn = _counted_items(
            constraints.withColumn("draw", F.row_number().over(by_chance)).where(f"draw <= {DRAWN_MAX}")
        )
        busy = _counted_items(keys.orderBy((F.col("uses") * F.col("share")).desc(), "item").limit(KEYS_MAX))
    finally:
        each.unpersist()
    seen = {item.item for item in first}
    others = [msgspec.structs.replace(item, is_drawn=True) for item in drawn if item.item not in seen]
    sums = {(row["sort"], row["attribute"]): row["uses"] for row in totals}
    return _FilterCounts(
        sums.get(("filter", ""), 0),
        sums.get(("refused", ""), 0),
        {attribute: uses for (sort, attribute), uses in sums.items() if sort == "constraint"},
        (*first, *others),
        tuple(busy),
    )


def _counted_items(frame: DataFrame) -> list[_CountedItem]:
    rows = frame.select("attribute", "item", "uses").toArrow().to_pylist()
    return sorted((_CountedItem(**row) for row in rows), key=lambda item: (-item.uses, item.item))


def _count_satisfied(events: DataFrame, filter_counts: _FilterCounts) -> list[int]:
    """Return the number of events that satisfy each constraint, then of those that have each key."""
    items = (*filter_counts.constraints, *filter_counts.keys)
    if not items:
        return []
    names = [item.attribute for item in items if item.attribute]
    count = SatisfiedCounter(
        tuple(t.item for t in filter_counts.constraints), tuple(t.item for t in filter_counts.keys)
    )
    mapped = selected(events, names).mapInArrow(count, SatisfiedCounter.SCHEMA)
    found = mapped.groupBy("number").agg(F.sum("events").alias("events")).toArrow()
    event_counts = dict(zip(found["number"].to_pylist(), found["events"].to_pylist(), strict=True))
    return [event_counts.get(number, 0) for number in range(len(items))]


def _selectivity(filter_counts: _FilterCounts, event_counts: Sequence[int], rows: int) -> dict[str, float]:
    """Return the share of events that satisfy a constraint on an attribute, on average over its subscriptions.

    The common constraints were all counted and stand for themselves; those drawn from the rest stand for all the rest.
    """
    first, drawn = (dict.fromkeys(filter_counts.uses, (0, 0.0)) for _ in range(2))
    for item, events in zip(filter_counts.constraints, event_counts, strict=False):
        sums = drawn if item.is_drawn else first
        uses, satisfied = sums[item.attribute]
        sums[item.attribute] = (uses + item.uses, satisfied + item.uses * events / max(rows, 1))
    shares = {}
    for name, all_uses in filter_counts.uses.items():
        (uses, satisfied), (drawn_uses, drawn_satisfied) = first[name], drawn[name]
        rest = (all_uses - uses) * drawn_satisfied / drawn_uses if drawn_uses else 0.0
        shares[name] = (satisfied + rest) / all_uses
    return shares


# -- results -----------------------------------------------------------------------------------------------------------


def _attribute_measure(
    name: str, column: ColumnStatistics, counts: ValueCounts, rows: int, top: int
) -> AttributeMeasure:
    there = column.there / max(rows, 1)
    attribute = column.attribute
    common = () if attribute is None else list(counts.of(name, KeySort.VALUE).common.items())[:top]
    return AttributeMeasure(
        name=name,
        type=column.type,
        there=there,
        kinds={} if attribute is None else {attribute.type.kind: there},
        distinct=column.distinct,
        common=tuple(
            ValueShare(read_value(text, attribute.type), uses, uses / max(rows, 1))  # type: ignore[union-attr]
            for text, uses in common
        ),
        quantiles=column.quartiles,
    )


def _constraint_measures(
    filter_counts: _FilterCounts, event_counts: Sequence[int], rows: int
) -> tuple[ConstraintMeasure, ...]:
    return tuple(
        ConstraintMeasure(item.item.decode(), item.attribute, item.uses, events, events / max(rows, 1))
        for item, events in zip(filter_counts.constraints, event_counts, strict=False)
        if not item.is_drawn
    )


def _key_measures(filter_counts: _FilterCounts, event_counts: Sequence[int]) -> tuple[KeyMeasure, ...]:
    keys = [
        KeyMeasure(str(msgspec.msgpack.decode(item.item, type=MeetKey)), item.uses, events)
        for item, events in zip(filter_counts.keys, event_counts[len(filter_counts.constraints) :], strict=True)
    ]
    return tuple(sorted(keys, key=lambda one: (-one.candidates, -one.subscriptions, one.key)))


def _matches_of(ids: DataFrame, texts: DataFrame | None, top: int) -> MatchMeasure:
    """Return matches by subscription: hits, which may be costly to compute, are read once."""
    counts = ids.groupBy("subscription").agg(F.count(F.lit(1)).alias("pairs"))
    if texts is not None:
        ids_held = texts.select(F.col("id").alias("subscription")).distinct()
        counts = ids_held.join(counts, "subscription", "full").na.fill(0, ["pairs"])
    counts = counts.persist()
    try:
        expressions = {
            "pairs": F.sum("pairs"),
            "silent": F.count_if(F.col("pairs") == 0),
            "quantiles": F.percentile_approx("pairs", list(QUARTILES), ACCURACY),
        }
        answers = counts.agg(*[one.alias(name) for name, one in expressions.items()]).toArrow().to_pylist()[0]
        busy = counts.where("pairs > 0").orderBy(F.desc("pairs"), "subscription").limit(top).toArrow().to_pylist()
        silent = counts.where("pairs = 0").orderBy("subscription").limit(top).toArrow()["subscription"].to_pylist()
    finally:
        counts.unpersist()
    return MatchMeasure(
        pairs=answers["pairs"] or 0,
        top=tuple((row["subscription"], row["pairs"]) for row in busy),
        quantiles=tuple(answers["quantiles"] or ()),
        silent=None if texts is None else answers["silent"],
        silent_ids=tuple(silent),
    )
