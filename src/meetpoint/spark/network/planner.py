"""Offsets and plans of a query over archives: how far it may go, and which task reads what from which broker.

**Streams and offsets.** A stream is the numbered events that one home accepted; an archive has some of its numbers,
mostly all. Brokers that share a folder name the same archive, and a home that moved may be in two of them. So an offset
has a number for every (archive, home, stream), and numbers that two archives have are taken from the archive that was
read first (`NumberRange.known`).

**How far.** A query goes as far as the home's own broker says that the archive is complete. A stream that no broker
hosts is over, as its home moved on or was dissolved. Its files are taken as they are, once it is certain that no home
is about to begin there: the home is hosted elsewhere or all brokers have answered, for `UNHOSTED_S`.

**Failures.** A broker that is away holds up its own streams and no others. Only when none has answered for a while, the
query ends; started again, it continues from its checkpoint.

All of this runs on the driver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from meetpoint.api.client_messages import HistoryRequest, Stream, StreamsReply
from meetpoint.api.ids import Peer
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import MeetpointError
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.spark.network.options import ConnectionSettings, NetworkClient

__all__ = [
    "EARLIEST",
    "LATEST",
    "ArchivedStream",
    "Offset",
    "Planner",
    "SourceQuery",
    "StreamTracker",
    "advance",
    "ranges_between",
    "read_since",
]

UNHOSTED_S: Final = 10.0
"""The time for which no broker must have hosted a stream until it is over."""

Offset: TypeAlias = dict[str, Any]
"""An offset as Spark keeps it.

`since_us` is the time from when on events are wanted; `read_us` the time when the batch that ends here was planned,
which never goes back; `streams` has the number of the last event of each archived stream.
"""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PAUSE_S: Final = 0.1
"""The interval between polls for events that were just accepted."""


class ArchivedStream(NamedTuple):
    """A stream in an archive."""

    archive: str
    home: bytes
    stream: int

    @classmethod
    def read(cls, text: str) -> ArchivedStream:
        """Parse the form that stands in an offset."""
        archive, home, stream = text.split("/")
        return cls(archive, bytes.fromhex(home), int(stream))

    def __str__(self) -> str:
        return f"{self.archive}/{self.home.hex()}/{self.stream}"


class StreamProgress(NamedTuple):
    """The last accepted and the last readable number of a stream, None while that is not certain. Its host is the first
    holder.
    """

    last: int
    archived: int | None
    holders: tuple[Peer, ...]


class NumberRange(NamedTuple):
    """Numbers of a stream, after one and up to another."""

    place: ArchivedStream
    after: int
    upto: int
    known: tuple[tuple[str, int], ...] = ()
    """Archives that have the stream too, each with the number up to which it was, or is being, read there."""


class StreamTracker:
    """The knowledge of one planner about streams, from one poll to the next."""

    def __init__(self) -> None:
        self._unhosted: dict[ArchivedStream, tuple[float, int]] = {}
        """The time since when no broker has hosted a stream, and the last number in its files."""

    def update(
        self, answers: Mapping[Peer, StreamsReply], is_all: bool, now_s: float
    ) -> dict[ArchivedStream, StreamProgress]:
        """Return how far all streams have come, by the answers of brokers; `is_all` where every broker has answered."""
        reports: dict[ArchivedStream, list[tuple[Peer, Stream]]] = {}
        for peer, answer in answers.items():
            for stream in answer.streams:
                reports.setdefault(ArchivedStream(answer.archive, stream.home, stream.stream), []).append(
                    (peer, stream)
                )
        hosted = {place.home for place, reported in reports.items() if any(stream.is_here for _, stream in reported)}
        self._unhosted = {place: since for place, since in self._unhosted.items() if place in reports}
        return {
            place: self._progress_of(place, reported, is_all or place.home in hosted, now_s)
            for place, reported in reports.items()
        }

    def _progress_of(
        self, place: ArchivedStream, reports: list[tuple[Peer, Stream]], is_certain: bool, now_s: float
    ) -> StreamProgress:
        reports.sort(key=lambda each: not each[1].is_here)
        holders = tuple(peer for peer, _ in reports)
        if reports[0][1].is_here:
            self._unhosted.pop(place, None)
            return StreamProgress(reports[0][1].last, reports[0][1].archived, holders)
        last = max(stream.last for _, stream in reports)
        since, ended = self._unhosted.get(place, (now_s, last))
        if not is_certain or ended != last:
            self._unhosted[place] = now_s, last
            return StreamProgress(last, None, holders)
        self._unhosted[place] = since, last
        return StreamProgress(last, last if now_s - since >= UNHOSTED_S else None, holders)


def advance(start: Offset, upto: Mapping[ArchivedStream, int], most: int | None, now_us: int) -> Offset:
    """Return the offset of the next batch: up to these numbers, and at most `most` events, shared among streams.

    Return `start` itself where there is nothing new.
    """
    streams: dict[str, int] = start["streams"]
    waiting = {str(place): number - streams.get(str(place), 0) for place, number in upto.items()}
    waiting = {name: count for name, count in waiting.items() if count > 0}
    if not waiting:
        return start
    taken = waiting if most is None else _shared(waiting, most)
    ends = streams | {name: streams.get(name, 0) + count for name, count in taken.items()}
    read_us = max(now_us, start["read_us"])
    return {"since_us": start["since_us"], "read_us": read_us, "streams": dict(sorted(ends.items()))}


def _shared(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """Share a number among streams, those with little first: no stream waits behind one with much."""
    taken: dict[str, int] = {}
    left = most
    for at, (name, count) in enumerate(sorted(waiting.items(), key=lambda each: (each[1], each[0]))):
        share = min(count, -(-left // (len(waiting) - at)), left)
        if share:
            taken[name] = share
            left -= share
    return taken


def ranges_between(start: Offset, end: Offset, size: int) -> list[NumberRange]:
    """Return the ranges of a batch, each of at most `size` numbers."""
    begins = {ArchivedStream.read(name): number for name, number in start["streams"].items()}
    ends = {ArchivedStream.read(name): number for name, number in end["streams"].items()}
    ranges = []
    for place, last in ends.items():
        known = tuple(
            # Two archives read in one batch: the first by name has precedence, or an event would come twice or never.
            (other.archive, ends[other] if other.archive < place.archive else begins.get(other, 0))
            for other in ends
            if other.archive != place.archive and other[1:] == place[1:]
        )
        ranges += [
            NumberRange(place, after, min(after + size, last), known)
            for after in range(begins.get(place, 0), last, size)
        ]
    return ranges


class ReadTask(msgspec.Struct, frozen=True):
    """The range that one task reads, with all it needs to do so."""

    connection: ConnectionSettings
    range: NumberRange
    holders: tuple[Peer, ...]
    others: dict[str, tuple[Peer, ...]]
    """The brokers that have the archives which the range may overlap with."""
    filter: str
    since_us: int
    read_us: int
    grows: bool = False
    """Whether the schema of the columns was the network's, which may have more attributes by now."""


class SourceQuery(msgspec.Struct, frozen=True):
    """A query for events of a network, as its options describe it."""

    connection: ConnectionSettings
    filter: str
    since: str
    """A moment in time, `earliest` or `latest`; empty where the option is not given."""
    schema: Schema | None
    batch_max: int
    """The most events of a batch of a stream, before the filter."""
    task_max: int
    """The most events of a task, before the filter."""
    grows: bool = False
    """Whether the schema is the network's own, to which attributes may be added while the query runs."""


def read_since(since: str) -> int:
    try:
        return round(parse_timestamp(since).timestamp() * 1_000_000)
    except ValueError as error:
        raise MeetpointError(f"option since: {error}; or give earliest or latest") from None


class Planner:
    """The planner of one query. It connects when it must."""

    def __init__(self, query: SourceQuery) -> None:
        self._query = query
        self._client: NetworkClient | None = None
        self._tracker = StreamTracker()
        self._progress: dict[ArchivedStream, StreamProgress] = {}
        self._all_answered = False
        """Whether all brokers answered the last poll."""
        self._holders: dict[str, tuple[Peer, ...]] = {}
        """The brokers that have an archive."""
        self._answered_s = time.monotonic()
        """The time when any broker answered last."""

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- offsets -------------------------------------------------------------------------------------------------------

    def begin(self, default: str) -> Offset:
        """Return the offset at which a new query begins."""
        since = self._query.since or default
        since_us = 0 if since in (EARLIEST, LATEST) else read_since(since)
        streams: dict[str, int] = {}
        if since == LATEST:
            self.poll_all()
            streams = {str(place): progress.last for place, progress in self._progress.items()}
        elif since != EARLIEST:
            self.poll_all()
            streams = {str(place): self._first(place, progress, since_us) for place, progress in self._progress.items()}
        return {"since_us": since_us, "read_us": _now_us(), "streams": dict(sorted(streams.items()))}

    def _first(self, place: ArchivedStream, progress: StreamProgress, since_us: int) -> int:
        """Return the number after which events of a moment and later begin: it spares a query the older ones."""
        query = HistoryRequest(place.home, place.stream, 0, progress.archived or 0, since_us)
        if not query.upto:
            return 0
        client = self._connected()
        page = client.run(client.net.history(progress.holders[0], query))
        return page.events[0][0] - 1 if page.events else page.reached

    def all_accepted(self) -> dict[ArchivedStream, int]:
        """Return the last accepted number of all streams, once it can be read; streams of brokers that are away are
        left out.
        """
        while not self._poll():
            time.sleep(PAUSE_S)
        wanted = {place: progress.last for place, progress in self._progress.items()}
        until = time.monotonic() + self._query.connection.timeout_s
        while True:
            late = {place: last for place, last in wanted.items() if self._is_late(place, last)}
            if not late:
                return {place: last for place, last in wanted.items() if self._can_read(place, last)}
            if time.monotonic() > until:
                place = min(late)
                raise NetworkError(
                    f"events of {place.home.hex()[:8]} up to number {late[place]} are not in an archive within "
                    f"{self._query.connection.timeout_s:g} s; see whether its broker can write there"
                )
            time.sleep(PAUSE_S)
            self._poll()

    def _is_late(self, place: ArchivedStream, last: int) -> bool:
        progress = self._progress.get(place)
        if progress is None:
            return False
        return progress.archived < last if progress.archived is not None else self._all_answered

    def _can_read(self, place: ArchivedStream, last: int) -> bool:
        progress = self._progress.get(place)
        return progress is not None and progress.archived is not None and progress.archived >= last

    def next(self, start: Offset, most: int | None, target: dict[ArchivedStream, int] | None) -> Offset:
        """Return how far the next batch may go, up to a target; `start` itself where nothing is new."""
        if target is None:
            self._poll()
            target = {
                place: progress.archived for place, progress in self._progress.items() if progress.archived is not None
            }
        return advance(start, target, most, _now_us())

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def tasks(self, start: Offset, end: Offset) -> list[ReadTask]:
        query, since_us, read_us = self._query, int(end["since_us"]), int(end["read_us"])
        ranges = ranges_between(start, end, query.task_max)
        if ranges and not all(each.place in self._progress for each in ranges):
            self._poll()
        connection = query.connection.with_token() if ranges else query.connection
        tasks = []
        for each in ranges:
            progress = self._progress.get(each.place)
            holders = self._holders.get(each.place.archive, ()) if progress is None else progress.holders
            others = {archive: self._holders.get(archive, ()) for archive, _ in each.known}
            tasks.append(ReadTask(connection, each, holders, others, query.filter, since_us, read_us, query.grows))
        return tasks

    # -- polls of the brokers ------------------------------------------------------------------------------------------

    def _poll(self) -> bool:
        """Ask brokers how far they are; return False where none answers, which is an error only after a while."""
        try:
            client = self._connected()
            answers = client.run(client.net.streams(partial_ok=True))
            listed = client.run(client.net.brokers())
        except RefusedError:
            raise
        except NetworkError as error:
            self.close()
            if time.monotonic() - self._answered_s > self._query.connection.timeout_s:
                raise NetworkError(
                    f"no broker has answered for {self._query.connection.timeout_s:g} s: {error}; "
                    "start the query again when brokers are up"
                ) from None
            self._progress, self._all_answered = {}, False
            return False
        self._answered_s = time.monotonic()
        self._all_answered = {broker.peer.id for broker in listed} <= {peer.id for peer in answers}
        self._progress = self._tracker.update(answers, self._all_answered, self._answered_s)
        holders: dict[str, tuple[Peer, ...]] = {}
        for peer, answer in answers.items():
            holders[answer.archive] = (*holders.get(answer.archive, ()), peer)
        self._holders |= holders
        return True

    def poll_all(self) -> None:
        """Ask all brokers how far they are; raise NetworkError where one is away."""
        client = self._connected()
        client.run(client.net.streams())
        self._poll()
        if not self._all_answered:
            raise NetworkError("a broker went away just now; start the query again when all are up")

    def _connected(self) -> NetworkClient:
        if self._client is None:
            self._client = NetworkClient(self._query.connection)
        return self._client


def _now_us() -> int:
    return time.time_ns() // 1000
