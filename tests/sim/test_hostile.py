"""A node outlives whatever its peers say: messages of a real run with bytes changed, fields swapped, in any order."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from meetpoint.catalog import make_codec
from meetpoint.protocol.effects import Persist, Send
from meetpoint.protocol.inputs import Instant, Persisted, Received
from meetpoint.protocol.messages import Message, Peer
from meetpoint.protocol.records import LOCAL, Record
from meetpoint.protocol.ring import Ring
from meetpoint.protocol.safekeeping import Copy, Keep
from meetpoint.sim.engine import Process, SimulatedNode
from meetpoint.sim.run import RunConfig, make_network
from meetpoint.sim.scenario import Network
from meetpoint.wire import WireError

CODEC = make_codec()
RING = Ring()
STRANGER = Peer(RING.node(12345), "nobody", 3)


class Listener:
    """Keeps the bytes of every message, some of each kind."""

    def __init__(self) -> None:
        self.heard: dict[str, list[bytes]] = {}

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        kind = self.heard.setdefault(type(message).__name__, [])
        if len(kind) < 20:
            kind.append(payload)

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Only what was sent counts."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        """Only messages count."""


def network() -> tuple[Network, list[bytes]]:
    listener = Listener()
    config = RunConfig(nodes=8, subscriptions=20, events=20, lookups=20, faults="churn", fault_seconds=20)
    net = make_network(config, 5)
    net.tell(listener)
    net.run()
    assert len(listener.heard) > 15, "most kinds of messages"
    return net, [payload for kind in sorted(listener.heard) for payload in listener.heard[kind]]


def changed(payloads: list[bytes], rng: random.Random) -> Iterator[bytes]:
    """One of them with bytes changed, or with its fields in another's places."""
    while True:
        data = bytearray(rng.choice(payloads))
        if rng.random() < 0.6:
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            yield bytes(data)
        else:
            fields, other = msgspec.msgpack.decode(data), msgspec.msgpack.decode(rng.choice(payloads))
            at = rng.randrange(1, len(fields)) if len(fields) > 1 else 0
            fields[at] = rng.choice([rng.choice(other), 0, -1, 2**63, b"", b"x" * 19, "", [], None, True, 1.5])
            yield msgspec.msgpack.encode(fields)


def outlive(node: SimulatedNode, item: Received, now: Instant) -> None:
    """One step, what its disk answers, and all that must hold afterwards."""
    for effect in node.handle(item, now):
        if isinstance(effect, Send):
            CODEC.encode(effect.message)
        elif isinstance(effect, Persist):
            node.handle(Persisted(effect.ticket), now)
    node.check()


@pytest.mark.parametrize("seed", range(4))
def test_no_message_kills_a_node(seed: int) -> None:
    net, payloads = network()
    rng = random.Random(seed)
    processes = net.cluster.alive()
    understood = 0
    messages = changed(payloads, rng)
    for _ in range(20_000):
        process = rng.choice(processes)
        assert process.node is not None
        source = rng.choice([*(other.node.me for other in processes if other.node is not None), STRANGER])
        try:
            message = CODEC.decode(next(messages))
        except WireError:
            continue
        understood += 1
        if source.id != process.node.me.id:
            outlive(process.node, Received(source, message), Instant(net.engine.now))
    assert understood > 2_000, "enough of them are messages"


@pytest.mark.parametrize("kind", ["copy", "keep"])
def test_nobody_writes_another_nodes_own_notes(kind: str) -> None:
    net, _ = network()
    process = net.cluster.alive()[0]
    assert process.node is not None
    note = Record(LOCAL, "incarnation", 99, b"")
    message = Copy(1, LOCAL, 1, 1, (note,), (), True, True) if kind == "copy" else Keep(1, LOCAL, (note,))
    effects = process.node.handle(Received(STRANGER, message), Instant(net.engine.now))
    assert not any(type(effect).__name__ == "Persist" for effect in effects)
