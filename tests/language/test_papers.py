"""The papers' facts about the language and the ids, one claim a test; SPEC sections A (numbers) and B (strings)."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest

from meetpoint.language import (
    Attribute,
    Interval,
    NumberSet,
    Pattern,
    PatternSort,
    Schema,
    SubId,
    SubIdLayout,
    TextSet,
    Type,
    attribute_bits,
    grid_count,
    grid_values,
    parse_filter,
)
from meetpoint.matching import Scan
from tests.stocks import FIGURE_1, STOCKS


def accepts(text: str, **attributes: object) -> bool:
    """The oracle's verdict, after checking that the normal form gives the same."""
    filter_ = parse_filter(text)
    scan: Scan[int] = Scan()
    scan.add(1, filter_)
    verdict = scan.match(attributes) == [1]
    assert filter_.accepts(attributes) is verdict
    return verdict


def constraint_on(text: str, attribute: str) -> object:
    (conjunction,) = parse_filter(text).conjunctions
    return dict(conjunction.constraints)[attribute]


# -- paper A -----------------------------------------------------------------------------------------------------------


def test_A_section_3_a_subid_is_home_then_number_then_attributes() -> None:
    """Figure 3: a 3-bit ring, 8 subscriptions a node, 7 attributes; node 4, subscription 3, 5 attributes."""
    layout = SubIdLayout(home_bits=3, number_bits=3, attribute_bits=3)
    sub_id = SubId(home=4, number=3, attributes=5)
    assert layout.text(sub_id) == "100 011 101"
    assert layout.pack(sub_id) == 0b100011101
    assert layout.unpack(0b100011101) == sub_id


def test_A_figures_1_and_2_the_first_subscription_matches_and_the_second_does_not() -> None:
    scan: Scan[str] = Scan()
    scan.add("1", parse_filter("Exchange = 'NYSE' AND Symbol = 'OTE' AND Price < 8.70 AND Price > 8.30", STOCKS))
    scan.add("2", parse_filter("Symbol = 'OTE' AND Price = 8.20 AND Low < 8.05", STOCKS))
    assert scan.match(FIGURE_1) == ["1"]


def test_A_figure_2_the_second_subscription_holds_on_one_attribute_of_three() -> None:
    """The text says two; the numbers as printed (Low < 8.05, event 8.22) say one."""
    (conjunction,) = parse_filter("Symbol = 'OTE' AND Price = 8.20 AND Low < 8.05").conjunctions
    alone = [type(conjunction)((pair,)).accepts(FIGURE_1) for pair in conjunction.constraints]
    assert dict(zip(conjunction.attributes, alone, strict=True)) == {"Low": False, "Price": False, "Symbol": True}


def test_A_section_3_1_1_a_range_at_precision_001_is_39_values() -> None:
    price = STOCKS["Price"]
    wanted = constraint_on("8.30 < Price AND Price < 8.70", "Price")
    assert isinstance(wanted, NumberSet)
    values = list(grid_values(price, wanted))
    assert len(values) == grid_count(price, wanted) == 39
    assert (values[0], values[-1]) == (Decimal("8.31"), Decimal("8.69"))
    assert all(b - a == Decimal("0.01") for a, b in pairwise(values))


def test_A_section_3_two_constraints_on_one_attribute_intersect() -> None:
    """The text says "two subscriptions", its own example intersects; so do we."""
    assert constraint_on("Price > 8.30 AND Price < 8.70", "Price") == NumberSet(
        (Interval(Decimal("8.30"), True, Decimal("8.70"), True),)
    )
    assert not accepts("Price > 8.30 AND Price < 8.70", Price=Decimal(9))


def test_A_all_operators_of_the_paper_are_in_the_language() -> None:
    for op, below, at, above in (
        ("=", False, True, False),
        ("!=", True, False, True),
        ("<", True, False, False),
        (">", False, False, True),
        ("<=", True, True, False),
        (">=", False, True, True),
    ):
        assert [accepts(f"a {op} 5", a=v) for v in (4, 5, 6)] == [below, at, above]


def test_A_an_event_may_have_more_attributes_than_a_subscription() -> None:
    assert accepts("Symbol = 'OTE'", **FIGURE_1)


# -- paper B -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "sort", "pieces"),
    [
        ("OT%", PatternSort.PREFIX, ("OT", "")),
        ("%SE", PatternSort.SUFFIX, ("", "SE")),
        ("N%E", PatternSort.AFFIX, ("N", "E")),
        ("%YS%", PatternSort.SUBSTRING, ("", "YS", "")),
    ],
)
def test_B_section_3_1_predicates_have_their_ordinary_names(
    pattern: str, sort: PatternSort, pieces: tuple[str, ...]
) -> None:
    """The paper calls `*SE` a prefix and `OT*` a suffix; here a prefix is at the front."""
    wanted = constraint_on(f"a LIKE '{pattern}'", "a")
    assert isinstance(wanted, TextSet)
    assert wanted.like == (Pattern(pieces),)
    assert wanted.like[0].sort is sort


def test_B_example_2_sub1_matches_and_sub2_does_not() -> None:
    event = {"Exchange": "NYSE", "Symbol": "OTE"}
    assert accepts("Exchange LIKE '%SE' AND Symbol LIKE 'OT%'", **event)
    assert not accepts("Exchange LIKE 'N%E' AND Symbol LIKE 'OTA%'", **event)


def test_B_fault_1_half_an_affix_is_no_match() -> None:
    assert not accepts("a LIKE 'N%E'", a="NASDAQ")
    assert not accepts("a LIKE 'N%E'", a="LSE")
    assert accepts("a LIKE 'N%E'", a="NYSE")


def test_B_fault_2_the_halves_of_an_affix_do_not_overlap() -> None:
    assert not accepts("a LIKE 'AB%BA'", a="ABA")
    assert accepts("a LIKE 'AB%BA'", a="ABBA")
    assert accepts("a LIKE 'AB%' AND a LIKE '%BA'", a="ABA")


def test_B_fault_3_several_constraints_on_one_attribute_must_all_hold() -> None:
    assert accepts("a = 'OTE' AND a LIKE 'OT%'", a="OTE")
    assert not accepts("a LIKE 'OT%' AND a LIKE 'OTE%'", a="OTA")
    assert parse_filter("a = 'OTE' AND a LIKE 'N%'").conjunctions == ()


def test_B_fault_4_a_star_alone_and_the_empty_string() -> None:
    assert accepts("a LIKE '%'", a="")
    assert not accepts("a LIKE '%'")
    assert accepts("a = ''", a="")
    assert accepts("a LIKE ''", a="")
    assert not accepts("a LIKE ''", a="x")


def test_B_fault_5_a_subscription_needs_every_attribute_it_declares() -> None:
    assert not accepts("a = 'x' AND b = 'y'", a="x")


def test_B_footnote_4_the_attributes_of_a_subid_are_a_bit_vector() -> None:
    (conjunction,) = parse_filter("Symbol = 'OTE' AND Low < 8.05", STOCKS).conjunctions
    assert attribute_bits(STOCKS, conjunction.attributes) == 0b10010
    grown = STOCKS.evolve(Schema((*STOCKS, Attribute("Volume", Type.INTEGER))))
    assert attribute_bits(grown, conjunction.attributes) == 0b10010


def test_B_real_containment_is_in_the_language() -> None:
    assert accepts("a LIKE '%YS%'", a="NYSE")
    assert accepts("contains(a, 'YS')", a="NYSE")
    assert not accepts("contains(a, 'YS')", a="NASDAQ")
