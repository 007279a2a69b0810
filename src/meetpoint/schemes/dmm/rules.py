"""The rules of regions: how they change, as steps on the record of each, and when a region is split. Pure.

The network runs the steps (`regions`, `region_changes`), and a search over all orders of messages, losses and crashes
tests them.

A region is split and merged by the region itself, here called the *parent*, which commands its two halves, the
*children*. Its record is the truth of where it stands, so that the owner of the record after a crash or a handoff
goes on from there:

| state | to walks | what it does |
| --- | --- | --- |
| LEAF, informed | serves | nothing |
| LEAF | serves | dissolves its children: a split was given up, or a merge is done |
| SPLITTING | serves events, refuses changes | preloads its children with its entries, then becomes INTERIOR |
| INTERIOR | interior | opens its children: a split is done, or a merge was given up |
| INTERIOR, informed | interior | nothing |
| MERGING | interior | closes its children and takes their entries, then becomes LEAF |
| EMBRYO, FROZEN | absent | waits: as a child that is not open yet, or is closed |
| GONE | absent | remembers what it was told |

`epoch` counts what a parent began: each split, each merge, each merge that it gave up has its own. All commands of an
epoch are the same kind of thing, and no epoch comes twice, as a state is safe before a command of it is sent. A child
remembers the last `parent_epoch` that it heard of, and takes no command of an earlier one; so a late or repeated
message does nothing. At any time at most one of a parent and its children serves a point:

- A child is opened only by a parent that is INTERIOR, safely. A parent is LEAF only after both children were FROZEN,
  safely, in the same epoch, or before they were ever opened in it.
- A FROZEN child is opened only by a later epoch than it was closed in; one that is LEAF again is closed only so.

**When to split** (paper D, sections 4.1.1 and 5.3): subscription delegation, and its brake. The paper splits whatever
is over a threshold. An entry that meets both halves is then stored twice, so that coarse subscriptions multiply until
the depth limit ends it, on peers that may be no less full: runaway delegation. `probed` splits a region in two cases:

- It adds next to nothing (`growth`). Fine subscriptions are spread as in the paper, and nothing is asked.
- The fullest of the peers concerned is then a good deal less full than this one is now (`relief`). Those concerned are
  this peer and the two that would own the halves. So a split never makes the fullest peer fuller.

Deviation: the paper would ask a few random peers and take them for all. We ask the two that matter. A hash has chosen
them, so that they are as random as any two; but what they say is what will be, not an estimate, and it is noticed where
both halves would lie at one peer, which in small networks is common.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from meetpoint.schemes.dmm.space import Box, Code, Space

__all__ = [
    "EPOCH_MAX",
    "ROOT_RECORD",
    "DmmSettings",
    "HolderLoad",
    "RegionRecord",
    "RegionState",
    "SplitCounts",
    "Verdict",
    "ask_again_at",
    "begin_merge",
    "begin_split",
    "close",
    "dissolve",
    "finish_merge",
    "finish_split",
    "fullest_after",
    "give_up",
    "inform_children",
    "open_",
    "preload",
    "reopen",
    "should_split",
    "split_counts",
    "with_parent_epoch",
]


class RegionState(StrEnum):
    """Where a region stands."""

    LEAF = "leaf"
    SPLITTING = "splitting"
    INTERIOR = "interior"
    MERGING = "merging"
    EMBRYO = "embryo"
    FROZEN = "frozen"
    GONE = "gone"


class Verdict(StrEnum):
    """The answer of a region to a walk."""

    SERVED = "served"
    INTERIOR = "interior"
    ABSENT = "absent"
    BUSY = "busy"


class RegionRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The record of a region."""

    state: RegionState
    epoch: int = 0
    """As a parent: the last change that it began."""
    parent_epoch: int = 0
    """As a child: the last epoch of its parent that it heard of."""
    is_informed: bool = True
    """Whether its children know where it stands."""

    @property
    def serves(self) -> bool:
        """Return whether events are matched here."""
        return self.state in (RegionState.LEAF, RegionState.SPLITTING)

    @property
    def is_split(self) -> bool:
        """Return whether walks go on to its children."""
        return self.state in (RegionState.INTERIOR, RegionState.MERGING)

    @property
    def is_at_rest(self) -> bool:
        """Return whether it is a leaf that nothing happens to."""
        return self.state is RegionState.LEAF and self.is_informed


EPOCH_MAX: Final = 1 << 48
"""A bound that no region reaches."""
ROOT_RECORD: Final = RegionRecord(RegionState.LEAF)
"""The record of the root before anything was written."""

# -- as a parent -------------------------------------------------------------------------------------------------------


def begin_split(record: RegionRecord) -> RegionRecord:
    """Begin to split a leaf at rest."""
    assert record.is_at_rest
    return msgspec.structs.replace(record, state=RegionState.SPLITTING, epoch=record.epoch + 1)


def finish_split(record: RegionRecord) -> RegionRecord:
    """Finish a split: both children have all entries, safely."""
    assert record.state is RegionState.SPLITTING
    return msgspec.structs.replace(record, state=RegionState.INTERIOR, is_informed=False)


def begin_merge(record: RegionRecord) -> RegionRecord:
    """Begin to make a region a leaf again whose children are open and small."""
    assert record.state is RegionState.INTERIOR
    assert record.is_informed
    return msgspec.structs.replace(record, state=RegionState.MERGING, epoch=record.epoch + 1)


def finish_merge(record: RegionRecord) -> RegionRecord:
    """Finish a merge: both children are closed, and all their entries are here, safely."""
    assert record.state is RegionState.MERGING
    return msgspec.structs.replace(record, state=RegionState.LEAF, is_informed=False)


def give_up(record: RegionRecord, parent_epoch: int = 0) -> RegionRecord:
    """Give up a split or a merge that cannot be finished: back to what was before.

    `parent_epoch` is a later epoch that a child has heard of, from a former life of this region, of which no record was
    left.
    """
    epoch = max(record.epoch, parent_epoch)
    if record.state is RegionState.SPLITTING:
        return msgspec.structs.replace(record, state=RegionState.LEAF, epoch=epoch, is_informed=False)
    assert record.state is RegionState.MERGING
    return msgspec.structs.replace(record, state=RegionState.INTERIOR, epoch=epoch + 1, is_informed=False)


def inform_children(record: RegionRecord) -> RegionRecord:
    """Note that both children know that they are open, or dissolved."""
    assert record.state in (RegionState.LEAF, RegionState.INTERIOR)
    return msgspec.structs.replace(record, is_informed=True)


def reopen(record: RegionRecord) -> RegionRecord:
    """Open both children again, as one is lost with all copies: those that are open do not mind."""
    assert record.state is RegionState.INTERIOR
    return msgspec.structs.replace(record, epoch=record.epoch + 1, is_informed=False)


def with_parent_epoch(record: RegionRecord, parent_epoch: int) -> RegionRecord:
    """Return the record of a region whose own parent has told it something."""
    return msgspec.structs.replace(record, parent_epoch=parent_epoch)


# -- as a child --------------------------------------------------------------------------------------------------------
# Each step takes what is kept, None where nothing is, and says what is kept then; None where it is not obeyed.


def preload(record: RegionRecord | None, epoch: int) -> RegionRecord | None:
    """Take entries. What lay in an embryo or a closed region of an earlier epoch is to be forgotten."""
    if record is None:
        return RegionRecord(RegionState.EMBRYO, parent_epoch=epoch)
    if record.state in (RegionState.EMBRYO, RegionState.FROZEN, RegionState.GONE) and epoch > record.parent_epoch:
        return msgspec.structs.replace(record, state=RegionState.EMBRYO, parent_epoch=epoch, is_informed=True)
    return record if record.state is not RegionState.GONE and epoch == record.parent_epoch else None


def open_(record: RegionRecord | None, epoch: int) -> RegionRecord | None:
    """Serve. A region that is lost, with all copies, begins anew without entries."""
    if record is None:
        return RegionRecord(RegionState.LEAF, parent_epoch=epoch)
    if record.state is RegionState.GONE or epoch < record.parent_epoch:
        return None
    if record.state in (RegionState.EMBRYO, RegionState.FROZEN):
        return msgspec.structs.replace(record, state=RegionState.LEAF, parent_epoch=epoch, is_informed=True)
    return msgspec.structs.replace(record, parent_epoch=epoch)


def close(record: RegionRecord | None, epoch: int) -> RegionRecord | None:
    """Serve no longer: as a leaf at rest, or as a region that is closed already."""
    if record is None or epoch < record.parent_epoch or not (record.is_at_rest or record.state is RegionState.FROZEN):
        return None
    if record.state is RegionState.LEAF and epoch == record.parent_epoch:
        return None  # it was opened in this epoch: what comes now is none of a parent's
    return msgspec.structs.replace(record, state=RegionState.FROZEN, parent_epoch=epoch)


def dissolve(record: RegionRecord | None, epoch: int) -> RegionRecord | None:
    """Be gone. A region that is open is none that its parent could mean."""
    if record is None:
        return RegionRecord(RegionState.GONE, parent_epoch=epoch)
    if epoch < record.parent_epoch or record.state not in (RegionState.EMBRYO, RegionState.FROZEN, RegionState.GONE):
        return None
    return msgspec.structs.replace(record, state=RegionState.GONE, parent_epoch=epoch, is_informed=True)


# -- whether to split --------------------------------------------------------------------------------------------------


class HolderLoad(NamedTuple):
    """A peer that owns a region, or would own it, and how many entries it holds in all its regions."""

    holder: bytes
    load: int


class SplitCounts(NamedTuple):
    """The first regions below another that part its entries, and how many meet each."""

    halves: tuple[Code, Code]
    left: int
    right: int


def split_counts(space: Space, code: Code, boxes: Sequence[Box]) -> SplitCounts | None:
    """Return how a region's entries part; None where halving never parts them.

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
    """Return whether to split a region with so many entries, of which so many meet each half.

    `here` is the owner of the region, `halves` are those who would own the halves; None: they were not asked.
    """
    if settings.delegation == "never" or entries <= settings.threshold:
        return False
    if settings.delegation == "always" or left + right - entries <= settings.growth * entries:
        return True
    if halves is None:
        return False
    return fullest_after(entries, left, right, here, halves) <= (1 - settings.relief) * here.load


def fullest_after(entries: int, left: int, right: int, here: HolderLoad, halves: tuple[HolderLoad, HolderLoad]) -> int:
    """Return how many entries the fullest of the peers concerned would hold after a split."""
    loads = {seat.holder: seat.load for seat in (*halves, here)}
    loads[here.holder] -= entries
    for seat, part in zip(halves, (left, right), strict=True):
        loads[seat.holder] += part
    return max(loads.values())


def ask_again_at(entries: int) -> int:
    """Return with how many entries a region asks again that was not split: a quarter more, so that it asks seldom."""
    return entries + max(entries // 4, 1)


# -- settings ----------------------------------------------------------------------------------------------------------


class DmmSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of `dmm`, the same for all nodes of a network."""

    schema: str = ""
    """The attributes that are dimensions, as YAML; without any there is one region, which cannot be split."""
    threshold: Annotated[int, msgspec.Meta(ge=1)] = 100
    """A region with more entries is split, where that helps."""
    depth: Annotated[int, msgspec.Meta(ge=0, le=64)] = 32
    """How often the space is halved at most."""
    delegation: Literal["probed", "always", "never"] = "probed"
    """Whether regions are split: where the peers that are probed have room, whenever they are full, or never."""
    growth: Annotated[float, msgspec.Meta(ge=0)] = 0.125
    """A split that adds no more than this share of a region's entries needs no room; only for `probed`."""
    relief: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.2
    """How much less full than this peer the fullest of those concerned must be after any other split."""
    coverage: Literal["covering", "uncovered"] = "covering"
    """Whether what another subscription of the same home covers is left out of the tree."""
    delivery: Literal["tree", "unicast"] = "tree"
    """How a leaf brings an event to many homes."""
