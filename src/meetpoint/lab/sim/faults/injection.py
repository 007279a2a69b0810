"""Faults as they happen: when each comes, whom it meets, and that the rules are kept.

The rules, without which no promise could hold: at most a minority is down at one time, but for a full restart; at most
one disk is lost per repair interval, counted from when its node came back; whoever is down comes back at the latest at
the healing; a node that some newcomer was told of does not leave for good. Under a perfect detector a node fails only
if the overlay's own operating assumption allows it (`may_fail`). Every kind of the plan happens at least once, where
there is time: a fault that cannot be now is tried again a little later; where too many are down for it, one of them
comes back early; and where no write comes that could fail, a disk is made to write.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from meetpoint.api.limits import SECOND_US
from meetpoint.lab.sim.cluster import Cluster
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.faults.plans import OF_MESSAGES, OF_MINUTES, OF_RESTARTS, PERFECT, FaultError, Plan
from meetpoint.lab.sim.judge.history import History
from meetpoint.lab.sim.network import Cut, Rates, Weather

__all__ = ["HEALING_US", "SKEW_US_MAX", "Faults"]

HEALING_US = 3 * SECOND_US
"""How long it takes until all that was down is up again, after the faults have ended."""
SKEW_US_MAX = 30 * SECOND_US
DRIFT_MAX = 200e-6
"""How far a clock is off, and how wrong it goes."""
SLOW_US_MIN, SLOW_US_MAX = 100_000, 1_000_000
"""How much later a slow node gets and gives everything."""
STORM_MAX = 3
"""How many join or leave at one time, at most."""
AGAIN_US = SECOND_US
EARLY = 0.4
"""In this part of its time every kind is tried at least once."""
SIZE_MIN = 4
"""Below so many nodes none leaves."""


class Faults:
    """Carries a plan out on a cluster."""

    def __init__(self, plan: Plan, cluster: Cluster, history: History, seed: int) -> None:
        self.plan = plan
        self.counts: Counter[str] = Counter()
        self.may_fail: Callable[[Process], bool] = lambda process: True
        self._cluster = cluster
        self._engine = cluster.engine
        self._history = history
        self._random = Random(f"faults/{seed}")
        self._weather = Weather(Random(f"weather/{seed}"), self.counts)
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
        """The time of faults begins now."""
        engine, plan = self._engine, self.plan
        start, length = engine.now, int(plan.seconds * SECOND_US)
        self._ends = start + length
        self._size_min = max(SIZE_MIN, len(self._cluster.processes) * 2 // 3)
        if any(kind in plan.faults for kind in (*OF_MESSAGES, "partition", "one_way_partition", "slow_node")):
            engine.weather = self._weather
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
        """All faults end; who is down comes back within `HEALING_US`."""
        self._ends = self._engine.now
        self._armed.clear()
        self._weather.rates = Rates()
        self._weather.cuts.clear()
        self._weather.slow.clear()
        for process in self._cluster.down():
            self._restart_later(process, self._random.randrange(HEALING_US))

    def calm(self) -> None:
        """Nothing that was held up is on its way any more: links need no order kept for them."""
        self._engine.weather = None

    def _times(self, kind: str) -> list[float]:
        """When, in seconds from the beginning: by a Poisson process, and as often as must be while there is time."""
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
        least = max(1, sum(other in self.plan.faults for other in OF_RESTARTS)) if kind == "crash" else 1
        times += [self._random.uniform(begin, early) for _ in range(least - sum(at < early for at in times))]
        return sorted(times)

    def _try(self, kind: str) -> None:
        """Let it happen; where it cannot be now and has not been yet, soon again."""
        if self._engine.now >= self._ends:
            return
        act, owed = getattr(self, f"_do_{kind}"), self._is_owed(kind)
        if act() or (owed and self._make_room() and act()):
            if kind not in ("torn_write", "failed_write"):  # which happen when the next write does
                self.counts[kind] += 1
        elif owed:
            self._engine.call(self._engine.now + AGAIN_US, self._try, kind)

    def _is_owed(self, kind: str) -> bool:
        """Whether something that was asked for has not happened and still can only if this does."""
        if kind == "crash" and "restart_without_disk" in self.plan.faults and not self._history.lost_disks:
            return True
        return not self.counts[kind]

    def _lasts_us(self, kind: str) -> int:
        low, high = self.plan.faults[kind].lasts
        return int(self._random.uniform(low, high) * SECOND_US)

    # -- links ---------------------------------------------------------------------------------------------------------

    def _rate(self, kind: str, rate: float) -> None:
        if self._engine.now < self._ends or not rate:
            now = self._weather.rates
            rates = {each: getattr(now, each) for each in OF_MESSAGES} | {kind: rate}
            longest = now.delay_us_max
            if kind == "delay" and rate:
                longest = max(4, int(self.plan.faults[kind].lasts[1] * SECOND_US))
            self._weather.rates = Rates(**rates, delay_us_max=longest)

    def _do_partition(self) -> bool:
        return self._cut("partition", one_way=False)

    def _do_one_way_partition(self) -> bool:
        return self._cut("one_way_partition", one_way=True)

    def _cut(self, kind: str, *, one_way: bool) -> bool:
        there = [process.index for process in self._cluster.processes]
        size = self._random.randint(1, max(1, len(there) // 2))
        cut = Cut(frozenset(self._random.sample(there, size)), one_way)
        self._weather.cuts.append(cut)
        self._engine.call(self._engine.now + self._lasts_us(kind), self._mend, cut)
        return True

    def _mend(self, cut: Cut) -> None:
        if cut in self._weather.cuts:
            self._weather.cuts.remove(cut)

    def _do_slow_node(self) -> bool:
        index = self._random.choice(self._cluster.processes).index
        self._weather.slow[index] = self._random.randint(SLOW_US_MIN, SLOW_US_MAX)
        self._engine.call(self._engine.now + self._lasts_us("slow_node"), self._speed_up, index)
        return True

    def _speed_up(self, index: int) -> None:
        self._weather.slow.pop(index, None)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        """Whether one more may be down, and it is still a minority."""
        return 2 * (len(self._cluster.down()) + 1) < len(self._cluster.processes)

    def _make_room(self) -> bool:
        """Where no more may be down, one of those that are comes back now; whether there is room then."""
        down = self._cluster.down()
        if down and not self._has_room():
            process = self._random.choice(down)
            self._restart(process, process.epoch)
        return self._has_room()

    def _may_crash(self, process: Process) -> bool:
        """There is room for one more that is down, and the overlay can bear it."""
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
        """None is lost now, and the last one is back for as long as the others need to copy everything again."""
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
        self._engine.call(self._engine.now + AGAIN_US, self._press, kind)
        return True

    def _press(self, kind: str) -> None:
        """A fault has waited in vain for a write of a process that may crash: let one of them write."""
        if kind not in self._armed or self._engine.now >= self._ends:
            return
        if self._is_owed(kind):
            self._make_room()
        there = self._vulnerable()
        if there:
            self._engine.write_nothing(self._random.choice(there))
        self._engine.call(self._engine.now + AGAIN_US, self._press, kind)

    def _synced(self, process: Process) -> bool:
        """A sync ends well, unless a fault waits for one: then the process dies with it."""
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
