"""Too much of something: clients that do not read, publishers that do not stop, disks that are full or fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from meetpoint.api.client_messages import BrokerStatus, Request, StatusRequest
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import Acknowledge, Attach, Publish, Subscribe
from meetpoint.broker import Broker, BrokerError, Limits
from meetpoint.broker.broker import FAILED
from meetpoint.broker.storage import StoreState
from tests.broker.talking import broker, calling, config, event, run, until

BODY = "x" * 20_000
SMALL = Limits(client_queue_bytes=200_000, stall_s=60)


def queued(one: Broker) -> int:
    """Return how many bytes wait for clients."""
    return one._clients.queued_bytes


def test_what_an_ephemeral_subscriber_does_not_read_is_dropped_and_counted() -> None:
    async def main() -> None:
        async with (
            broker(limits=SMALL, scheme="flood") as one,
            calling(one.address) as slow,
            calling(one.address) as publisher,
        ):
            await slow.subscribe("passing", "x > 0", durable=False)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for first in range(0, 1000, 50):
                answers = await publisher.publish(*[event(first + n, x=1, body=BODY) for n in range(50)])
                assert all(isinstance(answer, Published) for answer in answers)
                assert queued(one) < 1_000_000
                assert one._clients.held_back == 0
            dropped = one.counts.totals["dropped_to_clients"]
            sent = one.counts.totals["deliveries"]
            assert dropped > 500
            assert dropped + sent == 1000
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert len(await slow.notified(sent)) == sent
            (answer,) = await publisher.publish(event(2000, x=1))
            assert isinstance(answer, Published)
            (last,) = await slow.notified(1)
            assert b"e2000" in last.content  # once it reads, it gets what is new

    run(main())


def test_what_a_durable_subscriber_does_not_read_waits_for_it() -> None:
    async def main() -> None:
        async with broker(limits=SMALL) as one, calling(one.address) as slow, calling(one.address) as publisher:
            await slow.subscribe("kept", "x > 0", window=100)
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for first in range(0, 400, 50):
                await publisher.publish(*[event(first + n, x=1, body=BODY) for n in range(50)])
                assert queued(one) < 1_000_000
                assert one._clients.held_back <= 100
            assert one.counts.totals["dropped_to_clients"] == 0
            slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
            numbers = []
            for _ in range(400):
                (got,) = await slow.notified(1)
                assert not got.redelivered
                numbers.append(got.event.number)
                slow.send(Request(0, Acknowledge(got.event, got.names)))
            assert numbers == sorted(numbers)

    run(main())


def test_a_subscriber_that_takes_nothing_for_long_is_closed_and_gets_it_later() -> None:
    async def main() -> None:
        limits = Limits(client_queue_bytes=100_000, stall_s=0.4)
        async with broker(limits=limits) as one, calling(one.address) as publisher:
            async with calling(one.address) as slow:
                await slow.subscribe("kept", "x > 0", window=300)
                slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
                await publisher.publish(*[event(n, x=1, body=BODY) for n in range(300)])
                await until(lambda: len(one._clients.sessions) == 1, "it is closed")
                assert one.node.held_subscriptions()[0].queued == 300
                slow.writer.transport.abort()
            async with calling(one.address) as again:
                assert await again.get(Attach("kept", 300)) == Stored()
                got = await again.notified(300)
                assert len({each.event for each in got}) == 300

    run(main())


def test_a_publisher_that_does_not_stop_is_not_read_from_for_a_while_and_all_is_answered() -> None:
    async def main() -> None:
        async with broker(limits=Limits(unsynced_writes=50)) as one, calling(one.address) as publisher:
            answers = await publisher.publish(*[event(n, x=1, body="y" * 1000) for n in range(3000)])
            assert all(isinstance(answer, Published) for answer in answers)
            assert one.counts.totals["held_clients"] > 0
            numbers = [answer.event.number for answer in answers if isinstance(answer, Published)]
            assert numbers == sorted(numbers)

    run(main())


def test_one_busy_client_does_not_keep_others_from_being_heard() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as busy, calling(one.address) as other:
            await busy.subscribe("s", "x > 0")
            busy.send(*[Request(n + 1, Publish(event(n, x=0, y=n))) for n in range(5000)])
            await asyncio.sleep(0)
            status = await other.get(StatusRequest())
            assert isinstance(status, BrokerStatus)
            assert status.numbers["events_published"] < 5000

    run(main())


def test_while_the_disk_is_full_writers_are_refused_and_the_rest_goes_on() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            await client.subscribe("s", "x > 0")
            one._store_changed(StoreState(full=True))
            for what in (Publish(event(1, x=1)), Subscribe("t", "x > 0")):
                refused = await client.get(what)
                assert isinstance(refused, Refused)
                assert refused.retry
                assert "disk is full" in refused.reason
            assert one.why_not_ready == "its disk is full"
            assert isinstance(await client.get(StatusRequest()), BrokerStatus)
            one._store_changed(StoreState())
            assert one.is_ready
            (later,) = await client.publish(event(2, x=1))
            assert isinstance(later, Refused), "it would overtake the one that was refused"
            assert later.retry
            async with calling(one.address) as anew:
                for answer in await anew.publish(event(1, x=1), event(2, x=1)):
                    assert isinstance(answer, Published)

    run(main())


def test_a_broker_whose_disk_failed_ends_at_once_with_its_code(tmp_path: Path) -> None:
    async def main() -> None:
        one = Broker(config(data=str(tmp_path)))
        await one.start()
        await one.wait_ready(10)
        async with calling(one.address) as client:
            one._on_state(StoreState(failed="store: the disk is on fire"))
            assert await client.ended()
        assert await asyncio.wait_for(one.wait_stopped(), 10) == FAILED
        assert "on fire" in one.failure
        assert one.state == "failed"
        with pytest.raises(BrokerError, match="on fire"):
            await one.wait_ready(1)
        await one.stop()

    run(main())
