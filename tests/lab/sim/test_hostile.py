"""A node outlives whatever its peers say, whatever overlay and scheme it runs: messages of a real run with bytes
changed, fields swapped, also in messages within messages, in any order. Nor does it put on disk what it could not read
again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from meetpoint.api.codec import WireError
from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message
from meetpoint.catalog import make_codec
from meetpoint.lab.sim.engine import Process, SimulatedNode
from meetpoint.lab.sim.run import RunConfig, make_network
from meetpoint.lab.sim.scenario import Network
from meetpoint.node.cluster.replication import Replicate, StoreReplica
from meetpoint.node.home.home import Home
from meetpoint.node.runtime.effects import Persist, Send
from meetpoint.node.runtime.inputs import Instant, Persisted, Received
from meetpoint.node.runtime.records import LOCAL, Record
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.overlays.chord.messages import ChordRouted
from meetpoint.overlays.hypercube.messages import HypercubeRouted
from meetpoint.overlays.pastry.messages import PastryRouted
from meetpoint.placement.messages import MESSAGES as RENDEZVOUS
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.range_store import OwnedRanges
from meetpoint.schemes.dmm.messages import MESSAGES as DMM
from meetpoint.schemes.lists.messages import MESSAGES as LISTS
from meetpoint.schemes.meet.messages import MESSAGES as MEET
from meetpoint.schemes.reach import MESSAGES as REACH
from meetpoint.schemes.rebeca import MESSAGES as FILTERS
from tests.placement.eyes import held_twice
from tests.tiers import SOAK

CODEC = make_codec()
STRANGERS = {
    "chord": Peer(Ring().node(12345), "nobody", 3),
    "hypercube": Peer(Ring().node(12345), "nobody", 3),
    "pastry": Peer(Ring(128).node(12345), "nobody", 3),
}


class Listener:
    """Keeps the bytes of the last messages of every kind, and to whom they went."""

    def __init__(self) -> None:
        self.heard: dict[str, list[tuple[str, bytes]]] = {}

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        kind = self.heard.setdefault(type(message).__name__, [])
        kind.append((to.address, payload))
        if len(kind) > 20:
            del kind[0]

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Only what was sent counts."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        """Only messages count."""


def network(overlay: str = "chord", scheme: str = "flood") -> tuple[Network, list[tuple[str, bytes]]]:
    """A network that has run, and what its nodes said: about as many of each kind."""
    listener = Listener()
    config = RunConfig(
        overlay=overlay, scheme=scheme, nodes=8, subscriptions=20, events=20, lookups=20, faults="churn",
        fault_seconds=20,
    )  # fmt: skip
    net = make_network(config, 5)
    net.observe(listener)
    net.run()
    assert len(listener.heard) > 15, "most kinds of messages"
    return net, [payload for kind in sorted(listener.heard) for payload in listener.heard[kind]]


ODD = [0, -1, 2**63, 2**64 - 1, -(2**63), b"", b"x" * 16, b"x" * 19, b"x" * 20, "", [], None, True, 1.5]


def changed(payloads: list[tuple[str, bytes]], rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """One of them with bytes changed, or with its fields in another's places; and to whom it went."""
    while True:
        address, data = rng.choice(payloads)
        yield address, bent(data, rng) if rng.random() < 0.5 else misfit(data, rng.choice(payloads)[1], rng)


def bent(payload: bytes, rng: random.Random) -> bytes:
    data = bytearray(payload)
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def misfit(payload: bytes, other: bytes, rng: random.Random) -> bytes:
    """With something else in one place: on the outside, or deep within."""
    fields: Any = msgspec.msgpack.decode(payload)
    odd = rng.choice([*ODD, rng.choice(msgspec.msgpack.decode(other))])
    inside, at = fields, 0
    while True:
        at = rng.randrange(1 if inside is fields else 0, len(inside)) if len(inside) > 1 else 0
        within = inside[at]
        if isinstance(within, list) and within and rng.random() < 0.7:
            inside = within
        elif isinstance(within, bytes) and rng.random() < 0.7 and is_message(within):
            inside[at] = misfit(within, other, rng)
            return msgspec.msgpack.encode(fields)
        else:
            inside[at] = odd
            return msgspec.msgpack.encode(fields)


def is_message(data: bytes) -> bool:
    try:
        CODEC.decode(data)
    except WireError:
        return False
    return True


def read_again(node: Any) -> None:
    """What the homes of a node keep can be read after a restart, and no key has two holders here."""
    for home in node.home_manager.homes.values():
        Home(
            home.replicator,
            Runtime(node.me, Ring(8 * len(node.me.id)), CODEC, 1),
            NodeSettings(),
            node.home_manager.watermarks,
            node.directory,
            node,
        )
        for name, record in home.replicator.records.items():
            if record.value is not None and name == "custody":
                msgspec.msgpack.decode(record.value, type=OwnedRanges)
            elif record.value is not None and name.startswith("placed/"):
                msgspec.msgpack.decode(record.value, type=Entry)


def outlive(node: SimulatedNode, item: Received, now: Instant) -> None:
    """One step, what its disk answers, and all that must hold afterwards."""
    for effect in node.handle(item, now):
        if isinstance(effect, Send):
            CODEC.encode(effect.message)
        elif isinstance(effect, Persist):
            node.handle(Persisted(effect.ticket), now)
    node.check()


SCHEMES = ["flood", "meet", "lists", "lists:distributed", "lists:hybrid:order", "dmm:always"]
NETWORKS = [
    *(("chord", scheme) for scheme in SCHEMES),
    ("chord", "reach"),
    ("chord", "rebeca"),
    ("hypercube", "flood"),
    ("hypercube", "meet"),
    ("hypercube", "reach"),
    ("hypercube", "rebeca"),
    ("pastry", "flood"),
    ("pastry", "meet"),
    ("pastry", "dmm:always"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "scheme"), NETWORKS)
@pytest.mark.parametrize("seed", range(2 if SOAK else 1))
def test_no_message_kills_a_node(seed: int, overlay: str, scheme: str) -> None:
    net, payloads = network(overlay, scheme)
    rng = random.Random(seed)
    processes = net.cluster.alive()
    understood = 0
    messages = changed(payloads, rng)
    for _ in range(8_000 if SOAK else 4_000):
        address, payload = next(messages)
        process = next((each for each in processes if each.address == address), None)
        if process is None or rng.random() < 0.2:
            process = rng.choice(processes)
        assert process.node is not None
        source = rng.choice([*(other.node.me for other in processes if other.node is not None), STRANGERS[overlay]])
        try:
            message = CODEC.decode(payload)
        except WireError:
            continue
        understood += 1
        if source.id != process.node.me.id:
            outlive(process.node, Received(source, message), Instant(net.engine.now))
    assert understood > 500, "enough of them are messages"
    for process in processes:
        read_again(process.node)


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "scheme"), [each for each in NETWORKS if each[1] != "flood"])
def test_no_message_about_keys_kills_a_network_that_goes_on(overlay: str, scheme: str) -> None:
    """What a message leads to counts as well: errands that go on, answers, timers. And no key gets two holders."""
    net, heard = network(overlay, scheme)
    kinds: tuple[type[Message], ...] = (
        *RENDEZVOUS, *MEET, *LISTS, *DMM, *REACH, *FILTERS, ChordRouted, PastryRouted, HypercubeRouted,
    )  # fmt: skip
    payloads = [each for each in heard if isinstance(CODEC.decode(each[1]), kinds)]
    rng = random.Random(7)
    messages = changed(payloads, rng)
    strangers_are_down(net, STRANGERS[overlay])
    processes = net.cluster.alive()
    for _ in range(700 if SOAK else 300):
        address, payload = next(messages)
        process = next((each for each in processes if each.address == address), processes[0])
        other = rng.choice([each for each in processes if each is not process])
        assert other.node is not None
        try:
            message = CODEC.decode(payload)
        except WireError:
            continue
        net.engine.feed(process, Received(other.node.me, message))
        net.engine.run(net.engine.now + 20_000)
    net.engine.run(net.engine.now + 20_000_000)
    assert held_twice(net) == []
    for process in processes:
        assert process.node is not None
        process.node.check()
        read_again(process.node)


def strangers_are_down(net: Network, stranger: Peer) -> None:
    """A message to an address that nobody has is lost, and so is one to oneself under another id."""
    engine, right = net.engine, net.engine._link
    nobody = engine.add(stranger)

    def link(process: Process, address: str) -> tuple[Process, int]:
        if address in engine.processes and address != process.address:
            return right(process, address)
        process.links[nobody.address] = process.links[address] = nobody, 30_000
        return nobody, 30_000

    engine._link = link  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", ["copy", "keep"])
def test_nobody_writes_another_nodes_own_notes(kind: str) -> None:
    net, _ = network()
    process = net.cluster.alive()[0]
    assert process.node is not None
    note = Record(LOCAL, "incarnation", 99, b"")
    message = Replicate(1, LOCAL, 1, 1, (note,), (), True, True) if kind == "copy" else StoreReplica(1, LOCAL, (note,))
    effects = process.node.handle(Received(STRANGERS["chord"], message), Instant(net.engine.now))
    assert not any(type(effect).__name__ == "Persist" for effect in effects)
