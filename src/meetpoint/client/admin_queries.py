"""Questions to brokers: to any of them, or to all.

A broker that does not answer makes an answer about all of them incomplete. One that restarts will answer soon, and one
that has just left will soon be listed no more, so that all are asked again for as long as is waited. Then it is an
error that names the broker, unless the caller says that a part will do: who says so is not made to wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from meetpoint.api.client_messages import (
    Broker,
    Brokers,
    BrokersAre,
    BrokerStatus,
    DeadLetterInfo,
    DeadLetters,
    DeadLettersAre,
    Discard,
    Follow,
    Followed,
    FollowedIs,
    Held,
    History,
    HistoryIs,
    Journal,
    JournalEntry,
    JournalIs,
    ProgressIs,
    ProgressOf,
    Question,
    SchemaIs,
    SchemaOf,
    Status,
    Streams,
    StreamsAre,
    Subscriptions,
    SubscriptionsAre,
    View,
    ViewIs,
    Word,
)
from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.outcomes import Located, Refused, Stored
from meetpoint.api.requests import Declare, Locate
from meetpoint.client.backoff import Backoff
from meetpoint.client.connection import Connection
from meetpoint.client.connection_pool import ConnectionPool
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.client.subscription_options import labels_of
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.language.schema.sources import read_schema, write_schema

__all__ = ["AdminQueries", "DeadLetter"]

BROKER_S = 5.0
"""How long one of all brokers may take."""

W = TypeVar("W", bound=Word)
R = TypeVar("R")


class DeadLetter(msgspec.Struct, frozen=True):
    """A dead letter: an event that a subscriber did not take, at which broker it lies, and why."""

    broker: Peer
    key: EventKey
    names: tuple[str, ...]
    """The subscriptions that it was for."""
    event: Event
    reason: str
    at_us: int
    """When it became one: microseconds since 1970, by its broker's clock."""


class AdminQueries:
    """What a client asks."""

    def __init__(self, links: ConnectionPool, timeout_s: float) -> None:
        self._links = links
        self._timeout_s = timeout_s

    # -- any broker ----------------------------------------------------------------------------------------------------

    async def any(self, what: Question, wanted: type[W]) -> W:
        """Ask the broker that is connected, or another, again while that helps."""

        async def ask() -> W:
            return await _ask(await self._links.main(), what, wanted)

        return await self._patiently(ask)

    async def _patiently(self, ask: Callable[[], Awaitable[R]]) -> R:
        """Ask again while that helps, for as long as is waited."""
        backoff = Backoff()
        problem = "no broker could be asked"
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await ask()
                    except RefusedError:
                        raise
                    except NetworkError as error:
                        problem = str(error)
                    await backoff.wait()
        except TimeoutError:
            raise NetworkError(f"not done within {self._timeout_s:g} s: {problem}; try again later") from None

    async def locate_once(self, name: str) -> Located:
        """Where a subscription is, if that can be known now."""
        return await _ask(await self._links.main(), Locate(name), Located)

    async def locate(self, name: str) -> Located:
        """Where a subscription is."""
        return await self.any(Locate(name), Located)

    async def brokers(self) -> list[Broker]:
        """All brokers, as far as the connected one knows."""
        return list((await self.any(Brokers(), BrokersAre)).brokers)

    async def declare(self, schema: str | Schema) -> None:
        """Add attributes to the network's schema."""
        text = schema if isinstance(schema, str) else write_schema(schema)
        read_schema(text)
        await self.any(Declare(text), Stored)

    async def schema(self) -> Schema | None:
        """The network's schema, as the connected broker knows it."""
        text = (await self.any(SchemaOf(), SchemaIs)).schema
        return read_schema(text) if text else None

    # -- all brokers ---------------------------------------------------------------------------------------------------

    async def subscriptions(self, owner: str | None, labels: Mapping[str, str] | None, partial_ok: bool) -> list[Held]:
        """All subscriptions, or those of an owner, or with some labels, by name."""
        answers = await self.hosted(owner, labels, partial_ok)
        return sorted((held for found in answers.values() for held in found or ()), key=lambda held: held.name)

    async def hosted(
        self, owner: str | None, labels: Mapping[str, str] | None, partial_ok: bool
    ) -> dict[Peer, list[Held] | None]:
        """The same, by the broker that hosts them."""
        wanted = labels_of(labels or {})

        async def ask(link: Connection) -> list[Held]:
            found: list[Held] = []
            after = ""
            while True:
                page = await _ask(link, Subscriptions(owner or "", wanted, after), SubscriptionsAre)
                found += page.subscriptions
                if not page.more or not page.subscriptions:
                    return found
                after = page.subscriptions[-1].name

        return await self._each(ask, partial_ok)

    async def dead_letters(self, name: str | None, partial_ok: bool) -> list[DeadLetter]:
        """Events that were not taken, by any subscription or by one, the oldest first."""

        async def ask(link: Connection) -> list[DeadLetter]:
            found: list[DeadLetter] = []
            after: EventKey | None = None
            while True:
                page = await _ask(link, DeadLetters(name or "", after), DeadLettersAre)
                found += (_letter(link.broker, letter) for letter in page.letters)
                if not page.more or not page.letters:
                    return found
                after = page.letters[-1].event

        answers = await self._each(ask, partial_ok)
        return sorted((one for found in answers.values() for one in found or ()), key=lambda one: (one.at_us, one.key))

    async def discard(self, letter: DeadLetter) -> None:
        """Forget a dead letter."""
        await _ask(await self._links.to(letter.broker), Discard(letter.key), Stored)

    async def streams(self, partial_ok: bool = False) -> dict[Peer, StreamsAre]:
        """How far the archive of every broker has come; NetworkError where one does not say so in time.

        Where a part will do, those that do not answer at once are left out.
        """
        answers = await self._each(lambda link: _ask(link, Streams(), StreamsAre), partial_ok)
        return {peer: told for peer, told in answers.items() if told is not None}

    async def progress(self, publisher: str) -> int:
        """The highest sequence that any broker accepted of a publisher of batches."""
        answers = await self._each(lambda link: _ask(link, ProgressOf(publisher), ProgressIs), partial_ok=False)
        return max((told.sequence for told in answers.values() if told is not None), default=0)

    async def history(self, broker: Peer, what: History) -> HistoryIs:
        """A page of a stream, from the archive of one broker."""
        return await _ask(await self._links.to(broker), what, HistoryIs)

    async def status(self) -> dict[str, BrokerStatus | None]:
        """By address, how each broker is; None of one that does not answer."""
        answers = await self._once(lambda link: _ask(link, Status(), BrokerStatus))
        return {peer.address: answer for peer, answer in answers.items()}

    async def every(
        self, what: Callable[[Peer], Question], wanted: type[W], patience_s: float
    ) -> dict[Peer, W | None]:  # fmt: skip
        """Ask each broker something, and wait so long; None of those that do not answer."""
        return await self._once(lambda link: _ask(link, what(link.broker), wanted), patience_s)

    # -- looking at the network ----------------------------------------------------------------------------------------

    async def views(self) -> dict[Peer, ViewIs | None]:
        """What each broker's part of the overlay and the scheme looks like; None of one that does not answer."""
        return await self._once(lambda link: _ask(link, View(), ViewIs))

    async def follow(self, id_: str, seconds: float) -> dict[Peer, Stored | None]:
        """Have all brokers remember what is said and done about an event; None of one that does not answer."""
        return await self._once(lambda link: _ask(link, Follow(id_, seconds), Stored))

    async def followed(self, id_: str) -> dict[Peer, FollowedIs | None]:
        """What all brokers have seen of an event that is followed; None of one that does not, or does not answer.

        They are asked twice: what one knows to be about the event, others may have seen without knowing.
        """
        refusals: list[RefusedError] = []

        async def ask(link: Connection, threads: tuple[bytes, ...]) -> FollowedIs:
            try:
                return await _ask(link, Followed(id_, threads), FollowedIs)
            except RefusedError as error:
                refusals.append(error)
                raise NetworkError(str(error)) from None  # others may know it

        first = await self._once(lambda link: ask(link, ()))
        told = [answer for answer in first.values() if answer is not None]
        if refusals and not told:
            raise refusals[0]
        threads = tuple(dict.fromkeys(each.thread for answer in told for each in answer.seen if each.thread))
        return await self._once(lambda link: ask(link, threads)) if threads else first

    async def journal(self, id_: str | None, key: EventKey | None, partial_ok: bool) -> list[JournalEntry]:
        """What all brokers remember of an event, in the order of their clocks.

        Only the broker where it was published knows its id; all know its key.
        """
        keys = [] if key is None else [key]
        lines: list[JournalEntry] = []
        if id_ is not None:
            lines = await self._lines(Journal(id_), partial_ok)
            keys += [line.event for line in lines]
        for one in dict.fromkeys(keys):
            lines += await self._lines(Journal("", one), partial_ok)
        return sorted(dict.fromkeys(lines), key=lambda line: line.at_us)

    async def _lines(self, what: Journal, partial_ok: bool) -> list[JournalEntry]:
        answers = await self._each(lambda link: _ask(link, what, JournalIs), partial_ok)
        return [line for answer in answers.values() if answer is not None for line in answer.lines]

    async def _each(self, ask: Callable[[Connection], Awaitable[R]], partial_ok: bool) -> dict[Peer, R | None]:
        """Ask all brokers until all have answered; once, and None of those that do not, where a part will do."""
        if partial_ok:
            return await self._once(ask)
        return await self._patiently(lambda: self._once(ask, all_must=True))

    async def _once(
        self, ask: Callable[[Connection], Awaitable[R]], patience_s: float = BROKER_S, *, all_must: bool = False
    ) -> dict[Peer, R | None]:
        """Ask all brokers at once; None of those that do not answer, unless all must."""
        problems: list[str] = []

        async def one(peer: Peer) -> R | None:
            try:
                async with asyncio.timeout(patience_s):
                    return await ask(await self._links.to(peer))
            except RefusedError:
                raise
            except TimeoutError:
                problems.append(f"broker {peer.address}: no answer within {patience_s:g} s")
            except NetworkError as error:
                problems.append(str(error))
            return None

        peers = [broker.peer for broker in await self.brokers()]
        answers = await asyncio.gather(*(one(peer) for peer in peers))
        if problems and all_must:
            raise NetworkError(f"{len(problems)} of {len(peers)} brokers did not answer: {'; '.join(problems[:3])}")
        return dict(zip(peers, answers, strict=True))


async def _ask(link: Connection, what: Question, wanted: type[W]) -> W:
    word = await link.asked(what)
    if isinstance(word, wanted):
        return word
    if isinstance(word, Refused):
        raise NetworkError(f"broker {link.address}: {word.reason}") if word.retry else RefusedError(word.reason)
    raise NetworkError(f"broker {link.address}: answered {type(word).__name__}, not {wanted.__name__}")


def _letter(broker: Peer, letter: DeadLetterInfo) -> DeadLetter:
    return DeadLetter(broker, letter.event, letter.names, from_msgpack(letter.content), letter.reason, letter.at_us)
