"""Where a query is: for every stream of events the number up to which it has come, and how far it may go next.

A stream is what one home accepted, numbered; an archive has some of its numbers, mostly all. Brokers that share a
folder name the same archive, and a home that moved may be in two of them. So an offset has a number for every (archive,
home, stream), and what two archives have of a stream is taken from the one that was read first (`Range.known`).

A query goes as far as the home's own broker says that all is in the archive. A stream that nobody hosts is over, as its
home moved on or was dissolved; it is taken as it is in the files, once it is certain that no home is about to begin
there: the home is hosted elsewhere or all brokers have answered, and so for a while. A stream whose broker is away
waits, and others go on.


Planning a query over archives: how far it may go, and which task reads what from whom. This runs on the driver.

Brokers that are away hold up their own streams and no others. Only when none has answered for a while, the query ends;
started again, it goes on from its checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from meetpoint.api.client_messages import History, Stream, StreamsAre
from meetpoint.api.ids import Peer
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import MeetpointError
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.spark.network.options import Client, Reach

__all__ = [
    "EARLIEST",
    "LATEST",
    "Offset",
    "Place",
    "Planner",
    "Query",
    "Range",
    "Standing",
    "Watch",
    "advance",
    "ranges_between",
    "read_since",
]

UNHOSTED_S: Final = 10.0
"""For how long nobody must have hosted a stream until it is over."""

Offset: TypeAlias = dict[str, Any]
"""As Spark keeps it: `since_us`, from when on events are wanted; `read_us`, when the batch that ends here was planned,
which never goes back; and `streams`, the number of the last event of each place."""


class Place(NamedTuple):
    """A stream in an archive."""

    archive: str
    home: bytes
    stream: int

    @classmethod
    def read(cls, text: str) -> Place:
        """From how it stands in an offset."""
        archive, home, stream = text.split("/")
        return cls(archive, bytes.fromhex(home), int(stream))

    def __str__(self) -> str:
        return f"{self.archive}/{self.home.hex()}/{self.stream}"


class Standing(NamedTuple):
    """How far a place has come: accepted, and to be read; None while that is not certain. Hosts are first in line."""

    last: int
    archived: int | None
    holders: tuple[Peer, ...]


class Range(NamedTuple):
    """Numbers of a place, from beyond one to another."""

    place: Place
    after: int
    upto: int
    known: tuple[tuple[str, int], ...] = ()
    """Archives that have the stream too, each with the number up to which it was, or is being, read there."""


class Watch:
    """What one planner knows of streams, from one look to the next."""

    def __init__(self) -> None:
        self._unhosted: dict[Place, tuple[float, int]] = {}
        """Since when nobody has hosted a stream, whose files end with a number."""

    def look(self, told: Mapping[Peer, StreamsAre], is_all: bool, now_s: float) -> dict[Place, Standing]:
        """How far all places have come, by what brokers tell; `is_all` where every one of them has told."""
        found: dict[Place, list[tuple[Peer, Stream]]] = {}
        for peer, answer in told.items():
            for stream in answer.streams:
                found.setdefault(Place(answer.archive, stream.home, stream.stream), []).append((peer, stream))
        hosted = {place.home for place, said in found.items() if any(stream.is_here for _, stream in said)}
        self._unhosted = {place: since for place, since in self._unhosted.items() if place in found}
        return {
            place: self._standing(place, said, is_all or place.home in hosted, now_s) for place, said in found.items()
        }

    def _standing(self, place: Place, said: list[tuple[Peer, Stream]], is_certain: bool, now_s: float) -> Standing:
        said.sort(key=lambda each: not each[1].is_here)
        holders = tuple(peer for peer, _ in said)
        if said[0][1].is_here:
            self._unhosted.pop(place, None)
            return Standing(said[0][1].last, said[0][1].archived, holders)
        last = max(stream.last for _, stream in said)
        since, ended = self._unhosted.get(place, (now_s, last))
        if not is_certain or ended != last:
            self._unhosted[place] = now_s, last
            return Standing(last, None, holders)
        self._unhosted[place] = since, last
        return Standing(last, last if now_s - since >= UNHOSTED_S else None, holders)


def advance(start: Offset, upto: Mapping[Place, int], most: int | None, now_us: int) -> Offset:
    """The offset of the next batch: up to these numbers, but no more than so many events, shared out among streams.

    `start` itself where there is nothing new.
    """
    streams: dict[str, int] = start["streams"]
    waiting = {str(place): number - streams.get(str(place), 0) for place, number in upto.items()}
    waiting = {name: count for name, count in waiting.items() if count > 0}
    if not waiting:
        return start
    taken = waiting if most is None else _shared(waiting, most)
    ends = streams | {name: streams.get(name, 0) + count for name, count in taken.items()}
    return {
        "since_us": start["since_us"],
        "read_us": max(now_us, start["read_us"]),
        "streams": {name: ends[name] for name in sorted(ends)},
    }


def _shared(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """So many of all, those with little first: nobody waits behind one with much."""
    taken: dict[str, int] = {}
    left = most
    for at, (name, count) in enumerate(sorted(waiting.items(), key=lambda each: (each[1], each[0]))):
        share = min(count, -(-left // (len(waiting) - at)), left)
        if share:
            taken[name] = share
            left -= share
    return taken


def ranges_between(start: Offset, end: Offset, size: int) -> list[Range]:
    """What a batch is to read, in ranges of at most so many numbers."""
    begins = {Place.read(name): number for name, number in start["streams"].items()}
    ends = {Place.read(name): number for name, number in end["streams"].items()}
    found = []
    for place, last in ends.items():
        known = tuple(
            # Of what is read in this very batch the archive that is first by name has precedence.
            (other.archive, ends[other] if other.archive < place.archive else begins.get(other, 0))
            for other in ends
            if other.archive != place.archive and other[1:] == place[1:]
        )
        found += [
            Range(place, after, min(after + size, last), known) for after in range(begins.get(place, 0), last, size)
        ]
    return found


EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PAUSE_S: Final = 0.1
"""How long what was just accepted is waited for, before it is looked again."""


class Task(msgspec.Struct, frozen=True):
    """What one task reads."""

    reach: Reach
    range: Range
    holders: tuple[Peer, ...]
    others: dict[str, tuple[Peer, ...]]
    """Who has the archives that the range may have in common with."""
    filter: str
    since_us: int
    read_us: int
    grows: bool = False
    """Whether the schema of the columns was the network's, which may have more attributes by now."""


class Query(msgspec.Struct, frozen=True):
    """What is asked for."""

    reach: Reach
    filter: str
    since: str
    """A moment in time, `earliest` or `latest`; empty where it was not said."""
    schema: Schema | None
    batch_max: int
    """How many events a batch of a stream has at most, before the filter."""
    task_max: int
    """And how many a task."""
    grows: bool = False
    """Whether the schema is the network's own, to which attributes may be added while the query runs."""


def read_since(since: str) -> int:
    """A moment as microseconds since 1970."""
    try:
        return round(parse_timestamp(since).timestamp() * 1_000_000)
    except ValueError as error:
        raise MeetpointError(f"option since: {error}; or give earliest or latest") from None


class Planner:
    """One query's. It connects when it must."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._client: Client | None = None
        self._watch = Watch()
        self._standings: dict[Place, Standing] = {}
        self._is_all = False
        """Whether all brokers answered when it was last looked."""
        self._holders: dict[str, tuple[Peer, ...]] = {}
        """Who has an archive."""
        self._heard_s = time.monotonic()
        """When any broker answered last."""

    def close(self) -> None:
        """Ask no more."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- where to begin and to end -------------------------------------------------------------------------------------

    def begin(self, default: str) -> Offset:
        """The offset at which a new query begins."""
        since = self._query.since or default
        since_us = 0 if since in (EARLIEST, LATEST) else read_since(since)
        streams: dict[str, int] = {}
        if since == LATEST:
            self._look_at_all()
            streams = {str(place): standing.last for place, standing in self._standings.items()}
        elif since != EARLIEST:
            self._look_at_all()
            streams = {
                str(place): self._first(place, standing, since_us) for place, standing in self._standings.items()
            }
        return {
            "since_us": since_us,
            "read_us": _now_us(),
            "streams": {name: streams[name] for name in sorted(streams)},
        }

    def _first(self, place: Place, standing: Standing, since_us: int) -> int:
        """The number behind which events of a moment and later begin: it spares a query what is older."""
        what = History(place.home, place.stream, 0, standing.archived or 0, since_us)
        if not what.upto:
            return 0
        client = self._connected()
        page = client.run(client.asking.history(standing.holders[0], what))
        return page.events[0][0] - 1 if page.events else page.reached

    def all_accepted(self) -> dict[Place, int]:
        """What all brokers have accepted by now, once it can be read; streams of brokers that are away left out."""
        while not self._look():
            time.sleep(PAUSE_S)
        wanted = {place: standing.last for place, standing in self._standings.items()}
        until = time.monotonic() + self._query.reach.timeout_s
        while True:
            late = {place: last for place, last in wanted.items() if self._is_late(place, last)}
            if not late:
                return {place: last for place, last in wanted.items() if self._can_read(place, last)}
            if time.monotonic() > until:
                place = min(late)
                raise NetworkError(
                    f"events of {place.home.hex()[:8]} up to number {late[place]} are not in an archive within "
                    f"{self._query.reach.timeout_s:g} s; see whether its broker can write there"
                )
            time.sleep(PAUSE_S)
            self._look()

    def _is_late(self, place: Place, last: int) -> bool:
        standing = self._standings.get(place)
        if standing is None:
            return False
        return standing.archived < last if standing.archived is not None else self._is_all

    def _can_read(self, place: Place, last: int) -> bool:
        standing = self._standings.get(place)
        return standing is not None and standing.archived is not None and standing.archived >= last

    def check_all(self) -> None:
        """NetworkError where a broker is away: a table is whole or it is none."""
        self._look_at_all()

    def next(self, start: Offset, most: int | None, target: dict[Place, int] | None) -> Offset:
        """How far the next batch may go; no further than a target. `start` itself where nothing is new."""
        if target is None:
            self._look()
            target = {
                place: standing.archived for place, standing in self._standings.items() if standing.archived is not None
            }
        return advance(start, target, most, _now_us())

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def tasks(self, start: Offset, end: Offset) -> list[Task]:
        """What is between two offsets, one task a range."""
        ranges = ranges_between(start, end, self._query.task_max)
        if ranges and not all(each.place in self._standings for each in ranges):
            self._look()
        reach = self._query.reach.with_token() if ranges else self._query.reach
        found = []
        for each in ranges:
            standing = self._standings.get(each.place)
            holders = self._holders.get(each.place.archive, ()) if standing is None else standing.holders
            others = {archive: self._holders.get(archive, ()) for archive, _ in each.known}
            found.append(
                Task(
                    reach,
                    each,
                    holders,
                    others,
                    self._query.filter,
                    int(end["since_us"]),
                    int(end["read_us"]),
                    self._query.grows,
                )
            )
        return found

    # -- looking -------------------------------------------------------------------------------------------------------

    def _look(self) -> bool:
        """Ask brokers how far they are; False where none answers, which is an error only after a while."""
        try:
            client = self._connected()
            told = client.run(client.asking.streams(partial_ok=True))
            listed = client.run(client.asking.brokers())
        except RefusedError:
            raise
        except NetworkError as error:
            self.close()
            if time.monotonic() - self._heard_s > self._query.reach.timeout_s:
                raise NetworkError(
                    f"no broker has answered for {self._query.reach.timeout_s:g} s: {error}; "
                    "start the query again when brokers are up"
                ) from None
            self._standings, self._is_all = {}, False
            return False
        self._heard_s = time.monotonic()
        self._is_all = {broker.peer.id for broker in listed} <= {peer.id for peer in told}
        self._standings = self._watch.look(told, self._is_all, self._heard_s)
        holders: dict[str, tuple[Peer, ...]] = {}
        for peer, said in told.items():
            holders[said.archive] = (*holders.get(said.archive, ()), peer)
        self._holders |= holders
        return True

    def _look_at_all(self) -> None:
        client = self._connected()
        client.run(client.asking.streams())
        self._look()
        if not self._is_all:
            raise NetworkError("a broker went away just now; start the query again when all are up")

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._query.reach)
        return self._client


def _now_us() -> int:
    return time.time_ns() // 1000
