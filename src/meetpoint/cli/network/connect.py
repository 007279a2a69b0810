"""Connections of commands to brokers: the options for them, and requests to one broker or to all.

A command that talks to brokers has a parameter `at: ConnectOptions`, and `with_connect_options()` gives it the same
options as all others. A token belongs in a file or in the environment rather than on the command line, which other
users see.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
import typer

from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from meetpoint.api.client_messages import DeadLetterInfo, HostedSubscription, RequestBody, ResponseBody
    from meetpoint.api.ids import Peer
    from meetpoint.client.connection import Connection
    from meetpoint.client.connection_pool import Dialer
    from meetpoint.client.network import Connecting


__all__ = [
    "LOCAL_NETWORK",
    "BrokerLink",
    "BrokerSet",
    "ConnectOptions",
    "all_dead_letters",
    "all_subscriptions",
    "brokers_at",
    "just_before",
    "labels_of",
    "request",
    "run",
    "with_connect_options",
]


# -- options -----------------------------------------------------------------------------------------------------------


DEFAULT_URL = "mp://localhost:7400"

At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="URL",
        envvar="MEETPOINT_AT",
        help="A broker of the network, or several: mp://one:7400,two:7400; with TLS mps://one:7400.",
    ),
]
_Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", metavar="FILE", envvar="MEETPOINT_CA", help="The certificate of the network's authority, for mps://."
    ),
]
_Token = Annotated[
    str,
    typer.Option("--token", metavar="TOKEN", envvar="MEETPOINT_TOKEN", help="What the network lets you in by."),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", envvar="MEETPOINT_TOKEN_FILE", help="A file that holds the token."),
]


class ConnectOptions(NamedTuple):
    """The address of a network, and the credentials for it."""

    url: str = DEFAULT_URL
    ca: Path | None = None
    token: str = ""
    token_file: Path | None = None

    def dialer(self) -> Dialer:
        """Return a dialer of single connections."""
        from meetpoint.client.connection_pool import Dialer

        return Dialer(self.url, token=self._give_token, ca=self.ca)

    def connect(self, client: str = "") -> Connecting:
        """Connect a client of the network."""
        from meetpoint.client import connect

        return connect(self.url, client, token=self._give_token, ca=self.ca)

    def _give_token(self) -> str:
        """Return the token; a file is read for each connection, so that it may be renewed meanwhile."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise MeetpointError(f"--token-file {self.token_file}: {reason}; give the path of a file") from None
        except UnicodeDecodeError:
            raise MeetpointError(
                f"--token-file {self.token_file}: holds no token; see: meetpoint token issue"
            ) from None


LOCAL_NETWORK = ConnectOptions()
"""A network on this machine."""


def with_connect_options(
    where: Any = At, default: Any = DEFAULT_URL
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter `at: ConnectOptions` by options; `where` is the one for the url."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            reach = ConnectOptions(*(given.pop(name) for name in ConnectOptions._fields))
            if reach.token and reach.token_file is not None:
                raise typer.BadParameter(
                    "there is --token-file too (or MEETPOINT_TOKEN_FILE); give one of them.", param_hint="--token"
                )
            command(**given, at=reach)

        options = (("url", where, default), ("ca", _Ca, None), ("token", _Token, ""), ("token_file", _TokenFile, None))
        new = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=kind)
            for name, kind, value in options
        ]
        kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in signature.parameters.values()]
        place = [each.name for each in kept].index("at")
        run.__signature__ = signature.replace(parameters=[*kept[:place], *new, *kept[place + 1 :]])  # type: ignore[attr-defined]
        return run

    return decorate


# -- brokers -----------------------------------------------------------------------------------------------------------


BROKER_TIMEOUT_S = 3.0
"""The time for one broker of many to connect, and to answer."""

T = TypeVar("T")


def run(question: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; Ctrl-C and SIGTERM cancel it and raise KeyboardInterrupt."""
    import signal

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread, or not on this system
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        try:
            return await question
        finally:
            with suppress(NotImplementedError, RuntimeError, ValueError):
                loop.remove_signal_handler(signal.SIGTERM)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


class BrokerLink(msgspec.Struct):
    """A broker with its connection, or the problem why there is none."""

    peer: Peer
    connection: Connection | None
    problem: str = ""
    is_refused: bool = False
    """Whether the problem is that the broker may not be asked."""


class BrokerSet:
    """All brokers of a network, as the first that answered knows them; each is dialled once."""

    def __init__(self, first: Connection, dialer: Dialer, timeout_s: float) -> None:
        self.first = first
        self.timeout_s = timeout_s
        self._dialer = dialer
        self._links: dict[str, BrokerLink] = {}

    async def all(self) -> list[BrokerLink]:
        """Connect to all brokers; return them by address, unreachable ones included."""
        from meetpoint.api.client_messages import BrokersReply
        from meetpoint.api.client_messages import BrokersRequest as RequestBody

        first = self._first_open()  # the broker that was asked first may have stopped since
        reply = await request(first, RequestBody(), BrokersReply)
        peers = {broker.peer.address: broker.peer for broker in reply.brokers}
        found = await asyncio.gather(*(self.connect_to(peer) for peer in peers.values()))
        return sorted(found, key=lambda broker: _place(broker.peer.address))

    async def connect_to(self, peer: Peer) -> BrokerLink:
        """Connect to a broker, unless a connection is open."""
        from meetpoint.client.errors import NetworkError

        known = self._links.get(peer.address)
        if known is not None and known.connection is not None and known.connection.is_open:
            return known
        if self.first.is_open and self.first.broker.address == peer.address:
            broker = BrokerLink(peer, self.first)
        else:
            try:
                broker = BrokerLink(peer, await self._dialer.dial(peer.address, self.timeout_s))
            except NetworkError as error:
                broker = BrokerLink(peer, None, str(error))
        self._links[peer.address] = broker
        return broker

    async def ask(self, broker: BrokerLink, question: RequestBody, kind: type[T]) -> T | None:
        """Return a broker's answer, or None after the timeout; the reason is in `problem` then."""
        from meetpoint.client.errors import NetworkError, RefusedError

        if broker.connection is None:
            return None
        try:
            async with asyncio.timeout(self.timeout_s):
                return await request(broker.connection, question, kind)
        except TimeoutError:
            broker.problem = f"broker {broker.peer.address}: no answer within {self.timeout_s:g} s"
        except NetworkError as error:
            broker.problem, broker.is_refused = str(error), isinstance(error, RefusedError)
        return None

    async def close(self) -> None:
        """Close all connections."""
        connections = {
            id(broker.connection): broker.connection for broker in self._links.values() if broker.connection is not None
        }
        connections[id(self.first)] = self.first
        await asyncio.gather(*(connection.close() for connection in connections.values()))

    def _first_open(self) -> Connection:
        connections = (
            self.first,
            *(broker.connection for broker in self._links.values() if broker.connection is not None),
        )
        return next((connection for connection in connections if connection.is_open), self.first)


@asynccontextmanager
async def brokers_at(at: ConnectOptions, timeout_s: float = BROKER_TIMEOUT_S) -> AsyncIterator[BrokerSet]:
    """Lend the brokers of a network; raise NetworkError, in one line, where nobody answers."""
    from meetpoint.client.errors import NetworkError, RefusedError

    dialer = at.dialer()
    problems: list[str] = []
    for address in dialer.url.addresses:
        try:
            first = await dialer.dial(address, BROKER_TIMEOUT_S)
            break
        except RefusedError:
            raise
        except NetworkError as error:
            problems.append(str(error))
    else:
        raise NetworkError("; ".join(problems))
    brokers = BrokerSet(first, dialer, timeout_s)
    try:
        yield brokers
    finally:
        await brokers.close()


async def request(connection: Connection, question: RequestBody, kind: type[T]) -> T:
    """Return a broker's answer of the expected kind; raise NetworkError where it refuses."""
    from meetpoint.api.outcomes import Refused
    from meetpoint.client.errors import NetworkError, RefusedError

    reply: ResponseBody = await connection.request(question)
    if isinstance(reply, kind):
        return reply
    if isinstance(reply, Refused):
        options = f"broker {connection.address} refuses: {reply.reason}"
        raise NetworkError(f"{options}; try again") if reply.retry else RefusedError(options)
    raise NetworkError(f"broker {connection.address} answered something else; is it of this version?")


async def all_subscriptions(
    brokers: BrokerSet, broker: BrokerLink, owner: str, labels: tuple[tuple[str, str], ...]
) -> list[HostedSubscription] | None:
    """Return all subscriptions that a broker hosts; None where it does not answer."""
    from meetpoint.api.client_messages import SubscriptionsReply, SubscriptionsRequest

    found: list[HostedSubscription] = []
    after = ""
    while True:
        reply = await brokers.ask(broker, SubscriptionsRequest(owner, labels, after), SubscriptionsReply)
        if reply is None:
            return None
        found += reply.subscriptions
        if not reply.more or not reply.subscriptions:
            return found
        after = reply.subscriptions[-1].name


async def all_dead_letters(brokers: BrokerSet, broker: BrokerLink, name: str) -> list[DeadLetterInfo] | None:
    """Return all dead letters at a broker; None where it does not answer."""
    from meetpoint.api.client_messages import DeadLettersReply, DeadLettersRequest

    found: list[DeadLetterInfo] = []
    after = None
    while True:
        reply = await brokers.ask(broker, DeadLettersRequest(name, after), DeadLettersReply)
        if reply is None:
            return None
        found += reply.letters
        if not reply.more or not reply.letters:
            return found
        after = reply.letters[-1].event


def just_before(name: str) -> str:
    """Return a text right before a name in sorted order, to ask for that name in a long list."""
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
    """Read the values of all `--label KEY=VALUE`."""
    from meetpoint.cli.options import read_settings

    return read_settings(given, "--label")
