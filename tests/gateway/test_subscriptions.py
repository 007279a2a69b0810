"""/subscriptions and their webhooks, against a sink with answers of the test's choice."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from meetpoint.broker.storage.folder import StoreError
from meetpoint.gateway import GatewayLimits, GatewaySettings
from meetpoint.gateway.gateway import Gateway
from meetpoint.gateway.subscriptions.subscriptions import SubscriptionRoutes
from meetpoint.gateway.subscriptions.webhooks import read_secret, sign
from meetpoint.local_network import LocalNetwork
from meetpoint.security.files import FileError
from tests.gateway.gateways import gateway, reading, run, until, until_shown
from tests.gateway.sink_server import sink_server, wanted

DEAD_S = 300.0
"""Within this an event that a sink never takes has had all tries of its broker."""


def test_what_matches_is_sent_signed_and_is_read_by_the_official_client(here: LocalNetwork) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (served, client):
            made = await client.post("/subscriptions", json=wanted(sink, "hook"))
            assert made.status_code == 201, made.text
            id_, secret = made.json()["id"], made.json()["protocolsettings"]["secret"]
            assert made.headers["location"] == f"/subscriptions/{id_}"
            for n, test in enumerate(["hook", "other", "hook"]):
                await client.post("/events", json={"attributes": {"test": test, "n": n}})
            await until(lambda: len(sink.got) == 2)
            assert [got.event.get_data() for got in sink.got] == [{"test": "hook", "n": 0}, {"test": "hook", "n": 2}]
            first = sink.got[0]
            said = first.headers["webhook-id"], int(first.headers["webhook-timestamp"])
            assert (
                sign(read_secret(secret), *said, first.body)["webhook-signature"] == first.headers["webhook-signature"]
            )
            await until(lambda: served.gateway.counters.totals["webhook_delivered"] == 2)
            shown = (await client.get(f"/subscriptions/{id_}")).json()
            assert shown["status"] == {"state": "delivering", "delivered": 2, "consent": "granted"}
            assert "protocolsettings" not in shown  # the secret is shown once
            assert (await client.delete(f"/subscriptions/{id_}")).status_code == 204

    run(main())


def test_a_sink_that_fails_is_tried_again_under_the_same_id(here: LocalNetwork) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (served, client):
            sink.answer = lambda _: web.Response(status=503 if len(sink.got) < 3 else 200)
            id_ = (await client.post("/subscriptions", json=wanted(sink, "again"))).json()["id"]
            await client.post("/events", json={"attributes": {"test": "again"}})
            await until(lambda: served.gateway.counters.totals["webhook_delivered"] == 1)
            assert len(sink.got) == 3
            assert len({got.headers["webhook-id"] for got in sink.got}) == 1
            await client.delete(f"/subscriptions/{id_}")

    run(main())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "posts_each"), [(503, 3), (400, 1), (302, 1)], ids=["unavailable", "refusing", "redirecting"]
)
def test_what_a_sink_never_takes_becomes_a_dead_letter(here: LocalNetwork, status: int, posts_each: int) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (_, client), here.connect() as net:
            sink.answer = lambda _: web.Response(status=status, headers={"Location": f"{sink.url}/elsewhere"})
            id_ = (await client.post("/subscriptions", json=wanted(sink, "dead"))).json()["id"]
            await client.post("/events", json={"attributes": {"test": "dead"}})
            async with asyncio.timeout(DEAD_S):
                while not (letters := await net.dead_letters()):
                    await asyncio.sleep(1)
            await asyncio.sleep(DEAD_S)  # and nobody sends it any more
            assert letters[0].reason == f"webhook: the sink answered {status}, the last of 5 tries"
            assert len(sink.got) == 5 * posts_each
            assert {got.path for got in sink.got} == {"/hook"}  # a redirect is not followed
            shown = (await client.get(f"/subscriptions/{id_}")).json()
            assert (shown["status"]["state"], shown["status"]["failed"]) == ("failing", 5)

    run(main())


def test_a_sink_that_is_gone_is_left_alone_and_loses_nothing(here: LocalNetwork) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (_, client), here.connect() as net:
            sink.answer = lambda _: web.Response(status=410)
            id_ = (await client.post("/subscriptions", json=wanted(sink, "gone"))).json()["id"]
            for n in range(3):
                await client.post("/events", json={"attributes": {"test": "gone", "n": n}})
            shown = await until_shown(client, f"/subscriptions/{id_}", lambda is_: is_["status"]["state"] == "stopped")
            assert "410" in shown["status"]["problem"]
            await asyncio.sleep(DEAD_S)  # a publisher is answered before its event is in the queue
            assert len(sink.got) == 1
            (queued,) = [held.queued for held in await net.subscriptions() if held.name == f"webhook:{id_}"]
            assert queued == 3
            sink.answer = lambda _: web.Response()
            assert (await client.put(f"/subscriptions/{id_}", json=wanted(sink, "gone"))).status_code == 200
            await until(lambda: len(sink.got) == 4)
            await client.delete(f"/subscriptions/{id_}")

    run(main())


def test_a_gateway_that_starts_again_goes_on(here: LocalNetwork, tmp_path: Path) -> None:
    async def main() -> None:
        said: dict[str, Any] = {"private_sinks": True, "data": str(tmp_path / "gateway")}
        async with sink_server() as sink:
            async with gateway(here.url, **said) as (_, client):
                made = (await client.post("/subscriptions", json=wanted(sink, "restart"))).json()
            file = tmp_path / "gateway" / "subscriptions.json"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            async with here.connect() as net:
                await net.publish({"test": "restart"})
            async with gateway(here.url, **said) as (_, client):
                await until(lambda: len(sink.got) == 1)
                got = sink.got[0]
                signed = sign(
                    read_secret(made["protocolsettings"]["secret"]),
                    got.headers["webhook-id"],
                    int(got.headers["webhook-timestamp"]),
                    got.body,
                )
                assert signed["webhook-signature"] == got.headers["webhook-signature"]
                assert [each["id"] for each in (await client.get("/subscriptions")).json()] == [made["id"]]
                await client.delete(f"/subscriptions/{made['id']}")
            async with gateway(here.url, **said) as (_, client):
                assert (await client.get("/subscriptions")).json() == []

    run(main())


def test_what_cannot_be_kept_is_not_made(here: LocalNetwork, tmp_path: Path) -> None:
    async def main() -> None:
        folder = tmp_path / "gateway"
        async with gateway(here.url, data=str(folder)) as (_, client), here.connect() as net:
            said = {"protocol": "PULL", "config": {"name": "kept-nowhere"}}
            folder.rename(tmp_path / "gone")
            answer = await client.post("/subscriptions", json=said)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (503, "storage")
            assert (await client.get("/subscriptions")).json() == []
            assert (await net.locate("kept-nowhere")).host is None
            (tmp_path / "gone").rename(folder)
            with pytest.raises(StoreError, match="is in use by process"):
                await SubscriptionRoutes().start(Gateway(GatewaySettings(at=here.url, data=str(folder)), ()))
            assert (await client.post("/subscriptions", json=said)).status_code == 201
            await client.delete("/subscriptions/kept-nowhere")
        (folder / "subscriptions.json").write_text("[{")
        with pytest.raises(FileError, match="is damaged"):
            await SubscriptionRoutes().start(Gateway(GatewaySettings(at=here.url, data=str(folder)), ()))

    run(main())


def test_a_pulled_subscription_is_made_changed_read_and_ended(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client), here.connect() as net:
            said = {"protocol": "PULL", "config": {"name": "pulled"}, "filters": [{"sql": "test = 'pull' AND n > 1"}]}
            made = await client.post("/subscriptions", json=said)
            assert (made.status_code, made.json()["id"]) == (201, "pulled")
            assert made.json()["filter"] == "test = 'pull' AND n > 1"
            again = await client.post("/subscriptions", json=said)
            assert (again.status_code, again.json()["error"]["kind"]) == (409, "exists")
            changed = {**said, "filters": [{"sql": "test = 'pull' AND n > 5"}]}
            assert (await client.put("/subscriptions/pulled", json=changed)).json()[
                "filter"
            ] == "test = 'pull' AND n > 5"
            for n in (5, 6):
                await client.post("/events", json={"attributes": {"test": "pull", "n": n}})
            async with reading(client, durable="pulled") as reader:
                assert (await reader.next()).data["attributes"]["n"] == 6
            other = await client.put(
                "/subscriptions/pulled", json={**said, "protocol": "HTTP", "sink": "https://a.example"}
            )
            assert (other.status_code, other.json()["error"]["kind"]) == (409, "protocol")
            assert (await client.delete("/subscriptions/pulled")).status_code == 204
            assert (await net.locate("pulled")).host is None
            for method in ("GET", "DELETE"):
                assert (await client.request(method, "/subscriptions/pulled")).status_code == 404

    run(main())


@pytest.mark.parametrize(
    ("said", "status", "kind"),
    [
        ({"protocol": "MQTT"}, 422, "body"),
        ({"protocol": "HTTP"}, 422, "sink"),
        ({"protocol": "HTTP", "sink": "https://127.0.0.1/"}, 422, "sink"),
        ({"protocol": "HTTP", "sink": "http://example.org/"}, 422, "sink"),
        ({"protocol": "PULL", "sink": "https://example.org/"}, 422, "sink"),
        ({"protocol": "HTTP", "sink": "https://a.example/", "protocolsettings": {"secret": "x"}}, 422, "secret"),
        ({"protocol": "HTTP", "sink": "https://a.example/", "protocolsettings": {"headers": {}}}, 422, "body"),
        ({"protocol": "PULL", "filters": [{"sql": "a >"}]}, 422, "filter"),
        ({"protocol": "PULL", "config": {"name": "a/b"}}, 422, "body"),
        ({"protocol": "PULL", "config": {"parallel": 0}}, 422, "body"),
    ],
)
def test_a_subscription_that_cannot_be_is_refused(
    here: LocalNetwork, said: dict[str, Any], status: int, kind: str
) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            answer = await client.post("/subscriptions", json=said)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (status, kind)
            assert (await client.get("/subscriptions")).json() == []

    run(main())


def test_subscriptions_are_as_many_as_are_allowed(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url, limits=GatewayLimits(subscriptions_per_client=1)) as (_, client):
            id_ = (await client.post("/subscriptions", json={"protocol": "PULL"})).json()["id"]
            answer = await client.post("/subscriptions", json={"protocol": "PULL"})
            assert (answer.status_code, answer.json()["error"]["kind"]) == (429, "subscriptions")
            await client.delete(f"/subscriptions/{id_}")

    run(main())
