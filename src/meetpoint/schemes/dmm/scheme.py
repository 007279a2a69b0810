"""The scheme `dmm`: distributed multidimensional matching (paper D), corrected, on any overlay that routes keys.

- Events are points of a space, conjunctions boxes (`space`). A tree of regions halves the space again and again; each
  region lies at its key on the ring, with the owner of that (`regions`).
- A conjunction lies, whole, in every leaf that its box meets; an event comes to the one leaf around it (`walk`). The
  leaf's owner matches, brings the event to the homes of those that it satisfies, and answers when they have it.
- A leaf with many entries is split, where that helps, and two that have few become one (`split_policy`,
  `region_changes`).

Homes check again what comes, so that an entry too many costs a message and no more.
"""

from __future__ import annotations

from functools import partial

import msgspec

from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.language.filters.filter import Filter
from meetpoint.language.filters.normal_form import Conjunction
from meetpoint.language.schema.schema import Schema
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.base import PlacementScheme
from meetpoint.placement.dissemination.dissemination import PublishAttempt
from meetpoint.placement.dissemination.fanout import event_bytes
from meetpoint.placement.entries.entry_table import StoredEntry
from meetpoint.placement.messages import Entry
from meetpoint.schemes.dmm.entries import RegionStore, key_of
from meetpoint.schemes.dmm.messages import MatchPending, MatchRequest
from meetpoint.schemes.dmm.regions import Regions
from meetpoint.schemes.dmm.rules import DmmSettings
from meetpoint.schemes.dmm.space import Code, Space
from meetpoint.schemes.dmm.split_policy import SplitPolicy
from meetpoint.schemes.dmm.walk import Walker

__all__ = ["Dmm"]


class _RegionCoverage:
    """Coverage by regions: a conjunction that covers another lies around it in the space."""

    def __init__(self, space: Space) -> None:
        self._space = space

    def code(self, conjunction: Conjunction) -> str:
        """Return the smallest region around a conjunction."""
        return self._space.enclosing(self._space.box(conjunction))


class Dmm(PlacementScheme):
    """The scheme `dmm` at one node."""

    def __init__(
        self, runtime: Runtime, overlay: Overlay, home_manager: HomeManager, node: NodeSettings, settings: DmmSettings
    ) -> None:
        schema = Schema.from_yaml(settings.schema) if settings.schema else None
        self._space = Space.of(schema, settings.depth)
        self._store = RegionStore(runtime, self._space)
        self._walker = Walker(runtime)
        coverage = _RegionCoverage(self._space) if settings.coverage == "covering" else None
        super().__init__(runtime, overlay, home_manager, node, self._store, installer=self._walker, coverage=coverage)
        self._regions = Regions(
            runtime,
            self._ownership,
            self._rpc,
            self._store,
            self._space,
            settings,
            self._multicast.bring if settings.delivery == "tree" else self._fanout.bring,
            self,
        )
        self._split_policy = SplitPolicy(runtime, home_manager, self._rpc, self._store, self._regions, settings)
        self._walker.begin(self._regions)
        self._numbers = runtime.random.getrandbits(32)  # in each life others: a late word is of no attempt
        self._attempts: dict[int, PublishAttempt] = {}

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        return {MatchPending: self._match_pending, **super().handlers()}  # type: ignore[dict-item]

    def start(self) -> None:
        """Look after regions from now on."""
        self._split_policy.changes.look_at_all()

    def tree(self) -> list[tuple[str, int, bool]]:
        """Return the regions owned here: code, entries, whether it is split."""
        return self._regions.held()

    def check(self) -> None:
        """Assert what must hold at all times."""
        super().check()
        self._regions.check()
        self._split_policy.check()

    # -- placing -------------------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        root = bytes(key_of(self._runtime.ring, self._space, Code("")))  # where it goes from there, the walker finds
        return [Entry(root, root, msgspec.msgpack.encode(StoredEntry(number, at, filter_.text)))]

    # -- carrying events -----------------------------------------------------------------------------------------------

    def _begin(self, attempt: PublishAttempt) -> None:
        self._numbers += 1
        number = self._numbers
        code = self._space.code(self._space.point(attributes_of(attempt.content)))
        match = MatchRequest("", self._runtime.me, number, attempt.event, attempt.floor, attempt.content)

        def done(steps: int) -> None:
            self._runtime.observe("regions_asked", steps, event_bytes(attempt.event))
            attempt.complete()

        self._attempts[number] = attempt
        stop = self._walker.to_point(code, match, done)
        if attempt.alive:
            attempt.on_end = lambda: (stop(), self._attempts.pop(number, None), None)[2]
        else:
            del self._attempts[number]

    def tell_pending(self, origin: Peer, pending: MatchPending) -> None:
        """Tell the origin of an event that its match takes longer."""
        if origin.id == self._runtime.me.id:
            self._match_pending(origin, pending)
        else:
            self._runtime.send(origin, pending)

    def _match_pending(self, source: Peer, message: MatchPending) -> None:
        """Note which homes an event is for, as its leaf knows, which waits for some of them."""
        attempt = self._attempts.get(message.attempt)
        if attempt is not None:
            attempt.may_reach = partial(_is_among, message.homes)


def _is_among(homes: tuple[HomeId, ...], home: HomeId) -> bool:
    return home in homes
