"""The cost of each scheme on paper B's workload: `python -m benchmarks.schemes [SCHEME …] [--quick] [--json]`.

One simulated network without faults for each scheme, 128 brokers, all with the same subscriptions and events
(`meetpoint.lab.workloads.paper_b` has the schema). Subscriptions are loaded and acknowledged, then events are
published at an even rate, each at some broker; counting begins with the first event. How fast they come
(`--published-per-s`) matters to `meet` only: a summary is good for some seconds, and a broker that publishes less
often does without. And how many there are matters to it: summaries travel whole once, later as changes. Messages and
bytes are those that pass the codec; one that is passed on counts at each hop. They are told by purpose
(`lab.sim.observers`): *events* (floods, visits, routing, answers), *summaries* of subscriptions, *safekeeping*
(published and waiting events, on a second disk), and *upkeep* of the ring and the directory, which goes on whether
anyone publishes or not and is told apart. *SubIDs* are counted each time that one is sent.

Every notification is compared with the oracle. To try 10,000 filters on 30,000 events one by one takes an hour, so
that the oracle is the index; it is compared with `Scan` on events drawn at random, and both counts are told.

A scheme has options after colons, as in `lists:hybrid:order`. `lists` is given the schema, so that SubIDs have bits for
attributes, and the attributes in the order of their selectivity, measured on the first events: the share of events that
satisfy a constraint, on average over all constraints on an attribute. `meet` is given nothing.

`printed:coordinated`, `printed:distributed` and `printed:hybrid` are the papers as printed, with the same order of
attributes. No network runs these: they are a *model* over an ideal ring (`lab.experiments.subid_collection`), with
the bytes of the live scheme's messages, but without acknowledgements, safekeeping and upkeep. Homes do not filter
there: missing and wrong notifications are counted against the oracle and told; they are no mistake of this
benchmark.

A scheme is shown when it is done, whether or not the others fail. `--quick` is a smoke test.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from multiprocessing import get_context
from random import Random
from typing import Any, Literal, get_args

import msgspec

from benchmarks.figures import Figure, tell
from meetpoint.api.limits import SECOND_US
from meetpoint.api.requests import Publish, Subscribe
from meetpoint.catalog import NetworkConfig
from meetpoint.catalog.catalog import network_config
from meetpoint.catalog.purposes import PURPOSES, Purpose
from meetpoint.errors import MeetpointError, SetupError
from meetpoint.lab.experiments.subid_collection import PrintedModel
from meetpoint.lab.sim import Network, Timing
from meetpoint.lab.sim.engine import Codec, Process
from meetpoint.lab.sim.families import family_of
from meetpoint.lab.sim.judge import History, JudgingTimes, Verdict
from meetpoint.lab.sim.observers import Meter, Traffic
from meetpoint.lab.workloads.paper_b import ATTRIBUTES, EVENTS, SUBSCRIPTIONS, PaperB, Skew
from meetpoint.language.filters.filter import Filter, FilterParser
from meetpoint.language.schema.schema import Schema
from meetpoint.language.syntax.render import render_constraint
from meetpoint.matching import Scan
from meetpoint.matching.index import Index
from meetpoint.node.runtime.inputs import ClientRequest
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode

COMPARED = (
    "flood",
    "printed:coordinated",
    "printed:distributed",
    "printed:hybrid",
    "lists:coordinated",
    "lists:distributed",
    "lists:hybrid",
    "meet",
)
"""The default schemes. The hash of numbers in `lists` does not matter: all attributes are strings."""
GOAL_SUBIDS = 1.1
"""The most SubIDs that `meet` sends per true match."""
OURS = "meet"
LISTS = "lists"
PRINTED = "printed"

SCHEMA = "attributes:\n" + "".join(f"  {name}: string\n" for name in ATTRIBUTES)
MEASURED = 2_000
"""Events on which the selectivity of attributes is measured."""
LOAD_S_MAX = 600.0
QUIET_S = 45.0
CHECK_EVERY = 256
"""The steps between two checks of a node's own assertions: they are the simulator's business, not this benchmark's."""
SCANNED = 200
"""The number of events on which the oracle is compared with `Scan`."""
STEPS_TOLD = 10
PROBLEMS_TOLD = 5
_WIDTH = 13


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The workload and the network of all schemes."""

    nodes: int = 128
    subscriptions: int = SUBSCRIPTIONS
    events: int = EVENTS
    seed: int = 7
    attributes_theta: float = 0.6
    values_theta: float = 0.5
    skew: Skew = "all"
    loaded_per_s: float = 500.0
    published_per_s: float = 500.0
    """Subscriptions and events in a second of virtual time, at all brokers together."""

    @property
    def workload(self) -> PaperB:
        return PaperB(
            seed=self.seed,
            attributes_theta=self.attributes_theta,
            values_theta=self.values_theta,
            skew=self.skew,
        )

    @property
    def timing(self) -> Timing:
        load_s, publish_s = self.subscriptions / self.loaded_per_s, self.events / self.published_per_s
        return Timing(load_s=load_s, load_s_max=LOAD_S_MAX, calm_s=publish_s, after_s=0.0, quiet_s=QUIET_S)


QUICK = Case(nodes=8, subscriptions=300, events=60, attributes_theta=1.0, values_theta=1.0)
"""A skewed case, so that a few subscriptions are enough for some matches."""


class Truth(msgspec.Struct, frozen=True):
    """The subscriptions that each event matches, by their numbers, how that was checked, and other measurements."""

    matches: list[list[int]]
    scanned: int = 0
    scanned_matches: int = 0
    order: tuple[str, ...] = ()
    """The attributes, the most selective first."""

    @property
    def pairs(self) -> int:
        return sum(map(len, self.matches))


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of one scheme, from the first event on."""

    scheme: str
    events: int
    matches: int
    wrong: dict[str, int]
    problems: list[str]
    subids: int
    traffic: dict[Purpose, Traffic]
    kinds: dict[str, Traffic]
    seconds: float
    """The counted virtual time; 0 of a model."""
    delay_ms: float
    """The median delay until a subscriber was notified; 0 of a model."""
    load_cpu_s: float
    """CPU until the first event."""
    cpu_s: float
    wall_s: float
    memory_mb: float
    """The largest memory of the process; where schemes share one, the largest so far."""

    @property
    def caused(self) -> Traffic:
        """All traffic but upkeep."""
        total = Traffic()
        for purpose in _PURPOSES:
            total.add(self.traffic[purpose])
        return total

    @property
    def is_right(self) -> bool:
        return not any(self.wrong.values())

    @property
    def is_printed(self) -> bool:
        return self.name == PRINTED

    @property
    def name(self) -> str:
        return self.scheme.split(":")[0]


class Failure(msgspec.Struct, frozen=True):
    """A scheme without a row."""

    scheme: str
    error: str


# -- the oracle --------------------------------------------------------------------------------------------------------


def find_truth(case: Case) -> Truth:
    """Find the matches by the index; SystemExit where the oracle says otherwise."""
    parser = FilterParser()
    filters = [parser.parse(text) for text in case.workload.subscriptions(case.subscriptions)]
    events = list(case.workload.events(case.events))
    matches = Index.from_filters(enumerate(filters)).match_batch(events)
    scan: Scan[int] = Scan()
    for number, filter_ in enumerate(filters):
        scan.add(number, filter_)
    sample = Random(case.seed).sample(range(len(events)), min(SCANNED, len(events)))
    for number in sample:
        if sorted(matches[number]) != sorted(scan.match(events[number])):
            raise SystemExit(f"the index and the oracle do not agree on {events[number]}: report it")
    order = selectivity_order(filters, events[:MEASURED])
    return Truth(matches, len(sample), sum(len(matches[number]) for number in sample), order)


def selectivity_order(filters: Sequence[Filter], events: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
    """Return the attributes, first those whose constraints the fewest events satisfy; as `Feedback.attribute_order` has
    it.
    """
    constraints = [each for filter_ in filters for each in filter_.conjunctions[0].constraints]
    parser = FilterParser()
    alone = ((number, parser.parse(render_constraint(*each))) for number, each in enumerate(constraints))
    found = Index.from_filters(alone).match_batch(list(events))
    hits = Counter(constraints[number][0] for numbers in found for number in numbers)
    asked = Counter(name for name, _ in constraints)
    return tuple(sorted(asked, key=lambda name: (hits[name] / asked[name], name)))


def judge(history: History, expected: dict[str, set[str]]) -> Verdict:
    """Compare the notifications with those due: subscriptions do not change, and all were there before."""
    last = max((each.changes[-1].acknowledged or sys.maxsize for each in history.subscriptions.values()), default=0)
    if any(each.asked < last for each in history.publications.values()):
        raise MeetpointError(f"schemes: some subscriptions were not acknowledged in {LOAD_S_MAX} s; load more slowly")
    verdict = Verdict(spurious=list(history.strange), expected=sum(map(len, expected.values())))
    came: set[tuple[str, str]] = set()
    for name, subscription in history.subscriptions.items():
        for delivery in subscription.deliveries:
            pair = (delivery.event, name)
            if name not in expected.get(delivery.event, ()):
                verdict.spurious.append(f"{delivery.event} to {name} is no match")
            elif pair in came and not delivery.redelivered:
                verdict.duplicate.append(f"{delivery.event} came to {name} again")
            came.add(pair)
    for id_, names in expected.items():
        verdict.missing += [f"{id_} never came to {name}" for name in sorted(names) if (id_, name) not in came]
    return verdict


# -- a run -------------------------------------------------------------------------------------------------------------


class Watcher(Meter):
    """A meter that reports the progress of the run."""

    def __init__(self, codec: Codec, scheme: str, case: Case) -> None:
        super().__init__(codec)
        self._scheme = scheme
        self._steps = {Subscribe: (case.subscriptions, "loaded"), Publish: (case.events, "published")}
        self._done = dict.fromkeys(self._steps, 0)
        self._began, self._spent = time.perf_counter(), time.process_time()
        self.load_cpu_s = 0.0

    def happened(self, now: int, process: Process, thing: object) -> None:
        """Count the requests of clients."""
        had_begun = self.began is not None
        super().happened(now, process, thing)
        if self.began is not None and not had_begun:
            self.load_cpu_s = time.process_time() - self._spent
        if isinstance(thing, ClientRequest) and (kind := type(thing.what)) in self._steps:
            total, done = self._steps[kind]
            self._done[kind] += 1
            if not self._done[kind] % max(1, total // STEPS_TOLD):
                took = time.perf_counter() - self._began
                say(f"{self._scheme}: {self._done[kind]:,} of {total:,} {done}, {took:,.0f} s")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def read_scheme(scheme: str, order: tuple[str, ...] = ()) -> NetworkConfig | CollectionMode:
    """Return the network of a scheme, with its part of the workload; the mode of one as printed."""
    name, *words = scheme.split(":")
    if name == PRINTED:
        if len(words) != 1 or words[0] not in [*CollectionMode]:
            raise SetupError(
                f"{scheme}: as printed there are {', '.join(f'{PRINTED}:{mode}' for mode in CollectionMode)}"
            )
        return CollectionMode(words[0])
    config = network_config("chord", scheme)
    lists = msgspec.structs.replace(config.lists, schema=SCHEMA, first=order)
    return msgspec.structs.replace(config, lists=lists)


def measure(scheme: str, case: Case, truth: Truth) -> Row:
    """Measure one scheme from its beginning to its end."""
    config = read_scheme(scheme, truth.order)
    if isinstance(config, CollectionMode):
        return measure_printed(scheme, config, case, truth)
    expected: dict[str, set[str]] = {}

    def compare(history: History, judging: JudgingTimes) -> Verdict:
        return judge(history, expected)

    net = Network(
        scheme=scheme,
        nodes=case.nodes,
        seed=case.seed,
        timing=case.timing,
        check_every=CHECK_EVERY,
        judge=compare,
        family=family_of(config),
    )
    meter = Watcher(net.family.codec, scheme, case)
    net.observe(meter)
    names = [net.subscribe(text) for text in case.workload.subscriptions(case.subscriptions)]
    for event, numbers in zip(case.workload.events(case.events), truth.matches, strict=True):
        expected[net.publish(event)] = {names[number] for number in numbers}
    net.run()
    report = net.report()
    assert meter.began is not None, "something was published"
    return Row(
        scheme=scheme,
        events=case.events,
        matches=report.notifications_expected,
        wrong=report.counts,
        problems=report.problems,
        subids=report.subids,
        traffic=meter.by_purpose(),
        kinds=dict(sorted(meter.by_kind.items())),
        seconds=(net.engine.now - meter.began) / SECOND_US,
        delay_ms=report.event_delay_ms.p50,
        load_cpu_s=meter.load_cpu_s,
        cpu_s=report.cpu_s,
        wall_s=report.wall_s,
        memory_mb=_memory_mb(),
    )


def measure_printed(scheme: str, mode: CollectionMode, case: Case, truth: Truth) -> Row:
    """Measure a model of the papers as printed."""
    began, spent = time.perf_counter(), time.process_time()
    schema, parser = Schema.from_yaml(SCHEMA), FilterParser()
    order = AttributeOrder(schema, truth.order)
    filters = (parser.parse(text) for text in case.workload.subscriptions(case.subscriptions))
    model = PrintedModel(case.nodes, case.seed, mode, schema, order, filters)
    loaded = time.process_time()
    for event, numbers in zip(case.workload.events(case.events), truth.matches, strict=True):
        model.publish(event, numbers)
    found = model.found
    traffic: dict[Purpose, Traffic] = {purpose: Traffic() for purpose in get_args(Purpose)}
    for tag, each in found.kinds.items():
        traffic[PURPOSES[tag]].add(each)
    delivered = found.delivered_subids / case.events
    notes = [f"{found.subids / case.events - delivered:.2f} SubIDs collected, {delivered:.2f} in deliveries"]
    if found.walks:
        notes.append(f"{found.walks / case.events:.2%} of the events go round the whole ring")
    return Row(
        scheme=scheme,
        events=case.events,
        matches=truth.pairs,
        wrong={"missing": found.missing, "spurious": found.spurious},
        problems=notes,
        subids=found.subids,
        traffic=traffic,
        kinds=dict(sorted(found.kinds.items())),
        seconds=0.0,
        delay_ms=0.0,
        load_cpu_s=loaded - spent,
        cpu_s=time.process_time() - spent,
        wall_s=time.perf_counter() - began,
        memory_mb=_memory_mb(),
    )


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure_all(schemes: Sequence[str], case: Case, truth: Truth, jobs: int) -> Iterator[Row | Failure]:
    """Yield each scheme when it is done, each in a process of its own; of one job, in this process and in order.

    A failure of one scheme does not stop the others.
    """
    if jobs <= 1 or len(schemes) == 1:
        for scheme in schemes:
            try:
                yield measure(scheme, case, truth)
            except Exception as error:
                yield _failure(scheme, error)
        return
    with ThreadPoolExecutor(jobs) as threads:
        for future in as_completed([threads.submit(_measure_apart, scheme, case, truth) for scheme in schemes]):
            yield future.result()


def _measure_apart(scheme: str, case: Case, truth: Truth) -> Row | Failure:
    """Measure in a pool of its own: a process that is killed takes only that along, and gives its memory back."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        try:
            return pool.submit(measure, scheme, case, truth).result()
        except Exception as error:
            return _failure(scheme, error)


def _failure(scheme: str, error: Exception) -> Failure:
    return Failure(scheme, f"{type(error).__name__}: {error}")


# -- what is told ------------------------------------------------------------------------------------------------------

_PURPOSES: tuple[Purpose, ...] = ("events", "placing", "summaries", "safekeeping")
"""The purposes that a published event may cause."""


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield two tables: messages, and bytes."""
    yield from _table(
        "messages an event",
        ["messages", *_PURPOSES, "SubIDs", "a match"],
        {
            row.scheme: [
                *_costs(row, "messages"),
                _number(row.subids / row.events),
                _number(row.subids / row.matches) if row.matches else "-",
            ]
            for row in rows
        },
    )
    yield ""
    yield from _table(
        "bytes an event",
        ["bytes", *_PURPOSES, "upkeep/s", "ms", "CPU s"],
        {
            row.scheme: [
                *_costs(row, "bytes"),
                _number(row.traffic["upkeep"].bytes / row.seconds) if row.seconds else "-",
                _number(row.delay_ms) if row.seconds else "-",
                _number(row.cpu_s),
            ]
            for row in rows
        },
    )
    printed = [row for row in rows if row.is_printed]
    if printed:
        yield ""
        yield (
            "As printed is a model: no acknowledgements, no safekeeping, no upkeep; homes do not filter. An event would"
        )
        for row in printed:
            missing, spurious = (row.wrong[what] / row.events for what in ("missing", "spurious"))
            yield (
                f"{row.scheme}: miss {missing:.3f} of its {row.matches / row.events:.3f} true matches, and reach "
                f"{spurious:.3f} subscriptions wrongly{''.join(f'; {note}' for note in row.problems)}"
            )


def _table(title: str, columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> Iterator[str]:
    first = max(map(len, [title, *rows])) + 2
    yield f"{title:<{first}}" + "".join(f"{name:>{_WIDTH}}" for name in columns)
    for name, cells in rows.items():
        yield f"{name:<{first}}" + "".join(f"{cell:>{_WIDTH}}" for cell in cells)


def _costs(row: Row, what: Literal["messages", "bytes"]) -> list[str]:
    """Return all costs of events, then by purpose."""
    purposes = [
        "-" if row.is_printed and purpose != "events" else _number(getattr(row.traffic[purpose], what) / row.events)
        for purpose in _PURPOSES
    ]
    return [_number(getattr(row.caused, what) / row.events), *purposes]


def summary(row: Row) -> str:
    """Return a row in one line, to show the progress."""
    caused = row.caused
    wrong = ", ".join(f"{name} {count:,}" for name, count in row.wrong.items() if count)
    return (
        f"{row.scheme}: {_number(caused.messages / row.events)} messages, {_number(caused.bytes / row.events)} bytes, "
        f"{_number(row.subids / row.events)} SubIDs an event; {wrong or 'all right'}; "
        f"{row.cpu_s:,.0f} s of CPU ({row.load_cpu_s:,.0f} to load), {row.memory_mb:,.0f} MB"
    )


def _number(value: float) -> str:
    return f"{value:,.{0 if value >= 1000 or value == int(value) else 1 if value >= 10 else 2}f}"


def goals(rows: Sequence[Row]) -> list[Figure]:
    """Return the goals of our own scheme beside the others, where both were run."""
    ours = next((row for row in rows if row.name == OURS), None)
    if ours is None:
        return []
    figures = [_figure(f"{OURS}: SubIDs a true match", ours.subids, ours.matches, GOAL_SUBIDS)]
    others = [row for row in rows if row.name != OURS]
    lists = [row for row in others if row.name in (LISTS, PRINTED)]
    if others:
        least = min(row.caused.bytes for row in others)
        figures.append(_figure(f"{OURS}: bytes, to the least of all others", ours.caused.bytes, least, 1.0))
    if lists:
        least = min(row.caused.messages for row in lists)
        figures.append(_figure(f"{OURS}: messages, to the least of all {LISTS}", ours.caused.messages, least, 1.0))
    return figures


def _figure(name: str, ours: int, theirs: int, goal: float) -> Figure:
    value = ours / theirs if theirs else 0.0
    return Figure(name, value, value, value, "x", goal=goal, at_most=True)


def read(arguments: Sequence[str] | None) -> tuple[argparse.Namespace, Case]:
    """Read the command line; it ends the program where it is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemes", nargs="*", metavar="SCHEME", default=COMPARED, help=f"else {', '.join(COMPARED)}")
    for field in msgspec.structs.fields(Case):
        kind: dict[str, Any] = {"choices": get_args(Skew)} if field.name == "skew" else {"type": field.type}
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, help=f"{field.default} unless told otherwise", **kind)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many schemes run at one time")
    parser.add_argument(
        "--json", action="store_true", help="print JSON lines: the case, each scheme as it is done, goals"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    told = parser.parse_args(arguments)
    changed = {name: value for name in Case.__struct_fields__ if (value := getattr(told, name)) is not None}
    case = msgspec.structs.replace(QUICK if told.quick else Case(), **changed)
    if min(case.nodes, case.subscriptions, case.events) < 1:
        parser.error("there is at least one node, one subscription and one event")
    if min(case.loaded_per_s, case.published_per_s) <= 0:
        parser.error("subscriptions and events come at some rate: more than 0 a second")
    try:
        for scheme in told.schemes:
            read_scheme(scheme)
        _ = case.workload
    except MeetpointError as error:
        parser.error(str(error))
    return told, case


def main(arguments: Sequence[str] | None = None) -> None:
    told, case = read(arguments)
    truth = find_truth(case)
    head = (
        f"{case.nodes:,} nodes, {case.subscriptions:,} subscriptions, {case.events:,} events at "
        f"{case.published_per_s:g}/s, seed {case.seed}, θ of attributes {case.attributes_theta}, of values "
        f"{case.values_theta} ({case.skew}).\n"
        f"{truth.pairs:,} true matches ({truth.pairs / case.events:.2f} an event) by the index; "
        f"of {truth.scanned:,} events drawn at random Scan finds the same, {truth.scanned_matches:,}.\n"
        f"Most selective first: {', '.join(truth.order[:5])} …"
    )
    write = _write_json if told.json else _write_text
    write(head, {"case": case, "matches": truth.pairs, "scanned": truth.scanned, "order": truth.order})
    rows: list[Row] = []
    failures: list[Failure] = []
    for done in measure_all(told.schemes, case, truth, told.jobs):
        if isinstance(done, Failure):
            failures.append(done)
            write(f"{done.scheme} failed: {done.error}", {"failed": done})
        else:
            rows.append(done)
            write(summary(done), {"scheme": done})
    rows.sort(key=lambda row: told.schemes.index(row.scheme))
    figures = goals(rows)
    write("\n".join(["", *_wrong(rows), "", *tables(rows), ""]), {"goals": figures})
    if figures and not told.json:
        tell(figures, judge=not told.quick)
    if failures or any(not row.is_right and not row.is_printed for row in rows):
        raise SystemExit(1)


def _write_text(text: str, found: object) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _write_json(text: str, found: object) -> None:
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    sys.stdout.flush()


def _wrong(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the oracle's complaints of each run."""
    right = [row.scheme for row in rows if row.is_right and not row.is_printed]
    if right:
        yield f"Every notification came, once, and no other: {', '.join(right)}."
    for row in rows:
        if not row.is_right and not row.is_printed:
            counts = ", ".join(f"{name} {count:,}" for name, count in row.wrong.items() if count)
            yield f"{row.scheme}: {counts}; {'; '.join(row.problems[:PROBLEMS_TOLD])}."


if __name__ == "__main__":
    main()
