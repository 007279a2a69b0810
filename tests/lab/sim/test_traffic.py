"""What messages are for: every kind is in the table, what is inside counts, and only from the first event on."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from meetpoint.api.codec import Codec
from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import NodeRequest, Publish, Subscribe
from meetpoint.catalog import make_codec
from meetpoint.catalog.purposes import ENVELOPES, PARTS, PURPOSES, Purpose
from meetpoint.lab.sim import Network
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.observers import Meter, Traffic
from meetpoint.node.runtime.inputs import ClientRequest
from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.chord.messages import ChordFind, ChordRouted
from meetpoint.schemes.flood.scheme import FloodEvent
from tests.lab.sim.toy import ToyFamily

RING = Ring()
PEER = Peer(RING.node(5), "n5", 1)
ONE = Process(0, PEER)
TOYS: dict[str, Purpose] = {"carry": "events", "hello": "upkeep"}


def kinds(base: type[Message] = Message) -> list[type[Message]]:
    """All messages of the package that brokers send to each other: those with a tag. What clients say is in `wire`."""
    found = []
    for kind in base.__subclasses__():
        found += kinds(kind)
        of_brokers = kind.__module__.startswith("meetpoint.") and not kind.__module__.startswith("meetpoint.api.")
        if kind.__struct_config__.tag is not None and of_brokers:
            found.append(kind)
    return found


def tag_of(kind: type[Message]) -> str:
    return str(kind.__struct_config__.tag)


def metered(message: Message, codec: Codec | None = None, purposes: dict[str, Purpose] | None = None) -> Meter:
    codec = make_codec() if codec is None else codec
    meter = Meter(codec, PURPOSES if purposes is None else purposes)
    meter.happened(0, ONE, ClientRequest(1, Publish(b"")))
    meter.sent(0, ONE, PEER, message, codec.encode(message))
    return meter


def test_every_kind_of_message_has_a_purpose() -> None:
    known = {tag_of(kind): kind for kind in kinds()}
    assert {"copy", "c.as", "flooding"} <= known.keys()
    assert [tag for tag in known if tag not in PURPOSES] == []
    assert set(PURPOSES.values()) == set(get_args(Purpose))


def test_what_is_said_of_the_inside_of_messages_is_so() -> None:
    for kind in kinds():
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        assert (tag_of(kind) in ENVELOPES) == (fields.get("body") is bytes), f"{kind}: is its body a message?"
        if tag_of(kind) in PARTS:
            assert PARTS[tag_of(kind)][0] in fields


def test_a_routed_message_is_for_what_it_brings() -> None:
    codec = make_codec()
    event = FloodEvent(EventKey(HomeId(b"h"), 1, 1), PEER, 0, 0, b"", b"content")
    for body, tag in ((event, "flooding"), (ChordFind(RING.key(1), PEER, 1, 1), "c.fi")):
        once = ChordRouted(RING.key(1), PEER, 1, codec.encode(body))
        twice = ChordRouted(RING.key(1), PEER, 1, codec.encode(once))
        for message in (once, twice):
            assert metered(message).by_kind == {tag: Traffic(1, len(codec.encode(message)))}


def test_the_bytes_of_a_part_are_for_its_own_purpose() -> None:
    class Reply(Message, frozen=True, array_like=True, gc=False, tag="visited"):
        summary: tuple[int, ...] | None

    codec = Codec([Reply, ChordRouted])
    for part, size in ((None, 0), ((), 1), ((1, 2, 3), 4)):
        for message in (Reply(part), ChordRouted(RING.key(1), PEER, 1, codec.encode(Reply(part)))):
            found = metered(message, codec).by_purpose()
            assert found["summaries"] == Traffic(0, size)
            assert found["events"] == Traffic(1, len(codec.encode(message)) - size)


def test_a_kind_that_nobody_told_the_purpose_of_is_no_silent_zero() -> None:
    class Strange(Message, frozen=True, array_like=True, gc=False, tag="strange"):
        pass

    with pytest.raises(AssertionError, match=r"say in catalog.purposes what strange \(Strange\) is for"):
        metered(Strange())


def test_only_what_comes_after_the_first_event_counts() -> None:
    class Counting(Meter):
        before = 0

        def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
            super().sent(now, source, to, message, payload)
            self.before += self.began is None

    net = Network(nodes=5, seed=3, family=ToyFamily())
    net.subscribe("price > 1")
    net.publish({"price": 2})
    net.publish({"price": 3})
    meter = Counting(net.family.codec, TOYS)
    net.observe(meter)
    net.run()
    assert meter.before > 0
    assert meter.began == min(each.asked for each in net.clients.history.publications.values())
    found = meter.by_purpose()
    assert found["events"].messages == 2 * 4
    assert found["upkeep"].messages > 0
    assert found["placing"] == found["summaries"] == found["safekeeping"] == Traffic()
    report = net.report()
    assert sum(each.messages for each in found.values()) + meter.before == report.messages
    assert sum(each.bytes for each in found.values()) < report.bytes


def test_a_subscription_begins_nothing_and_the_first_event_everything() -> None:
    meter = Meter(make_codec())
    began = []
    asked: tuple[NodeRequest, ...] = (Subscribe("s1", "price > 1"), Publish(b""), Publish(b""))
    for at, what in enumerate(asked, 7):
        meter.happened(at, ONE, ClientRequest(at, what))
        began.append(meter.began)
    assert began == [None, 8, 8]
    assert meter.by_purpose() == dict.fromkeys(get_args(Purpose), Traffic())
