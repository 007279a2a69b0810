"""The savings of feedback: `python -m benchmarks.feedback [--quick]`.

Real brokers on loopback archive what is published. Events are measured on Spark from that archive, the brokers load the
file while they run, and the same events are published again. Told are messages between brokers for an event,
before and after, less the messages that brokers exchange anyway (measured while nothing happens); the busiest
broker's share of them; and that subscribers got the same.

Nearly all events have the same `kind`, and one of many symbols, some far more often than others; subscriptions want a
kind and a symbol. Without feedback both look equally selective. And prices are log-normal: most of them small.

    few        `meet`, 200 subscriptions: none of the keys is crowded
    crowded    `meet`, 600: the key that they lie under first is
    skewed     `lists:order`, 300 that want a price: how many lie at the fullest broker, for the mean
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import msgspec

import meetpoint as mp
from benchmarks.figures import Figure, asked, figure, tell
from meetpoint.broker import Broker, BrokerConfig
from meetpoint.broker.config import Archiving
from meetpoint.client import Subscription
from meetpoint.placement.base import PlacementScheme
from meetpoint.schemes.lists import Lists, ListsSettings

PARTS = ("few", "crowded", "skewed")
SUBSCRIPTIONS = {"few": 200, "crowded": 600, "skewed": 300}
GOAL = 0.8
"""The largest share of messages that may be left."""
BALANCE = 0.5
"""The largest share that may be left of the fullest broker's entries to the mean."""
BROKERS = 8
SYMBOLS = 2_000
SCHEMA = "attributes:\n  kind: {type: string}\n  symbol: {type: string}\n  price: {type: integer}\n"
PRICES = "attributes:\n  price: {type: float, min: 0, max: 1000, precision: 0.01}\n"
SEEDS = (1, 2, 3)


class Phase(NamedTuple):
    """The costs of some events: messages each, the share of the busiest broker, and the notifications."""

    messages: float
    busiest: float
    deliveries: int
    fullest: float


class Sort(NamedTuple):
    """A kind of events and filters."""

    schema: str
    draw: Callable[[Random], dict[str, object]]
    wanted: Callable[[Random], str]
    said: dict[str, Any]


def draw(random: Random) -> dict[str, object]:
    """Draw an event."""
    kind = "trade" if random.random() < 0.97 else "quote"
    return {"kind": kind, "symbol": f"S{int(SYMBOLS * random.random() ** 3)}", "price": random.randrange(1000)}


def wanted(random: Random) -> str:
    """Draw a filter."""
    return f"kind = 'trade' AND symbol = 'S{random.randrange(SYMBOLS)}'"


def draw_price(random: Random) -> dict[str, object]:
    """Draw an event with a skewed number."""
    return {"price": round(min(random.lognormvariate(0, 1), 1000), 2)}


def wanted_price(random: Random) -> str:
    """Draw a filter on it: ranges where prices are, as wide as a hundredth of them."""
    low = float(str(draw_price(random)["price"]))
    return f"price BETWEEN {low} AND {round(low * 1.02 + 0.01, 2)}"


KEYS = Sort(SCHEMA, draw, wanted, {})
NUMBERS = Sort(
    PRICES, draw_price, wanted_price, {"scheme": "lists:order", "lists": ListsSettings(hash="order", schema=PRICES)}
)
SORTS = {"few": KEYS, "crowded": KEYS, "skewed": NUMBERS}


async def network(folder: Path, archive: Path, feedback: Path, names: str, said: dict[str, Any]) -> list[Broker]:
    """Start brokers that have found together."""
    brokers: list[Broker] = []
    for number in range(BROKERS):
        config = BrokerConfig(
            name=f"{names}{number}", listen="127.0.0.1:0", admin=None, data=str(folder / f"b{number}"),
            join=(brokers[0].address,) if brokers else (), feedback=str(feedback), journal_lines=0,
            archive=Archiving(folder=str(archive), flush_s=0.5), **said,
        )  # fmt: skip
        broker = Broker(config)
        await broker.start()
        await broker.wait_ready(60)
        brokers.append(broker)
    return brokers


def messages(brokers: list[Broker]) -> list[int]:
    """Return the number of messages that each has sent so far."""
    return [broker.counts.totals["messages_out"] for broker in brokers]


async def phase(brokers: list[Broker], events: list[dict[str, object]], came: list[str]) -> Phase:
    """Publish events, and count."""
    before_rest = messages(brokers)
    await asyncio.sleep(3)
    before = messages(brokers)
    idle_per_s = sum(before) - sum(before_rest)
    begin, count = asyncio.get_running_loop().time(), len(came)
    async with mp.connect(f"mp://{brokers[1].address}") as net:
        for each in events:
            await net.publish(each)
    await asyncio.sleep(2)
    spent = asyncio.get_running_loop().time() - begin
    sent = [after - former for after, former in zip(messages(brokers), before, strict=True)]
    upkeep = idle_per_s / 3 * spent
    loads = [sum(map(len, scheme_of(broker)._ownership.entries.values())) for broker in brokers]
    fullest = max(loads) * len(loads) / sum(loads)
    return Phase((sum(sent) - upkeep) / len(events), max(sent) / sum(sent), len(came) - count, fullest)


def scheme_of(broker: Broker) -> PlacementScheme:
    """Return a broker's part of the scheme."""
    assert isinstance(broker.node.scheme, PlacementScheme)
    return broker.node.scheme


def has_moved(broker: Broker) -> bool:
    """Return whether measurements that brokers must agree on are in force at a broker."""
    scheme = broker.node.scheme
    return not isinstance(scheme, Lists) or (len(scheme.scales) == 1 and scheme.scales != (b"",))


async def run(
    seed: int, sort: Sort, names: str, subscriptions: int, events: int, measure: Callable[[Path, Path], None]
) -> tuple[Phase, Phase]:
    """Run one network, before and after."""
    random = Random(seed)
    with tempfile.TemporaryDirectory(prefix="meetpoint-feedback-") as folder:
        archive, feedback = Path(folder, "archive"), Path(folder, "feedback.bin")
        brokers = await network(Path(folder), archive, feedback, names, sort.said)
        came: list[str] = []
        readers = []
        try:
            async with mp.connect(f"mp://{brokers[0].address}") as net:
                await net.declare(sort.schema)
                for number in range(subscriptions):
                    subscription = await net.subscribe(sort.wanted(random), durable=f"s{number}")
                    readers.append(asyncio.create_task(read(subscription, came)))
                drawn = [sort.draw(random) for _ in range(events)]
                await asyncio.sleep(5)
                former = await phase(brokers, drawn, came)
                async with asyncio.timeout(60):
                    while sum(broker.counts.totals["archived"] for broker in brokers) < events:
                        await asyncio.sleep(0.1)
                await asyncio.to_thread(measure, archive, feedback)
                async with asyncio.timeout(60):
                    while not all(broker.counts.totals["feedback_loads"] and has_moved(broker) for broker in brokers):
                        await asyncio.sleep(0.1)
                await asyncio.sleep(30)  # subscriptions move, and what is not wanted any more goes after 20 s
                later = await phase(brokers, drawn, came)
        finally:
            for reader in readers:
                reader.cancel()
            for broker in reversed(brokers):
                await broker.stop()
    return former, later


async def read(subscription: Subscription, came: list[str]) -> None:
    """Read everything that comes."""
    async for event in subscription:
        came.append(event.id)  # noqa: PERF401 - it is looked at meanwhile


def measuring() -> Callable[[Path, Path], None]:
    """Return a function that measures the events of an archive on Spark, into a file."""
    from meetpoint.spark import measure, session
    from meetpoint.spark.archives import read_archive

    spark = session(master="local[2]")
    return lambda archive, feedback: measure(read_archive(spark, str(archive)).good).feedback.save(str(feedback))


def loading(part: str, measure: Callable[[Path, Path], None], quick: bool) -> list[Figure]:
    """Measure before and after brokers have loaded the file."""
    subscriptions, events, seeds = (60, 60, SEEDS[:1]) if quick else (SUBSCRIPTIONS[part], 500, SEEDS)
    names = {seed: f"{part}{seed}-" if part == "skewed" else "b" for seed in seeds}
    runs = [asyncio.run(run(seed, SORTS[part], names[seed], subscriptions, events, measure)) for seed in seeds]
    assert all(former.deliveries == later.deliveries for former, later in runs), "feedback changes no answer"
    before, after = zip(*runs, strict=True)
    if part == "skewed":
        goal = {"goal": BALANCE, "at_most": True}
        return told(
            part, "the fullest broker for the mean", [[each.fullest for each in of] for of in (before, after)], goal
        )
    goal = {"goal": GOAL, "at_most": True}
    return [
        *told(part, "messages an event", [[each.messages for each in of] for of in (before, after)], goal),
        figure(f"{part}: the busiest broker's share, before", [each.busiest for each in before], ""),
        figure(f"{part}: the busiest broker's share, after", [each.busiest for each in after], ""),
    ]


def told(part: str, what: str, values: Sequence[Sequence[float]], goal: dict[str, Any]) -> list[Figure]:
    """Return figures before and after, and the share that is left."""
    before, after = values
    left = [later / former for former, later in zip(before, after, strict=True)]
    return [
        figure(f"{part}: {what}, before", before, ""),
        figure(f"{part}: {what}, after", after, ""),
        figure(f"{part}: after / before", left, "x", **goal),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure."""
    wish = asked(__doc__, PARTS, arguments)
    logging.getLogger("meetpoint").setLevel(logging.ERROR)  # of files that are not there yet brokers tell
    measure = measuring()
    figures = (each for part in wish.parts for each in loading(part, measure, wish.quick))
    if wish.json:
        sys.stdout.write(msgspec.json.encode(list(figures)).decode() + "\n")
    else:
        tell(figures, judge=not wish.quick)


if __name__ == "__main__":
    main()
