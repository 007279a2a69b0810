"""What is placed, and keys on the wire: there and back, and what a peer that errs may send."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.language.filters.filter import parse_filter
from meetpoint.matching.keys.key_plan import KeyPlan, LiveKeys
from meetpoint.matching.keys.meet_keys import ALWAYS, KeySort, MeetKey
from meetpoint.node.runtime.ring import Ring
from meetpoint.placement.entries.entry_table import conjunction_in
from meetpoint.schemes.meet.entries import (
    PATH_MAX,
    KeyEntry,
    child_entry,
    child_keys,
    entries_of,
    is_key,
    place_of,
    read_key_entry,
)
from meetpoint.schemes.meet.messages import KeyGroup, group_keys, ungroup_keys

RING = Ring()
FILTERS = [
    "symbol = ''", "symbol = 'A'", "symbol IN ('A', 'B', '0')", "symbol LIKE 'OT%'", "symbol LIKE '%SE'",
    "symbol LIKE '%YS%'", "price > 5", "price BETWEEN -3 AND 2", "price = 0", "price = -1.5", "price != 3",
    "flag = TRUE", "flag = FALSE", "note IS NULL", "note IS NOT NULL", "`odd name`.x = 1",
    "at >= TIMESTAMP '2026-01-01T00:00:00Z'", "symbol = 'A' AND price > 1 OR flag = TRUE",
]  # fmt: skip
KEYS = [
    ALWAYS,
    MeetKey(KeySort.MISSING, "note"),
    *(key for text in FILTERS for key in KeyPlan().keys_of_filter(parse_filter(text))),
]


def test_keys_of_all_sorts_come_back() -> None:
    assert {key.sort for key in KEYS} == set(KeySort)
    keys = sorted(set(KEYS))
    assert sorted(ungroup_keys(group_keys(keys))) == keys
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(group_keys(keys)), type=tuple[KeyGroup, ...])
    assert sorted(ungroup_keys(again)) == keys
    assert all(map(is_key, KEYS))


NAMES = st.sampled_from(["a", "b.c", "`odd name`", "größe"])
DRAWN = st.one_of(
    st.builds(MeetKey, st.sampled_from(KeySort), NAMES, st.sampled_from(["", "number", "string"]),
              st.integers(0, 63), st.integers(-(2**63), 2**63 - 1)),
    st.builds(MeetKey, st.sampled_from(KeySort), NAMES, st.sampled_from(["", "string"]), st.integers(0, 63),
              st.just(0), st.text(max_size=4)),
)  # fmt: skip


@given(st.lists(DRAWN, unique=True))
def test_any_keys_come_back(keys: list[MeetKey]) -> None:
    groups = msgspec.msgpack.decode(msgspec.msgpack.encode(group_keys(keys)), type=tuple[KeyGroup, ...])
    assert sorted(ungroup_keys(groups)) == sorted(keys)


ODD = st.one_of(st.integers(-(2**63), 2**64 - 1), st.text(max_size=3), st.sampled_from([-1, 64, 2**63, "", "."]))
GROUPS = st.builds(
    KeyGroup, st.sampled_from(KeySort), st.sampled_from(["a", "", ".", "a..b", "`"]),
    st.sampled_from(["", "number", "x"]),
    st.sampled_from([-(2**63), -1, 0, 3, 63, 64, 300, 2**64 - 1]), st.lists(ODD, max_size=4).map(tuple),
)  # fmt: skip


@given(st.lists(GROUPS, max_size=5))
def test_whatever_keys_a_peer_sends_events_find_their_way_among_them(groups: list[KeyGroup]) -> None:
    keys = ungroup_keys(groups)
    live = LiveKeys(keys)
    for value in (1, -2.5, "text", "", True):
        assert live.keys_of_event({"a": value}) <= set(keys)
    for key in keys:
        assert 0 <= key.digest(160) < 2**160
        live.discard(key)
    assert len(live) == 0


def test_what_is_placed_is_read_again() -> None:
    for text in FILTERS:
        filter_ = parse_filter(text)
        entries = [
            each for at in range(len(filter_.conjunctions)) for each in entries_of(RING, KeyPlan(), 7, filter_, at)
        ]
        assert entries
        for entry in entries:
            filed = read_key_entry(entry.body)
            assert filed is not None
            assert entry.low == entry.high == place_of(RING, filed.key)
            assert conjunction_in(filed.text, filed.at) == filter_.conjunctions[filed.at]


GOOD = KeyEntry(MeetKey(KeySort.VALUE, "a", "string", 0, 0, "x"), (), 1, 0, "a = 'x'")
BAD = [
    b"",
    b"\xc1",
    b"\x90",
    msgspec.msgpack.encode([1, 2, 3]),
    b"\x95" * 5_000,
    msgspec.msgpack.encode(GOOD)[:-1],
    *(
        msgspec.msgpack.encode(msgspec.structs.replace(GOOD, **change))
        for change in (
            {"at": 1}, {"at": -1}, {"at": 2**64 - 1}, {"number": -1}, {"number": 2**63}, {"text": "a = "},
            {"text": "\x00"}, {"path": (256,)}, {"path": (-1,)}, {"path": (1,) * (PATH_MAX + 1)},
            {"key": MeetKey(KeySort.CELL, "a", "number", -1)}, {"key": MeetKey(KeySort.CELL, "a", "number", 300)},
            {"key": MeetKey(KeySort.VALUE, "a", "number", 0, 2**63)},
            {"key": MeetKey(KeySort.VALUE, "a", "string", 0, 5, "x")}, {"key": MeetKey(KeySort.MISSING, "a..b")},
        )
    ),
]  # fmt: skip


def test_a_body_that_is_malformed_is_none() -> None:
    assert read_key_entry(msgspec.msgpack.encode(GOOD)) == GOOD
    for body in BAD:
        assert read_key_entry(body) is None, body


@given(st.binary(max_size=60))
def test_any_bytes_are_a_body_or_none(body: bytes) -> None:
    read_key_entry(body)


@pytest.mark.parametrize("path", [(), (3,), (3, 3), (0, 1, 2)])
def test_the_children_of_a_crowded_key_share_what_comes_at_every_depth(path: tuple[int, ...]) -> None:
    """Whether from many homes with one subscription each, or from one with many."""
    for names in ([f"{home:040x}/1" for home in range(800)], [f"{5:040x}/{number}" for number in range(800)]):
        filed = msgspec.structs.replace(GOOD, path=path)
        places = Counter(child_entry(RING, name, filed, 8).low for name in names)
        assert set(places) == set(child_keys(RING, GOOD.key, path, 8))
        assert min(places.values()) > 50
        read = read_key_entry(child_entry(RING, names[0], filed, 8).body)
        assert read is not None
        assert (read.path[:-1], read.text, read.key) == (path, filed.text, filed.key)
        assert child_entry(RING, names[0], filed, 8) == child_entry(RING, names[0], filed, 8)
