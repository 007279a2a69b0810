"""Bytes from a peer become a message or a WireError, and nothing else ever."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.api.codec import FRAME_MAX, VERSION, Codec, FrameReader, WireError, frame
from meetpoint.api.ids import HomeId, Peer
from meetpoint.api.messages import Message
from meetpoint.catalog import make_codec
from meetpoint.node.cluster.directory import Entry, Sync, Synced
from meetpoint.node.cluster.replication import Replicate
from meetpoint.node.runtime.records import Record
from meetpoint.node.runtime.ring import Ring

CODEC = make_codec()
RING = Ring(16)
PEER = Peer(RING.node(7), "n7", 3)
HOME = HomeId(bytes(PEER.id))
SYNC = Sync(5, b"12345678", (Entry(HOME, 2, PEER),))


def outcome(data: bytes) -> str:
    """What becomes of bytes; anything but a message and a WireError comes out as the error that it is."""
    try:
        CODEC.decode(data)
    except WireError as error:
        return error.kind
    return "message"


def encoded(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


@pytest.mark.parametrize(
    "message",
    [
        SYNC,
        Synced(5, b"", (), True),
        Replicate(1, HOME, 1, 1, (Record(HOME, "last", 9, b"\x00"), Record(HOME, "x", 1, None)), ("y",), True, False),
    ],
)
def test_a_message_survives_the_wire(message: Message) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message


def test_a_message_is_an_array_that_begins_with_its_tag() -> None:
    assert msgspec.msgpack.decode(CODEC.encode(SYNC))[:4] == [
        "sync",
        5,
        b"12345678",
        [[b"\x00\x07", 2, [b"\x00\x07", "n7", 3], False]],
    ]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "malformed"),
        (b"\xc1", "malformed"),
        (encoded([]), "malformed"),
        (encoded(7), "malformed"),
        (encoded(["sync"]), "malformed"),
        (encoded(["sync", "five", b"", []]), "malformed"),
        (encoded(["sync", 5, b"", [[b"x", 1, [b"x", "n", "three"], False]]]), "malformed"),
        (encoded(["sync", 5, b""]) + b"\x00", "malformed"),
        (encoded(["sync", 5, b""])[:-1], "malformed"),
        (b"\x92\xa4sync\xa2\xff\xff", "malformed"),
        (b"\x91" * 100_000, "malformed"),
        (encoded(["no such message", 1]), "unknown"),
    ],
)
def test_bytes_that_are_no_message_are_refused_by_kind(data: bytes, kind: str) -> None:
    with pytest.raises(WireError) as caught:
        CODEC.decode(data)
    assert caught.value.kind == kind


OUT_OF_BOUNDS = {
    "an incarnation below 0": ["sync", 5, b"", [[b"h", 1, [b"n", "a", -1], False]]],
    "an incarnation beyond": ["sync", 5, b"", [[b"h", 1, [b"n", "a", 2**62 + 1], False]]],
    "an epoch below 0": ["sync", 5, b"", [[b"h", -1, [b"n", "a", 1], False]]],
    "an epoch whose versions no disk holds": ["sync", 5, b"", [[b"h", 2**22, [b"n", "a", 1], False]]],
    "an epoch to adopt": ["adopt", 5, b"h", 2**40],
    "a version": ["copy", 1, b"h", 1, 1, [[b"h", "x", 2**63, None]], [], True, False],
    "a version below 0": ["keep", 1, b"h", [[b"h", "x", -1, None]]],
    "a serial": ["copy", 1, b"h", 1, 2**64 - 1, [], [], True, False],
}


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_numbers_that_are_counted_up_are_read_only_where_sums_of_them_are_numbers_too(name: str) -> None:
    assert outcome(encoded(OUT_OF_BOUNDS[name])) == "malformed"


def test_numbers_at_their_bounds_are_read() -> None:
    entry = [b"h", 2**22 - 1, [b"n", "a", 2**62], False]
    assert outcome(encoded(["sync", 5, b"", [entry]])) == "message"
    assert outcome(encoded(["copy", 1, b"h", 0, 2**62, [[b"h", "x", 2**62, None]], [], True, False])) == "message"


def test_a_message_of_the_largest_size_is_read_and_one_byte_more_is_not() -> None:
    data = CODEC.encode(SYNC)
    assert Codec((Sync,), size_max=len(data)).decode(data) == SYNC
    with pytest.raises(WireError) as caught:
        Codec((Sync,), size_max=len(data) - 1).decode(data)
    assert caught.value.kind == "oversized"


class Older(Message, frozen=True, array_like=True, gc=False, tag="said"):
    number: int


class Newer(Message, frozen=True, array_like=True, gc=False, tag="said"):
    number: int
    more: str = "nothing"


def test_fields_added_at_the_end_are_skipped_by_an_older_reader() -> None:
    assert Codec((Older,)).decode(Codec((Newer,)).encode(Newer(5, "a field of tomorrow"))) == Older(5)


def test_fields_missing_at_the_end_are_filled_in_by_a_newer_reader() -> None:
    assert Codec((Newer,)).decode(Codec((Older,)).encode(Older(5))) == Newer(5, "nothing")
    assert CODEC.decode(encoded(["sync", 5, b""])) == Sync(5, b"", ())


def test_two_kinds_with_one_tag_are_refused() -> None:
    with pytest.raises(ValueError, match="one tag"):
        Codec((Sync, Sync))


@given(st.binary(max_size=300))
def test_any_bytes_give_a_message_or_a_wire_error(data: bytes) -> None:
    outcome(data)


@given(st.data())
def test_a_message_with_bytes_changed_gives_a_message_or_a_wire_error(data: st.DataObject) -> None:
    original = bytearray(CODEC.encode(SYNC))
    for _ in range(data.draw(st.integers(1, 4))):
        original[data.draw(st.integers(0, len(original) - 1))] = data.draw(st.integers(0, 255))
    outcome(bytes(original))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.sampled_from(["sync", "copy", "fetched", "flooding", "flooded", "adopt"]), st.lists(VALUES, max_size=8))
def test_a_known_tag_with_any_fields_gives_a_message_or_a_wire_error(tag: str, fields: list[object]) -> None:
    assert outcome(encoded([tag, *fields])) in ("message", "malformed")


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 7))
def test_frames_come_out_as_they_went_in_however_the_stream_is_cut(messages: list[bytes], step: int) -> None:
    stream = b"".join(frame(message) for message in messages)
    reader = FrameReader()
    found = [message for at in range(0, len(stream), step) for message in reader.feed(stream[at : at + step])]
    assert found == messages
    assert reader.held == 0


def test_a_frame_beyond_the_limit_is_refused_before_its_bytes_come() -> None:
    reader = FrameReader()
    with pytest.raises(WireError) as caught:
        reader.feed((FRAME_MAX + 1).to_bytes(4, "big"))
    assert caught.value.kind == "oversized"
    assert FrameReader().feed(FRAME_MAX.to_bytes(4, "big")) == []


def test_a_message_beyond_the_limit_is_not_framed() -> None:
    with pytest.raises(WireError):
        frame(bytes(FRAME_MAX))


@pytest.mark.parametrize(
    ("data", "kind"), [(bytes(4), "malformed"), ((2).to_bytes(4, "big") + bytes((VERSION + 1, 0)), "version")]
)
def test_a_frame_that_is_empty_or_of_another_version_is_refused(data: bytes, kind: str) -> None:
    with pytest.raises(WireError) as caught:
        FrameReader().feed(data)
    assert caught.value.kind == kind
