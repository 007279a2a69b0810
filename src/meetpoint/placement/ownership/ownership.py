"""Ownership: which home answers for a key. At every moment at most one does, whatever the overlay believes.

An overlay leads a key to the node that seems responsible now; under churn two nodes may both seem so, or the one that
does has nothing of what was stored there. Ownership is the truth behind it. Each home owns key ranges, in a record that
is safe like all its records, and ranges change hands only by agreement of the two homes concerned:

- Founders begin with the ranges between them, or those that the overlay names.
- A home that comes later *claims* its place (`range_claim`). A home that is to end has another *take* all it owns.
  Where the overlay says which keys are whose, ownership follows it (`rebalancer`).
- The giver of a range writes so on two disks before anyone hears of it, and answers for it no longer. The taker pulls
  what is stored there, and answers for it once all is safe. Then the giver forgets it (`handoff`).

So a node that is reached for a key either owns it, with everything that was ever stored there, or says that it does
not, and the asker tries another. A crash delays; it never gives a wrong answer. Between giving and taking nobody
answers for the range: requests wait.

Should every replica of a home be lost, nobody owns its ranges. When the home, or a new one in its place, has asked all
others twice, and nothing changed between, it takes the gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from meetpoint.api.ids import HomeId, Key, NodeId, home_of
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Places
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.key_range import KeyRange, arc_of, founding_arcs, without
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.handoff import Handoff
from meetpoint.placement.ownership.home_rpc import HomeRpc
from meetpoint.placement.ownership.range_claim import RangeClaims
from meetpoint.placement.ownership.range_store import PLACED, OwnedRanges, RangeListener, StoredRanges, cut

__all__ = ["PLACED", "Ownership", "RangeListener"]

GIVEN_MAX: Final = 4
"""How many ranges of a home that goes on may be on their way to others."""


class Ownership:
    """Knows the ranges that the homes of this node own, and what is stored there.

    `places`: where the overlay says which keys are whose; else a home's place follows from its id.
    """

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        home_manager: HomeManager,
        homes: HomeRpc,
        listener: RangeListener,
        places: Places | None = None,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._listener = listener
        self._places = places
        self._founding: dict[bytes, tuple[KeyRange, ...]] = {}
        self._kept = StoredRanges(runtime, home_manager, listener)
        self._handoff = Handoff(runtime, settings, home_manager, homes, self._kept, self._pulled_in_vain)
        self._claims = RangeClaims(
            runtime, settings, home_manager, homes, self._kept, self._handoff, by_place=places is None
        )  # fmt: skip
        self.owned_ranges = self._kept.owned_ranges
        self.entries = self._kept.entries

    def found(self, homes: Sequence[HomeId]) -> None:
        """Begin a network with these homes."""
        if self._places is None:
            self._founding = {home: (arc,) for home, arc in founding_arcs(homes).items()}
            return
        spans = self._places.founding([NodeId(Key(bytes(home))) for home in homes])
        arcs = {home_of(node): (arc_of(self._runtime.ring, span),) for node, span in spans.items()}
        self._founding = {home: arcs.get(home, ()) for home in homes}

    # -- who asks ------------------------------------------------------------------------------------------------------

    def holder(self, key: bytes) -> Home | None:
        """Return the home here that answers for a key; None where none does."""
        for home, owned in self.owned_ranges.items():
            if owned.arc(key) is not None:
                return None if self._is_hidden(home, key) else self._home_manager.homes.get(home)
        return None

    def is_stable(self, home: HomeId) -> bool:
        """Return whether a home here answers for all that it owns."""
        return home in self.owned_ranges and not self._kept.hidden.get(home)

    def _is_hidden(self, home: HomeId, key: bytes) -> bool:
        return any(arc.holds(key) for arc in self._kept.hidden.get(home, ()))

    def arc(self, home: HomeId, key: bytes) -> KeyRange:
        """Return the range around a key for which a home answers."""
        arc = self.owned_ranges[home].arc(key)
        assert arc is not None
        hidden = self._kept.hidden.get(home)
        if hidden:
            arc = next(each for each in without(self._runtime.ring, (arc,), hidden) if each.holds(key))
        return arc

    def arcs(self, home: HomeId) -> tuple[KeyRange, ...]:
        """Return all ranges for which a home here answers."""
        owned, hidden = self.owned_ranges.get(home), self._kept.hidden.get(home)
        if owned is None:
            return ()
        return without(self._runtime.ring, owned.arcs, hidden) if hidden else owned.arcs

    # -- what is placed ------------------------------------------------------------------------------------------------

    def put(self, home: Home, name: str, entry: Entry) -> Signal[None]:
        """Keep an entry at a home that owns some of its keys; set when it is safe."""
        entries = self.entries[home.id]
        if entries.get(name) == entry:
            return home.replicator.commit()  # asked before: the write may still be on its way to the second disk
        if name in entries:
            self._listener.removed(home.id, name)
        entries[name] = entry
        self._listener.added(home.id, name, entry)
        return home.replicator.commit([(PLACED + name, msgspec.msgpack.encode(entry))])

    def remove(self, home: Home, name: str) -> Signal[None]:
        """Forget an entry; set when that is safe."""
        self._kept.drop(home, [name])
        return home.replicator.commit((), (PLACED + name,))

    # -- homes that come and go ----------------------------------------------------------------------------------------

    def home_started(self, home: Home) -> None:
        """Take back the ranges of a home that serves here, or claim one."""
        owned = self._kept.read(home)
        if owned is not None:
            self._kept.begin(home, owned, None)
            self._handoff.go_on(home, owned)
        elif home.id in self._founding:
            first = OwnedRanges(1, self._founding.pop(home.id))
            self._kept.write(home, first)
            self._kept.begin(home, first, 0)
        self._claims.begin(home)

    def home_stopped(self, home: HomeId) -> None:
        """Forget a home that serves here no longer."""
        self._kept.end(home)

    def _pulled_in_vain(self, home: Home) -> None:
        if self._places is None:
            self._claims.begin(home)  # the one who answered it gave an old answer

    # -- giving away ---------------------------------------------------------------------------------------------------

    def give(self, home: Home, arc: KeyRange, to: HomeId) -> bool:
        """Let another home own a range of this one; return whether that begins, or cannot be just now.

        It cannot where something is on its way to this home. Its giver has it still, and would bring it here again,
        should this home lose all; by then another would own it.
        """
        owned = self.owned_ranges.get(home.id)
        if owned is None or not self._kept.is_here(home) or not self.may_give(home.id):
            return False
        if to == home.id or self._home_manager.directory.host(to) is None:
            return False
        if without(self._runtime.ring, (arc,), owned.arcs):
            return False
        given, owned = cut(self._runtime.ring, owned, arc, to, ending=False)
        self._handoff.give(home, owned, (given,))
        return True

    def may_give(self, home: HomeId) -> bool:
        """Return whether a home here may give something of what it owns just now."""
        owned = self.owned_ranges.get(home)
        if owned is None or not owned.arcs or owned.taken or self._kept.hidden.get(home):
            return False
        if not owned.placed and self._places is None:
            return False  # its place is still to come
        return len(owned.given) < GIVEN_MAX and not any(given.ending for given in owned.given)

    def is_free(self, home: Home) -> bool:
        """Return whether a home owns nothing and owes nothing: it may end."""
        owned = self.owned_ranges.get(home.id)
        return owned is not None and not (owned.arcs or owned.given or owned.taken)

    def free(self, home: Home) -> None:
        """Let another home take all that this one owns."""
        owned = self.owned_ranges.get(home.id)
        next_home = self._next_home(home.id)
        if owned is None or not (owned.placed and owned.arcs) or next_home == home.id:
            return  # nothing to give, or nobody to give it to
        if owned.given or owned.taken:
            return  # something is on its way
        for arc in owned.arcs:
            _, owned = cut(self._runtime.ring, owned, arc, next_home, ending=True)
        self._handoff.give(home, owned, owned.given)

    def _next_home(self, home: HomeId) -> HomeId:
        """Return the next home; where places do not follow from ids, the own one of this node, which knows where to."""
        own = home_of(self._runtime.me.id)
        if self._places is not None and own != home and own in self._home_manager.homes:
            return own
        homes = self._home_manager.directory.homes()
        return next((each for each in homes if each > home), homes[0])

    # -- seen from outside ---------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert what must hold at all times."""
        for home, owned in self.owned_ranges.items():
            assert home in self._home_manager.homes
            highs = [arc.high for arc in owned.arcs]
            for arc in owned.arcs:
                others = [each for each in owned.arcs if each is not arc]
                assert not any(each.holds(arc.high) for each in others), f"arcs that overlap: {owned.arcs}"
            assert len(set(highs)) == len(highs)
