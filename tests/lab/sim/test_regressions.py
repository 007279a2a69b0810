"""Runs that failed once, each with what was wrong.

A change of the code shifts what a seed draws, so that these show the same story only for a while; the small worlds of
`tests/node` tell it for good.
"""

from __future__ import annotations

import pytest

from meetpoint.lab.sim.run import RunConfig, command, run


def short(scheme: str, nodes: int, faults: str, lookups: int, founders: int | None = None) -> RunConfig:
    """A run as `test_seeds` has them."""
    return RunConfig(
        scheme=scheme,
        nodes=nodes,
        founders=founders,
        subscriptions=30,
        events=30,
        lookups=lookups,
        faults=faults,
        fault_seconds=20,
        recovery_seconds=45,
    )


CHURN = RunConfig(scheme="flood", nodes=16, subscriptions=40, events=50, lookups=20, faults="churn", fault_seconds=30)
GROWN = short("flood", 12, "churn", 20, founders=5)
ALL = RunConfig(scheme="flood", nodes=12, subscriptions=40, events=40, lookups=20, faults="all", fault_seconds=30)
DISK = short("flood", 8, "disk", 20)
NEW = short("lists:coordinated:plain", 12, "churn", 10, founders=5)
GIVEN_ON = short("lists:coordinated:plain", 8, "churn", 10)
LISTS = short("lists:hybrid:plain", 8, "churn", 10)
MEET = RunConfig(scheme="meet", nodes=8, subscriptions=40, events=60, lookups=10, faults="churn")
MEET_GROWN = RunConfig(scheme="meet", nodes=12, founders=5, subscriptions=40, events=40, lookups=10, faults="all")
FAILED = [
    pytest.param(
        NEW, 885, id="a node that had lost its disk took itself for new, since its contact did not list it yet"
    ),
    pytest.param(GIVEN_ON, 904, id="an heir had given a home on, and its giver took the offer for refused: two hosts"),
    pytest.param(LISTS, 130, id="all who waited for a lost peer asked it again at once, and again"),
    pytest.param(MEET, 9, id="keys that went with an arc were taken for keys no longer in use"),
    pytest.param(MEET, 16, id="a summary of a home that had moved here spoke of arcs that it no longer held"),
    pytest.param(MEET, 93, id="a newcomer that did not know all homes took an arc for lost"),
    pytest.param(MEET_GROWN, 307, id="a newcomer that had taken over another's arc no longer sought its own"),
    pytest.param(CHURN, 85, id="a home was offered to a node that nobody listed yet"),
    pytest.param(CHURN, 638, id="that a home was gone was known only to nodes that left"),
    pytest.param(CHURN, 3034, id="a home was lost with the disk of the node that had just adopted it"),
    pytest.param(CHURN, 1088, id="a new life counted its copies from 1 again and was taken for the old one"),
    pytest.param(GROWN, 244682415, id="a joiner whose list named none of its neighbours waited for ever"),
    pytest.param(GROWN, 965534295, id="an heir came back under a lower incarnation and was never taken for restarted"),
    pytest.param(ALL, 6165, id="an old copy brought back what waited for a subscription that had ended"),
    pytest.param(ALL, 233, id="a node refused a home that its own directory said it had adopted"),
    pytest.param(ALL, 77, id="a node left with the only copies of a home whose disk was lost"),
    pytest.param(ALL, 30, id="the lowest of the nodes that started had never been in the network"),
    pytest.param(DISK, 2150446, id="too many were down for a write to fail, and later nobody wrote"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("config", "failed"), FAILED)
def test_what_failed_once_holds(config: RunConfig, failed: int) -> None:
    report = run(config, failed)
    told = f"{report.counts} {report.problems[:3]} never: {report.never_injected}\n{command(config, failed)}"
    assert report.good, told
