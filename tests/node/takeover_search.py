"""Every state that one home can reach under the rules of takeover, within bounds, breadth first.

    python -m tests.node.takeover_search --takeovers 2 --writes 1 --crashes 1 --mutant "no lease"

A step is one message taken, one timer, one crash or one lost disk. Messages stay in the network, so that each may come
late, again, in any order, or never. A node's disk is its `Replica` and the log of its writes, and the grant of a lease
outlives a crash, since a member that restarts waits; all else is in memory.
"""

from __future__ import annotations

import argparse
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple
from unittest import mock

from meetpoint.api.ids import Key, NodeId
from meetpoint.node.cluster import takeover_rules as rules
from meetpoint.node.cluster.takeover_rules import Configuration, Epoch, Member, Position, Replica

__all__ = ["MUTANTS", "Bounds", "Found", "search"]

PUT, ERASE = "put", "erase"
NAMES = [NodeId(Key(bytes([number]))) for number in range(4)]
BLANK = Replica(Epoch(0, NodeId(Key(b""))), Position(Epoch(0, NodeId(Key(b""))), 0), Configuration(()))

Log = tuple[str, ...]


class Append(NamedTuple):
    """One write, for members that are where it begins; the first of an epoch is the epoch itself."""

    epoch: Epoch
    after: Position
    position: Position
    entry: Log
    configuration: Configuration


class Piece(NamedTuple):
    """One half of all that a host has, for members that have something else."""

    epoch: Epoch
    position: Position
    number: int
    entries: Log
    configuration: Configuration


class Ask(NamedTuple):
    epoch: Epoch


class Promise(NamedTuple):
    epoch: Epoch
    member: Member
    replica: Replica
    log: Log


class Ack(NamedTuple):
    member: Member
    position: Position


Packet = Append | Piece | Ask | Promise | Ack


class Node(NamedTuple):
    me: Member
    replica: Replica
    log: Log = ()
    granted: Epoch | None = None
    # in memory
    role: Literal["", "candidate", "host"] = ""
    promises: tuple[tuple[Member, Replica, Log], ...] = ()
    base: Position = BLANK.position
    """Where the epoch began: a member that was there needs no transfer."""
    configurations: tuple[tuple[int, Configuration], ...] = ()
    lengths: tuple[int, ...] = ()
    """How long the log was at each serial of the epoch."""
    acks: tuple[tuple[Member, Position], ...] = ()
    lease: tuple[Member, ...] = ()
    staged: tuple[Piece, ...] = ()

    @property
    def epoch(self) -> Epoch:
        return self.replica.promised

    def idle(self) -> Node:
        """Return this node without what is in memory."""
        return Node(self.me, self.replica, self.log, self.granted)


class State(NamedTuple):
    nodes: tuple[Node, ...]
    net: frozenset[Packet]
    acknowledged: frozenset[str] = frozenset()
    takeovers: int = 0
    writes: int = 0
    crashes: int = 0
    losses: int = 0
    changes: int = 0


class Bounds(NamedTuple):
    takeovers: int = 2
    writes: int = 1
    crashes: int = 1
    losses: int = 0
    changes: int = 0
    nodes: int = 3
    states: int = 3_000_000


class Found(NamedTuple):
    """What a search came to: how many states, whether those are all, and the story of a wrong one."""

    states: int
    complete: bool
    wrong: str = ""
    story: tuple[str, ...] = ()


MUTANTS = (
    "promise in memory",
    "old name",
    "merged by name",
    "half a transfer",
    "neighbours",
    "no lease",
    "no wait",
    "one step",
    "without the former",
)
"""A promise not on disk; a lost disk that answers as the old member; prefixes merged; a transfer that counts before its
end; any two nodes as a quorum; no lease; no wait after a restart; members changed in one step; and in two steps, but
without a majority of the former ones.
"""


class Search:
    def __init__(self, bounds: Bounds, mutant: str = "") -> None:
        assert mutant in ("", *MUTANTS)
        self.bounds, self.mutant = bounds, mutant
        members = tuple(Member(name, 0) for name in NAMES[:3])
        epoch = Epoch(1, NAMES[0])
        first = Replica(epoch, Position(epoch, 0), Configuration(members))
        nodes = [Node(member, first) for member in members]
        nodes[0] = nodes[0]._replace(
            role="host",
            base=first.position,
            configurations=((0, first.configuration),),
            lengths=(0,),
            acks=tuple((member, first.position) for member in members),
        )
        nodes += [Node(Member(name, 0), BLANK) for name in NAMES[3 : bounds.nodes]]
        self.start = State(tuple(nodes), frozenset())

    def run(self) -> Found:
        before: dict[State, tuple[State, str] | None] = {self.start: None}
        todo = deque([self.start])
        with mock.patch.object(rules, "is_quorum", self._is_quorum()):
            while todo:
                state = todo.popleft()
                for step, after in self.steps(state):
                    if after.losses == self.bounds.losses and self.mutant != "promise in memory":
                        after = _without_dead(after)
                    if after in before:
                        continue
                    before[after] = (state, step)
                    if wrong := self.wrong(after):
                        return Found(len(before), False, wrong, _story(before, after))
                    if len(before) >= self.bounds.states:
                        return Found(len(before), False)
                    todo.append(after)
        return Found(len(before), True)

    def _is_quorum(self) -> Callable[[Configuration, object], bool]:
        right = rules.is_quorum
        if self.mutant == "neighbours":
            return lambda _configuration, have: len(set(have)) >= 2  # type: ignore[call-overload]
        if self.mutant == "without the former":
            return lambda configuration, have: right(Configuration(configuration.members), have)  # type: ignore[arg-type]
        return right  # type: ignore[return-value]

    # -- steps ---------------------------------------------------------------------------------------------------------

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for i, node in enumerate(s.nodes):
            yield from self._timers(s, i, node)
            if node.role == "candidate":
                yield from self._elections(s, i, node)
            if node.role == "host":
                yield from self._hosting(s, i, node)
            for packet in s.net:
                yield from self._packets(s, i, node, packet)
            yield from self._accidents(s, i, node)

    def _timers(self, s: State, i: int, node: Node) -> Iterator[tuple[str, State]]:
        granted = node.granted is not None and self.mutant != "no lease"
        if (
            s.takeovers < self.bounds.takeovers
            and node.role != "host"
            and rules.may_campaign(node.replica, node.me, has_granted=granted)
        ):
            epoch = rules.next_epoch(node.replica, node.me.node)
            replica = node.replica._replace(promised=epoch)
            asking = node.idle()._replace(replica=replica, role="candidate", promises=((node.me, replica, node.log),))
            yield (
                f"{i} asks for promises of {epoch.number}",
                _put(s, i, asking, Ask(epoch))._replace(takeovers=s.takeovers + 1),
            )
        if node.lease:
            yield f"the lease of {i} ends", _put(s, i, node._replace(lease=()))
        if node.granted is not None and not any(
            node.me in other.lease and other.epoch == node.granted for other in s.nodes
        ):
            yield f"the grant of {i} ends", _put(s, i, node._replace(granted=None))

    def _elections(self, s: State, i: int, node: Node) -> Iterator[tuple[str, State]]:
        best = rules.elected({member: replica for member, replica, _ in node.promises})
        if best is None:
            return
        replica, log = next((replica, log) for member, replica, log in node.promises if member == best)
        if self.mutant == "merged by name":
            log = _merged(log, [other for _, _, other in node.promises])
        position = Position(node.epoch, 0)
        host = node._replace(
            replica=Replica(node.epoch, position, replica.configuration),
            log=log,
            role="host",
            promises=(),
            base=replica.position,
            configurations=((0, replica.configuration),),
            lengths=(len(log),),
            acks=((node.me, position),),
            granted=node.epoch,
        )
        begin = Append(node.epoch, replica.position, position, (), replica.configuration)
        yield f"{i} hosts {node.epoch.number} from {_at(replica.position)}", _put(s, i, host, begin)

    def _hosting(self, s: State, i: int, node: Node) -> Iterator[tuple[str, State]]:
        serial = node.replica.position.serial
        done = rules.committed(node.epoch, serial, node.configurations, dict(node.acks))
        if s.writes < self.bounds.writes:
            entry = ERASE if PUT in node.log else PUT
            if entry not in node.log:
                yield f"{i} writes {entry}", self._write(s, i, node, (entry,))._replace(writes=s.writes + 1)
        configuration = node.replica.configuration
        if s.changes < self.bounds.changes and rules.may_change(configuration, done):
            for new in self._newcomers(s, configuration):
                changed = Configuration(new) if self.mutant == "one step" else rules.joint(configuration, new)
                yield (
                    f"{i} changes members to {_names(new)}",
                    self._write(s, i, node, (), changed)._replace(changes=s.changes + 1),
                )
        if configuration.former and done == serial:
            yield f"{i} ends the change", self._write(s, i, node, (), rules.settled(configuration))
        if done is not None:
            acknowledged = s.acknowledged | set(node.log[: node.lengths[done]])
            if acknowledged != s.acknowledged:
                yield f"{i} acknowledges {sorted(acknowledged)}", s._replace(acknowledged=acknowledged)
        grants = tuple(each.me for each in s.nodes if each.granted == node.epoch)
        if not node.lease and rules.serves(configuration, done, grants):
            yield f"{i} serves", _put(s, i, node._replace(lease=grants))
        appended = {p.position for p in s.net if isinstance(p, Append) and p.epoch == node.epoch} | {node.base}
        if any(n.me in configuration.everyone and n.replica.position not in appended for n in s.nodes):
            half = (len(node.log) + 1) // 2
            at = node.replica.position
            pieces = [
                Piece(node.epoch, at, n, part, configuration)
                for n, part in enumerate((node.log[:half], node.log[half:]))
            ]
            if not s.net.issuperset(pieces):
                yield f"{i} sends all of {_at(at)}", s._replace(net=s.net | set(pieces))

    def _write(self, s: State, i: int, node: Node, entry: Log, configuration: Configuration | None = None) -> State:
        at = node.replica.position
        position = Position(node.epoch, at.serial + 1)
        configurations = node.configurations
        if configuration is not None:
            configurations = (*configurations, (position.serial, configuration))
        current = configurations[-1][1]
        acks = tuple(sorted({**dict(node.acks), node.me: position}.items()))
        host = node._replace(
            replica=Replica(node.epoch, position, current),
            log=node.log + entry,
            configurations=configurations,
            lengths=(*node.lengths, len(node.log + entry)),
            acks=acks,
        )
        return _put(s, i, host, Append(node.epoch, at, position, entry, current))

    def _newcomers(self, s: State, configuration: Configuration) -> Iterator[tuple[Member, ...]]:
        """Yield members with one replaced: by a new disk of its node, or the last of them by a node that is none."""
        for node in s.nodes:
            if node.me not in configuration.members:
                same = [m for m in configuration.members if m.node == node.me.node]
                old = same[0] if same else configuration.members[-1]
                yield tuple(node.me if m == old else m for m in configuration.members)

    def _packets(self, s: State, i: int, node: Node, packet: Packet) -> Iterator[tuple[str, State]]:
        if isinstance(packet, Ask):
            granted = node.granted is not None and self.mutant != "no lease"
            is_member = node.me in node.replica.configuration.everyone
            if is_member and rules.may_promise(node.replica, packet.epoch, has_granted=granted):
                promised = node.idle()._replace(replica=node.replica._replace(promised=packet.epoch))
                if self.mutant == "no lease":
                    promised = promised._replace(lease=node.lease)
                answer = Promise(packet.epoch, node.me, promised.replica, node.log)
                yield f"{i} promises {packet.epoch.number}", _put(s, i, promised, answer)
        elif isinstance(packet, Promise):
            if (
                node.role == "candidate"
                and packet.epoch == node.epoch
                and all(member != packet.member for member, _, _ in node.promises)
            ):
                promises = tuple(sorted((*node.promises, (packet.member, packet.replica, packet.log))))
                yield f"{i} has a promise of {_names([packet.member])}", _put(s, i, node._replace(promises=promises))
        elif isinstance(packet, Ack):
            if node.role == "host" and packet.position.epoch == node.epoch:
                acks = dict(node.acks)
                if acks.get(packet.member, BLANK.position) < packet.position:
                    acks[packet.member] = packet.position
                    yield (
                        f"{i} hears that {_names([packet.member])} has {_at(packet.position)}",
                        _put(s, i, node._replace(acks=tuple(sorted(acks.items())))),
                    )
        elif rules.accepts(node.replica, packet.epoch) and not (node.role == "host" and packet.epoch == node.epoch):
            if isinstance(packet, Append):
                yield from self._append(s, i, node, packet)
            else:
                yield from self._piece(s, i, node, packet)

    def _append(self, s: State, i: int, node: Node, packet: Append) -> Iterator[tuple[str, State]]:
        if node.replica.position == packet.after:
            log = node.log + packet.entry
        elif node.replica.position == packet.position:
            log = node.log  # again: it grants the lease again
        else:
            return
        yield f"{i} has {_at(packet.position)}", self._follow(s, i, node, packet, log)

    def _piece(self, s: State, i: int, node: Node, packet: Piece) -> Iterator[tuple[str, State]]:
        if node.replica.position >= packet.position:
            return
        staged = tuple(p for p in node.staged if (p.epoch, p.position) == (packet.epoch, packet.position))
        pieces = {p.number: p for p in (*staged, packet)}
        if len(pieces) == 2 or self.mutant == "half a transfer":
            log = tuple(entry for number in sorted(pieces) for entry in pieces[number].entries)
            yield f"{i} has all of {_at(packet.position)}", self._follow(s, i, node, packet, log)
        elif len(pieces) > len(staged):
            yield f"{i} has a half of {_at(packet.position)}", _put(s, i, node._replace(staged=(packet,)))

    def _follow(self, s: State, i: int, node: Node, packet: Append | Piece, log: Log) -> State:
        replica = Replica(packet.epoch, packet.position, packet.configuration)
        follower = Node(node.me, replica, log, granted=packet.epoch)
        return _put(s, i, follower, Ack(node.me, packet.position))

    def _accidents(self, s: State, i: int, node: Node) -> Iterator[tuple[str, State]]:
        if s.crashes < self.bounds.crashes:
            down = node.idle()
            if self.mutant == "promise in memory":
                down = down._replace(replica=down.replica._replace(promised=down.replica.position.epoch))
            if self.mutant == "no wait":
                down = down._replace(granted=None)
            if down != node:
                yield f"{i} crashes", _put(s, i, down)._replace(crashes=s.crashes + 1)
        if s.losses < self.bounds.losses and node.replica != BLANK:
            if self.mutant == "old name":
                blank = BLANK._replace(configuration=node.replica.configuration)
                lost = Node(node.me, blank)
            else:
                lost = Node(Member(node.me.node, node.me.disk + 1), BLANK)
            yield f"{i} loses its disk", _put(s, i, lost)._replace(losses=s.losses + 1)

    # -- what must not be ----------------------------------------------------------------------------------------------

    def wrong(self, s: State) -> str:
        serving = [node for node in s.nodes if node.lease]
        if len(serving) > 1:
            return "two hosts serve"
        for node in serving:
            if not s.acknowledged <= set(node.log):
                return "a host serves without an acknowledged write"
            if ERASE in s.acknowledged and node.log.index(ERASE) < len(node.log) - 1:
                return "an erased record is back"
        logs: dict[Position, tuple[Log, Configuration]] = {}
        for node in s.nodes:
            there = (node.log, node.replica.configuration)
            if node.replica != BLANK and logs.setdefault(node.replica.position, there) != there:
                return "one position, two logs"
        return ""


def _put(s: State, i: int, node: Node, *packets: Packet) -> State:
    return s._replace(nodes=(*s.nodes[:i], node, *s.nodes[i + 1 :]), net=s.net.union(packets))


def _without_dead(s: State) -> State:
    """Forget packets that nobody will ever take: their epoch has ended everywhere, as no promise is forgotten."""
    at_work = {(node.epoch, node.role) for node in s.nodes}
    oldest = min(node.epoch for node in s.nodes)
    net = frozenset(
        packet
        for packet in s.net
        if (
            (packet.epoch, "candidate") in at_work
            if isinstance(packet, Promise)
            else (packet.position.epoch, "host") in at_work
            if isinstance(packet, Ack)
            else packet.epoch > oldest
            if isinstance(packet, Ask)
            else packet.epoch >= oldest
        )
    )
    return s if len(net) == len(s.net) else s._replace(net=net)


def _merged(log: Log, others: list[Log]) -> Log:
    live = {PUT for other in others if PUT in other and ERASE not in other}
    return log + tuple(name for name in sorted(live) if log[-1:] == (ERASE,))


def _at(position: Position) -> str:
    return f"{position.epoch.number}.{position.serial}"


def _names(members: object) -> str:
    return " ".join(f"{m.node[0]}{chr(39) * m.disk}" for m in members)  # type: ignore[attr-defined]


def _story(before: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    story = []
    while (last := before[state]) is not None:
        state, step = last
        story.append(step)
    return tuple(reversed(story))


def search(bounds: Bounds, mutant: str = "") -> Found:
    """Search all states within bounds, until one is wrong."""
    return Search(bounds, mutant).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, default in Bounds()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--mutant", default="", choices=("", *MUTANTS))
    given = vars(parser.parse_args())
    found = search(mutant=given.pop("mutant"), bounds=Bounds(**given))
    sys.stdout.write(
        f"{found.wrong or 'nothing wrong'}: {found.states:,} states{'' if found.complete else ', not all'}\n"
    )
    sys.stdout.writelines(f"  {step}\n" for step in found.story)
