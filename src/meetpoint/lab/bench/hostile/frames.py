"""Frames that a broker should never get: from a seed, some for each of the ways in.

An attacker comes as nobody, as a client or as a broker. It says random bytes; good frames with a few bytes changed, cut
off, doubled, or in a frame of another length or version; messages with a part of another type; and, as a client,
requests that make no sense. All of that is to be refused. Well-formed messages with any values, as a client that asks
what it may, publishes events of which some bytes are changed among them, and as a broker that lies, are apart: a broker
does what it is asked, and believes who was let in as a broker; it must not end of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from meetpoint.api.client_messages import FROM_CLIENTS, Ask
from meetpoint.api.codec import Codec, WireError
from meetpoint.api.frames import frame, frames
from meetpoint.api.handshake import Hello, HelloRejected, IAm, Welcome
from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import Declare, Publish, Unsubscribe, Update
from meetpoint.catalog import make_link_codec
from meetpoint.lab.bench.hostile.inventing import Inventor
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.node.runtime.ring import Ring

__all__ = ["ROLES", "STRANGER", "Attack", "Role", "attacks"]

Role = Literal["nobody", "client", "broker", "asker", "liar"]
ROLES: Final[tuple[Role, ...]] = ("nobody", "client", "broker")
"""Those that say nothing that is good."""
STRANGER: Final = Peer(NodeId(Ring().hash(b"stranger")), "127.0.0.1:9", 0)
HANDSHAKE: Final = Codec((Hello, Welcome, HelloRejected, IAm))
FRAMES_MAX: Final = 100
"""How many frames are said on one connection at most."""
POOL: Final = 4_000
"""How many messages are invented; what is said is made of them."""
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
    """One connection: as whom, and the frames that are written on it one after the other."""

    __slots__ = ("frames", "role")

    def __init__(self, role: Role, said: list[bytes]) -> None:
        self.role = role
        self.frames = said

    def hello(self, network: str, way: str) -> bytes | None:
        """What is said first, by whoever is somebody."""
        if self.role == "nobody":
            return None
        peer = None if self.role in ("client", "asker") else STRANGER
        return frame(HANDSHAKE.encode(Hello((1, _VERSION), network, peer, "attacker", "", way if peer else "")))


def attacks(seed: int, roles: Sequence[Role] = ROLES, known: tuple[bytes, ...] = ()) -> Iterator[Attack]:
    """Attacks without end; `known` are bytes that the victim knows, such as its id.

    Of a client the first bad message ends the connection, of a broker the first bad frame: it comes last.
    """
    drawn = random.Random(seed)
    inventor = Inventor(seed, (bytes(STRANGER.id), *known))
    asks = [ask for _ in range(POOL) if b"leave" not in (ask := inventor.message(Ask))]  # which is done for a neighbour
    senseless = [ask for ask in asks if _is_senseless(_CLIENT.decode(ask))]
    asks += [_CLIENT.encode(Ask(1, Publish(_mutated(drawn.choice(_EVENTS), drawn)))) for _ in range(POOL // 4)]
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
    """Whether a request is one that every broker refuses."""
    assert isinstance(message, Ask)
    return message.request != 0 and isinstance(message.what, (Publish, Update, Unsubscribe, Declare))


def _framed(pool: list[bytes], drawn: random.Random) -> bytes:
    return frames([drawn.choice(pool) for _ in range(drawn.choice((1, 1, 1, 3)))], _VERSION)


def _refusable(message: bytes, drawn: random.Random) -> bytes:
    """A broker's message with a part of another type, such that it is none."""
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
    """Another content, in a frame that says its length."""
    changed = _mutated(data[5:], drawn)
    return (len(changed) + 1).to_bytes(4, "big") + data[4:5] + changed


def _mutated(data: bytes, drawn: random.Random) -> bytes:
    """Some bytes changed, cut off, doubled or put elsewhere; or any others."""
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
    """No frame: another length than it has, another version, or any bytes."""
    way = drawn.randrange(3)
    if way == 0:
        return drawn.randbytes(drawn.randrange(1, 200))
    if way == 1:
        return data[:4] + bytes((drawn.randrange(256),)) + data[5:]
    return drawn.choice((0, 1, len(data), 1 << 20, 1 << 30, (1 << 32) - 1)).to_bytes(4, "big") + data[4:]
