"""Events of a range, from the brokers that have its archive, as Arrow batches. This runs in Spark's workers.

The broker that hosts the stream is asked first; where it does not answer, the others that have the archive, and then
whoever the network says has it by now. A range of which nothing more comes for a while ends its task with an error.


`format("meetpoint")`: what a network accepts as a table or a stream of Spark, and rows as events of a network.

Events come from the archives of brokers, each from its own: a task has some numbers of one stream, asks the broker that
hosts it, and that evaluates the filter. Nothing is lost and nothing comes twice, whoever dies: numbers are offsets, and
what has a number and is in an archive stays. A stream is as far behind as files are written (`archive.flush_s`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from meetpoint.api.client_messages import EVERYTHING, History, HistoryIs
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
from meetpoint.spark.network.options import Client, Options
from meetpoint.spark.network.planner import EARLIEST, LATEST, Offset, Place, Planner, Query, Task, read_since
from meetpoint.spark.network.sink import SINK_OPTIONS, LiveWriter, Sink

__all__ = [
    "MeetpointDataSource",
    "columns_of",
    "read_task",
    "register",
]

PAUSE_S: Final = 0.05
"""How long what is not there yet is waited for, before it is asked for again."""
PAUSE_MAX_S: Final = 1.0
_TIME: Final = pa.timestamp("us", tz="UTC")

_Row = tuple[int, int, Event]
"""Number, moment of acceptance, event."""
_Grown = Callable[[], Schema | None]
"""The network's schema by now."""


def columns_of(schema: Schema | None) -> pa.Schema:
    """The columns of events. Without a schema attributes are JSON."""
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


def read_task(task: Task, schema: Schema | None) -> Iterator[pa.RecordBatch]:
    """The events of a task, in the order of their numbers."""
    reader = _Reader(task)
    try:
        seen = reader.seen_elsewhere()
        for page in reader.pages(task.range.place, task.range.after, task.range.upto, task.holders):
            rows = [(number, at_us, from_msgpack(held)) for number, at_us, held in page.events if number not in seen]
            if rows:
                yield _batch(rows, task, schema, reader.grown)
    finally:
        reader.close()


class _Reader:
    """The client of one task, which connects when it must, and again."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._client: Client | None = None
        self._grown: Schema | None = None
        self._has_asked = False

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def seen_elsewhere(self) -> set[int]:
        """The numbers of the range that came, or come, from another archive."""
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

    def pages(self, place: Place, after: int, upto: int, holders: Sequence[Peer]) -> Iterator[HistoryIs]:
        """All pages of some numbers of a place."""
        line = list(holders)
        problem = "no broker that answers has it"
        until = time.monotonic() + self._task.reach.timeout_s
        pause_s = PAUSE_S
        while after < upto:
            what = History(place.home, place.stream, after, upto, self._task.since_us, self._task.filter)
            try:
                client = self._connected(line)
                if not line:
                    line = self._find(client, place.archive)
                page = client.run(client.asking.history(line[0], what)) if line else None
            except RefusedError:
                raise
            except NetworkError as error:
                problem, page = str(error), None
                line = line[1:]
            if page is not None and page.reached > after:
                until, pause_s = time.monotonic() + self._task.reach.timeout_s, PAUSE_S
                after = page.reached
                yield page
                continue
            if page is not None:
                problem = f"broker {line[0].address} does not have it in its archive yet"
            if time.monotonic() > until:
                raise NetworkError(
                    f"events of {place.home.hex()[:8]} from number {after + 1} on could not be read within "
                    f"{self._task.reach.timeout_s:g} s: {problem}; start the query again when brokers are up"
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def grown(self) -> Schema | None:
        """The network's schema as it is now; None where it is not what the columns follow."""
        if self._task.grows and not self._has_asked:
            until = time.monotonic() + self._task.reach.timeout_s
            while not self._has_asked:
                try:
                    client = self._connected(self._task.holders)
                    self._grown, self._has_asked = client.run(client.asking.schema()), True
                except RefusedError:
                    raise
                except NetworkError:
                    if time.monotonic() > until:
                        raise
                    time.sleep(PAUSE_S)
        return self._grown

    def _connected(self, line: Sequence[Peer]) -> Client:
        if self._client is None:
            self._client = Client(self._task.reach, [peer.address for peer in line])
        return self._client

    def _find(self, client: Client, archive: str) -> list[Peer]:
        told = client.run(client.asking.streams(partial_ok=True))
        return [peer for peer, said in told.items() if said.archive == archive]


def _batch(rows: list[_Row], task: Task, schema: Schema | None, grown: _Grown) -> pa.RecordBatch:
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
        held if isinstance(held := values[field.name], pa.Array) else pa.array(held, field.type) for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def _typed(events: list[Event], schema: Schema, grown: _Grown) -> tuple[pa.Array, list[str | None]]:
    """Attributes as the schema says they are; of those that do not conform, which were there before it, the JSON."""
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
    """An event without attributes that were declared after the query began: it has no columns for them."""
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
