"""Paper D's figures 4 and 5, as printed and corrected, a claim a test."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.lab.printed.papers_cd import (
    Range,
    careless_range,
    corrected_code,
    corrected_range,
    corrected_weave,
    halving_ends,
    printed_code,
    printed_range,
    printed_weave,
)
from meetpoint.language import Attribute, Schema, Type
from meetpoint.schemes.dmm.space import Space

DOMAINS = st.tuples(st.integers(-9, 9), st.integers(0, 40)).map(lambda pair: (pair[0], pair[0] + pair[1]))
POWERS = [(1, 2**3), (0, 2**3 - 1), (1, 2**18), (-(2**4), 2**4 - 1)]
Stands = Callable[[str, int, int], Range]


def prefixes(code: str) -> list[str]:
    return [code[:length] for length in range(len(code) + 1)]


def leaves(domain: Range, depth: int, stands: Stands) -> dict[str, Range]:
    """All regions of a depth."""
    return {"".join(bits): stands("".join(bits), *domain) for bits in product("01", repeat=depth)}


def found(value: int, wanted: Range, domain: Range, depth: int, stands: Stands) -> bool:
    """Whether an event finds a subscription that is stored at all leaves of a depth which it intersects."""
    leaf = printed_code(value, value, *domain)[:depth]
    low, high = stands(leaf, *domain)
    return wanted[0] <= high and wanted[1] >= low


# -- figure 4 ----------------------------------------------------------------------------------------------------------


def test_figure_4_halves_a_range_and_names_the_halves() -> None:
    assert printed_code(1, 1, 1, 8) == "000"
    assert printed_code(8, 8, 1, 8) == "111"
    assert printed_code(5, 6, 1, 8) == "10"
    assert printed_code(4, 5, 1, 8) == "", "it fits in neither half"


def test_as_printed_the_halves_overlap_where_l_plus_u_is_even() -> None:
    assert printed_range("0", 1, 5) == (1, 3)
    assert printed_range("1", 1, 5) == (3, 5), "the upper half restarts at m"
    assert corrected_range("1", 1, 5) == (4, 5)
    assert printed_range("1", 1, 4) == corrected_range("1", 1, 4) == (3, 4), "where l + u is odd they do not"


def test_as_printed_what_asks_for_the_middle_alone_is_stored_in_both_halves() -> None:
    """Two copies of a subscription that is as fine as can be; it is found all the same."""

    def copies(stands: Stands) -> int:
        return sum(low <= 3 <= high for low, high in leaves((1, 5), 2, stands).values())

    assert copies(printed_range) == 2
    assert copies(corrected_range) == 1
    assert found(3, (3, 3), (1, 5), 2, printed_range)


def test_as_printed_a_value_needs_more_bits_than_the_domain_has_values() -> None:
    assert printed_code(5, 5, 1, 5) == "111"
    assert corrected_code(5, 5, 1, 5) == "11"
    assert printed_code(7, 7, 7, 7) == "0", "repeat ... until looks too late"
    assert corrected_code(7, 7, 7, 7) == ""


@given(DOMAINS, st.integers(0, 40), st.integers(0, 40))
def test_as_printed_no_event_is_lost(domain: Range, a: int, b: int) -> None:
    """The overlap costs copies only: a value lies in the range of every prefix of its code."""
    low, high = domain
    value = low + a % (high - low + 1)
    code = printed_code(value, value, low, high)
    for prefix in prefixes(code):
        first, last = printed_range(prefix, low, high)
        assert first <= value <= last


def test_parted_where_the_upper_half_begins_events_at_the_middle_are_lost() -> None:
    assert careless_range("0", 1, 5) == (1, 2)
    assert careless_range("1", 1, 5) == (3, 5)
    assert printed_code(3, 3, 1, 5)[0] == "0", "the event goes where the subscription is not"
    assert not found(3, (3, 3), (1, 5), 1, careless_range)
    lost = [value for value in range(1, 6) if not found(value, (value, value), (1, 5), 1, careless_range)]
    assert lost == [3]


@pytest.mark.parametrize("domain", [(1, 100), (0, 2**18), (1, 1000)])
def test_the_careless_reading_loses_events_of_most_domains(domain: Range) -> None:
    values = range(domain[0], min(domain[1], 2100) + 1)
    lost = [value for value in values if not found(value, (value, value), domain, 8, careless_range)]
    assert lost
    assert all(found(value, (value, value), domain, 8, printed_range) for value in values)


def test_with_whole_numbers_only_figure_4_never_ends() -> None:
    """m of [3, 4] is 3, and the upper half of it begins at 3."""
    assert not halving_ends(4, 1, 4)
    assert halving_ends(1, 1, 4)


@pytest.mark.parametrize("domain", POWERS)
def test_on_powers_of_two_figure_4_is_right(domain: Range) -> None:
    low, high = domain
    step = max(1, (high - low) // 500)
    for value in range(low, high + 1, step):
        code = printed_code(value, value, low, high)
        assert code == corrected_code(value, value, low, high)
        for prefix in prefixes(code):
            ranges = {stands(prefix, low, high) for stands in (printed_range, careless_range, corrected_range)}
            assert len(ranges) == 1


@given(DOMAINS)
def test_corrected_halves_part_their_range(domain: Range) -> None:
    low, high = domain
    codes = [corrected_code(value, value, low, high) for value in range(low, high + 1)]
    assert len(set(codes)) == len(codes)
    for value, code in zip(range(low, high + 1), codes, strict=True):
        assert corrected_range(code, low, high) == (value, value)
        for prefix in prefixes(code)[:-1]:
            lower, upper = [corrected_range(prefix + bit, low, high) for bit in "01"]
            assert (lower[0], upper[1]) == corrected_range(prefix, low, high)
            assert lower[1] + 1 == upper[0]


@given(DOMAINS, st.integers(0, 40), st.integers(0, 40))
def test_the_corrected_code_of_a_range_is_what_its_ends_share(domain: Range, a: int, b: int) -> None:
    low, high = domain
    first, last = sorted([low + a % (high - low + 1), low + b % (high - low + 1)])
    code = corrected_code(first, last, low, high)
    ends = [corrected_code(value, value, low, high) for value in (first, last)]
    assert all(end.startswith(code) for end in ends)
    assert len(code) == len(ends[0]) or ends[0][len(code)] != ends[1][len(code)]


# -- figure 5 ----------------------------------------------------------------------------------------------------------


def test_figure_5_takes_a_bit_of_each_code_in_turn() -> None:
    assert printed_weave(["000", "111"]) == "010101"


def test_as_printed_a_boolean_caps_the_depth() -> None:
    """Values that differ from the second bit on are in one leaf, however many, which cannot be split."""
    flag = printed_code(1, 1, 0, 1)
    values = range(1, 2**17 + 1)
    woven = {printed_weave([printed_code(value, value, 1, 2**18), flag]) for value in values[::1000]}
    assert woven == {"01"}
    codes = [corrected_weave([corrected_code(value, value, 1, 2**18), flag], [True, True]) for value in values[::1000]]
    assert len(set(codes)) == len(codes)
    assert {len(code) for code in codes} == {19}


def test_as_printed_the_region_around_a_range_is_not_the_smallest() -> None:
    wide, narrow = printed_code(1, 4, 1, 8), printed_code(1, 1, 1, 8)
    assert printed_weave([narrow, wide]) == "00"
    assert corrected_weave([narrow, wide], [True, False]) == "000", "the second dimension ends it one turn later"


SMALL = st.lists(st.integers(0, 7), min_size=1, max_size=3)


@given(SMALL, st.data())
def test_the_corrected_codes_are_those_of_the_space(sizes: list[int], data: st.DataObject) -> None:
    """Of points and of boxes; a cell more for what is absent."""
    made = [Attribute(f"a{at}", Type.INTEGER, minimum=1, maximum=1 + size) for at, size in enumerate(sizes)]
    space = Space.of(Schema(tuple(made)), 64)
    cells = [range(dimension.cells) for dimension in space.dimensions]
    low = tuple(data.draw(st.sampled_from(each)) for each in cells)
    high = tuple(data.draw(st.sampled_from(each[cell:])) for each, cell in zip(cells, low, strict=True))
    codes = [corrected_code(a, b, 0, each[-1]) for a, b, each in zip(low, high, cells, strict=True)]
    woven = corrected_weave(codes, [a == b for a, b in zip(low, high, strict=True)])
    assert space.enclosing(tuple(((a, b),) for a, b in zip(low, high, strict=True))) == woven
    if low == high:
        assert space.code(low) == woven
