"""From one version of the wire to the next, broker by broker, while clients publish and subscribe."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.processes.fleet import Fleet
from tests.processes.killing import Load
from tests.processes.proxy import CLIENTS
from tests.processes.sick import ALL_S, until

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="brokers have addresses of their own on loopback"),
    pytest.mark.xdist_group("brokers"),
]

BROKERS = 4
OLD, NEW = (1, 1), (1, 2)


async def _roll(folder: Path) -> None:
    fleet = Fleet(folder)
    load = Load(folder, seed=3, per_s=25.0)
    try:
        await fleet.begin(BROKERS, OLD)
        await load.begin([member.address for member in fleet.members])
        await load.until_acknowledged(100)
        await until(lambda: _have_spoken(fleet, (0, 1, 2, 3), (0, 1, 2, 3), 1), "brokers speak version 1")
        assert {version for _, _, version in fleet.doors.spoken} == {1}
        for member in fleet.members:
            await fleet.stop_gently(member)
            member.versions = NEW
            fleet.start(member)
            await fleet.wait_ready([member])
            await load.until_acknowledged(50)
            if member is fleet.members[1]:
                await _check_mixture(fleet)
        fleet.doors.spoken.clear()
        await load.until_acknowledged(100)
        await until(lambda: _have_spoken(fleet, (0, 1, 2, 3), (0, 1, 2, 3), 2), "brokers speak version 2")
        between = {version for source, _, version in fleet.doors.spoken if source != CLIENTS}
        assert between == {2}, "brokers that know both versions speak the newer one"
        verdict = await load.finish()
        assert verdict.is_good, verdict.told()
        assert verdict.acknowledged == verdict.asked
        assert verdict.expected > 500
    finally:
        load.close()
        await fleet.close()


async def _have_spoken(fleet: Fleet, some: Sequence[int], others: Sequence[int], version: int) -> bool:
    return any(fleet.doors.spoken[one, other, version] for one in some for other in others)


async def _check_mixture(fleet: Fleet) -> None:
    """Two are new and two are old: the new ones speak the new version, to each other only."""
    new, old = (0, 1), (2, 3)
    await until(lambda: _have_spoken(fleet, new, new, 2), "the new ones speak version 2")
    await until(lambda: _have_spoken(fleet, new, old, 1), "a new one speaks version 1 to an old one")
    assert not any(version == 2 and {source, target} & set(old) for source, target, version in fleet.doors.spoken)


def test_a_rolling_restart_from_version_1_to_2_loses_nothing() -> None:
    folder = Path(tempfile.mkdtemp(prefix="meetpoint-rolling-"))
    try:
        asyncio.run(asyncio.wait_for(_roll(folder), ALL_S))
    except BaseException as error:
        error.add_note(f"logs are in {folder}")
        raise
    shutil.rmtree(folder)
