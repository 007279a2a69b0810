"""`writeStream.format("meetpoint")`: rows become events of a network, each once, whatever fails and is started again.

Workers turn rows into events, and send them to the driver, which keeps the batch on its disk before it publishes. Each
event has the next number of the query's publisher, and brokers remember the highest number that they accepted of it,
however long ago. So a batch that is run again continues where it was cut short, and one that is done is dropped. Events
are published in the order of rows within a partition, and partition by partition.

A row that a broker or the schema refuses is an error that shows the row, or a dead letter where there is a folder for
them.

    FOLDER/lock                 held by the process that publishes; the one of a killed driver may live a little longer
    FOLDER/state.json           the query, the last batch that is done, and the next sequence number
    FOLDER/batch-N.msgpack      the events of a batch that is not done, and the number of its first one

A batch is the content of its file, whatever Spark computes when it runs it again: the first complete file counts. Files
appear by a rename, when they are on disk.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import pyarrow as pa
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from meetpoint.api.limits import EVENT_BYTES_MAX
from meetpoint.archive.writer import sync_path, write_synced
from meetpoint.client.network import Network
from meetpoint.errors import EventError, MeetpointError, one_line
from meetpoint.language.events.arrow import attributes_from_arrow
from meetpoint.language.events.event import Event
from meetpoint.language.events.json import attributes_to_json
from meetpoint.language.events.msgpack import from_msgpack, to_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.language.values import Value
from meetpoint.matching.io.rejects import reject
from meetpoint.matching.tables.conformance import rows_as_json
from meetpoint.spark.columns import unusable_columns
from meetpoint.spark.network.options import ConnectionSettings, NetworkClient, QueryOptions

__all__ = ["SINK_OPTIONS", "SinkSettings", "StagingFolder", "StreamWriter"]

FORMAT: Final = 1
LOCK_PAUSE_S: Final = 0.1
_ELSEWHERE: Final = "name a folder of this query's own (option staging)"

S = TypeVar("S", bound=msgspec.Struct)
SINK_OPTIONS: Final = ("publisher", "time", "deadLetters", "staging", "checkpointLocation")
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_ENVELOPE_BYTES: Final = 400
"""An upper bound of the bytes that id, publisher and sequence of an event take."""
_SHOWN_MAX: Final = 200


class StagingState(msgspec.Struct, frozen=True):
    """How far a query has come."""

    name: str
    """The name of the query's publisher, as the option gives it."""
    publisher: str
    """The publisher of its events. It is unique, so that no other query has its numbers."""
    query: str = ""
    """Spark's id of the query, where its checkpoint has it."""
    done: int = -1
    next: int = 1
    """The sequence number of the next batch's first event."""
    format: int = FORMAT


class StagedBatch(msgspec.Struct, frozen=True):
    """The events of a batch without their numbers: the first has number `first`, the others follow."""

    number: int
    first: int
    events: list[bytes]
    """The encoded events; empty bytes in the place of one that brokers refused."""
    dead: list[str] = []
    """Rows that become dead letters, one JSON object each."""


class StagingFolder:
    """The folder in which one query stages its batches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def locked(self, within_s: float) -> Iterator[None]:
        """Hold the lock of the folder: only one process publishes from it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("w")
        except OSError as error:
            raise _refusal(self.folder, error) from None
        with file:
            until = time.monotonic() + within_s
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:
                    if time.monotonic() > until:
                        raise MeetpointError(
                            f"{self.folder}: another process publishes from here for more than {within_s:g} s; "
                            f"stop the other query, or {_ELSEWHERE}"
                        ) from None
                    time.sleep(LOCK_PAUSE_S)
            yield

    def state(self, name: str, query: str) -> StagingState:
        """Return the state, begun if there is none; raise MeetpointError where the folder belongs to another query."""
        state = self._read(self.folder / "state.json", StagingState)
        if state is None:
            state = StagingState(name, f"batch/{name}-{secrets.token_hex(6)}", query)
            self.put_state(state)
        if state.format != FORMAT:
            raise MeetpointError(f"{self.folder}: has format {state.format}, and this is {FORMAT}; update the older")
        if state.name != name:
            raise MeetpointError(f"{self.folder}: belongs to publisher {state.name}, not to {name}; {_ELSEWHERE}")
        if query and state.query and state.query != query:
            raise MeetpointError(f"{self.folder}: belongs to another query, with another checkpoint; {_ELSEWHERE}")
        return state

    def batch(self, number: int) -> StagedBatch | None:
        """Return a batch that is not done, if its file is there."""
        return self._read(self._path(number), StagedBatch)

    def put_batch(self, batch: StagedBatch) -> None:
        write_whole(self._path(batch.number), msgspec.msgpack.encode(batch))

    def put_state(self, state: StagingState) -> None:
        """Write the state, and delete the batches that are done."""
        write_whole(self.folder / "state.json", msgspec.json.encode(state))
        for path in self.folder.glob("batch-*.msgpack"):
            number = path.stem.removeprefix("batch-")
            if number.isdigit() and int(number) <= state.done:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / f"batch-{number}.msgpack"

    def _read(self, path: Path, type_: type[S]) -> S | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _refusal(path, error) from None
        try:
            if path.suffix == ".json":
                return msgspec.json.decode(content, type=type_)
            return msgspec.msgpack.decode(content, type=type_)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise MeetpointError(f"{path}: is damaged; put back a copy of it") from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file in one step, synced to disk."""
    partial = path.with_name(f".{path.name}")
    try:
        write_synced(partial, content)
        os.replace(partial, path)
        sync_path(path.parent)
    except OSError as error:
        raise _refusal(path, error) from None


def _refusal(path: Path, error: OSError) -> MeetpointError:
    problem = (error.strerror or str(error)).lower()
    return MeetpointError(f"{path}: {problem}; give a folder of the driver's machine that it may write to")


class SinkSettings(msgspec.Struct, frozen=True):
    """The settings of a query that writes rows to a network."""

    connection: ConnectionSettings
    name: str
    staging: str
    query: str
    """Spark's id of the query, where it can be known."""
    dead: str
    time: str
    """The column of the events' time; without one it is the moment when a row was read."""
    schema: Schema | None

    @classmethod
    def of(cls, options: QueryOptions, columns: T.StructType) -> SinkSettings:
        """Read the options, for rows of these columns."""
        connection = options.connection()
        name = options.text("publisher")
        if not _NAME.fullmatch(name):
            raise MeetpointError(
                f"option publisher: is {one_line(name)[:_SHOWN_MAX]!r}; give the query a name of letters, digits, . _ -"
            )
        checkpoint = _local(options.text("checkpointLocation"))
        staging = options.text("staging") or ("" if checkpoint is None else str(checkpoint / "meetpoint"))
        if not staging:
            raise MeetpointError(
                "option staging: the checkpoint is on no disk of the driver; name a folder that is, and stays"
            )
        time = options.text("time")
        with NetworkClient(connection, patient=True) as client:
            schema = client.run(client.net.schema())
        _check_columns(columns, time, schema)
        return cls(connection, name, staging, _query_of(checkpoint), options.text("deadLetters"), time, schema)


class TaskOutput(WriterCommitMessage):
    """The events and dead letters that one task made of its rows."""

    def __init__(self, events: list[bytes], dead: list[str]) -> None:
        self.events = events
        self.dead = dead


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer that Spark calls: `write` in workers, `commit` in a process of the driver."""

    def __init__(self, sink: SinkSettings) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
        """Turn rows into events that have no number yet."""
        events: list[bytes] = []
        dead: list[str] = []
        for batch in iterator:
            for at, (event, problem) in enumerate(_events(batch, self._sink)):
                if event is not None:
                    events.append(event)
                    continue
                raw = rows_as_json(batch.slice(at, 1))[0]
                if not self._sink.dead:
                    raise EventError(f"row {raw[:_SHOWN_MAX]}: {problem}; or set option deadLetters to a folder")
                dead.append(_dead_letter(raw, problem))
        return TaskOutput(events, dead)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        sink = self._sink
        staging = StagingFolder(Path(sink.staging))
        with staging.locked(sink.connection.timeout_s):
            state = staging.state(sink.name, sink.query)
            if batchId < state.done:
                raise MeetpointError(
                    f"{sink.staging}: batch {batchId} comes, and {state.done} is done: it belongs to another query; "
                    "name a folder of this query's own (option staging)"
                )
            if batchId == state.done:
                return
            batch = staging.batch(batchId)
            was_staged = batch is not None
            if batch is None:
                outputs = [each for each in messages if isinstance(each, TaskOutput)]
                batch = StagedBatch(
                    batchId, state.next, [one for each in outputs for one in each.events],
                    [one for each in outputs for one in each.dead],
                )  # fmt: skip
                if not batch.events and not batch.dead:
                    return
                staging.put_batch(batch)
            batch = self._publish(staging, batch, state.publisher, was_staged=was_staged)
            staging.put_state(msgspec.structs.replace(state, done=batchId, next=batch.first + len(batch.events)))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Do nothing: nothing was published yet."""

    def _publish(self, staging: StagingFolder, batch: StagedBatch, publisher: str, *, was_staged: bool) -> StagedBatch:
        with NetworkClient(self._sink.connection, patient=True) as client:
            accepted = client.run(client.net.progress(publisher)) if was_staged else 0
            refused = client.run(_put(client.net, batch, publisher, accepted))
        if refused:
            batch = self._set_aside(staging, batch, refused)
        if batch.dead:
            folder = Path(self._sink.dead)
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"batch-{batch.number}.jsonl", "".join(f"{one}\n" for one in batch.dead).encode())
        return batch

    def _set_aside(self, staging: StagingFolder, batch: StagedBatch, refused: dict[int, str]) -> StagedBatch:
        """Record the rows that brokers refused; they accepted the others.

        Without a folder for dead letters these rows are tried again, under new numbers, when the query is started
        again.
        """
        rows = {sequence: batch.events[sequence - batch.first] for sequence in refused}
        # The numbers of refused events stay used: brokers have accepted higher ones and would drop them as repeats.
        events = [b"" if at in refused else event for at, event in enumerate(batch.events, batch.first)]
        if self._sink.dead:
            letters = [_dead_letter(_shown(rows[sequence]), reason) for sequence, reason in refused.items()]
            batch = msgspec.structs.replace(batch, events=events, dead=[*batch.dead, *letters])
            staging.put_batch(batch)
            return batch
        staging.put_batch(msgspec.structs.replace(batch, events=[*events, *rows.values()]))
        sequence, reason = next(iter(refused.items()))
        raise EventError(
            f"{len(refused)} rows were refused, the first is {_shown(rows[sequence])[:_SHOWN_MAX]}: {reason}; "
            "see to it, or set option deadLetters to a folder, and start the query again"
        )


async def _put(net: Network, batch: StagedBatch, publisher: str, accepted: int) -> dict[int, str]:
    """Publish the events of a batch after number `accepted`; return those that were refused for good, with reasons."""
    refused: dict[int, str] = {}
    waiting: deque[tuple[int, Any]] = deque()

    async def wait_for_first() -> None:
        sequence, future = waiting.popleft()
        try:
            await future
        except EventError as error:
            refused[sequence] = str(error)

    for sequence, content in enumerate(batch.events, batch.first):
        if content and sequence > accepted:
            event = msgspec.structs.replace(
                from_msgpack(content), id=f"{publisher}/{sequence}", publisher=publisher, sequence=sequence
            )
            waiting.append((sequence, net.publish_nowait(event)))
        while len(waiting) >= net.in_flight:
            await wait_for_first()
    while waiting:
        await wait_for_first()
    return refused


# -- rows to events ----------------------------------------------------------------------------------------------------


def _events(batch: pa.RecordBatch, sink: SinkSettings) -> Iterator[tuple[bytes | None, str]]:
    """Yield for each row its event, or None and the reason why there is none."""
    try:
        rows: list[dict[str, Value] | str] = list(attributes_from_arrow(batch, sink.schema))
    except EventError:  # some row cannot be read: find out which
        rows = [_row(batch.slice(at, 1), sink.schema) for at in range(batch.num_rows)]
    for row in rows:
        if isinstance(row, str):
            yield None, row
            continue
        try:
            yield _event(row, sink), ""
        except EventError as error:
            yield None, str(error)


def _row(slice_: pa.RecordBatch, schema: Schema | None) -> dict[str, Value] | str:
    try:
        return attributes_from_arrow(slice_, schema)[0]
    except EventError as error:
        return str(error).removeprefix("row 1: ")


def _event(row: dict[str, Value], sink: SinkSettings) -> bytes:
    time: Any = row.pop(sink.time) if sink.time else datetime.now(UTC)
    if time is None:
        raise EventError(f"event: its time, column {sink.time}, is NULL; give each row a time")
    attributes = row if sink.schema is None else sink.schema.conform(row)
    content = to_msgpack(Event("-", sink.name, 0, time, attributes))
    if len(content) + _ENVELOPE_BYTES > EVENT_BYTES_MAX:
        raise EventError(f"event: is {len(content)} bytes long; at most {EVENT_BYTES_MAX} are carried, so split it")
    return content


def _dead_letter(raw: str, reason: str) -> str:
    letter = reject("rows", 0, reason, raw)
    return json.dumps({"raw": letter.raw, "reason": letter.reason, "source": None}, ensure_ascii=False)


def _shown(content: bytes) -> str:
    return attributes_to_json(from_msgpack(content).attributes).decode()


# -- checks before any row ---------------------------------------------------------------------------------------------


def _check_columns(columns: T.StructType, time: str, schema: Schema | None) -> None:
    for name, type_name in unusable_columns(columns).items():
        raise MeetpointError(f"column {name}: is of type {type_name}, which no attribute is; cast it, or drop it")
    if time:
        types = [field.dataType for field in columns.fields if field.name == time]
        if not types or not isinstance(types[0], T.TimestampType | T.TimestampNTZType):
            raise MeetpointError(f"option time: {time!r} is no column of timestamps; name one, or leave it out")
    if schema is not None:
        for name in columns.names:
            if name not in schema.tree and name != time:
                raise MeetpointError(
                    f"column {name}: the network's schema has no such attribute; drop it, or declare it there"
                )


def _local(location: str) -> Path | None:
    """Return a checkpoint's folder, if it is on a disk of this machine."""
    path = re.sub("^file:(//)?", "", location)
    return None if not path or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) else Path(path)


def _query_of(checkpoint: Path | None) -> str:
    if checkpoint is None:
        return ""
    try:
        return str(json.loads((checkpoint / "metadata").read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # not written yet, or on no disk of this machine
