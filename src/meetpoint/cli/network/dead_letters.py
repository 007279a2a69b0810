"""`meetpoint dead`: events that subscribers did not take, to look at and to forget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from meetpoint.cli.network.connect import HERE, Reach, reaching
from meetpoint.cli.network.queries import run
from meetpoint.cli.output.streams import QuietConsole, json_text
from meetpoint.errors import MeetpointError, one_line

if TYPE_CHECKING:
    from meetpoint.client.admin_queries import DeadLetter

__all__ = ["dead_app"]

dead_app = typer.Typer(no_args_is_help=True, help="Dead letters: events that a subscriber did not take.")


@dead_app.command("list")
@reaching()
def dead_list(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Only this subscription's.")] = "",
    at: Reach = HERE,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per letter, the event within.")] = False,
) -> None:
    """Dead letters, the oldest first: whose, when, why, and the event's id."""

    async def ask() -> list[DeadLetter]:
        async with at.connect() as net:
            return await net.dead_letters(name or None)

    letters = run(ask())
    if as_json:
        for letter in letters:
            sys.stdout.write(_letter_json(letter) + "\n")
        return
    _show_letters(letters)


@dead_app.command("discard")
@reaching()
def dead_discard(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The subscription whose dead letters are forgotten.")],
    event: Annotated[str | None, typer.Option("--event", metavar="ID", help="Only this event.")] = None,
    at: Reach = HERE,
) -> None:
    """Forget dead letters of a subscription; `meetpoint dead list NAME --json` keeps them in a file first."""

    async def discard() -> tuple[int, int]:
        async with at.connect() as net:
            letters = [one for one in await net.dead_letters(name) if event is None or one.event.id == event]
            for letter in letters:
                await net.discard(letter)
            return len(letters), sum(len(letter.names) > 1 for letter in letters)

    count, shared = run(discard())
    if not count:
        what = f"no dead letter {event}" if event is not None else "no dead letters"
        raise MeetpointError(f"{name} has {what}; see: meetpoint dead list")
    told = "1 dead letter" if count == 1 else f"{count:,} dead letters"
    also = f", {shared:,} of them of other subscriptions too" if shared else ""
    sys.stdout.write(f"{told} of {name} forgotten{also}\n")


def _letter_json(letter: DeadLetter) -> str:
    from meetpoint.cli.network.reasons import show_time
    from meetpoint.language.events.json import to_json

    head = json_text(
        {
            "subscriptions": list(letter.names),
            "reason": letter.reason,
            "since": show_time(letter.at_us),
            "broker": letter.broker.address,
        }
    )
    return f'{head[:-1]}, "event": {to_json(letter.event).decode()}}}'


def _show_letters(letters: list[DeadLetter]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from meetpoint.cli.network.reasons import show_time

    console = QuietConsole(soft_wrap=not sys.stdout.isatty())
    if letters:
        table = Table(box=None, pad_edge=False)
        for column in ("since", "subscription", "event", "why"):
            table.add_column(column, overflow="fold")
        for letter in letters:
            cells = (", ".join(letter.names), letter.event.id, letter.reason)
            table.add_row(show_time(letter.at_us), *(escape(one_line(each)) for each in cells))
        console.print(table)
    console.print("1 dead letter" if len(letters) == 1 else f"{len(letters):,} dead letters", highlight=False)
