"""Planning a query over archives: how far it may go, and which task reads what from whom. This runs on the driver.

Brokers that are away hold up their own streams and no others. Only when none has answered for a while, the query ends;
started again, it goes on from its checkpoint.
"""

from __future__ import annotations

import time
from typing import Final

import msgspec

from meetpoint.api.client_messages import History
from meetpoint.api.ids import Peer
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import MeetpointError
from meetpoint.language.schema.schema import Schema
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.spark.live.offsets import Offset, Place, Standing, Watch, advance, ranges_between
from meetpoint.spark.live.options import Client, Reach
from meetpoint.spark.live.rows import Task

__all__ = ["EARLIEST", "LATEST", "Planner", "Query", "read_since"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
PAUSE_S: Final = 0.1
"""How long what was just accepted is waited for, before it is looked again."""


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
