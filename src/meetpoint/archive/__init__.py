"""The archive: events that brokers accepted, in Parquet files by the hour, for Spark, backtests and replay."""

from meetpoint.archive.parts import ArchiveError, ArchivePart, is_archive, list_parts
from meetpoint.archive.reader import ArchivedEvent, read_accepted, read_archive
from meetpoint.archive.writer import AcceptedEvent, Archive

__all__ = [
    "AcceptedEvent",
    "Archive",
    "ArchiveError",
    "ArchivePart",
    "ArchivedEvent",
    "is_archive",
    "list_parts",
    "read_accepted",
    "read_archive",
]
