"""Each known fault of papers A and B: the printed algorithm goes wrong, and the corrected one does not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from meetpoint.lab.printed.papers_ab import (
    Bounds,
    OrderPreservingHash,
    PlainHash,
    Predicate,
    PrintedNetwork,
    Sort,
    predicates_of,
)
from meetpoint.language import Attribute, Schema, Type, parse_filter
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode
from meetpoint.schemes.lists.entries import difference
from meetpoint.schemes.lists.subids import AttributeBits, SubId
from meetpoint.schemes.lists.value_hash import Hashing
from tests.schemes.lists.model import HOME, Model, numbers, spaced

RING = Ring()
DIGITS = Schema((Attribute("a", Type.INTEGER, minimum=0, maximum=20, precision=1), Attribute("b", Type.INTEGER)))
ORIGIN = -1

Event = Mapping[str, int | str]


def sub(number: int, *names: str) -> SubId:
    return SubId(HOME, number, AttributeBits(None).declare(names))


def printed(
    filters: Iterable[str | list[Predicate]], *, one_node: bool = False, values_kept: bool = True, starred: bool = False
) -> PrintedNetwork:
    """A network as printed, each key at a node of its own or all at one, with subscriptions 0, 1, ..."""
    where = (lambda key: 0) if one_node else RING.number
    network = PrintedNetwork(PlainHash(RING), where, values_kept=values_kept, starred=starred)
    for number, filter_ in enumerate(filters):
        if isinstance(filter_, str):
            (conjunction,) = parse_filter(filter_).conjunctions
            filter_ = predicates_of(conjunction, DIGITS)
        network.store(sub(number, *{predicate.attribute for predicate in filter_}), filter_)
    return network


def taken(network: PrintedNetwork, event: Event, mode: CollectionMode = CollectionMode.COORDINATED) -> list[int]:
    """What the printed algorithm takes for matches."""
    return sorted(sub_id.number for sub_id in network.match(event, mode, ORIGIN, AttributeOrder())[0])


def matched(
    filters: Iterable[str], event: Event, mode: CollectionMode = CollectionMode.COORDINATED, nodes: int = 64
) -> list[int]:
    """What the corrected one finds."""
    hashing = Hashing(RING, DIGITS)
    model = Model(hashing, spaced(hashing, nodes))
    for number, filter_ in enumerate(filters):
        model.subscribe(number, parse_filter(filter_))
    return numbers(model.matches(event, mode))


def judged(filters: list[str], event: Event) -> list[int]:
    return [number for number, filter_ in enumerate(filters) if parse_filter(filter_).accepts(event)]


# -- paper A -----------------------------------------------------------------------------------------------------------


def test_A_lists_without_values_take_values_that_share_a_node_for_one_another() -> None:
    filters = ["a = 1", "a = 2"]
    assert taken(printed(filters, one_node=True, values_kept=False), {"a": 1}) == [0, 1], "a false positive"
    assert taken(printed(filters, one_node=True), {"a": 1}) == [0], "paper B, footnote 2"
    assert matched(filters, {"a": 1}, nodes=1) == [0]


def test_A_lists_without_values_lose_a_range_when_one_of_two_values_at_a_node_goes() -> None:
    network = printed(["a BETWEEN 1 AND 3"], one_node=True, values_kept=False)
    network.update_range(sub(0, "a"), "a", Bounds(1, 3), Bounds(1, 2), 1)
    assert taken(network, {"a": 1}) == [], "a false negative: 3 went, and 1 and 2 with it"
    hashing = Hashing(RING, DIGITS)
    model = Model(hashing, spaced(hashing, 1))
    model.subscribe(0, parse_filter("a BETWEEN 1 AND 3"))
    model.update(0, parse_filter("a BETWEEN 1 AND 2"))
    assert [numbers(model.matches({"a": value})) for value in (0, 1, 2, 3)] == [[], [0], [0], []]


def test_A_the_printed_order_preserving_hash_puts_the_largest_value_where_the_smallest_is() -> None:
    hash_ = OrderPreservingHash(RING, DIGITS)
    offsets = [RING.distance(hash_("a", 0), hash_("a", value)) for value in range(21)]
    assert offsets[:20] == sorted(set(offsets[:20]))
    assert offsets[20] == 0, "order is not preserved"
    line = Hashing(RING, DIGITS, order_preserving=True).line("a", Type.INTEGER.kind)
    offsets = [RING.distance(line.keys(0)[0], line.keys(value)[0]) for value in range(21)]
    assert offsets == sorted(set(offsets))


def test_A_a_range_updated_in_the_printed_order_leaves_4_to_9_behind() -> None:
    """[1, 3] becomes [10, 12]: 1 to 9 are deleted, then 4 to 12 stored."""
    network = printed(["a BETWEEN 1 AND 3"])
    network.update_range(sub(0, "a"), "a", Bounds(1, 3), Bounds(10, 12), 1)
    assert [value for value in range(21) if taken(network, {"a": value})] == [*range(4, 13)]
    hashing = Hashing(RING, DIGITS)
    model = Model(hashing, spaced(hashing, 64))
    model.subscribe(0, parse_filter("a BETWEEN 1 AND 3"))
    model.update(0, parse_filter("a BETWEEN 10 AND 12"))
    assert [value for value in range(21) if model.matches({"a": value})] == [10, 11, 12]
    assert sum(map(len, model.lists.values())) == 3


def test_A_other_updates_of_ranges_as_printed_are_right() -> None:
    for old, new in (((5, 9), (3, 7)), ((5, 9), (6, 11)), ((5, 9), (3, 11)), ((5, 9), (6, 8))):
        network = printed([f"a BETWEEN {old[0]} AND {old[1]}"])
        network.update_range(sub(0, "a"), "a", Bounds(*old), Bounds(*new), 1)
        assert [value for value in range(21) if taken(network, {"a": value})] == [*range(new[0], new[1] + 1)]


def test_A_an_update_of_two_attributes_in_flight_delivers_what_matches_neither_version() -> None:
    old, new = "a = 1 AND b = 1", "a = 2 AND b = 2"
    event = {"a": 2, "b": 1}
    assert judged([old, new], event) == []
    network = printed([old])
    network.update(sub(0, "a", "b"), Predicate("a", Sort.EQUALITY, (1,)), Predicate("a", Sort.EQUALITY, (2,)))
    assert taken(network, event) == [0], "b is not updated yet, and nobody checks again"

    hashing = Hashing(RING, DIGITS)
    model = Model(hashing, spaced(hashing, 64))
    model.subscribe(0, parse_filter(old))
    placed, removed = difference(model.entries[0], model.entries_of(0, parse_filter(new)))
    assert (len(placed), len(removed)) == (2, 2)
    model.place(placed[0])
    assert numbers(model.matches(event)) == [0], "traffic"
    assert model.delivered(event) == [], "the home holds the filter"
    for entry in placed[1:]:
        model.place(entry)
    assert [numbers(model.matches({"a": v, "b": v})) for v in (1, 2)] == [[0], [0]], (
        "both versions whole, until the old goes"
    )


def test_A_a_conjunction_that_gets_a_new_number_is_never_mixed_with_its_old_version() -> None:
    """SubIDs with a version: then not even traffic; but every attribute moves, not only what changed."""
    hashing = Hashing(RING, DIGITS)
    model = Model(hashing, spaced(hashing, 64))
    model.subscribe(0, parse_filter("a = 1 AND b = 1"))
    for entry in model.entries_of(1, parse_filter("a = 2 AND b = 2")):
        model.place(entry)
        assert model.matches({"a": 2, "b": 1}) == []


# -- paper B -----------------------------------------------------------------------------------------------------------

STRINGS = [
    pytest.param(["a LIKE 'N%E'"], "NASDAQ", [0], id="1: half of an affix counts"),
    pytest.param(["a LIKE 'N%E'"], "LSE", [0], id="1: the other half too"),
    pytest.param(["a LIKE 'AB%BA'"], "ABA", [0], id="2: halves that overlap count"),
    pytest.param(["a LIKE 'OT%' AND a LIKE 'OTA%'"], "OTE", [0], id="3: one of two prefixes counts"),
    pytest.param(["a LIKE 'O%' AND a LIKE '%A'"], "OTE", [0], id="3: a prefix without the suffix counts"),
    pytest.param(["a LIKE '%'"], "OTE", [], id="4: a star alone is never found"),
    pytest.param(["a LIKE '%'"], "", [], id="4: nor by the empty string"),
]


@pytest.mark.parametrize(("filters", "value", "wrongly"), STRINGS)
def test_B_strings(filters: list[str], value: str, wrongly: list[int]) -> None:
    event = {"a": value}
    right = judged(filters, event)
    assert taken(printed(filters), event) == wrongly != right
    for mode in CollectionMode:
        assert matched(filters, event, mode) == right


def test_B_fault_3_a_value_and_a_prefix_on_one_attribute_are_one_hit_too_many() -> None:
    predicates = [Predicate("a", Sort.EQUALITY, ("OTE",)), Predicate("a", Sort.PREFIX, ("OT",))]
    assert taken(printed([predicates]), {"a": "OTE"}) == [], "a false negative"
    assert matched(["a = 'OTE' AND a LIKE 'OT%'"], {"a": "OTE"}) == [0]


def test_B_fault_4_the_empty_string_is_a_value_like_others() -> None:
    filters = ["a = ''", "a LIKE 'O%'", "a != ''"]
    assert matched(filters, {"a": ""}) == [0]
    assert matched(filters, {"a": "O"}) == [1, 2]


@pytest.mark.parametrize("mode", [CollectionMode.DISTRIBUTED, CollectionMode.HYBRID])
def test_B_fault_5_a_subid_that_declares_an_attribute_which_the_event_lacks_arrives(mode: CollectionMode) -> None:
    filters = ["a = 1 AND b = 1", "a = 1"]
    assert taken(printed(filters), {"a": 1}, mode) == [0, 1]
    assert taken(printed(filters), {"a": 1}, CollectionMode.COORDINATED) == [1]
    assert matched(filters, {"a": 1}, mode) == [1]


@pytest.mark.parametrize("mode", CollectionMode)
def test_B_fault_5_and_is_sent_by_every_list_node_that_does_not_look_at_the_bits(mode: CollectionMode) -> None:
    filters = [f"a = 1 AND b = {other}" for other in range(10)]
    network = printed(filters)
    assert network.match({"a": 1}, mode, ORIGIN, AttributeOrder())[1].sub_ids == 10
    hashing = Hashing(RING, DIGITS)
    model = Model(hashing, spaced(hashing, 64))
    for number, filter_ in enumerate(filters):
        model.subscribe(number, parse_filter(filter_))
    assert model.matches({"a": 1}, mode) == []
    assert model.sent == 0


def test_B_example_1_hashed_with_its_star_a_prefix_is_never_met() -> None:
    filters = ["a LIKE 'OT%'", "a LIKE '%TE'", "a LIKE 'O%E'", "a = 'OTE'"]
    assert taken(printed(filters, starred=True), {"a": "OTE"}) == [3]
    assert taken(printed(filters), {"a": "OTE"}) == [0, 1, 2, 3], "as figure 4 has it"
    assert matched(filters, {"a": "OTE"}) == [0, 1, 2, 3]


def test_the_papers_have_no_substring_and_the_corrected_scheme_has() -> None:
    with pytest.raises(Exception, match="the papers have no such constraint on a: as printed there are values"):
        printed(["a LIKE '%YS%'"])
    assert matched(["a LIKE '%YS%'", "a LIKE '%SY%'"], {"a": "NYSE"}) == [0]
