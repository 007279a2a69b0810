"""Timestamps as text: one strict reader and one writer, for filters, events and schemas alike.

The reader takes a date, a date with hours and minutes, with seconds, with one to six digits of a second; `T` or one
space stands between date and time. After seconds only, and after at most one space, may follow `Z`, `UTC` or an offset
`+HH:MM` of at most 18 hours. All of these read the same in Spark. A zone needs seconds before it because Spark refuses
`2026-01-02T03:04Z`. (Spark reads more: `2026-1-2`, `Europe/Berlin`, the year 0.) A text without a zone is UTC. The
result is an aware datetime in UTC.

The writer always writes `2026-01-02T03:04:05.678901Z`.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta

__all__ = ["EPOCH", "MICROSECOND", "TimestampError", "format_timestamp", "parse_timestamp"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})"
    r"(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6}))?"
    r"(?: ?(?:Z|UTC|([+-])([0-9]{2}):([0-9]{2})))?)?)?"
)
_ZONE_WITHOUT_SECONDS = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})([T ][0-9]{2}:[0-9]{2})? ?(Z|UTC|[+-][0-9]{2}:[0-9]{2})"
)
# Looked for anywhere in a text that may be of any length: of a fixed width, so that each place is looked at once.
_LONG_FRACTION = re.compile(r":[0-9]{2}\.[0-9]{7}")
_REGION = re.compile(r"[A-Za-z]/[A-Za-z]")
_EXAMPLE = "write it like 2026-01-02T03:04:05.678901Z"
_OFFSET_MINUTES_MAX = 18 * 60
_SHOWN_MAX = 48


class TimestampError(ValueError):
    """A text is not a timestamp: `problem` is what is wrong, `hint` is what to write."""

    def __init__(self, problem: str, hint: str) -> None:
        self.problem = problem
        self.hint = hint
        super().__init__(problem, hint)

    def __str__(self) -> str:
        return f"{self.problem}; {self.hint}"


def parse_timestamp(text: str) -> datetime:
    """Return the instant of a text, in UTC; `TimestampError`, a ValueError, if it has none."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _explain_form(text)
    *fields, fraction, sign, offset_hours, offset_minutes = match.groups("0")
    year, month, day, hour, minute, second = map(int, fields)
    try:
        local = datetime(year, month, day, hour, minute, second, int(fraction.ljust(6, "0")), tzinfo=UTC)
    except ValueError:
        raise _explain_field(text, match) from None
    if sign == "0":
        return local
    offset = int(offset_hours) * 60 + int(offset_minutes)
    if offset > _OFFSET_MINUTES_MAX or int(offset_minutes) > 59:
        raise TimestampError(f"{_show(text)} has a wrong offset from UTC", "offsets are -18:00 to +18:00")
    try:
        return local - timedelta(minutes=offset if sign == "+" else -offset)
    except OverflowError:
        raise TimestampError(
            f"{_show(text)} is outside the years 0001 to 9999 in UTC", "use a time within them"
        ) from None


def format_timestamp(value: datetime) -> str:
    """Return the one spelling of an instant: `2026-01-02T03:04:05.678901Z`. The value must be aware."""
    assert value.tzinfo is not None, "a naive datetime is not an instant"
    utc = value.astimezone(UTC)
    return (
        f"{utc.year:04}-{utc.month:02}-{utc.day:02}T{utc.hour:02}:{utc.minute:02}:{utc.second:02}.{utc.microsecond:06}Z"
    )


def _explain_field(text: str, match: re.Match[str]) -> TimestampError:
    """Return an error for a well-formed text with a field out of range."""
    year, month, day, hour, minute, second = (int(field) for field in match.groups("0")[:6])
    if year == 0:
        return TimestampError(f"{_show(text)} has year 0000", "years are 0001 to 9999")
    if not 1 <= month <= 12:
        return TimestampError(f"{_show(text)} has month {month:02}", "months are 01 to 12")
    days = monthrange(year, month)[1]
    if not 1 <= day <= days:
        return TimestampError(f"{_show(text)} has day {day:02}", f"days of {year:04}-{month:02} are 01 to {days}")
    if hour > 23:
        return TimestampError(f"{_show(text)} has hour {hour:02}", "hours are 00 to 23")
    if minute > 59:
        return TimestampError(f"{_show(text)} has minute {minute:02}", "minutes are 00 to 59")
    assert second > 59, text
    return TimestampError(f"{_show(text)} has second {second:02}", "seconds are 00 to 59, without leap seconds")


def _explain_form(text: str) -> TimestampError:
    """Return an error for a text without the form of a timestamp; the usual mistakes have their own hints."""
    shown = _show(text)
    if not text.isascii():
        return TimestampError(f"{shown} holds a character that is not ASCII", _EXAMPLE)
    if _LONG_FRACTION.search(text):
        return TimestampError(f"{shown} has more than 6 digits of a second", "round it to microseconds")
    if (zoned := _ZONE_WITHOUT_SECONDS.fullmatch(text)) is not None:
        date, time, zone = zoned.groups()
        return TimestampError(
            f"{shown} has a zone but no seconds", f"write {date}{time + ':00' if time else 'T00:00:00'}{zone}"
        )
    if re.fullmatch(r"[0-9]{1,4}-[0-9]{1,2}-[0-9]{1,2}(?:[T ].*)?", text, re.DOTALL):
        if _REGION.search(text):
            return TimestampError(f"{shown} names a region", "write its offset from UTC, as in +02:00")
        return TimestampError(f"{shown} is not a timestamp", f"{_EXAMPLE}, every field with all its digits")
    return TimestampError(f"{shown} is not a timestamp", _EXAMPLE)


def _show(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "…")
