"""Frames of both versions: what goes in comes out, however the stream is cut, and bad messages cost only themselves."""

from __future__ import annotations

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.api.client_messages import FROM_CLIENTS, TO_CLIENTS
from meetpoint.api.codec import FRAME_MESSAGES_MAX, MESSAGE_MAX, Codec, FrameReader, WireError, frame, frames, split
from meetpoint.api.handshake import Hello, NewIncarnation
from meetpoint.api.ids import Peer
from meetpoint.node.runtime.ring import Ring

PEER = Peer(Ring(16).node(7), "n7", 3)
CODEC = Codec((NewIncarnation, Hello))
MESSAGES = [NewIncarnation(PEER), Hello((1, 2), "meetpoint", PEER), NewIncarnation(Peer(PEER.id, "n8", 4))]


def read(stream: bytes, version: int, step: int = 7) -> tuple[list[object], list[str]]:
    reader = FrameReader(version=version)
    refused: list[WireError] = []
    found: list[object] = []
    for at in range(0, len(stream), step):
        for piece in reader.feed(stream[at : at + step]):
            found += CODEC.decode_frame(piece, version, refused.append)
    assert reader.held == 0
    return found, [error.kind for error in refused]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 15, 16, 70_000])
def test_messages_come_out_as_they_went_in(version: int, count: int) -> None:
    messages = [MESSAGES[number % len(MESSAGES)] for number in range(count)]
    stream = frames([CODEC.encode(message) for message in messages], version)
    assert read(stream, version, 100_000) == (messages, [])


@pytest.mark.slow
@given(st.lists(st.sampled_from(MESSAGES), max_size=20), st.integers(1, 9), st.sampled_from([1, 2]))
def test_a_stream_may_be_cut_anywhere(messages: list[NewIncarnation], step: int, version: int) -> None:
    stream = frames([CODEC.encode(message) for message in messages], version)
    assert read(stream, version, step) == (messages, [])


def test_version_2_has_one_frame_for_many_and_more_where_they_do_not_fit() -> None:
    few = [CODEC.encode(message) for message in MESSAGES]
    assert len(FrameReader(version=2).feed(frames(few, 2))) == 1
    large = [msgspec.msgpack.encode(bytes(MESSAGE_MAX - 100)), msgspec.msgpack.encode(bytes(200)), few[0]]
    pieces = FrameReader(version=2).feed(frames(large, 2))
    assert [len(msgspec.msgpack.decode(piece)) for piece in pieces] == [1, 2]


@pytest.mark.parametrize("version", [1, 2])
def test_a_message_of_the_largest_size_fits_and_one_byte_more_does_not(version: int) -> None:
    assert FrameReader(version=version).feed(frame(bytes(MESSAGE_MAX), version))
    with pytest.raises(WireError, match=str(MESSAGE_MAX + 1)):
        frame(bytes(MESSAGE_MAX + 1), version)


@pytest.mark.parametrize("version", [1, 2])
def test_a_bad_message_costs_only_itself(version: int) -> None:
    good = CODEC.encode(MESSAGES[0])
    unknown = msgspec.msgpack.encode(["a message of tomorrow", 1])
    wrong = msgspec.msgpack.encode(["iam", 5])
    found = read(frames([good, unknown, good, wrong, good], version), version)
    assert found == ([MESSAGES[0]] * 3, ["unknown", "malformed"])


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x91" * 100_000, msgspec.msgpack.encode(7), b"\x92\xc0"])
def test_what_is_no_array_is_refused_whole(data: bytes) -> None:
    with pytest.raises(WireError) as caught:
        CODEC.decode_frame(data, 2, lambda error: None)
    assert caught.value.kind == "malformed"


def test_frames_of_another_version_than_the_chosen_one_are_refused() -> None:
    for spoken, expected in ((1, 2), (2, 1)):
        with pytest.raises(WireError) as caught:
            FrameReader(version=expected).feed(frame(CODEC.encode(MESSAGES[0]), spoken))
        assert caught.value.kind == "version"


def test_one_frame_at_a_time_may_be_read_and_the_rest_in_another_version() -> None:
    reader = FrameReader()
    stream = frame(b"\x01") + frame(b"\x02", 2)
    assert reader.feed(stream, 1) == [b"\x01"]
    reader.version = 2
    assert reader.feed(b"") == [b"\x91\x02"]


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_frames_before_a_bad_one_are_read_however_the_stream_is_cut(step: int) -> None:
    """Found by fuzzing: those that came in one piece with it were lost."""
    stream = frame(b"\x01") + frame(b"\x02") + (1 << 30).to_bytes(4, "big") + b"more"
    reader = FrameReader()
    found: list[bytes] = []
    with pytest.raises(WireError, match="1073741824 bytes"):  # noqa: PT012 - it may come with any of the pieces
        for at in range(0, len(stream), step):
            found += map(bytes, reader.feed(stream[at : at + step]))
            if reader.problem is not None:
                raise reader.problem
    assert found == [b"\x01", b"\x02"]
    with pytest.raises(WireError, match="1073741824 bytes"):
        reader.feed(b"")


def test_a_frame_of_too_many_messages_is_refused_and_none_is_written() -> None:
    many = [b"\x01"] * (FRAME_MESSAGES_MAX + 1)
    pieces = FrameReader(version=2).feed(frames(many, 2))
    assert [len(split(piece, 2)) for piece in pieces] == [FRAME_MESSAGES_MAX, 1]
    for data in (msgspec.msgpack.encode([1] * (FRAME_MESSAGES_MAX + 1)), b"\xdd\xff\xff\xff\xff"):
        with pytest.raises(WireError) as caught:
            split(data, 2)
        assert caught.value.kind == "oversized"


def test_the_frames_that_were_returned_stay_as_they_are_while_others_come() -> None:
    reader = FrameReader()
    (first,) = reader.feed(frame(b"first") + frame(b"second")[:3])
    (second,) = reader.feed(frame(b"second")[3:])
    assert (bytes(first), bytes(second)) == (b"first", b"second")


def test_what_is_said_of_bad_bytes_is_short_however_long_they_are() -> None:
    with pytest.raises(WireError) as caught:
        CODEC.decode(msgspec.msgpack.encode(["x" * 500_000]))
    assert caught.value.kind == "unknown"
    assert len(str(caught.value)) <= 500


@given(st.binary(max_size=200), st.sampled_from([1, 2]))
def test_any_bytes_give_messages_or_a_wire_error(data: bytes, version: int) -> None:
    for codec in (Codec(FROM_CLIENTS), Codec(TO_CLIENTS), CODEC):
        with contextlib.suppress(WireError):
            codec.decode_frame(data, version, lambda error: None)
