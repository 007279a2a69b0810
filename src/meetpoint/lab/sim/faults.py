"""Plans of faults, by name or from a file, and their injection into a running cluster.

    seconds: 60                    # how long the faults last
    repair_seconds: 60             # at most one disk is lost in so long
    faults:
      loss: 0.05                   # a rate alone, or
      crash: {rate: 6, lasts: [1, 10], begin: 0.2, end: 0.8}

The meaning of a rate depends on the kind: the share of messages (delay, loss, duplication, reordering), of starts
(clock_skew) or of restarts (restart_with_disk, restart_without_disk), or, for all others, how often a minute in the
whole network. `begin` and `end` are parts of the time of faults, from 0 to 1; `lasts` is from how many seconds to how
many. Each kind that is named happens at least once, if there is time enough.

Injection keeps rules, without which no promise could hold: at most a minority is down at one time, but for a full
restart; at most one disk is lost per repair interval, counted from when its node came back; every process that is down
comes back at the latest at the healing; a node that some newcomer was told of does not leave for good. Under a perfect
detector a node fails only if the overlay's own operating assumption allows it (`may_fail`). A fault that cannot be now
is tried again a little later; where too many are down for it, one of them comes back early; and where no write comes
that could fail, a disk is made to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Any, Final, NoReturn

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.errors import MeetpointError, one_line
from meetpoint.lab.sim.cluster import Cluster
from meetpoint.lab.sim.devices import Cut, LinkFaultRates, LinkFaults
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.judge import History


class FaultError(MeetpointError):
    """A plan of faults was refused."""


class Fault(msgspec.Struct, frozen=True):
    """A kind of fault in a plan."""

    rate: float
    lasts: tuple[float, float] = (1.0, 10.0)
    begin: float = 0.0
    end: float = 1.0


class FaultPlan(msgspec.Struct, frozen=True):
    """All faults of a run."""

    name: str
    faults: dict[str, Fault] = {}
    seconds: float = 60.0
    repair_seconds: float = 60.0


OF_MESSAGES: Final = ("delay", "loss", "duplication", "reordering")
OF_RESTARTS: Final = ("restart_with_disk", "restart_without_disk")
OF_STARTS: Final = ("clock_skew",)
OF_MINUTES: Final = (
    "partition", "one_way_partition", "slow_node", "crash", "join", "leave", "torn_write", "failed_write",
    "full_restart",
)  # fmt: skip
KINDS: Final = (*OF_MESSAGES, *OF_MINUTES, *OF_RESTARTS, *OF_STARTS)
PERFECT: Final = (
    "duplication", "reordering", "crash", "join", "leave", "torn_write", "failed_write", *OF_RESTARTS, *OF_STARTS,
)  # fmt: skip
"""The kinds that go with a perfect failure detector: none of them lets a live node seem dead."""

RATE_MAX: Final = 600.0
_SHARES_MAX: Final = {"delay": 0.5, "loss": 0.3, "duplication": 0.5, "reordering": 0.5}
_TOP: Final = ("seconds", "repair_seconds", "faults")
_OF_FAULT: Final = ("rate", "lasts", "begin", "end")

_CRASHES = {
    "crash": Fault(8, (1, 12)),
    "restart_with_disk": Fault(0.7),
    "restart_without_disk": Fault(0.3),
}
_CHURN = {**_CRASHES, "join": Fault(4), "leave": Fault(4)}
_PARTITION = {
    "delay": Fault(0.02, (0, 2)),
    "partition": Fault(2, (5, 20)),
    "one_way_partition": Fault(2, (2, 15)),
    "slow_node": Fault(2, (2, 15)),
}
_LOSSY = {
    "delay": Fault(0.03, (0, 5)),
    "loss": Fault(0.1),
    "duplication": Fault(0.1),
    "reordering": Fault(0.1),
    "slow_node": Fault(2, (2, 15)),
}
_DISK = {
    **_CRASHES,
    "torn_write": Fault(3, (1, 10)),
    "failed_write": Fault(3, (1, 10)),
    "full_restart": Fault(1, (1, 5), 0.5, 0.75),
}
PLANS: Final = {
    name: FaultPlan(name, faults)
    for name, faults in {
        "none": {},
        "churn": _CHURN,
        "partition": _PARTITION,
        "lossy": _LOSSY,
        "disk": _DISK,
        "all": {**_CHURN, **_PARTITION, **_LOSSY, **_DISK, "clock_skew": Fault(0.5)},
    }.items()
}
"""The plans by name."""


def read_plan(source: str | FaultPlan) -> FaultPlan:
    """Read a plan by its name or from a YAML file; FaultError says what is wrong."""
    if isinstance(source, FaultPlan):
        return source
    if source in PLANS:
        return PLANS[source]
    path = Path(source)
    if path.suffix not in (".yaml", ".yml", ".json"):
        refuse("--faults", f"{source!r} is no plan", f"name one of {', '.join(PLANS)}, or a .yaml file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        refuse(source, f"cannot be read: {(error.strerror or str(error)).lower()}", "check the path")
    except UnicodeDecodeError as error:
        refuse(source, f"is not UTF-8 at byte {error.start}", "save it as UTF-8")
    return parse_plan(text, source)


def parse_plan(text: str, where: str) -> FaultPlan:
    """Parse a plan from YAML, of which JSON is a part."""
    import yaml

    try:
        top = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        refuse(where, f"is not YAML: {problem}", "see docs/simulator.md")
    top = _mapping(top, where, "the plan", _TOP)
    faults = {}
    for kind, given in _mapping(top.get("faults", {}), where, "`faults`", KINDS).items():
        faults[kind] = _read_fault(kind, given, where)
    return FaultPlan(
        where,
        faults,
        _number(top.get("seconds", 60), where, "seconds", 1, 3600),
        _number(top.get("repair_seconds", 60), where, "repair_seconds", 10, 3600),
    )


def _read_fault(kind: str, given: object, where: str) -> Fault:
    if not isinstance(given, Mapping):
        given = {"rate": given}
    fields = _mapping(given, where, f"`{kind}`", _OF_FAULT)
    if "rate" not in fields:
        refuse(where, f"`{kind}` has no rate", "write how often it happens")
    at_most = RATE_MAX if kind in OF_MINUTES else _SHARES_MAX.get(kind, 1.0)
    rate = _number(fields["rate"], where, f"the rate of {kind}", 0, at_most)
    if rate == 0:
        refuse(where, f"the rate of {kind} is 0", "leave it out, or give it a rate")
    begin = _number(fields.get("begin", 0), where, f"the begin of {kind}", 0, 1)
    end = _number(fields.get("end", 1), where, f"the end of {kind}", 0, 1)
    if begin >= end:
        refuse(where, f"{kind} ends at {end} and begins at {begin}", "let it begin before it ends")
    lasts = fields.get("lasts", [1, 10])
    if not isinstance(lasts, list) or len(lasts) != 2:
        refuse(where, f"`lasts` of {kind} is {lasts!r}", "write two numbers of seconds, [1, 10]")
    low, high = (_number(value, where, f"`lasts` of {kind}", 0, 600) for value in lasts)
    if low > high:
        refuse(where, f"`lasts` of {kind} is from {low} to {high}", "write the smaller one first")
    return Fault(rate, (low, high), begin, end)


def _mapping(value: object, where: str, what: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        refuse(where, f"{what} is no mapping", "write `key: value` a line")
    for key in value:
        if key not in keys:
            near = get_close_matches(str(key), keys, 1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(keys)}"
            refuse(where, f"{what} has an unknown key {key!r}", hint)
    return dict(value)


def _number(value: object, where: str, what: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        refuse(where, f"{what} is {value!r}", f"give a number from {low:g} to {high:g}")
    return float(value)


def refuse(where: str, problem: str, hint: str) -> NoReturn:
    """Raise a FaultError with the place, the problem and a hint."""
    raise FaultError(one_line(f"faults, {where}: {problem}; {hint}"))


# -- injection ---------------------------------------------------------------------------------------------------------


HEALING_US = 3 * SECOND_US
"""The time after the faults until every process is up again."""
SKEW_US_MAX = 30 * SECOND_US
DRIFT_MAX = 200e-6
"""The largest offset and drift of a clock."""
SLOW_US_MIN, SLOW_US_MAX = 100_000, 1_000_000
"""The extra delay of messages to and from a slow node."""
STORM_MAX = 3
"""The most nodes that join or leave at one time."""
AGAIN_US = SECOND_US
EARLY = 0.4
"""The first part of the time, in which every kind is tried at least once."""
SIZE_MIN = 4
"""The network size below which none leaves."""


class FaultInjector:
    """The injector of a plan's faults into a cluster."""

    def __init__(self, plan: FaultPlan, cluster: Cluster, history: History, seed: int) -> None:
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self.may_fail: Callable[[Process], bool] = lambda process: True
        self._cluster = cluster
        self._engine = cluster.engine
        self._history = history
        self._random = Random(f"faults/{seed}")
        self._link_faults = LinkFaults(Random(f"weather/{seed}"), self.counts)
        self._armed: list[str] = []
        self._diskless: dict[str, None] = {}
        self._disk_back_at: int | None = None
        self._crashes = 0
        self._ends = 0
        self._size_min = 0
        if self._engine.detector == "perfect":
            for kind in plan.faults:
                if kind not in PERFECT:
                    raise FaultError(
                        f"faults, {plan.name}: {kind} does not go with a perfect failure detector; "
                        "take it out, or take the imperfect one"
                    )
        if "clock_skew" in plan.faults:
            cluster.skew = self._skew

    @property
    def never(self) -> list[str]:
        """The kinds that were asked for and did not happen."""
        return [kind for kind in self.plan.faults if not self.counts[kind]]

    def begin(self) -> None:
        """Begin the time of faults."""
        engine, plan = self._engine, self.plan
        start, length = engine.now, int(plan.seconds * SECOND_US)
        self._ends = start + length
        self._size_min = max(SIZE_MIN, len(self._cluster.processes) * 2 // 3)
        if any(kind in plan.faults for kind in (*OF_MESSAGES, "partition", "one_way_partition", "slow_node")):
            engine.link_faults = self._link_faults
        engine.on_sync = self._synced
        for kind in OF_MINUTES:
            for at in self._times(kind):
                engine.call(start + int(at * SECOND_US), self._try, kind)
        for kind in OF_MESSAGES:
            if kind in plan.faults:
                fault = plan.faults[kind]
                engine.call(start + int(length * fault.begin), self._rate, kind, fault.rate)
                engine.call(start + int(length * fault.end), self._rate, kind, 0.0)

    def end(self) -> None:
        """End all faults; processes that are down come back within `HEALING_US`."""
        self._ends = self._engine.now
        self._armed.clear()
        self._link_faults.rates = LinkFaultRates()
        self._link_faults.cuts.clear()
        self._link_faults.slow.clear()
        # Restarts are spread out: all at one instant would be a storm that no plan asked for.
        for process in self._cluster.down():
            self._restart_later(process, self._random.randrange(HEALING_US))

    def calm(self) -> None:
        """Drop the link faults: no held-up message is on its way any more, so links need no order kept for them."""
        self._engine.link_faults = None

    def _times(self, kind: str) -> list[float]:
        """Return times in seconds from the beginning: by a Poisson process, with the required number of early ones."""
        fault = self.plan.faults.get(kind)
        if fault is None:
            return []
        begin, end = fault.begin * self.plan.seconds, fault.end * self.plan.seconds
        times = []
        at = begin + self._random.expovariate(fault.rate / 60)
        while at < end:
            times.append(at)
            at += self._random.expovariate(fault.rate / 60)
        early = begin + (end - begin) * EARLY
        # Each kind of restart needs a crash of its own, or the second kind would never happen.
        least = max(1, sum(other in self.plan.faults for other in OF_RESTARTS)) if kind == "crash" else 1
        times += [self._random.uniform(begin, early) for _ in range(least - sum(at < early for at in times))]
        return sorted(times)

    def _try(self, kind: str) -> None:
        """Inject a fault now; where it cannot happen and has not happened yet, soon again."""
        if self._engine.now >= self._ends:
            return
        act, owed = getattr(self, f"_do_{kind}"), self._is_owed(kind)
        if act() or (owed and self._make_room() and act()):
            if kind not in ("torn_write", "failed_write"):  # which happen when the next write does
                self.counts[kind] += 1
        elif owed:
            self._engine.call(self._engine.now + AGAIN_US, self._try, kind)

    def _is_owed(self, kind: str) -> bool:
        """Return whether a requested kind has not happened and depends on this one."""
        if kind == "crash" and "restart_without_disk" in self.plan.faults and not self._history.lost_disks:
            return True
        return not self.counts[kind]

    def _lasts_us(self, kind: str) -> int:
        low, high = self.plan.faults[kind].lasts
        return int(self._random.uniform(low, high) * SECOND_US)

    # -- links ---------------------------------------------------------------------------------------------------------

    def _rate(self, kind: str, rate: float) -> None:
        if self._engine.now < self._ends or not rate:
            now = self._link_faults.rates
            rates = {each: getattr(now, each) for each in OF_MESSAGES} | {kind: rate}
            longest = now.delay_us_max
            if kind == "delay" and rate:
                longest = max(4, int(self.plan.faults[kind].lasts[1] * SECOND_US))
            self._link_faults.rates = LinkFaultRates(**rates, delay_us_max=longest)

    def _do_partition(self) -> bool:
        return self._cut("partition", one_way=False)

    def _do_one_way_partition(self) -> bool:
        return self._cut("one_way_partition", one_way=True)

    def _cut(self, kind: str, *, one_way: bool) -> bool:
        there = [process.index for process in self._cluster.processes]
        size = self._random.randint(1, max(1, len(there) // 2))
        cut = Cut(frozenset(self._random.sample(there, size)), one_way)
        self._link_faults.cuts.append(cut)
        self._engine.call(self._engine.now + self._lasts_us(kind), self._mend, cut)
        return True

    def _mend(self, cut: Cut) -> None:
        if cut in self._link_faults.cuts:
            self._link_faults.cuts.remove(cut)

    def _do_slow_node(self) -> bool:
        index = self._random.choice(self._cluster.processes).index
        self._link_faults.slow[index] = self._random.randint(SLOW_US_MIN, SLOW_US_MAX)
        self._engine.call(self._engine.now + self._lasts_us("slow_node"), self._speed_up, index)
        return True

    def _speed_up(self, index: int) -> None:
        self._link_faults.slow.pop(index, None)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Return whether the processes that are down would stay a minority with one more."""
        return 2 * (len(self._cluster.down()) + 1) < len(self._cluster.processes)

    def _make_room(self) -> bool:
        """Restart a process if no more may be down; return whether there is room then."""
        down = self._cluster.down()
        if down and not self._has_room():
            process = self._random.choice(down)
            self._restart(process, process.epoch)
        return self._has_room()

    def _may_crash(self, process: Process) -> bool:
        """Return whether one more may be down, and the overlay can bear it."""
        return process.alive and self._has_room() and self.may_fail(process)

    def _vulnerable(self) -> list[Process]:
        return [process for process in self._cluster.alive() if self._may_crash(process)]

    def _do_crash(self) -> bool:
        there = self._vulnerable()
        if not there:
            return False
        process = self._random.choice(there)
        self._crash(process, "crash", lose_disk=self._may_lose_disk())
        return True

    def _may_lose_disk(self) -> bool:
        """Return whether no disk is lost now, and the others have had the time to copy everything again."""
        fault = self.plan.faults.get("restart_without_disk")
        interval = int(self.plan.repair_seconds * SECOND_US)
        if fault is None or self._diskless:
            return False
        if self._disk_back_at is not None:
            return self._engine.now >= self._disk_back_at + interval and self._random.random() < fault.rate
        return "restart_with_disk" not in self.plan.faults or self._crashes > 0

    def _crash(self, process: Process, kind: str, *, lose_disk: bool) -> None:
        self._cluster.crash(process, lose_disk=lose_disk)
        self._crashes += 1
        if lose_disk:
            self._diskless[process.address] = None
            self._history.lost_disks.append((self._engine.now, process.address))
        self._restart_later(process, self._lasts_us(kind))

    def _restart_later(self, process: Process, wait_us: int) -> None:
        self._engine.call(self._engine.now + wait_us, self._restart, process, process.epoch)

    def _restart(self, process: Process, epoch: int) -> None:
        if process.epoch != epoch:
            return
        kind = "restart_without_disk" if process.address in self._diskless else "restart_with_disk"
        if kind in self.plan.faults:
            self.counts[kind] += 1
        if self._diskless.pop(process.address, self) is None:
            self._disk_back_at = self._engine.now
        self._cluster.restart(process)

    def _do_full_restart(self) -> bool:
        for process in self._cluster.alive():
            self._cluster.crash(process)
        for process in self._cluster.down():
            self._restart_later(process, self._lasts_us("full_restart"))
        return True

    def _do_join(self) -> bool:
        for _ in range(self._random.randint(1, STORM_MAX)):
            self._cluster.join()
        return True

    def _do_leave(self) -> bool:
        left = False
        for _ in range(self._random.randint(1, STORM_MAX)):
            cluster = self._cluster
            staying = len(cluster.processes) - len(cluster.leaving)
            there = [
                process
                for process in cluster.members()
                if process.address not in cluster.leaving
                and not cluster.is_needed(process)
                and self._may_crash(process)
            ]
            if there and staying > self._size_min:
                cluster.leave(self._random.choice(there))
                left = True
        return left

    # -- disks and clocks ----------------------------------------------------------------------------------------------

    def _do_torn_write(self) -> bool:
        return self._arm("torn_write")

    def _do_failed_write(self) -> bool:
        return self._arm("failed_write")

    def _arm(self, kind: str) -> bool:
        self._armed.append(kind)
        self._engine.call(self._engine.now + AGAIN_US, self._force_write, kind)
        return True

    def _force_write(self, kind: str) -> None:
        """Let a process write, where a disk fault has waited in vain for a write."""
        if kind not in self._armed or self._engine.now >= self._ends:
            return
        if self._is_owed(kind):
            self._make_room()
        there = self._vulnerable()
        if there:
            self._engine.write_nothing(self._random.choice(there))
        self._engine.call(self._engine.now + AGAIN_US, self._force_write, kind)

    def _synced(self, process: Process) -> bool:
        """Return whether a sync ends well. Where a disk fault waits for one, the process dies with it."""
        # The fault waits for a process that may die now, or a majority could be down.
        if not self._armed or not self._may_crash(process):
            return True
        kind = self._armed.pop(0)
        self.counts[kind] += 1
        self._crash(process, kind, lose_disk=False)
        return False

    def _skew(self, random: Random) -> tuple[int, float]:
        if random.random() >= self.plan.faults["clock_skew"].rate and self.counts["clock_skew"]:
            return 0, 0.0
        self.counts["clock_skew"] += 1
        return random.randint(-SKEW_US_MAX, SKEW_US_MAX), random.uniform(-DRIFT_MAX, DRIFT_MAX)
