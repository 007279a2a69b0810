"""POST /events in all its forms, by curl and by the official client of CloudEvents too."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

import meetpoint as mp
from meetpoint.gateway import GatewayLimits
from meetpoint.gateway.http.errors import ApiError
from meetpoint.gateway.http.routes import check_json
from meetpoint.local_network import Local, LocalNetwork
from tests.client.running import take
from tests.gateway.gateways import gateway, gateway_in_thread, run

STRUCTURED = {"Content-Type": "application/cloudevents+json"}
BATCH = {"Content-Type": "application/cloudevents-batch+json"}


def test_what_is_published_by_http_meets_what_was_subscribed_to_elsewhere(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client), here.connect() as net:
            sub = await net.subscribe("test = 'publish json' AND price > 120")
            for price in (119, 121.5):
                envelope = {
                    "id": f"json {price}",
                    "time": "2026-01-02T03:04:05Z",
                    "attributes": {"test": "publish json", "price": price},
                }
                answer = await client.post("/events", json=envelope)
                assert (answer.status_code, answer.json()) == (200, {"ids": [f"json {price}"]})
            (event,) = await take(sub, 1)
            assert event.id == "json 121.5"
            assert event.time == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
            assert event.attributes == {"test": "publish json", "price": 121.5}

    run(main())


def test_the_official_client_publishes_in_structured_and_in_binary_mode(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client), here.connect() as net:
            sub = await net.subscribe("type = 'test.official' AND data.price > 120")
            for number, mode in enumerate((to_structured_event, to_binary_event)):
                context = {"id": f"a@{number}", "source": "/shop", "type": "test.official", "subject": "ÖTE €"}
                message = mode(CloudEvent(context, {"price": 121, "tags": ["new"]}))
                answer = await client.post("/events", content=message.body, headers=message.headers)
                assert (answer.status_code, answer.json()) == (200, {"ids": [f"a%40{number}@/shop"]})
            for number, event in enumerate(await take(sub, 2)):
                assert event["subject"] == "ÖTE €"
                assert event["id"] == f"a@{number}"
                assert event["data"] == {"price": 121}
                assert json.loads(str(event["data_json"])) == {"price": 121, "tags": ["new"]}

    run(main())


def test_a_batch_is_published_whole_and_in_order_or_not_at_all(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url, limits=GatewayLimits(batch_max=3)) as (_, client), here.connect() as net:
            sub = await net.subscribe("type = 'test.batch'")
            batch: list[dict[str, Any]] = [
                {"specversion": "1.0", "id": str(n), "source": "/b", "type": "test.batch", "data": n} for n in range(3)
            ]
            wrong = [*batch[:2], {"specversion": "1.0", "id": "2", "type": "test.batch"}]
            refused = await client.post("/events", json=wrong, headers=BATCH)
            assert refused.status_code == 422
            assert (
                refused.json()["error"]["message"]
                == "event 2 of the batch (from 0): a CloudEvent has source; it is missing"
            )
            too_many = await client.post("/events", json=[*batch, batch[0]], headers=BATCH)
            assert (too_many.status_code, too_many.json()["error"]["kind"]) == (413, "size")
            assert (await client.post("/events", json=batch, headers=BATCH)).json() == {"ids": ["0@/b", "1@/b", "2@/b"]}
            assert [event["data"] for event in await take(sub, 3)] == [0, 1, 2]

    run(main())


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind", "words"),
    [
        (b"{", {}, 400, "json", "not JSON at line 1, column 2"),
        (b'{"attributes":{},"attributes":{}}', {}, 400, "json", "'attributes' occurs twice"),
        (b'{"attributes":{"a":NaN}}', {}, 400, "json", "NaN"),
        (b'{"attributes":{"a":"\xff"}}', {}, 400, "json", "byte 20 is not UTF-8"),
        (b"[" * 200_000, {}, 400, "json", "nests too deep"),
        (b'{"price":1}', {}, 422, "body", "price"),
        (b'{"attributes":{"a":[1]}}', {}, 422, "event", "attribute a is a list"),
        (b'{"attributes":{"a":1},"time":"now"}', {}, 422, "event", "'now' is not a timestamp"),
        (b'{"attributes":{}}', {"Content-Type": "text/plain"}, 415, "media", "text/plain"),
        (b'{"attributes":{}}', {"Content-Type": "multipart/form-data"}, 415, "media", "send application/json"),
        (gzip.compress(b'{"attributes":{}}', mtime=0), {"Content-Encoding": "gzip"}, 415, "media", "encoding is gzip"),
        (b'{"specversion":"0.3","id":"1","source":"/a","type":"t"}', STRUCTURED, 422, "event", "specversion"),
        (b'{"specversion":"1.0","id":"","source":"/a","type":"t"}', STRUCTURED, 422, "event", "id"),
        (b'{"specversion":"1.0","id":"1","source":"/a","type":"t","Ext":1}', STRUCTURED, 422, "event", "'Ext'"),
        (b'{"specversion":"1.0","id":"1","source":"/a","type":"t","x":{}}', STRUCTURED, 422, "body", "x does not fit"),
        (b'{"specversion":"1.0","id":"1","source":"/a","type":"t","time":"1"}', STRUCTURED, 422, "event", "RFC 3339"),
        (b'{"specversion":"1.0","id":"1","source":"/a","type":"t","data_base64":"?"}', STRUCTURED, 422, "event", "64"),
    ],
)  # fmt: skip
def test_what_cannot_be_published_is_refused_in_one_shape(
    here: LocalNetwork, body: bytes, headers: dict[str, str], status: int, kind: str, words: str
) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            answer = await client.post("/events", content=body, headers={"Content-Type": "application/json", **headers})
            assert (answer.status_code, answer.json()["error"]["kind"]) == (status, kind)
            assert words in answer.json()["error"]["message"]
            assert set(answer.json()) == {"error"}
            assert served.gateway.counters.refusals == {kind: 1}
            assert served.gateway.counters.totals["events_published"] == 0

    run(main())


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_publishes_and_receives(in_thread: Local) -> None:  # curl is a process
    with gateway_in_thread(in_thread.url) as served:
        query = "filter=test%20%3D%20'curl'"
        receiving = subprocess.Popen(
            ["curl", "-sN", "-m", "300", f"{served.url}/events?{query}"], stdout=subprocess.PIPE, text=True
        )
        assert receiving.stdout is not None
        assert receiving.stdout.readline() == "retry: 2000\n"  # it is subscribed
        body = '{"attributes": {"test": "curl", "text": "<b>bold</b>"}}'
        published = subprocess.run(
            ["curl", "-s", "-H", "Content-Type: application/json", "-d", body, f"{served.url}/events"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        (id_,) = json.loads(published.stdout)["ids"]
        lines = [receiving.stdout.readline() for _ in range(3)]
        receiving.terminate()
        receiving.wait()
        receiving.stdout.close()
        came = json.loads(lines[2].removeprefix("data: "))
        assert (came["id"], came["attributes"]) == (id_, {"test": "curl", "text": "<b>bold</b>"})


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (r'"\ud800"', 1), (r'"a\uDBFFb"', 2), (r'"\udc00\ud800"', 1), (r'"\\\ud800"', 3), (r'{"\udfff":1}', 2),
        (r'"\ud83d\ude00"', None), (r'"\uD83D\uDE00"', None), (r'"\\ud800"', None), (r'"\\\\ud800"', None),
        ('"😀"', None), (r'"\ud7ff\ue000"', None),
    ],
)  # fmt: skip
def test_half_a_character_is_refused_where_it_is_and_whole_ones_are_not(text: str, at: int | None) -> None:
    if at is None:
        assert check_json(text.encode()) == json.loads(text)
        return
    with pytest.raises(ApiError, match="is half of a character") as refused:
        check_json(text.encode())
    assert (refused.value.status, refused.value.at) == (400, at)


def test_a_network_that_is_gone_is_said_to_be() -> None:
    async def main() -> None:
        async with gateway("mp://127.0.0.1:1") as (_, client):
            answer = await client.post("/events", json={"attributes": {}})
            assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "network")
            assert "nothing listens at 127.0.0.1:1" in answer.json()["error"]["message"]
            assert answer.headers["retry-after"] == "1"
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/healthz")).status_code == 200

    run(main())


def test_numbers_are_read_as_the_networks_schema_says() -> None:
    async def main() -> None:
        async with mp.local(brokers=1) as alone, gateway(alone.url) as (_, client), alone.connect() as net:
            await net.declare("attributes:\n  exact_price: {type: decimal, precision: 0.01, min: 0, max: 1000}\n")
            sub = await net.subscribe("exact_price = 8.30")
            body = b'{"attributes":{"exact_price":8.30}}'
            answer = await client.post("/events", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code == 200, answer.text
            (event,) = await take(sub, 1)
            assert repr(event["exact_price"]) == "Decimal('8.30')"

    run(main())


def test_an_answer_is_no_page_and_is_not_kept(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            for answer in (await client.get("/healthz"), await client.get("/nowhere"), await client.put("/events")):
                assert answer.headers["x-content-type-options"] == "nosniff"
                assert answer.headers["content-security-policy"].startswith("default-src 'none'")
                assert answer.headers["referrer-policy"] == "no-referrer"
                assert "server" not in answer.headers
                assert "set-cookie" not in answer.headers

    run(main())
