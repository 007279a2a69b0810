"""Messages as MessagePack, and the frames around them.

A codec knows the kinds of messages of its network, each by its tag. For any bytes, `decode` returns a message of one of
these kinds or raises `WireError`, whose `kind` a driver counts: a peer's bad message is dropped, never fatal. Besides
its `DecodeError`, msgspec raises `UnicodeDecodeError` and `RecursionError`.

A frame is first cut into messages, which are then decoded one by one, each just before it is handled: objects take many
times the memory of their bytes, so messages that wait are kept as bytes.

Frames mark where messages begin and end in a stream of bytes.

A frame is four bytes of length, big-endian, one byte of version, and a payload; the length counts what follows it. In
version 1 the payload is one message, in version 2 an array of messages, so that many go out in one frame. A length
beyond the limit is refused as soon as its four bytes are there, before memory is taken for it. A complete frame is read
in place, without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, Union

import msgspec

from meetpoint.api.messages import Message

__all__ = [
    "FRAME_MAX",
    "FRAME_MESSAGES_MAX",
    "MESSAGE_MAX",
    "VERSION",
    "Codec",
    "FrameReader",
    "Piece",
    "WireError",
    "frame",
    "frames",
    "split",
]

MESSAGE_MAX: Final = 1 << 20
"""The size of the longest message, in bytes."""
FRAME_MESSAGES_MAX: Final = 8192
"""The most messages in a frame: each takes 64 bytes before it is decoded."""
_REASON_MAX: Final = 500
VERSION = 1
_ARRAY_HEAD_MAX = 5  # other programs may write the longest form; this one writes at most 3 bytes
FRAME_MAX = MESSAGE_MAX + 1 + _ARRAY_HEAD_MAX
"""The largest length in a frame's head: a message of the largest size, the version, and the head of an array."""

_HEAD = 4

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
        """Decode a message; WireError where the bytes are none."""
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
        """Decode the messages in a frame of a version; `refused` is called for each that is none.

        WireError where the whole is no frame of this version.
        """
        found = []
        for piece in split(data, version):
            try:
                found.append(self.decode(piece))
            except WireError as error:
                refused(error)
        return found


def split(data: Piece, version: int) -> Sequence[Piece]:
    """Cut a frame into its messages; WireError where it is no array of them, or has too many."""
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
    """Read the length in an array's first bytes; 0 where they begin none: decoding finds that out later."""
    if head[:1] == b"\xdc":
        return int.from_bytes(head[1:3], "big")
    return int.from_bytes(head[1:5], "big") if head[:1] == b"\xdd" else 0


_PIECES: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_NOT_DECODED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_AT_TAG: Final = "`$[0]`"
"""The place that msgspec names in its error for a message of an unknown kind."""


# -- frames -----------------------------------------------------------------------------------------------------------


def frame(message: bytes, version: int = VERSION) -> bytes:
    """Wrap one encoded message in a frame."""
    return frames((message,), version)


def frames(messages: Sequence[bytes], version: int = VERSION) -> bytes:
    """Wrap encoded messages in frames: one for each in version 1, as few as they fit into in version 2."""
    parts: list[bytes] = []
    if version == 1:
        for message in messages:
            length = len(message) + 1
            if length > MESSAGE_MAX + 1:
                raise _too_long(message)
            parts += (length.to_bytes(_HEAD, "big"), b"\x01", message)
        return b"".join(parts)
    begin = size = 0
    for position, message in enumerate(messages):
        if len(message) > MESSAGE_MAX:
            raise _too_long(message)
        size += len(message)
        if size > MESSAGE_MAX or position - begin == FRAME_MESSAGES_MAX:
            _put_array(parts, messages[begin:position], size - len(message), version)
            begin, size = position, len(message)
    if begin < len(messages):
        _put_array(parts, messages[begin:] if begin else messages, size, version)
    return b"".join(parts)


def _put_array(parts: list[bytes], messages: Sequence[bytes], size: int, version: int) -> None:
    count = len(messages)
    head = bytes((version, 0x90 | count)) if count < 16 else bytes((version, 0xDC)) + count.to_bytes(2, "big")
    parts.append((size + len(head)).to_bytes(_HEAD, "big"))
    parts.append(head)
    parts += messages


def _too_long(message: bytes) -> WireError:
    return WireError("oversized", f"a message of {len(message)} bytes; a frame carries at most {MESSAGE_MAX}")


class FrameReader:
    """Cuts a stream into the payloads of its frames. After a WireError the stream is lost: close it.

    `version` and `frame_max` may be changed between two frames: the handshake has smaller ones.
    """

    __slots__ = ("_buffer", "frame_max", "problem", "version")

    def __init__(self, frame_max: int = FRAME_MAX, version: int = VERSION) -> None:
        self._buffer = bytearray()
        self.frame_max = frame_max
        self.version = version
        self.problem: WireError | None = None
        """An error after the frames that were returned last; the next call raises it."""

    def feed(self, data: bytes, most: int | None = None) -> list[memoryview]:
        """Take bytes as they come, and return complete payloads, at most `most`; the next call returns the rest."""
        if self.problem is not None:
            raise self.problem
        buffer = self._buffer
        buffer += data
        whole = memoryview(buffer)
        found: list[memoryview] = []
        position = 0
        while len(buffer) - position >= _HEAD and len(found) != most:
            length = int.from_bytes(whole[position : position + _HEAD], "big")
            self.problem = self._problem(length, buffer[position + _HEAD : position + _HEAD + 1])
            end = position + _HEAD + length
            if self.problem is not None or len(buffer) < end:
                break
            found.append(whole[position + _HEAD + 1 : end])
            position = end
        if self.problem is not None and not found:
            raise self.problem
        if position:
            self._buffer = buffer[position:]  # the frames keep the former one for as long as they are needed
        return found

    def _problem(self, length: int, version: bytearray) -> WireError | None:
        if length > self.frame_max:
            return WireError("oversized", f"a frame of {length} bytes; at most {self.frame_max} are read")
        if length < 1:
            return WireError("malformed", "an empty frame; it has at least a version")
        if version and version[0] != self.version:
            return WireError("version", f"a frame of version {version[0]}; this side speaks version {self.version}")
        return None

    @property
    def held(self) -> int:
        """The number of bytes of an unfinished frame."""
        return len(self._buffer)
