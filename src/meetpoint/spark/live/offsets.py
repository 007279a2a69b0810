"""Where a query is: for every stream of events the number up to which it has come, and how far it may go next.

A stream is what one home accepted, numbered; an archive has some of its numbers, mostly all. Brokers that share a
folder name the same archive, and a home that moved may be in two of them. So an offset has a number for every (archive,
home, stream), and what two archives have of a stream is taken from the one that was read first (`Range.known`).

A query goes as far as the home's own broker says that all is in the archive. A stream that nobody hosts is over, as its
home moved on or was dissolved; it is taken as it is in the files, once it is certain that no home is about to begin
there: the home is hosted elsewhere or all brokers have answered, and so for a while. A stream whose broker is away
waits, and others go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from meetpoint.api.client_messages import Stream, StreamsAre
from meetpoint.api.ids import Peer

__all__ = ["Offset", "Place", "Range", "Standing", "Watch", "advance", "ranges_between"]

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
