"""What a stranger sends that makes no sense is dropped and counted, and nothing else comes of it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.language import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.language.timestamps import parse_timestamp
from meetpoint.placement.entries.entry_table import StoredEntry
from meetpoint.placement.key_range import KeyRange
from meetpoint.placement.messages import Entry, KeyedRequest, Put
from meetpoint.schemes.rebeca.graph import RANGES_MAX, Range, fingers, merged
from meetpoint.schemes.rebeca.messages import (
    FilterAck,
    FilterQuery,
    FilterUpdate,
    ForwardAround,
    ForwardAroundReply,
    ForwardEvent,
    LocateNode,
    MatchRange,
    MemberRef,
    NeighbourList,
    NeighbourQuery,
    NodeJoined,
    NodeLocated,
    NoSuchMember,
    PackedContact,
    PackedRange,
)
from tests.placement.small_world import CODEC, RING, home
from tests.schemes.rebeca.small_world import RebecaWorld

NOBODY = Peer(RING.node(1), "nowhere", 1)
EVENT = EventKey(home(4), 1, 1)
CONTENT = to_msgpack(Event("x", "p", 1, parse_timestamp("2026-01-01T00:00:00Z"), {"a": 1}))
HERE, THERE = MemberRef(home(8), home(8)), MemberRef(home(4), home(4), 7)
WHOLE = PackedRange.of(RING, Range(0, RING.size))
WANT = FilterQuery(HERE, THERE, WHOLE, 1, -1, home(60))
TOLD = FilterUpdate(HERE, THERE, 1, WHOLE, ("a = 1",), 1, 1, True)
HAND = ForwardEvent(1, HERE, WHOLE, EVENT, 0, 0, 1_000_000, CONTENT)
CARD = PackedContact(home(50), home(50), home(45), NOBODY)
LOCATE = LocateNode(HERE, WHOLE, home(20), NOBODY, 0)
JOIN = NodeJoined(1, HERE, WHOLE, (WHOLE,), CARD, 0, 1_000_000)
SERVE = MatchRange(WHOLE, EVENT, 0, 0, CONTENT)
LONG = HomeId(b"too long")
Struct = TypeVar("Struct", bound=msgspec.Struct)


def but(message: Struct, **other: Any) -> Struct:
    return msgspec.structs.replace(message, **other)


def entry(text: str = "a = 1", at: int = 0, number: int = 1, key: int = 8) -> Entry:
    return Entry(home(key), home(key), msgspec.msgpack.encode(StoredEntry(number, at, text)))


WRONG: dict[str, tuple[Message, str]] = {
    "a question to no home": (but(WANT, to=MemberRef(LONG, home(8))), "filter_malformed"),
    "a question of no place": (but(WANT, source=MemberRef(home(4), b"")), "filter_malformed"),
    "a question for no range": (but(WANT, range=PackedRange(b"", b"")), "filter_malformed"),
    "a question for more than all": (but(WANT, range=PackedRange(home(8), b"\xff" * 3)), "filter_malformed"),
    "a question before all time": (but(WANT, at=-1), "filter_malformed"),
    "a filter for no range": (but(TOLD, range=PackedRange(home(8), b"\xff" * 9)), "filter_malformed"),
    "a filter with a number below 0": (but(TOLD, number=-1), "filter_malformed"),
    "a filter good for less than nothing": (but(TOLD, good_us=-1), "filter_malformed"),
    "a word to no home": (FilterAck(MemberRef(LONG, home(8)), THERE, 1), "filter_malformed"),
    "arcs that are none": (NoSuchMember(HERE, THERE, (KeyRange(b"", LONG),)), "filter_malformed"),
    "a question of one without keys": (but(WANT, begin=b""), "filter_malformed"),
    "neighbours that are none": (NeighbourList(HERE, THERE, (but(CARD, place=LONG),)), "filter_malformed"),
    "a search for no key": (but(LOCATE, key=LONG), "notice_malformed"),
    "a search in no range": (but(LOCATE, range=PackedRange(b"", b"")), "notice_malformed"),
    "a search by nobody": (but(LOCATE, to=MemberRef(home(8), b"")), "notice_malformed"),
    "a search from beyond": (but(LOCATE, hops=-1), "notice_malformed"),
    "another search for no key": (NeighbourQuery(b""), "notice_malformed"),
    "a place that is none": (NodeLocated(home(20), (but(CARD, begin=b""),)), "notice_malformed"),
    "a place of no key": (NodeLocated(b"", (CARD,)), "notice_malformed"),
    "a home that is none has joined": (but(JOIN, card=but(CARD, home=LONG)), "notice_malformed"),
    "one has joined no range": (but(JOIN, range=PackedRange(b"", b"")), "notice_malformed"),
    "one has joined for no targets": (but(JOIN, targets=(PackedRange(LONG, b""),)), "notice_malformed"),
    "one has joined for too many": (but(JOIN, targets=(WHOLE,) * (RANGES_MAX + 1)), "notice_malformed"),
    "one has joined from beyond": (but(JOIN, hops=-1), "notice_malformed"),
    "a part for no home": (but(HAND, to=MemberRef(LONG, home(8))), "event_malformed"),
    "a part for no range": (but(HAND, range=PackedRange(b"", b"")), "event_malformed"),
    "fewer messages than none": (but(HAND, hops=-1), "event_malformed"),
    "no event": (but(HAND, content=b"what"), "event_malformed"),
    "settled below 0": (but(HAND, settled=-1), "event_malformed"),
}
WRONG_ERRANDS: dict[str, tuple[Message, str]] = {
    "no range to serve": (but(SERVE, range=PackedRange(LONG, b"")), "event_malformed"),
    "no event to serve": (but(SERVE, content=b"what"), "event_malformed"),
    "no event to carry": (ForwardAround(EVENT, 0, 1, b"what"), "event_malformed"),
    "an answer as an errand": (ForwardAroundReply((), (), 0), "errand_malformed"),
    "no entry": (Put(home(8), 1, Entry(home(8), home(8), b"what")), "entry_malformed"),
    "no filter": (Put(home(8), 1, entry("a =")), "entry_malformed"),
    "no such conjunction": (Put(home(8), 1, entry(at=3)), "entry_malformed"),
    "a number below 0": (Put(home(8), 1, entry(number=-1)), "entry_malformed"),
    "an entry of another home": (Put(home(4), 1, entry()), "entry_malformed"),
}


@pytest.fixture(scope="module")
def world() -> RebecaWorld:
    made = RebecaWorld()
    made.run(2)
    return made


def said(world: RebecaWorld, message: Message, counted: str) -> None:
    before = world.observed.get(counted, 0)
    records = {number: dict(disk) for number, disk in world.disks.items()}
    edges = {member.edges.place: member.edges.told(world.now) for _, member in world.parts_of_graph()}
    world.handed.clear()
    world.say(8, message)
    assert world.observed.get(counted, 0) > before
    assert not world.handed
    assert {number: dict(disk) for number, disk in world.disks.items()} == records
    assert {member.edges.place: member.edges.told(world.now) for _, member in world.parts_of_graph()} == edges


@pytest.mark.parametrize("what", WRONG)
def test_what_makes_no_sense_is_counted_and_changes_nothing(world: RebecaWorld, what: str) -> None:
    said(world, *WRONG[what])


@pytest.mark.parametrize("what", WRONG_ERRANDS)
def test_errands_that_make_no_sense_are_counted(world: RebecaWorld, what: str) -> None:
    message, counted = WRONG_ERRANDS[what]
    said(world, KeyedRequest(home(8), home(8), NOBODY, 1, 0, CODEC.encode(message)), counted)


def test_what_was_told_to_another_life_and_rows_that_cannot_be_read_do_no_harm(world: RebecaWorld) -> None:
    rows = world.filters_now()
    world.say(8, TOLD)
    assert world.filters_now() == rows
    life = next(member.life for _, member in world.parts_of_graph() if member.edges.place == 8000)
    for text in ("a =", "", "x" * 100_000):
        world.say(8, but(TOLD, to=MemberRef(home(8), home(8), life), rows=(text,), at=world.now))
    world.run(2)
    world.subscribed(41, "s", "a = 1")
    world.publish(8, "e", a=1)
    world.run(1)
    assert ("s", "e") in world.came()


def test_what_a_stranger_says_of_others_costs_messages_and_no_match() -> None:
    """Members that are not there, keys that are not theirs, a join of everybody: the graph comes right again."""
    world = RebecaWorld()
    world.run(2)
    world.subscribed(41, "s", "a = 1")
    cards = tuple(PackedContact(home(number), home(number), home(4), NOBODY) for number in (9, 21, 33, 50))
    for number in world.nodes:
        here = MemberRef(home(number), home(number))
        member = next(member for each, member in world.parts_of_graph() if each == number)
        first = member.first
        assert first is not None
        for card in cards:
            world.say(number, but(JOIN, to=here, card=card))
            world.say(number, but(WANT, to=here, source=MemberRef(card.home, card.place), begin=card.begin))
        teller = MemberRef(member.homes[first], bytes(RING.key(first)))
        world.say(number, NeighbourList(but(here, life=member.life), teller, cards))
        world.say(number, NodeLocated(home(20), cards))
    for number in (4, 28):
        world.publish(number, f"e{number}", a=1)
    world.run(8)
    assert sorted(world.came()) == [("s", "e28"), ("s", "e4")]
    world.run(40)
    places = sorted(member.edges.place for _, member in world.parts_of_graph())
    for _, member in world.parts_of_graph():
        assert list(member.edges.graph.nodes) == fingers(member.edges.place, places, RING.size)


@pytest.mark.parametrize("within_us", [-1, 0, 1 << 60])
def test_a_part_of_a_stranger_is_over_in_time(world: RebecaWorld, within_us: int) -> None:
    world.say(8, but(HAND, within_us=within_us))
    world.run(5)
    assert all(world.scheme(number)._forwarding._working == 0 for number in world.nodes)


def test_many_ranges_that_are_left_are_named_as_one() -> None:
    many = [Range(10 * at, 3) for at in range(RANGES_MAX + 1)]
    assert merged(many, 1 << 16) == [Range(0, 10 * RANGES_MAX + 3)]
    assert merged([*many[:3], Range(3, 7), Range(65530, 6)], 1 << 16) == [Range(20, 3), Range(65530, 19)]
    assert merged([Range(5, 1 << 16)], 1 << 16) == [Range(0, 1 << 16)]
    assert merged([Range(5, 0)], 1 << 16) == []
