"""Paper C's subset routing and paper D's z-codes as printed, faults and all: for experiments and tests.

Nothing here runs on a broker. Of the z-codes the corrected ones stand beside them: `schemes.dmm.space` has these in its
own way, and a test compares them. All faults below have a test each.

Paper C: "The ID of every child node in the tree is one Hamming distance away from its parent and has Hamming weight
less by one" (section 3.2), also "with varying length node IDs" (section 3.3).

- Where lengths differ, a neighbour that hosts subsets may have as many set bits as its parent, or more: 101 beside 11.
  It is no child, and the nodes there or only below it are never reached.
- Both examples, figure 2 and event 1001, leave out the node with no set bit. It hosts ids such as 1000000, which is a
  subset of 1100111.
- Figure 2's caption says n = 8, but its event has 7 bits.

The paper leaves it to "a deterministic algorithm" which of several parents hands an event on; a node that none of them
reaches is missed whatever that is, so all parents hand it on here.

Paper D, figures 4 and 5:

- Figure 4 with l + u even: m is a whole number, the lower half ends at it and the upper half restarts at it. The halves
  overlap, so that a subscription for m alone is stored in both, and a range needs more bits than its values.
- Read with the halves parted where line 11 says that the upper one begins (`careless_range`), m is in the upper half
  for subscriptions, and in the lower for events, by line 7: a subscription for m is never found.
- Read with whole numbers only (`halving_ends`), the upper half of two values is both of them, and line 16 never comes
  true.
- A domain of one value has a code of one bit.
- Figure 5 weaves as many bits of each code as the shortest has: a boolean caps the depth, at one bit for each
  attribute; and the code that encloses a range is larger than it need be.

On domains of a power of two values, l + u is odd at every step, and figure 4 is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, floor
from typing import TypeAlias

from meetpoint.overlays.hypercube import Region, are_neighbours

# -- paper C -----------------------------------------------------------------------------------------------------------


def printed_children(node: Region, links: Sequence[Region], with_zero: bool = False) -> list[Region]:
    """Return the children that a node finds. `with_zero`: also the one without set bits, which the examples leave
    out.
    """
    weight = node.bits.bit_count()
    children = [link for link in links if are_neighbours(node, link) and link.bits.bit_count() == weight - 1]
    return children if with_zero else [child for child in children if child.bits]


def printed_reach(root: Region, links: Callable[[Region], Sequence[Region]], with_zero: bool = False) -> list[Region]:
    """Return all nodes that an event comes to, from its rendezvous node, in the order of levels."""
    reached = [root]
    for node in reached:  # grows as we go
        reached += [child for child in printed_children(node, links(node), with_zero) if child not in reached]
    return reached


# -- paper D -----------------------------------------------------------------------------------------------------------


Range: TypeAlias = tuple[int, int]
"""Values from the first to the last."""

_STEPS_MAX = 200
"""Halvings after which a code is taken to go on for ever."""


# -- figure 4 ----------------------------------------------------------------------------------------------------------


def printed_code(lval: int, uval: int, lbnd: int, ubnd: int) -> str:
    """Compute the code by figure 4, line by line."""
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
    """Return the range of a code of figure 4: its l and u after the last bit."""
    low, high = lbnd, ubnd
    for bit in code:
        middle = (low + high) / 2
        if bit == "0":
            high = floor(middle)
        else:
            low = ceil(middle)
    return low, high


def careless_range(code: str, lbnd: int, ubnd: int) -> Range:
    """Return the range with halves that do not overlap, as a careful reader may understand figure 4."""
    low, high = lbnd, ubnd
    for bit in code:
        begin = ceil((low + high) / 2)
        if bit == "0":
            high = begin - 1
        else:
            low = begin
    return low, high


def halving_ends(value: int, lbnd: int, ubnd: int) -> bool:
    """Return whether figure 4 ends for a value, if line 6 divides whole numbers as most languages do."""
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
    """Compute the code by figure 4 with halves that part their range, and none of a single value."""
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
    """Return the range of a code of the corrected figure 4."""
    low, high = lbnd, ubnd
    for bit in code:
        middle = (low + high) // 2
        low, high = (low, middle) if bit == "0" else (middle + 1, high)
    return low, high


# -- figure 5 ----------------------------------------------------------------------------------------------------------


def printed_weave(codes: Sequence[str]) -> str:
    """Weave codes by figure 5, line by line."""
    length = min(map(len, codes))
    return "".join(code[at] for at in range(length) for code in codes)


def corrected_weave(codes: Sequence[str], exhausted: Sequence[bool]) -> str:
    """Weave codes by figure 5 corrected: a dimension of one value misses its turns, and one that is not yet ends the
    code.
    """
    woven = ""
    for at in range(max(map(len, codes), default=0) + 1):
        for code, is_single in zip(codes, exhausted, strict=True):
            if at < len(code):
                woven += code[at]
            elif not is_single:
                return woven
    return woven
