"""A process that appends to a store as fast as it can and says on its output what it is told.

`python -m tests.broker.storage.appender PATH` reads lives from its input, one a line: the ticket to begin with, and how
many tickets to hand in (0: without end). Each life is a process of its own, forked so that none has to load anything:

    alive PID       the life has begun
    told TICKET     persisted, with all before it
    state STATE     the store is full, has failed, or writes again
    dead            the life has ended, however it did
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from pathlib import Path
from random import Random

from meetpoint.api.ids import HomeId
from meetpoint.broker.storage import Store, StoreState
from meetpoint.node.runtime.effects import Persist
from meetpoint.node.runtime.records import Record

HOMES = (HomeId(b""), HomeId(b"\x01" * 20), HomeId(b"\xfe" * 20))
AHEAD = 64
"""So many tickets are in flight."""
LIFE_S = 300
"""No life lasts longer: a test that waits for its last words must not wait for ever."""
LAST = "last"
"""A record that every ticket writes, with its number as version."""


def effect(ticket: int) -> Persist:
    """Return the records that a ticket writes and erases, always the same."""
    random = Random(ticket)
    records = {(HOMES[0], LAST): Record(HOMES[0], LAST, ticket, b"")}
    for _ in range(random.randrange(4)):
        at = random.choice(HOMES), f"name/{random.randrange(300)}"
        value = None if random.random() < 0.1 else random.randbytes(random.choice((0, 20, 200, 6000)))
        records[at] = Record(*at, ticket, value)
    gone = [(random.choice(HOMES), f"name/{random.randrange(300)}") for _ in range(random.randrange(3))]
    return Persist(ticket, tuple(records.values()), tuple(at for at in gone if at not in records))


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def live(path: Path, first: int, count: int) -> None:
    """Run one life of the store."""
    room = threading.Semaphore(AHEAD)
    over = threading.Event()
    told = first - 1

    def persisted(ticket: int) -> None:
        nonlocal told
        say(f"told {ticket}")
        room.release(ticket - told)
        told = ticket

    def changed(state: StoreState) -> None:
        say(f"state {'failed' if state.failed else 'full' if state.full else 'writing'} {state.failed}")
        if state.failed:
            over.set()
            room.release(AHEAD)

    store = Store.open(path)
    store.start(persisted, changed)
    ticket = first
    while not over.is_set() and (not count or ticket < first + count):
        room.acquire()
        given = effect(ticket)
        store.persist(ticket, given.records, given.erased)
        ticket += 1
    store.close()


def main() -> None:
    path = Path(sys.argv[1])
    if len(sys.argv) > 2:  # no file may grow beyond so many bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
    for line in sys.stdin:
        first, count = map(int, line.split())
        child = os.fork()
        if not child:
            signal.alarm(LIFE_S)
            say(f"alive {os.getpid()}")
            live(path, first, count)
            os._exit(0)
        os.waitpid(child, 0)
        say("dead")


if __name__ == "__main__":
    main()
