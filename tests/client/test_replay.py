"""Subscribed since a moment: history from archives, then what is live; no gap and nothing twice, whatever goes on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import meetpoint as mp
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.archive import AcceptedEvent, Archive
from meetpoint.broker.config import Access, Archiving
from meetpoint.client import RefusedError
from meetpoint.client.errors import NetworkError
from meetpoint.language.events.msgpack import to_msgpack
from tests.broker.talking import broker, network
from tests.client.running import SILENT_S, all_of, run, take, until
from tests.security.authorities import TestAuthority

OVERFLOWS = 500
"""A window that is soon full, as nobody reads."""
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def archived(folder: Path, flush_s: float = 0.05) -> dict[str, Any]:
    return {"archive": Archiving(folder=str(folder), flush_s=flush_s)}


async def publish(net: mp.Network, numbers: range) -> None:
    for each in [net.publish_nowait({"n": number, "even": number % 2 == 0}, id=f"e{number}") for number in numbers]:
        await each


def now() -> datetime:
    """The time that brokers tell, which is virtual."""
    return datetime.fromtimestamp(time.time(), UTC)


def long_ago(number: int, home: bytes, minutes: float, publisher: str, sequence: int, id_: str = "x") -> AcceptedEvent:
    """An event that was accepted so many minutes ago, mostly under the same id."""
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    event = mp.Event(id_, publisher, sequence, at, {"n": number})
    return AcceptedEvent(EventKey(HomeId(home), 1, number), round(at.timestamp() * 1e6), to_msgpack(event))


@pytest.mark.parametrize("durable", [None, "name"])
def test_an_id_is_one_event_for_two_minutes_and_what_was_sent_again_is_one_however_late(
    tmp_path: Path, durable: str | None
) -> None:
    async def main() -> None:
        one, two = b"\x01" * 20, b"\x02" * 20
        Archive.open(tmp_path, "meetpoint", "w").write(
            [
                long_ago(1, one, 60, "a", 1),
                long_ago(2, two, 59.5, "b", 1),  # under one id within two minutes: they are one
                long_ago(3, two, 50, "c", 1),
                long_ago(4, one, 40, "c", 1),  # the very same event
                long_ago(5, one, 3, "d", 1),
                long_ago(6, one, 2.9, "e", 1, id_="z"),
            ],
            None,
        )
        found = [str(event.attributes["n"]) for event in mp.read_archive(tmp_path)]
        assert "".join(sorted(found)) in ("1356", "1456"), "whichever of the same lies in the first file"
        async with broker(**archived(tmp_path)) as here, mp.connect(f"mp://{here.address}") as net:
            subscription = await net.subscribe("n > 0", durable=durable, since=LONG_AGO)
            assert [event["n"] for event in await take(subscription.events(), 4)] == [1, 3, 5, 6]
            await net.publish({"n": 7}, id="x")
            await net.publish(mp.Event("z", "e", 1, datetime.now(UTC), {"n": 6}))
            await net.publish({"n": 8})
            assert [event["n"] for event in await take(subscription.events(), 2)] == [7, 8], "6 came as history"

    run(main())


@pytest.mark.parametrize("durable", [None, "name"])
def test_history_comes_first_and_then_what_is_live(tmp_path: Path, durable: str | None) -> None:
    async def main() -> None:
        async with network(3, **archived(tmp_path)) as brokers, mp.connect(f"mp://{brokers[0].address}") as net:
            for number, one in enumerate(brokers):
                async with mp.connect(f"mp://{one.address}") as other:
                    await publish(other, range(100 * number, 100 * number + 20))
            subscription = await net.subscribe("even = TRUE", durable=durable, since=LONG_AGO)
            await publish(net, range(1000, 1020))
            found = await take(subscription.events(), 40)
            assert [each["n"] for each in found[:30]] == [
                100 * number + each for number in range(3) for each in range(0, 20, 2)
            ], "in the order in which brokers accepted them"
            assert [each["n"] for each in found[30:]] == list(range(1000, 1020, 2))
            assert not any(each.redelivered for each in found)
            assert [event async for event in subscription.events(timeout=0.5)] == []

    run(main())


def test_from_a_moment_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(**archived(tmp_path)) as one, mp.connect(f"mp://{one.address}") as net:
            await publish(net, range(5))
            await asyncio.sleep(0.05)
            since = now()
            await publish(net, range(5, 10))
            subscription = await net.subscribe("n >= 0", since=since)
            assert [each["n"] for each in await take(subscription.events(), 5)] == [5, 6, 7, 8, 9]
            later = await net.subscribe("n >= 0", since=now() + timedelta(hours=1))
            await publish(net, range(10, 12))
            assert [each["n"] for each in await take(later.events(), 2)] == [10, 11]

    run(main())


def test_what_waited_from_before_the_moment_is_not_taken_for_history(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(**archived(tmp_path)) as one, mp.connect(f"mp://{one.address}") as net:
            await (await net.subscribe("n >= 0", durable="d")).close()
            await publish(net, range(5))
            await asyncio.sleep(0.05)
            since = now()
            await publish(net, range(5, 10))
            subscription = await net.subscribe("n >= 0", durable="d", since=since)
            found = [each["n"] for each in await take(subscription.events(), 10)]
            assert found[:5] == [5, 6, 7, 8, 9]
            assert set(found[5:]) == {0, 1, 2, 3, 4}

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize(("durable", "window"), [("d", 10), (None, OVERFLOWS), (None, None)])
def test_the_seam_under_load(tmp_path: Path, durable: str | None, window: int | None) -> None:
    async def main() -> None:
        async with network(3, **archived(tmp_path)) as brokers:
            is_over = asyncio.Event()
            counts = [0, 0, 0]

            async def load(number: int) -> None:
                async with mp.connect(f"mp://{brokers[number].address}") as net:
                    while not is_over.is_set():
                        await publish(
                            net, range(1_000_000 * number + counts[number], 1_000_000 * number + counts[number] + 10)
                        )
                        counts[number] += 10
                        await asyncio.sleep(random.uniform(0, 0.02))

            loads = [asyncio.create_task(load(number)) for number in range(3)]
            async with mp.connect(f"mp://{brokers[1].address}") as net:
                await asyncio.sleep(0.4)
                subscription = await net.subscribe("n >= 0", durable=durable, window=window, since=LONG_AGO)
                came: list[int] = []

                async def read() -> None:
                    async for each in subscription:
                        came.append(each["n"])  # type: ignore[arg-type]
                        if len(came) % 50 == 0:
                            await asyncio.sleep(0.01)

                replay = subscription.replay
                assert replay is not None
                if window == OVERFLOWS:
                    await until(lambda: replay.has_gap)  # more is live than it holds
                reading = asyncio.create_task(read())
                await asyncio.sleep(0.5)
                is_over.set()
                await asyncio.gather(*loads)
                async with asyncio.timeout(30):
                    while len(came) < sum(counts):
                        await asyncio.sleep(0.05)
                await asyncio.sleep(SILENT_S)  # what comes twice has time to come
                reading.cancel()
                wanted = {1_000_000 * number + each for number in range(3) for each in range(counts[number])}
                assert Counter(came) == Counter(wanted)
                assert not subscription.dropped
                for number in range(3):
                    mine = [each for each in came if each // 1_000_000 == number]
                    assert mine == sorted(mine)

    run(main())


def test_a_broker_that_is_away_for_a_while_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            network(3, scheme="flood", **archived(tmp_path)) as brokers,
            mp.connect(f"mp://{brokers[0].address}", timeout=3) as net,
        ):
            async with mp.connect(f"mp://{brokers[1].address}") as other:
                await publish(other, range(10))
            await brokers[1].stop(drain=False)
            with pytest.raises(NetworkError, match="1 of 3 brokers did not answer"):
                await net.subscribe("n >= 0", since=LONG_AGO)

    run(main())


def test_without_an_archive_it_is_said(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker() as one, mp.connect(f"mp://{one.address}") as net:
            with pytest.raises(RefusedError, match=r"this broker keeps no archive; set archive\.folder"):
                await net.subscribe("n >= 0", since=LONG_AGO)
            with pytest.raises(NetworkError, match="give a datetime with a time zone"):
                await net.subscribe("n >= 0", since=datetime(2026, 1, 1))

    run(main())


def test_a_client_reads_what_its_token_permits_of_its_own_tenant(tmp_path: Path) -> None:
    async def main() -> None:
        keys = TestAuthority(tmp_path)
        async with broker(**archived(tmp_path / "a"), access=Access(**keys.access)) as one:

            @contextlib.asynccontextmanager
            async def client(name: str, **said: Any) -> AsyncIterator[mp.Network]:
                async with mp.connect(f"mp://{one.address}", token=keys.token(name, **said)) as net:
                    yield net

            for tenant in ("acme", "other", ""):
                async with client("ann", tenant=tenant) as net:
                    await publish(net, range(6))
            async with client("bob", tenant="acme") as net:
                subscription = await net.subscribe("n > 2", since=LONG_AGO)
                found = await all_of(subscription, 3)
                assert [(each["n"], each.id) for each in found] == [(3, "e3"), (4, "e4"), (5, "e5")]

    run(main())
