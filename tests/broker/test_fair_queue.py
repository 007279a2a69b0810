"""Reads of files for clients: a client that asks a lot holds up itself, and nothing else of the broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from meetpoint.api.client_messages import JournalReply, JournalRequest, Request
from meetpoint.broker.clients.broker_queries import FairQueue
from meetpoint.broker.storage import Store
from tests.broker.talking import PATIENCE_S, broker, calling, event, run

QUESTIONS = 2_000
OTHERS = 3


class Readings:
    """Reads of the journal, of which those for one client last until another client has asked.

    So the order in which the broker reads does not depend on how quick its threads are.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_much = 0
        """How many have begun for the client that asks much."""
        self.others_ask = threading.Event()
        take, read = FairQueue.read, Store.journal

        def take_noted(turns: FairQueue, session: Any, request: int, look: Callable[[], Any]) -> None:
            take(turns, session, request, look)
            if session.key != "ann":
                self.others_ask.set()

        def read_slowly(store: Store, id_: str, key: Any) -> Any:
            if id_ == "e1":
                self.others_ask.clear()
            else:
                self.of_much += 1
                assert self.others_ask.wait(PATIENCE_S)
            return read(store, id_, key)

        monkeypatch.setattr(FairQueue, "read", take_noted)
        monkeypatch.setattr(Store, "journal", read_slowly)


async def spin(until: Callable[[], bool]) -> None:
    """Wait until something holds; no time passes meanwhile, as a thread works for the loop."""
    while not until():
        await asyncio.sleep(0)


def test_who_asks_the_journal_very_often_at_once_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All threads of the loop were taken for half a minute: no other broker's address was found meanwhile."""

    async def main() -> None:
        async with broker(data=tmp_path / "data") as one:
            async with calling(one.address, client="ann") as ann, calling(one.address, client="bob") as bob:
                await ann.publish(*[event(number, text="x" * 500) for number in range(3_000)])
                readings = Readings(monkeypatch)
                before = one.counts.totals["requests"]
                ann.send(
                    *[Request(number + 10_000, JournalRequest(f"nothing {number}")) for number in range(QUESTIONS)]
                )
                await spin(lambda: one.counts.totals["requests"] - before == QUESTIONS and readings.of_much == 1)
                await asyncio.get_running_loop().getaddrinfo("localhost", 80)
                for number in range(OTHERS):
                    assert isinstance(await bob.get(JournalRequest("e1")), JournalReply)
                    await spin(lambda number=number: readings.of_much == number + 2)  # type: ignore[misc]
                assert one._clients.unanswered == 0, "these are answered by the broker, not by its node"
                left = sum(session.in_flight for session in one._clients.sessions)
                assert left == QUESTIONS - OTHERS, "between two of its own, one of the other's is read"
            await spin(lambda: not one._clients.sessions)
            readings.others_ask.set()
        assert readings.of_much == OTHERS + 1, "what nobody waits for any longer is not read"

    run(main())


def test_who_asks_the_journal_often_at_once_gets_all_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(data=tmp_path / "data") as one, calling(one.address) as client:
            await client.publish(event(1, x=1))
            numbers = [client.ask(JournalRequest("1")) for _ in range(50)]
            assert {type(await client.told(number)) for number in numbers} == {JournalReply}
            assert one._queries._turns._queues == {}

    run(main())
