"""The table of pointers: what it keeps ready says the same as the pointers do, for every key, after every change."""

from __future__ import annotations

import random

import pytest

from meetpoint.api.ids import Peer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.chord.routing import ChordTable
from meetpoint.overlays.chord.rules import ChordRules
from meetpoint.overlays.contacts import Contacts
from tests.overlays.chord.driving import peer

RING = Ring(6)
KEYS = [RING.key(number) for number in range(RING.size)]
RULES = ChordRules(3, lambda node: RING.add(node, 1))


class Drawn:
    """A table whose pointers are drawn, right or wrong."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.me = RING.node(self.chance.randrange(RING.size))
        self.contacts = Contacts(self.me, 64, 8)
        self.table = ChordTable(self.me, RING, self.contacts, self.chance.random() < 0.5, lambda: None)
        self.others = [peer(RING, number) for number in self.chance.sample(range(RING.size), self.chance.randint(1, 9))]
        for other in self.others:
            self.contacts.learn(other)
        self.commit()

    def some(self) -> Peer:
        return self.chance.choice(self.others)

    def commit(self) -> None:
        after = sorted((other.id for other in self.others), key=lambda node: RING.distance(self.me, node))
        after = [node for node in after if node != self.me and self.chance.random() < 0.7]
        prdc = self.chance.choice([self.me, *(other.id for other in self.others)])
        self.table.commit(RULES.found(self.me, after, prdc))

    def change(self) -> None:
        match self.chance.randrange(4):
            case 0:
                self.commit()
            case 1:
                self.table.point(self.chance.randrange(RING.bits), self.some().id)
            case 2:
                self.table.suspect(self.some(), Instant(1))
            case _:
                self.table.heard(self.some())


@pytest.mark.parametrize("seed", range(40))
def test_a_key_goes_the_way_that_the_pointers_say(seed: int) -> None:
    drawn = Drawn(seed)
    table = drawn.table
    for _ in range(8):
        for key in drawn.chance.choices(KEYS, k=3 * RING.size):
            assert table.route_of(key) == ((None, True) if table.owns(key) else table.next_hop(key))
        drawn.change()


@pytest.mark.parametrize("seed", range(40))
def test_a_scope_is_split_among_the_links_inside_it(seed: int) -> None:
    drawn = Drawn(seed)
    table = drawn.table
    for _ in range(8):
        whole = table.split(None)
        assert [to for to, _ in whole] == list(table.clockwise())
        assert [end for _, end in whole] == [*(to.id for to, _ in whole[1:]), drawn.me][: len(whole)]
        for key in KEYS:
            parts = table.split(key)
            inside = [to for to in table.clockwise() if key != drawn.me and between(drawn.me, to.id, key)]
            assert [to for to, _ in parts] == inside
            assert [end for _, end in parts] == [*(to.id for to in inside[1:]), key][: len(parts)]
        drawn.change()
