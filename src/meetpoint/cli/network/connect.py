"""How a command reaches brokers: where they are, whom it trusts, and who it says that it is.

A command that talks to brokers has a parameter `at: Reach`, and `reaching()` gives it the options for that, the same
for all of them. A token stands in a file or in the environment rather than on the command line, which others see.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from meetpoint.client.dialer import Dialer
    from meetpoint.client.network import Connecting

__all__ = ["HERE", "Reach", "reaching"]

DEFAULT_URL = "mp://localhost:7400"

At = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="URL",
        envvar="MEETPOINT_AT",
        help="A broker of the network, or several: mp://one:7400,two:7400; with TLS mps://one:7400.",
    ),
]
_Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", metavar="FILE", envvar="MEETPOINT_CA", help="The certificate of the network's authority, for mps://."
    ),
]
_Token = Annotated[
    str,
    typer.Option("--token", metavar="TOKEN", envvar="MEETPOINT_TOKEN", help="What the network lets you in by."),
]
_TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", envvar="MEETPOINT_TOKEN_FILE", help="A file that holds the token."),
]


class Reach(NamedTuple):
    """What a command was told of the network."""

    url: str = DEFAULT_URL
    ca: Path | None = None
    token: str = ""
    token_file: Path | None = None

    def dialler(self) -> Dialer:
        """Makes single connections."""
        from meetpoint.client.dialer import Dialer

        return Dialer(self.url, token=self._give_token, ca=self.ca)

    def connect(self, client: str = "") -> Connecting:
        """A client of the network."""
        from meetpoint.client import connect

        return connect(self.url, client, token=self._give_token, ca=self.ca)

    def _give_token(self) -> str:
        """The token; a file is read for each connection, so that it may be renewed while a command runs."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text(encoding="ascii").strip()
        except OSError as error:
            reason = (error.strerror or "").lower()
            raise MeetpointError(f"--token-file {self.token_file}: {reason}; give the path of a file") from None
        except UnicodeDecodeError:
            raise MeetpointError(
                f"--token-file {self.token_file}: holds no token; see: meetpoint token issue"
            ) from None


HERE = Reach()
"""A network on this machine."""


def reaching(where: Any = At, default: Any = DEFAULT_URL) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command that has a parameter `at: Reach` the options for it; `where` is the one that says the url."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        said = inspect.signature(command, eval_str=True)

        @functools.wraps(command)
        def run(**given: Any) -> None:
            reach = Reach(*(given.pop(name) for name in Reach._fields))
            if reach.token and reach.token_file is not None:
                raise typer.BadParameter(
                    "there is --token-file too (or MEETPOINT_TOKEN_FILE); give one of them.", param_hint="--token"
                )
            command(**given, at=reach)

        options = (("url", where, default), ("ca", _Ca, None), ("token", _Token, ""), ("token_file", _TokenFile, None))
        new = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=kind)
            for name, kind, value in options
        ]
        kept = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in said.parameters.values()]
        place = [each.name for each in kept].index("at")
        run.__signature__ = said.replace(parameters=[*kept[:place], *new, *kept[place + 1 :]])  # type: ignore[attr-defined]
        return run

    return decorate
