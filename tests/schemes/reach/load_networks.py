"""Networks with `reach` in which places are soon busy, ids soon pushed away, and little is wanted; looks into them."""

from __future__ import annotations

from random import Random

import msgspec

from meetpoint.catalog import NetworkConfig
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.overlays.hypercube.regions import Region
from meetpoint.placement.entries.installer import entry_name
from meetpoint.schemes.reach import ReachSettings
from meetpoint.schemes.reach.entries import read_entry
from meetpoint.schemes.reach.ids import is_below
from tests.placement.eyes import nodes_up, schemes
from tests.schemes.busy import Busy, network

__all__ = ["EAGER", "PLAIN", "SCHEMA", "balanced", "lacking", "make"]

NAMES = "abcde"
SCHEMA = "attributes:\n" + "".join(f"  {name}: {{type: integer, min: 0, max: 9}}\n" for name in NAMES)
EAGER = ReachSettings(schema=SCHEMA, lease_us=4_000_000, busy_per_s=0.3, push_above=4)
PLAIN = msgspec.structs.replace(EAGER, quench="unquenched", copies="uncopied", pushing="unpushed")


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
    config = NetworkConfig(overlay=overlay, scheme="reach", reach=settings)
    timing = Timing(calm_s=30, recovery_s=45, quiet_s=60)
    net = network(config, nodes, seed, faults, fault_s=30, founders=5 if seed % 2 else None, timing=timing)
    few = seed % 3 == 0
    busy = Busy(
        draw_filter=draw_filter,
        draw_event=draw_event,
        subscriptions=2 if few else 24,
        ended=1 if few else 18,
        changed=0 if few else 4,
        added=3 if few else 8,
        events=120,
    )
    return busy.keep(net, Random(f"reach/{seed}"))


def lacking(net: Network) -> list[str]:
    """Regions that a node takes to be idle, and copies that it serves from, that lack what was acknowledged."""
    acked: dict[str, int] = {}
    for scheme in schemes(net):
        for home, places in scheme._placement._places.items():
            for each in places.values():
                for placed in each.entries.values():
                    name = entry_name(home, placed.number)
                    item = read_entry(scheme._cube, name, placed.at)
                    if placed.number not in each.open and item is not None:
                        acked[name] = item.read.place
    wrong = []
    for process, node in nodes_up(net):
        scheme, now = node.scheme, process.local(net.engine.now)
        leases = {} if scheme._quench is None else scheme._quench._idle
        idle: list[Region] = [region for region, lease in leases.items() if lease.until > now]
        loans = {} if scheme._copies is None else scheme._copies._copies
        for name, point in acked.items():
            wrong += [
                f"{process.address} takes {region} to be idle: {name}" for region in idle if is_below(point, region)
            ]  # fmt: skip
            wrong += [
                f"{process.address} has a copy of {region} without {name}"
                for region, loan in loans.items()
                if loan.until > now and region.hosts(point) and name not in loan.table.items
            ]
    return wrong


def balanced(net: Network) -> list[int]:
    """Entries by node, the fullest first."""
    counts = [sum(len(scheme._tables.at(home)) for home in scheme._home_manager.homes) for scheme in schemes(net)]
    return sorted(counts, reverse=True)
