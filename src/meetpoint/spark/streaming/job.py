"""`stream`: events that keep coming, matched batch by batch, each batch exactly once.

This is where a stream is checked and started, and what its owner holds. `streaming.micro_batch` has what is done
with a batch, and why a crash at any moment loses nothing and repeats nothing; `streaming.batches` what is left on
disk, and who sees what of it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from pyspark.errors import AnalysisException, IllegalArgumentException, PySparkException, StreamingQueryException
from pyspark.sql import types as spark
from pyspark.sql.streaming.listener import StreamingQueryListener

from meetpoint.errors import MeetpointError
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.columns import check_choice, check_frame
from meetpoint.spark.matching.job import plan
from meetpoint.spark.matching.match_lists import listed_schema
from meetpoint.spark.streaming.batches import (
    BATCH_COLUMN,
    FORMATS,
    Batch,
    Folder,
    Options,
    Table,
    Work,
    check_ids,
    folder_of,
)
from meetpoint.spark.subscriptions import store
from meetpoint.spark.subscriptions.store import Contents, Version
from meetpoint.spark.subscriptions.subscriptions import Subscriptions, is_temporary
from meetpoint.spark.validation import DEAD_COLUMNS, validate

__all__ = ["Progress", "Stream", "stream"]

REMEMBERED = 1000
"""Batches whose speed, as Spark tells it, is remembered."""
_OWN = "meetpoint"
_INTERVAL = re.compile(r"\d+ ?(milli|micro)?(second|minute|hour|day|week)s?", re.IGNORECASE)
_NOW = ("availablenow", "available now")
_POLL_SECONDS = 0.05
_SLOW_POLL_SECONDS = 0.5
"""The same where asking takes a job."""

_log = logging.getLogger("meetpoint.spark")


class Progress(Batch, frozen=True, kw_only=True):
    """What a complete batch came to, and what Spark says of its speed; None where it does not say (any more)."""

    input_rows_per_second: float | None = None
    """How fast events came."""
    trigger_seconds: float | None = None
    """The whole batch, with what Spark does before and after."""


def stream(
    events: Any,
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
    """Start matching a streaming DataFrame: hits go to the directory `to`, every event exactly once.

    `subscriptions` are a directory that they were compiled to, whose current version each batch takes, so that whoever
    compiles to it changes them; Subscriptions that were compiled to a directory are that directory, others are kept in
    the checkpoint. With a `schema` events are validated, with `column`, `keep` and `source` as `validate` takes them,
    and those that do not conform go to the directory `dead`. `trigger` is an interval such as "10 seconds", or
    "availableNow" to stop after all that is there; by default batches follow each other at once. `format` is parquet,
    orc or jsonl; `name` is how Spark calls the query. The others are those of `match`.

    A stream is taken up where it was by starting it with the same `checkpoint` and `to`. All that can be known to be
    wrong is a MeetpointError before it starts.
    """
    check_frame(events, "events")
    if not events.isStreaming:
        raise MeetpointError("events: the DataFrame is no stream; make one with spark.readStream, or use match for it")
    check_choice("format", format, tuple(FORMATS))
    when = _trigger(trigger)
    running = events.sparkSession
    places = _places(running, to=to, dead=dead, checkpoint=checkpoint)
    rows, good = _checked(events, schema, column, keep, source, dead)
    options = Options(strategy=strategy, result=result, missing=missing, on_bad=on_bad, ship=ship)
    version = plan(good, _subscriptions(subscriptions, running), **options).version
    columns = _hit_columns(good, version.manifest.id_type, result)
    hits = Table(places["to"], FORMATS[format], columns.json())
    tables = [hits]
    if "dead" in places:
        letters = spark.StructType([spark.StructField(each, spark.StringType()) for each in DEAD_COLUMNS])
        tables.append(Table(places["dead"], FORMATS[format], letters.json()))
    own = places["checkpoint"].below(_OWN)
    id_ = _claim(running, own, tables)
    work = Work(
        id_,
        _directory(version, own),
        version.manifest.id_type,
        own.below("pins"),
        hits,
        tables[1] if "dead" in places else None,
        options,
    )
    writer = rows.writeStream.foreachBatch(work).trigger(**when).option("checkpointLocation", places["checkpoint"].path)
    try:
        query = (writer if name is None else writer.queryName(name)).start()
    except (AnalysisException, IllegalArgumentException) as error:
        raise MeetpointError(f"events: Spark does not start the stream: {_first_line(error)}") from None
    return Stream(query, work, good)


class Stream:
    """A stream that was started. `query` is Spark's own handle of it."""

    def __init__(self, query: Any, work: Work, good: Any) -> None:
        self.query = query
        self._work = work
        self._good = good
        self._spark = good.sparkSession
        self._watch = _Watch(str(query.id))
        self._spark.streams.addListener(self._watch)
        self._watched = True

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    @property
    def version(self) -> int:
        """The version of the subscriptions that the next batch takes."""
        return store.current_number(self._work.directory)

    @property
    def directory(self) -> str:
        """Where the versions of the subscriptions are."""
        return self._work.directory

    def refresh(self, subscriptions: Subscriptions, sample: Any = None, *, keep: int = store.KEPT) -> Version:
        """Publish other subscriptions, compiled now if need be, for the batches that start from now on.

        Those that do not fit the stream's events are refused, and the stream goes on with what it had. `sample` and
        `keep` are those of `Subscriptions.compile`.
        """
        options = self._work.options
        _check_subscriptions(subscriptions)
        with tempfile.TemporaryDirectory(prefix="meetpoint-refresh-") as aside:
            if subscriptions.version is None or sample is not None:
                subscriptions = subscriptions.compile(aside, sample, on_bad=options["on_bad"])
            version = plan(self._good, subscriptions, **options).version
            check_ids(version, self._work.id_type)
            if version.directory != self._work.directory:
                version = store.publish(self._work.directory, _copy_of(version), keep=keep)
        _log.info("stream: version %s of the subscriptions is in force", self.version)
        return version

    def progress(self, count: int = 100) -> list[Progress]:
        """What the last complete batches came to, since the stream was first started, the oldest first."""
        told = {one.batchId: one for one in self.query.recentProgress} | self._watch.told
        return [_with_speed(one, told.get(one.batch)) for one in self._work.hits.history(self._spark, count)]

    def hits(self) -> Any:
        """A DataFrame of all hits of complete batches, with `batch_id`."""
        return self._work.hits.read(self._spark, self._work.hits.last(self._spark))

    def dead(self) -> Any:
        """A DataFrame of all dead letters of complete batches, with `batch_id`."""
        if self._work.dead is None:
            raise MeetpointError("dead: the stream checks nothing; start it with schema= and dead=")
        return self._work.dead.read(self._spark, self._work.hits.last(self._spark))

    def stop(self, timeout: float | None = None) -> None:
        """Stop after the batch that runs; after `timeout` seconds it is broken off, and a restart runs it again."""
        until = None if timeout is None else time.monotonic() + timeout
        poll = _POLL_SECONDS if self._work.pins.direct else _SLOW_POLL_SECONDS
        while self.is_active and self._work.is_running(self._spark) and (until is None or time.monotonic() < until):
            time.sleep(poll)
        self.query.stop()
        self._unwatch()

    def await_done(self, timeout: float | None = None) -> bool:
        """Wait until the stream has ended, and say whether it has; MeetpointError where it failed of our doing."""
        try:
            ended = True if timeout is None else bool(self.query.awaitTermination(timeout))
            if timeout is None:
                self.query.awaitTermination()
        except StreamingQueryException as error:
            self._unwatch()
            if told := _own_words(str(error)):
                raise MeetpointError(f"stream: {told}") from None
            raise
        if ended:
            self._unwatch()
        return ended

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._spark.streams.removeListener(self._watch)


# -- before the start --------------------------------------------------------------------------------------------------


def _trigger(given: object) -> dict[str, Any]:
    if given is None:
        return {"processingTime": "0 seconds"}
    if isinstance(given, str) and given.strip().lower() in _NOW:
        return {"availableNow": True}
    if isinstance(given, str) and _INTERVAL.fullmatch(given.strip()):
        return {"processingTime": given.strip()}
    raise MeetpointError(f"trigger is {given!r}; use an interval such as '10 seconds', or 'availableNow'")


def _places(running: Any, **given: object) -> dict[str, Folder]:
    """The directories by what they are for; SourceError where two are one, or one is in another."""
    places = {
        what: folder_of(path, running, what) for what, path in given.items() if path is not None or what != "dead"
    }
    for what, folder in places.items():
        for other, above in places.items():
            if what != other and f"{folder.path}/".startswith(f"{above.path}/"):
                raise SourceError(
                    f"{what}: {folder.path} is in {above.path}, which is {other}; choose another directory"
                )
    return places


def _checked(
    events: Any, schema: Schema | None, column: str | None, keep: Sequence[str], source: str | None, dead: object
) -> tuple[Any, Any]:
    """The rows that batches get, and the events among them."""
    if schema is None:
        for what, given in (("dead", dead), ("column", column), ("keep", keep or None), ("source", source)):
            if given is not None:
                raise MeetpointError(f"{what}: events are not checked without a schema; give schema=, or leave it out")
        return events, events
    if dead is None:
        raise MeetpointError("dead: events that do not fit the schema must go somewhere; give a directory as dead=")
    validated = validate(events, schema, column=column, keep=keep, source=source)
    return validated.marked, validated.good


def _subscriptions(given: Subscriptions | str | os.PathLike[str], running: Any) -> Subscriptions:
    if isinstance(given, str | os.PathLike):
        return Subscriptions.open(given, spark=running)
    _check_subscriptions(given)
    if given.version is not None and not is_temporary(given.version):
        return Subscriptions.open(given.version.directory, spark=running)
    return given


def _check_subscriptions(given: object) -> None:
    if not isinstance(given, Subscriptions):
        raise MeetpointError(
            f"subscriptions: given an object of class {type(given).__name__}; make them with "
            "Subscriptions.from_dataframe, read or open"
        )


def _directory(version: Version, own: Folder) -> str:
    """The directory whose current version batches take."""
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


def _copy_of(version: Version) -> Callable[[Path], Contents]:
    """Writes the files of a version once more."""

    def write(folder: Path) -> Contents:
        for name in version.manifest.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(version.path / name, folder / name)
            except OSError:  # another file system
                shutil.copyfile(version.path / name, folder / name)
        manifest = msgspec.structs.asdict(version.manifest)
        return Contents(**{name: manifest[name] for name in Contents.__struct_fields__})

    return write


def _hit_columns(good: Any, id_type: str, result: str) -> spark.StructType:
    """The columns of hits."""
    folded = str(good.sparkSession.conf.get("spark.sql.caseSensitive", "false")).lower() != "true"
    for name in good.columns:
        if name == BATCH_COLUMN or (folded and name.lower() == BATCH_COLUMN):
            raise MeetpointError(
                f"events: there is a column {name!r} already, which the table of hits has too; rename it: "
                f"events.withColumnRenamed({name!r}, 'event_{name}')"
            )
    lists = listed_schema(good.schema, id_type).fields[-1].dataType
    added = ("subscriptions", lists) if result == "lists" else ("subscription", lists.elementType)
    return spark.StructType([*good.schema.fields, spark.StructField(*added)])


def _claim(running: Any, own: Folder, tables: Sequence[Table]) -> str:
    """The stream's id, which its checkpoint and its tables bear; MeetpointError where they are not of one stream.

    Else the batches of a new checkpoint, which are numbered from 0 again, would be taken for those that are there.
    """
    hits = tables[0]
    mine = own.below("stream").get(running)
    if mine is None and own.direct and (own.here.parent / "offsets").exists():
        raise SourceError(f"checkpoint: {own.here.parent} is that of another query; choose another directory")
    id_ = uuid4().hex if mine is None else mine["stream"]
    fresh = [table for table in tables if not _is_ours(running, table, None if mine is None else id_)]
    if mine is not None and hits in fresh and any(own.below("pins", str(at)).get(running) for at in range(2)):
        raise SourceError(
            f"to: the batches of this checkpoint went to {mine['to']}, and {hits.folder.path} is empty; give that "
            "directory, or another checkpoint"
        )
    for table in fresh:
        table.try_out(running)
    if mine is None:
        own.below("stream").put(running, {"stream": id_, "to": hits.folder.path})
    for table in fresh:
        note = {"stream": id_, "format": table.format, "columns": table.columns, "checkpoint": own.path}
        table.owner.put(running, {**note, "log": None if table is hits else hits.folder.path})
    for table in tables:
        table.sweep()
    return id_


def _is_ours(running: Any, table: Table, id_: str | None) -> bool:
    """Whether a table is that of a stream, rather than empty; SourceError where it is another's."""
    path = table.folder.path
    note = table.owner.get(running)
    if note is None:
        if table.folder.is_empty(running):
            return False
        raise SourceError(f"{path}: holds something that no stream wrote; choose another directory")
    if note["stream"] != id_:
        raise SourceError(
            f"{path}: holds the batches of the stream with the checkpoint {os.path.dirname(note['checkpoint'])}; "
            "give that checkpoint, or choose another directory"
        )
    there = Table(table.folder, note["format"], note["columns"])
    for what, old, new in (
        ("format", there.format, table.format),
        ("columns", there.schema.simpleString(), table.schema.simpleString()),
    ):
        if old != new:
            raise SourceError(f"{path}: the {what} were {old} until now, and would be {new}; start another stream")
    return True


# -- what Spark tells --------------------------------------------------------------------------------------------------


class _Watch(StreamingQueryListener):  # type: ignore[misc]  # PySpark is not typed for mypy here
    """Remembers what Spark says of the batches of one query."""

    def __init__(self, id_: str) -> None:
        self._id = id_
        self.told: dict[int, Any] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        if str(event.progress.id) == self._id:
            self.told[event.progress.batchId] = event.progress
            if len(self.told) > REMEMBERED:
                del self.told[min(self.told)]

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def _with_speed(batch: Batch, told: Any) -> Progress:
    fields = msgspec.structs.asdict(batch)
    if told is None:
        return Progress(**fields)
    rate, took = told.inputRowsPerSecond, (told.durationMs or {}).get("triggerExecution")
    return Progress(
        **fields, input_rows_per_second=rate, trigger_seconds=None if took is None else round(took / 1000, 3)
    )


def _own_words(said: str) -> str | None:
    """The line of a MeetpointError in what Spark says of a failure."""
    found = re.findall(r"^(?:Caused by: )?meetpoint\.[\w.]+: (.+)$", said, re.MULTILINE)
    return found[-1].strip() if found else None


def _first_line(error: PySparkException) -> str:
    return str(error).strip().splitlines()[0].partition(" SQLSTATE:")[0].rstrip(".")
