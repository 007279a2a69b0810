"""A broker on a machine of which something is wrong: its disk, its clock.

    python -m tests.processes.machine DESCRIPTOR SECONDS broker --config FILE ...

is `meetpoint broker ...` with a clock that is so many seconds fast, and does meanwhile what it is told through a socket
it was given, a line of JSON each: `fail` system calls (`syscalls`), `set` the clock. The broker itself is as it always
is. `Machine` is the other end of the socket.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.processes.syscalls import Calls

__all__ = ["Machine"]

ANSWER_S = 120.0
_DONE = b"done\n"


class Machine:
    """What can be done to the machine of one broker."""

    def __init__(self, clock_by_s: float = 0.0) -> None:
        self._clock_by_s = clock_by_s
        self._ours, self._theirs = socket.socketpair()
        self._ours.settimeout(ANSWER_S)
        self._heard = bytearray()

    @property
    def descriptor(self) -> int:
        """What the process of the broker is to inherit."""
        return self._theirs.fileno()

    @property
    def command(self) -> tuple[str, ...]:
        """What runs instead of `meetpoint`."""
        return (sys.executable, "-m", __name__, str(self.descriptor), str(self._clock_by_s))

    def fail(self, call: str, error: str, times: int = 1, file: str = "store.db-wal") -> None:
        """The next calls for a file whose name ends so fail."""
        self._tell("fail", call, error, times, file)

    def failed(self) -> list[tuple[str, str]]:
        """Of a process that has ended: which call failed for which file, and all calls that it made after it."""
        self._ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._heard += self._ours.recv(1 << 20)
        self._ours.settimeout(ANSWER_S)
        found = [json.loads(line) for line in self._heard.splitlines()]
        self._heard.clear()
        return [(call, Path(path).name) for call, path in found]

    def set_clock(self, by_s: float) -> None:
        """The clock on the wall shows so much more, or less, than the right time from now on, in later lives too."""
        self._clock_by_s = by_s
        self._tell("set", by_s)

    def _tell(self, what: str, *arguments: Any) -> None:
        self._ours.sendall(json.dumps([what, *arguments]).encode() + b"\n")
        while _DONE not in self._heard:
            more = self._ours.recv(1 << 20)
            assert more, f"the broker's process is gone and did not do this: {what} {arguments}"
            self._heard += more
        at = self._heard.index(_DONE)
        del self._heard[at : at + len(_DONE)]

    def close(self) -> None:
        """No more is told."""
        self._ours.close()
        self._theirs.close()


class _Clock:
    """The clock on the wall. Whoever asks `time` for it from now on is told what it was set to."""

    def __init__(self, by_s: float) -> None:
        self._by_ns = int(by_s * 1e9)
        self._right_ns = time.time_ns
        time.time_ns = self.now_ns
        time.time = lambda: self.now_ns() / 1e9

    def now_ns(self) -> int:
        return self._right_ns() + self._by_ns

    def set(self, by_s: float) -> None:
        self._by_ns = int(by_s * 1e9)


def _obey(told: socket.socket, calls: Calls, clock: _Clock) -> None:
    with told.makefile("rb") as lines:
        for line in lines:
            what, *arguments = json.loads(line)
            if what == "fail":
                calls.fail(*arguments)
            else:
                clock.set(*arguments)
            told.sendall(_DONE)


def main() -> None:
    told = socket.socket(fileno=int(sys.argv.pop(1)))
    os.set_inheritable(told.fileno(), False)
    calls = Calls(lambda call, path: told.sendall(json.dumps([call, path]).encode() + b"\n"))
    clock = _Clock(float(sys.argv.pop(1)))
    threading.Thread(target=_obey, args=(told, calls, clock), name="machine", daemon=True).start()
    from meetpoint.cli import main as meetpoint  # once the clock is set, as it is looked up when it is imported

    meetpoint()


if __name__ == "__main__":
    main()
