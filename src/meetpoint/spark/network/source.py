"""`format("meetpoint")`: the accepted events of a network as a table or a stream of Spark.

Events come from the archives of brokers. A task has some numbers of one stream. It asks the broker that hosts the
stream, which evaluates the filter; where that does not answer, the others that have the archive, and then those that
have it by now according to the network. A range of which nothing more comes for a while ends its task with an error.

Nothing is lost and nothing comes twice, whatever fails: numbers are offsets, and an event that has a number and is in
an archive stays. A stream is as far behind as files are written (`archive.flush_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from meetpoint.api.client_messages import EVERYTHING, HistoryReply, HistoryRequest
from meetpoint.api.ids import Peer
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import EventError, MeetpointError
from meetpoint.language.events.arrow import arrow_schema, events_to_arrow
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.schema.schema import Schema, SchemaTree
from meetpoint.language.schema.sources import read_schema
from meetpoint.language.values import Value
from meetpoint.spark.columns import spark_schema
from meetpoint.spark.network.options import NetworkClient, QueryOptions
from meetpoint.spark.network.planner import (
    EARLIEST,
    LATEST,
    ArchivedStream,
    Offset,
    Planner,
    ReadTask,
    SourceQuery,
    read_since,
)
from meetpoint.spark.network.sink import SINK_OPTIONS, SinkSettings, StreamWriter

__all__ = ["MeetpointDataSource", "columns_of", "register"]

PAUSE_S: Final = 0.05
"""The delay before events that are not in the archive yet are asked for again."""
PAUSE_MAX_S: Final = 1.0
_TIME: Final = pa.timestamp("us", tz="UTC")

_Row = tuple[int, int, Event]
"""Number, moment of acceptance, event."""
_Grown = Callable[[], Schema | None]
"""A function that returns the network's current schema."""
EVENTS_PER_BATCH: Final = 1_000_000
EVENTS_PER_PARTITION: Final = 100_000
SOURCE_OPTIONS: Final = ("filter", "since", "schema", "maxEventsPerBatch", "eventsPerPartition")


def columns_of(schema: Schema | None) -> pa.Schema:
    """Return the columns of events. Without a schema attributes are JSON."""
    attributes = pa.string() if schema is None else pa.struct(list(arrow_schema(schema)))
    return pa.schema(
        [
            ("id", pa.string()),
            ("publisher", pa.string()),
            ("sequence", pa.int64()),
            ("time", _TIME),
            ("attributes", attributes),
            *([] if schema is None else [("unfit", pa.string())]),
            ("accepted_at", _TIME),
            ("home", pa.binary()),
            ("stream", pa.int64()),
            ("number", pa.int64()),
            ("read_at", _TIME),
        ]
    )


def read_task(task: ReadTask, schema: Schema | None) -> Iterator[pa.RecordBatch]:
    """Yield the events of a task, in the order of their numbers."""
    reader = _TaskClient(task)
    try:
        seen = reader.seen_elsewhere()
        for page in reader.pages(task.range.place, task.range.after, task.range.upto, task.holders):
            rows = [
                (number, at_us, from_msgpack(content)) for number, at_us, content in page.events if number not in seen
            ]
            if rows:
                yield _batch(rows, task, schema, reader.grown)
    finally:
        reader.close()


class _TaskClient:
    """The client of one task, which connects when it must, and again after a failure."""

    def __init__(self, task: ReadTask) -> None:
        self._task = task
        self._client: NetworkClient | None = None
        self._grown: Schema | None = None
        self._has_asked = False

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def seen_elsewhere(self) -> set[int]:
        """Return the numbers of the range that came, or come, from another archive."""
        place, after, upto, known = self._task.range
        return {
            number
            for archive, read in known
            if read > after
            for page in self.pages(
                place._replace(archive=archive), after, min(upto, read), self._task.others.get(archive, ())
            )
            for number, _, _ in page.events
        }

    def pages(self, place: ArchivedStream, after: int, upto: int, holders: Sequence[Peer]) -> Iterator[HistoryReply]:
        """Yield all pages of some numbers of a stream."""
        holders_to_ask = list(holders)
        problem = "no broker that answers has it"
        until = time.monotonic() + self._task.connection.timeout_s
        pause_s = PAUSE_S
        while after < upto:
            query = HistoryRequest(place.home, place.stream, after, upto, self._task.since_us, self._task.filter)
            try:
                client = self._connected(holders_to_ask)
                if not holders_to_ask:
                    holders_to_ask = self._find(client, place.archive)
                page = client.run(client.net.history(holders_to_ask[0], query)) if holders_to_ask else None
            except RefusedError:
                raise
            except NetworkError as error:
                problem, page = str(error), None
                holders_to_ask = holders_to_ask[1:]
            if page is not None and page.reached > after:
                until, pause_s = time.monotonic() + self._task.connection.timeout_s, PAUSE_S
                after = page.reached
                yield page
                continue
            if page is not None:
                problem = f"broker {holders_to_ask[0].address} does not have it in its archive yet"
            if time.monotonic() > until:
                raise NetworkError(
                    f"events of {place.home.hex()[:8]} from number {after + 1} on could not be read within "
                    f"{self._task.connection.timeout_s:g} s: {problem}; start the query again when brokers are up"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def grown(self) -> Schema | None:
        """Return the network's current schema; None where the columns do not follow it."""
        if self._task.grows and not self._has_asked:
            until = time.monotonic() + self._task.connection.timeout_s
            while not self._has_asked:
                try:
                    client = self._connected(self._task.holders)
                    self._grown, self._has_asked = client.run(client.net.schema()), True
                except RefusedError:
                    raise
                except NetworkError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(PAUSE_S)
        return self._grown

    def _connected(self, holders: Sequence[Peer]) -> NetworkClient:
        if self._client is None:
            self._client = NetworkClient(self._task.connection, [peer.address for peer in holders])
        return self._client

    def _find(self, client: NetworkClient, archive: str) -> list[Peer]:
        answers = client.run(client.net.streams(partial_ok=True))
        return [peer for peer, answer in answers.items() if answer.archive == archive]


def _batch(rows: list[_Row], task: ReadTask, schema: Schema | None, grown: _Grown) -> pa.RecordBatch:
    events = [event for _, _, event in rows]
    columns = columns_of(schema)
    values: dict[str, Any] = {
        "id": [event.id for event in events],
        "publisher": [event.publisher for event in events],
        "sequence": [event.sequence for event in events],
        "time": [event.time for event in events],
        "accepted_at": [at_us for _, at_us, _ in rows],
        "home": [task.range.place.home] * len(rows),
        "stream": [task.range.place.stream] * len(rows),
        "number": [number for number, _, _ in rows],
        "read_at": [task.read_us] * len(rows),
    }
    if schema is None:
        values["attributes"] = [attributes_to_json(event.attributes).decode() for event in events]
    else:
        values["attributes"], values["unfit"] = _typed(events, schema, grown)
    arrays = [
        value if isinstance(value := values[field.name], pa.Array) else pa.array(value, field.type) for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _typed(events: list[Event], schema: Schema, grown: _Grown) -> tuple[pa.Array, list[str | None]]:
    """Return attributes as structs of the schema; of those that do not conform, being older, the JSON."""
    try:
        return _struct(events, schema), [None] * len(events)
    except EventError:
        pass
    structs: list[pa.Array] = []
    unfit: list[str | None] = []
    for event in events:
        try:
            structs.append(_struct([_declared(event, schema, grown)], schema))
            unfit.append(None)
        except EventError:
            structs.append(pa.nulls(1, columns_of(schema).field("attributes").type))
            unfit.append(attributes_to_json(event.attributes).decode())
    return pa.concat_arrays(structs), unfit


def _declared(event: Event, schema: Schema, grown: _Grown) -> Event:
    """Return an event without attributes that were declared after the query began: it has no columns for them."""
    try:
        schema.conform(event.attributes)
        return event
    except EventError:
        if (newer := grown()) is None:
            return event
    newer.conform(event.attributes)
    return msgspec.structs.replace(event, attributes=_within(event.attributes, schema.tree))


def _within(attributes: Mapping[str, Value], tree: SchemaTree) -> dict[str, Value]:
    return {
        name: _within(value, below)
        if isinstance(value, Mapping) and isinstance(below := tree[name], Mapping)
        else value
        for name, value in attributes.items()
        if name in tree
    }


def _struct(events: list[Event], schema: Schema) -> pa.Array:
    return events_to_arrow(events, schema)["attributes"].combine_chunks()


def register(session: SparkSession) -> None:
    """Register `format("meetpoint")` with a session, also of Spark Connect.

    `meetpoint.spark.session` does so itself; for others call `register(SparkSession.builder.getOrCreate())`.
    """
    session.dataSource.register(MeetpointDataSource)


class MeetpointDataSource(DataSource):
    """The data source that Spark calls. It is made anew for each query, in a Python process of the driver."""

    _query: SourceQuery | None = None

    @classmethod
    def name(cls) -> str:
        return "meetpoint"

    def schema(self) -> T.StructType:
        """Return the columns: by the network's schema where no option gives one."""
        return _columns(self._asked().schema)

    def reader(self, schema: T.StructType) -> TableReader:
        return TableReader(self._checked(schema))

    def streamReader(self, schema: T.StructType) -> StreamReader:  # noqa: N802 - Spark's name
        return StreamReader(self._checked(schema))

    def streamWriter(self, schema: T.StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        return StreamWriter(SinkSettings.of(QueryOptions(self.options, SINK_OPTIONS), schema))

    def _asked(self) -> SourceQuery:
        if self._query is None:
            self._query = _query(QueryOptions(self.options, SOURCE_OPTIONS))
        return self._query

    def _checked(self, schema: T.StructType) -> SourceQuery:
        query = self._asked()
        if schema.simpleString() != _columns(query.schema).simpleString():
            raise MeetpointError("the columns follow from the option schema; leave .schema(…) out")
        return query


class _RangePartition(InputPartition):
    """The range of one task, in the class that Spark passes around."""

    def __init__(self, task: ReadTask) -> None:
        super().__init__(task)
        self.task = task


class TableReader(DataSourceReader):
    """A table: all events that were accepted until it was planned."""

    def __init__(self, query: SourceQuery) -> None:
        self._query = query

    def partitions(self) -> list[_RangePartition]:
        if self._query.since == LATEST:
            raise MeetpointError("option since: a table has nothing since latest; give earliest, or a time")
        planner = Planner(self._query)
        try:
            planner.poll_all()
            start = planner.begin(EARLIEST)
            end = planner.next(start, None, planner.all_accepted())
            planner.poll_all()
            return [_RangePartition(task) for task in planner.tasks(start, end)]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the events of a range. Spark passes a partition of its own where there are none."""
        return read_task(partition.task, self._query.schema) if isinstance(partition, _RangePartition) else iter(())


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream, by offsets."""

    def __init__(self, query: SourceQuery) -> None:
        self._query = query
        self._planner = Planner(query)
        self._target: dict[ArchivedStream, int] | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return self._planner.begin(LATEST)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._query.batch_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the end of a query that stops when it has read all events accepted by now."""
        self._target = self._planner.all_accepted()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        most = None if isinstance(limit, ReadAllAvailable) else self._query.batch_max
        if isinstance(limit, ReadMaxRows):
            most = limit.max_rows
        return self._planner.next(start, most, self._target)

    def partitions(self, start: Offset, end: Offset) -> list[_RangePartition]:
        return [_RangePartition(task) for task in self._planner.tasks(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _RangePartition)
        return read_task(partition.task, self._query.schema)

    def commit(self, end: Offset) -> None:
        """Do nothing: archives keep their events for as long as they are configured to."""

    def stop(self) -> None:
        self._planner.close()


def _query(options: QueryOptions) -> SourceQuery:
    connection = options.connection()
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
        with NetworkClient(connection) as client:
            schema = client.run(client.net.schema())
    if text != EVERYTHING and schema is not None:
        parse_filter(text, schema)
    return SourceQuery(
        connection,
        text,
        since,
        schema if schema is not None and len(schema) else None,
        options.count("maxEventsPerBatch", EVENTS_PER_BATCH),
        options.count("eventsPerPartition", EVENTS_PER_PARTITION),
        grows=not path,
    )


def _columns(schema: Schema | None) -> T.StructType:
    typed = {} if schema is None else {"attributes": spark_schema(schema)}
    fields = columns_of(schema)
    return T.StructType([T.StructField(f.name, typed.get(f.name) or from_arrow_type(f.type)) for f in fields])
