"""`python -m meetpoint.matching.index.warmup`: compile all kernels that an index needs while subscriptions change.

Kernels are compiled when they are first called, which takes half a minute the first time, and kept on disk for all
later processes. A process that must not block for so long has another one compile them beforehand. That one runs at a
lower priority (`NICE`), and waits for another process that is compiling already. It ends with 0 if the code is kept,
and leaves a file that says so (`MARK`); with `NOT_KEPT` if there is no folder to keep it in, so that each process
compiles its own. With `--attached` it ends at once when its standard input is closed, that is, when its parent is gone.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.matching.index.lsm import MEMTABLE_MAX, MEMTABLE_MAX_ALONE, Index

if sys.platform != "win32":
    import fcntl

__all__ = ["MARK", "NOT_KEPT", "warm_up"]

NOT_KEPT: Final = 3
NICE: Final = 10
MARK: Final = f"meetpoint-{sys.implementation.cache_tag}.warm"
"""A file beside the code that is kept."""
_FILTERS: Final = (
    "i >= 0 OR i IS NULL OR f < 1",
    "i = {n} AND f > {n}.5",
    "d BETWEEN {n} AND {n}.25 OR b",
    "s LIKE 'a{n}%' AND NOT (i = {n})",
    "s LIKE '%b{n}' OR s LIKE '%c{n}%'",
    "s LIKE 'a%b{n}%c' AND s NOT LIKE '%x'",
    "s IN ('k{n}', 'l{n}') AND u IS NOT NULL",
    "u IS NULL AND s >= 'm{n}' AND o.x != {n}",
    "t >= TIMESTAMP '2026-01-01 00:00:{seconds}' AND NOT b",
)
"""A filter for each kind of constraint."""


def warm_up() -> bool:
    """Use an index as brokers do, so that all kernels are compiled; return whether their code is kept."""

    def filters(first: int, count: int) -> list[tuple[int, str]]:
        return [
            (n, _FILTERS[n % len(_FILTERS)].format(n=n, seconds=f"{n % 60:02}")) for n in range(first, first + count)
        ]

    parsed = [(n, parse_filter(text)) for n, text in filters(0, 2 * MEMTABLE_MAX_ALONE)]
    index: Index[int] = Index.from_filters(parsed)
    _match(index)
    for n, text in filters(2 * MEMTABLE_MAX_ALONE, 4 * MEMTABLE_MAX):
        index.add(n, parse_filter(text))
    _match(index)
    for n, _ in parsed[::2]:
        index.remove(n)
    for n, text in filters(2 * MEMTABLE_MAX_ALONE, MEMTABLE_MAX):
        index.update(n, parse_filter(f"({text}) AND z = 1"))
    _match(index)
    index.compact()
    _match(index)
    folder = _folder()
    if folder is not None:
        (folder / MARK).touch()
    return folder is not None


def _folder() -> Path | None:
    """Return where code is kept."""
    from meetpoint.matching.index.kernels.build import group

    loop: Any = group
    path = loop.stats.cache_path
    return None if path is None else Path(path)


@contextmanager
def _alone() -> Iterator[None]:
    """Let one process at a time compile: those that come after it find the code that it kept."""
    folder = _folder()
    if folder is None or sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _match(index: Index[int]) -> None:
    time = parse_timestamp("2026-01-01T00:00:30Z")
    plain = {"i": 8, "f": 9.5, "d": 9, "b": True, "s": "a10xb", "t": time, "o": {"x": 1}}
    many = "".join(
        f"c{n}" for n in range(2 * MEMTABLE_MAX_ALONE)
    )  # more patterns fit it than are looked through one by one
    odd = {**plain, "i": 2**80, "d": Decimal("8.3001"), "u": 1, "s": many, "b": False}  # not read like most
    for event in ({}, plain, odd, {"s": "größe 🙂", "f": None}):
        index.match(event)


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    if "--attached" in sys.argv:
        threading.Thread(target=_end_with_input, name="attached", daemon=True).start()
    if sys.platform != "win32":
        os.nice(NICE)
    with _alone():
        is_kept = warm_up()
    sys.exit(0 if is_kept else NOT_KEPT)
