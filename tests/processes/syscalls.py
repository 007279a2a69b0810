"""System calls of this process that fail when they are told to, as those of a sick disk do.

A seccomp filter hands chosen calls of all threads to one thread, which lets them pass or has them fail: with which
error, how often, and for which files, may change at any time. So a real broker, with the real SQLite, sees what a
kernel says of a real disk. It takes Linux 5.5 and no rights. The calls are those with which SQLite writes and syncs;
Python lets go of its lock around each of them, so that the thread that decides can run.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import functools
import os
import platform
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Final

__all__ = ["CALLS", "Calls", "why_not"]

_NUMBERS: Final = {
    "x86_64": (0xC000003E, 317, {"fsync": 74, "fdatasync": 75, "pwrite64": 18}),
    "aarch64": (0xC00000B7, 277, {"fsync": 82, "fdatasync": 83, "pwrite64": 68}),
}
"""By machine: what it is called in a filter, the number of seccomp(2), and those of the calls."""
CALLS: Final = ("fsync", "fdatasync", "pwrite64")

_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER = 1
_NEW_LISTENER = 1 << 3
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_REQUEST = struct.Struct("=QII iIQ6Q")
"""struct seccomp_notif: id, pid, flags; number, machine, where, arguments."""
_REPLY = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, error, flags."""
_RECEIVE = 3 << 30 | _REQUEST.size << 16 | ord("!") << 8
_SEND = 3 << 30 | _REPLY.size << 16 | ord("!") << 8 | 1
_CONTINUE = 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@functools.cache
def why_not() -> str:
    """Why calls cannot be made to fail here, found by trying in another process; empty where they can."""
    if sys.platform != "linux" or platform.machine() not in _NUMBERS:
        return "needs Linux on x86_64 or aarch64"
    tried = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"needs Linux 5.5 that lets a process filter its calls: {tried.stderr!r}"


class Calls:
    """The chosen calls of this process: made in its main thread, before it has others.

    `told` hears of each call that fails, and of all to the same files after it: of those there should be none.
    """

    def __init__(self, told: Callable[[str, str], None] = lambda call, path: None) -> None:
        self._told = told
        self._lock = threading.Lock()
        self._failing: dict[str, tuple[int, int, str]] = {}
        self._has_failed = False
        machine, seccomp, numbers = _NUMBERS[platform.machine()]
        self._names = {number: name for name, number in numbers.items()}
        self._listener = _install(machine, seccomp, tuple(self._names))
        threading.Thread(target=self._decide, name="calls", daemon=True).start()

    def fail(self, call: str, error: str, times: int, file: str) -> None:
        """From now on a call fails, so often, where its file's path ends so."""
        with self._lock:
            self._failing[call] = (getattr(errno, error), times, file)

    def _decide(self) -> None:
        while True:
            request = bytearray(_REQUEST.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, request)
            except OSError as error:
                if error.errno == errno.ENOENT:  # whoever called is gone
                    continue
                return
            id_, _, _, number, _, _, descriptor, *_ = _REQUEST.unpack(request)
            code = self._error(self._names[number], descriptor)
            reply = _REPLY.pack(id_, 0, -code, 0 if code else _CONTINUE)
            try:
                fcntl.ioctl(self._listener, _SEND, reply)
            except OSError as error:
                if error.errno != errno.ENOENT:
                    raise

    def _error(self, call: str, descriptor: int) -> int:
        path = _path(descriptor)
        with self._lock:
            code, times, file = self._failing.get(call, (0, 0, ""))
            fails = times > 0 and path.endswith(file)
            if fails:
                self._failing[call] = (code, times - 1, file)
                self._has_failed = True
        if self._has_failed:
            self._told(call, path)
        return code if fails else 0


def _path(descriptor: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _install(machine: int, seccomp: int, numbers: tuple[int, ...]) -> int:
    """The descriptor on which the calls are told."""
    count = len(numbers)
    steps = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    steps += [(_JUMP_EQUAL, count - at, 0, number) for at, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _NOTIFY)]
    packed = b"".join(struct.pack("=HBBI", *step) for step in steps)
    program = _Program(len(steps), packed)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    listener = libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp: calls cannot be made to fail here")
    return int(listener)


if __name__ == "__main__":
    Calls()
