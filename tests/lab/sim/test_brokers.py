"""The simulator's scripts on real brokers: the same script, the same notifications."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from meetpoint.errors import EventError, FilterError, MeetpointError
from meetpoint.lab import sim
from meetpoint.lab.sim import brokers as scenario
from tests.scripts import Network, changes, mixture, prices
from tests.virtual_time import run

CASES = [
    *(("chord", scheme, prices, 4) for scheme in ("flood", "lists", "lists:hybrid:order", "meet", "dmm")),
    *(("chord", scheme, changes, 3) for scheme in ("flood", "lists", "lists:hybrid:order", "meet", "dmm")),
    *(("chord", scheme, mixture, 5) for scheme in ("flood", "lists", "lists:hybrid:order", "meet", "dmm")),
    *(("pastry", scheme, changes, 3) for scheme in ("flood", "lists", "meet", "dmm")),
    *(("pastry", scheme, mixture, 4) for scheme in ("lists", "meet", "dmm", "dmm:always:uncovered:unicast")),
    *(("hypercube", scheme, changes, 3) for scheme in ("flood", "lists", "meet", "dmm")),
    *(("hypercube", "reach", script, nodes) for script, nodes in ((prices, 4), (changes, 3), (mixture, 5))),
    ("hypercube", "reach:signatures:unquenched", mixture, 4),
    ("chord", "reach", changes, 4),
    *(("chord", "rebeca", script, nodes) for script, nodes in ((prices, 4), (changes, 3), (mixture, 5))),
    ("hypercube", "rebeca:merging", changes, 3),
]


@pytest.mark.slow
@pytest.mark.parametrize(("overlay", "scheme", "script", "nodes"), CASES)
def test_the_same_script_gives_the_same_notifications(
    overlay: str, scheme: str, script: Callable[[Network], None], nodes: int
) -> None:
    simulated = sim.Network(overlay=overlay, scheme=scheme, nodes=nodes, seed=7)
    real = scenario.Network(overlay=overlay, scheme=scheme, nodes=nodes, seed=7)
    networks: list[Network] = [simulated, real]
    for net in networks:
        script(net)
    simulated.run()
    run(real.perform())
    for net in networks:
        report = net.report()
        assert (report.counts, report.problems) == (dict.fromkeys(report.counts, 0), [])
        assert report.notifications_expected > 0
        assert report.notifications >= report.notifications_expected
    assert real.notifications == simulated.notifications
    assert real.report().lookups == simulated.report().lookups


def test_what_cannot_be_is_refused_when_it_is_said() -> None:
    net = scenario.Network(nodes=2)
    with pytest.raises(FilterError):
        net.subscribe("price >")
    with pytest.raises(EventError):
        net.publish({"price": [1]})
    with pytest.raises(MeetpointError, match="there is no subscription 's1'; use a name that"):
        net.unsubscribe("s1")
    with pytest.raises(MeetpointError, match="has not run; call run"):
        net.report()
    with pytest.raises(MeetpointError, match="are the simulator's"):
        scenario.Network(faults="churn")
    net.run()
    with pytest.raises(MeetpointError, match="has run; make another"):
        net.run()
    with pytest.raises(MeetpointError, match="has run; make another"):
        net.publish({})


def test_a_judge_that_fires() -> None:
    """A notification that is taken away, or added, is counted."""
    net = scenario.Network(scheme="flood", nodes=1)
    name = net.subscribe("n = 1")
    net.publish({"n": 1})
    net.run()
    assert not any(net.report().counts.values())
    delivery = net.history.subscriptions[name].deliveries.pop()
    net._judge()
    assert net.report().counts["missing"] == 1
    net.history.subscriptions[name].deliveries += [delivery, delivery]
    net._judge()
    assert net.report().counts["duplicate"] == 1
