"""Events of one publisher reach each subscriber in order, under faults that keep them from doing so by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from msgspec import structs

from meetpoint.lab.sim.judge import RunReport
from meetpoint.lab.sim.run import RunConfig, run
from meetpoint.node.home.publisher_order import Source
from tests.tiers import SOAK

SCHEMES = ["flood", "meet", "lists:hybrid:plain"]
BURST = RunConfig(nodes=8, subscriptions=30, events=300, lookups=0, fault_seconds=15, recovery_seconds=45)


def reports(scheme: str) -> Iterator[RunReport]:
    """Many events at once from few nodes."""
    for faults, seed in (("all", 1), ("lossy", 3), ("churn", 0), ("lossy", 4)):
        yield run(structs.replace(BURST, scheme=scheme, faults=faults), seed)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_burst_comes_in_order(scheme: str) -> None:
    for report in islice(reports(scheme), 4 if SOAK else 2):
        assert report.good, f"{report.counts} {report.problems[:3]} {report.never_injected}"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES)
def test_without_waiting_it_would_not(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Source, "is_clear", lambda self, number: True)
    assert any(report.out_of_order for report in reports(scheme))
