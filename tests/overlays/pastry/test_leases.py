"""The ends of leases by the clock, what a node tells of where it stands, and how long it bears not being ready."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meetpoint.node.runtime.effects import SetTimer
from meetpoint.node.runtime.inputs import Instant
from meetpoint.node.runtime.ring import Ring
from meetpoint.node.runtime.runtime import Runtime
from meetpoint.overlays.pastry import PastrySettings
from meetpoint.overlays.pastry.leases import LeaseTimer, UnreadyTimeout
from meetpoint.overlays.pastry.messages import Greet, decode_status, encode_status
from meetpoint.overlays.pastry.rules import LEFT, RIGHT, PastryRules, PastryState
from tests.overlays.pastry.driving import PACKER, peer

RING = Ring(8)
LEASE_US = 800


class Clock:
    """Leases, and a clock that is turned by hand."""

    def __init__(self) -> None:
        self.runtime = Runtime(peer(RING, 1), RING, PACKER, 1)
        self.over: list[int] = []
        self.leases = LeaseTimer(self.runtime, LEASE_US, lambda: self.over.append(self.runtime.now))
        self.timers: list[SetTimer] = []
        self.at(0)

    def at(self, now: int) -> None:
        """Advance the clock, and fire the timers that are due, in order."""
        for timer in sorted(self.timers, key=lambda each: each.at):
            if timer.at <= now:
                self.timers.remove(timer)
                self._begin(timer.at)
                self.runtime.fired(timer.timer)
                self._take()
        self._begin(now)

    def _begin(self, now: int) -> None:
        self._effects = self.runtime.begin(Instant(now))

    def _take(self) -> None:
        self.timers += [effect for effect in self._effects if isinstance(effect, SetTimer)]
        self._effects.clear()

    def hold(self, asked_at: int) -> None:
        self.leases.hold(LEFT, asked_at)
        self._take()

    def bind(self) -> None:
        self.leases.bind(RIGHT, b"x")
        self._take()


def test_a_lease_is_over_for_its_holder_from_when_it_asked_and_for_its_granter_an_eighth_later() -> None:
    clock = Clock()
    clock.at(100)
    clock.hold(asked_at=50)
    clock.bind()
    clock.at(849)
    assert clock.leases.remaining_us(LEFT) == 1
    clock.at(850)
    assert clock.leases.remaining_us(LEFT) == 0
    assert clock.over == [850]
    clock.at(999)
    assert clock.leases.take_ended() == []
    clock.at(1000)
    assert clock.over == [850, 1000]
    assert clock.leases.take_ended() == [(RIGHT, b"x")]
    assert not clock.leases.is_bound(RIGHT, b"x")


def test_a_lease_that_is_renewed_wakes_nobody_before_its_new_end() -> None:
    clock = Clock()
    for asked_at in (0, 400, 800):
        clock.at(asked_at + 10)
        clock.hold(asked_at)
    clock.at(1599)
    assert clock.leases.remaining_us(LEFT) == 1
    clock.at(1600)
    assert clock.over[-1] == 1600


def test_an_older_answer_does_not_shorten_a_lease() -> None:
    clock = Clock()
    clock.hold(500)
    clock.hold(100)
    assert clock.leases.remaining_us(LEFT) == 500 + LEASE_US


def test_a_late_timer_is_made_up_for_by_a_look_at_the_clock() -> None:
    clock = Clock()
    clock.hold(0)
    clock._begin(5000)  # the timer has not fired: the process was stopped
    clock.leases.check_expiry()
    assert clock.over == [5000]


def test_a_node_in_a_later_life_is_bound_to_nothing() -> None:
    clock = Clock()
    clock.bind()
    clock.leases.free(b"x")
    assert not clock.leases.is_bound(RIGHT, b"x")
    clock.at(2000)
    assert clock.leases.take_ended() == []


# -- standing ----------------------------------------------------------------------------------------------------------

_ids = st.integers(0, 255).map(RING.key)


@given(st.tuples(_ids, _ids), st.tuples(st.none() | _ids, st.none() | _ids), st.booleans(), st.booleans())
def test_where_a_node_stands_is_told_as_far_as_the_rules_ask(
    near: tuple[bytes, bytes], leases: tuple[bytes | None, bytes | None], waits: bool, member: bool
) -> None:
    state = PastryState(RING.key(1), near, leases, waits=waits, member=member)
    status, told = (
        PastryRules(2).status_of(state),
        decode_status(state.me, Greet(1, (0, 0), near, encode_status(state), True, 1, 1)),
    )
    assert (told.node, told.near, told.waits, told.member, told.ready) == (state.me, near, waits, member, status.ready)
    assert (told.leases[LEFT] == near[LEFT]) == (status.leases[LEFT] == near[LEFT])


# -- patience ----------------------------------------------------------------------------------------------------------


def test_a_joiner_begins_again_after_a_time_that_is_drawn_and_a_member_only_while_others_are_ready() -> None:
    settings = PastrySettings(patience_us=1000, period_us=100, lease_us=300)
    runtime = Runtime(peer(RING, 1), RING, PACKER, 1)
    patience = UnreadyTimeout(runtime, settings)
    runtime.begin(Instant(0))
    patience.begin()
    runtime.begin(Instant(1000))
    assert not patience.is_over(member=False)
    runtime.begin(Instant(2000))
    assert patience.is_over(member=False)
    runtime.begin(Instant(4000))
    assert not patience.is_over(member=True), "nobody is ready, as far as it knows"
    patience.met_ready()
    assert patience.is_over(member=True)
    runtime.begin(Instant(4300))
    assert not patience.is_over(member=True)
