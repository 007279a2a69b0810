"""Brokers that run `lists:order` and are given a feedback file: entries of skewed values become balanced."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from random import Random

import pytest

import meetpoint as mp
from meetpoint.broker import Broker
from meetpoint.language.values import Kind
from meetpoint.matching.keys.feedback import Feedback, MeasuredQuantiles
from meetpoint.matching.keys.statistics import Statistics
from meetpoint.schemes.lists import Lists, ListsSettings
from meetpoint.schemes.lists.collection import read_entry
from tests.broker.talking import broker, run

SCHEMA = "attributes:\n  price: {type: float, min: 0, max: 1000, precision: 0.01}\n"
BROKERS = 5
PACE_S = 0.01


def draw(random: Random) -> float:
    return round(min(random.lognormvariate(0, 1), 1000), 2)


def scheme(one: Broker) -> Lists:
    assert isinstance(one.node.scheme, Lists)
    return one.node.scheme


def spread(brokers: list[Broker]) -> float:
    """The largest number of entries at a broker, for the mean, by the scales that count."""
    loads = []
    for each in brokers:
        lists = scheme(each)
        mark = lists._hashings.counting[0].mark("price")
        placed = [read_entry(entry) for there in lists._ownership.entries.values() for entry in there.values()]
        loads.append(sum(entry is not None and entry.scale == mark for entry in placed))
    return max(loads) * len(loads) / sum(loads)


@pytest.mark.slow
def test_a_feedback_file_moves_entries_to_where_they_are_balanced(tmp_path: Path) -> None:
    random = Random(1)
    file = tmp_path / "feedback.bin"

    async def main() -> None:
        lists = ListsSettings(hash="order", schema=SCHEMA)
        said = {"scheme": "lists:order", "lists": lists, "feedback": str(file)}
        async with contextlib.AsyncExitStack() as stack:
            brokers: list[Broker] = []
            for number in range(BROKERS):
                join = (brokers[0].address,) if brokers else ()
                brokers.append(await stack.enter_async_context(broker(name=f"b{number}", join=join, **said)))
            net = await stack.enter_async_context(mp.connect(f"mp://{brokers[0].address}"))
            for number in range(60):
                await net.subscribe(f"price = {draw(random)}", durable=f"s{number}")
            subscription = await net.subscribe("price BETWEEN 0.5 AND 2", durable="range")
            before = spread(brokers)
            values = sorted(draw(random) for _ in range(1000))
            Feedback(Statistics.of_events([]), lines={"price": MeasuredQuantiles(Kind.NUMBER, tuple(values))}).save(
                file
            )
            published = 0
            while any(not scheme(each)._epochs.bodies[0] for each in brokers):
                await net.publish({"price": 1.5, "number": published})
                published += 1
                await asyncio.sleep(PACE_S)
            assert published > 5, "brokers agree, and that takes some time"
            came: list[object] = []
            async for event in subscription:
                came.append(event["number"])
                if len(came) == published:
                    break
            assert came == list(range(published)), "each once, all the while"
            assert before > 2
            assert spread(brokers) < 0.7 * before

    run(main())
