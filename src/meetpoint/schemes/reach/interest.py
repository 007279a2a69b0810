"""Quenching: an event goes down only where somebody below is interested (paper C, section 4.5). Pure: one node's part.

A neighbour is *below* a node if the one bit in which they differ is set here and not there; the other way round it is
*above*. Going down never leads round, whatever the lengths. A node *wants* events if it has subscriptions or one below
wants them, and says so to all that are above. An event's duty is not handed to a neighbour that does not want it.

It never costs a match:

- What is not known counts as wanted: of a neighbour that is new, that has another host, or that has not answered yet.
- A subscription is acknowledged only when the node is `settled`: all above know, and say so only when they are settled
  themselves. So whoever may meet an event published later knows by then.
- What a node says is numbered, and what comes late is dropped, so that "not wanted" never outlives "wanted".

Splits and merges do not break it. A node's `no` says that no id among its own has a subset with a subscription, and
that is as true of other nodes' ids after a change as before; the node that results is new to its neighbours.

Deviation: the paper's bits are never taken back, and race with publishing. Here a node that wants events no longer says
so, and those above may then do the same. As nothing leads round, it comes to rest.

Messages may be lost, doubled and late: `again` gives what is to be repeated. A node that begins anew takes a first
number above all it had; what a former host of a region said is not passed on to here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from meetpoint.overlays.hypercube import Region, are_neighbours

__all__ = ["Ack", "Interest", "Said", "Tell", "is_below"]


class Tell(NamedTuple):
    """To one above: whether events are wanted here."""

    to: Region
    number: int
    wanted: bool


class Ack(NamedTuple):
    """To one below: what it said is known, here and, where it wants events, all the way up."""

    to: Region
    number: int


Said: TypeAlias = Tell | Ack


def is_below(lower: Region, upper: Region) -> bool:
    """Whether the one bit in which two neighbours differ is set in the second."""
    differing = (lower.bits ^ upper.bits) & lower.mask & upper.mask
    return are_neighbours(lower, upper) and upper.bits & differing != 0


class Interest:
    """What one node knows of who wants events."""

    def __init__(self, me: Region, links: Iterable[Region], number: int = 0) -> None:
        self.me = me
        self.held = 0
        """Subscriptions here, also those that are not acknowledged yet."""
        self.number = number
        self._above: set[Region] = set()
        self._unaware: set[Region] = set()  # above, and has not acknowledged the last number
        self._below: dict[Region, tuple[int, bool]] = {}  # what was said last; nothing yet: -1, wanted
        self._owed: dict[Region, int] = {}  # below, and to be acknowledged once settled
        self._set_links(links)
        self._said = self.wanted

    @property
    def wanted(self) -> bool:
        """Whether events are wanted here or below."""
        return self.held > 0 or any(wanted for _, wanted in self._below.values())

    @property
    def settled(self) -> bool:
        """Whether all above know what was said last: then subscriptions that were held by then are safe."""
        return not self._unaware

    def wants(self, link: Region) -> bool:
        """Whether an event is to be handed to a neighbour."""
        said = self._below.get(link)
        return said is None or said[1]

    # -- what may happen -----------------------------------------------------------------------------------------------

    def hold(self, count: int) -> list[Said]:
        """So many subscriptions are here now."""
        assert count >= 0
        self.held = count
        return self._speak()

    def heard(self, tell: Tell, link: Region) -> list[Said]:
        """One below says whether it wants events."""
        known = self._below.get(link)
        if known is None or tell.number < known[0]:
            return []
        self._below[link] = tell.number, tell.wanted
        self._owed[link] = tell.number
        said = self._speak()
        if not tell.wanted and link in self._owed:  # nobody waits for that to be known further up
            del self._owed[link]
            said.append(Ack(link, tell.number))
        return said

    def acknowledged(self, ack: Ack, link: Region) -> list[Said]:
        """One above knows."""
        if ack.number == self.number:
            self._unaware.discard(link)
        return self._pay()

    def relink(self, me: Region, links: Iterable[Region], held: int) -> list[Said]:
        """The node's region or its neighbours are others now. With another region it is new to all its neighbours.

        `held` comes with it, and not after it: what a half has brought along must not be denied even for a moment.
        """
        self.held = held
        if me != self.me:
            self.me = me
            self._above.clear()
            self._owed.clear()
        fresh = self._set_links(links)
        said = self._speak()
        told = {each.to for each in said if isinstance(each, Tell)}
        return said + [Tell(link, self.number, self._said) for link in sorted(fresh - told)]

    def forget(self, link: Region) -> list[Said]:
        """A neighbour's region has another host: what that knows, and what the former said, counts no longer."""
        if link in self._below:
            self._below[link] = (-1, True)
            self._owed.pop(link, None)
            return self._speak()
        if link in self._above:
            self._unaware.add(link)
            return [Tell(link, self.number, self._said)]
        return []

    def again(self) -> list[Said]:
        """What is to be said again, as no answer has come."""
        return [Tell(link, self.number, self._said) for link in sorted(self._unaware)]

    # -- within --------------------------------------------------------------------------------------------------------

    def _set_links(self, links: Iterable[Region]) -> set[Region]:
        """Those above that are new."""
        near = list(links)
        above = {link for link in near if is_below(self.me, link)}
        below = {link for link in near if is_below(link, self.me)}
        fresh = above - self._above
        self._above = above
        self._unaware = (self._unaware & above) | fresh
        self._below = {link: self._below.get(link, (-1, True)) for link in sorted(below)}
        self._owed = {link: number for link, number in self._owed.items() if link in below}
        return fresh

    def _speak(self) -> list[Said]:
        """Tell all above if it has changed whether events are wanted, and acknowledge what may be."""
        said: list[Said] = []
        if self._said != self.wanted:
            self._said = self.wanted
            self.number += 1
            self._unaware = set(self._above)
            said += [Tell(link, self.number, self._said) for link in sorted(self._above)]
        return said + self._pay()

    def _pay(self) -> list[Said]:
        if not self.settled:
            return []
        owed, self._owed = self._owed, {}
        return [Ack(link, number) for link, number in owed.items()]
