"""Server-sent events: they arrive, they resume where the reader was, and a stalled reader is no leak."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_structured_event

import meetpoint as mp
from meetpoint.broker.config import Archiving
from meetpoint.gateway import GatewayLimits, GatewayServer
from meetpoint.gateway.app import CLOSE_S
from meetpoint.gateway.events import feeds
from meetpoint.gateway.events.feeds import Position, ReaderBuffer
from meetpoint.gateway.events.streams import StreamRoutes
from meetpoint.gateway.gateway import Counters
from meetpoint.local_network import LocalNetwork
from tests.gateway.gateways import PATIENCE_S, Reader, gateway, reading, run, until


async def publish(client: httpx.AsyncClient, **attributes: object) -> None:
    answer = await client.post("/events", json={"attributes": attributes})
    assert answer.status_code == 200, answer.text


async def numbers(reader: Reader, count: int) -> list[Any]:
    return [message.data["attributes"]["n"] for message in await reader.take(count)]


def test_only_what_the_filter_accepts_comes(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client), reading(client, filter="test = 'sse' AND n > 1") as reader:
            for n in range(4):
                await publish(client, test="sse", n=n)
            assert await numbers(reader, 2) == [2, 3]
            assert reader.answer.headers["content-type"] == "text/event-stream"

    run(main())


def test_as_cloud_events_they_are_read_by_the_official_client(here: LocalNetwork) -> None:
    async def main() -> None:
        async with (
            gateway(here.url) as (_, client),
            reading(client, filter="type = 'test.sse'", format="cloudevents") as reader,
        ):
            event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "test.sse", "data": {"a": [1]}}
            await client.post("/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
            message = await reader.next()
            assert message.data == event
            body = httpx.Response(200, json=message.data).content
            assert from_structured_event(HTTPMessage({}, body)).get_data() == {"a": [1]}

    run(main())


def test_a_reader_that_comes_back_soon_misses_nothing_and_gets_nothing_twice(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            wanted = "test = 'resume'"
            async with reading(client, filter=wanted) as reader:
                for n in range(5):
                    await publish(client, test="resume", n=n)
                assert await numbers(reader, 3) == [0, 1, 2]
            for n in range(5, 7):
                await publish(client, test="resume", n=n)
            async with reading(client, after=reader.last_id, filter=wanted) as reader:
                await publish(client, test="resume", n=7)
                assert await numbers(reader, 5) == [3, 4, 5, 6, 7]
            assert served.gateway.counters.totals["streams_resumed"] == 1

    run(main())


def test_what_is_not_known_any_more_is_said_to_be_missing(here: LocalNetwork) -> None:
    async def main() -> None:
        wanted = "test = 'gap'"
        async with gateway(here.url) as (_, client), reading(client, filter=wanted) as reader:
            await publish(client, test="gap", n=0)
            await numbers(reader, 1)
        async with gateway(here.url) as (_, client):  # another one, which remembers nothing
            async with reading(client, after=reader.last_id, filter=wanted) as reader:
                assert (await reader.next()).kind == "gap"
                await publish(client, test="gap", n=1)
                assert await numbers(reader, 1) == [1]
            refused = await client.get("/events", params={"filter": "TRUE"}, headers={"Last-Event-ID": "what?"})
            assert (refused.status_code, refused.json()["error"]["kind"]) == (400, "position")

    run(main())


def test_with_an_archive_the_past_comes_first(tmp_path: Path) -> None:
    async def main() -> None:
        archive = Archiving(folder=str(tmp_path / "archive"))
        async with mp.local(brokers=1, data=tmp_path / "data", archive=archive) as alone:
            async with gateway(alone.url) as (_, client):
                for n in range(3):
                    await publish(client, n=n)
                async with reading(client, filter="n >= 1", since="2026-01-01") as reader:
                    await publish(client, n=3)
                    assert await numbers(reader, 3) == [1, 2, 3]
            async with gateway(alone.url) as (_, client):  # another one, which finds in the archive what came since
                await publish(client, n=4)
                async with reading(client, after=reader.last_id, filter="n >= 1") as again:
                    await publish(client, n=5)
                    assert await numbers(again, 2) == [4, 5]

    run(main())


def test_a_durable_stream_goes_on_after_what_was_seen(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            said = {"filter": "test = 'durable'", "durable": "stream-durable"}
            async with reading(client, **said) as reader:
                for n in range(5):
                    await publish(client, test="durable", n=n)
                assert await numbers(reader, 3) == [0, 1, 2]
            await publish(client, test="durable", n=5)
            async with reading(client, after=reader.last_id, durable="stream-durable") as again:
                assert await numbers(again, 3) == [3, 4, 5]
            async with reading(client, **said) as reader:  # who shows nothing gets all that is not acknowledged
                messages = await reader.take(3)
                assert [message.data["attributes"]["n"] for message in messages] == [3, 4, 5]
                assert all(message.data["redelivered"] for message in messages)

    run(main())


def test_what_was_sent_a_while_ago_counts_as_taken(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client), here.connect() as net:
            async with reading(client, filter="test = 'confirmed'", durable="stream-confirmed") as reader:
                await publish(client, test="confirmed", n=0)
                assert await numbers(reader, 1) == [0]

                async def is_empty() -> bool:
                    return [held.queued for held in await net.subscriptions() if held.name == "stream-confirmed"] == [0]

                async with asyncio.timeout(PATIENCE_S):
                    while not await is_empty():
                        await asyncio.sleep(0.5)
            await publish(client, test="confirmed", n=1)
            async with reading(client, durable="stream-confirmed") as reader:
                assert await numbers(reader, 1) == [1]

    run(main())


def test_two_streams_of_one_durable_subscription_take_it_from_each_other(here: LocalNetwork) -> None:
    async def main() -> None:
        said = {"filter": "test = 'taken'", "durable": "stream-taken"}
        async with (
            gateway(here.url) as (_, client),
            reading(client, **said) as first,
            reading(client, **said) as second,
        ):
            message = await first.next()
            assert (message.kind, list(message.data)) == ("ended", ["reason"])
            assert await first.is_over()
            await publish(client, test="taken", n=0)
            assert await numbers(second, 1) == [0]

    run(main())


@pytest.mark.parametrize(
    ("query", "status", "kind", "at"),
    [
        ({}, 400, "query", None),
        ({"filter": "price >"}, 422, "filter", 7),
        ({"filter": "TRUE", "sinse": "2026-01-01"}, 400, "query", None),
        ({"filter": "TRUE", "since": "yesterday"}, 400, "query", None),
        ({"filter": "TRUE", "since": "2026-01-01", "durable": "x"}, 400, "query", None),
        ({"filter": "TRUE", "format": "xml"}, 400, "query", None),
        ({"durable": "there is none"}, 404, "not_found", None),
        ({"filter": "TRUE", "since": "2026-01-01"}, 403, "refused", None),
    ],
)
def test_a_stream_that_cannot_be_is_refused_before_it_begins(
    here: LocalNetwork, query: dict[str, str], status: int, kind: str, at: int | None
) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            answer = await client.get("/events", params=query)
            error = answer.json()["error"]
            assert (answer.status_code, error["kind"], error.get("at")) == (status, kind, at)
            described = (await client.get("/openapi.json")).json()["paths"]["/events"]["get"]["responses"]
            assert str(status) in described
            assert len(served.gateway.stream_limits) == 0

    run(main())


def test_who_reads_the_same_shares_one_subscription_which_ends_some_time_after_the_last(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client), here.connect() as net:

            async def held() -> int:
                return sum(each.filter == "test = 'shared'" for each in await net.subscriptions())

            async with (
                reading(client, filter="test = 'shared'") as one,
                reading(client, filter="test = 'shared'") as two,
            ):
                await publish(client, test="shared", n=0)
                assert await numbers(one, 1) == await numbers(two, 1) == [0]
                assert await held() == 1
                assert len(served.gateway.stream_limits) == 2
            await until(lambda: len(served.gateway.stream_limits) == 0)
            await asyncio.sleep(0.9 * feeds.LINGER_S)
            assert await held() == 1
            await asyncio.sleep(0.5 * feeds.LINGER_S)
            assert await held() == 0

    run(main())


def test_an_event_is_written_once_for_all_whose_filters_accept_it(
    here: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    encode_frame = feeds.encode_frame

    def counting(delivered: Any, form: Any) -> Any:
        written.append(form)
        return encode_frame(delivered, form)

    monkeypatch.setattr(feeds, "encode_frame", counting)

    async def main() -> None:
        async with gateway(here.url) as (_, client), AsyncExitStack() as stack:
            readers = [
                await stack.enter_async_context(reading(client, filter=f"test = 'once' AND n >= {least}"))
                for least in (0, 5, 10)
            ]
            for n in range(20):
                await publish(client, test="once", n=n)
            for least, reader in zip((0, 5, 10), readers, strict=True):
                assert await numbers(reader, 20 - least) == list(range(least, 20))
            assert readers[0].last_id == readers[1].last_id == readers[2].last_id
            assert len(written) == 20

    run(main())


def test_who_comes_later_gets_nothing_from_before(here: LocalNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "REST_S", 1.0)

    async def main() -> None:
        async with gateway(here.url) as (served, client), reading(client, filter="test = 'later'") as first:
            for n in range(10):
                await publish(client, test="later", n=n)
            (streams,) = (part for part in served.gateway.groups if isinstance(part, StreamRoutes))
            (feed,) = streams._feeds._shared.values()
            await until(lambda: feed._subscription.waiting + len(feed._ring) == 10)
            async with reading(client, filter="test = 'later'") as second:
                await publish(client, test="later", n=10)
                assert await numbers(second, 1) == [10]
            assert await numbers(first, 11) == list(range(11))

    run(main())


def test_who_writes_much_rests_long_and_who_is_alone_does_not() -> None:
    now = 0.0
    pace = feeds.LeakyBucket(lambda: now)
    pace.add(1)
    assert pace.rest_s() == pytest.approx(feeds.REST_S + 1 / feeds.WRITES_PER_S)
    pace.add(200)  # a stream that two hundred read
    assert pace.rest_s() == pytest.approx(feeds.REST_S + 201 / feeds.WRITES_PER_S)
    now += 100
    pace.add(1)
    assert pace.rest_s() == pytest.approx(feeds.REST_S + 1 / feeds.WRITES_PER_S)


def test_streams_are_as_many_as_are_allowed(here: LocalNetwork) -> None:
    async def main() -> None:
        limits = GatewayLimits(streams_per_client=1)
        async with gateway(here.url, limits=limits) as (served, client):
            async with reading(client, filter="FALSE"):
                answer = await client.get("/events", params={"filter": "FALSE"})
                assert (answer.status_code, answer.json()["error"]["kind"]) == (429, "streams")
            await until(lambda: len(served.gateway.stream_limits) == 0)
            async with reading(client, filter="FALSE"):
                pass

    run(main())


def test_a_reader_that_does_not_read_is_dropped_from_and_closed(here: LocalNetwork) -> None:
    async def main() -> None:
        limits = GatewayLimits(stream_bytes=300_000, stall_s=3)
        async with gateway(here.url, limits=limits) as (served, client):
            counts = served.gateway.counters.totals
            writer = await _ask_and_never_read(served)
            await until(lambda: len(served.gateway.stream_limits) == 1)
            text = "x" * 200_000
            for n in range(200):
                await publish(client, test="slow", n=n, text=text)
                if counts["events_dropped"]:
                    break
            assert counts["events_dropped"] > 0
            await until(lambda: len(served.gateway.stream_limits) == 0)
            assert counts["streams_stalled"] == 1
            writer.close()

    run(main())


async def _ask_and_never_read(served: GatewayServer) -> asyncio.StreamWriter:
    host, port = served.address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
    assert reader is not None
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(f"GET /events?filter=test+%3D+'slow' HTTP/1.1\r\nHost: {served.address}\r\n\r\n".encode())
    return writer


def test_a_reader_is_told_how_much_was_dropped() -> None:
    async def main() -> None:
        counters = Counters()
        reader = ReaderBuffer(10, counters)
        reader.put(b"12345", 1)
        reader.put(b"67890", 1)
        reader.put(b"!", 3)
        assert counters.totals["events_dropped"] == 3
        assert await reader.next(1) == (b'1234567890event: dropped\ndata: {"count":3}\n\n', 2)
        reader.put(b"longer than all that may wait", 1)
        assert await reader.next(1) == (b"longer than all that may wait", 1)
        reader.put(b"a", 1)
        assert await reader.next(1) == (b"a", 1)
        assert await reader.next(0.01) == (b"", 0)
        reader.end("over")
        assert await reader.next(1) == (b'event: ended\ndata: {"reason":"over"}\n\n', 0)
        assert await reader.next(1) is None

    run(main())


def test_a_burst_reaches_a_reader_that_reads(here: LocalNetwork) -> None:
    async def main() -> None:
        limits = GatewayLimits(stream_bytes=100_000)
        async with (
            gateway(here.url, limits=limits) as (served, client),
            here.connect() as net,
            reading(client, filter="test = 'burst'") as reader,
        ):
            await net.publish_many({"test": "burst", "n": n, "text": "x" * 1000} for n in range(300))
            assert await numbers(reader, 300) == list(range(300))
            await until(lambda: served.gateway.counters.totals["events_streamed"] == 300)

    run(main())


def test_when_the_gateway_stops_streams_end_at_once(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client), reading(client, filter="FALSE") as reader:
            loop = asyncio.get_running_loop()
            began = loop.time()
            served.stop()
            assert await reader.is_over()
            assert loop.time() - began < CLOSE_S, "open requests are waited for so long"

    run(main())


def test_a_position_is_read_as_it_is_written() -> None:
    text = "00ff-12-345-1794835383968667"
    assert str(Position.parse(text)) == text
