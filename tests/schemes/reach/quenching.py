"""Interest bits over a network in one process: messages wait, are lost, doubled and overtaken; nodes come and go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach import Interest, Tree, is_required, is_subset
from meetpoint.schemes.reach.interest import Ack, Said, Tell
from tests.overlays.hypercube.growing import Cube
from tests.schemes.reach.walking import walk

__all__ = ["Quenched"]

ROUNDS_MAX = 60
"""A quiet network that has not settled after so many rounds never will."""


class Sent(NamedTuple):
    """A message on its way."""

    sender: Interest
    region: Region
    receiver: Interest
    said: Said


class Quenched:
    """A network with subscriptions, by number: the id, and whether it is acknowledged."""

    interest: type[Interest] = Interest

    def __init__(self, cube: Cube) -> None:
        self.cube = cube
        self.nodes: dict[Region, Interest] = {}
        self.subscriptions: dict[int, tuple[int, bool]] = {}
        self.flying: list[Sent] = []
        self.sent = 0
        self._hosts: dict[str, Interest] = {}
        self._count = 0
        self.changed()

    # -- what may happen -----------------------------------------------------------------------------------------------

    def subscribe(self, bits: int) -> int:
        """A subscription comes to the host of its id."""
        self._count += 1
        self.subscriptions[self._count] = bits, False
        self._hold(self.cube.owner(bits))
        self._acknowledge()
        return self._count

    def unsubscribe(self, number: int) -> None:
        """One goes."""
        bits, _ = self.subscriptions.pop(number)
        self._hold(self.cube.owner(bits))

    def arrive(self, at: int, keep: bool = False) -> None:
        """A message arrives, whichever; one that is doubled stays on its way too."""
        sent = self.flying[at] if keep else self.flying.pop(at)
        is_current = self.nodes.get(sent.region) is sent.sender and self.nodes.get(sent.said.to) is sent.receiver
        if is_current:
            receiver = sent.receiver
            if isinstance(sent.said, Tell):
                self._send(receiver, receiver.heard(sent.said, sent.region))
            else:
                assert isinstance(sent.said, Ack)
                self._send(receiver, receiver.acknowledged(sent.said, sent.region))
        self._acknowledge()

    def repeat(self) -> None:
        """All say again what was not answered."""
        for node in list(self.nodes.values()):
            self._send(node, node.again())

    def changed(self) -> None:
        """The network has other members: the hosts that stay go on with what they know."""
        before = self.nodes
        self.nodes = {region: self._node(region) for region in self.cube.members}
        self._hosts = {self.cube.members[region].host: node for region, node in self.nodes.items()}
        for region, node in self.nodes.items():
            links = self.cube.links(region)
            said = node.relink(region, links, self._held(region))
            for link in links:
                if link in before and before[link] is not self.nodes[link]:
                    said += node.forget(link)
            self._send(node, said)
        self._acknowledge()  # now that each knows its neighbours: one that knows none is settled

    def settle(self) -> None:
        """Nothing is lost any more, until nothing is said any more."""
        for _ in range(ROUNDS_MAX):
            while self.flying:
                self.arrive(0)
            self.repeat()
            if not self.flying:
                return
        raise AssertionError("it does not come to rest")

    # -- what must be so -----------------------------------------------------------------------------------------------

    def acknowledged(self) -> list[int]:
        """The ids of subscriptions that must not be missed."""
        return [bits for bits, is_safe in self.subscriptions.values() if is_safe]

    def wrong(self, events: Sequence[int], tree: Tree) -> str | None:
        """A match that quenching would cost, in a sentence, or None."""
        safe = self.acknowledged()
        for region, node in self.nodes.items():
            for link in self.cube.links(region):
                if not node.wants(link) and any(is_subset(bits & link.mask, link.bits) for bits in safe):
                    return f"{region} takes {link} to want nothing"
        for event in events:
            reached = walk(self.cube, self.cube.owner(event), event, tree, self.wants).times
            for bits in safe:
                if is_subset(bits, event) and not reached[self.cube.owner(bits)]:
                    return f"{event:b} does not reach {bits:b}"
        return None

    def wants(self, here: Region, there: Region) -> bool:
        """What a node takes a neighbour to want."""
        return self.nodes[here].wants(there)

    def needed(self, region: Region) -> bool:
        """Whether some id of a region has a subset with a subscription."""
        return any(is_required(Region(bits & region.mask, region.length), region.bits) for bits, _ in self._all())

    def _all(self) -> list[tuple[int, bool]]:
        return list(self.subscriptions.values())

    # -- within --------------------------------------------------------------------------------------------------------

    def _node(self, region: Region) -> Interest:
        """The same as before where the host stays with its region, or with half or twice of it."""
        kept = self._hosts.get(self.cube.members[region].host)
        if kept is not None and (kept.me.holds(region) or region.holds(kept.me)):
            return kept
        self._count += 1
        return self.interest(region, (), self._count)

    def _hold(self, region: Region) -> None:
        node = self.nodes[region]
        self._send(node, node.hold(self._held(region)))

    def _held(self, region: Region) -> int:
        return sum(region.hosts(bits) for bits, _ in self._all())

    def _send(self, node: Interest, said: Sequence[Said]) -> None:
        self.sent += len(said)
        self.flying += [Sent(node, node.me, self.nodes[each.to], each) for each in said if each.to in self.nodes]

    def _acknowledge(self) -> None:
        for number, (bits, is_safe) in self.subscriptions.items():
            if not is_safe and self.nodes[self.cube.owner(bits)].settled:
                self.subscriptions[number] = bits, True
