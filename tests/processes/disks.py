"""A small disk: a file system in memory that is seen by whoever is told to, and nobody else.

A process of its own keeps the mount (`unshare`), brokers are started within its view (`SmallDisk.within`), and this
process looks at it through the keeper. It takes Linux that lets users make namespaces; no rights.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["SmallDisk", "why_not"]

MIB = 1 << 20
_FILLING = "filling"


@functools.cache
def why_not() -> str:
    """Why there can be no small disk here, found by trying; empty where there can."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs unshare and nsenter (util-linux)"
    tried = subprocess.run(
        ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, text=True, check=False
    )
    return "" if tried.returncode == 0 else f"needs the right to mount in a namespace: {tried.stderr.strip()}"


class SmallDisk:
    """One that is mounted at a folder."""

    def __init__(self, folder: Path, mib: int) -> None:
        folder.mkdir(exist_ok=True)
        mount = 'mount -t tmpfs -o "size=$1m" none "$0" && echo mounted && exec cat'
        self._keeper = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", mount, str(folder), str(mib)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._keeper.stdout is not None
        assert self._keeper.stdout.readline() == b"mounted\n"
        self.folder = Path(f"/proc/{self._keeper.pid}/root{folder}")
        """As this process sees it."""

    @property
    def within(self) -> tuple[str, ...]:
        """What a command comes after that is to see the disk."""
        view = ("nsenter", "--preserve-credentials", "-U", "-m", f"-t{self._keeper.pid}")
        return (*view, f"--wd={os.getcwd()}", "--no-fork")

    def fill(self) -> None:
        """No byte is left."""
        with (self.folder / _FILLING).open("ab", buffering=0) as file:
            for size in (MIB, 4096, 1):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def free(self) -> None:
        """There is room again."""
        (self.folder / _FILLING).unlink()

    def is_full(self) -> bool:
        """Whether nothing can be written."""
        try:
            with (self.folder / "tried").open("wb", buffering=0) as file:
                file.write(b"1")
        except OSError as error:
            return error.errno == errno.ENOSPC
        (self.folder / "tried").unlink()
        return False

    def set_read_only(self, is_so: bool) -> None:
        """Nobody may write, or all again; not while somebody has a file open to write."""
        mode = "ro" if is_so else "rw"
        folder = str(self.folder).removeprefix(f"/proc/{self._keeper.pid}/root")
        subprocess.run([*self.within, "mount", "-o", f"remount,{mode}", folder], check=True)

    def close(self) -> None:
        """It is gone with all that is on it."""
        self._keeper.communicate()
