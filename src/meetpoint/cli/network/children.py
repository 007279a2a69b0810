"""A broker that `meetpoint up` runs: a process of its own, its log, and whether it serves."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from meetpoint.errors import SetupError

__all__ = ["HOST", "Child", "ending"]

HOST = "127.0.0.1"
ADMIN_PORTS_ABOVE = 80
"""Where HTTP is served: so many ports above the brokers' own."""


class Child:
    """A process that is a broker."""

    def __init__(self, number: int, place: int, count: int, data: Path, port: int) -> None:
        self.number = number
        self.place = place
        self.name = f"broker-{number}"
        self.port = port + place
        self.admin_port = port + max(ADMIN_PORTS_ABOVE, count) + place
        self.address = f"{HOST}:{self.port}"
        self.folder = data / self.name
        self.log = data / f"{self.name}.log"
        self.process: asyncio.subprocess.Process | None = None
        self.deaths = 0
        self.since = 0.0
        self.is_leaving = False
        """Whether it was asked to hand everything over."""
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._logged = 0
        """How long the log was when it was last started."""

    async def start(self, options: list[str], join: list[str]) -> None:
        """Start it. It drains when this process is gone, however that comes."""
        command = [
            *(sys.executable, "-m", "meetpoint.cli", "broker", "--attached"),
            *("--name", self.name, "--listen", self.address, "--data", str(self.folder)),
            *("--admin", f"{HOST}:{self.admin_port}", *options),
            *(word for address in join for word in ("--join", address)),
        ]
        with self._open_log() as log:
            self._logged = log.tell()
            self.process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self.since = time.monotonic()

    def _open_log(self) -> IO[bytes]:
        try:
            return self.log.open("ab")
        except OSError as error:
            raise SetupError(f"{self.log}: {(error.strerror or '').lower()}; make it writable") from None

    def _said(self) -> list[str]:
        """The lines that it wrote in this life."""
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(self._logged)
            return log.read().decode("utf-8", "replace").strip().splitlines()
        return []

    def last_words(self) -> str:
        """The last of them."""
        return ["it said nothing", *self._said()][-1].removeprefix("meetpoint: ")

    @property
    def has_left(self) -> bool:
        """Whether it went because it had handed everything over, and not because somebody stopped it."""
        return any(" event=left " in line for line in self._said())

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self.process is not None and self.process.returncode is None

    @property
    def is_wanted(self) -> bool:
        """Whether it shall be started again when it ends."""
        return self._wanted.is_set()

    def hold(self) -> None:
        """Have it stay down from its next end on."""
        self._wanted.clear()

    def resume(self) -> None:
        """Have it started again."""
        self._wanted.set()

    async def wait_wanted(self) -> None:
        """Wait while it shall stay down."""
        await self._wanted.wait()

    def signal(self, number: int) -> None:
        """Tell it something, if it is there."""
        if self.process is not None and self.process.returncode is None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)

    async def readiness(self) -> str:
        """Empty where it serves; else why not."""
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


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}" if code else "was stopped"
