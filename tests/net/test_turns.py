"""What is read from files for clients: who asks much holds up itself, and nothing else of the broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

from meetpoint.wire.clients import Ask, Journal, JournalIs
from tests.net.talking import broker, calling, event, run, until

QUESTIONS = 2_000


def test_who_asks_the_journal_very_often_at_once_holds_up_nobody_else(tmp_path: Path) -> None:
    """All threads of the loop were taken for half a minute: no other broker's address was found meanwhile."""

    async def main() -> None:
        async with broker(data=tmp_path / "data") as one:
            async with calling(one.address, client="ann") as ann, calling(one.address, client="bob") as bob:
                await ann.publish(*[event(number, text="x" * 500) for number in range(3_000)])
                before = one.counts.totals["requests"]
                ann.send(*[Ask(number + 10_000, Journal(f"nothing {number}")) for number in range(QUESTIONS)])
                await until(lambda: one.counts.totals["requests"] - before == QUESTIONS, "it has asked")
                await asyncio.get_running_loop().getaddrinfo("localhost", 80)
                for _ in range(3):
                    assert isinstance(await bob.get(Journal("1")), JournalIs)
                assert one._clients.unanswered == 0, "these are answered by the broker, not by its node"
                left = sum(session.under_way for session in one._clients.sessions)
                assert left > QUESTIONS // 2, "it was its own line that was long"
            await asyncio.wait_for(one.stop(), 10)  # what nobody waits for any longer is not read

    run(main())


def test_who_asks_the_journal_often_at_once_gets_all_answers(tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(data=tmp_path / "data") as one, calling(one.address) as client:
            await client.publish(event(1, x=1))
            numbers = [client.ask(Journal("1")) for _ in range(50)]
            assert {type(await client.told(number)) for number in numbers} == {JournalIs}
            assert one._desk._turns._lines == {}

    run(main())
