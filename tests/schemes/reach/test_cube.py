"""Ids on the circle, shelves, and what settings make of them."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from meetpoint.api.ids import HomeId
from meetpoint.errors import SchemaError
from meetpoint.language import Schema, clean_attributes, parse_filter
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX
from meetpoint.node.runtime.ring import BITS_MAX, Ring
from meetpoint.overlays.hypercube import WHOLE, Region
from meetpoint.placement.entries.entry_table import Item, Read, StoredEntry
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.key_range import KeyRange
from meetpoint.schemes.reach import ReachSettings, dimensions_of
from meetpoint.schemes.reach.entries import DutyPart, IdTable, entry_of, read_entry
from meetpoint.schemes.reach.ids import Cube, Duty, SignatureIds, head_point, parts, tree_of
from meetpoint.schemes.reach.scheme import ids_of
from tests.schemes.reach.small_world import PLAIN, SCHEMA
from tests.workloads import random_events, random_filter

RING = Ring(16)


def cube_of(width: int, ring: Ring = RING) -> Cube:
    return Cube(ring, SignatureIds(None, width))


def random_arc(random: Random) -> KeyRange:
    """Any arc; sometimes a short one, sometimes all."""
    low = random.randrange(RING.size)
    length = random.choice((random.randrange(1, RING.size), random.randrange(1, 3000), RING.size))
    return KeyRange(bytes(RING.key(low)), bytes(RING.key(low + length)))


# -- arcs and regions --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3, 6, 8])
def test_the_region_around_an_id_is_the_largest_that_an_arc_has(width: int) -> None:
    random, cube = Random(width), cube_of(width)
    for _ in range(40):
        arc = random_arc(random)
        points = random.sample(range(1 << width), min(1 << width, 40))
        for point in (point for point in points if arc.holds(cube.key(point))):
            region = cube.around(arc, point)
            lengths = [
                length
                for length in range(width + 1)
                if all(
                    arc.holds(cube.key(point & (1 << length) - 1 | above << length))
                    for above in range(1 << width - length)
                )
            ]
            assert region == Region(point & (1 << min(lengths)) - 1, min(lengths))
            assert cube.shortest(arc) <= region.length


def test_an_id_that_fills_a_region_of_the_hypercube_is_found_there() -> None:
    cube = cube_of(6)
    for bits in range(16):
        region = Region(bits, 4)
        first, last = cube.ends(region)
        arc = KeyRange(bytes(RING.add(first, -1)), bytes(last))
        assert cube.shortest(arc) == 4, "as long as it is"
        for above in range(4):
            point = bits | above << 4
            assert cube.around(arc, point) == region
            assert cube.point(cube.key(point)) == point
    assert cube.around(KeyRange(b"\x12\x34", b"\x12\x34"), 5) == WHOLE
    assert cube.shortest(KeyRange(b"\x12\x34", b"\x12\x34")) == 0
    assert cube.shortest(KeyRange(b"\x00\x01", b"\x00\x02")) == 6, "no id at all"


@pytest.mark.parametrize("seed", range(6))
def test_however_the_circle_is_cut_every_subset_is_served_once(seed: int) -> None:
    """Duties over regions of arcs, in whatever order bits are dealt with: as ids see it, nothing is missed or twice."""
    random, cube = Random(seed), cube_of(8)
    cuts = sorted(bytes(RING.key(random.randrange(RING.size))) for _ in range(random.randrange(1, 12)))
    arcs = [KeyRange(cuts[at - 1], high) for at, high in enumerate(cuts)]
    for event in random.sample(range(256), 40):
        served: list[int] = []
        todo = [Duty(0, 0)]
        while todo:
            duty = todo.pop()
            point = head_point(event, duty)
            arc = next(arc for arc in arcs if arc.holds(cube.key(point)))
            region = cube.around(arc, point)
            part = DutyPart(region, duty)
            served += [each for each in range(256) if each & ~event == 0 and part.holds(each)]
            todo += parts(region, event, duty, tree_of(f"{random.random()}", random.randrange(4)))
        assert sorted(served) == [each for each in range(256) if each & ~event == 0]


# -- shelves -----------------------------------------------------------------------------------------------------------


def test_a_shelf_with_many_finds_what_one_with_few_does(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    cube = Cube(RING, SignatureIds(None, 5))
    few, many = IdTable(), IdTable()
    for number in range(300):
        filter_ = parse_filter(random_filter(random))
        for at, conjunction in enumerate(filter_.conjunctions):
            filed, name = StoredEntry(number, at, filter_.text), _name(number, at)
            item = Item(_owner(number), Read(filed, conjunction, cube.of_conjunction(conjunction)))
            assert read_entry(cube, name, entry_of(cube, filed, conjunction)) == item
            few.add(name, item)
            many.add(name, item)
    found = 0
    for turn, event in enumerate(random_events(random, 40)):
        clean = clean_attributes(event)
        id_ = cube.of_event(clean)
        fixed = random.randrange(32) if turn % 2 else 0
        asked = [
            DutyPart(Region(random.randrange(4), 2), Duty(fixed, id_ & fixed)),
            DutyPart(Region(0b11, 2), Duty(0, 0)),
        ]
        monkeypatch.setattr("meetpoint.placement.entries.entry_table.FEW_MAX", 10_000)
        one = _sorted(few.match_parts(clean, id_, asked))
        monkeypatch.setattr("meetpoint.placement.entries.entry_table.FEW_MAX", 2)
        monkeypatch.setattr("meetpoint.placement.entries.entry_table.ASKED_MAX", turn % 3 * 40)
        assert _sorted(many.match_parts(clean, id_, asked)) == one
        assert all(any(part.holds(item.read.place) for part in asked) for item in one)
        found += len(one)
        if turn % 4 == 0:
            for shelf in (few, many):
                shelf.remove(_name(turn, 0))
    assert found > 100
    assert len(few) == len(many)


def _owner(number: int) -> HomeId:
    return HomeId(b"%d" % (number % 7))


def _name(number: int, at: int) -> str:
    return entry_name(_owner(number), number * CONJUNCTIONS_MAX + at)


def _sorted(items: list[Item[int]]) -> list[Item[int]]:
    return sorted(items, key=lambda item: item.read.filed.subid)


def test_a_shelf_knows_what_lies_in_a_region() -> None:
    cube = Cube(RING, ids_of(PLAIN))
    shelf = IdTable()
    conjunction = parse_filter("a = 1 AND c = 1").conjunctions[0]
    item = Item(HomeId(b"h"), Read(StoredEntry(1, 0, "a = 1 AND c = 1"), conjunction, cube.of_conjunction(conjunction)))
    shelf.add("one", item)
    shelf.add("one", item)
    assert len(shelf) == 1
    assert not shelf.is_empty(Region(0b01, 2))
    assert shelf.is_empty(Region(0b11, 2))
    assert list(shelf.within(Region(0b101, 3))) == ["one"]
    assert list(shelf.within(Region(0b111, 3))) == []
    assert shelf.groups == {0b101: {"one": item}}
    assert shelf.remove("one") == item
    assert shelf.remove("one") is None
    assert shelf.is_empty(WHOLE)


# -- settings ----------------------------------------------------------------------------------------------------------


def test_dimensions_follow_from_the_settings() -> None:
    assert dimensions_of(ReachSettings()) == 1, "without attributes there is one place"
    assert dimensions_of(ReachSettings(schema=SCHEMA)) == 6
    assert dimensions_of(ReachSettings(schema=SCHEMA, ids="signatures")) == 16
    assert dimensions_of(ReachSettings(ids="signatures", width=160)) == 160
    many = "attributes:\n" + "".join(f"  a{number}: integer\n" for number in range(200))
    assert dimensions_of(ReachSettings(schema=many)) == BITS_MAX
    with pytest.raises(SchemaError, match="no attributes"):
        dimensions_of(ReachSettings(schema="attributes: {}"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"width": 161}, ReachSettings)


def test_without_attributes_everything_lies_at_one_place() -> None:
    ids = ids_of(ReachSettings())
    assert ids.of_event({"a": 1}) == 0
    assert ids.of_conjunction(parse_filter("a = 1").conjunctions[0]) == 0


def test_ids_longer_than_keys_are_cut_and_stay_sound() -> None:
    """Attributes beyond what a key has room for set no bit, at events and at conjunctions."""
    many = "attributes:\n" + "".join(f"  a{number}: integer\n" for number in range(20))
    cube = Cube(Ring(8), ids_of(ReachSettings(schema=many)))
    assert cube.width == 8
    event = {f"a{number}": 1 for number in range(0, 20, 3)}
    assert cube.of_event(event) == 0b01001001
    conjunction = parse_filter("a3 = 1 AND a9 = 1").conjunctions[0]
    assert cube.of_conjunction(conjunction) == 0b1000


def test_signatures_without_a_schema_know_all_attributes() -> None:
    ids = SignatureIds(None, 64)
    told = SignatureIds(Schema.from_yaml(SCHEMA), 64)
    event = {"a": 1, "b": 2}
    assert ids.of_event(event) == told.of_event(event)
    assert ids.of_event({**event, "other": 1}) & ~told.of_event(event)
    conjunction = parse_filter("other = 1 AND deep.er = 'x'").conjunctions[0]
    needed = ids.of_conjunction(conjunction)
    assert needed
    assert needed & ~ids.of_event({"other": 1, "deep": {"er": "x"}}) == 0
    assert told.of_conjunction(conjunction) == 0
