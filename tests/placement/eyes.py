"""Looks into all nodes of a simulated network at once: who holds which keys, and what is placed where."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from meetpoint.api.ids import home_of
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.scenario import Network
from meetpoint.node.home.home import Home
from meetpoint.placement.entries.installer import entry_name
from meetpoint.placement.entries.placement import Placement
from meetpoint.placement.key_range import KeyRange, arc_of, meets, without
from meetpoint.placement.messages import Entry
from meetpoint.placement.ownership.ownership import Ownership


class Overseen:
    """A network that is looked at after every so many steps of nodes: what is wrong then ends the run."""

    def __init__(self, net: Network, look: Callable[[], list[str]], every: int) -> None:
        self._net = net
        self._look = look
        self._every = every
        self._steps = 0
        self._before = net.engine.after_step
        self.looks = 0
        net.engine.after_step = self._stepped

    def _stepped(self, process: Process) -> None:
        assert self._before is not None
        self._before(process)
        self._steps += 1
        if not self._steps % self._every:
            self.looks += 1
            wrong = self._look()
            assert not wrong, f"{wrong[0]} at {self._net.engine.now}"


def nodes_up(net: Network) -> Iterator[tuple[Process, Any]]:
    """All nodes that are up, with their processes."""
    for process in net.cluster.processes:
        if process.alive and process.node is not None:
            yield process, process.node


def schemes(net: Network) -> Iterator[Any]:
    """The schemes of all nodes that are up."""
    for _, node in nodes_up(net):
        yield node.scheme


def parts(net: Network) -> Iterator[tuple[str, Ownership, Placement, dict[bytes, Home]]]:
    """The parts of all nodes that are up."""
    for process, node in nodes_up(net):
        yield process.address, node.scheme._ownership, node.scheme._placement, node.home_manager.homes


def arcs_held(net: Network) -> list[tuple[str, KeyRange]]:
    """All arcs that some home answers for."""
    return [
        (f"{address}/{home.hex()[:6]}", arc)
        for address, ownership, _, _ in parts(net)
        for home, owned in ownership.owned_ranges.items()
        for arc in owned.arcs
    ]


def held_twice(net: Network) -> list[str]:
    """Keys that two homes answer for; there are none at any moment."""
    held = arcs_held(net)
    return [
        f"{one} and {other} both hold {arc.high.hex()}"
        for at, (one, arc) in enumerate(held)
        for other, another in held[at + 1 :]
        if another.holds(arc.high) or arc.holds(another.high)
    ]


def held_by_nobody(net: Network) -> list[str]:
    """Keys that nobody answers for; there are none when all is quiet."""
    held = arcs_held(net)
    ring = net.family.ring
    return [f"nobody holds what follows {arc.high.hex()}" for _, arc in held
            if not any(other.holds(ring.add(arc.high, 1)) for _, other in held)]  # fmt: skip


def led_elsewhere(net: Network) -> list[str]:
    """What homes hold and the overlay, which says whose keys are, leads elsewhere; nothing when all is quiet."""
    wrong = []
    for process, node in nodes_up(net):
        mine = [arc_of(net.family.ring, span) for span in node.overlay.places.mine() or ()]
        for home, owned in node.scheme._ownership.owned_ranges.items():
            here = mine if home == home_of(node.me.id) else []
            if without(net.family.ring, owned.arcs, here) or owned.given or owned.taken or not owned.placed:
                wrong.append(f"{process.address}/{home.hex()[:6]} holds {owned}, and {here} lead there")
    return wrong


def misplaced(net: Network) -> list[str]:
    """Entries that are not where they belong, or are where nobody wants them; there are none when all is quiet."""
    return misplaced_among(list(parts(net)))


def misplaced_among(seen: Sequence[tuple[str, Ownership, Placement, Container[bytes]]]) -> list[str]:
    """The same, of some nodes."""
    wanted: dict[str, Entry] = {}
    for _, _, placement, homes in seen:
        for home, places in placement._places.items():
            assert home in homes
            for each in places.values():
                assert not each.open, "something is still to be placed"
                for placed in (*each.entries.values(), *each.leaving.values()):
                    wanted[entry_name(home, placed.number)] = placed.at
    wrong = []
    for address, ownership, _, _ in seen:
        for home, owned in ownership.owned_ranges.items():
            there = ownership.entries[home]
            for name, entry in wanted.items():
                if name not in there and any(meets(arc, entry.low, entry.high) for arc in owned.arcs):
                    wrong.append(f"{address}/{home.hex()[:6]} lacks {name}")
            for name, entry in there.items():
                if not name.startswith(("crowded/", "pushed/")) and wanted.get(name) != entry:
                    wrong.append(f"{address}/{home.hex()[:6]} has {name}, which nobody wants")
    return wrong
