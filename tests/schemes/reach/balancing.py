"""Networks with `reach` in which places are soon busy, ids soon pushed away, and little is wanted; looks into them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

import msgspec

from meetpoint.catalog import NetworkConfig
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.rendezvous.planting import entry_name
from meetpoint.schemes.reach import Reach, ReachSettings
from meetpoint.schemes.reach.filed import read_entry
from meetpoint.schemes.reach.pieces import is_below
from meetpoint.sim.engine import Process
from meetpoint.sim.families import family_of
from meetpoint.sim.plans import read_plan
from meetpoint.sim.scenario import Network, Phase, Timing

__all__ = ["EAGER", "PLAIN", "SCHEMA", "Overseen", "balanced", "lacking", "make", "schemes"]

NAMES = "abcde"
SCHEMA = "attributes:\n" + "".join(f"  {name}: {{type: integer, min: 0, max: 9}}\n" for name in NAMES)
EAGER = ReachSettings(schema=SCHEMA, lease_us=4_000_000, busy_per_s=0.3, push_above=4)
PLAIN = msgspec.structs.replace(EAGER, quench="unquenched", copies="uncopied", pushing="unpushed")
SUBSCRIPTIONS, EVENTS = 24, 120


def draw_filter(random: Random) -> str:
    """Mostly the same few attributes."""
    if random.random() < 0.5:
        return f"a >= {random.randrange(10)} AND b >= 0"  # many at one id
    names = random.sample(NAMES, random.choice((1, 2, 2, 3)))
    return " AND ".join(f"{name} {random.choice(('<=', '>='))} {random.randrange(10)}" for name in names)


def draw_event(random: Random) -> dict[str, object]:
    return {name: random.randrange(10) for name in NAMES if random.random() < 0.85}


def make(seed: int, faults: str, overlay: str, settings: ReachSettings = EAGER, nodes: int = 10) -> Network:
    """Subscriptions come and go, first few, then many, then few; events come all the time."""
    random = Random(f"reach/{seed}")
    plan = read_plan(faults)
    if plan.faults:
        plan = msgspec.structs.replace(plan, seconds=30)
    kin = family_of(NetworkConfig(overlay=overlay, scheme="reach", reach=settings))
    founders, timing = 5 if seed % 2 else None, Timing(calm_s=30, recovery_s=45, quiet_s=60)
    net = Network(overlay, "reach", nodes, seed, plan, kin=kin, founders=founders, timing=timing)
    few = seed % 3 == 0
    names = [net.subscribe(draw_filter(random)) for _ in range(2 if few else SUBSCRIPTIONS)]
    phases: tuple[Phase, ...] = ("faults", "faults", "recovery", "after")
    gone, changed = random.sample(names, len(names) * 3 // 4), random.sample(names, len(names) // 5)
    actions: list[Callable[[], object]] = [
        *(partial(net.unsubscribe, name, phase=random.choice(phases)) for name in gone),
        *(partial(net.update, name, draw_filter(random), phase="faults") for name in changed),
        *(partial(net.subscribe, draw_filter(random), phase="faults") for _ in range(3 if few else 8)),
        *(partial(net.publish, draw_event(random), phase=("load", *phases)[number % 5]) for number in range(EVENTS)),
    ]
    random.shuffle(actions)
    for action in actions:
        action()
    return net


def schemes(net: Network) -> Iterator[tuple[Process, Reach]]:
    """Of all nodes that are up."""
    for process in net.cluster.processes:
        node: Any = process.node
        if process.alive and node is not None and isinstance(node.scheme, Reach):
            yield process, node.scheme


def lacking(net: Network) -> list[str]:
    """Regions that a node takes to be idle, and copies that it serves from, that lack what was acknowledged."""
    acked: dict[str, int] = {}
    for _, scheme in schemes(net):
        for home, places in scheme._placing._places.items():
            for each in places.values():
                for placed in each.entries.values():
                    read = read_entry(scheme._cube, placed.at)
                    if placed.number not in each.open and read is not None:
                        acked[entry_name(home, placed.number)] = read.place
    wrong = []
    for process, scheme in schemes(net):
        now = process.local(net.engine.now)
        leases = {} if scheme._quenching is None else scheme._quenching._leases
        idle: list[Region] = [region for region, lease in leases.items() if lease.until > now]
        loans = {} if scheme._copying is None else scheme._copying._loans
        for name, point in acked.items():
            wrong += [
                f"{process.address} takes {region} to be idle: {name}" for region in idle if is_below(point, region)
            ]  # fmt: skip
            wrong += [
                f"{process.address} has a copy of {region} without {name}"
                for region, loan in loans.items()
                if loan.until > now and region.hosts(point) and name not in loan.shelf.items
            ]
    return wrong


class Overseen:
    """Looks at all nodes after every so many steps."""

    def __init__(self, net: Network, every: int) -> None:
        self._net = net
        self._every = every
        self._steps = 0
        self._before = net.engine.after_step
        net.engine.after_step = self._stepped

    def _stepped(self, process: Any) -> None:
        assert self._before is not None
        self._before(process)
        self._steps += 1
        if not self._steps % self._every:
            found = lacking(self._net)
            assert not found, f"{found[0]} at {self._net.engine.now}"


def balanced(net: Network) -> list[int]:
    """Entries by node, the fullest first."""
    counts = [sum(len(scheme._shelves.at(home)) for home in scheme._hosting.homes) for _, scheme in schemes(net)]
    return sorted(counts, reverse=True)
