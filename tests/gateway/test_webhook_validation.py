"""Consent of sinks: whether they want events and how many, asked of real sinks and honoured."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from aiohttp import web

from meetpoint.broker.config import ConfigError
from meetpoint.gateway import GatewayLimits, GatewaySettings
from meetpoint.gateway.gateway import Counters
from meetpoint.gateway.subscriptions import sinks, webhooks
from meetpoint.gateway.subscriptions.sinks import (
    ConsentAnswer,
    RateLimiter,
    SinkState,
    read_consent,
    read_retry_after,
)
from meetpoint.gateway.subscriptions.webhooks import WebhookSender
from meetpoint.local_network import LocalNetwork
from tests.gateway.gateways import PATIENCE_S, gateway, run, until, until_shown
from tests.gateway.sink_server import Sink, agreeing, sink_server, wanted

NAME = "events.example.org"
LONG_S = 180.0
"""How long nothing must come, and how long a slow sink takes at most."""


async def _status(client: httpx.AsyncClient, id_: str, within_s: float = PATIENCE_S, **holds: Any) -> Any:
    """The status of a subscription, once it has these values."""

    def is_so(shown: Any) -> bool:
        return bool(holds.items() <= shown["status"].items())

    return (await until_shown(client, f"/subscriptions/{id_}", is_so, within_s))["status"]


async def _made(client: httpx.AsyncClient, sink: Sink, test: str, **beside: Any) -> str:
    answer = await client.post("/subscriptions", json=wanted(sink, test, **beside))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def _published(client: httpx.AsyncClient, test: str, count: int) -> None:
    for n in range(count):
        assert (await client.post("/events", json={"attributes": {"test": test, "n": n}})).status_code == 200


def test_a_sink_is_asked_by_name_before_anything_is_sent_and_told_the_name_each_time(here: LocalNetwork) -> None:
    async def main() -> None:
        async with (
            sink_server() as sink,
            gateway(here.url, private_sinks=True, sink_consent="require", hosts=("127.0.0.1", NAME), sink_origin=NAME)
            as (served, client),
        ):  # fmt: skip
            sink.agree = agreeing(NAME.upper())  # names of hosts have no case
            id_ = await _made(client, sink, "asked")
            await _status(client, id_, state="delivering")
            (asked,) = sink.asked
            assert asked["webhook-request-origin"] == NAME
            assert not sink.got
            await _published(client, "asked", 2)
            await until(lambda: len(sink.got) == 2)
            assert [got.headers["webhook-request-origin"] for got in sink.got] == [NAME, NAME]
            status = await _status(client, id_, delivered=2)
            assert status == {"state": "delivering", "delivered": 2, "consent": "granted"}
            assert len(sink.asked) == served.gateway.counters.totals["webhook_asked"] == 1
            await client.delete(f"/subscriptions/{id_}")

    run(main())


@pytest.mark.parametrize(
    ("agree", "consent_is", "why"),
    [
        (lambda: web.Response(status=405), "unknown", "405 to OPTIONS"),
        (lambda: web.Response(status=200), "unknown", "without WebHook-Allowed-Origin"),
        (lambda: web.Response(status=403, headers={"WebHook-Allowed-Origin": "*"}), "unknown", "403 to OPTIONS"),
        (agreeing("other.example.org"), "refused", "other.example.org"),
        (agreeing("*", rate="0"), "refused", "is 0"),
        (agreeing("*", rate="many"), "unknown", "no number"),
    ],
    ids=["unknown method", "no header", "refusing", "another origin", "rate of none", "odd rate"],
)
def test_a_sink_that_did_not_agree_gets_nothing_where_it_must(
    here: LocalNetwork, agree: Callable[[], web.Response], consent_is: str, why: str
) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True, sink_consent="require") as (_, client):
            sink.agree = agree
            id_ = await _made(client, sink, "require")
            await _published(client, "require", 2)
            status = await _status(client, id_, state="failing")
            assert status["consent"] == consent_is
            assert status["problem"].startswith("the sink has not agreed to get events: ")
            assert why in status["problem"]
            await asyncio.sleep(LONG_S)
            assert not sink.got
            sink.agree = agreeing("*")  # and when it is asked again, by a PUT, it gets what waited
            assert (await client.put(f"/subscriptions/{id_}", json=wanted(sink, "require"))).status_code == 200
            await until(lambda: len(sink.got) == 2)
            await client.delete(f"/subscriptions/{id_}")

    run(main())


def test_one_that_does_not_know_the_question_is_sent_to_where_sinks_are_only_asked(here: LocalNetwork) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (_, client):
            sink.agree = lambda: web.Response(status=405)
            id_ = await _made(client, sink, "ask")
            await _published(client, "ask", 15)
            await until(lambda: len(sink.got) == 15)  # on a network of one's own, as many as come
            status = await _status(client, id_, delivered=15)
            assert status == {"state": "delivering", "delivered": 15, "consent": "unknown"}
            await client.delete(f"/subscriptions/{id_}")
            sink.agree = agreeing("other.example.org")  # who says that it wants others' is left alone
            id_ = await _made(client, sink, "ask")
            await _published(client, "ask", 1)
            assert (await _status(client, id_, state="failing"))["consent"] == "refused"
            await asyncio.sleep(LONG_S)
            assert len(sink.got) == 15
            await client.delete(f"/subscriptions/{id_}")

    run(main())


def test_nobody_is_asked_where_that_is_off(here: LocalNetwork) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True, sink_consent="off") as (_, client):
            sink.agree = agreeing("other.example.org")
            id_ = await _made(client, sink, "off")
            await _published(client, "off", 1)
            await until(lambda: len(sink.got) == 1)
            assert "webhook-request-origin" not in sink.got[0].headers
            assert await _status(client, id_, delivered=1) == {"state": "delivering", "delivered": 1}
            assert sink.asked == []
            await client.delete(f"/subscriptions/{id_}")

    run(main())


def test_a_sink_that_is_gone_when_it_is_asked_is_left_alone(here: LocalNetwork) -> None:
    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (_, client):
            sink.agree = lambda: web.Response(status=410)
            id_ = await _made(client, sink, "gone")
            assert "410" in (await _status(client, id_, state="stopped"))["problem"]
            await client.delete(f"/subscriptions/{id_}")

    run(main())


@pytest.mark.parametrize("parallel", [1, 8])
def test_a_sink_gets_no_more_than_it_agreed_to_and_everything_in_the_end(here: LocalNetwork, parallel: int) -> None:
    """Between two requests is more time than an event is held: the subscription is left and taken again meanwhile."""
    assert sinks.MINUTE_S / 12 > webhooks.HOLD_S

    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (served, client):
            at: list[float] = []

            def answer(_: object) -> web.Response:
                at.append(time.monotonic())
                return web.Response()

            sink.answer, sink.agree = answer, agreeing("*", rate="12")
            id_ = await _made(client, sink, "rate", config={"parallel": parallel})
            assert (await _status(client, id_, consent="granted"))["per_minute"] == 12
            await _published(client, "rate", 20)
            await _status(client, id_, LONG_S, delivered=20)
            assert sorted(got.event.get_data()["n"] for got in sink.got) == list(range(20))  # each once
            late_s = 0.5  # a request that has to connect first arrives later
            assert max(sum(0 <= other - first < sinks.MINUTE_S - late_s for other in at) for first in at) <= 12
            assert served.gateway.counters.totals["webhook_failed"] == 0
            await client.delete(f"/subscriptions/{id_}")

    run(main())


@pytest.mark.parametrize("status", [429, 503])
def test_a_sink_that_says_when_to_come_again_is_left_alone_until_then(here: LocalNetwork, status: int) -> None:
    """That is later than a round of tries ends, so the event goes back to its broker."""
    later_s = 40
    assert later_s > webhooks.ROUND_S

    async def main() -> None:
        async with sink_server() as sink, gateway(here.url, private_sinks=True) as (_, client):
            at: list[float] = []

            def answer(_: object) -> web.Response:
                at.append(time.monotonic())
                if len(at) > 1:
                    return web.Response()
                return web.Response(status=status, headers={"Retry-After": str(later_s)})

            sink.answer = answer
            id_ = await _made(client, sink, "later")
            await _published(client, "later", 3)
            assert (await _status(client, id_, state="failing"))["problem"] == f"the sink answered {status}"
            assert await _status(client, id_, LONG_S, delivered=3) == {
                "state": "delivering", "delivered": 3, "failed": 1, "consent": "granted",
            }  # fmt: skip
            assert len(at) == 4
            assert at[1] - at[0] >= later_s
            await client.delete(f"/subscriptions/{id_}")

    run(main())


def test_sinks_of_strangers_share_the_few_requests_that_their_host_gets() -> None:
    async def main() -> None:
        async with sink_server() as sink:
            sink.agree = lambda: web.Response(status=405)
            limits = GatewayLimits(unasked_per_minute=6)
            sender = WebhookSender(GatewaySettings(private_sinks=True, limits=limits), Counters())
            assert sender.target(f"{sink.url}/one").per_minute is None  # a network of one's own
            await sender.close()
            sender = WebhookSender(GatewaySettings(limits=limits), Counters())
            sender._private_ok = True  # this machine stands for a host of the internet
            one, other = sender.target(f"{sink.url}/one"), sender.target(f"{sink.url}/other")
            assert one is sender.target(f"{sink.url}/one")
            assert [(await each.consent()).state for each in (one, other)] == ["unknown", "unknown"]
            assert (one.wait_s(), other.wait_s(), one.per_minute) == (0.0, 0.0, 6)
            one.take()
            assert other.wait_s() == pytest.approx(10)
            await sender.close()

    run(main())


def test_one_that_agreed_and_cannot_be_asked_now_has_agreed() -> None:
    async def main() -> None:
        answer = [
            ConsentAnswer("granted", 7),
            ConsentAnswer("unknown", lasts_s=sinks.UNREACHED_S),
            ConsentAnswer("refused"),
        ]

        async def ask() -> ConsentAnswer:
            return answer.pop(0)

        target = SinkState(ask, RateLimiter(), 60)
        for expected in ("granted", "granted", "refused"):
            target.expire()
            assert (await target.consent()).state == expected
        assert (await target.consent()).state == "refused"  # it is not asked each time
        assert not target.is_due
        assert target.due_s == pytest.approx(sinks.OTHERWISE_S)

    run(main())


@pytest.mark.parametrize("per_minute", [1, 2, 5, 6, 7, 12, 60, 61, 600])
def test_no_minute_has_more_requests_than_were_agreed_to(per_minute: int) -> None:
    now = 1000.0
    limiter = RateLimiter(lambda: now)
    sent: list[float] = []
    for _ in range(3 * per_minute + 3):
        now += limiter.wait_s(per_minute)
        limiter.take(per_minute)
        sent.append(now)
    for first in sent:
        assert sum(first <= other < first + 60 - 1e-6 for other in sent) <= per_minute
    assert sent[-1] - sent[0] <= 60 * (3 * per_minute + 3) / max(1, per_minute - per_minute // 6)  # and not far fewer
    limiter.back_off(100)
    assert limiter.wait_s(None) == 100


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0), ("7", 7.0), (" 7 ", 7.0), ("100000", 600.0), ("9" * 400, None), ("-1", None), ("soon", None),
        ("", None), ("1.5", None), (None, None), (email.utils.formatdate(1030, usegmt=True), 30.0),
        (email.utils.formatdate(0, usegmt=True), 0.0), (email.utils.formatdate(99_999, usegmt=True), 600.0),
        ("Wed, 99 Nov 9999 99:99:99 GMT", None),
    ],
)  # fmt: skip
def test_how_long_a_sink_is_left_alone_has_bounds(text: str | None, seconds: float | None) -> None:
    assert read_retry_after(text, 1000.0) == seconds


def test_an_agreement_is_read_as_the_specification_has_it() -> None:
    answer = {"WebHook-Allowed-Origin": " * ", "WebHook-Allowed-Rate": "*"}
    assert read_consent(204, answer, NAME)[:2] == ("granted", None)
    assert read_consent(200, {**answer, "WebHook-Allowed-Rate": "120"}, NAME)[:2] == ("granted", 120)
    assert read_consent(302, answer, NAME).state == "unknown"


@pytest.mark.parametrize("name", ["", "a b", "https://a.example", "a..b", "-a", "a" * 64, "a\n", "*"])
def test_a_name_to_ask_by_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="sink_origin"):
        GatewaySettings(sink_origin=name)


def test_sinks_are_asked_by_the_name_that_browsers_know_unless_there_is_another() -> None:
    assert GatewaySettings().asks_as == "meetpoint-gateway"
    assert GatewaySettings(hosts=("a.example", "b.example")).asks_as == "a.example"
    assert GatewaySettings(hosts=("a.example",), sink_origin="c.example").asks_as == "c.example"
    with pytest.raises(ConfigError, match="require, ask, off"):
        GatewaySettings(sink_consent="maybe")  # type: ignore[arg-type]
