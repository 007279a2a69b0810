"""`match`: which subscriptions accept which events, by the strategy that fits.

Whatever the strategy, the answer is the same: for each event each subscription that accepts it, once. A strategy is a
module with `run(events, version, *, result, how)`, imported when it is first used:

- `broadcast`: every worker maps the whole index. The fastest, as long as the index fits into a machine's memory.
- `partitioned`: the index is split, and events go to the parts that may accept them.
- `join`: events and subscriptions meet in an equi-join, which any number of machines share.

Every error that can be known beforehand is raised before any job starts.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

from meetpoint.errors import FilterError, MeetpointError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import show_value
from meetpoint.language.syntax.tree import Predicate, kind_compared, predicates
from meetpoint.spark.columns import (
    check_choice,
    check_filter,
    check_frame,
    check_no_column,
    schema_from_spark,
    unusable_columns,
)
from meetpoint.spark.subscriptions.store import AttributeUse, Version
from meetpoint.spark.subscriptions.subscriptions import ON_BAD, Subscriptions, check_subscriptions, refuse_bad
from meetpoint.spark.worker_files import SHIP_MODES, is_local

__all__ = ["MISSING", "RESULTS", "STRATEGIES", "MatchPlan", "match", "plan"]

STRATEGIES = ("auto", "broadcast", "partitioned", "join")
RESULTS = ("pairs", "lists")
MISSING = ("error", "null")
_MEMORY_PART = 0.5
"""The part of a machine's memory, or of an executor's, that an index may fill."""
_EXECUTOR_BYTES = 1 << 30
"""The memory of an executor where the session does not give it: Spark's own default."""

_log = logging.getLogger("meetpoint.spark")


class MatchPlan(msgspec.Struct, frozen=True):
    """How events will be matched, and why."""

    strategy: str
    reason: str
    version: Version
    result: str
    how: str
    streaming: bool

    def __str__(self) -> str:
        manifest = self.version.manifest
        aside = f", {manifest.rejected:,} set aside" if manifest.rejected else ""
        return "\n".join(
            [
                f"strategy       {self.strategy}: {self.reason}",
                f"subscriptions  {manifest.subscriptions:,}{aside}",
                f"index          {self.version.index_bytes:,} bytes: {self.version.path}",
                f"result         {self.result}, {'stream' if self.streaming else 'batch'}",
            ]
        )


def match(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    strategy: str = "auto",
    result: str = "pairs",
    explain: bool = False,
    missing: str = "error",
    on_bad: str = "warn",
    ship: str = "auto",
    shards: int | None = None,
) -> DataFrame:
    """Match a DataFrame of events, a table or a stream, with subscriptions.

    The result has the columns of the event and `subscription`, one row a match; or, with `result="lists"`, every event
    once with the array `subscriptions`.

    - `subscriptions`: compiled first, if they are not yet.
    - `strategy`: auto, broadcast, partitioned or join.
    - `explain`: prints the plan.
    - `missing`: a filter on a column that events lack is an error, or with "null" reads NULL there.
    - `on_bad`: "error" raises where a subscription was set aside; "warn" logs it.
    - `ship`: how the index reaches the workers: auto, path or copy (see `worker_files`).
    - `shards`: the number of parts into which `partitioned` splits the index.

    Raise MeetpointError or FilterError, before any job, where the arguments do not fit each other.

        hits = match(events, Subscriptions.read("alerts.csv"), result="lists")
    """
    chosen = plan(events, subscriptions, strategy=strategy, result=result, missing=missing, on_bad=on_bad, ship=ship)
    _log.info("match: %s: %s", chosen.strategy, chosen.reason)
    if explain:
        sys.stdout.write(f"{chosen}\n")
    run: Callable[..., DataFrame] = import_module(f"meetpoint.spark.matching.{chosen.strategy}").run
    if shards is None:
        return run(events, chosen.version, result=result, how=chosen.how)
    if chosen.strategy != "partitioned":
        raise MeetpointError(f"shards is {shards}, and the strategy is {chosen.strategy}; use strategy='partitioned'")
    return run(events, chosen.version, result=result, how=chosen.how, shards=shards)


def plan(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    strategy: str = "auto",
    result: str = "pairs",
    missing: str = "error",
    on_bad: str = "warn",
    ship: str = "auto",
) -> MatchPlan:
    """Return the plan of `match` for the same arguments, after the same checks; `print` shows it."""
    check_choice("strategy", strategy, STRATEGIES)
    check_choice("result", result, RESULTS)
    check_choice("missing", missing, MISSING)
    check_choice("on_bad", on_bad, ON_BAD)
    check_choice("ship", ship, SHIP_MODES)
    check_frame(events, "events")
    check_subscriptions(subscriptions)
    columns = events.schema
    _check_names(events, columns, "subscription" if result == "pairs" else "subscriptions")
    version = subscriptions.compiled
    manifest = version.manifest
    _check_uses(manifest.uses, columns, missing)
    if manifest.rejected:
        assert manifest.first_reason is not None
        if on_bad == "error":
            refuse_bad(manifest.rejected, manifest.first_reason)
        _log.warning(
            "match: %s subscriptions were set aside, the first because: %s",
            f"{manifest.rejected:,}",
            manifest.first_reason,
        )
    reason = "as asked"
    if strategy == "auto":
        strategy, reason = _choose(events.sparkSession, version)
    return MatchPlan(strategy, reason, version, result, ship, events.isStreaming)


# -- checks before any job ---------------------------------------------------------------------------------------------


def _check_names(events: DataFrame, columns: T.StructType, added: str) -> None:
    if not columns.fields:
        raise MeetpointError("events: the DataFrame has no columns; select those that filters name")
    schema_from_spark(columns)  # raises where a name occurs twice
    for field in columns.fields:
        if not _reaches_python(field.dataType):
            raise MeetpointError(
                f"events: column {field.name!r} is of type {field.dataType.simpleString()}, which Spark does not hand "
                "to Python; cast it to a string, or drop it"
            )
    check_no_column(events, added, "matching adds")


def _reaches_python(type_: T.DataType) -> bool:
    """Return whether Arrow has a type for one of Spark's."""
    match type_:
        case T.StructType():
            return all(_reaches_python(field.dataType) for field in type_.fields)
        case T.ArrayType():
            return _reaches_python(type_.elementType)
        case T.MapType():
            return _reaches_python(type_.keyType) and _reaches_python(type_.valueType)
    return not isinstance(type_, T.YearMonthIntervalType | T.CalendarIntervalType)


def _check_uses(uses: tuple[AttributeUse, ...], columns: T.StructType, missing: str) -> None:
    """Raise FilterError for the first filter that compares a column that is missing or of another kind."""
    schema = schema_from_spark(columns)
    known = (*schema.names, *unusable_columns(columns))
    for use in uses:
        is_there = any(name == use.attribute or name.startswith(f"{use.attribute}.") for name in known)
        if is_there:
            _check_kind(use, columns)
        elif missing == "error":
            guess = schema.suggest(use.attribute)
            hint = f"did you mean {guess}?" if guess else f"the columns are {', '.join(columns.names)}"
            raise _refusal(use, f"events have no column {use.attribute}", f"{hint} (missing='null' reads NULL there)")


def _check_kind(use: AttributeUse, columns: T.StructType) -> None:
    predicate = _predicate(use)
    try:
        check_filter(use.filter[predicate.start : predicate.end], columns)
    except FilterError as error:
        raise _refusal(use, error.problem, error.hint) from None


def _refusal(use: AttributeUse, problem: str, hint: str) -> FilterError:
    predicate = _predicate(use)
    problem = f"subscription {show_value(use.id)}: {problem}"
    return FilterError(problem, hint, text=use.filter, start=predicate.start, end=predicate.end)


def _predicate(use: AttributeUse) -> Predicate:
    tree = parse_filter(use.filter).tree
    return next(p for p in predicates(tree) if p.attribute == use.attribute and kind_compared(p) == use.kind)


# -- the choice of a strategy ------------------------------------------------------------------------------------------


def _choose(spark: SparkSession, version: Version) -> tuple[str, str]:
    size, room = version.index_bytes, _memory(spark) * _MEMORY_PART
    of_what = "this machine's memory" if is_local(spark) else "an executor's memory"
    sizes = f"the index has {_megabytes(size)}, and {_MEMORY_PART:.0%} of {of_what} are {_megabytes(room)}"
    if size <= room:
        return "broadcast", sizes
    executors = _executors(spark)
    if executors is None or size <= room * executors:
        return "partitioned", f"{sizes}: split, it fits"
    return "join", f"{sizes}, too little on {executors} executors together"


def _memory(spark: SparkSession) -> int:
    if is_local(spark):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for setting in ("spark.executor.pyspark.memory", "spark.executor.memory"):
        found = re.fullmatch(r"(\d+)([bkmgtp]?)b?", str(spark.conf.get(setting, "")).strip().lower())
        if found is not None:
            unit = found[2] or ("m" if "pyspark" in setting else "b")
            return int(found[1]) << 10 * "bkmgtp".index(unit)
    return _EXECUTOR_BYTES


def _executors(spark: SparkSession) -> int | None:
    """Return the number of executors, if the session gives it."""
    setting = str(spark.conf.get("spark.executor.instances", ""))
    return int(setting) if setting.isdecimal() and int(setting) else None


def _megabytes(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
