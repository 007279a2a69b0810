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
    "ROOT_KEPT",
    "TURN_MAX",
    "Kept",
    "State",
    "begin_merge",
    "begin_split",
    "close",
    "dissolve",
    "finish_merge",
    "finish_split",
    "give_up",
    "heard",
    "open_",
    "reopen",
    "settle",
    "sow",
]


class State(StrEnum):
    """Where a region stands."""

    LEAF = "leaf"
    SPLITTING = "splitting"
    INTERIOR = "interior"
    MERGING = "merging"
    EMBRYO = "embryo"
    FROZEN = "frozen"
    GONE = "gone"


class Kept(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a region."""

    state: State
    turn: int = 0
    """As a parent: what it began last."""
    told: int = 0
    """As a child: the last turn of its parent that it heard of."""
    settled: bool = True
    """Whether its children know where it stands."""

    @property
    def serves(self) -> bool:
        """Whether events are matched here."""
        return self.state in (State.LEAF, State.SPLITTING)

    @property
    def is_split(self) -> bool:
        """Whether walks go on to its children."""
        return self.state in (State.INTERIOR, State.MERGING)

    @property
    def is_at_rest(self) -> bool:
        """Whether it is a leaf that nothing happens to."""
        return self.state is State.LEAF and self.settled


TURN_MAX: Final = 1 << 48
"""No region has so many."""
ROOT_KEPT: Final = Kept(State.LEAF)
"""The root before anything was kept of it."""

# -- as a parent -------------------------------------------------------------------------------------------------------


def begin_split(kept: Kept) -> Kept:
    """A leaf at rest is to be split."""
    assert kept.is_at_rest
    return msgspec.structs.replace(kept, state=State.SPLITTING, turn=kept.turn + 1)


def finish_split(kept: Kept) -> Kept:
    """Both children have all entries, safely."""
    assert kept.state is State.SPLITTING
    return msgspec.structs.replace(kept, state=State.INTERIOR, settled=False)


def begin_merge(kept: Kept) -> Kept:
    """A region whose children are open and small is to be a leaf again."""
    assert kept.state is State.INTERIOR
    assert kept.settled
    return msgspec.structs.replace(kept, state=State.MERGING, turn=kept.turn + 1)


def finish_merge(kept: Kept) -> Kept:
    """Both children are closed, and all their entries are here, safely."""
    assert kept.state is State.MERGING
    return msgspec.structs.replace(kept, state=State.LEAF, settled=False)


def give_up(kept: Kept, told: int = 0) -> Kept:
    """A split or a merge cannot be finished: back to what was before. `told`: a later turn that a child has heard of,
    from a former life of this region, of which nothing was kept.
    """
    turn = max(kept.turn, told)
    if kept.state is State.SPLITTING:
        return msgspec.structs.replace(kept, state=State.LEAF, turn=turn, settled=False)
    assert kept.state is State.MERGING
    return msgspec.structs.replace(kept, state=State.INTERIOR, turn=turn + 1, settled=False)


def settle(kept: Kept) -> Kept:
    """Both children know that they are open, or dissolved."""
    assert kept.state in (State.LEAF, State.INTERIOR)
    return msgspec.structs.replace(kept, settled=True)


def reopen(kept: Kept) -> Kept:
    """A child is lost, with all copies: open both again, as those that are open do not mind."""
    assert kept.state is State.INTERIOR
    return msgspec.structs.replace(kept, turn=kept.turn + 1, settled=False)


def heard(kept: Kept, told: int) -> Kept:
    """The same for a region whose own parent has told it something."""
    return msgspec.structs.replace(kept, told=told)


# -- as a child --------------------------------------------------------------------------------------------------------
# Each step takes what is kept, None where nothing is, and says what is kept then; None where it is not obeyed.


def sow(kept: Kept | None, turn: int) -> Kept | None:
    """Entries come. What lay in an embryo or a closed region of an earlier turn is to be forgotten."""
    if kept is None:
        return Kept(State.EMBRYO, told=turn)
    if kept.state in (State.EMBRYO, State.FROZEN, State.GONE) and turn > kept.told:
        return msgspec.structs.replace(kept, state=State.EMBRYO, told=turn, settled=True)
    return kept if kept.state is not State.GONE and turn == kept.told else None


def open_(kept: Kept | None, turn: int) -> Kept | None:
    """Serve. What is lost, with all copies, begins anew without entries."""
    if kept is None:
        return Kept(State.LEAF, told=turn)
    if kept.state is State.GONE or turn < kept.told:
        return None
    if kept.state in (State.EMBRYO, State.FROZEN):
        return msgspec.structs.replace(kept, state=State.LEAF, told=turn, settled=True)
    return msgspec.structs.replace(kept, told=turn)


def close(kept: Kept | None, turn: int) -> Kept | None:
    """Serve no longer: as a leaf at rest, or as one that is closed already."""
    if kept is None or turn < kept.told or not (kept.is_at_rest or kept.state is State.FROZEN):
        return None
    if kept.state is State.LEAF and turn == kept.told:
        return None  # it was opened in this turn: what comes now is none of a parent's
    return msgspec.structs.replace(kept, state=State.FROZEN, told=turn)


def dissolve(kept: Kept | None, turn: int) -> Kept | None:
    """Be gone. A region that is open is none that its parent could mean."""
    if kept is None:
        return Kept(State.GONE, told=turn)
    if turn < kept.told or kept.state not in (State.EMBRYO, State.FROZEN, State.GONE):
        return None
    return msgspec.structs.replace(kept, state=State.GONE, told=turn, settled=True)
