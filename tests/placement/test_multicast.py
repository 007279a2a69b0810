"""Spreading along routes: few messages at the origin, each home once, and a relay that fails only delays."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.catalog import make_codec
from meetpoint.node.runtime.effects import CancelTimer, Observe, Send, SetTimer, Trace
from meetpoint.node.runtime.flow import Signal
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.placement.dissemination import multicast
from meetpoint.placement.dissemination.fanout import HomeFanout, Recipients
from meetpoint.placement.dissemination.multicast import (
    DEPTH_MAX,
    HOMES_MAX,
    LINKS_MAX,
    STRAIGHT_MAX,
    WAIT_US,
    Multicast,
)
from meetpoint.placement.messages import DeliverToHome, DeliverToHomeAck, RelayEvent, RelayEventAck
from meetpoint.placement.ownership.home_rpc import HomeRpc

RING = Ring(16)
CODEC = make_codec()
US = 1_000_000
EVENT = EventKey(HomeId(bytes(RING.node(9))), 1, 5)


def peer(number: int) -> Peer:
    return Peer(RING.node(number), f"n{number}", 1)


def home(number: int) -> HomeId:
    return HomeId(bytes(RING.node(number)))


class Taking:
    """A home that takes every event, a little later."""

    def __init__(self, net: Net, number: int, id_: HomeId) -> None:
        self.net, self.number, self.id = net, number, id_
        self.skipped: list[int] = []

    def skip_to(self, event: EventKey, floor: int) -> None:
        self.skipped.append(floor)

    def take(self, event: EventKey, content: bytes) -> Signal[None]:
        self.net.came[self.id] += 1
        taken: Signal[None] = Signal()
        self.net.later(20_000, self.number, lambda: taken.set(None))
        return taken


class Listed(msgspec.Struct):
    home: HomeId
    host: Peer
    gone: bool = False


class Member:
    """One node: the directory, the overlay and the hosting of its parts too."""

    def __init__(self, net: Net, number: int) -> None:
        self.net, self.number = net, number
        self.runtime = Runtime(peer(number), RING, CODEC, number)
        self.runtime.tracing = True
        self.homes: dict[HomeId, Any] = {}
        me: Any = self
        homes = HomeRpc(self.runtime, me)
        self.multicast = Multicast(self.runtime, me, me, HomeFanout(self.runtime, me, homes))
        self.handlers = {**homes.handlers(), **self.multicast.handlers()}

    @property
    def directory(self) -> Any:
        return self

    def get(self, id_: bytes) -> Listed | None:
        return self.net.listed.get(HomeId(id_))

    def host(self, id_: bytes) -> Peer | None:
        entry = self.get(id_)
        return None if entry is None or entry.gone else entry.host

    def next_hop(self, key: bytes) -> Peer | None:
        hop = self.net.route(self.number, RING.number(key))
        return None if hop is None else peer(hop)


class Net:
    """Nodes with a home each; `route` says where a message goes next, `weather` when it arrives, or not at all."""

    def __init__(self, size: int, route: Callable[[int, int], int | None]) -> None:
        self.route = route
        self.now = 0
        self.came: Counter[HomeId] = Counter()
        self.sent: list[tuple[int, int, Message]] = []
        self.observed: Counter[str] = Counter()
        self.subids = 0
        self.traced: list[HomeId] = []
        self.weather: Callable[[int, int, Any], Iterable[int] | Message | None] = lambda source, to, message: None
        self.members = {number: Member(self, number) for number in range(size)}
        self.listed: dict[HomeId, Listed] = {}
        self._heap: list[tuple[int, int, int, Callable[[], None]]] = []
        self._count = count()
        for number in range(size):
            self.put(home(number), number)

    def put(self, id_: HomeId, number: int) -> None:
        """A home is hosted at a node."""
        self.members[number].homes[id_] = Taking(self, number, id_)
        self.listed[id_] = Listed(id_, peer(number))

    def later(self, delay: int, number: int, then: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._count), number, then))

    def step(self, number: int, act: Callable[[], None]) -> None:
        member = self.members.get(number)
        if member is None:
            return
        effects = member.runtime.begin(Instant(self.now))
        act()
        member.multicast.check()
        for effect in effects:
            if isinstance(effect, SetTimer):
                runtime = member.runtime
                self.later(effect.at - self.now, number, lambda t=effect.timer, s=runtime: s.fired(t))  # type: ignore[misc]
            elif isinstance(effect, Send):
                self._send(number, effect)
            elif isinstance(effect, Observe):
                self.observed[effect.name] += 1
                self.subids += effect.value if effect.name == "subids_sent" else 0
            elif isinstance(effect, Trace):
                self.traced.append(effect.home)
            else:
                assert isinstance(effect, CancelTimer)

    def _send(self, source: int, effect: Send) -> None:
        to = RING.number(effect.to.id)
        message = CODEC.decode(CODEC.encode(effect.message))
        self.sent.append((source, to, message))
        delays = self.weather(source, to, message)
        if isinstance(delays, Message):
            message, delays = delays, None
        for delay in [20_000] if delays is None else delays:
            self.later(delay, to, lambda: self.receive(to, peer(source), message))

    def receive(self, to: int, source: Peer, message: Message) -> None:
        member = self.members[to]
        if isinstance(message, Reply):
            member.runtime.replied(source, message)
        else:
            member.handlers[type(message)](source, message)

    def run(self, seconds: float) -> None:
        until = self.now + int(seconds * US)
        while self._heap and self._heap[0][0] <= until:
            self.now, _, number, then = heapq.heappop(self._heap)
            self.step(number, then)
        self.now = until

    # -- in short ------------------------------------------------------------------------------------------------------

    def bring(self, origin: int, to: Iterable[HomeId], seconds: float = 8) -> Bringer:
        """Have a node bring an event to homes."""
        bringer = Bringer()
        wanted = dict.fromkeys(to, (1, 2))

        def act() -> None:
            recipients = Recipients(wanted)
            recipients.ended.then(bringer.ended.append)
            recipients.slow.then(bringer.slow.append)
            self.members[origin].multicast.bring(EVENT, 3, b"content", recipients, int(seconds * US))
            bringer.open = recipients.open

        self.step(origin, act)
        return bringer

    def count(self, *kinds: type[Message], source: int | None = None) -> int:
        """How many messages were sent."""
        return sum(isinstance(m, kinds) and source in (None, s) for s, _, m in self.sent)


class Bringer:
    """What became of it."""

    def __init__(self) -> None:
        self.ended: list[bool] = []
        self.slow: list[tuple[HomeId, ...]] = []
        self.open: Any = None


def by_halves(size: int) -> Callable[[int, int], int | None]:
    """Routes as in Chord on a full ring: to the node that is a power of two nearer."""

    def route(source: int, to: int) -> int | None:
        far = (to - source) % size
        return None if not far else (source + (1 << (far.bit_length() - 1))) % size

    return route


def all_homes(size: int, but: int | None = None) -> list[HomeId]:
    return [home(number) for number in range(size) if number != but]


# -- all goes well -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [16, 32, 64])
def test_the_origin_sends_no_more_than_it_has_links_and_every_home_gets_it_once(size: int) -> None:
    net = Net(size, by_halves(size))
    bringer = net.bring(0, all_homes(size))
    net.run(1.9)
    assert bringer.ended == [True]
    assert bringer.slow == []
    assert not bringer.open
    links = size.bit_length() - 1
    assert net.count(RelayEvent, DeliverToHome, source=0) == links
    assert net.count(RelayEvent, DeliverToHome) == size - 1, "a tree, without a message too many"
    assert net.came == Counter(all_homes(size))
    assert sorted(net.traced) == all_homes(size)
    for number in range(size):
        assert net.members[number].homes[home(number)].skipped == [3]
        assert net.members[number].multicast._relaying == 0
    assert net.observed["spread_straight"] == net.observed["spread_malformed"] == 0


@pytest.mark.parametrize("size", [LINKS_MAX + 2, 30, 64, 200])
def test_where_all_know_all_it_is_still_a_tree(size: int) -> None:
    net = Net(size, lambda source, to: None if source == to else to)
    bringer = net.bring(0, all_homes(size))
    net.run(1.9)
    assert bringer.ended == [True]
    assert net.count(RelayEvent, DeliverToHome, source=0) == LINKS_MAX
    assert max(net.count(RelayEvent, DeliverToHome, source=number) for number in range(size)) == LINKS_MAX
    assert net.count(RelayEvent, DeliverToHome) == size - 1
    assert net.came == Counter(all_homes(size))
    assert max(len(message.via) for _, _, message in net.sent if isinstance(message, RelayEvent)) <= 3


@pytest.mark.parametrize("count_", [STRAIGHT_MAX, STRAIGHT_MAX + 1])
def test_to_few_nodes_it_goes_straight(count_: int) -> None:
    net = Net(16, by_halves(16))
    bringer = net.bring(0, [home(number) for number in range(16 - count_, 16)])
    net.run(1.9)
    assert bringer.ended == [True]
    assert (net.count(RelayEvent, source=0) == 0) == (count_ == STRAIGHT_MAX)


def test_many_homes_at_few_nodes_are_few_nodes() -> None:
    net = Net(16, by_halves(16))
    for number in range(100, 140):
        net.put(home(number), 5 + number % STRAIGHT_MAX)
    net.bring(0, [home(number) for number in range(100, 140)])
    net.run(1.9)
    assert net.count(RelayEvent) == 0
    net.put(home(140), 10)
    net.bring(0, [home(number) for number in range(100, 141)])
    net.run(1.9)
    assert net.count(RelayEvent, source=0) <= 4
    assert net.came[home(140)] == 1


def test_a_message_names_a_limited_number_of_homes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multicast, "HOMES_MAX", 10)
    monkeypatch.setattr(multicast, "SUBIDS_MAX", 12)
    net = Net(64, by_halves(64))
    bringer = net.bring(0, all_homes(64))
    net.run(1.9)
    assert bringer.ended == [True]
    spreads = [message for _, _, message in net.sent if isinstance(message, RelayEvent)]
    assert max(len(message.homes) for message in spreads) == 6
    assert net.came == Counter(all_homes(64))


def test_subids_are_counted_at_every_hop() -> None:
    net = Net(16, by_halves(16))
    net.bring(0, all_homes(16, but=0))
    net.run(1.9)
    carried = sum(len(message.homes) if isinstance(message, RelayEvent) else 1 for _, _, message in net.sent
                  if isinstance(message, RelayEvent | DeliverToHome))  # fmt: skip
    assert net.subids == 2 * carried


# -- relays that fail --------------------------------------------------------------------------------------------------


def first_relay(net: Net) -> int:
    """The node that got the largest part from the origin."""
    parts = {
        to: len(message.homes) for source, to, message in net.sent if source == 0 and isinstance(message, RelayEvent)
    }
    return max(parts, key=lambda to: parts[to])


@pytest.mark.parametrize("when", ["before", "while it relays"])
def test_a_relay_that_dies_only_delays(when: str) -> None:
    net = Net(32, by_halves(32))
    if when == "before":
        del net.members[16]
        dead = 16
    bringer = net.bring(0, all_homes(32, but=16))
    if when != "before":
        net.run(0.025)
        dead = first_relay(net)
        del net.members[dead]
    net.run(5)
    assert dead == 16
    assert bringer.ended == [True]
    (slow,) = bringer.slow
    assert home(17) in slow
    assert home(1) not in slow
    assert set(net.came) >= set(all_homes(32, but=16))
    assert net.count(DeliverToHome, source=0) >= 15


def test_a_home_whose_host_is_dead_is_named_slow_and_the_end_is_not_well() -> None:
    net = Net(16, by_halves(16))
    del net.members[11]
    bringer = net.bring(0, all_homes(16), seconds=6)
    net.run(20)
    assert bringer.ended == [False]
    assert list(bringer.open) == [home(11)]
    assert len(bringer.slow) == 1
    assert home(11) in bringer.slow[0]
    assert set(net.came) == set(all_homes(16, but=11))


def test_a_home_that_is_gone_needs_nothing() -> None:
    net = Net(16, by_halves(16))
    net.listed[home(11)].gone = True
    bringer = net.bring(0, all_homes(16))
    net.run(1.9)
    assert bringer.ended == [True]
    assert home(11) not in net.came


def test_a_home_that_moved_is_found_where_it_is() -> None:
    """The origin's list is behind the times: the relay does not have the home, and the origin learns of it later."""
    net = Net(16, by_halves(16))
    del net.members[12].homes[home(12)]
    bringer = net.bring(0, all_homes(16))
    net.run(1)
    assert bringer.ended == []
    net.put(home(12), 3)
    net.run(4)
    assert bringer.ended == [True]
    assert net.came[home(12)] == 1


@pytest.mark.parametrize("at", [WAIT_US - 1, WAIT_US + 1])
def test_an_answer_that_comes_late_is_no_harm(at: int) -> None:
    net = Net(16, by_halves(16))
    net.weather = lambda source, to, message: (
        (at - net.now,) if isinstance(message, RelayEventAck) and to == 0 else None
    )
    bringer = net.bring(0, all_homes(16))
    net.run(8)
    assert bringer.ended == [True]
    late = at > WAIT_US
    assert bool(net.observed["reply_unexpected"]) is late
    assert bool(bringer.slow) is late
    assert max(net.came.values()) == (2 if late else 1)


def test_a_relay_that_names_homes_it_was_not_given_is_not_believed() -> None:
    net = Net(16, by_halves(16))

    def weather(source: int, to: int, message: Message) -> Message | None:
        if isinstance(message, RelayEventAck) and to == 0 and source == 8:
            return RelayEventAck(message.request, (*message.taken, home(5), home(5), home(99)))
        return None

    net.weather = lambda source, to, message: () if (to == 5) else weather(source, to, message)
    bringer = net.bring(0, all_homes(16), seconds=4)
    net.run(12)
    assert net.observed["spread_malformed"] == 1
    assert bringer.ended == [False]
    assert list(bringer.open) == [home(5)]


def test_a_relay_that_names_none_delays() -> None:
    net = Net(16, by_halves(16))

    def weather(source: int, to: int, message: Message) -> Message | None:
        return RelayEventAck(message.request, ()) if isinstance(message, RelayEventAck) and to == 0 else None

    net.weather = weather
    bringer = net.bring(0, all_homes(16))
    net.run(2)
    assert bringer.ended == [True]
    assert len(bringer.slow) == 1


def test_a_node_that_relays_too_much_takes_what_is_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multicast, "RELAYING_MAX", 0)
    net = Net(16, by_halves(16))
    bringer = net.bring(0, all_homes(16))
    net.run(1.9)
    assert bringer.ended == [True]
    assert net.came == Counter(all_homes(16))
    assert {source for source, _, message in net.sent if isinstance(message, RelayEvent)} == {0}


GOOD = RelayEvent(1, EVENT, 3, (peer(1).id,), US, ((home(0), (1,)), (home(2), ())), b"content")


@pytest.mark.parametrize(
    "bad",
    [
        {"via": ()},
        {"via": (peer(3).id,)},
        {"via": (peer(0).id, peer(1).id)},
        {"via": (peer(1).id, peer(2).id, peer(1).id)},
        {"via": tuple(peer(number).id for number in (*range(2, 2 + DEPTH_MAX), 1))},
        {"via": (b"x", peer(1).id)},
        {"wait_us": -1},
        {"wait_us": WAIT_US + 1},
        {"floor": -1},
        {"homes": ()},
        {"homes": ((home(2), ()), (home(2), ()))},
        {"homes": ((b"xyz", ()),)},
        {"homes": tuple((home(number), ()) for number in range(HOMES_MAX + 1))},
    ],
)
def test_what_makes_no_sense_is_dropped_and_counted(bad: dict[str, Any]) -> None:
    net = Net(4, by_halves(4))
    net.step(0, lambda: net.receive(0, peer(1), msgspec.structs.replace(GOOD, **bad)))
    net.run(5)
    assert net.observed["spread_malformed"] == 1
    assert not net.sent
    assert not net.came


def test_what_makes_sense_is_not() -> None:
    net = Net(4, by_halves(4))
    net.weather = lambda source, to, message: () if to == 1 else None
    deep = tuple(peer(number).id for number in (*range(2, 1 + DEPTH_MAX), 1))
    for more in ({}, {"via": deep}, {"wait_us": 0}, {"wait_us": WAIT_US}):
        net.step(0, lambda more=more: net.receive(0, peer(1), msgspec.structs.replace(GOOD, **more)))  # type: ignore[misc]
        net.run(5)
    assert net.observed["spread_malformed"] == 0
    assert net.came[home(0)] == 4
    assert net.count(RelayEventAck, source=0) == 4


# -- any routes at all -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@given(size=st.integers(6, 14), seed=st.integers(0, 10**9), lost=st.sampled_from([0.0, 0.1]), stale=st.booleans())
def test_whatever_the_routes_no_event_goes_round(size: int, seed: int, lost: float, stale: bool) -> None:
    """Routes are drawn, so that most of them lead astray and in circles."""
    chance = random.Random(seed)
    hops = {
        (source, to): chance.choice([None, *(n for n in range(size) if n != source)])
        for source in range(size)
        for to in range(size)
        if source != to
    }
    net = Net(size, lambda source, to: hops.get((source, to)))
    if stale:
        net.put(home(50), 1)
        net.listed[home(50)] = Listed(home(50), peer(2))
    net.weather = lambda source, to, message: () if chance.random() < lost else None
    bringer = net.bring(0, [*all_homes(size), *([home(50)] if stale else [])], seconds=30)
    net.run(1)
    spreads = [(to, message) for _, to, message in net.sent if isinstance(message, RelayEvent)]
    per_home = Counter((to, each) for to, message in spreads for each, _ in message.homes)
    assert all(number == 1 for number in per_home.values()), "a node got it twice for one home"
    assert all(len(message.via) <= DEPTH_MAX for _, message in spreads)
    net.listed[home(50)] = Listed(home(50), peer(1))
    net.run(40)
    assert bringer.ended == [True]
    assert set(net.came) >= set(all_homes(size))
    assert not any(member.multicast._relaying for member in net.members.values())
    assert net.count(DeliverToHomeAck) + net.count(RelayEventAck) > 0
