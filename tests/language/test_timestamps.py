"""The strict reader of timestamps: texts that it reads, and texts that it refuses, with the words."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.language.timestamps import TimestampError, format_timestamp, parse_timestamp
from tests.language.strategies import TIMESTAMPS

READ = {
    "2026-01-02": datetime(2026, 1, 2, tzinfo=UTC),
    "2026-01-02T03:04": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    "2026-01-02 03:04": datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    "2026-01-02T03:04:05": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05.6": datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=UTC),
    "2026-01-02T03:04:05.067": datetime(2026, 1, 2, 3, 4, 5, 67000, tzinfo=UTC),
    "2026-01-02T03:04:05.678901": datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
    "2026-01-02T03:04:05Z": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02 03:04:05 UTC": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05UTC": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05+02:00": datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05.5-02:30": datetime(2026, 1, 2, 5, 34, 5, 500000, tzinfo=UTC),
    "2026-01-02T03:04:05 -00:00": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05+18:00": datetime(2026, 1, 1, 9, 4, 5, tzinfo=UTC),
    "2026-01-02T03:04:05-18:00": datetime(2026, 1, 2, 21, 4, 5, tzinfo=UTC),
    "2024-02-29": datetime(2024, 2, 29, tzinfo=UTC),
    "0001-01-01": datetime(1, 1, 1, tzinfo=UTC),
    "9999-12-31T23:59:59.999999Z": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
}
REFUSED = {
    "": "is not a timestamp; write it like 2026-01-02T03:04:05.678901Z",
    "now": "is not a timestamp; write it like 2026-01-02T03:04:05.678901Z",
    "2026": "is not a timestamp",
    "20260102": "is not a timestamp",
    "2026-1-2": "every field with all its digits",
    "2026-01-02T": "every field with all its digits",
    "2026-01-02T03": "every field with all its digits",
    "2026-01-02t03:04:05z": "is not a timestamp",
    "2026-01-02  03:04": "is not a timestamp",
    " 2026-01-02": "is not a timestamp",
    "2026-01-02\n": "is not a timestamp",
    "12026-01-02": "is not a timestamp",
    "-2026-01-02": "is not a timestamp",
    "0000-01-01": "has year 0000; years are 0001 to 9999",
    "2026-00-01": "has month 00; months are 01 to 12",
    "2026-13-01": "has month 13; months are 01 to 12",
    "2026-02-30": "has day 30; days of 2026-02 are 01 to 28",
    "2025-02-29": "has day 29; days of 2025-02 are 01 to 28",
    "2026-01-00": "has day 00; days of 2026-01 are 01 to 31",
    "2026-01-02T24:00": "has hour 24; hours are 00 to 23",
    "2026-01-02T03:60": "has minute 60; minutes are 00 to 59",
    "2026-01-02T03:04:60": "has second 60; seconds are 00 to 59",
    "2026-01-02T03:04:05.": "is not a timestamp",
    "2026-01-02T03:04:05,6": "is not a timestamp",
    "2026-01-02T03:04:05.6789012": "has more than 6 digits of a second; round it to microseconds",
    "2026-01-02Z": "has a zone but no seconds; write 2026-01-02T00:00:00Z",
    "2026-01-02T03:04+02:00": "has a zone but no seconds; write 2026-01-02T03:04:00+02:00",
    "2026-01-02T03:04:05+18:01": "has a wrong offset from UTC; offsets are -18:00 to +18:00",
    "2026-01-02T03:04:05+02:60": "has a wrong offset from UTC",
    "2026-01-02T03:04:05+0200": "is not a timestamp",
    "2026-01-02T03:04:05 Europe/Berlin": "names a region; write its offset from UTC, as in +02:00",
    "0001-01-01T00:00:00+00:01": "is outside the years 0001 to 9999 in UTC",
    "9999-12-31T23:59:59-00:01": "is outside the years 0001 to 9999 in UTC",
    "٢٠٢٦-01-02": "holds a character that is not ASCII",
    "2026-01-02T03:04:05−02:00": "holds a character that is not ASCII",
}


@pytest.mark.parametrize(("text", "instant"), READ.items())
def test_a_timestamp_is_read_as_an_instant_in_utc(text: str, instant: datetime) -> None:
    read = parse_timestamp(text)
    assert read == instant
    assert read.tzinfo is UTC


@pytest.mark.parametrize(("text", "words"), REFUSED.items())
def test_anything_else_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(TimestampError, match=re.escape(words)) as caught:
        parse_timestamp(text)
    assert "\n" not in str(caught.value)
    assert str(caught.value) == f"{caught.value.problem}; {caught.value.hint}"


def test_a_long_text_is_cut_in_the_error() -> None:
    with pytest.raises(TimestampError) as caught:
        parse_timestamp("2" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text", ["2026-01-02T" + "a" * 1_000_000, ":00.000000" * 100_000, "2026-01-02T" + "a/" * 500_000], ids=len
)
def test_a_long_text_is_refused_at_once(text: str) -> None:
    """A search that begins anew at each letter took 14 s for 60,000 letters: for these, over an hour."""
    with pytest.raises(TimestampError):
        parse_timestamp(text)


@given(TIMESTAMPS)
def test_what_is_written_is_read_back(instant: datetime) -> None:
    text = format_timestamp(instant)
    assert len(text) == len("2026-01-02T03:04:05.678901Z")
    assert parse_timestamp(text) == instant


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)), st.integers(-18 * 60, 18 * 60))
def test_an_offset_moves_the_instant_and_nothing_else(local: datetime, minutes: int) -> None:
    aware = local.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    assert parse_timestamp(aware.isoformat()) == aware
    assert parse_timestamp(format_timestamp(aware)) == aware


@given(st.text(max_size=40) | st.from_regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}.{0,10}"))
def test_reading_any_text_raises_nothing_but_value_error(text: str) -> None:
    try:
        read = parse_timestamp(text)
    except ValueError:
        return
    assert read.tzinfo is UTC
