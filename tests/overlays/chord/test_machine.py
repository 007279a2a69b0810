"""Random lives of a network by the rules that nodes run, in any order that the operating assumption allows.

Larger than what can be searched: up to twelve members with lists of three, claims that wait as long as they like, and
approaches to any live node between a member and its successor, as when rings merge.
"""

from __future__ import annotations

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

from meetpoint.node.runtime.ring import Ring, between
from meetpoint.overlays.chord.invariant import broken, departures
from meetpoint.overlays.chord.rules import ChordRules, ChordState
from tests.overlays.chord.mutants import Uncut
from tests.tiers import SOAK

LENGTH = 3
RING = Ring(8)
NODES = tuple(RING.key(number) for number in range(0, 240, 20))


class Lives(RuleBasedStateMachine):
    """A network of which hypothesis chooses the next step."""

    kind: type[ChordRules] = Uncut

    def __init__(self) -> None:
        super().__init__()
        self.steps = self.kind(LENGTH, lambda node: RING.add(node, 1))
        self.members: dict[bytes, ChordState] = {}

    @initialize(count=st.integers(LENGTH + 1, 8))
    def found(self, count: int) -> None:
        order = NODES[:count]
        for at, me in enumerate(order):
            self.members[me] = self.steps.found(me, order[at + 1 :] + order[:at], order[at - 1])

    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        joiner = data.draw(st.sampled_from(NODES))
        member = data.draw(st.sampled_from(sorted(self.members)))
        if joiner not in self.members:
            state = self.steps.join(joiner, member, self.members[member].succ)
            if state is not None:
                self.members[joiner] = state

    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.members)))
        rest = {other: state for other, state in self.members.items() if other != node}
        if broken(rest, LENGTH + 1) is None:
            self.members = rest

    @rule(data=st.data())
    def stabilise(self, data: st.DataObject) -> None:
        self._stabilise(self.members[data.draw(st.sampled_from(sorted(self.members)))])

    @rule(data=st.data())
    def rectify(self, data: st.DataObject) -> None:
        state = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        if state.candidate is not None:
            self.members[state.me] = self.steps.rectify(state, state.prdc in self.members)

    @rule(data=st.data())
    def approach(self, data: st.DataObject) -> None:
        state = self.members[data.draw(st.sampled_from(sorted(self.members)))]
        node = data.draw(st.sampled_from(sorted(self.members)))
        if state.saved is None and node != state.me and between(state.me, node, state.succ[0]):
            self.members[state.me] = state._replace(saved=node)

    @precondition(lambda self: self.members)
    @rule()
    def quiet(self) -> None:
        """From any state, some rounds make all pointers ideal."""
        before = dict(self.members)
        for _ in range(4 * len(NODES)):
            for me in sorted(self.members):
                self._stabilise(self.members[me])
                for state in list(self.members.values()):
                    if state.candidate is not None:
                        self.members[state.me] = self.steps.rectify(state, state.prdc in self.members)
            if departures(self.members, LENGTH) is None:
                break
        else:
            raise AssertionError(departures(self.members, LENGTH))
        self.members = before

    @invariant()
    def holds(self) -> None:
        if self.members:
            assert broken(self.members, LENGTH + 1) is None

    def _stabilise(self, state: ChordState) -> None:
        rules = self.steps
        asked = self.members.get(state.succ[0] if state.saved is None else state.saved)
        if state.saved is not None:
            after, told = rules.second_dead(state) if asked is None else rules.second_live(state, asked.succ)
        elif asked is None:
            after, told = rules.first_dead(state)
        else:
            after, told = rules.first_live(state, asked.prdc, asked.succ)
        self.members[state.me] = after
        if told in self.members:
            self.members[told] = rules.notified(self.members[told], state.me)


Lives.TestCase.settings = settings(max_examples=2000 if SOAK else 60, stateful_step_count=60, deadline=None)
TestLives = Lives.TestCase


class Headless(ChordRules):
    """A dead successor is kept."""

    def first_dead(self, state: ChordState) -> tuple[ChordState, bytes | None]:
        return state, state.succ[0]


class HeadlessLives(Lives):
    kind = Headless


def test_the_machine_catches_a_mutant_that_random_walks_can_meet() -> None:
    """The mutants of the search are too subtle for it: that is why there is a search."""
    once = settings(max_examples=100, stateful_step_count=40, deadline=None, phases=(Phase.generate,))
    with pytest.raises(AssertionError, match=r"has (successors|predecessor)"):
        run_state_machine_as_test(HeadlessLives, settings=once)
