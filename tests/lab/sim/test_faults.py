"""Faults: each kind happens, keeps its rules, and ends; plans from names and files."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from meetpoint.api.limits import SECOND_US
from meetpoint.lab.sim import PLANS, Fault, FaultError, FaultPlan, Network, Timing, read_plan
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.faults import KINDS, PERFECT, parse_plan
from meetpoint.lab.sim.workload import Workload
from tests.lab.sim.toy import ToyFamily

BRIEF = Timing(load_s=2, recovery_s=2, after_s=1, quiet_s=1)
RATES = {"delay": 0.1, "loss": 0.1, "duplication": 0.1, "reordering": 0.1, "clock_skew": 0.3, "restart_with_disk": 1.0}


def network(plan: FaultPlan, seed: int = 1, nodes: int = 9) -> Network:
    net = Network(nodes=nodes, seed=seed, faults=plan, family=ToyFamily(), timing=BRIEF)
    workload = Workload(seed)
    for _ in range(30):
        net.subscribe(workload.filter())
        net.subscribe(workload.filter(), phase="faults")
        net.publish(workload.event())
    return net


def plan_of(*kinds: str, rate: float = 4, seconds: float = 30) -> FaultPlan:
    return FaultPlan("test", {kind: Fault(RATES.get(kind, rate), (1, 3)) for kind in kinds}, seconds)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_happens_where_it_is_asked_for_and_no_other(kind: str) -> None:
    kinds = ("crash", kind) if kind.startswith("restart") else (kind,)
    net = network(plan_of(*kinds))
    net.run()
    report = net.report()
    assert report.never_injected == []
    assert set(report.injected) - {"cut_off"} == set(kinds)


@pytest.mark.parametrize("name", [name for name in PLANS if name != "none"])
@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_a_named_plan_happens(name: str, seed: int) -> None:
    net = network(msgspec.structs.replace(PLANS[name], seconds=30), seed)
    net.run()
    assert net.report().never_injected == []


def test_a_kind_that_never_happens_fails_the_run() -> None:
    net = network(plan_of("crash"), nodes=2)  # of two nodes none may be down: it would be no minority
    net.run()
    report = net.report()
    assert (report.injected, report.never_injected) == ({}, ["crash"])
    assert not report.good


@pytest.mark.parametrize("kind", ["torn_write", "failed_write"])
def test_a_write_fails_even_where_nobody_has_anything_to_write(kind: str) -> None:
    net = Network(nodes=9, faults=plan_of(kind), family=ToyFamily(), timing=BRIEF)
    net.run()
    assert sum(process.disk.written for process in net.engine.processes.values()) == 0
    assert net.report().injected.get(kind, 0) >= 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", ["torn_write", "failed_write", "leave"])
def test_a_fault_that_is_owed_happens_though_as_many_are_down_as_may_be(kind: str, seed: int) -> None:
    faults = {"crash": Fault(120, (100, 200)), kind: Fault(0.01, (1, 3), 0.5)}
    net = network(FaultPlan("test", faults, 20), seed)
    net.run()
    assert net.report().never_injected == []


def test_whoever_is_down_comes_back_by_the_healing_and_who_has_left_never_does() -> None:
    plan = FaultPlan("test", {"crash": Fault(60, (100, 200)), "leave": Fault(4), "join": Fault(4)}, 20)
    net = network(plan)
    net.run()
    processes = list(net.engine.processes.values())
    assert all(process.alive for process in processes if not process.gone)
    left = [process for process in processes if process.gone]
    assert len(left) == net.cluster.left > 0
    assert not any(process.alive for process in left)


@pytest.mark.parametrize("seed", range(5))
def test_at_most_a_minority_is_down_at_one_time(seed: int) -> None:
    net = network(plan_of("crash", "torn_write", "failed_write", rate=120), seed)
    most = 0
    crash = net.cluster.crash

    def crash_and_count(process: Process, *, lose_disk: bool = False) -> int:
        nonlocal most
        lost = crash(process, lose_disk=lose_disk)
        most = max(most, len(net.cluster.down()))
        return lost

    net.cluster.crash = crash_and_count  # type: ignore[method-assign]
    net.run()
    assert most == 4  # of 9


def test_one_disk_is_lost_in_a_repair_interval() -> None:
    faults = {"crash": Fault(60, (0.5, 1)), "restart_without_disk": Fault(1.0)}
    net = network(FaultPlan("test", faults, seconds=100, repair_seconds=20))
    net.run()
    times = [at for at, _ in net.clients.history.lost_disks]
    assert len(times) >= 3
    assert all(later - earlier >= 20 * SECOND_US for earlier, later in itertools.pairwise(times))


def test_a_lost_disk_holds_nothing_and_a_kept_one_everything() -> None:
    net = network(plan_of("crash", "restart_with_disk", "restart_without_disk", rate=10))
    lost: list[str] = []
    kept: list[str] = []
    restart = net.cluster.restart

    def restart_and_see(process: Process) -> None:
        (kept if process.disk.recover() else lost).append(process.address)
        restart(process)

    net.cluster.restart = restart_and_see  # type: ignore[method-assign]
    net.run()
    assert lost == [address for _, address in net.clients.history.lost_disks]
    assert kept


def test_a_cut_stops_one_direction_or_both() -> None:
    for kind in ("partition", "one_way_partition"):
        net = network(plan_of(kind))
        net.run()
        assert net.faults.counts["cut_off"] > 0
        assert net.engine.link_faults is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in PERFECT])
def test_what_makes_the_living_seem_dead_does_not_go_with_a_perfect_detector(kind: str) -> None:
    with pytest.raises(FaultError, match=f"{kind} does not go with a perfect failure detector; take it out"):
        Network(nodes=4, faults=plan_of(kind), detector="perfect", family=ToyFamily())


def test_under_a_perfect_detector_nobody_fails_whom_the_overlay_needs() -> None:
    class Brittle(ToyFamily):
        def stands(self, views: object) -> bool:
            return False

    net = Network(nodes=9, faults=plan_of("crash", "leave"), detector="perfect", family=Brittle(), timing=BRIEF)
    net.run()
    assert net.report().never_injected == ["crash", "leave"]


# -- plans -------------------------------------------------------------------------------------------------------------


def test_a_plan_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("seconds: 20\nfaults:\n  loss: 0.05\n  crash: {rate: 6, lasts: [1, 2.5], begin: 0.2, end: 0.8}\n")
    plan = read_plan(str(file))
    assert plan.faults == {"loss": Fault(0.05), "crash": Fault(6.0, (1.0, 2.5), 0.2, 0.8)}
    assert (plan.seconds, plan.repair_seconds, plan.name) == (20.0, 60.0, str(file))
    assert parse_plan('{"faults": {"join": 1}}', "json").faults == {"join": Fault(1.0)}
    assert parse_plan("faults: {}", "empty").faults == {}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_has_a_name(name: str) -> None:
    assert read_plan(name).name == name
    assert set(PLANS["all"].faults) == set(KINDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("faults: {los: 0.1}", "`faults` has an unknown key 'los'; did you mean loss?"),
        ("falts: {}", "the plan has an unknown key 'falts'; did you mean faults?"),
        ("faults: {crash: {rat: 1}}", "`crash` has an unknown key 'rat'; did you mean rate?"),
        ("faults: {crash: {lasts: [1, 2]}}", "`crash` has no rate; write how often it happens"),
        ("faults: {loss: 0.31}", "the rate of loss is 0.31; give a number from 0 to 0.3"),
        ("faults: {loss: -0.1}", "the rate of loss is -0.1; give a number from 0 to 0.3"),
        ("faults: {loss: .nan}", "the rate of loss is nan; give a number from 0 to 0.3"),
        ("faults: {loss: yes}", "the rate of loss is True; give a number"),
        ("faults: {loss: 0}", "the rate of loss is 0; leave it out, or give it a rate"),
        ("faults: {crash: 601}", "the rate of crash is 601; give a number from 0 to 600"),
        ("faults: {crash: {rate: 1, lasts: 5}}", "`lasts` of crash is 5; write two numbers of seconds, [1, 10]"),
        (
            "faults: {crash: {rate: 1, lasts: [5, 1]}}",
            "`lasts` of crash is from 5.0 to 1.0; write the smaller one first",
        ),
        (
            "faults: {crash: {rate: 1, begin: 0.5, end: 0.5}}",
            "crash ends at 0.5 and begins at 0.5; let it begin before",
        ),
        ("seconds: 0", "seconds is 0; give a number from 1 to 3600"),
        ("repair_seconds: 5", "repair_seconds is 5; give a number from 10 to 3600"),
        ("faults: [loss]", "`faults` is no mapping; write `key: value` a line"),
        ("", "the plan is no mapping"),
        ("{", "is not YAML"),
        ("? [a]\n: 1", "is not YAML"),
    ],
)
def test_a_bad_plan_is_refused_with_what_to_do(text: str, message: str) -> None:
    with pytest.raises(FaultError) as refused:
        parse_plan(text, "plan.yaml")
    assert message in str(refused.value)
    assert str(refused.value).startswith("faults, plan.yaml: ")
    assert "\n" not in str(refused.value)


def test_a_plan_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        FaultError, match="'chrun' is no plan; name one of none, churn, partition, lossy, disk, all, or"
    ):
        read_plan("chrun")
    with pytest.raises(FaultError, match="cannot be read: no such file or directory; check the path"):
        read_plan(str(tmp_path / "none.yaml"))
    (tmp_path / "latin.yaml").write_bytes(b"# \xff")
    with pytest.raises(FaultError, match="is not UTF-8 at byte 2; save it as UTF-8"):
        read_plan(str(tmp_path / "latin.yaml"))
