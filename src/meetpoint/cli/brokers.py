"""`meetpoint broker` and `meetpoint leave`: one broker that runs, and one that goes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from meetpoint.cli.asking import answered, run

__all__ = ["broker", "leave"]

LEAVE_S = 120.0
"""How long a broker may take to hand everything over."""


def broker(
    join: Annotated[
        list[str] | None,
        typer.Option("--join", metavar="HOST:PORT", help="A broker of the network to join; repeatable."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Where it listens.", show_default="127.0.0.1:7400"),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option("--advertise", metavar="HOST:PORT", help="The address that others are told.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where it keeps what must survive; else in memory.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="A TOML file; options count more than it does.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Its name for as long as its data lives.", show_default="its address")
    ] = None,
    network: Annotated[
        str | None, typer.Option("--network", help="The network's name.", show_default="meetpoint")
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option("--scheme", metavar="NAME[:OPTION…]", help="How events find subscriptions.", show_default="meet"),
    ] = None,
    overlay: Annotated[
        str | None,
        typer.Option("--overlay", metavar="NAME", help="How brokers find each other.", show_default="chord"),
    ] = None,
    admin: Annotated[
        str | None,
        typer.Option(
            "--admin",
            metavar="HOST:PORT",
            help="Where /healthz, /readyz and /metrics are; none: nowhere.",
            show_default="127.0.0.1:7480",
        ),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Attributes that the network's schema shall have.")
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.", show_default="info"),
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="FORMAT", help="text or json.", show_default="text")
    ] = None,
    attached: Annotated[
        bool, typer.Option("--attached", hidden=True, help="Stop when standard input is closed.")
    ] = False,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM, which drain it: it answers what it was asked, and stops.

    Without --join, and without data of an earlier run, it begins a network of its own. Every key of the file is in
    docs/configuration.md.
    """
    from meetpoint.net import make_config, read_config, run_broker

    said: dict[str, Any] = {
        "join": join or None,
        "listen": listen,
        "advertise": advertise,
        "data": None if data is None else str(data),
        "name": name,
        "network": network,
        "scheme": scheme,
        "overlay": overlay,
        "admin": admin,
        "schema": None if schema is None else str(schema),
    }
    said = {key: value for key, value in said.items() if value is not None}
    log = {key: value for key, value in (("level", log_level), ("format", log_format)) if value is not None}
    if config is None:
        made = make_config({**said, **({"log": log} if log else {})})
    else:
        made = read_config(config, **said, **({"log": {**_log_of(config), **log}} if log else {}))
    if attached:
        threading.Thread(target=_stop_with_input, name="attached", daemon=True).start()
    if made.data is None and sys.stderr.isatty():
        sys.stderr.write("without --data what it keeps is gone when it stops\n")
    code = run_broker(made)
    if code:
        raise typer.Exit(code)


def _log_of(config: Path) -> dict[str, Any]:
    """The table `log` of a file, so that an option for one of its keys leaves the other as it is."""
    import tomllib

    try:
        found = tomllib.loads(config.read_text(encoding="utf-8")).get("log", {})
    except (OSError, ValueError):
        return {}  # which is told when the file is read as a whole
    return found if isinstance(found, dict) else {}


def _stop_with_input() -> None:
    """Drain when whoever started this process is gone."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def leave(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The broker that shall go.")],
) -> None:
    """Have a broker hand everything over to the others, and stop: nothing is lost, and its data is not needed again."""
    run(_leave(address))
    sys.stdout.write(f"{address} has handed everything over, and stops\n")


async def _leave(address: str) -> None:
    import asyncio

    from meetpoint.client.address import read_url
    from meetpoint.client.errors import LinkLostError, NetworkError
    from meetpoint.client.link import dial
    from meetpoint.protocol.effects import Stored
    from meetpoint.protocol.inputs import Leave
    from meetpoint.wire.handshake import SPOKEN, Hello

    addresses = read_url(address)
    if len(addresses) > 1:
        raise NetworkError(f"{address}: these are {len(addresses)} brokers; name the one that shall go")
    link = await dial(addresses[0], Hello(SPOKEN, ""))
    try:
        async with asyncio.timeout(LEAVE_S):
            await answered(link, Leave(), Stored)
    except LinkLostError:
        raise NetworkError(
            f"broker {address} closed the connection before it said that it has left; see its log, and: meetpoint top"
        ) from None
    except TimeoutError:
        raise NetworkError(
            f"broker {address} has not left within {LEAVE_S:g} s, and goes on trying; see its log, and: meetpoint top"
        ) from None
    finally:
        await link.close()
