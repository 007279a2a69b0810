"""Which home answers for a key: at every moment at most one, whatever the overlay believes.

An overlay leads a key to whoever seems responsible now; under churn two nodes may both seem so, or the one that does
has nothing of what was placed there. Custody is the truth behind it. Each home holds arcs of the circle, in a record
that is safe like all its records, and arcs change hands only by agreement of the two homes concerned:

- Founders begin with the arcs between them, or those that the overlay names.
- A home that comes later *seeks* its place (`seeking`). A home that is to end has another *take* all it holds. Where
  the overlay says which keys are whose, what a home holds follows it (`following`).
- Who gives an arc writes so on two disks before anyone hears of it, and answers for it no longer. Who gets it pulls
  what was placed there, and answers for it once all is safe. Then the giver forgets it (`handing`).

So a node that is reached for a key either holds it, with everything that was ever placed there, or says that it does
not, and whoever asked tries another. A crash delays; it never gives a wrong answer. Between giving and getting nobody
answers for the arc: questions wait.

Should every copy of a home be lost, nobody holds its arcs. When the home, or a new one in its place, has asked all
others twice, and nothing changed between, it takes the gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId, Key, NodeId, home_of
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Places
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.dissemination.home_queries import HomeQueries
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.handoff import Handoff
from meetpoint.placement.ownership.key_range import KeyRange, arc_of, founding_arcs, without
from meetpoint.placement.ownership.owned_ranges import OwnedRanges, cut
from meetpoint.placement.ownership.range_claim import RangeClaims
from meetpoint.placement.ownership.range_store import PLACED, RangeStore, StoredRanges

__all__ = ["PLACED", "Ownership", "RangeStore"]

GIVEN_MAX: Final = 4
"""How many arcs of a home may be on their way to others, of those that are given while it goes on."""


class Ownership:
    """The arcs of the homes that this node hosts, and what is placed there.

    `places`: where the overlay says which keys are whose; else a home's place follows from its id.
    """

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        hosting: HomeManager,
        homes: HomeQueries,
        keeping: RangeStore,
        places: Places | None = None,
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._keeping = keeping
        self._places = places
        self._founding: dict[bytes, tuple[KeyRange, ...]] = {}
        self._kept = StoredRanges(services, hosting, keeping)
        self._handing = Handoff(services, settings, hosting, homes, self._kept, self._pulled_in_vain)
        self._seeking = RangeClaims(
            services, settings, hosting, homes, self._kept, self._handing, by_place=places is None
        )  # fmt: skip
        self.holdings = self._kept.holdings
        self.entries = self._kept.entries

    def found(self, homes: Sequence[HomeId]) -> None:
        """The network begins with these homes."""
        if self._places is None:
            self._founding = {home: (arc,) for home, arc in founding_arcs(homes).items()}
            return
        spans = self._places.founding([NodeId(Key(bytes(home))) for home in homes])
        arcs = {home_of(node): (arc_of(self._services.ring, span),) for node, span in spans.items()}
        self._founding = {home: arcs.get(home, ()) for home in homes}

    # -- who asks ------------------------------------------------------------------------------------------------------

    def holder(self, key: bytes) -> Home | None:
        """The home here that answers for a key; None where none does."""
        for home, holding in self.holdings.items():
            if holding.arc(key) is not None:
                return None if self._is_hidden(home, key) else self._hosting.homes.get(home)
        return None

    def is_settled(self, home: HomeId) -> bool:
        """Whether a home here answers for all that it holds."""
        return home in self.holdings and not self._kept.hidden.get(home)

    def _is_hidden(self, home: HomeId, key: bytes) -> bool:
        return any(arc.holds(key) for arc in self._kept.hidden.get(home, ()))

    def arc(self, home: HomeId, key: bytes) -> KeyRange:
        """The arc around a key for which a home answers."""
        arc = self.holdings[home].arc(key)
        assert arc is not None
        hidden = self._kept.hidden.get(home)
        if hidden:
            arc = next(each for each in without(self._services.ring, (arc,), hidden) if each.holds(key))
        return arc

    def arcs(self, home: HomeId) -> tuple[KeyRange, ...]:
        """All arcs for which a home here answers."""
        holding, hidden = self.holdings.get(home), self._kept.hidden.get(home)
        if holding is None:
            return ()
        return without(self._services.ring, holding.arcs, hidden) if hidden else holding.arcs

    # -- what is placed ------------------------------------------------------------------------------------------------

    def put(self, home: Home, name: str, entry: Entry, then: Callable[[], None]) -> None:
        """Keep an entry at a home that holds some of its keys; `then` when it is safe."""
        entries = self.entries[home.id]
        if entries.get(name) == entry:
            home.keeper.write((), (), then)  # asked before: the write may still be on its way to the second disk
            return
        if name in entries:
            self._keeping.removed(home.id, name)
        entries[name] = entry
        self._keeping.added(home.id, name, entry)
        home.keeper.write([(PLACED + name, msgspec.msgpack.encode(entry))], (), then)

    def remove(self, home: Home, name: str, then: Callable[[], None]) -> None:
        """Forget an entry; `then` when that is safe."""
        self._kept.drop(home, [name])
        home.keeper.write((), (PLACED + name,), then)

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def home_started(self, home: Home) -> None:
        """A home serves here: it holds arcs already, or seeks one."""
        holding = self._kept.read(home)
        if holding is not None:
            self._kept.begin(home, holding, None)
            self._handing.go_on(home, holding)
        elif home.id in self._founding:
            first = OwnedRanges(1, self._founding.pop(home.id))
            self._kept.write(home, first)
            self._kept.begin(home, first, 0)
        self._seeking.begin(home)

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer."""
        self._kept.end(home)

    def _pulled_in_vain(self, home: Home) -> None:
        if self._places is None:
            self._seeking.begin(home)  # the one who answered it gave an old answer

    # -- giving away ---------------------------------------------------------------------------------------------------

    def give(self, home: Home, arc: KeyRange, to: HomeId) -> bool:
        """Let another home hold an arc that this one holds; whether that begins, or cannot be just now.

        It cannot where something is on its way to this home. Its giver has it still, and would bring it here again,
        should this home lose all; by then another would hold it.
        """
        holding = self.holdings.get(home.id)
        if holding is None or not self._kept.is_here(home) or not self.may_give(home.id):
            return False
        if to == home.id or self._hosting.directory.host(to) is None:
            return False
        if without(self._services.ring, (arc,), holding.arcs):
            return False
        given, holding = cut(self._services.ring, holding, arc, to, ending=False)
        self._handing.give(home, holding, (given,))
        return True

    def may_give(self, home: HomeId) -> bool:
        """Whether a home here may give something of what it holds just now."""
        holding = self.holdings.get(home)
        if holding is None or not holding.arcs or holding.taken or self._kept.hidden.get(home):
            return False
        if not holding.placed and self._places is None:
            return False  # its place is still to come
        return len(holding.given) < GIVEN_MAX and not any(given.ending for given in holding.given)

    def is_free(self, home: Home) -> bool:
        """Whether a home holds nothing and owes nothing: it may end."""
        holding = self.holdings.get(home.id)
        return holding is not None and not (holding.arcs or holding.given or holding.taken)

    def free(self, home: Home) -> None:
        """Let another home take all that this one holds."""
        holding = self.holdings.get(home.id)
        heir = self._heir(home.id)
        if holding is None or not (holding.placed and holding.arcs) or heir == home.id:
            return  # nothing to give, or nobody to give it to
        if holding.given or holding.taken:
            return  # something is on its way
        for arc in holding.arcs:
            _, holding = cut(self._services.ring, holding, arc, heir, ending=True)
        self._handing.give(home, holding, holding.given)

    def _heir(self, home: HomeId) -> HomeId:
        """The next home, or where places do not follow from ids the own one of this node, which will know where to."""
        own = home_of(self._services.me.id)
        if self._places is not None and own != home and own in self._hosting.homes:
            return own
        homes = self._hosting.directory.homes()
        return next((each for each in homes if each > home), homes[0])

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold at all times."""
        for home, holding in self.holdings.items():
            assert home in self._hosting.homes
            highs = [arc.high for arc in holding.arcs]
            for arc in holding.arcs:
                others = [each for each in holding.arcs if each is not arc]
                assert not any(each.holds(arc.high) for each in others), f"arcs that overlap: {holding.arcs}"
            assert len(set(highs)) == len(highs)
