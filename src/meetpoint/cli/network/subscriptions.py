"""`meetpoint subs`: the subscriptions of a network, out to a file and back in."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from meetpoint.cli.network.connect import (
    LOCAL_NETWORK,
    BrokerLink,
    BrokerSet,
    ConnectOptions,
    all_subscriptions,
    brokers_at,
    labels_of,
    request,
    run,
    with_connect_options,
)
from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import QuietConsole, finish, json_text, print_error, print_json
from meetpoint.errors import EventError, FilterError, MeetpointError, one_line

if TYPE_CHECKING:
    from meetpoint.api.client_messages import HostedSubscription
    from meetpoint.api.requests import Subscribe, Update
    from meetpoint.language import Schema
    from meetpoint.matching.io.rejects import Rejected

__all__ = ["subs_app"]

CONCURRENT_MAX = 256
"""The most requests to brokers at a time."""
RETRY_S = 30.0
"""The time for a broker that refuses for now."""
FILTER_SHOWN_MAX = 60
"""The most characters of a filter in a table."""

subs_app = typer.Typer(no_args_is_help=True, help="The subscriptions of a network: list, export, import, end.")

Owner = Annotated[str, typer.Option("--owner", metavar="NAME", help="Only this owner's.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Only those that have it; repeatable.")
]


# -- list and export ---------------------------------------------------------------------------------------------------


@subs_app.command("list")
@with_connect_options()
def list_(at: ConnectOptions = LOCAL_NETWORK, owner: Owner = "", label: Labels = None, as_json: AsJson = False) -> None:
    """All subscriptions: at which broker, how many events wait, whether somebody takes them, the filter."""
    found, unanswered = run(_all_at(at, owner, labels_of(label)))
    if as_json:
        rows = [
            {
                **_row(subscription),
                "durable": subscription.terms.durable,
                "broker": host,
                "queued": subscription.queued,
                "taken": subscription.is_present,
            }
            for host, subscription in found
        ]
        print_json({"subscriptions": rows, "silent": unanswered})
    else:
        _show(found)
    _report_unanswered(unanswered)


@subs_app.command("export")
@with_connect_options()
def export(
    out: Annotated[str, typer.Option("--out", metavar="FILE", help="A .jsonl file; - is standard output.")] = "-",
    at: ConnectOptions = LOCAL_NETWORK,
    owner: Owner = "",
    label: Labels = None,
) -> None:
    """Durable subscriptions as JSON lines: name, filter, owner, labels, durable. `subs import` reads them back."""
    from meetpoint.matching.io.rejects import SourceError

    if out != "-" and not out.endswith((".jsonl", ".ndjson", ".json")):
        raise SourceError(f"{out}: subscriptions are written as JSON lines; name the file .jsonl")
    found, unanswered = run(_all_at(at, owner, labels_of(label)))
    if unanswered:
        raise MeetpointError(f"the list would not be complete, and is not written: {'; '.join(unanswered)}")
    lines = [
        json_text({**_row(subscription), "durable": True}) for _, subscription in found if subscription.terms.durable
    ]
    text = "".join(line + "\n" for line in lines)
    if out == "-":
        sys.stdout.write(text)
    else:
        from meetpoint.cli.output.files import write_text

        write_text(out, text)
    passing = sum(not subscription.terms.durable for _, subscription in found)
    if passing:
        print_error(f"{passing:,} that are not durable are left out: they live as long as their clients")


async def _all_at(
    at: ConnectOptions, owner: str, labels: dict[str, str]
) -> tuple[list[tuple[str, HostedSubscription]], list[str]]:
    """Return all subscriptions by name with their brokers' addresses, and the problems of silent brokers."""
    async with brokers_at(at) as brokers:
        return await _collect(brokers, await brokers.all(), owner, labels)


async def _collect(
    brokers: BrokerSet, all_brokers: list[BrokerLink], owner: str = "", labels: dict[str, str] | None = None
) -> tuple[list[tuple[str, HostedSubscription]], list[str]]:
    wanted = tuple(sorted((labels or {}).items()))
    answers = await asyncio.gather(*(all_subscriptions(brokers, broker, owner, wanted) for broker in all_brokers))
    found = [
        (broker.peer.address, subscription)
        for broker, answer in zip(all_brokers, answers, strict=True)
        for subscription in answer or ()
    ]
    found.sort(key=lambda pair: pair[1].name)
    return found, [broker.problem for broker, answer in zip(all_brokers, answers, strict=True) if answer is None]


def _row(subscription: HostedSubscription) -> dict[str, Any]:
    """Return a subscription as a line of a file."""
    row: dict[str, Any] = {
        "name": subscription.name,
        "filter": subscription.filter,
        "owner": subscription.terms.owner,
        "labels": dict(subscription.terms.labels),
    }
    if subscription.terms.paused:
        row["paused"] = True
    if subscription.terms.lifetime_us is not None:
        row["lifetime_s"] = subscription.terms.lifetime_us / 1e6
    return row


def _show(found: list[tuple[str, HostedSubscription]]) -> None:
    from rich.markup import escape
    from rich.table import Table

    console = QuietConsole(soft_wrap=not sys.stdout.isatty())
    if found:
        table = Table(box=None, pad_edge=False)
        for column in ("name", "broker", "state", "owner"):
            table.add_column(column, overflow="fold")
        table.add_column("queued", justify="right")
        table.add_column("filter", overflow="fold")
        for host, subscription in found:
            text = (
                subscription.filter
                if len(subscription.filter) <= FILTER_SHOWN_MAX
                else subscription.filter[: FILTER_SHOWN_MAX - 1] + "…"
            )
            name, owner, text = (escape(one_line(each)) for each in (subscription.name, subscription.terms.owner, text))
            table.add_row(name, host, _state(subscription), owner, f"{subscription.queued:,}", text)
        console.print(table)
    console.print("1 subscription" if len(found) == 1 else f"{len(found):,} subscriptions", highlight=False)


def _state(subscription: HostedSubscription) -> str:
    if subscription.terms.paused:
        return "paused"
    if not subscription.terms.durable:
        return "passing"
    return "taken" if subscription.is_present else "waiting"


def _report_unanswered(unanswered: list[str]) -> None:
    for problem in unanswered:
        print_error(f"not complete: {problem}")
    if unanswered:
        raise typer.Exit(1)


# -- import ------------------------------------------------------------------------------------------------------------


class _ImportedSubscription(msgspec.Struct, frozen=True):
    """A subscription of a file."""

    row: int
    name: str
    filter: str
    owner: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    paused: bool = False
    lifetime_us: int | None = None


@subs_app.command("import")
@with_connect_options()
def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="What `subs export` wrote, .jsonl or -; or .csv or .parquet with the columns id, filter, subscriber.",
        ),
    ],
    at: ConnectOptions = LOCAL_NETWORK,
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="FILE", help="Where rows that are set aside go, with reasons.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make the durable subscriptions of a file, or change those that differ; the same file again changes nothing."""
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.matching.io.events import format_of

    refuse_overlap({"--rejects": rejects}, {"FILE": file})
    format_of(file)
    with RejectFile(rejects) as reject_file:
        counts = run(_import(at, file, reject_file.add))
    summary = {what: counts[what] for what in ("new", "changed", "same")} | {"refused": reject_file.count}
    if as_json:
        print_json(summary)
    else:
        sys.stdout.write(", ".join(f"{count:,} {what}" for what, count in summary.items()) + "\n")
        sys.stdout.flush()
    finish(reject_file.summary())


async def _import(at: ConnectOptions, file: str, rejected: Rejected) -> Counter[str]:
    from meetpoint.api.client_messages import SchemaReply, SchemaRequest
    from meetpoint.cli.output.streams import progress
    from meetpoint.client import NetworkError
    from meetpoint.language import Schema
    from meetpoint.matching.io.rejects import reject

    counts: Counter[str] = Counter()
    async with brokers_at(at) as brokers:
        all_brokers = await brokers.all()
        found, unanswered = await _collect(brokers, all_brokers)
        for problem in unanswered:
            raise NetworkError(
                f"nothing is imported while a broker is silent, since what it holds would be made twice: {problem}"
            )
        existing = {subscription.name: (host, subscription) for host, subscription in found}
        by_address = {broker.peer.address: broker for broker in all_brokers}
        text = (await request(brokers.first, SchemaRequest(), SchemaReply)).schema
        rows = _read(file, rejected, Schema.from_yaml(text) if text else None)
        turn = 0
        with progress(f"importing to {len(all_brokers)} brokers") as step:
            while chunk := list(islice(rows, CONCURRENT_MAX)):
                requests = []
                for wanted in chunk:
                    if wanted.name in existing:
                        host, subscription = existing[wanted.name]
                        requests.append(_change(by_address[host], subscription, wanted))
                    else:
                        requests.append(_make(all_brokers[turn % len(all_brokers)], wanted))
                        turn += 1
                outcomes = await asyncio.gather(*requests)
                for wanted, (outcome, reason) in zip(chunk, outcomes, strict=True):
                    if outcome == "refused":
                        rejected(reject("subscriptions", wanted.row, f"{wanted.name}: {reason}", wanted.filter))
                    else:
                        counts[outcome] += 1
                step(len(chunk))
    return counts


def _read(file: str, rejected: Rejected, schema: Schema | None) -> Iterator[_ImportedSubscription]:
    """Yield the rows of a file with good names and filters; set the others aside."""
    from meetpoint.language.filters.filter import FilterParser
    from meetpoint.matching.io.events import format_of, json_rows
    from meetpoint.matching.io.rejects import reject

    parser = FilterParser(schema)
    seen: set[str] = set()
    rows: Iterable[tuple[int, dict[str, Any]]]
    rows = json_rows(file, "subscriptions", rejected, None) if format_of(file) == "jsonl" else _table(file, rejected)
    for number, row in rows:
        try:
            wanted = _wanted(number, row)
            if wanted.name in seen:
                raise EventError(f"{wanted.name}: occurs a second time; rename it")
            seen.add(wanted.name)
            parser.parse(wanted.filter)
        except (EventError, FilterError) as error:
            shown = row.get("filter")
            rejected(reject("subscriptions", number, str(error), shown if isinstance(shown, str) else json_text(row)))
            continue
        yield wanted


def _table(file: str, rejected: Rejected) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file as `meetpoint match --subs` reads it."""
    from meetpoint.matching.io.subscriptions import unparsed_subscriptions

    for broker in unparsed_subscriptions(file, rejected):
        yield (
            broker.row,
            {
                "name": str(broker.id),
                "filter": broker.text,
                "owner": "" if broker.subscriber is None else str(broker.subscriber),
            },
        )


def _wanted(number: int, row: dict[str, Any]) -> _ImportedSubscription:
    name = row.get("name", row.get("id"))
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name:
        raise EventError("the subscription has no name; give it one that is a string")
    text = row.get("filter")
    if not isinstance(text, str):
        raise EventError(f"{name}: the subscription has no filter; write one, or TRUE for all events")
    if row.get("durable", True) is not True:
        raise EventError(
            f"{name}: is not durable, and lives only as long as its client; leave it out, or make it durable"
        )
    labels, owner = row.get("labels") or {}, row.get("owner", row.get("subscriber")) or ""
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise EventError(f'{name}: its labels are no object of strings; write them as {{"team": "night"}}')
    if not isinstance(owner, str):
        raise EventError(f"{name}: its owner is no string; write its name")
    lifetime = row.get("lifetime_s")
    if lifetime is not None and (isinstance(lifetime, bool) or not isinstance(lifetime, int | float) or lifetime <= 0):
        raise EventError(f"{name}: its lifetime_s is no number of seconds above 0; leave it out for ever")
    lifetime_us = None if lifetime is None else int(lifetime * 1e6)
    return _ImportedSubscription(
        number, name, text, owner, tuple(sorted(labels.items())), row.get("paused") is True, lifetime_us
    )


async def _make(broker: BrokerLink, wanted: _ImportedSubscription) -> tuple[str, str]:
    from meetpoint.api.requests import Detach, Subscribe, SubscriptionOptions

    terms = SubscriptionOptions(True, wanted.owner, wanted.labels, wanted.lifetime_us, wanted.paused)
    outcome = await _ask(broker, Subscribe(wanted.name, wanted.filter, terms), "new")
    if broker.connection is not None:
        broker.connection.notify(Detach(wanted.name))  # a home takes it that whoever subscribes is there
    return outcome


async def _change(
    broker: BrokerLink, subscription: HostedSubscription, wanted: _ImportedSubscription
) -> tuple[str, str]:
    from meetpoint.api.requests import Update

    if not subscription.terms.durable:
        return "refused", "there is one of this name that is not durable; wait until its client has gone"
    if subscription.terms.owner != wanted.owner:
        return (
            "refused",
            f"its owner is {subscription.terms.owner!r} there, which cannot be changed; end it first (subs end)",
        )
    filter_ = None if subscription.filter == wanted.filter else wanted.filter
    labels = None if tuple(sorted(subscription.terms.labels)) == wanted.labels else wanted.labels
    paused = None if subscription.terms.paused == wanted.paused else wanted.paused
    if filter_ is None and labels is None and paused is None:
        return "same", ""
    return await _ask(broker, Update(wanted.name, filter_, labels, None, paused), "changed")


async def _ask(broker: BrokerLink, what: Subscribe | Update, done: str) -> tuple[str, str]:
    """Send a request until it is done or refused for good; raise NetworkError where neither comes in time."""
    from meetpoint.api.outcomes import Stored
    from meetpoint.client.connection_pool import Backoff
    from meetpoint.client.errors import NetworkError, RefusedError

    assert broker.connection is not None
    backoff, problem = Backoff(), "no answer"
    try:
        async with asyncio.timeout(RETRY_S):
            while True:
                try:
                    await request(broker.connection, what, Stored)
                    return done, ""
                except RefusedError as error:
                    return "refused", str(error)
                except NetworkError as error:
                    problem = str(error)
                    if not broker.connection.is_open:
                        raise
                await backoff.wait()
    except TimeoutError:
        raise NetworkError(f"{what.name}: not done within {RETRY_S:g} s: {problem}; import the file again") from None


# -- ending one --------------------------------------------------------------------------------------------------------


@subs_app.command("end")
@with_connect_options()
def end(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A durable subscription.")],
    at: ConnectOptions = LOCAL_NETWORK,
) -> None:
    """End a durable subscription, with all that waits for it."""

    async def unsubscribe() -> None:
        from meetpoint.api.outcomes import Located, Stored
        from meetpoint.api.requests import Locate, Unsubscribe
        from meetpoint.client.errors import NetworkError

        async with brokers_at(at) as brokers:
            located = await request(brokers.first, Locate(name), Located)
            if located.host is None:
                raise MeetpointError(f"there is no subscription {name}; see: meetpoint subs list")
            broker = await brokers.connect_to(located.host)
            if broker.connection is None:
                raise NetworkError(f"{name} is at a broker that does not answer: {broker.problem}")
            await request(broker.connection, Unsubscribe(name), Stored)

    run(unsubscribe())
    sys.stdout.write(f"{name} has ended\n")
