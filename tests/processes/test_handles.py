"""A broker that has hardly any file handles: it serves whom it has, says no to others, and keeps what it needs."""

from __future__ import annotations

import asyncio
import contextlib
import sys

import pytest

from meetpoint.api.handshake import Hello, HelloRejected, Welcome
from meetpoint.api.messages import Message
from meetpoint.api.outcomes import Published
from tests.broker.talking import Caller, calling, event, raw
from tests.processes.fleet import Member
from tests.processes.proxy import host_of
from tests.processes.sick import Ward, until, ward

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="brokers have addresses of their own on loopback"),
    pytest.mark.xdist_group("brokers"),
]

LIMIT = 120
"""How many handles the broker may have: a fourth of them is kept from clients."""
KNOCKS = 2 * LIMIT


def at(member: Member) -> str:
    """Where a broker listens itself, whatever is at its door."""
    return f"{host_of(member.number)}:{member.port}"


def poor(member: Member) -> None:
    """The first broker may have few handles, and cannot have more."""
    if not member.number:
        member.within = ("sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh")


async def _fill(member: Member, undo: contextlib.AsyncExitStack) -> tuple[int, HelloRejected]:
    """Connect clients until one is not welcome; how many were, and what that one was told."""
    for count in range(LIMIT):
        caller = await undo.enter_async_context(raw(at(member)))
        caller.send(Hello((1, 2), "", None, f"filling {count}"))
        answer = await caller.next(Message)
        if isinstance(answer, HelloRejected):
            return count, answer
    raise AssertionError(f"{LIMIT} clients were welcome")


async def _knock(member: Member, undo: contextlib.AsyncExitStack) -> list[Caller]:
    """Connect and say nothing, more often than there are handles."""
    knocking = []
    for _ in range(KNOCKS):
        with contextlib.suppress(ConnectionError):
            knocking.append(await undo.enter_async_context(raw(at(member))))
    return knocking


def test_without_file_handles_a_broker_serves_whom_it_has_and_reaches_other_brokers_and_nothing_is_lost() -> None:
    async def main(here: Ward) -> None:
        await here.admit(3, poor)
        first, second, _ = here.fleet.members
        assert "raise it (ulimit -n" in first.log.read_text()
        async with calling(at(first)) as early:
            async with contextlib.AsyncExitStack() as undo:
                count, answer = await _fill(first, undo)
                assert count > LIMIT // 4
                assert answer.retry
                assert "no file handles for more clients; ask another" in answer.reason
                await _knock(first, undo)
                (published,) = await early.publish(event(1, price=-1))
                assert isinstance(published, Published)
                here.fleet.kill([second])  # so that the first must dial it anew, and is dialled
                here.fleet.start(second)
                await here.fleet.wait_ready([second])
                await until(lambda: _are_linked(here), "the two brokers have found each other again")
                await here.load.until_acknowledged(50)
            await until(lambda: _are_refused(here, KNOCKS // 4), "many of those that knocked had to go at once")
            said = [line for line in first.log.read_text().splitlines() if "kind=file_handles" in line]
            assert 1 <= len(said) < 20, "it is said once for each client and each address, not each time"
            await until(lambda: _is_welcome(first), "a client is welcome again")
        await here.judge(200)

    ward(main)


async def _are_refused(here: Ward, count: int) -> bool:
    return await here.metric(here.fleet.members[0], 'refusals_total{kind="file_handles"}') > count


async def _are_linked(here: Ward) -> bool:
    await asyncio.sleep(0)
    return all(here.fleet.doors.connections(*way) for way in ((0, 1), (1, 0)))


async def _is_welcome(member: Member) -> bool:
    async with raw(at(member)) as caller:
        caller.send(Hello((1, 2), "", None, "late"))
        return isinstance(await caller.next(Message), Welcome)
