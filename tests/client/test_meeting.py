"""Publishing and subscribing: exactly what matches comes, in order, and mistakes are told before anything is sent."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest

import meetpoint as mp
from meetpoint.api.limits import EVENT_BYTES_MAX
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.errors import EventError, FilterError
from meetpoint.local_network import LocalNetwork
from tests.client.running import run, silent, take, until


def test_ten_lines(here: LocalNetwork) -> None:
    async def main() -> list[object]:
        async with mp.connect(here.url, client="me") as net:
            sub = await net.subscribe("price > 120", durable="ten-lines")
            await net.publish({"price": 120})
            await net.publish({"price": 121})
            async for event in sub:
                await sub.unsubscribe()
                return [event["price"], event.matched_by, event.redelivered, event.publisher == net.publisher]
        return []

    assert run(main()) == [121, ("ten-lines",), False, True]


def test_exactly_what_matches_comes_and_in_order(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net, here.connect() as other:
            even = await net.subscribe("order.even AND k = 'exactly'")
            small = await other.subscribe("n < 10 AND k = 'exactly'", durable="exactly")
            ids = await net.publish_many(
                {"k": "exactly", "n": n, "order": {"even": not n % 2}} for n in range(300)
            )  # fmt: skip
            assert ids == [f"{net.publisher}/{n}" for n in range(1, 301)]
            assert [event["n"] for event in await take(even, 150)] == list(range(0, 300, 2))
            assert [event["n"] for event in await take(small, 10)] == list(range(10))
            assert await silent(even)
            assert await silent(small)
            await small.unsubscribe()

    run(main())


def test_the_envelope_is_the_clients_and_may_be_given(here: LocalNetwork) -> None:
    async def main() -> None:
        when = datetime(2026, 1, 2, tzinfo=UTC)
        async with here.connect(client="ann") as net:
            sub = await net.subscribe("k = 'envelope'")
            await net.publish({"k": "envelope"})
            await net.publish({"k": "envelope"}, id="mine", time=when)
            whole = mp.Event("whole", "someone", 77, when, {"k": "envelope", "a": {"b": 1}})
            event_id = await net.publish(whole)
            numbered = net.event({"k": "envelope"})
            await net.publish(numbered)
            first, second, third, fourth = await take(sub, 4)
            assert first.publisher.startswith("ann-")
            assert first.id == f"{first.publisher}/1"
            assert (first.sequence, second.sequence, fourth.sequence) == (1, 2, 3)
            assert abs(first.time - datetime.now(UTC)) < timedelta(minutes=5)
            assert (second.id, second.time, second.publisher) == ("mine", when, first.publisher)
            assert third.event == whole
            assert (third.id, third.key) == (event_id, event_id.key)
            assert third.get("a.b") == 1
            assert third.get("none") is None
            with pytest.raises(KeyError, match="none"):
                third["none"]
            assert fourth.event == numbered
            with pytest.raises(NetworkError, match="has an id and a time of its own"):
                await net.publish(whole, id="other")

    run(main())


def test_matched_by_names_all_subscriptions_of_this_client(here: LocalNetwork) -> None:
    async def main() -> None:
        url = here.url_of(0)
        async with mp.connect(url) as net, mp.connect(url) as other:
            one = await net.subscribe("k = 'by' AND n > 0", durable="by-one")
            two = await net.subscribe("k = 'by' AND n > 1", durable="by-two")
            foreign = await other.subscribe("k = 'by'", durable="by-foreign")
            await net.publish_many([{"k": "by", "n": 1}, {"k": "by", "n": 2}])
            first, second = await take(one, 2)
            assert first.matched_by == ("by-one",)
            assert sorted(second.matched_by) == ["by-one", "by-two"]
            assert sorted((await take(two, 1))[0].matched_by) == ["by-one", "by-two"]
            assert {event.matched_by for event in await take(foreign, 2)} == {("by-foreign",)}
            for subscription in (one, two, foreign):
                await subscription.unsubscribe()

    run(main())


def test_mistakes_are_told_before_anything_is_sent(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            with pytest.raises(FilterError, match="column 8") as refused:
                await net.subscribe("price >")
            assert refused.value.pointer().endswith("^")
            with pytest.raises(EventError):
                await net.publish({"price": [1]})
            with pytest.raises(EventError, match="id is empty"):
                await net.publish({"price": 1}, id="")
            with pytest.raises(EventError, match=f"at most {EVENT_BYTES_MAX} are carried"):
                await net.publish({"text": "x" * EVENT_BYTES_MAX})
            for wrong, match in (
                ({"lifetime": 0}, "give seconds above 0"),
                ({"window": 0}, "give a number from 1"),
                ({"ack": "often"}, "say 'auto' or 'manual'"),
                ({"durable": ""}, "give the subscription a name"),
                ({"labels": {"a": 1}}, "labels are pairs of strings"),
            ):
                with pytest.raises(NetworkError, match=match):
                    await net.subscribe("price > 1", **wrong)
            sub = await net.subscribe("k = 'mistakes'")
            with pytest.raises(FilterError):
                await sub.update("k = ")
            await net.publish({"k": "mistakes"})
            (event,) = await take(sub, 1)
            assert event.sequence == 1, "what was refused took no number"
            assert net.explain("k = 'other'", event).accepted is False

    run(main())


def test_many_end_at_the_first_mistake_when_those_before_are_answered(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'ends'")
            with pytest.raises(EventError):
                await net.publish_many([{"k": "ends", "n": 1}, {"k": "ends", "n": 2}, {"n": object()}, {"k": "ends"}])
            assert [event["n"] for event in await take(sub, 2)] == [1, 2]
            assert await silent(sub)

            async def slowly() -> AsyncIterator[dict[str, object]]:
                for n in range(3):
                    await asyncio.sleep(0)
                    yield {"k": "ends", "n": n}

            assert len(await net.publish_many(slowly())) == 3

    run(main())


def test_no_more_than_so_many_are_on_their_way(here: LocalNetwork) -> None:
    async def main() -> None:
        async with mp.connect(here.url, in_flight=3) as net:
            flying = []

            def watched() -> Iterator[dict[str, object]]:
                for n in range(40):
                    session = net._publisher._session
                    flying.append(0 if session is None else len(session.in_flight))
                    yield {"k": "bounded", "n": n}

            assert len(await net.publish_many(watched())) == 40
            assert max(flying) <= 3
            ids = await asyncio.gather(*(net.publish({"k": "bounded"}) for _ in range(20)))
            keys = [each.key for each in ids]
            assert keys == sorted(keys), "in the order of the calls"

    run(main())


def test_cancelling_anything_leaves_the_client_usable(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'cancelled'", durable="cancelled", ack="manual")
            for delay in (0.0, 0.0005, 0.002, 0.01):
                doing = [
                    asyncio.create_task(net.publish_many({"k": "cancelled"} for _ in range(500))),
                    asyncio.create_task(net.publish({"k": "cancelled"})),
                    asyncio.create_task(net.subscribe("k = 'nothing'")),
                    asyncio.create_task(net.subscribe("k = 'nothing'", durable="cancelled-other")),
                    asyncio.create_task(net.subscriptions()),
                    asyncio.create_task(sub.pause()),
                    asyncio.create_task(take(sub, 1000)),
                ]
                await asyncio.sleep(delay)
                for task in doing:
                    task.cancel()
                await asyncio.gather(*doing, return_exceptions=True)
            await sub.resume()
            await net.publish({"k": "cancelled", "last": True})
            async with asyncio.timeout(30):
                async for event in sub:
                    await event.ack()
                    if event.get("last"):
                        break
            await sub.unsubscribe()
            if (await net.locate("cancelled-other")).host is not None:
                await (await net.subscribe("k = 'nothing'", durable="cancelled-other")).unsubscribe()
            await until(lambda: here.is_quiet)

    run(main())


def test_a_reader_that_is_too_slow_for_what_comes_once_is_told_how_much_it_missed(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'slow'", window=10)
            mark = await net.subscribe("k = 'slow'")
            await net.publish_many({"k": "slow", "n": n} for n in range(30))
            await take(mark, 30)
            assert sub.waiting == 10
            assert sub.dropped == 20
            assert [event["n"] for event in await take(sub, 10)] == list(range(10))

    run(main())


def test_a_filter_may_be_updated_and_a_subscription_ended(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'updated' AND n = 1")
            await sub.update("k = 'updated' AND n = 2")
            await net.publish_many([{"k": "updated", "n": 1}, {"k": "updated", "n": 2}])
            (event,) = await take(sub, 1)
            assert event["n"] == 2
            await sub.unsubscribe()
            assert sub.ended == "it was unsubscribed"
            assert [event async for event in sub] == []
            with pytest.raises(NetworkError, match="it was unsubscribed; subscribe again"):
                await sub.update("n = 3")
            await sub.unsubscribe()
            await sub.close()

    run(main())


def test_several_readers_share_what_comes(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'shared'", durable="shared")
            readers = [asyncio.create_task(take(sub, 10)) for _ in range(3)]
            await net.publish_many({"k": "shared", "n": n} for n in range(40))
            shares = await asyncio.gather(*readers)
            numbers = [event["n"] for share in shares for event in share]
            assert sorted(numbers) == list(range(30))  # type: ignore[type-var]
            await sub.unsubscribe()

    run(main())


def test_what_the_schema_does_not_allow_is_refused_with_its_place() -> None:
    async def main() -> None:
        async with mp.local(brokers=1) as alone, alone.connect() as net:
            assert await net.schema() is None
            await net.declare("attributes:\n  price: decimal\n")
            schema = await net.schema()
            assert schema is not None
            assert [attribute.name for attribute in schema] == ["price"]
            with pytest.raises(FilterError, match="price"):
                await net.subscribe("price LIKE 'a%'")
            sub = await net.subscribe("price > 1")
            with pytest.raises(FilterError, match="price"):
                await sub.update("price = 'high'")
            with pytest.raises(EventError, match="price"):
                await net.publish({"price": "high"})
            with pytest.raises(RefusedError):
                await net.declare("attributes:\n  price: string\n")
            with pytest.raises(mp.SchemaError):
                await net.declare("attributes: [")

    run(main())


def test_a_published_id_is_a_text_that_knows_its_key(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            event_id = await net.publish({"k": "id"})
            assert event_id == f"{net.publisher}/1"
            for copied in (copy.deepcopy(event_id), pickle.loads(pickle.dumps(event_id))):
                assert (copied, copied.key, type(copied)) == (event_id, event_id.key, mp.EventId)
            with pytest.raises(AttributeError):
                event_id.key = event_id.key  # type: ignore[misc]
            (published,) = [line for line in await net.journal(event_id) if line.step == "published"]
            assert published.event == event_id.key
            assert await net.journal(key=event_id.key)
            again = net.event({"k": "id", "caused_by": event_id}, id=event_id)
            assert (type(again.id), type(again.attributes["caused_by"])) == (str, str)
            assert None not in (await net.follow(event_id, 5)).values()
            assert await net.publish(again) == event_id

    run(main())


def test_what_is_printed_of_a_client_says_where_it_is_and_what_it_does(here: LocalNetwork) -> None:
    async def main() -> None:
        connecting = mp.connect(here.url_of(1), client="ann")
        assert repr(connecting).startswith(f"<Connecting {here.url_of(1)}: await it")
        async with connecting as net:
            sub = await net.subscribe("k = 'shown'", durable="shown")
            passing = await net.subscribe("k = 'shown'")
            await net.publish({"k": "shown"}, id="one")
            (event,) = await take(sub, 1)
            at = f"connected to {here.addresses[1]} client='ann' publisher='{net.publisher}'"
            assert repr(net) == f"<Network {here.url_of(1)} {at} events=1 subscriptions=2>"
            assert repr(await net.connections.main()) == f"<Connection {here.addresses[1]} open>"
            place = f"at {here.addresses[1]} filter=\"k = 'shown'\" waiting=0 dropped=0>"
            assert repr(sub) == f"<Subscription 'shown' durable attached {place}"
            assert repr(event) == f"<Delivery one {{'k': 'shown'}} matched_by=shown, {passing.name}>"
            await sub.pause()
            assert repr(sub) == f"<Subscription 'shown' durable paused {place}"
            await passing.close()
            assert " ephemeral ended: it was closed " in repr(passing)
        assert repr(net).startswith(f"<Network {here.url_of(1)} closed ")

    run(main())
