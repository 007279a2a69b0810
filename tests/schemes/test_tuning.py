"""Brokers that load what was measured of events while they run, some of them, at different times: nothing is missed,
and where an event needs not go any more it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig, read_scheme
from meetpoint.lab.sim.scenario import Network
from meetpoint.matching.keys.feedback import Feedback
from meetpoint.matching.keys.statistics import Statistics
from meetpoint.node.runtime.inputs import Measured
from meetpoint.schemes.meet import MeetSettings
from meetpoint.schemes.meet.summaries import SummaryCache
from tests.schemes.busy import Busy, judge, network

SYMBOLS = 40


def draw_event(random: Random) -> dict[str, object]:
    """One attribute is the same in nearly all events, another in few."""
    return {"kind": "trade" if random.random() < 0.95 else "quote", "symbol": f"S{random.randrange(SYMBOLS)}"}


def draw_filter(random: Random) -> str:
    symbol = f"symbol = 'S{random.randrange(SYMBOLS)}'"
    return random.choice((symbol, f"kind = 'trade' AND {symbol}", f"kind = 'quote' OR {symbol}"))


def measured(seed: int = 1) -> Feedback:
    random = Random(seed)
    events = [draw_event(random) for _ in range(500)]
    return Feedback(Statistics.of_events(events), selectivity={"symbol": 1 / SYMBOLS, "kind": 0.95})


def config(scheme: str) -> NetworkConfig:
    return NetworkConfig(overlay="chord", **read_scheme(scheme))


def tune(net: Network, at_s: float, share: float, random: Random) -> None:
    """At some moment some of the nodes that are up load the file."""

    def load() -> None:
        for process in net.cluster.alive():
            if random.random() < share:
                net.engine.feed(process, Measured(measured(random.randrange(5))))

    net.engine.call(net.engine.now + int(at_s * SECOND_US), load)


@pytest.mark.slow
@pytest.mark.parametrize("faults", ["none", "churn", "lossy"])
@pytest.mark.parametrize("scheme", ["meet", "lists:hybrid", "lists:distributed"])
def test_nothing_is_missed_while_some_go_by_what_was_measured(scheme: str, faults: str) -> None:
    random = Random(f"{scheme}/{faults}")
    net = network(config(scheme), 6, 5, faults)
    busy = Busy(
        draw_filter=draw_filter, draw_event=draw_event, subscriptions=24, ended=4, changed=4, added=6, events=40
    )  # fmt: skip
    busy.keep(net, random)
    for at_s in (10, 20, 40, 60):
        tune(net, at_s, 0.3, random)
    observed = judge(net)
    if scheme == "meet":
        assert observed["tuned"] > 4


@pytest.mark.parametrize("scheme", ["flood", "dmm", "reach", "rebeca"])
def test_other_schemes_bear_it(scheme: str) -> None:
    random = Random(scheme)
    net = network(config(scheme), 4, 3)
    for _ in range(6):
        net.subscribe(draw_filter(random))
    tune(net, 8, 1.0, random)
    for _ in range(6):
        net.publish(draw_event(random), phase="after")
    judge(net)


def run_once(load: Callable[[Network, Random], None], meet: MeetSettings | None = None, events: int = 60) -> int:
    """How many homes events visit."""
    random = Random(8)
    net = network(NetworkConfig(scheme="meet", meet=meet or MeetSettings()), 8, 2)
    for number in range(SYMBOLS // 2):
        net.subscribe(f"kind = 'trade' AND symbol = 'S{number}'")
    net.rest(5)
    load(net, random)
    net.rest(60)
    for _ in range(events):
        net.publish(draw_event(random), phase="after")
    net.run()
    report = net.report()
    assert report.good, report.problems
    return report.observed["homes_visited"]


def test_events_go_to_fewer_places_once_that_is_known() -> None:
    before = run_once(lambda net, random: None)
    after = run_once(lambda net, random: tune(net, 20, 1.0, random))
    assert after < before


@pytest.mark.slow
def test_children_of_a_key_that_was_crowded_are_not_visited_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = MeetSettings(crowded=8, lease_us=60 * SECOND_US)  # such that summaries last from event to event

    def visited(share: float) -> int:
        return run_once(lambda net, random: tune(net, 20, share, random), crowded, events=250)

    before, after = visited(0), visited(1)
    monkeypatch.setattr(SummaryCache, "arcs_without", lambda self, wanted: [])
    in_vain = visited(1)
    assert after < 0.85 * before
    assert in_vain > 0.95 * before
