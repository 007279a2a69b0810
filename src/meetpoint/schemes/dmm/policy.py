"""Whether a region that is full is split (paper D, sections 4.1.1 and 5.3): subscription delegation, and its brake.

The paper splits whatever is over a threshold. An entry that meets both halves is then stored twice, so that coarse
subscriptions multiply until the depth limit ends it, on peers that may be no less full: runaway delegation.

`probed` splits a region in two cases:

- It adds next to nothing (`growth`). Fine subscriptions are spread as in the paper, and nothing is asked.
- The fullest of the peers concerned is then a good deal less full than this one is now (`relief`). Those concerned are
  this peer and the two that would hold the halves. So a split never makes the fullest peer fuller.

Deviation: the paper would ask a few random peers and take them for all. We ask the two that matter. A hash has chosen
them, so that they are as random as any two; but what they say is what will be, not an estimate, and it is noticed where
both halves would lie at one peer, which in small networks is common.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from meetpoint.schemes.dmm.settings import DmmSettings
from meetpoint.schemes.dmm.space import Box, Code, Space

__all__ = ["HolderLoad", "SplitCounts", "ask_again_at", "fullest_after", "should_split", "split_counts"]


class HolderLoad(NamedTuple):
    """A peer that holds a region, or would hold it, and how many entries it holds in all its regions."""

    holder: bytes
    load: int


class SplitCounts(NamedTuple):
    """The first regions below one that part its entries, and how many meet each."""

    halves: tuple[Code, Code]
    left: int
    right: int


def split_counts(space: Space, code: Code, boxes: Sequence[Box]) -> SplitCounts | None:
    """How a region's entries part; None where halving never parts them.

    While they all lie in one half it is that half's halves which count: a split that parts nothing may be worth it for
    those that follow, and costs what these cost.
    """
    while (halves := space.children(code)) is not None:
        left, right = [sum([space.meets(half, box) for box in boxes]) for half in halves]
        if left and right:
            return SplitCounts(halves, left, right)
        code = halves[0] if left else halves[1]
    return None


def should_split(
    entries: int,
    left: int,
    right: int,
    here: HolderLoad,
    halves: tuple[HolderLoad, HolderLoad] | None,
    settings: DmmSettings,
) -> bool:
    """Whether a region with so many entries, of which so many meet each of the halves that part them, is to be split.

    `here` is who holds the region, `halves` are those who would hold the halves; None: they have not been asked.
    """
    if settings.delegation == "never" or entries <= settings.threshold:
        return False
    if settings.delegation == "always" or left + right - entries <= settings.growth * entries:
        return True
    if halves is None:
        return False
    return fullest_after(entries, left, right, here, halves) <= (1 - settings.relief) * here.load


def fullest_after(entries: int, left: int, right: int, here: HolderLoad, halves: tuple[HolderLoad, HolderLoad]) -> int:
    """How many entries the fullest of the peers concerned would hold after a split."""
    loads = {seat.holder: seat.load for seat in (*halves, here)}
    loads[here.holder] -= entries
    for seat, part in zip(halves, (left, right), strict=True):
        loads[seat.holder] += part
    return max(loads.values())


def ask_again_at(entries: int) -> int:
    """With how many entries a region asks again that was not split: a quarter more, so that it asks seldom."""
    return entries + max(entries // 4, 1)
