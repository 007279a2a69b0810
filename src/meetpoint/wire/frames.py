"""Frames: where a message begins and ends in a stream of bytes.

A frame is four bytes of length, big-endian, one byte of version, and the message; the length counts what follows it. A
length beyond the limit is refused when its four bytes are there, before anything is held for it.
"""

from __future__ import annotations

from meetpoint.wire.codec import MESSAGE_MAX, WireError

__all__ = ["FRAME_MAX", "VERSION", "FrameReader", "frame"]

VERSION = 1
FRAME_MAX = MESSAGE_MAX + 1
"""The largest length in a frame's head: a message of the largest size, and the version."""

_HEAD = 4


def frame(message: bytes) -> bytes:
    """The frame around a message's bytes."""
    length = len(message) + 1
    if length > FRAME_MAX:
        raise WireError("oversized", f"a message of {len(message)} bytes; a frame carries at most {MESSAGE_MAX}")
    return length.to_bytes(_HEAD, "big") + bytes((VERSION,)) + message


class FrameReader:
    """Cuts a stream into messages' bytes. After a WireError the stream is lost: close it."""

    __slots__ = ("_buffer", "_frame_max")

    def __init__(self, frame_max: int = FRAME_MAX) -> None:
        self._buffer = bytearray()
        self._frame_max = frame_max

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes as they come, and return the messages that are complete."""
        buffer = self._buffer
        buffer += data
        found = []
        position = 0
        while len(buffer) - position >= _HEAD:
            length = int.from_bytes(buffer[position : position + _HEAD], "big")
            if length > self._frame_max:
                raise WireError("oversized", f"a frame of {length} bytes; at most {self._frame_max} are read")
            if length < 1:
                raise WireError("malformed", "an empty frame; it has at least a version")
            if len(buffer) - position > _HEAD and buffer[position + _HEAD] != VERSION:
                theirs = buffer[position + _HEAD]
                raise WireError("version", f"a frame of version {theirs}; this side speaks version {VERSION}")
            end = position + _HEAD + length
            if len(buffer) < end:
                break
            found.append(bytes(buffer[position + _HEAD + 1 : end]))
            position = end
        del buffer[:position]
        return found

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._buffer)
