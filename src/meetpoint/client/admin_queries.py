"""Queries about brokers and their contents: to any of them, or to all.

A broker that does not answer leaves a query of all brokers incomplete. A broker that restarts will answer soon, and one
that has just left will soon be listed no more, so all are asked again until the client's timeout. Then an error names
the broker, unless the caller accepts a partial result: such a query is sent once and does not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import msgspec

from meetpoint.api import client_messages as messages
from meetpoint.api.client_messages import (
    Broker,
    BrokerStatus,
    HostedSubscription,
    JournalEntry,
    RequestBody,
    ResponseBody,
)
from meetpoint.api.ids import EventId, EventKey, Peer
from meetpoint.api.outcomes import Located, Refused, Stored
from meetpoint.api.requests import Declare, Locate
from meetpoint.client.arguments import labels_of
from meetpoint.client.connection import Connection
from meetpoint.client.connection_pool import Backoff, ConnectionPool
from meetpoint.client.errors import NetworkError, RefusedError
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack
from meetpoint.language.schema.schema import Schema
from meetpoint.language.schema.sources import read_schema, write_schema

__all__ = ["AdminQueries", "DeadLetter", "plain_id"]

BROKER_S = 5.0
"""The time that each broker has, where all are asked."""

W = TypeVar("W", bound=ResponseBody)
R = TypeVar("R")


class DeadLetter(msgspec.Struct, frozen=True):
    """An event that a subscriber did not take, the broker that keeps it, and the reason."""

    broker: Peer
    key: EventKey
    names: tuple[str, ...]
    """The subscriptions that did not take it."""
    event: Event
    reason: str
    at_us: int
    """The time when it became a dead letter: microseconds since 1970, by its broker's clock."""


class AdminQueries:
    """The queries of a client: the half of `Network` that neither publishes nor subscribes."""

    def __init__(self, connections: ConnectionPool, timeout_s: float) -> None:
        self.connections = connections
        self.timeout_s = timeout_s

    # -- any broker ----------------------------------------------------------------------------------------------------

    async def query(self, what: RequestBody, wanted: type[W]) -> W:
        """Query the connected broker, or another one, again until the timeout."""

        async def ask() -> W:
            return await _ask(await self.connections.main(), what, wanted)

        return await self._retried(ask)

    async def _retried(self, ask: Callable[[], Awaitable[R]]) -> R:
        """Repeat a query until it succeeds, a broker refuses it, or the timeout is over."""
        backoff = Backoff()
        problem = "no broker could be asked"
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    try:
                        return await ask()
                    except RefusedError:
                        raise
                    except NetworkError as error:
                        problem = str(error)
                    await backoff.wait()
        except TimeoutError:
            raise NetworkError(f"not done within {self.timeout_s:g} s: {problem}; try again later") from None

    async def locate_once(self, name: str) -> Located:
        """Return which broker hosts a durable subscription, with one try: NetworkError where that is not known now."""
        return await _ask(await self.connections.main(), Locate(name), Located)

    async def locate(self, name: str) -> Located:
        """Return which broker hosts a durable subscription, and its filter."""
        return await self.query(Locate(name), Located)

    async def brokers(self) -> list[Broker]:
        """Return all brokers, as far as the connected one knows."""
        return list((await self.query(messages.BrokersRequest(), messages.BrokersReply)).brokers)

    async def declare(self, schema: str | Schema) -> None:
        """Add attributes to the network's schema (YAML, or a Schema); those that it has may not change.

        Raises SchemaError where the text is no schema, RefusedError where it contradicts the network's.

        >>> await net.declare("attributes: {volume: integer}")  # doctest: +SKIP
        """
        text = schema if isinstance(schema, str) else write_schema(schema)
        read_schema(text)
        await self.query(Declare(text), Stored)

    async def schema(self) -> Schema | None:
        """Return the network's schema, or None."""
        text = (await self.query(messages.SchemaRequest(), messages.SchemaReply)).schema
        return read_schema(text) if text else None

    # -- all brokers ---------------------------------------------------------------------------------------------------

    async def subscriptions(
        self, owner: str | None = None, labels: Mapping[str, str] | None = None, *, partial_ok: bool = False
    ) -> list[HostedSubscription]:
        """Return all subscriptions of the network by name: of one owner, with all of these labels.

        All brokers are asked. Raises NetworkError where one does not answer in time, unless `partial_ok`.

        >>> [each.name for each in await net.subscriptions("ann")]  # doctest: +SKIP
        ['alerts']
        """
        answers = await self._hosted(owner, labels, partial_ok)
        return sorted((held for found in answers.values() for held in found or ()), key=lambda held: held.name)

    async def hosted(self) -> dict[Peer, list[HostedSubscription] | None]:
        """Return the subscriptions that each broker hosts; None for a broker that does not answer."""
        return await self._hosted(None, None, True)

    async def _hosted(
        self, owner: str | None, labels: Mapping[str, str] | None, partial_ok: bool
    ) -> dict[Peer, list[HostedSubscription] | None]:
        wanted = labels_of(labels or {})

        async def ask(connection: Connection) -> list[HostedSubscription]:
            found: list[HostedSubscription] = []
            after = ""
            while True:
                page = await _ask(
                    connection, messages.SubscriptionsRequest(owner or "", wanted, after), messages.SubscriptionsReply
                )
                found += page.subscriptions
                if not page.more or not page.subscriptions:
                    return found
                after = page.subscriptions[-1].name

        return await self._each(ask, partial_ok)

    async def dead_letters(self, name: str | None = None, *, partial_ok: bool = False) -> list[DeadLetter]:
        """Return the events that subscribers did not take, of all subscriptions or of one, the oldest first.

        All brokers are asked. Raises NetworkError where one does not answer in time, unless `partial_ok`.

        >>> [(each.event.id, each.reason) for each in await net.dead_letters("alerts")]  # doctest: +SKIP
        []
        """

        async def ask(connection: Connection) -> list[DeadLetter]:
            found: list[DeadLetter] = []
            after: EventKey | None = None
            while True:
                page = await _ask(connection, messages.DeadLettersRequest(name or "", after), messages.DeadLettersReply)
                found += (_dead_letter(connection.broker, letter) for letter in page.letters)
                if not page.more or not page.letters:
                    return found
                after = page.letters[-1].event

        answers = await self._each(ask, partial_ok)
        return sorted((one for found in answers.values() for one in found or ()), key=lambda one: (one.at_us, one.key))

    async def discard(self, letter: DeadLetter) -> None:
        """Delete a dead letter. Raises NetworkError where its broker cannot be reached."""
        await _ask(await self.connections.to(letter.broker), messages.Discard(letter.key), Stored)

    async def streams(self, partial_ok: bool = False) -> dict[Peer, messages.StreamsReply]:
        """Return how far each broker's archive has come; NetworkError where one does not answer in time.

        With `partial_ok`, brokers that do not answer at once are left out.
        """
        answers = await self._each(
            lambda connection: _ask(connection, messages.StreamsRequest(), messages.StreamsReply), partial_ok
        )
        return {peer: told for peer, told in answers.items() if told is not None}

    async def progress(self, publisher: str) -> int:
        """Return the highest sequence that any broker accepted of a batch publisher, whose name begins with `batch/`.

        All brokers are asked, and must answer: where a batch goes on may not be guessed.
        """
        answers = await self._each(
            lambda connection: _ask(connection, messages.ProgressRequest(publisher), messages.ProgressReply),
            partial_ok=False,
        )
        return max((told.sequence for told in answers.values() if told is not None), default=0)

    async def history(self, broker: Peer, what: messages.HistoryRequest) -> messages.HistoryReply:
        """Read a page of a stream, from the archive of one broker."""
        return await _ask(await self.connections.to(broker), what, messages.HistoryReply)

    async def status(self) -> dict[str, BrokerStatus | None]:
        """Return the status of each broker by address; None for one that does not answer."""
        answers = await self._once(lambda connection: _ask(connection, messages.StatusRequest(), BrokerStatus))
        return {peer.address: answer for peer, answer in answers.items()}

    async def ask_all(
        self, what: Callable[[Peer], RequestBody], wanted: type[W], timeout_s: float = BROKER_S
    ) -> dict[Peer, W | None]:  # fmt: skip
        """Send each broker a request of `api.client_messages`; None for one that takes longer than `timeout_s`.

        For tools that watch: what programs need has a method of its own.
        """
        return await self._once(lambda connection: _ask(connection, what(connection.broker), wanted), timeout_s)

    # -- views and traces ----------------------------------------------------------------------------------------------

    async def views(self) -> dict[Peer, messages.ViewReply | None]:
        """Return each broker's part of the overlay and the scheme; None for a broker that does not answer."""
        return await self._once(lambda connection: _ask(connection, messages.ViewRequest(), messages.ViewReply))

    async def follow(self, id: str, seconds: float = 30.0) -> dict[Peer, Stored | None]:  # noqa: A002
        """Have brokers record, for a while, the way of an event that will be published under this id."""
        return await self._once(lambda connection: _ask(connection, messages.Follow(plain_id(id), seconds), Stored))

    async def followed(self, id: str) -> dict[Peer, messages.FollowedReply | None]:  # noqa: A002
        """Return what all brokers recorded of an event; None for one that did not, or does not answer.

        Brokers are asked twice. The first answers name the threads of messages about the event; a broker may have seen
        such a message without knowing which event it is about.
        """
        refusals: list[RefusedError] = []

        async def ask(connection: Connection, threads: tuple[bytes, ...]) -> messages.FollowedReply:
            try:
                return await _ask(connection, messages.FollowedRequest(plain_id(id), threads), messages.FollowedReply)
            except RefusedError as error:
                refusals.append(error)
                raise NetworkError(str(error)) from None  # not final: another broker may have recorded it

        first = await self._once(lambda connection: ask(connection, ()))
        told = [answer for answer in first.values() if answer is not None]
        if refusals and not told:
            raise refusals[0]
        threads = tuple(dict.fromkeys(each.thread for answer in told for each in answer.seen if each.thread))
        return await self._once(lambda connection: ask(connection, threads)) if threads else first

    async def journal(
        self, id: str | None = None, *, key: EventKey | None = None, partial_ok: bool = False  # noqa: A002
    ) -> list[JournalEntry]:  # fmt: skip
        """Return what brokers remember of an event by its id or its key: each step, in the order of their clocks.

        All brokers are asked. Raises NetworkError where one does not answer in time, unless `partial_ok`.
        """
        keys = [] if key is None else [key]
        entries: list[JournalEntry] = []
        if id is not None:
            # only the broker where it was published knows the id; all know the key
            entries = await self._journal_entries(messages.JournalRequest(plain_id(id)), partial_ok)
            keys += [entry.event for entry in entries]
        for one in dict.fromkeys(keys):
            entries += await self._journal_entries(messages.JournalRequest("", one), partial_ok)
        return sorted(dict.fromkeys(entries), key=lambda entry: entry.at_us)

    async def _journal_entries(self, what: messages.JournalRequest, partial_ok: bool) -> list[JournalEntry]:
        answers = await self._each(lambda connection: _ask(connection, what, messages.JournalReply), partial_ok)
        return [entry for answer in answers.values() if answer is not None for entry in answer.lines]

    async def _each(self, ask: Callable[[Connection], Awaitable[R]], partial_ok: bool) -> dict[Peer, R | None]:
        """Query all brokers until all have answered; with `partial_ok` once, and None for those that do not."""
        if partial_ok:
            return await self._once(ask)
        return await self._retried(lambda: self._once(ask, all_must=True))

    async def _once(
        self, ask: Callable[[Connection], Awaitable[R]], timeout_s: float = BROKER_S, *, all_must: bool = False
    ) -> dict[Peer, R | None]:
        """Query all brokers concurrently; None for those that do not answer, unless all must."""
        problems: list[str] = []

        async def one(peer: Peer) -> R | None:
            try:
                async with asyncio.timeout(timeout_s):
                    return await ask(await self.connections.to(peer))
            except RefusedError:
                raise
            except TimeoutError:
                problems.append(f"broker {peer.address}: no answer within {timeout_s:g} s")
            except NetworkError as error:
                problems.append(str(error))
            return None

        peers = [broker.peer for broker in await self.brokers()]
        answers = await asyncio.gather(*(one(peer) for peer in peers))
        if problems and all_must:
            raise NetworkError(f"{len(problems)} of {len(peers)} brokers did not answer: {'; '.join(problems[:3])}")
        return dict(zip(peers, answers, strict=True))


async def _ask(connection: Connection, what: RequestBody, wanted: type[W]) -> W:
    word = await connection.request(what)
    if isinstance(word, wanted):
        return word
    if isinstance(word, Refused):
        raise NetworkError(f"broker {connection.address}: {word.reason}") if word.retry else RefusedError(word.reason)
    raise NetworkError(f"broker {connection.address}: answered {type(word).__name__}, not {wanted.__name__}")


def _dead_letter(broker: Peer, letter: messages.DeadLetterInfo) -> DeadLetter:
    return DeadLetter(broker, letter.event, letter.names, from_msgpack(letter.content), letter.reason, letter.at_us)


def plain_id(id_: str) -> str:
    """Make an EventId the `str` that it is: encoders take no subclass."""
    return str(id_) if isinstance(id_, EventId) else id_
