"""A whole network in a few lines: make it, script its clients, run it, read the notifications.

    net = Network(overlay="chord", scheme="meet", nodes=64, seed=7, faults="churn")
    sub = net.subscribe("price > 120")
    event = net.publish({"price": 121})
    net.run()
    assert net.notifications[sub] == [event]
    print(net.report().messages)

A run has phases: the network *starts*, clients *load* their subscriptions, *faults* happen while clients go on, all
heals and the network *recovers* within a stated time, *after* which everything must work, and at last it is *quiet*,
so that everything still on its way can arrive. Then the checkers judge. The actions of clients are scheduled
beforehand, each with its phase; those of one phase happen at even distances, in the order of their calls, but for
rests.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from meetpoint.api.limits import SECOND_US
from meetpoint.errors import MeetpointError
from meetpoint.lab.sim.clients import Clients
from meetpoint.lab.sim.cluster import Cluster, InvariantWatch, NodeFamily, OverlayInvariant
from meetpoint.lab.sim.devices import BEGINNING, show
from meetpoint.lab.sim.engine import Detector, Engine, Observer, Process
from meetpoint.lab.sim.faults import HEALING_US, FaultInjector, FaultPlan, read_plan
from meetpoint.lab.sim.judge import (
    PROBLEMS_SHOWN,
    History,
    JudgingTimes,
    Members,
    RunReport,
    Verdict,
    check_lookups,
    check_notifications,
    check_state,
    summarise,
)
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.values import clean_attributes

NO_SCHEME = "none"
"""The overlay alone, without a scheme: nothing can be subscribed or published, only keys looked up."""

RARELY = (100_000, 20, 20)
"""The thresholds of the garbage collector during a run: it would take a tenth of the time otherwise."""

CHECK_EVERY = 16
"""The steps of a node between two checks of its own assertions; they are checked at the end too: a broken state stays
broken."""

Phase: TypeAlias = Literal["load", "faults", "recovery", "after"]


class Timing(msgspec.Struct, frozen=True):
    """The durations of the phases, in virtual seconds."""

    start_s_max: float = 120.0
    """The longest time until all nodes serve."""
    between_joins_s: float = 0.5
    load_s: float = 10.0
    load_s_max: float = 60.0
    calm_s: float = 20.0
    """The duration of the time of faults where there are none; a plan has its own."""
    recovery_s: float = 60.0
    """The stated time after healing within which everything works again."""
    after_s: float = 15.0
    quiet_s: float = 45.0
    rest_s_max: float = 5.0
    """The longest time after that for work that a node began by itself, such as expiring old entries."""
    grace_s: float = 15.0
    """The longest time that an event may be on its way in a network without faults."""


class Family(NodeFamily, OverlayInvariant, Protocol):
    """A kind of network with the invariant of its overlay."""

    def founders(self, count: int) -> None:
        """Prepare for so many nodes that begin the network at once."""

    def is_ready(self, node: Any) -> bool: ...

    def responsible(self, members: Members, key: bytes) -> Sequence[bytes]:
        """Return the owners of a key: one, but while it passes from one to another."""


class Network:
    """A simulated network, from its beginning to its judgement."""

    def __init__(
        self,
        overlay: str = "chord",
        scheme: str = "meet",
        nodes: int = 64,
        seed: int = 7,
        faults: str | FaultPlan = "none",
        *,
        detector: Detector = "imperfect",
        founders: int | None = None,
        timing: Timing | None = None,
        check_every: int = CHECK_EVERY,
        judge: Callable[[History, JudgingTimes], Verdict] = check_notifications,
        family: Family | None = None,
    ) -> None:
        if nodes < 1:
            raise MeetpointError(f"sim: a network of {nodes} nodes; it has at least one")
        self._told = {"overlay": overlay, "scheme": scheme, "nodes": nodes, "seed": seed, "detector": detector}
        self.timing = Timing() if timing is None else timing
        self.family: Family = _family(overlay, scheme) if family is None else family
        self.engine = Engine(self.family.codec, seed, detector)
        self.cluster = Cluster(self.engine, self.family, seed)
        self.clients = Clients(self.cluster, seed)
        self.plan = read_plan(faults)
        self.faults = FaultInjector(self.plan, self.cluster, self.clients.history, seed)
        self.watch = InvariantWatch(self.cluster, self.family)
        self.engine.after_step = self._stepped
        self._check_every = check_every
        self._judge_notifications = judge
        self._nodes = nodes
        self._founders = nodes if founders is None else min(founders, nodes)
        self._random = Random(f"network/{seed}")
        self._scripts: dict[Phase, list[Callable[[], object]]] = {"load": [], "faults": [], "recovery": [], "after": []}
        self._rests: dict[Phase, list[tuple[int, float]]] = {"load": [], "faults": [], "recovery": [], "after": []}
        self._names = self._events = 0
        self._ran = False
        self._judging = JudgingTimes(0, 0)
        self._live_again_s: float | None = None
        self._problems: list[str] = []
        self._verdict = Verdict()
        self._wrong_lookups: list[str] = []
        self._wall_s = self._cpu_s = 0.0
        if detector == "perfect":
            self.faults.may_fail = self.watch.may_fail

    # -- what clients will do ------------------------------------------------------------------------------------------

    def subscribe(self, filter_: str, *, phase: Phase = "load") -> str:
        """Schedule a subscription at some node; return its name."""
        parse_filter(filter_)
        self._names += 1
        name = f"s{self._names}"
        self._say(phase, partial(self._at_some_node, lambda at: self.clients.subscribe(name, filter_, at.address)))
        return name

    def update(self, name: str, filter_: str, *, phase: Phase = "faults") -> None:
        """Schedule another filter for a subscription."""
        parse_filter(filter_)
        self._change(name, phase, lambda: self.clients.update(self.clients.history.subscriptions[name], filter_))

    def unsubscribe(self, name: str, *, phase: Phase = "faults") -> None:
        """Schedule the end of a subscription."""
        self._change(name, phase, lambda: self.clients.unsubscribe(self.clients.history.subscriptions[name]))

    def publish(self, attributes: Mapping[str, object], *, phase: Phase = "faults") -> str:
        """Schedule an event at some node; return its id."""
        clean = clean_attributes(attributes)
        self._events += 1
        id_ = f"e{self._events}"
        self._say(phase, partial(self._at_some_node, lambda at: self.clients.publish(id_, clean, at)))
        return id_

    def lookup(self, key: bytes | None = None, *, phase: Phase = "after") -> None:
        """Schedule a lookup of a key, or of a random one, at some node."""
        wanted = self._key() if key is None else key
        self._say(phase, partial(self._at_some_node, lambda at: self.clients.lookup(wanted, at)), is_lookup=True)

    def happen(self, action: Callable[[], object], *, phase: Phase = "faults") -> None:
        """Schedule an action of the caller's own, beside those of clients."""
        self._say(phase, action)

    def rest(self, seconds: float, *, phase: Phase = "faults") -> None:
        """Schedule a pause of clients, taken from the time of the phase, after the actions scheduled so far."""
        self._rests[phase].append((len(self._scripts[phase]), seconds))

    def observe(self, observer: Observer) -> None:
        """Attach an observer."""
        self.engine.observer = observer

    def _say(self, phase: Phase, action: Callable[[], object], *, is_lookup: bool = False) -> None:
        if self._ran:
            raise MeetpointError("sim: this network has run; make another one, or say everything before it runs")
        if self._told["scheme"] == NO_SCHEME and not is_lookup:
            raise MeetpointError(
                "sim: without a scheme nothing is subscribed or published; look up keys, or name a scheme"
            )
        self._scripts[phase].append(action)

    def _change(self, name: str, phase: Phase, action: Callable[[], object]) -> None:
        if not name.startswith("s") or not name[1:].isdigit() or not 1 <= int(name[1:]) <= self._names:
            raise MeetpointError(f"sim: there is no subscription {name!r}; use a name that subscribe() returned")
        self._say(phase, lambda: name in self.clients.history.subscriptions and action())

    def _at_some_node(self, action: Callable[[Process], object]) -> None:
        """Let a client act at a node that is up and, as far as anyone can see, stays; where none is, a little later."""
        leaving = self.cluster.leaving
        up = self.cluster.alive()
        if leaving:
            up = [process for process in up if process.address not in leaving]
        if up:
            action(self._random.choice(up))
        else:
            self.engine.call(self.engine.now + SECOND_US, self._at_some_node, action)

    def _key(self) -> bytes:
        return bytes(self.family.ring.key(self._random.getrandbits(self.family.ring.bits)))

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all phases, and judge."""
        if self._ran:
            raise MeetpointError("sim: this network has run; make another one")
        self._ran = True
        thresholds = gc.get_threshold()
        gc.set_threshold(*RARELY)  # a run makes many objects and hardly a cycle
        try:
            self._run()
        finally:
            gc.set_threshold(*thresholds)

    def _run(self) -> None:
        began, spent = time.perf_counter(), time.process_time()
        timing = self.timing
        calm = not self.plan.faults
        self._start()
        self._act("load", timing.load_s)
        self._wait(lambda: not self.clients.busy, timing.load_s_max)
        if calm:
            self._act("faults", timing.calm_s)
        else:
            self.faults.begin()
            self._act("faults", self.plan.seconds)
            self.faults.end()
        self._recover(calm)
        self._act("after", timing.after_s)
        self.engine.run(self.engine.now + int(timing.quiet_s * SECOND_US))
        self._wait(lambda: not self._at_something(), timing.rest_s_max)
        self.clients.give_up_all()
        self._wall_s, self._cpu_s = time.perf_counter() - began, time.process_time() - spent
        self._judge(calm)

    def _start(self) -> None:
        self.family.founders(self._founders)
        self.cluster.found(self._founders)
        if self.engine.detector == "perfect":
            self.watch.begin()
        self._wait(self._all_ready, self.timing.start_s_max)
        for _ in range(self._nodes - self._founders):
            self.engine.run(self.engine.now + int(self.timing.between_joins_s * SECOND_US))
            self.cluster.join()
        self._wait(self._all_ready, self.timing.start_s_max)
        if not self._all_ready():
            self._problems.append(f"not all nodes serve {self.timing.start_s_max} s after they started")

    def _recover(self, calm: bool) -> None:
        if calm:
            self._act("recovery", 1.0 if self._scripts["recovery"] else 0.0)
            self.watch.begin()
            return
        self.engine.run(self.engine.now + HEALING_US)
        healed = self.engine.now
        recovery_us = int(self.timing.recovery_s * SECOND_US)
        self._judging = JudgingTimes(healed + recovery_us, int(self.timing.grace_s * SECOND_US))
        self._schedule("recovery", self.timing.recovery_s)
        while self.engine.now < healed + recovery_us:
            self.engine.run(min(self.engine.now + SECOND_US, healed + recovery_us))
            if self._live_again_s is None and self._all_ready() and self.watch.is_ideal() is None:
                self._live_again_s = (self.engine.now - healed) / SECOND_US
        self.faults.calm()
        self.watch.begin()
        if self._live_again_s is None:
            self._problems += self._not_live()

    def _act(self, phase: Phase, seconds: float) -> None:
        self._schedule(phase, seconds)
        self.engine.run(self.engine.now + int(seconds * SECOND_US))

    def _schedule(self, phase: Phase, seconds: float) -> None:
        actions, rests = self._scripts[phase], self._rests[phase]
        busy = max(0.0, seconds - sum(rest for _, rest in rests))
        for number, action in enumerate(actions):
            rested = sum(rest for before, rest in rests if before <= number)
            at = int(((number + 0.5) / len(actions) * busy + rested) * SECOND_US)
            self.engine.call(self.engine.now + at, action)

    def _wait(self, done: Callable[[], bool], seconds_max: float) -> None:
        until = self.engine.now + int(seconds_max * SECOND_US)
        while not done() and self.engine.now < until:
            self.engine.run(self.engine.now + SECOND_US // 4)

    def _all_ready(self) -> bool:
        """Return whether all that are up serve; a leaving node need not."""
        there = self.cluster.processes
        return all(process.alive and self._is_ready(process) for process in there)

    def _is_ready(self, process: Process) -> bool:
        return process.address in self.cluster.leaving or self.family.is_ready(process.node)

    def _stepped(self, process: Process) -> None:
        view = process.read_view()
        # Compared by identity: comparing all pointers after each step would dominate the run.
        if view is not process.view:
            before, process.view = process.view, view
            self.cluster.update_membership(process)
            self.watch.view_changed(process, before, view)
        process.steps += 1
        if not process.steps % self._check_every:
            process.node.check()  # type: ignore[union-attr]

    # -- the judgement -------------------------------------------------------------------------------------------------

    def _not_live(self) -> list[str]:
        late = [f"{process.address} does not serve" for process in self.cluster.processes if not self._is_up(process)]
        ideal = self.watch.is_ideal()
        late += [] if ideal is None else [f"the overlay is not ideal: {ideal}"]
        return [f"{what} {self.timing.recovery_s} s after healing" for what in late]

    def _is_up(self, process: Process) -> bool:
        return process.alive and self._is_ready(process)

    def _judge(self, calm: bool) -> None:
        history = self.clients.history
        if calm:
            self._judging = JudgingTimes(BEGINNING, int(self.timing.grace_s * SECOND_US))
        since = self._judging.recovered
        self._verdict = self._judge_notifications(history, self._judging)
        self._wrong_lookups = check_lookups(history.lookups, self.cluster.truth, since, self.family.responsible)
        self._problems += [f"at {show(at)}, {what}" for at, what in history.unanswered if at >= since]
        self._problems += self._not_ideal()
        for process in self.cluster.alive():
            process.node.check()  # type: ignore[union-attr]
        self._problems += self._at_something()

    def _at_something(self) -> list[str]:
        """Return the state that nodes hold although nothing is left to do."""
        ended = sum(each.changes[-1].filter is None for each in self.clients.history.subscriptions.values())
        return [
            problem
            for process in self.cluster.alive()
            for problem in check_state(process.address, process.node.snapshot(), ended)  # type: ignore[union-attr]
        ]

    def _not_ideal(self) -> list[str]:
        problems = [f"{process.address} is leaving and does not go" for process in self.cluster.alive()
                    if process.address in self.cluster.leaving]  # fmt: skip
        problems += [f"{process.address} does not serve at the end" for process in self.cluster.processes
                     if not self._is_up(process)]  # fmt: skip
        ideal = self.watch.is_ideal()
        return problems if ideal is None else [*problems, f"the overlay is not ideal at the end: {ideal}"]

    @property
    def notifications(self) -> dict[str, list[str]]:
        """By subscription, the ids of the events that came, in order; of repeats the first."""
        return {
            name: list(dict.fromkeys(subscription.notifications))
            for name, subscription in self.clients.history.subscriptions.items()
        }

    def report(self) -> RunReport:
        """Return the counts and the figures of the run."""
        if not self._ran:
            raise MeetpointError("sim: this network has not run; call run() first")
        engine, history, verdict = self.engine, self.clients.history, self._verdict
        broken = [*self.watch.broken, *self._problems]
        out_of_order = verdict.out_of_order
        wrong = [*verdict.missing, *verdict.duplicate, *verdict.spurious, *out_of_order, *broken, *self._wrong_lookups]
        processes = engine.processes.values()
        deliveries = [each for s in history.subscriptions.values() for each in s.deliveries]
        subids = engine.subjects.get("subids_sent", {})
        kinds = {str(kind.__struct_config__.tag): count for kind, count in engine.kinds.items()}
        return RunReport(
            **self._told,  # type: ignore[arg-type]
            faults=self.plan.name,
            missing=len(verdict.missing),
            duplicate=len(verdict.duplicate),
            spurious=len(verdict.spurious),
            out_of_order=len(verdict.out_of_order),
            invariants_broken=len(broken),
            lookups_wrong=len(self._wrong_lookups),
            injected=dict(sorted(self.faults.counts.items())),
            never_injected=self.faults.never,
            problems=wrong[:PROBLEMS_SHOWN],
            subscriptions=len(history.subscriptions),
            changes=sum(len(each.changes) - 1 for each in history.subscriptions.values()),
            events=len(history.publications),
            events_acknowledged=sum(each.acknowledged is not None for each in history.publications.values()),
            notifications=len(deliveries),
            notifications_expected=verdict.expected,
            redelivered=sum(each.redelivered for each in deliveries),
            lookups=len(history.lookups),
            live_again_s=self._live_again_s,
            lookup_hops=summarise(each.hops for each in history.lookups if each.found is not None),
            event_hops=summarise(engine.event_hops.elements()),
            event_delay_ms=summarise(self._delays_ms()),
            messages=engine.messages,
            messages_per_node=summarise(process.sent for process in processes),
            messages_by_kind=dict(sorted(kinds.items())),
            bytes=sum(process.bytes_sent for process in processes),
            bytes_per_node=summarise(process.bytes_sent for process in processes),
            subids=sum(subids.values()),
            subids_per_event=summarise(subids.values()),
            notifications_per_subscription=summarise(len(set(s.notifications)) for s in history.subscriptions.values()),
            observed=dict(sorted(engine.observed.items())),
            virtual_s=(engine.now - BEGINNING) / SECOND_US,
            wall_s=round(self._wall_s, 3),
            cpu_s=round(self._cpu_s, 3),
            messages_per_s=round(engine.messages / self._cpu_s) if self._cpu_s else 0.0,
            digest=engine.digest,
        )

    def _delays_ms(self) -> list[int]:
        publications = self.clients.history.publications
        delays = []
        for subscription in self.clients.history.subscriptions.values():
            first: dict[str, int] = {}
            for delivery in subscription.deliveries:
                first.setdefault(delivery.event, delivery.at)
            delays += [(at - publications[id_].asked) // 1000 for id_, at in first.items() if id_ in publications]
        return delays


def _family(overlay: str, scheme: str) -> Family:
    # Imported here, as `families` imports this module.
    from meetpoint.catalog import NetworkConfig
    from meetpoint.lab.sim.families import BareNodeFactory, family_of, simulated

    if scheme == NO_SCHEME:
        return family_of(NetworkConfig(overlay=overlay), BareNodeFactory())
    return family_of(simulated(overlay, scheme))
