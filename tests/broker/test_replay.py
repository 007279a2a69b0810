"""A broker among others that says what it has no right to: refused, counted, said in the log, and nothing is lost."""

from __future__ import annotations

import logging

import pytest

from meetpoint.api.codec import frames
from meetpoint.api.ids import HomeId, NodeId, Peer, home_of
from meetpoint.api.messages import Message
from meetpoint.broker import Broker
from meetpoint.catalog import make_link_codec
from meetpoint.node.cluster.replication import Replicate
from meetpoint.node.runtime.ring import Ring
from tests.broker.talking import calling, event, network, run, until

ROGUE = Peer(NodeId(Ring().hash(b"rogue")), "127.0.0.1:9", 0)


def kept(broker: Broker, home: HomeId) -> set[tuple[str, int]]:
    """Return the records that a broker keeps of a home."""
    return {(record.name, record.version) for record in broker.node.home_manager.replicas.records(home)}


async def said(broker: Broker, message: Message) -> None:
    """The rogue says it."""
    async with calling(broker.address, peer=ROGUE) as link:
        before = broker.counts.totals["messages_in"]
        link.writer.write(frames([make_link_codec().encode(message)], 2))
        await until(lambda: broker.counts.totals["messages_in"] > before, "it is heard")


def test_what_another_broker_says_of_a_home_is_refused_and_counted_and_nothing_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with network(3, scheme="flood") as brokers, calling(brokers[0].address) as client:
            await client.subscribe("s", "x > 0")
            home = home_of(brokers[0].node.me.id)
            entry = brokers[1].node.directory.get(home)
            assert entry is not None
            others = brokers[1:]
            await until(lambda: all(kept(each, home) for each in others), "both keep copies")
            before = [kept(each, home) for each in others]
            names = tuple(name for name, _ in before[0])
            for each in others:
                await said(each, Replicate(1, home, entry.epoch, 2**40, (), names, False, False))
                await said(each, Replicate(2, home, entry.epoch, 2**40, (), (), True, True))
                assert each.counts.refusals["peer"] == 2
                assert each.counts.observed["peer_refused"] == 2
            assert [kept(each, home) for each in others] == before
            await client.publish(event(1, x=1))
            assert len(await client.notified(1)) == 1

    with caplog.at_level(logging.WARNING, "meetpoint.broker"):
        run(main())
    lines = [each.getMessage() for each in caplog.records if "kind=peer" in each.getMessage()]
    assert len(lines) == 2, "once for each broker that refused, not for each refusal"
    assert all(ROGUE.id.hex() in line for line in lines)
