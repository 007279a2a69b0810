"""Questions to all brokers, while one is away, comes back or has left."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import meetpoint as mp
from meetpoint.local_network import LocalNetwork
from tests.client.running import run


async def _subscribe_at_each(here: LocalNetwork, brokers: int) -> list[str]:
    """A durable subscription at every broker."""
    for number in range(brokers):
        async with mp.connect(here.url_of(number)) as net:
            await net.subscribe("n >= 0", durable=f"at-{number}")
    return [f"at-{number}" for number in range(brokers)]


def test_a_broker_that_does_not_answer_is_named_and_a_part_is_to_be_had_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=3, data=tmp_path) as here, mp.connect(here.url_of(0)) as net:
            await _subscribe_at_each(here, 3)
            gone = here.addresses[2]
            await here.stop_broker(2, drain=False)
            async with mp.connect(here.url_of(0), timeout=1) as hasty:
                for ask in (hasty.subscriptions, hasty.dead_letters, lambda: hasty.journal("x")):
                    with pytest.raises(mp.NetworkError, match=f"1 of 3 brokers did not answer: .*{gone}"):
                        await ask()
            began = time.monotonic()
            assert await net.dead_letters(partial_ok=True) == []
            assert await net.journal("x", partial_ok=True) == []
            assert [held.name for held in await net.subscriptions(partial_ok=True)] == ["at-0", "at-1"]
            assert time.monotonic() - began < net.timeout_s

    run(main())


def test_a_broker_that_restarts_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=3, data=tmp_path) as here, mp.connect(here.url_of(0)) as net:
            names = await _subscribe_at_each(here, 3)
            await here.stop_broker(1, drain=False)
            asked = asyncio.create_task(net.subscriptions())
            letters = asyncio.create_task(net.dead_letters())
            await asyncio.sleep(0.3)
            assert not asked.done()
            await here.start_broker(1)
            assert [held.name for held in await asked] == names
            assert await letters == []

    run(main())


def test_a_broker_that_has_just_left_is_soon_asked_no_more(tmp_path: Path) -> None:
    """Others hear of it one after the other, so that the one that is asked may list it for a while."""

    async def main() -> None:
        async with mp.local(brokers=4, data=tmp_path) as here, mp.connect(here.url_of(0)) as net:
            names = await _subscribe_at_each(here, 4)
            await here.leave_broker(3)
            assert await net.dead_letters() == []
            assert [held.name for held in await net.subscriptions()] == names

    run(main())
