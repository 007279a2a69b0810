"""`meetpoint schema show | add`: the schema that a network's brokers check filters and events against."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from meetpoint.cli.network.connect import HERE, Reach, reaching
from meetpoint.cli.network.queries import run
from meetpoint.cli.output.streams import complain

__all__ = ["add", "show"]


@reaching()
def show(at: Reach = HERE) -> None:
    """The schema of a network, as YAML."""
    from meetpoint.language import Schema

    async def ask() -> Schema | None:
        async with at.connect() as net:
            return await net.schema()

    found = run(ask())
    if found is None:
        complain("the network has no schema: any event and any filter is taken; meetpoint schema add FILE gives it one")
        return
    sys.stdout.write(found.to_yaml())


@reaching()
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A schema in YAML.")],
    at: Reach = HERE,
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
