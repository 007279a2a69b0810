"""A process that is a broker: the loop it runs in, and the signals that end it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from meetpoint.net.broker import Broker
from meetpoint.net.config import BrokerConfig
from meetpoint.net.errors import BrokerError
from meetpoint.net.logs import set_up

__all__ = ["new_event_loop", "run", "run_broker", "serve"]

T = TypeVar("T")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, in the faster loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def serve(broker: Broker) -> int:
    """Start a broker and wait until it has ended. SIGTERM or SIGINT drains it, a second one stops it at once;
    SIGUSR1 has it leave the network.
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
            broker.log.say(logging.ERROR, "leave_refused", problem=str(error))

    def wanted(each: signal.Signals) -> Callable[[], None]:
        return stop if each != signal.SIGUSR1 else lambda: spawn(leave())

    with contextlib.ExitStack() as undo:
        for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            loop.add_signal_handler(each, wanted(each))
            undo.callback(loop.remove_signal_handler, each)
        await broker.start()
        if asked:
            spawn(broker.stop())  # it was asked when there was nothing to stop
        gc.collect()
        gc.freeze()  # what there is by now stays
        code = await broker.wait_stopped()
        if tasks:
            await asyncio.wait(set(tasks))
    return code


def run_broker(config: BrokerConfig) -> int:
    """Be a broker; the exit code. MeetpointError where it could not start."""
    set_up(config.log)
    return run(serve(Broker(config)))
