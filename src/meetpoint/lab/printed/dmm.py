"""Paper D's figures 4 and 5 as printed, faults and all, and the corrected ones beside them: for experiments and tests.

Nothing here runs on a broker: `space` has the corrected codes in its own way, and a test that they are the same.

What goes wrong, each of which has a test:

- Figure 4 with l + u even: m is a whole number, the lower half ends at it and the upper half restarts at it. The halves
  overlap, so that what asks for m alone is stored in both, and a range needs more bits than its values.
- Read with the halves parted where line 11 says that the upper one begins (`careless_range`), m is in the upper half
  for subscriptions, and in the lower for events, by line 7: what asks for m is never found.
- Read with whole numbers only (`halving_ends`), the upper half of two values is both of them, and line 16 never comes
  true.
- A domain of one value has a code of one bit.
- Figure 5 weaves as many bits of each code as the shortest has: a boolean caps the depth, at one bit for each
  attribute; and what encloses a range is larger than it need be.

On domains of a power of two values, l + u is odd at every step, and figure 4 is right.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import TypeAlias

__all__ = [
    "careless_range",
    "corrected_code",
    "corrected_range",
    "corrected_weave",
    "halving_ends",
    "printed_code",
    "printed_range",
    "printed_weave",
]

Range: TypeAlias = tuple[int, int]
"""Values from the first to the last."""

_STEPS_MAX = 200
"""Halvings after which one that goes on is taken to go on for ever."""


# -- figure 4 ----------------------------------------------------------------------------------------------------------


def printed_code(lval: int, uval: int, lbnd: int, ubnd: int) -> str:
    """Figure 4, line by line."""
    low, high = lbnd, ubnd
    code = ""
    while True:
        middle = (low + high) / 2
        if lval <= middle and uval <= middle:
            high = floor(middle)
            code += "0"
        elif lval > middle and uval > middle:
            low = ceil(middle)
            code += "1"
        else:
            return code
        if low == high:
            return code


def printed_range(code: str, lbnd: int, ubnd: int) -> Range:
    """What a code of figure 4 stands for: its l and u after the last bit."""
    low, high = lbnd, ubnd
    for bit in code:
        middle = (low + high) / 2
        if bit == "0":
            high = floor(middle)
        else:
            low = ceil(middle)
    return low, high


def careless_range(code: str, lbnd: int, ubnd: int) -> Range:
    """The same, with the lower half ending before the upper one begins: what one who wants no overlap may read."""
    low, high = lbnd, ubnd
    for bit in code:
        begin = ceil((low + high) / 2)
        if bit == "0":
            high = begin - 1
        else:
            low = begin
    return low, high


def halving_ends(value: int, lbnd: int, ubnd: int) -> bool:
    """Whether figure 4 ends for a value, if line 6 divides whole numbers as most languages do."""
    low, high = lbnd, ubnd
    for _ in range(_STEPS_MAX):
        middle = (low + high) // 2
        if value <= middle:
            high = middle
        else:
            low = middle
        if low == high:
            return True
    return False


def corrected_code(lval: int, uval: int, lbnd: int, ubnd: int) -> str:
    """Figure 4 with halves that part their range, and none of a single value."""
    low, high = lbnd, ubnd
    code = ""
    while low < high:
        middle = (low + high) // 2
        if uval <= middle:
            high = middle
            code += "0"
        elif lval > middle:
            low = middle + 1
            code += "1"
        else:
            break
    return code


def corrected_range(code: str, lbnd: int, ubnd: int) -> Range:
    """What a code of the corrected figure 4 stands for."""
    low, high = lbnd, ubnd
    for bit in code:
        middle = (low + high) // 2
        low, high = (low, middle) if bit == "0" else (middle + 1, high)
    return low, high


# -- figure 5 ----------------------------------------------------------------------------------------------------------


def printed_weave(codes: Sequence[str]) -> str:
    """Figure 5, line by line."""
    length = min(map(len, codes))
    return "".join(code[at] for at in range(length) for code in codes)


def corrected_weave(codes: Sequence[str], exhausted: Sequence[bool]) -> str:
    """Figure 5, but a dimension that is down to one value misses its turns, and one that is not yet ends the code."""
    woven = ""
    for at in range(max(map(len, codes), default=0) + 1):
        for code, is_single in zip(codes, exhausted, strict=True):
            if at < len(code):
                woven += code[at]
            elif not is_single:
                return woven
    return woven
