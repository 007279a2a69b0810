"""`meetpoint top`: the state of all brokers, live."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from meetpoint.cli.network.connect import (
    LOCAL_NETWORK,
    BrokerSet,
    ConnectOptions,
    brokers_at,
    run,
    with_connect_options,
)
from meetpoint.cli.output.streams import QuietConsole, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from meetpoint.api.client_messages import BrokerStatus

__all__ = ["top"]

PIPE_COLUMNS = 250
BROKER_TIMEOUT_S = 1.0
"""A broker that takes longer is shown as silent."""


# -- top ---------------------------------------------------------------------------------------------------------------


class _BrokerRow(msgspec.Struct):
    """The numbers of a broker between two samples; None where it did not answer."""

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
    """The average time of a sync between the two samples; None where there was none."""
    connections: int | None = None
    up_s: float | None = None


@with_connect_options()
def top(
    at: ConnectOptions = LOCAL_NETWORK,
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


async def _watch(at: ConnectOptions, once: bool, interval: float, as_json: bool) -> None:
    async with brokers_at(at, BROKER_TIMEOUT_S) as brokers:
        before = await _sample(brokers)
        if once or as_json or not sys.stdout.isatty():
            while True:
                await asyncio.sleep(interval)
                now = await _sample(brokers)
                _print(_broker_rows(before, now), as_json)
                if once:
                    return
                before = now
        from rich.live import Live

        with Live(
            _table(_broker_rows(before, before)), console=QuietConsole(), screen=False, auto_refresh=False
        ) as live:
            while True:
                await asyncio.sleep(interval)
                now = await _sample(brokers)
                live.update(_table(_broker_rows(before, now)), refresh=True)
                before = now


class _Sample(msgspec.Struct):
    """The status of all brokers at one moment."""

    at: float
    status: dict[str, BrokerStatus | None]
    problems: dict[str, str]


async def _sample(brokers: BrokerSet) -> _Sample:
    from meetpoint.api.client_messages import BrokerStatus, StatusRequest
    from meetpoint.client.errors import RefusedError

    all_brokers = await brokers.all()
    status = await asyncio.gather(*(brokers.ask(broker, StatusRequest(), BrokerStatus) for broker in all_brokers))
    refused = [broker.problem for broker in all_brokers if broker.is_refused]
    if refused and not any(status):
        raise RefusedError(refused[0])  # they are there, and do not tell
    return _Sample(
        time.monotonic(),
        {broker.peer.address: status for broker, status in zip(all_brokers, status, strict=True)},
        {broker.peer.address: broker.problem for broker in all_brokers},
    )


def _broker_rows(before: _Sample, now: _Sample) -> list[_BrokerRow]:
    return [_broker_row(address, before, now) for address in now.status]


def _broker_row(address: str, before: _Sample, now: _Sample) -> _BrokerRow:
    status, earlier = now.status[address], before.status.get(address)
    if status is None:
        return _BrokerRow(address, "silent", now.problems.get(address, ""))
    row = _BrokerRow(
        address,
        status.state,
        subscriptions=_count(status, "subscriptions"),
        queued=_count(status, "queued_events"),
        outbox=_count(status, "unsettled_events"),
        dead_letters=_count(status, "dead_letters"),
        connections=_count(status, "clients"),
        up_s=round(status.up_s, 1),
    )
    elapsed_s = now.at - before.at
    if earlier is not None and earlier.up_s <= status.up_s and elapsed_s > 0:
        row.published_per_s = round(_growth(earlier, status, "events_published") / elapsed_s, 1)
        row.delivered_per_s = round(_growth(earlier, status, "deliveries") / elapsed_s, 1)
        commits = _growth(earlier, status, "store_commits")
        row.store_ms = round(1000 * _growth(earlier, status, "store_commit_seconds") / commits, 2) if commits else None
    return row


def _count(status: BrokerStatus, name: str) -> int:
    return int(status.numbers.get(name, 0))


def _growth(earlier: BrokerStatus, status: BrokerStatus, name: str) -> float:
    return max(0.0, status.numbers.get(name, 0.0) - earlier.numbers.get(name, 0.0))


def _print(rows: list[_BrokerRow], as_json: bool) -> None:
    if as_json:
        print_json({"brokers": [msgspec.to_builtins(row) for row in rows]})
    else:
        _console().print(_table(rows))
    sys.stdout.flush()


def _console() -> QuietConsole:
    """Return a console as wide as the terminal, or very wide for a pipe."""
    return QuietConsole() if sys.stdout.isatty() else QuietConsole(width=PIPE_COLUMNS)


def _table(rows: list[_BrokerRow]) -> Table:
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
