"""The facts of papers A and B about lists, with the papers' numbers: one claim a test, each with its section."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from math import log2
from statistics import fmean

import pytest

from meetpoint.api.ids import HomeId, Key
from meetpoint.lab.printed.papers_ab import PlainHash, PrintedNetwork, predicates_of
from meetpoint.language import Attribute, Schema, SubIdLayout, Type, parse_filter
from meetpoint.language import SubId as PackedSubId
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.collection import (
    AttributeOrder,
    CollectionMode,
    dht_lookups,
    groups_of,
    homes_of,
    is_walk_cheaper,
    texts_of,
)
from meetpoint.schemes.lists.entries import ListEntry, difference, entries_of, next_point
from meetpoint.schemes.lists.subids import SubId, count
from meetpoint.schemes.lists.value_hash import Hashing
from tests.overlays.chord.driving import peer
from tests.overlays.chord.test_hops import Still
from tests.schemes.lists.model import HOME, Model, numbers, spaced
from tests.stocks import FIGURE_1, STOCKS

FIGURE_2 = {
    1: "Exchange = 'NYSE' AND Symbol = 'OTE' AND Price < 8.70 AND Price > 8.30",
    2: "Symbol = 'OTE' AND Price = 8.20 AND Low < 8.05",
}
SUBS = {
    1: "Exchange LIKE '%SE' AND Symbol LIKE 'OT%'",
    2: "Exchange LIKE 'N%E' AND Symbol LIKE 'OTA%'",
}
"""Paper B, example 1."""

PLAIN = Hashing(Ring(), STOCKS)
ORDERED = Hashing(Ring(), STOCKS, order_preserving=True)


def entries(hashing: Hashing, text: str) -> tuple[ListEntry, ...]:
    (conjunction,) = parse_filter(text).conjunctions
    return entries_of(hashing, conjunction, HOME, 0)


def model(hashing: Hashing, filters: dict[int, str], nodes: int = 64) -> Model:
    made = Model(hashing, spaced(hashing, nodes))
    for number, text in filters.items():
        made.subscribe(number, parse_filter(text))
    return made


# -- paper A -----------------------------------------------------------------------------------------------------------


def test_A_figure_3_a_subid_is_100_011_101() -> None:
    """Node 4, subscription 3, constraints on 5 attributes; c3 as printed is their number."""
    schema = Schema(tuple(Attribute(f"a{n}", Type.STRING) for n in range(7)))
    hashing = Hashing(Ring(3), schema)
    text = " AND ".join(f"a{n} = 'x'" for n in range(5))
    (conjunction,) = parse_filter(text).conjunctions
    sub_id = entries_of(hashing, conjunction, HomeId(hashing.ring.key(4)), 3)[0].sub_id
    assert sub_id == SubId(HomeId(b"\x04"), 3, 0b0011111)
    printed = PackedSubId(hashing.ring.number(sub_id.home), sub_id.number, count(sub_id.attributes))
    assert SubIdLayout(3, 3, 3).text(printed) == "100 011 101"


def test_A_section_3_1_1_a_range_at_precision_001_is_placed_at_39_keys() -> None:
    placed = entries(PLAIN, "8.30 < Price AND Price < 8.70")
    keys = [entry.low for entry in placed]
    assert all(entry.low == entry.high for entry in placed)
    assert len(set(keys)) == len(keys) == 39
    line = PLAIN.line("Price", STOCKS["Price"].type.kind)
    assert [(key,) for key in keys] == [line.keys(Decimal(830 + n) / 100) for n in range(1, 40)]
    assert line.keys(Decimal("8.30"))[0] not in keys
    assert line.keys(8.7)[0] not in keys


def test_A_section_3_1_1_the_first_subscription_of_figure_2_lies_at_two_texts_and_39_numbers() -> None:
    placed = entries(PLAIN, FIGURE_2[1])
    assert [entry.attribute for entry in placed] == ["Exchange"] + ["Price"] * 39 + ["Symbol"]
    assert [e.low for e in placed if e.attribute != "Price"] == [
        PLAIN.text("Exchange", "NYSE"),
        PLAIN.text("Symbol", "OTE"),
    ]


@pytest.mark.parametrize("hashing", [PLAIN, ORDERED], ids=["plain", "ordered"])
@pytest.mark.parametrize("mode", CollectionMode)
def test_A_figures_1_and_2_the_first_subscription_matches_and_the_second_is_dropped(
    hashing: Hashing, mode: CollectionMode
) -> None:
    assert numbers(model(hashing, FIGURE_2).matches(FIGURE_1, mode)) == [1]


@pytest.mark.parametrize("hashing", [PLAIN, ORDERED], ids=["plain", "ordered"])
def test_A_figures_1_and_2_one_is_in_three_lists_of_three_and_two_in_one(hashing: Hashing) -> None:
    """The text says that subscription 2 is in two lists; by its numbers, Low < 8.05 and 8.22, it is in one."""
    lists = found_under(model(hashing, FIGURE_2), FIGURE_1)
    assert lists == {"Exchange": [1], "Price": [1], "Symbol": [1, 2]}


def test_A_figure_5_as_printed_counts_the_same_lists() -> None:
    ring = Ring()
    network = PrintedNetwork(PlainHash(ring), ring.number, values_kept=False)
    for number, text in FIGURE_2.items():
        (conjunction,) = parse_filter(text).conjunctions
        sub_id = SubId(HOME, number, PLAIN.bits.declare(conjunction.attributes))
        assert count(sub_id.attributes) == 3
        network.store(sub_id, predicates_of(conjunction, STOCKS))
    matched, counts = network.match(FIGURE_1, CollectionMode.COORDINATED, -1, AttributeOrder())  # type: ignore[arg-type]
    assert [sub_id.number for sub_id in matched] == [1]
    assert counts.sub_ids == 4, "1 under Exchange and Price, 1 and 2 under Symbol"


def found_under(network: Model, event: Mapping[str, object]) -> dict[str, list[int]]:
    """Which subscriptions are in an attribute's lists."""
    flat = network.hashing.bits.flatten(event)
    found: dict[str, list[int]] = {}
    for group in groups_of(network.hashing, flat, network.order):
        answers = [network.lists[network.owner(each.key)].answer(each, flat) for each in group.lookups]
        if held := numbers(sub_id for answer in answers for sub_id in answer):
            found[group.attribute] = held
    return found


# Figures 6 and 7: a ring of three bits with all its nodes, and a subscription 0 < a < 4 that comes to node 3.

SMALL = Schema((Attribute("a", Type.INTEGER, minimum=0, maximum=7),))


class FigureRing(Ring):
    """The ring of figures 6 and 7: values hash to 6, 2 and 4, and the attribute begins at 5."""

    def hash(self, data: bytes) -> Key:
        known = {b"a\x001/1": 6, b"a\x002/1": 2, b"a\x003/1": 4, b"a": 5}
        return self.key(known[data]) if data in known else super().hash(data)


def hops_of_walk(still: Still, hashing: Hashing, origin: int, entry: ListEntry) -> tuple[list[int], int]:
    """The nodes that store an entry, each asked by the one before it, and the hops between them."""
    at, node, hops = entry.low, hashing.ring.key(origin), 0
    nodes: list[int] = []
    while at is not None:
        owner, far = still.lookup(node, at)
        hops += far
        node = owner.id
        nodes.append(hashing.ring.number(node))
        following = next_point(hashing, entry, node)
        if following is None:
            return nodes, hops
        at = following
    raise AssertionError


def test_A_figure_6_the_plain_hash_stores_at_6_2_and_4_in_six_hops() -> None:
    hashing = Hashing(FigureRing(3), SMALL)
    still = Still(hashing.ring, [peer(hashing.ring, number) for number in range(8)])
    walks = [hops_of_walk(still, hashing, 3, entry) for entry in entries(hashing, "0 < a AND a < 4")]
    assert walks == [([6], 2), ([2], 3), ([4], 1)]


def test_A_figure_7_the_order_preserving_hash_stores_at_6_7_and_0_in_four_hops() -> None:
    hashing = Hashing(FigureRing(3), SMALL, order_preserving=True)
    still = Still(hashing.ring, [peer(hashing.ring, number) for number in range(8)])
    (entry,) = entries(hashing, "0 < a AND a < 4")
    assert hops_of_walk(still, hashing, 3, entry) == ([6, 7, 0], 4)


class ScatteringRing(Ring):
    """Values hash to nodes at random but each to another: what the formula of the paper counts on."""

    def __init__(self, bits: int) -> None:
        super().__init__(bits)
        nodes = random.Random(bits).sample(range(self.size), self.size)
        self.known = {f"a\0{value:x}/1".encode(): node for value, node in enumerate(nodes)}

    def hash(self, data: bytes) -> Key:
        return self.key(self.known[data]) if data in self.known else super().hash(data)


@pytest.mark.slow
@pytest.mark.parametrize("bits", [5, 7, 9])
def test_A_section_4_a_range_takes_one_lookup_and_a_hop_a_value_instead_of_a_lookup_a_value(bits: int) -> None:
    """r * ½ log2 N against ½ log2 N + (r - 1), where values are as many as nodes and nodes evenly spaced."""
    size = 1 << bits
    half_log = log2(size) / 2
    schema = Schema((Attribute("a", Type.INTEGER, minimum=0, maximum=size - 1),))
    ring = ScatteringRing(bits)
    still = Still(ring, [peer(ring, number) for number in range(size)])
    chance = random.Random(bits)
    widths = [1, 4, 8, 16]
    hops: dict[bool, list[float]] = {False: [], True: []}
    for ordered, means in hops.items():
        hashing = Hashing(ring, schema, order_preserving=ordered)
        for width in widths:
            taken = []
            for _ in range(200):
                low, origin = chance.randrange(size - width), chance.randrange(size)
                placed = entries(hashing, f"a BETWEEN {low} AND {low + width - 1}")
                taken.append(sum(hops_of_walk(still, hashing, origin, entry)[1] for entry in placed))
            means.append(fmean(taken))
    slopes = {ordered: (means[-1] - means[0]) / (widths[-1] - widths[0]) for ordered, means in hops.items()}
    assert slopes[True] == pytest.approx(1, rel=0.1)
    assert slopes[False] == pytest.approx(half_log, rel=0.1)
    assert hops[True][0] == pytest.approx(half_log, rel=0.1)
    assert hops[False][0] == pytest.approx(half_log, rel=0.1)


def test_A_section_3_2_an_event_looks_up_a_key_for_each_number() -> None:
    """N_attr * ½ log2 N hops; strings need more (paper B), and every event asks once for what needs no attribute."""
    flat = PLAIN.bits.flatten({"Price": 8.4, "High": 8.8, "Low": 8.22})
    groups = groups_of(PLAIN, flat, AttributeOrder(STOCKS))
    assert [len(group.lookups) for group in groups] == [1, 1, 1, 1]
    assert groups[-1].lookups[0].key == PLAIN.always


def test_A_section_3_1_2_an_update_of_a_value_touches_two_keys() -> None:
    placed, removed = difference(entries(PLAIN, FIGURE_2[2]), entries(PLAIN, FIGURE_2[2].replace("8.20", "8.21")))
    assert [(e.attribute, e.low) for e in placed] == [
        ("Price", *PLAIN.line("Price", STOCKS["Price"].type.kind).keys(8.21))
    ]
    assert [(e.attribute, e.low) for e in removed] == [
        ("Price", *PLAIN.line("Price", STOCKS["Price"].type.kind).keys(8.20))
    ]


@pytest.mark.parametrize(
    ("new", "placed", "removed"),
    [
        ("a BETWEEN 10 AND 12", {10, 11, 12}, {1, 2, 3, 4, 5}),
        ("a BETWEEN 1 AND 8", {5, 6, 7, 8}, {5}),
        ("a BETWEEN 3 AND 5", {3}, {1, 2, 3}),
        ("a BETWEEN 0 AND 6", {0, 1, 5, 6}, {1, 5}),
        ("a BETWEEN 1 AND 5", set(), set()),
        ("0 < a AND a < 6", {1, 5}, {1, 5}),
        ("a IN (1, 2, 3, 4, 5)", {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}),
    ],
)
def test_A_section_3_1_2_an_update_of_a_range_touches_what_differs_and_its_ends(
    new: str, placed: set[int], removed: set[int]
) -> None:
    """From [1, 5]. k log2 N, where k counts the values that come and go; an end says what lies between two values."""
    hashing = Hashing(Ring(), Schema((Attribute("a", Type.INTEGER, minimum=-9, maximum=20),)))
    line = hashing.line("a", Type.INTEGER.kind)
    at = {line.keys(value)[0]: value for value in range(-9, 21)}
    came, went = difference(entries(hashing, "a BETWEEN 1 AND 5 AND b = 1"), entries(hashing, f"{new} AND b = 1"))
    assert sorted(at[entry.low] for entry in came) == sorted(placed)
    assert sorted(at[entry.low] for entry in went) == sorted(removed)


@pytest.mark.parametrize("ordered", [False, True])
def test_an_update_of_a_list_of_values_touches_only_what_differs(ordered: bool) -> None:
    hashing = Hashing(Ring(), order_preserving=ordered)
    for old, new in (
        ("a IN (1, 2.5, 3)", "a IN (2.5, 3, 4)"),
        ("a IN ('x', 'y', 'z')", "a IN ('y', 'z', 'w')"),
        (
            "a IN (TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-02')",
            "a IN (TIMESTAMP '2026-01-02', TIMESTAMP '2026-01-03')",
        ),
    ):
        came, went = difference(entries(hashing, old), entries(hashing, new))
        assert (len(came), len(went)) == (1, 1), (old, new)


# -- paper B -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", CollectionMode)
def test_B_example_2_sub1_matches_and_sub2_does_not(mode: CollectionMode) -> None:
    event = {"Exchange": "NYSE", "Symbol": "OTE"}
    for hashing in (PLAIN, Hashing(Ring())):
        assert numbers(model(hashing, SUBS).matches(event, mode)) == [1]


def test_B_example_2_the_lists_of_each_attribute() -> None:
    event = {"Exchange": "NYSE", "Symbol": "OTE"}
    assert found_under(model(PLAIN, SUBS), event) == {"Exchange": [1, 2], "Symbol": [1]}


def test_B_example_1_prefix_and_suffix_lie_at_their_bare_texts_and_an_affix_once() -> None:
    """The paper has both halves of `N*E`; the longer one is enough, the first where they are equal."""
    assert [entry.low for entry in entries(PLAIN, SUBS[1])] == [
        PLAIN.text("Exchange", "SE"),
        PLAIN.text("Symbol", "OT"),
    ]
    assert [entry.low for entry in entries(PLAIN, SUBS[2])] == [
        PLAIN.text("Exchange", "N"),
        PLAIN.text("Symbol", "OTA"),
    ]
    assert [entry.low for entry in entries(PLAIN, "Exchange LIKE 'N%SE'")] == [PLAIN.text("Exchange", "SE")]


@pytest.mark.parametrize("value", ["", "O", "OT", "OTE", "NYSE", "NASDAQ"])
def test_B_section_5_1_as_printed_a_value_of_length_l_takes_1_plus_2l_lookups(value: str) -> None:
    ring = Ring()
    network = PrintedNetwork(PlainHash(ring), ring.number)
    _, counts = network.match({"a": value}, CollectionMode.COORDINATED, -1, AttributeOrder())
    assert counts.lookups == 1 + 2 * len(value)


@pytest.mark.parametrize(
    ("value", "keys"), [("", 1), ("O", 1), ("OT", 3), ("OTE", 5), ("NYSE", 7), ("ABA", 4), ("AA", 2)]
)
def test_B_at_most_2l_minus_1_keys_suffice_and_one_for_whatever_the_value_is(value: str, keys: int) -> None:
    """Fewer where a beginning is also an end: ABA begins and ends with A."""
    flat = PLAIN.bits.flatten({"a": value})
    group, _ = groups_of(PLAIN, flat, AttributeOrder())
    assert len(group.lookups) == len({lookup.key for lookup in group.lookups}) == keys + 1
    assert keys <= max(2 * len(value) - 1, 1)
    assert len(texts_of(value)) == keys


@pytest.mark.parametrize("k", [1, 2, 5, 10])
def test_B_section_7_1_messages_are_2k_and_k_plus_1_and_2k(k: int) -> None:
    """With one node an attribute, as printed; events of k numbers, each list at a node of its own."""
    event = {f"a{n}": n for n in range(k)}
    network = PrintedNetwork(PlainHash(Ring()), Ring().number)
    taken = {mode: network.match(event, mode, -1, AttributeOrder())[1].messages for mode in CollectionMode}
    assert taken == {CollectionMode.COORDINATED: 2 * k, CollectionMode.DISTRIBUTED: k + 1, CollectionMode.HYBRID: 2 * k}
    assert taken == {mode: dht_lookups(mode, k) for mode in CollectionMode}


@pytest.mark.parametrize(("nodes", "unicasts_max"), [(2, 3), (4, 3), (16, 7), (128, 36), (1024, 204)])
def test_B_section_5_1_the_delivery_policy_turns_where_k_half_log_n_is_n(nodes: int, unicasts_max: int) -> None:
    assert not is_walk_cheaper(unicasts_max, nodes)
    assert is_walk_cheaper(unicasts_max + 1, nodes)


def test_B_section_5_1_homes_are_counted_once_each() -> None:
    one, two = HomeId(b"1"), HomeId(b"2")
    sub_ids = [SubId(two, 9, 1), SubId(one, 3, 1), SubId(two, 4, 3)]
    assert homes_of(sub_ids) == {one: [3], two: [4, 9]}


def test_B_section_5_1_alone_a_node_never_walks() -> None:
    assert not is_walk_cheaper(1, 1)


def test_B_section_6_attributes_are_asked_in_the_order_of_selectivity_else_of_their_domains() -> None:
    schema = Schema(
        (
            Attribute("live", Type.BOOLEAN),
            Attribute("digit", Type.INTEGER, minimum=0, maximum=9),
            Attribute("price", Type.DECIMAL, minimum=Decimal(0), maximum=Decimal(1), precision=Decimal("0.01")),
            Attribute("name", Type.STRING),
        )
    )
    flat = PLAIN.bits.flatten({"live": True, "digit": 1, "price": Decimal("0.5"), "name": "x", "more": 1})
    by_domain = groups_of(PLAIN, flat, AttributeOrder(schema))
    assert [group.attribute for group in by_domain] == ["more", "name", "price", "digit", "live", ""]
    by_measure = groups_of(PLAIN, flat, AttributeOrder(schema, ["digit", "absent", "live"]))
    assert [group.attribute for group in by_measure] == ["digit", "live", "more", "name", "price", ""]


def test_B_section_7_1_subids_are_counted_each_time_one_is_sent() -> None:
    """Three attributes; sub 0 declares the first only, sub 1 the first and the last, sub 2 the last.

    Coordinated: 2 and 2 answers. Distributed: 0 and 1 leave the first node, both the second, and 0, 1, 2 the last.
    Hybrid: the first node tells the origin 0 and passes 1 on, the second passes 1 on, the last tells 1 and 2.
    """
    network = PrintedNetwork(PlainHash(Ring()), Ring().number)
    bits = PLAIN.bits
    for number, names in enumerate((["a"], ["a", "c"], ["c"])):
        (conjunction,) = parse_filter(" AND ".join(f"{name} = {ord(name)}" for name in names)).conjunctions
        network.store(SubId(HOME, number, bits.declare(names)), predicates_of(conjunction))
    sent = {}
    for mode in CollectionMode:
        matched, counts = network.match({"a": 97, "b": 98, "c": 99}, mode, -1, AttributeOrder(None, ["a", "b", "c"]))
        assert sorted(sub_id.number for sub_id in matched) == [0, 1, 2]
        sent[mode] = counts.sub_ids
    assert sent == {
        CollectionMode.COORDINATED: 4,
        CollectionMode.DISTRIBUTED: 2 + 2 + 3,
        CollectionMode.HYBRID: (1 + 1) + 1 + 2,
    }


def test_B_section_7_1_messages_as_printed_are_counted_by_their_hops_and_none_to_oneself() -> None:
    nodes = {Ring().hash(text): number for number, text in enumerate((b"97", b"98"))}
    event = {"a": 97, "b": 98}
    order = AttributeOrder(None, ["a", "b"])
    for hops in (1, 3):
        network = PrintedNetwork(PlainHash(Ring()), lambda key: nodes[key], hops=lambda source, to, hops=hops: hops)  # type: ignore[misc]
        for origin, sends in ((9, (4, 3, 4)), (0, (2, 2, 2)), (1, (2, 2, 3))):
            taken = [network.match(event, mode, origin, order)[1].messages for mode in CollectionMode]
            assert taken == [hops * count for count in sends]
