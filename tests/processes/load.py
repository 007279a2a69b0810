"""Clients under load, as processes of their own: `python -m tests.processes.load publish|subscribe PLAN LOG`.

What they ask, are told and get goes to an append-only log at once (`checking` says what its lines are), before the next
thing is done, so that it is there even if the process is killed. A process ends when its standard input does;
publishers once everything that they have asked for is answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

import meetpoint as mp
from meetpoint.client import Network, subscription
from meetpoint.errors import MeetpointError

__all__ = ["Plan", "main"]

TIMEOUT_S = 600.0
"""How long an event may wait for its acknowledgement: longer than brokers are down in any run, so that none is given up
of which nobody knows whether it was published."""
RETRY_S = 0.2
WATCH_S = 0.01
KINDS = ("alert", "order", "quote", "trade")
SYMBOLS = 12
BURSTS = (1, 1, 2, 4, 8)
"""How many events a publisher hands over at once."""


class Plan(msgspec.Struct, frozen=True):
    """What clients do. Client number i of either sort begins at address number i."""

    seed: int
    addresses: tuple[str, ...]
    names: tuple[str, ...]
    """Publishers, or subscribing clients."""
    subscriptions: tuple[tuple[str, str, int], ...] = ()
    """Names and filters, and by which client each is held."""
    per_s: float = 40.0
    """Events a second of each publisher."""
    unanswered_max: int = 100
    """How many events a publisher has asked for at most before the first is acknowledged."""


class Log:
    """One process's log. A line is one write, and so is there as a whole even if the process is killed after it."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, kind: str, **entry: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic_ns(), **entry}, separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())

    def close(self) -> None:
        os.close(self._file)


def _url(plan: Plan, client: int) -> str:
    at = client % len(plan.addresses)
    return "mp://" + ",".join(plan.addresses[at:] + plan.addresses[:at])


async def _connected(plan: Plan, client: int) -> Network:
    """Connect, also where all brokers are down at the moment."""
    while True:
        try:
            return await mp.connect(_url(plan, client), client=plan.names[client], timeout=TIMEOUT_S)
        except mp.NetworkError:
            await asyncio.sleep(RETRY_S)


def _draw(rng: random.Random, publisher: str, number: int) -> dict[str, Any]:
    return {
        "from": publisher,
        "number": number,
        "kind": rng.choice(KINDS),
        "symbol": f"S{rng.randrange(SYMBOLS)}",
        "price": rng.randrange(0, 100),
    }


# -- publishing --------------------------------------------------------------------------------------------------------


async def _publish_all(plan: Plan, log: Log, over: asyncio.Event) -> None:
    await asyncio.gather(*(_publisher(plan, client, log, over) for client in range(len(plan.names))))


async def _publisher(plan: Plan, client: int, log: Log, over: asyncio.Event) -> None:
    name = plan.names[client]
    rng = random.Random(f"{plan.seed} {name}")
    free = asyncio.Semaphore(plan.unanswered_max)
    asked: set[asyncio.Task[None]] = set()
    async with await _connected(plan, client) as net:
        number = 0
        watching = asyncio.create_task(_watch(net, name, log))
        while not over.is_set():
            burst = rng.choice(BURSTS)
            for _ in range(burst):
                await free.acquire()
                number += 1
                id_ = f"{name}-{number}"
                attributes = _draw(rng, name, number)
                log.note("asked", id=id_, publisher=name, number=number, attributes=attributes)
                task = asyncio.create_task(_publish(net, name, id_, attributes, log, free))
                asked.add(task)
                task.add_done_callback(asked.discard)
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), burst / plan.per_s)
        if asked:
            await asyncio.wait(asked)
        assert not watching.done(), "who looks at the publisher has failed"
        watching.cancel()


async def _watch(net: Network, name: str, log: Log) -> None:
    """Note which broker events go to, which a client does not tell, since it need not matter."""
    last = None
    while True:
        session = net._publisher._session
        now = "" if session is None else str(session.connection.address)
        if now != last:
            log.note("at", publisher=name, broker=now)
            last = now
        await asyncio.sleep(WATCH_S)


async def _publish(
    net: Network, name: str, id_: str, attributes: dict[str, Any], log: Log, free: asyncio.Semaphore
) -> None:
    try:
        await net.publish(attributes, id=id_)
    except MeetpointError as error:
        log.note("failed", id=id_, publisher=name, reason=str(error))
    else:
        log.note("acknowledged", id=id_, publisher=name)
    finally:
        free.release()


# -- subscribing -------------------------------------------------------------------------------------------------------


async def _subscribe_all(plan: Plan, log: Log, over: asyncio.Event) -> None:
    tasks = [asyncio.create_task(_subscriber(plan, client, log, over)) for client in range(len(plan.names))]
    await asyncio.gather(*tasks)


async def _subscriber(plan: Plan, client: int, log: Log, over: asyncio.Event) -> None:
    mine = [(name, filter_) for name, filter_, who in plan.subscriptions if who == client]
    async with await _connected(plan, client) as net:
        readers = [asyncio.create_task(_read(net, name, filter_, log)) for name, filter_ in mine]
        ended = asyncio.create_task(over.wait())
        await asyncio.wait([ended, *readers], return_when=asyncio.FIRST_COMPLETED)
        for reader in readers:
            if reader.done() and not ended.done():
                reader.result()
                raise RuntimeError(f"a subscription of {plan.names[client]} ended by itself")
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for name, _ in mine:
            await _note_dead(net, name, log)


async def _read(net: Any, name: str, filter_: str, log: Log) -> None:
    log.note("subscribe", name=name, filter=filter_)
    held = await net.subscribe(filter_, durable=name)
    log.note("subscribed", name=name)
    async for event in held:
        attributes = dict(event.attributes)
        log.note(
            "delivered", name=name, id=event.id, publisher=attributes.get("from"), number=attributes.get("number"),
            attributes=attributes, redelivered=event.redelivered,
        )  # fmt: skip
    raise RuntimeError(f"subscription {name} ended: {held.ended}")


async def _note_dead(net: Any, name: str, log: Log) -> None:
    for letter in await net.dead_letters(name):
        log.note("dead", name=name, id=letter.event.id, reason=letter.reason)


# -- the process -------------------------------------------------------------------------------------------------------


async def _run(role: str, plan: Plan, log: Log) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def wait_for_the_end() -> None:
        await reader.read()
        over.set()

    ending = asyncio.create_task(wait_for_the_end())
    work = _publish_all if role == "publish" else _subscribe_all
    try:
        await work(plan, log, over)
    finally:
        ending.cancel()
        transport.close()


def main(role: str, plan: str, log: str) -> None:
    """One process of publishers or of subscribers."""
    out = Log(Path(log))
    subscription.RECENT_IDS_MAX = 0  # a client that remembers nothing: marks are the brokers' alone
    try:
        asyncio.run(_run(role, msgspec.json.decode(Path(plan).read_bytes(), type=Plan), out))
    finally:
        out.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
