"""Limits per client: what is too much is refused or waits, the connection stays, and nobody else is the poorer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from meetpoint.api.client_messages import JournalRequest, Request, RequestBody, ResponseBody, SchemaReply, SchemaRequest
from meetpoint.api.handshake import Hello, HelloRejected
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import Acknowledge, Locate, Publish, Subscribe, SubscriptionOptions, Unsubscribe, Update
from meetpoint.broker import Limits
from meetpoint.broker.clients.quotas import PAUSE_S, TokenBucket, TokenBuckets
from meetpoint.broker.config import Access
from meetpoint.security import Rights
from tests.broker.talking import Caller, broker, calling, event, raw, run, until
from tests.security.authorities import TestAuthority

KEY = EventKey(HomeId(b"nobody's"), 1, 1)


def reason_of(word: ResponseBody) -> str:
    assert isinstance(word, Refused), word
    assert not word.retry
    return word.reason


# -- subscriptions -----------------------------------------------------------------------------------------------------


async def _fills_up(client: Caller, most: int) -> None:
    """A client may have so many subscriptions and not one more, may ask for one again, and for another after an end."""
    for number in range(most):
        assert await client.get(Subscribe(f"s{number}", "x > 0")) == Stored()
    reason = reason_of(await client.get(Subscribe("more", "x > 0")))
    assert f"limits.subscriptions_per_client is {most}" in reason
    assert reason_of(await client.get(Subscribe("once", "x > 0", SubscriptionOptions(durable=False)))) == reason
    assert await client.get(Subscribe("s0", "x > 0")) == Stored()
    assert await client.get(Unsubscribe("s0")) == Stored()
    assert await client.get(Subscribe("more", "x > 0")) == Stored()
    assert isinstance(await client.get(Subscribe("s0", "x > 0")), Refused)
    assert isinstance(await client.get(SchemaRequest()), SchemaReply)


@pytest.mark.parametrize("client", ["tester", ""])
def test_a_client_has_so_many_subscriptions_and_no_more(client: str) -> None:
    async def main() -> None:
        async with (
            broker(limits=Limits(subscriptions_per_client=5)) as one,
            calling(one.address, client=client) as first,
            calling(one.address, client="other") as other,
        ):
            await _fills_up(first, 5)
            assert one.counts.refusals["subscriptions_full"] == 3
            assert await other.get(Subscribe("of another", "x > 0")) == Stored()

    run(main())


def test_a_client_that_comes_again_has_what_it_had(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        said = {"limits": Limits(subscriptions_per_client=3), "access": Access(**authority.access)}
        async with broker(**said) as one:
            async with calling(one.address, token=authority.token("ann", tenant="acme")) as ann:
                await _fills_up(ann, 3)
            async with calling(one.address, token=authority.token("ann", tenant="acme")) as again:
                assert "you have 3 subscriptions" in reason_of(await again.get(Subscribe("new", "x > 0")))
            async with calling(one.address, token=authority.token("ann", tenant="globex")) as other:
                await _fills_up(other, 3)

    run(main())


# -- constraints -------------------------------------------------------------------------------------------------------


def _filter(constraints: int) -> str:
    """Of conjunctions with two constraints, and one with what is left."""
    parts = [f"(a = {number} AND b = {number})" for number in range(constraints // 2)]
    return " OR ".join([*parts, *["c = 1"] * (constraints % 2)])


def test_a_filter_has_so_many_constraints_and_no_more(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def check(client: Caller) -> None:
        assert await client.get(Subscribe("s", _filter(64))) == Stored()
        for what in (Subscribe("t", _filter(65)), Update("s", _filter(66))):
            assert "limits.constraints_per_filter is 64" in reason_of(await client.get(what))
        assert await client.get(Update("s", _filter(63))) == Stored()
        assert "expected" in reason_of(await client.get(Subscribe("u", "a = 1 OR")))

    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            await check(client)
            assert one.counts.refusals["constraints_full"] == 2
        async with (
            broker(access=Access(**authority.access)) as one,
            calling(one.address, token=authority.token("ann", tenant="acme")) as ann,
        ):
            await check(ann)  # the tenant's own is not counted
            assert one.counts.refusals["constraints_full"] == 2

    run(main())


# -- publishing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (Limits(publish_per_s=200, publish_burst=10), 10),
        (Limits(publish_bytes_per_s=20_000_000, publish_bytes_burst=1 << 20), 200_000),
    ],
)
def test_who_publishes_too_fast_waits_and_loses_nothing(limits: Limits, size: int) -> None:
    async def main() -> None:
        async with (
            broker(limits=limits) as one,
            calling(one.address, client="fast") as fast,
            calling(one.address, client="taker") as attached,
        ):
            await attached.subscribe("s", "x >= 0")
            answers = await fast.publish(*[event(number, x=number, text="t" * size) for number in range(40)])
            assert all(isinstance(word, Published) for word in answers)
            assert [each.event.number for each in await attached.notified(40)] == list(range(1, 41))
            assert one.counts.totals["throttled_clients"] > 0
            assert not sum(one.counts.refusals.values())
            # Whoever publishes less is not held up by it.
            before = one.counts.totals["throttled_clients"]
            await attached.publish(*[event(number, x=number) for number in range(100, 104)])
            assert one.counts.totals["throttled_clients"] == before

    run(main())


def test_a_client_gains_nothing_by_more_connections() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            limits = Limits(publish_per_s=1.0, publish_burst=5)
            one = await stack.enter_async_context(broker(limits=limits))
            for number in range(5):
                client = await stack.enter_async_context(calling(one.address, client="fast"))
                await client.publish(event(number, x=1))
            before = one.counts.totals["throttled_clients"]
            client = await stack.enter_async_context(calling(one.address, client="fast"))
            await client.publish(event(5, x=1))  # taken, and now it is in debt
            assert (before, one.counts.totals["throttled_clients"]) == (0, 1)
            late = client.ask(Publish(event(6, x=1)))
            other = await stack.enter_async_context(calling(one.address, client="slow"))
            requests = one.counts.totals["requests"]
            await other.publish(event(7, x=1))
            assert one.counts.totals["requests"] == requests + 1  # the other was heard meanwhile, and this one was not
            assert [session.connection.is_held for session in one._clients.sessions].count(True) == 1
            assert isinstance(await client.told(late), Published)

    run(main())


def test_a_rate_of_0_is_no_limit() -> None:
    async def main() -> None:
        limits = Limits(publish_per_s=0, publish_burst=1, publish_bytes_per_s=0)
        async with broker(limits=limits) as one, calling(one.address) as client:
            await client.publish(*[event(number, x=1) for number in range(100)])
            assert not one.counts.totals["throttled_clients"]

    run(main())


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    bucket = TokenBucket(100.0, 10, now=0.0)
    assert [bucket.take(1, 0.0) for _ in range(10)] == [0.0] * 10
    assert bucket.take(1, 0.0) == PAUSE_S  # for never less
    assert bucket.take(9, 0.0) == pytest.approx(0.1)  # until 10 are paid
    assert not bucket.is_full(0.1)
    assert bucket.take(1, 0.12) == 0.0
    assert bucket.is_full(0.3)
    assert [bucket.take(1, 99.0) for _ in range(11)] == [0.0] * 10 + [PAUSE_S]  # and never more than the burst
    assert bucket.take(1, 5.0) == pytest.approx(0.02)  # a clock that goes back fills nothing


def test_buckets_are_forgotten_when_they_are_full_again() -> None:
    buckets = TokenBuckets(
        Limits(publish_per_s=1, publish_burst=2, publish_bytes_per_s=10, publish_bytes_burst=1 << 20)
    )
    for client in ("a", "b"):
        assert buckets.take(client, 100, 0.0) == 0.0
    buckets.tick(5.0)
    assert len(buckets) == 2
    buckets.tick(11.0)
    assert len(buckets) == 0


# -- connections -------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _turned_away(address: str, hello: Hello) -> AsyncIterator[HelloRejected]:
    async with raw(address) as caller:
        caller.send(hello)
        yield await caller.next(HelloRejected)


def test_a_client_has_so_many_connections_and_no_more(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        said = {"limits": Limits(connections_per_client=2), "access": Access(**authority.access)}
        token = authority.token("ann", tenant="acme")
        async with broker(**said) as one, calling(one.address, token=token):
            async with calling(one.address, token=token):
                async with _turned_away(one.address, Hello((1, 2), "", token=token)) as no:
                    assert no.retry
                    assert "limits.connections_per_client" in no.reason
                assert one.counts.refusals["connections_full"] == 1
                async with calling(one.address, token=authority.token("ann", tenant="globex")):
                    pass
            await until(lambda: len(one._clients.sessions) == 1, "one of them is gone")
            async with calling(one.address, token=token):
                pass

    run(main())


def test_without_tokens_a_client_is_who_it_says_it_is() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            one = await stack.enter_async_context(broker(limits=Limits(connections_per_client=1)))
            for client in ("a", "b", "", "", ""):
                await stack.enter_async_context(calling(one.address, client=client))
            async with _turned_away(one.address, Hello((1, 2), "", client="a")) as no:
                assert "you have 1 connections here already" in no.reason

    run(main())


def test_a_broker_has_so_many_clients_and_no_more() -> None:
    async def main() -> None:
        async with broker(limits=Limits(clients=2)) as one, calling(one.address), calling(one.address):
            async with _turned_away(one.address, Hello((1, 2), "")) as no:
                assert no.retry
                assert "this broker has 2 clients already" in no.reason
            assert one.counts.refusals["clients_full"] == 1

    run(main())


def test_connections_that_do_not_say_who_they_are_are_bounded() -> None:
    async def main() -> None:
        async with contextlib.AsyncExitStack() as stack:
            one = await stack.enter_async_context(broker(limits=Limits(handshakes=3, handshake_s=30)))
            silent = [await stack.enter_async_context(raw(one.address)) for _ in range(5)]
            assert await silent[3].ended()
            assert await silent[4].ended()
            assert one.counts.refusals["handshakes_full"] == 2
            silent[0].close()
            await until(lambda: len(one._listener._waiting) == 2, "one of them is gone")
            async with calling(one.address) as client:
                (word,) = await client.publish(event(1, x=1))
                assert isinstance(word, Published)

    run(main())


# -- what makes no progress --------------------------------------------------------------------------------------------


def test_half_a_frame_and_a_client_that_does_not_read_are_counted_by_their_kinds() -> None:
    async def main() -> None:
        limits = Limits(frame_s=1, stall_s=1, client_queue_bytes=100_000)
        async with (
            broker(limits=limits) as one,
            calling(one.address, client="half") as half,
            calling(one.address, client="deaf") as deaf,
            calling(one.address, client="good") as good,
        ):
            half.writer.write(b"\x02\x00")
            await until(lambda: one.counts.refusals["slow_frame"] == 1, "half a frame")
            await deaf.subscribe("s", "x > 0", window=300)
            deaf.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await good.publish(*[event(number, x=1, text="t" * 50_000) for number in range(300)])
            await until(lambda: one.counts.refusals["stalled"] == 1, "a client that does not read")
            assert one.counts.totals["stalls"] == 2

    run(main())


# -- requests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [Publish(event(1, x=1)), JournalRequest("nothing")])
def test_who_asks_more_than_is_answered_is_not_read_from_for_a_while(
    what: RequestBody, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with (
            broker(limits=Limits(requests_under_way=20)) as one,
            calling(one.address, client="hasty") as hasty,
            calling(one.address, client="other") as other,
        ):
            (session,) = [each for each in one._clients.sessions if each.key == "hasty"]
            hold, held_at = session.connection.hold, set()

            def noted(is_held: bool) -> None:
                if is_held:
                    held_at.add(session.in_flight)
                hold(is_held)

            monkeypatch.setattr(session.connection, "hold", noted)
            for number in [hasty.ask(what) for _ in range(200)]:
                assert not isinstance(await hasty.told(number), Refused)
            assert held_at == {21}
            assert session.in_flight == 0
            assert not session.connection.is_held
            for each in (SchemaRequest(), Subscribe("s", "x >"), Subscribe("t", "x > 0"), Unsubscribe("t")):
                await hasty.get(each)  # whatever is asked is answered once
            hasty.send(Request(0, Publish(event(300, x=1))), Request(0, Acknowledge(KEY, ("s",))))
            await hasty.get(SchemaRequest())
            await until(lambda: session.in_flight == 0, "nothing is left")
            assert isinstance((await other.publish(event(1, x=1)))[0], Published)

    run(main())


@pytest.mark.parametrize(
    ("what", "says"),
    [
        (Subscribe("n" * 201, "x > 0"), "201 characters"),
        (
            Subscribe("s", "x > 0", SubscriptionOptions(owner="o", labels=(("a", "b" * 4_095),))),
            "have 4,097 characters",
        ),
        (Subscribe("s", "x > 0", SubscriptionOptions(owner="o" * 4_097)), "have 4,097 characters"),
        (Update("s", labels=(("a" * 2_000, "b" * 2_097),)), "have 4,097 characters"),
        (Locate("n" * 513), "513 characters"),
    ],
)
def test_what_is_said_beside_a_filter_is_bounded(what: RequestBody, says: str) -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            assert says in reason_of(await client.get(what))
            assert one.counts.refusals["request"] == 1

    run(main())


def test_events_that_are_refused_count_as_published(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        said = {"limits": Limits(publish_per_s=200, publish_burst=10), "access": Access(**authority.access)}
        token = authority.token("ann", publish=Rights(("x > 100",)))
        async with broker(**said) as one, calling(one.address, token=token) as ann:
            await ann.publish(*[event(number, x=1) for number in range(30)])
            assert one.counts.refusals["publish"] == 30
            assert one.counts.totals["throttled_clients"] > 0

    run(main())
