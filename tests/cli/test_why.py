"""`meetpoint why`: each verdict, and what is not known."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from meetpoint.api.client_messages import DeadLetterInfo, HostedSubscription, JournalEntry
from meetpoint.api.ids import EventKey, HomeId
from meetpoint.api.requests import SubscriptionOptions
from meetpoint.cli.network.connect import just_before
from meetpoint.cli.network.why import Evidence, JournalLine, explain_delivery, show_time
from meetpoint.language import Event
from meetpoint.language.events.msgpack import to_msgpack

LOCAL_NETWORK, THERE = HomeId(b"here-home"), HomeId(b"there-home")
KEY = EventKey(LOCAL_NETWORK, 1, 5)
EVENT = Event("e1", "tick", 5, datetime(2026, 3, 1, tzinfo=UTC), {"price": 121.5, "symbol": "OTE"})
SECOND = 1_000_000
NOON = 1_772_366_400 * SECOND


def line(
    step: str, at_s: float, *names: str, broker: str = "there:1", detail: str = "", key: EventKey = KEY
) -> JournalLine:
    content = to_msgpack(EVENT) if step == "published" else b""
    return JournalLine(broker, JournalEntry(NOON + int(at_s * SECOND), key, step, THERE, names, detail, content))


def held(
    filter_: str = "price > 120",
    *,
    made_s: float = -60,
    durable: bool = True,
    paused: bool = False,
    present: bool = True,
) -> HostedSubscription:
    return HostedSubscription(
        "alerts", filter_, SubscriptionOptions(durable, paused=paused), 3, present, NOON + int(made_s * SECOND)
    )


PUBLISHED = line("published", 0, broker="here:1")
SETTLED = line("settled", 0.1, broker="here:1")


def known(
    *lines: JournalLine,
    holds: HostedSubscription | None = None,
    letters: tuple[DeadLetterInfo, ...] = (),
    silent: str = "",
) -> Evidence:
    return Evidence(
        event="e1", name="alerts", lines=list(lines), subscription=holds, host="there:1" if holds else "",
        dead_letters=list(letters), homes={THERE: "there:1"}, silent=[silent] if silent else [],
    )  # fmt: skip


LETTER = DeadLetterInfo(KEY, ("alerts",), to_msgpack(EVENT), "five tries", NOON + 200 * SECOND)
QUEUED = line("taken", 0.1, "alerts", "other")
SENT = line("notified", 0.2, "alerts")
REJECTED = line("rejected", 2, "alerts", detail="no room")

CASES = [
    ("delivered", "✓ alerts has it: acknowledged at 2026-03-01T12:00:00.300Z",
     known(PUBLISHED, QUEUED, SENT, line("acknowledged", 0.3, "alerts"), SETTLED, holds=held())),
    ("dead", "✗ it is a dead letter of alerts since 2026-03-01T12:03:20.000Z: five tries",
     known(PUBLISHED, QUEUED, SENT, SETTLED, holds=held(), letters=(LETTER,))),
    ("dead", "✗ it is a dead letter of alerts since 2026-03-01T12:00:09.000Z: too many wait",
     known(PUBLISHED, QUEUED, line("dead", 9, "alerts", detail="too many wait"), holds=held())),
    ("sent", "takes events at most once", known(PUBLISHED, SENT, holds=held(durable=False))),
    ("brought", "… it was brought to alerts once, at 2026-03-01T12:00:00.200Z, and is not acknowledged yet",
     known(PUBLISHED, QUEUED, SENT, holds=held())),
    ("brought", "2 times and rejected, the last time at 2026-03-01T12:00:01.000Z: no room; it comes again",
     known(PUBLISHED, SENT, line("notified", 1, "alerts"), REJECTED, holds=held())),
    ("waiting", "which nobody takes at present", known(PUBLISHED, QUEUED, holds=held(present=False))),
    ("waiting", "which is paused", known(PUBLISHED, QUEUED, holds=held(paused=True))),
    ("waiting", "with 3 in line", known(PUBLISHED, QUEUED, holds=held())),
    ("no_event", "? no broker knows an event e1", known(holds=held())),
    ("no_subscription", "✗ there is no subscription alerts", known(PUBLISHED, SETTLED)),
    ("unknown", "and not all answer", known(PUBLISHED, SETTLED, silent="broker x:1: no answer")),
    ("too_early", "✗ alerts was made 60 s after it was published", known(PUBLISHED, SETTLED, holds=held(made_s=60))),
    ("too_early", "at about the same moment", known(PUBLISHED, SETTLED, holds=held(made_s=1))),
    ("not_accepted", "✗ the filter of alerts does not accept it: price 121.5 is below 130",
     known(PUBLISHED, SETTLED, holds=held("price > 130"))),
    ("under_way", "… it is on its way to alerts", known(PUBLISHED, holds=held())),
    ("not_accepted", "the filter of that moment did not accept it",
     known(PUBLISHED, SETTLED, line("taken", 0.1, "other"), holds=held())),
    ("unknown", "nothing tells whether it came", known(PUBLISHED, SETTLED, holds=held())),
    ("unknown", "does not remember it any more", known(line("taken", 0.1, "other"), holds=held())),
]  # fmt: skip


@pytest.mark.parametrize(("verdict", "headline", "facts"), CASES)
def test_the_verdict_follows_from_the_facts(verdict: str, headline: str, facts: Evidence) -> None:
    reason = explain_delivery(facts)
    assert reason.verdict == verdict
    assert headline in reason.headline
    assert reason.is_known == (verdict not in ("unknown", "no_event"))
    assert reason.text().splitlines()[0] == reason.headline
    assert reason.to_dict()["verdict"] == verdict


def test_the_story_is_in_order_and_leaves_out_what_concerns_others_alone() -> None:
    lines = [SETTLED, SENT, line("notified", 0.2, "other"), QUEUED, PUBLISHED, line("acknowledged", 0.4, "other")]
    reason = explain_delivery(known(*lines, holds=held()))
    assert [what for _, what in reason.story] == [
        "subscription alerts was made; it is at there:1",
        "published at here:1, as number 5 of its stream",
        "settled: every home that may want it has it, says here:1",
        "queued at there:1 for alerts and 1 more",
        "sent to alerts by there:1",
    ]
    assert "  2026-03-01T12:00:00.200Z  sent to alerts by there:1\n" in reason.text()


def test_an_event_that_was_published_twice_under_one_id() -> None:
    other = EventKey(THERE, 1, 9)
    again = line("published", 5, broker="there:1", key=other)
    told = explain_delivery(
        known(PUBLISHED, again, QUEUED, line("repeated", 5.1, "alerts", key=other), SENT, holds=held())
    )
    story = [what for _, what in told.story]
    assert "published at there:1, again, as number 9 of its stream" in story
    assert "came to there:1 a second time, under the same id: dropped" in story


def test_brokers_that_are_silent_are_named_whatever_the_verdict() -> None:
    told = explain_delivery(known(PUBLISHED, QUEUED, SENT, holds=held(), silent="broker x:1: no answer within 3 s"))
    assert told.text().endswith("not known: broker x:1: no answer within 3 s")


def test_an_event_that_cannot_be_read_is_no_trace() -> None:
    broken = JournalLine("here:1", JournalEntry(NOON, KEY, "published", LOCAL_NETWORK, (), "", b"\xc1"))
    told = explain_delivery(known(broken, SETTLED, holds=held()))
    assert "what is kept of the event cannot be read" in told.unknown


def test_times_beyond_the_calendar_are_shown_as_they_are() -> None:
    assert show_time(2**62) == f"{2**62} µs"


@pytest.mark.parametrize("name", ["alerts", "a", "é", "x\ue000", "a\x00", "user100"])
def test_just_before_a_name_lies_little_else(name: str) -> None:
    before = just_before(name)
    before.encode()
    assert before < name
    assert not before < name[:-1]


def test_before_the_empty_name_is_nothing() -> None:
    assert just_before("") == ""
