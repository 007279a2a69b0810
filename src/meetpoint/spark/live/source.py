"""`format("meetpoint")`: what a network accepts as a table or a stream of Spark, and rows as events of a network.

Events come from the archives of brokers, each from its own: a task has some numbers of one stream, asks the broker that
hosts it, and that evaluates the filter. Nothing is lost and nothing comes twice, whoever dies: numbers are offsets, and
what has a number and is in an archive stays. A stream is as far behind as files are written (`archive.flush_s`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from meetpoint.api.client_messages import EVERYTHING
from meetpoint.errors import MeetpointError
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import Schema
from meetpoint.language.schema.yaml import read_schema
from meetpoint.spark.live.offsets import Offset, Place
from meetpoint.spark.live.options import Client, Options
from meetpoint.spark.live.plan import EARLIEST, LATEST, Planner, Query, read_since
from meetpoint.spark.live.rows import Task, read_task
from meetpoint.spark.live.sink import SINK_OPTIONS, LiveWriter, Sink
from meetpoint.spark.types import spark_schema

__all__ = ["MeetpointDataSource", "register"]

EVENTS_PER_BATCH: Final = 1_000_000
EVENTS_PER_PARTITION: Final = 100_000
SOURCE_OPTIONS: Final = ("filter", "since", "schema", "maxEventsPerBatch", "eventsPerPartition")


def register(session: Any) -> None:
    """Have a session of Spark, of Connect too, know `format("meetpoint")`; `meetpoint.spark.session` does so itself."""
    session.dataSource.register(MeetpointDataSource)


class MeetpointDataSource(DataSource):  # type: ignore[misc]
    """What Spark calls. It is made anew for each query, in a Python process of the driver."""

    _query: Query | None = None

    @classmethod
    def name(cls) -> str:
        """What stands in `format(…)`."""
        return "meetpoint"

    def schema(self) -> spark.StructType:
        """The columns: asked of the network where no schema is given."""
        return _columns(self._asked().schema)

    def reader(self, schema: spark.StructType) -> DataSourceReader:
        """For `spark.read`."""
        return LiveReader(self._checked(schema))

    def streamReader(self, schema: spark.StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """For `spark.readStream`."""
        return LiveStreamReader(self._checked(schema))

    def streamWriter(self, schema: spark.StructType, overwrite: bool) -> LiveWriter:  # noqa: N802 - Spark's name
        """For `writeStream`."""
        return LiveWriter(Sink.of(Options(self.options, SINK_OPTIONS), schema))

    def _asked(self) -> Query:
        if self._query is None:
            self._query = _query(Options(self.options, SOURCE_OPTIONS))
        return self._query

    def _checked(self, schema: spark.StructType) -> Query:
        query = self._asked()
        if schema.simpleString() != _columns(query.schema).simpleString():
            raise MeetpointError("the columns follow from the option schema; leave .schema(…) out")
        return query


class _Partition(InputPartition):  # type: ignore[misc]
    """What one task reads, as Spark hands it around."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.task = task


class LiveReader(DataSourceReader):  # type: ignore[misc]
    """A table: all that was accepted until it was planned."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def partitions(self) -> list[InputPartition]:
        """One for each range of each stream."""
        if self._query.since == LATEST:
            raise MeetpointError("option since: a table has nothing since latest; give earliest, or a time")
        planner = Planner(self._query)
        try:
            planner.check_all()
            start = planner.begin(EARLIEST)
            end = planner.next(start, None, planner.all_accepted())
            planner.check_all()
            return [_Partition(task) for task in planner.tasks(start, end)]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The events of a range. Spark gives a partition of its own where there are none."""
        return read_task(partition.task, self._query.schema) if isinstance(partition, _Partition) else iter(())


class LiveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream, by offsets."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._planner = Planner(query)
        self._target: dict[Place, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        """Where a query without a checkpoint begins."""
        return self._planner.begin(LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Admission control: so many events a batch."""
        return ReadMaxRows(self._query.batch_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """A query that is to end when it has read what there is: all that was accepted by now."""
        self._target = self._planner.all_accepted()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Where the next batch ends."""
        most = None if isinstance(limit, ReadAllAvailable) else self._query.batch_max
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        return self._planner.next(start, most, self._target)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """One for each range of each stream."""
        return [_Partition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The events of a range."""
        assert isinstance(partition, _Partition)
        return read_task(partition.task, self._query.schema)

    def commit(self, end: Offset) -> None:
        """Nothing is to be told to brokers: archives keep what they have as long as they are set to."""

    def stop(self) -> None:
        """The query is over."""
        self._planner.close()


def _query(options: Options) -> Query:
    reach = options.reach()
    since = options.text("since")
    if since not in ("", EARLIEST, LATEST):
        read_since(since)
    text = options.text("filter", EVERYTHING)
    if text != EVERYTHING:
        parse_filter(text)
    path = options.text("schema")
    if path:
        schema: Schema | None = read_schema(Path(path))
    else:
        with Client(reach) as client:
            schema = client.run(client.asking.schema())
    if text != EVERYTHING and schema is not None:
        parse_filter(text, schema)
    return Query(
        reach,
        text,
        since,
        schema if schema is not None and len(schema) else None,
        options.count("maxEventsPerBatch", EVENTS_PER_BATCH),
        options.count("eventsPerPartition", EVENTS_PER_PARTITION),
        grows=not path,
    )


def _columns(schema: Schema | None) -> spark.StructType:
    fields = [
        ("id", spark.StringType()),
        ("publisher", spark.StringType()),
        ("sequence", spark.LongType()),
        ("time", spark.TimestampType()),
        ("attributes", spark.StringType() if schema is None else spark_schema(schema)),
        *([] if schema is None else [("unfit", spark.StringType())]),
        ("accepted_at", spark.TimestampType()),
        ("home", spark.BinaryType()),
        ("stream", spark.LongType()),
        ("number", spark.LongType()),
        ("read_at", spark.TimestampType()),
    ]
    return spark.StructType([spark.StructField(name, type_) for name, type_ in fields])
