"""Asking brokers from a command: one of them, or each of the network, with an answer or a reason why there is none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from meetpoint.cli.network.connect import Reach

if TYPE_CHECKING:
    from meetpoint.api.client_messages import DeadLetterInfo, Held, Question, Word
    from meetpoint.api.ids import Peer
    from meetpoint.client.connection import Connection
    from meetpoint.client.dialer import Dialer

__all__ = [
    "Brokers",
    "Reached",
    "all_dead",
    "all_held",
    "answered",
    "brokers_at",
    "just_before",
    "labels_of",
    "run",
]

PATIENCE_S = 3.0
"""How long one broker of many may take to be reached, and to answer."""

T = TypeVar("T")


def run(what: Coroutine[Any, Any, T]) -> T:
    """Run something asynchronous to its end; Ctrl-C and SIGTERM cancel it, and come out as KeyboardInterrupt."""
    import signal

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or not on this system
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            return await what
        finally:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGTERM)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class Reached(msgspec.Struct):
    """One broker of the network: a link to it, or why there is none."""

    peer: Peer
    link: Connection | None
    problem: str = ""
    is_refused: bool = False
    """Whether the problem is that it may not be asked."""


class Brokers:
    """All brokers of a network, as the first that answered knows them; each is dialled once."""

    def __init__(self, first: Connection, dialler: Dialer, patience_s: float) -> None:
        self.first = first
        self.patience_s = patience_s
        self._dialler = dialler
        self._reached: dict[str, Reached] = {}

    async def all(self) -> list[Reached]:
        """Everyone, those who are silent too, in the order of their addresses."""
        from meetpoint.api.client_messages import Brokers as Question
        from meetpoint.api.client_messages import BrokersAre

        first = self._first_open()
        told = await answered(first, Question(), BrokersAre)
        peers = {broker.peer.address: broker.peer for broker in told.brokers}
        found = await asyncio.gather(*(self.to(peer) for peer in peers.values()))
        return sorted(found, key=lambda one: _place(one.peer.address))

    async def to(self, peer: Peer) -> Reached:
        """One of them."""
        from meetpoint.client.errors import NetworkError

        known = self._reached.get(peer.address)
        if known is not None and known.link is not None and known.link.is_open:
            return known
        if self.first.is_open and self.first.broker.address == peer.address:
            one = Reached(peer, self.first)
        else:
            try:
                one = Reached(peer, await self._dialler.dial(peer.address, self.patience_s))
            except NetworkError as error:
                one = Reached(peer, None, str(error))
        self._reached[peer.address] = one
        return one

    async def ask(self, one: Reached, what: Question, kind: type[T]) -> T | None:
        """What a broker answers within a while; None, and the reason in `problem`, where it does not."""
        from meetpoint.client.errors import NetworkError, RefusedError

        if one.link is None:
            return None
        try:
            async with asyncio.timeout(self.patience_s):
                return await answered(one.link, what, kind)
        except TimeoutError:
            one.problem = f"broker {one.peer.address}: no answer within {self.patience_s:g} s"
        except NetworkError as error:
            one.problem, one.is_refused = str(error), isinstance(error, RefusedError)
        return None

    async def close(self) -> None:
        """Hang up everywhere."""
        links = {id(one.link): one.link for one in self._reached.values() if one.link is not None}
        links[id(self.first)] = self.first
        await asyncio.gather(*(link.close() for link in links.values()))

    def _first_open(self) -> Connection:
        links = (self.first, *(one.link for one in self._reached.values() if one.link is not None))
        return next((link for link in links if link.is_open), self.first)


@asynccontextmanager
async def brokers_at(at: Reach, patience_s: float = PATIENCE_S) -> AsyncIterator[Brokers]:
    """The network at a url; NetworkError, in one line, where nobody is there."""
    from meetpoint.client.errors import NetworkError, RefusedError

    dialler = at.dialler()
    problems: list[str] = []
    for address in dialler.url.addresses:
        try:
            first = await dialler.dial(address, PATIENCE_S)
            break
        except RefusedError:
            raise
        except NetworkError as error:
            problems.append(str(error))
    else:
        raise NetworkError("; ".join(problems))
    brokers = Brokers(first, dialler, patience_s)
    try:
        yield brokers
    finally:
        await brokers.close()


async def answered(link: Connection, what: Question, kind: type[T]) -> T:
    """The answer of one broker, of the kind that is expected; NetworkError where it is a refusal."""
    from meetpoint.api.outcomes import Refused
    from meetpoint.client.errors import NetworkError, RefusedError

    word: Word = await link.asked(what)
    if isinstance(word, kind):
        return word
    if isinstance(word, Refused):
        said = f"broker {link.address} refuses: {word.reason}"
        raise NetworkError(f"{said}; try again") if word.retry else RefusedError(said)
    raise NetworkError(f"broker {link.address} answered something else; is it of this version?")


async def all_held(
    brokers: Brokers, one: Reached, owner: str, labels: tuple[tuple[str, str], ...]
) -> list[Held] | None:
    """All subscriptions that one broker hosts; None where it is silent."""
    from meetpoint.api.client_messages import Subscriptions, SubscriptionsAre

    found: list[Held] = []
    after = ""
    while True:
        told = await brokers.ask(one, Subscriptions(owner, labels, after), SubscriptionsAre)
        if told is None:
            return None
        found += told.subscriptions
        if not told.more or not told.subscriptions:
            return found
        after = told.subscriptions[-1].name


async def all_dead(brokers: Brokers, one: Reached, name: str) -> list[DeadLetterInfo] | None:
    """All dead letters at one broker; None where it is silent."""
    from meetpoint.api.client_messages import DeadLetters, DeadLettersAre

    found: list[DeadLetterInfo] = []
    after = None
    while True:
        told = await brokers.ask(one, DeadLetters(name, after), DeadLettersAre)
        if told is None:
            return None
        found += told.letters
        if not told.more or not told.letters:
            return found
        after = told.letters[-1].event


def just_before(name: str) -> str:
    """A text that sorts before a name, and after nearly all that sort before it: to ask for one of a long list."""
    if not name:
        return ""
    last = ord(name[-1]) - 1
    if last < 0:
        return name[:-1]
    if 0xD800 <= last <= 0xDFFF:  # surrogates, which no text on the wire has
        last = 0xD7FF
    return name[:-1] + chr(last) + "\U0010ffff"


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port) if port.isdigit() else 0


def labels_of(given: list[str] | None) -> dict[str, str]:
    """`--label KEY=VALUE`, any number of times."""
    from meetpoint.cli.options import read_settings

    return read_settings(given, "--label")
