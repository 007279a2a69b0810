from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.errors import SchemaError
from meetpoint.language import Attribute, NumberSet, Type, grid_count, grid_values, parse_filter
from meetpoint.language.filters.constraints import accepts

PRICE = Attribute("p", Type.DECIMAL, minimum=Decimal("-1.00"), maximum=Decimal("3.00"), precision=Decimal("0.25"))


def numbers(text: str) -> NumberSet:
    (conjunction,) = parse_filter(text).conjunctions
    constraint = conjunction.constraints[0][1]
    assert isinstance(constraint, NumberSet)
    return constraint


hundredths = st.integers(-200, 400).map(lambda n: Decimal(n) / 100)


@given(st.lists(st.tuples(hundredths, hundredths), min_size=1, max_size=4), st.booleans())
def test_the_grid_values_are_those_the_constraint_accepts(ranges: list[tuple[Decimal, Decimal]], negate: bool) -> None:
    text = " OR ".join(f"(p > {low} AND p <= {high})" for low, high in ranges)
    filter_ = parse_filter(f"NOT ({text})" if negate else text)
    grid = [Decimal("-1.00") + n * Decimal("0.25") for n in range(17)]
    wanted = [value for value in grid if filter_.accepts({"p": value})]
    sets = [numbers for c in filter_.conjunctions if isinstance(numbers := c.constraints[0][1], NumberSet)]
    assert [value for numbers in sets for value in grid_values(PRICE, numbers)] == wanted
    assert sum(grid_count(PRICE, numbers) for numbers in sets) == len(wanted)


def test_a_wide_range_is_counted_without_being_walked() -> None:
    volume = Attribute("v", Type.INTEGER, minimum=0, maximum=10**30, precision=1)
    assert grid_count(volume, numbers("v >= 5")) == 10**30 - 4


def test_values_between_grid_lines_hold_none() -> None:
    assert list(grid_values(PRICE, numbers("p > 0.26 AND p < 0.49"))) == []
    assert grid_count(PRICE, numbers("p = 0.3")) == 0


def test_exact_decimals_come_back() -> None:
    values = list(grid_values(PRICE, numbers("p BETWEEN 0.25 AND 1")))
    assert values == [Decimal("0.25"), Decimal("0.5"), Decimal("0.75"), 1]
    assert all(accepts(numbers("p BETWEEN 0.25 AND 1"), value) for value in values)


def test_values_of_38_digits_are_exact() -> None:
    fine = Attribute(
        "p", Type.DECIMAL, minimum=Decimal("-12345678901234567890.12345678901234567"), precision=Decimal("1e-17")
    )
    assert [*grid_values(fine, numbers("p < -12345678901234567890.12345678901234565"))] == [
        Decimal("-12345678901234567890.12345678901234567"),
        Decimal("-12345678901234567890.12345678901234566"),
    ]


def test_a_grid_without_precision_or_bound_is_refused() -> None:
    with pytest.raises(SchemaError, match="has no precision"):
        grid_count(Attribute("p", Type.FLOAT), numbers("p > 1"))
    with pytest.raises(SchemaError, match="has no maximum"):
        grid_count(Attribute("p", Type.INTEGER, minimum=0, precision=1), numbers("p > 1"))
    with pytest.raises(SchemaError, match="has no minimum"):
        grid_count(Attribute("p", Type.INTEGER, maximum=9, precision=1), numbers("p < 1"))
