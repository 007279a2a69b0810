"""Whole networks: what an event costs on a hypercube at rest; and nothing is missed under faults, on any overlay."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest

from meetpoint.api.ids import EventKey, Peer
from meetpoint.api.messages import Message
from meetpoint.catalog import OVERLAYS, NetworkConfig
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.scenario import Network
from meetpoint.node.home.subscription_table import attributes_of
from meetpoint.overlays.hypercube import Region
from meetpoint.overlays.hypercube.messages import HypercubeRouted
from meetpoint.placement.messages import KeyedRequest
from meetpoint.schemes.reach import ReachSettings
from meetpoint.schemes.reach.messages import DutyRequest
from tests.placement.eyes import schemes
from tests.schemes.busy import FAULTS, OVERLAYS_AND_FAULTS, Busy, judge, network

NAMES = "abcdefg"
SCHEMA = "attributes:\n" + "".join(f"  {name}: integer\n" for name in NAMES)
PLAIN = ReachSettings(schema=SCHEMA, quench="unquenched", copies="uncopied", pushing="unpushed")
FIGURE_2 = 0b1100111


def configured(settings: ReachSettings, overlay: str = "hypercube") -> NetworkConfig:
    """A network that runs `reach`."""
    return NetworkConfig(overlay=overlay, scheme="reach", reach=settings)


# -- what an event costs -----------------------------------------------------------------------------------------------


class Sends:
    """Reads along: by event, the nodes from and to which messages with a duty went."""

    def __init__(self, net: Network) -> None:
        self._codec: Any = net.family.codec
        self.went: dict[EventKey, list[tuple[bytes, bytes]]] = {}
        self.ids: dict[EventKey, int] = {}
        net.observe(self)

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        inner: Any = message
        while not isinstance(inner, DutyRequest):
            if not isinstance(inner, HypercubeRouted | KeyedRequest):
                return
            inner = self._codec.decode(inner.body)
        self.went.setdefault(inner.event, []).append((bytes(source.peer.id), bytes(to.id)))
        attributes = attributes_of(inner.content)
        self.ids[inner.event] = sum(1 << place for place, name in enumerate(NAMES) if name in attributes)

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        """Counted when it was sent."""

    def happened(self, now: int, process: Process, thing: object) -> None:
        """No matter."""


def regions(net: Network) -> dict[bytes, Region]:
    """By node, its region."""
    found = {}
    for process in net.cluster.processes:
        view: Any = process.node.overlay.view()  # type: ignore[union-attr]
        ((region, _),) = view.pieces
        found[bytes(process.peer.id)] = region
    return found


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 1, 3, 4])
def test_with_ids_of_one_length_an_event_takes_2_to_the_b_less_1_and_l_sends(length: int) -> None:
    """Figure 2 has 16 nodes, and n = 7; the node of the empty suffix is one of those that are required."""
    net = network(configured(PLAIN), 1 << length, length)
    sends = Sends(net)
    random = Random(length)
    for _ in range(6):
        names = [name for name in NAMES if random.random() < 0.4]
        net.subscribe(" AND ".join(f"{name} = 1" for name in names) or "TRUE")
    events = [FIGURE_2, *(random.randrange(1 << len(NAMES)) for _ in range(25))]
    for event in events:
        net.publish({name: 1 for place, name in enumerate(NAMES) if event >> place & 1}, phase="after")
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert report.event_hops.max <= 2 * length, "to the root, and from there down"
    place = regions(net)
    assert sorted(place.values()) == [Region(bits, length) for bits in range(1 << length)]
    suffixes = [event & (1 << length) - 1 for event in events]
    assert report.observed["regions_served"] == sum(2 ** suffix.bit_count() for suffix in suffixes)
    for key, went in sends.went.items():
        suffix = sends.ids[key] & (1 << length) - 1
        path = [(place[source], place[to]) for source, to in went]
        way = (place[key.home].bits ^ suffix).bit_count()
        assert len(went) == 2 ** suffix.bit_count() - 1 + way
        assert all((source.bits ^ to.bits).bit_count() == 1 for source, to in path), "to neighbours"
        reached = sorted([suffix, *(to.bits for _, to in path[way:])])
        assert reached == [bits for bits in range(1 << length) if bits & ~suffix == 0], "each once, and 0 too"
        assert not way or path[way - 1][1].bits == suffix
    assert length < 3 or FIGURE_2 in sends.ids.values()


# -- under faults ------------------------------------------------------------------------------------------------------


def draw_filter(random: Random) -> str:
    def one() -> str:
        name = random.choice(NAMES[:5])
        return random.choice((f"{name} = {random.randrange(4)}", f"{name} > 1", f"{name} IS NULL", f"{name} IN (1, 3)"))

    either = [" AND ".join(one() for _ in range(random.randrange(1, 4))) for _ in range(random.choice((1, 1, 2)))]
    return " OR ".join(f"({each})" for each in either)


def draw_event(random: Random) -> dict[str, object]:
    return {name: random.randrange(4) for name in NAMES if random.random() < 0.5}


BUSY = Busy(draw_filter=draw_filter, draw_event=draw_event, subscriptions=24, ended=10, changed=6, added=10, events=50)


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"ids": "signatures", "width": 8},
    {"quench": "unquenched", "copies": "uncopied", "pushing": "unpushed"},
    {"ids": "signatures", "schema": "", "width": 40},
)


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "faults"), OVERLAYS_AND_FAULTS)
def test_whatever_befalls_a_network_nothing_is_missed(overlay: str, faults: str) -> None:
    seed = 2 * FAULTS.index(faults) + list(OVERLAYS).index(overlay)
    settings = msgspec.structs.replace(ReachSettings(schema=SCHEMA), **OPTIONS[seed % len(OPTIONS)])
    net = network(configured(settings, overlay), 10, seed, faults, founders=5 if seed % 2 else None)
    observed = judge(BUSY.keep(net, Random(f"reach/{seed}")), "_overparted", "_crowded")
    assert observed["reach_served"] > 50
    assert [each for scheme in schemes(net) for each in scheme._duties.under_way()] == []
