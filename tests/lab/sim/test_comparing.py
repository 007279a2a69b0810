"""What schemes cost: the same is asked of all, what is counted adds up, and what is wrong is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache

import pytest

from meetpoint.api.ids import EventKey, HomeId, Peer
from meetpoint.api.limits import SECOND_US
from meetpoint.api.messages import Message
from meetpoint.api.requests import Publish, Subscribe
from meetpoint.catalog import SCHEMES, make_codec
from meetpoint.lab.sim import Network, RunReport, Timing, run
from meetpoint.lab.sim import comparison as comparing
from meetpoint.lab.sim.clients import Clients
from meetpoint.lab.sim.comparison import (
    CAUSED,
    SETTLE_S,
    Costs,
    Trial,
    TrialInput,
    _Idle,
    compare,
    configured,
    draw_input,
    everything,
    measure,
    overlay_of,
)
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.observers import ALONE, IDLE_S, IN_A_ROW, EventMeter, FollowedEvent, alone_of
from meetpoint.lab.sim.workload import SCHEMA
from meetpoint.language.filters.filter import parse_filter
from meetpoint.matching import Scan
from meetpoint.node.runtime.effects import Notify
from meetpoint.node.runtime.inputs import ClientRequest
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.flood.scheme import FloodAck, FloodEvent
from tests.lab.sim.toy import ToyFamily

NODES = 6
GIVEN = draw_input(5, 20, 12)
RING = Ring()
A, B, C = (Process(number, Peer(RING.node(number), f"n{number}", 1)) for number in range(3))
KEY = EventKey(HomeId(b"h"), 1, 1)


@cache
def costs_of(scheme: str) -> Costs:
    return measure(Trial(scheme=scheme, overlay=overlay_of(scheme, "chord"), nodes=NODES), GIVEN)


# -- whole networks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", everything())
def test_every_scheme_is_given_the_same_and_gives_the_same(scheme: str) -> None:
    scan: Scan[int] = Scan()
    for number, text in enumerate(GIVEN.filters):
        scan.add(number, parse_filter(text))
    costs = costs_of(scheme)
    assert costs.good, costs.problems
    assert set(costs.counts.values()) == {0}
    matches = sum(len(scan.match(event)) for event in GIVEN.events)
    assert costs.notifications == costs.notifications_expected == matches > 0


@pytest.mark.parametrize("scheme", everything())
def test_what_is_counted_adds_up(scheme: str) -> None:
    costs = costs_of(scheme)
    assert costs.event is not None
    assert set(costs.event_by_purpose) == set(CAUSED)
    assert sum(each.messages for each in costs.event_by_purpose.values()) == pytest.approx(costs.event.messages)
    assert sum(each.bytes for each in costs.event_by_purpose.values()) == pytest.approx(costs.event.bytes)
    assert costs.event_by_purpose["safekeeping"].messages >= 2
    assert costs.subscription is not None and costs.subscription.messages >= 2  # noqa: PT018
    assert costs.subscription.bytes > costs.subscription.messages
    assert costs.upkeep.messages > 0.5
    assert costs.alone == len(GIVEN.events)
    assert costs.visited is not None and 1 / NODES <= costs.visited <= 1  # noqa: PT018
    assert costs.busiest is not None and 1 / NODES <= costs.busiest <= 1  # noqa: PT018
    assert costs.event_hops is not None and 1 <= costs.event_hops.mean <= costs.event_hops.max  # noqa: PT018
    assert costs.event_delay_ms is not None and costs.event_delay_ms.p50 > 0  # noqa: PT018
    assert costs.subscription_ms is not None and costs.subscription_ms.p50 > 0  # noqa: PT018


def test_a_flood_is_a_message_and_an_answer_for_every_other_node_and_places_nothing() -> None:
    costs = costs_of("flood")
    assert costs.event_by_purpose["events"].messages == 2 * (NODES - 1)
    assert costs.visited == 1.0
    assert (costs.entries, costs.fullest) == (0.0, None)
    assert costs.event_hops is not None
    assert costs.event_hops.max <= 3  # of a tree over six nodes


def test_who_places_shows_where() -> None:
    costs = costs_of("meet")
    assert costs.entries is not None and costs.entries >= 1  # noqa: PT018
    assert costs.fullest is not None and 1 / NODES <= costs.fullest < 1  # noqa: PT018
    assert costs.visited is not None and costs.visited < 1  # noqa: PT018
    untold = TrialInput(filters=("price > 1", "price < 5"), events=({"price": 3},))
    assert measure(Trial(scheme="dmm", nodes=3), untold).fullest == 1.0  # one region, as nobody told a schema


@pytest.mark.slow
def test_the_same_trial_costs_the_same_here_and_in_other_processes() -> None:
    trials = [Trial(scheme=scheme, nodes=3, seed=seed) for scheme in ("flood", "meet") for seed in (1, 2)]
    steps: list[int] = []
    asked: list[int] = []

    def given(seed: int) -> TrialInput:
        asked.append(seed)
        return draw_input(seed, 30, 3)

    there = {(costs.scheme, costs.seed): costs for costs in compare(trials, given, steps.append, jobs=2)}
    here = list(compare(trials, given, steps.append, jobs=1))
    assert asked == [1, 2, 1, 2]  # for each seed once
    assert [(each.scheme, each.seed) for each in here] == [("flood", 1), ("meet", 1), ("flood", 2), ("meet", 2)]
    for costs in here:
        other = there[costs.scheme, costs.seed]
        costs.cpu_s = other.cpu_s = 0.0
        assert costs == other
    flood_1, meet_1, flood_2, meet_2 = (each.notifications_expected for each in here)
    assert flood_1 == meet_1 != flood_2 == meet_2  # to all schemes the same, to each seed its own
    assert sum(steps) >= 4 * (30 + 3)  # those of other processes are looked at now and then
    assert sum(steps) <= 8 * (30 + 3)


def test_nothing_to_measure_is_none_and_not_zero() -> None:
    costs = measure(Trial(scheme="meet", nodes=2), TrialInput(filters=(), events=()))
    assert (costs.event, costs.event_by_purpose, costs.subscription) == (None, {}, None)
    assert (costs.visited, costs.busiest, costs.event_hops, costs.event_delay_ms) == (None, None, None, None)
    assert (costs.entries, costs.fullest, costs.subscription_ms) == (None, None, None)
    assert costs.good
    costs = measure(Trial(scheme="meet", nodes=2), TrialInput(filters=(), events=({"a": 1},)))
    assert costs.event is not None and costs.event.messages > 0  # noqa: PT018
    assert costs.event_delay_ms is None


def test_subscriptions_settle_before_the_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    nets: list[Network] = []

    def finish(net: Network) -> RunReport:
        nets.append(net)
        return run.finish(net)

    monkeypatch.setattr(comparing, "finish", finish)
    measure(Trial(scheme="flood", nodes=2), draw_input(2, 3, 2))
    history = nets[0].clients.history
    loaded = max(change.acknowledged or 0 for each in history.subscriptions.values() for change in each.changes)
    assert min(each.asked for each in history.publications.values()) - loaded >= (SETTLE_S - 1) * SECOND_US


def test_what_the_oracle_misses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    came = Clients._notified
    first: list[bytes] = []

    def lose_the_first(self: Clients, process: Process, effect: Notify) -> None:
        first.append(effect.content)
        if effect.content != first[0]:  # which is brought again and again
            came(self, process, effect)

    monkeypatch.setattr(Clients, "_notified", lose_the_first)
    costs = measure(Trial(scheme="flood", nodes=3), TrialInput(filters=("a > 0",), events=({"a": 1}, {"a": 2})))
    assert not costs.good
    assert costs.counts["missing"] == 1
    assert "never came to s1" in costs.problems[0]


def test_what_fails_inside_a_node_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Clients, process: Process, effect: Notify) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(Clients, "_notified", fail)
    costs = measure(Trial(scheme="flood", nodes=3), TrialInput(filters=("a > 0",), events=({"a": 1},)))
    assert costs.counts["invariants_broken"] >= 1
    assert "oops" in costs.problems[0]


# -- which network -----------------------------------------------------------------------------------------------------


def test_schemes_that_may_be_told_a_schema_are_told_it() -> None:
    told = [
        scheme
        for scheme in SCHEMES
        if getattr(getattr(configured(Trial(scheme=scheme), SCHEMA), scheme, None), "schema", "") == SCHEMA
    ]
    assert {"lists", "dmm", "reach"} <= set(told)
    assert not {"flood", "meet"} & set(told)
    config = configured(Trial(scheme="lists:hybrid:order", overlay="pastry"), SCHEMA)
    assert (config.overlay, config.lists.mode, config.lists.hash) == ("pastry", "hybrid", "order")


def test_reach_has_an_overlay_of_its_own_and_the_others_have_the_chosen_one() -> None:
    assert [overlay_of(scheme, "pastry") for scheme in ("reach", "reach:signatures", "meet", "dmm:always")] == [
        "hypercube",
        "hypercube",
        "pastry",
        "pastry",
    ]
    assert everything() == tuple(SCHEMES)


# -- single events -----------------------------------------------------------------------------------------------------


def test_a_way_is_counted_message_after_message_and_answers_count_where_one_waits_for_them() -> None:
    followed = FollowedEvent(A, b"content")
    ask, answer, bring = b"ask", b"answer", b"bring content"
    followed.sent(A, ask)
    followed.received(B, ask)
    followed.sent(B, answer)
    followed.received(A, answer)
    followed.sent(A, bring)
    followed.received(C, bring)
    followed.notified(C, Notify(KEY, ("s1", "s2"), b"content", False))
    followed.notified(A, Notify(KEY, ("s3",), b"content", False))  # at home: no way at all
    followed.notified(C, Notify(KEY, ("s4",), b"another", False))
    assert followed.hops == [3, 3]
    assert followed.nodes == 3


def test_an_answer_that_comes_before_the_notification_makes_the_way_no_longer() -> None:
    followed = FollowedEvent(A, b"content")
    down, on, back = b"down content", b"on content", b"back"
    for source, target, payload in ((A, B, down), (B, C, on), (C, B, back)):
        followed.sent(source, payload)
        followed.received(target, payload)
    followed.notified(B, Notify(KEY, ("s1",), b"content", False))
    assert followed.hops == [1]


def test_what_is_said_where_it_has_not_come_is_about_something_else() -> None:
    followed = FollowedEvent(A, b"content")
    other = b"other content"
    followed.sent(B, other)
    followed.received(C, other)
    assert followed.nodes == 1


class Spoken:
    """A watcher of messages of flood."""

    def __init__(self, *alone: int) -> None:
        self.codec = make_codec()
        self.steps: list[int] = []
        self.watcher = EventMeter(self.codec, frozenset(alone), self.steps.append)

    def publish(self, at_s: float, content: bytes) -> None:
        self.watcher.happened(int(at_s * SECOND_US), A, ClientRequest(1, Publish(content)))

    def say(self, at_s: float, source: Process, target: Process, message: Message) -> None:
        payload = self.codec.encode(message)
        self.watcher.sent(int(at_s * SECOND_US), source, target.peer, message, payload)
        self.watcher.received(int(at_s * SECOND_US), source, target, message, payload)


def test_an_event_counts_as_alone_if_it_was_still_before_and_until_the_next() -> None:
    spoken = Spoken(1, 2, 3)
    carry = FloodEvent(KEY, A.peer, 0, 0, None, b"content")
    spoken.publish(1.0, b"zero")
    spoken.say(1.5, A, B, carry)
    spoken.publish(1.51, b"one")  # too soon after the last message
    spoken.say(1.52, A, B, carry)
    spoken.publish(3.0, b"two")
    spoken.say(3.1, A, B, carry)
    spoken.publish(5.0, b"three")
    spoken.say(5.1, A, B, carry)
    spoken.say(5.2, B, C, carry)
    spoken.watcher.end()
    assert [followed.nodes for followed in spoken.watcher.followed] == [2, 3]
    assert spoken.watcher.received_by == Counter({"n1": 4, "n2": 1})
    assert spoken.steps == [1, 1, 1, 1]


def test_what_comes_before_the_first_event_is_for_subscriptions() -> None:
    spoken = Spoken()
    answer = FloodAck(b"", ())
    spoken.say(0.5, A, B, answer)  # before anyone subscribes
    spoken.watcher.happened(SECOND_US, A, ClientRequest(1, Subscribe("s1", "a > 1")))
    spoken.say(1.5, A, B, answer)
    spoken.say(1.6, A, B, answer)
    spoken.publish(2.0, b"one")
    spoken.say(2.5, A, B, answer)
    assert spoken.watcher.loading.by_purpose()["events"].messages == 2
    assert spoken.watcher.by_purpose()["events"].messages == 1
    assert spoken.steps == [1, 1]


def test_what_goes_on_when_nobody_asks_anything_is_upkeep_and_taken_from_the_rest() -> None:
    spoken = Spoken()
    spoken.watcher.happened(0, A, ClientRequest(1, Subscribe("s1", "a > 1")))
    for at_s in range(1, 60):  # again and again, and once more for the subscription and the event
        if at_s == 10:
            spoken.publish(at_s, b"one")
        spoken.say(at_s, A, B, FloodAck(b"", ()))
        if at_s in (5, 15):
            spoken.say(at_s, B, A, FloodAck(b"", ()))
    end = 60 * SECOND_US
    idle = _Idle(spoken.watcher.idle, end)
    assert spoken.watcher.idle.began == (10 + int(IDLE_S)) * SECOND_US
    assert idle.each_s(2).messages == pytest.approx(0.5)
    assert idle.taken_from(spoken.watcher, end)["events"].messages == pytest.approx(1)
    assert idle.taken_from(spoken.watcher.loading, 10 * SECOND_US)["events"].messages == pytest.approx(0)
    assert spoken.watcher.loading.by_purpose()["events"].messages == 9 + 1


@dataclass
class Asking:
    """When events are asked to be published."""

    at: list[int]

    def sent(self, now: int, source: Process, to: Peer, message: Message, payload: bytes) -> None:
        pass

    def received(self, now: int, source: Process, target: Process, message: Message, payload: bytes) -> None:
        pass

    def happened(self, now: int, process: Process, thing: object) -> None:
        if isinstance(thing, ClientRequest) and isinstance(thing.what, Publish):
            self.at.append(now)


def test_a_rest_comes_between_what_was_said_before_and_after_it() -> None:
    net = Network(nodes=2, seed=1, family=ToyFamily(), timing=Timing(after_s=10.0, quiet_s=1.0))
    for number in range(4):
        if number == 2:
            net.rest(6.0, phase="after")
        net.publish({"a": number}, phase="after")
    net.rest(2.0, phase="after")
    asked = Asking([])
    net.observe(asked)
    net.run()
    apart = [(later - earlier) / SECOND_US for earlier, later in zip(asked.at, asked.at[1:], strict=False)]
    assert apart == pytest.approx([0.5, 6.5, 0.5])


def test_few_events_are_all_alone_and_of_many_some_are_in_rows() -> None:
    assert alone_of(0) == frozenset()
    assert alone_of(7) == frozenset(range(7))
    for events in (ALONE, 2 * ALONE, 500, 501, 519):
        alone = alone_of(events)
        assert ALONE // 2 <= len(alone) <= ALONE + IN_A_ROW
        assert max(alone) < events
        begin = [number for number in alone if number - 1 not in alone]
        assert len(begin) <= len(alone) // IN_A_ROW + 1
    assert len(alone_of(500)) == ALONE
    assert 0 not in alone_of(500)  # when nobody knows anything yet
