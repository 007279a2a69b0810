"""`meetpoint sub` and `meetpoint pub`: events out of a network, and into one, as JSON lines."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.network.connect import LOCAL_NETWORK, ConnectOptions, labels_of, run, with_connect_options
from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, finish, print_error, print_json, print_note
from meetpoint.errors import one_line
from meetpoint.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from meetpoint.client.network import Network
    from meetpoint.client.subscription import Subscription
    from meetpoint.language import Schema
    from meetpoint.language.events.event import Event
    from meetpoint.language.values import Value
    from meetpoint.matching.io.rejects import Rejected

__all__ = ["pub", "sub"]

IN_FLIGHT = 2_000
"""The most events that are sent before the first of them is acknowledged."""

Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Something to find it by; repeatable.")
]


# -- sub ---------------------------------------------------------------------------------------------------------------


@with_connect_options()
def sub(
    filter_text: Annotated[
        str, typer.Argument(metavar="FILTER", help='A filter, such as "price > 120"; TRUE is every event.')
    ],
    durable: Annotated[
        str | None,
        typer.Option(
            "--durable", metavar="NAME", help="Keep it under this name: what matches waits while you are away."
        ),
    ] = None,
    at: ConnectOptions = LOCAL_NETWORK,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Stop after so many events.")] = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0.01, metavar="SECONDS", help="Stop when nothing came for so long.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="WHEN", help="First what was published since: 2026-11-16T09:00:00Z, or 30m, 12h, 7d ago."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="If there is one of this name with another filter, give it this one.")
    ] = False,
    owner: Annotated[str, typer.Option("--owner", metavar="NAME", help="Whose it is.")] = "",
    label: Labels = None,
    lifetime: Annotated[
        float | None, typer.Option("--lifetime", min=0.001, metavar="SECONDS", help="End it by itself after so long.")
    ] = None,
    attributes: Annotated[
        bool, typer.Option("--attributes", help="Print only what the event says, as `pub` reads it.")
    ] = False,
    _json: Annotated[bool, typer.Option("--json", hidden=True, help="JSON lines, as always.")] = False,
) -> None:
    """Subscribe, and print each event that matches as one line of JSON, until Ctrl-C."""
    if replace and durable is None:
        raise typer.BadParameter("only a subscription with a name can be replaced.", param_hint="--replace")
    labels = labels_of(label)
    moment = None if since is None else _read_since(since)
    received = 0

    def write(line: bytes) -> None:
        nonlocal received
        sys.stdout.write(line.decode() + "\n")
        sys.stdout.flush()
        received += 1

    async def follow() -> str | None:
        from meetpoint.client import RefusedError

        async with at.connect(owner) as net:
            print_note(f"subscribing at {_broker_address(net)} …")
            try:
                subscription = await net.subscribe(
                    filter_text, durable=durable, labels=labels, lifetime=lifetime, replace=replace, since=moment
                )
            except RefusedError as error:
                raise RefusedError(str(error).replace("replace=True", "--replace")) from None
            print_note(f"subscribed{'' if durable is None else f' as {durable}'}; Ctrl-C ends this")
            return await _print_all(subscription, write, attributes, count, timeout)

    ended = None
    try:
        ended = run(follow())
    except KeyboardInterrupt:
        if count is not None:
            raise
    if durable is not None:
        print_note(
            f"{counted(received, 'event')}; {durable} stays, and what matches waits for it: "
            f"meetpoint subs end {durable} ends it"
        )
    if ended is not None:
        print_error(f"the subscription has ended: {ended}")
        raise typer.Exit(EXIT_SET_ASIDE)
    if count is not None and received < count:
        print_error(f"{received:,} of {counted(count, 'event')} came before {timeout:g} s without one were over")
        raise typer.Exit(EXIT_SET_ASIDE)


def _read_since(text: str) -> datetime:
    """Read a moment, or how long ago it was."""
    from meetpoint.errors import EventError
    from meetpoint.language.timestamps import TimestampError, parse_timestamp
    from meetpoint.matching.backtest import read_width

    try:
        return (
            datetime.now(UTC) - read_width(text) if text[-1:].isalpha() and text[-1:] != "Z" else parse_timestamp(text)
        )
    except (EventError, TimestampError):
        raise typer.BadParameter(
            f"{text!r} is no moment; write 2026-11-16T09:00:00Z, or how long ago: 30m, 12h, 7d.", param_hint="--since"
        ) from None


async def _print_all(
    subscription: Subscription,
    write: Callable[[bytes], None],
    attributes: bool,
    count: int | None,
    timeout: float | None,
) -> str | None:
    """Write each event before it is acknowledged; return why the subscription has ended, if it has."""
    left = count
    async for event in subscription.events(timeout):
        write(_line(event.event, event.matched_by, event.redelivered, attributes))
        if left is not None:
            left -= 1
            if not left:
                await event.ack()
                return None
    return subscription.ended


def _line(event: Event, matched_by: tuple[str, ...], redelivered: bool, attributes: bool) -> bytes:
    import msgspec

    from meetpoint.language.events.json import attributes_to_json, to_json

    if attributes:
        return attributes_to_json(event.attributes)
    more = msgspec.json.encode({"matched_by": matched_by, "redelivered": redelivered})
    return to_json(event)[:-1] + b"," + more[1:]


def _broker_address(net: Network) -> str:
    return "a broker" if net.broker is None else net.broker.address


# -- pub ---------------------------------------------------------------------------------------------------------------


@with_connect_options()
def pub(
    events: Annotated[
        str,
        typer.Argument(
            metavar="EVENT|FILE|-",
            help="A JSON object; or events in a file: .jsonl, .csv or .parquet; - is JSON lines on standard input.",
        ),
    ],
    at: ConnectOptions = LOCAL_NETWORK,
    event_id: Annotated[
        str | None,
        typer.Option(
            "--event-id", metavar="COLUMN", help="Name events by this attribute: an id that came before is dropped."
        ),
    ] = None,
    publisher: Annotated[str, typer.Option("--publisher", metavar="NAME", help="Who publishes.")] = "",
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="FILE", help="Where rows that are set aside go, with reasons.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Publish an event, and print its id; or many, in their order. Done is what is on disk at two brokers."""
    from meetpoint.client import NetworkError

    single = events.lstrip().startswith("{")
    if not single:
        from meetpoint.cli.output.files import refuse_overlap

        _check_source(events)
        refuse_overlap({"--rejects": rejects}, {"EVENTS": events})
    with _Publisher(at, publisher) as out:
        try:
            if single:
                _publish_one(out, events, event_id, as_json)
            else:
                _publish_all(out, events, event_id, rejects, as_json)
        except (KeyboardInterrupt, NetworkError):
            print_error(f"{counted(out.published, 'event')} published; {out.unanswered:,} more may have been or not")
            raise


def _check_source(events: str) -> None:
    """Refuse a text that is neither an event nor the name of a file, with a hint at both."""
    from meetpoint.matching.io.events import format_of
    from meetpoint.matching.io.rejects import SourceError

    try:
        format_of(events)
    except SourceError:
        if events and Path(events).exists():
            raise
        raise SourceError(
            f"{one_line(events)!r} is neither a JSON object nor a file; write an event as '{{\"price\": 121.5}}', "
            "or name a file: .jsonl, .csv, .parquet"
        ) from None


def _publish_one(out: _Publisher, text: str, event_id: str | None, as_json: bool) -> None:
    from meetpoint.errors import EventError
    from meetpoint.language.events.json import attributes_from_json

    attributes = attributes_from_json(text, out.schema)
    event = out.event(attributes, event_id)
    out.put(0, event, text)
    out.wait()
    for _, reason, _ in out.refused():
        raise EventError(reason)
    if as_json:
        print_json({"published": 1, "refused": 0, "id": event.id, "seconds": round(out.seconds, 3)})
    else:
        sys.stdout.write(f"{event.id}\n")


def _publish_all(out: _Publisher, path: str, event_id: str | None, rejects: str | None, as_json: bool) -> None:
    from meetpoint.cli.output.files import RejectFile
    from meetpoint.cli.output.streams import progress
    from meetpoint.errors import EventError
    from meetpoint.language.events.json import attributes_to_json
    from meetpoint.matching.io.rejects import reject

    with RejectFile(rejects) as reject_file:

        def set_aside() -> None:
            for row, reason, raw in out.refused():
                reject_file.add(reject("events", row, reason, raw))

        with progress(f"publishing to {out.where}") as step:
            for row, attributes in _rows(path, reject_file.add, out.schema):
                try:
                    event = out.event(attributes, event_id)
                except EventError as error:
                    reject_file.add(reject("events", row, str(error), attributes_to_json(attributes).decode()))
                    continue
                step(out.put(row, event, attributes))
                set_aside()
            step(out.wait())
            set_aside()
    seconds = out.seconds
    if as_json:
        print_json({"published": out.published, "refused": reject_file.count, "seconds": round(seconds, 3)})
    else:
        pace = f", {out.published / seconds:,.0f} a second" if seconds >= 1 else ""
        sys.stdout.write(f"{counted(out.published, 'event')} published{pace}\n")
        sys.stdout.flush()
    finish(reject_file.summary())


def _rows(path: str, rejected: Rejected, schema: Schema | None) -> Iterator[tuple[int, dict[str, Value]]]:
    """Yield events with their row numbers; JSON lines one by one as they come, since a pipe may be slow."""
    from meetpoint.language.values import clean_attributes
    from meetpoint.matching.io.events import format_of, json_rows, read_events

    if format_of(path) == "jsonl":
        yield from json_rows(path, "events", rejected, schema)
        return
    for batch in read_events(path, rejected, schema):
        for row, attributes in zip(batch.rows, batch.columns.rows(), strict=True):
            yield row, clean_attributes({name: value for name, value in attributes.items() if value is not None})


class _Publisher:
    """A client in a thread of its own, so that reading a slow file or pipe never blocks it.

    One thread uses it, the reader's; answers come in the client's.
    """

    def __init__(self, at: ConnectOptions, publisher: str) -> None:
        from meetpoint.client.sync import Background

        self._connecting = at.connect(publisher)
        self._background = Background("meetpoint pub")
        self._room = threading.BoundedSemaphore(IN_FLIGHT)
        self._refused: queue.SimpleQueue[tuple[int, str, str]] = queue.SimpleQueue()
        self._failed: BaseException | None = None
        self._sent = 0
        self._reported = 0
        self._answers = 0
        self.published = 0
        self._started = time.monotonic()

    def __enter__(self) -> _Publisher:
        try:
            self._net: Network = self._background.run(_connect(self._connecting))
            self.schema: Schema | None = self._background.run(self._net.schema())
        except BaseException:
            self._background.stop()
            raise
        self.where = _broker_address(self._net)
        self._started = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._background.run(self._net.close())
        finally:
            self._background.stop()

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._started

    def event(self, attributes: dict[str, Value], column: str | None) -> Event:
        """Return an event of these attributes; `column` names the one that is its id."""
        from meetpoint.errors import EventError
        from meetpoint.language.schema.schema import show_value

        if column is None:
            return self._net.event(attributes)
        id_: Any = attributes.get(column)
        if not isinstance(id_, str | int) or isinstance(id_, bool) or id_ == "":
            problem = "is missing" if id_ is None else f"is {show_value(id_)}"
            raise EventError(f"event: its id {column} {problem}; give it a string or an integer")
        return self._net.event(attributes, id=str(id_))

    def put(self, row: int, event: Event, raw: object) -> int:
        """Send an event when there is room; return how many were acknowledged since the last call."""
        self._room.acquire()
        self._sent += 1
        self._background.call(self._publish, row, event, raw)
        return self._progress()

    def wait(self) -> int:
        """Wait for all answers; return how many were acknowledged since the last call."""
        for _ in range(IN_FLIGHT):
            self._room.acquire()
        for _ in range(IN_FLIGHT):
            self._room.release()
        return self._progress()

    @property
    def unanswered(self) -> int:
        """The number of events without an answer so far."""
        return self._sent - self._answers

    def refused(self) -> Iterator[tuple[int, str, str]]:
        """Yield row, reason and text of events that brokers refuse for good."""
        while not self._refused.empty():
            yield self._refused.get()

    def _progress(self) -> int:
        if self._failed is not None:
            raise self._failed
        done, self._reported = self.published - self._reported, self.published
        return done

    # in the client's thread

    def _publish(self, row: int, event: Event, raw: object) -> None:
        import asyncio

        task = asyncio.ensure_future(self._net.publish(event))
        task.add_done_callback(lambda done: self._on_done(done, row, raw))

    def _on_done(self, done: Any, row: int, raw: object) -> None:
        from meetpoint.client.errors import NetworkError
        from meetpoint.errors import MeetpointError
        from meetpoint.language.events.json import attributes_to_json

        self._answers += 1
        problem = None if done.cancelled() else done.exception()
        if problem is None:
            self.published += not done.cancelled()
        elif isinstance(problem, MeetpointError) and not isinstance(problem, NetworkError):
            text = raw if isinstance(raw, str) else attributes_to_json(raw).decode()  # type: ignore[arg-type]
            self._refused.put((row, str(problem), text))
        elif self._failed is None:
            self._failed = problem
        self._room.release()


async def _connect(connecting: Any) -> Network:
    return await connecting  # type: ignore[no-any-return]
