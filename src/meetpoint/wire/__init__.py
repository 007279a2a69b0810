"""Bytes and messages: MessagePack inside frames with a length and a version."""

from meetpoint.wire.codec import Codec, Piece, WireError, split
from meetpoint.wire.frames import FRAME_MAX, VERSION, FrameReader, frame, frames

__all__ = ["FRAME_MAX", "VERSION", "Codec", "FrameReader", "Piece", "WireError", "frame", "frames", "split"]
