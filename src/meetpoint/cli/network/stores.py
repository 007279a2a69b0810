"""`meetpoint store`: what is on a broker's disk, a copy of it, and a copy put back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, complain, print_json

if TYPE_CHECKING:
    from meetpoint.broker.storage.maintenance import CheckReport

__all__ = ["store_app"]

DAMAGED_SHOWN = 5

store_app = typer.Typer(no_args_is_help=True, help="What a broker keeps on disk: check, backup, restore.")

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="The folder of one broker, its --data.")]


@store_app.command("check")
def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR|FILE", help="The folder of one broker, or a backup.")],
    as_json: AsJson = False,
) -> None:
    """Read all of a store, or of a backup, and change nothing; also while its broker runs. Exit with 1 at damage."""
    from meetpoint.broker.storage import maintenance

    report = maintenance.check(_of_one(folder))
    if as_json:
        print_json({**msgspec.to_builtins(report), "sound": report.is_sound})
    else:
        _show(report)
    if not report.is_sound:
        for problem in report.problems:
            complain(problem)
        for home, name in report.damaged[:DAMAGED_SHOWN]:
            complain(f"damaged: {name} of home {home[:8] or 'none'}")
        raise typer.Exit(EXIT_SET_ASIDE)


@store_app.command("backup")
def backup(
    folder: Folder,
    to: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")],
) -> None:
    """Copy a store to a new file as it is at this moment, also while its broker runs, and read the copy back."""
    from meetpoint.broker.storage import maintenance

    report = maintenance.backup(_of_one(folder), to)
    _show(report)


@store_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `store backup` wrote.")],
    folder: Folder,
) -> None:
    """Put a backup into a folder that has no store; its broker asks the others for what is newer."""
    from meetpoint.broker.storage import maintenance

    report = maintenance.restore(file, folder)
    _show(report)
    who = "its broker" if report.identity is None else f"broker {report.identity.name}"
    sys.stdout.write(f"restored; start {who} with --data {folder}\n")


def _of_one(folder: Path) -> Path:
    """The folder as it was given; one of `meetpoint up` has those of its brokers within."""
    from meetpoint.broker.storage.folder import StoreError

    if folder.is_dir() and not (folder / "store.db").exists():
        within = sorted(path.parent.name for path in folder.glob("*/store.db"))
        if within:
            raise StoreError(f"{folder}: has no store, but folders of brokers; name one of them: {', '.join(within)}")
    return folder


def _show(report: CheckReport) -> None:
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
