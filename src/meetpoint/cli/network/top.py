"""`meetpoint top`, how all brokers are, live; `meetpoint why`, what became of an event for a subscription."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from meetpoint.cli.network.connect import HERE, Reach, reaching
from meetpoint.cli.network.queries import Brokers, Reached, all_dead, brokers_at, just_before, run
from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, QuietConsole, complain, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from meetpoint.api.client_messages import BrokerStatus, DeadLetterInfo, Held
    from meetpoint.cli.network.reasons import Known

__all__ = ["top", "why"]

PIPE_COLUMNS = 250
SILENT_S = 1.0
"""Whoever takes longer is shown as silent."""


# -- top ---------------------------------------------------------------------------------------------------------------


class _Row(msgspec.Struct):
    """One broker between two moments. Numbers are None where it did not answer."""

    broker: str
    state: str
    problem: str = ""
    subscriptions: int | None = None
    published_per_s: float | None = None
    delivered_per_s: float | None = None
    queued: int | None = None
    outbox: int | None = None
    dead_letters: int | None = None
    store_ms: float | None = None
    """What a sync took between the two moments; None also where there was none."""
    connections: int | None = None
    up_s: float | None = None


@reaching()
def top(
    at: Reach = HERE,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and stop.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, max=3600, metavar="SECONDS", help="How long a look takes.")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per look; with --once: one.")] = False,
) -> None:
    """All brokers, live: what each holds, how fast it goes, what waits, and who does not answer. Ctrl-C ends it."""
    try:
        run(_watch(at, once, interval, as_json))
    except KeyboardInterrupt:
        if once:
            raise


async def _watch(at: Reach, once: bool, interval: float, as_json: bool) -> None:
    async with brokers_at(at, SILENT_S) as brokers:
        before = await _look(brokers)
        if once or as_json or not sys.stdout.isatty():
            while True:
                await asyncio.sleep(interval)
                now = await _look(brokers)
                _print(_rows(before, now), as_json)
                if once:
                    return
                before = now
        from rich.live import Live

        with Live(_table(_rows(before, before)), console=QuietConsole(), screen=False, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(interval)
                now = await _look(brokers)
                live.update(_table(_rows(before, now)), refresh=True)
                before = now


class _Look(msgspec.Struct):
    """What all brokers said at one moment."""

    at: float
    said: dict[str, BrokerStatus | None]
    problems: dict[str, str]


async def _look(brokers: Brokers) -> _Look:
    from meetpoint.api.client_messages import BrokerStatus, Status
    from meetpoint.client.errors import RefusedError

    everyone = await brokers.all()
    said = await asyncio.gather(*(brokers.ask(one, Status(), BrokerStatus) for one in everyone))
    refused = [one.problem for one in everyone if one.is_refused]
    if refused and not any(said):
        raise RefusedError(refused[0])  # they are there, and do not tell
    return _Look(
        time.monotonic(),
        {one.peer.address: word for one, word in zip(everyone, said, strict=True)},
        {one.peer.address: one.problem for one in everyone},
    )


def _rows(before: _Look, now: _Look) -> list[_Row]:
    return [_row(address, before, now) for address in now.said]


def _row(address: str, before: _Look, now: _Look) -> _Row:
    said, former = now.said[address], before.said.get(address)
    if said is None:
        return _Row(address, "silent", now.problems.get(address, ""))
    row = _Row(
        address,
        said.state,
        subscriptions=_count(said, "subscriptions"),
        queued=_count(said, "queued_events"),
        outbox=_count(said, "unsettled_events"),
        dead_letters=_count(said, "dead_letters"),
        connections=_count(said, "clients"),
        up_s=round(said.up_s, 1),
    )
    spent = now.at - before.at
    if former is not None and former.up_s <= said.up_s and spent > 0:
        row.published_per_s = round(_grown(former, said, "events_published") / spent, 1)
        row.delivered_per_s = round(_grown(former, said, "deliveries") / spent, 1)
        commits = _grown(former, said, "store_commits")
        row.store_ms = round(1000 * _grown(former, said, "store_commit_seconds") / commits, 2) if commits else None
    return row


def _count(said: BrokerStatus, name: str) -> int:
    return int(said.numbers.get(name, 0))


def _grown(former: BrokerStatus, said: BrokerStatus, name: str) -> float:
    return max(0.0, said.numbers.get(name, 0.0) - former.numbers.get(name, 0.0))


def _print(rows: list[_Row], as_json: bool) -> None:
    if as_json:
        print_json({"brokers": [msgspec.to_builtins(row) for row in rows]})
    else:
        _console().print(_table(rows))
    sys.stdout.flush()


def _console() -> QuietConsole:
    """As wide as the terminal; a pipe takes any width."""
    return QuietConsole() if sys.stdout.isatty() else QuietConsole(width=PIPE_COLUMNS)


def _table(rows: list[_Row]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("broker", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in (
        "subs", "in/s", "out/s", "queued", "outbox", "dead", "store ms", "clients",
    ):  # fmt: skip
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        colour = {"ready": "green", "silent": "red"}.get(row.state, "yellow")
        cells = [
            _shown(row.subscriptions), _shown(row.published_per_s), _shown(row.delivered_per_s), _shown(row.queued),
            _shown(row.outbox), _shown(row.dead_letters), "–" if row.store_ms is None else f"{row.store_ms:.1f}",
            _shown(row.connections),
        ]  # fmt: skip
        table.add_row(row.broker, f"[{colour}]{row.state}[/]", *cells)
    if len(rows) > 1:
        totals: list[Any] = [
            sum(value or 0 for value in column)
            for column in (
                [row.subscriptions for row in rows],
                [row.published_per_s for row in rows],
                [row.delivered_per_s for row in rows],
                [row.queued for row in rows],
                [row.outbox for row in rows],
                [row.dead_letters for row in rows],
            )
        ]
        answering = sum(row.state != "silent" for row in rows)
        table.add_row(
            "all", f"{answering} of {len(rows)}", *map(_shown, totals), "",
            _shown(sum(row.connections or 0 for row in rows)), style="bold",
        )  # fmt: skip
    return table


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


# -- why ---------------------------------------------------------------------------------------------------------------


@reaching()
def why(
    event_id: Annotated[str, typer.Argument(metavar="EVENT_ID", help="The event's id, as `pub` and `sub` print it.")],
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION", help="The subscription's name.")],
    at: Reach = HERE,
    as_json: AsJson = False,
) -> None:
    """What became of an event for a subscription: where it went, what stopped it, and what nobody knows any more."""
    from meetpoint.cli.network.reasons import find_reason

    reason = find_reason(run(_learn(at, event_id, subscription)))
    if as_json:
        print_json(reason.to_dict())
    else:
        sys.stdout.write(reason.text() + "\n")
    if not reason.is_known:
        raise typer.Exit(EXIT_SET_ASIDE)


async def _learn(at: Reach, event_id: str, name: str) -> Known:
    """Ask all brokers for all they know of both."""
    from meetpoint.api.client_messages import Journal, JournalIs
    from meetpoint.cli.network.reasons import Known, Remembered

    async with brokers_at(at) as brokers:
        everyone = await brokers.all()
        known = Known(event=event_id, name=name, homes={bytes(one.peer.id): one.peer.address for one in everyone})

        async def remembered(what: Journal) -> list[Remembered]:
            answers = await asyncio.gather(*(brokers.ask(one, what, JournalIs) for one in everyone))
            return [
                Remembered(one.peer.address, line)
                for one, answer in zip(everyone, answers, strict=True)
                for line in (answer.lines if answer is not None else ())
            ]

        lines = await remembered(Journal(event_id))
        for key in dict.fromkeys(one.line.event for one in lines):  # whoever did not publish it knows only its key
            lines += await remembered(Journal("", key))
        known.lines = list({(one.broker, one.line): one for one in lines}.values())
        keys = {one.line.event for one in lines}
        found = await asyncio.gather(*(_about(brokers, one, name) for one in everyone))
        for one, (held, letters) in zip(everyone, found, strict=True):
            if held is not None:
                known.held, known.host = held, one.peer.address
            known.letters += [letter for letter in letters if letter.event in keys or _has_id(letter, event_id)]
        known.silent = [one.problem for one in everyone if one.problem]
        return known


async def _about(brokers: Brokers, one: Reached, name: str) -> tuple[Held | None, list[DeadLetterInfo]]:
    """The subscription, if a broker has it, and its dead letters there."""
    from meetpoint.api.client_messages import Subscriptions, SubscriptionsAre

    told = await brokers.ask(one, Subscriptions(after=just_before(name)), SubscriptionsAre)
    held = None if told is None else next((held for held in told.subscriptions if held.name == name), None)
    return held, await all_dead(brokers, one, name) or []


def _has_id(letter: DeadLetterInfo, event_id: str) -> bool:
    from meetpoint.errors import MeetpointError
    from meetpoint.language.events.msgpack import from_msgpack

    try:
        return from_msgpack(letter.content).id == event_id
    except MeetpointError:
        complain("a dead letter cannot be read, and is passed over")
        return False
