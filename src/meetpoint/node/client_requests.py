"""What clients ask of a node that is ready: each request is done by whoever it is for, and answered."""

from __future__ import annotations

from collections.abc import Callable
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
from meetpoint.node.home.home import Home
from meetpoint.node.home.publish_intake import PublishIntake
from meetpoint.node.overlay import Overlay
from meetpoint.node.runtime.runtime import Runtime

__all__ = ["ClientRequests"]

Served: TypeAlias = (
    Subscribe | Update | Unsubscribe | Publish | Acknowledge | Reject | Attach | Detach | Forget
    | Locate | Lookup | Declare
)  # fmt: skip
"""All requests but that to leave."""


class ClientRequests:
    """One node's side of its clients."""

    def __init__(
        self,
        services: Runtime,
        overlay: Overlay,
        hosting: HomeManager,
        locating: SubscriptionLocator,
        publishing: PublishIntake,
        own_home: Callable[[], Home | None],
    ) -> None:
        self._services = services
        self._overlay = overlay
        self._hosting = hosting
        self._locating = locating
        self._publishing = publishing
        self._own_home = own_home

    def serve(self, request: int, what: Served) -> None:
        """Do what a client asks, and answer."""
        if isinstance(what, Publish):
            self._publishing.publish(what, request)
        elif isinstance(what, Acknowledge):
            self._acknowledge(request, what)
        elif isinstance(what, Lookup):
            self._look_up(request, what.key)
        elif isinstance(what, Locate):
            self._locating.locate(what.name, request)
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
        home = self._hosting.find(what.name) or self._own_home()
        if home is None:
            self._services.answer(request, Refused("nothing is hosted here just now; ask again soon", retry=True))
            return

        if isinstance(what, Subscribe):
            home.subscribe(what.name, what.filter, what.terms, request)
        elif isinstance(what, Update):
            home.update(what, request)
        else:
            home.unsubscribe(what.name, request)

    def _acknowledge(self, request: int, what: Acknowledge) -> None:
        for home in self._hosting.homes.values():
            home.delivering.acknowledge(what.event, what.names)
        self._services.answer(request, Stored())

    def _reject(self, request: int, what: Reject) -> None:
        for home in self._hosting.homes.values():
            home.delivering.reject(what.event, what.names, what.reason, final=what.final)
        self._services.answer(request, Stored())

    def _attend(self, request: int, what: Attach) -> None:
        home = self._hosting.find(what.name)
        if home is None:
            reason = f"there is no subscription {what.name!r} here; locate it"
            self._services.answer(request, Refused(reason, retry=True))
        else:
            home.attend(what.name, what.window, request)

    def _leave_alone(self, request: int, what: Detach) -> None:
        home = self._hosting.find(what.name)
        if home is not None:
            home.leave(what.name)
        self._services.answer(request, Stored())

    def _forget(self, request: int, what: Forget) -> None:
        for home in self._hosting.homes.values():
            home.delivering.forget(what.event, what.within)
        self._services.answer(request, Stored())

    def _declare(self, request: int, schema: str) -> None:
        try:
            self._hosting.directory.spread.declare(schema)
        except SchemaError as error:
            self._services.answer(request, Refused(str(error), retry=False))
            return
        for peer in self._hosting.directory.others():
            self._hosting.directory.compare(peer, lambda _: None, tell=True)
        self._hosting.introduce(lambda: self._services.answer(request, Stored()))

    def _look_up(self, request: int, key: bytes) -> None:
        def then(peer: Peer | None, hops: int) -> None:
            if peer is None:
                self._services.answer(request, Refused("nobody answered for this key; ask again", retry=True))
            else:
                self._services.answer(request, Found(peer, hops))

        if self._services.ring.holds(key):
            self._overlay.lookup(Key(key), then)
        else:
            width = self._services.ring.width
            self._services.answer(request, Refused(f"{key!r} is no key here; a key has {width} bytes", retry=False))
