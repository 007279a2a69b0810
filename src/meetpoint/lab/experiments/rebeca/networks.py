"""The parts of experiment E that run simulated networks.

*Halves*: half of the nodes of a running network crash together; the survivors publish from then on, an event a second;
the others are back later. Whether the ring of the graph is whole *by reserves alone* is read off the reserves that the
survivors have at that moment: each needs one that lives, and the first that does is then the next survivor. *With
repair* is what really happens: the first edge of every survivor leads to the next, at last.

*Updates*: the cost of filters by the five strategies, with so many subscriptions: updates, rows in tables, useless
sends. A network without faults: subscriptions come; events, so that `imperfect` has a sample of them; some more
subscriptions, which are counted; events, which are counted; then all subscriptions go. An *update* is a message that
carries a whole table: renewals, which say that nothing has changed, are no updates.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from random import Random
from statistics import mean, median
from typing import Any, Literal, NamedTuple, TypeAlias

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.requests import Publish, Subscribe, Unsubscribe
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Metrics, Parameters
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.faults import Fault, FaultPlan
from meetpoint.lab.sim.judge import PublicationRecord, SubscriptionRecord
from meetpoint.lab.sim.run import finish
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.node.runtime.effects import Notify
from meetpoint.node.runtime.inputs import ClientRequest
from meetpoint.schemes.rebeca.member import EdgeTargets, Member
from meetpoint.schemes.rebeca.messages import FilterUpdate, ForwardEvent
from meetpoint.schemes.rebeca.settings import RebecaSettings
from meetpoint.schemes.rebeca.tables import SHARE, Rows, Strategy

# -- half of the nodes fail --------------------------------------------------------------------------------------------


DOWN_S = 35.0
"""The time that crashed nodes are down."""
EVENTS = 24
REST_S = 11.0
"""The pause of publishing before they are back."""
LOOKED_S = 3.0
"""The time before their return when notifications are counted."""
PROMPT_S = 1.0
"""The delay up to which a notification counts as prompt; without faults it takes less than half of it."""
VALUES = 4


class HalfOutcome(NamedTuple):
    """The outcome of one network."""

    alone: bool
    """Whether the ring of the survivors would be whole by the reserves that they had, and nothing else."""
    whole_s: float | None
    """Seconds until it was whole, to stay so until the others were back; None if it was not."""
    expected: int
    """Notifications of survivors' events to survivors' subscriptions, while the others are down."""
    missed: int
    """Notifications that did not come while the others were down."""
    waited: int
    """Notifications later than `PROMPT_S` after their publishing."""
    last_waited_s: float
    """Seconds from the crash to the publishing of the last late one; 0 where there are none."""
    longest_s: float
    """The longest delay."""
    is_exact: bool
    """Whether every event came to all its subscribers, once, when all were back."""
    problems: list[str]


def graph_of(net: Network) -> Iterator[tuple[Member, EdgeTargets]]:
    """Yield all members of the graph at nodes that are up."""
    for process in net.cluster.alive():
        node: Any = process.node
        members = node.scheme.members
        for member in members.all():
            yield member, members.targets


def is_whole(net: Network) -> bool:
    """Return whether every first edge leads to the next member at a node that is up."""
    first = {member.edges.place: member.first for member, _ in graph_of(net)}
    order = sorted(first)
    return all(first[place] == order[(at + 1) % len(order)] for at, place in enumerate(order))


def is_whole_alone(net: Network) -> bool:
    """Return whether every reserve has one that is up."""
    up = {member.edges.place for member, _ in graph_of(net)}
    return all(any(each.place in up for each in linking.reserve(member)) for member, linking in graph_of(net))


class _HalfRun:
    """A network in which half of the nodes crash at once, and are back later."""

    def __init__(self, seed: int, nodes: int, settings: RebecaSettings, overlay: str) -> None:
        family = family_of(NetworkConfig(overlay=overlay, scheme="rebeca", rebeca=settings))
        # The crash is not of the plan, but a plan without any fault would skip the recovery.
        plan = FaultPlan("half", {"clock_skew": Fault(0.1)}, seconds=DOWN_S)
        timing = Timing(recovery_s=30, quiet_s=20)
        self.net = Network(overlay, "rebeca", nodes, seed, plan, family=family, timing=timing)
        self.random = Random(f"half/{seed}")
        self.nodes = nodes
        self.crashed: dict[str, None] = {}
        self.crashed_at = 0
        self.alone = False
        self.whole_s: float | None = None
        self.expected = self.missed = 0
        self.waited = 0
        self.last_waited_s = self.longest_s = 0.0

    def crash(self) -> None:
        cluster, engine = self.net.cluster, self.net.engine
        self.crashed_at = engine.now
        for process in self.random.sample(sorted(cluster.alive(), key=lambda each: each.address), self.nodes // 2):
            self.crashed[process.address] = None
            cluster.crash(process)
        self.alone = is_whole_alone(self.net)
        for second in range(1, int(DOWN_S) - 2):
            engine.call(engine.now + second * SECOND_US, partial(self.look, second))
        engine.call(engine.now + int((DOWN_S - LOOKED_S) * SECOND_US), self.count)

    def look(self, second: float) -> None:
        if not is_whole(self.net):
            self.whole_s = None
        elif self.whole_s is None:
            self.whole_s = second

    def count(self) -> None:
        history = self.net.clients.history
        for subscription in history.subscriptions.values():
            if subscription.address in self.crashed:
                continue
            filter_ = subscription.changes[-1].filter
            assert filter_ is not None
            for name, published in history.publications.items():
                is_wanted = filter_.conjunctions[0].accepts(published.event.attributes)
                if is_wanted and published.acknowledged is not None and published.address not in self.crashed:
                    self.expected += 1
                    self.note(subscription, name, published)

    def note(self, subscription: SubscriptionRecord, name: str, published: PublicationRecord) -> None:
        """Record when a survivor was notified of a survivor's event."""
        came = next((delivery.at for delivery in subscription.deliveries if delivery.event == name), None)
        if came is None:
            self.missed += 1
            return
        waited_s = (came - published.asked) / SECOND_US
        self.longest_s = max(self.longest_s, waited_s)
        if waited_s > PROMPT_S:
            self.waited += 1
            self.last_waited_s = max(self.last_waited_s, (published.asked - self.crashed_at) / SECOND_US)


def fail_half(seed: int, nodes: int, per_level: float, overlay: str = "chord") -> HalfOutcome:
    """Run a network in which half of the nodes crash at once, and are back later."""
    run = _HalfRun(seed, nodes, RebecaSettings(reserves_per_level=per_level), overlay)
    net = run.net
    for number in range(2 * nodes):
        net.subscribe(f"a = {number % VALUES}")
    net.happen(run.crash)
    for number in range(EVENTS):
        net.publish({"a": number % VALUES})
    net.rest(REST_S)
    for number in range(8):
        net.publish({"a": number % VALUES}, phase="after")
    net.run()
    report = net.report()
    waits = (run.waited, run.last_waited_s, run.longest_s)
    return HalfOutcome(run.alone, run.whole_s, run.expected, run.missed, *waits, report.good, report.problems)


def run_halves(parameters: Parameters, seed: int) -> Metrics:
    """Run some networks, each of its own seed."""
    found = []
    for number in range(int(parameters["runs"])):
        halved = fail_half(1000 * seed + number, int(parameters["nodes"]), float(parameters["per_level"]))
        if not halved.is_exact:
            raise MeetpointError(f"rebeca: half of a network failed, {parameters}: {'; '.join(halved.problems)}")
        found.append(halved)
    whole_s = [halved.whole_s for halved in found if halved.whole_s is not None]
    metrics = {
        "whole_alone": mean(halved.alone for halved in found),
        "whole_repaired": len(whole_s) / len(found),
        "expected": sum(halved.expected for halved in found),
        "missed": sum(halved.missed for halved in found),
        "waited_share": sum(halved.waited for halved in found) / sum(halved.expected for halved in found),
        "last_waited_s": max(halved.last_waited_s for halved in found),
        "longest_wait_s": max(halved.longest_s for halved in found),
    }
    return {**metrics, "whole_s": median(whole_s), "whole_s_most": max(whole_s)} if whole_s else metrics


# -- filter updates ----------------------------------------------------------------------------------------------------


COUNTED = 50
"""The number of last subscriptions for which updates are counted."""
SAMPLED_S = 20.0
SETTLE_S = 15.0
"""The pause after the last subscription: in the beginning filters accept more than is wanted."""
TOPICS = 40
PRICES = 101
CHECK_EVERY = 64

Stage: TypeAlias = Literal["before", "subscribing", "publishing", "unsubscribing"]


def topics(rng: random.Random, subscriptions: int, events: int) -> tuple[list[str], list[dict[str, int]]]:
    """Draw subscriptions, some equal and some covering others, most of them for a few topics, and events."""
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


class _UpdateMeter:
    """A meter of updates, and of the ways of events."""

    def __init__(self) -> None:
        self.stage: Stage = "before"
        self.updates: dict[Stage, int] = defaultdict(int)
        self.bytes: dict[Stage, int] = defaultdict(int)
        self.rows: dict[Stage, int] = defaultdict(int)
        self.parents: dict[EventKey, dict[str, str]] = {}
        """By event, the sender of each node."""
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

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None: ...

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
        """Sends that lead to a node that wants the event."""
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
    """Yield the filters of all edges."""
    for member, _ in graph_of(net):
        for node in member.edges.graph.nodes:
            yield member.edges.rows(node, net.engine.now)


class _UpdateRun:
    """A network with its subscriptions and events."""

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
            family=family_of(NetworkConfig(overlay="chord", scheme="rebeca", rebeca=settings)),
        )
        self.reader = _UpdateMeter()
        self.lengths: list[int] = []
        net.observe(self.reader)
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
    """Run one network to the end, and measure its updates."""
    run = _UpdateRun(parameters, seed)
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
