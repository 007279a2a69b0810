"""The values a range holds when a schema gives its attribute a precision: what papers A and D place one by one.

Values lie `precision` apart, from the attribute's minimum where it has one, else from zero. All arithmetic is on
exact integers, so 8.30 < price < 8.70 at 0.01 is 39 values, 8.31 to 8.69, where the paper's own formula on floats
gives 38 or 40.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

from meetpoint.errors import SchemaError
from meetpoint.language.filters.constraints import NumberSet
from meetpoint.language.schema.schema import Attribute

__all__ = ["grid_count", "grid_values"]


def grid_values(attribute: Attribute, constraint: NumberSet) -> Iterator[int | Decimal]:
    """The attribute's values that a constraint accepts, in order, within the attribute's minimum and maximum."""
    origin, step = _grid(attribute)
    for first, last in _index_ranges(attribute, constraint):
        for index in range(first, last + 1):
            yield _number(origin + index * step)


def grid_count(attribute: Attribute, constraint: NumberSet) -> int:
    """How many values `grid_values` would give, without giving them."""
    return sum(max(0, last - first + 1) for first, last in _index_ranges(attribute, constraint))


def _grid(attribute: Attribute) -> tuple[Fraction, Fraction]:
    if attribute.precision is None:
        raise SchemaError(f"schema: attribute {attribute.name} has no precision; declare one to enumerate its values")
    return _fraction(0 if attribute.minimum is None else attribute.minimum), _fraction(attribute.precision)


def _index_ranges(attribute: Attribute, constraint: NumberSet) -> Iterator[tuple[int, int]]:
    origin, step = _grid(attribute)
    lowest = None if attribute.minimum is None else 0
    highest = None if attribute.maximum is None else (_fraction(attribute.maximum) - origin) // step
    for interval in constraint.exact:
        first, last = lowest, highest
        if interval.low is not None:
            steps = (_fraction(interval.low) - origin) / step
            index = floor(steps) + 1 if interval.low_open else ceil(steps)
            first = index if first is None else max(first, index)
        if interval.high is not None:
            steps = (_fraction(interval.high) - origin) / step
            index = ceil(steps) - 1 if interval.high_open else floor(steps)
            last = index if last is None else min(last, index)
        if first is None or last is None:
            raise SchemaError(
                f"schema: attribute {attribute.name} has no {'minimum' if first is None else 'maximum'}, "
                "and the range is unbounded; declare one to enumerate its values"
            )
        yield first, last


def _fraction(value: object) -> Fraction:
    assert isinstance(value, int | Decimal)
    return Fraction(value)


def _number(value: Fraction) -> int | Decimal:
    """Exactly, as a decimal of at most 38 digits: a grid of decimals holds only such values."""
    if value.denominator == 1:
        return value.numerator
    scale = 0
    while value.denominator != 1:
        value *= 10
        scale += 1
    digits = tuple(map(int, str(abs(value.numerator))))
    return Decimal((int(value < 0), digits, -scale))  # scaleb would round to the context's 28 digits
