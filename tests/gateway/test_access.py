"""Access: sites, names, tokens, roles; and what a request may cost."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from meetpoint.broker.config import Access, ConfigError
from meetpoint.gateway import GatewayLimits, GatewayServer, GatewaySettings
from meetpoint.gateway.http import access
from meetpoint.local_network import LocalNetwork
from meetpoint.security import Rights
from meetpoint.security.grants import TokenError
from tests.broker.talking import network
from tests.gateway.gateways import PATIENCE_S, gateway, reading, run, until
from tests.security.authorities import TestAuthority

ELSEWHERE = "https://app.example.org"
EVENT = {"attributes": {"test": "access"}}


# -- sites -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://app.example.org.evil.example"},
        {"Origin": "https://app.example.org:8443"},
        {"Origin": "http://app.example.org"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_is_refused(here: LocalNetwork, headers: dict[str, str]) -> None:
    async def main() -> None:
        async with gateway(here.url, origins=(ELSEWHERE,)) as (served, client):
            for method, path in (("POST", "/events"), ("POST", "/subscriptions"), ("DELETE", "/subscriptions/a")):
                answer = await client.request(method, path, json=EVENT, headers=headers)
                assert (answer.status_code, answer.json()["error"]["kind"]) == (403, "origin")
                assert "access-control-allow-origin" not in answer.headers
            if "Origin" in headers:
                assert (await client.get("/events", params={"filter": "TRUE"}, headers=headers)).status_code == 403
                assert (await client.options("/events", headers=headers)).status_code == 403
                with pytest.raises(Exception, match="403"):
                    await connect(served.url.replace("http", "ws", 1) + "/ws", additional_headers=headers)
            assert served.gateway.counters.totals["events_published"] == 0

    run(main())


def test_pages_of_the_gateway_and_of_the_list_may_ask(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url, origins=(ELSEWHERE,)) as (served, client):
            own = await client.post("/events", json=EVENT, headers={"Origin": served.url})
            assert own.status_code == 200
            assert "access-control-allow-origin" not in own.headers
            listed = await client.post("/events", json=EVENT, headers={"Origin": ELSEWHERE})
            assert (listed.status_code, listed.headers["access-control-allow-origin"]) == (200, ELSEWHERE)
            assert listed.headers["vary"] == "Origin"
            asked = {"Origin": ELSEWHERE, "Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "authorization,content-type"}  # fmt: skip
            before = await client.options("/events", headers=asked)
            assert before.status_code == 204
            assert before.headers["access-control-allow-headers"] == "authorization,content-type"
            assert "access-control-allow-credentials" not in before.headers
            async with connect(
                served.url.replace("http", "ws", 1) + "/ws", additional_headers={"Origin": served.url}
            ) as socket:
                assert socket.response is not None

    run(main())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8400", "127.0.0.1.evil.example", "", "[::2]:8400"])
def test_a_name_that_is_not_the_gateways_is_refused_so_that_no_site_can_rebind(here: LocalNetwork, host: str) -> None:
    async def main() -> None:
        async with gateway(here.url) as (_, client):
            answer = await client.get("/healthz", headers={"Host": host})
            assert (answer.status_code, answer.json()["error"]["kind"]) == (421, "host")
            for known in ("localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]"):
                assert (await client.get("/healthz", headers={"Host": known})).status_code == 200

    run(main())


@pytest.mark.parametrize(
    "said",
    [
        {"listen": "0.0.0.0:8400"},
        {"listen": "10.0.0.1:8400", "token_keys": "tokens.pub"},
        {"listen": "10.0.0.1:8400", "certificate": "a", "key": "b"},
        {"certificate": "a"},
        {"origins": ("*",)},
        {"origins": ("https://app.example.org/",)},
        {"origins": ("app.example.org",)},
    ],
)
def test_settings_that_would_be_open_to_all_are_refused(said: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        GatewaySettings(**said)


# -- tokens ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def guarded(folder: Path, **said: Any) -> AsyncIterator[tuple[TestAuthority, GatewayServer, httpx.AsyncClient]]:
    """A network and a gateway that both want tokens."""
    authority = TestAuthority(folder)
    async with network(1, access=Access(**authority.access)) as (one,):
        keys = {"token_keys": authority.access["keys"], "token_revoked": authority.access["revoked"]}
        async with gateway(f"mp://{one.address}", **keys, **said) as (served, client):
            yield authority, served, client


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_without_a_token_nothing_is_done_but_what_anybody_may_see(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (authority, served, client):
            other = TestAuthority(tmp_path / "other").token("ann")
            late = authority.token("ann", seconds=1, begins=1.0)
            for headers in (
                {},
                {"Authorization": "Bearer"},
                bearer("nonsense"),
                bearer(other),
                bearer(late),
                {"Authorization": "Basic YQ=="},
            ):
                for method, path in (("POST", "/events"), ("GET", "/subscriptions"), ("GET", "/metrics")):
                    answer = await client.request(method, path, json=EVENT, headers=headers)
                    assert (answer.status_code, answer.json()["error"]["kind"]) == (401, "token"), (headers, path)
                    assert answer.headers["www-authenticate"] == "Bearer"
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/openapi.json")).json()["paths"]["/events"]["post"]["security"] == [{"token": []}]
            with pytest.raises(Exception, match="401"):
                await connect(served.url.replace("http", "ws", 1) + "/ws")
            assert len(served.gateway.connections) == 0

    run(main())


def test_what_is_revoked_while_the_gateway_runs_is_refused_soon(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        authority = TestAuthority(tmp_path)
        tokens = access.TokenChecker(authority.access["keys"], authority.access["revoked"], authority.network)
        ann, bob = authority.token("ann"), authority.token("bob")
        assert tokens.grant(ann).client == "ann"
        authority.issuer.revoke([tokens.grant(ann).id])
        await asyncio.sleep(1.1 * access.CHECK_EVERY_S)
        with pytest.raises(TokenError, match="was revoked"):
            tokens.grant(ann)
        assert tokens.grant(bob).client == "bob"
        for content in (b"\xff", None):
            if content is None:
                authority.issuer.revoked.unlink()
            else:
                authority.issuer.revoked.write_bytes(content)
            await asyncio.sleep(1.1 * access.CHECK_EVERY_S)
            with pytest.raises(TokenError, match="was revoked"):
                tokens.grant(ann)
            assert tokens.grant(bob).client == "bob"
            assert "revoked" in caplog.messages[-1]
            assert "what was read before counts on" in caplog.messages[-1]
        told = len(caplog.messages)
        await asyncio.sleep(1.1 * access.CHECK_EVERY_S)
        assert tokens.grant(bob).client == "bob"
        assert len(caplog.messages) == told, "once is enough"

    run(main())


def test_a_token_is_passed_on_so_that_brokers_decide_what_it_may(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (authority, served, client):
            ann = bearer(authority.token("ann", publish=Rights(("kind = 'a'",)), subscribe=Rights(("kind = 'a'",))))
            assert (await client.post("/events", json={"attributes": {"kind": "a"}}, headers=ann)).status_code == 200
            refused = await client.post("/events", json={"attributes": {"kind": "b"}}, headers=ann)
            assert (refused.status_code, refused.json()["error"]["kind"]) == (422, "event")
            assert "the token permits publishing only" in refused.json()["error"]["message"]
            refused = await client.get("/events", params={"filter": "TRUE"}, headers=ann)
            assert (refused.status_code, refused.json()["error"]["kind"]) == (403, "refused")
            assert len(served.gateway.connections) == 1

    run(main())


def test_tenants_and_clients_see_nothing_of_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (authority, served, client):
            ann, bob = (bearer(authority.token(name, tenant=f"of-{name}")) for name in ("ann", "bob"))
            client.headers.update(ann)
            made = await client.post("/subscriptions", json={"protocol": "PULL", "config": {"name": "alerts"}})
            assert made.status_code == 201
            async with reading(client, filter="TRUE") as reader:
                assert (await client.get("/subscriptions/alerts", headers=bob)).status_code == 404
                assert (await client.delete("/subscriptions/alerts", headers=bob)).status_code == 404
                assert (await client.get("/subscriptions", headers=bob)).json() == []
                assert (await client.get("/subscriptions/alerts")).status_code == 200
                same = {"protocol": "PULL", "config": {"name": "alerts"}, "filters": [{"sql": "FALSE"}]}
                assert (await client.post("/subscriptions", json=same, headers=bob)).status_code == 201  # his own
                assert (await client.delete("/subscriptions/alerts", headers=bob)).status_code == 204
                assert (await client.get("/subscriptions/alerts")).json()["filter"] == "TRUE"
                await client.post("/events", json={"attributes": {"whose": "bob"}}, headers=bob)
                await client.post("/events", json={"attributes": {"whose": "ann"}})
                assert (await reader.next()).data["attributes"] == {"whose": "ann"}
            assert len(served.gateway.connections) == 2

    run(main())


def test_roles_are_looked_at(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (authority, _, client):
            refused = await client.get("/metrics", headers=bearer(authority.token("ann")))
            assert (refused.status_code, refused.json()["error"]["kind"]) == (403, "role")
            seen = await client.get("/metrics", headers=bearer(authority.token("eve", roles=("observe",))))
            assert seen.status_code == 200
            assert 'meetpoint_gateway_refusals_total{kind="role"} 1.0' in seen.text

    run(main())


def test_a_browsers_socket_brings_its_token_as_a_protocol(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (authority, served, _):
            protocols: list[Any] = ["meetpoint.v1", f"bearer.{authority.token('ann')}"]
            async with connect(served.url.replace("http", "ws", 1) + "/ws", subprotocols=protocols) as socket:
                assert socket.subprotocol == "meetpoint.v1"  # the token is not said back

    run(main())


def test_connections_are_closed_when_idle_and_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        limits = GatewayLimits(connections=2)
        async with guarded(tmp_path, limits=limits) as (authority, served, client):
            one, two, three = (bearer(authority.token(name)) for name in ("one", "two", "three"))
            client.headers.update(one)
            async with reading(client, filter="FALSE"):
                for who in (two, three, two):
                    assert (await client.post("/events", json=EVENT, headers=who)).status_code == 200
                    assert len(served.gateway.connections) == 2
                client.headers.update(two)
                async with reading(client, filter="FALSE"):
                    full = await client.post("/events", json=EVENT, headers=three)
                    assert (full.status_code, full.json()["error"]["kind"]) == (503, "busy")

    run(main())


# -- what a request may cost -------------------------------------------------------------------------------------------


def test_a_body_is_not_longer_than_is_allowed(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url, limits=GatewayLimits(body_bytes=100)) as (_, client):
            headers = {"Content-Type": "application/json"}
            exactly = b'{"attributes":{"a":"' + b"x" * 77 + b'"}}'
            assert len(exactly) == 100
            assert (await client.post("/events", content=exactly, headers=headers)).status_code == 200

            async def unsaid() -> AsyncIterator[bytes]:
                yield exactly[:50]
                yield exactly[50:] + b" "

            for content in (exactly + b" ", unsaid()):
                answer = await client.post("/events", content=content, headers=headers)
                assert (answer.status_code, answer.json()["error"]["kind"]) == (413, "size")

    run(main())


@pytest.mark.parametrize(
    ("said", "status", "kind"),
    [
        (b"", b"", "slow"),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow", b"", "slow"),
        (
            b"POST /events HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
            b" 408 ",
            "slow",
        ),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 20_000, b" 400 ", "http"),
        (b"\x16\x03\x01\x02\x00", b" 400 ", "http"),
    ],
    ids=["silence", "half a header", "half a body", "a long header", "TLS"],
)
def test_whoever_is_slow_or_makes_no_sense_is_cut_off(
    here: LocalNetwork, said: bytes, status: bytes, kind: str
) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            host, port = served.address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            heard = b""
            async with asyncio.timeout(PATIENCE_S):
                while chunk := await reader.read(1000):
                    heard += chunk
                    if heard.endswith(b"}}"):
                        break
            assert status in heard
            assert f'{{"error":{{"kind":"{kind}",'.encode() in heard if status else heard == b""
            assert served.gateway.counters.refusals == {kind: 1}
            writer.close()
            assert (await client.get("/healthz")).status_code == 200

    run(main())


def test_a_request_that_began_in_time_is_not_cut_off(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, client):
            async with reading(client, filter="test = 'patient'") as reader:
                await asyncio.sleep(2 * GatewayLimits().header_s)
                await client.post("/events", json={"attributes": {"test": "patient"}})
                assert (await reader.next()).data["attributes"] == {"test": "patient"}
            await until(lambda: len(served.gateway.stream_limits) == 0)

    run(main())


def test_who_goes_away_in_the_middle_is_no_failure_of_ours(here: LocalNetwork) -> None:
    async def main() -> None:
        async with gateway(here.url) as (served, _):
            host, port = served.address.split(":")
            _, writer = await asyncio.open_connection(host, int(port))
            head = "POST /events HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Content-Length: 9"
            writer.write("\r\n".join([*head, "", "{"]).encode())
            await writer.drain()
            await until(lambda: served.gateway.counters.totals["requests"] == 1)
            writer.close()
            await until(lambda: served.gateway.counters.refusals == {"gone": 1})
            assert served.gateway.counters.totals["internal_errors"] == 0

    run(main())


def test_https_is_served_with_a_certificate(here: LocalNetwork, tmp_path: Path) -> None:
    async def main() -> None:
        authority = TestAuthority(tmp_path)
        files = authority.broker("gateway")
        async with gateway(here.url, certificate=files.certificate, key=files.key) as (served, _):
            context = ssl.create_default_context(cafile=authority.ca)
            async with httpx.AsyncClient(base_url=served.url, verify=context) as client:
                assert served.url.startswith("https://")
                answer = await client.post("/events", json=EVENT, headers={"Origin": served.url})
                assert answer.status_code == 200
                plain = served.url.replace("https", "http")
                assert (await client.post("/events", json=EVENT, headers={"Origin": plain})).status_code == 403

    run(main())


def test_a_stream_ends_with_its_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with guarded(tmp_path) as (authority, _, client):
            client.headers.update(bearer(authority.token("ann", seconds=1.5)))
            async with reading(client, filter="TRUE") as reader:
                message = await reader.next()
                assert message.kind == "ended"
                assert "expired" in message.data["reason"]
            assert (await client.get("/subscriptions")).status_code == 401

    run(main())


def test_what_fails_by_our_own_fault_is_said_without_a_trace(
    here: LocalNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("secret")

    async def main() -> None:
        async with gateway(here.url) as (served, client):
            monkeypatch.setattr(served.gateway.connections, "use", fail)
            answer = await client.post("/events", json=EVENT)
            assert (answer.status_code, answer.json()["error"]["kind"]) == (500, "internal")
            assert "secret" not in answer.text
            assert served.gateway.counters.totals["internal_errors"] == 1

    run(main())
