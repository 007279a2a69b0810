"""A broker's index is compiled by another process, before the broker needs it.

With many subscriptions a node matches by compiled loops (`meetpoint[fast]`). They are compiled when they are first
called, which takes half a minute after an installation or an upgrade, and a broker that stands still for so long is
taken for lost by everybody. So a broker whose loops are not kept on disk goes on without an index, and once somebody
wants one has a child compile them; one that has very many filters on its disk waits for it before it takes them up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, Final

import meetpoint
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.logs import Log
from meetpoint.matching.matcher import postponed_index
from meetpoint.node.runtime.records import Record

__all__ = ["are_kept", "warm_up"]

COMPILE_S_MAX: Final = 600.0
"""A child that takes longer is ended."""
WAIT_FROM = 10_000
"""So many filters are not worth serving without an index."""
_OF_FILTERS: Final = ("subscription/", "placed/")
LOOK_S: Final = 0.25
"""How often it is looked whether anyone wants an index."""
MODULE: Final = "meetpoint.matching.index.warmup"
_KERNELS: Final = Path(meetpoint.__file__).parent / "matching" / "index" / "kernels"
_MARK: Final = f"meetpoint-{sys.implementation.cache_tag}.warm"
"""`MARK` of the module, which is not imported for it: it brings NumPy and Arrow."""


async def warm_up(
    config: BrokerConfig,
    records: Iterable[Record],
    log: Log,
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
) -> None:
    """Have loops compiled where there is a compiler and they are not kept; waited for where records hold many filters.

    A broker without data is one of a test or of a notebook, and left alone.
    """
    if config.data is None or find_spec("numba") is None or are_kept(_folders(os.environ)):
        return
    has_many = sum(record.name.startswith(_OF_FILTERS) for record in records) >= WAIT_FROM
    compiling = spawn(_compile(log, at_once=has_many))
    if has_many:
        await asyncio.wait([compiling])


def are_kept(folders: Iterable[Path]) -> bool:
    """Whether one of the folders has loops that were compiled after their source came here."""
    kept = [path.stat().st_mtime for folder in folders for path in folder.rglob(_MARK)]
    return max(kept, default=0.0) > max(path.stat().st_mtime for path in _KERNELS.glob("*.py"))


def _folders(environment: Mapping[str, str]) -> list[Path]:
    """Where numba keeps code, as its settings say: in a folder of its own, beside the source, or at the user's."""
    if folder := environment.get("NUMBA_CACHE_DIR"):
        return [Path(folder)]
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", os.sep)) / ".cache"
    return [_KERNELS / "__pycache__", Path(home) / "numba"]


async def _compile(log: Log, *, at_once: bool) -> None:
    with postponed_index() as postponed:
        while not (at_once or postponed.is_wanted):
            await asyncio.sleep(LOOK_S)
        began = monotonic()
        log.say(logging.INFO, "index_compiling", todo="nothing; it happens once for each version that is installed")
        code = await _run_child()
    if code == 0:
        log.say(logging.INFO, "index_compiled", seconds=round(monotonic() - began, 1))
    else:
        todo = "set NUMBA_CACHE_DIR to a folder that this user may write to; else it stands still once per start"
        log.say(logging.WARNING, "index_not_compiled", code=code, todo=todo)


async def _run_child() -> int | None:
    """How it ended; None where it took too long."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            sys.executable, "-m", MODULE, "--attached",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        )
    )  # fmt: skip
    try:
        child = await asyncio.shield(starting)
        return await asyncio.wait_for(child.wait(), COMPILE_S_MAX)
    except TimeoutError:
        return None
    finally:
        child = await starting  # also where this was ended while it began
        if child.returncode is None:
            child.kill()
            await child.wait()
