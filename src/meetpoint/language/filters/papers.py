"""Numbers that the papers assign: the values of a range, and the ids of conjunctions (SubIDs).

Papers A and D place the values of a range one by one, if a schema gives the attribute a precision. Values lie
`precision` apart, from the attribute's minimum or else from zero. All arithmetic is on exact integers, so 8.30 < price
< 8.70 at 0.01 is 39 values, 8.31 to 8.69, where the paper's own formula on floats gives 38 or 40.

A SubID packs the id of one conjunction into one number (paper A, section 3; paper B, section 3.2). It has three fields,
most significant first: c1, the home node; c2, the number of the conjunction at that node; c3, the attributes it
constrains. Deviation: c3 is paper B's bit vector (its footnote 4), a bit per attribute of the schema; as printed in A
it is their count. The layout depends only on the width of c3, not on its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import msgspec

from meetpoint.errors import SchemaError
from meetpoint.language.filters.constraints import NumberSet
from meetpoint.language.schema.schema import Attribute, Schema

__all__ = ["SubId", "SubIdLayout", "attribute_bits", "grid_count", "grid_values"]


def grid_values(attribute: Attribute, constraint: NumberSet) -> Iterator[int | Decimal]:
    """Yield the attribute's values that a constraint accepts, in order, within its minimum and maximum."""
    origin, step = _grid(attribute)
    for first, last in _index_ranges(attribute, constraint):
        for index in range(first, last + 1):
            yield _number(origin + index * step)


def grid_count(attribute: Attribute, constraint: NumberSet) -> int:
    """Return how many values `grid_values` would yield, without making them."""
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
    """Return a value exactly, as a decimal of at most 38 digits: a grid of decimals holds only such values."""
    if value.denominator == 1:
        return value.numerator
    scale = 0
    while value.denominator != 1:
        value *= 10
        scale += 1
    digits = tuple(map(int, str(abs(value.numerator))))
    return Decimal((int(value < 0), digits, -scale))  # scaleb would round to the context's 28 digits


class SubId(msgspec.Struct, frozen=True, order=True):
    """The id of a conjunction: the home node, the number there, and the attributes constrained."""

    home: int
    number: int
    attributes: int


class SubIdLayout(msgspec.Struct, frozen=True):
    """The bits of each field. Every network fixes one layout."""

    home_bits: int
    number_bits: int
    attribute_bits: int

    def __post_init__(self) -> None:
        for field in ("home_bits", "number_bits", "attribute_bits"):
            width = getattr(self, field)
            if not isinstance(width, int) or width < 1:
                raise ValueError(f"{field} is {width!r}; a field of a SubID has at least one bit")

    @property
    def bits(self) -> int:
        """The width of a packed SubID."""
        return self.home_bits + self.number_bits + self.attribute_bits

    def pack(self, sub_id: SubId) -> int:
        """Return the number of a SubID, of `bits` bits; ValueError if a field does not fit its width."""
        for field, width in (
            ("home", self.home_bits),
            ("number", self.number_bits),
            ("attributes", self.attribute_bits),
        ):
            value = getattr(sub_id, field)
            if not 0 <= value < 1 << width:
                raise ValueError(f"{field} {value} does not fit {width} bits; widen the layout")
        return (sub_id.home << self.number_bits | sub_id.number) << self.attribute_bits | sub_id.attributes

    def unpack(self, packed: int) -> SubId:
        """Return the SubID of a packed number; ValueError if it has too many bits."""
        if not 0 <= packed < 1 << self.bits:
            raise ValueError(f"{packed} is not a SubID of {self.bits} bits")
        attributes = packed & (1 << self.attribute_bits) - 1
        number = packed >> self.attribute_bits & (1 << self.number_bits) - 1
        return SubId(packed >> self.attribute_bits + self.number_bits, number, attributes)

    def text(self, sub_id: SubId) -> str:
        """Return the fields in binary, as the papers' figures show them: `100 011 101`."""
        self.pack(sub_id)
        return (
            f"{sub_id.home:0{self.home_bits}b} {sub_id.number:0{self.number_bits}b} "
            f"{sub_id.attributes:0{self.attribute_bits}b}"
        )


def attribute_bits(schema: Schema, attributes: Iterable[str]) -> int:
    """Return the bit vector of attributes: bit i is the i-th attribute of the schema, so that a schema may grow."""
    bits = 0
    for name in attributes:
        bits |= 1 << schema.bit(name)
    return bits
