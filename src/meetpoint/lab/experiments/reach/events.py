"""The cost of an event in networks that run `reach`: sends, and all that quenching, copies and pushing do.

Simulated networks without faults, whose subscriptions are there before the first event. Messages are counted as they
pass the codec, at each hop, from the first event on; a missed notification makes the cell fail.

Crashes: paper C's routing breaks down then (section 4.3); ours goes round them. Some nodes crash at once and are back
before others would take their regions over; the others publish from then on. Counted are the notifications due to the
survivors' subscriptions from the survivors' events, and those that were not there yet when the crashed nodes were about
to be back. A lost notification makes the cell fail.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final, NamedTuple

import msgspec

from meetpoint.api.ids import Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.catalog import NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.experiments.experiment import Judged, Metrics, PaperClaim, Parameters, Results
from meetpoint.lab.experiments.reach.model import Cube
from meetpoint.lab.printed.papers_cd import printed_reach
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.faults import Fault, FaultPlan
from meetpoint.lab.sim.observers import Meter
from meetpoint.lab.sim.run import run_judged
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach import ReachSettings
from meetpoint.schemes.reach.ids import is_required
from meetpoint.schemes.reach.messages import DutyRequest

PLAIN = ReachSettings(quench="unquenched", copies="uncopied", pushing="unpushed")
NUMBER = "number"
"""An attribute that no schema names: it sets no bit, and tells events apart."""
VALUES = 50
BUSY_PER_S = 5.0
PUSH_ABOVE = 40


def make_network(
    overlay: str, nodes: int, names: Iterable[str], settings: ReachSettings, seed: int, timing: Timing
) -> Network:
    """Make a network with so many attributes as bits."""
    schema = "attributes:\n" + "".join(f"  {name}: integer\n" for name in names)
    settings = msgspec.structs.replace(settings, schema=schema)
    family = family_of(NetworkConfig(overlay=overlay, scheme="reach", reach=settings))
    return Network(overlay, "reach", nodes, seed, "none", family=family, timing=timing)


def attribute_names(count: int) -> list[str]:
    """Return names of attributes, in the order of their bits."""
    return [f"a{at:02}" for at in range(count)]


def regions_of(net: Network) -> dict[bytes, Region]:
    """Return the region of each node."""
    found: dict[bytes, Region] = {}
    for process in net.cluster.processes:
        view: Any = process.view
        ((region, _),) = view.pieces
        found[bytes(process.peer.id)] = region
    return found


def tables_of(net: Network) -> Cube:
    """Return regions and links as nodes have them."""
    views: list[Any] = [process.view for process in net.cluster.processes]
    links = {view.pieces[0][0]: tuple(region for region, _ in view.links) for view in views if view.pieces}
    return Cube(links, links)


# -- sends -------------------------------------------------------------------------------------------------------------


class EventSends(NamedTuple):
    """The messages of one event."""

    event: int
    """The event's id, a number."""
    sends: int
    way: int
    """Sends up to the first that comes to the host of its id."""
    distance: int
    """Differing bits between the publishing node and the event's id, of those that the node has."""
    reached: tuple[Region, ...]
    """The targets of the other sends, in order."""
    required: frozenset[Region]
    """Nodes that host a subset of its id."""


class _DutyTracer(Meter):
    """A meter that also remembers the targets of each event's duties."""

    def __init__(self, net: Network) -> None:
        super().__init__(net.family.codec)
        self.went: dict[int, list[bytes]] = defaultdict(list)

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        super().sent(now, source, to, message, payload)
        if self.began is None or self._innermost(message)[0] != "r.handle":
            return
        inner: Any = message
        while not isinstance(inner, DutyRequest):
            inner = self._codec.decode(inner.body)
        number = attributes_of(inner.content)[NUMBER]
        assert isinstance(number, int)
        self.went[number].append(bytes(to.id))


def disseminate(nodes: int, attributes: int, filters: Iterable[str], events: list[int], seed: int) -> list[EventSends]:
    """Publish events with such ids at random nodes."""
    names = attribute_names(attributes)
    net = make_network("hypercube", nodes, names, PLAIN, seed, Timing(calm_s=len(events) / 20))
    duties = _DutyTracer(net)
    net.observe(duties)
    for wanted in filters:
        net.subscribe(wanted)
    ids = {}
    for number, event in enumerate(events):
        there = {name: 1 for place, name in enumerate(names) if event >> place & 1}
        ids[net.publish({**there, NUMBER: number})] = number
    run_judged(net, "reach")
    place = regions_of(net)
    return [
        _sent(events[number], place[net.engine.processes[one.address].peer.id], duties.went[number], place)
        for id_, number in ids.items()
        if (one := net.clients.history.publications[id_])
    ]


def _sent(event: int, start: Region, went: list[bytes], place: dict[bytes, Region]) -> EventSends:
    targets = [place[node] for node in went]
    way = 0 if start.hosts(event) else 1 + next(at for at, there in enumerate(targets) if there.hosts(event))
    required = frozenset(region for region in place.values() if is_required(region, event))
    distance = ((start.bits ^ event) & start.mask).bit_count()
    return EventSends(event, len(targets), way, distance, tuple(targets[way:]), required)


def _filters(names: list[str], count: int, chance: Random) -> list[str]:
    return [
        " AND ".join(f"{name} <= {chance.randrange(3)}" for name in chance.sample(names, chance.randint(1, 3)))
        for _ in range(count)
    ]


def run_sends(parameters: Parameters, seed: int) -> Metrics:
    """Measure events of which so many bits choose nodes, on ids of one length: sends against 2^b - 1 + l."""
    nodes, attributes, bits = (int(parameters[name]) for name in ("nodes", "attributes", "set_bits"))
    suffix = nodes.bit_length() - 1
    chance = Random(f"sends/{seed}")
    events = []
    for _ in range(int(parameters["events"])):
        low = sum(1 << place for place in chance.sample(range(suffix), bits))
        events.append(chance.getrandbits(attributes - suffix) << suffix | low)
    found = disseminate(
        nodes, attributes, _filters(attribute_names(attributes), int(parameters["subscriptions"]), chance), events, seed
    )
    return {
        **_told(found),
        "sends_by_formula": statistics.mean(2**bits - 1 + each.distance for each in found),
        "off_formula": sum(each.sends != 2**bits - 1 + each.distance for each in found),
    }


def run_uneven_sends(parameters: Parameters, seed: int) -> Metrics:
    """Measure events with random bits on any number of nodes: sends against required nodes - 1 + l."""
    nodes, attributes = int(parameters["nodes"]), int(parameters["attributes"])
    chance = Random(f"uneven/{seed}")
    events = [chance.getrandbits(attributes) for _ in range(int(parameters["events"]))]
    found = disseminate(
        nodes, attributes, _filters(attribute_names(attributes), int(parameters["subscriptions"]), chance), events, seed
    )
    return {
        **_told(found),
        "off_required": sum(each.sends != len(each.required) - 1 + each.way for each in found),
        "way_above_distance": sum(each.way > each.distance for each in found),
    }


def _told(found: list[EventSends]) -> dict[str, float]:
    return {
        "events": len(found),
        "sends": statistics.mean(each.sends for each in found),
        "hops_to_rendezvous": statistics.mean(each.way for each in found),
        "sends_below": statistics.mean(each.sends - each.way for each in found),
        "nodes_required": statistics.mean(len(each.required) for each in found),
        "way_off_hamming": sum(each.way != each.distance for each in found),
        "nodes_twice": sum(len(each.reached) - len(set(each.reached)) for each in found),
        "nodes_missed": sum(
            len(each.required - {*each.reached, *(one for one in each.required if one.hosts(each.event))})
            for each in found
        ),
    }


def run_examples(parameters: Parameters, seed: int) -> Metrics:
    """Count the nodes that an example event of the paper reaches, as printed and in a network that runs ours."""
    nodes, text = int(parameters["nodes"]), str(parameters["event"])
    event, names = int(text, 2), attribute_names(len(text))
    net = make_network("hypercube", nodes, names, PLAIN, seed, Timing(calm_s=2.0))
    duties = _DutyTracer(net)
    net.observe(duties)
    chooses_no_node = len(names) > nodes.bit_length() - 1 and event.bit_length() == len(names)
    at_zero = net.subscribe(f"{names[-1]} = 1" if chooses_no_node else "TRUE")
    id_ = net.publish({**{name: 1 for place, name in enumerate(names) if event >> place & 1}, NUMBER: 0})
    run_judged(net, "reach")
    place, cube = regions_of(net), tables_of(net)
    root, zero = cube.host(event), cube.host(0)
    printed = set(printed_reach(root, lambda region: cube.links[region]))
    ours = {root, *(place[node] for node in duties.went[0])}
    required = {region for region in cube.regions if is_required(region, event)}
    return {
        "nodes_required": len(required),
        "nodes_reached_printed": len(printed & required),
        "nodes_reached": len(ours & required),
        "empty_suffix_printed": zero in printed,
        "empty_suffix": zero in ours,
        "notified": net.notifications[at_zero] == [id_],
    }


# -- quenching, copies, pushed ids -------------------------------------------------------------------------------------


class _Traffic(NamedTuple):
    events: int
    of_events: int
    of_knowing: int
    duties: list[int]
    entries: list[int]

    def metrics(self) -> dict[str, float]:
        return {
            "messages_per_event": (self.of_events + self.of_knowing) / self.events,
            "knowing_per_event": self.of_knowing / self.events,
            "duties_busiest_per_event": max(self.duties) / self.events,
            "entries_fullest": max(self.entries),
            "entries": sum(self.entries),
        }


class _DutyCounter(Meter):
    """A meter that also counts the duties that come to each node."""

    def __init__(self, net: Network) -> None:
        super().__init__(net.family.codec)
        self.duties: Counter[str] = Counter()

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        if self.began is not None and self._innermost(message)[0] == "r.handle":
            self.duties[target.address] += 1


def _traffic(
    parameters: Parameters,
    settings: ReachSettings,
    seed: int,
    *,
    wanted: Callable[[Random, list[str]], list[str]],
    there: Callable[[Random, list[str]], list[str]],
    rest_s: float = 0.0,
) -> _Traffic:
    """Run a network with events at a rate. `wanted`: the attributes of a subscription; `there`: those of an event."""
    chance = Random(f"reach/{seed}")
    names = attribute_names(int(parameters["attributes"]))
    events = int(parameters["events"])
    timing = Timing(calm_s=events / float(parameters["events_per_s"]) + rest_s, after_s=0.0)
    net = make_network("hypercube", int(parameters["nodes"]), names, settings, seed, timing)
    meter = _DutyCounter(net)
    net.observe(meter)
    for _ in range(int(parameters["subscriptions"])):
        net.subscribe(" AND ".join(f"{name} <= {chance.randrange(VALUES)}" for name in wanted(chance, names)))
    if rest_s:
        net.rest(rest_s)
    for _ in range(events):
        net.publish({name: chance.randrange(2 * VALUES) for name in there(chance, names)})
    run_judged(net, "reach")
    traffic = meter.by_purpose()
    alive = net.cluster.alive()
    return _Traffic(
        events,
        traffic["events"].messages,
        traffic["summaries"].messages,
        [meter.duties[process.address] for process in alive],
        [_entries(process.node) for process in alive],
    )


def _entries(node: Any) -> int:
    return sum(len(node.scheme._tables.at(home)) for home in node.home_manager.homes)


def _any_three(chance: Random, names: list[str]) -> list[str]:
    return chance.sample(names, chance.randint(1, 3))


def _any_four(chance: Random, names: list[str]) -> list[str]:
    return chance.sample(names, 4)


def run_quenching(parameters: Parameters, seed: int) -> Metrics:
    """Measure the messages of an event, with and without quenching."""
    settings = msgspec.convert({**msgspec.to_builtins(PLAIN), "quench": parameters["quench"]}, ReachSettings)
    return _traffic(parameters, settings, seed, wanted=_any_three, there=_any_four).metrics()


def run_copies(parameters: Parameters, seed: int) -> Metrics:
    """Measure duties at the busiest node where most events have the same attributes, with copies up the tree and
    without.
    """
    changed = {"copies": parameters["copies"], "busy_per_s": BUSY_PER_S}
    settings = msgspec.convert({**msgspec.to_builtins(PLAIN), **changed}, ReachSettings)
    alike = float(parameters["alike"])

    def there(chance: Random, names: list[str]) -> list[str]:
        return names[:4] if chance.random() < alike else _any_four(chance, names)

    return _traffic(parameters, settings, seed, wanted=_any_three, there=there).metrics()


def run_pushing(parameters: Parameters, seed: int) -> Metrics:
    """Measure entries at the fullest node where most subscriptions need the first attributes, with pushed ids and
    without.
    """
    changed = {"pushing": parameters["pushing"], "push_above": PUSH_ABOVE}
    settings = msgspec.convert({**msgspec.to_builtins(PLAIN), **changed}, ReachSettings)
    popular = float(parameters["popular"])

    def wanted(chance: Random, names: list[str]) -> list[str]:
        if chance.random() < popular:  # at one broker: only the first attributes choose it
            return names[:2] + chance.sample(names[-3:], chance.randint(0, 3))
        return _any_three(chance, names)

    rest_s = float(parameters["rest_s"])
    return _traffic(parameters, settings, seed, wanted=wanted, there=_any_four, rest_s=rest_s).metrics()


# -- ids and overlays --------------------------------------------------------------------------------------------------


def run_ids(parameters: Parameters, seed: int) -> Metrics:
    """Measure messages with duties, regions that serve, and the fullest node, by overlay and kind of ids."""
    chance = Random(f"ids/{seed}")
    names = attribute_names(int(parameters["attributes"]))
    ids, _, width = str(parameters["ids"]).partition(" ")
    changed = {"ids": ids, "width": int(width or ReachSettings().width)}
    settings = msgspec.convert({**msgspec.to_builtins(PLAIN), **changed}, ReachSettings)
    net = make_network(
        str(parameters["overlay"]), int(parameters["nodes"]), names, settings, seed, Timing(after_s=30.0)
    )
    meter = Meter(net.family.codec)
    net.observe(meter)
    for _ in range(int(parameters["subscriptions"])):
        net.subscribe(_popular_filter(chance, names, float(parameters["equalities"])))
    events = int(parameters["events"])
    for _ in range(events):
        net.publish({name: chance.randrange(VALUES) for name in _popular(chance, names, 4)}, phase="after")
    report = run_judged(net, "reach")
    entries = [_entries(process.node) for process in net.cluster.alive()]
    sent = {tag: traffic.messages for tag, traffic in meter.by_kind.items()}
    return {
        "duties_per_event": sent["r.handle"] / events,
        "regions_per_event": report.observed["regions_served"] / events,
        "homes_per_event": sent.get("bring", 0) / events,
        "fullest_share": max(entries) / sum(entries),
    }


def _popular(chance: Random, names: list[str], count: int) -> list[str]:
    """Draw different attributes, the first ones more often."""
    chosen: dict[str, None] = {}
    while len(chosen) < count:
        chosen[names[min(int(chance.expovariate(0.25)), len(names) - 1)]] = None
    return list(chosen)


def _popular_filter(chance: Random, names: list[str], equalities: float) -> str:
    terms = []
    for name in _popular(chance, names, chance.randint(1, 3)):
        value = chance.randrange(VALUES)
        terms.append(f"{name} = {value}" if chance.random() < equalities else f"{name} <= {value}")
    return " AND ".join(terms)


# -- crashes (section 4.3) ---------------------------------------------------------------------------------------------


DOWN_S: Final = 20.0
LOOKED_S: Final = 2.0
"""The time before their return when the notifications are counted."""
REST_S: Final = 5.0
ATTRIBUTES: Final = 6


class _CrashRun:
    def __init__(self, nodes: int, crashed: int, seed: int) -> None:
        schema = "attributes:\n" + "".join(f"  {name}: integer\n" for name in attribute_names(ATTRIBUTES))
        config = NetworkConfig(overlay="hypercube", scheme="reach", reach=msgspec.structs.replace(PLAIN, schema=schema))
        plan = FaultPlan("crash", {"clock_skew": Fault(0.1)}, seconds=DOWN_S)
        timing = Timing(recovery_s=30, quiet_s=20)
        self.net = Network("hypercube", "reach", nodes, seed, plan, family=family_of(config), timing=timing)
        self.random = Random(f"crashes/{seed}")
        self.count = crashed
        self.down: set[str] = set()
        self.expected = self.late = 0

    def crash(self) -> None:
        """Crash so many nodes at once."""
        engine = self.net.engine
        alive = sorted(self.net.cluster.alive(), key=lambda each: each.address)
        for process in self.random.sample(alive, self.count):
            self.down.add(process.address)
            self.net.cluster.crash(process)
        engine.call(engine.now + int((DOWN_S - LOOKED_S) * SECOND_US), self.look)

    def look(self) -> None:
        """Count the due and the missing notifications of survivors' events at survivors' subscriptions."""
        history = self.net.clients.history
        for subscription in history.subscriptions.values():
            if subscription.address in self.down:
                continue
            filter_ = subscription.changes[-1].filter
            assert filter_ is not None
            came = {delivery.event for delivery in subscription.deliveries}
            for name, published in history.publications.items():
                is_ours = published.address not in self.down and published.acknowledged is not None
                if is_ours and filter_.conjunctions[0].accepts(published.event.attributes):
                    self.expected += 1
                    self.late += name not in came


def run_crashes(parameters: Parameters, seed: int) -> Metrics:
    """Crash nodes; MeetpointError where anything is missed, or comes twice, when all are back."""
    nodes = int(parameters["nodes"])
    run = _CrashRun(nodes, int(parameters["crashed"]), seed)
    names = attribute_names(ATTRIBUTES)
    for number in range(int(parameters["subscriptions"])):
        wanted = run.random.sample(names, 1 + number % 2)
        run.net.subscribe(" AND ".join(f"{name} > 0" for name in sorted(wanted)))
    run.net.happen(run.crash)
    for _ in range(int(parameters["events"])):
        run.net.publish(dict.fromkeys(run.random.sample(names, run.random.randint(1, ATTRIBUTES)), 1))
    run.net.rest(REST_S)
    run.net.run()
    report = run.net.report()
    if not report.good:
        raise MeetpointError(f"reach, seed {seed}: nodes crashed, and it was wrong: {'; '.join(report.problems)}")
    return {"expected": run.expected, "late": run.late}


def _judge_crashes(results: Results) -> Judged:
    counts = [int(crashed) for crashed in results.distinct("crashes", "crashed")]
    expected, late = (
        sum(sum(results.by_seed("crashes", metric, crashed=crashed).values()) for crashed in counts)
        for metric in ("expected", "late")
    )
    (nodes,) = results.distinct("crashes", "nodes")
    return Judged(
        ours=f"0 of {expected:,.0f} notifications lost with {' or '.join(map(str, counts))} of {nodes} nodes down for "
        f"{DOWN_S:.0f} s; {1 - late / expected:.0%} came while they were down",
        verdict="reproduced" if late < expected else "not reproduced",
        why="The paper's routing breaks down when a node on the way fails, as it says itself. Ours goes round it. What "
        "only the crashed node hosts waits until it is back, or until others take its region over after 30 s; what was "
        "acknowledged is on two disks. A run that loses anything, or notifies twice, fails.",
    )


CRASH_CLAIMS: Final = (
    PaperClaim(
        id="C26",
        place="section 4.3; ours",
        says="Fault tolerance can be added: a crash loses no subscription, and routing goes round it.",
        number="none given (left open)",
        judge=_judge_crashes,
    ),
)
