"""Thousands of hostile frames against a broker that is a process, while another client publishes and receives.

`python -m benchmarks.hostile` does the same with a million, and measures what it costs the other client.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from benchmarks import hostile
from meetpoint.api.client_messages import Request
from meetpoint.api.codec import FrameReader, WireError, split
from meetpoint.api.outcomes import Published
from meetpoint.api.requests import Acknowledge
from meetpoint.broker import BrokerConfig
from meetpoint.broker import run as run_on_real_clock
from meetpoint.catalog import make_link_codec
from meetpoint.lab.bench.brokers.ours import watch
from meetpoint.lab.bench.hostile import ROLES, Attacker, Role, attacks
from tests.broker.talking import calling, event

FRAMES = 20_000
GROWTH_MAX = 64 << 20


def test_the_same_seed_says_the_same_frames() -> None:
    def said(seed: int) -> list[list[bytes]]:
        return [attack.frames for attack in islice(attacks(seed), 50)]

    assert said(1) == said(1)
    assert said(1) != said(2)


def test_whoever_attacks_as_a_broker_says_nothing_that_is_a_message() -> None:
    codec = make_link_codec()
    outcomes: Counter[str] = Counter()
    for attack in islice(attacks(1, ("broker",)), 200):
        reader = FrameReader(version=2)
        try:
            for each in attack.frames:
                for piece in reader.feed(each):
                    for message in split(piece, 2):
                        codec.decode(message)
                        outcomes["message"] += 1
        except WireError as error:
            outcomes[error.kind] += 1
    assert outcomes["malformed"] > 100
    assert outcomes["message"] == 0


@pytest.mark.parametrize("roles", [ROLES, ("asker", "liar")])
def test_hostile_frames_do_not_end_a_broker_and_of_garbage_nobody_else_notices(
    tmp_path: Path, roles: tuple[Role, ...]
) -> None:
    """Of lies a network suffers: who is let in as a broker is believed. Of garbage it must not."""
    is_garbage = roles == ROLES

    async def main() -> None:
        with watch(tmp_path) as broker:
            attacker = Attacker(broker.host, broker.port, attacks(3, roles), "meetpoint", BrokerConfig().way)
            before = broker.held_bytes if sys.platform == "linux" else 0
            async with calling(broker.address) as client:
                await client.subscribe("good", "kind = 'good'")
                attacking = asyncio.create_task(attacker.attack(FRAMES if is_garbage else FRAMES // 10, 16))
                number = 0
                while is_garbage and not attacking.done():
                    answers = await client.publish(*[event(number + n, kind="good") for n in range(20)])
                    assert all(isinstance(answer, Published) for answer in answers)
                    for got in await client.notified(20):
                        client.send(Request(0, Acknowledge(got.event, got.names)))
                    number += 20
                await attacking
                assert broker.is_alive
                assert number or not is_garbage
            counted = broker.counted()
            assert attacker.failures == 0
            if is_garbage:
                assert counted["meetpoint_step_errors_total"] == 0
                assert sum(n for name, n in counted.items() if "wire_errors_total{" in name) > FRAMES / 4
                assert sum(n for name, n in counted.items() if "refusals_total{" in name) > FRAMES / 8
            if sys.platform == "linux":
                assert broker.held_bytes - before < GROWTH_MAX
            assert "Traceback" not in broker.log.read_text()

    run_on_real_clock(main())  # the broker is a process


@pytest.mark.skipif(sys.platform != "linux", reason="how much memory a process has is read from /proc")
def test_the_benchmark_at_its_smallest(capsys: pytest.CaptureFixture[str]) -> None:
    assert hostile.main(["--quick"]) == 0
    told = capsys.readouterr().out
    assert "a client's events under attack" in told
    assert "hostile frames" in told
