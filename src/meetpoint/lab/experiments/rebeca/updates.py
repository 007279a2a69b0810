"""What filters cost by the five strategies, with so many subscriptions: updates, rows in tables, ways for nothing.

A network without faults: subscriptions come; events, so that `imperfect` knows what they are like; some more
subscriptions, which are counted; events, which are counted; then all subscriptions go. An *update* is a message that
carries a whole table: renewals, which say that nothing has changed, are no updates.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from statistics import mean
from typing import Literal, TypeAlias

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.messages import Message
from meetpoint.api.requests import Publish, Subscribe, Unsubscribe
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.rebeca.halves import graph_of
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.run import finish
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.node.runtime.effects import Notify
from meetpoint.node.runtime.inputs import ClientRequest
from meetpoint.schemes.rebeca.messages import FilterUpdate, ForwardEvent
from meetpoint.schemes.rebeca.settings import RebecaSettings
from meetpoint.schemes.rebeca.tables import SHARE, Rows, Strategy

__all__ = ["filters_of", "run_updates", "topics"]

COUNTED = 50
"""Of all subscriptions the last ones, for which updates are counted."""
SAMPLED_S = 20.0
SETTLE_S = 15.0
"""How long after the last subscription nothing is asked for: in the beginning filters accept more than is wanted."""
TOPICS = 40
PRICES = 101
CHECK_EVERY = 64

Stage: TypeAlias = Literal["before", "subscribing", "publishing", "unsubscribing"]


def topics(rng: random.Random, subscriptions: int, events: int) -> tuple[list[str], list[dict[str, int]]]:
    """Subscriptions of which some are equal and some cover others, most of them for a few topics, and events."""
    texts = []
    for _ in range(subscriptions):
        topic = min(int(rng.paretovariate(1.0)), TOPICS)
        match rng.randrange(4):
            case 0:
                texts.append(f"topic = {topic}")
            case 1:
                texts.append(f"topic = {topic} AND price >= {rng.choice([50, 80, 90])}")
            case _:
                low = rng.randrange(0, 100, 10)
                texts.append(f"topic = {topic} AND price BETWEEN {low} AND {low + rng.choice([10, 20])}")
    return texts, [{"topic": rng.randint(1, TOPICS), "price": rng.randrange(PRICES)} for _ in range(events)]


class _Reader:
    """Counts updates, and the ways of events."""

    def __init__(self) -> None:
        self.stage: Stage = "before"
        self.updates: dict[Stage, int] = defaultdict(int)
        self.bytes: dict[Stage, int] = defaultdict(int)
        self.rows: dict[Stage, int] = defaultdict(int)
        self.parents: dict[EventKey, dict[str, str]] = {}
        """By event, who had it from whom."""
        self.twice = 0
        self.wanting: dict[EventKey, set[str]] = defaultdict(set)

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        if isinstance(message, FilterUpdate) and message.rows is not None:
            self.updates[self.stage] += 1
            self.bytes[self.stage] += len(payload)
            self.rows[self.stage] += len(message.rows)
        elif isinstance(message, ForwardEvent) and self.stage == "publishing":
            parents = self.parents.setdefault(message.event, {})
            self.twice += to.address in parents
            parents[to.address] = source.address

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Counted when it was sent."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        if isinstance(thing, Notify):
            self.wanting[thing.event].add(process.address)
        elif isinstance(thing, ClientRequest) and self.stage != "before":
            match thing.what:
                case Subscribe():
                    self.stage = "subscribing"
                case Publish():
                    self.stage = "publishing"
                case Unsubscribe():
                    self.stage = "unsubscribing"

    @property
    def sends(self) -> int:
        return sum(map(len, self.parents.values()))

    @property
    def needed(self) -> int:
        """Sends that lead to one that wants it."""
        found = 0
        for event, parents in self.parents.items():
            useful: set[str] = set()
            for address in sorted(self.wanting[event]):
                while address in parents and address not in useful:
                    useful.add(address)
                    address = parents[address]
            found += len(useful)
        return found


def filters_of(net: Network) -> Iterator[Rows]:
    """The filters of all edges."""
    for member, _ in graph_of(net):
        for node in member.edges.graph.nodes:
            yield member.edges.rows(node, net.engine.now)


class _Run:
    """One network."""

    def __init__(self, parameters: Parameters, seed: int) -> None:
        self.subscriptions = subscriptions = int(parameters["subscriptions"])
        self.sampled, self.events = int(parameters["sampled"]), int(parameters["events"])
        strategy: Strategy = parameters["strategy"]  # type: ignore[assignment]
        settings = RebecaSettings(strategy=strategy, share=float(parameters.get("share", SHARE)))
        rng = random.Random(f"updates/{seed}")
        texts, events = topics(rng, subscriptions, self.sampled + self.events)
        first = max(0, subscriptions - COUNTED)
        loaded_s = first / 20
        after_s = COUNTED / 5 + self.events / 20 + subscriptions / 20 + 3 * SETTLE_S
        timing = Timing(load_s=loaded_s + SETTLE_S, load_s_max=600.0, calm_s=SAMPLED_S, after_s=after_s, quiet_s=45.0)
        self.net = net = Network(
            "chord",
            "rebeca",
            int(parameters["nodes"]),
            seed,
            timing=timing,
            check_every=CHECK_EVERY,
            kin=family_of(NetworkConfig(overlay="chord", scheme="rebeca", rebeca=settings)),
        )
        self.reader = _Reader()
        self.lengths: list[int] = []
        net.tell(self.reader)
        names = [net.subscribe(text) for text in texts[:first]]
        net.rest(SETTLE_S, phase="load")
        for event in events[: self.sampled]:
            net.publish(event)
        net.happen(self.begin, phase="recovery")
        names += [net.subscribe(text, phase="after") for text in texts[first:]]
        net.rest(SETTLE_S, phase="after")
        net.happen(self.look, phase="after")
        for event in events[self.sampled :]:
            net.publish(event, phase="after")
        net.rest(SETTLE_S, phase="after")
        for name in names:
            net.unsubscribe(name, phase="after")

    def begin(self) -> None:
        self.reader.stage = "subscribing"

    def look(self) -> None:
        self.lengths = [len(rows) for rows in filters_of(self.net)]


def run_updates(parameters: Parameters, seed: int) -> Metrics:
    """One network, to the end."""
    run = _Run(parameters, seed)
    report = finish(run.net)
    if not report.good:
        raise MeetpointError(f"rebeca: {parameters} of seed {seed} is wrong: {'; '.join(report.problems)}")
    reader = run.reader
    return {
        "rows_per_edge": mean(run.lengths),
        "rows_most": max(run.lengths),
        "updates_per_subscription": reader.updates["subscribing"] / min(COUNTED, run.subscriptions),
        "update_bytes_per_subscription": reader.bytes["subscribing"] / min(COUNTED, run.subscriptions),
        "rows_per_update": reader.rows["subscribing"] / max(1, reader.updates["subscribing"]),
        "updates_per_end": reader.updates["unsubscribing"] / run.subscriptions,
        "rows_left": sum(map(len, filters_of(run.net))),
        "sends_per_event": reader.sends / run.events,
        "for_nothing": 1 - reader.needed / max(1, reader.sends),
        "reached_twice": reader.twice,
    }
