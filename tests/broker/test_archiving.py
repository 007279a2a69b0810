"""The archive of a broker has each accepted event once: while it runs, once it has stopped, and after a kill."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import meetpoint as mp
from meetpoint.archive import Archive, ArchiveError, list_parts, read_accepted
from meetpoint.broker import Broker
from meetpoint.broker import run as run_on_real_clock
from meetpoint.broker.config import Access, Archiving
from tests.broker.talking import broker, config, network, run
from tests.client.running import all_of
from tests.processes.fleet import Fleet
from tests.security.authorities import TestAuthority

QUICK_S = 0.05


def archiving(folder: Path, **said: Any) -> dict[str, Any]:
    return {"archive": Archiving(folder=str(folder), flush_s=QUICK_S, **said)}


async def publish(where: Broker | str, count: int, begin: int = 0, **said: Any) -> list[str]:
    """Events that are acknowledged; their ids."""
    address = where if isinstance(where, str) else where.address
    async with mp.connect(f"mp://{address}", **said) as net:
        made = [net.publish_nowait({"price": begin + number}, id=f"e{begin + number}") for number in range(count)]
        for each in made:
            await each
    return [f"e{begin + number}" for number in range(count)]


async def until_archived(one: Broker, count: int) -> None:
    async with asyncio.timeout(20):
        while one.counts.totals["archived"] < count:
            await asyncio.sleep(0.01)


def ids(folder: Path) -> list[str]:
    return [each.event.id for each in read_accepted(folder)]


def test_what_is_accepted_is_archived_and_leaves_the_disk_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(**archiving(tmp_path / "a"), data=str(tmp_path / "d")) as one:
            async with mp.connect(f"mp://{one.address}") as net:
                subscription = await net.subscribe("price >= 0")
                wanted = await publish(one, 30)
                got = [event.id for event in await all_of(subscription, 30)]
            assert sorted(got) == sorted(wanted)
            await until_archived(one, 30)
            assert sorted(ids(tmp_path / "a")) == sorted(wanted)
            assert {each.event.attributes["price"] for each in read_accepted(tmp_path / "a")} == set(range(30))
            async with asyncio.timeout(20):
                while any(name.startswith("published/") for home in one.node.home_manager.homes.values()
                          for name, record in home.replicator.records.items() if record.value is not None):  # fmt: skip
                    await asyncio.sleep(0.05)

    run(main())


def test_what_waits_when_a_broker_stops_is_written_and_what_comes_again_is_known(tmp_path: Path) -> None:
    async def main() -> None:
        for life in range(3):
            slow = Archiving(folder=str(tmp_path / "a"), flush_s=60)
            async with broker(archive=slow, data=str(tmp_path / "d"), name="one") as one:
                await publish(one, 10, 10 * life)
                assert one.counts.totals["archived"] == 0, "it writes as it stops"
            assert sorted(ids(tmp_path / "a")) == sorted(f"e{number}" for number in range(10 * life + 10))

    run(main())


def test_a_broker_whose_data_is_gone_begins_another_stream(tmp_path: Path) -> None:
    async def main() -> None:
        for life in range(2):
            async with broker(**archiving(tmp_path / "a"), name="one") as one:  # what is in memory only
                await publish(one, 5, 10 * life)
                await until_archived(one, 5)
                async with mp.connect(f"mp://{one.address}", timeout=20) as net:
                    history = await net.subscribe("price >= 0", since=datetime(2020, 1, 1, tzinfo=UTC))
                    got = [event.id for event in await all_of(history, 5 + 5 * life)]
        assert got == [f"e{number}" for number in (*range(5), *range(10, 15))]
        assert ids(tmp_path / "a") == got
        assert len({(part.home, part.stream) for part in list_parts(tmp_path / "a")}) == 2

    run(main())


def test_a_folder_that_takes_nothing_for_a_while_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with broker(**archiving(tmp_path / "a"), data=str(tmp_path / "d")) as one:
            whole = Archive.write
            monkeypatch.setattr(Archive, "write", _full)
            wanted = await publish(one, 5)
            async with asyncio.timeout(20):
                while not one.counts.totals["archive_failures"]:
                    await asyncio.sleep(0.01)
            assert ids(tmp_path / "a") == []
            assert one._gauges()["unarchived_events"] == 5
            monkeypatch.setattr(Archive, "write", whole)
            await until_archived(one, 5)
            assert sorted(ids(tmp_path / "a")) == wanted

    run(main())


def test_a_damaged_file_is_told_of_and_holds_events_up_until_it_is_moved_away(tmp_path: Path) -> None:
    async def main() -> None:
        said = {**archiving(tmp_path / "a"), "data": str(tmp_path / "d"), "name": "one"}
        async with broker(**said) as one:
            wanted = await publish(one, 5)
            await until_archived(one, 5)
        (part,) = list_parts(tmp_path / "a")
        copy = part.path.read_bytes()
        part.path.write_bytes(copy[:100])
        damaged = tmp_path / "a" / "hour=2020-01-01-00" / part.path.name.replace("-1-5.", "-6-999.")
        damaged.parent.mkdir()
        damaged.write_bytes(copy[:100])
        async with broker(**said) as one:
            wanted += await publish(one, 5, 5)
            async with asyncio.timeout(20):
                while not one.counts.totals["archive_failures"]:
                    await asyncio.sleep(0.01)
            async with mp.connect(f"mp://{one.address}", timeout=1) as net:
                history = await net.subscribe("price >= 0", since=datetime(2020, 1, 1, tzinfo=UTC))
                with pytest.raises(mp.NetworkError, match=r"not in the archive yet|cannot be read"):
                    await anext(aiter(history))
            assert one._gauges()["unarchived_events"] >= 5, "they are not forgotten"
            damaged.unlink()
            part.path.write_bytes(copy)
            await until_archived(one, 5)
        assert sorted(ids(tmp_path / "a")) == sorted(wanted)

    run(main())


def test_files_that_were_written_before_the_disk_failed_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with broker(**archiving(tmp_path / "a"), data=str(tmp_path / "d")) as one:
            wanted = await publish(one, 3)
            await until_archived(one, 3)
            put = Archive._put

            def put_and_fail(held: Archive, *rest: Any) -> Path:
                put(held, *rest)
                raise OSError(5, "Input/output error")

            monkeypatch.setattr(Archive, "_put", put_and_fail)
            wanted += await publish(one, 3, 3)
            async with asyncio.timeout(20):
                while not one.counts.totals["archive_failures"]:
                    await asyncio.sleep(0.01)
            monkeypatch.setattr(Archive, "_put", put)
            wanted += await publish(one, 3, 6)
            await until_archived(one, 9)
        keys = [key for part in list_parts(tmp_path / "a") for key in _keys(part.path)]
        assert len(keys) == len(set(keys)) == 9, "no event is in two files"
        assert sorted(ids(tmp_path / "a")) == wanted

    run(main())


def _full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_too_many_that_wait_hold_publishers_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        limits = config().limits
        few = type(limits)(unsettled_events=20)
        async with broker(**archiving(tmp_path / "a"), limits=few) as one:
            whole = Archive.write
            monkeypatch.setattr(Archive, "write", _full)
            publishing = asyncio.create_task(publish(one, 200))
            async with asyncio.timeout(20):
                while not one._clients.is_congested:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(5)
            assert not publishing.done()
            monkeypatch.setattr(Archive, "write", whole)
            wanted = await publishing
            await until_archived(one, 200)
            assert sorted(ids(tmp_path / "a")) == sorted(wanted)

    run(main())


def test_brokers_share_a_folder_and_one_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(3, **archiving(tmp_path / "a")) as brokers:
            wanted = [id_ for number, one in enumerate(brokers) for id_ in await publish(one, 20, 100 * number)]
            await brokers[2].leave()
            async with asyncio.timeout(20):
                while len(ids(tmp_path / "a")) < len(wanted):
                    await asyncio.sleep(0.05)
            assert sorted(ids(tmp_path / "a")) == sorted(wanted)

    run(main())


def test_an_event_of_a_tenant_is_archived_as_its_publisher_said_it(tmp_path: Path) -> None:
    async def main() -> None:
        keys = TestAuthority(tmp_path)
        async with broker(**archiving(tmp_path / "a"), access=Access(**keys.access)) as one:
            await publish(one, 2, token=keys.token("ann", tenant="acme"))
            await until_archived(one, 2)
        found = list(read_accepted(tmp_path / "a"))
        assert [(each.tenant, each.event.id, dict(each.event.attributes)) for each in found] == [
            ("acme", "e0", {"price": 0}), ("acme", "e1", {"price": 1}),
        ]  # fmt: skip

    run(main())


def test_a_folder_of_another_network_is_refused_before_anything_is_begun(tmp_path: Path) -> None:
    async def main() -> None:
        Archive.open(tmp_path / "a", "other", "x")
        one = Broker(config(**archiving(tmp_path / "a")))
        with pytest.raises(ArchiveError, match="is the archive of network 'other', not of 'meetpoint'"):
            await one.start()

    run(main())


@pytest.mark.slow
def test_brokers_that_are_killed_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        rng = random.Random(4)
        (tmp_path / "fleet").mkdir()
        said = {"archive.folder": str(tmp_path / "a"), "archive.flush_s": QUICK_S}
        fleet = Fleet(tmp_path / "fleet", settings=said)
        try:
            await fleet.begin(3)
            acknowledged: list[str] = []
            is_over = asyncio.Event()
            publishing = asyncio.create_task(
                _keep_publishing([each.address for each in fleet.members], acknowledged, is_over)
            )
            for _ in range(4):
                wanted = len(acknowledged) + rng.randrange(30, 80)
                while len(acknowledged) < wanted:
                    assert not publishing.done(), publishing.exception()
                    await asyncio.sleep(0.01)
                victim = rng.choice(fleet.up)
                fleet.kill([victim])
                fleet.start(victim)
                await fleet.wait_ready([victim])
            is_over.set()
            await publishing
            for each in fleet.members:
                await fleet.stop_gently(each)
        finally:
            await fleet.close()
        found = ids(tmp_path / "a")
        assert len(acknowledged) >= 4 * 30
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found))
        keys = [key for part in list_parts(tmp_path / "a") for key in _keys(part.path)]
        assert len(keys) == len(set(keys)), "no event is in two files"

    run_on_real_clock(main())  # the brokers are processes


async def _keep_publishing(addresses: list[str], acknowledged: list[str], is_over: asyncio.Event) -> None:
    async with mp.connect("mp://" + ",".join(addresses), timeout=60) as net:
        number = 0
        while not is_over.is_set():
            made = [net.publish_nowait({"price": each}, id=f"e{each}") for each in range(number, number + 5)]
            for offset, each in enumerate(made):
                await each
                acknowledged.append(f"e{number + offset}")
            number += 5
            await asyncio.sleep(0.01)


def _keys(path: Path) -> list[tuple[object, ...]]:
    table = pq.read_table(path, columns=["home", "stream", "number"])
    return [tuple(row.values()) for row in table.to_pylist()]
