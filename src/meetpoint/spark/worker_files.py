"""What workers need: a file that the driver wrote, and Meetpoint itself.

On one machine, and where all machines share the directory, a worker maps the file where it lies (`path`). Elsewhere
Spark copies it to every machine (`copy`). `auto` is `path` under a local master and `copy` under any other; a worker
looks for the file where it lies first, and takes it only if it is the very file that the driver saw.

Meetpoint is installed on the workers by whoever sets them up; `check_workers` asks one whether it is there.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import msgspec

from meetpoint.errors import MeetpointError, SetupError
from meetpoint.matching.io.rejects import SourceError

if TYPE_CHECKING:
    from meetpoint.matching.index import Index

__all__ = ["WAYS", "Shipped", "check_workers", "is_local", "open_index", "ship"]

WAYS = ("auto", "path", "copy")
_HEAD = 40
"""Bytes at the beginning of an index file that tell it from any other: the checksum of its header is among them, and in
the header that of the rest."""
_OPEN_MAX = 4
"""Indexes that one worker keeps open."""
_sent: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""What was copied already, by session."""
_checked: WeakSet[Any] = WeakSet()
"""Sessions whose workers were asked."""


class Shipped(msgspec.Struct, frozen=True):
    """A file as a worker may find it."""

    path: str
    copied: str | None
    """The name under which Spark copied it."""
    size: int
    head: bytes

    def find(self) -> str:
        """Where the file is on this machine; SetupError where it is not."""
        places = [self.path]
        if self.copied is not None:
            from pyspark import SparkFiles

            places.append(SparkFiles.get(self.copied))
        for place in places:
            if _size_and_head(place) == (self.size, self.head):
                return place
        raise SetupError(
            f"{self.path}: the index is not on this worker; compile it to a directory that all machines share, "
            "or match with ship='copy'"
        )


def ship(spark: Any, path: Path, how: str = "auto") -> Shipped:
    """Make a file known to the workers of a session."""
    if how not in WAYS:
        raise MeetpointError(f"ship is {how!r}; use {', '.join(WAYS)}")
    found = _size_and_head(str(path))
    if found is None:
        raise SourceError(f"{path}: the file cannot be read; compile the subscriptions anew")
    check_workers(spark)
    size, head = found
    copied = None
    if how == "copy" or (how == "auto" and not is_local(spark)):
        copied = f"meetpoint-{head.hex()}.mpx"
        sent = _sent.setdefault(spark, set())
        if copied not in sent:
            _send(spark, path, copied)
            sent.add(copied)
    return Shipped(str(path), copied, size, head)


def open_index(shipped: Shipped) -> Index[Any]:
    """The index in a shipped file, mapped; a worker opens it once for all its tasks."""
    return _opened(shipped.find(), shipped.head)


@lru_cache(_OPEN_MAX)
def _opened(path: str, head: bytes) -> Index[Any]:
    from meetpoint.matching.index import Index

    return Index.open(path)


def check_workers(spark: Any) -> None:
    """SetupError where a worker lacks Meetpoint or what it needs: one worker is asked, once in a session.

    Under a local master workers run the driver's own Python, and none is asked.
    """
    if is_local(spark) or spark in _checked:
        return
    from pyspark.sql import functions as F  # noqa: N812

    ask = F.udf(_question(), "string", useArrow=False)  # without Arrow, which may be missing too
    told = spark.range(0, 1, 1, 1).select(ask("id").alias("told")).toArrow()["told"][0].as_py()
    if told:
        raise SetupError(
            f"the workers cannot run Meetpoint: {told}; install it for the Python of all workers "
            "(pip install 'meetpoint[spark]'), or set PYSPARK_PYTHON to one that has it"
        )
    _checked.add(spark)


def _question() -> Callable[[int], str]:
    """What a worker is asked; as a function within one, it needs nothing of this package there."""
    here = None
    with suppress(PackageNotFoundError):
        here = version("meetpoint")

    def ask(_: int) -> str:
        import importlib
        import sys
        from importlib import metadata

        try:
            importlib.import_module("meetpoint.spark.matching.broadcast")
            there = metadata.version("meetpoint")
        except metadata.PackageNotFoundError:  # it came as mere files
            return ""
        except ImportError as error:
            return f"{sys.executable}: {error}"
        return "" if here in (None, there) else f"{sys.executable}: it has version {there}, and the driver {here}"

    return ask


def _send(spark: Any, path: Path, name: str) -> None:
    """Have Spark copy a file under a name of its own, by which Spark tells files apart."""
    if not _is_classic(spark):  # it is sent at once; a server's Python, in which this may run, has no end to tidy up at
        with tempfile.TemporaryDirectory(prefix="meetpoint-shipped-") as folder:
            spark.addArtifacts(str(_linked(path, Path(folder, name))), file=True)
        return
    # It stays as long as this process, since Spark reads it when the first worker asks for it.
    linked = _links() / name
    spark.addArtifacts(str(linked if linked.exists() else _linked(path, linked)), file=True)


def _linked(path: Path, linked: Path) -> Path:
    try:
        os.link(path, linked)
    except OSError:  # another file system
        shutil.copyfile(path, linked)
    return linked


@cache
def _links() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="meetpoint-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_local(spark: Any) -> bool:
    """Whether all workers are on this machine for sure."""
    return _is_classic(spark) and str(spark.conf.get("spark.master", "")).startswith("local")


def _is_classic(spark: Any) -> bool:
    """Whether the driver is this process; a session of Spark Connect has a server, which may be anywhere."""
    from pyspark.sql import SparkSession

    return isinstance(spark, SparkSession)


def _size_and_head(path: str) -> tuple[int, bytes] | None:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
            return os.fstat(file.fileno()).st_size, head
    except OSError:
        return None
