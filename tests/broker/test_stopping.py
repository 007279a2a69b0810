"""A broker that stops answers what it was asked first, in one process with others and as a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from meetpoint.api.client_messages import GoAway, Request, Response
from meetpoint.api.outcomes import Published, Refused
from meetpoint.api.requests import Attach, Publish
from meetpoint.broker import Broker
from meetpoint.broker import run as run_on_real_clock
from tests.broker.talking import Caller, broker, calling, config, event, network, run, until

BROKER = """
import sys
from meetpoint.broker import Broker, make_config, read_config
from meetpoint.broker import main

class Telling(Broker):
    async def start(self):
        await super().start()
        await self.wait_ready(120)
        print(self.address, flush=True)

config = read_config(sys.argv[1])
main.set_up(config.log)
sys.exit(main.run(main.serve(Telling(config))))
"""

PROCESS_S = 120
"""How long a test waits for the end of a process, which comes in well under a second on an idle machine."""


async def all_words(client: Caller) -> list[Response]:
    """Return all answers until the broker closes."""
    await client.ended()
    return [message for message in client.inbox if isinstance(message, Response)]


def test_draining_answers_all_that_was_asked_and_refuses_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        one = Broker(config(name="one", data=str(tmp_path)))
        await one.start()
        await one.wait_ready(10)
        async with calling(one.address) as client:
            client.send(*[Request(n + 1, Publish(event(n, x=1))) for n in range(2000)])
            await until(lambda: one.counts.totals["requests"] > 100, "some have come")
            stopping = asyncio.ensure_future(one.stop())
            words = await all_words(client)
            await stopping
        assert sorted(word.request for word in words) == list(range(1, 2001))
        assert all(
            isinstance(word.word, Published) or (isinstance(word.word, Refused) and word.word.retry) for word in words
        )
        kept = sum(isinstance(word.word, Published) for word in words)
        assert [word.request for word in words if isinstance(word.word, Published)] == list(range(1, kept + 1))
        assert kept > 100
        async with broker(name="one", data=str(tmp_path)) as again, calling(again.address) as client:
            (answer,) = await client.publish(event(5000, x=1))
            assert isinstance(answer, Published)
            assert answer.event.number > kept

    run(main())


def test_clients_are_told_where_else_to_go() -> None:
    async def main() -> None:
        async with network(2) as brokers, calling(brokers[1].address) as client:
            stopping = asyncio.ensure_future(brokers[1].stop())
            told = await client.next(GoAway)
            assert told.others == (brokers[0].address,)
            assert await client.ended()
            await stopping

    run(main())


def test_a_broker_stops_once_however_often_it_is_asked() -> None:
    async def main() -> None:
        one = Broker(config())
        await one.stop()  # it has not started
        await one.start()
        await asyncio.gather(one.stop(), one.stop(), one.stop(drain=False))
        assert await one.wait_stopped() == 0
        await one.stop()
        assert one.state == "stopped"

    run(main())


@contextlib.contextmanager
def process(tmp_path: Path, text: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A broker of its own, and its address."""
    path = tmp_path / "broker.toml"
    path.write_text(f'name = "p"\nlisten = "127.0.0.1:0"\nadmin = "none"\ndata = "kept"\n{text}', encoding="utf-8")
    command = [sys.executable, "-c", BROKER, str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        yield child, child.stdout.readline().strip()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
def test_sigterm_drains_a_process_and_what_it_acknowledged_is_there_again(tmp_path: Path) -> None:
    async def fill(child: subprocess.Popen[str], address: str) -> int:
        async with calling(address) as client:
            await client.subscribe("s", "x > 0")
            client.send(*[Request(n + 100, Publish(event(n, x=1))) for n in range(1000)])
            await client.next(Response, lambda message: message.request >= 100)
            child.send_signal(signal.SIGTERM)
            words = await all_words(client)
            return 1 + sum(isinstance(word.word, Published) for word in words)

    async def count(address: str, expected: int) -> None:
        async with calling(address) as client:
            await client.get(Attach("s", 1000))
            got = await client.notified(expected)
            assert len({each.event for each in got}) == expected

    with process(tmp_path, '[log]\nformat = "json"\n') as (child, address):
        kept = run_on_real_clock(fill(child, address))  # the broker is a process
        _, errors = child.communicate(timeout=PROCESS_S)
        assert child.returncode == 0
        told = [json.loads(line) for line in errors.splitlines()]
        assert told[0]["event"] == "started"
        assert {"draining", "stopped"} <= {line["event"] for line in told}
        assert len(told) < 20
    with process(tmp_path) as (child, address):
        run_on_real_clock(count(address, kept))
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGTERM)
        assert child.wait(PROCESS_S) == 0


def test_sigusr1_of_the_last_broker_is_refused_and_it_lives(tmp_path: Path) -> None:
    async def publish(address: str) -> None:
        async with calling(address) as client:
            (answer,) = await client.publish(event(1, x=1))
            assert isinstance(answer, Published)

    with process(tmp_path) as (child, address):
        child.send_signal(signal.SIGUSR1)
        run_on_real_clock(publish(address))  # the broker is a process
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=PROCESS_S)
        assert child.returncode == 0
        assert "leave_refused" in errors
