"""`match`: which subscriptions accept which events, by the strategy that fits.

Whatever the strategy, the answer is the same: for each event each subscription that accepts it, once. A strategy is a
module with `run(events, version, *, result, how)`, imported when it is first used:

- `broadcast`: every worker maps the whole index. The fastest, as long as the index fits a machine.
- `partitioned`: the index is split, and events go to the parts that may accept them.
- `join`: events and subscriptions meet in an equi-join, which any number of machines share.

All that can be known to be wrong is told before any job starts.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from importlib import import_module
from typing import Any

import msgspec

from meetpoint.errors import FilterError, MeetpointError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import show_value
from meetpoint.language.syntax.tree import Predicate, kind_compared, predicates
from meetpoint.spark.columns import check_choice, check_filter, check_frame, schema_from_spark, unusable_columns
from meetpoint.spark.subscriptions.store import Use, Version
from meetpoint.spark.subscriptions.subscriptions import ON_BAD, Subscriptions, refuse_bad
from meetpoint.spark.worker_files import WAYS, is_local

__all__ = ["MISSING", "RESULTS", "STRATEGIES", "Plan", "match", "plan"]

STRATEGIES = ("auto", "broadcast", "partitioned", "join")
RESULTS = ("pairs", "lists")
MISSING = ("error", "null")
_MEMORY_PART = 0.5
"""The part of a machine's memory, or of an executor's, that an index may fill."""
_EXECUTOR_BYTES = 1 << 30
"""Memory of an executor where the session does not say: Spark's own default."""

_log = logging.getLogger("meetpoint.spark")


class Plan(msgspec.Struct, frozen=True):
    """How events will be matched, and why so."""

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
    events: Any,
    subscriptions: Subscriptions,
    *,
    strategy: str = "auto",
    result: str = "pairs",
    explain: bool = False,
    missing: str = "error",
    on_bad: str = "warn",
    ship: str = "auto",
    shards: int | None = None,
) -> Any:
    """All matches of a DataFrame of events, a table or a stream.

    The columns of the event and `subscription`, one row a match; or, as `lists`, every event once with the array
    `subscriptions`. Subscriptions that are not compiled yet are compiled first. A filter on a column that events lack
    is an error, or with `missing="null"` reads NULL there. `on_bad="error"` raises where a subscription was set aside.
    `explain` prints the plan. `ship` says how the index reaches the workers: see `worker_files`. `shards`
    is how many parts the strategy `partitioned` splits the index into.
    """
    chosen = plan(events, subscriptions, strategy=strategy, result=result, missing=missing, on_bad=on_bad, ship=ship)
    _log.info("match: %s: %s", chosen.strategy, chosen.reason)
    if explain:
        sys.stdout.write(f"{chosen}\n")
    run = import_module(f"meetpoint.spark.matching.{chosen.strategy}").run
    if shards is None:
        return run(events, chosen.version, result=result, how=chosen.how)
    if chosen.strategy != "partitioned":
        raise MeetpointError(f"shards is {shards}, and the strategy is {chosen.strategy}; use strategy='partitioned'")
    return run(events, chosen.version, result=result, how=chosen.how, shards=shards)


def plan(
    events: Any,
    subscriptions: Subscriptions,
    *,
    strategy: str = "auto",
    result: str = "pairs",
    missing: str = "error",
    on_bad: str = "warn",
    ship: str = "auto",
) -> Plan:
    """What `match` would do, with the same arguments and the same checks."""
    check_choice("strategy", strategy, STRATEGIES)
    check_choice("result", result, RESULTS)
    check_choice("missing", missing, MISSING)
    check_choice("on_bad", on_bad, ON_BAD)
    check_choice("ship", ship, WAYS)
    check_frame(events, "events")
    if not isinstance(subscriptions, Subscriptions):
        raise MeetpointError(
            f"subscriptions: given an object of class {type(subscriptions).__name__}; make them with "
            "Subscriptions.from_dataframe, read or open"
        )
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
    return Plan(strategy, reason, version, result, ship, events.isStreaming)


# -- checks ------------------------------------------------------------------------------------------------------------


def _check_names(events: Any, columns: Any, added: str) -> None:
    if not columns.fields:
        raise MeetpointError("events: the DataFrame has no columns; select those that filters name")
    schema_from_spark(columns)  # refuses a name that occurs twice
    for field in columns.fields:
        if not _reaches_python(field.dataType):
            raise MeetpointError(
                f"events: column {field.name!r} is of type {field.dataType.simpleString()}, which Spark does not hand "
                "to Python; cast it to a string, or drop it"
            )
    folded = str(events.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"
    for name in columns.names:
        if name == added or (folded and name.lower() == added):
            raise MeetpointError(
                f"events: there is a column {name!r} already, which matching adds; rename it: "
                f"events.withColumnRenamed({name!r}, 'event_{name}')"
            )


def _reaches_python(type_: Any) -> bool:
    """Whether Arrow has a type for one of Spark's."""
    from pyspark.sql import types

    match type_:
        case types.StructType():
            return all(_reaches_python(field.dataType) for field in type_.fields)
        case types.ArrayType():
            return _reaches_python(type_.elementType)
        case types.MapType():
            return _reaches_python(type_.keyType) and _reaches_python(type_.valueType)
    return not isinstance(type_, types.YearMonthIntervalType | types.CalendarIntervalType)


def _check_uses(uses: tuple[Use, ...], columns: Any, missing: str) -> None:
    """Refuse the first filter that compares a column that is not there, or compares it as what it is not."""
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


def _check_kind(use: Use, columns: Any) -> None:
    predicate = _predicate(use)
    try:
        check_filter(use.filter[predicate.start : predicate.end], columns)
    except FilterError as error:
        raise _refusal(use, error.problem, error.hint) from None


def _refusal(use: Use, problem: str, hint: str) -> FilterError:
    predicate = _predicate(use)
    problem = f"subscription {show_value(use.id)}: {problem}"
    return FilterError(problem, hint, text=use.filter, start=predicate.start, end=predicate.end)


def _predicate(use: Use) -> Predicate:
    """The predicate by which a filter compares an attribute."""
    tree = parse_filter(use.filter).tree
    return next(p for p in predicates(tree) if p.attribute == use.attribute and kind_compared(p) == use.kind)


# -- choice ------------------------------------------------------------------------------------------------------------


def _choose(spark: Any, version: Version) -> tuple[str, str]:
    """A strategy, and why it."""
    size, room = version.index_bytes, _memory(spark) * _MEMORY_PART
    whose = "this machine's memory" if is_local(spark) else "an executor's memory"
    told = f"the index has {_megabytes(size)}, and {_MEMORY_PART:.0%} of {whose} are {_megabytes(room)}"
    if size <= room:
        return "broadcast", told
    executors = _executors(spark)
    if executors is None or size <= room * executors:
        return "partitioned", f"{told}: split, it fits"
    return "join", f"{told}, too little on {executors} executors together"


def _memory(spark: Any) -> int:
    """Bytes of memory where the index would be mapped."""
    if is_local(spark):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for setting in ("spark.executor.pyspark.memory", "spark.executor.memory"):
        found = re.fullmatch(r"(\d+)([bkmgtp]?)b?", str(spark.conf.get(setting, "")).strip().lower())
        if found is not None:
            unit = found[2] or ("m" if "pyspark" in setting else "b")
            return int(found[1]) << 10 * "bkmgtp".index(unit)
    return _EXECUTOR_BYTES


def _executors(spark: Any) -> int | None:
    """How many executors there are, if the session says."""
    said = str(spark.conf.get("spark.executor.instances", ""))
    return int(said) if said.isdecimal() and int(said) else None


def _megabytes(size: float) -> str:
    return f"{size / 2**20:,.1f} MiB"
