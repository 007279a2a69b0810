"""One configuration and one seed give one report; many seeds run on all cores.

What clients do is made from the seed too (`workload`): most subscriptions come before the faults, some during them;
some are changed or ended meanwhile; events and lookups come in all phases.
"""

from __future__ import annotations

import os
import shlex
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

import msgspec

from meetpoint.errors import MeetpointError
from meetpoint.lab.sim.clock import told
from meetpoint.lab.sim.engine import Detector, Story
from meetpoint.lab.sim.faults.plans import Plan, read_plan
from meetpoint.lab.sim.judge.report import Report
from meetpoint.lab.sim.pool import cores, in_processes
from meetpoint.lab.sim.scenario import Kin, Network, Phase, Timing
from meetpoint.lab.sim.workload import Workload

__all__ = ["RunConfig", "command", "finish", "make_network", "run", "run_many"]

LATE_SHARE = 0.15
"""The share of subscriptions that come while faults happen."""
UPDATED_SHARE = 0.15
ENDED_SHARE = 0.1
"""The shares that are changed, and ended, while faults happen or after."""
_EVENTS: Sequence[tuple[Phase, float]] = (("load", 0.1), ("faults", 0.5), ("recovery", 0.15), ("after", 0.25))
_LOOKUPS: Sequence[tuple[Phase, float]] = (("faults", 0.3), ("after", 0.7))


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is simulated."""

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

    def plan(self) -> Plan:
        """The plan of faults, with the length that was asked for."""
        plan = read_plan(self.faults)
        return plan if self.fault_seconds is None else msgspec.structs.replace(plan, seconds=self.fault_seconds)

    def timing(self) -> Timing:
        """How long the phases last."""
        timing = Timing()
        if self.fault_seconds is not None:
            timing = msgspec.structs.replace(timing, calm_s=self.fault_seconds)
        if self.recovery_seconds is not None:
            timing = msgspec.structs.replace(timing, recovery_s=self.recovery_seconds)
        return timing


def command(config: RunConfig, seed: int) -> str:
    """The command that repeats a run."""
    words = ["meetpoint", "sim"]
    for field in msgspec.structs.fields(RunConfig):
        value = getattr(config, field.name)
        if value is not None and (value != field.default or field.name in ("overlay", "scheme", "nodes", "faults")):
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            words += [f"--{field.name.replace('_', '-')}", shown]
    return shlex.join([*words, "--seed", str(seed)])


def make_network(config: RunConfig, seed: int, kin: Kin | None = None) -> Network:
    """A network that has not run, with all that its clients will do."""
    net = Network(
        config.overlay,
        config.scheme,
        config.nodes,
        seed,
        config.plan(),
        detector=config.detector,
        founders=config.founders,
        timing=config.timing(),
        kin=kin,
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
    """So many of each phase, in proportion, and exactly `count` in all."""
    done, reached = 0, 0.0
    for phase, share in shares:
        reached += share
        upto = round(count * reached)
        yield from [phase] * (upto - done)
        done = upto


def run(config: RunConfig, seed: int, story: Story | None = None, kin: Kin | None = None) -> Report:
    """One run."""
    net = make_network(config, seed, kin)
    if story is not None:
        net.tell(story)
    return finish(net)


def finish(net: Network) -> Report:
    """Let a network run. What fails inside a node is told in the report, with its place; the seed repeats it."""
    try:
        net.run()
    except MeetpointError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{os.path.basename(place.filename)}:{place.lineno} in {place.name}"
        report = net.report()
        report.invariants_broken += 1
        report.problems.insert(0, f"{type(error).__name__} at {where}, {told(net.engine.now)}: {error} ({place.line})")
        return report
    return net.report()


def run_many(config: RunConfig, seeds: Sequence[int], jobs: int | None = None) -> Iterator[Report]:
    """The reports of many seeds, as they come, from as many processes as there are cores."""
    workers = min(jobs or cores(), len(seeds))
    if workers > 1:
        yield from in_processes(partial(run, config), seeds, workers)
    else:
        for seed in seeds:
            yield run(config, seed)
