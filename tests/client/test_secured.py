"""A client by TLS and with tokens: whom it believes, what it says, and how it finds back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import meetpoint as mp
from meetpoint.broker import Broker
from meetpoint.broker.config import Access
from meetpoint.client.errors import NetworkError, RefusedError
from tests.broker.securing import secured, secured_network, tls_of
from tests.broker.talking import broker
from tests.client.running import all_of_sync, run, take, until
from tests.security.authorities import TestAuthority


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("ours"))


def url_of(*brokers: Broker) -> str:
    return "mps://" + ",".join(each.address for each in brokers)


def test_events_go_by_tls_to_brokers_that_the_client_was_only_told_of(ours: TestAuthority) -> None:
    async def main() -> None:
        async with (
            secured_network(ours, "a", "b", "c") as brokers,
            mp.connect(url_of(brokers[0]), ca=ours.ca) as net,
            mp.connect(url_of(brokers[1]), ca=Path(ours.ca)) as other,
        ):
            held = await other.subscribe("n >= 10", durable="many")
            assert len(await net.publish_many({"n": n, "text": "x" * 5_000} for n in range(100))) == 100
            assert [event["n"] for event in await take(held, 90)] == list(range(10, 100))
            assert len(await net.subscriptions()) == 1  # asked of all three
            assert len(await net.status()) == 3

    run(main())


def test_the_client_without_asyncio_takes_the_same(ours: TestAuthority) -> None:
    async def main() -> None:
        def use(url: str) -> int:
            with mp.connect_sync(url, ca=ours.ca) as net:
                held = net.subscribe("TRUE")
                net.publish({"n": 1})
                return len(all_of_sync(held, 1))

        async with secured(ours, "a") as one:
            assert await asyncio.to_thread(use, url_of(one)) == 1

    asyncio.run(main())  # a real clock: the client has a thread of its own


def test_a_broker_that_is_not_believed_is_told_with_what_to_do(ours: TestAuthority, tmp_path: Path) -> None:
    theirs = TestAuthority(tmp_path / "theirs")
    elsewhere = tls_of(ours.broker("b", "elsewhere.example.org"))

    async def main() -> None:
        async with secured(ours, "a") as one, broker(name="b", tls=elsewhere) as other, broker() as plain:
            refusals = {
                (url_of(one), theirs.ca): "certificate is not accepted: .*; give the authority's with ca=",
                (url_of(one), None): "certificate is not accepted: ",
                (url_of(other), ours.ca): "certificate is not accepted: IP address mismatch, .*a host that the",
                (url_of(plain), ours.ca): "it speaks no TLS; connect by mp://",
            }
            for (url, ca), says in refusals.items():
                with pytest.raises(NetworkError, match=f"^broker 127.0.0.1:.*{says}") as caught:
                    await mp.connect(url, ca=ca)
                assert not isinstance(caught.value, RefusedError)  # another broker may do
                assert "\n" not in str(caught.value)
            with pytest.raises(RefusedError, match="this port speaks TLS only: connect by mps://"):
                await mp.connect(f"mp://{one.address}")
            async with mp.connect(f"mps://{other.address},{one.address}", ca=ours.ca) as net:
                assert net.broker == one.node.me

    run(main())


def test_files_and_urls_that_do_not_fit_are_refused_before_anybody_is_dialled(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=r"ca .*nowhere.pem: no such file or directory; give the file ca.pem"):
        mp.connect("mps://localhost", ca=tmp_path / "nowhere.pem")
    text = tmp_path / "text.pem"
    text.write_text("nothing", encoding="utf-8")
    with pytest.raises(NetworkError, match=r"ca .*text.pem: holds no certificate in PEM"):
        mp.connect("mps://localhost", ca=str(text))
    with pytest.raises(NetworkError, match=r"ca: .* is for TLS, and the url begins with mp://; write mps://"):
        mp.connect("mp://localhost", ca=str(text))


# -- tokens ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def guarded(ours: TestAuthority) -> AsyncIterator[Broker]:
    async with secured(ours, "a", access=Access(**ours.access)) as one:
        yield one


def test_a_token_is_a_text_or_what_gives_one_for_each_connection(ours: TestAuthority) -> None:
    given: list[str] = []

    def give() -> str:
        given.append(ours.token("ann"))
        return given[-1]

    async def main() -> None:
        async with guarded(ours) as one:
            url = url_of(one)
            with pytest.raises(RefusedError, match="token"):
                await mp.connect(url, ca=ours.ca)
            async with mp.connect(url, ca=ours.ca, token=ours.token("ann")) as net:
                await net.publish({"n": 1})
            async with mp.connect(url, ca=ours.ca, token=give) as net:
                held = await net.subscribe("TRUE", durable="d")
                count = len(given)
                for session in list(one._clients.sessions):
                    session.connection.abort("a fault of the network")
                await until(lambda: len(given) > count)
                await net.publish({"n": 2})
                assert [event["n"] for event in await take(held, 1)] == [2]

    run(main())


def test_a_function_that_gives_no_token_is_told(ours: TestAuthority) -> None:
    def fails() -> str:
        raise ValueError("the vault is shut")

    async def main() -> None:
        async with guarded(ours) as one:
            with pytest.raises(NetworkError, match=r"token: the function that gives it failed: ValueError\('the vault"):
                await mp.connect(url_of(one), ca=ours.ca, token=fails)
            with pytest.raises(NetworkError, match="token: the function gave a int; it must return the token as a str"):
                await mp.connect(url_of(one), ca=ours.ca, token=lambda: 1)  # type: ignore[arg-type,return-value]

    run(main())


def test_a_session_whose_token_expires_goes_on_with_a_fresh_one(ours: TestAuthority) -> None:
    def give() -> str:
        return ours.token("ann", seconds=1)

    async def main() -> None:
        async with guarded(ours) as one, mp.connect(url_of(one), ca=ours.ca, token=give) as net:
            held = await net.subscribe("TRUE", durable="lasting")
            await until(lambda: one.counts.refusals["token_expired"] > 0)
            await net.publish({"n": 3})
            assert [event["n"] for event in await take(held, 1)] == [3]

    run(main())
