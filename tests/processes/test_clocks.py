"""Clocks that are set, while brokers run and between their lives: nothing is lost, nothing ends early or never."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from meetpoint.api.client_messages import SubscriptionsReply, SubscriptionsRequest
from meetpoint.api.outcomes import Published, Stored
from meetpoint.api.requests import Attach, Subscribe, SubscriptionOptions
from tests.broker.talking import Caller, calling, event
from tests.processes import syscalls
from tests.processes.fleet import Fleet, Member
from tests.processes.machine import Machine
from tests.processes.proxy import host_of
from tests.processes.sick import ALL_S, Ward, until, ward

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="brokers have addresses of their own on loopback"),
    pytest.mark.skipif(bool(syscalls.why_not()), reason=syscalls.why_not()),
    pytest.mark.xdist_group("brokers"),
]

HOUR_S = 3600.0
JUMPS_S = (HOUR_S, -HOUR_S, 30.0)
"""What the clocks of three brokers are set by."""


def test_clocks_that_jump_while_brokers_run_and_between_their_lives_lose_and_repeat_nothing() -> None:
    async def main(here: Ward) -> None:
        with contextlib.ExitStack() as undo:

            def equip(member: Member) -> None:
                member.machine = Machine()
                undo.callback(member.machine.close)

            await here.admit(len(JUMPS_S), equip)
            _set_all(here, JUMPS_S)
            await here.load.until_acknowledged(50)
            for member in here.fleet.members:  # each with work under way, to come back with the clock as it is now
                await _come_back(here, [member])
            _set_all(here, (0.0, 0.0, -30.0))
            await _come_back(here, here.fleet.members)
            verdict = await here.judge(300)
            assert not verdict.dead

    ward(main)


def _set_all(here: Ward, by_s: Sequence[float]) -> None:
    for member, each_s in zip(here.fleet.members, by_s, strict=True):
        assert member.machine is not None
        member.machine.set_clock(each_s)


async def _come_back(here: Ward, members: list[Member]) -> None:
    here.fleet.kill(members)
    for member in members:
        here.fleet.start(member)
    await here.fleet.wait_ready(members)
    await here.load.until_acknowledged(20)


@contextlib.contextmanager
def machine(member: Member) -> Iterator[Machine]:
    member.machine = found = Machine()
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_lifetimes_are_as_long_as_they_were_said_to_be_when_the_clock_is_set(tmp_path: Path, by_s: float) -> None:
    async def main() -> None:
        fleet = Fleet(tmp_path)
        try:
            member = await fleet.prepare()
            with machine(member) as sick:
                fleet.start(member)
                await fleet.wait_ready([member])
                async with calling(f"{host_of(0)}:{member.port}") as client:
                    await _subscribe(client, "long", 600)
                    await client.get(Attach("long", 10))
                    sick.set_clock(by_s)
                    await _subscribe(client, "short", 1)
                    await _until_names(client, {"long"})
                    (published,) = await client.publish(event(1, x=1))
                    assert isinstance(published, Published)
                    assert len(await client.notified(1)) == 1
                said = [line for line in member.log.read_text().splitlines() if "event=clock_set" in line]
                assert len(said) == 1
                _, metrics = await fleet.ask(member, "/metrics")
                off_s = metrics.partition("\nmeetpoint_clock_off_seconds ")[2].partition("\n")[0]
                assert float(off_s) == pytest.approx(by_s, abs=1)
                await fleet.stop_gently(member)
        finally:
            await fleet.close()

    asyncio.run(asyncio.wait_for(main(), ALL_S))


async def _subscribe(client: Caller, name: str, seconds: int) -> None:
    word = await client.get(
        Subscribe(name, "x > 0", SubscriptionOptions(durable=True, lifetime_us=seconds * 1_000_000))
    )
    assert isinstance(word, Stored), word


async def _until_names(client: Caller, wanted: set[str]) -> None:
    async def are_so() -> bool:
        held = await client.get(SubscriptionsRequest())
        assert isinstance(held, SubscriptionsReply)
        return {each.name for each in held.subscriptions} == wanted

    await until(are_so, f"only {wanted} are held")
