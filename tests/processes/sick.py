"""Brokers of which some are on sick machines, under load, and judged in the end."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.processes.checking import Verdict
from tests.processes.fleet import Fleet, Member
from tests.processes.killing import Load

__all__ = ["Ward", "until", "ward"]

PATIENCE_S = 180.0
ALL_S = 600.0


class Ward:
    """A fleet and its clients."""

    def __init__(self, folder: Path, per_s: float) -> None:
        self.folder = folder
        self.fleet = Fleet(folder)
        self.load = Load(folder, seed=12, per_s=per_s)

    async def admit(self, count: int, equip: Callable[[Member], None] = lambda member: None) -> None:
        """So many brokers, each equipped before it starts, and clients that publish and subscribe."""
        fleet = self.fleet
        for _ in range(count):
            equip(await fleet.prepare())
        await fleet.begin()
        await self.load.begin([member.address for member in fleet.members])

    async def metric(self, member: Member, name: str) -> float:
        """A number that a broker tells of itself."""
        _, text = await self.fleet.ask(member, "/metrics")
        found = [line for line in text.splitlines() if line.startswith(f"meetpoint_{name} ")]
        return float(found[0].rsplit(" ", 1)[1]) if found else 0.0

    async def judge(self, expected: int) -> Verdict:
        """All is well again, and was so for clients: nothing that was acknowledged is lost, all was acknowledged."""
        await self.fleet.wait_ready(self.fleet.here)
        await self.load.until_acknowledged(50)
        verdict = await self.load.finish()
        assert verdict.is_good, verdict.told()
        assert verdict.acknowledged == verdict.asked, verdict.told()
        assert verdict.expected > expected, verdict.told()
        return verdict


def ward(work: Callable[[Ward], Coroutine[Any, Any, None]], per_s: float = 25.0) -> None:
    """Run a test on brokers of its own, whose logs stay where it fails."""
    folder = Path(tempfile.mkdtemp(prefix="meetpoint-sick-"))

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Ward]:
        found = Ward(folder, per_s)
        try:
            yield found
        finally:
            found.load.close()
            await found.fleet.close()

    async def main() -> None:
        async with opened() as found:
            await asyncio.wait_for(work(found), ALL_S)

    try:
        asyncio.run(main())
    except BaseException as error:
        error.add_note(f"logs are in {folder}")
        raise
    shutil.rmtree(folder)


async def until(holds: Callable[[], Coroutine[Any, Any, bool]], what: str) -> None:
    """Wait until something is so."""
    for _ in range(int(PATIENCE_S / 0.1)):
        if await holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"after {PATIENCE_S:.0f} s it is not so that {what}")
