"""What a stranger sends that makes no sense is dropped and counted, and nothing else comes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.language import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.placement.entries.entry_table import StoredEntry, owner_of
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.messages import Entry, KeyedReply, KeyedRequest, Put, Stored
from meetpoint.schemes.reach.duties import PARTS_MAX, WORKING_MAX
from meetpoint.schemes.reach.messages import BusyRegion, DutyReply, DutyRequest, pack_bits, unpack_bits
from tests.placement.small_world import CODEC, RING, home
from tests.schemes.reach.small_world import ReachWorld, attributes, handle_in

NOBODY = Peer(RING.node(1), "nowhere", 1)
EVENT = EventKey(home(8), 1, 1)


def content(event: int) -> bytes:
    """An event with an id."""
    made = Event("x", "p", 1, parse_timestamp("2026-01-01T00:00:00Z"), attributes(event))
    return to_msgpack(made)


def handle(event: int = 0b11, **other: Any) -> DutyRequest:
    """Everything below an event."""
    whole = DutyRequest(EVENT, 1, 0, b"", b"", 0, 1_000_000, 0, content(event))
    return msgspec.structs.replace(whole, **other)


def send(world: ReachWorld, body: Message | bytes, point: int = 0b11) -> None:
    """An errand from nowhere to the key of an id."""
    number = world.holder(point)
    key = bytes(world.scheme(number)._cube.key(point))
    packed_body = body if isinstance(body, bytes) else CODEC.encode(body)
    world.say(number, KeyedRequest(key, key, NOBODY, 1, 0, packed_body))


def entry(text: str = "a = 1 AND b = 1", at: int = 0, point: int = 0b11, number: int = 1) -> Entry:
    """An entry as it should be."""
    key = bytes(ReachWorld((65,)).scheme(65)._cube.key(point))
    return Entry(key, key, msgspec.msgpack.encode(StoredEntry(number, at, text)))


WRONG: dict[str, tuple[Message, int, str]] = {
    "a bit that no id has": (handle(fixed=pack_bits(1 << 6)), 0b11, "duty_malformed"),
    "more bytes than an id has": (handle(fixed=bytes(2)), 0b11, "duty_malformed"),
    "bits that are not fixed": (handle(bits=b"\x01"), 0b11, "duty_malformed"),
    "bits that the event lacks": (handle(fixed=b"\x04", bits=b"\x04"), 0b111, "duty_malformed"),
    "a duty of another head": (handle(fixed=b"\x01"), 0b11, "duty_malformed"),
    "an event of another head": (handle(0b111), 0b11, "duty_malformed"),
    "a floor below 0": (handle(floor=-1), 0b11, "duty_malformed"),
    "fewer messages than none": (handle(hops=-1), 0b11, "duty_malformed"),
    "more messages than there are": (handle(hops=1 << 40), 0b11, "duty_malformed"),
    "settled below 0": (handle(settled=-1), 0b11, "duty_malformed"),
    "no event": (handle(content=b"what"), 0b11, "event_malformed"),
    "an answer as an errand": (DutyReply((), 1, (), 0), 0b11, "errand_malformed"),
    "no entry": (Put(home(8), 1, Entry(entry().low, entry().low, b"what")), 0b11, "entry_malformed"),
    "no filter": (Put(home(8), 1, entry("a =")), 0b11, "entry_malformed"),
    "no such conjunction": (Put(home(8), 1, entry(at=3)), 0b11, "entry_malformed"),
    "a number below 0": (Put(home(8), 1, entry(number=-1)), 0b11, "entry_malformed"),
    "a number that is too high": (Put(home(8), 1, entry(number=1 << 48)), 0b11, "entry_malformed"),
    "an entry that belongs elsewhere": (Put(home(8), 1, entry("a = 1")), 0b11, "entry_malformed"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_counted_and_changes_nothing(what: str) -> None:
    world = ReachWorld()
    world.run(2)
    message, point, counted = WRONG[what]
    records = {number: dict(disk) for number, disk in world.disks.items()}
    send(world, message, point)
    assert world.observed.get(counted, 0) == 1
    assert world.under_way() == []
    world.run(1)
    assert world.handed == []
    assert {number: dict(disk) for number, disk in world.disks.items()} == records


def test_bytes_that_are_no_message_are_counted() -> None:
    world = ReachWorld()
    world.run(2)
    for body in (b"", b"\xc1", CODEC.encode(handle())[:-1], msgspec.msgpack.encode(["r.handle", 7])):
        send(world, body)
    assert world.observed["errand_malformed"] == 4


@pytest.mark.parametrize("within_us", [-1, 0, 1 << 60])
def test_a_duty_of_a_stranger_is_over_in_time(within_us: int) -> None:
    world = ReachWorld()
    world.run(2)
    send(world, handle(floor=1 << 40, within_us=within_us))
    world.run(10)
    assert world.under_way() == []
    assert world.observed.get("reach_served", 0) in range(1, 5)


def test_no_more_duties_are_taken_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meetpoint.schemes.reach.duties.WORKING_MAX", 5)
    assert WORKING_MAX > 5
    world = ReachWorld()
    world.run(2)
    world.weather = lambda source, to, message: ()
    for number in range(20):
        send(world, handle(attempt=number))
    assert len(world.under_way()) == 5
    assert world.observed["reach_crowded"] == 15
    world.run(10)
    assert world.under_way() == []


def test_a_duty_that_falls_into_too_many_parts_is_not_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meetpoint.schemes.reach.duties.PARTS_MAX", 2)
    assert PARTS_MAX > 2
    world = ReachWorld()
    world.run(2)
    send(world, handle(0b111), 0b111)
    assert world.observed["reach_overparted"] == 1
    assert world.under_way() == []


ODD = [
    Stored(),
    DutyReply(((HomeId(b"nowhere at all"), (1,)),), 1, (), 0),
    DutyReply(((HomeId(b""), ()),), 1, (), 0),
]


@pytest.mark.parametrize("answer", ODD, ids=["another message", "a home that is none", "no home"])
def test_an_answer_that_makes_no_sense_is_none(answer: Message) -> None:
    """Whoever answers an errand may say anything: here once, in place of the holder. The next attempt is well."""
    world = ReachWorld()
    world.run(2)
    world.subscribed(16, "some", "a = 1 AND b = 1")
    asked: list[Any] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if handle_in(message) is not None and not asked:
            asked.append(message)
            return ()
        return None

    world.weather = weather
    world.publish(40, "e", **attributes(0b11))
    world.run(0.1)
    errand = asked[0]
    root = world.holder(0b11)
    arc = world.arcs()[home(root)][0]
    world.say(40, KeyedReply(errand.number, errand.key, errand.end, 1, home(root), arc, CODEC.encode(answer)))
    assert world.observed["duty_malformed"] == 1
    world.run(15)
    assert world.came() == [("some", "e")]
    assert not world.scheme(40)._dissemination.waiting


def test_an_answer_with_odd_numbers_is_no_matter() -> None:
    world = ReachWorld()
    world.run(2)
    world.subscribed(16, "some", "a = 1 AND b = 1")
    changed = 0

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        nonlocal changed
        if isinstance(message, KeyedReply) and isinstance(CODEC.decode(message.body), DutyReply) and not changed:
            changed += 1
            odd = DutyReply((), -7, ((HomeId(b""), NOBODY.id),), -7, BusyRegion(NOBODY, home(8), 1 << 40))
            world.say(to, msgspec.structs.replace(message, body=CODEC.encode(odd)))
            return ()
        return None

    world.weather = weather
    world.publish(40, "e", **attributes(0b11))
    world.run(5)
    assert changed
    assert world.came() == [("some", "e")]
    world.publish_as("p", 2, 40, "f", **attributes(0b11))
    world.run(5)
    assert world.came() == [("some", "e"), ("some", "f")]


def test_entries_that_are_none_are_left_out_when_an_arc_is_handed_over() -> None:
    world = ReachWorld()
    world.run(2)
    number = world.holder(0b11)
    scheme, node = world.scheme(number), world.nodes[number]
    good = entry()
    effects = node._runtime.begin(world.local(number))
    for name, each in (
        (entry_name(home(8), 1), good),
        (entry_name(home(8), 2), Entry(good.low, good.high, b"what")),
        (entry_name(home(8), 3), Entry(good.low, bytes(RING.key(7)), good.body)),
        ("what", good),
        (f"{home(8).hex()}/-1", good),
        (f"{home(8).hex()}/01", good),
    ):
        scheme._tables.added(home(number), name, each)
    world._apply(number, node, effects)
    assert world.observed["entry_malformed"] == 5
    assert len(scheme._tables.at(home(number))) == 1
    scheme._tables.removed(home(number), "what")
    assert len(scheme._tables.at(home(number))) == 1
    scheme._tables.removed(home(number), entry_name(home(8), 1))
    assert len(scheme._tables.at(home(number))) == 0


def test_names_and_bits_are_read_strictly() -> None:
    assert owner_of(entry_name(HomeId(b"\x01\x02"), 7)) == b"\x01\x02"
    for wrong in ("", "0102", "0102/", "0102/07", "0102/-7", "01 02/7", "XY/7", f"0102/{1 << 63}"):
        assert owner_of(wrong) is None
    for bits in (0, 1, 0b100111, (1 << 160) - 1):
        assert unpack_bits(pack_bits(bits), 160) == bits
    assert unpack_bits(pack_bits(1 << 160), 160) is None
    assert unpack_bits(pack_bits(0b100), 2) is None
    assert unpack_bits(b"\x00\x01", 8) is None
    assert pack_bits(0) == b""
