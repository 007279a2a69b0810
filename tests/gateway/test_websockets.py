"""The WebSocket: subscribe, publish, acknowledge; wrong messages are answered, and the socket stays."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from meetpoint.gateway import GatewayLimits, GatewayServer
from meetpoint.gateway.events import websockets
from meetpoint.local_network import LocalNetwork
from tests.gateway.gateways import PATIENCE_S, gateway, run, until


class Socket:
    """A client that speaks JSON."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def hear(self) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            return json.loads(await self.connection.recv())

    async def ask(self, **message: Any) -> Any:
        await self.say(**message)
        return await self.hear()


@asynccontextmanager
async def socket(served: GatewayServer, **message: Any) -> AsyncIterator[Socket]:
    async with connect(served.url.replace("http", "ws", 1) + "/ws", **message) as connection:
        yield Socket(connection)


def test_what_is_published_on_one_socket_comes_on_another(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _), socket(served) as one, socket(served) as two:
            assert await one.ask(type="subscribe", name="a", filter="test = 'ws' AND n > 1", ref=7) == {
                "type": "subscribed",
                "ref": 7,
                "name": "a",
            }
            for n in range(4):
                await two.say(type="publish", ref=n, event={"id": f"ws-{n}", "attributes": {"test": "ws", "n": n}})
            heard = [await two.hear() for _ in range(4)]
            assert sorted((each["ref"], each["id"]) for each in heard) == [(n, f"ws-{n}") for n in range(4)]
            came = [await one.hear() for _ in range(2)]
            assert [(each["name"], each["event"]["attributes"]["n"]) for each in came] == [("a", 2), ("a", 3)]
            assert (await one.ask(type="unsubscribe", name="a"))["type"] == "unsubscribed"
            assert (await one.ask(type="unsubscribe", name="a"))["error"]["kind"] == "not_found"

    run(main())


def test_what_is_not_acknowledged_comes_again_to_the_next_socket(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            async with socket(served) as one:
                await one.ask(type="subscribe", name="a", filter="test = 'ack'", durable="socket-ack")
                for n in range(3):
                    await client.post("/events", json={"attributes": {"test": "ack", "n": n}})
                keys = [(await one.hear())["key"] for _ in range(3)]
                acked = await one.ask(type="ack", name="a", key=keys[1], ref="x")
                assert acked == {"type": "acked", "ref": "x", "name": "a", "key": keys[1]}
                assert (await one.ask(type="ack", name="a", key=keys[1]))["error"]["kind"] == "not_found"
            async with socket(served) as two:
                await two.ask(type="subscribe", name="b", durable="socket-ack", format="cloudevents")
                again = [await two.hear() for _ in range(2)]
                assert [each["event"]["data"]["n"] for each in again] == [0, 2]
                nacked = await two.ask(type="nack", name="b", key=keys[0], reason="cannot")
                assert nacked["type"] == "nacked"
                assert (await two.ask(type="unsubscribe", name="b", forget=True))["type"] == "unsubscribed"
            async with here.connect() as net:
                assert (await net.locate("socket-ack")).host is None

    run(main())


def test_who_loses_a_durable_subscription_is_told(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _), socket(served) as one, socket(served) as two:
            message: dict[str, Any] = {"type": "subscribe", "name": "a", "filter": "FALSE", "durable": "socket-taken"}
            await one.ask(**message)
            await two.ask(**message)
            message = await one.hear()
            assert (message["type"], message["name"]) == ("unsubscribed", "a")
            assert message["reason"]

    run(main())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("nonsense", "json"),
        ('{"type":"dance"}', "body"),
        ('{"type":"subscribe","name":"a"}', "body"),
        ('{"type":"subscribe","name":"a","filter":"a >"}', "filter"),
        ('{"type":"subscribe","name":"a","filter":"TRUE","more":1}', "body"),
        ('{"type":"subscribe","name":"a","filter":"TRUE","filter":"FALSE"}', "json"),
        ('{"type":"subscribe","name":"a","durable":"nobody has it"}', "not_found"),
        ('{"type":"publish","event":{"attributes":{"a":[]}}}', "event"),
        ('{"type":"ack","name":"nobody","key":"x"}', "not_found"),
        ("[" * 100_000, "json"),
    ],
)
def test_a_wrong_message_is_answered_and_the_socket_stays(here: LocalNetwork, text: str, kind: str) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _), socket(served) as one:
            await one.connection.send(text)
            message = await one.hear()
            assert (message["type"], message["error"]["kind"]) == ("error", kind)
            assert (await one.ask(type="subscribe", name="still here", filter="FALSE"))["type"] == "subscribed"

    run(main())


def test_a_socket_has_bounds(here: LocalNetwork) -> None:
    async def main() -> None:
        limits = GatewayLimits(socket_subscriptions=1, streams_per_client=1, message_bytes=1000)
        async with gateway(here.url, limits=limits) as (served, client):
            async with socket(served) as one:
                await one.ask(type="subscribe", name="a", filter="FALSE")
                assert (await one.ask(type="subscribe", name="a", filter="FALSE"))["error"]["kind"] == "exists"
                assert (await one.ask(type="subscribe", name="b", filter="FALSE"))["error"]["kind"] == "subscriptions"
                assert (await client.get("/events", params={"filter": "FALSE"})).status_code == 429
                with pytest.raises(Exception, match="429"):
                    await connect(served.url.replace("http", "ws", 1) + "/ws")
                await one.connection.send("x" * 1001)
                with pytest.raises(ConnectionClosed) as closed:
                    await one.hear()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1009
            await until(lambda: len(served.gateway.stream_limits) == 0)

    run(main())


def test_when_the_gateway_stops_a_socket_is_told(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _), socket(served) as one:
            served.stop()
            with pytest.raises(ConnectionClosed) as closed:
                await one.hear()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001

    run(main())


def test_a_binary_frame_is_a_message_too_and_one_that_is_none_is_told(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _), socket(served) as one:
            await one.connection.send(b'{"type":"subscribe","name":"a","filter":"FALSE"}')
            assert await one.hear() == {"type": "subscribed", "name": "a"}
            await one.connection.send(b"\x00\xff")
            assert (await one.hear())["error"]["kind"] == "json"
            assert (await one.ask(type="unsubscribe", name="a"))["type"] == "unsubscribed"
            assert served.gateway.counters.totals["internal_errors"] == 0

    run(main())


def test_a_failure_of_our_own_ends_the_socket_with_a_word_and_no_other(
    here: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _), socket(served) as one, socket(served) as two:

            async def fail(*_: object) -> None:
                raise LookupError("a bug")

            with monkeypatch.context() as patch:
                patch.setattr(websockets._Session, "_subscribe", fail)
                await one.say(type="subscribe", name="a", filter="TRUE")
                with pytest.raises(ConnectionClosed) as closed:
                    await one.hear()
            assert closed.value.rcvd is not None
            assert (closed.value.rcvd.code, "a bug" in closed.value.rcvd.reason) == (1011, False)
            assert served.gateway.counters.totals["internal_errors"] == 1
            assert (await two.ask(type="subscribe", name="a", filter="FALSE"))["type"] == "subscribed"

    run(main())


def test_who_asks_by_plain_http_is_told_how_to_connect(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            answer = await client.get("/ws")
            assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
            assert "ws://" in answer.json()["error"]["message"]

    run(main())
