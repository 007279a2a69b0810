"""Nothing that was acknowledged is lost, whatever is done to brokers: `killing` does it, `checking` judges.

Twenty cycles here; MEETPOINT_KILL_CYCLES says how many else, in runs of fifty. MEETPOINT_KILL_SEED repeats what was
done in a run, MEETPOINT_KILL_SCHEME and MEETPOINT_KILL_OVERLAY take another scheme and another overlay.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from tests.processes.killing import DECK, EVENTS_PER_CYCLE, Run, cards, run
from tests.tiers import SOAK

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="brokers have addresses of their own on loopback"),
    pytest.mark.xdist_group("brokers"),
]

CYCLES = int(os.environ.get("MEETPOINT_KILL_CYCLES", "20"))
SCHEME = os.environ.get("MEETPOINT_KILL_SCHEME", "meet")
OVERLAY = os.environ.get("MEETPOINT_KILL_OVERLAY", "chord")
RUN_MAX = 50


def _first_seed() -> int:
    if said := os.environ.get("MEETPOINT_KILL_SEED"):
        return int(said)
    return random.SystemRandom().randrange(10**9) if SOAK else 8


def _runs() -> list[int]:
    """How many cycles each run has."""
    return [min(RUN_MAX, CYCLES - done) for done in range(0, CYCLES, RUN_MAX)]


@pytest.mark.parametrize("number", range(len(_runs())))
def test_brokers_are_killed_stopped_and_parted_and_nothing_is_lost(number: int) -> None:
    plan = Run(_first_seed() + number, _runs()[number], SCHEME, OVERLAY)
    folder = Path(tempfile.mkdtemp(prefix="meetpoint-kills-"))
    where = f"seed {plan.seed}, {plan.cycles} cycles; logs are in {folder}"
    try:
        verdict = asyncio.run(run(plan, folder))
    except BaseException as error:
        error.add_note(where)
        raise
    assert verdict.is_good, f"{where}\n{verdict.told()}"
    assert verdict.acknowledged == verdict.asked, f"{where}\n{verdict.told()}"
    assert verdict.expected >= EVENTS_PER_CYCLE * plan.cycles, f"{where}\n{verdict.told()}"
    assert verdict.kills >= plan.cycles // 2, f"{where}\n{verdict.told()}"
    assert verdict.kills_are_fair, f"{where}\n{verdict.told()}"
    print(verdict.told())  # noqa: T201 - `pytest -s` shows what was done
    shutil.rmtree(folder)


def test_twenty_cycles_have_everything_in_them() -> None:
    assert sorted(cards(random.Random(1), 20)) == sorted(DECK)
    assert list(cards(random.Random(1), 40)) != list(cards(random.Random(2), 40))
