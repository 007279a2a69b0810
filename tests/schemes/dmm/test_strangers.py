"""What a stranger sends that makes no sense is dropped and counted, and nothing else comes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.placement.entries.stored_entry import StoredEntry
from meetpoint.placement.messages import Done, Entry, KeyedRequest
from meetpoint.schemes.dmm.entries import item_name, read_body, read_kept, read_name, region_name
from meetpoint.schemes.dmm.messages import (
    Close,
    Closed,
    Dissolve,
    Heeded,
    Item,
    Low,
    Match,
    Matched,
    Obeyed,
    Open,
    Plant,
    Planted,
    Reaching,
    Sow,
    Uproot,
    Weigh,
    Weighed,
)
from meetpoint.schemes.dmm.rules import Kept, State
from meetpoint.schemes.dmm.space import ROOT, Code
from meetpoint.schemes.dmm.walk import Verdict
from tests.placement.small_world import CODEC, RING, home
from tests.schemes.dmm.small_world import DmmWorld
from tests.schemes.dmm.test_races import Scene

NOBODY = Peer(RING.node(1), "nowhere", 1)
LOW = Code("0")
BODY = msgspec.msgpack.encode(StoredEntry(1, 0, "a = 1"))
ITEM = Item(home(10), 1, BODY)
EVENT = EventKey(home(10), 1, 1)


def settled() -> Scene:
    """A network whose root has been split."""
    scene = Scene()
    scene.split_to(lambda: scene.is_at(State.INTERIOR, settled=True))
    scene.world.run(5)
    return scene


def send(world: DmmWorld, body: Message | bytes, code: Code = ROOT) -> None:
    """An errand from nowhere to the key of a region."""
    number = world.holder(code)
    key = bytes(world.scheme(number)._regions.key(code))
    packed = body if isinstance(body, bytes) else CODEC.encode(body)
    world.say(number, KeyedRequest(key, key, NOBODY, 1, 0, packed))


WRONG: dict[str, tuple[Message, Code, str]] = {
    "a code of other letters": (Plant("2", ITEM), ROOT, "region_malformed"),
    "a code that is too long": (Plant("0" * 65, ITEM), ROOT, "region_malformed"),
    "a region whose key this is not": (Plant("1", ITEM), LOW, "region_malformed"),
    "a walk to another key": (Match("1", NOBODY, 1, EVENT, 0, b""), LOW, "region_malformed"),
    "a question to another key": (Weigh("1"), LOW, "region_malformed"),
    "a word to another key": (Low("1"), LOW, "region_malformed"),
    "no entry": (Plant("0", Item(home(10), 1, b"what")), LOW, "entry_malformed"),
    "an entry without a body": (Plant("0", Item(home(10), 1, b"")), LOW, "entry_malformed"),
    "a number below 0": (Plant("0", Item(home(10), -1, BODY)), LOW, "entry_malformed"),
    "a number to uproot below 0": (Uproot("0", home(10), -1), LOW, "entry_malformed"),
    "no filter": (
        Plant("0", Item(home(10), 1, msgspec.msgpack.encode(StoredEntry(1, 0, "a =")))), LOW, "entry_malformed",
    ),
    "no such conjunction": (
        Plant("0", Item(home(10), 1, msgspec.msgpack.encode(StoredEntry(1, 3, "a = 1")))), LOW, "entry_malformed",
    ),
    "an entry that does not meet the region": (
        Plant("0", Item(home(10), 1, msgspec.msgpack.encode(StoredEntry(1, 0, "a = 14")))), LOW, "entry_malformed",
    ),
    "no event": (Match("0", NOBODY, 1, EVENT, 0, b"what"), LOW, "event_malformed"),
    "a command to the root": (Open("", 1), ROOT, "region_malformed"),
    "entries for the root": (Sow("", 1, (ITEM,)), ROOT, "region_malformed"),
    "a command of no turn": (Close("0", 0, ""), LOW, "region_malformed"),
    "a command of a turn before all": (Dissolve("0", -1), LOW, "region_malformed"),
    "a command of a turn that never comes": (Dissolve("0", 1 << 62), LOW, "region_malformed"),
    "an answer as an errand": (Obeyed(True, 1), LOW, "errand_malformed"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_counted_and_changes_nothing(what: str) -> None:
    scene = settled()
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
    scene = settled()
    for body in (b"", b"\xc1", CODEC.encode(Weigh("0"))[:-1], msgspec.msgpack.encode(["d.plant", 7])):
        send(scene.world, body)
    assert scene.world.observed["errand_malformed"] == 4
    scene.judge()


def test_of_entries_that_are_sown_those_that_are_none_are_left_out() -> None:
    world = DmmWorld()
    world.run(2)
    bad = (Item(home(10), -1, BODY), Item(home(10), 1, b"what"), Item(home(10), 1 << 63, b""))
    send(world, Sow("0", 1, (ITEM, *bad)), LOW)
    world.run(1)
    assert world.observed["entry_malformed"] == 3
    region = world.scheme(world.holder(LOW))._shelves.region(home(20), LOW)
    assert list(region.items) == [item_name(home(10), 1, LOW)]
    assert region.kept == Kept(State.EMBRYO, 0, 1)
    assert world.leaves() == [ROOT], "it serves nobody"


@pytest.mark.parametrize("answer", [Obeyed(True, 1), Heeded(), Weighed(None, NOBODY.id, 0), Planted(Verdict.BUSY)])
def test_a_walk_that_gets_another_answer_goes_on_after_a_pause(answer: Message) -> None:
    """Whoever answers an errand may say anything: here once, in place of the holder."""
    world = DmmWorld()
    world.run(2)
    world.subscribed(10, "s", "a = 1")
    asked: list[Any] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, KeyedRequest) and not asked and isinstance(CODEC.decode(message.body), Match):
            asked.append(message)
            return ()
        return None

    world.weather = weather
    world.publish(64, "e", a=1)
    world.run(0.1)
    errand = asked[0]
    arc = world.arcs()[home(40)][0]
    world.say(64, Done(errand.number, errand.key, errand.end, 1, home(40), arc, CODEC.encode(answer)))
    world.run(0.05)
    assert not world.came()
    world.run(5)
    assert world.came() == [("s", "e")]


@pytest.mark.parametrize("answer", [Matched(Verdict.SERVED), Closed(None, True, 0), Closed((), True, 1), Heeded()])
def test_a_child_that_answers_something_else_ends_no_split_wrongly(answer: Message) -> None:
    """What is no answer to a command is a refusal: the split is given up, and tried again."""
    scene = Scene()
    world = scene.world
    asked: list[KeyedRequest] = []

    def weather(source: int, to: int, message: Message) -> tuple[int, ...] | None:
        if isinstance(message, KeyedRequest) and not asked and isinstance(CODEC.decode(message.body), Sow):
            asked.append(message)
            return ()
        return None

    world.weather = weather
    scene.split_to(lambda: bool(asked))
    (errand,) = asked
    child = home(scene.children[0])
    arc = world.arcs()[child][0]
    world.say(scene.parent, Done(errand.number, errand.key, errand.end, 1, child, arc, CODEC.encode(answer)))
    assert scene.is_at(State.LEAF, settled=False)
    world.run(30)
    scene.judge()


def test_a_word_of_no_attempt_is_no_matter() -> None:
    scene = settled()
    for number in scene.world.others():
        scene.world.say(number, Reaching(7, (home(10),)))
    scene.judge()


def test_records_of_a_peer_that_are_none_are_left_out_when_an_arc_is_handed_over() -> None:
    world = DmmWorld()
    world.run(2)
    scheme = world.scheme(40)
    key = bytes(scheme._regions.key(ROOT))
    good = item_name(home(10), 1, ROOT)
    node = world.nodes[40]
    effects = node._services.begin(world.local(40))
    for name, entry in (
        (good, Entry(key, key, BODY)),
        (item_name(home(10), 2, ROOT), Entry(key, key, b"what")),
        (item_name(home(10), 3, LOW), Entry(key, key, BODY)),
        ("what", Entry(key, key, BODY)),
        (region_name(Code("0101010")), Entry(key, key, b"")),
        (region_name(ROOT), Entry(key, key, b"what")),
    ):
        scheme._shelves.added(home(40), name, entry)
    world._apply(40, node, effects)
    assert world.observed["entry_malformed"] == 5
    assert [region.code for _, region in scheme._shelves.regions()] == [ROOT]
    assert list(scheme._shelves.region(home(40), ROOT).items) == [good]
    scheme._shelves.removed(home(40), "what")
    scheme._shelves.removed(home(40), region_name(Code("nothing")))


def test_names_and_bodies_are_read_strictly() -> None:
    space = DmmWorld().scheme(20)._space
    name = item_name(HomeId(b"\x01\x02"), 7, Code("01"))
    assert read_name(name, space) == (b"\x01\x02", 7, "01")
    for wrong in ("", "0102/7", "0102/07/01", "0102/7/2", "0102/-7/01", "01 02/7/01", "XY/7/01", "0102/7/01/"):
        assert read_name(wrong, space) is None
    assert read_kept(msgspec.msgpack.encode(Kept(State.LEAF))) == Kept(State.LEAF)
    assert read_kept(b"\x91\xa3odd") is None
    read = read_body(BODY, space)
    assert read is not None
    assert read.filed == StoredEntry(1, 0, "a = 1")
    for number in (-1, 1 << 48):
        assert read_body(msgspec.msgpack.encode(StoredEntry(number, 0, "a = 1")), space) is None
