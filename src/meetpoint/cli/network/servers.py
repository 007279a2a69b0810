"""`meetpoint broker`, `meetpoint leave` and `meetpoint gateway`: processes that serve a network.

The gateway serves HTTP and the dashboard for a network that runs elsewhere; `meetpoint up` has one of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.network.connect import LOCAL_NETWORK, ConnectOptions, request, run, with_connect_options
from meetpoint.cli.options import Insecure, RevokedTokens, TokenKeys
from meetpoint.errors import MeetpointError, need_extra

if TYPE_CHECKING:
    from meetpoint.gateway import GatewaySettings


__all__ = ["broker", "gateway", "leave", "leave_network", "page_address"]


# -- brokers -----------------------------------------------------------------------------------------------------------


LEAVE_S = 120.0
"""The time for a broker to hand everything over."""


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
    archive: Annotated[
        Path | None,
        typer.Option("--archive", metavar="DIR", help="Where all that it accepts is kept for good, as Parquet."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="Attributes that the network's schema shall have.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="Its certificate: then all connections are TLS."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The private key of its certificate.")
    ] = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="The certificate of the network's authority.")
    ] = None,
    revoked: Annotated[
        Path | None, typer.Option("--revoked", metavar="FILE", help="The authority's list of revoked certificates.")
    ] = None,
    token_keys: TokenKeys = None,
    revoked_tokens: RevokedTokens = None,
    insecure: Insecure = False,
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
    need_extra("broker")
    from meetpoint.broker import make_config, read_config, run_broker

    given: dict[str, Any] = {
        "join": join or None,
        "listen": listen,
        "advertise": advertise,
        "data": _text(data),
        "name": name,
        "network": network,
        "scheme": scheme,
        "overlay": overlay,
        "admin": admin,
        "schema": _text(schema),
        "insecure": insecure or None,
        "archive": {"folder": _text(archive)},
        "log": {"level": log_level, "format": log_format},
        "tls": {"certificate": _text(certificate), "key": _text(key), "ca": _text(ca), "revoked": _text(revoked)},
        "access": {"keys": _text(token_keys), "revoked": _text(revoked_tokens)},
    }
    given = _without_nothing(given)
    settings = make_config(given) if config is None else read_config(config, **given)
    if attached:
        threading.Thread(target=_stop_with_input, name="attached", daemon=True).start()
    if settings.data is None and sys.stderr.isatty():
        sys.stderr.write("without --data what it keeps is gone when it stops\n")
    code = run_broker(settings)
    if code:
        raise typer.Exit(code)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _without_nothing(given: dict[str, Any]) -> dict[str, Any]:
    """Return settings without those that were not given."""
    found = {key: _without_nothing(value) if isinstance(value, dict) else value for key, value in given.items()}
    return {key: value for key, value in found.items() if value not in (None, {})}


def _stop_with_input() -> None:
    """Drain when the program that started this one is gone."""
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


_Gone = Annotated[str, typer.Argument(metavar="HOST:PORT", help="The broker that shall go; with TLS mps://HOST:PORT.")]


@with_connect_options(_Gone, ...)
def leave(at: ConnectOptions = LOCAL_NETWORK) -> None:
    """Have a broker hand everything over to the others, and stop: nothing is lost, and its data is not needed again."""
    run(leave_network(at))
    sys.stdout.write(f"{at.url} has handed everything over, and stops\n")


async def leave_network(at: ConnectOptions) -> None:
    """Make a broker leave; raise NetworkError where it does not."""
    import asyncio

    from meetpoint.api.outcomes import Stored
    from meetpoint.api.requests import Leave
    from meetpoint.client.errors import ConnectionLostError, NetworkError

    dialer, address = at.dialer(), at.url
    addresses = dialer.url.addresses
    if len(addresses) > 1:
        raise NetworkError(f"{address}: these are {len(addresses)} brokers; name the one that shall go")
    connection = await dialer.dial(addresses[0])
    try:
        async with asyncio.timeout(LEAVE_S):
            await request(connection, Leave(), Stored)
    except ConnectionLostError:
        raise NetworkError(
            f"broker {address} closed the connection before it said that it has left; see its log, and: meetpoint top"
        ) from None
    except TimeoutError:
        raise NetworkError(
            f"broker {address} has not left within {LEAVE_S:g} s, and goes on trying; see its log, and: meetpoint top"
        ) from None
    finally:
        await connection.close()


# -- the gateway -------------------------------------------------------------------------------------------------------


class SinkConsent(StrEnum):
    """The policy for sinks of webhooks."""

    REQUIRE = "require"
    ASK = "ask"
    OFF = "off"


@with_connect_options()
def gateway(
    at: ConnectOptions = LOCAL_NETWORK,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where HTTP is served.")
    ] = "127.0.0.1:8400",
    network: Annotated[str, typer.Option("--network", help="The name that the network must have.")] = "meetpoint",
    certificate: Annotated[
        Path | None, typer.Option("--certificate", metavar="FILE", help="Its certificate: then it serves HTTPS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The private key of its certificate.")
    ] = None,
    token_keys: TokenKeys = None,
    revoked_tokens: RevokedTokens = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where subscriptions with webhooks are kept.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", metavar="NAME", help="A name that browsers know it by; repeatable.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option("--origin", metavar="URL", help="Another site whose pages may use it; repeatable."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="The experiment report, shown under /report/.")
    ] = None,
    private_sinks: Annotated[
        bool, typer.Option("--private-sinks", help="Let webhooks go to this machine and to private networks.")
    ] = False,
    sink_consent: Annotated[
        SinkConsent,
        typer.Option(
            "--sink-consent", help="Whether sinks of webhooks must agree to get events, are asked, or are not."
        ),
    ] = SinkConsent.ASK,
    sink_origin: Annotated[
        str | None,
        typer.Option("--sink-origin", metavar="NAME", help="The name by which sinks are asked; else --host."),
    ] = None,
    insecure: Insecure = False,
) -> None:
    """Serve HTTP and the dashboard for a network of brokers, until Ctrl-C.

    Its own token (--token-file) lets it look at the network; whoever uses it shows a token of their own.
    """
    from meetpoint.gateway import GatewaySettings

    if at.token:
        raise typer.BadParameter("a gateway reads its token from a file: give --token-file.", param_hint="--token")
    given = {
        "at": at.url,
        "ca": at.ca,
        "token_file": at.token_file,
        "certificate": certificate,
        "key": key,
        "token_keys": token_keys,
        "token_revoked": revoked_tokens,
        "data": data,
        "report": report,
    }
    files: dict[str, Any] = {name: str(value) for name, value in given.items() if value is not None}
    settings = GatewaySettings(
        listen=listen, network=network, hosts=tuple(host or ()), origins=tuple(origin or ()),
        private_sinks=private_sinks, sink_consent=sink_consent.value, sink_origin=sink_origin, insecure=insecure,
        **files,
    )  # fmt: skip
    try:
        run(_serve(settings))
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")


async def _serve(settings: GatewaySettings) -> None:
    import asyncio

    from meetpoint.gateway import run_gateway

    async with run_gateway(settings) as server:
        async with server.gateway.connections.own() as lease:  # a network that is not there is said at once
            if lease.net.broker is None:
                raise MeetpointError(f"{settings.at}: no broker is connected; try again")
        sys.stdout.write(f"dashboard and API: {page_address(server.url)}\nCtrl-C stops it.\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def page_address(url: str) -> str:
    """Return the dashboard's address, by a name that browsers and certificates know."""
    return url.replace("://127.0.0.1:", "://localhost:") + "/"
