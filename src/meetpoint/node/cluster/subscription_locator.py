"""Finds the node that hosts the subscription of a name: asks all nodes, as a name may be anywhere.

That nobody has it is believed only where every node has answered, and none of them had a list of homes that the asker
did not know when it began to ask: a home that moved meanwhile may have been asked for where it was not yet, and where
it was no longer. Then all are asked again, for a while; nodes that did not answer by then are named.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from meetpoint.api.ids import Peer
from meetpoint.api.messages import Message, Query, Reply
from meetpoint.api.outcomes import Located, Refused
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.node.settings import NodeSettings

__all__ = ["LocateSubscription", "SubscriptionLocation", "SubscriptionLocator"]

NAMED_MAX: Final = 3
"""How many nodes that did not answer are named."""


class LocateSubscription(Query, frozen=True, array_like=True, gc=False, tag="where"):
    """Asks whether a home at a node has a subscription of this name."""

    name: str


class SubscriptionLocation(Reply, frozen=True, array_like=True, gc=False, tag="where_is"):
    """Says whether one has, with which filter, and the digest of the sender's directory."""

    here: bool
    filter: str
    digest: bytes


class _Round(NamedTuple):
    """All nodes were asked once: what was found, which are silent, and which know homes that are unknown here."""

    found: Located | None
    silent: tuple[Peer, ...] = ()
    newer: tuple[Peer, ...] = ()


class SubscriptionLocator:
    """Locates subscriptions for the clients of one node, and answers other nodes."""

    def __init__(self, runtime: Runtime, settings: NodeSettings, home_manager: HomeManager) -> None:
        self._runtime = runtime
        self._settings = settings
        self._home_manager = home_manager

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handler of questions."""
        return {LocateSubscription: self._located_here}  # type: ignore[dict-item]

    def _here(self, name: str) -> str | None:
        for home in self._home_manager.homes.values():
            subscription = home.subscription(name)
            if subscription is not None:
                return subscription.filter
        return None

    def _located_here(self, source: Peer, message: LocateSubscription) -> None:
        filter_ = self._here(message.name)
        # A node that has yet to bring back a home, or just gives one away, does not know: it had better be asked again.
        if filter_ is not None or self._home_manager.serves_all:
            digest = self._home_manager.directory.digest
            self._runtime.send(
                source, SubscriptionLocation(message.request, filter_ is not None, filter_ or "", digest)
            )

    def locate(self, name: str, request: int) -> None:
        """Find a subscription, and answer a client."""
        self._runtime.start("locate a subscription", self._locate(name, request))

    async def _locate(self, name: str, request: int) -> None:
        until = self._runtime.now + self._settings.locate_us
        directory = self._home_manager.directory
        while True:
            known = directory.digest
            filter_ = self._here(name)
            if filter_ is not None:
                self._runtime.answer(request, Located(self._runtime.me, filter_))
                return
            found, silent, newer = await self._ask_all(name)
            if found is not None:
                self._runtime.answer(request, found)
                return
            if not silent and not newer and known == directory.digest and self._home_manager.serves_all:
                self._runtime.answer(request, Located(None))
                return
            if self._runtime.now >= until:
                self._runtime.answer(request, Refused(_not_known(name, silent), retry=True))
                return
            for peer in newer[:1]:
                directory.compare(peer)
            await self._runtime.sleep(self._settings.query_timeout_us // 4)

    def _ask_all(self, name: str) -> Signal[_Round]:
        """Ask all nodes at once; set when one has the subscription, or all have answered or are silent."""
        directory = self._home_manager.directory
        ended: Signal[_Round] = Signal()
        open_ = {peer.id: None for peer in directory.others()}
        silent: list[Peer] = []
        newer: list[Peer] = []

        def answered(peer: Peer, reply: Reply | None) -> None:
            del open_[peer.id]
            if ended.is_set:
                return
            if not isinstance(reply, SubscriptionLocation):
                silent.append(peer)
            elif reply.here:
                ended.set(_Round(Located(peer, reply.filter)))
                return
            elif not directory.has_merged(reply.digest):
                newer.append(peer)
            if not open_:
                ended.set(_Round(None, tuple(silent), tuple(newer)))

        for peer in directory.others():
            question = LocateSubscription(0, name)
            self._runtime.ask(peer, question, self._settings.query_timeout_us).then(partial(answered, peer))
        if not open_:
            ended.set(_Round(None))
        return ended


def _not_known(name: str, silent: Sequence[Peer]) -> str:
    if not silent:
        return f"homes are moving, and subscription {name!r} with one of them, maybe; ask again"
    named = ", ".join(peer.address for peer in silent[:NAMED_MAX])
    more = f" and {len(silent) - NAMED_MAX} more" if len(silent) > NAMED_MAX else ""
    return f"no answer from {named}{more}, where subscription {name!r} may be; ask again"
