"""The processes of a simulated network, the true list of members, and the watch over the overlay's invariants.

A node is made anew for every life of its process. It gets what is on its disk as it starts; its random numbers and its
clock are other ones each time. It knows some addresses to begin with (`contacts`), as a configuration file would name
them.

`InvariantWatch` sees all nodes at once, which no node can. Under a perfect failure detector the overlay's invariant
must hold after every step, and a node may fail only where the invariant still holds without it. Otherwise the
invariant must hold from the stated time after healing on. All views are looked at again only when some view has
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Protocol

from meetpoint.api.ids import NodeId, Peer
from meetpoint.api.requests import Leave
from meetpoint.lab.sim.devices import Disk, show
from meetpoint.lab.sim.engine import Codec, Engine, Process, SimulatedNode
from meetpoint.lab.sim.judge import MembershipHistory
from meetpoint.node.runtime.inputs import ClientRequest, Started
from meetpoint.node.runtime.ring import Ring

CONTACTS_MAX = 16
"""The number of addresses that a starting node is given."""

LEAVE_REQUEST = 0
"""The number under which a process is asked to leave; those of clients begin above."""


class NodeFamily(Protocol):
    """A kind of network: how its nodes are made, and which of their state may be seen."""

    @property
    def codec(self) -> Codec:
        """The codec of their messages."""

    @property
    def ring(self) -> Ring:
        """The ring of their ids."""

    def make(self, peer: Peer, seed: int) -> SimulatedNode: ...

    def read_view(self, node: Any) -> Callable[[], object]:
        """Return a function that gives the node's part of the overlay: the same object until it changes."""

    def is_member(self, view: Any) -> bool:
        """Return whether a node with such a view has become a member and still is one."""

    def place(self, view: Any) -> object:
        """Return the part of a member's view that decides its keys, beside its id; None where its id is enough."""


class Cluster:
    """All processes, and the true list of members."""

    def __init__(self, engine: Engine, family: NodeFamily, seed: int) -> None:
        self.engine = engine
        self.family = family
        self.seed = seed
        self.truth = MembershipHistory()
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
        """All processes that have not left, in the order in which they came."""
        return [process for process in self.engine.processes.values() if not process.gone]

    def alive(self) -> Sequence[Process]:
        """Return all processes that are up."""
        if self._alive is None:
            self._alive = [process for process in self.engine.processes.values() if process.alive]
        return self._alive

    def down(self) -> list[Process]:
        """Return all processes that are down and will come back."""
        return [process for process in self.engine.processes.values() if not process.alive and not process.gone]

    def members(self) -> list[Process]:
        """Return all processes that are up and have joined."""
        return [process for process in self.engine.processes.values() if process.address in self._member]

    def is_member(self, process: Process) -> bool:
        return process.address in self._member

    def is_needed(self, process: Process) -> bool:
        """Return whether some joining process was told of no other member that stays."""
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
            self.engine.feed(process, Started(founders=founders))
        return processes

    def join(self) -> Process:
        """Add one more node."""
        process = self._add()
        contacts = self._contacts(process)
        self._start(process, contacts)
        self.engine.feed(process, Started(contacts=contacts))
        return process

    def restart(self, process: Process) -> None:
        """Restart a process that is down, with the records of its disk."""
        contacts = self._contacts(process)
        self._start(process, contacts)
        self.engine.feed(process, Started(process.disk.recover(), (), contacts))

    def _add(self) -> Process:
        """Add an address; its id is drawn, and drawn again where a small ring has it already."""
        ring, number = self.family.ring, len(self.engine.processes)
        # Ids collide on small rings only; on large ones the set of all would cost more than it prevents.
        taken = {process.peer.id for process in self.engine.processes.values()} if ring.bits < 64 else set()
        attempt = 0
        while True:
            id_ = NodeId(ring.hash(b"node %d of %d, attempt %d" % (number, self.seed, attempt)))
            if id_ not in taken:
                return self.engine.add(Peer(id_, f"n{number}"))
            attempt += 1
            assert attempt < 1000 * ring.size, "the ring is full"

    def _contacts(self, process: Process) -> tuple[Peer, ...]:
        """Return current members if there are some, and processes that may come back."""
        first = [other for other in self.members() if other is not process]
        others = [other for other in self.processes if other is not process and other.address not in self._member]
        self._random.shuffle(first)
        self._random.shuffle(others)
        return tuple(other.peer for other in (first + others)[:CONTACTS_MAX])

    def _start(self, process: Process, contacts: tuple[Peer, ...]) -> None:
        # Each life has its own seed: otherwise one more restart would change the draws of all other nodes.
        drawn = Random(f"life/{self.seed}/{process.index}/{process.epoch}")
        process.skew_us, process.drift = (0, 0.0) if self.skew is None else self.skew(drawn)
        self._waiting[process.address] = tuple(peer.address for peer in contacts)
        node = self.family.make(process.peer, drawn.getrandbits(63))
        process.read_view = self.family.read_view(node)
        self._alive = None
        self.engine.start(process, node)

    # -- ending --------------------------------------------------------------------------------------------------------

    def crash(self, process: Process, *, lose_disk: bool = False) -> int:
        """Crash a process; return how many unsynced tickets went with it."""
        self._word(process, "crashes, and its disk is lost" if lose_disk else "crashes")
        lost = self.engine.kill(process)
        if lose_disk:
            process.disk = Disk()
        self._end(process)
        return lost

    def leave(self, process: Process) -> None:
        """Ask a process to leave; it goes when it has handed everything over."""
        self.leaving[process.address] = self.engine.now
        self.engine.feed(process, ClientRequest(LEAVE_REQUEST, Leave()))

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

    def update_membership(self, process: Process) -> None:
        """Update the true list of members after a change of a process's view."""
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
        if self.engine.observer is not None:
            self.engine.observer.happened(self.engine.now, process, word)


# -- the overlay as a whole --------------------------------------------------------------------------------------------


BROKEN_MAX = 100
"""The most broken invariants that are reported before a run stops looking."""


class OverlayInvariant(Protocol):
    """The invariant of an overlay as a whole; each overlay has its own."""

    def differ(self, old: Any, new: Any) -> bool:
        """Return whether two views of a node differ in the parts that `broken` looks at."""

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        """Return the fault of the overlay, in a sentence, or None."""

    def stands(self, views: Mapping[bytes, Any]) -> bool:
        """Return whether the overlay's operating assumption allows these to be all that are left."""

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        """Return the deviation from the ideal some time after the last change, or None."""


class InvariantWatch:
    """A collector of broken invariants. `active` says whether they count now."""

    def __init__(self, cluster: Cluster, invariant: OverlayInvariant) -> None:
        self.active = False
        self.broken: list[str] = []
        self.looked = 0
        self._cluster = cluster
        self._invariant = invariant
        cluster.on_end.append(self._ended)

    def begin(self) -> None:
        """Count broken invariants from now on."""
        self.active = True
        self._judge("when it began to count")

    def view_changed(self, process: Process, old: object, new: object) -> None:
        """Check the invariant after a change of a process's view."""
        if self.active and (old is None or self._invariant.differ(old, new)):
            self._judge(f"after a step of {process.address}")

    def _ended(self, process: Process) -> None:
        if self.active:
            self._judge(f"after the end of {process.address}")

    def _judge(self, when: str) -> None:
        self.looked += 1
        views = self.views()
        wrong = self._invariant.broken(views) if views else None
        if wrong is not None and len(self.broken) < BROKEN_MAX:
            self.broken.append(f"at {show(self._cluster.engine.now)}, {when}: {wrong}")

    def views(self) -> dict[bytes, Any]:
        """Return the views of all members that are up."""
        return {process.peer.id: process.view for process in self._cluster.members()}

    def is_ideal(self) -> str | None:
        """Return the deviation from the ideal now, or None."""
        views = self.views()
        return self._invariant.departures(views) if views else "nobody is a member"

    def may_fail(self, process: Process) -> bool:
        """Return whether the overlay's operating assumption allows a process to fail now.

        A leaving process fails too, as the overlay sees it, but only it knows when: until then no other may.
        """
        # A leaving node may be gone before the failure takes effect, and two would be missing.
        if self._cluster.leaving:
            return False
        rest = self.views()
        return rest.pop(process.peer.id, None) is None or self._invariant.stands(rest)
