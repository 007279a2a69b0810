"""All connections of one client: which brokers it knows, the one it asks, and those its subscriptions are at.

A broker is dialled when someone wants it, once at a time. Brokers are known from the url, and from what brokers tell of
each other, so that a client finds its way when those of the url are gone.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from meetpoint.api.client_messages import Brokers, BrokersAre, Word
from meetpoint.api.ids import Peer
from meetpoint.client.connection import Connection
from meetpoint.client.dialer import Dialer
from meetpoint.client.errors import NetworkError, RefusedError

__all__ = ["ConnectionPool"]

LEARN_S = 30.0
"""How often a client asks which brokers there are."""
KNOWN_MAX = 256


class ConnectionPool:
    """The connections of one client."""

    def __init__(self, dialler: Dialer) -> None:
        self._dialler = dialler
        self._given = dialler.url.addresses
        self._known: dict[str, None] = dict.fromkeys(self._given)
        self._failed: dict[str, int] = {}
        self._failures = 0
        self._open: dict[bytes, Connection] = {}
        self._all: set[Connection] = set()
        self._main: Connection | None = None
        self._locks: dict[str, asyncio.Lock] = {}
        self._choosing = asyncio.Lock()
        self._learning: asyncio.TimerHandle | None = None
        self._over = False

    @property
    def entry(self) -> Connection | None:
        """The link that is asked, if there is one now."""
        return self._main if self._main is not None and _is_good(self._main) else None

    async def main(self) -> Connection:
        """A link to some broker, the same as long as it lasts."""
        async with self._choosing:
            if (now := self.entry) is not None:
                return now
            former = self._main
            if former is not None and (link := self._any_open()) is not None:
                self._main = link
                return link
            self._main = self._keep(await self._dial_first())
            self._learn()
            return self._main

    def open_to(self, peer: Peer) -> Connection | None:
        """The link to one broker, if there is one now."""
        link = self._open.get(peer.id)
        return link if link is not None and _is_good(link) else None

    async def to(self, peer: Peer) -> Connection:
        """A link to one broker."""
        self._check()
        async with self._locks.setdefault(peer.address, asyncio.Lock()):
            if (now := self.open_to(peer)) is not None:
                return now
            link = await self._dial(peer.address)
            if link.broker.id != peer.id:
                await link.close()
                raise NetworkError(f"broker {peer.address}: another one is there now; it is looked for again")
            return self._keep(link)

    async def apart(self) -> Connection:
        """A new link for one purpose alone, to the broker that is asked if it can be had."""
        self._check()
        entry = self.entry
        if entry is not None:
            with suppress(NetworkError):
                return await self._dial(entry.address)
        return await self._dial_first()

    async def close(self) -> None:
        """Close all of them."""
        self._over = True
        if self._learning is not None:
            self._learning.cancel()
        await asyncio.gather(*(link.close() for link in tuple(self._all)))

    # -- dialling ------------------------------------------------------------------------------------------------------

    async def _dial_first(self) -> Connection:
        """The first that answers of all that are known, those that failed last asked last."""
        self._check()
        problems: list[NetworkError] = []
        for address in sorted(self._known, key=lambda address: self._failed.get(address, 0)):
            try:
                return await self._dial(address)
            except RefusedError:
                raise
            except NetworkError as error:
                problems.append(error)
        if len(problems) == 1:
            raise problems[0]
        shown = "; ".join(str(problem) for problem in problems[:3]) + ("; …" if len(problems) > 3 else "")
        raise NetworkError(f"none of {len(problems)} brokers can be reached: {shown}")

    async def _dial(self, address: str) -> Connection:
        self._check()
        try:
            link = await self._dialler.dial(address)
        except NetworkError:
            self._fail(address)
            raise
        if self._over:
            await link.close()
            self._check()
        self._all.add(link)
        link.on_lost.append(lambda: self._lost(link))
        link.on_closing.append(lambda: self._know(link.others))
        return link

    def _fail(self, *addresses: str) -> None:
        self._failures += 1
        for address in addresses:
            self._failed[address] = self._failures

    def _lost(self, link: Connection) -> None:
        self._all.discard(link)
        if not link.is_closed_here:
            self._fail(link.address, link.broker.address)

    def _keep(self, link: Connection) -> Connection:
        former = self._open.get(link.broker.id)
        if former is not None and _is_good(former):
            link.abort("there is another one")
            return former
        self._open[link.broker.id] = link
        link.on_lost.append(lambda: self._forget(link))
        return link

    def _forget(self, link: Connection) -> None:
        if self._open.get(link.broker.id) is link:
            del self._open[link.broker.id]

    def _any_open(self) -> Connection | None:
        return next((link for link in self._open.values() if _is_good(link)), None)

    def _check(self) -> None:
        if self._over:
            raise NetworkError("this client is closed; connect again")

    # -- knowing -------------------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
        entry = self.entry
        if entry is not None:
            entry.ask(Brokers(), self._told)
        if not self._over:
            self._learning = asyncio.get_running_loop().call_later(LEARN_S, self._learn)

    def _told(self, word: Word | None) -> None:
        if isinstance(word, BrokersAre):
            told = [broker.peer.address for broker in word.brokers]
            self._known = dict.fromkeys((*self._given, *told[:KNOWN_MAX]))
            self._failed = {address: when for address, when in self._failed.items() if address in self._known}

    def _know(self, addresses: tuple[str, ...]) -> None:
        for address in addresses:
            if len(self._known) < KNOWN_MAX:
                self._known[address] = None

    @property
    def known(self) -> tuple[str, ...]:
        """All addresses that are known, those of the url first."""
        return tuple(self._known)


def _is_good(link: Connection) -> bool:
    return link.is_open and not link.is_closing
