"""A network as a library: what is said is done, what came is told, one seed is one run."""

from __future__ import annotations

import msgspec
import pytest

from meetpoint.api.ids import EventKey, HomeId, Key, NodeId, Peer
from meetpoint.errors import EventError, FilterError, MeetpointError
from meetpoint.lab.sim import Network, Timing
from meetpoint.lab.sim.engine import Process
from meetpoint.lab.sim.observers import LINE_MAX, Tracer, shown
from meetpoint.lab.sim.run import RunConfig, command, make_network, run
from meetpoint.lab.sim.workload import Workload
from meetpoint.language.filters.filter import parse_filter
from meetpoint.matching import Scan
from tests.lab.sim.toy import Carry, ToyFamily, ToyNode

SMALL = RunConfig(nodes=6, subscriptions=40, events=40, lookups=10, fault_seconds=10, recovery_seconds=5)


def test_a_network_in_ten_lines() -> None:
    net = Network(nodes=5, seed=7, family=ToyFamily())
    high, low = net.subscribe("price > 120"), net.subscribe("price <= 120")
    first, second = net.publish({"price": 121}), net.publish({"price": 120})
    net.run()
    assert net.notifications == {high: [first], low: [second]}
    report = net.report()
    assert (report.notifications, report.notifications_expected, report.events) == (2, 2, 2)
    assert report.messages == sum(report.messages_by_kind.values()) > 8
    assert report.bytes > report.messages
    assert report.good


def test_what_cannot_be_is_refused_when_it_is_said() -> None:
    net = Network(nodes=2, family=ToyFamily())
    with pytest.raises(FilterError):
        net.subscribe("price >")
    with pytest.raises(EventError):
        net.publish({"price": [1]})
    with pytest.raises(MeetpointError, match="there is no subscription 's1'; use a name that"):
        net.unsubscribe("s1")
    with pytest.raises(MeetpointError, match="has not run; call run"):
        net.report()
    net.run()
    with pytest.raises(MeetpointError, match="has run; make another"):
        net.run()
    with pytest.raises(MeetpointError, match="has run; make another"):
        net.publish({})
    with pytest.raises(MeetpointError, match="a network of 0 nodes"):
        Network(nodes=0)


def test_updates_and_ends_of_subscriptions_are_obeyed() -> None:
    net = Network(nodes=4, seed=2, family=ToyFamily())
    updated, ended = net.subscribe("price = 1"), net.subscribe("price = 1")
    one = net.publish({"price": 1}, phase="load")
    net.update(updated, "price = 2")
    net.unsubscribe(ended)
    two, other = net.publish({"price": 2}, phase="after"), net.publish({"price": 1}, phase="after")
    net.run()
    assert net.notifications == {updated: [one, two], ended: [one]}
    assert other
    assert net.report().changes == 2


def test_nodes_may_come_one_after_another() -> None:
    net = Network(nodes=6, founders=2, family=ToyFamily(), timing=Timing(between_joins_s=1))
    net.run()
    times = [moment.at for moment in net.cluster.truth.changes if moment.member]
    assert len(times) == 6
    assert len(set(times)) == 5  # two at once, four later


@pytest.mark.parametrize("faults", ["none", "churn", "partition", "lossy", "disk", "all"])
def test_one_seed_is_one_run_and_another_is_another(faults: str) -> None:
    def digest(seed: int) -> str:
        return run(msgspec.structs.replace(SMALL, faults=faults), seed, family=ToyFamily()).digest

    assert digest(1) == digest(1) != digest(2)


def test_the_script_has_as_much_as_was_asked_for() -> None:
    net = make_network(SMALL, 3, ToyFamily())
    net.run()
    report = net.report()
    assert (report.subscriptions, report.events, report.lookups) == (40, 40, 10)
    assert report.changes > 4
    assert report.counts == dict.fromkeys(report.counts, 0)


def test_a_failed_assertion_is_told_with_its_place_and_ends_the_run() -> None:
    class Failing(ToyNode):
        def check(self) -> None:
            assert self.ticks < 5, "five ticks are enough"

    report = run(SMALL, 1, family=ToyFamily(Failing))
    assert report.invariants_broken == 1
    assert "AssertionError at test_scenario.py:" in report.problems[0]
    assert "five ticks are enough" in report.problems[0]
    assert not report.good


def test_the_command_repeats_the_run() -> None:
    assert command(RunConfig(), 3) == ("meetpoint sim --overlay chord --scheme meet --nodes 64 --faults none --seed 3")
    config = RunConfig(faults="a plan.yaml", events=7, detector="perfect", founders=4, fault_seconds=2.5)
    assert command(config, 9) == (
        "meetpoint sim --overlay chord --scheme meet --nodes 64 --events 7 --faults 'a plan.yaml' "
        "--detector perfect --founders 4 --fault-seconds 2.5 --seed 9"
    )


@pytest.mark.slow
def test_about_every_fortieth_pair_of_the_workload_matches() -> None:
    for seed in range(5):
        workload = Workload(seed)
        scan: Scan[int] = Scan()
        for number in range(200):
            scan.add(number, parse_filter(workload.filter()))
        pairs = sum(len(scan.match(workload.event())) for _ in range(100))
        assert 0.01 <= pairs / 20_000 <= 0.05
        assert not scan.mismatches


# -- stories -----------------------------------------------------------------------------------------------------------


def story_of(subject: str) -> list[str]:
    lines: list[str] = []
    net = Network(nodes=3, seed=1, family=ToyFamily())
    net.subscribe("price > 1")
    net.subscribe("price > 5")
    net.publish({"price": 3})
    net.publish({"price": 1})
    net.observe(Tracer(subject, lines.append))
    net.run()
    return lines


def test_the_story_of_an_event_goes_from_asking_to_notifying() -> None:
    lines = [line for line in story_of("e1") if "starts with" not in line]
    assert ["is asked" in line for line in lines].index(True) == 0
    assert any("answers" in line and "Published" in line for line in lines)
    assert sum("→" in line and "Carry" in line for line in lines) == 2
    assert sum("←" in line for line in lines) == 2
    assert "notifies s1 of" in lines[-1] or "notifies s1 of" in "\n".join(lines)
    assert all(len(line) <= LINE_MAX for line in lines)
    assert not any("s2" in line for line in lines)


def test_the_story_of_a_subscription_tells_what_was_written() -> None:
    lines = story_of("s2")
    assert any("is asked" in line and "price > 5" in line for line in lines)
    assert any("writes s2" in line for line in lines)
    assert any("answers" in line and "Stored" in line for line in lines)
    assert not any("notifies" in line for line in lines)


def test_messages_are_told_as_people_read_them() -> None:
    peer = Peer(NodeId(Key(b"\xab" * 20)), "n7", 3)
    key = EventKey(HomeId(b"\x01" * 20), 1, 5)
    assert shown(Carry(key, b"x" * 21)) == "Carry(event=01010101/1/5, content=21 bytes)"
    assert shown((peer, None, "text", b"\x01\x02", 5)) == "[n7, None, 'text', 0102, …]"


def test_a_story_changes_nothing() -> None:
    def digest(observer: bool) -> str:
        net = Network(nodes=4, seed=5, faults="all", family=ToyFamily())
        net.publish({"price": 1})
        if observer:
            net.observe(Tracer("e1", lambda line: None))
        net.run()
        return net.report().digest

    assert digest(observer=True) == digest(observer=False)


def test_a_process_is_shown_by_its_address() -> None:
    net = Network(nodes=1, family=ToyFamily())
    net.run()
    (process,) = net.engine.processes.values()
    assert isinstance(process, Process)
    assert repr(process) == "n0"
