"""Messages as MessagePack, and back.

A codec knows the kinds of messages that its network speaks, each by its tag. Whatever the bytes are, `decode` returns a
message of one of these kinds or raises `WireError`, whose `kind` is what a driver counts: a peer's bad message is
dropped, never fatal. Besides its `DecodeError`, msgspec lets `UnicodeDecodeError` and `RecursionError` out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Union

import msgspec

from meetpoint.protocol.messages import Message

__all__ = ["MESSAGE_MAX", "Codec", "WireError"]

MESSAGE_MAX = 1 << 20
"""The longest message, in bytes."""

Kind = Literal["malformed", "oversized", "unknown", "version"]


class WireError(Exception):
    """Bytes from a peer that are no message. `kind` is one of a few words, for counting."""

    def __init__(self, kind: Kind, problem: str) -> None:
        super().__init__(problem)
        self.kind = kind


class Codec:
    """Encodes and decodes the messages of one network."""

    __slots__ = ("_decode", "_decode_array", "_size_max", "_tags", "encode", "kinds")

    def __init__(self, kinds: Sequence[type[Message]], size_max: int = MESSAGE_MAX) -> None:
        self.kinds = tuple(kinds)
        self._tags = {kind.__struct_config__.tag for kind in kinds}
        if len(self._tags) != len(kinds):
            raise ValueError("two kinds of messages have one tag")
        self.encode = msgspec.msgpack.Encoder().encode
        kind: Any = Union[tuple(kinds)]  # noqa: UP007 - the kinds are known when it runs
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._decode_array = msgspec.msgpack.Decoder(list[kind]).decode
        self._size_max = size_max

    def decode(self, data: bytes) -> Message:
        """The message in some bytes; WireError where there is none."""
        if len(data) > self._size_max:
            raise WireError("oversized", f"a message of {len(data)} bytes; at most {self._size_max} are read")
        try:
            return self._decode(data)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            kind: Kind = "malformed" if self._knows_tag(data) else "unknown"
            raise WireError(kind, f"a message that is not as it should be: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise WireError("malformed", f"bytes that are no message: {error}") from None

    def decode_frame(self, data: bytes, version: int, refused: Callable[[WireError], None]) -> list[Message]:
        """The messages that a frame of a version carries; those that are none are told to `refused`, one by one.

        WireError where the whole is nothing that a frame of this version carries.
        """
        if version == 1:
            pieces = [data]
        else:
            try:
                return self._decode_array(data)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pieces = _pieces(data)
        found = []
        for piece in pieces:
            try:
                found.append(self.decode(piece))
            except WireError as error:
                refused(error)
        return found

    def _knows_tag(self, data: bytes) -> bool:
        try:
            array = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return True
        return not (isinstance(array, list) and array and isinstance(array[0], str)) or array[0] in self._tags


def _pieces(data: bytes) -> list[bytes]:
    """The bytes of each message in an array, where not all are messages that this side knows."""
    try:
        return [bytes(piece) for piece in msgspec.msgpack.decode(data, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("malformed", f"bytes that are no array of messages: {error}") from None
