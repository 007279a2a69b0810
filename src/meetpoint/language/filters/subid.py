"""SubIDs: the id of one conjunction, as papers A (section 3) and B (section 3.2) pack it into one number.

Three fields, most significant first: c1, the home node; c2, the number of the conjunction at that node; c3, the
attributes it constrains. Deviation: c3 is paper B's bit vector (its footnote 4), a bit per attribute of the schema; as
printed in A it is their count. The layout does not care what c3 means, only how wide it is.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from meetpoint.language.schema.schema import Schema

__all__ = ["SubId", "SubIdLayout", "attribute_bits"]


class SubId(msgspec.Struct, frozen=True, order=True):
    """The home node, the number there, and the attributes constrained."""

    home: int
    number: int
    attributes: int


class SubIdLayout(msgspec.Struct, frozen=True):
    """How many bits each field has. Every network fixes one layout."""

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
        """One number of `bits` bits; ValueError where a field does not fit its width."""
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
        """The SubID of a packed number; ValueError where it has too many bits."""
        if not 0 <= packed < 1 << self.bits:
            raise ValueError(f"{packed} is not a SubID of {self.bits} bits")
        attributes = packed & (1 << self.attribute_bits) - 1
        number = packed >> self.attribute_bits & (1 << self.number_bits) - 1
        return SubId(packed >> self.attribute_bits + self.number_bits, number, attributes)

    def text(self, sub_id: SubId) -> str:
        """The fields in binary, as the papers' figures show them: `100 011 101`."""
        self.pack(sub_id)
        return (
            f"{sub_id.home:0{self.home_bits}b} {sub_id.number:0{self.number_bits}b} "
            f"{sub_id.attributes:0{self.attribute_bits}b}"
        )


def attribute_bits(schema: Schema, attributes: Iterable[str]) -> int:
    """The bit vector of some attributes: bit i is the i-th attribute of the schema, so that a schema may grow."""
    bits = 0
    for name in attributes:
        bits |= 1 << schema.bit(name)
    return bits
