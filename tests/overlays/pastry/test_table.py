"""The table of links: what it keeps ready says the same as the links do, for every key, after every change."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from meetpoint.api.ids import Peer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.contacts import Contacts
from meetpoint.overlays.pastry.routing import PastryTable
from meetpoint.overlays.pastry.rules import LEFT, RIGHT, PastryRules, PastrySettings
from tests.overlays.pastry.driving import peer

RING = Ring(8)
KEYS = [RING.key(number) for number in range(RING.size)]
SETTINGS = PastrySettings(digit_bits=2, half=2, cache_max=3)
RULES = PastryRules(SETTINGS.half)


def apart(a: bytes, b: bytes) -> tuple[int, bool]:
    """How far a key is from a node; of two as near, the one before it."""
    beyond, before = RING.distance(a, b), RING.distance(b, a)
    return min(beyond, before), before < beyond


def shared(a: bytes, b: bytes) -> int:
    """Return how many digits of two bits two ids share."""
    digits = [f"{RING.number(each):08b}" for each in (a, b)]
    return next((row for row in range(4) if digits[0][: 2 * row + 2] != digits[1][: 2 * row + 2]), 4)


class Drawn:
    """A table whose links are drawn, right or wrong."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.me = RING.node(self.chance.randrange(RING.size))
        self.table = PastryTable(self.me, RING, Contacts(self.me, 64, 8), SETTINGS, lambda: None)
        numbers = self.chance.sample(range(RING.size), self.chance.randint(2, 14))
        self.others = [other for number in numbers if (other := peer(RING, number)).id != self.me]
        for other in self.others:
            self.table.contacts.learn(other)
        self.commit()

    def some(self) -> Peer:
        return self.chance.choice(self.others)

    def commit(self) -> None:
        self.table.commit(RULES.found(self.me, [each.id for each in self.others if self.chance.random() < 0.6]))

    def change(self) -> None:
        match self.chance.randrange(5):
            case 0:
                self.commit()
            case 1:
                self.table.learn_row(self.some())
            case 2:
                self.table.learn_cache(self.some())
            case 3:
                self.table.suspect(self.some(), Instant(1))
            case _:
                self.table.heard(self.some())
        self.table.check()


@pytest.mark.parametrize("seed", range(40))
def test_every_hop_shares_more_digits_or_is_nearer_and_a_key_among_the_leaves_goes_to_the_closest(seed: int) -> None:
    drawn = Drawn(seed)
    table = drawn.table
    for _ in range(8):
        assert table.state is not None
        live = [node for node in table.state.leaves if table.contacts.live(node) is not None]
        known = {each.id for each in table.peers()}
        for key in KEYS:
            to = table.next_hop(key)
            if len(table.state.leaves) < 2 * SETTINGS.half:
                closest = min([*live, drawn.me], key=lambda node: apart(node, key))
                assert (drawn.me if to is None else to.id) == closest
            elif to is not None:
                assert to.id in known
                gained = shared(to.id, key) - shared(drawn.me, key)
                assert gained > 0 or apart(to.id, key) < apart(drawn.me, key)
            for attempt in (1, 2, 5):
                other = table.next_hop(key, attempt)
                assert other is None or other.id in known
        drawn.change()


@pytest.mark.parametrize("seed", range(20))
def test_a_node_covers_the_keys_that_are_nearer_to_it_than_to_its_neighbours(seed: int) -> None:
    drawn = Drawn(seed)
    for _ in range(4):
        state = drawn.table.state
        assert state is not None
        around = {drawn.me, state.near[LEFT], state.near[RIGHT]}
        for key in KEYS:
            nearest = min(around, key=lambda node: apart(node, key)) == drawn.me
            assert drawn.table.covers(key) == nearest
        drawn.change()


@pytest.mark.parametrize("seed", range(20))
def test_the_owner_of_an_id_beside_itself_is_the_closest_of_the_others(seed: int) -> None:
    drawn = Drawn(seed)
    for each in drawn.others:
        to = drawn.table.next_hop_beside(each.id)
        others = [drawn.me, *(link.id for link in drawn.table.peers() if link.id != each.id)]
        assert apart(drawn.me if to is None else to.id, each.id)[0] == min(apart(node, each.id)[0] for node in others)


@pytest.mark.parametrize("seed", range(20))
def test_a_scope_is_split_among_the_links_inside_it(seed: int) -> None:
    drawn = Drawn(seed)
    for _ in range(4):
        whole = drawn.table.split(None)
        ends = [drawn.me, *(to.id for to, _ in whole), drawn.me]
        assert [end for _, end in whole] == ends[2:]
        assert all(between(drawn.me, a, b) for a, b in pairwise(ends[1:-1]))
        for key in KEYS:
            parts = drawn.table.split(key)
            inside = [to for to, _ in whole if key != drawn.me and between(drawn.me, to.id, key)]
            assert [to for to, _ in parts] == inside
            assert [end for _, end in parts] == [*(to.id for to in inside[1:]), key][: len(parts)]
        drawn.change()


def test_founders_have_one_node_in_each_place_of_the_routing_table_that_has_any() -> None:
    chance = random.Random(1)
    peers = [peer(RING, number) for number in sorted(chance.sample(range(RING.size), 40))]
    for me in peers:
        table = PastryTable(me.id, RING, Contacts(me.id, 64, 8), SETTINGS, lambda: None)
        table.found(peers)
        table.check()

        def slot(node: bytes, me: bytes = me.id) -> tuple[int, int]:
            row = shared(me, node)
            return row, RING.number(node) >> (6 - 2 * row) & 3

        assert {slot(node) for node in table.view().rows} == {slot(each.id) for each in peers if each != me}


def test_a_free_place_is_looked_for_and_a_place_with_a_dead_node_is_free() -> None:
    me = peer(RING, 0)
    table = PastryTable(me.id, RING, Contacts(me.id, 64, 8), SETTINGS, lambda: None)
    table.commit(RULES.found(me.id, []))
    assert table.vacant(random.Random(1)) is None, "who knows nobody has nobody to ask"
    first, second = peer(RING, 70), peer(RING, 90)  # both begin with the digit 1
    table.learn_row(first)
    table.learn_row(second)
    assert table.view().rows == (first.id,)
    assert {RING.number(table.vacant(random.Random(seed)) or b"") >> 6 for seed in range(50)} <= {0, 2, 3}
    table.suspect(first, Instant(1))
    table.learn_row(second)
    assert table.view().rows == (second.id,)


def test_the_cache_keeps_those_met_last() -> None:
    me = peer(RING, 0)
    table = PastryTable(me.id, RING, Contacts(me.id, 64, 8), SETTINGS, lambda: None)
    table.commit(RULES.found(me.id, []))
    for number in (65, 66, 67, 65, 68):  # all in one place of the routing table, which takes the first
        table.learn_cache(peer(RING, number))
    assert [RING.number(each.id) for each in table.peers()] == [65, 67, 68]


@pytest.mark.parametrize("attempt", [0, 1, 2, 5])
def test_a_lookup_that_takes_other_ways_comes_to_the_closest_all_the_same(attempt: int) -> None:
    """A regression: it went to and fro for ever between a node that shared more digits and a nearer one."""
    ring, chance = Ring(128), random.Random(attempt)
    peers = sorted(peer(ring, chance.getrandbits(128)) for _ in range(60))
    settings = PastrySettings()
    tables = {}
    for me in peers:
        table = tables[me.id] = PastryTable(me.id, ring, Contacts(me.id, 512, 8), settings, lambda: None)
        for other in chance.sample(peers, 20):
            table.learn_cache(other)
        for other in peers:
            table.contacts.learn(other)
        table.commit(PastryRules(settings.half).found(me.id, [other.id for other in peers]))
        table.found(peers)
    for _ in range(200):
        key, at = ring.key(chance.getrandbits(128)), chance.choice(peers).id
        left = attempt
        for _ in range(8):
            to = tables[at].next_hop(key, left)
            at, left = (at if to is None else to.id), max(left - 1, 0)
        owner = min(
            (each.id for each in peers), key=lambda node: min(ring.distance(node, key), ring.distance(key, node))
        )
        assert at == owner
