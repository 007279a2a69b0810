"""Disks that are full, can only be read, or fail, under real brokers: what was acknowledged is never lost."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meetpoint.api.client_messages import (
    BrokerStatus,
    Notification,
    Request,
    StatusRequest,
    SubscriptionsReply,
    SubscriptionsRequest,
)
from meetpoint.api.ids import EventKey
from meetpoint.api.outcomes import Published, Refused
from meetpoint.api.requests import Acknowledge, Attach, Subscribe
from meetpoint.broker.broker import FAILED
from tests.broker.talking import Caller, calling, event
from tests.processes import disks, syscalls
from tests.processes.disks import SmallDisk
from tests.processes.fleet import Fleet, Member
from tests.processes.machine import Machine
from tests.processes.proxy import host_of
from tests.processes.sick import ALL_S, Ward, until, ward

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="brokers have addresses of their own on loopback"),
    pytest.mark.xdist_group("brokers"),
]
small = pytest.mark.skipif(bool(disks.why_not()), reason=disks.why_not())
failing = pytest.mark.skipif(bool(syscalls.why_not()), reason=syscalls.why_not())

WATERMARK_MAX = 256
"""Of so many events that are on their way a broker tells at once: more must not keep others from going on."""


@contextlib.contextmanager
def small_disk(member: Member, mib: int) -> Iterator[SmallDisk]:
    disk = SmallDisk(member.folder, mib)
    try:
        member.within = disk.within
        yield disk
    finally:
        disk.close()


def at(member: Member) -> str:
    """Where a broker listens itself, whatever is at its door."""
    return f"{host_of(member.number)}:{member.port}"


# -- full --------------------------------------------------------------------------------------------------------------


@small
def test_a_full_disk_refuses_publishes_while_all_other_brokers_deliver_and_nothing_is_lost() -> None:
    async def main(here: Ward) -> None:
        with contextlib.ExitStack() as undo:
            full: list[SmallDisk] = []

            def equip(member: Member) -> None:
                if not member.number:
                    full.append(undo.enter_context(small_disk(member, 12)))

            await here.admit(3, equip)
            await here.load.until_acknowledged(50)
            first, load = here.fleet.members[0], here.load
            before = load.count("asked")
            full[0].fill()
            await until(lambda: _says(here, first, "its disk is full"), "the broker says that its disk is full")
            assert full[0].is_full()
            assert await here.metric(first, "disk_full") == 1
            await _is_refused(first)
            await load.until_acknowledged(4 * WATERMARK_MAX)  # by the others
            await load.until_delivered(100)
            waiting, published = await here.metric(first, "unsynced_writes"), load.count("asked") - before
            assert waiting < 100 + 1.5 * published, "what is brought again and again makes no write each time"
            full[0].free()
            await here.judge(2000)
            assert await here.metric(first, "disk_full") == 0

    ward(main, per_s=80.0)


async def _says(here: Ward, member: Member, what: str) -> bool:
    _, said = await here.fleet.ask(member, "/readyz")
    return said.strip() == what


async def _is_refused(member: Member) -> None:
    """Who writes is told to come again; who asks is answered."""
    async with calling(at(member)) as client:
        answers = [*await client.publish(event(1, price=1000.5)), await client.get(Subscribe("late", "price > 5000"))]
        for refused in answers:
            assert isinstance(refused, Refused)
            assert refused.retry
            assert "disk is full" in refused.reason
        assert isinstance(await client.get(StatusRequest()), BrokerStatus)


@small
def test_a_broker_with_a_full_disk_goes_on_delivering_what_it_has(tmp_path: Path) -> None:
    async def main() -> None:
        fleet = Fleet(tmp_path)
        try:
            member = await fleet.prepare()
            with small_disk(member, 16) as disk:  # with 4 the log of many small commits may be all that fits
                fleet.start(member)
                await fleet.wait_ready([member])
                async with calling(at(member)) as client:
                    await client.subscribe("s", "x > 0")
                async with calling(at(member)) as client:
                    taken = await _published(client, range(1, 301))
                    await until(lambda: _wait_in_line(client, 300), "all that was published waits in the line")
                disk.fill()
                kept = await _deliver(member)
                disk.free()
                await fleet.wait_ready([member])
                async with calling(at(member)) as client:
                    taken += await _published(client, range(302, 303))
                fleet.kill([member])
                fleet.start(member)
                await fleet.wait_ready([member])
                async with calling(at(member)) as client:
                    await client.get(Attach("s", 1000))
                    got = set()
                    while taken[-1] not in got:
                        got.add((await client.next(Notification)).event)
                    assert kept <= got <= set(taken), "all that was not acknowledged, and nothing that was refused"
                await fleet.stop_gently(member)
        finally:
            await fleet.close()

    asyncio.run(asyncio.wait_for(main(), ALL_S))


async def _published(client: Caller, numbers: range) -> list[EventKey]:
    answers = await client.publish(*(event(number, x=1) for number in numbers))
    assert all(isinstance(answer, Published) for answer in answers), answers
    return [answer.event for answer in answers if isinstance(answer, Published)]


async def _wait_in_line(client: Caller, count: int) -> bool:
    """Whether so many events wait: an answer to a publisher says that an event is safe, not that it is in line."""
    held = await client.get(SubscriptionsRequest())
    assert isinstance(held, SubscriptionsReply)
    return held.subscriptions[0].queued == count


async def _deliver(member: Member) -> set[EventKey]:
    """What waited before comes, window by window, although no acknowledgement can be kept; returned is what was not
    acknowledged.
    """
    async with calling(at(member)) as client:
        (asked,) = await client.publish(event(301, x=1, filling="." * 100_000))
        assert isinstance(asked, Refused)
        assert asked.retry
        assert not isinstance(await client.get(Attach("s", 100)), Refused)
        for _ in range(2):
            for each in await client.notified(100):
                client.send(Request(0, Acknowledge(each.event, each.names)))
        return {each.event for each in await client.notified(100)}


@small
def test_a_broker_does_not_start_on_a_disk_without_room_and_says_so_in_a_line(tmp_path: Path) -> None:
    async def main() -> None:
        fleet = Fleet(tmp_path)
        try:
            member = await fleet.prepare()
            with small_disk(member, 2) as disk:
                disk.fill()
                assert "make room" in await _refusal(fleet, member)
                disk.free()
                await _keeps_one(fleet, member)
                disk.fill()
                said = await _refusal(fleet, member)
                assert "the disk is full; make room and start again" in said
                assert "damaged" not in said
                disk.free()
                await _has_one(fleet, member)
        finally:
            await fleet.close()

    asyncio.run(asyncio.wait_for(main(), ALL_S))


# -- can only be read --------------------------------------------------------------------------------------------------


@small
def test_a_broker_does_not_start_on_a_disk_that_can_only_be_read_and_says_so_in_a_line(tmp_path: Path) -> None:
    async def main() -> None:
        fleet = Fleet(tmp_path)
        try:
            member = await fleet.prepare()
            with small_disk(member, 4) as disk:
                await _keeps_one(fleet, member)
                disk.set_read_only(True)
                assert "Read-only file system" in await _refusal(fleet, member)
                disk.set_read_only(False)
                await _has_one(fleet, member)
        finally:
            await fleet.close()

    asyncio.run(asyncio.wait_for(main(), ALL_S))


async def _refusal(fleet: Fleet, member: Member) -> str:
    """What a broker says that does not start: one line, and which folder it is about."""
    before = len(member.log.read_text()) if member.log.exists() else 0
    fleet.start(member)
    assert await fleet.ended(member) == 2
    _, *lines = member.log.read_text()[before:].splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("meetpoint: ")
    assert str(member.folder) in lines[0]
    return lines[0]


async def _keeps_one(fleet: Fleet, member: Member) -> None:
    """A broker takes an event for a subscription, and stops."""
    fleet.start(member)
    await fleet.wait_ready([member])
    async with calling(at(member)) as client:
        await client.subscribe("s", "x > 0")
        (answer,) = await client.publish(event(1, x=1))
        assert isinstance(answer, Published)
    await fleet.stop_gently(member)


async def _has_one(fleet: Fleet, member: Member) -> None:
    """It has the event when it comes back."""
    fleet.start(member)
    await fleet.wait_ready([member])
    async with calling(at(member)) as client:
        await client.get(Attach("s", 10))
        assert len(await client.notified(1)) == 1


# -- fails -------------------------------------------------------------------------------------------------------------

FAULTS = (("fdatasync", "EIO"), ("pwrite64", "EIO"), ("pwrite64", "EROFS"))
"""A sync that fails, a write that fails, and a disk that the kernel has just made read-only, as ext4 does on errors."""


@failing
def test_a_broker_whose_disk_fails_ends_at_once_tries_nothing_again_and_has_all_that_it_acknowledged() -> None:
    async def main(here: Ward) -> None:
        machines = []

        def equip(member: Member) -> None:
            member.machine = Machine()
            machines.append(member.machine)

        try:
            await here.admit(len(FAULTS), equip)
            for member, (call, error) in zip(here.fleet.members, FAULTS, strict=True):
                await here.load.until_acknowledged(50)
                assert member.machine is not None
                member.machine.fail(call, error)
                assert await here.fleet.ended(member) == FAILED
                assert member.machine.failed() == [(call, "store.db-wal")], "the next try would seem to succeed"
                told = [line for line in member.log.read_text().splitlines() if "CRITICAL" in line]
                assert len(told) == 1
                assert "event=store_failed" in told[0]
                assert "SQLITE_IOERR" in told[0]
                here.fleet.start(member)
                await here.fleet.wait_ready([member])
            await here.judge(300)
        finally:
            for machine in machines:
                machine.close()

    ward(main)
