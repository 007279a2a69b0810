"""What a stream leaves on disk: tables by batch, small notes, and which batches are complete.

    hits/batch_id=7/part-….parquet      the rows of a batch
    hits/_meetpoint/stream/note.txt     which stream writes here, in which format and columns
    hits/_meetpoint/log/7/note.txt      what batch 7 came to: it is complete, and is never touched again

Under a local master a batch is written aside and renamed to its place, so that no reader ever sees a part of one.
Elsewhere (HDFS, S3, a cluster, Spark Connect) nobody but Spark may reach the files: a batch is then written where it
belongs, a replay overwrites that directory and no other, and a reader who wants no part of a batch goes by the log, as
`read` does. Notes have one form in both cases, so that either reads what the other wrote.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as spark

from meetpoint.errors import MeetpointError
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.session import session
from meetpoint.spark.streaming.sinks import deliver
from meetpoint.spark.worker_files import is_local

__all__ = ["BATCH_COLUMN", "FORMATS", "Batch", "Folder", "Table", "batches", "folder_of", "read"]

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
