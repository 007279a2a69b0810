"""What a stranger sends that makes no sense is dropped and counted, and nothing else comes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.placement.entries.entry_table import StoredEntry
from meetpoint.placement.messages import Entry, KeyedReply, KeyedRequest
from meetpoint.schemes.dmm.entries import read_body, read_name, read_record, region_entry_name, region_name
from meetpoint.schemes.dmm.messages import (
    AddEntry,
    CloseHalf,
    CloseReply,
    CommandReply,
    DissolveHalf,
    EntryReply,
    LoadQuery,
    LoadReply,
    MatchPending,
    MatchReply,
    MatchRequest,
    OpenHalf,
    Preload,
    RegionEntry,
    RemoveEntry,
    ReviewHalves,
    ReviewHalvesAck,
)
from meetpoint.schemes.dmm.rules import RegionRecord, RegionState, Verdict
from meetpoint.schemes.dmm.space import ROOT, Code
from tests.placement.small_world import CODEC, RING, home
from tests.schemes.dmm.small_world import DmmWorld
from tests.schemes.dmm.test_races import Scene

NOBODY = Peer(RING.node(1), "nowhere", 1)
LOW = Code("0")
BODY = msgspec.msgpack.encode(StoredEntry(1, 0, "a = 1"))
ITEM = RegionEntry(home(10), 1, BODY)
EVENT = EventKey(home(10), 1, 1)


def is_informed() -> Scene:
    """A network whose root has been split."""
    scene = Scene()
    scene.split_to(lambda: scene.is_at(RegionState.INTERIOR, is_informed=True))
    scene.world.run(5)
    return scene


def send(world: DmmWorld, body: Message | bytes, code: Code = ROOT) -> None:
    """An errand from nowhere to the key of a region."""
    number = world.holder(code)
    key = bytes(world.scheme(number)._regions.key(code))
    packed = body if isinstance(body, bytes) else CODEC.encode(body)
    world.say(number, KeyedRequest(key, key, NOBODY, 1, 0, packed))


WRONG: dict[str, tuple[Message, Code, str]] = {
    "a code of other letters": (AddEntry("2", ITEM), ROOT, "region_malformed"),
    "a code that is too long": (AddEntry("0" * 65, ITEM), ROOT, "region_malformed"),
    "a region whose key this is not": (AddEntry("1", ITEM), LOW, "region_malformed"),
    "a walk to another key": (MatchRequest("1", NOBODY, 1, EVENT, 0, b""), LOW, "region_malformed"),
    "a question to another key": (LoadQuery("1"), LOW, "region_malformed"),
    "a word to another key": (ReviewHalves("1"), LOW, "region_malformed"),
    "no entry": (AddEntry("0", RegionEntry(home(10), 1, b"what")), LOW, "entry_malformed"),
    "an entry without a body": (AddEntry("0", RegionEntry(home(10), 1, b"")), LOW, "entry_malformed"),
    "a number below 0": (AddEntry("0", RegionEntry(home(10), -1, BODY)), LOW, "entry_malformed"),
    "a number to uproot below 0": (RemoveEntry("0", home(10), -1), LOW, "entry_malformed"),
    "no filter": (
        AddEntry("0", RegionEntry(home(10), 1, msgspec.msgpack.encode(StoredEntry(1, 0, "a =")))),
        LOW,
        "entry_malformed",
    ),
    "no such conjunction": (
        AddEntry("0", RegionEntry(home(10), 1, msgspec.msgpack.encode(StoredEntry(1, 3, "a = 1")))),
        LOW,
        "entry_malformed",
    ),
    "an entry that does not meet the region": (
        AddEntry("0", RegionEntry(home(10), 1, msgspec.msgpack.encode(StoredEntry(1, 0, "a = 14")))),
        LOW,
        "entry_malformed",
    ),
    "no event": (MatchRequest("0", NOBODY, 1, EVENT, 0, b"what"), LOW, "event_malformed"),
    "a command to the root": (OpenHalf("", 1), ROOT, "region_malformed"),
    "entries for the root": (Preload("", 1, (ITEM,)), ROOT, "region_malformed"),
    "a command of no turn": (CloseHalf("0", 0, ""), LOW, "region_malformed"),
    "a command of a turn before all": (DissolveHalf("0", -1), LOW, "region_malformed"),
    "a command of a turn that never comes": (DissolveHalf("0", 1 << 62), LOW, "region_malformed"),
    "an answer as an errand": (CommandReply(True, 1), LOW, "errand_malformed"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_counted_and_changes_nothing(what: str) -> None:
    scene = is_informed()
    world = scene.world
    message, code, counted = WRONG[what]
    before = world.observed.get(counted, 0)
    records = {number: dict(disk) for number, disk in world.disks.items()}
    send(world, message, code)
    assert world.observed.get(counted, 0) == before + 1
    world.run(1)
    assert {number: dict(disk) for number, disk in world.disks.items()} == records
    scene.judge()


def test_bytes_that_are_no_message_are_counted() -> None:
    scene = is_informed()
    for body in (b"", b"\xc1", CODEC.encode(LoadQuery("0"))[:-1], msgspec.msgpack.encode(["d.plant", 7])):
        send(scene.world, body)
    assert scene.world.observed["errand_malformed"] == 4
    scene.judge()


def test_of_entries_that_are_sown_those_that_are_none_are_left_out() -> None:
    world = DmmWorld()
    world.run(2)
    bad = (RegionEntry(home(10), -1, BODY), RegionEntry(home(10), 1, b"what"), RegionEntry(home(10), 1 << 63, b""))
    send(world, Preload("0", 1, (ITEM, *bad)), LOW)
    world.run(1)
    assert world.observed["entry_malformed"] == 3
    region = world.scheme(world.holder(LOW))._store.region(home(20), LOW)
    assert list(region.items) == [region_entry_name(home(10), 1, LOW)]
    assert region.record == RegionRecord(RegionState.EMBRYO, 0, 1)
    assert world.leaves() == [ROOT], "it serves nobody"


@pytest.mark.parametrize(
    "answer", [CommandReply(True, 1), ReviewHalvesAck(), LoadReply(None, NOBODY.id, 0), EntryReply(Verdict.BUSY)]
)
def test_a_walk_that_gets_another_answer_goes_on_after_a_pause(answer: Message) -> None:
    """Whoever answers an errand may say anything: here once, in place of the holder."""
    world = DmmWorld()
    world.run(2)
    world.subscribed(10, "s", "a = 1")
    asked: list[Any] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, KeyedRequest) and not asked and isinstance(CODEC.decode(message.body), MatchRequest):
            asked.append(message)
            return ()
        return None

    world.weather = weather
    world.publish(64, "e", a=1)
    world.run(0.1)
    errand = asked[0]
    arc = world.arcs()[home(40)][0]
    world.say(64, KeyedReply(errand.number, errand.key, errand.end, 1, home(40), arc, CODEC.encode(answer)))
    world.run(0.05)
    assert not world.came()
    world.run(5)
    assert world.came() == [("s", "e")]


@pytest.mark.parametrize(
    "answer", [MatchReply(Verdict.SERVED), CloseReply(None, True, 0), CloseReply((), True, 1), ReviewHalvesAck()]
)
def test_a_child_that_answers_something_else_ends_no_split_wrongly(answer: Message) -> None:
    """What is no answer to a command is a refusal: the split is given up, and tried again."""
    scene = Scene()
    world = scene.world
    asked: list[KeyedRequest] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, KeyedRequest) and not asked and isinstance(CODEC.decode(message.body), Preload):
            asked.append(message)
            return ()
        return None

    world.weather = weather
    scene.split_to(lambda: bool(asked))
    (errand,) = asked
    child = home(scene.children[0])
    arc = world.arcs()[child][0]
    world.say(scene.parent, KeyedReply(errand.number, errand.key, errand.end, 1, child, arc, CODEC.encode(answer)))
    assert scene.is_at(RegionState.LEAF, is_informed=False)
    world.run(30)
    scene.judge()


def test_a_word_of_no_attempt_is_no_matter() -> None:
    scene = is_informed()
    for number in scene.world.others():
        scene.world.say(number, MatchPending(7, (home(10),)))
    scene.judge()


def test_records_of_a_peer_that_are_none_are_left_out_when_an_arc_is_handed_over() -> None:
    world = DmmWorld()
    world.run(2)
    scheme = world.scheme(40)
    key = bytes(scheme._regions.key(ROOT))
    good = region_entry_name(home(10), 1, ROOT)
    node = world.nodes[40]
    effects = node._runtime.begin(world.local(40))
    for name, entry in (
        (good, Entry(key, key, BODY)),
        (region_entry_name(home(10), 2, ROOT), Entry(key, key, b"what")),
        (region_entry_name(home(10), 3, LOW), Entry(key, key, BODY)),
        ("what", Entry(key, key, BODY)),
        (region_name(Code("0101010")), Entry(key, key, b"")),
        (region_name(ROOT), Entry(key, key, b"what")),
    ):
        scheme._store.added(home(40), name, entry)
    world._apply(40, node, effects)
    assert world.observed["entry_malformed"] == 5
    assert [region.code for _, region in scheme._store.regions()] == [ROOT]
    assert list(scheme._store.region(home(40), ROOT).items) == [good]
    scheme._store.removed(home(40), "what")
    scheme._store.removed(home(40), region_name(Code("nothing")))


def test_names_and_bodies_are_read_strictly() -> None:
    space = DmmWorld().scheme(20)._space
    name = region_entry_name(HomeId(b"\x01\x02"), 7, Code("01"))
    assert read_name(name, space) == (b"\x01\x02", 7, "01")
    for wrong in ("", "0102/7", "0102/07/01", "0102/7/2", "0102/-7/01", "01 02/7/01", "XY/7/01", "0102/7/01/"):
        assert read_name(wrong, space) is None
    assert read_record(msgspec.msgpack.encode(RegionRecord(RegionState.LEAF))) == RegionRecord(RegionState.LEAF)
    assert read_record(b"\x91\xa3odd") is None
    read = read_body(BODY, space)
    assert read is not None
    assert read.filed == StoredEntry(1, 0, "a = 1")
    for number in (-1, 1 << 48):
        assert read_body(msgspec.msgpack.encode(StoredEntry(number, 0, "a = 1")), space) is None
