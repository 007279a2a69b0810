"""Rules by which a home outlives its broker: who may host it, what counts as written, and who may serve.

A home is replicated on an *ensemble*: its host and its replicas. The rules follow Viewstamped Replication Revisited
(Liskov, Cowling 2012) and Raft (Ongaro, Ousterhout 2014), with leases.

1. A **member** is one disk of one node. A node that lost its disk forgot its promises, so it is another member, and its
   word counts for nothing until a change of members has let it in.
2. A **configuration** names the members. While members change, two of them count: a quorum is a majority of each.
3. A **position** is an epoch and a serial within it. Only the host of an epoch gives out its serials, one by one. So a
   position names one sequence of writes, and a replica at a position has a prefix of its host's writes.
4. A member keeps the highest epoch it has **promised**, on disk, and refuses all that comes under a lower one.
5. A **candidate** asks for promises of an epoch that nobody used. With promises of a quorum it takes the prefix of the
   highest position among them, with its configuration. It never merges prefixes: an erased record would come back.
6. A **host** begins its epoch by writing itself down at serial 0. A write is committed when a quorum has its position,
   and the host serves nothing before serial 0 is committed.
7. A host **serves** only within a lease: a quorum has granted it, each member by its answer. A member that granted a
   lease promises no epoch before that lease, with a clock margin, has ended, and it waits as long after a restart.
8. Members **change** in two steps. The joint configuration is written first; when it is committed, the new one. A
   change begins only after serial 0 is committed, one at a time.

All functions here are pure, and no node is driven by them yet: replication still asks every member (`replication`).
`tests/node/test_takeover_search.py` searches their states, with mutants that must fail.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from meetpoint.api.ids import NodeId

__all__ = [
    "Configuration",
    "Epoch",
    "Member",
    "Position",
    "Replica",
    "accepts",
    "committed",
    "elected",
    "is_quorum",
    "joint",
    "may_campaign",
    "may_change",
    "may_promise",
    "next_epoch",
    "serves",
    "settled",
]


class Member(NamedTuple):
    """A disk of a node, by the identity that was drawn when the disk was first used."""

    node: NodeId
    disk: int


class Epoch(NamedTuple):
    """The reign of one host. The node that asked for it is part of it, so that no two candidates share an epoch."""

    number: int
    node: NodeId


class Position(NamedTuple):
    """A place in the writes of a home."""

    epoch: Epoch
    serial: int


class Configuration(NamedTuple):
    """The members of an ensemble, and the former ones while they change."""

    members: tuple[Member, ...]
    former: tuple[Member, ...] = ()

    @property
    def everyone(self) -> frozenset[Member]:
        """All whose answers count."""
        return frozenset((*self.members, *self.former))


class Replica(NamedTuple):
    """The part of a member's disk that the rules read; the records of the home lie beside it."""

    promised: Epoch
    position: Position
    configuration: Configuration


# -- quorums and configurations ----------------------------------------------------------------------------------------


def is_quorum(configuration: Configuration, have: Collection[Member]) -> bool:
    """Return whether some members are a majority, of the former configuration too while members change."""
    return _is_majority(configuration.members, have) and (
        not configuration.former or _is_majority(configuration.former, have)
    )


def _is_majority(members: Sequence[Member], have: Collection[Member]) -> bool:
    return 2 * sum(member in have for member in members) > len(members)


def joint(configuration: Configuration, members: tuple[Member, ...]) -> Configuration:
    """Return the first step of a change to new members."""
    assert not configuration.former, "one change at a time"
    return Configuration(members, configuration.members)


def settled(configuration: Configuration) -> Configuration:
    """Return the second step of a change: the new members alone."""
    return Configuration(configuration.members)


# -- members -----------------------------------------------------------------------------------------------------------


def may_promise(replica: Replica, epoch: Epoch, *, has_granted: bool) -> bool:
    """Return whether a member may promise an epoch: a higher one than ever, and no lease that it granted runs."""
    return epoch > replica.promised and not has_granted


def accepts(replica: Replica, epoch: Epoch) -> bool:
    """Return whether a member takes writes of an epoch."""
    return epoch >= replica.promised


# -- candidates --------------------------------------------------------------------------------------------------------


def may_campaign(replica: Replica, me: Member, *, has_granted: bool) -> bool:
    """Return whether a member may ask for promises; a lease that it granted holds for itself too."""
    return me in replica.configuration.everyone and not has_granted


def next_epoch(replica: Replica, node: NodeId) -> Epoch:
    """Return an epoch that nobody used: above all that this member knows, and of this node alone."""
    return Epoch(max(replica.promised, replica.position.epoch).number + 1, node)


def elected(promises: Mapping[Member, Replica]) -> Member | None:
    """Return the member whose prefix the candidate takes, or None while the promises are no quorum.

    The configuration in that prefix decides: it is the newest that may have been committed.
    """
    best = max(promises, key=lambda member: promises[member].position)
    return best if is_quorum(promises[best].configuration, promises.keys()) else None


# -- hosts -------------------------------------------------------------------------------------------------------------


def committed(
    epoch: Epoch,
    last: int,
    configurations: Sequence[tuple[int, Configuration]],
    positions: Mapping[Member, Position],
) -> int | None:
    """Return the highest serial of an epoch that a quorum has, None while not even serial 0 is committed.

    `configurations` are those of the epoch, each with the serial at which it was written, the one of the prefix at 0.
    """
    for serial in range(last, -1, -1):
        configuration = next(each for since, each in reversed(configurations) if since <= serial)
        if is_quorum(configuration, [m for m, at in positions.items() if at.epoch == epoch and at.serial >= serial]):
            return serial
    return None


def serves(configuration: Configuration, done: int | None, grants: Collection[Member]) -> bool:
    """Return whether a host may deliver, answer and acknowledge: its epoch has begun, and a quorum grants its lease."""
    return done is not None and is_quorum(configuration, grants)


def may_change(configuration: Configuration, done: int | None) -> bool:
    """Return whether a host may begin to change members."""
    return done is not None and not configuration.former
