"""The main program of a broker's process: its event loop, and the signals that end it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from meetpoint.broker.broker import Broker
from meetpoint.broker.config import BrokerConfig, BrokerError
from meetpoint.broker.observe.logs import set_up
from meetpoint.broker.transport.sockets import handles, raise_limit

__all__ = ["new_event_loop", "run", "run_broker", "serve"]

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's event loop where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as `asyncio.run` does, in the faster loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def serve(broker: Broker) -> int:
    """Start a broker, handle signals, and wait until it has ended; return its exit code.

    SIGTERM or SIGINT drains it, a second one stops it at once, SIGUSR1 has it leave the network. SIGHUP has it read its
    certificates and revocations again; but one that comes because its terminal is gone drains it.
    """
    loop = asyncio.get_running_loop()
    asked = 0
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        task = loop.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    def stop() -> None:
        nonlocal asked
        asked += 1
        spawn(broker.stop(drain=asked == 1))

    async def leave() -> None:
        try:
            await broker.leave()
        except BrokerError as error:
            broker.log.write(logging.ERROR, "leave_refused", problem=str(error))

    had_terminal = os.isatty(0)

    def hung_up() -> None:
        if had_terminal and not os.isatty(0):
            stop()
        else:
            broker.reload()

    wanted: dict[signal.Signals, Callable[[], None]] = {
        signal.SIGTERM: stop,
        signal.SIGINT: stop,
        signal.SIGUSR1: lambda: spawn(leave()),
        signal.SIGHUP: hung_up,
    }
    with contextlib.ExitStack() as undo:
        for each, do in wanted.items():
            loop.add_signal_handler(each, do)
            undo.callback(loop.remove_signal_handler, each)
        await broker.start()
        _warn_of_handles(broker)
        if asked:
            spawn(broker.stop())  # it was asked when there was nothing to stop
        gc.collect()
        gc.freeze()  # what there is by now stays
        code = await broker.wait_stopped()
        if tasks:
            await asyncio.wait(set(tasks))
    return code


def _warn_of_handles(broker: Broker) -> None:
    """Warn where there are too few file handles for all clients that may come."""
    here, clients = handles(), broker.config.limits.clients
    if clients > here.limit - here.reserved:
        problem = f"this process may have {here.limit} files open, too few for limits.clients = {clients}"
        todo = "raise it (ulimit -n, or LimitNOFILE= of systemd), or lower limits.clients"
        broker.log.write(logging.WARNING, "settings", problem=problem, todo=todo)


def run_broker(config: BrokerConfig) -> int:
    """Run a broker, and return the exit code; raise MeetpointError where it could not start."""
    set_up(config.log)
    raise_limit()
    return run(serve(Broker(config)))
