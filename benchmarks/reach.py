"""What quenching saves in `reach`, and how copies and pushed ids balance it: `python -m benchmarks.reach [--quick]`.

Simulated networks without faults on the hypercube, each part with and without, on the same subscriptions and events;
what is told of both is the median over some seeds, and a ratio is of the two in one seed. Messages are those of events
(duties, answers, what is brought to homes), and those by which nodes learn where nothing is wanted, or get copies; as
they pass the codec, at each hop. Subscriptions are loaded before the first event.

    quenching  messages an event, by how many subscriptions there are
    rates      the same with a few subscriptions, by how many events there are in a second
    copies     duties that come to the busiest broker, where most events go one way
    pushing    entries at the fullest broker, where most subscriptions need the first attributes
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from benchmarks.figures import Figure, asked, figure, tell
from meetpoint.catalog import NetworkConfig
from meetpoint.protocol.messages import Message
from meetpoint.schemes.reach import Reach, ReachSettings
from meetpoint.sim.engine import Process
from meetpoint.sim.families import family_of
from meetpoint.sim.scenario import Network, Timing
from meetpoint.sim.traffic import Meter

__all__ = ["COPIED", "PARTS", "PLAIN", "PUSHED", "QUENCHED", "Case", "Run", "main", "run"]

PARTS = ("quenching", "rates", "copies", "pushing")
DUTY = "r.handle"
PLAIN = ReachSettings(quench="unquenched", copies="uncopied", pushing="unpushed")
QUENCHED = msgspec.structs.replace(PLAIN, quench="quenched")
COPIED = msgspec.structs.replace(PLAIN, copies="copied", busy_per_s=5.0)
PUSHED = msgspec.structs.replace(PLAIN, pushing="pushed", push_above=40)


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What a network is for."""

    nodes: int = 32
    attributes: int = 6
    subscriptions: int = 4
    events: int = 600
    per_s: float = 20.0
    rest_s: float = 0.0
    """How long subscriptions lie there before events come."""
    popular: float = 0.0
    """The share of subscriptions that need the first two attributes, and any of the last three."""
    alike: float = 0.0
    """The share of events that have the same attributes."""


class Sizes(msgspec.Struct, frozen=True):
    """How much is run."""

    seeds: int = 3
    nodes: int = 32
    events: int = 600
    subscriptions: tuple[int, ...] = (0, 1, 4, 16, 64)
    rates: tuple[float, ...] = (1.0, 5.0, 25.0)
    rated_s: float = 60.0


QUICK = Sizes(seeds=1, nodes=6, events=40, subscriptions=(1,), rates=(10.0,), rated_s=4.0)


class Run(msgspec.Struct, frozen=True):
    """What one network did."""

    events: int
    of_events: int
    """Messages for events."""
    of_knowing: int
    """Messages by which nodes learn what is idle, or get copies."""
    duties: tuple[int, ...]
    """Messages with duties that came to each node, the busiest first."""
    entries: tuple[int, ...]
    """What lies at each node, the fullest first."""

    @property
    def messages(self) -> float:
        """All of them, an event."""
        return (self.of_events + self.of_knowing) / self.events

    @property
    def busiest(self) -> float:
        """Duties that come to the busiest node, an event."""
        return self.duties[0] / self.events


class _Counting(Meter):
    """Counts messages, and to whom duties come."""

    def __init__(self, net: Network) -> None:
        super().__init__(net.kin.codec)
        self.duties: Counter[str] = Counter()

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        if self.began is not None and self._innermost(message)[0] == DUTY:
            self.duties[target.address] += 1


def run(case: Case, settings: ReachSettings, seed: int) -> Run:
    """Run a network; whatever is missed ends the program."""
    random = Random(f"reach/{seed}")
    names = [f"a{at}" for at in range(case.attributes)]
    schema = "attributes:\n" + "".join(f"  {name}: integer\n" for name in names)
    settings = msgspec.structs.replace(settings, schema=schema)
    kin = family_of(NetworkConfig(overlay="hypercube", scheme="reach", reach=settings))
    timing = Timing(calm_s=case.events / case.per_s + case.rest_s, after_s=0.0)
    net = Network("hypercube", "reach", case.nodes, seed, "none", kin=kin, timing=timing)
    meter = _Counting(net)
    net.tell(meter)
    for _ in range(case.subscriptions):
        wanted = random.sample(names, random.randint(1, 3))
        if random.random() < case.popular:  # at one broker: only the first attributes choose it
            wanted = names[:2] + random.sample(names[-3:], random.randint(0, 3))
        net.subscribe(" AND ".join(f"{name} <= {random.randrange(50)}" for name in wanted))
    if case.rest_s:
        net.rest(case.rest_s)
    for _ in range(case.events):
        there = names[:4] if random.random() < case.alike else random.sample(names, 4)
        net.publish({name: random.randrange(100) for name in there})
    net.run()
    report = net.report()
    if not report.good:
        sys.exit(f"seed {seed}: {report.problems}")
    entries = [_entries(process) for process in net.cluster.alive()]
    duties = [meter.duties[process.address] for process in net.cluster.alive()]
    traffic = meter.by_purpose()
    return Run(
        case.events,
        traffic["events"].messages,
        traffic["summaries"].messages,
        tuple(sorted(duties, reverse=True)),
        tuple(sorted(entries, reverse=True)),
    )


def _entries(process: Process) -> int:
    node: Any = process.node
    scheme = node.scheme
    assert isinstance(scheme, Reach)
    return sum(len(scheme._shelves.at(home)) for home in node.hosting.homes)


def both(case: Case, settings: ReachSettings, seeds: int) -> tuple[list[Run], list[Run]]:
    """Without and with, seed by seed."""
    return [run(case, PLAIN, seed) for seed in range(seeds)], [run(case, settings, seed) for seed in range(seeds)]


def compared(name: str, plain: Sequence[float], other: Sequence[float], unit: str) -> Iterator[Figure]:
    """Both, and how much of the one the other is."""
    yield figure(f"{name}, without", plain, unit)
    yield figure(f"{name}, with", other, unit)
    parts = [b / a if a else 1.0 for a, b in zip(plain, other, strict=True)]
    yield Figure(f"{name}, with / without", statistics.median(parts), min(parts), max(parts), "x")


def quenching(sizes: Sizes) -> Iterator[Figure]:
    """By how many subscriptions there are."""
    for count in sizes.subscriptions:
        case = Case(nodes=sizes.nodes, subscriptions=count, events=sizes.events)
        plain, quenched = both(case, QUENCHED, sizes.seeds)
        name = f"{count} subscriptions: messages an event"
        yield from compared(name, [each.messages for each in plain], [each.messages for each in quenched], "")
        yield figure(f"{count} subscriptions: of these to know", [e.of_knowing / e.events for e in quenched], "")


def rates(sizes: Sizes) -> Iterator[Figure]:
    """By how often events come."""
    for per_s in sizes.rates:
        case = Case(nodes=sizes.nodes, subscriptions=4, events=int(per_s * sizes.rated_s), per_s=per_s)
        plain, quenched = both(case, QUENCHED, sizes.seeds)
        name = f"{per_s:g} events/s: messages an event"
        yield from compared(name, [each.messages for each in plain], [each.messages for each in quenched], "")


def copies(sizes: Sizes) -> Iterator[Figure]:
    """Where most events go one way."""
    case = Case(nodes=sizes.nodes, subscriptions=64, events=2 * sizes.events, per_s=40.0, alike=0.8)
    plain, copied = both(case, COPIED, sizes.seeds)
    yield from compared("messages an event", [each.messages for each in plain], [each.messages for each in copied], "")
    name = "duties that come to the busiest broker, an event"
    yield from compared(name, [each.busiest for each in plain], [each.busiest for each in copied], "")


def pushing(sizes: Sizes) -> Iterator[Figure]:
    """Where most subscriptions need the same attributes."""
    case = Case(
        nodes=sizes.nodes,
        attributes=8,
        subscriptions=10 * sizes.nodes,
        events=sizes.events,
        rest_s=90.0,
        popular=0.5,
    )
    plain, pushed = both(case, PUSHED, sizes.seeds)
    yield from compared(
        "entries at the fullest broker", [each.entries[0] for each in plain], [each.entries[0] for each in pushed], ""
    )  # fmt: skip
    yield from compared("messages an event", [each.messages for each in plain], [each.messages for each in pushed], "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what was asked for."""
    told = asked(__doc__, PARTS, arguments)
    sizes = QUICK if told.quick else Sizes()
    parts = {"quenching": quenching, "rates": rates, "copies": copies, "pushing": pushing}
    figures = (each for part in told.parts for each in parts[part](sizes))
    if told.json:
        sys.stdout.write(msgspec.json.encode(list(figures)).decode() + "\n")
    else:
        tell(figures, judge=not told.quick)


if __name__ == "__main__":
    main()
