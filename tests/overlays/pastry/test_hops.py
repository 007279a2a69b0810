"""How far it is to a key, counted from the messages that were sent: by digits, and with the route cache."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import ceil, log
from statistics import fmean

import pytest

from meetpoint.api.codec import Codec
from meetpoint.api.ids import Key, NodeId, Peer
from meetpoint.api.messages import Message, Reply
from meetpoint.node.runtime.effects import Effect, Send
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.pastry import MESSAGES, Pastry, PastrySettings

PACKER = Codec(MESSAGES)
BITS = 128
NO_CACHE = PastrySettings(cache_max=0)


class Host:
    """A node that is nothing but its overlay."""

    def __init__(self, me: Peer, ring: Ring, seed: int, settings: PastrySettings) -> None:
        self.runtime = Runtime(me, ring, PACKER, seed)
        self.pastry = Pastry(self.runtime, self, settings)
        self.handlers = dict(self.pastry.handlers())

    def joined(self) -> None:
        """Nothing depends on it."""

    def neighbours_changed(self) -> None:
        """Nor on this."""

    def delivered(self, key: Key, body: Message, origin: Peer, hops: int) -> None:
        """Nothing is routed."""

    def do(self, act: Callable[[], None]) -> list[Effect]:
        """Run one step."""
        effects = self.runtime.begin(Instant(0))
        act()
        return effects

    def receive(self, source: Peer, message: Message) -> None:
        if isinstance(message, Reply):
            self.runtime.replied(source, message)
        else:
            self.handlers[type(message)](source, message)


class Still:
    """A network of founders in which no time passes: what is sent arrives, and nothing else happens."""

    def __init__(self, count: int, seed: int, settings: PastrySettings) -> None:
        self.ring = Ring(BITS)
        chance = random.Random(f"nodes {seed}")
        self.order = tuple(sorted(Peer(self.ring.node(chance.getrandbits(BITS)), f"n{at}") for at in range(count)))
        self.numbers = [self.ring.number(peer.id) for peer in self.order]
        self.hosts: dict[bytes, Host] = {}
        self.sent = 0
        for at, me in enumerate(self.order):
            host = self.hosts[me.id] = Host(me, self.ring, at, settings)
            host.do(lambda host=host: host.pastry.found(self.order))  # type: ignore[misc]

    def lookup(self, node: bytes, key: Key) -> tuple[Peer, int]:
        """The owner, and the hops that the asker was told; they are the messages that were sent, but for the answer."""
        asker = self.hosts[node]
        found: list[tuple[Peer, int]] = []
        effects = asker.do(lambda: asker.pastry.lookup(key, lambda *answer: found.append(answer)))
        waiting = [(asker.runtime.me, effect) for effect in effects if isinstance(effect, Send)]
        for source, effect in waiting:  # grows as we go
            target = self.hosts[effect.to.id]
            answer = target.do(lambda t=target, s=source, e=effect: t.receive(s, e.message))  # type: ignore[misc]
            waiting += [(target.runtime.me, sent) for sent in answer if isinstance(sent, Send)]
        ((owner, hops),) = found
        assert len(waiting) == (hops + 1 if hops else 0)
        return owner, hops

    def owner(self, key: bytes) -> NodeId:
        """The nearest of all nodes; of two, the one before the key."""
        size, at = self.ring.size, self.ring.number(key)
        nearest = min(self.numbers, key=lambda node: min(2 * ((at - node) % size), 2 * ((node - at) % size) + 1))
        return self.ring.node(nearest)

    def hops(self, keys: Sequence[Key], seed: int) -> list[int]:
        """How far it was to each key, from nodes that are drawn."""
        chance = random.Random(f"askers {seed}")
        far = []
        for key in keys:
            owner, hops = self.lookup(chance.choice(self.order).id, key)
            assert owner.id == self.owner(key)
            far.append(hops)
        return far


def drawn_keys(count: int, seed: int) -> list[Key]:
    """Keys at random."""
    ring, chance = Ring(BITS), random.Random(f"keys {seed}")
    return [ring.key(chance.getrandbits(BITS)) for _ in range(count)]


def bound(nodes: int, digit_bits: int) -> int:
    """⌈log N⌉ to the base 2^b, and one."""
    return ceil(round(log(nodes, 2**digit_bits), 9)) + 1


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [16, 64, 256, 1024, 4096])
@pytest.mark.parametrize("digit_bits", [4, 2])
def test_no_key_is_farther_than_a_digit_a_hop_and_one(nodes: int, digit_bits: int) -> None:
    still = Still(nodes, nodes, PastrySettings(digit_bits=digit_bits, cache_max=0))
    far = still.hops(drawn_keys(500, nodes), nodes)
    assert max(far) <= bound(nodes, digit_bits)
    print(nodes, digit_bits, f"{fmean(far):.2f}", max(far), bound(nodes, digit_bits))  # noqa: T201 - figures of docs/pastry.md


@pytest.mark.parametrize("nodes", [2, 8, 16, 30])
def test_with_the_route_cache_a_key_is_about_one_hop_away_in_small_networks(nodes: int) -> None:
    """After every node has looked up twice as many keys as there are nodes; own keys, which take no hop, left out."""
    means = {}
    for name, settings in (("cached", PastrySettings()), ("plain", NO_CACHE)):
        still = Still(nodes, nodes, settings)
        still.hops(drawn_keys(2 * nodes * nodes, 1), 1)
        far = [hops for hops in still.hops(drawn_keys(500, 2), 2) if hops]
        means[name] = fmean(far)
    print(nodes, {name: round(mean, 3) for name, mean in means.items()})  # noqa: T201 - figures of docs/pastry.md
    assert means["cached"] <= 1.1
    assert means["cached"] <= means["plain"]


def test_the_cache_has_a_limit_and_a_full_one_still_finds_every_key() -> None:
    settings = PastrySettings(cache_max=3)
    still = Still(40, 5, settings)
    still.hops(drawn_keys(1000, 3), 3)
    for host in still.hosts.values():
        host.pastry.check()
