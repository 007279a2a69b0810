"""`stream`: events that keep coming, matched batch by batch, each batch exactly once.

This module checks and starts a stream, and has the handle of its owner. `streaming.batches` has the work on a batch,
the files that are left on disk, and the reasons why a crash at any moment loses nothing and repeats nothing.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from meetpoint.errors import MeetpointError
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.columns import check_choice, check_frame, check_no_column
from meetpoint.spark.matching.job import plan
from meetpoint.spark.matching.match_lists import id_column_type, lists_schema
from meetpoint.spark.streaming.batches import (
    BATCH_COLUMN,
    FORMATS,
    BatchJob,
    BatchReport,
    BatchTable,
    Folder,
    MatchOptions,
    check_ids,
    folder_of,
)
from meetpoint.spark.subscriptions import store
from meetpoint.spark.subscriptions.store import Version, VersionContents
from meetpoint.spark.subscriptions.subscriptions import Subscriptions, check_subscriptions, is_temporary
from meetpoint.spark.validation import DEAD_COLUMNS, validate
from meetpoint.spark.worker_files import link_or_copy

__all__ = ["Stream", "stream"]

REMEMBERED = 1000
"""The number of batches whose speed, as Spark reports it, is remembered."""
_OWN = "meetpoint"
_INTERVAL = re.compile(r"\d+ ?(milli|micro)?(second|minute|hour|day|week)s?", re.IGNORECASE)
_NOW = ("availablenow", "available now")
_POLL_SECONDS = 0.05
_SLOW_POLL_SECONDS = 0.5
"""The interval where polling takes a job of Spark."""

_log = logging.getLogger("meetpoint.spark")


class BatchProgress(BatchReport, frozen=True, kw_only=True):
    """The figures of a complete batch, with its speed as Spark reports it; None where Spark does not (any more)."""

    input_rows_per_second: float | None = None
    """The rate at which events came."""
    trigger_seconds: float | None = None
    """The time of the whole batch, with the steps of Spark before and after."""


def stream(
    events: DataFrame,
    subscriptions: Subscriptions | str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str],
    dead: str | os.PathLike[str] | None = None,
    schema: Schema | None = None,
    column: str | None = None,
    keep: Sequence[str] = (),
    source: str | None = None,
    trigger: str | None = None,
    format: str = "parquet",  # noqa: A002
    result: str = "pairs",
    strategy: str = "auto",
    missing: str = "error",
    on_bad: str = "warn",
    ship: str = "auto",
    name: str | None = None,
) -> Stream:
    """Start to match a streaming DataFrame; hits go to the directory `to`, every event exactly once.

    - `subscriptions`: a directory that they were compiled to, whose current version each batch takes, so that compiling
      to it again changes them. Subscriptions that were compiled to a directory are that directory; others are kept in
      the checkpoint.
    - `checkpoint`: a directory of Spark. A stream continues where it was when it is started with the same `checkpoint`
      and `to`.
    - `schema`: validates events, with `column`, `keep` and `source` as in `validate`; those that do not conform go to
      the directory `dead`.
    - `trigger`: an interval such as "10 seconds", or "availableNow" to stop after all events that are there; by default
      batches follow each other at once.
    - `format`: parquet, orc or jsonl.
    - `name`: the name of the query for Spark.
    - `result`, `strategy`, `missing`, `on_bad`, `ship`: those of `match`.

    Raise MeetpointError, before the stream starts, for every error that can be known by then.

        running = stream(events, "/srv/alerts", "/data/hits", checkpoint="/data/checkpoint")
        running.await_done()
    """
    check_frame(events, "events")
    if not events.isStreaming:
        raise MeetpointError("events: the DataFrame is no stream; make one with spark.readStream, or use match for it")
    check_choice("format", format, tuple(FORMATS))
    when = _trigger(trigger)
    spark = events.sparkSession
    places = _places(spark, to=to, dead=dead, checkpoint=checkpoint)
    rows, good = _checked(events, schema, column, keep, source, dead)
    options = MatchOptions(strategy=strategy, result=result, missing=missing, on_bad=on_bad, ship=ship)
    version = plan(good, _subscriptions(subscriptions, spark), **options).version
    columns = _hit_columns(good, version.manifest.id_type, result)
    hits = BatchTable(places["to"], FORMATS[format], columns.json())
    dead_table = None
    if "dead" in places:
        dead_columns = T.StructType([T.StructField(each, T.StringType()) for each in DEAD_COLUMNS])
        dead_table = BatchTable(places["dead"], FORMATS[format], dead_columns.json())
    own = places["checkpoint"].below(_OWN)
    id_ = _claim(spark, own, [hits] if dead_table is None else [hits, dead_table])
    directory, id_type = _directory(version, own), version.manifest.id_type
    work = BatchJob(id_, directory, id_type, own.below("pins"), hits, dead_table, options)
    writer = rows.writeStream.foreachBatch(work).trigger(**when).option("checkpointLocation", places["checkpoint"].path)
    try:
        query = (writer if name is None else writer.queryName(name)).start()
    except (AnalysisException, IllegalArgumentException) as error:
        raise MeetpointError(f"events: Spark does not start the stream: {_first_line(error)}") from None
    return Stream(query, work, good)


class Stream:
    """A running stream; `query` is Spark's own handle of it."""

    def __init__(self, query: StreamingQuery, work: BatchJob, good: DataFrame) -> None:
        self.query = query
        self._work = work
        self._good = good
        self._spark = good.sparkSession
        self._listener = _ProgressListener(str(query.id))
        self._spark.streams.addListener(self._listener)
        self._is_listening = True

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    @property
    def version(self) -> int:
        """The version of the subscriptions that the next batch takes."""
        return store.current_number(self._work.directory)

    @property
    def directory(self) -> str:
        """The directory with the versions of the subscriptions."""
        return self._work.directory

    def refresh(
        self,
        subscriptions: Subscriptions,
        sample: DataFrame | pa.Table | None = None,
        *,
        keep: int = store.VERSIONS_KEPT,
    ) -> Version:
        """Publish other subscriptions, compiled now if they are not yet, for the batches that start from now on.

        `sample` and `keep` are those of `Subscriptions.compile`. Raise MeetpointError where they do not fit the
        stream's events; the stream then continues with the version that it had.
        """
        options = self._work.options
        check_subscriptions(subscriptions)
        with tempfile.TemporaryDirectory(prefix="meetpoint-refresh-") as aside:
            if subscriptions.version is None or sample is not None:
                subscriptions = subscriptions.compile(aside, sample, on_bad=options["on_bad"])
            version = plan(self._good, subscriptions, **options).version
            check_ids(version, self._work.id_type)
            if version.directory != self._work.directory:
                version = store.publish(self._work.directory, _copy_of(version), keep=keep)
        _log.info("stream: version %s of the subscriptions is in force", self.version)
        return version

    def progress(self, count: int = 100) -> list[BatchProgress]:
        """Return the figures of the last complete batches, since the stream was first started, the oldest first."""
        reports = {one.batchId: one for one in self.query.recentProgress} | self._listener.reports
        return [_with_speed(one, reports.get(one.batch)) for one in self._work.hits.history(self._spark, count)]

    def hits(self) -> DataFrame:
        """Return a DataFrame of all hits of complete batches, with `batch_id`."""
        return self._work.hits.read(self._spark, self._work.hits.last(self._spark))

    def dead(self) -> DataFrame:
        """Return a DataFrame of all dead letters of complete batches, with `batch_id`.

        Raise MeetpointError where the stream has no schema.
        """
        if self._work.dead is None:
            raise MeetpointError("dead: the stream checks nothing; start it with schema= and dead=")
        return self._work.dead.read(self._spark, self._work.hits.last(self._spark))

    def stop(self, timeout: float | None = None) -> None:
        """Stop after the current batch; after `timeout` seconds break it off, and a restart runs it again."""
        until = None if timeout is None else time.monotonic() + timeout
        poll = _POLL_SECONDS if self._work.pins.direct else _SLOW_POLL_SECONDS
        while self.is_active and self._work.is_running(self._spark) and (until is None or time.monotonic() < until):
            time.sleep(poll)
        self.query.stop()
        self._stop_listening()

    def await_done(self, timeout: float | None = None) -> bool:
        """Wait until the stream has ended, and return whether it has.

        Raise MeetpointError where one of ours ended it, and Spark's own error otherwise.
        """
        try:
            # Spark's types say int, but it takes fractions of a second too.
            ended = self.query.awaitTermination(timeout)  # type: ignore[arg-type]
            ended = timeout is None or bool(ended)
        except StreamingQueryException as error:
            self._stop_listening()
            if message := _meetpoint_message(str(error)):
                raise MeetpointError(f"stream: {message}") from None
            raise
        if ended:
            self._stop_listening()
        return ended

    def _stop_listening(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._spark.streams.removeListener(self._listener)


# -- before the start --------------------------------------------------------------------------------------------------


def _trigger(given: object) -> dict[str, Any]:
    if given is None:
        return {"processingTime": "0 seconds"}
    if isinstance(given, str) and given.strip().lower() in _NOW:
        return {"availableNow": True}
    if isinstance(given, str) and _INTERVAL.fullmatch(given.strip()):
        return {"processingTime": given.strip()}
    raise MeetpointError(f"trigger is {given!r}; use an interval such as '10 seconds', or 'availableNow'")


def _places(spark: SparkSession, **given: object) -> dict[str, Folder]:
    """Return the directories by their purpose; raise SourceError where one is in another."""
    places = {what: folder_of(path, spark, what) for what, path in given.items() if path is not None or what != "dead"}
    for what, folder in places.items():
        for other, above in places.items():
            if what != other and f"{folder.path}/".startswith(f"{above.path}/"):
                raise SourceError(
                    f"{what}: {folder.path} is in {above.path}, which is {other}; choose another directory"
                )
    return places


def _checked(
    events: DataFrame, schema: Schema | None, column: str | None, keep: Sequence[str], source: str | None, dead: object
) -> tuple[DataFrame, DataFrame]:
    """Return the rows that batches get, and the events among them."""
    if schema is None:
        for what, given in (("dead", dead), ("column", column), ("keep", keep or None), ("source", source)):
            if given is not None:
                raise MeetpointError(f"{what}: events are not checked without a schema; give schema=, or leave it out")
        return events, events
    if dead is None:
        raise MeetpointError("dead: events that do not fit the schema must go somewhere; give a directory as dead=")
    validated = validate(events, schema, column=column, keep=keep, source=source)
    return validated.marked, validated.good


def _subscriptions(given: Subscriptions | str | os.PathLike[str], spark: SparkSession) -> Subscriptions:
    if isinstance(given, str | os.PathLike):
        return Subscriptions.open(given, spark=spark)
    check_subscriptions(given)
    if given.version is not None and not is_temporary(given.version):
        return Subscriptions.open(given.version.directory, spark=spark)
    return given


def _directory(version: Version, own: Folder) -> str:
    """Return the directory whose current version batches take."""
    if not is_temporary(version):
        return version.directory
    if not own.direct:
        raise MeetpointError(
            "subscriptions: they are compiled for this process only; compile them to a directory that the driver sees, "
            "and give its path"
        )
    directory = own.below("index").here
    if not directory.exists() or store.current(directory).manifest.files != version.manifest.files:
        store.publish(directory, _copy_of(version))
    return str(directory)


def _copy_of(version: Version) -> Callable[[Path], VersionContents]:
    def write(folder: Path) -> VersionContents:
        for name in version.manifest.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            link_or_copy(version.path / name, folder / name)
        manifest = msgspec.structs.asdict(version.manifest)
        return VersionContents(**{name: manifest[name] for name in VersionContents.__struct_fields__})

    return write


def _hit_columns(good: DataFrame, id_type: str, result: str) -> T.StructType:
    check_no_column(good, BATCH_COLUMN, "the table of hits has too")
    lists = lists_schema(good.schema, id_type).fields[-1].dataType
    name, type_ = ("subscriptions", lists) if result == "lists" else ("subscription", id_column_type(id_type))
    return T.StructType([*good.schema.fields, T.StructField(name, type_)])


def _claim(spark: SparkSession, own: Folder, tables: Sequence[BatchTable]) -> str:
    """Return the stream's id, which its checkpoint and its tables bear; raise SourceError where they are of several
    streams.

    Without this check the batches of a new checkpoint, which are numbered from 0 again, would be taken for those that
    are there.
    """
    hits = tables[0]
    note = own.below("stream").get(spark)
    if note is None and own.direct and (own.here.parent / "offsets").exists():
        raise SourceError(f"checkpoint: {own.here.parent} is that of another query; choose another directory")
    id_ = uuid4().hex if note is None else note["stream"]
    fresh = [table for table in tables if not _is_ours(spark, table, None if note is None else id_)]
    if note is not None and hits in fresh and any(own.below("pins", str(at)).get(spark) for at in range(2)):
        raise SourceError(
            f"to: the batches of this checkpoint went to {note['to']}, and {hits.folder.path} is empty; give that "
            "directory, or another checkpoint"
        )
    for table in fresh:
        table.try_out(spark)
    if note is None:
        own.below("stream").put(spark, {"stream": id_, "to": hits.folder.path})
    for table in fresh:
        note = {"stream": id_, "format": table.format, "columns": table.columns, "checkpoint": own.path}
        table.owner.put(spark, {**note, "log": None if table is hits else hits.folder.path})
    for table in tables:
        table.sweep()
    return id_


def _is_ours(spark: SparkSession, table: BatchTable, id_: str | None) -> bool:
    """Return whether a table is that of a stream, rather than empty; raise SourceError where it is another stream's."""
    path = table.folder.path
    note = table.owner.get(spark)
    if note is None:
        if table.folder.is_empty(spark):
            return False
        raise SourceError(f"{path}: holds something that no stream wrote; choose another directory")
    if note["stream"] != id_:
        raise SourceError(
            f"{path}: holds the batches of the stream with the checkpoint {os.path.dirname(note['checkpoint'])}; "
            "give that checkpoint, or choose another directory"
        )
    there = BatchTable(table.folder, note["format"], note["columns"])
    for what, old, new in (
        ("format", there.format, table.format),
        ("columns", there.schema.simpleString(), table.schema.simpleString()),
    ):
        if old != new:
            raise SourceError(f"{path}: the {what} were {old} until now, and would be {new}; start another stream")
    return True


# -- reports of Spark --------------------------------------------------------------------------------------------------


class _ProgressListener(StreamingQueryListener):
    """Remembers Spark's reports on the batches of one query."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self.reports: dict[int, Any] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if str(event.progress.id) == self._id:
            self.reports[event.progress.batchId] = event.progress
            if len(self.reports) > REMEMBERED:
                del self.reports[min(self.reports)]

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def _with_speed(batch: BatchReport, report: Any) -> BatchProgress:
    fields = msgspec.structs.asdict(batch)
    if report is None:
        return BatchProgress(**fields)
    rate, took = report.inputRowsPerSecond, (report.durationMs or {}).get("triggerExecution")
    return BatchProgress(
        **fields, input_rows_per_second=rate, trigger_seconds=None if took is None else round(took / 1000, 3)
    )


def _meetpoint_message(text: str) -> str | None:
    """Return the message of a MeetpointError in Spark's report of a failure."""
    found = re.findall(r"^(?:Caused by: )?meetpoint\.[\w.]+: (.+)$", text, re.MULTILINE)
    return found[-1].strip() if found else None


def _first_line(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0].partition(" SQLSTATE:")[0].rstrip(".")
