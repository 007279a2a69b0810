"""Quenching never costs a match, and interest is taken back: paper C, section 4.5, as corrected."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from meetpoint.overlays.hypercube import Region
from meetpoint.schemes.reach import Interest, Tree, tree_of
from meetpoint.schemes.reach.interest import Ack, Said, Tell, is_below
from tests.overlays.hypercube.growing import Cube, even, grown, lopsided
from tests.schemes.reach.quenching import Quenched
from tests.schemes.reach.walking import walk

LONG = os.environ.get("MEETPOINT_EXAMPLES") == "new"
DIMENSIONS = 5
HERE, ABOVE, BELOW = Region.read("01"), Region.read("11"), Region.read("00")


def test_below_is_where_the_one_bit_is_not_set() -> None:
    assert is_below(BELOW, HERE)
    assert is_below(HERE, ABOVE)
    assert not is_below(ABOVE, HERE)
    assert is_below(Region.read("101"), ABOVE), "also where lengths differ"
    assert not is_below(BELOW, ABOVE), "no neighbour"


@pytest.mark.parametrize("seed", range(30))
def test_going_down_never_leads_round(seed: int) -> None:
    rng = random.Random(seed)
    cube = rng.choice([grown, lopsided])(7, rng.randint(2, 50), rng)
    for _ in range(rng.randint(0, 20)):
        if len(cube.names) > 2:
            cube.leave(rng.choice(cube.names))
    left = {region: {link for link in cube.links(region) if is_below(link, region)} for region in cube.members}
    while free := [region for region, below in left.items() if not below & left.keys()]:
        for region in free:
            del left[region]
    assert not left


# -- one node ----------------------------------------------------------------------------------------------------------


def quiet() -> Interest:
    """A node that has said that nothing is wanted, and been heard."""
    node = Interest(HERE, [ABOVE, BELOW])
    node.heard(Tell(HERE, 0, False), BELOW)
    node.acknowledged(Ack(HERE, node.number), ABOVE)
    assert node.settled
    assert not node.wanted
    return node


def test_what_is_not_known_is_wanted() -> None:
    node = Interest(HERE, [ABOVE, BELOW])
    assert node.wanted
    assert node.wants(BELOW)
    assert node.wants(Region.read("10")), "a stranger"


def test_a_node_wants_nothing_once_all_below_want_nothing() -> None:
    node = Interest(HERE, [ABOVE, BELOW])
    assert node.heard(Tell(HERE, 3, False), BELOW) == [Tell(ABOVE, 1, False), Ack(BELOW, 3)]
    assert not node.wants(BELOW)


def test_a_subscription_is_safe_only_when_all_above_know() -> None:
    node = quiet()
    assert node.hold(1) == [Tell(ABOVE, 2, True)]
    assert not node.settled
    assert node.again() == [Tell(ABOVE, 2, True)]
    node.acknowledged(Ack(HERE, 1), ABOVE)
    assert node.again() == [Tell(ABOVE, 2, True)], "that was for what it said before"
    node.acknowledged(Ack(HERE, 2), ABOVE)
    assert node.again() == []
    assert node.hold(2) == [], "all above know already"


def test_interest_from_below_is_acknowledged_only_when_all_above_know() -> None:
    node = quiet()
    assert node.heard(Tell(HERE, 1, True), BELOW) == [Tell(ABOVE, 2, True)]
    assert node.acknowledged(Ack(HERE, 2), ABOVE) == [Ack(BELOW, 1)]
    assert node.heard(Tell(HERE, 1, True), BELOW) == [Ack(BELOW, 1)], "said again, as the answer was lost"


def test_interest_is_taken_back() -> None:
    node = quiet()
    node.hold(1)
    assert node.hold(0) == [Tell(ABOVE, 3, False)]


def test_what_comes_late_is_dropped() -> None:
    node = quiet()
    node.heard(Tell(HERE, 5, True), BELOW)
    assert node.heard(Tell(HERE, 4, False), BELOW) == []
    assert node.wants(BELOW)


def test_a_neighbour_with_another_host_is_not_known() -> None:
    node = quiet()
    assert node.forget(BELOW) == [Tell(ABOVE, 2, True)]
    assert node.wants(BELOW)
    node = quiet()
    assert node.forget(ABOVE) == [Tell(ABOVE, 1, False)]
    assert not node.settled
    assert node.forget(Region.read("10")) == []


def test_a_region_that_has_taken_another_in_never_denies_what_came_with_it() -> None:
    node = Interest(BELOW, [Region.read("10"), HERE])
    node.hold(0)
    assert not node.wanted
    said = node.relink(Region.read("0"), [Region.read("1")], 1)
    assert said == [Tell(Region.read("1"), 1, True)], "and nothing before it"


# -- a network ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(1, 6))
def test_with_ids_of_one_length_only_nodes_above_a_subscription_want_events_when_quiet(length: int) -> None:
    rng = random.Random(length)
    network = Quenched(even(DIMENSIONS, length))
    numbers = [network.subscribe(rng.randrange(1 << DIMENSIONS)) for _ in range(4)]
    network.settle()
    for region, node in network.nodes.items():
        assert node.wanted == network.needed(region)
    for number in numbers:
        network.unsubscribe(number)
    network.settle()
    assert not any(node.wanted for node in network.nodes.values()), "all of it is taken back"


def test_quenching_saves_messages() -> None:
    rng = random.Random(1)
    network = Quenched(even(8, 6))
    for _ in range(6):
        network.subscribe(rng.randrange(256) | rng.randrange(256))
    network.settle()
    events = [rng.randrange(256) for _ in range(200)]
    plain = sum(len(walk(network.cube, network.cube.owner(e), e, Tree()).edges) for e in events)
    saved = sum(len(walk(network.cube, network.cube.owner(e), e, Tree(), network.wants).edges) for e in events)
    assert saved < plain / 2


class Lives(RuleBasedStateMachine):
    """A network of which hypothesis chooses the next step."""

    kind: type[Quenched] = Quenched

    def __init__(self) -> None:
        super().__init__()
        self.network = self.kind(Cube(DIMENSIONS))
        self.tree = Tree()
        self.count = 0

    @initialize(count=st.integers(1, 12), seed=st.integers(0, 99), quiet=st.booleans())
    def begin(self, count: int, seed: int, quiet: bool) -> None:
        cube = grown(DIMENSIONS, count, random.Random(seed))
        self.network = self.kind(cube)
        self.tree = tree_of(str(seed), min(region.length for region in cube.members))
        if quiet:
            self.network.settle()

    @rule(bits=st.integers(0, 31))
    def subscribe(self, bits: int) -> None:
        self.network.subscribe(bits)

    @precondition(lambda self: self.network.subscriptions)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        self.network.unsubscribe(data.draw(st.sampled_from(sorted(self.network.subscriptions))))

    @precondition(lambda self: self.network.flying)
    @rule(data=st.data(), fate=st.sampled_from(["arrives", "arrives", "arrives", "doubles", "is lost"]))
    def carry(self, data: st.DataObject, fate: str) -> None:
        at = data.draw(st.integers(0, len(self.network.flying) - 1))
        if fate == "is lost":
            del self.network.flying[at]
        else:
            self.network.arrive(at, keep=fate == "doubles")

    @rule()
    def repeat(self) -> None:
        self.network.repeat()

    @rule()
    def settle(self) -> None:
        self.network.settle()

    @rule(point=st.integers(0, 31))
    def join(self, point: int) -> None:
        self.count += 1
        cube = self.network.cube
        cube.join(f"late{self.count}", cube.owner(point))
        self.network.changed()

    @precondition(lambda self: len(self.network.cube.names) > 1)
    @rule(data=st.data(), crashes=st.booleans())
    def leave(self, data: st.DataObject, crashes: bool) -> None:
        cube = self.network.cube
        name = data.draw(st.sampled_from(cube.names))
        if crashes:
            cube.crash(name)
            cube.repair()
        else:
            cube.leave(name)
        self.network.changed()

    @invariant()
    def no_match_is_lost(self) -> None:
        wrong = self.network.wrong(range(0, 32, 3), self.tree)
        assert wrong is None, wrong

    def teardown(self) -> None:
        self.network.settle()
        for number in sorted(self.network.subscriptions):
            assert self.network.subscriptions[number][1], "safe at last"
            self.network.unsubscribe(number)
        self.network.settle()
        assert not any(node.wanted for node in self.network.nodes.values())


def run(machine: type[Lives]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=1000 if LONG else 100,
            stateful_step_count=40,
            deadline=None,
            derandomize=not LONG,
            database=None,
            phases=(Phase.generate,),
        ),
    )


def test_quenching_never_costs_a_match_whatever_is_lost_late_or_doubled_and_whoever_comes_and_goes() -> None:
    run(Lives)


class Hasty(Quenched):
    """A subscription is acknowledged at once: the paper's race with publishing."""

    def _acknowledge(self) -> None:
        self.subscriptions = {number: (bits, True) for number, (bits, _) in self.subscriptions.items()}


class Eager(Interest):
    """Interest from below is acknowledged at once, before those above know."""

    @property
    def settled(self) -> bool:
        return True


class Forgetful(Interest):
    """What comes late counts too."""

    def heard(self, tell: Tell, link: Region) -> list[Said]:
        if link in self._below:
            self._below[link] = -1, self._below[link][1]
        return super().heard(tell, link)


class EagerNetwork(Quenched):
    interest = Eager


class ForgetfulNetwork(Quenched):
    interest = Forgetful


@pytest.mark.parametrize("mutant", [Hasty, EagerNetwork])
def test_the_machine_sees_what_is_wrong(mutant: type[Quenched]) -> None:
    class Mutated(Lives):
        kind = mutant

    with pytest.raises(AssertionError, match=r"to want nothing|does not reach"):
        run(Mutated)


@pytest.mark.parametrize(("kind", "is_lost"), [(Quenched, False), (ForgetfulNetwork, True)])
def test_what_was_taken_back_and_comes_late_does_not_undo_what_was_said_since(
    kind: type[Quenched], is_lost: bool
) -> None:
    network = kind(even(1, 1))
    network.settle()
    number = network.subscribe(0)
    network.unsubscribe(number)
    network.subscribe(0)
    assert [(sent.said.number, getattr(sent.said, "wanted", None)) for sent in network.flying] == [
        (2, True),
        (3, False),
        (4, True),
    ]
    network.arrive(2)
    network.arrive(2)
    assert network.acknowledged() == [0]
    network.arrive(1)
    assert (network.wrong([0, 1], Tree()) is not None) == is_lost
