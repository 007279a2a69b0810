"""How regions change, as steps on what is kept of each. Pure: the network runs them (`regions`, `driving`), and a
search over all orders of messages, losses and crashes tests them.

A region is split and merged by the region itself, here called the *parent*, which commands its two halves, the
*children*. Its record is the truth of where it stands, so that whoever holds the record after a crash or a handover
goes on from there:

| state | to walks | what it does |
| --- | --- | --- |
| LEAF, settled | serves | nothing |
| LEAF | serves | dissolves its children: a split was given up, or a merge is done |
| SPLITTING | serves events, refuses changes | sows its entries in its children, then becomes INTERIOR |
| INTERIOR | interior | opens its children: a split is done, or a merge was given up |
| INTERIOR, settled | interior | nothing |
| MERGING | interior | closes its children and takes their entries, then becomes LEAF |
| EMBRYO, FROZEN | absent | waits: as a child that is not open yet, or is closed |
| GONE | absent | remembers what it was told |

`turn` counts what a parent began: each split, each merge, each merge that it gave up has its own. All commands of a
turn are the same kind of thing, and no turn comes twice, as a state is safe before a command of it is sent. A child
remembers the last turn it was `told`, and takes no command of an earlier one; so a late or repeated message does
nothing. At any time at most one of a parent and its children serves a point:

- A child is opened only by a parent that is INTERIOR, safely. A parent is LEAF only after both children were FROZEN,
  safely, in the same turn, or before they were ever opened in it.
- A FROZEN child is opened only by a later turn than it was closed in; one that is LEAF again is closed only so.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

__all__ = [
    "EPOCH_MAX",
    "ROOT_RECORD",
    "RegionRecord",
    "RegionState",
    "begin_merge",
    "begin_split",
    "close",
    "dissolve",
    "finish_merge",
    "finish_split",
    "give_up",
    "informed",
    "open_",
    "preload",
    "reopen",
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


class RegionRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a region."""

    state: RegionState
    turn: int = 0
    """As a parent: what it began last."""
    told: int = 0
    """As a child: the last turn of its parent that it heard of."""
    settled: bool = True
    """Whether its children know where it stands."""

    @property
    def serves(self) -> bool:
        """Whether events are matched here."""
        return self.state in (RegionState.LEAF, RegionState.SPLITTING)

    @property
    def is_split(self) -> bool:
        """Whether walks go on to its children."""
        return self.state in (RegionState.INTERIOR, RegionState.MERGING)

    @property
    def is_at_rest(self) -> bool:
        """Whether it is a leaf that nothing happens to."""
        return self.state is RegionState.LEAF and self.settled


EPOCH_MAX: Final = 1 << 48
"""No region has so many."""
ROOT_RECORD: Final = RegionRecord(RegionState.LEAF)
"""The root before anything was kept of it."""

# -- as a parent -------------------------------------------------------------------------------------------------------


def begin_split(kept: RegionRecord) -> RegionRecord:
    """A leaf at rest is to be split."""
    assert kept.is_at_rest
    return msgspec.structs.replace(kept, state=RegionState.SPLITTING, turn=kept.turn + 1)


def finish_split(kept: RegionRecord) -> RegionRecord:
    """Both children have all entries, safely."""
    assert kept.state is RegionState.SPLITTING
    return msgspec.structs.replace(kept, state=RegionState.INTERIOR, settled=False)


def begin_merge(kept: RegionRecord) -> RegionRecord:
    """A region whose children are open and small is to be a leaf again."""
    assert kept.state is RegionState.INTERIOR
    assert kept.settled
    return msgspec.structs.replace(kept, state=RegionState.MERGING, turn=kept.turn + 1)


def finish_merge(kept: RegionRecord) -> RegionRecord:
    """Both children are closed, and all their entries are here, safely."""
    assert kept.state is RegionState.MERGING
    return msgspec.structs.replace(kept, state=RegionState.LEAF, settled=False)


def give_up(kept: RegionRecord, told: int = 0) -> RegionRecord:
    """A split or a merge cannot be finished: back to what was before. `told`: a later turn that a child has heard of,
    from a former life of this region, of which nothing was kept.
    """
    turn = max(kept.turn, told)
    if kept.state is RegionState.SPLITTING:
        return msgspec.structs.replace(kept, state=RegionState.LEAF, turn=turn, settled=False)
    assert kept.state is RegionState.MERGING
    return msgspec.structs.replace(kept, state=RegionState.INTERIOR, turn=turn + 1, settled=False)


def informed(kept: RegionRecord) -> RegionRecord:
    """Both children know that they are open, or dissolved."""
    assert kept.state in (RegionState.LEAF, RegionState.INTERIOR)
    return msgspec.structs.replace(kept, settled=True)


def reopen(kept: RegionRecord) -> RegionRecord:
    """A child is lost, with all copies: open both again, as those that are open do not mind."""
    assert kept.state is RegionState.INTERIOR
    return msgspec.structs.replace(kept, turn=kept.turn + 1, settled=False)


def with_parent_epoch(kept: RegionRecord, told: int) -> RegionRecord:
    """The same for a region whose own parent has told it something."""
    return msgspec.structs.replace(kept, told=told)


# -- as a child --------------------------------------------------------------------------------------------------------
# Each step takes what is kept, None where nothing is, and says what is kept then; None where it is not obeyed.


def preload(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Entries come. What lay in an embryo or a closed region of an earlier turn is to be forgotten."""
    if kept is None:
        return RegionRecord(RegionState.EMBRYO, told=turn)
    if kept.state in (RegionState.EMBRYO, RegionState.FROZEN, RegionState.GONE) and turn > kept.told:
        return msgspec.structs.replace(kept, state=RegionState.EMBRYO, told=turn, settled=True)
    return kept if kept.state is not RegionState.GONE and turn == kept.told else None


def open_(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Serve. What is lost, with all copies, begins anew without entries."""
    if kept is None:
        return RegionRecord(RegionState.LEAF, told=turn)
    if kept.state is RegionState.GONE or turn < kept.told:
        return None
    if kept.state in (RegionState.EMBRYO, RegionState.FROZEN):
        return msgspec.structs.replace(kept, state=RegionState.LEAF, told=turn, settled=True)
    return msgspec.structs.replace(kept, told=turn)


def close(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Serve no longer: as a leaf at rest, or as one that is closed already."""
    if kept is None or turn < kept.told or not (kept.is_at_rest or kept.state is RegionState.FROZEN):
        return None
    if kept.state is RegionState.LEAF and turn == kept.told:
        return None  # it was opened in this turn: what comes now is none of a parent's
    return msgspec.structs.replace(kept, state=RegionState.FROZEN, told=turn)


def dissolve(kept: RegionRecord | None, turn: int) -> RegionRecord | None:
    """Be gone. A region that is open is none that its parent could mean."""
    if kept is None:
        return RegionRecord(RegionState.GONE, told=turn)
    if turn < kept.told or kept.state not in (RegionState.EMBRYO, RegionState.FROZEN, RegionState.GONE):
        return None
    return msgspec.structs.replace(kept, state=RegionState.GONE, told=turn, settled=True)
