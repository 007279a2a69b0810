"""The journal: found by id and by key, bounded, lost without harm, and waited for by nobody."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from meetpoint.api.ids import EventKey
from meetpoint.broker.storage import journal as journal_module
from meetpoint.broker.storage.journal import Journal, JournalLine
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import to_msgpack
from meetpoint.node.runtime.effects import Trace
from tests.broker.storage.opened import HOME, OTHER, WAIT_S, opened, record

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def key(number: int, stream: int = 1) -> EventKey:
    return EventKey(HOME, stream, number)


def published(number: int, id_: str, size: int = 0) -> Trace:
    content = to_msgpack(Event(id_, "me", number, NOON, {"text": "x" * size, "price": 3}))
    return Trace(key(number), "published", HOME, content=content)


def taken(number: int, *names: str) -> Trace:
    return Trace(key(number), "taken", OTHER, names, f"detail of {number}")


@pytest.fixture(params=["disk", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    made = Journal(tmp_path / "journal" if request.param == "disk" else None, lines_max=800)
    yield made
    made.close()


def test_lines_are_found_by_key_and_by_id_in_the_order_they_were_noted(journal: Journal) -> None:
    journal.note(10, published(1, "ä/1"))
    journal.note(11, published(2, "ä/2"))
    journal.note(12, taken(1, "alerts", "other"))
    journal.note(13, taken(2))
    lines = journal.read(key=key(1))
    assert [(line.at_us, line.step, line.home, line.names) for line in lines] == [
        (10, "published", HOME, ()),
        (12, "taken", OTHER, ("alerts", "other")),
    ]
    assert lines[1].detail == "detail of 1"
    assert lines[0].content == published(1, "ä/1").content
    assert journal.read(id="ä/1") == lines
    assert journal.read(id="ä/1", key=key(2)) == [
        *lines[:1],
        *journal.read(key=key(2))[:1],
        lines[1],
        *journal.read(key=key(2))[1:],
    ]
    assert journal.read(id="ä") == journal.read(id="price") == journal.read() == []
    assert journal.read(key=key(3)) == journal.read(key=key(1, stream=2)) == []


def test_an_id_that_was_published_twice_leads_to_both(journal: Journal) -> None:
    journal.note(1, published(1, "same"))
    journal.note(2, published(7, "same"))
    journal.note(3, taken(7))
    assert [line.event.number for line in journal.read(id="same")] == [1, 7, 7]


@pytest.mark.slow
def test_the_oldest_lines_go_when_there_are_too_many(journal: Journal) -> None:
    for number in range(5000):
        journal.note(number, published(number, f"id/{number}"))
        if number % 37 == 0:
            journal.read(key=key(0))  # which writes: blocks of many sizes
    held = [number for number in range(5000) if journal.read(key=key(number))]
    assert held == list(range(held[0], 5000)), "the newest, without a gap"
    assert 600 <= len(held) <= 800
    assert journal.dropped == 0


def test_large_lines_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "BYTES_MAX", 1 << 20)
    journal = Journal(tmp_path / "journal")
    for number in range(200):
        journal.note(number, published(number, f"{number}", size=50_000))
        journal.read(key=key(0))
    assert sum(each.stat().st_size for each in (tmp_path / "journal").iterdir()) <= 1 << 20
    assert journal.read(id="199")
    assert not journal.read(id="0")
    journal.close()


def test_what_was_noted_is_there_after_a_restart_and_the_bound_holds(tmp_path: Path) -> None:
    for life in range(4):
        journal = Journal(tmp_path / "journal", lines_max=80)
        for number in range(30):
            journal.note(life, published(life * 100 + number, f"{life}/{number}"))
        journal.close()
    journal = Journal(tmp_path / "journal", lines_max=80)
    assert [life for life in range(4) if journal.read(id=f"{life}/29")] == [1, 2, 3]
    journal.close()


def test_lines_are_written_within_a_second_without_being_asked_for(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note(1, published(1, "one"))
    end = time.monotonic() + WAIT_S
    while not any(each.stat().st_size for each in (tmp_path / "journal").iterdir()):
        assert time.monotonic() < end
        time.sleep(0.05)
    journal.close()


def test_torn_and_damaged_blocks_are_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    for number in range(3):
        journal.note(number, published(number, f"{number}"))
        journal.read(key=key(0))  # a block each
    journal.close()
    (segment,) = (tmp_path / "journal").iterdir()
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data[:-3])
    journal = Journal(tmp_path / "journal")
    assert [number for number in range(3) if journal.read(id=f"{number}")] == [0]
    journal.note(9, published(9, "9"))
    assert len(journal.read(id="9")) == 1
    journal.close()
    journal = Journal(tmp_path / "journal")
    assert len(journal.read(id="9")) == 1
    journal.close()


def test_bytes_that_are_no_journal_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / f"{1:012}.log").write_bytes(os.urandom(100_000))
    (tmp_path / "journal" / f"{2:012}.log").write_bytes(b"\0" * 100)
    (tmp_path / "journal" / "notes.txt").write_text("mine")
    journal = Journal(tmp_path / "journal")
    journal.note(1, published(1, "one"))
    assert len(journal.read(id="one")) == 1
    journal.close()
    assert (tmp_path / "journal" / "notes.txt").read_text() == "mine"


def test_a_journal_without_a_place_is_in_memory(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    with opened(tmp_path) as one:
        one.store.note(1, published(1, "one"))
        assert len(one.store.journal("one")) == 1
        one.put(record("a"))


def test_lines_that_cannot_be_written_are_counted_and_the_store_goes_on(tmp_path: Path) -> None:
    with opened(tmp_path) as one:
        (tmp_path / "journal").rmdir()
        one.store.note(1, published(1, "one"))
        assert one.store.journal("one") == []
        assert one.store.measures.journal_dropped == 1
        one.put(record("a"))
        (tmp_path / "journal").mkdir()
        one.store.note(1, published(2, "two"))
        assert len(one.store.journal("two")) == 1


def test_nothing_waits_for_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer stands still; records are persisted and lines are noted all the same, up to a bound."""
    monkeypatch.setattr(journal_module, "PENDING_MAX", 3000)
    reached, gate = threading.Event(), threading.Event()
    append = Journal._append

    def stuck(self: Journal, block: bytes, lines: int) -> None:
        reached.set()
        assert gate.wait(WAIT_S)
        append(self, block, lines)

    monkeypatch.setattr(Journal, "_append", stuck)
    with opened(tmp_path) as one:
        one.store.note(0, published(0, "first"))
        assert reached.wait(WAIT_S)
        for number in range(1, 10_001):
            one.store.note(number, taken(number))
        for number in range(20):
            one.put(record(f"{number}"))
        assert one.store.measures.journal_dropped >= 6000
        gate.set()
        assert one.store.journal(key=key(10_000)) == [
            JournalLine(10_000, key(10_000), "taken", OTHER, (), "detail of 10000", b"")
        ]
        assert one.store.journal(key=key(1)) == []
