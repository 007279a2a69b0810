"""Questions by which a network is looked at: what each broker's part of it looks like, and how single events go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.api.client_messages import Follow, Followed, Recent, TreePart, View, ViewIs
from meetpoint.api.codec import Codec
from meetpoint.api.outcomes import Refused, Stored
from meetpoint.broker.clients.session import Session
from meetpoint.broker.clock import Clock
from meetpoint.broker.config import BrokerConfig
from meetpoint.broker.observe.hooks import StepHooks
from meetpoint.broker.observe.recent_events import RecentEvents
from meetpoint.broker.observe.tracing import EventTracer, TracingError
from meetpoint.catalog.views import links_of, regions_of, tree_of
from meetpoint.node.node import Node

__all__ = ["Introspection"]

ID_MAX: Final = 1_000
"""The longest id of an event that is followed, in characters."""
TREE_MAX: Final = 4_096
"""How many regions of a tree an answer lists, the largest of them."""
THREADS_MAX: Final = 4_000


class Introspection:
    """Answers from the node's tables, and from what the follower has seen."""

    def __init__(self, node: Node, codec: Codec, config: BrokerConfig, clock: Clock, watchers: StepHooks) -> None:
        self._node = node
        self._config = config
        self._clock = clock
        self._follower = follower = EventTracer(node, codec)
        self._recents = recents = RecentEvents()
        follower.on_change = lambda is_on: watchers.set("follower", follower.took if is_on else None)
        recents.on_change = lambda is_on: watchers.set("recents", recents.took if is_on else None)
        self.watchers = watchers
        self.state: Callable[[], str] = lambda: node.state

    def view(self, session: Session, request: int, what: View) -> None:
        """What this broker's part looks like."""
        node, config = self._node, self._config
        overlay = node.overlay.view()
        tree = tree_of(node.scheme)
        session.tell(
            request,
            ViewIs(
                node.me,
                self.state(),
                config.network,
                config.overlay,
                config.scheme,
                links_of(overlay),
                regions_of(overlay),
                None if tree is None else tuple(TreePart(*each) for each in tree[:TREE_MAX]),
            ),
        )

    def recent(self, session: Session, request: int, what: Recent) -> None:
        """What came since the last question."""
        session.tell(request, self._recents.since(what.after, self._clock.now()))

    def follow(self, session: Session, request: int, what: Follow) -> None:
        """Follow an event from now on."""
        if not 0 < len(what.id) <= ID_MAX or not what.seconds > 0:
            session.tell(request, Refused(f"give an id of 1 to {ID_MAX} characters, and seconds above 0", retry=False))
            return
        try:
            self._follower.follow(what.id, what.seconds, self._clock.now())
        except TracingError as error:
            session.tell(request, Refused(str(error), retry=True))
            return
        session.tell(request, Stored())

    def followed(self, session: Session, request: int, what: Followed) -> None:
        """What was seen of it."""
        found = self._follower.followed(what.id, what.threads[:THREADS_MAX], self._clock.now())
        if found is None:
            reason = "this event is not followed here, or not any longer; follow it, then publish it"
            session.tell(request, Refused(reason, retry=False))
        else:
            session.tell(request, found)
