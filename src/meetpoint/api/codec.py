"""Messages as MessagePack, and back.

A codec knows the kinds of messages that its network speaks, each by its tag. Whatever the bytes are, `decode` returns a
message of one of these kinds or raises `WireError`, whose `kind` is what a driver counts: a peer's bad message is
dropped, never fatal. Besides its `DecodeError`, msgspec lets `UnicodeDecodeError` and `RecursionError` out.

A frame's messages are first cut apart and then decoded one by one, each when its turn comes: objects take many times
the room of their bytes, so that whoever waits for its turn is held as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, Union

import msgspec

from meetpoint.api.messages import Message

__all__ = ["FRAME_MESSAGES_MAX", "MESSAGE_MAX", "Codec", "Piece", "WireError", "split"]

MESSAGE_MAX: Final = 1 << 20
"""The longest message, in bytes."""
FRAME_MESSAGES_MAX: Final = 8192
"""How many messages are in a frame at most: knowing where one begins takes 64 bytes."""
_REASON_MAX: Final = 500

Piece: TypeAlias = bytes | memoryview | msgspec.Raw
"""The bytes of one message, or of a frame."""

Kind = Literal["malformed", "oversized", "unknown", "version"]


class WireError(Exception):
    """Bytes from a peer that are no message. `kind` is one of a few words, for counting."""

    def __init__(self, kind: Kind, problem: str) -> None:
        super().__init__(problem[:_REASON_MAX])
        self.kind = kind


class Codec:
    """Encodes and decodes the messages of one network."""

    __slots__ = ("_decode", "_size_max", "encode", "kinds")

    def __init__(self, kinds: Sequence[type[Message]], size_max: int = MESSAGE_MAX) -> None:
        self.kinds = tuple(kinds)
        if len({kind.__struct_config__.tag for kind in kinds}) != len(kinds):
            raise ValueError("two kinds of messages have one tag")
        self.encode = msgspec.msgpack.Encoder().encode
        kind: Any = Union[tuple(kinds)]  # noqa: UP007 - the kinds are known when it runs
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._size_max = size_max

    def decode(self, data: Piece) -> Message:
        """The message in some bytes; WireError where there is none."""
        size = memoryview(data).nbytes
        if size > self._size_max:
            raise WireError("oversized", f"a message of {size} bytes; at most {self._size_max} are read")
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            problem = str(error)
            is_unknown = problem.startswith("Invalid value") and problem.endswith(_AT_TAG)
            kind: Kind = "unknown" if is_unknown else "malformed"
            raise WireError(kind, f"a message that is not as it should be: {problem}") from None
        except _NOT_DECODED as error:
            raise WireError("malformed", f"bytes that are no message: {error}") from None

    def decode_frame(self, data: Piece, version: int, refused: Callable[[WireError], None]) -> list[Message]:
        """The messages that a frame of a version carries; those that are none are told to `refused`, one by one.

        WireError where the whole is nothing that a frame of this version carries.
        """
        found = []
        for piece in split(data, version):
            try:
                found.append(self.decode(piece))
            except WireError as error:
                refused(error)
        return found


def split(data: Piece, version: int) -> Sequence[Piece]:
    """The bytes of each message in a frame of a version; WireError where they are no array of not too many."""
    if version == 1:
        return (data,)
    count = _array_length(bytes(memoryview(data)[:5]))
    if count > FRAME_MESSAGES_MAX:
        raise WireError("oversized", f"a frame of {count} messages; at most {FRAME_MESSAGES_MAX} are read")
    try:
        return _PIECES.decode(data)
    except _NOT_DECODED as error:
        raise WireError("malformed", f"bytes that are no array of messages: {error}") from None


def _array_length(head: bytes) -> int:
    """What an array's first bytes say of its length; 0 where they begin none, which is found out later."""
    if head[:1] == b"\xdc":
        return int.from_bytes(head[1:3], "big")
    return int.from_bytes(head[1:5], "big") if head[:1] == b"\xdd" else 0


_PIECES: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_AT_TAG: Final = "`$[0]`"
"""Where msgspec says that the mistake is, if nobody knows the message's kind."""
