"""Brokers that begin, join, stop and come back, on loopback and with real disks."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from pathlib import Path

import pytest

from meetpoint.api.client_messages import (
    BrokersReply,
    BrokersRequest,
    BrokerStatus,
    DeadLettersReply,
    DeadLettersRequest,
    Ended,
    GoAway,
    JournalReply,
    JournalRequest,
    ProgressRequest,
    SchemaReply,
    SchemaRequest,
    StatusRequest,
    SubscriptionsReply,
    SubscriptionsRequest,
)
from meetpoint.api.ids import HomeId
from meetpoint.api.outcomes import Located, Published, Refused, Stored
from meetpoint.api.requests import Acknowledge, Attach, Leave, Locate, Publish, Subscribe, Unsubscribe
from meetpoint.broker import Broker, BrokerError
from meetpoint.errors import MeetpointError
from meetpoint.node.settings import NodeSettings
from tests.broker.talking import PATIENCE_S, broker, calling, config, event, network, run, until


def test_a_broker_alone_serves_and_comes_back_with_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(name="one", data=str(tmp_path)) as one, calling(one.address) as client:
            await client.subscribe("cheap", "price < 3")
            answers = await client.publish(*[event(number, price=number) for number in range(5)])
            assert all(isinstance(answer, Published) for answer in answers)
            got = await client.notified(3)
            assert [each.names for each in got] == [("cheap",)] * 3
            assert await client.get(Acknowledge(got[0].event, ("cheap",))) == Stored()
        async with broker(name="one", data=str(tmp_path)) as again, calling(again.address) as client:
            assert await client.get(Attach("cheap", 256)) == Stored()
            got_again = await client.notified(2)
            assert [each.event for each in got_again] == [each.event for each in got[1:]]
            assert all(each.redelivered for each in got_again)
            held = await client.get(SubscriptionsRequest())
            assert isinstance(held, SubscriptionsReply)
            assert [(each.name, each.filter) for each in held.subscriptions] == [("cheap", "price < 3")]
            (answer,) = await client.publish(event(9, price=1))
            assert isinstance(answer, Published)
            assert answer.event.number > max(each.event.number for each in got)

    run(main())


@pytest.mark.parametrize("scheme", ["flood", "lists:hybrid", "meet"])
def test_three_brokers_find_together_and_deliver_across(scheme: str) -> None:
    async def main() -> None:
        async with (
            network(3, scheme=scheme) as brokers,
            calling(brokers[0].address) as first,
            calling(brokers[1].address) as second,
            calling(brokers[2].address) as third,
        ):
            await second.subscribe("even", "parity = 0")
            await third.subscribe("odd", "parity = 1")
            answers = await first.publish(*[event(number, parity=number % 2) for number in range(20)])
            assert all(isinstance(answer, Published) for answer in answers)
            for caller, name in ((second, "even"), (third, "odd")):
                got = await caller.notified(10)
                assert {each.names for each in got} == {(name,)}
                assert [each.event.number for each in got] == sorted(each.event.number for each in got)
            found = await first.get(BrokersRequest())
            assert isinstance(found, BrokersReply)
            assert found.brokers[0].peer.address == brokers[0].address
            assert {each.peer.address for each in found.brokers} == {each.address for each in brokers}
            located = await first.get(Locate("odd"))
            assert isinstance(located, Located)
            assert located.host is not None
            assert located.host.address == brokers[2].address

    run(main())


@pytest.mark.slow
def test_all_brokers_stop_at_once_and_come_back_with_everything(tmp_path: Path) -> None:
    async def main() -> None:
        settings = NodeSettings(found_after_us=1_000_000)

        def one(number: int, listen: str, join: tuple[str, ...]) -> Broker:
            data = str(tmp_path / str(number))
            return Broker(config(name=f"b{number}", data=data, listen=listen, join=join, node=settings))

        brokers: list[Broker] = []
        for number in range(3):
            brokers.append(one(number, "127.0.0.1:0", tuple(each.address for each in brokers[:1])))
            await brokers[-1].start()
            await brokers[-1].wait_ready(PATIENCE_S)
        addresses = [each.address for each in brokers]
        async with calling(addresses[0]) as publisher, calling(addresses[1]) as subscriber:
            await subscriber.subscribe("s", "x > 0")
            await publisher.publish(*[event(number, x=1) for number in range(50)])
            got = await subscriber.notified(50)
        await asyncio.gather(*(each.stop(drain=False) for each in brokers))
        brokers = [one(number, addresses[number], tuple(addresses[:1]) if number else ()) for number in range(3)]
        try:
            for each in brokers:
                await each.start()
            for each in brokers:
                await each.wait_ready(PATIENCE_S)
            async with calling(addresses[1]) as subscriber:
                assert await subscriber.get(Attach("s", 256)) == Stored()
                again = await subscriber.notified(50)
                assert [each.event for each in again] == [each.event for each in got]
                assert all(each.redelivered for each in again)
        finally:
            await asyncio.gather(*(each.stop() for each in brokers))

    run(main())


def test_a_broker_waits_for_one_to_join_and_joins_it_when_it_comes() -> None:
    async def main() -> None:
        async with broker(name="first") as first:
            address = first.address
        late = Broker(config(name="second", join=(address,)))
        await late.start()
        try:
            assert not late.is_ready
            assert address in late.why_not_ready
            async with broker(name="first", listen=address):
                await late.wait_ready(PATIENCE_S)
                assert len(late.node.directory.others()) == 1
        finally:
            await late.stop()

    run(main())


def test_a_broker_that_is_not_ready_does_not_answer_that_it_holds_nothing(tmp_path: Path) -> None:
    """A client that asked all brokers while one restarted was told of its subscriptions and dead letters by the others
    alone, and a publisher of batches that nothing of it was accepted.
    """

    async def main() -> None:
        async with broker(name="first") as first:
            second = broker(name="second", join=(first.address,), data=str(tmp_path))
            async with second as before, calling(before.address) as client:
                await client.subscribe("s", "x > 0")
            address = before.address
        again = Broker(config(name="second", join=(first.address,), data=str(tmp_path), listen=address))
        await again.start()
        try:
            async with calling(address) as client:
                for what in (SubscriptionsRequest(), DeadLettersRequest(), ProgressRequest("batches")):
                    refused = await client.get(what)
                    assert isinstance(refused, Refused), what
                    assert refused.retry
                async with broker(name="first", listen=first.address):
                    await again.wait_ready(PATIENCE_S)
                    assert await client.get(DeadLettersRequest()) == DeadLettersReply((), False)
        finally:
            await again.stop()

    run(main())


def test_brokers_that_found_each_other_first_still_find_the_one_that_begins_the_network() -> None:
    """As when all are started at once, and the first one is slow."""

    async def main() -> None:
        places = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        addresses = [f"127.0.0.1:{place.getsockname()[1]}" for place in places]
        for place in places:
            place.close()
        brokers = [
            Broker(config(name=name, listen=own, join=tuple(each for each in addresses if each != own) * (name != "a")))
            for name, own in zip("abc", addresses, strict=True)
        ]
        try:
            await brokers[1].start()
            await brokers[2].start()
            await until(lambda: all(each.node.state == "starting" for each in brokers[1:]), "they wait for each other")
            await brokers[0].start()
            for each in brokers:
                await each.wait_ready(PATIENCE_S)
            assert all(len(each.node.directory.others()) == 2 for each in brokers)
        finally:
            for each in brokers:
                await each.stop()

    run(main())


def test_mistakes_at_the_start_are_one_line(tmp_path: Path) -> None:
    async def start(**said: object) -> None:
        one = Broker(config(**said))
        try:
            await one.start()
        finally:
            await one.stop()

    async def main() -> None:
        async with broker(name="one", data=str(tmp_path / "one")) as one:
            with pytest.raises(BrokerError, match=f"listen {one.address}: .*in use; choose another"):
                await start(listen=one.address)
            with pytest.raises(BrokerError, match=r"join .*: it was refused: .*network 'meetpoint', not of 'other'"):
                await start(join=(one.address,), network="other")
            with pytest.raises(BrokerError, match="a broker of your name is here"):
                await start(join=(one.address,), name="one")
            with pytest.raises(MeetpointError, match=r"another process|in use|running"):
                await start(data=str(tmp_path / "one"))
        with pytest.raises(MeetpointError, match="one"):
            await start(data=str(tmp_path / "one"), name="two")
        with pytest.raises(BrokerError, match=r"listen 192\.0\.2\.1:1: "):
            await start(listen="192.0.2.1:1", insecure=True)
        with pytest.raises(MeetpointError, match="nowhere"):
            await start(schema=str(tmp_path / "nowhere.yaml"))
        with pytest.raises(BrokerError, match="names this broker only"):
            await start(listen="127.0.0.1:47391", join=("127.0.0.1:47391",))

    run(main())


def test_leaving_hands_over_what_the_broker_has_and_its_subscriber_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with network(3) as brokers, calling(brokers[0].address) as staying:
            leaver = brokers[2]
            async with calling(leaver.address) as client:
                await client.subscribe("kept", "x > 0")
                leaving = asyncio.ensure_future(leaver.leave())
                told = await client.next(Ended)
                assert (told.name, told.moved) == ("kept", True)
                assert isinstance(await client.next(GoAway), GoAway)
                await asyncio.wait_for(leaving, PATIENCE_S)
            assert await leaver.wait_stopped() == 0
            located = await staying.get(Locate("kept"))
            assert isinstance(located, Located)
            assert located.host is not None
            async with calling(located.host.address) as client:
                assert await client.get(Attach("kept", 10)) == Stored()
                await staying.publish(event(1, x=1))
                assert [each.names for each in await client.notified(1)] == [("kept",)]

    run(main())


def test_the_last_broker_cannot_leave() -> None:
    async def main() -> None:
        async with broker(name="one") as one:
            with pytest.raises(BrokerError, match="the broker one cannot leave: this is the last broker"):
                await one.leave()
            async with calling(one.address) as client:
                refused = await client.get(Leave())
                assert isinstance(refused, Refused)
                assert "last broker" in refused.reason

    run(main())


def test_what_a_client_may_ask_of_the_broker_itself(tmp_path: Path) -> None:
    schema = tmp_path / "s.yaml"
    schema.write_text("attributes:\n  price: float\n", encoding="utf-8")

    async def main() -> None:
        async with broker(schema=str(schema)) as one, calling(one.address) as client:
            await client.subscribe("s", "price > 1.0")
            await client.publish(event(1, price=2.0))
            status = await client.get(StatusRequest())
            assert isinstance(status, BrokerStatus)
            assert status.state == "ready"
            assert status.numbers["events_published"] == 1
            assert status.numbers["subscriptions"] == 1
            await client.notified(1)
            journal = await client.get(JournalRequest(id="e1"))
            assert isinstance(journal, JournalReply)
            assert journal.lines[0].step == "published"
            assert "notified" in [line.step for line in journal.lines]
            await until(lambda: one.node.schema is not None, "the schema is declared")
            shown = await client.get(SchemaRequest())
            assert isinstance(shown, SchemaReply)
            assert "price" in shown.schema

    run(main())


def test_a_name_that_is_taken_over_ends_for_the_former_taker_and_nothing_is_lost() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as first, calling(one.address) as second:
            await first.subscribe("s", "x > 0")
            await first.publish(event(1, x=1))
            await first.notified(1)
            assert await second.get(Attach("s", 256)) == Stored()
            told = await first.next(Ended)
            assert (told.name, told.moved) == ("s", False)
            (again,) = await second.notified(1)
            assert again.redelivered
            await first.publish(event(2, x=1))
            assert len(await second.notified(1)) == 1
            first.close()
            await until(lambda: len(one._clients.sessions) == 1, "the first one is gone")
            await second.publish(event(3, x=1))
            assert len(await second.notified(1)) == 1  # that the former taker went did not matter

    run(main())


def test_what_is_unsubscribed_by_another_ends() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as first, calling(one.address) as second:
            await first.subscribe("s", "x > 0")
            assert await second.get(Unsubscribe("s")) == Stored()
            told = await first.next(Ended)
            assert (told.name, told.moved) == ("s", False)

    run(main())


def test_an_ephemeral_subscription_ends_with_its_connection() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as stays:
            async with calling(one.address) as goes:
                await goes.subscribe("passing", "x > 0", durable=False)
                await stays.publish(event(1, x=1))
                await goes.notified(1)
            await until(lambda: not one.node.held_subscriptions(), "it is unsubscribed")

    run(main())


def test_requests_that_are_refused_leave_the_connection_open() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            for what in (Subscribe("s", "price >"), Publish(b"\xc1"), Publish(bytes(300_000)), Attach("none", 1)):
                assert isinstance(await client.get(what), Refused), what
            (answer,) = await client.publish(event(1, x=1))
            assert isinstance(answer, Published)

    run(main())


def damage(folder: Path, name: str) -> None:
    """Change a byte of a record's value, as a disk might."""
    with sqlite3.connect(folder / "store.db") as connection:
        changed = connection.execute(
            "UPDATE records SET value = CAST(x'00' || substr(value, 2) AS BLOB) WHERE name LIKE ?", (name,)
        )
        assert changed.rowcount >= 1
    connection.close()


def test_a_home_with_a_damaged_record_comes_back_from_copies(tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "third"
        async with broker(name="a") as first, broker(name="b", join=(first.address,)):
            async with broker(name="c", join=(first.address,), data=str(folder)) as third:
                address = third.address
                async with calling(address) as client:
                    await client.subscribe("s", "x > 0")
                epoch = third.node.home_manager.homes[HomeId(third.node.me.id)].replicator.epoch
            damage(folder, "subscription/s")
            async with broker(name="c", join=(first.address,), data=str(folder), listen=address) as third:
                home = third.node.home_manager.homes[HomeId(third.node.me.id)]
                assert home.replicator.epoch > epoch  # it was restored, not taken for whole
                async with calling(address) as client, calling(first.address) as publisher:
                    assert await client.get(Attach("s", 10)) == Stored()
                    await publisher.publish(event(1, x=1))
                    assert [each.names for each in await client.notified(1)] == [("s",)]

    run(main())
