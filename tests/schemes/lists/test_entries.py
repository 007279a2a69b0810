"""What is placed for a conjunction, what travels, what a list node holds, and what an event asks."""

from __future__ import annotations

import random

import msgspec
import pytest

from meetpoint.errors import LimitError
from meetpoint.language import Attribute, Schema, Type, clean_attributes, parse_filter
from meetpoint.language.filters.constraints import ABSENT
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import (
    AttributeLists,
    AttributeOrder,
    Group,
    coordinated,
    distributed_step,
    groups_of,
    hybrid_step,
    texts_of,
)
from meetpoint.schemes.lists.entries import EVERY_EVENT, ListEntry, ListSort, entries_of, next_point, pack, unpack
from meetpoint.schemes.lists.subids import BITS, AttributeBits, SubId, count
from meetpoint.schemes.lists.value_hash import PART_MAX, Hashing
from tests.schemes.lists.model import HOME
from tests.workloads import random_filter

SCHEMA = Schema(
    (
        Attribute("s", Type.STRING),
        Attribute("n", Type.INTEGER, minimum=0, maximum=9),
        Attribute("b", Type.BOOLEAN),
        Attribute("o.x", Type.INTEGER),
    )
)
HASHING = Hashing(Ring(), SCHEMA)
LONG = "x" * 100


def entries(text: str, hashing: Hashing = HASHING) -> tuple[ListEntry, ...]:
    (conjunction,) = parse_filter(text).conjunctions
    return entries_of(hashing, conjunction, HOME, 7)


def groups(event: dict[str, object], hashing: Hashing = HASHING) -> list[Group]:
    return groups_of(hashing, hashing.bits.flatten(clean_attributes(event)), AttributeOrder(hashing.schema))


# -- where constraints lie ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("s = 'OTE'", ["OTE"]),
        ("s = ''", [""]),
        ("s LIKE ''", [""]),
        ("s IN ('a', 'b', '')", ["", "a", "b"]),
        ("s LIKE 'OT%'", ["OT"]),
        ("startswith(s, 'OT')", ["OT"]),
        ("s LIKE '%SE'", ["SE"]),
        ("s LIKE 'N%E'", ["N"]),
        ("s LIKE 'N%SE'", ["SE"]),
        ("s LIKE 'NY%SE'", ["NY"]),
        ("s LIKE 'NY%S%SEE'", ["SEE"]),
        ("s LIKE 'NY_E'", ["NY"]),
        ("s LIKE '_YSE'", ["YSE"]),
        ("s LIKE 'O%' AND s LIKE 'OT%' AND s != 'OTE'", ["OT"]),
        ("s LIKE 'O%' AND s NOT LIKE '%E'", ["O"]),
        (f"s = '{LONG}'", [LONG]),
        (f"s LIKE '{LONG}%'", ["x" * PART_MAX]),
        (f"s LIKE '%y{LONG}'", ["x" * PART_MAX]),
    ],
)
def test_strings_with_a_text_to_ask_for_lie_at_their_texts(text: str, parts: list[str]) -> None:
    placed = entries(text)
    assert [(e.low, e.high) for e in placed] == [(HASHING.text("s", part),) * 2 for part in parts]
    assert {e.sort for e in placed} == {ListSort.VALUE}


@pytest.mark.parametrize(
    "text",
    [
        "s != 'x'",
        "s NOT IN ('x', 'y')",
        "s > 'x'",
        "s BETWEEN 'OTA' AND 'OTZ'",
        "s LIKE '%'",
        "startswith(s, '')",
        "s LIKE '%YS%'",
        "contains(s, 'YS')",
        "s NOT LIKE 'OT%'",
        "s LIKE '_'",
        "s LIKE '_%_'",
        "s IS NOT NULL",
        f"s IN ({', '.join(repr(str(n)) for n in range(300))})",
    ],
)
def test_other_strings_lie_at_the_any_key(text: str) -> None:
    (entry,) = entries(text)
    assert (entry.low, entry.high, entry.sort) == (HASHING.any("s"), HASHING.any("s"), ListSort.ANY)


def test_what_is_there_lies_everywhere_unless_it_is_declared_a_string() -> None:
    """Events ask for it wherever they ask for a number; the attribute may be of any kind where nobody declared it."""
    for name in ("n", "b", "undeclared", "o"):
        (entry,) = entries(f"{name} IS NOT NULL")
        assert (entry.low, entry.high, entry.sort) == (HASHING.ring.key(0), HASHING.ring.key(-1), ListSort.ANY)


def test_booleans_lie_at_their_values() -> None:
    true, false = HASHING.truth("b", True), HASHING.truth("b", False)
    assert [e.low for e in entries("b")] == [true]
    assert [e.low for e in entries("NOT b")] == [false]
    assert [e.low for e in entries("b IN (TRUE, FALSE)")] == [false, true]


def test_is_null_goes_along_and_alone_lies_at_the_always_key() -> None:
    (entry,) = entries("s = 'x' AND n IS NULL AND more IS NULL")
    assert (entry.attribute, count(entry.sub_id.attributes), entry.absent) == ("s", 1, ("more", "n"))
    for text, absent in (("n IS NULL", 0b10), ("TRUE", 0), ("more IS NULL", ("more",))):
        (entry,) = entries(text)
        assert (entry.low, entry.high, entry.attribute) == (HASHING.always, HASHING.always, EVERY_EVENT)
        assert (entry.sub_id, entry.absent) == (SubId(HOME, 7, 0), absent)


def test_a_name_is_brought_to_its_one_spelling() -> None:
    conjunction = Conjunction((("größe", ABSENT), *parse_filter("o.x = 1").conjunctions[0].constraints))
    (entry,) = entries_of(HASHING, conjunction, HOME, 7)
    assert entry.absent == ("`größe`",)


def test_the_next_point_of_an_entry_is_the_next_key_or_the_next_value_of_a_number() -> None:
    (entry,) = entries("undeclared IS NOT NULL")
    ring = HASHING.ring
    assert next_point(HASHING, entry, entry.low) == ring.key(1)
    assert next_point(HASHING, entry, entry.high) is None
    (entry,) = entries("s = 'x'")
    assert next_point(HASHING, entry, entry.low) is None
    ordered = Hashing(Ring(), SCHEMA, order_preserving=True)
    (entry,) = entries("n > 3", ordered)
    assert (next_point(ordered, entry, entry.low),) == ordered.line("n", Type.INTEGER.kind).keys(5), (
        "of a number, the next value's"
    )


# -- SubIDs ------------------------------------------------------------------------------------------------------------


def test_what_a_subid_declares_is_bits_where_the_schema_knows_all_else_names() -> None:
    assert entries("s = 'x' AND o.x = 1")[0].sub_id.attributes == 0b1001
    assert entries("s = 'x' AND more = 1")[0].sub_id.attributes == ("more", "s")
    assert entries("s = 'x' AND o.x = 1", Hashing(Ring()))[0].sub_id.attributes == ("o.x", "s")


def test_a_schema_of_more_attributes_than_an_integer_has_bits() -> None:
    schema = Schema(tuple(Attribute(f"a{n:02}", Type.STRING) for n in range(BITS + 1)))
    bits = AttributeBits(schema)
    last, beyond = f"a{BITS - 1:02}", f"a{BITS:02}"
    assert bits.declare([last]) == 1 << BITS - 1
    assert bits.declare([last, beyond]) == (last, beyond)
    assert bits.gather([last, beyond]).has_all((last, beyond))
    assert not bits.gather([last]).has_all((last, beyond))
    assert not bits.gather([beyond]).has_all(1 << BITS - 1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(SubId(HOME, 1, 1 << BITS - 1)), type=SubId) == SubId(
        HOME, 1, 1 << BITS - 1
    )


@pytest.mark.parametrize("declared", [0b110, ("b", "n")])
def test_sets_of_attributes_compare_with_bits_and_names_alike(declared: int | tuple[str, ...]) -> None:
    gather = HASHING.bits.gather
    assert count(declared) == 2
    assert gather(["s", "n", "b"]).has_all(declared)
    assert not gather(["s", "n"]).has_all(declared)
    assert (gather(["n"]) | gather(["b"])).has_all(declared)
    assert gather(["s", "other"]).has_none(declared)
    assert not gather(["n"]).has_none(declared)
    assert gather([]).has_all(HASHING.bits.declare([]))
    for names in ([], ["s", "b"], ["n", "b", "s"], ["n", "other", "b"]):
        there = HASHING.bits.spread(HASHING.bits.declare(names))
        assert (there.names, there.bits) == (gather(names).names, gather(names).bits)


# -- as bytes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered", [False, True])
def test_entries_travel_as_bytes_and_arrive_the_same(ordered: bool) -> None:
    rng = random.Random(4)
    hashings = [Hashing(Ring(), schema, order_preserving=ordered) for schema in (None, SCHEMA)]
    made = 0
    while made < 1000:
        try:
            filter_ = parse_filter(random_filter(rng, 2))
        except LimitError:
            continue
        for place, conjunction in enumerate(filter_.conjunctions):
            for hashing in hashings:
                for entry in entries_of(hashing, conjunction, HOME, place):
                    assert unpack(entry.low, entry.high, pack(entry)) == entry
                    made += 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode([[b"h", 1, 0], "n >", 0, 0]),
        msgspec.msgpack.encode([[b"h", 1, 0], "FALSE", 0, 0]),
        msgspec.msgpack.encode([[b"h", 1, 0], "n = 1 AND s = 'x'", 0, 0]),
        msgspec.msgpack.encode([[b"h", 1, 0], "n = 1", 2, 0]),
        b"\x94\x93\xc4\x01h\x01\x00\xa1\xff\x00\x00",
    ],
)
def test_bytes_that_are_no_entry_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="no entry of a list: "):
        unpack(HASHING.always, HASHING.always, body)


# -- what a list node holds --------------------------------------------------------------------------------------------


def test_lists_hold_an_entry_once_and_forget_it_whole() -> None:
    lists = AttributeLists()
    placed = [*entries("s = 'x' AND n > 3"), *entries("undeclared > 1"), *entries("TRUE")]
    for entry in [*placed, *placed]:
        lists.add(entry)
    assert len(lists) == len(placed)
    for entry in placed[::2]:
        lists.discard(entry)
        lists.discard(entry)
    assert len(lists) == len(placed[1::2])
    for entry in placed:
        lists.discard(entry)
    assert len(lists) == 0
    assert lists._lists == {}


def test_a_list_node_answers_for_the_value_the_attributes_and_what_must_be_missing() -> None:
    lists = AttributeLists()
    filters = ["s LIKE 'O%'", "s LIKE 'O%E'", "s LIKE 'O%A'", "s LIKE 'O%' AND n = 1", "s LIKE 'O%' AND b IS NULL"]
    for number, text in enumerate(filters):
        (conjunction,) = parse_filter(text).conjunctions
        for entry in entries_of(HASHING, conjunction, HOME, number):
            lists.add(entry)

    def answers(event: dict[str, object]) -> list[int]:
        flat = HASHING.bits.flatten(event)
        (lookup,) = [
            lookup
            for group in groups_of(HASHING, flat, AttributeOrder())
            for lookup in group.lookups
            if lookup.key == HASHING.text("s", "O")
        ]
        return [sub_id.number for sub_id in lists.answer(lookup, flat)]

    assert sorted(answers({"s": "OTE"})) == [0, 1, 4]
    assert sorted(answers({"s": "OTE", "n": 5})) == [0, 1, 3, 4], "the list of n says that 5 is not 1"
    assert sorted(answers({"s": "OTA", "b": True})) == [0, 2]


# -- what an event asks ------------------------------------------------------------------------------------------------


def test_an_event_asks_for_each_attribute_and_always() -> None:
    made = groups({"s": "OT", "n": 4, "b": False, "o": {"x": 3, "y": None}, "missing": None})
    asked = {group.attribute: group.lookups for group in made}
    assert [*asked] == ["o", "o.x", "s", "n", "b", EVERY_EVENT]
    assert [(lookup.key, *lookup.sorts) for lookup in asked["s"]] == [
        (HASHING.text("s", "OT"), ListSort.VALUE),
        (HASHING.text("s", "O"), ListSort.VALUE),
        (HASHING.text("s", "T"), ListSort.VALUE),
        (HASHING.any("s"), ListSort.ANY),
    ]
    assert [lookup.sorts for lookup in asked["n"]] == [(ListSort.VALUE, ListSort.ANY)]
    assert [lookup.sorts for lookup in asked["b"]] == [(ListSort.VALUE, ListSort.ANY)]
    assert [(lookup.key, *lookup.sorts) for lookup in asked["o"]] == [(HASHING.always, ListSort.ANY)]
    assert [(lookup.key, *lookup.sorts) for lookup in asked[EVERY_EVENT]] == [(HASHING.always, ListSort.ANY)]
    assert groups({}) == [made[-1]]


def test_a_number_off_its_grid_asks_for_what_is_there_once() -> None:
    made = groups({"n": 4.5})
    assert [lookup.sorts for lookup in made[0].lookups] == [(ListSort.VALUE, ListSort.ANY), (ListSort.VALUE,)]


def test_a_long_string_asks_for_itself_and_for_parts_up_to_a_limit() -> None:
    text = "".join(map(chr, range(200, 400)))
    texts = texts_of(text)
    assert len(texts) == 1 + 2 * PART_MAX
    assert texts[0] == text
    assert max(map(len, texts[1:])) == PART_MAX
    exactly = text[:PART_MAX]
    assert len(texts_of(exactly)) == 2 * PART_MAX - 1


# -- matching ----------------------------------------------------------------------------------------------------------


def test_coordinated_takes_a_subid_that_each_declared_attribute_found() -> None:
    one, both, none = SubId(HOME, 1, 0b1), SubId(HOME, 2, ("n", "s")), SubId(HOME, 3, 0)
    assert coordinated({"s": [one, both, one], "n": [], "": [none]}) == [one, none]
    assert coordinated({"s": [both], "n": [both]}) == [both]
    assert coordinated({}) == []


def test_distributed_drops_what_was_not_found_before_and_what_is_not_found_here() -> None:
    gather = HASHING.bits.gather
    s_only, s_n, n_only, n_b = (SubId(HOME, number, bits) for number, bits in enumerate((0b1, 0b11, 0b10, 0b110)))
    first = distributed_step([], [s_only, s_n], gather(["s"]), gather([]))
    assert first == [s_only, s_n]
    second = distributed_step(first, [s_n, n_only, n_b], gather(["n"]), gather(["s"]))
    assert second == [s_only, s_n, n_only, n_b]
    assert distributed_step(first, [n_only], gather(["n"]), gather(["s"])) == [s_only, n_only], "s_n is not found here"
    assert distributed_step([s_only], [s_n], gather(["n"]), gather(["s"])) == [s_only], "s_n was not found before"
    assert distributed_step(second, [], gather(["b"]), gather(["s", "n"])) == [s_only, s_n, n_only]


def test_hybrid_tells_the_origin_what_is_checked_and_passes_on_the_rest() -> None:
    gather = HASHING.bits.gather
    s_only, s_n, always = SubId(HOME, 1, 0b1), SubId(HOME, 2, 0b11), SubId(HOME, 3, 0)
    assert hybrid_step([], [s_only, s_n], gather(["s"]), gather([])) == ([s_only], [s_n])
    assert hybrid_step([s_n], [s_n], gather(["n"]), gather(["s"])) == ([s_n], [])
    assert hybrid_step([], [always], gather([EVERY_EVENT]), gather(["s", "n"])) == ([always], [])
