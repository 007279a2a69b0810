"""The supervisor of `meetpoint up`: it starts brokers, restarts those that die, and stops them.

A broker that dies is reported and started again; one that has left the network is not, nor is one that was killed from
the dashboard, until it is started there. The gateway runs in this process.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import sys
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from meetpoint.cli.network.broker_process import HOST, BrokerProcess, check_ports, exit_text
from meetpoint.cli.network.connect import ConnectOptions
from meetpoint.cli.network.network_folder import OVERLAY, SETTINGS_FILE, NetworkKeys, NetworkNotes, write_notes
from meetpoint.cli.output.streams import print_error, print_note
from meetpoint.errors import MeetpointError, SetupError

if TYPE_CHECKING:
    from meetpoint.cli.flights import FlightData
    from meetpoint.gateway.dashboard import LocalBroker


__all__ = ["LocalBrokerControl", "Supervisor"]


PORT = 7400
GATEWAY = "gateway"
ARCHIVE = "archive"
FEEDS_MAX = 8
"""The most brokers at which flights are published and alerts hosted."""
DATA = Path("meetpoint-data")
BROKERS_MAX = 100
READY_S = 120.0
"""The time for all brokers to serve."""
POLL_S = 0.1
STOP_S = 20.0
STEADY_S = 30.0
"""A broker that ran so long is restarted at once when it dies; else the pause doubles each time."""
PAUSE_MAX_S = 30.0


class Supervisor:
    """All brokers of the network, from start to stop."""

    def __init__(
        self,
        processes: list[BrokerProcess],
        notes: NetworkNotes,
        data: Path,
        port: int,
        http_port: int | None,
        report: Path,
        flights: FlightData | None,
        rate: float,
    ) -> None:
        self._processes = processes
        self._http_port = http_port
        self._report = report
        self._flights = flights
        self._rate = rate
        self._watchers: dict[asyncio.Task[None], BrokerProcess] = {}
        self._has_joined = asyncio.Event()
        self._leaving: set[asyncio.Task[None]] = set()
        self._notes = notes
        self._keys = NetworkKeys(Path(notes.secure)) if notes.secure else None
        self._data = data
        self._port = port
        self._stopping = asyncio.Event()
        self._signals = 0

    async def run(self) -> None:
        """Start all brokers, print how to use them, supervise them, and stop them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal)
        try:
            await self._start_all()
            if not self._stopping.is_set():
                await self._wait_ready()
            if not self._stopping.is_set():
                async with AsyncExitStack() as stack:
                    page = await self._open_gateway(stack)
                    await self._start_flights(stack)
                    self._print_instructions(page)
                    await self._supervise()
        finally:
            await self._stop_all()
        if self._processes:
            print_note(f"stopped; to take it up again: {self._command()}")

    async def _open_gateway(self, stack: AsyncExitStack) -> str:
        """Serve HTTP in this process; return the address of the dashboard."""
        if self._http_port is None:
            return ""
        from meetpoint.cli.network.servers import page_address
        from meetpoint.gateway import GatewaySettings, run_gateway
        from meetpoint.gateway.app import default_route_groups

        extra: dict[str, Any] = {} if self._keys is None else {**self._keys.gateway(GATEWAY)}
        settings = GatewaySettings(
            at=self._url(self._processes), listen=f"{HOST}:{self._http_port}", data=str(self._data / GATEWAY),
            report=str(self._report), private_sinks=True, **extra,
        )  # fmt: skip
        server = await stack.enter_async_context(
            run_gateway(settings, default_route_groups(settings, LocalBrokerControl(self)))
        )
        return page_address(server.url)

    async def _start_flights(self, stack: AsyncExitStack) -> None:
        if self._flights is not None:
            from meetpoint.cli.flights import run_flights

            options = [
                self.connect_options([process, *self._others(process)]) for process in self._processes[:FEEDS_MAX]
            ]
            await stack.enter_async_context(run_flights(self._flights, options, self._rate))

    def _url(self, processes: list[BrokerProcess]) -> str:
        scheme = "mp" if self._keys is None else "mps"
        return f"{scheme}://{','.join(process.address for process in processes)}"

    def _others(self, process: BrokerProcess) -> list[BrokerProcess]:
        return [other for other in self._processes if other is not process]

    def connect_options(self, processes: list[BrokerProcess]) -> ConnectOptions:
        """Return how a client connects to these brokers, trying the first one first."""
        url = self._url(processes)
        return ConnectOptions(url) if self._keys is None else ConnectOptions(url, self._keys.ca, "", self._keys.token)

    def _command(self) -> str:
        data = "" if self._data == DATA else f" --data {shlex.quote(str(self._data))}"
        return f"meetpoint up{data}{'' if self._port == PORT else f' --port {self._port}'}"

    def _on_signal(self) -> None:
        self._signals += 1
        if self._signals == 1:
            print_note("\nstopping; once more for at once")
            self._stopping.set()
            return
        for process in self._processes:
            process.signal(signal.SIGTERM if self._signals == 2 else signal.SIGKILL)

    def _join_of(self, process: BrokerProcess) -> list[str]:
        return [other.address for other in self._others(process)]

    async def _start_all(self) -> None:
        # Exactly one broker may found a new network: each that did would found one of its own.
        new = not any((process.folder / "store.db").exists() for process in self._processes)
        for process in self._processes:
            founds = new and process is self._processes[0]
            await self._start(process, [] if founds else self._join_of(process))

    async def _start(self, process: BrokerProcess, join: list[str]) -> None:
        options = ["--scheme", self._notes.scheme, "--overlay", self._notes.overlay]
        if (self._data / SETTINGS_FILE).exists():
            options += ["--config", str(self._data / SETTINGS_FILE)]
        if self._notes.archive:
            options += ["--archive", str(self._data / ARCHIVE)]
        if self._keys is not None:
            options += self._keys.options(process.name)
        await process.start(options, join)

    async def _wait_ready(self) -> None:
        from meetpoint.cli.output.streams import progress

        waiting = dict.fromkeys(self._processes, "it is starting")
        until = time.monotonic() + READY_S
        what = f"starting {len(waiting)} brokers" if len(waiting) > 1 else "starting a broker"
        with progress(what, len(waiting)) as step:
            while waiting and not self._stopping.is_set():
                for process in list(waiting):
                    assert process.subprocess is not None
                    if process.subprocess.returncode is not None:
                        raise MeetpointError(
                            f"{process.name} {exit_text(process.subprocess.returncode)}: {process.last_log_line()} "
                            f"(all of it is in {process.log})"
                        )
                    waiting[process] = await process.readiness()
                    if not waiting[process]:
                        del waiting[process]
                        step(1)
                if time.monotonic() > until:
                    process, why = next(iter(waiting.items()))
                    raise MeetpointError(
                        f"{len(waiting)} brokers do not serve after {READY_S:g} s; "
                        f"{process.name}: {why} (see {process.log})"
                    )
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), POLL_S)

    def _print_instructions(self, page: str) -> None:
        scheme = "mp" if self._keys is None else "mps"
        count, at = len(self._processes), "" if self._port == PORT else f" --at mp://localhost:{self._port}"
        brokers = "1 broker is ready" if count == 1 else f"{count} brokers are ready"
        summary = f"scheme {self._notes.scheme}"
        summary += "" if self._notes.overlay == OVERLAY else f" on {self._notes.overlay}"
        lines = [f"{brokers}, {summary}; data and logs are in {self._data}", ""]
        lines += [
            f"  {process.name:<10}  {scheme}://{process.address}   http://{HOST}:{process.admin_port}/metrics"
            for process in self._processes
        ]
        if count == 2:
            lines += ["", "Two bear no loss: while one is down, the other acknowledges nothing. Take one, or three."]
        if page:
            lines += ["", f"Dashboard and API:  {page}"]
            if self._keys is not None:
                lines += [f"  its authority: {self._keys.ca}", f"  a token to sign in with: {self._keys.token}"]
        if self._flights is not None:
            lines += ["", f"{self._rate:g} flights a second meet {len(self._flights.alerts)} alerts."]
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

    async def _supervise(self) -> None:
        """Watch all brokers until they have left or the user stops the network."""
        loop = asyncio.get_running_loop()
        stop = loop.create_task(self._stopping.wait())
        for process in self._processes:
            self._watch(process)
        try:
            while self._watchers and not self._stopping.is_set():
                joined = loop.create_task(self._has_joined.wait())
                done, _ = await asyncio.wait({stop, joined, *self._watchers}, return_when=asyncio.FIRST_COMPLETED)
                joined.cancel()
                self._has_joined.clear()
                for task in [task for task in self._watchers if task in done]:
                    process = self._watchers.pop(task)
                    task.result()
                    self._remove(process)
        finally:
            tasks: list[asyncio.Task[Any]] = [stop, *self._watchers, *self._leaving]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _watch(self, process: BrokerProcess) -> None:
        self._watchers[asyncio.get_running_loop().create_task(self._keep_running(process))] = process

    def _remove(self, process: BrokerProcess) -> None:
        """Forget a broker that has left."""
        self._processes.remove(process)
        self._notes.brokers.remove(process.number)
        write_notes(self._data, self._notes)
        print_error(f"{process.name} has left the network; {process.folder} is not needed any more")

    async def _keep_running(self, process: BrokerProcess) -> None:
        """Restart a broker whenever it dies; return when it has left."""
        while True:
            assert process.subprocess is not None
            code = await process.subprocess.wait()
            if code == 0 and process.has_left:
                return
            if not process.is_wanted:
                print_error(f"{process.name} {exit_text(code)}, as was asked for; it stays down until it is started")
                await process.wait_wanted()
                print_error(f"{process.name} is started again, as was asked for")
                await self._start(process, self._join_of(process))
                continue
            if time.monotonic() - process.since > STEADY_S:
                process.deaths = 0
            pause = min(2.0 ** (process.deaths - 1), PAUSE_MAX_S) if process.deaths else 0.0
            process.deaths += 1
            extra = "" if code <= 0 else f": {process.last_log_line()}"
            again = f"in {pause:g} s" if pause else "now"
            print_error(f"{process.name} {exit_text(code)}{extra}; it is started again {again}")
            await asyncio.sleep(pause)
            await self._start(process, self._join_of(process))

    # -- what the dashboard asks for -----------------------------------------------------------------------------------

    @property
    def processes(self) -> list[BrokerProcess]:
        """All brokers, stopped ones included."""
        return list(self._processes)

    async def add(self) -> BrokerProcess:
        """Start a further broker; raise SetupError where that is not possible."""
        if len(self._processes) >= BROKERS_MAX:
            raise SetupError(f"there are {BROKERS_MAX} brokers; that is all that one machine runs")
        number = 1 + max([0, *self._notes.brokers])
        place = 1 + max((process.place for process in self._processes), default=-1)
        process = BrokerProcess(number, place, len(self._processes) + 1, self._data, self._port)
        check_ports([process])
        if self._keys is not None:
            self._keys.make([process.name])
        self._notes.brokers.append(number)
        write_notes(self._data, self._notes)
        self._processes.append(process)
        await self._start(process, self._join_of(process))
        self._watch(process)
        self._has_joined.set()
        return process

    def start_leaving(self, process: BrokerProcess) -> None:
        """Ask a broker to hand everything over; report if it cannot."""
        process.is_leaving = True
        task = asyncio.get_running_loop().create_task(self._leave(process))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, process: BrokerProcess) -> None:
        from meetpoint.cli.network.servers import leave_network

        try:
            await leave_network(self.connect_options([process]))
        except MeetpointError as error:
            process.is_leaving = False
            print_error(f"{process.name} has not left: {error}")

    # -- ending --------------------------------------------------------------------------------------------------------

    async def _stop_all(self) -> None:
        running = [process for process in self._processes if process.subprocess is not None]
        for process in running:
            process.signal(signal.SIGTERM)
        ends = [process.subprocess.wait() for process in running if process.subprocess is not None]
        if not ends:
            return
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*ends)
        except TimeoutError:
            for process in running:
                process.signal(signal.SIGKILL)
            print_error(f"not all had stopped after {STOP_S:g} s; those were killed")
        for process in running:
            if process.subprocess is not None and process.subprocess.stdin is not None:
                process.subprocess.stdin.close()


# -- for the dashboard -------------------------------------------------------------------------------------------------


class LocalBrokerControl:
    """The dashboard's control of this machine's brokers, as the gateway's `BrokerControl`."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def nodes(self) -> list[LocalBroker]:
        from meetpoint.gateway.dashboard import LocalBroker

        return [LocalBroker(process.name, process.address, _state(process)) for process in self._supervisor.processes]

    async def join(self) -> str:
        """Start a new broker."""
        try:
            process = await self._supervisor.add()
        except SetupError as error:
            raise _refusal(str(error)) from None
        return f"{process.name} starts at {process.address}, and joins"

    async def leave(self, address: str) -> str:
        """Make a broker hand everything over and go."""
        process = self._find(address)
        if not process.is_running:
            raise _refusal(f"{process.name} is down; start it, so that it can hand over what it has")
        if process.is_leaving:
            raise _refusal(f"{process.name} is leaving already")
        if sum(each.is_running and not each.is_leaving for each in self._supervisor.processes) < 2:
            raise _refusal(f"{process.name} is the last that runs; nobody could take over what it keeps")
        self._supervisor.start_leaving(process)
        return f"{process.name} hands everything over, and goes"

    async def crash(self, address: str) -> str:
        """Kill a broker at once, as a crash would."""
        process = self._find(address)
        if not process.is_running:
            raise _refusal(f"{process.name} is down already")
        process.hold()
        process.signal(signal.SIGKILL)
        return f"{process.name} was killed; the others go on without it"

    async def start(self, address: str) -> str:
        """Start a broker that is down."""
        process = self._find(address)
        if process.is_running or process.is_wanted:
            raise _refusal(f"{process.name} runs, or is about to")
        process.resume()
        return f"{process.name} starts, and comes back with what it had"

    def _find(self, address: str) -> BrokerProcess:
        found = next(
            (process for process in self._supervisor.processes if address in (process.address, process.name)), None
        )
        if found is None:
            from meetpoint.gateway.http.errors import ApiError

            raise ApiError(404, "node", f"no broker at {address!r} is run here; GET /api/network lists them")
        return found


def _refusal(reason: str) -> Exception:
    from meetpoint.gateway.http.errors import ApiError

    return ApiError(409, "node", reason)


def _state(process: BrokerProcess) -> Literal["running", "stopped", "leaving"]:
    if not process.is_running:
        return "stopped"
    return "leaving" if process.is_leaving else "running"
