"""`meetpoint gateway`: HTTP and the dashboard for a network that runs elsewhere. `meetpoint up` has one of its own."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from meetpoint.cli.network.connect import HERE, Reach, reaching
from meetpoint.cli.network.queries import run
from meetpoint.cli.options import Insecure, RevokedTokens, TokenKeys
from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from meetpoint.gateway import GatewaySettings

__all__ = ["gateway", "page_address"]


class SinkConsent(StrEnum):
    """What sinks of webhooks are asked."""

    REQUIRE = "require"
    ASK = "ask"
    OFF = "off"


@reaching()
def gateway(
    at: Reach = HERE,
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
    said = {
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
    files: dict[str, Any] = {name: str(value) for name, value in said.items() if value is not None}
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

    async with run_gateway(settings) as served:
        async with served.gateway.connections.own() as lease:  # a network that is not there is said at once
            if lease.net.broker is None:
                raise MeetpointError(f"{settings.at}: no broker is connected; try again")
        sys.stdout.write(f"dashboard and API: {page_address(served.url)}\nCtrl-C stops it.\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def page_address(url: str) -> str:
    """Where the page is, by a name that browsers and certificates know."""
    return url.replace("://127.0.0.1:", "://localhost:") + "/"
