"""Brokers that stop and come back under load: nothing is lost, order holds, and what may be a repeat is marked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import meetpoint as mp
from meetpoint.api.limits import SECOND_US
from meetpoint.client import Delivery, Network, Subscription
from meetpoint.node.settings import NodeSettings
from tests.client.running import PATIENCE_S, run, take, until

SETTINGS = NodeSettings(after_us=3 * SECOND_US, hold_us=5 * SECOND_US)
"""A broker that is down for good is waited for a little less long."""


PACE_S = 0.02
"""Between two batches of a publisher, so that virtual time passes."""


async def read(subscription: Subscription, found: list[Delivery], last: Callable[[Delivery], bool]) -> None:
    async for event in subscription:
        found.append(event)
        if last(event):
            return


def judge(found: list[Delivery], acknowledged: list[int]) -> None:
    """What the promises say: all that was acknowledged, in its order, and no repeat without a mark."""
    fresh = [event["n"] for event in found if not event.redelivered]
    assert len(set(fresh)) == len(fresh), "a repeat that is not marked"
    assert fresh == sorted(fresh), "out of order"  # type: ignore[type-var]
    came = {event["n"] for event in found}
    assert set(acknowledged) <= came, f"lost: {sorted(set(acknowledged) - came)[:10]}"
    assert came <= set(range(-1, len(acknowledged)))


async def publish_until(net: Network, stopped: asyncio.Event, acknowledged: list[int]) -> None:
    """A publisher that keeps some events on their way."""
    n = 0
    while not stopped.is_set():
        batch = [net.publish({"k": "all", "n": n + each}) for each in range(10)]
        await asyncio.gather(*batch)
        acknowledged += range(n, n + 10)
        n += 10
        await asyncio.sleep(PACE_S)


@pytest.mark.slow
@pytest.mark.parametrize("drain", [True, False])
def test_a_broker_goes_and_comes_back(tmp_path: Path, drain: bool) -> None:
    """The broker that hosts the subscription, and that the publisher is connected to."""

    async def main() -> None:
        async with mp.local(brokers=3, data=tmp_path, node=SETTINGS) as here:
            urls = [here.url_of(0), here.url_of(1)]
            async with mp.connect(urls[0]) as publisher, mp.connect(urls[1]) as subscriber:
                sub = await subscriber.subscribe("k = 'all'", durable="all")
                found: list[Delivery] = []
                acknowledged: list[int] = []
                stopped = asyncio.Event()
                reading = asyncio.create_task(read(sub, found, lambda event: event["n"] == -1))
                publishing = asyncio.create_task(publish_until(publisher, stopped, acknowledged))
                await until(lambda: len(found) > 50)
                for number in (1, 0):
                    before = len(acknowledged)
                    await here.stop_broker(number, drain=drain)
                    await asyncio.sleep(0.2)
                    await here.start_broker(number)
                    await until(lambda before=before: len(acknowledged) > before + 50)  # type: ignore[misc]
                    seen = len(found)
                    await until(lambda seen=seen: len(found) > seen + 50)  # type: ignore[misc]
                stopped.set()
                await publishing
                await publisher.publish({"k": "all", "n": -1})
                async with asyncio.timeout(PATIENCE_S):
                    await reading
                last = found.pop()
                assert last["n"] == -1
                judge(found, acknowledged)

    run(main())


@pytest.mark.slow
def test_a_publisher_goes_on_at_another_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            mp.local(brokers=3, data=tmp_path, node=SETTINGS) as here,
            mp.connect(here.url_of(0)) as publisher,
            mp.connect(here.url_of(1)) as subscriber,
        ):
            sub = await subscriber.subscribe("k = 'all'", durable="all")
            found: list[Delivery] = []
            acknowledged: list[int] = []
            stopped = asyncio.Event()
            reading = asyncio.create_task(read(sub, found, lambda event: event["n"] == -1))
            publishing = asyncio.create_task(publish_until(publisher, stopped, acknowledged))
            await until(lambda: len(acknowledged) > 50)
            await here.stop_broker(0, drain=False)
            before = len(acknowledged)
            await until(lambda: len(acknowledged) > before + 50)
            assert publisher.broker is None or publisher.broker.address != here.addresses[0]
            await here.start_broker(0)
            stopped.set()
            await publishing
            await publisher.publish({"k": "all", "n": -1})
            async with asyncio.timeout(PATIENCE_S):
                await reading
            found.pop()
            judge(found, acknowledged)

    run(main())


def test_an_acknowledgement_from_before_goes_to_the_host_of_then(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=1, data=tmp_path) as here, mp.connect(here.url) as net:
            sub = await net.subscribe("k = 'ack'", durable="ack", ack="manual")
            await net.publish_many({"k": "ack", "n": n} for n in range(3))
            first, second, third = await take(sub, 3)
            await here.stop_broker(0)
            await until(lambda: not sub.is_attached)
            acking = asyncio.create_task(first.ack())
            await here.start_broker(0)
            await acking
            await until(lambda: sub.is_attached)
            await second.ack()
            (again,) = await take(sub, 1)
            while again["n"] != 2:  # those may have been on their way again before they were acknowledged
                (again,) = await take(sub, 1)
            assert (again["n"], again.redelivered, third.redelivered) == (2, True, False)
            await again.ack()
            assert (await net.subscriptions())[0].queued == 0

    run(main())


def test_what_the_iterator_acknowledged_while_nobody_was_there_does_not_come_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=1, data=tmp_path) as here, mp.connect(here.url) as net:
            sub = await net.subscribe("k = 'auto'", durable="auto")
            await net.publish({"k": "auto", "n": 0})
            reading = aiter(sub)
            assert (await anext(reading))["n"] == 0
            await here.stop_broker(0)
            await until(lambda: not sub.is_attached)
            following = asyncio.ensure_future(anext(reading))  # which acknowledges the one before
            await here.start_broker(0)
            await net.publish({"k": "auto", "n": 1})
            async with asyncio.timeout(PATIENCE_S):
                event = await following
            assert (event["n"], event.redelivered) == (1, False)

    run(main())


def test_what_comes_once_is_made_anew(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=2, data=tmp_path) as here, mp.connect(here.url_of(0)) as net:
            sub = await net.subscribe("k = 'once'")
            await net.publish({"k": "once", "n": 1})
            assert [event["n"] for event in await take(sub, 1)] == [1]
            await here.stop_broker(0)
            await until(lambda: net.broker is not None)
            assert not sub.is_attached
            await here.start_broker(0)  # without it nothing new is on two disks
            await until(lambda: sub.is_attached)
            assert net.broker is not None
            assert net.broker.address == here.addresses[1]
            async with mp.connect(here.url_of(1)) as other:
                await other.publish({"k": "once", "n": 2})
            (event,) = await take(sub, 1)
            assert (event["n"], event.matched_by, event.redelivered) == (2, (sub.name,), False)

    run(main())


def test_a_subscription_moves_with_a_broker_that_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=3, data=tmp_path) as here, mp.connect(here.url_of(2)) as net:
            sub = await net.subscribe("k = 'moves'", durable="moves")
            await net.publish_many({"k": "moves", "n": n} for n in range(3))
            assert [event["n"] for event in await take(sub, 3)] == [0, 1, 2]
            await here.leave_broker(2)
            await until(lambda: sub.is_attached)
            await net.publish({"k": "moves", "n": 3})
            found: list[Delivery] = []
            async with asyncio.timeout(PATIENCE_S):
                await read(sub, found, lambda event: event["n"] == 3)
            assert all(event.redelivered for event in found if event["n"] == 2)
            located = await net.locate("moves")
            assert located.host is not None
            assert located.host.address in here.addresses[:2]

    run(main())


def test_when_all_are_gone_the_time_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with mp.local(brokers=1, data=tmp_path) as here, mp.connect(here.url, timeout=2.0) as net:
            sub = await net.subscribe("k = 'gone'", durable="gone")
            await net.publish({"k": "gone"})
            await here.stop_broker(0)
            for asking in (net.publish({"k": "gone"}), net.subscribe("k = 'gone'"), net.brokers(), sub.pause()):
                with pytest.raises(mp.NetworkError) as refused:
                    await asking
                assert "\n" not in str(refused.value)
            await here.start_broker(0)
            await net.publish({"k": "gone"})
            await take(sub, 2)

    run(main())


def test_what_is_refused_for_now_is_sent_again_in_its_order() -> None:
    """A broker whose disk is full says no until there is room."""

    async def main() -> None:
        async with mp.local(brokers=1) as here, here.connect() as net:
            sub = await net.subscribe("k = 'full'", durable="full")
            here.broker(0)._clients.is_full = True
            refusals = here.broker(0).counts.totals["requests"]
            publishing = asyncio.create_task(net.publish_many({"k": "full", "n": n} for n in range(50)))
            await until(lambda: here.broker(0).counts.totals["requests"] > refusals + 100)  # each more than once
            assert not publishing.done()
            here.broker(0)._clients.is_full = False
            assert len(await publishing) == 50
            assert [event["n"] for event in await take(sub, 50)] == list(range(50))

    run(main())
