"""Which node hosts the subscription of a name: asked of all nodes, as a name may be anywhere.

That nobody has it is believed only where every node has answered, and none of them had a list of homes that the asker
did not know when it began to ask: a home that moved meanwhile may have been asked for where it was not yet, and where
it was no longer. Then all are asked again, for a while; whoever did not answer by then is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.api.outcomes import Located, Refused
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["LocateSubscription", "SubscriptionLocation", "SubscriptionLocator"]

NAMED_MAX: Final = 3
"""How many nodes that did not answer are named."""


class LocateSubscription(Query, frozen=True, array_like=True, gc=False, tag="where"):
    """Has a home at your node a subscription of this name?"""

    name: str


class SubscriptionLocation(Reply, frozen=True, array_like=True, gc=False, tag="where_is"):
    """Whether one has; what it wants; and the digest of the directory here."""

    here: bool
    filter: str
    digest: bytes


class SubscriptionLocator:
    """One node's part."""

    def __init__(self, services: Runtime, settings: NodeSettings, hosting: HomeManager) -> None:
        self._services = services
        self._settings = settings
        self._hosting = hosting

    def handlers(self) -> dict[type[Message], Handler]:
        """Which messages ask for a subscription."""
        return {LocateSubscription: self._where}  # type: ignore[dict-item]

    def _here(self, name: str) -> str | None:
        for home in self._hosting.homes.values():
            subscription = home.subscription(name)
            if subscription is not None:
                return subscription.filter
        return None

    def _where(self, source: Peer, message: LocateSubscription) -> None:
        filter_ = self._here(message.name)
        # Who has yet to bring back a home, or just gives one away, does not know: it had better be asked again.
        if filter_ is not None or self._hosting.serves_all:
            digest = self._hosting.directory.digest
            self._services.send(
                source, SubscriptionLocation(message.request, filter_ is not None, filter_ or "", digest)
            )

    def locate(self, name: str, request: int) -> None:
        """Find a subscription, and answer a client."""
        until = self._services.now + self._settings.locate_us
        directory = self._hosting.directory
        known = b""

        def begin() -> None:
            nonlocal known
            known = directory.digest
            filter_ = self._here(name)
            if filter_ is not None:
                self._services.answer(request, Located(self._services.me, filter_))
                return
            others = directory.others()
            _Round(self._services, self._settings, directory.has_merged, name, others, ended)

        def ended(found: Located | None, silent: list[Peer], newer: list[Peer]) -> None:
            if found is not None:
                self._services.answer(request, found)
            elif not silent and not newer and known == directory.digest and self._hosting.serves_all:
                self._services.answer(request, Located(None))
            elif self._services.now >= until:
                self._services.answer(request, Refused(_not_known(name, silent), retry=True))
            else:
                for peer in newer[:1]:
                    directory.compare(peer, lambda _: None)
                self._services.after(self._settings.query_timeout_us // 4, begin)

        begin()


class _Round:
    """All nodes are asked once."""

    def __init__(
        self,
        services: Runtime,
        settings: NodeSettings,
        has_merged: Callable[[bytes], bool],
        name: str,
        peers: list[Peer],
        then: Callable[[Located | None, list[Peer], list[Peer]], None],
    ) -> None:
        self._open: dict[NodeId, None] = {peer.id: None for peer in peers}
        self._silent: list[Peer] = []
        self._newer: list[Peer] = []
        self._has_merged = has_merged
        self._then: Callable[[Located | None, list[Peer], list[Peer]], None] | None = then
        for peer in peers:

            def answered(reply: Reply | None, peer: Peer = peer) -> None:
                self._answered(peer, reply)

            services.ask(peer, lambda number: LocateSubscription(number, name), answered, settings.query_timeout_us)
        self._end_if_all()

    def _answered(self, peer: Peer, reply: Reply | None) -> None:
        del self._open[peer.id]
        if self._then is None:
            return
        if not isinstance(reply, SubscriptionLocation):
            self._silent.append(peer)
        elif reply.here:
            then, self._then = self._then, None
            then(Located(peer, reply.filter), [], [])
            return
        elif not self._has_merged(reply.digest):
            self._newer.append(peer)
        self._end_if_all()

    def _end_if_all(self) -> None:
        if not self._open and self._then is not None:
            then, self._then = self._then, None
            then(None, self._silent, self._newer)


def _not_known(name: str, silent: list[Peer]) -> str:
    if not silent:
        return f"homes are moving, and subscription {name!r} with one of them, maybe; ask again"
    named = ", ".join(peer.address for peer in silent[:NAMED_MAX])
    more = f" and {len(silent) - NAMED_MAX} more" if len(silent) > NAMED_MAX else ""
    return f"no answer from {named}{more}, where subscription {name!r} may be; ask again"
