"""What lies at a home, by key: few conjunctions or many, an event finds those that it satisfies, and no others."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from meetpoint.api.ids import HomeId, Peer
from meetpoint.language import clean_attributes, parse_filter
from meetpoint.language.filters.normal_form import CONJUNCTIONS_MAX
from meetpoint.matching.keys.key_plan import KeyPlan, LiveKeys
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.messages import Entry
from meetpoint.schemes.meet.entries import crowded_mark, entries_of, read_key_entry
from meetpoint.schemes.meet.entry_tables import KeyLeases, KeyTable, KeyTables
from tests.workloads import random_events, random_filter

RING = Ring()
HOMES = [HomeId(bytes(RING.node(number))) for number in range(5)]
HERE = HOMES[0]


def services_of() -> Runtime:
    services = Runtime(Peer(RING.node(1), "n1", 1), RING, None, 1)  # type: ignore[arg-type]
    services.begin(Instant(0))
    return services


def a_shelf() -> KeyTable:
    live = LiveKeys()
    return KeyTable(live, KeyLeases(HERE, services_of(), None, None, 1, live, unknown_us=0))  # type: ignore[arg-type]


@pytest.mark.parametrize(("few", "asked"), [(10_000, 64), (20, 64), (20, 0)], ids=["few", "some of many", "many"])
def test_an_event_finds_what_it_satisfies_as_entries_come_and_go(
    few: int, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("meetpoint.placement.entries.entry_table.FEW_MAX", few)
    monkeypatch.setattr("meetpoint.placement.entries.entry_table.ASKED_MAX", asked)
    random, shelf, found = Random(5), a_shelf(), 0
    filters = [parse_filter(random_filter(random)) for _ in range(120)]
    names: dict[int, list[str]] = {}
    for turn, event in enumerate(random_events(random, 60)):
        for number in range(2 * turn, 2 * turn + 2):
            for at in range(len(filters[number].conjunctions)):
                for entry in entries_of(RING, KeyPlan(), number, filters[number], at):
                    filed = read_key_entry(entry.body)
                    assert filed is not None
                    name = entry_name(HOMES[number % 5], len(names) * 1_000 + len(names.setdefault(number, [])))
                    names[number].append(name)
                    shelf.put(name, HOMES[number % 5], filed)
        if turn % 3 == 0:
            for name in names.pop(random.choice(sorted(names))):
                shelf.take(name)
        clean = clean_attributes(event)
        matched, marks = shelf.find(clean)
        assert marks == []
        assert matched == {
            home: tuple(sorted(subids))
            for home in sorted(HOMES)
            if (
                subids := [
                    number * CONJUNCTIONS_MAX + at
                    for number in names
                    if HOMES[number % 5] == home
                    for at, conjunction in enumerate(filters[number].conjunctions)
                    if conjunction.accepts(clean)
                ]
            )
        }
        found += sum(map(len, matched.values()))
    assert found > 100
    for name in [name for each in names.values() for name in each]:
        shelf.take(name)
    assert not len(shelf)
    assert shelf.leases.summary(0, 0).added == (), "no key is in use any more"


def test_marks_are_found_by_their_keys_and_leave_them_in_use() -> None:
    shelf = a_shelf()
    (entry,) = entries_of(RING, KeyPlan(), 1, parse_filter("a = 'x'"), 0)
    filed = read_key_entry(entry.body)
    assert filed is not None
    name, marked = crowded_mark(RING, filed)
    mark = read_key_entry(marked.body)
    assert mark is not None
    shelf.mark(name, mark)
    shelf.put("one", HOMES[1], filed)
    assert shelf.count(filed.key, ()) == 1
    assert shelf.find({"a": "x"}) == ({HOMES[1]: (CONJUNCTIONS_MAX,)}, [mark])
    assert shelf.find({"a": "y"}) == ({}, [])
    shelf.take("one")
    assert shelf.count(filed.key, ()) == 0
    assert shelf.find({"a": "x"}) == ({}, [mark])
    assert shelf.leases.summary(0, 0).added, "children of the key may have something"
    shelf.take(name)
    assert shelf.find({"a": "x"}) == ({}, [])
    assert not shelf.leases.summary(0, 0).added


@pytest.mark.parametrize("name", ["", "x/1", "crowded/1", "00/1", f"{HERE.hex()}/-1", f"{HERE.hex()}/01"])
def test_a_conjunction_under_a_name_that_is_none_is_counted_and_lies_nowhere(name: str) -> None:
    services = services_of()
    shelves = KeyTables(services, None, 1, 1)  # type: ignore[arg-type]
    shelves.ownership = None  # type: ignore[assignment]
    shelves.began(HERE, 0)
    (entry,) = entries_of(RING, KeyPlan(), 1, parse_filter("a = 'x'"), 0)
    effects = services.begin(Instant(1))
    shelves.added(HERE, name, entry)
    shelves.added(HERE, entry_name(HOMES[1], 1), msgspec.structs.replace(entry, body=b"\xc1"))
    assert [effect.name for effect in effects if hasattr(effect, "name")] == ["entry_malformed"] * (
        1 + (name != "00/1")
    )
    shelves.removed(HERE, name)
    assert isinstance(entry, Entry)
