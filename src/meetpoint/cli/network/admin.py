"""Commands that look after a network: its schema, its dead letters, and the store of a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from meetpoint.cli.network.connect import LOCAL_NETWORK, ConnectOptions, run, with_connect_options
from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, QuietConsole, json_text, print_error, print_json
from meetpoint.errors import MeetpointError, one_line

if TYPE_CHECKING:
    from meetpoint.broker.storage.maintenance import CheckReport
    from meetpoint.client.admin_queries import DeadLetter


__all__ = ["dead_app", "schema_add", "schema_show", "store_app"]


# -- schema ------------------------------------------------------------------------------------------------------------


@with_connect_options()
def schema_show(at: ConnectOptions = LOCAL_NETWORK) -> None:
    """The schema of a network, as YAML."""
    from meetpoint.language import Schema

    async def ask() -> Schema | None:
        async with at.connect() as net:
            return await net.schema()

    found = run(ask())
    if found is None:
        print_error(
            "the network has no schema: any event and any filter is taken; meetpoint schema add FILE gives it one"
        )
        return
    sys.stdout.write(found.to_yaml())


@with_connect_options()
def schema_add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A schema in YAML.")],
    at: ConnectOptions = LOCAL_NETWORK,
) -> None:
    """Add the attributes of a schema to the network's, at all its brokers while they run; none may change."""
    from meetpoint.language import Schema

    new = Schema.from_yaml(file)

    async def declare() -> tuple[int, int]:
        async with at.connect() as net:
            before = await net.schema()
            await net.declare(new)
            after = await net.schema()
            return len(before or ()), len(after or ())

    before, after = run(declare())
    added = "1 attribute" if after - before == 1 else f"{after - before:,} attributes"
    sys.stdout.write(f"{added} added, {after:,} in all\n")


# -- dead letters ------------------------------------------------------------------------------------------------------


dead_app = typer.Typer(no_args_is_help=True, help="Dead letters: events that a subscriber did not take.")


@dead_app.command("list")
@with_connect_options()
def dead_list(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only this subscription's.")] = "",
    at: ConnectOptions = LOCAL_NETWORK,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per letter, the event within.")] = False,
) -> None:
    """Dead letters, the oldest first: whose, when, why, and the event's id."""

    async def ask() -> list[DeadLetter]:
        async with at.connect() as net:
            return await net.dead_letters(name or None)

    dead_letters = run(ask())
    if as_json:
        for dead_letter in dead_letters:
            sys.stdout.write(_dead_letter_json(dead_letter) + "\n")
        return
    _show_dead_letters(dead_letters)


@dead_app.command("discard")
@with_connect_options()
def dead_discard(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The subscription whose dead letters are forgotten.")],
    event: Annotated[str | None, typer.Option("--event", metavar="ID", help="Only this event.")] = None,
    at: ConnectOptions = LOCAL_NETWORK,
) -> None:
    """Forget dead letters of a subscription; `meetpoint dead list NAME --json` keeps them in a file first."""

    async def discard() -> tuple[int, int]:
        async with at.connect() as net:
            dead_letters = [one for one in await net.dead_letters(name) if event is None or one.event.id == event]
            for dead_letter in dead_letters:
                await net.discard(dead_letter)
            return len(dead_letters), sum(len(dead_letter.names) > 1 for dead_letter in dead_letters)

    count, shared = run(discard())
    if not count:
        what = f"no dead letter {event}" if event is not None else "no dead letters"
        raise MeetpointError(f"{name} has {what}; see: meetpoint dead list")
    text = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    also = f", {shared:,} of them of other subscriptions too" if shared else ""
    sys.stdout.write(f"{text} of {name} forgotten{also}\n")


def _dead_letter_json(dead_letter: DeadLetter) -> str:
    from meetpoint.cli.network.why import show_time
    from meetpoint.language.events.json import to_json

    head = json_text(
        {
            "subscriptions": list(dead_letter.names),
            "reason": dead_letter.reason,
            "since": show_time(dead_letter.at_us),
            "broker": dead_letter.broker.address,
        }
    )
    return f'{head[:-1]}, "event": {to_json(dead_letter.event).decode()}}}'


def _show_dead_letters(dead_letters: list[DeadLetter]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from meetpoint.cli.network.why import show_time

    console = QuietConsole(soft_wrap=not sys.stdout.isatty())
    if dead_letters:
        table = Table(box=None, pad_edge=False)
        for column in ("since", "subscription", "event", "why"):
            table.add_column(column, overflow="fold")
        for dead_letter in dead_letters:
            cells = (", ".join(dead_letter.names), dead_letter.event.id, dead_letter.reason)
            table.add_row(show_time(dead_letter.at_us), *(escape(one_line(each)) for each in cells))
        console.print(table)
    console.print("1 dead letter" if len(dead_letters) == 1 else f"{len(dead_letters):,} dead letters", highlight=False)


# -- stores ------------------------------------------------------------------------------------------------------------


DAMAGED_SHOWN = 5

store_app = typer.Typer(no_args_is_help=True, help="What a broker keeps on disk: check, backup, restore.")

DataFolder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of one broker, its --data.")]


@store_app.command("check")
def store_check(
    folder: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The folder of one broker, or a backup.")],
    as_json: AsJson = False,
) -> None:
    """Read all of a store, or of a backup, and change nothing; also while its broker runs. Exit with 1 at damage."""
    from meetpoint.broker.storage import maintenance

    report = maintenance.check(_of_one(folder))
    if as_json:
        print_json({**msgspec.to_builtins(report), "sound": report.is_sound})
    else:
        _show_report(report)
    if not report.is_sound:
        for problem in report.problems:
            print_error(problem)
        for home, name in report.damaged[:DAMAGED_SHOWN]:
            print_error(f"damaged: {name} of home {home[:8] or 'none'}")
        raise typer.Exit(EXIT_SET_ASIDE)


@store_app.command("backup")
def store_backup(
    folder: DataFolder,
    to: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Copy a store to a new file as it is at this moment, also while its broker runs, and read the copy back."""
    from meetpoint.broker.storage import maintenance

    report = maintenance.backup(_of_one(folder), to)
    _show_report(report)


@store_app.command("restore")
def store_restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `store backup` wrote.")],
    folder: DataFolder,
) -> None:
    """Put a backup into a folder that has no store; its broker asks the others for what is newer."""
    from meetpoint.broker.storage import maintenance

    report = maintenance.restore(file, folder)
    _show_report(report)
    who = "its broker" if report.identity is None else f"broker {report.identity.name}"
    sys.stdout.write(f"restored; start {who} with --data {folder}\n")


def _of_one(folder: Path) -> Path:
    """Return the folder of one broker; explain where it is the folder of `meetpoint up`."""
    from meetpoint.broker.storage.folder import StoreError

    if folder.is_dir() and not (folder / "store.db").exists():
        within = sorted(path.parent.name for path in folder.glob("*/store.db"))
        if within:
            raise StoreError(f"{folder}: has no store, but folders of brokers; name one of them: {', '.join(within)}")
    return folder


def _show_report(report: CheckReport) -> None:
    whose = "" if report.identity is None else f", broker {report.identity.name} of {report.identity.network}"
    use = ", in use" if report.is_in_use else ""
    size = (report.file_bytes + report.log_bytes) / 1e6
    lines = [
        f"{report.path}{whose}: {size:,.1f} MB, version {report.version}{use}",
        f"{sum(report.records.values()):,} records of {report.homes:,} homes: "
        + (", ".join(f"{kind} {count:,}" for kind, count in report.records.items()) or "none"),
    ]
    if report.deleted:
        lines.append(f"{report.deleted:,} of them say that something was deleted")
    if report.damaged:
        lines.append(f"{len(report.damaged):,} are damaged: the broker asks others for them when it starts")
    if report.missing:
        lines.append(f"{report.missing:,} were damaged earlier and have not come back yet")
    lines.append("sound" if report.is_sound else "NOT sound")
    sys.stdout.write("\n".join(lines) + "\n")
