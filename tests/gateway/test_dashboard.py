"""The dashboard's API: the network, an event's path, filters on recent and archived events, brokers of this machine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import meetpoint as mp
from meetpoint.api.client_messages import BrokerStatus, RecentEvent, RecentMatch, RecentReply
from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.broker.config import Access, Archiving
from meetpoint.gateway import GatewaySettings, run_gateway
from meetpoint.gateway.app import default_route_groups
from meetpoint.gateway.dashboard import LocalBroker, routes
from meetpoint.gateway.dashboard.observer import EVENTS_SHOWN, NetworkObserver
from meetpoint.gateway.dashboard.routes import CachedValue
from meetpoint.gateway.dashboard.views import try_filter
from meetpoint.gateway.http.errors import ApiError
from meetpoint.local_network import LocalNetwork
from tests.broker.talking import broker as a_broker
from tests.broker.talking import event as packed_event
from tests.broker.talking import network
from tests.client.running import PATIENCE_S
from tests.gateway.gateways import Reader, gateway, run, until_shown
from tests.security.authorities import TestAuthority
from tests.virtual_time import local_network


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalNetwork]:
    """Three brokers on virtual time that archive what they accept."""
    with local_network(brokers=3, archive=Archiving(folder=str(tmp_path / "archive"), flush_s=0.1)) as running:
        yield running


@asynccontextmanager
async def watching(client: httpx.AsyncClient) -> AsyncIterator[Reader]:
    async with client.stream("GET", "/api/live") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        yield Reader(answer)


async def get(client: httpx.AsyncClient, path: str, **query: str) -> Any:
    answer = await client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def post(client: httpx.AsyncClient, path: str, body: Any, status: int = 200) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def until_archived(client: httpx.AsyncClient, wanted: Any, count: int) -> Any:
    """Try a filter on the archive until it has read so many events; return what it found."""
    async with asyncio.timeout(PATIENCE_S):
        while (found := await post(client, "/api/backtest", wanted))["of"] != count:
            await asyncio.sleep(0.1)
    return found


def test_the_network_is_drawn_with_links_and_loads(three: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(three.url) as (_, client):
            found = await until_shown(
                client, "/api/network", lambda is_: all(len(each["links"]) == 2 for each in is_["brokers"])
            )
            assert (found["name"], found["scheme"], found["overlay"]) == ("meetpoint", "meet", "chord")
            assert {each["address"] for each in found["brokers"]} == set(three.addresses)
            ids = {each["id"] for each in found["brokers"]}
            for each in found["brokers"]:
                assert each["state"] == "ready"
                assert 0 <= each["place"] < 1
                assert 0 <= each["load"] <= 1
                assert {link["to"] for link in each["links"]} == ids - {each["id"]}
                assert "subscriptions" in each["numbers"]
            places = [each["place"] for each in found["brokers"]]
            assert places == sorted(places), "in the order of the circle"
            assert found["can_manage"] is False
            assert "tree" not in found
            assert "nodes" not in found

    run(main())


def test_a_published_event_is_followed_and_its_path_outlives_what_brokers_remember(three: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(three.url) as (_, client), three.connect() as net:
            await net.subscribe("test = 'follow' AND n > 3", durable="follow me")
            said = await post(client, "/api/publish", {"attributes": {"test": "follow", "n": 4}})
            path = await until_shown(client, f"/api/path/{said['id']}", lambda path: path["done"] and path["delivered"])
            assert path["attributes"] == {"test": "follow", "n": 4}
            ids = {each["id"]: each["address"] for each in (await get(client, "/api/network"))["brokers"]}
            assert [met["matched"] for met in path["met"]] == [["follow me"]]
            assert {each["name"] for each in path["delivered"]} == {"follow me"}
            assert path["at"] in ids
            assert {hop["to"] for hop in path["hops"]} <= ids.keys()
            given = await post(client, "/api/publish", {"attributes": {"n": 1}, "id": "given/by me <b>"})
            assert given == {"id": "given/by me <b>"}
            assert (await get(client, "/api/path/given/by me <b>"))["id"] == "given/by me <b>"
            missing = await client.get("/api/path/unheard-of")
            assert missing.status_code == 404
            assert missing.json()["error"]["kind"] == "not_followed"
            bad = await post(client, "/api/publish", {"attributes": {"n": [1]}}, 422)
            assert bad["error"]["kind"] == "event"
            await net.subscribe("FALSE", durable="follow me", replace=True)

    run(main())


def test_live_tells_rates_latency_and_the_last_events_with_what_they_matched(three: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(three.url) as (served, client), three.connect() as net:
            subscription = await net.subscribe("test = 'live'")
            async with watching(client) as one, watching(client) as two:
                await one.next()
                for number in range(EVENTS_SHOWN + 5):
                    await net.publish({"test": "live", "n": number, "html": "<script>alert(1)</script>"})
                shown: dict[str, Any] = {}
                left_out, best = 0, 0.0
                while len(shown) + left_out < EVENTS_SHOWN + 5:
                    look = (await one.next()).data
                    assert look["problem"] is None
                    assert len(look["events"]) <= EVENTS_SHOWN
                    shown |= {each["id"]: each for each in look["events"] if each["attributes"].get("test") == "live"}
                    left_out += look["left_out"]
                    best = max(best, look["published_per_s"])
                assert best > 0
                assert look["latency_ms"]["p50"] <= look["latency_ms"]["p99"]
                assert {each["state"] for each in look["brokers"]} == {"ready"}
                assert {each["matched"] for each in shown.values()} == {1}
                assert {each["attributes"]["html"] for each in shown.values()} == {"<script>alert(1)</script>"}
                other = (await two.next()).data
                assert len(other["brokers"]) == 3
                found = served.gateway.groups[-1]
                assert found._observer.watchers == 2  # type: ignore[attr-defined]
            await subscription.close()

    run(main())


def test_a_network_that_is_gone_is_said_in_words_and_seen_again_when_it_is_back() -> None:
    async def main() -> None:
        async with network(1) as (broker,):
            address = broker.address
            async with gateway(f"mp://{address}") as (_, client), watching(client) as live:
                assert (await live.next()).data["problem"] is None
                await broker.stop(drain=False)
                while (look := (await live.next()).data)["problem"] is None:
                    pass
                assert look["brokers"] == []
                gone = await client.get("/api/network")
                assert (gone.status_code, gone.json()["error"]["kind"]) == (503, "network")
                async with a_broker(listen=address):
                    while (look := (await live.next()).data)["problem"] is not None:
                        pass
                    assert [each["state"] for each in look["brokers"]] == ["ready"]

    run(main())


def test_watchers_share_one_look_and_none_is_taken_when_nobody_watches(three: LocalNetwork) -> None:
    async def main() -> None:
        asked = 0
        async with gateway(three.url) as (served, client):
            observer: NetworkObserver = served.gateway.groups[-1]._observer  # type: ignore[attr-defined]
            assert observer._task is None, "nobody has watched"
            look = observer._sample

            async def counted(net: mp.Network) -> Any:
                nonlocal asked
                asked += 1
                return await look(net)

            observer._sample = counted  # type: ignore[method-assign]
            async with watching(client) as one, watching(client) as two, watching(client) as three_:
                looks = await asyncio.gather(one.next(), two.next(), three_.next())
                assert asked == 1
                assert len({each.data["at"] for each in looks}) == 1

    run(main())


def test_subscriptions_are_found_by_words_and_sorted_by_what_they_match(three: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(three.url) as (_, client), three.connect("lister") as net:
            for name, text in (
                ("l-busy", "test = 'list'"),
                ("l-idle", "test = 'never'"),
                ("l-some", "test = 'list' AND n = 1"),
            ):
                await net.subscribe(text, durable=name, labels={"team": "Sea"})
            await asyncio.gather(*(net.publish({"test": "list", "n": number}) for number in range(3)))

            async def names(**query: str) -> list[str]:
                found = await get(client, "/api/subscriptions", search="l- team=sea", **query)
                return [each["name"] for each in found["subscriptions"]]

            assert await names() == ["l-busy", "l-idle", "l-some"]
            await until_shown(
                client,
                "/api/subscriptions?search=l-",
                lambda is_: [each["delivered"] for each in is_["subscriptions"]] == [3, 0, 1],
            )
            assert await names(sort="hot") == ["l-busy", "l-some", "l-idle"]
            assert (await names(sort="silent"))[0] == "l-idle"
            assert await names(after="l-idle") == ["l-some"]
            found = await get(client, "/api/subscriptions", search="L-BUSY")
            (busy,) = found["subscriptions"]
            assert (busy["delivered"], busy["per_minute"], busy["owner"]) == (3, 3, "lister")
            assert busy["silent_s"] < 60
            assert (found["total"], found["more"], found["next"]) == (1, False, None)
            assert await get(client, "/api/subscriptions", search="no such words") == {
                "subscriptions": [], "more": False, "total": 0, "next": None,
            }  # fmt: skip

    run(main())


def test_a_page_of_subscriptions_goes_on_where_the_last_ended(
    three: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meetpoint.gateway.dashboard.views.PAGE", 2)

    async def main() -> None:
        async with gateway(three.url) as (_, client), three.connect() as net:
            for number in range(5):
                await net.subscribe("FALSE", durable=f"page{number}")
            seen: list[str] = []
            after = ""
            while True:
                found = await get(client, "/api/subscriptions", search="page", after=after)
                seen += [each["name"] for each in found["subscriptions"]]
                assert found["more"] == (found["next"] is not None)
                if not found["more"]:
                    break
                after = found["next"]
            assert seen == [f"page{number}" for number in range(5)]

    run(main())


def test_a_filter_is_tried_on_the_last_events(three: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(three.url) as (_, client), three.connect() as net, watching(client) as live:
            await live.next()
            await net.publish({"test": "try", "n": 5})
            await net.publish({"test": "try", "n": 1})
            await live.next()
            await live.next()
            found = await post(client, "/api/try", {"filter": "test = 'try' AND n > 3 AND n > 2"})
            assert found["ok"]
            assert found["canonical"] == "n > 3 AND test = 'try'"
            assert found["recent"]["matched"] == 1
            assert found["recent"]["of"] >= 2
            kinds = {each["accepts"]: each for each in found["explained"]}
            assert kinds[True]["event"]["attributes"] == {"test": "try", "n": 5}
            assert "accepted" in kinds[True]["why"][0]
            assert "not accepted" in kinds[False]["why"][0]
            wrong = await post(client, "/api/try", {"filter": "n >> 3"})
            assert not wrong["ok"]
            assert (wrong["error"]["at"], wrong["error"]["length"]) == (3, 1)
            assert wrong["error"]["hint"]
            odd = await post(client, "/api/try", {"filter": "n > 3 AND n < 2"})
            assert [each["kind"] for each in odd["lint"]] == ["never"]
            assert not (await post(client, "/api/try", {"filter": ""}))["ok"]

    run(main())


def test_a_filter_is_tried_on_what_was_archived(three: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(three.url) as (_, client), three.connect() as net:
            for number in range(20):
                await net.publish({"test": "back", "n": number, "even": number % 2 == 0})
            wanted = {"filter": "test = 'back' AND n >= 15 AND even = TRUE", "hours": 1}
            found = await until_archived(client, wanted, 20)
            assert found["hits"] == 2
            assert sum(each["hits"] for each in found["timeline"]) == 2
            assert sum(each["events"] for each in found["timeline"]) == found["of"]
            near = {each["why"]: each["count"] for each in found["near_misses"]}
            assert near == {"n >= 15": 8, "even": 3}
            assert {each["attributes"]["n"] for each in found["samples"]} == {16, 18}
            assert not found["is_cut"]
            assert found["from"] <= found["to"]
            assert (await post(client, "/api/backtest", {"filter": "n >"}, 422))["error"]["at"] == 3

    run(main())


def test_a_backtest_reads_so_many_events_and_says_so(three: LocalNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meetpoint.gateway.dashboard.views.READ_MAX", 5)

    async def main() -> None:
        async with gateway(three.url) as (_, client), three.connect() as net:
            await asyncio.gather(*(net.publish({"test": "cut", "n": number}) for number in range(8)))
            found = await until_archived(client, {"filter": "TRUE"}, 5)
            assert found["is_cut"]
            assert "only the first 5 events" in found["note"]

    run(main())


def test_without_an_archive_a_backtest_says_what_to_do(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            said = await post(client, "/api/backtest", {"filter": "TRUE"}, 409)
            assert said["error"]["kind"] == "archive"
            assert "archive.folder" in said["error"]["message"]
            assert "meetpoint up --archive" in said["error"]["message"]

    run(main())


# -- managing ----------------------------------------------------------------------------------------------------------


class Managed:
    """Brokers that come and go only in words."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def nodes(self) -> list[LocalBroker]:
        return [LocalBroker("broker-1", "127.0.0.1:1", "running")]

    async def join(self) -> str:
        self.done.append("join")
        return "it joins"

    async def leave(self, address: str) -> str:
        self.done.append(f"leave {address}")
        return "it leaves"

    async def crash(self, address: str) -> str:
        raise ApiError(409, "node", f"{address} is down already")

    async def start(self, address: str) -> str:
        self.done.append(f"start {address}")
        return "it starts"


def test_nodes_are_managed_only_where_somebody_runs_them(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            said = await post(client, "/api/nodes", {"action": "join"}, 409)
            assert said["error"]["kind"] == "not_managed"
        manager = Managed()
        settings = GatewaySettings(at=here.url, listen="127.0.0.1:0")
        async with (
            run_gateway(settings, default_route_groups(settings, manager)) as served,
            httpx.AsyncClient(base_url=served.url, timeout=PATIENCE_S) as client,
        ):
            assert await post(client, "/api/nodes", {"action": "join"}) == {
                "message": "it joins",
                "nodes": [{"name": "broker-1", "address": "127.0.0.1:1", "state": "running"}],
            }
            await post(client, "/api/nodes", {"action": "leave", "broker": "127.0.0.1:1"})
            await post(client, "/api/nodes", {"action": "crash", "broker": "127.0.0.1:1"}, 409)
            await post(client, "/api/nodes", {"action": "start"}, 422)
            await post(client, "/api/nodes", {"action": "explode", "broker": "127.0.0.1:1"}, 422)
            assert manager.done == ["join", "leave 127.0.0.1:1"]
            found = await get(client, "/api/network")
            assert found["can_manage"]
            assert [each["name"] for each in found["nodes"]] == ["broker-1"]

    run(main())


# -- who may -----------------------------------------------------------------------------------------------------------


def test_with_tokens_only_who_observes_sees_and_only_who_operates_manages(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        token_file = tmp_path / "gateway.token"
        token_file.write_text(authority.token("gateway", roles=("observe",)))
        tokens = {
            "client": authority.token("ann", tenant="acme"),
            "observe": authority.token("eve", roles=("observe",)),
            "operate": authority.token("root", roles=("operate",)),
        }
        async with (
            network(1, access=Access(**authority.access)) as (broker,),
            gateway(
                f"mp://{broker.address}", network=authority.network, token_file=str(token_file),
                token_keys=authority.access["keys"], token_revoked=authority.access["revoked"],
            ) as (_, client),
        ):  # fmt: skip

            async def status(who: str, method: str, path: str, body: Any = None) -> int:
                headers = {"Authorization": f"Bearer {tokens[who]}"} if who in tokens else {}
                return (await client.request(method, path, json=body, headers=headers)).status_code

            seen = [
                ("GET", "/api/network", None),
                ("GET", "/api/subscriptions", None),
                ("POST", "/api/try", {"filter": "TRUE"}),
            ]
            for method, path, body in seen:
                assert await status("nobody", method, path, body) == 401
                assert await status("client", method, path, body) == 403
                assert await status("observe", method, path, body) == 200
                assert await status("operate", method, path, body) == 200
            for who, wanted in (("nobody", 401), ("client", 403), ("observe", 403), ("operate", 409)):
                assert await status(who, "POST", "/api/nodes", {"action": "join"}) == wanted
            assert await status("nobody", "GET", "/api/live") == 401
            headers = {"Authorization": f"Bearer {tokens['observe']}"}
            said = await client.post("/api/publish", json={"attributes": {"n": 1}, "id": "mine"}, headers=headers)
            assert said.json() == {"id": "mine"}
            path = (await client.get("/api/path/mine", headers=headers)).json()
            assert path["at"] == broker.node.me.id.hex(), "an event is followed by the id that its client gave it"
            async with client.stream("GET", "/api/live", headers=headers) as answer:
                assert (await Reader(answer).next()).data["problem"] is None

    run(main())


@pytest.mark.parametrize("ends", ["expired", "revoked"])
def test_who_watches_sees_nothing_more_when_its_token_does_not_count_any_longer(tmp_path: Path, ends: str) -> None:
    """The dashboard shows events by the gateway's own token, so those of all tenants."""
    authority = TestAuthority(tmp_path)

    async def main() -> None:
        token_file = tmp_path / "gateway.token"
        token_file.write_text(authority.token("gateway", roles=("observe",)))
        token = authority.token("eve", roles=("observe",), seconds=3 if ends == "expired" else 3600)
        async with (
            network(1, access=Access(**authority.access)) as (broker,),
            gateway(
                f"mp://{broker.address}", network=authority.network, token_file=str(token_file),
                token_keys=authority.access["keys"], token_revoked=authority.access["revoked"],
            ) as (_, client),
            client.stream("GET", "/api/live", headers={"Authorization": f"Bearer {token}"}) as answer,
        ):  # fmt: skip
            reader = Reader(answer)
            assert (await reader.next()).kind == "message"
            if ends == "revoked":
                authority.issuer.revoke(authority.issuer.issued_to("eve"))
            while (message := await reader.next()).kind == "message":
                assert message.data["problem"] is None
            assert message.kind == "ended"
            assert ends in message.data["reason"]
            assert await reader.is_over()

    run(main())


@pytest.mark.slow
def test_a_filter_that_is_hard_to_simplify_is_tried_without(
    here: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its short form is longer than a filter may be; meanwhile others are answered."""
    values = ", ".join(f"'{n}'" for n in range(600))
    text = " AND ".join(f"(a{n} IN ({values}) OR b{n} IN ({values}))" for n in range(6))

    async def main() -> None:
        loop = asyncio.get_running_loop()
        begun, answered = asyncio.Event(), threading.Event()

        def patient(*said: Any) -> Any:
            loop.call_soon_threadsafe(begun.set)
            assert answered.wait(10 * PATIENCE_S), "nobody is answered while a filter is tried"
            return try_filter(*said)

        monkeypatch.setattr(routes, "try_filter", patient)
        async with gateway(here.url) as (_, client):
            trying = asyncio.create_task(client.post("/api/try", json={"filter": text}))
            await begun.wait()
            for _ in range(4):
                assert (await client.get("/healthz")).status_code == 200
            answered.set()
            assert (await client.get("/healthz")).status_code == 200
            said = (await trying).json()
            assert (said["ok"], said["canonical"]) == (True, None)

    run(main())


def test_many_who_ask_at_once_are_told_what_one_found() -> None:
    async def main() -> None:
        asked = 0

        async def find() -> int:
            nonlocal asked
            asked += 1
            await asyncio.sleep(0.01)
            if asked == 1:
                raise ApiError(503, "network", "nobody answers")
            return asked

        shared: CachedValue[int] = CachedValue(0.2)
        with pytest.raises(ApiError):
            await shared.get(find)
        assert await asyncio.gather(*(shared.get(find) for _ in range(5))) == [2] * 5
        await asyncio.sleep(0.25)
        assert await shared.get(find) == 3

    run(main())


# -- the observer, without a network -----------------------------------------------------------------------------------

A = Peer(b"a" * 20, "a:1")  # type: ignore[arg-type]


def key(number: int) -> EventKey:
    return EventKey(HomeId(b"h" * 20), 1, number)


def test_an_event_is_shown_once_with_all_it_matched_and_larger_ones_are_left_out() -> None:
    observer = NetworkObserver(None)  # type: ignore[arg-type]
    events = [RecentEvent(number, 1_000, key(number), packed_event(number, n=number)) for number in (1, 2)]
    large = RecentEvent(3, 1_000, key(3), packed_event(3, text="x" * 20_000))
    said = RecentReply(
        5, (*events, large), (RecentMatch(4, 2_000, key(1), 2, False), RecentMatch(5, 4_000, key(1), 2, True))
    )
    observer._add_events(A, said)
    observer._add_matches(said)
    observer._add_matches(
        RecentReply(6, (), (RecentMatch(6, 2_500, key(1), 1, False), RecentMatch(7, 1, key(9), 1, False)))
    )
    assert list(observer._ready_to_show(2_000)) == [], "what it matched may not be known yet"
    assert [(each.id, each.matched) for each in observer._ready_to_show(1_000_000)] == [("e1", 3), ("e2", 0)]
    assert list(observer._ready_to_show(2_000_000)) == []
    assert observer._left_out == 1
    latency = observer._latency(5_000)
    assert latency is not None
    assert (latency.p50, latency.p99) == (3.0, 3.0)
    assert observer._latency(100_000_000) is None, "only of the last seconds"


def test_events_are_shown_in_the_order_in_which_they_were_accepted_whichever_broker_tells_them() -> None:
    observer = NetworkObserver(None)  # type: ignore[arg-type]
    for moments in ((3_000, 5_000), (2_000, 4_000), (1_000,)):
        told = [RecentEvent(at, at, key(at), packed_event(at // 1_000, n=1)) for at in moments]
        observer._add_events(A, RecentReply(1, tuple(told), ()))
    assert [each.id for each in observer._ready_to_show(10_000_000)] == ["e1", "e2", "e3", "e4", "e5"]
    assert [each.to_body().id for each in observer.events()] == ["e5", "e4", "e3", "e2", "e1"]


def test_a_broker_that_began_anew_is_asked_from_its_beginning() -> None:
    observer = NetworkObserver(None)  # type: ignore[arg-type]
    observer._add_events(A, RecentReply(50, (), ()))
    observer._add_events(A, RecentReply(2, (RecentEvent(1, 1, key(1), packed_event(1)),), ()))
    assert observer._numbers[A.id] == 0
    observer._add_events(A, RecentReply(2, (RecentEvent(1, 1, key(1), packed_event(1)),), ()))
    assert [each.event.id for each in observer.events()] == ["e1"]


def test_rates_are_what_grew_and_unknown_of_a_broker_that_restarted() -> None:
    observer = NetworkObserver(None)  # type: ignore[arg-type]

    def status(up_s: float, published: float) -> BrokerStatus:
        numbers = {"events_published": published, "deliveries": 2 * published, "messages_in": published}
        return BrokerStatus(A, "ready", "meet", "1", up_s, {**numbers, "queued_events": 3.0})

    first = observer._rates(A, status(1, 10), 1.0)
    assert (first.published_per_s, first.queued) == (None, 3)
    observer._before = {A.id: status(1, 10)}
    grown = observer._rates(A, status(3, 20), 2.0)
    assert (grown.published_per_s, grown.delivered_per_s, observer.rates[A.id]) == (5.0, 10.0, 5.0)
    assert observer._rates(A, status(0.5, 5), 2.0).published_per_s is None
    silent = observer._rates(A, None, 2.0)
    assert (silent.state, silent.queued, A.id in observer.rates) == ("silent", None, False)


# -- the report --------------------------------------------------------------------------------------------------------


def test_the_report_is_served_and_nothing_beside_it(here: LocalNetwork, tmp_path: Path) -> None:
    report = tmp_path / "report"
    report.mkdir()
    (tmp_path / "secret.html").write_text("secret")
    (report / "script.js").write_text("alert(1)")
    (report / "link.html").symlink_to(tmp_path / "secret.html")

    async def main() -> None:
        async with gateway(here.url, report=str(report)) as (_, client):
            missing = await client.get("/report/index.html")
            assert (missing.status_code, missing.json()["error"]["kind"]) == (404, "report")
            (report / "index.html").write_text("<h1>Claims</h1>")
            for path in ("/report/", "/report/index.html"):
                found = await client.get(path)
                assert (found.status_code, found.text) == (200, "<h1>Claims</h1>")
                assert found.headers["content-type"] == "text/html; charset=utf-8"
                policy = found.headers["content-security-policy"]
                assert "default-src 'none'" in policy
                assert "frame-ancestors 'self'" in policy
            names = ("script.js", "link.html", "%2e%2e/secret.html", "no.html", "%00", "%00.html", "a" * 5000 + ".html")
            for name in names:
                answer = await client.get(f"/report/{name}")
                assert (answer.status_code, answer.json()["error"]["kind"]) == (404, "report"), name
        async with gateway(here.url) as (_, client):
            assert "no experiment report" in (await client.get("/report/")).text

    run(main())
