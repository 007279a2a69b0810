"""Multicast: brings an event to many homes along the overlay's routes, in no more messages than a node has links.

A node sends one message for each next hop, with all homes behind it, and not more than a few; relays split it further
(the multicast tree of paper D).

Deviation: the tree has no state. It follows from the routes at the time, so that no crash tears it: a relay answers
which homes have the event, and homes that it does not name in time are brought the event straight (`HomeFanout`). A
relay's crash only delays.

- An event goes to a node once at most: a message names the nodes it has passed, and goes to none of them again. Homes
  to which it could only go back are left to its origin.
- A node that waits for a relay waits longer than the relay waits for others, by `STEP_US` for each step; where no time
  is left, or there are too many steps, a relay goes no further.
- A relay is trusted as a home's host is, which says that the home has the event. It cannot speak for homes that were
  not given to it.

Each event comes here: it goes on by callbacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

from meetpoint.api.ids import EventKey, HomeId, Key, NodeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message, Reply
from meetpoint.node.cluster.home_manager import HomeManager
from meetpoint.node.overlay import Handler, Overlay
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination.fanout import AGAIN_US, HomeFanout, Recipients, event_bytes
from meetpoint.placement.messages import RelayEvent, RelayEventAck

__all__ = ["Multicast"]

LINKS_MAX: Final = 8
"""To how many next hops an event goes from one node.

Where an overlay knows more, as small ones do that know all, next hops that are neighbours on the ring are one branch.
"""
STRAIGHT_MAX: Final = 4
"""Up to how many nodes an event goes straight: a tree would save little, and take longer."""
HOMES_MAX: Final = 500
"""How many homes one message names at most; with more there are several."""
SUBIDS_MAX: Final = 20_000
"""How many SubIDs it carries, unless a single home has more."""
DEPTH_MAX: Final = 6
"""How many nodes a message has passed at most: its origin, and relays."""
WAIT_US: Final = 2 * SECOND_US
"""How long the origin waits for a relay."""
STEP_US: Final = SECOND_US // 4
"""By how much less a relay waits for the next."""
RELAYING_MAX: Final = 1_024
"""How many messages a node relays at a time; of any further ones it takes what is for homes here."""

Homes: TypeAlias = Mapping[HomeId, tuple[int, ...]]
"""Homes, each with the SubIDs that matched there."""
_Branch: TypeAlias = tuple[Peer, list[tuple[Peer, list[HomeId]]]]
"""A next hop, and the nodes behind it with their homes."""


class Multicast:
    """Sends events into the tree, and relays those of others."""

    def __init__(self, runtime: Runtime, overlay: Overlay, home_manager: HomeManager, fanout: HomeFanout) -> None:
        self._runtime = runtime
        self._overlay = overlay
        self._home_manager = home_manager
        self._fanout = fanout
        self._relaying = 0

    def handlers(self) -> dict[type[Message], Handler]:
        """Return the handler of events to relay."""
        return {RelayEvent: self._relay}  # type: ignore[dict-item]

    # -- at the origin -------------------------------------------------------------------------------------------------

    def bring(self, event: EventKey, floor: int, content: bytes, recipients: Recipients, within_us: int) -> None:
        """Bring an event to homes, each with its SubIDs, until all have it or the time is over."""
        to = recipients.to
        if len(self._hosts(to)[0]) <= STRAIGHT_MAX:
            self._fanout.bring(event, floor, content, recipients, within_us)
            return
        self._runtime.observe("event_spread")
        until = self._runtime.now + within_us

        def bring_straight(homes: Iterable[HomeId]) -> None:
            left = {home: to[home] for home in homes if home in recipients.open}
            if left and not recipients.ended.is_set:
                part = Recipients(left, recipients)
                self._fanout.bring(event, floor, content, part, max(0, until - self._runtime.now))

        def answered(homes: Homes, taken: tuple[HomeId, ...]) -> None:
            for home in taken:
                if home in recipients.open and self._runtime.tracing:
                    self._runtime.trace(event, "brought", home, detail=f"for {len(to[home])} subscriptions")
                recipients.has(home)
            left = [home for home in homes if home in recipients.open]
            if left and not recipients.ended.is_set:
                self._runtime.observe("spread_straight", len(left))
                recipients.is_slow()
                self._runtime.after(AGAIN_US, lambda: bring_straight(left))  # at once, it may be lost as soon again

        branches, alone = self._split(to, ())
        for peer, homes in branches:
            if len(homes) == 1:
                alone.extend(homes)
            else:
                self._send(peer, event, floor, content, homes, (), WAIT_US).then(partial(answered, homes))
        bring_straight(alone)

    def _hosts(self, to: Iterable[HomeId]) -> tuple[dict[NodeId, tuple[Peer, list[HomeId]]], list[HomeId]]:
        """Return the other nodes that host homes, each with those; and homes that are here, or nobody knows where."""
        hosts: dict[NodeId, tuple[Peer, list[HomeId]]] = {}
        rest: list[HomeId] = []
        for home in to:
            host = self._home_manager.directory.host(home)
            if host is None or host.id == self._runtime.me.id:
                rest.append(home)
            else:
                hosts.setdefault(host.id, (host, []))[1].append(home)
        return hosts, rest

    def _split(self, to: Homes, via: tuple[NodeId, ...]) -> tuple[list[tuple[Peer, Homes]], list[HomeId]]:
        """Return peers, each with the homes at it or behind it; and the homes to which no way leads but straight."""
        hosts, rest = self._hosts(to)
        hops: dict[NodeId, _Branch] = {}
        for host, homes in hosts.values():
            hop = self._overlay.next_hop(Key(host.id))
            if hop is None or hop.id in via or host.id in via:
                rest += homes
            else:
                hops.setdefault(hop.id, (hop, []))[1].append((host, homes))
        branches: list[tuple[Peer, Homes]] = []
        for hop, behind in _bundled(hops):
            peer = hop if len(behind) > 1 else behind[0][0]  # to a single node there is no need for relays
            there = {home: to[home] for _, homes in behind for home in homes}
            branches += [(peer, part) for part in _parts(there)]
        return branches, rest

    def _send(
        self,
        peer: Peer,
        event: EventKey,
        floor: int,
        content: bytes,
        homes: Homes,
        via: tuple[NodeId, ...],
        wait_us: int,
    ) -> Signal[tuple[HomeId, ...]]:
        """Have a peer relay an event; set with the homes that have it, none where it did not answer in time."""
        self._runtime.observe("subids_sent", sum(map(len, homes.values())), event_bytes(event))
        way = (*via, self._runtime.me.id)
        sent: Signal[tuple[HomeId, ...]] = Signal()

        def answered(reply: Reply | None) -> None:
            taken = reply.taken if isinstance(reply, RelayEventAck) else ()
            known = tuple(dict.fromkeys(home for home in taken if home in homes))
            if len(known) < len(taken):
                self._runtime.observe("spread_malformed")
            sent.set(known)

        question = RelayEvent(0, event, floor, way, wait_us, tuple(homes.items()), content)
        self._runtime.ask(peer, question, wait_us).then(answered)
        return sent

    # -- at a relay ----------------------------------------------------------------------------------------------------

    def _relay(self, source: Peer, question: RelayEvent) -> None:
        if not self._is_well(source, question):
            self._runtime.observe("spread_malformed")
            return
        to = dict(question.homes)
        here = [home for home in to if home in self._home_manager.homes]
        wait_us = question.wait_us - STEP_US
        branches: list[tuple[Peer, Homes]] = []
        if wait_us >= STEP_US and len(question.via) < DEPTH_MAX and self._relaying < RELAYING_MAX:
            branches, _ = self._split({home: to[home] for home in to if home not in here}, question.via)
        taken: list[HomeId] = []
        left = len(here) + len(branches)
        self._relaying += 1
        timer = self._runtime.after(max(0, wait_us), lambda: answer())

        def answer() -> None:
            nonlocal left
            if left >= 0:
                left = -1
                self._relaying -= 1
                self._runtime.cancel(timer)
                self._runtime.send(source, RelayEventAck(question.request, tuple(taken)))

        def have(homes: tuple[HomeId, ...]) -> None:
            nonlocal left
            if left < 0:
                return  # it has said what it knew by then
            taken.extend(homes)
            left -= 1
            if not left:
                answer()

        for each in here:
            home = self._home_manager.homes[each]
            home.skip_to(question.event, question.floor)
            home.take(question.event, question.content).then(lambda _, home=each: have((home,)))  # type: ignore[misc]
        for peer, homes in branches:
            sent = self._send(
                peer, question.event, question.floor, question.content, homes, question.via, wait_us
            )  # fmt: skip
            sent.then(have)
        if not (here or branches):
            answer()

    def _is_well(self, source: Peer, question: RelayEvent) -> bool:
        via, homes = question.via, [home for home, _ in question.homes]
        ring = self._runtime.ring
        return (
            0 < len(via) <= DEPTH_MAX
            and via[-1] == source.id
            and self._runtime.me.id not in via
            and len(dict.fromkeys(via)) == len(via)
            and 0 < len(homes) <= HOMES_MAX
            and len(dict.fromkeys(homes)) == len(homes)
            and all(ring.holds(each) for each in (*via, *homes))
            and 0 <= question.wait_us <= WAIT_US
            and question.floor >= 0
        )

    def check(self) -> None:
        """Assert what must hold at all times."""
        assert self._relaying >= 0


def _bundled(hops: Mapping[NodeId, _Branch]) -> list[_Branch]:
    """Join branches where they are too many: neighbours become one, behind the first of them."""
    if len(hops) <= LINKS_MAX:
        return list(hops.values())
    order = [hops[hop] for hop in sorted(hops)]
    cuts = [len(order) * number // LINKS_MAX for number in range(LINKS_MAX + 1)]
    bundles = [order[first:last] for first, last in pairwise(cuts)]
    return [(bundle[0][0], [each for _, behind in bundle for each in behind]) for bundle in bundles]


def _parts(homes: Homes) -> Iterator[Homes]:
    """Yield homes in parts that a message has room for."""
    part: dict[HomeId, tuple[int, ...]] = {}
    size = 0
    for home, subids in homes.items():
        if part and (len(part) >= HOMES_MAX or size + len(subids) > SUBIDS_MAX):
            yield part
            part, size = {}, 0
        part[home] = subids
        size += len(subids)
    if part:
        yield part
