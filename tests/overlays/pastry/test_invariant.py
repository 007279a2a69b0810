"""The checker of Pastry's invariant: what it must see, and that it agrees with the definition, taken literally."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.ring import Ring
from meetpoint.overlays.pastry.invariant import broken, closest, departures, stands
from meetpoint.overlays.pastry.rules import PastryRules

RING = Ring(8)
HALF = 2


class Seen(NamedTuple):
    """The view of a node."""

    ready: bool
    left: bytes
    right: bytes
    leaves: tuple[bytes, ...]


def key(number: int) -> bytes:
    return RING.key(number)


def network(*numbers: int) -> dict[bytes, Seen]:
    """Members with ideal leaves."""
    rules = PastryRules(HALF)
    states = [rules.found(key(number), map(key, numbers)) for number in numbers]
    return {state.me: Seen(True, *state.near, state.leaves) for state in states}


def believing(members: dict[bytes, Seen], node: int, **believed: int) -> dict[bytes, Seen]:
    seen = members[key(node)]
    near = {"left": seen.left, "right": seen.right} | {side: key(number) for side, number in believed.items()}
    return {**members, key(node): Seen(seen.ready, near["left"], near["right"], seen.leaves)}


def covers(node: int, seen: Seen, at: int) -> bool:
    """By definition: no neighbour is nearer, and one that is as near comes after the key."""
    if seen.left == seen.right == key(node):
        return True
    right, left = ((RING.number(near) - node) % 256 for near in (seen.right, seen.left))
    beyond, before = (at - node) % 256, (node - at) % 256
    return beyond * 2 <= right or before * 2 < 256 - left


def test_an_ideal_network_has_nothing_wrong() -> None:
    for count in range(1, 9):
        members = network(*range(0, 240, 30)[:count])
        assert broken(members, RING.size) is None
        assert departures(members, HALF) is None
        assert stands(members)


def test_a_ready_node_nearer_than_a_neighbour_is_seen_on_either_side() -> None:
    members = network(0, 50, 100, 150)
    assert broken(believing(members, 0, right=100), 256) == (
        "32 is ready, nearer to 00 than its right neighbour 64"
    )  # fmt: skip
    assert broken(believing(members, 100, left=0), 256) == "32 is ready, nearer to 64 than its left neighbour 00"


def test_what_a_node_that_is_not_ready_believes_is_no_matter_nor_is_it_itself() -> None:
    members = believing(network(0, 50, 100, 150), 0, right=100)
    for unready in (0, 50):
        node = key(unready)
        assert broken({**members, node: members[node]._replace(ready=False)}, 256) is None


def test_a_nearer_neighbour_than_there_is_covers_less_and_is_nothing_wrong() -> None:
    assert broken(believing(network(0, 50, 100, 150), 0, right=10), 256) is None


def test_departures_tell_who_is_not_ready_and_whose_leaves_are_not_ideal() -> None:
    members = network(0, 50, 100, 150, 200, 250)
    node = key(50)
    assert departures({**members, node: members[node]._replace(ready=False)}, HALF) == "32 is not ready"
    assert str(departures({**members, node: members[node]._replace(leaves=())}, HALF)).startswith("32 has the leaves")
    assert str(departures(believing(members, 50, right=150), HALF)).startswith("32 has the neighbours")


def test_a_network_stands_while_each_knows_the_next_on_either_side() -> None:
    members = network(0, 50, 100, 150, 200, 250)
    assert stands({node: seen for node, seen in members.items() if node not in (key(100),)})
    assert not stands({node: seen for node, seen in members.items() if node not in (key(100), key(150))})


@given(st.sets(st.integers(0, 255), min_size=1, max_size=6), st.data())
def test_the_check_agrees_with_the_definition(numbers: set[int], data: st.DataObject) -> None:
    """Some keys covered twice, or a ready node nearer than a neighbour: by brute force over all 256 keys."""
    order = sorted(numbers)
    near = st.sampled_from([*order, *range(0, 256, 37)])
    members = {
        key(node): Seen(data.draw(st.booleans()), key(data.draw(near)), key(data.draw(near)), ()) for node in order
    }
    ready = [node for node in order if members[key(node)].ready]
    twice = any(sum(covers(node, members[key(node)], at) for node in ready) > 1 for at in range(256))
    nearer = any(
        other != node
        and (
            (other - node) % 256 < ((RING.number(members[key(node)].right) - node) % 256 or 256)
            or (node - other) % 256 < ((node - RING.number(members[key(node)].left)) % 256 or 256)
        )
        for node in ready
        for other in ready
    )
    assert (broken(members, 256) is not None) is (twice or nearer)


@given(st.sets(st.integers(0, 255), min_size=1, max_size=8), st.integers(0, 255))
def test_exactly_one_of_an_ideal_network_covers_a_key_and_it_is_the_closest(numbers: set[int], at: int) -> None:
    order = sorted(numbers)
    members = network(*order)
    covering = [node for node in order if covers(node, members[key(node)], at)]
    assert covering == [RING.number(closest([key(node) for node in order], key(at), 256))]
    apart = {node: min((at - node) % 256, (node - at) % 256) for node in order}
    assert apart[covering[0]] == min(apart.values())


def test_of_two_as_near_the_one_before_the_key_has_it() -> None:
    assert closest([key(10), key(20)], key(15), 256) == key(10)
    assert closest([key(10), key(20)], key(20), 256) == key(20)
    assert closest([key(10), key(138)], key(202), 256) == key(138)
