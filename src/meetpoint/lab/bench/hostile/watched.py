"""A broker in a process of its own, whose memory is watched and whose counters are read."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

from meetpoint.errors import SetupError
from meetpoint.lab.bench.brokers.ours import BROKER
from meetpoint.lab.bench.brokers.servers import HOST, START_S, STOP_S, free_port

__all__ = ["Watched", "watch"]


class Watched:
    """One broker's process, seen from outside."""

    def __init__(self, process: Popen[bytes], port: int, admin: int, log: Path) -> None:
        self.process = process
        self.host = HOST
        self.port = port
        self.log = log
        self._admin = f"http://{HOST}:{admin}"

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"{self.host}:{self.port}"

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    @property
    def held_bytes(self) -> int:
        """How much memory it has, of what the machine has (Linux only)."""
        return self._status("VmRSS:")

    @property
    def held_bytes_max(self) -> int:
        """How much it ever had."""
        return self._status("VmHWM:")

    def _status(self, field: str) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

    def counted(self) -> dict[str, float]:
        """What it has counted, by the names of its metrics."""
        with urllib.request.urlopen(f"{self._admin}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name[:1] != "#"}

    def wait_ready(self) -> None:
        """Wait until it serves."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if not self.is_alive:
                raise SetupError(f"the broker ended with code {self.process.returncode}; see {self.log}")
            with suppress(OSError), urllib.request.urlopen(f"{self._admin}/readyz", timeout=5) as answer:
                if answer.status == 200:
                    return
            time.sleep(0.05)
        raise SetupError(f"the broker is not ready after {START_S:.0f} s; see {self.log}")


@contextmanager
def watch(folder: Path, settings: Mapping[str, Any] | None = None) -> Iterator[Watched]:
    """A broker that is ready, with its data below a folder; `settings` are keys of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    port, admin = free_port(), free_port()
    said = {
        "name": "watched", "listen": f"{HOST}:{port}", "admin": f"{HOST}:{admin}", "data": str(folder / "data"),
        **(settings or {}),
    }  # fmt: skip
    config = folder / "broker.toml"
    config.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items()))
    log = folder / "broker.log"
    command = [*BROKER, "--attached", "--config", str(config)]  # it ends with this process, however that ends
    with log.open("ab") as out, Popen(command, stdin=PIPE, stdout=out, stderr=out, start_new_session=True) as process:
        watched = Watched(process, port, admin, log)
        try:
            watched.wait_ready()
            yield watched
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except TimeoutExpired:
                process.kill()
