"""Attacks on a broker: invented messages, hostile frames from a seed, and an attacker that sends them.

An attacker comes as nobody, as a client or as a broker. It sends random bytes; good frames with a few bytes changed,
cut off, doubled, or in a frame of another length or version; messages with a part of another type; and, as a client,
requests that make no sense. All of that is to be refused. Well-formed messages with any values are apart: from a
client that asks what it may, with published events of which some bytes are changed, and from a broker that lies. A
broker does what it is asked, and believes a peer that was let in as a broker; but it must not end of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
from msgspec import inspect

from meetpoint.api.client_messages import FROM_CLIENTS, Request
from meetpoint.api.codec import Codec, WireError, frame, frames
from meetpoint.api.handshake import Hello, HelloRejected, NewIncarnation, Welcome
from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import Declare, Publish, Unsubscribe, Update
from meetpoint.catalog import make_link_codec
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.node.runtime.ring import Ring

NUMBERS: Final = (0, 1, 2, 7, -1, 255, 2**31, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63))
TEXTS: Final = (
    "",
    "a",
    "s",
    "x" * 300,
    "\x00",
    "127.0.0.1:1",
    "nowhere:x",
    "price > 3",
    "x = 'ünïcödé'",
    "1/2/3",
    "ff/0/1",
)


class MessageGenerator:
    """A generator of structs with any values; some bytes and texts are those that the victim knows."""

    def __init__(self, seed: int, known: tuple[bytes, ...] = ()) -> None:
        self._random = random.Random(seed)
        self._known = known

    def message(self, kind: type[msgspec.Struct]) -> bytes:
        """Return the bytes of a message of a kind."""
        return msgspec.msgpack.encode(self._value(_fields(kind), 0))

    def _value(self, kind: inspect.Type, depth: int) -> Any:
        drawn = self._random
        if isinstance(kind, inspect.UnionType):
            return self._value(drawn.choice(kind.types), depth)
        if isinstance(kind, inspect.StructType):
            fields = [self._value(field.type, depth + 1) for field in kind.fields]
            return fields if kind.tag is None else [kind.tag, *fields]
        if isinstance(kind, inspect.NamedTupleType):
            return [self._value(field.type, depth + 1) for field in kind.fields]
        if isinstance(kind, inspect.IntType):
            number = drawn.choice(NUMBERS) if drawn.random() < 0.5 else drawn.randrange(5)
            low, high = -(2**63) if kind.ge is None else kind.ge, 2**64 - 1 if kind.le is None else kind.le
            return min(max(number, low), high)
        if isinstance(kind, inspect.BytesType):
            return drawn.choice(
                (*self._known, b"", b"\x00", drawn.randbytes(8), drawn.randbytes(20), b"\x93\x01\x02\x03")
            )
        if isinstance(kind, inspect.StrType):
            return drawn.choice(TEXTS)
        if isinstance(kind, inspect.BoolType):
            return drawn.random() < 0.5
        if isinstance(kind, inspect.FloatType):
            return drawn.choice((0.0, 1.5, -1e300, float("inf"), float("nan")))
        if isinstance(kind, inspect.NoneType):
            return None
        if isinstance(kind, inspect.EnumType):
            return drawn.choice([each.value for each in kind.cls])
        if isinstance(kind, inspect.LiteralType):
            return drawn.choice(kind.values)
        if isinstance(kind, inspect.TupleType):
            return [self._value(item, depth + 1) for item in kind.item_types]
        if isinstance(kind, inspect.CollectionType | inspect.VarTupleType | inspect.ListType):
            return [self._value(kind.item_type, depth + 1) for _ in range(drawn.randrange(3 if depth < 4 else 1))]
        if isinstance(kind, inspect.DictType):
            many = range(drawn.randrange(3))
            return {self._value(kind.key_type, depth + 1): self._value(kind.value_type, depth + 1) for _ in many}
        if isinstance(kind, inspect.AnyType):
            return drawn.choice((None, 1, "a", b"b"))
        raise AssertionError(f"nothing is known of {kind}")


@lru_cache(maxsize=1024)
def _fields(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)


# -- frames ------------------------------------------------------------------------------------------------------------


Role = Literal["nobody", "client", "broker", "asker", "liar"]
ROLES: Final[tuple[Role, ...]] = ("nobody", "client", "broker")
"""The roles that send nothing valid."""
STRANGER: Final = Peer(NodeId(Ring().hash(b"stranger")), "127.0.0.1:9", 0)
HANDSHAKE: Final = Codec((Hello, Welcome, HelloRejected, NewIncarnation))
FRAMES_MAX: Final = 100
"""The most frames on one connection."""
POOL: Final = 4_000
"""The number of invented messages; frames are made of them."""
_VERSION: Final = 2
_LINK: Final = make_link_codec()
_CLIENT: Final = Codec(FROM_CLIENTS)
_MOMENT: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)
_EVENTS: Final = (
    to_msgpack(Event("e", "p", 1, _MOMENT, {"a": 1, "b": "x", "o": {"x": None, "y": {"z": True}}})),
    to_msgpack(Event("e", "p", 2, _MOMENT, {"d": Decimal("8.30"), "f": 0.5, "n": 10**30, "t": _MOMENT, "o": {"d": 1}})),
)
_VALUES: Final[tuple[object, ...]] = (
    None,
    True,
    -1,
    2**64 - 1,
    0.5,
    float("nan"),
    "",
    "x" * 50,
    b"",
    b"\xff",
    [[]],
    {},
)


class Attack:
    """A connection: its role, and the frames that are written on it one after the other."""

    __slots__ = ("frames", "role")

    def __init__(self, role: Role, said: list[bytes]) -> None:
        self.role = role
        self.frames = said

    def hello(self, network: str, way: str) -> bytes | None:
        """Return the handshake; None of an attacker who comes as nobody."""
        if self.role == "nobody":
            return None
        peer = None if self.role in ("client", "asker") else STRANGER
        return frame(HANDSHAKE.encode(Hello((1, _VERSION), network, peer, "attacker", "", way if peer else "")))


def attacks(seed: int, roles: Sequence[Role] = ROLES, known: tuple[bytes, ...] = ()) -> Iterator[Attack]:
    """Yield attacks without end; `known` are bytes that the victim knows, such as its id.

    The first bad message of a client ends the connection, and the first bad frame of a broker: it comes last.
    """
    drawn = random.Random(seed)
    inventor = MessageGenerator(seed, (bytes(STRANGER.id), *known))
    asks = [
        ask for _ in range(POOL) if b"leave" not in (ask := inventor.message(Request))
    ]  # which is done for a neighbour
    senseless = [ask for ask in asks if _is_senseless(_CLIENT.decode(ask))]
    asks += [_CLIENT.encode(Request(1, Publish(_mutated(drawn.choice(_EVENTS), drawn)))) for _ in range(POOL // 4)]
    links = [inventor.message(drawn.choice(_LINK.kinds)) for _ in range(POOL)]
    while True:
        role = drawn.choice(roles)
        count = drawn.randrange(FRAMES_MAX)
        if role == "nobody":
            who = drawn.choice((None, STRANGER))
            said = [frame(HANDSHAKE.encode(Hello((1, _VERSION), "meetpoint", who, "attacker")))]
        elif role == "client":
            said = [_framed(senseless, drawn) for _ in range(count + 1)]
        elif role == "asker":
            said = [_framed(asks, drawn) for _ in range(count + 1)]
        elif role == "broker":
            said = [frames([_refusable(drawn.choice(links), drawn)], _VERSION) for _ in range(count + 1)]
        else:
            said = [_framed(links, drawn) for _ in range(count + 1)]
        said[-1] = drawn.choice((_changed, _broken))(said[-1], drawn)
        yield Attack(role, said)


def _is_senseless(message: Message) -> bool:
    """Return whether every broker refuses a request."""
    assert isinstance(message, Request)
    return message.request != 0 and isinstance(message.what, (Publish, Update, Unsubscribe, Declare))


def _framed(pool: list[bytes], drawn: random.Random) -> bytes:
    return frames([drawn.choice(pool) for _ in range(drawn.choice((1, 1, 1, 3)))], _VERSION)


def _refusable(message: bytes, drawn: random.Random) -> bytes:
    """Twist a part of a broker's message to another type until it is invalid."""
    while True:
        twisted = msgspec.msgpack.encode(_twisted(msgspec.msgpack.decode(message), drawn))
        try:
            _LINK.decode(twisted)
        except WireError:
            return twisted


def _twisted(value: Any, drawn: random.Random) -> Any:
    if not isinstance(value, list) or not value or drawn.random() < 0.2:
        return drawn.choice(_VALUES)
    at = drawn.randrange(len(value))
    return [*value[:at], _twisted(value[at], drawn), *value[at + 1 :]]


def _changed(data: bytes, drawn: random.Random) -> bytes:
    """Change the content, in a frame with the right length."""
    changed = _mutated(data[5:], drawn)
    return (len(changed) + 1).to_bytes(4, "big") + data[4:5] + changed


def _mutated(data: bytes, drawn: random.Random) -> bytes:
    """Change, cut off, double or move some bytes; or replace all."""
    changed = bytearray(data)
    way = drawn.randrange(6)
    at = drawn.randrange(len(changed))
    if way == 0:
        del changed[at:]
    elif way == 1:
        changed[at:at] = changed[at : at + drawn.randrange(1, 30)]
    elif way == 2:
        changed = bytearray(drawn.randbytes(drawn.randrange(200)))
    elif way == 3:
        begin, length = drawn.randrange(len(changed)), drawn.randrange(1, 30)
        changed[at : at + length] = changed[begin : begin + length]
    else:
        for _ in range(drawn.randrange(1, 5)):
            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
    return bytes(changed)


def _broken(data: bytes, drawn: random.Random) -> bytes:
    """Break a frame: another length than it has, another version, or any bytes."""
    way = drawn.randrange(3)
    if way == 0:
        return drawn.randbytes(drawn.randrange(1, 200))
    if way == 1:
        return data[:4] + bytes((drawn.randrange(256),)) + data[5:]
    return drawn.choice((0, 1, len(data), 1 << 20, 1 << 30, (1 << 32) - 1)).to_bytes(4, "big") + data[4:]


# -- the attacker ------------------------------------------------------------------------------------------------------


_PAUSE_S = 0.02
_ANSWER_S = 20.0
"""The longest answer that is waited for: a broker has others to serve first."""


class Attacker:
    """An attacker with one connection after the other at each of some places, until it has sent enough."""

    def __init__(self, host: str, port: int, attacks: Iterator[Attack], network: str, way: str) -> None:
        self._address = host, port
        self._attacks = attacks
        self._network = network
        self._way = way
        self.frames = 0
        """The number of frames written."""
        self.connections = 0
        self.failures = 0
        """Connections that the broker did not take."""

    async def attack(self, frames: int, places: int = 4, is_on: Callable[[], bool] = lambda: True) -> None:
        """Send so many frames, while `is_on` is true."""
        until = self.frames + frames

        async def some() -> None:
            while self.frames < until:
                if is_on():
                    await self._once(next(self._attacks))
                else:
                    await asyncio.sleep(_PAUSE_S)

        await asyncio.gather(*(some() for _ in range(places)))

    async def _once(self, attack: Attack) -> None:
        try:
            reader, writer = await asyncio.open_connection(*self._address)
        except OSError:
            self.failures += 1
            await asyncio.sleep(0.05)
            return
        self.connections += 1
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(self._say(attack, reader, writer), _ANSWER_S)
        # Aborted, not closed: a broker that does not read would keep the attacker waiting.
        writer.transport.abort()

    async def _say(self, attack: Attack, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello = attack.hello(self._network, self._way)
        if hello is not None:
            writer.write(hello)
            await reader.read(1)
        for each in attack.frames:
            if writer.transport.is_closing():
                break
            writer.write(each)
            self.frames += 1
            await writer.drain()
            await asyncio.sleep(0)  # what the broker has closed is noticed here
        writer.write_eof()
        while await reader.read(1 << 16):
            pass
