"""Programs with Spark that tests start and kill, with all processes that belong to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

__all__ = ["Life"]

PATIENCE_S = 600.0
"""How long a test waits for what must come."""


class Life:
    """A run of a program, and all processes that it starts: they are known by a mark in their environment."""

    def __init__(self, module: str, folder: Path, *arguments: str) -> None:
        self._mark = f"MEETPOINT_STREAM={uuid4().hex}"
        name, _, value = self._mark.partition("=")
        self._log = folder / "program.log"
        (folder / "started").unlink(missing_ok=True)
        with self._log.open("w") as log:
            self.program = subprocess.Popen(
                [sys.executable, "-m", module, str(folder), *arguments],
                env={**os.environ, name: value},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if self._mark.encode() in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
            except OSError:
                continue  # ended meanwhile, or another's
        return found

    def workers(self) -> list[int]:
        """The processes in which tasks run Python: forks of Spark's daemon."""
        daemons = [pid for pid in self.processes() if b"pyspark.daemon" in _proc(pid, "cmdline")]
        return [pid for pid in daemons if int(_proc(pid, "stat").rpartition(b")")[2].split()[1]) in daemons]

    def kill(self) -> None:
        while processes := self.processes():
            for pid in processes:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.program.poll()
            time.sleep(0.01)
        self.program.wait()

    def wait_for(self, claim: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        """Wait until something holds, or the program has come to its end."""
        until = time.monotonic() + seconds
        while not claim() and self.program.poll() is None:
            assert time.monotonic() < until, self._log.read_text()[-5000:]
            time.sleep(0.02)
        assert self.program.poll() in (None, 0), self._log.read_text()[-5000:]


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b") gone 0"
