"""Each checker fires on a network that is wrong in one way, and on no other; and the rules of judging, by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meetpoint.api.ids import EventKey, Peer
from meetpoint.lab.sim import Network, RunReport
from meetpoint.lab.sim.clients import EPOCH
from meetpoint.lab.sim.judge import (
    Change,
    DeliveryRecord,
    History,
    JudgingTimes,
    LookupRecord,
    Members,
    MembershipHistory,
    PublicationRecord,
    SubscriptionRecord,
    Verdict,
    check_lookups,
    check_notifications,
    closest_to,
    first_from,
)
from meetpoint.lab.sim.workload import Workload
from meetpoint.language.events.event import Event
from meetpoint.language.events.msgpack import from_msgpack, to_msgpack
from meetpoint.language.filters.filter import parse_filter
from meetpoint.node.runtime.effects import Effect, Notify
from meetpoint.node.runtime.inputs import Input, Instant, TimerFired
from tests.lab.sim.toy import ToyFamily, ToyNode, ToyView

# -- mutants -----------------------------------------------------------------------------------------------------------


class Forgetful(ToyNode):
    """Drops one notification."""

    dropped = False

    def take(self, key: EventKey, content: bytes) -> list[Effect]:
        effects = super().take(key, content)
        if effects and not self.dropped:
            self.dropped = True
            return []
        return effects


class Stuttering(ToyNode):
    """Notifies twice; `mark` says whether it owns up to it."""

    mark = False

    def take(self, key: EventKey, content: bytes) -> list[Effect]:
        return [
            again
            for effect in super().take(key, content)
            if isinstance(effect, Notify)
            for again in (effect, msgspec.structs.replace(effect, redelivered=self.mark))
        ]


class Honest(Stuttering):
    """Notifies twice and says so."""

    mark = True


class Careless(ToyNode):
    """Notifies everyone of the first event, whether it matches or not."""

    def take(self, key: EventKey, content: bytes) -> list[Effect]:
        names = tuple(self.filters)
        if from_msgpack(content).id == "e1" and names:
            return [Notify(key, names, content, redelivered=False)]
        return super().take(key, content)


class Deaf(ToyNode):
    """Does not stop when a subscription ends."""

    def asked(self, request: int, what: object) -> list[Effect]:
        kept = dict(self.filters)
        effects = super().asked(request, what)
        self.filters = kept | self.filters
        return effects


class Inventive(ToyNode):
    """Notifies of an event that nobody published, and someone who never subscribed."""

    def take(self, key: EventKey, content: bytes) -> list[Effect]:
        event = from_msgpack(content)
        other = to_msgpack(Event(f"not {event.id}", event.publisher, event.sequence, event.time, event.attributes))
        effects = super().take(key, content)
        if not effects:
            return []
        return [*effects, Notify(key, tuple(self.filters)[:1], other, False), Notify(key, ("nobody",), content, False)]


class Swapping(ToyNode):
    """Keeps an event back until the next one of its publisher has gone out, or for a while."""

    def __init__(self, family: ToyFamily, me: Peer) -> None:
        super().__init__(family, me)
        self.kept: dict[bytes, list[Effect]] = {}

    def take(self, key: EventKey, content: bytes) -> list[Effect]:
        effects = super().take(key, content)
        if from_msgpack(content).sequence < 20:  # while subscriptions end
            return effects
        if effects and key.home in self.kept:
            return effects + self.kept.pop(key.home)
        if effects:
            self.kept[key.home] = effects
        return []

    def handle(self, item: Input, now: Instant) -> list[Effect]:
        effects = super().handle(item, now)
        if isinstance(item, TimerFired) and not self.ticks % 50:
            effects += [effect for kept in self.kept.values() for effect in kept]
            self.kept.clear()
        return effects


class Lost(ToyNode):
    """Finds the next node but one."""

    def find(self, key: bytes) -> Peer:
        members = self.family.members()
        order = sorted(members)
        return members[order[(order.index(first_from(order, key)) + 1) % len(order)]]


class Leaking(ToyNode):
    """Never lets go of one event."""

    def snapshot(self) -> ToyView:
        return msgspec.structs.replace(super().snapshot(), outbox=1)


class Twisted(ToyFamily):
    """Its overlay is broken from the start."""

    def broken(self, views: Mapping[bytes, Any]) -> str | None:
        return "a pointer points nowhere"


class Restless(ToyFamily):
    """Its overlay never comes to rest."""

    def departures(self, views: Mapping[bytes, Any]) -> str | None:
        return "a pointer is not ideal"


def report_of(family: ToyFamily) -> RunReport:
    net = Network(nodes=5, seed=1, family=family)
    workload = Workload(1)
    names = [net.subscribe(workload.filter()) for _ in range(40)]
    for _ in range(20):
        net.publish(workload.event())
    for name in names[:20]:
        net.unsubscribe(name)
    for _ in range(40):
        net.publish(workload.event(), phase="after")
        net.lookup()
    net.run()
    return net.report()


@pytest.mark.parametrize(
    ("family", "wrong"),
    [
        (ToyFamily(), []),
        (ToyFamily(Honest), []),
        (ToyFamily(Forgetful), ["missing"]),
        (ToyFamily(Stuttering), ["duplicate"]),
        (ToyFamily(Careless), ["spurious"]),
        (ToyFamily(Deaf), ["spurious"]),
        (ToyFamily(Inventive), ["spurious"]),
        (ToyFamily(Swapping), ["out_of_order"]),
        (ToyFamily(Lost), ["lookups_wrong"]),
        (ToyFamily(Leaking), ["invariants_broken"]),
        (Twisted(), ["invariants_broken"]),
        (Restless(), ["invariants_broken"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, ToyFamily) else " ".join(value) or "nothing",
)
def test_each_mutant_is_found_by_its_checker_and_by_no_other(family: ToyFamily, wrong: list[str]) -> None:
    report = report_of(family)
    assert [name for name, count in report.counts.items() if count] == wrong
    assert report.good is not bool(wrong)
    assert bool(report.problems) is bool(wrong)


# -- versions ----------------------------------------------------------------------------------------------------------

LOW, HIGH = "price < 10", "price >= 10"
JUDGING = JudgingTimes(recovered=0, grace_us=100)


def history(
    changes: Sequence[tuple[str | None, int, int | None]],
    asked: int = 50,
    acknowledged: int | None = 60,
    came: tuple[int, ...] = (),
) -> History:
    """One subscription with these changes (filter, asked, acknowledged), and one event of price 5."""
    history = History()
    subscription = SubscriptionRecord("s1", "n1")
    for text, asked_at, acknowledged_at in changes:
        filter_ = None if text is None else parse_filter(text)
        subscription.changes.append(Change(filter_, text, asked_at, acknowledged_at))
    subscription.deliveries = [DeliveryRecord(at, "e1", "n1", False) for at in came]
    history.subscriptions["s1"] = subscription
    event = Event("e1", "p", 1, EPOCH, {"price": 5})
    history.publications["e1"] = PublicationRecord(event, to_msgpack(event), asked, acknowledged)
    return history


def counts(verdict: Verdict) -> tuple[int, int, int]:
    return len(verdict.missing), len(verdict.duplicate), len(verdict.spurious)


@pytest.mark.parametrize(
    ("changes", "absent", "present"),
    [
        # the subscription was acknowledged before the event was asked to be published, or not
        ([(LOW, 10, 20)], (1, 0, 0), (0, 0, 0)),
        ([(LOW, 10, 50)], (1, 0, 0), (0, 0, 0)),
        ([(LOW, 10, 51)], (0, 0, 0), (0, 0, 0)),
        ([(LOW, 10, None)], (0, 0, 0), (0, 0, 0)),
        # it does not match
        ([(HIGH, 10, 20)], (0, 0, 0), (0, 0, 1)),
        # an update before, and one that may have met the event on its way
        ([(LOW, 10, 20), (HIGH, 30, 40)], (0, 0, 0), (0, 0, 1)),
        ([(LOW, 10, 20), (HIGH, 30, 55)], (0, 0, 0), (0, 0, 0)),
        ([(HIGH, 10, 20), (LOW, 30, 55)], (0, 0, 0), (0, 0, 0)),
        ([(HIGH, 10, 20), (LOW, 30, 40)], (1, 0, 0), (0, 0, 0)),
        ([(LOW, 10, 20), (HIGH, 150, 160)], (0, 0, 0), (0, 0, 0)),
        ([(LOW, 10, 20), (HIGH, 151, 160)], (1, 0, 0), (0, 0, 0)),
        # both versions match
        ([(LOW, 10, 20), (LOW, 30, 55)], (1, 0, 0), (0, 0, 0)),
        # the end of the subscription: before, meanwhile, and never acknowledged
        ([(LOW, 10, 20), (None, 30, 40)], (0, 0, 0), (0, 0, 1)),
        ([(LOW, 10, 20), (None, 30, 69)], (0, 0, 0), (0, 0, 1)),
        ([(LOW, 10, 20), (None, 30, 70)], (0, 0, 0), (0, 0, 0)),
        ([(LOW, 10, 20), (None, 30, None)], (0, 0, 0), (0, 0, 0)),
        # an update asked for only after the event came cannot excuse it
        ([(HIGH, 10, 20), (LOW, 71, 80)], (0, 0, 0), (0, 0, 1)),
    ],
)
def test_an_event_is_judged_by_the_versions_it_may_have_met(
    changes: list[tuple[str | None, int, int | None]], absent: tuple[int, int, int], present: tuple[int, int, int]
) -> None:
    assert counts(check_notifications(history(changes), JUDGING)) == absent
    assert counts(check_notifications(history(changes, came=(70,)), JUDGING)) == present


def test_an_event_that_was_not_acknowledged_may_come_or_not() -> None:
    assert counts(check_notifications(history([(LOW, 10, 20)], acknowledged=None), JUDGING)) == (0, 0, 0)
    assert counts(check_notifications(history([(LOW, 10, 20)], acknowledged=None, came=(70,)), JUDGING)) == (0, 0, 0)


def test_an_event_of_the_time_of_faults_may_meet_every_change_until_recovery() -> None:
    changes = [(LOW, 10, 20), (HIGH, 500, 510)]
    assert counts(check_notifications(history(changes), JudgingTimes(recovered=499, grace_us=100))) == (1, 0, 0)
    assert counts(check_notifications(history(changes), JudgingTimes(recovered=500, grace_us=100))) == (0, 0, 0)
    assert counts(check_notifications(history(changes, asked=505), JudgingTimes(recovered=500, grace_us=1))) == (
        0,
        0,
        0,
    )


def test_a_repeat_counts_unless_it_is_marked_or_the_home_lost_its_disk_meanwhile() -> None:
    twice = history([(LOW, 10, 20)], came=(70, 90))
    assert counts(check_notifications(twice, JUDGING)) == (0, 1, 0)
    for lost_at, address, repeats in ((80, "n1", 0), (80, "n2", 1), (60, "n1", 1), (95, "n1", 1)):
        twice.lost_disks = [(lost_at, address)]
        assert counts(check_notifications(twice, JUDGING)) == (0, repeats, 0)
    marked = history([(LOW, 10, 20)], came=(70,))
    marked.subscriptions["s1"].deliveries.append(DeliveryRecord(90, "e1", "n1", True))
    assert counts(check_notifications(marked, JUDGING)) == (0, 0, 0)


HOLD = 30_000_000


@pytest.mark.parametrize(
    ("came", "wrong"),
    [
        ([(100, 1, False), (200, 2, False), (300, 3, False)], 0),
        ([(100, 2, False), (200, 1, False), (300, 3, False)], 1),
        ([(100, 3, False), (200, 1, False), (300, 2, False)], 2),
        ([(100, 2, True), (200, 1, False), (300, 3, False)], 0),  # what is marked may come at any time
        ([(100, 2, False), (200, 1, True), (300, 3, False)], 0),
        ([(100, 1, False), (200, 2, False), (300, 1, False)], 0),  # a duplicate is another matter
        ([(HOLD + 20, 2, False), (HOLD + 30, 1, False)], 0),  # 1 was waited for long enough
        ([(HOLD + 19, 2, False), (HOLD + 30, 1, False)], 1),
        ([(100, 2, False), (200, 4, False)], 0),  # 4 is another publisher's
        ([(100, 3, False), (200, 4, False), (300, 2, False)], 1),
    ],
)
def test_events_of_a_publisher_come_in_order(came: list[tuple[int, int, bool]], wrong: int) -> None:
    history = History()
    subscription = history.subscriptions["s1"] = SubscriptionRecord("s1", "n1")
    subscription.changes.append(Change(parse_filter(LOW), LOW, 0, 1))
    for number, address in ((1, "n1"), (2, "n1"), (3, "n1"), (4, "n2")):
        event = Event(f"e{number}", address, number, EPOCH, {"price": 5})
        publication = PublicationRecord(event, to_msgpack(event), 10 * number, None, address)
        history.publications[event.id] = publication
    subscription.deliveries = [DeliveryRecord(at, f"e{number}", "n1", marked) for at, number, marked in came]
    assert len(check_notifications(history, JUDGING).out_of_order) == wrong
    subscription.changes[0].acknowledged = 15  # after 1 was asked for: it may come whenever it is matched again
    assert len(check_notifications(history, JUDGING).out_of_order) == sum(
        not marked and number in (2, 3) and any(b > number and b != 4 and not m and a < at < HOLD for a, b, m in came)
        for at, number, marked in came
    )


# -- lookups -----------------------------------------------------------------------------------------------------------


def first(members: Members, key: bytes) -> list[bytes]:
    return [first_from(members.ids, key)]


def truth() -> MembershipHistory:
    """Members 1, 5 and 9; 5 is gone from 100 to 200, 7 comes at 150."""
    truth = MembershipHistory()
    for number in (1, 5, 9):
        truth.change(0, bytes([number]), member=True)
    truth.change(100, b"\x05", member=False)
    truth.change(150, b"\x07", member=True)
    truth.change(200, b"\x05", member=True)
    return truth


@pytest.mark.parametrize(
    ("key", "asked", "answered", "right"),
    [
        (4, 10, 20, {5}),
        (5, 10, 20, {5}),
        (6, 10, 20, {9}),
        (10, 10, 20, {1}),  # round the circle
        (4, 99, 100, {5, 9}),
        (4, 101, 149, {9}),
        (4, 99, 250, {5, 7, 9}),
        (4, 150, 199, {7}),
        (4, 150, 200, {5, 7}),
        (8, 10, 300, {9}),
    ],
)
def test_a_lookup_is_right_if_it_was_at_some_moment(key: int, asked: int, answered: int, right: set[int]) -> None:
    for found in (1, 5, 7, 9):
        lookup = LookupRecord(bytes([key]), asked, "n1", answered, bytes([found]), 1)
        assert (not check_lookups([lookup], truth(), since=0, responsible=first)) is (found in right)
        assert check_lookups([lookup], truth(), since=asked + 1, responsible=first) == []


def test_a_lookup_is_right_if_the_place_it_found_was_there_at_some_moment() -> None:
    """Where members move, ids alone do not say who has a key: it is who had a place at it, if anyone."""
    moved = MembershipHistory()
    for number, place in ((1, 4), (5, None)):
        moved.change(0, bytes([number]), member=True, place=place)
    moved.change(100, b"\x01", member=True)
    moved.change(150, b"\x05", member=True, place=4)

    def placed(members: Members, key: bytes) -> list[bytes]:
        return [id_ for id_ in members.ids if members.places[id_] == key[0]]

    def wrong(asked: int, answered: int) -> list[bool]:
        lookups = [LookupRecord(b"\x04", asked, "n1", answered, bytes([found]), 1) for found in (1, 5)]
        return [bool(check_lookups([lookup], moved, since=0, responsible=placed)) for lookup in lookups]

    assert wrong(10, 20) == [False, True]
    assert wrong(10, 120) == [False, True]
    assert wrong(101, 149) == [True, True], "nobody had it"
    assert wrong(10, 150) == [False, False]
    assert wrong(160, 170) == [True, False]


def test_a_lookup_that_finds_nobody_is_wrong() -> None:
    assert check_lookups([LookupRecord(b"\x04", 10, "n1")], truth(), since=0, responsible=first) != []
    assert check_lookups([LookupRecord(b"\x04", 10, "n1")], truth(), since=11, responsible=first) == []


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(0, 63))
def test_the_nearest_member_is_the_one_that_a_look_at_all_distances_finds(members: set[int], key: int) -> None:
    """Of two that are as near, the one before the key."""
    order = [bytes([member]) for member in sorted(members)]
    found = closest_to(order, bytes([key]), 64)[0]
    assert found == min(members, key=lambda each: (min((each - key) % 64, (key - each) % 64), (key - each) % 64))
