"""`meetpoint up`: a network of brokers on this machine, a process each, looked after until Ctrl-C.

A broker that dies is told and started again; one that has left the network is not, nor is one that was killed from the
dashboard, until somebody starts it there. The folder of the network remembers how many there are, of which overlay and
scheme, since a broker that is left out has data that the others wait for. The gateway runs in this process.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from meetpoint.cli.network.children import HOST, Child, ending
from meetpoint.cli.network.connect import Reach
from meetpoint.cli.network.nodes import Nodes
from meetpoint.cli.network.securing import Keys
from meetpoint.cli.output.streams import complain, tell
from meetpoint.errors import MeetpointError, SetupError

if TYPE_CHECKING:
    from meetpoint.cli.network.flight_feed import Drawn

__all__ = ["up"]

PORT = 7400
HTTP_ABOVE = 1000
"""Where the dashboard is: so many ports above the first broker's."""
PORT_MAX = 65_535
GATEWAY = "gateway"
ARCHIVE = "archive"
RATE = 20.0
FEEDS_MAX = 8
"""At so many brokers flights are published and alerts hosted."""
DATA = Path("meetpoint-data")
BROKERS, OVERLAY, SCHEME = 8, "chord", "meet"
BROKERS_MAX = 100
READY_S = 120.0
"""Within this all of them serve, or something is wrong."""
POLL_S = 0.1
STOP_S = 20.0
STEADY_S = 30.0
"""A broker that lived so long is started again at once when it dies; else it is waited longer each time."""
PAUSE_MAX_S = 30.0
NOTES = "network.json"
SETTINGS_FILE = "brokers.toml"
"""Where there is one in the folder of the network, it is every broker's --config."""


class _Notes(msgspec.Struct, forbid_unknown_fields=True):
    """What the folder of a network remembers."""

    scheme: str
    brokers: list[int]
    overlay: str = OVERLAY
    secure: str = ""
    """The folder of its keys, where it has TLS and tokens."""
    archive: bool = False
    """Whether brokers archive what they accept."""


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
    if http is not None and no_http:
        raise typer.BadParameter("there is --no-http too; give one of them.", param_hint="--http")
    notes = _read_notes(data, brokers, scheme, overlay)
    if secure is not None:
        notes = msgspec.structs.replace(notes, secure=str(secure.absolute()))
    if archive or flights:
        notes = msgspec.structs.replace(notes, archive=True)
    children = [Child(number, place, len(notes.brokers), data, port) for place, number in enumerate(notes.brokers)]
    _check_ports(children)
    _check_unused(children)
    http_port = None if no_http else _free_http(http, port)
    drawn = _draw_flights() if flights else None
    if notes.secure:
        Keys(Path(notes.secure)).make([*(child.name for child in children), GATEWAY])
    is_new = not (data / NOTES).exists()
    _write_notes(data, notes)
    if drawn is not None and is_new:
        _write_settings(data)
    asyncio.run(_Network(children, notes, data, port, http_port, report, drawn, rate).run())


# -- the folder --------------------------------------------------------------------------------------------------------


def _read_notes(data: Path, brokers: int | None, scheme: str | None, overlay: str | None) -> _Notes:
    from meetpoint.catalog.catalog import network_config

    file = data / NOTES
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        if data.is_dir() and any(data.iterdir()):
            raise SetupError(f"{data}: holds other things; give --data an empty folder, or a new one") from None
        network_config(overlay or OVERLAY, scheme or SCHEME)
        return _Notes(scheme or SCHEME, list(range(1, (brokers or BROKERS) + 1)), overlay or OVERLAY)
    except OSError as error:
        raise SetupError(f"{file}: {(error.strerror or '').lower()}; give --data a folder you may write to") from None
    try:
        found = msgspec.json.decode(text, type=_Notes)
    except msgspec.DecodeError as error:
        raise SetupError(f"{file}: cannot be read ({error}); restore it, or give --data another folder") from None
    for what, said, held in (("scheme", scheme, found.scheme), ("overlay", overlay, found.overlay)):
        if said is not None and said != held:
            raise SetupError(f"{data}: holds a network of {what} {held}, not {said}; give --data another folder")
    if brokers is not None and brokers < len(found.brokers):
        raise SetupError(
            f"{data}: holds {len(found.brokers)} brokers, and what each has is needed; "
            "leave --brokers out, and have some leave with: meetpoint leave HOST:PORT"
        )
    last = max(found.brokers, default=0)
    more = 0 if brokers is None else brokers - len(found.brokers)
    return msgspec.structs.replace(found, brokers=found.brokers + list(range(last + 1, last + more + 1)))


def _write_notes(data: Path, notes: _Notes) -> None:
    part = data / f"{NOTES}.part"
    try:
        data.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(notes))
        os.replace(part, data / NOTES)
    except OSError as error:
        raise SetupError(f"{data}: {(error.strerror or '').lower()}; give --data a folder you may write to") from None


def _write_settings(data: Path) -> None:
    """What all brokers of a network of flights have in common, beside the options."""
    from meetpoint.cli.network.flight_feed import SETTINGS

    (data / SETTINGS_FILE).write_text(SETTINGS, encoding="utf-8")


def _check_ports(children: list[Child]) -> None:
    """Say at once which port is taken, rather than let a broker find out."""
    for child in children:
        for port in (child.port, child.admin_port):
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    raise SetupError(
                        f"port {port} on {HOST}: {(error.strerror or '').lower()}; stop what uses it (is a network up "
                        "already?), or give another --port"
                    ) from None


def _free_http(said: int | None, port: int) -> int:
    """The port of the dashboard: what was said, or as far above the brokers' as it usually is; if need be another."""
    wanted = said or (port + HTTP_ABOVE if port + HTTP_ABOVE <= PORT_MAX else 0)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted))
        except OSError as error:
            if said is not None:
                raise SetupError(
                    f"port {said} on {HOST}: {(error.strerror or '').lower()}; give another --http, or --no-http"
                ) from None
            probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _draw_flights() -> Drawn:
    from meetpoint.cli.network.flight_feed import draw_flights
    from meetpoint.cli.output.progress import progress

    with progress("reading flights", 1) as step:
        drawn = draw_flights()
        step(1)
    return drawn


def _check_unused(children: list[Child]) -> None:
    from meetpoint.broker.storage.folder import is_in_use

    for child in children:
        if is_in_use(child.folder):
            raise SetupError(f"{child.folder}: a broker runs with it; stop that one, or give --data another folder")


# -- all of them -------------------------------------------------------------------------------------------------------


class _Network:
    """The brokers, from their start to their end."""

    def __init__(
        self,
        children: list[Child],
        notes: _Notes,
        data: Path,
        port: int,
        http_port: int | None,
        report: Path,
        drawn: Drawn | None,
        rate: float,
    ) -> None:
        self._children = children
        self._http_port = http_port
        self._report = report
        self._drawn = drawn
        self._rate = rate
        self._watched: dict[asyncio.Task[None], Child] = {}
        self._has_joined = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self._notes = notes
        self._keys = Keys(Path(notes.secure)) if notes.secure else None
        self._data = data
        self._port = port
        self._stopping = asyncio.Event()
        self._signals = 0

    async def run(self) -> None:
        """Start them, tell how to use them, look after them, stop them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._asked_to_stop)
        try:
            await self._start_all()
            if not self._stopping.is_set():
                await self._wait_ready()
            if not self._stopping.is_set():
                async with AsyncExitStack() as stack:
                    page = await self._open_gateway(stack)
                    await self._open_feed(stack)
                    self._say_what_next(page)
                    await self._look_after()
        finally:
            await self._stop_all()
        if self._children:
            tell(f"stopped; to take it up again: {self._command()}")

    async def _open_gateway(self, stack: AsyncExitStack) -> str:
        """Serve HTTP in this process; returns where its page is."""
        if self._http_port is None:
            return ""
        from meetpoint.cli.gateway import page_address
        from meetpoint.gateway import GatewaySettings, run_gateway
        from meetpoint.gateway.app import default_route_groups

        said: dict[str, Any] = {} if self._keys is None else {**self._keys.gateway(GATEWAY)}
        settings = GatewaySettings(
            at=self._url(self._children), listen=f"{HOST}:{self._http_port}", data=str(self._data / GATEWAY),
            report=str(self._report), private_sinks=True, **said,
        )  # fmt: skip
        served = await stack.enter_async_context(run_gateway(settings, default_route_groups(settings, Nodes(self))))
        return page_address(served.url)

    async def _open_feed(self, stack: AsyncExitStack) -> None:
        if self._drawn is not None:
            from meetpoint.cli.network.flight_feed import feeding

            reaches = [self.reach([child, *self._others(child)]) for child in self._children[:FEEDS_MAX]]
            await stack.enter_async_context(feeding(self._drawn, reaches, self._rate))

    def _url(self, children: list[Child]) -> str:
        scheme = "mp" if self._keys is None else "mps"
        return f"{scheme}://{','.join(child.address for child in children)}"

    def _others(self, child: Child) -> list[Child]:
        return [other for other in self._children if other is not child]

    def reach(self, children: list[Child]) -> Reach:
        """How a client gets to some of them, the first before the others."""
        url = self._url(children)
        return Reach(url) if self._keys is None else Reach(url, self._keys.ca, "", self._keys.token)

    def _command(self) -> str:
        data = "" if self._data == DATA else f" --data {shlex.quote(str(self._data))}"
        return f"meetpoint up{data}{'' if self._port == PORT else f' --port {self._port}'}"

    def _asked_to_stop(self) -> None:
        self._signals += 1
        if self._signals == 1:
            tell("\nstopping; once more for at once")
            self._stopping.set()
            return
        for child in self._children:
            child.signal(signal.SIGTERM if self._signals == 2 else signal.SIGKILL)

    def _join_of(self, child: Child) -> list[str]:
        return [other.address for other in self._others(child)]

    async def _start_all(self) -> None:
        new = not any((child.folder / "store.db").exists() for child in self._children)
        for child in self._children:
            founds = new and child is self._children[0]
            await self._start(child, [] if founds else self._join_of(child))

    async def _start(self, child: Child, join: list[str]) -> None:
        options = ["--scheme", self._notes.scheme, "--overlay", self._notes.overlay]
        if (self._data / SETTINGS_FILE).exists():
            options += ["--config", str(self._data / SETTINGS_FILE)]
        if self._notes.archive:
            options += ["--archive", str(self._data / ARCHIVE)]
        if self._keys is not None:
            options += self._keys.options(child.name)
        await child.start(options, join)

    async def _wait_ready(self) -> None:
        from meetpoint.cli.output.progress import progress

        waiting = dict.fromkeys(self._children, "it is starting")
        until = time.monotonic() + READY_S
        what = f"starting {len(waiting)} brokers" if len(waiting) > 1 else "starting a broker"
        with progress(what, len(waiting)) as step:
            while waiting and not self._stopping.is_set():
                for child in list(waiting):
                    assert child.process is not None
                    if child.process.returncode is not None:
                        raise MeetpointError(
                            f"{child.name} {ending(child.process.returncode)}: {child.last_words()} "
                            f"(all of it is in {child.log})"
                        )
                    waiting[child] = await child.readiness()
                    if not waiting[child]:
                        del waiting[child]
                        step(1)
                if time.monotonic() > until:
                    child, why = next(iter(waiting.items()))
                    raise MeetpointError(
                        f"{len(waiting)} brokers do not serve after {READY_S:g} s; "
                        f"{child.name}: {why} (see {child.log})"
                    )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), POLL_S)

    def _say_what_next(self, page: str) -> None:
        scheme = "mp" if self._keys is None else "mps"
        count, at = len(self._children), "" if self._port == PORT else f" --at mp://localhost:{self._port}"
        brokers = "1 broker is ready" if count == 1 else f"{count} brokers are ready"
        told = f"scheme {self._notes.scheme}"
        told += "" if self._notes.overlay == OVERLAY else f" on {self._notes.overlay}"
        lines = [f"{brokers}, {told}; data and logs are in {self._data}", ""]
        lines += [
            f"  {child.name:<10}  {scheme}://{child.address}   http://{HOST}:{child.admin_port}/metrics"
            for child in self._children
        ]
        if count == 2:
            lines += ["", "Two bear no loss: while one is down, the other acknowledges nothing. Take one, or three."]
        if page:
            lines += ["", f"Dashboard and API:  {page}"]
            if self._keys is not None:
                lines += [f"  its authority: {self._keys.ca}", f"  a token to sign in with: {self._keys.token}"]
        if self._drawn is not None:
            lines += ["", f"{self._rate:g} flights a second meet {len(self._drawn.alerts)} alerts."]
        lines += ["", "In another terminal:", ""]
        if self._keys is not None:
            at = ""
            lines += [
                f"  export MEETPOINT_AT=mps://localhost:{self._port}",
                f"  export MEETPOINT_CA={shlex.quote(str(self._keys.ca))}",
                f"  export MEETPOINT_TOKEN_FILE={shlex.quote(str(self._keys.token))}",
            ]
        lines += [
            f'  meetpoint sub "price > 120" --durable alerts{at}',
            f'  meetpoint pub \'{{"symbol": "OTE", "price": 121.5}}\'{at}',
            f"  meetpoint top{at}",
            "",
            "Ctrl-C stops them; what was acknowledged is kept.",
        ]
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()

    async def _look_after(self) -> None:
        """Until all have left, or somebody wants them to stop."""
        loop = asyncio.get_running_loop()
        stop = loop.create_task(self._stopping.wait())
        for child in self._children:
            self._watch(child)
        try:
            while self._watched and not self._stopping.is_set():
                joined = loop.create_task(self._has_joined.wait())
                done, _ = await asyncio.wait({stop, joined, *self._watched}, return_when=asyncio.FIRST_COMPLETED)
                joined.cancel()
                self._has_joined.clear()
                for task in [task for task in self._watched if task in done]:
                    child = self._watched.pop(task)
                    task.result()
                    self._forget(child)
        finally:
            tasks: list[asyncio.Task[Any]] = [stop, *self._watched, *self._leaving]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _watch(self, child: Child) -> None:
        self._watched[asyncio.get_running_loop().create_task(self._live(child))] = child

    def _forget(self, child: Child) -> None:
        """It has left."""
        self._children.remove(child)
        self._notes.brokers.remove(child.number)
        _write_notes(self._data, self._notes)
        complain(f"{child.name} has left the network; {child.folder} is not needed any more")

    async def _live(self, child: Child) -> None:
        """Start a broker again whenever it dies; returns when it has left."""
        while True:
            assert child.process is not None
            code = await child.process.wait()
            if code == 0 and child.has_left:
                return
            if not child.is_wanted:
                complain(f"{child.name} {ending(code)}, as was asked for; it stays down until it is started")
                await child.wait_wanted()
                complain(f"{child.name} is started again, as was asked for")
                await self._start(child, self._join_of(child))
                continue
            if time.monotonic() - child.since > STEADY_S:
                child.deaths = 0
            pause = min(2.0 ** (child.deaths - 1), PAUSE_MAX_S) if child.deaths else 0.0
            child.deaths += 1
            said = "" if code <= 0 else f": {child.last_words()}"
            again = f"in {pause:g} s" if pause else "now"
            complain(f"{child.name} {ending(code)}{said}; it is started again {again}")
            await asyncio.sleep(pause)
            await self._start(child, self._join_of(child))

    # -- what the dashboard asks for -----------------------------------------------------------------------------------

    @property
    def children(self) -> list[Child]:
        """All brokers, also those that are down."""
        return list(self._children)

    async def add(self) -> Child:
        """Start one more broker; SetupError where that cannot be."""
        if len(self._children) >= BROKERS_MAX:
            raise SetupError(f"there are {BROKERS_MAX} brokers; that is all that one machine runs")
        number = 1 + max([0, *self._notes.brokers])
        place = 1 + max((child.place for child in self._children), default=-1)
        child = Child(number, place, len(self._children) + 1, self._data, self._port)
        _check_ports([child])
        if self._keys is not None:
            self._keys.make([child.name])
        self._notes.brokers.append(number)
        _write_notes(self._data, self._notes)
        self._children.append(child)
        await self._start(child, self._join_of(child))
        self._watch(child)
        self._has_joined.set()
        return child

    def let_leave(self, child: Child) -> None:
        """Ask a broker to hand everything over; what comes of it is said."""
        child.is_leaving = True
        task = asyncio.get_running_loop().create_task(self._let_leave(child))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _let_leave(self, child: Child) -> None:
        from meetpoint.cli.network.brokers import leave_network

        try:
            await leave_network(self.reach([child]))
        except MeetpointError as error:
            child.is_leaving = False
            complain(f"{child.name} has not left: {error}")

    # -- ending --------------------------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        running = [child for child in self._children if child.process is not None]
        for child in running:
            child.signal(signal.SIGTERM)
        ends = [child.process.wait() for child in running if child.process is not None]
        if not ends:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*ends)
        except TimeoutError:
            for child in running:
                child.signal(signal.SIGKILL)
            complain(f"not all had stopped after {STOP_S:g} s; those were killed")
        for child in running:
            if child.process is not None and child.process.stdin is not None:
                child.process.stdin.close()
