"""The base of all schemes that place subscriptions under keys: a `Scheme` but for the entries and the way of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from meetpoint.api.ids import EventKey, HomeId, Key, Peer
from meetpoint.api.messages import Message
from meetpoint.language.filters.filter import Filter
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.home.home import Home
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings
from meetpoint.placement.dissemination.dissemination import Dissemination, PublishAttempt
from meetpoint.placement.dissemination.fanout import HomeFanout, Recipients
from meetpoint.placement.dissemination.multicast import Multicast
from meetpoint.placement.entries.covered_placement import CoveredPlacement
from meetpoint.placement.entries.covering import Coverage
from meetpoint.placement.entries.entry_table import Matched
from meetpoint.placement.entries.installer import EntryInstaller, KeyedEntryInstaller
from meetpoint.placement.entries.placement import Placement
from meetpoint.placement.messages import Entry, KeyedRequest
from meetpoint.placement.ownership.home_rpc import HomeRpc
from meetpoint.placement.ownership.keyed_rpc import KeyedRpc, OwnerCache
from meetpoint.placement.ownership.ownership import Ownership, RangeListener
from meetpoint.placement.ownership.rebalancer import Rebalancer

__all__ = ["PlacementScheme"]


class PlacementScheme:
    """A scheme's part at a node.

    `installer` brings entries to where they belong; where there is none, keyed requests do, straight or by routing
    (`KeyedEntryInstaller`). With `coverage`, what another conjunction of the same home covers is not placed
    (`CoveredPlacement`).
    """

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        home_manager: HomeManager,
        node: NodeSettings,
        listener: RangeListener,
        *,
        straight: bool = False,
        installer: EntryInstaller | None = None,
        coverage: Coverage | None = None,
    ) -> None:
        self._runtime = runtime
        self._home_manager = home_manager
        self._homes = HomeRpc(runtime, home_manager)
        self._ownership = Ownership(runtime, node, home_manager, self._homes, listener, overlay.places)
        self._rebalancer = (
            None
            if overlay.places is None
            else Rebalancer(runtime, home_manager, self._ownership, listener, overlay.places)
        )
        self._owner_cache = OwnerCache(home_manager.directory)
        self._rpc = KeyedRpc(runtime, overlay, home_manager, self._ownership, self._owner_cache)
        if installer is None:
            installer = KeyedEntryInstaller(
                runtime, self._ownership, self._rpc, self._accept, straight=straight, keys=self
            )  # fmt: skip
        self._placement = (
            Placement(runtime, home_manager, self, installer)
            if coverage is None
            else CoveredPlacement(runtime, home_manager, self, installer, coverage)
        )
        self._fanout = HomeFanout(runtime, home_manager, self._homes)
        self._multicast = Multicast(runtime, overlay, home_manager, self._fanout)
        self._dissemination = Dissemination(runtime, home_manager, self)

    # -- what a scheme adds --------------------------------------------------------------------------------------------

    def _entries(self, home: HomeId, number: int, filter_: Filter, at: int) -> list[Entry]:
        """Return the entries for one conjunction of a subscription of a home, which has a number there."""
        raise NotImplementedError

    def _accept(self, home: Home, name: str, entry: Entry, answer: Callable[[Message], None]) -> None:
        """Store an entry at a home here; `answer` when every event that comes from then on meets it.

        Not asked of a scheme with an installer of its own.
        """
        raise NotImplementedError

    def _begin(self, attempt: PublishAttempt) -> None:
        """Begin an attempt to bring an event to all homes that may want it."""
        raise NotImplementedError

    def _bring_the_rest(self, attempt: PublishAttempt, left: Matched, within_us: int) -> None:
        """Bring an event to homes that have not said that they have it, once all others have answered."""
        recipients = Recipients(left)
        recipients.ended.then(lambda well: attempt.complete() if well else None)
        self._fanout.bring(attempt.event, attempt.floor, attempt.content, recipients, within_us)
        attempt.may_reach = recipients.open.__contains__

    def begin_attempt(self, attempt: PublishAttempt) -> None:
        """Begin an attempt to bring an event to all homes that may want it."""
        self._begin(attempt)

    def next_key(self, entry: Entry, after: bytes) -> bytes | None:
        """Return the first key after another that matters to an entry: the next one, as all do."""
        return bytes(self._runtime.ring.add(after, 1))

    # -- what the node asks --------------------------------------------------------------------------------------------

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handlers of the scheme's messages."""
        return {**self._homes.handlers(), **self._rpc.handlers(), **self._multicast.handlers()}

    def tune(self, feedback: Feedback) -> None:
        """Ignore what was measured: where entries lie does not depend on events."""

    def found(self, homes: Sequence[HomeId]) -> None:
        """Begin a network with these homes."""
        self._ownership.found(homes)

    def start(self) -> None:
        """Begin: nothing is to be prepared."""

    def home_started(self, home: Home) -> None:
        """Take note that a home serves here."""
        self._ownership.home_started(home)
        self._placement.home_started(home)
        if self._rebalancer is not None:
            self._rebalancer.home_started()

    def home_stopped(self, home: HomeId) -> None:
        """Take note that a home serves here no longer."""
        self._placement.home_stopped(home)
        self._ownership.home_stopped(home)

    def is_free(self, home: Home) -> bool:
        """Return whether a home keeps nothing for others, and others nothing for it."""
        return self._placement.is_free(home) and self._ownership.is_free(home)

    def free(self, home: Home) -> None:
        """Let another home own what this one owns."""
        if self._placement.is_free(home):
            self._ownership.free(home)

    def neighbours_changed(self) -> None:
        """Let ownership follow the overlay, later, where it does."""
        if self._rebalancer is not None:
            self._rebalancer.neighbours_changed()

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Take a keyed request that was routed."""
        if isinstance(body, KeyedRequest):
            self._rpc.delivered(body, hops)
        else:
            self._runtime.observe("message_unexpected")

    def entries_for(self, home: HomeId, number: int, filter_: Filter, at: int) -> Sequence[Entry]:
        """Return the entries for one conjunction of a subscription of a home, which has a number there."""
        return self._entries(home, number, filter_, at)

    def place(self, home: bytes, name: str) -> Signal[None]:
        """Place a subscription that is new, changed or gone; set when every event published later meets it."""
        return self._placement.place(self._home_manager.homes[HomeId(home)], name)

    def when_placed(self, home: bytes, name: str) -> Signal[None]:
        """Return a signal that is set when every event published later meets a subscription."""
        return self._placement.when_placed(self._home_manager.homes[HomeId(home)], name)

    def may_reach(self, event: EventKey, home: HomeId) -> bool:
        """Return whether an event of a home here may still come to another."""
        return self._dissemination.may_reach(event, home)

    def publish(self, event: EventKey, content: bytes) -> None:
        """Take an event to all homes with a match."""
        self._dissemination.publish(event, content)

    def check(self) -> None:
        """Assert what must hold at all times."""
        self._ownership.check()
        self._rpc.check()
        self._multicast.check()
