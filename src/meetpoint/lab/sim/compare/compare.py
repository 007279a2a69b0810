"""What each scheme costs for the same filters and events: one network without faults for each scheme and seed.

Subscriptions are loaded, and settle; then events are published, each at some node: the same ones in all networks.
Messages are told by what they are for (`traffic`), and begin to count as *placing* with the first subscription, and as
an event's with the first event. Now and then an event is published *alone* (`following`): nobody publishes for a while
before and after it. That gives the nodes that it visits, and the longest way to a subscriber, message after message.

What goes on when clients have done nothing for a while is upkeep, whatever it is for, and is taken from the rest: some
schemes tell again and again what is wanted. Only safekeeping then is of what was published before.

Schemes have the settings that brokers have by default; those that may be told a schema are told it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig, network_config
from meetpoint.catalog.catalog import OVERLAYS, SCHEMES
from meetpoint.lab.sim.compare.event_meter import Watcher, alone_of
from meetpoint.lab.sim.compare.given import Given
from meetpoint.lab.sim.compare.traffic import Meter, Purpose, Traffic
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.judge.report import Report, Spread, spread
from meetpoint.lab.sim.pool import advance, cores, in_processes
from meetpoint.lab.sim.run import finish
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.placement.ownership.range_store import PLACED

__all__ = [
    "CAUSED",
    "Costs",
    "Each",
    "Trial",
    "compare",
    "configured",
    "everything",
    "measure",
    "measure_with_report",
    "overlay_of",
]

CAUSED: Final[tuple[Purpose, ...]] = ("events", "summaries", "safekeeping", "placing")
"""What an event causes: all but upkeep, which goes on when nobody publishes."""
OWN_OVERLAYS: Final = {"reach": "hypercube"}
"""Schemes that belong to one overlay, whichever one the others are compared on."""

LOADED_PER_S = 50.0
LOAD_S_MAX = 30.0
ACKNOWLEDGED_S_MAX = 600.0
"""How fast subscriptions come, in how long at most, and how long all may take to be acknowledged."""
SETTLE_S = 15.0
"""How long after the last subscription the first event comes: time to split and to merge what was placed."""
QUIET_S = 45.0
"""How long the run goes on after the last event: longer than until it is idle."""
REST_S = 2.0
"""How long nobody publishes before and after an event that is alone: longer than a home waits for what comes before."""
CHECK_EVERY = 64
"""How often nodes check themselves."""
PROBLEMS_TOLD = 5


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One scheme on one overlay."""

    scheme: str
    overlay: str = "chord"
    nodes: int = 64
    seed: int = 7
    per_s: float = 50.0
    """How many events are published in a second of virtual time, at all nodes together."""


class Each(msgspec.Struct, frozen=True):
    """Messages and bytes for each of something."""

    messages: float
    bytes: float


class Costs(msgspec.Struct, kw_only=True):
    """What a scheme cost. None: there was nothing to measure it by."""

    scheme: str
    overlay: str
    seed: int
    counts: dict[str, int]
    """The six that must be 0."""
    problems: list[str]
    notifications: int
    notifications_expected: int

    event: Each | None
    """For each event, all that it caused."""
    event_by_purpose: dict[Purpose, Each]
    event_delay_ms: Spread | None
    """Until a subscriber was notified."""
    event_hops: Spread | None
    """Messages, one after another, until an event came to the node that notified of it; of those published alone."""
    visited: float | None
    """The share of nodes that an event comes to, that where it is published among them; of those published alone."""
    alone: int
    """How many events that is the mean of."""
    busiest: float | None
    """The share of all messages with events that go to the node to which the most go."""

    subscription: Each | None
    """For each subscription, until the first event: all but upkeep."""
    subscription_ms: Spread | None
    """Until it was acknowledged."""
    entries: float | None
    """How many are placed for each subscription; 0: it is nowhere but at its home."""
    fullest: float | None
    """The share of all entries that lies at the node where the most do; None where there are none."""

    upkeep: Each
    """For each node and second, when clients do nothing."""
    virtual_s: float
    cpu_s: float

    @property
    def good(self) -> bool:
        """Whether the oracle has nothing to say."""
        return not any(self.counts.values())


# -- what is compared --------------------------------------------------------------------------------------------------


def everything() -> tuple[str, ...]:
    """All schemes, each as it is by default."""
    return tuple(SCHEMES)


def overlay_of(scheme: str, chosen: str) -> str:
    """The overlay that a scheme in one word is compared on."""
    own = OWN_OVERLAYS.get(scheme.split(":")[0], chosen)
    return own if own in OVERLAYS else chosen


def configured(trial: Trial, schema: str) -> NetworkConfig:
    """The network of a trial; a scheme that may be told a schema is told it."""
    config = network_config(trial.overlay, trial.scheme)
    settings: Any = getattr(config, config.scheme, None)
    if settings is None or "schema" not in settings.__struct_fields__:
        return config
    return msgspec.structs.replace(config, **{config.scheme: msgspec.structs.replace(settings, schema=schema)})


def compare(
    trials: Sequence[Trial],
    given: Callable[[int], Given],
    step: Callable[[int], None] = lambda steps: None,
    jobs: int | None = None,
) -> Iterator[Costs]:
    """The costs of each trial with what is given for its seed, as they come; a step is a subscription or an event."""
    workers = min(jobs or cores(), len(trials))
    if workers > 1:
        yield from in_processes(_measure_apart, _with_given(trials, given), workers, step)
    else:
        for trial, its in _with_given(trials, given):
            yield measure(trial, its, step)


def _with_given(trials: Sequence[Trial], given: Callable[[int], Given]) -> Iterator[tuple[Trial, Given]]:
    """Trials by seed, so that what is given is drawn once for each, and not for all at once."""
    for seed, same in groupby(sorted(trials, key=lambda trial: trial.seed), key=lambda trial: trial.seed):
        its = given(seed)
        for trial in same:
            yield trial, its


def _measure_apart(task: tuple[Trial, Given]) -> Costs:
    return measure(*task, advance)


# -- one trial ---------------------------------------------------------------------------------------------------------


def measure(trial: Trial, given: Given, step: Callable[[int], None] = lambda steps: None) -> Costs:
    """One network from its beginning to its judgement."""
    costs, _ = measure_with_report(trial, given, step)
    return costs


def measure_with_report(
    trial: Trial, given: Given, step: Callable[[int], None] = lambda steps: None
) -> tuple[Costs, Report]:
    """The same, and what else the run tells."""
    net = Network(
        trial.overlay,
        trial.scheme,
        trial.nodes,
        trial.seed,
        timing=_timing(trial, given),
        check_every=CHECK_EVERY,
        kin=family_of(configured(trial, given.schema)),
    )
    alone = alone_of(len(given.events))
    watcher = Watcher(net.kin.codec, alone, step)
    net.tell(watcher)
    for text in given.filters:
        net.subscribe(text)
    net.rest(SETTLE_S, phase="load")
    for number, event in enumerate(given.events):
        if _rests_before(number, alone):
            net.rest(REST_S, phase="after")
        net.publish(event, phase="after")
    report = finish(net)
    watcher.end()
    return _costs(trial, given, net, watcher, report), report


def _rests_before(number: int, alone: frozenset[int]) -> bool:
    return number in alone or number - 1 in alone


def _timing(trial: Trial, given: Given) -> Timing:
    load_s = min(LOAD_S_MAX, len(given.filters) / LOADED_PER_S) + SETTLE_S
    alone = alone_of(len(given.events))
    rests = sum(_rests_before(number, alone) for number in range(len(given.events)))
    after_s = len(given.events) / trial.per_s + REST_S * rests
    return Timing(load_s=load_s, load_s_max=ACKNOWLEDGED_S_MAX, calm_s=0.0, after_s=after_s, quiet_s=QUIET_S)


# -- the figures -------------------------------------------------------------------------------------------------------


def _costs(trial: Trial, given: Given, net: Network, watcher: Watcher, report: Report) -> Costs:
    events, filters = len(given.events), len(given.filters)
    now = net.engine.now
    idle = _Idle(watcher.idle, now)
    by_purpose = idle.taken_from(watcher, now)
    loaded = idle.taken_from(watcher.loading, now if watcher.began is None else watcher.began)
    hops = [each for followed in watcher.followed for each in followed.hops]
    acknowledged = [
        (change.acknowledged - change.asked) // 1000
        for subscription in net.clients.history.subscriptions.values()
        for change in subscription.changes
        if change.acknowledged is not None
    ]
    entries = _entries(net)
    return Costs(
        scheme=trial.scheme,
        overlay=trial.overlay,
        seed=trial.seed,
        counts=report.counts,
        problems=report.problems[:PROBLEMS_TOLD],
        notifications=report.notifications,
        notifications_expected=report.notifications_expected,
        event=_sum(by_purpose, events),
        event_by_purpose={purpose: _each(by_purpose[purpose], events) for purpose in CAUSED if events},
        event_delay_ms=report.event_delay_ms if report.notifications else None,
        event_hops=spread(hops) if hops else None,
        visited=_mean([followed.nodes / trial.nodes for followed in watcher.followed]),
        alone=len(watcher.followed),
        busiest=_largest(watcher.received_by),
        subscription=_sum(loaded, filters),
        subscription_ms=spread(acknowledged) if acknowledged else None,
        entries=sum(entries.values()) / filters if filters else None,
        fullest=_largest(entries),
        upkeep=idle.each_s(trial.nodes),
        virtual_s=report.virtual_s,
        cpu_s=report.cpu_s,
    )


class _Idle:
    """What goes on when clients do nothing."""

    def __init__(self, meter: Meter, now: int) -> None:
        self._by_purpose = {**meter.by_purpose(), "safekeeping": Traffic()}
        self._seconds = 0.0 if meter.began is None else (now - meter.began) / SECOND_US

    def taken_from(self, meter: Meter, until: int) -> dict[Purpose, Each]:
        """What a meter counted until then, without as much as would have gone on anyway."""
        seconds = 0.0 if meter.began is None else (until - meter.began) / SECOND_US
        share = seconds / self._seconds if self._seconds else 0.0
        return {
            purpose: Each(
                max(0.0, traffic.messages - self._by_purpose[purpose].messages * share),
                max(0.0, traffic.bytes - self._by_purpose[purpose].bytes * share),
            )
            for purpose, traffic in meter.by_purpose().items()
        }

    def each_s(self, nodes: int) -> Each:
        """For each node and second."""
        total = Traffic()
        for traffic in self._by_purpose.values():
            total.add(traffic)
        return _each(total, nodes * self._seconds) if self._seconds else Each(0.0, 0.0)


def _sum(by_purpose: dict[Purpose, Each], count: int) -> Each | None:
    caused = [by_purpose[purpose] for purpose in CAUSED]
    total = Each(sum(each.messages for each in caused), sum(each.bytes for each in caused))
    return _each(total, count) if count else None


def _each(traffic: Traffic | Each, count: float) -> Each:
    return Each(traffic.messages / count, traffic.bytes / count)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _largest(counted: Counter[str]) -> float | None:
    total = sum(counted.values())
    return max(counted.values()) / total if total else None


def _entries(net: Network) -> Counter[str]:
    """By node, how many entries lie at the homes that it has: what is on its disk under the name of an entry."""
    found: Counter[str] = Counter()
    for process in net.cluster.alive():
        homes = set(process.node.snapshot().homes)  # type: ignore[union-attr]
        found[process.address] = sum(
            record.home in homes and record.name.startswith(PLACED) and record.value is not None
            for record in process.disk.recover()
        )
    return found
