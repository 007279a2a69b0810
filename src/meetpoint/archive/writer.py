"""Writing an archive: accepted events become files that are complete, on disk and never changed.

`write` returns when the files are in their places. A crash before that leaves the files that were there, and a leftover
that the next start deletes. The caller keeps the events until then, and gives them again after a crash: `missing` says
which of them are not in the archive yet, by the numbers within the few files that may have them.

Columns: the event's `id`, `publisher`, `sequence` and `time`; its `attributes` as a struct where the network's schema
gives their types; and for every event its exact bytes in `event`. Of the acceptance: `accepted_at`, `tenant` and the
event's key (`home`, `stream`, `number`). Events that do not conform to the schema, because they are older than it, go
into a part without the struct; readers decode those from their bytes.
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
from meetpoint.archive.parts import NOTE, WRITING, ArchiveError, hour_name, list_parts, open_part, part_name
from meetpoint.errors import EventError
from meetpoint.language.events.arrow import events_to_arrow
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.schema.schema import Schema

__all__ = ["COLUMNS", "AcceptedEvent", "Archive", "sync_path", "write_synced"]

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
"""The columns that every part has."""


class AcceptedEvent(msgspec.Struct, frozen=True, gc=False):
    """An accepted event: its key, the time (microseconds since 1970), its encoded bytes and its tenant."""

    key: EventKey
    at_us: int
    content: bytes
    tenant: str = ""


_DecodedEvent: TypeAlias = tuple[AcceptedEvent, Event]


class _ArchiveNote(msgspec.Struct, frozen=True):
    network: str
    id: str
    """The id of the folder, the same for all brokers that share it."""
    format: int = FORMAT


class Archive:
    """An archive folder, as one broker writes to it."""

    def __init__(self, folder: Path, id_: str, writer: str) -> None:
        self.folder = folder
        self.id = id_
        self._writer = writer
        self._serial = 0

    @classmethod
    def open(cls, folder: str | Path, network: str, writer: str) -> Archive:
        """Open the archive of a network; create it in an empty folder.

        `writer` is a name that no other writer has. Raise ArchiveError where the folder cannot be written to, or has
        the archive of another network.
        """
        path = Path(folder)
        try:
            (path / WRITING).mkdir(parents=True, exist_ok=True)
            note = path / NOTE
            if not note.exists():
                partial = path / WRITING / f"{writer}.json"
                write_synced(partial, msgspec.json.encode(_ArchiveNote(network, secrets.token_hex(8))))
                _place_once(partial, note)
                sync_path(path)
            content = note.read_bytes()
            for left in (path / WRITING).glob(f"{writer}.*"):
                left.unlink(missing_ok=True)
        except OSError as error:
            raise ArchiveError(f"{path}: {error.strerror}; name a folder that this broker may write to") from None
        try:
            existing = msgspec.json.decode(content, type=_ArchiveNote)
        except msgspec.DecodeError:
            raise ArchiveError(f"{note}: cannot be read; name a new folder, or put back a copy of it") from None
        if existing.network != network:
            raise ArchiveError(
                f"{path}: is the archive of network {existing.network!r}, not of {network!r}; name another"
            )
        if existing.format != FORMAT:
            raise ArchiveError(
                f"{path}: has format {existing.format}, this version writes {FORMAT}; update the older side"
            )
        return cls(path, existing.id, writer)

    def missing(self, events: Sequence[AcceptedEvent]) -> list[AcceptedEvent]:
        """Return the events that are not in the archive yet."""
        if not events:
            return []
        archived: set[tuple[HomeId, int, int]] = set()
        spans: dict[tuple[HomeId, int], tuple[int, int]] = {}
        for each in events:
            stream, number = (each.key.home, each.key.stream), each.key.number
            low, high = spans.get(stream, (number, number))
            spans[stream] = min(low, number), max(high, number)
        for part in list_parts(self.folder):
            span = spans.get((part.home, part.stream))
            if span is not None and part.first <= span[1] and span[0] <= part.last:
                with open_part(part.path, ["number"]) as file:
                    numbers = file.read(columns=["number"])["number"].to_pylist()
                archived.update((part.home, part.stream, number) for number in numbers)
        return [each for each in events if (each.key.home, each.key.stream, each.key.number) not in archived]

    def write(self, events: Iterable[AcceptedEvent], schema: Schema | None) -> list[Path]:
        """Write events to the archive and return the new files; raise OSError where the disk fails."""
        written = []
        for (hour, home, stream), group in groupby(sorted(events, key=_sort_key), key=lambda each: _sort_key(each)[:3]):
            pairs = [(each, from_msgpack(each.content)) for each in group]
            for table in _tables(pairs, schema):
                numbers = table["number"]
                name = part_name(home, stream, numbers[0].as_py(), numbers[-1].as_py())
                written.append(self._put(hour, name, table))
        return written

    def _put(self, hour: str, name: str, table: Any) -> Path:
        self._serial += 1
        partial = self.folder / WRITING / f"{self._writer}.{self._serial}"
        hour_folder = self.folder / f"hour={hour}"
        with partial.open("wb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        if not hour_folder.exists():
            hour_folder.mkdir(exist_ok=True)
            sync_path(self.folder)
        os.replace(partial, hour_folder / name)
        sync_path(hour_folder)
        return hour_folder / name


def _sort_key(each: AcceptedEvent) -> tuple[str, HomeId, int, int]:
    return hour_name(each.at_us), each.key.home, each.key.stream, each.key.number


def _tables(pairs: list[_DecodedEvent], schema: Schema | None) -> Iterator[Any]:
    """Yield events as tables; those that do not conform to the schema are in a table of their own."""
    if schema is None:
        yield _table(pairs, None)
        return
    try:
        attributes = events_to_arrow([read for _, read in pairs], schema)["attributes"]
    except EventError:
        typed: list[_DecodedEvent] = []
        loose: list[_DecodedEvent] = []
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


def _table(pairs: list[_DecodedEvent], attributes: Any) -> Any:
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


def _place_once(partial: Path, note: Path) -> None:
    """Put a file into its place, unless another broker was first."""
    try:
        os.link(partial, note)
    except FileExistsError:
        pass
    except OSError:  # a file system without links: brokers that start together may then replace each other's note
        os.replace(partial, note)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_path(path: Path) -> None:
    """Sync a file, or the entries of a folder, to disk."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
