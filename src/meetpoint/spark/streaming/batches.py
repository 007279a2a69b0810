"""What a stream leaves on disk: tables by batch, small notes, and which batches are complete.

    hits/batch_id=7/part-….parquet      the rows of a batch
    hits/_meetpoint/stream/note.txt     which stream writes here, in which format and columns
    hits/_meetpoint/log/7/note.txt      what batch 7 came to: it is complete, and is never touched again

Under a local master a batch is written aside and renamed to its place, so that no reader ever sees a part of one.
Elsewhere (HDFS, S3, a cluster, Spark Connect) nobody but Spark may reach the files: a batch is then written where it
belongs, a replay overwrites that directory and no other, and a reader who wants no part of a batch goes by the log, as
`read` does. Notes have one form in both cases, so that either reads what the other wrote.


What a stream does with one batch, exactly once however often it is run.

Spark numbers the batches and runs one after the other; after a crash it runs the last one again, with the same events.
What a batch does, in this order:

1. A batch that the log calls complete is not touched again.
2. It is pinned to a version of the subscriptions, by a note beside Spark's checkpoint that is written before anything
   else. A replay finds the note and takes that version, whatever was published meanwhile; the version is held in its
   directory until the next batch.
3. Its rows are checked against the schema and cached, so that the source is read once; dead letters are written, then
   hits, each to its own `batch_id=N`, which a replay overwrites.
4. What it came to is logged, which makes it complete. Then Spark commits it.

A kill at any point therefore loses nothing and repeats nothing. See `streaming.batches` for what readers see.
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
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from meetpoint.errors import MeetpointError
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.matching.job import match
from meetpoint.spark.session import session
from meetpoint.spark.streaming.sinks import deliver
from meetpoint.spark.subscriptions import store
from meetpoint.spark.subscriptions.store import Version
from meetpoint.spark.subscriptions.subscriptions import Subscriptions
from meetpoint.spark.validation import DEAD_COLUMNS, Validated
from meetpoint.spark.worker_files import is_local

__all__ = [
    "BATCH_COLUMN",
    "FORMATS",
    "Batch",
    "Folder",
    "Options",
    "Table",
    "Work",
    "batches",
    "check_ids",
    "folder_of",
    "read",
]

FORMATS = {"parquet": "parquet", "orc": "orc", "jsonl": "json", "json": "json"}
"""Formats that give back what was written, by our names and by Spark's."""
BATCH_COLUMN = "batch_id"

_NOTE = "note.txt"
_OWN = "_meetpoint"
_STREAM, _LOG, _ASIDE = "stream", "log", "aside"
_PATTERN = re.compile(r"[*?\[\]{}\\]")


class Batch(msgspec.Struct, frozen=True):
    """What a complete batch came to."""

    batch: int
    version: int
    """The version of the subscriptions that it was matched with."""
    events: int
    good: int
    dead: int
    hits: int
    """Rows that were written: matches, or as lists every good event."""
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
        """The place for this process."""
        assert self.direct
        return Path(self.path.removeprefix("file:"))

    def get(self, spark: Any) -> dict[str, Any] | None:
        """The note that this folder holds; None where there is none."""
        if self.direct:
            try:
                files = [path for path in self.here.iterdir() if path.name[0] not in "._"]
            except (FileNotFoundError, NotADirectoryError):
                return None
            files.sort(key=lambda path: path.name != _NOTE)
            return _decoded(files[0].read_text(encoding="utf-8"), self.path) if files else None
        found = _read_texts(spark, self.path)
        return _decoded(found[0], self.path) if found else None

    def put(self, spark: Any, note: Any) -> None:
        """Replace the note; under a local master at once or not at all."""
        text = msgspec.json.encode(note).decode()
        if not self.direct:
            _one_row(spark, text).write.mode("overwrite").text(self.path)
            return
        self.here.mkdir(parents=True, exist_ok=True)
        partial = self.here / f".{uuid4().hex}"
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self.here / _NOTE)

    def is_empty(self, spark: Any) -> bool:
        """Whether nothing is there that a reader would see."""
        if self.direct:
            return not self.here.exists() or not any(path.name[0] not in "._" for path in self.here.iterdir())
        try:
            files = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(self.path)
            return not files.select("path").limit(1).toArrow().num_rows
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return True
            raise


class Table(msgspec.Struct, frozen=True):
    """Rows by batch, in a folder. It can be pickled."""

    folder: Folder
    format: str
    columns: str
    """Spark's schema of the rows, as JSON."""

    @property
    def schema(self) -> Any:
        return spark.StructType.fromJson(msgspec.json.decode(self.columns))

    def place(self, number: int) -> Folder:
        return self.folder.below(f"{BATCH_COLUMN}={number}")

    def write(self, frame: Any, number: int) -> int:
        """Write a batch, in place of what a run that was cut short left of it; how many rows it has."""
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

    def read(self, spark_session: Any, last: int) -> Any:
        """The rows of all batches up to the last, with their batch."""
        schema = spark.StructType([*self.schema.fields, spark.StructField(BATCH_COLUMN, spark.LongType())])
        if last < 0 or self.folder.is_empty(spark_session):
            return spark_session.createDataFrame([], schema)
        rows = spark_session.read.format(self.format).schema(schema).load(self.folder.path)
        return rows.where(F.col(BATCH_COLUMN) <= last)

    def sweep(self) -> None:
        """Remove what killed runs had written aside."""
        if self.folder.direct:
            shutil.rmtree(self.folder.below(_OWN, _ASIDE).here, ignore_errors=True)

    def try_out(self, spark_session: Any) -> None:
        """Write no rows, for what the format or the place has against it to be told."""
        trial = self.folder.below(_OWN, "trial").path
        deliver(spark_session.createDataFrame([], self.schema), trial, format=self.format, mode="overwrite")

    # -- notes ---------------------------------------------------------------------------------------------------------

    @property
    def owner(self) -> Folder:
        """The note of the stream that writes here."""
        return self.folder.below(_OWN, _STREAM)

    def log(self, number: int) -> Folder:
        return self.folder.below(_OWN, _LOG, str(number))

    def last(self, spark_session: Any) -> int:
        """The last complete batch, -1 where there is none: batches are run one after the other."""
        folder = self.folder.below(_OWN, _LOG)
        if not folder.direct:
            return max((one.batch for one in self.history(spark_session)), default=-1)
        numbers = _numbers(folder.here)
        return next((n for n in reversed(numbers) if folder.below(str(n)).get(spark_session) is not None), -1)

    def history(self, spark_session: Any, count: int | None = None) -> list[Batch]:
        """What the last `count` complete batches came to, or all, the oldest first."""
        folder = self.folder.below(_OWN, _LOG)
        if folder.direct:
            notes = (folder.below(str(n)).get(spark_session) for n in _numbers(folder.here)[-(count or 0) :])
            return [msgspec.convert(note, Batch) for note in notes if note is not None]
        texts = _read_texts(spark_session, folder.path)
        found = sorted((msgspec.json.decode(text, type=Batch) for text in texts), key=lambda one: one.batch)
        return found[-(count or 0) :]


def folder_of(path: object, spark_session: Any, what: str) -> Folder:
    """A place by the path that a caller gave; SourceError where it is none."""
    if not isinstance(path, str | os.PathLike) or not (text := os.fspath(path)) or not isinstance(text, str):
        raise SourceError(f"{what}: given {path!r}; give the path of a directory")
    if found := _PATTERN.search(text):
        raise SourceError(f"{what}: {text!r} has a {found[0]!r}, which Spark takes for a pattern; choose another name")
    where = urlsplit(text)
    if where.scheme not in ("", "file") or not _knows_files(spark_session):
        return Folder(text.rstrip("/") or text, False)
    here = os.path.abspath(unquote(where.path) if where.scheme else text)
    above = next(path for path in (Path(here), *Path(here).parents) if path.exists())
    if not above.is_dir():
        raise SourceError(f"{what}: {above} is a file; choose another directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise SourceError(f"{what}: {above} may not be written to; choose another directory")
    return Folder(f"file:{here}", True)


def read(to: str | os.PathLike[str], spark: Any = None) -> Any:
    """What a stream has written to a directory, of hits or of dead letters: the rows of complete batches, `batch_id`.

    A batch that runs, or that a crash cut short, is not among them.
    """
    running, table, log = _opened(to, spark)
    return table.read(running, log.last(running))


def batches(to: str | os.PathLike[str], spark: Any = None) -> list[Batch]:
    """What each complete batch of a stream came to, the oldest first."""
    running, _, log = _opened(to, spark)
    return log.history(running)


def _opened(to: str | os.PathLike[str], spark_session: Any) -> tuple[Any, Table, Table]:
    """A session, the table in a directory, and the one whose log tells which batches are complete."""
    running = spark_session or session()
    folder = folder_of(to, running, "to")
    note = Table(folder, "", "").owner.get(running)
    if note is None:
        raise SourceError(f"{os.fspath(to)}: no stream has written there; give the directory of its hits")
    table = Table(folder, note["format"], note["columns"])
    return running, table, table if note["log"] is None else Table(folder_of(note["log"], running, "to"), "", "")


def _knows_files(spark_session: Any) -> bool:
    """Whether a path means the same file for Spark as for this process."""
    root = str(spark_session.conf.get("spark.hadoop.fs.defaultFS", "file:///"))
    return is_local(spark_session) and root.startswith("file:")


def _numbers(folder: Path) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdecimal())
    except FileNotFoundError:
        return []


def _one_row(spark_session: Any, text: str) -> Any:
    return spark_session.range(0, 1, 1, 1).select(F.lit(text).alias("value"))


def _read_texts(spark_session: Any, path: str) -> list[str]:
    """The lines of all files below a path; none where there is no such path."""
    try:
        found = spark_session.read.option("recursiveFileLookup", True).text(path).toArrow()
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


class Options(TypedDict):
    """Those of `match`."""

    strategy: str
    result: str
    missing: str
    on_bad: str
    ship: str


class Work(msgspec.Struct, frozen=True):
    """What is done with a batch, by the driver; it is pickled where that is a server of Spark Connect."""

    stream: str
    directory: str
    id_type: str
    pins: Folder
    hits: Table
    dead: Table | None
    options: Options

    def __call__(self, rows: Any, number: int) -> None:
        running = rows.sparkSession
        log = self.hits.log(number)
        pin = self._pin(number).get(running)
        if pin is not None and pin["batch"] != number:
            pin = None  # an earlier batch's
        if pin is not None and log.get(running) is not None:
            _log.info("stream: batch %s is complete already", number)
            return
        started, clock = datetime.now(UTC), time.perf_counter()
        rows = rows.persist()
        try:
            events, letters = rows, None
            if self.dead is not None:
                is_dead = F.col("reason").isNotNull()
                events, letters = rows.where(~is_dead).select("event.*"), rows.where(is_dead).select(*DEAD_COLUMNS)
            version, hits = self._matched(running, events, number, pin)
            if self.dead is None:
                counts = {"in": rows.count(), "dead": 0}
            else:
                counts = Validated(events, letters, rows).counts()
                if counts["dead"] or pin is not None:  # a run that was cut short may have left some
                    self._check_rows(number, "dead letters", self.dead.write(letters, number), counts["dead"])
            written = self.hits.write(hits, number)
            good = counts["in"] - counts["dead"]
            if self.options["result"] == "lists":
                self._check_rows(number, "lists", written, good)
        finally:
            rows.unpersist()
        seconds = round(time.perf_counter() - clock, 3)
        batch = Batch(
            number,
            version,
            counts["in"],
            good,
            counts["dead"],
            written,
            started.isoformat("T", "milliseconds"),
            seconds,
        )
        log.put(running, batch)
        _log.info("stream: %s", batch)

    def is_running(self, running: Any) -> bool:
        """Whether a batch was begun that is not complete."""
        begun = self.last_pinned(running)
        return begun is not None and self.hits.log(begun).get(running) is None

    def last_pinned(self, running: Any) -> int | None:
        pins = (self._pin(number).get(running) for number in range(2))
        return max((pin["batch"] for pin in pins if pin is not None), default=None)

    def _pin(self, number: int) -> Folder:
        """Where a batch is pinned: two places serve, since only the last batch is ever run again."""
        return self.pins.below(str(number % 2))

    def _matched(self, running: Any, events: Any, number: int, pin: dict[str, Any] | None) -> tuple[int, Any]:
        """The version that a batch is pinned to, now if it is not yet, and its hits."""
        if pin is not None:
            version = self._pinned(pin)
            return version.number, self._match(running, events, version)
        version = self._current()
        hits = self._match(running, events, version)  # before the pin: a version that does not fit is not pinned
        note = {"batch": number, "version": version.number, "checksum": version.manifest.checksum}
        self._pin(number).put(running, note)
        return version.number, hits

    def _match(self, running: Any, events: Any, version: Version) -> Any:
        check_ids(version, self.id_type)
        return match(events, Subscriptions.open(self.directory, version.number, running), **self.options)

    def _current(self) -> Version:
        try:
            return store.hold(self.directory, self.stream)
        except SourceError as error:
            version = store.current(self.directory)  # or its own words, where there is none
            _log.warning("stream: version %s cannot be held, and may go while it is used: %s", version.number, error)
            return version

    def _pinned(self, pin: dict[str, Any]) -> Version:
        number, batch = pin["version"], pin["batch"]
        try:
            version = store.open_version(self.directory, number)
        except SourceError as error:
            told = str(error)
        else:
            if version.manifest.checksum == pin["checksum"]:
                return version
            told = f"{self.directory}: version {number} is another one now"
        raise SourceError(
            f"batch {batch} was begun with version {number}, and its replay needs it: {told}; restore it, or remove "
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
