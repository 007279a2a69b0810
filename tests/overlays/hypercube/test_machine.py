"""Random lives of a network: every id is hosted exactly once at all times, whatever joins, leaves and crashes.

A crashed node stays, silent, the host of its region until others have seen to it; meanwhile nodes join and leave on
what they know. Mutants of the rules show that the machine sees what it is for.
"""

from __future__ import annotations

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

from meetpoint.overlays.hypercube.invariant import not_hosted_once
from meetpoint.overlays.hypercube.regions import Region, are_neighbours
from tests.overlays.hypercube.growing import Cube, Effort, SiblingTakesOver, broken
from tests.tiers import SOAK


class Lives(RuleBasedStateMachine):
    """A network of which hypothesis chooses the next step."""

    kind: type[Cube] = Cube

    def __init__(self) -> None:
        super().__init__()
        self.cube = self.kind(1)
        self.count = 0

    @initialize(dimensions=st.integers(1, 6), count=st.integers(0, 24), seed=st.integers(0, 99))
    def begin(self, dimensions: int, count: int, seed: int) -> None:
        self.cube = self.kind(dimensions)
        rng = random.Random(seed)
        for _ in range(count):
            self._join(rng.randrange(1 << dimensions))

    def _join(self, point: int) -> None:
        self.count += 1
        self.cube.join(f"n{self.count}", self.cube.owner(point))

    def _up(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(self.cube.names))

    @rule(point=st.integers(0, 63))
    def join(self, point: int) -> None:
        self._join(point)

    @precondition(lambda self: len(self.cube.names) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.cube.leave(self._up(data))

    @precondition(lambda self: len(self.cube.names) > 1)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        self.cube.crash(self._up(data))

    @precondition(lambda self: self.cube.down)
    @rule()
    def repair(self) -> None:
        up = self.cube.names
        self.cube.repair()
        assert self.cube.names == up, "nobody is lost"

    @invariant()
    def every_id_is_hosted_once(self) -> None:
        wrong = not_hosted_once(self.cube.members, self.cube.dimensions)
        assert wrong is None, wrong
        for point in range(1 << self.cube.dimensions):  # the same by brute force
            assert sum(region.hosts(point) for region in self.cube.members) == 1

    @invariant()
    def links_names_and_lengths_are_right(self) -> None:
        wrong = broken(self.cube.members, self.cube.dimensions)
        assert wrong is None, wrong


def run(machine: type[Lives], steps: int = 30) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2000 if SOAK else 80,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not SOAK,
            database=None,
            phases=(Phase.generate,),
        ),
    )


@pytest.mark.slow
def test_every_id_is_hosted_exactly_once_whatever_happens() -> None:
    run(Lives)


class Greedy(Cube):
    """A member that keeps its ids when it leaves: nobody takes them."""

    def _succeed(self, region: Region, leaver: str) -> None:
        member = self.members.pop(region)
        if not self.members:
            self.members[region] = member._replace(host="nobody")


class Unpassed(Cube):
    """A join is never passed on."""

    def join(self, name: str, at: Region) -> Effort:
        member = self.members[at]
        self.members[at] = member._replace(links=())
        try:
            return super().join(name, at)
        finally:
            self.mend()

    def mend(self) -> None:
        """Links as they should be, so that only lengths are wrong."""
        for region, member in self.members.items():
            near = [self.members[other].link_of for other in sorted(self.members) if are_neighbours(region, other)]
            self.members[region] = member._replace(links=tuple(near))


@pytest.mark.parametrize(
    ("mutant", "what"), [(Greedy, "have no host"), (SiblingTakesOver, "uneven"), (Unpassed, "uneven")]
)
def test_the_machine_sees_what_is_wrong(mutant: type[Cube], what: str) -> None:
    class Mutated(Lives):
        kind = mutant

    with pytest.raises(AssertionError, match=what):
        run(Mutated)
