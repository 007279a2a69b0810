"""Client requests to a node that is ready: each goes to the part that serves it, and is answered."""

from __future__ import annotations

from typing import TypeAlias

from meetpoint.api.ids import Key, Peer
from meetpoint.api.outcomes import Found, Refused, Stored
from meetpoint.api.requests import (
    Acknowledge,
    Attach,
    Declare,
    Detach,
    Forget,
    Locate,
    Lookup,
    Publish,
    Reject,
    Subscribe,
    Unsubscribe,
    Update,
)
from meetpoint.errors import SchemaError
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.cluster.subscription_locator import SubscriptionLocator
from meetpoint.node.overlay import Overlay
from meetpoint.node.publish_intake import PublishIntake
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["ClientRequests"]

Served: TypeAlias = (
    Subscribe | Update | Unsubscribe | Publish | Acknowledge | Reject | Attach | Detach | Forget
    | Locate | Lookup | Declare
)  # fmt: skip
"""All requests but `Leave`."""


class ClientRequests:
    """Serves the clients of one node."""

    def __init__(
        self,
        runtime: Runtime,
        overlay: Overlay,
        home_manager: HomeManager,
        locator: SubscriptionLocator,
        intake: PublishIntake,
    ) -> None:
        self._runtime = runtime
        self._overlay = overlay
        self._home_manager = home_manager
        self._locator = locator
        self._intake = intake

    def serve(self, request: int, what: Served) -> None:
        """Do what a client asks, and answer."""
        if isinstance(what, Publish):
            self._intake.publish(what, request)
        elif isinstance(what, Acknowledge):
            self._acknowledge(request, what)
        elif isinstance(what, Lookup):
            self._look_up(request, what.key)
        elif isinstance(what, Locate):
            self._locator.locate(what.name, request)
        elif isinstance(what, Reject):
            self._reject(request, what)
        elif isinstance(what, Attach):
            self._attend(request, what)
        elif isinstance(what, Detach):
            self._leave_alone(request, what)
        elif isinstance(what, Forget):
            self._forget(request, what)
        elif isinstance(what, Declare):
            self._declare(request, what.schema)
        else:
            self._change(request, what)

    def _change(self, request: int, what: Subscribe | Update | Unsubscribe) -> None:
        home = self._home_manager.find(what.name) or self._home_manager.own_home()
        if home is None:
            self._runtime.answer(request, Refused("nothing is hosted here just now; ask again soon", retry=True))
            return

        if isinstance(what, Subscribe):
            home.subscribe(what.name, what.filter, what.terms, request)
        elif isinstance(what, Update):
            home.update(what, request)
        else:
            home.unsubscribe(what.name, request)

    def _acknowledge(self, request: int, what: Acknowledge) -> None:
        for home in self._home_manager.homes.values():
            home.deliveries.acknowledge(what.event, what.names)
        self._runtime.answer(request, Stored())

    def _reject(self, request: int, what: Reject) -> None:
        for home in self._home_manager.homes.values():
            home.deliveries.reject(what.event, what.names, what.reason, final=what.final)
        self._runtime.answer(request, Stored())

    def _attend(self, request: int, what: Attach) -> None:
        home = self._home_manager.find(what.name)
        if home is None:
            reason = f"there is no subscription {what.name!r} here; locate it"
            self._runtime.answer(request, Refused(reason, retry=True))
        else:
            home.attend(what.name, what.window, request)

    def _leave_alone(self, request: int, what: Detach) -> None:
        home = self._home_manager.find(what.name)
        if home is not None:
            home.leave(what.name)
        self._runtime.answer(request, Stored())

    def _forget(self, request: int, what: Forget) -> None:
        for home in self._home_manager.homes.values():
            home.deliveries.forget(what.event, what.within)
        self._runtime.answer(request, Stored())

    def _declare(self, request: int, schema: str) -> None:
        try:
            self._home_manager.directory.schema_gossip.declare(schema)
        except SchemaError as error:
            self._runtime.answer(request, Refused(str(error), retry=False))
            return
        for peer in self._home_manager.directory.others():
            self._home_manager.directory.compare(peer, tell=True)
        self._runtime.start("declare a schema", self._answer_when_introduced(request))

    async def _answer_when_introduced(self, request: int) -> None:
        await self._home_manager.introduce()
        self._runtime.answer(request, Stored())

    def _look_up(self, request: int, key: bytes) -> None:
        def then(peer: Peer | None, hops: int) -> None:
            if peer is None:
                self._runtime.answer(request, Refused("nobody answered for this key; ask again", retry=True))
            else:
                self._runtime.answer(request, Found(peer, hops))

        if self._runtime.ring.holds(key):
            self._overlay.lookup(Key(key), then)
        else:
            width = self._runtime.ring.width
            self._runtime.answer(request, Refused(f"{key!r} is no key here; a key has {width} bytes", retry=False))
