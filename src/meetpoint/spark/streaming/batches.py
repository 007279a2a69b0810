"""The batches of a stream: processed exactly once, and kept as tables that readers see whole.

    hits/batch_id=7/part-….parquet      the rows of a batch
    hits/_meetpoint/stream/note.txt     the stream that writes here, its format and columns
    hits/_meetpoint/log/7/note.txt      the report of batch 7: it is complete, and is never touched again

**Files.** Under a local master a batch is written aside and renamed to its place, so that no reader ever sees a part of
one. Elsewhere (HDFS, S3, a cluster, Spark Connect) only Spark may reach the files: a batch is then written where it
belongs, and a replay overwrites that directory and no other. A reader that wants no part of a batch goes by the log, as
`read` does. Notes have one form in both cases, so that either reads the notes of the other.

**Exactly once.** Spark numbers the batches and runs one after the other; after a crash it runs the last one again, with
the same events. `BatchJob` does this, in this order:

1. A batch that the log calls complete is not touched again.
2. It is pinned to a version of the subscriptions, by a note beside Spark's checkpoint that is written before anything
   else. A replay finds the note and takes that version, whatever was published meanwhile; the version is held in its
   directory until the next batch.
3. Its rows are checked against the schema and cached, so that the source is read once; dead letters are written, then
   hits, each to its own `batch_id=N`, which a replay overwrites.
4. Its report is logged, which makes it complete. Then Spark commits it.

A kill at any point therefore loses nothing and repeats nothing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.errors import MeetpointError
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.matching.job import match
from meetpoint.spark.session import session
from meetpoint.spark.streaming.sinks import deliver
from meetpoint.spark.subscriptions import store
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.subscriptions.subscriptions import Subscriptions
from meetpoint.spark.validation import DEAD_COLUMNS, EventRows
from meetpoint.spark.worker_files import is_local

__all__ = [
    "BATCH_COLUMN",
    "FORMATS",
    "BatchJob",
    "BatchReport",
    "BatchTable",
    "Folder",
    "MatchOptions",
    "batches",
    "check_ids",
    "folder_of",
    "read",
]

FORMATS = {"parquet": "parquet", "orc": "orc", "jsonl": "json", "json": "json"}
"""The formats that give back the rows as they were written, by our names and by Spark's."""
BATCH_COLUMN = "batch_id"

_NOTE = "note.txt"
_OWN = "_meetpoint"
_STREAM, _LOG, _ASIDE = "stream", "log", "aside"
_PATTERN = re.compile(r"[*?\[\]{}\\]")


class BatchReport(msgspec.Struct, frozen=True):
    """The figures of a complete batch."""

    batch: int
    version: int
    """The version of the subscriptions that it was matched with."""
    events: int
    good: int
    dead: int
    hits: int
    """The rows that were written: matches, or as lists every good event."""
    started: str
    seconds: float

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0


class Folder(msgspec.Struct, frozen=True):
    """A place that Spark knows by a path, and this process too if it is `direct`. It can be pickled."""

    path: str
    direct: bool

    def below(self, *names: str) -> Folder:
        return Folder("/".join((self.path, *names)), self.direct)

    @property
    def here(self) -> Path:
        assert self.direct
        return Path(self.path.removeprefix("file:"))

    def get(self, spark: SparkSession) -> dict[str, Any] | None:
        """Return the note in this folder, or None."""
        if self.direct:
            try:
                files = [path for path in self.here.iterdir() if path.name[0] not in "._"]
            except (FileNotFoundError, NotADirectoryError):
                return None
            files.sort(key=lambda path: path.name != _NOTE)
            return _decoded(files[0].read_text(encoding="utf-8"), self.path) if files else None
        found = _read_texts(spark, self.path)
        return _decoded(found[0], self.path) if found else None

    def put(self, spark: SparkSession, note: Any) -> None:
        """Replace the note, atomically under a local master."""
        text = msgspec.json.encode(note).decode()
        if not self.direct:
            spark.range(0, 1, 1, 1).select(F.lit(text).alias("value")).write.mode("overwrite").text(self.path)
            return
        self.here.mkdir(parents=True, exist_ok=True)
        partial = self.here / f".{uuid4().hex}"
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.here / _NOTE)

    def is_empty(self, spark: SparkSession) -> bool:
        """Return whether there is nothing that a reader would see."""
        if self.direct:
            return not self.here.exists() or not any(path.name[0] not in "._" for path in self.here.iterdir())
        try:
            files = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(self.path)
            return not files.select("path").limit(1).toArrow().num_rows
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return True
            raise


class BatchTable(msgspec.Struct, frozen=True):
    """Rows by batch, in a folder. It can be pickled."""

    folder: Folder
    format: str
    columns: str
    """Spark's schema of the rows, as JSON."""

    @property
    def schema(self) -> T.StructType:
        return T.StructType.fromJson(msgspec.json.decode(self.columns))

    def place(self, number: int) -> Folder:
        return self.folder.below(f"{BATCH_COLUMN}={number}")

    def write(self, frame: DataFrame, number: int) -> int:
        """Write a batch, in place of the leftovers of a run that was cut short; return its number of rows."""
        place = self.place(number)
        if not self.folder.direct:
            return deliver(frame, place.path, format=self.format, mode="overwrite").rows
        aside = self.folder.below(_OWN, _ASIDE, f"{number}-{uuid4().hex}")
        rows = deliver(frame, aside.path, format=self.format).rows
        if place.here.exists():
            old = aside.here.with_name(f"old-{aside.here.name}")
            os.rename(place.here, old)
            shutil.rmtree(old, ignore_errors=True)
        os.rename(aside.here, place.here)
        return rows

    def read(self, spark: SparkSession, last: int) -> DataFrame:
        """Return the rows of all batches up to the last, with their batch."""
        schema = T.StructType([*self.schema.fields, T.StructField(BATCH_COLUMN, T.LongType())])
        if last < 0 or self.folder.is_empty(spark):
            return spark.createDataFrame([], schema)
        rows = spark.read.format(self.format).schema(schema).load(self.folder.path)
        return rows.where(F.col(BATCH_COLUMN) <= last)

    def sweep(self) -> None:
        """Delete the files that killed runs had written aside."""
        if self.folder.direct:
            shutil.rmtree(self.folder.below(_OWN, _ASIDE).here, ignore_errors=True)

    def try_out(self, spark: SparkSession) -> None:
        """Write no rows, so that an unusable format or place is reported before the stream starts."""
        trial = self.folder.below(_OWN, "trial").path
        deliver(spark.createDataFrame([], self.schema), trial, format=self.format, mode="overwrite")

    # -- notes ---------------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Folder:
        """The note of the stream that writes here."""
        return self.folder.below(_OWN, _STREAM)

    def log(self, number: int) -> Folder:
        return self.folder.below(_OWN, _LOG, str(number))

    def last(self, spark: SparkSession) -> int:
        folder = self.folder.below(_OWN, _LOG)
        if not folder.direct:
            return max((one.batch for one in self.history(spark)), default=-1)
        numbers = _numbers(folder.here)
        return next((n for n in reversed(numbers) if folder.below(str(n)).get(spark) is not None), -1)

    def history(self, spark: SparkSession, count: int | None = None) -> list[BatchReport]:
        """Return the reports of the last `count` complete batches, or of all, the oldest first."""
        folder = self.folder.below(_OWN, _LOG)
        if folder.direct:
            notes = (folder.below(str(n)).get(spark) for n in _numbers(folder.here)[-(count or 0) :])
            return [msgspec.convert(note, BatchReport) for note in notes if note is not None]
        texts = _read_texts(spark, folder.path)
        found = sorted((msgspec.json.decode(text, type=BatchReport) for text in texts), key=lambda one: one.batch)
        return found[-(count or 0) :]


def folder_of(path: object, spark: SparkSession, what: str) -> Folder:
    """Return a place by the path that a caller gave; raise SourceError where it cannot be one."""
    if not isinstance(path, str | os.PathLike) or not (text := os.fspath(path)) or not isinstance(text, str):
        raise SourceError(f"{what}: given {path!r}; give the path of a directory")
    if found := _PATTERN.search(text):
        raise SourceError(f"{what}: {text!r} has a {found[0]!r}, which Spark takes for a pattern; choose another name")
    where = urlsplit(text)
    if where.scheme not in ("", "file") or not _knows_files(spark):
        return Folder(text.rstrip("/") or text, False)
    here = os.path.abspath(unquote(where.path) if where.scheme else text)
    above = next(path for path in (Path(here), *Path(here).parents) if path.exists())
    if not above.is_dir():
        raise SourceError(f"{what}: {above} is a file; choose another directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise SourceError(f"{what}: {above} may not be written to; choose another directory")
    return Folder(f"file:{here}", True)


def read(to: str | os.PathLike[str], spark: SparkSession | None = None) -> DataFrame:
    """Return the rows that a stream has written to a directory, hits or dead letters, with `batch_id`.

    Only complete batches are read: none that runs, or that a crash cut short. Raise SourceError where no stream has
    written there.

        hits = read("/data/hits", spark)
    """
    spark, table, log = _opened(to, spark)
    return table.read(spark, log.last(spark))


def batches(to: str | os.PathLike[str], spark: SparkSession | None = None) -> list[BatchReport]:
    """Return the reports of all complete batches of a stream, the oldest first.

    For example:

        print(batches("/data/hits")[-1].events_per_second)
    """
    spark, _, log = _opened(to, spark)
    return log.history(spark)


def _opened(to: str | os.PathLike[str], spark: SparkSession | None) -> tuple[SparkSession, BatchTable, BatchTable]:
    """Return a session, the table in a directory, and the table whose log has the complete batches."""
    spark = spark or session()
    folder = folder_of(to, spark, "to")
    note = BatchTable(folder, "", "").owner.get(spark)
    if note is None:
        raise SourceError(f"{os.fspath(to)}: no stream has written there; give the directory of its hits")
    table = BatchTable(folder, note["format"], note["columns"])
    return spark, table, table if note["log"] is None else BatchTable(folder_of(note["log"], spark, "to"), "", "")


def _knows_files(spark: SparkSession) -> bool:
    """Return whether a path means the same file for Spark as for this process."""
    root = str(spark.conf.get("spark.hadoop.fs.defaultFS", "file:///"))
    return is_local(spark) and root.startswith("file:")


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    except FileNotFoundError:
        return []


def _read_texts(spark: SparkSession, path: str) -> list[str]:
    """Return the lines of all files below a path; none where there is no such path."""
    try:
        found = spark.read.option("recursiveFileLookup", True).text(path).toArrow()
    except AnalysisException as error:
        if "PATH_NOT_FOUND" in str(error):
            return []
        raise
    lines: list[str] = found["value"].to_pylist()
    return lines


def _decoded(text: str, path: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        raise MeetpointError(f"{path}: the note is damaged; restore it, or start anew elsewhere") from None


_log = logging.getLogger("meetpoint.spark")


class MatchOptions(TypedDict):
    strategy: str
    result: str
    missing: str
    on_bad: str
    ship: str


class BatchJob(msgspec.Struct, frozen=True):
    """The driver's work on a batch, for `foreachBatch`. It is pickled where the driver is a server of Spark Connect."""

    stream: str
    directory: str
    id_type: str
    pins: Folder
    hits: BatchTable
    dead: BatchTable | None
    options: MatchOptions

    def __call__(self, rows: DataFrame, number: int) -> None:
        spark = rows.sparkSession
        log = self.hits.log(number)
        pin = self._pin(number).get(spark)
        if pin is not None and pin["batch"] != number:
            pin = None  # the place was last used by an earlier batch
        if pin is not None and log.get(spark) is not None:
            _log.info("stream: batch %s is complete already", number)
            return
        started, clock = datetime.now(UTC), time.perf_counter()
        rows = rows.persist()
        try:
            events: DataFrame = rows
            letters: DataFrame | None = None
            if self.dead is not None:
                is_dead = F.col("reason").isNotNull()
                events, letters = rows.where(~is_dead).select("event.*"), rows.where(is_dead).select(*DEAD_COLUMNS)
            version, hits = self._matched(spark, events, number, pin)
            good, dead, _ = EventRows(events, letters, None if letters is None else rows).row_counts()
            # With a pin an interrupted run may have left dead letters, which must be overwritten.
            if self.dead is not None and letters is not None and (dead or pin is not None):
                self._check_rows(number, "dead letters", self.dead.write(letters, number), dead)
            written = self.hits.write(hits, number)
            if self.options["result"] == "lists":
                self._check_rows(number, "lists", written, good)
        finally:
            rows.unpersist()
        seconds = round(time.perf_counter() - clock, 3)
        at = started.isoformat("T", "milliseconds")
        batch = BatchReport(number, version, good + dead, good, dead, written, at, seconds)
        log.put(spark, batch)
        _log.info("stream: %s", batch)

    def is_running(self, spark: SparkSession) -> bool:
        """Return whether a batch was begun that is not complete."""
        begun = self.last_pinned(spark)
        return begun is not None and self.hits.log(begun).get(spark) is None

    def last_pinned(self, spark: SparkSession) -> int | None:
        pins = (self._pin(number).get(spark) for number in range(2))
        return max((pin["batch"] for pin in pins if pin is not None), default=None)

    def _pin(self, number: int) -> Folder:
        """Return the place where a batch is pinned. Two are enough: only the last batch is ever run again."""
        return self.pins.below(str(number % 2))

    def _matched(
        self, spark: SparkSession, events: DataFrame, number: int, pin: dict[str, Any] | None
    ) -> tuple[int, DataFrame]:
        """Return the version that a batch is pinned to, now if it is not yet, and its hits."""
        if pin is not None:
            version = self._pinned(pin)
            return version.number, self._match(spark, events, version)
        version = self._current()
        # Before the pin: a version that does not fit would be pinned forever, and every restart would fail.
        hits = self._match(spark, events, version)
        pin_note = {"batch": number, "version": version.number, "checksum": version.manifest.checksum}
        self._pin(number).put(spark, pin_note)
        return version.number, hits

    def _match(self, spark: SparkSession, events: DataFrame, version: Version) -> DataFrame:
        check_ids(version, self.id_type)
        return match(events, Subscriptions.open(self.directory, version.number, spark), **self.options)

    def _current(self) -> Version:
        try:
            return store.hold(self.directory, self.stream)
        except SourceError as error:
            version = store.current(self.directory)  # raises a clearer error where there is none
            _log.warning("stream: version %s cannot be held, and may go while it is used: %s", version.number, error)
            return version

    def _pinned(self, pin: dict[str, Any]) -> Version:
        number, batch = pin["version"], pin["batch"]
        try:
            version = store.open_version(self.directory, number)
        except SourceError as error:
            problem = str(error)
        else:
            if version.manifest.checksum == pin["checksum"]:
                return version
            problem = f"{self.directory}: version {number} is another one now"
        raise SourceError(
            f"batch {batch} was begun with version {number}, and its replay needs it: {problem}; restore it, or remove "
            f"{self._pin(batch).path} to match the batch with the current version"
        )

    def _check_rows(self, number: int, what: str, written: int, counted: int) -> None:
        if written != counted:
            raise MeetpointError(
                f"batch {number}: {counted:,} {what} were counted and {written:,} written; the source must give the "
                "same rows when it is read again"
            )


def check_ids(version: Version, id_type: str) -> None:
    found = version.manifest.id_type
    if found != id_type:
        raise MeetpointError(
            f"subscriptions: the ids of version {version.number} are of type {found}, and the stream's are {id_type}; "
            "cast them, or start another stream"
        )
