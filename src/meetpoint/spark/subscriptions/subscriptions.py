"""`Subscriptions`: a table of filters, and the index that it is compiled to.

Nothing is lost silently: a row without a good id or filter is set aside with its reason, in `rejected`, and every match
reports how many there are.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from difflib import get_close_matches

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from meetpoint.client.connection_pool import Token
from meetpoint.client.sync import connect_sync
from meetpoint.errors import MeetpointError, SchemaError
from meetpoint.language.filters.lint import LintReport, Oddity
from meetpoint.language.schema.schema import Schema
from meetpoint.matching import jobs
from meetpoint.matching.io.events import format_of
from meetpoint.matching.io.rejects import Reject, SourceError
from meetpoint.spark.columns import check_choice, check_frame
from meetpoint.spark.reader import BROKEN, CSV_OPTIONS, read_frame
from meetpoint.spark.session import session
from meetpoint.spark.subscriptions import compilation, store
from meetpoint.spark.subscriptions.store import Version

__all__ = ["ON_BAD", "Subscriptions", "check_subscriptions", "is_temporary", "refuse_bad"]

ON_BAD = ("warn", "error")
SAMPLE_ROWS = 10_000
"""The number of events that are examined to tell which constraints few events satisfy."""
_temporary: set[str] = set()
"""The directories that are removed when this process ends."""

_log = logging.getLogger("meetpoint.spark")


class Subscriptions:
    """Filters under ids, from a DataFrame, from files, from brokers, or from a directory that they were compiled to.

    Make them with `from_dataframe`, `read`, `from_network` or `open`. The members that need parsed filters (`count`,
    `rejected`, `match`) compile them when they are first used, into a temporary directory; `compile` names another.

        subscriptions = Subscriptions.read("alerts.csv").compile("/srv/alerts")
    """

    def __init__(
        self,
        spark: SparkSession | None,
        source: DataFrame | None,
        id_type: str,
        schema: Schema | None,
        version: Version | None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._id_type = id_type
        self._schema = schema
        self._version = version

    # -- constructors --------------------------------------------------------------------------------------------------

    @staticmethod
    def from_dataframe(
        frame: DataFrame,
        id: str = "id",  # noqa: A002
        where: str = "filter",
        subscriber: str | None = None,
        schema: Schema | None = None,
    ) -> Subscriptions:
        """Take the rows of a DataFrame; `id`, `where` and `subscriber` name its columns.

        - `id`: strings or integers.
        - `where`: the texts of the filters.
        - `subscriber`: the owner of a filter: `lint` compares only those of one owner.
        - `schema`: filters are checked against it.

        Raise MeetpointError where a column is missing or of another type.

            Subscriptions.from_dataframe(spark.table("alerts"), id="alert", where="condition")
        """
        check_frame(frame, "subscriptions")
        if frame.isStreaming:
            raise MeetpointError("subscriptions: the DataFrame is a stream; compile the subscriptions of one moment")
        if schema is not None and not isinstance(schema, Schema):
            raise SchemaError(f"schema: given an object of class {type(schema).__name__}; give a Schema")
        id_type = _checked_type(frame, "id", id)
        _checked_type(frame, "where", where)
        if subscriber is not None:
            _checked_type(frame, "subscriber", subscriber)
        return Subscriptions(frame.sparkSession, _selected(frame, id, where, subscriber), id_type, schema, None)

    @staticmethod
    def read(
        path: str | os.PathLike[str], spark: SparkSession | None = None, schema: Schema | None = None
    ) -> Subscriptions:
        """Read a .parquet, .jsonl or .csv with the columns id, filter and maybe subscriber.

        Lines that are no rows are set aside like bad filters. Raise SourceError where the file or a column is missing.
        """
        where = os.fspath(path)
        spark = spark or session()
        frame = _read(spark, where)
        for wanted in ("id", "filter"):
            if wanted not in frame.columns:
                shown = ", ".join(name for name in frame.columns if name != BROKEN)
                raise SourceError(f"{where}: there is no column {wanted}; the columns are {shown}")
        subscriber = "subscriber" if "subscriber" in frame.columns else None
        return Subscriptions.from_dataframe(frame, subscriber=subscriber, schema=schema)

    @staticmethod
    def from_network(
        url: str,
        *,
        token: Token = "",
        ca: str | os.PathLike[str] | None = None,
        owner: str | None = None,
        labels: Mapping[str, str] | None = None,
        spark: SparkSession | None = None,
    ) -> Subscriptions:
        """Take the current subscriptions of a network of brokers, all, or those of an owner or with some labels.

        Their ids are their names, their subscribers their owners. Filters are checked against the network's schema.
        `token` and `ca` are those of `connect`.

            Subscriptions.from_network("mp://localhost:7400", labels={"team": "risk"})
        """
        with connect_sync(url, token=token, ca=ca) as net:
            schema = net.schema()
            found = net.subscriptions(owner, dict(labels or {}))
        rows = {
            "id": pa.array([each.name for each in found], pa.string()),
            "filter": pa.array([each.filter for each in found], pa.string()),
            "subscriber": pa.array([each.terms.owner for each in found], pa.string()),
        }
        frame = (spark or session()).createDataFrame(pa.table(rows))
        return Subscriptions.from_dataframe(frame, subscriber="subscriber", schema=schema)

    @staticmethod
    def open(
        directory: str | os.PathLike[str], version: int | None = None, spark: SparkSession | None = None
    ) -> Subscriptions:
        """Open the current version in a directory that subscriptions were compiled to, or one by its number."""
        found = store.current(directory) if version is None else store.open_version(directory, version)
        return Subscriptions(spark, None, found.manifest.id_type, None, found)

    # -- content -------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> Version | None:
        """The compiled version; None as long as there is none."""
        return self._version

    @property
    def compiled(self) -> Version:
        """The compiled version, compiled now if there is none."""
        if self._version is None:
            self._version = self._compile_to(_temporary_directory(), None, store.VERSIONS_KEPT)
        return self._version

    @property
    def count(self) -> int:
        """The number of subscriptions, without those set aside."""
        return self.compiled.manifest.subscriptions

    @property
    def rejected(self) -> DataFrame:
        """A DataFrame of the rows that were set aside: row, id, filter (as it was given) and reason."""
        return self._session.createDataFrame(pq.read_table(self.compiled.rejected_path))

    @property
    def filters(self) -> DataFrame:
        """A DataFrame of the good subscriptions: id, filter and subscriber."""
        return self._session.createDataFrame(pq.read_table(self.compiled.filters_path))

    @property
    def id_type(self) -> str:
        return self._id_type

    def lint(self) -> LintReport:
        """Report odd filters: refused, never or always true, duplicate, covered, or outside the schema."""
        rejects: list[Reject] = []
        report = jobs.lint(self._frame().drop("broken").toArrow(), schema=self._schema, rejects=rejects)
        nameless = len(rejects) - report.counts().get(Oddity.REFUSED, 0)
        if nameless:
            _log.warning("lint: %s rows have no good id or no filter: see rejected", f"{nameless:,}")
        return report

    # -- compilation ---------------------------------------------------------------------------------------------------

    def compile(
        self,
        directory: str | os.PathLike[str] | None = None,
        sample: DataFrame | pa.Table | None = None,
        *,
        on_bad: str = "warn",
        keep: int = store.VERSIONS_KEPT,
    ) -> Subscriptions:
        """Parse all filters in parallel, and publish an index of them as a new version in a directory.

        - `directory`: a new or an existing one; None for a temporary one.
        - `sample`: events like those to come, a DataFrame or an Arrow table: filters are then indexed by the
          constraints that few of them satisfy.
        - `on_bad`: "error" publishes nothing where a row is set aside, and raises MeetpointError.
        - `keep`: the number of versions that the directory keeps.

            subscriptions = subscriptions.compile("/srv/alerts", sample=events.limit(10_000))
        """
        where = _temporary_directory() if directory is None else directory
        rows = sample_rows(sample)
        version = self._compile_to(where, rows, keep, on_bad)
        return Subscriptions(self._spark, self._source, self._id_type, self._schema, version)

    def _compile_to(
        self, directory: str | os.PathLike[str], sample: pa.Table | None, keep: int, on_bad: str = "warn"
    ) -> Version:
        check_choice("on_bad", on_bad, ON_BAD)
        parsed = compilation.parse(self._frame(), self._id_type, self._schema)
        if on_bad == "error" and parsed.rejected.num_rows:
            refuse_bad(parsed.rejected.num_rows, parsed.rejected["reason"][0].as_py())
        return store.publish(
            directory,
            lambda folder: compilation.write_version(folder, parsed, sample=sample, schema=self._schema),
            keep=keep,
        )

    def _frame(self) -> DataFrame:
        """Return the rows with the columns that `compilation.parse` takes, good and bad."""
        if self._source is not None:
            return self._source
        tables = [pq.read_table(path) for path in (self.compiled.filters_path, self.compiled.rejected_path)]
        rows = pa.concat_tables(tables, promote_options="default").select(["id", "filter", "subscriber"])
        return _selected(self._session.createDataFrame(rows), "id", "filter", "subscriber")

    @property
    def _session(self) -> SparkSession:
        return self._spark or session()


# -- checks ------------------------------------------------------------------------------------------------------------


def check_subscriptions(given: object) -> None:
    """Raise MeetpointError unless an argument is Subscriptions."""
    if not isinstance(given, Subscriptions):
        raise MeetpointError(
            f"subscriptions: given an object of class {type(given).__name__}; make them with "
            "Subscriptions.from_dataframe, read or open"
        )


def refuse_bad(count: int, reason: str) -> None:
    """Raise MeetpointError for subscriptions of which some were set aside, where that was not wanted."""
    raise MeetpointError(
        f"subscriptions: {count:,} cannot be used, the first because: {reason}; correct them, or leave on_bad='warn'"
    )


def _checked_type(frame: DataFrame, argument: str, name: str) -> str:
    """Return Spark's name of a column's type; raise MeetpointError where the column is missing or of another type."""
    fields = [field for field in frame.schema.fields if field.name == name]
    if len(fields) != 1:
        near = get_close_matches(str(name), frame.columns, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(frame.columns)}"
        problem = "there are two columns" if fields else "there is no column"
        raise MeetpointError(f"subscriptions: {problem} {name!r}, which {argument}= names; {hint}")
    type_name = str(fields[0].dataType.simpleString()).partition(" ")[0].partition("(")[0]
    type_name = {"char": "string", "varchar": "string"}.get(type_name, type_name)
    wanted = ("string",) if argument == "where" else tuple(compilation.ID_TYPES)
    if type_name not in wanted:
        what = "a filter is a text" if argument == "where" else f"{argument} is a string or an integer"
        raise MeetpointError(f"subscriptions: column {name!r} is of type {type_name}, and {what}; cast it")
    return type_name


# -- rows --------------------------------------------------------------------------------------------------------------


def _selected(frame: DataFrame, id_: str, where: str, subscriber: str | None) -> DataFrame:
    """Select the columns that `compilation.parse` takes, by their place: Spark reads a dot in a name as a path."""
    names = list(frame.columns)
    placed = frame.toDF(*(f"c{at}" for at in range(len(names))))

    def column(name: str | None) -> Column:
        return F.lit(None) if name is None else F.col(f"c{names.index(name)}")

    broken = column(BROKEN if BROKEN in names else None)
    return placed.select(
        column(id_).alias("id"),
        column(where).alias("filter"),
        column(subscriber).cast("string").alias("subscriber"),
        broken.cast("string").alias("broken"),
    )


def _read(spark: SparkSession, path: str) -> DataFrame:
    """Return the rows of a file or folder; a line that is no row has only its text, in the column for broken lines."""
    kind = format_of(path.rstrip("/"))  # only Spark can tell whether the path exists
    if kind == "parquet":
        return read_frame(path, spark.read.parquet)
    if kind == "jsonl":
        return read_frame(path, lambda where: spark.read.json(where, columnNameOfCorruptRecord=BROKEN))
    header = read_frame(path, lambda where: spark.read.options(**CSV_OPTIONS).csv(where)).columns
    columns = T.StructType([T.StructField(name, T.StringType()) for name in (*header, BROKEN)])
    # All columns as texts: an id 007 must not become the number 7.
    return read_frame(
        path, lambda where: spark.read.schema(columns).options(**CSV_OPTIONS).csv(where, enforceSchema=False)
    )


def sample_rows(sample: DataFrame | pa.Table | None) -> pa.Table | None:
    if sample is None or isinstance(sample, pa.Table):
        return sample
    check_frame(sample, "sample")
    if sample.isStreaming:
        raise MeetpointError("sample: the DataFrame is a stream; give a table of events like those to come")
    return sample.limit(SAMPLE_ROWS).toArrow()


def _temporary_directory() -> str:
    """Make a directory that is removed when this process ends."""
    directory = tempfile.mkdtemp(prefix="meetpoint-index-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    _temporary.add(directory)
    return directory


def is_temporary(version: Version) -> bool:
    """Return whether a version is removed when this process ends."""
    return version.directory in _temporary
