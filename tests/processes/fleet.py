"""Brokers as processes, each with a folder of its own and behind a door, and what can be done to them."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from meetpoint.api.handshake import SPOKEN
from meetpoint.lab.bench.brokers.servers import free_port
from tests.processes.machine import Machine
from tests.processes.proxy import Doors, host_of

__all__ = ["Fleet", "Member"]

READY_S = 180.0
"""How long a broker may take until it says that it is ready, on a machine that has much to do."""
STOP_S = 180.0
ANSWER_S = 20.0
"""After so long without an answer a broker is asked again."""
_POLL_S = 0.05


class Member:
    """One broker: where it is, and its process if there is one."""

    def __init__(self, number: int, port: int, admin: int, address: str, folder: Path) -> None:
        self.number = number
        self.port = port
        self.admin = admin
        self.address = address
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        self.is_stopped = False
        self.has_left = False
        self.versions = SPOKEN
        self.starts = 0
        self.machine: Machine | None = None
        """Where it runs, if something is to go wrong there."""
        self.within: tuple[str, ...] = ()
        """What its command comes after: see `disks`."""

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.folder.with_suffix(".log")


class Fleet:
    """All brokers that are, were and will be."""

    def __init__(self, folder: Path, scheme: str = "meet", settings: Mapping[str, Any] | None = None) -> None:
        self._folder = folder
        self._scheme = scheme
        self._settings = dict(settings or {})
        self.doors = Doors()
        self.members: list[Member] = []

    # -- coming and going ----------------------------------------------------------------------------------------------

    async def begin(self, count: int = 0, versions: tuple[int, int] = SPOKEN) -> None:
        """A network of so many brokers, and of those that are prepared, all ready."""
        for _ in range(count):
            await self.prepare(versions)
        self.start(self.members[0])
        await self.wait_ready(self.members[:1])
        for member in self.members[1:]:
            self.start(member)
        await self.wait_ready(self.members)

    async def prepare(self, versions: tuple[int, int] = SPOKEN) -> Member:
        """A broker that has an address and no process yet."""
        number = len(self.members)
        host = host_of(number)
        port, admin = free_port(host), free_port(host)
        address = await self.doors.open(number, port)
        member = Member(number, port, admin, address, self._folder / f"broker-{number}")
        member.versions = versions
        self.members.append(member)
        return member

    def start(self, member: Member) -> None:
        """Start its process, for the first time or again."""
        assert not member.is_up
        if member.process is not None:
            _close_input(member.process)
        config = member.folder.with_suffix(".toml")
        config.write_text(self._config(member))
        member.starts += 1
        member.is_stopped = False
        with member.log.open("ab") as out:
            out.write(f"-- start {member.starts} at {time.monotonic_ns()}\n".encode())
            out.flush()
            machine = member.machine
            command = MEETPOINT if machine is None else machine.command
            member.process = subprocess.Popen(
                [*member.within, *command, "broker", "--attached", "--config", str(config)],
                stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True,
                pass_fds=() if machine is None else (machine.descriptor,),
            )  # fmt: skip

    def _config(self, member: Member) -> str:
        host = host_of(member.number)
        others = [other.address for other in self.here if other is not member]
        said: dict[str, Any] = {
            "name": f"broker-{member.number}",
            "listen": f"{host}:{member.port}",
            "advertise": member.address,
            "join": others,
            "data": str(member.folder),
            "scheme": self._scheme,
            "admin": f"{host}:{member.admin}",
            "wire_versions": list(member.versions),
            **self._settings,
        }
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in said.items())

    async def leave(self, member: Member) -> None:
        """Have it hand everything over and go, and wait until it is gone."""
        assert member.process is not None
        member.process.send_signal(signal.SIGUSR1)
        code = await self.ended(member)
        assert code == 0, f"broker {member.number} was to leave, and {_how(code)}; see {member.log}"
        member.has_left = True

    async def stop_gently(self, member: Member) -> None:
        """SIGTERM: it drains, and ends."""
        assert member.process is not None
        member.process.terminate()
        code = await self.ended(member)
        assert code == 0, f"broker {member.number} was to stop, and {_how(code)}; see {member.log}"

    async def ended(self, member: Member, within: float = STOP_S) -> int | None:
        """Wait until its process has ended; its code, None where it has not."""
        assert member.process is not None
        until = time.monotonic() + within
        while member.process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(_POLL_S)
        return member.process.returncode

    # -- faults --------------------------------------------------------------------------------------------------------

    def kill(self, members: Iterable[Member]) -> None:
        """SIGKILL, all at once."""
        victims = [member for member in members if member.is_up]
        for member in victims:
            assert member.process is not None
            member.process.kill()
        for member in victims:
            assert member.process is not None
            member.process.wait()
            _close_input(member.process)

    def freeze(self, member: Member) -> None:
        """SIGSTOP."""
        assert member.process is not None
        member.process.send_signal(signal.SIGSTOP)
        member.is_stopped = True

    def thaw(self, member: Member) -> None:
        """SIGCONT."""
        if member.is_up and member.is_stopped:
            assert member.process is not None
            member.process.send_signal(signal.SIGCONT)
        member.is_stopped = False

    def heal(self) -> None:
        """No door is shut, nobody is frozen, all that belong to the network run."""
        self.doors.heal()
        for member in self.here:
            self.thaw(member)
            if not member.is_up:
                self.start(member)

    # -- seeing --------------------------------------------------------------------------------------------------------

    @property
    def here(self) -> list[Member]:
        """Those that belong to the network, up or down."""
        return [member for member in self.members if member.starts and not member.has_left]

    @property
    def up(self) -> list[Member]:
        return [member for member in self.here if member.is_up and not member.is_stopped]

    def fallen(self) -> list[str]:
        """Processes that ended by themselves, which none should."""
        return [
            f"broker {member.number} {_how(member.process.returncode)}; see {member.log}"
            for member in self.here
            if member.process is not None and member.process.poll() not in (None, -signal.SIGKILL, 0)
        ]

    async def wait_ready(self, members: Iterable[Member], within: float = READY_S) -> None:
        """Wait until brokers say that they are ready."""
        until = time.monotonic() + within
        said = "nothing"
        for member in members:
            while True:
                status, said = await self.ask(member, "/readyz")
                if status == 200:
                    break
                if not member.is_up:
                    raise AssertionError(f"broker {member.number} ended when it was to be ready; see {member.log}")
                if time.monotonic() > until:
                    raise AssertionError(f"broker {member.number} is not ready after {within:.0f} s: {said}")
                await asyncio.sleep(_POLL_S)

    async def ask(self, member: Member, path: str) -> tuple[int, str]:
        """What a broker says over HTTP: the status, 0 where it says nothing, and the text."""
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(host_of(member.number), member.admin)
                try:
                    writer.write(f"GET {path} HTTP/1.0\r\nHost: broker\r\n\r\n".encode())
                    answer = (await reader.read(-1)).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            return 0, str(error)
        head, _, body = answer.partition("\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body

    async def observed(self, *names: str) -> dict[str, int]:
        """What brokers have observed in their present lives, by names of the protocol, added up."""
        found = dict.fromkeys(names, 0)
        for member in self.up:
            _, text = await self.ask(member, "/metrics")
            for name in names:
                for line in text.splitlines():
                    if line.startswith(f'meetpoint_observed_total{{name="{name}"}} '):
                        found[name] += int(float(line.rsplit(" ", 1)[1]))
        return found

    async def close(self) -> None:
        """End all processes, and close all doors."""
        for member in self.members:
            if member.is_up:
                self.thaw(member)
                assert member.process is not None
                member.process.terminate()
        until = time.monotonic() + STOP_S
        for member in self.members:
            await self.ended(member, max(0.0, until - time.monotonic())) if member.process else None
        self.kill(self.members)
        for member in self.members:
            if member.process is not None:
                _close_input(member.process)
        await self.doors.close()


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()


def _how(code: int | None) -> str:
    return "still runs" if code is None else f"ended with code {code}"


MEETPOINT = (sys.executable, "-m", "meetpoint.cli")


class Client:
    """A process of publishers or subscribers (`load`)."""

    def __init__(self, role: str, plan: Path, log: Path) -> None:
        self._log = log.with_suffix(".log")
        out: IO[bytes]
        with self._log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.load", role, str(plan), str(log)],
                stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def check(self) -> None:
        """It should still run."""
        if self.process.poll() is not None:
            said = self._log.read_text().strip().splitlines()[-1:]
            raise AssertionError(f"a client {_how(self.process.returncode)}: {said}; see {self._log}")

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    async def end(self, within: float) -> None:
        """Close its standard input and wait until it has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        until = time.monotonic() + within
        while self.process.poll() is None and time.monotonic() < until:
            await asyncio.sleep(_POLL_S)
        if self.process.returncode != 0:
            said = self._log.read_text().strip().splitlines()[-1:]
            raise AssertionError(f"a client {_how(self.process.returncode)} at its end: {said}; see {self._log}")

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self._reap()

    def _reap(self) -> None:
        self.process.wait()
        _close_input(self.process)
