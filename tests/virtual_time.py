"""An event loop on virtual time: when nothing is ready, its clock jumps to the next timer.

    run(main())            # like asyncio.run: an hour of timeouts and retries takes as long as its callbacks take

Brokers, clients, gateways and sinks of one test run in one such loop. The rules:

1. `loop.time()`, `time.monotonic()`, `time.time()` and their nanosecond twins tell virtual time while it runs.
   Brokers measure their own work in virtual time, too.
2. The clock never jumps while another thread works for the loop: a call in an executor, or a broker's store that has
   not yet told that a ticket is persisted.
3. Each turn of the loop takes `TURN_S`, and so does each time that a broker measures its work.
4. A connection between a client and a server of the loop is a socket pair. What one end wrote, the other can read at
   once; with TCP the kernel could deliver it a little later, after a jump.

So a test's outcome does not depend on how busy the machine is. Real clocks remain where processes, signals and disks
are the subject.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import selectors
import socket
import stat
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar
from unittest import mock

import anyio.to_thread

import meetpoint as mp
from meetpoint.broker import clock as broker_clock
from meetpoint.broker import driver
from meetpoint.broker.clients import broker_queries
from meetpoint.broker.clients.authorization import Authorizer
from meetpoint.broker.observe.logs import Refusals
from meetpoint.broker.storage import Store
from meetpoint.broker.transport import connection
from meetpoint.broker.transport.cpu_budget import CpuBudget
from meetpoint.local_network import LocalNetwork

__all__ = ["VirtualLoop", "local_network", "run", "shared_loop"]

T = TypeVar("T")

LIMIT_S = 3600.0
"""A test that takes longer, in virtual time, waits in vain."""
IDLE_S = 300.0
"""For so long (of real time) the loop waits for others' threads before it says what it waits for."""
TURN_S = 1e-4
"""A turn of the loop takes this long, so that a test that never idles gets on in time, too."""
KERNEL_S = 0.001
"""A connection that goes through the kernel's TCP gets this long to deliver before the clock jumps."""


_opened: list[asyncio.Runner] = []


def run(main: Coroutine[Any, Any, T], limit_s: float = LIMIT_S) -> T:
    """Run a test's coroutine on virtual time; TimeoutError after `limit_s` virtual seconds.

    Inside `shared_loop` it runs in the loop of that, beside what a fixture started there.
    """

    async def bounded() -> T:
        async with asyncio.timeout(limit_s):
            return await main

    with contextlib.nullcontext(_opened[-1]) if _opened else asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        with loop.installed():
            return runner.run(bounded())


@contextlib.contextmanager
def shared_loop() -> Iterator[None]:
    """Keep one loop over several calls of `run`: those of a fixture and of the test that uses it."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        _opened.append(runner)
        try:
            yield
        finally:
            _opened.remove(runner)


@contextlib.contextmanager
def local_network(**settings: Any) -> Iterator[LocalNetwork]:
    """Run `mp.local` for a fixture: its brokers live in the loop in which `run` runs the test."""
    with shared_loop():
        starting = mp.local(**settings)
        try:
            yield run(starting.__aenter__())
        finally:
            run(starting.__aexit__())


class VirtualLoop(asyncio.SelectorEventLoop):
    """A selector loop whose clock is a number."""

    def __init__(self) -> None:
        self._now_s = time.monotonic()
        self._wall_ns = time.time_ns() - round(self._now_s * 1e9)
        self._used_s = 0.0
        self._working = 0
        self._busy: list[Callable[[], bool]] = []
        self._listening: dict[int, _Listener] = {}
        self._exchanged: dict[socket.socket, socket.socket] = {}
        super().__init__(_JumpingSelector(self))

    # -- the clock -----------------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Virtual seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._now_s += seconds

    def work(self) -> float:
        """Return virtual seconds after some work: what bounds its work by a clock comes to the bound."""
        self._used_s += TURN_S
        self._now_s += TURN_S
        return self._now_s

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Have the process tell this loop's time, and its stores say when they are at work."""

        def monotonic_ns() -> int:
            return round(self._now_s * 1e9)

        def time_ns() -> int:
            return self._wall_ns + monotonic_ns()

        def monotonic() -> float:
            return self._now_s

        def wall() -> float:
            return time_ns() / 1e9

        own, sleep_for_real = threading.get_ident(), time.sleep

        def sleep(seconds: float) -> None:
            if threading.get_ident() == own:
                self.advance(seconds)  # nobody else does: a wait for a lock would never end
            else:
                sleep_for_real(seconds)

        run_sync = anyio.to_thread.run_sync

        async def in_worker(*said: Any, **more: Any) -> Any:  # in threads of its own, not in an executor
            with self._others_work():
                return await run_sync(*said, **more)

        defaults: dict[Any, tuple[Callable[[], float], ...]] = {
            Authorizer.__init__: (wall,),
            Refusals.__init__: (monotonic,),
            CpuBudget.__init__: (self.work, lambda: self._used_s),
        }
        with contextlib.ExitStack() as patches:
            for module in (time, broker_clock):
                patches.enter_context(mock.patch.object(module, "monotonic_ns", monotonic_ns))
                patches.enter_context(mock.patch.object(module, "time_ns", time_ns))
            for module in (time, broker_queries):
                patches.enter_context(mock.patch.object(module, "monotonic", monotonic))
            for module in (connection, driver):
                patches.enter_context(mock.patch.object(module, "perf_counter", self.work))
            for function, clocks in defaults.items():
                patches.enter_context(mock.patch.object(function, "__defaults__", clocks))
            patches.enter_context(mock.patch.object(time, "time", wall))
            patches.enter_context(mock.patch.object(time, "sleep", sleep))
            patches.enter_context(mock.patch.object(anyio.to_thread, "run_sync", in_worker))
            patches.enter_context(mock.patch.object(Store, "start", _watched(Store.start, self)))
            yield

    # -- work in threads -----------------------------------------------------------------------------------------------

    @property
    def is_waited_for(self) -> bool:
        """Return whether a thread works for this loop: the clock stands still."""
        return self._working > 0 or any(busy() for busy in self._busy)

    def hook(self, busy: Callable[[], bool]) -> None:
        """Hold the clock while `busy()` holds."""
        self._busy.append(busy)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run a function in a thread, while the clock stands still."""
        future = super().run_in_executor(executor, func, *args)
        self._working += 1
        future.add_done_callback(self._worked)
        return future

    def _worked(self, _: object) -> None:
        self._working -= 1

    async def shutdown_default_executor(self, *args: Any) -> None:
        """Wait for the executor's threads, which takes no virtual time."""
        with self._others_work():
            await super().shutdown_default_executor(*args)

    # -- connections ---------------------------------------------------------------------------------------------------

    async def create_server(self, protocol_factory: Any, *args: Any, **said: Any) -> asyncio.Server:
        """Listen at a real port, and remember who answers there."""
        server = await super().create_server(protocol_factory, *args, **said)
        listener = _Listener(server, protocol_factory, said.get("ssl"))
        for sock in server.sockets:
            self._listening[sock.getsockname()[1]] = listener
        return server

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect a socket; one that leads to a server of this loop is exchanged in `create_connection`."""
        listener = self._listener(address[1])
        if listener is None:
            with self._others_work():
                await super().sock_connect(sock, address)
        else:
            self._exchanged[sock] = self._meet(listener, sock.getsockname()[0], address[1])

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **said: Any) -> Any:
        """Connect to a server of this loop by a socket pair, to others as ever."""
        sock = said.pop("sock", None)
        if sock in self._exchanged:
            connected: socket.socket | None = self._exchanged.pop(sock)
            sock.close()
        elif sock is None and (listener := self._listener(port)) is not None:
            connected = self._meet(listener, "127.0.0.1", port)
            if said.get("ssl") and said.get("server_hostname") is None:
                said["server_hostname"] = host
        elif sock is not None:
            connected = sock
        else:
            with self._others_work():
                return await super().create_connection(protocol_factory, host, port, **said)
        of_tls = {name: value for name, value in said.items() if name.startswith(("ssl", "server_hostname"))}
        return await super().create_connection(protocol_factory, sock=connected, **of_tls)

    def _listener(self, port: int | None) -> _Listener | None:
        listener = None if port is None else self._listening.get(port)
        return listener if listener is not None and listener.server.is_serving() else None

    def _meet(self, listener: _Listener, host: str, port: int | None) -> socket.socket:
        """Have a server accept one end of a socket pair; returns the other."""
        ours, theirs = _pair(host, port)
        accepted = listener.context.run(
            self.create_task, self.connect_accepted_socket(listener.factory, theirs, ssl=listener.ssl)
        )
        accepted.add_done_callback(lambda task: task.cancelled() or task.exception())  # the other end is told
        return ours

    @contextlib.contextmanager
    def _others_work(self) -> Iterator[None]:
        self._working += 1
        try:
            yield
        finally:
            self._working -= 1


class _Listener:
    def __init__(self, server: asyncio.Server, factory: Any, ssl: Any) -> None:
        self.server = server
        self.factory = factory
        self.ssl = ssl
        self.context = contextvars.copy_context()


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for sockets and for threads; where there are none, for nothing: it moves the clock."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._tcp: set[int] = set()

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if _is_tcp_connection(key.fd):
            self._tcp.add(key.fd)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        key = super().unregister(fileobj)
        self._tcp.discard(key.fd)
        return key

    def select(self, timeout: float | None = None) -> Any:
        self._loop.work()
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        end = _real_s() + IDLE_S
        while self._loop.is_waited_for:
            if ready := super().select(0.05):
                return ready
            if _real_s() > end:
                threads = ", ".join(sorted(thread.name for thread in threading.enumerate()))
                raise TimeoutError(f"virtual time stands still for {IDLE_S:g} s of real time; threads: {threads}")
        if ready := super().select(KERNEL_S if self._tcp else 0):  # the last work may have left something
            return ready
        if timeout is None:
            raise TimeoutError("nothing is ready, no timer is set and no thread works: this test would hang")
        self._loop.advance(timeout)
        return []


class _PairSocket(socket.socket):
    """An end of a socket pair that tells addresses as a TCP connection on loopback does."""

    own: tuple[str, int]
    peer: tuple[str, int]

    def getsockname(self) -> tuple[str, int]:
        return self.own

    def getpeername(self) -> tuple[str, int]:
        return self.peer


_ports = itertools.count(1 << 16)  # none that a real connection has


def _pair(host: str, port: int | None) -> tuple[_PairSocket, _PairSocket]:
    ends = []
    for end in socket.socketpair():
        ends.append(_PairSocket(end.family, end.type, end.proto, end.detach()))
        ends[-1].setblocking(False)
    ours, theirs = ends
    ours.own = theirs.peer = (host if host not in ("", "0.0.0.0") else "127.0.0.1", next(_ports))
    ours.peer = theirs.own = ("127.0.0.1", port or 0)
    return ours, theirs


def _is_tcp_connection(fd: int) -> bool:
    if not stat.S_ISSOCK(os.fstat(fd).st_mode):
        return False
    with socket.socket(fileno=os.dup(fd)) as sock:
        return sock.family != socket.AF_UNIX and not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def _watched(start: Any, loop: VirtualLoop) -> Any:
    """Wrap `Store.start` so that the loop knows of tickets that are not yet told persisted."""

    def watched(store: Store, on_persisted: Callable[[int], None], on_state: Any) -> None:
        told: list[int | None] = [store._last_ticket]

        def tell(ticket: int) -> None:
            on_persisted(ticket)
            told[0] = ticket

        loop.hook(lambda: store._last_ticket != told[0] and not (store.state.full or store.state.failed))
        start(store, tell, on_state)

    return watched


_real_s = time.perf_counter
