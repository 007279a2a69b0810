"""The cost of each scheme for the same filters and events: one network without faults per scheme and seed.

Filters and events are drawn from a seed, or are a user's own, from files. Files are read as `meetpoint match` reads
them, and no further than so many rows: rows that are no subscription, or no event, are set aside with a reason. Reading
files takes pyarrow; the simulator itself does without.

Subscriptions are loaded, and splits and merges end; then events are published, each at some node: the same ones in all
networks. Messages are counted by purpose (`observers.Meter`), as *placing* from the first subscription on, and as an
event's from the first event on. Now and then an event is published *alone*: nobody publishes for a while before and
after it. That gives the nodes that it visits, and the longest way to a subscriber, message after message.

Messages that go on when clients have done nothing for a while are upkeep, whatever they are for, and are taken from the
rest: some schemes repeat their subscriptions again and again. Only safekeeping then is of what was published before.

Schemes have the settings that brokers have by default; those that may be told a schema are told it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.catalog import NetworkConfig, network_config
from meetpoint.catalog.catalog import OVERLAYS, SCHEMES
from meetpoint.catalog.purposes import Purpose
from meetpoint.errors import EventError, FilterError
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.judge import RunReport, Summary, summarise
from meetpoint.lab.sim.observers import EventMeter, Meter, Traffic, alone_of
from meetpoint.lab.sim.run import advance, cores, finish, in_processes
from meetpoint.lab.sim.scenario import Network, Timing
from meetpoint.lab.sim.workload import SCHEMA, Workload
from meetpoint.language.filters.filter import FilterParser
from meetpoint.language.schema.schema import Schema, show_value
from meetpoint.language.values import Value, clean_attributes
from meetpoint.placement.ownership.range_store import PLACED

if TYPE_CHECKING:
    from meetpoint.matching.io.rejects import Reject, Rejected

# -- filters and events ------------------------------------------------------------------------------------------------


Row = TypeVar("Row")


class TrialInput(msgspec.Struct, frozen=True, kw_only=True):
    """The subscriptions and events of clients, and the schema that schemes are told, if any."""

    filters: tuple[str, ...]
    events: tuple[Mapping[str, Value], ...]
    schema: str = ""
    """The schema as YAML."""
    more_filters: bool = False
    more_events: bool = False
    """Whether the files have rows beyond those that were asked for."""


def draw_input(seed: int, filters: int, events: int) -> TrialInput:
    """Draw from the simulator's own workload."""
    workload = Workload(seed)
    return TrialInput(
        filters=tuple(workload.filter() for _ in range(filters)),
        events=tuple(workload.event() for _ in range(events)),
        schema=SCHEMA,
    )


def read_input(
    filters_path: str,
    events_path: str,
    schema: Schema | None,
    filters_max: int,
    events_max: int,
    rejected: Rejected,
) -> TrialInput:
    """Read the first good rows of two files; bad rows before the last one taken are set aside."""
    filters, more_filters = _first(filters_max, partial(_filters, filters_path, schema), rejected)
    events, more_events = _first(events_max, partial(_events, events_path, schema), rejected)
    return TrialInput(
        filters=tuple(filters),
        events=tuple(events),
        schema="" if schema is None else schema.to_yaml(),
        more_filters=more_filters,
        more_events=more_events,
    )


def _first(
    most: int, read: Callable[[Rejected], Iterator[tuple[int, Row]]], rejected: Rejected
) -> tuple[list[Row], bool]:
    """Return so many rows, and whether there are more. Files are read in batches: rows beyond the last are not
    judged.
    """
    aside: list[Reject] = []
    # One row more than wanted tells whether there are more.
    found = list(islice(read(aside.append), most + 1))
    more = len(found) > most
    taken = found[:most]
    for each in sorted(aside, key=lambda each: each.row):
        if not more or (taken and each.row < taken[-1][0]):
            rejected(each)
    return [row for _, row in taken], more


def _filters(path: str, schema: Schema | None, rejected: Rejected) -> Iterator[tuple[int, str]]:
    from meetpoint.matching.io.rejects import reject
    from meetpoint.matching.io.subscriptions import unparsed_subscriptions

    parser = FilterParser(schema)
    for one in unparsed_subscriptions(path, rejected):
        try:
            parser.parse(one.text)
        except FilterError as error:
            rejected(reject("subscriptions", one.row, f"id {show_value(one.id)}: {error}", one.text))
        else:
            yield one.row, one.text


def _events(path: str, schema: Schema | None, rejected: Rejected) -> Iterator[tuple[int, dict[str, Value]]]:
    from meetpoint.matching.io.events import read_events
    from meetpoint.matching.io.rejects import reject

    for batch in read_events(path, rejected, schema):
        for number, row in zip(batch.rows, batch.columns.rows(), strict=True):
            try:
                yield number, clean_attributes(row)
            except EventError as error:
                rejected(reject("events", number, str(error), row))


# -- costs -------------------------------------------------------------------------------------------------------------


CAUSED: Final[tuple[Purpose, ...]] = ("events", "summaries", "safekeeping", "placing")
"""The purposes that an event causes: all but upkeep, which goes on when nobody publishes."""
OWN_OVERLAYS: Final = {"reach": "hypercube"}
"""Schemes that belong to one overlay, whichever one the others are compared on."""

LOADED_PER_S = 50.0
LOAD_S_MAX = 30.0
ACKNOWLEDGED_S_MAX = 600.0
"""The rate of subscriptions, the longest time of loading, and the longest until all are acknowledged."""
SETTLE_S = 15.0
"""The pause between the last subscription and the first event: time to split and to merge what was placed."""
QUIET_S = 45.0
"""The rest of the run after the last event: longer than until it is idle."""
REST_S = 2.0
"""The pause before and after an event that is alone: longer than a home waits for earlier events."""
CHECK_EVERY = 64
"""The steps between two checks of a node's own assertions."""
PROBLEMS_TOLD = 5


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A scheme on an overlay."""

    scheme: str
    overlay: str = "chord"
    nodes: int = 64
    seed: int = 7
    per_s: float = 50.0
    """The events a second of virtual time, at all nodes together."""


class PerUnit(msgspec.Struct, frozen=True):
    """Messages and bytes for each of something."""

    messages: float
    bytes: float


class Costs(msgspec.Struct, kw_only=True):
    """The costs of a scheme. None: there was nothing to measure it by."""

    scheme: str
    overlay: str
    seed: int
    counts: dict[str, int]
    """The six counts that must be 0."""
    problems: list[str]
    notifications: int
    notifications_expected: int

    event: PerUnit | None
    """For each event, all that it caused."""
    event_by_purpose: dict[Purpose, PerUnit]
    event_delay_ms: Summary | None
    """The delay until a subscriber was notified."""
    event_hops: Summary | None
    """Messages, one after another, until an event came to the notifying node; of events published alone."""
    visited: float | None
    """The share of nodes that an event comes to, the publishing one among them; of events published alone."""
    alone: int
    """The number of events published alone."""
    busiest: float | None
    """The share of all messages with events at the node that gets the most."""

    subscription: PerUnit | None
    """For each subscription, until the first event: all but upkeep."""
    subscription_ms: Summary | None
    """The delay until it was acknowledged."""
    entries: float | None
    """The entries placed for each subscription; 0: it is nowhere but at its home."""
    fullest: float | None
    """The share of all entries at the node with the most; None where there are none."""

    upkeep: PerUnit
    """For each node and second, when clients do nothing."""
    virtual_s: float
    cpu_s: float

    @property
    def good(self) -> bool:
        """Whether the oracle finds nothing wrong."""
        return not any(self.counts.values())


# -- what is compared --------------------------------------------------------------------------------------------------


def everything() -> tuple[str, ...]:
    """Return all schemes, each as it is by default."""
    return tuple(SCHEMES)


def overlay_of(scheme: str, chosen: str) -> str:
    """Return the overlay that a scheme in one word is compared on."""
    own = OWN_OVERLAYS.get(scheme.split(":")[0], chosen)
    return own if own in OVERLAYS else chosen


def configured(trial: Trial, schema: str) -> NetworkConfig:
    """Return the network of a trial; a scheme that may be told a schema is told it."""
    config = network_config(trial.overlay, trial.scheme)
    settings: Any = getattr(config, config.scheme, None)
    if settings is None or "schema" not in settings.__struct_fields__:
        return config
    return msgspec.structs.replace(config, **{config.scheme: msgspec.structs.replace(settings, schema=schema)})


def compare(
    trials: Sequence[Trial],
    given: Callable[[int], TrialInput],
    step: Callable[[int], None] = lambda steps: None,
    jobs: int | None = None,
) -> Iterator[Costs]:
    """Yield the costs of each trial on the input of its seed, as they come; a step is a subscription or an event."""
    workers = min(jobs or cores(), len(trials))
    if workers > 1:
        yield from in_processes(_measure_apart, _with_given(trials, given), workers, step)
    else:
        for trial, its in _with_given(trials, given):
            yield measure(trial, its, step)


def _with_given(trials: Sequence[Trial], given: Callable[[int], TrialInput]) -> Iterator[tuple[Trial, TrialInput]]:
    """Yield trials by seed, so that the input is drawn once for each, and not for all at once."""
    for seed, same in groupby(sorted(trials, key=lambda trial: trial.seed), key=lambda trial: trial.seed):
        its = given(seed)
        for trial in same:
            yield trial, its


def _measure_apart(task: tuple[Trial, TrialInput]) -> Costs:
    return measure(*task, advance)


# -- one trial ---------------------------------------------------------------------------------------------------------


def measure(trial: Trial, given: TrialInput, step: Callable[[int], None] = lambda steps: None) -> Costs:
    """Run one network from its beginning to its judgement."""
    costs, _ = measure_with_report(trial, given, step)
    return costs


def measure_with_report(
    trial: Trial, given: TrialInput, step: Callable[[int], None] = lambda steps: None
) -> tuple[Costs, RunReport]:
    """Run one network; return its costs and its report."""
    net = Network(
        trial.overlay,
        trial.scheme,
        trial.nodes,
        trial.seed,
        timing=_timing(trial, given),
        check_every=CHECK_EVERY,
        family=family_of(configured(trial, given.schema)),
    )
    alone = alone_of(len(given.events))
    watcher = EventMeter(net.family.codec, alone, step)
    net.observe(watcher)
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


def _timing(trial: Trial, given: TrialInput) -> Timing:
    load_s = min(LOAD_S_MAX, len(given.filters) / LOADED_PER_S) + SETTLE_S
    alone = alone_of(len(given.events))
    rests = sum(_rests_before(number, alone) for number in range(len(given.events)))
    after_s = len(given.events) / trial.per_s + REST_S * rests
    return Timing(load_s=load_s, load_s_max=ACKNOWLEDGED_S_MAX, calm_s=0.0, after_s=after_s, quiet_s=QUIET_S)


# -- the figures -------------------------------------------------------------------------------------------------------


def _costs(trial: Trial, given: TrialInput, net: Network, watcher: EventMeter, report: RunReport) -> Costs:
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
        event_hops=summarise(hops) if hops else None,
        visited=_mean([followed.nodes / trial.nodes for followed in watcher.followed]),
        alone=len(watcher.followed),
        busiest=_largest(watcher.received_by),
        subscription=_sum(loaded, filters),
        subscription_ms=summarise(acknowledged) if acknowledged else None,
        entries=sum(entries.values()) / filters if filters else None,
        fullest=_largest(entries),
        upkeep=idle.each_s(trial.nodes),
        virtual_s=report.virtual_s,
        cpu_s=report.cpu_s,
    )


class _Idle:
    """The traffic that goes on when clients do nothing."""

    def __init__(self, meter: Meter, now: int) -> None:
        # Safekeeping in the quiet is of earlier events: as upkeep it would be taken from the cost of events.
        self._by_purpose = {**meter.by_purpose(), "safekeeping": Traffic()}
        self._seconds = 0.0 if meter.began is None else (now - meter.began) / SECOND_US

    def taken_from(self, meter: Meter, until: int) -> dict[Purpose, PerUnit]:
        """Return a meter's counts until then, less the traffic that would have gone on anyway."""
        seconds = 0.0 if meter.began is None else (until - meter.began) / SECOND_US
        share = seconds / self._seconds if self._seconds else 0.0
        return {
            purpose: PerUnit(
                max(0.0, traffic.messages - self._by_purpose[purpose].messages * share),
                max(0.0, traffic.bytes - self._by_purpose[purpose].bytes * share),
            )
            for purpose, traffic in meter.by_purpose().items()
        }

    def each_s(self, nodes: int) -> PerUnit:
        """Return the traffic for each node and second."""
        total = Traffic()
        for traffic in self._by_purpose.values():
            total.add(traffic)
        return _each(total, nodes * self._seconds) if self._seconds else PerUnit(0.0, 0.0)


def _sum(by_purpose: dict[Purpose, PerUnit], count: int) -> PerUnit | None:
    caused = [by_purpose[purpose] for purpose in CAUSED]
    total = PerUnit(sum(each.messages for each in caused), sum(each.bytes for each in caused))
    return _each(total, count) if count else None


def _each(traffic: Traffic | PerUnit, count: float) -> PerUnit:
    return PerUnit(traffic.messages / count, traffic.bytes / count)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _largest(counted: Counter[str]) -> float | None:
    total = sum(counted.values())
    return max(counted.values()) / total if total else None


def _entries(net: Network) -> Counter[str]:
    """Count by node the entries on its disk that lie at its homes."""
    found: Counter[str] = Counter()
    for process in net.cluster.alive():
        homes = set(process.node.snapshot().homes)  # type: ignore[union-attr]
        found[process.address] = sum(
            record.home in homes and record.name.startswith(PLACED) and record.value is not None
            for record in process.disk.recover()
        )
    return found
