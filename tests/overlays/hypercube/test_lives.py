"""Random lives of a network that runs: nodes come, go, crash and come back while messages are late or lost and parts
are cut off from each other, in any order that hypothesis can think of.

After every step no two who have heard of each other host one id. Whenever it is quiet, every id is soon hosted exactly
once, each node has one place, and all know their neighbours.
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

from meetpoint.api.ids import Peer
from meetpoint.overlays.hypercube.invariant import stands
from meetpoint.overlays.hypercube.maintenance import HypercubeMaintenance
from meetpoint.overlays.hypercube.takeover import Takeover
from tests.overlays.hypercube.driving import QUICK, World, drawn
from tests.tiers import SOAK

NODES = 20
HEALED_S = 90.0
"""How long it may take from when it is quiet."""
RETRY_S = 1.0


def again(peer: Peer) -> Peer:
    """The same node, in its next life."""
    return Peer(peer.id, peer.address, peer.incarnation + 1)


class Lives(RuleBasedStateMachine):
    """A network of which hypothesis chooses what happens next."""

    kind: type[World] = World

    def __init__(self) -> None:
        super().__init__()
        self.world = self.kind(settings=QUICK, dimensions=1)
        self.pool: list[Peer] = []

    @initialize(dimensions=st.integers(1, 6), count=st.integers(1, 12), seed=st.integers(0, 99), detector=st.booleans())
    def begin(self, dimensions: int, count: int, seed: int, detector: bool) -> None:
        self.world = self.kind(seed=seed, settings=QUICK, dimensions=dimensions, detector=detector)
        self.pool = drawn(self.world.ring, NODES, seed)
        self.world.random.shuffle(self.pool)
        self.world.found(self.pool[:count])
        self.world.watched = True

    # -- what may happen -----------------------------------------------------------------------------------------------

    def _up(self, data: st.DataObject) -> bytes:
        return data.draw(st.sampled_from(sorted(self.world.hosts)))

    @rule(data=st.data())
    def join(self, data: st.DataObject) -> None:
        """Have a node join, or come back."""
        numbers = [number for number, each in enumerate(self.pool) if each.id not in self.world.hosts]
        members = sorted(self.world.members())
        if numbers and members:
            number = data.draw(st.sampled_from(numbers))
            me = self.pool[number] = again(self.pool[number])
            contact = self.world.hosts[data.draw(st.sampled_from(members))].runtime.me
            self.world.join(me, contact)

    def _rest(self, node: bytes) -> bool:
        return stands({other: view for other, view in self.world.members().items() if other != node})

    @precondition(lambda self: len(self.world.hosts) > 1)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        node = self._up(data)
        if self._rest(node):
            self.world.leave(node)

    @precondition(lambda self: len(self.world.hosts) > 1)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        node = self._up(data)
        if self._rest(node):
            self.world.crash(node)

    @rule(loss=st.sampled_from([0.0, 0.1, 0.4]))
    def orphan_regions(self, loss: float) -> None:
        self.world.loss = loss

    @rule(data=st.data(), parts=st.integers(1, 3))
    def tear(self, data: st.DataObject, parts: int) -> None:
        """Into parts; one part: all hear each other again."""
        self.world.sides = {each.id: data.draw(st.integers(0, parts - 1)) for each in self.pool}

    @rule(seconds=st.sampled_from([0.02, 0.1, 0.5, 2.0, 8.0]))
    def wait(self, seconds: float) -> None:
        self._run(seconds)

    @rule()
    def quiet(self) -> None:
        self.world.loss, self.world.sides = 0.0, {}
        begun = self.world.now
        while (wrong := self.world.departures()) is not None:
            assert self.world.now - begun < HEALED_S * 1_000_000, wrong
            self._run(RETRY_S)

    def _run(self, seconds: float) -> None:
        """Let time pass; who has not got in tries through someone else now and then, as whole nodes do."""
        while seconds > 0:
            self.world.run(min(seconds, RETRY_S))
            seconds -= RETRY_S
            members = self.world.members()
            for node, host in list(self.world.hosts.items()):
                if node not in members and members:
                    contact = self.world.hosts[self.world.random.choice(sorted(members))].runtime.me
                    self.world.step(host, lambda host=host, contact=contact: host.overlay.join(contact))  # type: ignore[misc]

    @invariant()
    def nothing_is_broken(self) -> None:
        assert self.world.broken == []


def run(machine: type[Lives], examples: int = 40, steps: int = 25) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=2000 if SOAK else examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not SOAK,
            database=None,
            phases=(Phase.generate, Phase.shrink) if SOAK else (Phase.generate,),
        ),
    )


@pytest.mark.slow
def test_every_id_is_hosted_exactly_once_whenever_it_is_quiet() -> None:
    run(Lives)


def test_the_machine_sees_that_nobody_lets_go_of_what_another_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HypercubeMaintenance, "_cede", lambda self, claims: False)
    with pytest.raises(AssertionError, match="too"):
        run(Lives)


def test_the_machine_sees_that_nobody_takes_over_what_a_dead_node_hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    for part in ("take_over_due", "check_holes"):
        monkeypatch.setattr(Takeover, part, lambda self: None)
    with pytest.raises(AssertionError, match="have no host"):
        run(Lives)
