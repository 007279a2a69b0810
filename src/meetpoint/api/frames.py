"""Frames: where messages begin and end in a stream of bytes.

A frame is four bytes of length, big-endian, one byte of version, and what it carries; the length counts what follows
it. Version 1 carries one message, version 2 an array of messages: whoever has many to say at one moment says them in
one frame. A length beyond the limit is refused when its four bytes are there, before anything is held for it, and a
frame that is complete is read where it lies, so that nothing holds it twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from meetpoint.api.codec import FRAME_MESSAGES_MAX, MESSAGE_MAX, WireError

__all__ = ["FRAME_MAX", "VERSION", "FrameReader", "frame", "frames"]

VERSION = 1
_ARRAY_HEAD_MAX = 5  # of other programs; 3 of this one
FRAME_MAX = MESSAGE_MAX + 1 + _ARRAY_HEAD_MAX
"""The largest length in a frame's head: a message of the largest size, the version, and the head of an array."""

_HEAD = 4


def frame(message: bytes, version: int = VERSION) -> bytes:
    """The frame around one message's bytes."""
    return frames((message,), version)


def frames(messages: Sequence[bytes], version: int = VERSION) -> bytes:
    """The frames around some messages' bytes: one for each, or as few as they fit into."""
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
    """Cuts a stream into what its frames carry. After a WireError the stream is lost: close it.

    `version` and `frame_max` may be changed between two frames: they are others once a connection has begun.
    """

    __slots__ = ("_buffer", "frame_max", "problem", "version")

    def __init__(self, frame_max: int = FRAME_MAX, version: int = VERSION) -> None:
        self._buffer = bytearray()
        self.frame_max = frame_max
        self.version = version
        self.problem: WireError | None = None
        """What is wrong with what follows the frames that were returned last; the next call raises it."""

    def feed(self, data: bytes, most: int | None = None) -> list[memoryview]:
        """Take bytes as they come, and return what is complete, `most` frames of it; the rest comes with the next."""
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
        """Bytes of an unfinished frame."""
        return len(self._buffer)
