"""`deliver`: hits to files or to any other sink of Spark, and the number of rows.

The plan runs once: rows are counted while they are written. Files are written as Spark does: below `_temporary`, then
moved to their place, and `_SUCCESS` last, so that a reader that waits for that sees all rows of a delivery or none.
`overwrite` removes the old files first. A delivery onto its own input would therefore lose it, and is refused, as far
as Spark knows the files of a plan (it does not, behind a cache).

Texts lose nothing either. By default Spark cuts timestamps to milliseconds in JSON and CSV, and trims texts and escapes
quotes with backslashes in CSV; here they have microseconds, and CSV is that of RFC 4180, with a header. `options` win
over all of this.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.errors import AnalysisException, IllegalArgumentException, ParseException, PySparkException
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.errors import MeetpointError
from meetpoint.matching.io.events import SUFFIXES
from meetpoint.matching.io.rejects import SourceError
from meetpoint.spark.columns import check_choice, check_frame
from meetpoint.spark.worker_files import is_local

__all__ = ["MODES", "DeliveryResult", "deliver"]

MODES = ("error", "append", "overwrite")
_FORMATS = {"jsonl": "json", "ndjson": "json"}
"""Our names of Spark's formats, where they differ."""
_FILE_FORMATS = ("parquet", "json", "csv", "orc", "text", "avro", "xml", "binaryfile")
_KNOWN = (*_FILE_FORMATS, "jsonl", "jdbc", "delta", "iceberg", "kafka", "noop", "console")
_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
_OPTIONS: dict[str, dict[str, str]] = {
    "json": _TIMES,
    "csv": {
        **_TIMES,
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
}
_REFUSALS = (
    "java.io.IOException",
    "java.lang.RuntimeException: java.lang.ClassNotFoundException",
    "java.nio.file.",
    "org.apache.hadoop.",
    "org.apache.spark.SparkClassNotFoundException",
)
"""Prefixes of Java's exceptions that a path or a format causes before any job."""


@dataclass(frozen=True)
class DeliveryResult:
    """The number of rows written, their path (None for a sink without one), and Spark's format."""

    rows: int
    path: str | None
    format: str


def deliver(
    hits: DataFrame,
    to: str | os.PathLike[str] | None,
    *,
    format: str | None = None,  # noqa: A002
    mode: str = "error",
    partition_by: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
) -> DeliveryResult:
    """Write a DataFrame to a directory of .parquet, .jsonl or .csv files, or to another sink.

    - `to`: the directory; its suffix gives the format. None where `format` and `options` name the sink.
    - `format`: any format that Spark writes, with its `options`.
    - `mode`: error, append or overwrite, where something is there already.
    - `partition_by`: names columns that become directories.

    Raise MeetpointError, before any job, for every error that can be known by then.

        written = deliver(hits, "hits.parquet", mode="overwrite").rows
    """
    check_frame(hits, "hits")
    if hits.isStreaming:
        raise MeetpointError("hits: the DataFrame is a stream; use stream(…), or its own writeStream")
    check_choice("mode", mode, MODES)
    path = _check_path(to)
    chosen = _check_format(path, format)
    given = _check_options(options)
    if path is None and chosen in _FILE_FORMATS and "path" not in given:
        raise SourceError(f"to: given None, and {chosen} is written to files; give a path")
    by = _check_partitions(hits, partition_by)
    if chosen == "csv":
        _check_flat(hits.schema)
    if path is not None and chosen in _FILE_FORMATS:
        _check_place(hits, path, mode)
    counted = Observation()
    writer = hits.observe(counted, F.count(F.lit(1)).alias("rows")).write.format(chosen).mode(mode)
    if by:
        writer = writer.partitionBy(*by)
    writer = writer.options(**{**_OPTIONS.get(chosen, {}), **given})
    try:
        writer.save(path)
    except Exception as error:
        _refuse(error, path, chosen)
        raise
    return DeliveryResult(int(counted.get["rows"]), path, chosen)


# -- checks before any job ---------------------------------------------------------------------------------------------


def _check_path(to: object) -> str | None:
    if to is None:
        return None
    if not isinstance(to, str | os.PathLike):
        raise SourceError(f"to: given an object of class {type(to).__name__}; give a path, or None and a format")
    path = os.fspath(to)
    if not isinstance(path, str) or not path.strip():
        raise SourceError(f"to: {path!r} is no path; name a directory to be written, such as hits.parquet")
    return path


def _check_format(path: str | None, given: object) -> str:
    if given is not None:
        if not isinstance(given, str) or not given.strip():
            raise MeetpointError(f"format is {given!r}; use parquet, jsonl, csv, or another that Spark writes")
        return _FORMATS.get(given.lower(), given)
    if path is None:
        raise MeetpointError("to: given None; give a path, or say with format= and options= where to write")
    found = SUFFIXES.get(Path(path.rstrip("/")).suffix.lower())
    if found is None:
        raise SourceError(f"{path}: the ending says no format; end it in .parquet, .jsonl or .csv, or say format=")
    return _FORMATS.get(found, found)


def _check_options(options: object) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, Mapping) or not all(isinstance(key, str) for key in options):
        raise MeetpointError("options: give a mapping of names to values, such as {'compression': 'zstd'}")
    return dict(options)


def _check_partitions(hits: DataFrame, partition_by: object) -> list[str]:
    if partition_by is None:
        return []
    names = [partition_by] if isinstance(partition_by, str) else partition_by
    if not isinstance(names, Sequence):
        raise MeetpointError(f"partition_by: given {partition_by!r}; give the name of a column, or a list of them")
    columns = list(hits.columns)
    for name in names:
        if name not in columns:
            near = get_close_matches(str(name)[:200], columns, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the columns are {', '.join(columns)}"
            raise MeetpointError(f"partition_by: hits have no column {name!r}; {hint}")
    if set(columns) <= set(names):
        raise MeetpointError("partition_by: it names all columns, and none is left to be written; leave one out")
    return list(names)


def _check_flat(columns: T.StructType) -> None:
    nested = T.StructType | T.ArrayType | T.MapType
    for field in columns.fields:
        if isinstance(field.dataType, nested):
            raise MeetpointError(
                f"hits: column {field.name!r} is of type {field.dataType.simpleString()}, which CSV does not hold; "
                "deliver .parquet or .jsonl, or turn it to a text with to_json"
            )


def _check_place(hits: DataFrame, path: str, mode: str) -> None:
    """Raise SourceError where the place is one of the inputs, or cannot be written."""
    where = urlsplit(path)
    here = os.path.abspath(unquote(where.path) if where.scheme else path)
    if mode == "overwrite":
        for file in hits.inputFiles():
            read_path = unquote(urlsplit(file).path)
            if read_path == here or read_path.startswith(here.rstrip("/") + "/"):
                raise SourceError(f"{path}: the hits are read from there; overwrite another path, then rename it")
    if where.scheme not in ("", "file") or not is_local(hits.sparkSession):
        return
    above = Path(here).parent
    while not above.exists():
        above = above.parent
    if above == above.parent:
        return  # perhaps a path of a file system that this machine does not have
    if not above.is_dir():
        raise SourceError(f"{path}: {above} is a file; choose another directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise SourceError(f"{path}: {above} may not be written to; choose another directory")


# -- refusals by Spark -------------------------------------------------------------------------------------------------


def _refuse(error: Exception, path: str | None, chosen: str) -> None:
    """Raise SourceError for an error before any job; return for an error in one."""
    message = _said(error)
    if message is None:
        return
    target = path or chosen
    if "ALREADY_EXISTS" in message:
        raise SourceError(
            f"{target}: there is something already; choose another path, or say mode='append' or mode='overwrite'"
        ) from None
    if "DATA_SOURCE_NOT_FOUND" in message:
        near = get_close_matches(chosen.lower(), _KNOWN, n=1)
        hint = f"did you mean {near[0]}?" if near else "add its package to the session, or use parquet, jsonl or csv"
        raise SourceError(f"format {chosen!r} is none that this Spark knows; {hint}") from None
    raise SourceError(f"{target}: cannot be written: {message}") from None


def _said(error: Exception) -> str | None:
    """Return the message of a refusal by Spark; None for anything else, above all for the failure of a job."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, AnalysisException | IllegalArgumentException | ParseException):
        line = lines[0]
    elif type(error).__name__ == "Py4JJavaError" or isinstance(error, PySparkException):
        # An exception of Java that PySpark has no class for: `class: message`, or through Connect `(class) message`.
        line = next((line.lstrip(": ") for line in lines if re.match(r"(: )?\(?(java|org)\.[\w.$]+[):]", line)), "")
        if not line.lstrip("(").startswith(_REFUSALS):
            return None
    else:
        return None
    return line.partition(" SQLSTATE:")[0].rstrip(".")
