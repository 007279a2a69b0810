"""`meetpoint up`: a network of brokers on this machine, a process each, supervised until Ctrl-C."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from meetpoint.cli.network.broker_process import HOST, BrokerProcess, check_ports
from meetpoint.cli.network.network_folder import NOTES, NetworkKeys, read_notes, write_notes, write_settings
from meetpoint.cli.network.supervisor import BROKERS_MAX, DATA, GATEWAY, PORT, Supervisor
from meetpoint.errors import SetupError, need_extra

if TYPE_CHECKING:
    from meetpoint.cli.flights import FlightData

__all__ = ["up"]

HTTP_ABOVE = 1000
"""The distance of the dashboard's port above the first broker's."""
PORT_MAX = 65_535
RATE = 20.0


def up(
    brokers: Annotated[
        int | None, typer.Option("--brokers", min=1, max=BROKERS_MAX, help="How many.", show_default="8, or as before")
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            "--scheme",
            metavar="NAME[:OPTION…]",
            help="How events find subscriptions.",
            show_default="meet, or as before",
        ),
    ] = None,
    overlay: Annotated[
        str | None,
        typer.Option(
            "--overlay", metavar="NAME", help="How brokers find each other.", show_default="chord, or as before"
        ),
    ] = None,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Where they keep what must survive.")] = DATA,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65_000, help="Of the first broker; the others have the next ones.")
    ] = PORT,
    secure: Annotated[
        Path | None,
        typer.Option(
            "--secure",
            metavar="DIR",
            help="With TLS and tokens: keys are made here, or taken from here.",
            show_default="no, or as before",
        ),
    ] = None,
    archive: Annotated[
        bool, typer.Option("--archive", help="Keep all that is published, for backtests and replays; from now on.")
    ] = False,
    http: Annotated[
        int | None,
        typer.Option("--http", min=1, max=65_535, help="Port of the dashboard and the API.", show_default="8400"),
    ] = None,
    no_http: Annotated[bool, typer.Option("--no-http", help="Without dashboard and API.")] = False,
    report: Annotated[
        Path,
        typer.Option("--report", metavar="DIR", help="The experiment report, if there is one: the dashboard shows it."),
    ] = Path("report"),
    flights: Annotated[
        bool, typer.Option("--flights", help="Publish real flights, and subscribe to alerts for them (with --archive).")
    ] = False,
    rate: Annotated[float, typer.Option("--rate", min=0.1, max=1000, help="Flights per second.")] = RATE,
) -> None:
    """Run a network of brokers on this machine, until Ctrl-C; the same command takes it up again.

    The dashboard shows it at work: how an event goes, what it meets, and how the network heals when a broker is killed.
    """
    need_extra("broker")
    if http is not None and no_http:
        raise typer.BadParameter("there is --no-http too; give one of them.", param_hint="--http")
    notes = read_notes(data, brokers, scheme, overlay)
    if secure is not None:
        notes = msgspec.structs.replace(notes, secure=str(secure.absolute()))
    if archive or flights:
        notes = msgspec.structs.replace(notes, archive=True)
    processes = [
        BrokerProcess(number, place, len(notes.brokers), data, port) for place, number in enumerate(notes.brokers)
    ]
    check_ports(processes)
    _check_folders(processes)
    http_port = None if no_http else _free_http(http, port)
    flight_data = _choose_flights() if flights else None
    if notes.secure:
        NetworkKeys(Path(notes.secure)).make([*(process.name for process in processes), GATEWAY])
    is_new = not (data / NOTES).exists()
    write_notes(data, notes)
    if flight_data is not None and is_new:
        write_settings(data)
    asyncio.run(Supervisor(processes, notes, data, port, http_port, report, flight_data, rate).run())


# -- the folder --------------------------------------------------------------------------------------------------------


def _free_http(given: int | None, port: int) -> int:
    """Return a free port for the dashboard: as given, else the usual one, else any."""
    wanted = given or (port + HTTP_ABOVE if port + HTTP_ABOVE <= PORT_MAX else 0)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            if given is not None:
                raise SetupError(
                    f"port {given} on {HOST}: {(error.strerror or '').lower()}; give another --http, or --no-http"
                ) from None
            probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _choose_flights() -> FlightData:
    from meetpoint.cli.flights import choose_flights
    from meetpoint.cli.output.streams import progress

    with progress("reading flights", 1) as step:
        flight_data = choose_flights()
        step(1)
    return flight_data


def _check_folders(processes: list[BrokerProcess]) -> None:
    from meetpoint.broker.storage.folder import is_in_use

    for process in processes:
        if is_in_use(process.folder):
            raise SetupError(f"{process.folder}: a broker runs with it; stop that one, or give --data another folder")


# -- all of them -------------------------------------------------------------------------------------------------------
