"""A broker that `meetpoint up` runs: its process, its log, and whether it serves."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from meetpoint.errors import SetupError

__all__ = ["HOST", "BrokerProcess", "check_ports", "exit_text"]

HOST = "127.0.0.1"
ADMIN_PORTS_ABOVE = 80
"""The distance of the admin HTTP ports above the brokers' own."""


class BrokerProcess:
    """A broker in a process of its own."""

    def __init__(self, number: int, place: int, count: int, data: Path, port: int) -> None:
        self.number = number
        self.place = place
        self.name = f"broker-{number}"
        self.port = port + place
        self.admin_port = port + max(ADMIN_PORTS_ABOVE, count) + place
        self.address = f"{HOST}:{self.port}"
        self.folder = data / self.name
        self.log = data / f"{self.name}.log"
        self.subprocess: asyncio.subprocess.Process | None = None
        self.deaths = 0
        self.since = 0.0
        self.is_leaving = False
        """Whether it was asked to hand everything over."""
        self._restart = asyncio.Event()
        self._restart.set()
        self._logged = 0
        """The length of the log when the process was last started."""

    async def start(self, options: list[str], join: list[str]) -> None:
        """Start the process; the broker drains when this program is gone, even after a crash."""
        command = [
            *(sys.executable, "-m", "meetpoint.cli", "broker", "--attached"),
            *("--name", self.name, "--listen", self.address, "--data", str(self.folder)),
            *("--admin", f"{HOST}:{self.admin_port}", *options),
            *(word for address in join for word in ("--join", address)),
        ]
        with self._open_log() as log:
            self._logged = log.tell()
            # Standard input closes when this program dies, however it does: then the broker drains (--attached).
            # A session of its own keeps the terminal's Ctrl-C away: this program decides the order of stopping.
            self.subprocess = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self.since = time.monotonic()

    def _open_log(self) -> IO[bytes]:
        try:
            return self.log.open("ab")
        except OSError as error:
            raise SetupError(f"{self.log}: {(error.strerror or '').lower()}; make it writable") from None

    def _log_lines(self) -> list[str]:
        """Return the lines of the log since the last start."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(self._logged)
            return log.read().decode("utf-8", "replace").strip().splitlines()
        return []

    def last_log_line(self) -> str:
        """Return the last line of the log since the last start."""
        return ["it said nothing", *self._log_lines()][-1].removeprefix("meetpoint: ")

    @property
    def has_left(self) -> bool:
        """Whether it ended because it had handed everything over, not because somebody stopped it."""
        return any(" event=left " in line for line in self._log_lines())

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.subprocess is not None and self.subprocess.returncode is None

    @property
    def is_wanted(self) -> bool:
        """Whether it is started again when it ends."""
        return self._restart.is_set()

    def hold(self) -> None:
        """Let it stay down from its next end on."""
        self._restart.clear()

    def resume(self) -> None:
        """Let it be started again."""
        self._restart.set()

    async def wait_wanted(self) -> None:
        """Wait until `resume`."""
        await self._restart.wait()

    def signal(self, number: int) -> None:
        """Send a signal, if the process runs."""
        if self.subprocess is not None and self.subprocess.returncode is None:
            with suppress(ProcessLookupError):
                self.subprocess.send_signal(number)

    async def readiness(self) -> str:
        """Return why it does not serve; empty where it does."""
        try:
            async with asyncio.timeout(2):
                reader, writer = await asyncio.open_connection(HOST, self.admin_port)
                try:
                    writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
                    head, _, body = (await reader.read(65_536)).partition(b"\r\n\r\n")
                finally:
                    writer.close()
                    with suppress(OSError):
                        await writer.wait_closed()
        except (OSError, TimeoutError):
            return "it is starting"
        if head.split(b" ")[1:2] == [b"200"]:
            return ""
        return body.decode("utf-8", "replace").strip() or "it does not say why"


def exit_text(code: int) -> str:
    """Return in words how a process ended."""
    if code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}" if code else "was stopped"


def check_ports(children: list[BrokerProcess]) -> None:
    """Raise SetupError where a port is taken, before a broker fails on it."""
    for child in children:
        for port in (child.port, child.admin_port):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise SetupError(
                        f"port {port} on {HOST}: {(error.strerror or '').lower()}; stop what uses it (is a network up "
                        "already?), or give another --port"
                    ) from None
