"""Runs: one configuration and one seed give one report; many seeds run on all cores.

The actions of clients are made from the seed too (`workload`): most subscriptions come before the faults, some during
them; some are changed or ended meanwhile; events and lookups come in all phases.

Runs on several cores are processes that share nothing but a counter of steps. Simulations are long, so a run calls
`advance`, and the caller hears the sum.
"""

from __future__ import annotations

import os
import shlex
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import islice
from multiprocessing import active_children, get_context
from random import Random
from typing import Any, TypeVar

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.sim.devices import show
from meetpoint.lab.sim.engine import Detector, Observer
from meetpoint.lab.sim.faults import FaultPlan, read_plan
from meetpoint.lab.sim.judge import RunReport
from meetpoint.lab.sim.scenario import Family, Network, Phase, Timing
from meetpoint.lab.sim.workload import Workload

# -- processes ---------------------------------------------------------------------------------------------------------


LOOK_S = 0.2
"""The interval at which the caller looks at the progress of the runs."""

Item = TypeVar("Item")
Result = TypeVar("Result")

_done: Any = None
"""The steps that all processes of the pool have done, in each of them."""


def cores() -> int:
    """Return how many runs may go on at once."""
    return os.cpu_count() or 1


def advance(steps: int) -> None:
    """Report, in a process of the pool, that so many steps were done."""
    if _done is not None:
        with _done.get_lock():
            _done.value += steps


def in_processes(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int, step: Callable[[int], None] | None = None
) -> Iterator[Result]:
    """Yield the result of `work` for each item, as it comes; `step` is called with the steps done since."""
    # Forked children would inherit locks of threads that they do not have, and could hang.
    context = get_context("spawn")
    done = context.Value("Q", 0)
    pool = ProcessPoolExecutor(workers, context, initializer=_begin, initargs=(done,))
    ahead = iter(items)
    reported = 0
    try:
        # Twice as many as run at a time, so that no core idles while results are taken.
        running = {pool.submit(work, item) for item in islice(ahead, 2 * workers)}
        while running:
            ready, running = wait(running, None if step is None else LOOK_S, FIRST_COMPLETED)
            if step is not None and (now := done.value) > reported:
                step(now - reported)
                reported = now
            for future in ready:
                running |= {pool.submit(work, item) for item in islice(ahead, 1)}
                yield future.result()
    except BrokenProcessPool:
        raise MeetpointError(
            "sim: a process that simulated was killed, maybe for want of memory; "
            "take fewer nodes, subscriptions or events"
        ) from None
    except BaseException:  # a run that is stopped must not wait for its children
        for process in active_children():
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(done: Any) -> None:
    global _done
    # The parent ends its children: Ctrl-C in each of them would print a traceback per core.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _done = done


# -- runs --------------------------------------------------------------------------------------------------------------


LATE_SHARE = 0.15
"""The share of subscriptions that come while faults happen."""
UPDATED_SHARE = 0.15
ENDED_SHARE = 0.1
"""The shares that are changed, and ended, while faults happen or after."""
_EVENTS: Sequence[tuple[Phase, float]] = (("load", 0.1), ("faults", 0.5), ("recovery", 0.15), ("after", 0.25))
_LOOKUPS: Sequence[tuple[Phase, float]] = (("faults", 0.3), ("after", 0.7))


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a run."""

    overlay: str = "chord"
    scheme: str = "meet"
    nodes: int = 64
    subscriptions: int = 500
    events: int = 500
    lookups: int = 100
    faults: str = "none"
    detector: Detector = "imperfect"
    founders: int | None = None
    fault_seconds: float | None = None
    recovery_seconds: float | None = None

    def plan(self) -> FaultPlan:
        """Return the plan of faults, with the length that was asked for."""
        plan = read_plan(self.faults)
        return plan if self.fault_seconds is None else msgspec.structs.replace(plan, seconds=self.fault_seconds)

    def timing(self) -> Timing:
        """Return the durations of the phases."""
        timing = Timing()
        if self.fault_seconds is not None:
            timing = msgspec.structs.replace(timing, calm_s=self.fault_seconds)
        if self.recovery_seconds is not None:
            timing = msgspec.structs.replace(timing, recovery_s=self.recovery_seconds)
        return timing


def command(config: RunConfig, seed: int) -> str:
    """Return the command that repeats a run."""
    words = ["meetpoint", "sim"]
    for field in msgspec.structs.fields(RunConfig):
        value = getattr(config, field.name)
        if value is not None and (value != field.default or field.name in ("overlay", "scheme", "nodes", "faults")):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{field.name.replace('_', '-')}", shown]
    return shlex.join([*words, "--seed", str(seed)])


def make_network(config: RunConfig, seed: int, family: Family | None = None) -> Network:
    """Make a network that has not run, with all actions of its clients."""
    net = Network(
        config.overlay,
        config.scheme,
        config.nodes,
        seed,
        config.plan(),
        detector=config.detector,
        founders=config.founders,
        timing=config.timing(),
        family=family,
    )
    workload, random = Workload(seed), Random(f"script/{seed}")
    actions: dict[Phase, list[Callable[[], object]]] = {"load": [], "faults": [], "recovery": [], "after": []}
    late = int(config.subscriptions * LATE_SHARE)
    names = [net.subscribe(workload.filter()) for _ in range(config.subscriptions - late)]
    actions["faults"] += [partial(net.subscribe, workload.filter(), phase="faults") for _ in range(late)]
    for phase, name in _some(names, UPDATED_SHARE, random):
        actions[phase].append(partial(net.update, name, workload.filter(), phase=phase))
    for phase, name in _some(names, ENDED_SHARE, random):
        actions[phase].append(partial(net.unsubscribe, name, phase=phase))
    for phase in _phases(_EVENTS, config.events):
        actions[phase].append(partial(net.publish, workload.event(), phase=phase))
    for phase in _phases(_LOOKUPS, config.lookups):
        actions[phase].append(partial(net.lookup, phase=phase))
    for listed in actions.values():
        random.shuffle(listed)
        for action in listed:
            action()
    return net


def _some(names: Sequence[str], share: float, random: Random) -> Iterator[tuple[Phase, str]]:
    for name in random.sample(names, int(len(names) * share)):
        yield random.choices(("faults", "recovery", "after"), (0.7, 0.1, 0.2))[0], name


def _phases(shares: Sequence[tuple[Phase, float]], count: int) -> Iterator[Phase]:
    """Yield each phase in proportion to its share, exactly `count` in all."""
    done, reached = 0, 0.0
    for phase, share in shares:
        reached += share
        upto = round(count * reached)
        yield from [phase] * (upto - done)
        done = upto


def run(config: RunConfig, seed: int, observer: Observer | None = None, family: Family | None = None) -> RunReport:
    """Run one configuration with one seed."""
    net = make_network(config, seed, family)
    if observer is not None:
        net.observe(observer)
    return finish(net)


def finish(net: Network) -> RunReport:
    """Let a network run. A failure inside a node is reported with its place; the seed repeats it."""
    try:
        net.run()
    except MeetpointError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno} in {place.name}"
        report = net.report()
        report.invariants_broken += 1
        report.problems.insert(0, f"{type(error).__name__} at {where}, {show(net.engine.now)}: {error} ({place.line})")
        return report
    return net.report()


def run_judged(net: Network, name: str) -> RunReport:
    """Let a network of an experiment run; MeetpointError where the judge finds anything wrong."""
    net.run()
    report = net.report()
    if not report.good:
        raise MeetpointError(f"{name}, seed {report.seed}: the network was wrong: {report.problems}")
    return report


def run_many(config: RunConfig, seeds: Sequence[int], jobs: int | None = None) -> Iterator[RunReport]:
    """Yield the reports of many seeds, as they come, from as many processes as there are cores."""
    workers = min(jobs or cores(), len(seeds))
    if workers > 1:
        yield from in_processes(partial(run, config), seeds, workers)
    else:
        for seed in seeds:
            yield run(config, seed)
