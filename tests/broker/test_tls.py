"""TLS on the port: who is let in as a broker, who is not and is told why, and that nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from meetpoint.api.codec import frame
from meetpoint.api.handshake import Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.api.ids import Peer
from meetpoint.api.requests import Publish
from meetpoint.broker import Broker, BrokerError
from meetpoint.broker.config import Limits, Tls
from meetpoint.node.cluster.directory import Sync
from meetpoint.security import Authority
from tests.broker.securing import as_broker, as_client, peer_of, secured, secured_network, tls_of
from tests.broker.talking import FROM_BROKER, HANDSHAKE, PATIENCE_S, Caller, broker, config, event, raw, run, until
from tests.security.authorities import BrokerFiles, TestAuthority

BOTH = (1, 2)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    return TestAuthority(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> TestAuthority:
    """Another authority of a network of the same name."""
    return TestAuthority(tmp_path_factory.mktemp("theirs"))


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level("INFO"):
        yield caplog


async def welcomed(caller: Caller, token: str = "") -> None:
    """A client's handshake."""
    caller.send(Hello(BOTH, "", None, "tester", token))
    welcome = await caller.next(Welcome)
    caller.version = caller.frames.version = welcome.version
    caller.codec = FROM_BROKER


@contextlib.asynccontextmanager
async def undisturbed(one: Broker, authority: TestAuthority) -> AsyncIterator[None]:
    """Somebody else's subscription, which gets all that is published before, meanwhile and after."""
    async with raw(one.address, as_client(authority.ca)) as caller:
        await welcomed(caller)
        await caller.subscribe("s", "TRUE")
        await caller.publish(event(1))
        yield
        await caller.publish(event(2))
        assert len(await caller.notified(2)) == 2


def counted(one: Broker, kind: str, times: int) -> bool:
    return one.counts.refusals[kind] == times


def test_a_network_with_certificates_brings_events_from_broker_to_broker(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured_network(ours, "a", "b", "c") as brokers:
            async with raw(brokers[2].address, as_client(ours.ca)) as attached:
                await welcomed(attached)
                await attached.subscribe("s", "n > 1")
                async with raw(brokers[0].address, as_client(ours.ca)) as giver:
                    await welcomed(giver)
                    assert attached.writer.get_extra_info("ssl_object").version() == "TLSv1.3"
                    await giver.publish(*(event(n, n=n, text="x" * 10_000) for n in range(50)))
                    assert len(await attached.notified(48)) == 48
            assert not any(sum(each.counts.refusals.values()) for each in brokers)

    run(main())


def test_a_broker_is_called_as_its_certificate_says(ours: TestAuthority) -> None:
    async def main() -> None:
        async with broker(tls=tls_of(ours.broker("by-certificate"))) as one:
            assert one.name == "by-certificate"
        with pytest.raises(BrokerError, match="is for the broker a of network meetpoint, and this is broker b of"):
            await Broker(config(name="b", tls=tls_of(ours.broker("a")))).start()
        with pytest.raises(BrokerError, match="and this is broker a of network other; set name and network so"):
            await Broker(config(name="a", network="other", tls=tls_of(ours.broker("a")))).start()

    run(main())


# -- strangers at the port ---------------------------------------------------------------------------------------------


async def turned_away(one: Broker, context: ssl.SSLContext | None, hello: Hello) -> str:
    """Return the refusal that a stranger gets, from the broker or from TLS."""
    try:
        async with raw(one.address, context) as caller:
            caller.send(hello)
            return (await caller.next(HelloRejected)).reason
    except (ssl.SSLError, ConnectionError) as error:
        return str(error)


def test_a_broker_with_a_good_certificate_is_let_in(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a") as one:
            async with raw(one.address, as_broker(ours.broker("b"))) as caller:
                caller.send(Hello(BOTH, "meetpoint", peer_of("b")))
                assert (await caller.next(Welcome)).broker == one.node.me
            assert not sum(one.counts.refusals.values())

    run(main())


def other_network(folder: Path, ours: TestAuthority) -> BrokerFiles:
    """A certificate that the network's own authority gave to a broker of another one."""
    both = Authority.open(ours.folder / "ca")
    both.network = "other"
    folder = both.issue("b", ("localhost",), 1).write_to(folder)
    return BrokerFiles(str(folder / "certificate.pem"), str(folder / "key.pem"), ours.ca, ours.revoked)


def test_whoever_is_no_broker_of_the_authority_is_turned_away_counted_and_told(
    ours: TestAuthority, theirs: TestAuthority, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    b = Hello(BOTH, "meetpoint", peer_of("b"))
    expired = ours.broker("b", days=1, begins_days_ago=3)
    strangers = {
        "no certificate": (as_client(None), b, "certificate", "needs a certificate of the network's authority"),
        "wrong authority": (as_broker(theirs.broker("b")), b, "certificate", "unknown ca"),
        "expired": (as_broker(expired), b, "certificate", "certificate expired"),
        "forged id": (
            as_broker(ours.broker("c")), b, "identity",
            "the certificate is for the broker c of network meetpoint, and the id is another broker's",
        ),
        "this broker's own id": (
            as_broker(ours.broker("c")), Hello(BOTH, "meetpoint", peer_of("a")), "identity", "the id is another"
        ),
        "another network": (
            as_broker(other_network(tmp_path, ours)), b, "certificate", "is for the broker b of network other"
        ),
        "no TLS": (None, b, "plain", "this port speaks TLS only: connect by mps://, and brokers with [tls]"),
        "no TLS, a client": (None, Hello(BOTH, ""), "plain", "this port speaks TLS only"),
    }  # fmt: skip

    async def main() -> None:
        async with secured(ours, "a") as one:
            for who, (context, hello, kind, says) in strangers.items():
                async with undisturbed(one, ours):
                    before = one.counts.refusals[kind]
                    heard = await turned_away(one, context, hello)
                    assert says in heard.lower() or says in heard, who
                    await until(partial(counted, one, kind, before + 1), who)
                assert not one._links.inbound, who
            assert one.counts.totals["connections_refused"] == len(strangers)

    run(main())
    told = [each.getMessage() for each in said.records if "event=refused" in each.getMessage()]
    assert {line.partition("kind=")[2].split()[0] for line in told} == {"certificate", "identity", "plain"}
    assert all("\n" not in line and "reason=" in line for line in told)


def test_tls_1_2_is_not_spoken(ours: TestAuthority) -> None:
    async def main() -> None:
        old = as_client(None)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        async with secured(ours, "a") as one, undisturbed(one, ours):
            assert "protocol" in (await turned_away(one, old, Hello(BOTH, ""))).lower()
            await until(lambda: counted(one, "tls", 1), "it was counted")

    run(main())


def test_tls_on_a_plain_port_is_told_apart(ours: TestAuthority, said: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with broker() as one:
            assert "wrong version number" in (await turned_away(one, as_client(None), Hello(BOTH, ""))).lower()
            await until(lambda: counted(one, "tls", 1), "it was counted")

    run(main())
    assert "this port speaks no TLS: connect by mp://" in said.text


def test_a_tls_handshake_that_is_never_finished_ends_in_time(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a", limits=Limits(handshake_s=0.2)) as one, undisturbed(one, ours):
            for begun in (b"", b"\x16\x03\x01"):
                async with raw(one.address) as caller:
                    caller.writer.write(begun)
                    assert await caller.ended()
            async with raw(one.address, as_client(None)) as caller:  # TLS is there, and then nothing
                assert await caller.ended()
            assert one.counts.refusals["handshake_late"] == 3

    run(main())


def test_bytes_that_are_no_tls_close_their_connection_and_no_other(ours: TestAuthority) -> None:
    async def main() -> None:
        chance = random.Random(7)
        async with secured(ours, "a") as one, undisturbed(one, ours):
            for _ in range(200):
                noise = b"\x16\x03" + chance.randbytes(chance.randrange(1, 300))
                async with raw(one.address) as caller:
                    caller.writer.write(noise)
                    caller.writer.write_eof()
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(caller.reader.read(), PATIENCE_S)
            await until(lambda: not one._listener._waiting, "nobody waits")
            assert one.counts.refusals["tls"] > 10  # the others were too short to be anything

    run(main())


def test_what_is_changed_on_its_way_is_not_read(ours: TestAuthority) -> None:
    """Bytes go through a proxy that turns one bit, after the handshake."""

    async def main() -> None:
        async with secured(ours, "a") as one, undisturbed(one, ours):
            host, port = one.address.rsplit(":", 1)
            turned = asyncio.Event()

            async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, spoils: bool) -> None:
                while data := await reader.read(1 << 16):
                    if spoils and turned.is_set():
                        data = data[:-1] + bytes([data[-1] ^ 1])
                    writer.write(data)
                writer.close()

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                there = await asyncio.open_connection(host, int(port))
                with contextlib.suppress(ConnectionError):
                    await asyncio.gather(carry(reader, there[1], True), carry(there[0], writer, False))

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            async with server, raw(address_of(server), as_client(ours.ca)) as caller:
                await welcomed(caller)
                turned.set()
                before = one.counts.wire_errors["malformed"]
                caller.ask(Publish(event(3)))
                with pytest.raises(ssl.SSLError, match="BAD_RECORD_MAC"):
                    await caller.ended()
                assert one.counts.wire_errors["malformed"] == before + 1
                assert one.counts.totals["events_published"] == 1  # what is published beside, and not this

    run(main())


def test_an_id_never_changes_on_a_connection(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a") as one, undisturbed(one, ours):
            async with raw(one.address, as_broker(ours.broker("b"))) as caller:
                caller.send(Hello(BOTH, "meetpoint", peer_of("b")))
                welcome = await caller.next(Welcome)
                caller.version = caller.frames.version = welcome.version
                caller.send(NewIncarnation(Peer(peer_of("b").id, "127.0.0.1:1", 1)))
                await asyncio.sleep(5)
                assert len(one._links.inbound) == 1
                caller.send(NewIncarnation(peer_of("c")))
                assert await caller.ended()
            assert one.counts.refusals["identity"] == 1

    run(main())


# -- whom a broker dials -----------------------------------------------------------------------------------------------


def address_of(server: asyncio.Server) -> str:
    return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@contextlib.asynccontextmanager
async def pretending(files: BrokerFiles | None, name: str, later: str = "") -> AsyncIterator[str]:
    """A server that says it is a broker of a name, with some certificate; `later` it says another name."""
    context = None
    if files is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while await reader.read(1 << 16):
                address = address_of(server)
                writer.write(frame(HANDSHAKE.encode(Welcome(1, "meetpoint", peer_of(name, address)))))
                if later:
                    writer.write(frame(HANDSHAKE.encode(NewIncarnation(peer_of(later, address)))))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield address_of(server)
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


def test_a_broker_joins_nobody_that_it_does_not_believe_and_goes_on_looking(
    ours: TestAuthority, theirs: TestAuthority, said: pytest.LogCaptureFixture
) -> None:
    liars = {
        "forged": (ours.broker("c"), "identity", "the id is another broker's"),
        "stranger": (theirs.broker("b"), "certificate", "unable to get local issuer certificate"),
        "expired": (ours.broker("b", days=1, begins_days_ago=3), "certificate", "certificate has expired"),
        "plain": (None, "tls", "does not speak TLS; give it a certificate too"),
    }

    async def main() -> None:
        for who, (files, kind, says) in liars.items():
            async with pretending(files, "b") as address:
                one = Broker(config(name="a", tls=tls_of(ours.broker("a")), join=(address,)))
                await one.start()
                try:
                    assert not one.is_ready
                    assert address in one.why_not_ready, who
                    assert says in one.why_not_ready or self_signed(one.why_not_ready), who
                    assert one.counts.refusals[kind] >= 1, who
                finally:
                    await one.stop()

    run(main())


def self_signed(text: str) -> bool:
    """OpenSSL's other word for an authority that is not known, where the chain has it."""
    return "self-signed certificate" in text


def test_a_broker_without_certificate_is_told_what_it_needs_when_it_joins(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a") as one, undisturbed(one, ours):
            with pytest.raises(BrokerError, match=r"join .*: it was refused: this port speaks TLS only: .*\[tls\]"):
                await Broker(config(name="b", join=(one.address,))).start()

    run(main())


def test_a_link_leads_only_to_the_broker_whose_id_was_dialled(ours: TestAuthority) -> None:
    async def main() -> None:
        async with secured(ours, "a") as one:
            async with pretending(ours.broker("c"), "b") as address:
                one._links.send(peer_of("b", address), Sync(1, b""))
                await until(lambda: counted(one, "identity", 1), "the one with c's certificate is not b")
                assert one._links.open == 0
            async with pretending(ours.broker("b"), "b", later="c") as address:
                before = one.counts.refusals["identity"]
                one._links.send(peer_of("b", address), Sync(1, b""))
                await until(partial(counted, one, "identity", before + 1), "b is not c later")
                assert one._links.open == 0

    run(main())


# -- files -------------------------------------------------------------------------------------------------------------


def test_files_that_cannot_be_used_are_named_before_anything_begins(
    ours: TestAuthority, theirs: TestAuthority, tmp_path: Path
) -> None:
    good, other = ours.broker("a"), ours.broker("b")
    nothing = str(tmp_path / "nothing.pem")
    text = tmp_path / "text.pem"
    text.write_text("no certificate", encoding="utf-8")
    wrong = {
        "nothing.pem: certificate: No such file": good._replace(certificate=nothing),
        "text.pem: holds no certificate": good._replace(certificate=str(text)),
        "tls.key .*nothing.pem: cannot be used together: no such file": good._replace(key=nothing),
        "cannot be used together: .*mismatch": good._replace(key=other.key),
        "tls.ca .*nothing.pem: no such file": good._replace(ca=nothing, revoked=""),
        "tls.ca .*text.pem: ": good._replace(ca=str(text), revoked=""),
        "the list was not signed by the authority": good._replace(revoked=theirs.revoked),
        "it expired at": ours.broker("a", days=1, begins_days_ago=3),
        "is no broker's; have one issued": good._replace(certificate=ours.ca, key=str(ours.folder / "ca" / "ca.key")),
    }

    async def main() -> None:
        for says, files in wrong.items():
            tls = Tls(certificate=files.certificate, key=files.key, ca=files.ca, revoked=files.revoked or None)
            with pytest.raises(Exception, match=says) as caught:
                await Broker(config(name="a", tls=tls)).start()
            assert type(caught.value).__module__.startswith("meetpoint."), says
            assert "\n" not in str(caught.value)

    run(main())
