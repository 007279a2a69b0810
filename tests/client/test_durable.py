"""Durable subscriptions: what matches waits, comes at least once, and marked where it may have come before."""

from __future__ import annotations

import asyncio

import pytest

import meetpoint as mp
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.local_network import LocalNetwork
from tests.client.running import PATIENCE_S, run, silent, take, until


def test_it_goes_on_where_it_was_when_the_client_comes_back(here: LocalNetwork) -> None:
    async def main() -> None:
        async with mp.connect(here.url_of(0)) as net:
            sub = await net.subscribe("k = 'resume'", durable="resume")
            await net.publish_many({"k": "resume", "n": n} for n in range(5))
            first = await take(sub, 3)  # the third is not acknowledged: nobody asked for a fourth
            assert not any(event.redelivered for event in first)
        async with mp.connect(here.url_of(1)) as net:  # by another broker
            await net.publish({"k": "resume", "n": 5})
            sub = await net.subscribe("k = 'resume'", durable="resume")
            again = await take(sub, 4)
            assert [event["n"] for event in again] == [2, 3, 4, 5]
            assert (again[0].redelivered, again[3].redelivered) == (True, False)
            await again[3].ack()
            await sub.close()
            sub = await net.subscribe("k = 'resume'", durable="resume")
            assert await silent(sub)
            await sub.unsubscribe()
            assert (await net.locate("resume")).host is None

    run(main())


def test_another_filter_needs_to_be_said(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net, here.connect() as other:
            await net.subscribe("n > 1 AND k = 'taken'", durable="taken")
            with pytest.raises(
                RefusedError, match=r"there is one with the filter n > 1 AND k = 'taken'; .* replace=True"
            ):
                await other.subscribe("n > 2 AND k = 'taken'", durable="taken")
            await other.subscribe("k = 'taken' AND n > 1", durable="taken")  # says the same
            sub = await other.subscribe("n > 2 AND k = 'taken'", durable="taken", replace=True)
            await net.publish_many([{"k": "taken", "n": 2}, {"k": "taken", "n": 3}])
            assert [event["n"] for event in await take(sub, 1)] == [3]
            await sub.unsubscribe()

    run(main())


def test_the_last_that_came_takes_it(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as first, here.connect() as second:
            one = await first.subscribe("k = 'two'", durable="two", ack="manual")
            await first.publish_many([{"k": "two", "n": 1}, {"k": "two", "n": 2}])
            (event, _) = await take(one, 2)  # the second has come too, and is not acknowledged
            await event.ack()
            two = await second.subscribe("k = 'two'", durable="two")
            await until(lambda: one.ended is not None)
            assert "another client takes it now" in str(one.ended)
            (event,) = await take(two, 1)
            assert (event["n"], event.redelivered) == (2, True)
            await first.publish({"k": "two", "n": 3})
            (event,) = await take(two.events(timeout=PATIENCE_S), 1)
            assert event["n"] == 2 or event["n"] == 3
            mine = await second.subscribe("k = 'two'", durable="two")  # the same client once more
            assert two.ended is not None
            await mine.unsubscribe()

    run(main())


def test_rejected_it_comes_again_and_becomes_a_dead_letter(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'dead'", durable="dead", ack="manual")
            await net.publish({"k": "dead", "n": 1}, id="dead-1")
            await net.publish({"k": "dead", "n": 2})
            tries = 0
            async with asyncio.timeout(PATIENCE_S):
                async for event in sub:
                    if event["n"] == 2:
                        await event.ack()
                        continue
                    assert event.redelivered == (tries > 0)
                    tries += 1
                    await event.nack("no use")
                    if tries == 5:
                        break
            letters = await net.dead_letters("dead")
            assert [(letter.event.id, letter.names) for letter in letters] == [("dead-1", ("dead",))]
            assert letters[0].reason.startswith("no use")
            assert await net.dead_letters("none of this name") == []
            assert await silent(sub)
            await net.discard(letters[0])
            assert await net.dead_letters("dead") == []
            await sub.unsubscribe()

    run(main())


def test_not_acknowledged_in_time_it_comes_again_marked(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'late'", durable="late", ack="manual")
            await net.publish({"k": "late"})
            first, again = await take(sub, 2)
            assert first.id == again.id
            assert (first.redelivered, again.redelivered) == (False, True)
            await first.ack()
            await first.ack()
            await again.ack()
            assert await silent(sub, 1.5)
            await sub.unsubscribe()

    run(main())


def test_no_more_than_the_window_is_brought(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'window'", durable="window", window=4)
            await net.publish_many({"k": "window", "n": n} for n in range(50))
            await until(lambda: sub.waiting == 4)
            numbers = []
            async with asyncio.timeout(PATIENCE_S):
                async for event in sub:
                    assert sub.waiting <= 4
                    numbers.append(event["n"])
                    if len(numbers) == 50:
                        break
            assert numbers == list(range(50))
            await sub.unsubscribe()

    run(main())


def test_pause_and_resume(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'pause'", durable="pause")
            passing = await net.subscribe("k = 'pause'")
            await sub.pause()
            await passing.pause()
            await net.publish({"k": "pause", "n": 1})
            assert await silent(sub)
            await sub.resume()
            await passing.resume()
            await net.publish({"k": "pause", "n": 2})
            assert [event["n"] for event in await take(sub, 2)] == [1, 2]
            assert [event["n"] for event in await take(passing, 1)] == [2]
            await sub.unsubscribe()
            held = await net.subscribe("k = 'pause'", durable="pause-from-the-start", paused=True)
            await net.publish({"k": "pause", "n": 3})
            assert await silent(held)
            await held.resume()
            assert [event["n"] for event in await take(held, 1)] == [3]
            await held.unsubscribe()

    run(main())


@pytest.mark.parametrize("durable", [None, "lifetime"])
def test_a_lifetime_ends_the_iterator(here: LocalNetwork, durable: str | None) -> None:
    async def main() -> None:
        async with here.connect() as net:
            sub = await net.subscribe("k = 'lifetime'", durable=durable, lifetime=3)
            await net.publish({"k": "lifetime"})
            async with asyncio.timeout(PATIENCE_S):
                found = [event["k"] async for event in sub]
            assert found == ["lifetime"]
            assert "lifetime" in str(sub.ended)
            if durable is not None:
                assert (await net.locate(durable)).host is None

    run(main())


def test_subscriptions_are_listed_by_owner_and_labels(here: LocalNetwork) -> None:
    async def main() -> None:
        async with (
            mp.connect(here.url_of(0), client="lister-ann") as ann,
            mp.connect(here.url_of(1), client="lister-bob") as bob,
        ):
            subs = [
                await ann.subscribe("k = 'list'", durable="list-1", labels={"team": "a", "prio": "high"}),
                await ann.subscribe("k = 'list'", durable="list-2", labels={"team": "b"}),
                await bob.subscribe("k = 'list'", durable="list-3", labels={"team": "a"}, owner="lister-ann"),
                await bob.subscribe("k = 'list'", durable="list-4", labels={"team": "a"}),
            ]
            assert [held.name for held in await bob.subscriptions(owner="lister-ann")] == ["list-1", "list-2", "list-3"]
            assert [held.name for held in await ann.subscriptions("lister-bob")] == ["list-4"]
            team = await ann.subscriptions(labels={"team": "a"})
            assert [held.name for held in team] == ["list-1", "list-3", "list-4"]
            both = await ann.subscriptions(labels={"team": "a", "prio": "high"})
            assert [(held.name, held.filter, held.is_present) for held in both] == [("list-1", "k = 'list'", True)]
            await subs[1].update(labels={"team": "a"})
            assert len(await ann.subscriptions("lister-ann", {"team": "a"})) == 3
            located = await ann.locate("list-4")
            assert located.host is not None
            assert located.host.address == here.addresses[1]
            for sub in subs:
                await sub.unsubscribe()

    run(main())


def test_brokers_status_and_journal(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect() as net:
            assert {broker.peer.address for broker in await net.brokers()} == set(here.addresses)
            status = await net.status()
            assert set(status) == set(here.addresses)
            assert {each.state for each in status.values() if each is not None} == {"ready"}
            sub = await net.subscribe("k = 'journal'", durable="journal")
            event_id = await net.publish({"k": "journal"}, id="journal-1")
            await take(sub, 1)
            await until(lambda: True)
            lines = await net.journal(event_id)
            assert {line.event for line in lines} == {event_id.key}
            steps = [line.step for line in lines]
            assert steps[0] == "published"
            assert "notified" in steps
            assert [line for line in await net.journal(key=event_id.key) if line.step == "published"]
            assert await net.journal("no such event") == []
            await sub.unsubscribe()

    run(main())


def test_what_cannot_be_done_in_time_says_so(here: LocalNetwork) -> None:
    async def main() -> None:
        async with here.connect(timeout=1.0) as net:
            sub = await net.subscribe("k = 'time'", durable="time", ack="manual")
            await net.publish({"k": "time"})
            (event,) = await take(sub, 1)
            await sub.close()
            with pytest.raises(NetworkError, match="it was closed"):
                await sub.pause()
            await event.ack()  # too late to be promised, and no error
            await (await net.subscribe("k = 'time'", durable="time")).unsubscribe()
        with pytest.raises(NetworkError, match="this client is closed; connect again"):
            await net.publish({"k": "time"})
        with pytest.raises(NetworkError, match="closed"):
            await net.subscribe("k = 'time'")

    run(main())
