"""What all schemes that place subscriptions under keys have in common: a `Scheme` but for what is placed, and where
events go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meetpoint.api.ids import EventKey, HomeId, Key, Peer
from meetpoint.api.messages import Message
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.dissemination.dissemination import Dissemination, PublishAttempt
from meetpoint.placement.dissemination.fanout import HomeFanout
from meetpoint.placement.dissemination.home_queries import HomeQueries
from meetpoint.placement.dissemination.keyed_rpc import KeyedRpc
from meetpoint.placement.dissemination.multicast import Multicast
from meetpoint.placement.entries.covered_placement import CoveredPlacement
from meetpoint.placement.entries.covering import Coverage
from meetpoint.placement.entries.entry_table import Matched
from meetpoint.placement.entries.installer import EntryInstaller, KeyedEntryInstaller
from meetpoint.placement.entries.placement import Placement
from meetpoint.placement.messages import Entry, KeyedRequest
from meetpoint.placement.ownership.owner_cache import OwnerCache
from meetpoint.placement.ownership.ownership import Ownership, RangeStore
from meetpoint.placement.ownership.rebalancer import Rebalancer

__all__ = ["PlacementScheme"]


class PlacementScheme:
    """One node's part.

    `planter` brings entries to where they belong; where there is none, errands do, and `straight` and `next_key` say
    how (`planting`). With `coverage`, what another conjunction of the same home covers is not placed (`covered`).
    """

    def __init__(
        self,
        services: Runtime,
        overlay: Overlay,
        hosting: HomeManager,
        node: NodeSettings,
        keeping: RangeStore,
        *,
        straight: bool = False,
        next_key: Callable[[Entry, bytes], bytes | None] | None = None,
        planter: EntryInstaller | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self._services = services
        self._hosting = hosting
        self._homes = HomeQueries(services, hosting)
        self._custody = Ownership(services, node, hosting, self._homes, keeping, overlay.places)
        self._following = (
            None if overlay.places is None else Rebalancer(services, hosting, self._custody, keeping, overlay.places)
        )
        self._atlas = OwnerCache(hosting.directory)
        self._errands = KeyedRpc(services, overlay, hosting, self._custody, self._atlas)
        if planter is None:
            planter = KeyedEntryInstaller(
                services, self._custody, self._errands, self._accept, straight=straight, next_key=next_key
            )  # fmt: skip
        self._placing = (
            Placement(services, hosting, self._entries, planter)
            if coverage is None
            else CoveredPlacement(services, hosting, self._entries, planter, coverage)
        )
        self._bringing = HomeFanout(services, hosting, self._homes)
        self._spreading = Multicast(services, overlay, hosting, self._bringing)
        self._carrying = Dissemination(services, hosting, self._begin)

    # -- what a scheme adds --------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        """What is to be placed for one conjunction of a subscription of a home, which has a number there."""
        raise NotImplementedError

    def _accept(self, home: Home, name: str, entry: Entry, answer: Callable[[Message], None]) -> None:
        """An entry is to be placed at a home here; `answer` when every event that comes from then on meets it.

        Not asked of a scheme with a planter of its own.
        """
        raise NotImplementedError

    def _begin(self, attempt: PublishAttempt) -> None:
        """An attempt to carry an event begins."""
        raise NotImplementedError

    def _bring_the_rest(self, attempt: PublishAttempt, left: Matched, within_us: int) -> None:
        """Everyone who may know of homes that want an event has answered, and these have not said that they have it."""
        open_ = self._bringing.bring(
            attempt.event, attempt.settled, attempt.content, left, within_us,
            lambda well: attempt.complete() if well else None,
        )  # fmt: skip
        attempt.may_reach = open_.__contains__

    # -- what the node asks --------------------------------------------------------------------------------------------

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages are the scheme's."""
        return {**self._homes.handlers(), **self._errands.handlers(), **self._spreading.handlers()}

    def tune(self, feedback: Feedback) -> None:
        """Where things lie does not depend on events."""

    def found(self, homes: Sequence[HomeId]) -> None:
        """The network begins with these homes."""
        self._custody.found(homes)

    def start(self) -> None:
        """Nothing is to be prepared."""

    def home_started(self, home: Home) -> None:
        """A home serves here."""
        self._custody.home_started(home)
        self._placing.home_started(home)
        if self._following is not None:
            self._following.home_started()

    def home_stopped(self, home: HomeId) -> None:
        """A home serves here no longer."""
        self._placing.home_stopped(home)
        self._custody.home_stopped(home)

    def is_free(self, home: Home) -> bool:
        """Whether a home keeps nothing for others, and others nothing for it."""
        return self._placing.is_free(home) and self._custody.is_free(home)

    def free(self, home: Home) -> None:
        """Let another home hold what this one holds."""
        if self._placing.is_free(home):
            self._custody.free(home)

    def neighbours_changed(self) -> None:
        """Who holds a key does not depend on the overlay; it may follow, later."""
        if self._following is not None:
            self._following.neighbours_changed()

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """An errand that was routed has arrived."""
        if isinstance(body, KeyedRequest):
            self._errands.delivered(body, hops)
        else:
            self._services.observe("message_unexpected")

    def place(self, home: bytes, name: str, then: Callable[[], None]) -> None:
        """A subscription is new, changed or gone."""
        self._placing.place(self._hosting.homes[HomeId(home)], name, then)

    def when_placed(self, home: bytes, name: str, then: Callable[[], None]) -> None:
        """Call `then` when every event published later meets a subscription."""
        self._placing.when_placed(self._hosting.homes[HomeId(home)], name, then)

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Whether an event that a home here carries may still come to another."""
        return self._carrying.may_reach(event, home)

    def publish(self, event: EventKey, content: bytes) -> None:
        """Carry an event to all homes with a match."""
        self._carrying.publish(event, content)

    def check(self) -> None:
        """Assert what must hold at all times."""
        self._custody.check()
        self._errands.check()
        self._spreading.check()
