"""A run under faults: brokers are killed, frozen, parted, they come and go, while clients publish and subscribe.

Everything is drawn from a seed: what is done in which cycle, to whom, for how long. (What comes of it is not repeated
by the same seed: processes run as they do.) At the end everything is healed, publishers wait for their last
acknowledgements, subscribers until all has come, and `checking` judges from the logs.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.processes.checking import Verdict, judge
from tests.processes.fleet import Client, Fleet, Member
from tests.processes.load import Log, Plan
from tests.processes.proxy import CLIENTS, Way

__all__ = ["DECK", "Load", "Run", "cards", "run"]

BROKERS = 5
PUBLISHERS = ("north", "south", "west")
SUBSCRIBERS = ("one", "two", "three", "four")
SUBSCRIPTIONS = (
    ("everything", "price >= 0", 0),
    ("dear", "price > 60", 1),
    ("cheap-trades", "kind = 'trade' AND price < 40", 2),
    ("one-symbol", "symbol = 'S3'", 3),
    ("some-symbols", "symbol LIKE 'S1%' OR symbol IN ('S4', 'S5')", 0),
    ("alerts", "kind = 'alert' AND NOT symbol = 'S0'", 1),
    ("odd", "kind IN ('order', 'quote') AND price BETWEEN 20 AND 80 AND symbol <> 'S7'", 2),
    ("never", "price > 1000", 3),
)
DECK = (
    *["kill"] * 7, *["kill two"] * 2, *["kill all"] * 2, *["stop"] * 3, *["cut"] * 2, *["stall"] * 2,
    "join", "leave",
)  # fmt: skip
"""What is done in twenty cycles, in an order of its own each time."""
PATIENCE_S = 300.0
"""How long is waited for what must come: the machine may be busy."""
QUIET_S = 2.0
AIM_S = 30.0
AIMED = 0.8
"""How often a single broker is not killed at any moment, but as soon as one has work to do."""
SETTLE_S = 0.005
"""Until a publisher has noted an answer that was under way when its broker was frozen."""
EVENTS_PER_CYCLE = 50
"""At least so many events are acknowledged in a run, however slow the machine is."""


DMM: Final[Mapping[str, Any]] = {
    "dmm.schema": "attributes: {kind: string, price: {type: integer, min: 0, max: 100}}",
    "dmm.threshold": 2,
}
"""Settings with which the regions of the few subscriptions here are split."""


class Run(msgspec.Struct, frozen=True):
    """How a run goes."""

    seed: int
    cycles: int
    scheme: str = "meet"
    overlay: str = "chord"
    per_s: float = 25.0
    pause_s: tuple[float, float] = (0.1, 0.9)
    """Between the healing of one fault and the next one: not always long enough to recover."""
    down_s: tuple[float, float] = (0.0, 0.9)
    stopped_s: tuple[float, float] = (0.5, 4.0)
    parted_s: tuple[float, float] = (0.5, 4.0)
    kill_subscribers: float = 0.15
    """How often in a cycle a process of subscribers is killed and started again, too."""


def cards(rng: random.Random, cycles: int) -> Iterator[str]:
    """What is done in each cycle."""
    dealt: list[str] = []
    for _ in range(cycles):
        if not dealt:
            dealt = list(DECK)
            rng.shuffle(dealt)
        yield dealt.pop()


async def run(plan: Run, folder: Path) -> Verdict:
    """A whole run; the logs are in the folder."""
    dmm = DMM if plan.scheme.startswith("dmm") else {}
    fleet = Fleet(folder, plan.scheme, {"overlay": plan.overlay, **dmm})
    load = Load(folder, plan.seed, plan.per_s)
    faults = Log(folder / "faults.jsonl")
    try:
        await fleet.begin(BROKERS)
        await load.begin([member.address for member in fleet.members])
        harness = _Harness(plan, fleet, load, faults)
        for card in cards(harness.rng, plan.cycles):
            await harness.cycle(card)
        fleet.heal()
        await fleet.wait_ready(fleet.here)
        await load.until_acknowledged(EVENTS_PER_CYCLE * plan.cycles - load.count("acknowledged"))
        verdict = await load.finish()
        verdict.observed = await fleet.observed("order_asked", "order_given_up")
        return verdict
    finally:
        load.close()
        await fleet.close()
        faults.close()


class Unanswered:
    """Reads a publishers' log as it grows: what is asked and not answered."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._asked: dict[str, set[str]] = {}
        self._at: dict[str, str] = {}

    def brokers(self) -> set[str]:
        """Whom events were asked of that are not answered yet."""
        with self._path.open("rb") as log:
            log.seek(self._read)
            lines = log.read().split(b"\n")
        for line in lines[:-1]:
            self._read += len(line) + 1
            entry = msgspec.json.decode(line)
            publisher = entry["publisher"]
            if entry["kind"] == "at":
                self._at[publisher] = entry["broker"]
            elif entry["kind"] == "asked":
                self._asked.setdefault(publisher, set()).add(entry["id"])
            else:
                self._asked[publisher].discard(entry["id"])
        return {broker for publisher, broker in self._at.items() if self._asked.get(publisher)}


class Load:
    """The clients of a run: a process of publishers, and one of subscribers after the other."""

    def __init__(self, folder: Path, seed: int, per_s: float) -> None:
        self._folder = folder
        self._seed = seed
        self._per_s = per_s
        self._lives = 0
        self._clients: list[Client] = []
        self._subscribers: Client | None = None
        self._publishers: Client | None = None

    async def begin(self, addresses: Sequence[str]) -> None:
        """Subscribe, and then begin to publish."""
        subscribing = Plan(self._seed, tuple(addresses), SUBSCRIBERS, SUBSCRIPTIONS)
        publishing = Plan(self._seed, tuple(addresses), PUBLISHERS, per_s=self._per_s)
        (self._folder / "subscribe.json").write_bytes(msgspec.json.encode(subscribing))
        (self._folder / "publish.json").write_bytes(msgspec.json.encode(publishing))
        self._start_subscribers()
        await self._until(lambda: self.count("subscribed") >= len(SUBSCRIPTIONS), "all subscriptions are made")
        self._publishers = self._start("publish", "publish")
        self._unanswered = Unanswered(self._folder / "publish.jsonl")
        await self.until_acknowledged(1)

    def _start(self, role: str, log: str) -> Client:
        client = Client(role, self._folder / f"{role}.json", self._folder / f"{log}.jsonl")
        self._clients.append(client)
        return client

    def _start_subscribers(self) -> None:
        self._lives += 1
        self._subscribers = self._start("subscribe", f"subscribe-{self._lives:04}")

    def kill_subscribers(self) -> None:
        """Kill the process of subscribers, and start another one."""
        assert self._subscribers is not None
        self._subscribers.kill()
        self._start_subscribers()

    async def until_acknowledged(self, more: int) -> None:
        """Wait until so many more events are acknowledged."""
        before = self.count("acknowledged")
        await self._until(lambda: self.count("acknowledged") >= before + more, f"{more} events are acknowledged")

    async def until_delivered(self, more: int) -> None:
        """Wait until so many more events have come to subscribers."""
        before = self.count("delivered")
        await self._until(lambda: self.count("delivered") >= before + more, f"{more} events are delivered")

    def count(self, kind: str) -> int:
        """How many entries of a kind the logs of clients have by now."""
        mark = f'{{"kind":"{kind}",'.encode()
        return sum(path.read_bytes().count(mark) for path in self._folder.glob("*.jsonl"))

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not is_so():
            self.check()
            if time.monotonic() > until:
                raise AssertionError(f"after {PATIENCE_S:.0f} s it is not so that {what}")
            await asyncio.sleep(0.1)

    def asked_now(self) -> set[str]:
        """Brokers that have been asked for an event and have not answered."""
        return self._unanswered.brokers()

    def check(self) -> None:
        """No client ends that was not ended."""
        for client in (self._subscribers, self._publishers):
            if client is not None:
                client.check()

    async def finish(self) -> Verdict:
        """Publish no more, wait until everything is answered and has come, and judge."""
        assert self._publishers is not None
        assert self._subscribers is not None
        await self._publishers.end(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        wait = 0.5
        while (await asyncio.to_thread(judge, self._folder)).lost and time.monotonic() < until:
            self._subscribers.check()
            await asyncio.sleep(wait)
            wait = min(10.0, wait * 1.5)
        await asyncio.sleep(QUIET_S)  # for what should not come
        await self._subscribers.end(PATIENCE_S)
        return judge(self._folder)

    def close(self) -> None:
        """End all processes."""
        for client in self._clients:
            client.close()


class _Harness:
    """What is done to brokers and clients."""

    def __init__(self, plan: Run, fleet: Fleet, load: Load, faults: Log) -> None:
        self.rng = random.Random(plan.seed)
        self._plan = plan
        self._fleet = fleet
        self._load = load
        self._faults = faults
        self._cards: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "kill two": self._kill_two,
            "kill all": self._kill_all,
            "stop": self._stop,
            "cut": self._cut,
            "stall": self._stall,
            "join": self._join,
            "leave": self._leave,
        }

    # -- cycles --------------------------------------------------------------------------------------------------------

    async def cycle(self, card: str) -> None:
        """One fault, healed, and a pause; at times the process of subscribers is killed too."""
        if fallen := self._fleet.fallen():
            raise AssertionError("; ".join(fallen))
        self._load.check()
        await self._cards[card]()
        if self.rng.random() < self._plan.kill_subscribers:
            self._note("kill subscribers")
            self._load.kill_subscribers()
        await asyncio.sleep(self.rng.uniform(*self._plan.pause_s))

    def _note(self, what: str, members: Sequence[Member] = ()) -> None:
        brokers = [member.address for member in members]
        self._faults.note("fault", what=what, brokers=brokers, numbers=[member.number for member in members])

    async def _some_time(self, bounds: tuple[float, float]) -> None:
        await asyncio.sleep(self.rng.uniform(*bounds))

    async def _kill_some(self, what: str, victims: list[Member]) -> None:
        self._note(what, victims)
        self._fleet.kill(victims)
        for member in victims:
            await self._some_time(self._plan.down_s)
            self._fleet.start(member)

    async def _kill(self) -> None:
        """Any, or one that has work to do at this moment."""
        victim = await self._busy() if self.rng.random() < AIMED else None
        await self._kill_some("kill", [victim or self.rng.choice(self._fleet.here)])

    async def _kill_two(self) -> None:
        first = await self._busy() or self.rng.choice(self._fleet.here)
        second = self.rng.choice([member for member in self._fleet.here if member is not first])
        await self._kill_some("kill two", [first, second])

    async def _busy(self) -> Member | None:
        """A broker that has just been asked for an event and has not answered, if there is one within some time.

        Its process is frozen first, and looked at again: on a busy machine it could answer between look and kill.
        """
        until = time.monotonic() + AIM_S
        while time.monotonic() < until:
            addresses = self._load.asked_now()
            if busy := [member for member in self._fleet.up if member.address in addresses]:
                victim = self.rng.choice(busy)
                self._fleet.freeze(victim)
                await asyncio.sleep(SETTLE_S)
                if victim.address in self._load.asked_now():
                    return victim
                self._fleet.thaw(victim)
            await asyncio.sleep(0.001)
        return None

    async def _kill_all(self) -> None:
        victims = self._fleet.here
        await self._busy()
        self._note("kill all", victims)
        self._fleet.kill(victims)
        await self._some_time(self._plan.down_s)
        for member in victims:
            self._fleet.start(member)

    async def _stop(self) -> None:
        victim = self.rng.choice(self._fleet.here)
        self._note("stop", [victim])
        self._fleet.freeze(victim)
        await self._some_time(self._plan.stopped_s)
        self._fleet.thaw(victim)

    async def _cut(self) -> None:
        await self._part("cut", Way.CUT)

    async def _stall(self) -> None:
        await self._part("stall", Way.STALLED)

    async def _part(self, what: str, way: Way) -> None:
        """Some brokers on one side and some on the other; clients reach all, or only one side."""
        numbers = [member.number for member in self._fleet.here]
        self.rng.shuffle(numbers)
        at = self.rng.randint(1, len(numbers) - 1)
        some, others = numbers[:at], numbers[at:]
        if self.rng.random() < 0.3:
            others = [*others, CLIENTS]
        self._note(what, [member for member in self._fleet.here if member.number in some])
        self._fleet.doors.part(some, others, way)
        await self._some_time(self._plan.parted_s)
        self._fleet.doors.heal()

    async def _join(self) -> None:
        self._note("join")
        member = await self._fleet.prepare()
        self._fleet.start(member)
        await self._fleet.wait_ready([member])

    async def _leave(self) -> None:
        """One leaves, once all are well: who leaves hands over to the others."""
        await self._fleet.wait_ready(self._fleet.here)
        victim = self.rng.choice(self._fleet.here)
        self._note("leave", [victim])
        await self._fleet.leave(victim)
        if len(self._fleet.here) < BROKERS:
            await self._join()
