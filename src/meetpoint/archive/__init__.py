"""The archive: what brokers accepted, in Parquet files by the hour, for Spark, for backtests and for replay."""

from meetpoint.archive.parts import ArchiveError, Part, is_archive, list_parts
from meetpoint.archive.reader import Archived, read_accepted, read_archive
from meetpoint.archive.writer import Accepted, Archive

__all__ = [
    "Accepted",
    "Archive",
    "ArchiveError",
    "Archived",
    "Part",
    "is_archive",
    "list_parts",
    "read_accepted",
    "read_archive",
]
