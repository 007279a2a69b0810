"""Many seeds: whole networks under every plan of faults, judged by the oracle; all six counts are 0.

The ordinary tests run every scheme on every overlay once and every variant of a scheme on one of them, under plans
that rotate, and always with the same seeds.
`make soak` runs 200 seeds that nobody has seen before, in which every scheme meets every plan, and 1,000 more with
churn and partitions. A failure tells its seed and the command that repeats it.
"""

from __future__ import annotations

import secrets

import pytest

from meetpoint.catalog import OVERLAYS
from meetpoint.catalog import SCHEMES as KNOWN
from meetpoint.lab.sim.engine import Detector
from meetpoint.lab.sim.judge import RunReport
from meetpoint.lab.sim.run import RunConfig, command, run
from tests.tiers import SOAK

SOAK_SEEDS = 1_000
BATCH = 5
FIRST = secrets.randbelow(10**9) if SOAK else 1

PLANS: list[tuple[str, Detector]] = [
    ("none", "imperfect"),
    ("churn", "imperfect"),
    ("partition", "imperfect"),
    ("lossy", "imperfect"),
    ("disk", "imperfect"),
    ("all", "imperfect"),
    ("churn", "perfect"),
]
SCHEMES = (
    "flood",
    *(f"lists:{mode}:{hash_}" for mode in ("coordinated", "distributed", "hybrid") for hash_ in ("plain", "order")),
    "meet",
    "dmm",
    "dmm:always",
    "dmm:always:uncovered:unicast",
    "dmm:unicast",
    "dmm:never:uncovered",
    "reach",
    "reach:signatures",
    "reach:unquenched:uncopied:unpushed",
    "rebeca",
    "rebeca:imperfect",
)
PLAIN = {"lists": "lists:hybrid:plain"}
"""Which variant stands for a scheme, where it is not the one without options."""
KINDS = [
    (overlay, scheme)
    for number, scheme in enumerate(SCHEMES)
    for at, overlay in enumerate(OVERLAYS)
    if SOAK or scheme in {PLAIN.get(name, name) for name in KNOWN} or at == number % len(OVERLAYS)
]
SEEDS = 200 if SOAK else -(-len(KINDS) // BATCH) * BATCH
SIZES = [(8, None), (12, 5)]
CONDITIONS = [(*SIZES[at % len(SIZES)], *PLANS[at % len(PLANS)]) for at in range(len(SIZES) * len(PLANS))]


def dealt(number: int) -> RunConfig:
    """The number-th configuration: kinds of networks take turns, and so do the conditions that each kind meets.

    In less than four rounds every scheme meets every plan, on one overlay or another, half of them with nodes that
    join. In as many rounds as there are plans each does so on every overlay.
    """
    turn, at = divmod(number, len(KINDS))
    overlay, scheme = KINDS[at]
    before = sum(kind[0] == overlay for kind in KINDS[:at])
    condition = before + 3 * list(OVERLAYS).index(overlay) + turn  # by 3, a scheme meets all plans in three rounds
    nodes, founders, faults, detector = CONDITIONS[condition % len(CONDITIONS)]
    return RunConfig(
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


CONFIGS = [dealt(number) for number in range(len(KINDS) * len(CONDITIONS))]


def failures(seeds: range, configs: list[RunConfig]) -> list[str]:
    """Runs each seed with the next configuration; what failed, and how to see it again."""
    told = []
    for seed in seeds:
        config = configs[seed % len(configs)]
        report = run(config, seed)
        if not report.good:
            told.append(f"{_wrong(report)}\n  {command(config, seed)}")
    return told


def _wrong(report: RunReport) -> str:
    counts = {name: count for name, count in report.counts.items() if count}
    return "\n  ".join([f"seed {report.seed}: {counts} never: {report.never_injected}", *report.problems[:3]])


def test_the_seeds_are_dealt_to_every_scheme_on_every_overlay_and_under_every_plan() -> None:
    run_now = [CONFIGS[seed % len(CONFIGS)] for seed in range(FIRST, FIRST + SEEDS)]
    assert {(each.overlay, each.scheme) for each in run_now} == {*KINDS}
    for kinds, name in ((SCHEMES, "scheme"), (OVERLAYS, "overlay")) if SOAK else ((OVERLAYS, "overlay"),):
        met = {(getattr(each, name), each.faults, each.detector) for each in run_now}
        assert met == {(kind, *plan) for kind in kinds for plan in PLANS}
    every = {(each.overlay, each.scheme, each.faults, each.detector) for each in CONFIGS}
    assert every == {(*kind, *plan) for kind in KINDS for plan in PLANS}, "soaks meet all of it"
    assert {scheme.partition(":")[0] for scheme in SCHEMES} == set(KNOWN)
    assert {each.founders for each in run_now} == {None, 5}


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(SEEDS // BATCH))
def test_no_seed_breaks_a_promise(batch: int) -> None:
    first = FIRST + batch * BATCH
    told = failures(range(first, first + BATCH), CONFIGS)
    assert not told, "\n".join(told)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SOAK_SEEDS // 50))
def test_no_new_seed_of_churn_and_partitions_breaks_a_promise(batch: int) -> None:
    configs = [config for config in CONFIGS if config.faults in ("churn", "partition")]
    first = FIRST + SEEDS + batch * 50
    told = failures(range(first, first + 50), configs)
    assert not told, "\n".join(told)
