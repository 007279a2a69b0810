"""From one version of the wire to the next, broker by broker, while clients publish and subscribe."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.brokers.fleet import Fleet
from tests.brokers.killing import Load
from tests.brokers.proxy import CLIENTS

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
        assert fleet.doors.spoken
        assert {version for _, _, version in fleet.doors.spoken} == {1}
        for member in fleet.members:
            await fleet.stop_gently(member)
            member.versions = NEW
            fleet.start(member)
            await fleet.wait_ready([member])
            await load.until_acknowledged(50)
            if member is fleet.members[1]:
                _check_mixture(fleet)
        fleet.doors.spoken.clear()
        await load.until_acknowledged(100)
        between = {version for source, _, version in fleet.doors.spoken if source != CLIENTS}
        assert between == {2}, "brokers that know both versions speak the newer one"
        verdict = await load.finish()
        assert verdict.is_good, verdict.told()
        assert verdict.acknowledged == verdict.asked
        assert verdict.expected > 500
    finally:
        load.close()
        await fleet.close()


def _check_mixture(fleet: Fleet) -> None:
    """Two are new and two are old: the new ones speak the new version, to each other only."""
    new, old = (0, 1), (2, 3)
    spoken = fleet.doors.spoken
    assert any(spoken[one, other, 2] for one in new for other in new), "no frame of version 2 between the new ones"
    assert any(spoken[one, other, 1] for one in new for other in old), "no frame of version 1 from a new to an old one"
    assert not any(version == 2 and {source, target} & set(old) for source, target, version in spoken)


def test_a_rolling_restart_from_version_1_to_2_loses_nothing() -> None:
    folder = Path(tempfile.mkdtemp(prefix="meetpoint-rolling-"))
    try:
        asyncio.run(asyncio.wait_for(_roll(folder), 240))
    except BaseException as error:
        error.add_note(f"logs are in {folder}")
        raise
    shutil.rmtree(folder)
