"""The ways to other brokers: one-way, dialled on demand, bounded, and honest about who is not there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from meetpoint.api.codec import FrameReader, frame
from meetpoint.api.handshake import Hello, NewIncarnation, Welcome
from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.broker.observe.logs import Log, Refusals
from meetpoint.broker.observe.metrics import Counts
from meetpoint.broker.peers.links import PeerLinks
from meetpoint.broker.transport.connection import FlushScheduler
from meetpoint.broker.transport.tls import TlsPolicy
from meetpoint.catalog import make_link_codec
from meetpoint.node.cluster.directory import Sync
from meetpoint.node.runtime.inputs import Input, PeerUnreachable
from meetpoint.node.runtime.ring import Ring
from tests.broker.talking import HANDSHAKE, broker, config, network, run, until

ME = Peer(NodeId(Ring().hash(b"me")), "127.0.0.1:1")
OTHER = NodeId(Ring().hash(b"other"))
CODEC = make_link_codec()


class Here:
    """Links of a node that only notes what it is told."""

    def __init__(self, **said: Any) -> None:
        self.inputs: list[Input] = []
        self.counts = Counts()
        self.links = PeerLinks(
            config(**said),
            TlsPolicy(config(**said)),
            FlushScheduler(asyncio.get_running_loop()),
            CODEC,
            self.counts,
            Log(),
            Refusals(self.counts, Log()),
            ME,
            self.inputs.append,
        )

    def lost(self) -> list[Peer]:
        return [item.peer for item in self.inputs if isinstance(item, PeerUnreachable)]


class There:
    """A broker that only listens."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.hellos: list[Hello] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.address = ""
        self.welcomes = asyncio.Event()
        self.welcomes.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        frames = FrameReader()
        version = 1
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                for piece in frames.feed(data):
                    if version == 2:
                        self.heard += CODEC.decode_frame(piece, 2, lambda error: None)
                        continue
                    hello = HANDSHAKE.decode(piece)
                    assert isinstance(hello, Hello)
                    self.hellos.append(hello)
                    await self.welcomes.wait()
                    writer.write(frame(HANDSHAKE.encode(Welcome(2, "meetpoint", Peer(OTHER, self.address, 3)))))
                    version = frames.version = 2
        writer.close()


@contextlib.asynccontextmanager
async def there() -> AsyncIterator[There]:
    other = There()
    server = await asyncio.start_server(other.serve, "127.0.0.1", 0)
    other.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield other
    finally:
        server.close()
        for writer in other.writers:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
        await server.wait_closed()


def test_messages_arrive_in_order_and_in_few_frames_under_the_incarnation_they_were_said_in() -> None:
    async def main() -> None:
        async with there() as other:
            here = Here()
            peer = Peer(OTHER, other.address)
            other.welcomes.clear()
            here.links.send(peer, Sync(1, b""))
            await until(lambda: other.hellos, "it was dialled")
            later = Peer(ME.id, ME.address, 1)
            here.links.set_incarnation(later)
            here.links.send(peer, Sync(2, b""))
            other.welcomes.set()
            await until(lambda: len(other.heard) == 3, "all have come")
            here.links.set_incarnation(Peer(ME.id, ME.address, 2))
            here.links.send(peer, Sync(3, b""))
            await until(lambda: len(other.heard) == 5, "all have come")
            assert other.hellos == [Hello((1, 2), "meetpoint", ME, way=config().way)]
            assert other.heard[:3] == [Sync(1, b""), NewIncarnation(later), Sync(2, b"")]
            assert other.heard[3:] == [NewIncarnation(Peer(ME.id, ME.address, 2)), Sync(3, b"")]
            assert here.lost() == []
            await here.links.close()

    run(main())


def test_a_link_that_breaks_is_told_once_with_who_was_there_and_dialled_again_on_demand() -> None:
    async def main() -> None:
        async with there() as other:
            here = Here()
            peer = Peer(OTHER, other.address, 1)
            here.links.send(peer, Sync(1, b""))
            await until(lambda: other.heard, "it has come")
            other.writers[0].close()
            await until(here.lost, "the loss is told")
            assert here.lost() == [Peer(OTHER, other.address, 3)]  # as it said itself
            here.links.send(peer, Sync(2, b""))
            await until(lambda: len(other.heard) == 2, "the next has come")
            other.writers[1].write(frame(HANDSHAKE.encode(NewIncarnation(Peer(OTHER, other.address, 4))), 2))
            await other.writers[1].drain()
            other.writers[1].close()
            await until(lambda: len(here.lost()) == 2, "the loss is told")
            assert here.lost()[1] == Peer(OTHER, other.address, 4)
            await here.links.close()

    run(main())


def test_nobody_there_is_told_and_not_dialled_without_end() -> None:
    async def main() -> None:
        async with there() as other:
            address = other.address
        here = Here()
        peer = Peer(OTHER, address, 7)
        for _ in range(60):
            here.links.send(peer, Sync(1, b""))
            await asyncio.sleep(0.01)
        assert here.lost() == [peer] * 4  # after 0, 0.05, 0.15 and 0.35 s; the next would be after 0.75 s
        assert here.counts.totals["dropped_to_peers"] > 0
        await here.links.close()

    run(main())


def test_another_broker_at_an_address_gets_nothing() -> None:
    async def main() -> None:
        async with there() as other:
            here = Here()
            peer = Peer(NodeId(Ring().hash(b"a third")), other.address)
            here.links.send(peer, Sync(1, b""))
            await until(here.lost, "the loss is told")
            assert here.lost() == [peer]
            assert other.heard == []
            here.links.send(Peer(OTHER, other.address), Sync(2, b""))
            await until(lambda: other.heard, "who is meant gets it")
            assert other.heard == [Sync(2, b"")]
            await here.links.close()

    run(main())


def test_addresses_that_are_none_are_lost_like_others() -> None:
    async def main() -> None:
        here = Here()
        for address in ("nonsense", "127.0.0.1:x", "x" * 300 + ":1", "[::1", ""):
            here.links.send(Peer(OTHER, address), Sync(1, b""))
        await until(lambda: len(here.lost()) == 4, "all are told")
        await here.links.close()

    run(main())


def test_what_waits_for_a_broker_is_bounded() -> None:
    async def main() -> None:
        async with there() as other:
            other.welcomes.clear()
            here = Here()
            here.links.queue_max = 10_000
            peer = Peer(OTHER, other.address)
            for number in range(1000):
                here.links.send(peer, Sync(number, bytes(100)))
            assert here.links.queued_bytes < 11_000
            assert here.counts.totals["dropped_to_peers"] > 800
            other.welcomes.set()
            await until(lambda: len(other.heard) > 50, "the first ones have come")
            assert other.heard[0] == Sync(0, bytes(100))
            await here.links.close()

    run(main())


def test_a_broker_that_dies_is_out_of_the_ring_within_seconds() -> None:
    async def main() -> None:
        async with network(3) as brokers:
            dead = brokers[1].node.me.id
            await until(
                lambda: all(len(one.node.overlay.neighbours(2)) == 2 for one in brokers), "all three are neighbours"
            )
            begin = asyncio.get_running_loop().time()
            await brokers[1].stop(drain=False)
            for one in (brokers[0], brokers[2]):
                await until(
                    lambda one=one: dead not in [peer.id for peer in one.node.overlay.neighbours(2)],  # type: ignore[misc]
                    "it is out",
                )
            assert asyncio.get_running_loop().time() - begin < 5

    run(main())


def test_a_broker_dials_from_the_address_it_listens_at() -> None:
    async def main() -> None:
        async with there() as other:
            here = Here(listen="127.0.0.2:0")
            here.links.send(Peer(OTHER, other.address), Sync(1, b""))
            await until(lambda: other.heard, "it has come")
            assert other.writers[0].get_extra_info("peername")[0] == "127.0.0.2"
            await here.links.close()

    run(main())


def test_names_may_be_used_for_addresses() -> None:
    async def main() -> None:
        async with (
            broker(name="a", listen="localhost:0") as first,
            broker(name="b", listen="localhost:0", join=(first.address,)) as second,
        ):
            assert first.address.startswith("localhost:")
            assert [peer.address for peer in second.node.directory.others()] == [first.address]

    run(main())
