"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from meetpoint.language import Schema

__all__ = [
    "AsJson",
    "Insecure",
    "Master",
    "NetworkName",
    "RevokedTokens",
    "SchemaFile",
    "Settings",
    "TokenKeys",
    "read_schema",
    "read_settings",
]

LOCAL = "local[*]"

SchemaFile = Annotated[Path | None, typer.Option("--schema", metavar="FILE", help="A schema in YAML to check against.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for a program to read.")]
Master = Annotated[
    str, typer.Option("--master", metavar="URL", help="Where Spark runs: local[2], spark://host:7077, yarn, …")
]
TokenKeys = Annotated[
    Path | None, typer.Option("--token-keys", metavar="FILE", help="Public keys of tokens: then clients need one.")
]
RevokedTokens = Annotated[
    Path | None, typer.Option("--revoked-tokens", metavar="FILE", help="Tokens that count no more.")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let other machines connect without TLS and tokens.")]
NetworkName = Annotated[str, typer.Option("--network", metavar="NAME", help="The network's name.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="KEY=VALUE", help="A setting of Spark, such as spark.driver.memory=8g; repeatable."
    ),
]


def read_schema(path: Path | None) -> Schema | None:
    """Read the schema of a file, if one is given."""
    from meetpoint.language import Schema

    return None if path is None else Schema.from_yaml(path)


def read_settings(given: list[str] | None, option: str = "--config") -> dict[str, str]:
    """Split each KEY=VALUE at its first equals sign."""
    settings = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not (key.strip() and sign):
            raise typer.BadParameter(f"{text!r} is no setting; write KEY=VALUE.", param_hint=option)
        settings[key.strip()] = value
    return settings
