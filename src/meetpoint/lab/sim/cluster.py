"""The processes of a simulated network: how they begin, join, die, come back and leave; and who is a member when.

A node is made anew for every life of its process. What is on its disk is handed to it as it starts; its random numbers
and its clock are other ones each time. It knows some addresses to begin with (`contacts`), as a configuration file
would name them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.requests import Leave
from meetpoint.lab.sim.engine import Codec, Engine, Process, SimulatedNode
from meetpoint.lab.sim.faults.disk import Disk
from meetpoint.lab.sim.judge.history import Truth
from meetpoint.node.runtime.inputs import ClientRequest, Started
from meetpoint.node.runtime.ring import Ring

__all__ = ["CONTACTS_MAX", "Cluster", "Family"]

CONTACTS_MAX = 16
"""How many addresses a starting node is given."""

LEAVE_REQUEST = 0
"""The number under which a process is asked to leave; those of clients begin above."""


class Family(Protocol):
    """How the nodes of one kind of network are made, and what may be seen of them."""

    @property
    def codec(self) -> Codec:
        """The messages they speak."""

    @property
    def ring(self) -> Ring:
        """Their ids."""

    def make(self, peer: Peer, seed: int) -> SimulatedNode:
        """A new node."""

    def viewing(self, node: Any) -> Callable[[], object]:
        """What gives the node's part of the overlay: the same object as long as nothing in it changes."""

    def is_member(self, view: Any) -> bool:
        """Whether a node with such a view has become a member and still is one."""

    def place(self, view: Any) -> object:
        """What of a member's view decides which keys are its, beside its id; None where its id says all."""


class Cluster:
    """All processes, and the true list of members."""

    def __init__(self, engine: Engine, family: Family, seed: int) -> None:
        self.engine = engine
        self.family = family
        self.seed = seed
        self.truth = Truth()
        self.leaving: dict[str, int] = {}
        self.left = 0
        self.skew: Callable[[Random], tuple[int, float]] | None = None
        self.on_end: list[Callable[[Process], None]] = []
        self._random = Random(f"cluster/{seed}")
        self._alive: list[Process] | None = None
        self._member: dict[str, bytes] = {}
        self._place: dict[str, object] = {}
        self._waiting: dict[str, tuple[str, ...]] = {}
        engine.on_stop = self._stopped

    # -- who there is --------------------------------------------------------------------------------------------------

    @property
    def processes(self) -> list[Process]:
        """All that have not left, in the order in which they came."""
        return [process for process in self.engine.processes.values() if not process.gone]

    def alive(self) -> Sequence[Process]:
        """All that are up."""
        if self._alive is None:
            self._alive = [process for process in self.engine.processes.values() if process.alive]
        return self._alive

    def down(self) -> list[Process]:
        """All that are down and will come back."""
        return [process for process in self.engine.processes.values() if not process.alive and not process.gone]

    def members(self) -> list[Process]:
        """All that are up and have joined."""
        return [process for process in self.engine.processes.values() if process.address in self._member]

    def is_member(self, process: Process) -> bool:
        """Whether a process is one of them."""
        return process.address in self._member

    def is_needed(self, process: Process) -> bool:
        """Whether some process that wants to join was told of no other one that is a member and stays."""
        staying = self._member.keys() - self.leaving.keys() - {process.address}
        return any(
            process.address in contacts and not any(contact in staying for contact in contacts)
            for contacts in self._waiting.values()
        )

    # -- beginning -----------------------------------------------------------------------------------------------------

    def found(self, count: int) -> list[Process]:
        """Begin a network of so many nodes at once."""
        processes = [self._add() for _ in range(count)]
        founders = tuple(sorted(process.peer for process in processes))
        for process in processes:  # all are up before the first says a word
            self._start(process, ())
        for process in processes:
            self.engine.hand(process, Started(founders=founders))
        return processes

    def join(self) -> Process:
        """One more node."""
        process = self._add()
        contacts = self._contacts(process)
        self._start(process, contacts)
        self.engine.hand(process, Started(contacts=contacts))
        return process

    def restart(self, process: Process) -> None:
        """A process that is down comes back with what its disk holds."""
        contacts = self._contacts(process)
        self._start(process, contacts)
        self.engine.hand(process, Started(process.disk.recover(), (), contacts))

    def _add(self) -> Process:
        """A new address; its id is drawn, and drawn again where a small ring has it already."""
        ring, number = self.family.ring, len(self.engine.processes)
        taken = {process.peer.id for process in self.engine.processes.values()} if ring.bits < 64 else set()
        attempt = 0
        while True:
            id_ = NodeId(ring.hash(b"node %d of %d, attempt %d" % (number, self.seed, attempt)))
            if id_ not in taken:
                return self.engine.add(Peer(id_, f"n{number}"))
            attempt += 1
            assert attempt < 1000 * ring.size, "the ring is full"

    def _contacts(self, process: Process) -> tuple[Peer, ...]:
        """Members of now if there are some, and whoever else may come back."""
        first = [other for other in self.members() if other is not process]
        others = [other for other in self.processes if other is not process and other.address not in self._member]
        self._random.shuffle(first)
        self._random.shuffle(others)
        return tuple(other.peer for other in (first + others)[:CONTACTS_MAX])

    def _start(self, process: Process, contacts: tuple[Peer, ...]) -> None:
        drawn = Random(f"life/{self.seed}/{process.index}/{process.epoch}")
        process.skew_us, process.drift = (0, 0.0) if self.skew is None else self.skew(drawn)
        self._waiting[process.address] = tuple(peer.address for peer in contacts)
        node = self.family.make(process.peer, drawn.getrandbits(63))
        process.viewing = self.family.viewing(node)
        self._alive = None
        self.engine.start(process, node)

    # -- ending --------------------------------------------------------------------------------------------------------

    def crash(self, process: Process, *, lose_disk: bool = False) -> int:
        """A process dies; returns how many unsynced tickets went with it."""
        self._word(process, "crashes, and its disk is lost" if lose_disk else "crashes")
        lost = self.engine.kill(process)
        if lose_disk:
            process.disk = Disk()
        self._end(process)
        return lost

    def leave(self, process: Process) -> None:
        """Ask a process to leave; it goes when it has handed everything over."""
        self.leaving[process.address] = self.engine.now
        self.engine.hand(process, ClientRequest(LEAVE_REQUEST, Leave()))

    def _stopped(self, process: Process) -> None:
        self.left += 1
        self._end(process)

    def _end(self, process: Process) -> None:
        self._alive = None
        self.leaving.pop(process.address, None)
        self._waiting.pop(process.address, None)
        self._cease(process)
        for listener in self.on_end:
            listener(process)

    def _cease(self, process: Process) -> None:
        id_ = self._member.pop(process.address, None)
        self._place.pop(process.address, None)
        if id_ is not None:
            self.truth.change(self.engine.now, id_, member=False)

    def look(self, process: Process) -> None:
        """The view of a process has changed: see whether it has become a member, and where, or is one no longer."""
        address, id_ = process.address, process.peer.id
        if not process.alive:
            return
        if not self.family.is_member(process.view):
            self._cease(process)
            return
        place = self.family.place(process.view)
        if address not in self._member or place != self._place[address]:
            self._member[address], self._place[address] = id_, place
            self._waiting.pop(address, None)
            self.truth.change(self.engine.now, id_, member=True, place=place)

    def _word(self, process: Process, word: str) -> None:
        if self.engine.story is not None:
            self.engine.story.happened(self.engine.now, process, word)
