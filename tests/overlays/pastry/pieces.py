"""The pieces of a search of Pastry: nodes, messages, views and results; see `searching`."""

from __future__ import annotations

from typing import NamedTuple

from meetpoint.overlays.pastry.rules import LEFT, RIGHT, BothSides, PastryState, PeerStatus, Side, is_ready

__all__ = [
    "ABSENT", "DEAD", "SIDES", "Found", "Letter", "Local", "Network", "Node", "View",
    "known_to", "minus", "placed", "plus", "spread", "story_of", "view_of",
]  # fmt: skip

SIDES: tuple[Side, Side] = (LEFT, RIGHT)
ABSENT, DEAD = 0, 1
"""Instead of a node's number: it has not begun, or has crashed."""


class Node(NamedTuple):
    """A node, and what only the search knows of it."""

    state: PastryState
    former: tuple[bytes, ...] = ()
    """The node that it knows from a former life that has ended."""


class Letter(NamedTuple):
    """A message under way."""

    kind: str
    source: int
    target: int
    status: PeerStatus | None = None
    leaves: tuple[bytes, ...] = ()
    sides: BothSides = (False, False)


Network = tuple[tuple[int, ...], tuple[int, ...]]
"""The number of each node by its place on the circle, and the numbers of the letters under way, in order."""


class View(NamedTuple):
    """The view of a node for the invariant."""

    ready: bool
    left: bytes
    right: bytes
    leaves: tuple[bytes, ...]


class Found(NamedTuple):
    """The result of a search: how much there is, and the first violation, with the path to it."""

    states: int
    steps: int
    wrong: str | None
    story: tuple[str, ...]


def spread(count: int) -> tuple[bytes, ...]:
    """Ids at equal distances on a circle of 256."""
    return tuple(bytes([256 * n // count]) for n in range(count))


class Local(NamedTuple):
    """The steps that a node may take by itself, in whatever network it is."""

    sends: tuple[tuple[str, int], ...]
    steps: tuple[tuple[str, int], ...]
    endings: tuple[tuple[str, Side, int, int], ...]
    """Grants that may end: on which side, to the node at which place, and the node after it."""
    losses: tuple[tuple[str, int, int], ...]
    """Nodes that it may find dead, by their place."""
    may_begin_again: bool


def view_of(state: PastryState) -> View:
    """Return the view of a node."""
    return View(is_ready(state), state.near[LEFT], state.near[RIGHT], state.leaves)


def known_to(state: PastryState) -> frozenset[bytes]:
    """Return the nodes that a node holds for something."""
    return frozenset(
        (*state.leaves, *state.unprobed, *state.joiners, *state.grants[LEFT], *state.grants[RIGHT], *state.near)
    )


def placed(nodes: tuple[int, ...], place: int, number: int) -> tuple[int, ...]:
    """Nodes with another one at a place."""
    return (*nodes[:place], number, *nodes[place + 1 :])


def plus(letters: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Letters with one more under way."""
    return letters if number in letters else tuple(sorted((*letters, number)))


def minus(letters: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Letters without one."""
    return tuple(each for each in letters if each != number)


def story_of(came_from: dict[Network, tuple[Network, str] | None], network: Network) -> tuple[str, ...]:
    """How it came to a network."""
    told: list[str] = []
    while (link := came_from[network]) is not None:
        network, what = link
        told.append(what)
    return tuple(reversed(told))
