"""Options of the JVMs that tests start, by which they are quick to start.

A JVM of Spark loads some 15,000 classes at its start, which takes longer than all else that it does in most tests.
They are loaded once and kept in a class-data archive in the virtual environment, which this program makes, by
`python -m tests.spark.quick_java`. The name of the archive tells the Java and the jars, and a JVM that
cannot use it starts without.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from meetpoint.spark.session import _java_home

__all__ = ["quick_java"]

# Only the first tier of the JVM's compiler: short queries gain more from a quick start than from fast code.
_PLAIN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_FOLDER = Path(sys.prefix) / "spark-classes"
_MAKING_S_MAX = 600.0


@cache
def quick_java() -> str:
    """Return the options; the first call of all makes the archive."""
    archive = _FOLDER / f"{_key()}.jsa"
    if not archive.exists() and not _make(archive):
        return _PLAIN
    # Without a word where the archive does not fit, since a test may read what a JVM says.
    return f"{_PLAIN} -XX:SharedArchiveFile={archive} -Xlog:disable"


def _key() -> str:
    java = _java_home(os.environ)
    jars = Path(pyspark.__file__).parent / "jars"
    told = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(jars.glob("*.jar"))]
    release = java / "release"
    said = release.read_text() if release.exists() else ""
    return hashlib.sha256(repr((str(java.resolve()), said, told)).encode()).hexdigest()[:16]


def _make(archive: Path) -> bool:
    """Make the archive, unless another process does so already; return whether it is there."""
    if " " in str(archive):  # Spark splits options at spaces
        return False
    try:
        _FOLDER.mkdir(exist_ok=True)
        lock = (_FOLDER / "lock").open("w")
    except OSError:
        return False
    with lock, tempfile.TemporaryDirectory() as folder:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            for old in _FOLDER.glob("*.jsa"):
                old.unlink(missing_ok=True)
            made = archive.with_suffix(".new")
            command = [sys.executable, "-m", "tests.spark.quick_java", folder, str(made)]
            done = subprocess.run(command, capture_output=True, timeout=_MAKING_S_MAX, check=False)
            if done.returncode == 0 and made.exists():
                made.rename(archive)
        return archive.exists()


def record(folder: Path, archive: Path) -> None:
    """Match a short stream, and have the JVM write down at its end which classes that took."""
    from pyspark import SparkContext

    from tests.spark import stream_job

    for number in range(6):
        stream_job.write_file(folder / "in", number)
    stream_job.run(folder, "second", java=f"{_PLAIN} -XX:ArchiveClassesAtExit={archive} -Xlog:disable")
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        record(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        quick_java()
