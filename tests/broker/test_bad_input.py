"""Bad input against a running broker: what is refused, with which words, and that nobody else notices.

The required behaviour, row by row, and where each is tested:

    frame too long, slow header, slow frame    here and test_door; memory: test_holding
    bad content of messages                    here
    user patterns                              here, tests/language/test_like
    subscription bomb                          here, test_limits
    publish flood, slow consumer               here, test_load, test_limits
    unauthorised publish or subscribe          test_access, test_tenants
    rogue broker                               test_tls, tests/node/test_replay
    unknown version                            test_door
    all of it at once                          test_hostile

NaN is a value of the language, the largest number, as in Spark: where a float may be it is taken and delivered. It is
refused where no float may be.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable

import msgspec
import pytest

from meetpoint.api.client_messages import BrokerStatus, Request, StatusRequest
from meetpoint.api.codec import frame
from meetpoint.api.handshake import Hello
from meetpoint.api.limits import WINDOW_MAX
from meetpoint.api.outcomes import Published, Refused, Stored
from meetpoint.api.requests import Attach, Publish, Subscribe, SubscriptionOptions, Update
from meetpoint.broker import Broker, Limits
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack
from tests.broker.talking import HANDSHAKE, Caller, broker, calling, event, raw, run, until
from tests.work import Calls

STRANGE_KEYS = {"integer": 5, "nan": math.nan, "none": None, "bytes": b"x", "empty": ""}


HELLO = Hello((1, 2), "")


def packed(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def content(attributes: bytes) -> bytes:
    """An event whose attributes are these bytes."""
    whole = event(1)
    assert whole.endswith(b"\x80")
    return whole[:-1] + attributes


def nested(depth: int) -> bytes:
    return b"\x81\xa1a" * depth + b"\x01"


CONTENTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not MessagePack"),
    "half": (event(1, x=1)[:-1], "not MessagePack"),
    "more than an event": (event(1, x=1) + b"\x00", "not MessagePack"),
    "no array": (packed({"x": 1}), "not an array of 5"),
    "six fields": (packed([1, 2, 3, 4, 5, 6]), "not an array of 5"),
    "33 deep": (content(nested(33)), "nest deeper than 32"),
    "50,000 deep": (content(nested(50_000)), "nests deeper than 32"),
    "50,000 arrays deep": (content(b"\x81\xa1a" + b"\x91" * 50_000 + b"\x01"), "nests deeper than 32"),
    "a list": (content(packed({"x": [1]})), "of class list"),
    "bad UTF-8 in a value": (content(b"\x81\xa1a\xa2\xff\xfe"), "not UTF-8"),
    "bad UTF-8 in a name": (content(b"\x81\xa2\xff\xfe\x01"), "not UTF-8"),
    "a surrogate": (content(b"\x81\xa1a\xa3\xed\xa0\x80"), "not UTF-8"),
    "an extension": (content(b"\x81\xa1a\xd4\x05\x00"), "extension type 5 is unknown"),
    "a decimal that is NaN": (content(b"\x81\xa1a\xc7\x03\x01NaN"), "extension type 1 holds 'NaN'"),
    "a decimal of a thousand digits": (content(b"\x81\xa1a\xc8\x03\xe8\x01" + b"9" * 1000), "at most 38"),
    "a decimal with a great exponent": (content(b"\x81\xa1a\xc7\x05\x01" + b"1E+99"), "38 digits"),
    "an integer of a thousand digits": (content(b"\x81\xa1a\xc8\x03\xe8\x02" + b"9" * 1000), "at most 38"),
    "a timestamp with nanoseconds": (content(b"\x81\xa1a\xd7\xff" + struct.pack(">Q", 7 << 34)), "nanoseconds"),
    "duplicate names": (content(b"\x82\xa1a\x01\xa1a\x02"), "occurs twice"),
    "duplicate names within": (content(b"\x81\xa1o\x82\xa1a\x01\xa1a\x02"), "occurs twice"),
    "duplicate names, one in a longer form": (content(b"\x82\xa1a\x01\xd9\x01a\x02"), "occurs twice"),
    "a list as a name, below a name that comes again": (content(b"\x82\xa1a\x81\x90\x01\xa1a\x02"), "no string"),
    "an array that says it has 2^32 items": (content(b"\x81\xa1a\xdd\xff\xff\xff\xff"), "not MessagePack"),
    "a map that says it has 2^32 items": (content(b"\xdf\xff\xff\xff\xff"), "not MessagePack"),
    "a string that says it has 4 GiB": (content(b"\x81\xa1a\xdb\xff\xff\xff\xff"), "not MessagePack"),
    "a byte that begins nothing": (content(b"\x81\xa1a\xc1"), "not MessagePack"),
    "an event of 256 KiB and more": (event(1, x="y" * (256 << 10)), "at most 262144"),
    **{f"a key: {name}": (content(packed({key: 1})), "event") for name, key in STRANGE_KEYS.items()},
}


async def refused(client: Caller, what: Publish | Subscribe | Update, says: str) -> None:
    """Check that a message is refused in one line, and the connection stays."""
    word = await client.get(what)
    assert isinstance(word, Refused), word
    assert not word.retry
    assert says in word.reason
    assert "\n" not in word.reason
    assert len(word.reason) < 1000


def test_events_with_bad_content_are_refused_and_the_connection_and_the_others_stay() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client, calling(one.address) as other:
            await other.subscribe("all", "TRUE")
            for number, (name, (data, says)) in enumerate(CONTENTS.items()):
                try:
                    await refused(client, Publish(data), says)
                except AssertionError as error:
                    raise AssertionError(name) from error
                (good,) = await client.publish(event(number, x=number))
                assert isinstance(good, Published)
                (got,) = await other.notified(1)
                assert from_msgpack(got.content).attributes == {"x": number}
            assert one.counts.totals["step_errors"] == 0

    run(main())


def test_nan_and_the_infinities_are_values() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            await client.subscribe("large", "x > 1e300")
            for number, x in enumerate((math.nan, math.inf, -math.inf, 5.0)):
                (answer,) = await client.publish(event(number, x=x))
                assert isinstance(answer, Published)
            values = [from_msgpack(each.content).attributes["x"] for each in await client.notified(2)]
            assert str(values) == "[nan, inf]"

    run(main())


FILTERS: dict[str, tuple[str, str]] = {
    "a hundred thousand ORs": ("a = 1 OR " * 100_000 + "a = 1", "900005 characters, and the limit is 65536"),
    "thousands of ORs of different attributes": (" OR ".join(f"a{n} = 1" for n in range(5000)), "more than 64"),
    "ORs that multiply": (" AND ".join(f"(a{n} = 1 OR b{n} = 1)" for n in range(1500)), "more than 64"),
    "65 attributes": (" AND ".join(f"a{n} = 1" for n in range(65)), "65 attributes at once"),
    "33 patterns": (" AND ".join(f"a LIKE '%{n}%'" for n in range(33)), "33 patterns"),
    "parentheses": ("(" * 60_000, "nest deeper than 64"),
    "NOTs": ("NOT " * 16_000 + "a", "nest deeper than 64"),
    "a long name": ("a" * 60_000 + " = 1", "60000 characters, and the limit is 1000"),
    "a long path": (".".join("a" * 30_000) + " = 1", "59999 characters, and the limit is 1000"),
    "a long pattern": (f"a LIKE '{'%a_' * 20_000}'", "60000 characters, and the limit for one with _ is 1000"),
    "digits": ("a = " + "9" * 60_000, "60000 digits"),
    "a long timestamp": (f"a > TIMESTAMP '2026-01-01T{'a' * 60_000}'", "is not a timestamp"),
    "patterns that multiply, and a long string": (
        f"a = '{'x' * 20_000}' AND ("
        + " OR ".join(
            "(" + " AND ".join(f"a NOT LIKE '%{n}{m}_a%'" for m in range(16)) + f" AND b{n} = 1)" for n in range(64)
        )
        + ")",
        "1024 patterns when its ORs are multiplied out",
    ),
    "an exponent": ("a = 1e999999999", "exponent"),
    "never closed": ("a = '" + "x" * 60_000, "never closed"),
    "quotes": ("'" * 60_001, "never closed"),
    "no text": ("\x00\x01\x02", "not part of the language"),
    "a regular expression": ("a RLIKE '(a+)+$'", "regular expressions are not part"),
    "nothing": ("", "empty"),
    "code": ("__import__('os').system('x')", "function"),
}


CALLS_MAX = 20_000_000
"""Few seconds of work."""


@pytest.mark.slow
def test_hostile_filters_are_refused_soon_in_one_line_and_the_connection_stays() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            await client.subscribe("mine", "x > 0")
            for name, (text, says) in FILTERS.items():
                try:
                    with Calls() as calls:
                        await refused(client, Subscribe("new", text), says)
                        await refused(client, Update("mine", text), says)
                    assert calls.count < CALLS_MAX, "others wait meanwhile"
                except AssertionError as error:
                    raise AssertionError(name) from error
            assert [each.name for each in one.node.held_subscriptions()] == ["mine"]
            await client.publish(event(1, x=1))
            assert len(await client.notified(1)) == 1

    run(main())


def test_patterns_that_would_make_a_backtracking_matcher_run_for_ever_cost_little() -> None:
    """Place by place, one of them alone takes minutes with one of the events."""

    async def main() -> None:
        patterns = ["%" + "a_" * 498 + "b%", "%a" * 490 + "_c", "%" * 900 + "_b", "_" * 999, "%" + "a" * 60_000 + "b%"]
        async with broker() as one, calling(one.address) as client:
            for number, pattern in enumerate(patterns):
                await client.subscribe(f"s{number}", f"x LIKE '{pattern}'")
            await client.subscribe("b", "x LIKE '%aab'")
            await client.publish(event(1, x="a" * 250_000), event(2, x="a" * 250_000 + "b"))
            (got,) = await client.notified(1)
            assert sorted(got.names) == ["b", "s0", "s2", "s4"]

    run(main())


def test_more_subscriptions_and_constraints_than_allowed_are_refused_and_the_connection_stays() -> None:
    async def main() -> None:
        limits = Limits(subscriptions_per_client=3, constraints_per_filter=4)
        async with broker(limits=limits) as one, calling(one.address) as bomber, calling(one.address) as other:
            await refused(bomber, Subscribe("wide", "a = 1 AND b = 1 AND c = 1 AND d = 1 AND e = 1"), "4")
            for number in range(3):
                assert await bomber.get(Subscribe(f"s{number}", "a = 1 AND b = 1 AND c = 1 AND d = 1")) == Stored()
            await refused(bomber, Subscribe("s3", "x > 0"), "3")
            await bomber.publish(event(1, a=1, b=1, c=1, d=1))
            await other.publish(event(2, a=1, b=1, c=1, d=1))
            held = one.node.held_subscriptions
            await until(lambda: [each.queued for each in held()] == [2, 2, 2], "both events wait for all three")

    run(main())


def test_the_limits_are_those_that_were_promised() -> None:
    limits = Limits()
    assert limits.handshake_s == 5
    assert limits.frame_s == limits.stall_s == 10
    assert limits.frame_bytes <= (1 << 20) + 6
    assert limits.client_queue_bytes == 8 << 20
    assert limits.subscriptions_per_client == 1_000
    assert limits.constraints_per_filter == 64


NAMES = ("", "x" * 201, "x" * 100_000)


def test_names_that_are_none_are_refused() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            for name in NAMES:
                await refused(client, Subscribe(name, "x > 0"), f"{len(name)} characters")
            assert await client.get(Subscribe("x" * 200, "x > 0", SubscriptionOptions())) == Stored()

    run(main())


@pytest.mark.parametrize("window", [-(2**63), 0, 2**64 - 1])
def test_any_window_is_taken_as_one_that_can_be(window: int) -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as client:
            assert await client.get(Subscribe("s", "x > 0")) == Stored()
            assert await client.get(Attach("s", window)) == Stored()
            await client.publish(event(1, x=1))
            assert len(await client.notified(1)) == 1
            (home,) = one.node.home_manager.homes.values()
            assert home.deliveries.queues["s"].window == min(max(1, window), WINDOW_MAX)

    run(main())


async def dripping(caller: Caller, data: bytes, pause_s: float) -> None:
    """Say something a byte at a time, for as long as anyone listens."""
    for at in range(len(data)):
        if caller.writer.is_closing():
            return
        caller.writer.write(data[at : at + 1])
        await asyncio.sleep(pause_s)


@pytest.mark.parametrize("is_welcome", [False, True])
def test_a_frame_that_comes_byte_by_byte_is_waited_for_only_so_long(is_welcome: bool) -> None:
    """There is never a long silence: time counts from the first byte of the frame, or from the connection."""

    async def main() -> None:
        limits = Limits(handshake_s=0.3, frame_s=0.3)
        async with broker(limits=limits) as one, calling(one.address) as good:
            opened = calling(one.address) if is_welcome else raw(one.address)
            async with opened as slow:
                dripped = asyncio.create_task(dripping(slow, frame(bytes(4000), slow.version), 0.01))
                assert await slow.ended()
                assert not dripped.done(), "it was closed because the frame was bad, not because it was slow"
                dripped.cancel()
            assert isinstance(await good.get(StatusRequest()), BrokerStatus)

    run(main())


def test_whoever_does_not_read_answers_is_not_read_from_and_gets_all_of_them_later() -> None:
    async def main() -> None:
        limits = Limits(client_queue_bytes=100_000, stall_s=60)
        async with broker(limits=limits) as one, calling(one.address) as asker, calling(one.address) as good:
            asker.writer.transport.pause_reading()  # type: ignore[attr-defined]
            count = 5000
            asker.send(*[Request(number + 1, StatusRequest()) for number in range(count)])
            queued: Callable[[], int] = lambda: one._clients.queued_bytes  # noqa: E731
            await until(lambda: queued() > 40_000, "its answers wait")
            for _ in range(20):
                assert isinstance(await good.get(StatusRequest()), BrokerStatus)
                assert queued() < 3_000_000
            assert one.counts.totals["requests"] < count
            asker.writer.transport.resume_reading()  # type: ignore[attr-defined]
            await asker.told(count)
            assert one.counts.totals["requests"] >= count

    run(main())


FRAMES: dict[str, bytes] = {
    "no array": packed({"x": 1}),
    "deep": b"\x91" * 100_000,
    "deep within a message": b"\x91\x93\xa3ask\x01" + b"\x91" * 100_000,
    "bad UTF-8": b"\x91\x93\xa3ask\x01\x91\xa2\xff\xff",
    "an unknown message": packed([["tomorrow", 1]]),
    "an unknown question": packed([["ask", 1, ["tomorrow"]]]),
    "a broker's message": packed([["sync", 5, b"", []]]),
    "an extension": b"\x91\xc7\x01\x05\x00",
    "a number as text": packed([["ask", "one", ["status"]]]),
    "a number beyond 64 bits": b"\x91\x93\xa3ask\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x92\xa6absent\xa1x\x00",
    "a lifetime that no clock shows": packed([["ask", 1, ["update", "s", None, None, 2**63]]]),
    "a lifetime below 0": packed([["ask", 1, ["subscribe", "s", "x > 0", [True, "", [], -1]]]]),
    "an event's number below 0": packed([["ask", 1, ["acknowledge", [b"h", 1, -1], ["s"]]]]),
    "more messages than a frame has": packed([0] * 8193),
    "half an array": b"\x92" + packed(["ask", 1, ["status"]]),
    "an array of 2^32": b"\xdd\xff\xff\xff\xff",
}


def test_frames_with_bad_content_close_the_connection_that_sent_them_and_no_other() -> None:
    async def main() -> None:
        async with broker() as one, calling(one.address) as other:
            await other.subscribe("all", "TRUE")
            for number, (name, data) in enumerate(FRAMES.items()):
                async with calling(one.address) as client:
                    client.writer.write((len(data) + 1).to_bytes(4, "big") + b"\x02" + data)
                    assert await client.ended()
                    assert not client.inbox, name
                assert sum(one.counts.wire_errors.values()) == number + 1, name
                await other.publish(event(number, x=number))
                (got,) = await other.notified(1)
                assert from_msgpack(got.content).attributes == {"x": number}
            assert len(one._clients.sessions) == 1
            assert one.counts.totals["step_errors"] == 0

    run(main())


def test_an_event_that_was_read_is_the_event_that_was_sent() -> None:
    """The odd forms that are well formed are taken as what they say."""

    async def main() -> None:
        odd = content(b"\xde\x00\x02\xd9\x01a\xd3\x00\x00\x00\x00\x00\x00\x00\x05\xda\x00\x01b\xca\x3f\x80\x00\x00")
        async with broker() as one, calling(one.address) as client:
            await client.subscribe("s", "a = 5 AND b = 1")
            (answer,) = await client.publish(odd)
            assert isinstance(answer, Published)
            (got,) = await client.notified(1)
            read = from_msgpack(got.content)
            assert isinstance(read, Event)
            assert read.attributes == {"a": 5, "b": 1.0}

    run(main())


def said(one: Broker) -> int:
    return one.counts.totals["connections_refused"]


def test_a_hello_of_every_length_before_the_limit_is_waited_for_and_one_beyond_it_is_not() -> None:
    async def main() -> None:
        async with broker() as one:
            for size, is_read in ((4096, True), (4097, False)):
                async with raw(one.address) as caller:
                    head = size.to_bytes(4, "big") + b"\x01"
                    caller.writer.write(head)
                    if is_read:
                        caller.writer.write(HANDSHAKE.encode(HELLO)[:1])
                        await asyncio.sleep(one.config.limits.handshake_s - 1)
                        assert said(one) == 0
                    else:
                        assert await caller.ended()
                        assert said(one) == 1

    run(main())
