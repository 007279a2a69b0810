"""HTTP beside a broker: it lives, it serves, what it counted."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from meetpoint.broker import Broker, BrokerError
from meetpoint.broker.config import Access, Limits
from meetpoint.broker.observe.metrics import HELP, Histogram
from tests.broker.securing import secured
from tests.broker.talking import PATIENCE_S, broker, calling, config, event, run
from tests.security.authorities import TestAuthority

OPEN = "127.1:0"
"""Loopback in a spelling that a broker takes for the address of another interface, to be on the safe side."""


async def get(one: Broker, path: str, ca: str | None = None, authorization: str = "") -> tuple[int, str]:
    context = True if ca is None else ssl.create_default_context(cafile=ca)
    url = f"{'http' if ca is None else 'https'}://{one.admin_address}{path}".replace("127.1:", "127.0.0.1:")
    headers = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession() as session, session.get(url, ssl=context, headers=headers) as response:
        return response.status, await response.text()


def test_a_broker_that_serves_says_so_and_what_it_did() -> None:
    async def main() -> None:
        async with broker(admin="127.0.0.1:0") as one, calling(one.address) as client:
            await client.subscribe("s", "x > 0")
            await client.publish(*[event(n, x=n % 2) for n in range(10)])
            await client.notified(5)
            assert await get(one, "/healthz") == (200, "ok\n")
            assert await get(one, "/readyz") == (200, "ready\n")
            status, text = await get(one, "/metrics")
            assert status == 200
            found = {family.name: family for family in text_string_to_metric_families(text)}
            value = {name: family.samples[0].value for name, family in found.items() if family.samples}
            assert value["meetpoint_events_published"] == 10
            assert value["meetpoint_events_matched"] == 5
            assert value["meetpoint_deliveries"] == 5
            assert value["meetpoint_subscriptions"] == 1
            assert value["meetpoint_clients"] == 1
            assert value["meetpoint_ready"] == 1
            assert value["meetpoint_dead_letters"] == 0
            for name in HELP:
                assert f"meetpoint_{name}" in found, name
            seconds = {sample.name: sample.value for sample in found["meetpoint_store_seconds"].samples}
            assert seconds["meetpoint_store_seconds_count"] > 0
            assert (await get(one, "/nothing"))[0] == 404

    run(main())


def test_a_broker_that_does_not_serve_yet_says_why() -> None:
    async def main() -> None:
        one = Broker(config(admin="127.0.0.1:0", join=("127.0.0.1:1",)))
        await one.start()
        try:
            assert await get(one, "/healthz") == (200, "ok\n")
            status, text = await get(one, "/readyz")
            assert status == 503
            assert "it looks for a broker at 127.0.0.1:1" in text
        finally:
            await one.stop()

    run(main())


def test_an_address_that_is_taken_is_named_and_everything_is_closed_again() -> None:
    async def main() -> None:
        async with broker(admin="127.0.0.1:0") as one:
            other = Broker(config(admin=one.admin_address))
            with pytest.raises(BrokerError, match=f"admin {one.admin_address}: .*in use"):
                await other.start()
            assert other.exit_code == 0

    run(main())


def test_elsewhere_than_on_loopback_it_is_https_and_metrics_need_a_token(tmp_path: Path) -> None:
    async def main() -> None:
        ours = TestAuthority(tmp_path)
        access = Access(**ours.access)
        async with secured(ours, "a", admin=OPEN, access=access) as one:
            assert await get(one, "/healthz", ours.ca) == (200, "ok\n")
            assert await get(one, "/readyz", ours.ca) == (200, "ready\n")
            for authorization, says in (
                ("", "metrics need a token"),
                ("Basic abc", "metrics need a token"),
                ("Bearer abc", "token"),
                (f"Bearer {ours.token('c')}", "the token of c has not the role observe"),
                (f"Bearer {ours.token('c', roles=('observe',), seconds=1, begins=1.0)}", "expired"),
            ):
                status, text = await get(one, "/metrics", ours.ca, authorization)
                assert status == 401
                assert says in text
            assert one.counts.refusals["http"] == 5
            for role in ("observe", "operate"):
                status, text = await get(one, "/metrics", ours.ca, f"Bearer {ours.token('c', roles=(role,))}")
                assert status == 200
                assert 'meetpoint_refusals_total{kind="http"} 5.0' in text
            with pytest.raises(aiohttp.ClientError):
                await get(one, "/healthz")
        async with secured(ours, "a", admin="127.0.0.1:0", access=access) as one:
            assert (await get(one, "/metrics"))[0] == 200
        async with broker(admin=OPEN, insecure=True) as one:
            assert (await get(one, "/metrics"))[0] == 200

    run(main())


async def opened(one: Broker, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    assert one.admin_address is not None
    host, port = one.admin_address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(said)
    return reader, writer


HALF = b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Never-Ending: "


def test_who_asks_nothing_or_never_ends_asking_is_closed_and_counted() -> None:
    async def main() -> None:
        async with broker(admin="127.0.0.1:0", limits=Limits(frame_s=0.3)) as one:
            callers = [await opened(one, said) for said in (b"", HALF) * 10]
            async with asyncio.timeout(PATIENCE_S):
                for reader, writer in callers:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                    writer.close()
            assert one.counts.refusals["handshake_late"] == 20
            assert await get(one, "/healthz") == (200, "ok\n")

    run(main())


def test_so_many_ask_by_http_at_one_time_and_no_more() -> None:
    async def main() -> None:
        async with broker(admin="127.0.0.1:0", limits=Limits(handshakes=5)) as one:
            held = [await opened(one, HALF) for _ in range(5)]
            over = [await opened(one) for _ in range(10)]
            async with asyncio.timeout(PATIENCE_S):
                for reader, writer in over:
                    with contextlib.suppress(ConnectionError):
                        assert await reader.read() == b""
                    writer.close()
            assert one.counts.refusals["handshakes_full"] == 10
            for _, writer in held:
                writer.close()
                await writer.wait_closed()
            assert await get(one, "/healthz") == (200, "ok\n")

    run(main())


@pytest.mark.parametrize("said", [b"\x00\xff" * 100 + b"\r\n\r\n", HALF + b"a" * 20_000, b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_request_is_refused_and_said_in_one_line(said: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with broker(admin="127.0.0.1:0") as one:
            for _ in range(5):
                reader, writer = await opened(one, said)
                async with asyncio.timeout(PATIENCE_S):
                    with contextlib.suppress(ConnectionError):
                        assert (await reader.read()).startswith(b"HTTP/1.")
                writer.close()
            assert one.counts.refusals["http"] == 5
        told = [record for record in caplog.records if "kind=http" in record.message or record.exc_info]
        assert len(told) == 1, [record.message for record in told]

    run(main())


def test_a_connection_is_for_one_request() -> None:
    async def main() -> None:
        async with broker(admin="127.0.0.1:0") as one:
            for path in (b"/healthz", b"/metrics", b"/nothing"):
                reader, writer = await opened(one, b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path)
                async with asyncio.timeout(PATIENCE_S):
                    assert b"Connection: close" in await reader.read(), "it ends, although nobody said that it should"
                writer.close()

    run(main())


def test_a_histogram_counts_by_bounds() -> None:
    histogram = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 9):
        histogram.add(value)
    assert histogram.buckets() == [("1", 2.0), ("2", 3.0), ("+Inf", 4.0)]
    assert (histogram.count, histogram.sum) == (4, 12.0)
