"""SIGHUP: certificates and what was revoked are read again; what is open stays, unless it was revoked."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import ssl
from pathlib import Path

import pytest

from meetpoint.api.handshake import Hello, HelloRejected, Welcome
from meetpoint.broker import Broker
from meetpoint.broker.config import Access
from meetpoint.broker.main import serve
from meetpoint.security.certificates import certificate_of
from tests.broker.securing import as_broker, as_client, peer_of, secured, tls_of
from tests.broker.talking import PATIENCE_S, Caller, broker, config, event, raw, run, until
from tests.broker.test_admin import OPEN
from tests.broker.test_tls import BOTH, welcomed
from tests.security.authorities import BrokerFiles, TestAuthority


@pytest.fixture
def ours(tmp_path: Path) -> TestAuthority:
    return TestAuthority(tmp_path / "ours")


def copied(files: BrokerFiles, folder: Path) -> BrokerFiles:
    """The certificate and its key where a broker looks for them."""
    folder.mkdir(exist_ok=True)
    for path, name in ((files.certificate, "certificate.pem"), (files.key, "key.pem")):
        shutil.copy(path, folder / name)
    return files._replace(certificate=str(folder / "certificate.pem"), key=str(folder / "key.pem"))


def serial(caller: Caller) -> int:
    return certificate_of(caller.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)).serial


async def served_serial(one: Broker) -> int:
    """Of the certificate that HTTPS shows."""
    assert one.admin_address is not None
    port = int(one.admin_address.rsplit(":", 1)[1])
    pem = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
    return certificate_of(ssl.PEM_cert_to_DER_cert(pem)).serial


@pytest.mark.slow
def test_sighup_shows_a_new_certificate_to_whoever_comes_and_drops_nobody(ours: TestAuthority, tmp_path: Path) -> None:
    async def main() -> None:
        first = ours.broker("a")
        token = ours.token("tester")
        access = Access(**ours.access)
        one = Broker(config(name="a", tls=tls_of(copied(first, tmp_path / "a")), admin=OPEN, access=access))
        running = asyncio.get_running_loop().create_task(serve(one))
        try:
            while not hasattr(one, "address"):
                await asyncio.sleep(0.01)
            await one.wait_ready(PATIENCE_S)
            async with raw(one.address, as_client(ours.ca)) as before:
                await welcomed(before, token)
                assert await served_serial(one) == serial(before)
                await before.subscribe("s", "TRUE")
                second = ours.broker("a", days=60)
                copied(second, tmp_path / "a")
                expires = one._gauges()["certificate_expires_seconds"]
                os.kill(os.getpid(), signal.SIGHUP)
                await until(lambda: one._gauges()["certificate_expires_seconds"] > expires + 86_400, "it was read")
                async with raw(one.address, as_client(ours.ca)) as after:
                    await welcomed(after, token)
                    assert serial(after) != serial(before)
                    await after.publish(event(1))
                    assert await served_serial(one) == serial(after)
                assert len(await before.notified(1)) == 1
        finally:
            await one.stop()
            assert await running == 0

    run(main())


def test_files_that_cannot_be_used_change_nothing_and_are_told(
    ours: TestAuthority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        files = copied(ours.broker("a"), tmp_path / "a")
        one = Broker(config(name="a", tls=tls_of(files)))
        await one.start()
        try:
            await one.wait_ready(PATIENCE_S)
            for wrong in (ours.broker("b"), ours.broker("a", days=1, begins_days_ago=2), None):
                if wrong is None:
                    Path(files.certificate).write_text("torn", encoding="utf-8")
                else:
                    copied(wrong, tmp_path / "a")
                one.reload()
                async with raw(one.address, as_client(ours.ca)) as caller:
                    await welcomed(caller)
        finally:
            await one.stop()

    with caplog.at_level("ERROR"):
        run(main())
    told = [line for line in caplog.messages if "event=reload_refused" in line]
    assert len(told) == 3
    assert "is for the broker b of network meetpoint now, and this is the broker a" in told[0]
    assert "it expired at" in told[1]
    assert "holds no certificate" in told[2]


def test_a_revoked_broker_loses_its_links_and_comes_back_by_none(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a") as one:
            bad, good = as_broker(ours.broker("bad")), as_broker(ours.broker("good"))
            async with (
                raw(one.address, bad) as leaving,
                raw(one.address, good) as staying,
                raw(one.address, as_client(ours.ca)) as client,
            ):
                for caller, name in ((leaving, "bad"), (staying, "good")):
                    caller.send(Hello(BOTH, "meetpoint", peer_of(name)))
                    await caller.next(Welcome)
                await welcomed(client)
                await client.subscribe("s", "TRUE")
                ours.authority.revoke("bad")
                one.reload()
                assert await leaving.ended()
                await until(lambda: len(one._links.inbound) == 1, "the other link stays")
                assert one.counts.refusals["certificate"] == 1
                await client.publish(event(1))
                assert len(await client.notified(1)) == 1
            for hello in (Hello(BOTH, "meetpoint", peer_of("bad")), Hello(BOTH, "")):
                async with raw(one.address, bad) as again:
                    again.send(hello)
                    assert (
                        "for the broker bad of network meetpoint was revoked"
                        in (await again.next(HelloRejected)).reason
                    )
            assert one.counts.refusals["certificate"] == 3

    run(main())


def test_a_broker_leaves_a_link_to_one_that_was_revoked(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a") as one, secured(ours, "b", join=(one.address,)) as other:
            await until(lambda: one._links.open and other._links.open, "they know each other")
            ours.authority.revoke("b")
            one.reload()
            await until(lambda: not one._links.inbound and not one._links.open, "all links are closed")
            before = one.counts.refusals["certificate"]
            await until(lambda: one.counts.refusals["certificate"] > before, "it tries, and is refused")
            assert not one._links.inbound

    run(main())


def test_one_authority_follows_another_while_brokers_run(ours: TestAuthority, tmp_path: Path) -> None:
    new = TestAuthority(tmp_path / "new")
    both = {}
    for what in ("ca", "revoked"):
        text = Path(getattr(ours, what)).read_text() + Path(getattr(new, what)).read_text()
        both[what] = str(tmp_path / f"both-{what}.pem")
        Path(both[what]).write_text(text)

    async def main() -> None:
        old, renewed = (files._replace(**both) for files in (ours.broker("a"), new.broker("b")))
        async with broker(tls=tls_of(old)) as one, broker(tls=tls_of(renewed), join=(one.address,)) as other:
            async with raw(other.address, as_client(new.ca)) as attached, raw(one.address, as_client(ours.ca)) as giver:
                await welcomed(attached)
                await welcomed(giver)
                await attached.subscribe("s", "TRUE")
                await giver.publish(event(1))
                assert len(await attached.notified(1)) == 1
            async with raw(one.address, as_broker(TestAuthority(tmp_path / "third").broker("c"))) as third:
                third.send(Hello(BOTH, "meetpoint", peer_of("c")))
                with pytest.raises((ssl.SSLError, AssertionError)):
                    await third.next(Welcome)

    run(main())


def test_without_tls_there_is_nothing_to_read_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        one = Broker(config())
        await one.start()
        one.reload()
        await one.stop()

    with caplog.at_level("INFO"):
        run(main())
    assert any("event=reloaded" in line for line in caplog.messages)


def test_nothing_is_resumed(ours: TestAuthority) -> None:
    """A session that is resumed would not show its certificate again."""

    async def main() -> None:
        async with secured(ours, "a") as one:
            context = as_broker(ours.broker("b"))
            async with raw(one.address, context) as caller:
                await welcomed(caller)
                found: ssl.SSLObject = caller.writer.get_extra_info("ssl_object")
                assert found.session is None or not found.session.has_ticket

    run(main())
