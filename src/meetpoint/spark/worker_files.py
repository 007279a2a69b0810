"""Files and packages that workers need: a file that the driver wrote, and Meetpoint itself.

On one machine, and where all machines share the directory, a worker maps the file where it lies (`path`). Elsewhere
Spark copies it to every machine (`copy`). `auto` is `path` under a local master and `copy` under any other; a worker
looks for the file where it lies first, and takes it only if it is the very file that the driver saw.

Meetpoint must be installed on the workers; `check_workers` asks one whether it is there.
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
    from pyspark.sql import SparkSession

    from meetpoint.matching.index import Index

__all__ = ["SHIP_MODES", "WorkerFile", "check_workers", "is_local", "link_or_copy", "open_index", "ship"]

SHIP_MODES = ("auto", "path", "copy")
_HEAD = 40
"""The bytes at the beginning of an index file that identify it: they have the checksum of its header, which has that of
the rest.
"""
_OPEN_MAX = 4
"""The number of indexes that one worker keeps open."""
_sent: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()
"""The files that were copied already, by session."""
_checked: WeakSet[SparkSession] = WeakSet()
"""The sessions whose workers were asked."""


class WorkerFile(msgspec.Struct, frozen=True):
    """A file, as a worker may find it."""

    path: str
    copied: str | None
    """The name under which Spark copied it."""
    size: int
    head: bytes

    def find(self) -> str:
        """Return the path of the file on this machine; raise SetupError where it is not there."""
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


def ship(spark: SparkSession, path: Path, how: str = "auto") -> WorkerFile:
    """Make a file known to the workers of a session."""
    if how not in SHIP_MODES:
        raise MeetpointError(f"ship is {how!r}; use {', '.join(SHIP_MODES)}")
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
    return WorkerFile(str(path), copied, size, head)


def open_index(shipped: WorkerFile) -> Index[Any]:
    """Return the index in a file, mapped; a worker opens it once for all its tasks."""
    return _opened(shipped.find(), shipped.head)


@lru_cache(_OPEN_MAX)
def _opened(path: str, head: bytes) -> Index[Any]:
    from meetpoint.matching.index import Index

    return Index.open(path)


def check_workers(spark: SparkSession) -> None:
    """Raise SetupError where a worker lacks Meetpoint or its dependencies: one worker is asked, once in a session.

    Under a local master workers run the driver's own Python, and none is asked.
    """
    if is_local(spark) or spark in _checked:
        return
    from pyspark.sql import functions as F  # noqa: N812

    check = F.udf(_question(), "string", useArrow=False)  # without Arrow, which workers may lack too
    problem = spark.range(0, 1, 1, 1).select(check("id").alias("told")).toArrow()["told"][0].as_py()
    if problem:
        raise SetupError(
            f"the workers cannot run Meetpoint: {problem}; install it for the Python of all workers "
            "(pip install 'meetpoint[spark]'), or set PYSPARK_PYTHON to one that has it"
        )
    _checked.add(spark)


def _question() -> Callable[[int], str]:
    """Return the function that a worker runs. Nested in a function it is pickled whole, so a worker without Meetpoint
    can run it.
    """
    driver_version = None
    with suppress(PackageNotFoundError):
        driver_version = version("meetpoint")

    def check(_: int) -> str:
        import importlib
        import sys
        from importlib import metadata

        try:
            importlib.import_module("meetpoint.spark.matching.broadcast")
            worker_version = metadata.version("meetpoint")
        except metadata.PackageNotFoundError:  # copied to the worker without an installation
            return ""
        except ImportError as error:
            return f"{sys.executable}: {error}"
        return (
            ""
            if driver_version in (None, worker_version)
            else f"{sys.executable}: it has version {worker_version}, and the driver {driver_version}"
        )

    return check


def _send(spark: SparkSession, path: Path, name: str) -> None:
    """Have Spark copy a file under a unique name: Spark tells files apart by their names only."""
    if not _is_classic(spark):  # Spark Connect sends it at once; a server's Python never ends, so no atexit
        with tempfile.TemporaryDirectory(prefix="meetpoint-shipped-") as folder:
            spark.addArtifacts(str(link_or_copy(path, Path(folder, name))), file=True)
        return
    # Kept as long as this process, since Spark reads it only when the first worker asks for it.
    linked = _links() / name
    spark.addArtifacts(str(linked if linked.exists() else link_or_copy(path, linked)), file=True)


def link_or_copy(path: Path, target: Path) -> Path:
    """Put a file at a second place, at no cost if both are in one file system; return that place."""
    try:
        os.link(path, target)
    except OSError:  # no hard link across file systems
        shutil.copyfile(path, target)
    return target


@cache
def _links() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="meetpoint-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_local(spark: SparkSession) -> bool:
    """Return whether all workers are certainly on this machine."""
    return _is_classic(spark) and str(spark.conf.get("spark.master", "")).startswith("local")


def _is_classic(spark: SparkSession) -> bool:
    """Return whether the driver is this process. A session of Spark Connect has a server, which may be anywhere."""
    from pyspark.sql import SparkSession

    return isinstance(spark, SparkSession)


def _size_and_head(path: str) -> tuple[int, bytes] | None:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD)
            return os.fstat(file.fileno()).st_size, head
    except OSError:
        return None
