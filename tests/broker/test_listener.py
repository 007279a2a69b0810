"""Connections to the port: handshakes good and bad, versions, halves and garbage. None of it ends a broker."""

from __future__ import annotations

import asyncio
import contextlib
import random

import msgspec
import pytest

from meetpoint.api.client_messages import BrokersReply, BrokersRequest, Request
from meetpoint.api.codec import frame, frames
from meetpoint.api.handshake import Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.outcomes import Published
from meetpoint.broker import Broker, Limits
from meetpoint.catalog import make_link_codec
from meetpoint.lab.bench.hostile import MessageGenerator
from meetpoint.node.cluster.directory import Sync
from meetpoint.node.runtime.ring import Ring
from tests.broker.talking import HANDSHAKE, broker, calling, event, network, raw, run, until

STRANGER = Peer(NodeId(Ring().hash(b"stranger")), "127.0.0.1:9", 0)
QUICK = Limits(handshake_s=0.2, frame_s=0.2, stall_s=0.3)


async def serves(one: Broker) -> None:
    """The broker does what it should, for somebody else."""
    async with calling(one.address) as client:
        (answer,) = await client.publish(event(1, x=1))
        assert isinstance(answer, Published)


@pytest.mark.parametrize(
    ("speaks", "own", "version"),
    [((1, 2), (1, 2), 2), ((1, 1), (1, 2), 1), ((1, 2), (1, 1), 1), ((2, 2), (1, 2), 2), ((1, 9), (1, 2), 2)],
)
def test_the_highest_version_that_both_know_is_spoken(
    speaks: tuple[int, int], own: tuple[int, int], version: int
) -> None:
    async def main() -> None:
        async with broker(wire_versions=own) as one, calling(one.address, speaks=speaks) as client:
            assert client.version == version
            await client.subscribe("s", "x > 0")
            answers = await client.publish(*[event(number, x=1) for number in range(30)])
            assert all(isinstance(answer, Published) for answer in answers)
            assert len(await client.notified(30)) == 30

    run(main())


def test_brokers_of_two_versions_make_one_network() -> None:
    async def main() -> None:
        async with (
            broker(wire_versions=(1, 1)) as old,
            broker(wire_versions=(1, 2), join=(old.address,)) as new,
            broker(wire_versions=(1, 2), join=(old.address,)) as newer,
            calling(old.address) as at_old,
            calling(newer.address) as at_newer,
        ):
            await at_newer.subscribe("s", "x > 0")
            await at_old.publish(*[event(number, x=1) for number in range(20)])
            assert len(await at_newer.notified(20)) == 20
            assert len(new.node.directory.others()) == 2

    run(main())


@pytest.mark.parametrize(
    ("hello", "says"),
    [
        (Hello((3, 4), ""), "you speak versions 3 to 4, this broker 1 to 2"),
        (Hello((2, 1), ""), "you speak versions 2 to 1"),
        (Hello((1, 2), "elsewhere"), "this broker is of the network 'meetpoint', not of 'elsewhere'"),
        (Hello((1, 2), "", STRANGER), "this broker is of the network 'meetpoint', not of ''"),
        (Hello((1, 2), "meetpoint", Peer(NodeId(Key(b"")), "h:1")), "a broker says its id and its address"),
        (Hello((1, 2), "meetpoint", Peer(NodeId(Ring(128).key(1)), "h:1")), "you have 128-bit ids, this network 160"),
        (Hello((1, 2), "meetpoint", Peer(STRANGER.id, "")), "a broker says its id and its address"),
        (
            Hello((1, 2), "meetpoint", STRANGER, way="chord dmm 00"),
            "the network has the scheme meet, not dmm; set scheme",
        ),
        (Hello((1, 2), "meetpoint", STRANGER, way="ring meet 00"), "the network has the overlay chord, not ring"),
        (Hello((1, 2), "meetpoint", STRANGER, way="chord meet 00"), "set meet.children and meet.plan as its other"),
        (NewIncarnation(STRANGER), "say hello first"),
    ],
)
def test_a_hello_that_will_not_do_is_answered_with_one_word_and_closed(hello: Hello, says: str) -> None:
    async def main() -> None:
        async with broker() as one:
            async with raw(one.address) as caller:
                caller.send(hello)
                unwelcome = await caller.next(HelloRejected)
                assert says in unwelcome.reason
                assert not unwelcome.retry
                assert await caller.ended()
                assert not caller.inbox
            await serves(one)

    run(main())


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (frame(HANDSHAKE.encode(Hello((1, 2), "")), 2), "version"),
        ((2).to_bytes(4, "big") + b"\x07\x00", "version"),
        ((4 << 10).to_bytes(4, "big") + b"\x01" + bytes(4 << 10), None),
        (((4 << 10) + 1).to_bytes(4, "big"), "oversized"),
        (b"\xff\xff\xff\xff", "oversized"),
        (bytes(4), "malformed"),
        (frame(b"\xc1"), "malformed"),
        (frame(msgspec.msgpack.encode(["sync", 5, b"", []])), "unknown"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "oversized"),
    ],
)
def test_first_bytes_that_are_no_hello_are_answered_with_one_word_and_closed(data: bytes, kind: str | None) -> None:
    async def main() -> None:
        async with broker() as one:
            async with raw(one.address) as caller:
                caller.writer.write(data)
                unwelcome = await caller.next(HelloRejected)
                assert unwelcome.reason
                assert await caller.ended()
            if kind is not None:
                assert one.counts.wire_errors == {kind: 1}
            assert one.counts.totals["connections_refused"] == 1
            await serves(one)

    run(main())


def test_whoever_says_nothing_is_closed() -> None:
    async def main() -> None:
        async with broker(limits=QUICK) as one, raw(one.address) as silent, raw(one.address) as slow:
            slow.writer.write(frame(HANDSHAKE.encode(Hello((1, 2), "")))[:9])
            assert await silent.ended()
            assert await slow.ended()
            assert one.counts.totals["connections_refused"] == 2
            await serves(one)

    run(main())


def test_half_a_frame_is_waited_for_only_so_long() -> None:
    async def main() -> None:
        async with broker(limits=QUICK) as one, calling(one.address) as client, calling(one.address) as good:
            client.writer.write((1000).to_bytes(4, "big") + b"\x02\x91")
            assert await client.ended()
            assert isinstance(await good.get(BrokersRequest()), BrokersReply)  # who says nothing is left in peace
            await serves(one)

    run(main())


def test_a_frame_beyond_the_limit_closes_before_anything_is_held() -> None:
    async def main() -> None:
        async with broker() as one:
            async with calling(one.address) as client:
                client.writer.write((1 << 30).to_bytes(4, "big") + b"\x02")
                assert await client.ended()
            assert one.counts.wire_errors == {"oversized": 1}
            await serves(one)

    run(main())


def test_what_comes_in_one_piece_with_the_hello_is_read_too() -> None:
    async def main() -> None:
        async with broker() as one, raw(one.address) as caller:
            link = make_link_codec()
            hello = frame(HANDSHAKE.encode(Hello((1, 2), "meetpoint", STRANGER)))
            caller.writer.write(hello + frames([link.encode(Sync(7, b""))] * 3, 2))
            await caller.next(Welcome)
            await until(lambda: one.counts.totals["messages_in"] == 3, "three messages are taken")

    run(main())


def test_a_peer_that_says_it_is_another_is_closed() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address, peer=STRANGER) as caller:
            caller.send(NewIncarnation(Peer(STRANGER.id, STRANGER.address, 1)))
            caller.send(NewIncarnation(Peer(NodeId(Ring().hash(b"else")), "127.0.0.1:9", 0)))
            assert await caller.ended()
            await serves(one)

    run(main())


def test_messages_that_nobody_knows_are_counted_and_the_others_of_the_link_are_taken() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address, peer=STRANGER) as caller:
            good = make_link_codec().encode(Sync(7, b""))
            unknown, wrong = msgspec.msgpack.encode(["tomorrow", 1]), msgspec.msgpack.encode(["sync", "x"])
            caller.writer.write(frames([good, unknown, wrong, good], 2))
            await until(lambda: one.counts.totals["messages_in"] == 2, "two messages are taken")
            assert one.counts.wire_errors == {"unknown": 1, "malformed": 1}
            await serves(one)

    run(main())


def test_no_more_clients_than_allowed() -> None:
    async def main() -> None:
        async with broker(limits=Limits(clients=1)) as one, calling(one.address), raw(one.address) as second:
            second.send(Hello((1, 2), ""))
            unwelcome = await second.next(HelloRejected)
            assert unwelcome.retry
            assert "1 clients" in unwelcome.reason

    run(main())


def test_a_peer_that_breaks_off_costs_the_network_nothing() -> None:
    async def main() -> None:
        async with network(3, scheme="flood") as brokers:  # in which no broker holds keys for others
            await brokers[2].stop(drain=False)
            async with calling(brokers[0].address) as first, calling(brokers[1].address) as second:
                await second.subscribe("s", "x > 0")
                await first.publish(*[event(number, x=1) for number in range(10)])
                assert len(await second.notified(10)) == 10

    run(main())


@pytest.mark.parametrize("seed", range(4))
def test_garbage_never_ends_a_broker(seed: int) -> None:
    """Random bytes, cut and changed frames, known messages with any values: as nobody, as a client, as a broker."""
    drawn = random.Random(seed)

    def value(depth: int = 0) -> object:
        kind = drawn.randrange(9 if depth < 3 else 7)
        if kind == 0:
            return drawn.choice([0, 1, -1, 2**63, 2**64 - 1, -(2**63), drawn.getrandbits(40)])
        if kind == 1:
            return drawn.randbytes(drawn.choice([0, 1, 8, 20, 40]))
        if kind == 2:
            return drawn.choice(["", "a", "x" * 300, "\x00", "127.0.0.1:1", "price > 3", "ünïcödé"])
        if kind == 3:
            return drawn.choice([None, True, False, 1.5, float("nan"), float("inf")])
        if kind == 4:
            return [STRANGER.id, STRANGER.address, drawn.choice([0, 1, 2**62])]
        if kind == 5:
            return [drawn.randbytes(20), drawn.getrandbits(16), drawn.getrandbits(16)]
        if kind == 6:
            return drawn.choice(
                ["subscribe", "publish", "present", "update", "acknowledge", "declare", "lookup", "locate"]
            )
        if kind == 7:
            return [value(depth + 1) for _ in range(drawn.randrange(6))]
        return {str(number): value(depth + 1) for number in range(drawn.randrange(3))}

    tags = [str(kind.__struct_config__.tag) for kind in make_link_codec().kinds]

    def message() -> bytes:
        tag = drawn.choice(["ask", *tags])
        return msgspec.msgpack.encode([tag, *[value() for _ in range(drawn.randrange(9))]])

    async def main() -> None:
        async with broker() as one:
            for turn in range(120):
                async with raw(one.address) as caller:
                    if turn % 3 == 1:
                        caller.send(Hello((1, 2), ""))
                    elif turn % 3 == 2:
                        caller.send(Hello((1, 2), "meetpoint", STRANGER))
                    stream = frames([message() for _ in range(drawn.randrange(1, 30))], drawn.choice([1, 2]))
                    if drawn.random() < 0.3:
                        changed = bytearray(stream)
                        for _ in range(3):
                            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
                        stream = bytes(changed)
                    elif drawn.random() < 0.2:
                        stream = drawn.randbytes(200)
                    caller.writer.write(stream[: drawn.choice([len(stream), drawn.randrange(len(stream))])])
                    await asyncio.sleep(0)
                    caller.writer.write_eof()
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(caller.reader.read(), 5)
            await serves(one)
            assert one.exit_code is None

    run(main())


@pytest.mark.parametrize("seed", range(6))
def test_well_formed_messages_with_any_values_never_end_a_broker(seed: int) -> None:
    async def main() -> None:
        async with network(2, scheme=("flood", "lists", "meet")[seed % 3], limits=Limits(drain_s=0.1)) as brokers:
            one = brokers[0]
            known = (bytes(one.node.me.id), bytes(brokers[1].node.me.id), bytes(STRANGER.id), event(1, x=1))
            inventor = MessageGenerator(seed, known)
            async with calling(one.address) as client:
                await client.subscribe("s", "x > 0")
            for kind in make_link_codec().kinds:
                async with calling(one.address, peer=STRANGER) as caller:
                    caller.writer.write(frames([inventor.message(kind) for _ in range(15)], 2))
                    caller.writer.write_eof()
                    with contextlib.suppress(ConnectionError):
                        await asyncio.wait_for(caller.reader.read(), 5)
            async with calling(one.address) as caller:
                caller.writer.write(frames([inventor.message(Request) for _ in range(400)], 2))
                caller.writer.write_eof()
                with contextlib.suppress(ConnectionError):
                    await asyncio.wait_for(caller.reader.read(), 5)
            assert one.exit_code is None, one.failure
            assert not one.failure
            assert one.counts.totals["messages_in"] > 100
            assert one.counts.totals["requests"] > 100

    run(main())
