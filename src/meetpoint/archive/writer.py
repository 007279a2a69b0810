"""Writing an archive: events that a broker has accepted become files, and once they are there, they are there.

`write` returns when the files are whole, on disk and in their places; a crash before that leaves what was there, and a
leftover that is swept away at the next start. Whoever calls keeps the events until then, and gives them again after a
crash: `missing` says which of them are not in the archive yet, by the numbers within the few files that may have them.

Columns: the event's `id`, `publisher`, `sequence` and `time`, its `attributes` as a struct where the network's schema
says of which types they are, and for every event its exact bytes in `event`. Of the acceptance: `accepted_at`, `tenant`
and the event's key (`home`, `stream`, `number`). Events that do not conform to the schema, since they were there before
it, go into a part without the struct; readers take those from their bytes.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from meetpoint.api.ids import EventKey, HomeId
from meetpoint.archive.parts import NOTE, WRITING, ArchiveError, hour_name, list_parts, opened, part_name
from meetpoint.errors import EventError
from meetpoint.language.events.arrow import events_to_arrow
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.schema.schema import Schema

__all__ = ["COLUMNS", "Accepted", "Archive", "sync_folder", "write_synced"]

FORMAT = 1
_TIME = pa.timestamp("us", tz="UTC")
_TYPES = {
    "id": pa.string(),
    "publisher": pa.string(),
    "sequence": pa.int64(),
    "time": _TIME,
    "accepted_at": _TIME,
    "tenant": pa.string(),
    "home": pa.binary(),
    "stream": pa.int64(),
    "number": pa.int64(),
    "event": pa.binary(),
}
COLUMNS: Final = pa.schema([pa.field(name, type_, nullable=False) for name, type_ in _TYPES.items()])
"""What every part has."""


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """An event that was accepted: its key, when (microseconds since 1970), whose tenant's it is, and its bytes."""

    key: EventKey
    at_us: int
    content: bytes
    tenant: str = ""


_Pair: TypeAlias = tuple[Accepted, Event]


class _Note(msgspec.Struct, frozen=True):
    network: str
    id: str
    """Of the folder: brokers that share it say the same."""
    format: int = FORMAT


class Archive:
    """A folder that one broker writes to."""

    def __init__(self, folder: Path, id_: str, writer: str) -> None:
        self.folder = folder
        self.id = id_
        self._writer = writer
        self._serial = 0

    @classmethod
    def open(cls, folder: str | Path, network: str, writer: str) -> Archive:
        """The archive of a network; begun where the folder has none. `writer` is a name no other writer has."""
        into = Path(folder)
        try:
            (into / WRITING).mkdir(parents=True, exist_ok=True)
            note = into / NOTE
            if not note.exists():
                beside = into / WRITING / f"{writer}.json"
                write_synced(beside, msgspec.json.encode(_Note(network, secrets.token_hex(8))))
                _place_once(beside, note)
                sync_folder(into)
            held = note.read_bytes()
            for left in (into / WRITING).glob(f"{writer}.*"):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise ArchiveError(f"{into}: {error.strerror}; name a folder that this broker may write to") from None
        try:
            said = msgspec.json.decode(held, type=_Note)
        except msgspec.DecodeError:
            raise ArchiveError(f"{note}: cannot be read; name a new folder, or put back a copy of it") from None
        if said.network != network:
            raise ArchiveError(f"{into}: is the archive of network {said.network!r}, not of {network!r}; name another")
        if said.format != FORMAT:
            raise ArchiveError(f"{into}: has format {said.format}, this version writes {FORMAT}; update the older side")
        return cls(into, said.id, writer)

    def missing(self, events: Sequence[Accepted]) -> list[Accepted]:
        """Of some events, those that are not in the archive yet."""
        if not events:
            return []
        held: set[tuple[HomeId, int, int]] = set()
        spans: dict[tuple[HomeId, int], tuple[int, int]] = {}
        for each in events:
            stream, number = (each.key.home, each.key.stream), each.key.number
            low, high = spans.get(stream, (number, number))
            spans[stream] = min(low, number), max(high, number)
        for part in list_parts(self.folder):
            span = spans.get((part.home, part.stream))
            if span is not None and part.first <= span[1] and span[0] <= part.last:
                with opened(part.path, ["number"]) as file:
                    numbers = file.read(columns=["number"])["number"].to_pylist()
                held.update((part.home, part.stream, number) for number in numbers)
        return [each for each in events if (each.key.home, each.key.stream, each.key.number) not in held]

    def write(self, events: Iterable[Accepted], schema: Schema | None) -> list[Path]:
        """Put events into the archive; returns the new files. OSError where the disk does not take them."""
        written = []
        for (hour, home, stream), group in groupby(sorted(events, key=_place), key=lambda each: _place(each)[:3]):
            pairs = [(each, from_msgpack(each.content)) for each in group]
            for table in _tables(pairs, schema):
                numbers = table["number"]
                name = part_name(home, stream, numbers[0].as_py(), numbers[-1].as_py())
                written.append(self._put(hour, name, table))
        return written

    def _put(self, hour: str, name: str, table: Any) -> Path:
        self._serial += 1
        beside = self.folder / WRITING / f"{self._writer}.{self._serial}"
        within = self.folder / f"hour={hour}"
        with beside.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        if not within.exists():
            within.mkdir(exist_ok=True)
            sync_folder(self.folder)
        os.replace(beside, within / name)
        sync_folder(within)
        return within / name


def _place(each: Accepted) -> tuple[str, HomeId, int, int]:
    return hour_name(each.at_us), each.key.home, each.key.stream, each.key.number


def _tables(pairs: list[_Pair], schema: Schema | None) -> Iterator[Any]:
    """Events as tables, those that conform to the schema apart from those that do not."""
    if schema is None:
        yield _table(pairs, None)
        return
    try:
        attributes = events_to_arrow([read for _, read in pairs], schema)["attributes"]
    except EventError:
        typed: list[_Pair] = []
        loose: list[_Pair] = []
        for pair in pairs:
            (typed if _conforms(pair[1], schema) else loose).append(pair)
        if typed:
            yield from _tables(typed, schema)
        yield _table(loose, None)
    else:
        yield _table(pairs, attributes)


def _conforms(event: Event, schema: Schema) -> bool:
    try:
        events_to_arrow([event], schema)
    except EventError:
        return False
    return True


def _table(pairs: list[_Pair], attributes: Any) -> Any:
    columns = {
        "id": [read.id for _, read in pairs],
        "publisher": [read.publisher for _, read in pairs],
        "sequence": [read.sequence for _, read in pairs],
        "time": [read.time for _, read in pairs],
        "accepted_at": [each.at_us for each, _ in pairs],
        "tenant": [each.tenant for each, _ in pairs],
        "home": [bytes(each.key.home) for each, _ in pairs],
        "stream": [each.key.stream for each, _ in pairs],
        "number": [each.key.number for each, _ in pairs],
        "event": [each.content for each, _ in pairs],
    }
    table = pa.table([pa.array(columns[field.name], type=field.type) for field in COLUMNS], schema=COLUMNS)
    return table if attributes is None else table.append_column("attributes", attributes)


def _place_once(beside: Path, note: Path) -> None:
    """Put a file into its place, unless another broker was quicker."""
    try:
        os.link(beside, note)
    except FileExistsError:
        pass
    except OSError:  # a file system without links
        os.replace(beside, note)


def write_synced(path: Path, content: bytes) -> None:
    """A file that is on disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the names of a folder on disk."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
