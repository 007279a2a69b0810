"""Many seeds: whole networks under every plan of faults, judged by the oracle; all six counts are 0.

The ordinary tests run 200 seeds in total, rotated over all configurations that exist, and always the same ones. With
MEETPOINT_EXAMPLES=new (`make soak`) they run seeds that nobody has seen before, and 1,000 more with churn and
partitions. A failure tells its seed and the command that repeats it.
"""

from __future__ import annotations

import os
import secrets

import pytest

from meetpoint.catalog import OVERLAYS, SCHEMES
from meetpoint.sim.engine import Detector
from meetpoint.sim.report import Report
from meetpoint.sim.run import RunConfig, command, run

SEEDS = 200
SOAK_SEEDS = 1_000
BATCH = 10
NEW = os.environ.get("MEETPOINT_EXAMPLES") == "new"
FIRST = secrets.randbelow(10**9) if NEW else 1

PLANS: list[tuple[str, Detector]] = [
    ("none", "imperfect"),
    ("churn", "imperfect"),
    ("partition", "imperfect"),
    ("lossy", "imperfect"),
    ("disk", "imperfect"),
    ("all", "imperfect"),
    ("churn", "perfect"),
]
OPTIONS = {
    "lists": [
        f"lists:{mode}:{hash_}" for mode in ("coordinated", "distributed", "hybrid") for hash_ in ("plain", "order")
    ]
}
"""Schemes that run in several ways."""
CONFIGS = [
    RunConfig(
        overlay=overlay,
        scheme=scheme,
        nodes=nodes,
        subscriptions=30,
        events=30,
        lookups=20,
        faults=faults,
        detector=detector,
        founders=founders,
        fault_seconds=20,
        recovery_seconds=45,
    )
    for overlay in OVERLAYS
    for name in SCHEMES
    for scheme in OPTIONS.get(name, [name])
    for nodes, founders in ((8, None), (12, 5))
    for faults, detector in PLANS
]


def failures(seeds: range, configs: list[RunConfig]) -> list[str]:
    """Runs each seed with the next configuration; what failed, and how to see it again."""
    told = []
    for seed in seeds:
        config = configs[seed % len(configs)]
        report = run(config, seed)
        if not report.good:
            told.append(f"{_wrong(report)}\n  {command(config, seed)}")
    return told


def _wrong(report: Report) -> str:
    counts = {name: count for name, count in report.counts.items() if count}
    return "\n  ".join([f"seed {report.seed}: {counts} never: {report.never_injected}", *report.problems[:3]])


@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_no_seed_breaks_a_promise(batch: int) -> None:
    first = FIRST + batch * BATCH
    told = failures(range(first, first + BATCH), CONFIGS)
    assert not told, "\n".join(told)


@pytest.mark.skipif(not NEW, reason="MEETPOINT_EXAMPLES=new runs them")
@pytest.mark.parametrize("batch", range(SOAK_SEEDS // 50))
def test_no_new_seed_of_churn_and_partitions_breaks_a_promise(batch: int) -> None:
    configs = [config for config in CONFIGS if config.faults in ("churn", "partition")]
    first = FIRST + SEEDS + batch * 50
    told = failures(range(first, first + 50), configs)
    assert not told, "\n".join(told)
