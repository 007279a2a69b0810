"""Real nodes in the simulator: a whole one on an ideal overlay, an overlay without the rest, and Chord's own judges."""

from __future__ import annotations

import math

import pytest

from meetpoint.api.ids import Key, NodeId
from meetpoint.catalog import BITS, OVERLAYS, NetworkConfig
from meetpoint.errors import MeetpointError
from meetpoint.lab.sim import Network, Timing
from meetpoint.lab.sim.families import FAMILIES, family_of, simulated
from meetpoint.lab.sim.judge import Members, MembershipChange
from meetpoint.lab.sim.run import RunConfig, make_network, run
from meetpoint.lab.sim.workload import Workload
from meetpoint.language.schema.schema import Schema
from meetpoint.overlays.chord import ChordView
from meetpoint.overlays.hypercube import HypercubeSettings, HypercubeView, Region
from meetpoint.overlays.hypercube.regions import key_of
from meetpoint.overlays.pastry import PastryView
from tests.lab.sim.ideal import IdealFamily

SMALL = RunConfig(nodes=8, subscriptions=30, events=30, lookups=10, fault_seconds=20, recovery_seconds=30)


@pytest.mark.parametrize("faults", ["none", "churn", "partition", "lossy", "disk", "all"])
@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_keep_their_promises_whatever_the_overlay(faults: str, seed: int) -> None:
    family = IdealFamily()
    net = make_network(RunConfig(**{**_fields(), "faults": faults}), seed, family)  # type: ignore[arg-type]
    family.is_up = lambda address: net.engine.processes[address].alive
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert report.notifications_expected > 0


def _fields() -> dict[str, object]:
    return {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}


@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("faults", ["none", "churn", "partition", "lossy"])
def test_an_overlay_alone_finds_every_key(overlay: str, faults: str) -> None:
    config = RunConfig(overlay=overlay, scheme="none", nodes=12, subscriptions=0, events=0, lookups=100, faults=faults,
                       fault_seconds=20)  # fmt: skip
    report = run(config, 3)
    assert report.good, report.problems
    assert report.lookups == 100


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_alone_takes_no_subscriptions(overlay: str) -> None:
    net = Network(overlay=overlay, scheme="none", nodes=2)
    with pytest.raises(MeetpointError, match="without a scheme nothing is subscribed or published"):
        net.subscribe("price > 1")


def test_every_overlay_has_a_family_and_a_width() -> None:
    assert set(FAMILIES) == set(OVERLAYS) == set(BITS)
    assert {overlay: family_of(NetworkConfig(overlay=overlay)).ring.bits for overlay in OVERLAYS} == BITS
    assert family_of(NetworkConfig(overlay="pastry", bits=16)).ring.bits == 16


def test_dmm_is_simulated_with_the_attributes_of_the_workload_and_regions_that_split() -> None:
    workload = Workload(1)
    attributes = {name for _ in range(20) for name in workload.event()}
    for scheme in ("dmm", "dmm:always"):
        config = simulated("chord", scheme)
        assert config.dmm.threshold < NetworkConfig().dmm.threshold
        assert set(Schema.from_yaml(config.dmm.schema).names) == attributes
    assert simulated("chord", "dmm:always").dmm.delegation == "always"


def test_a_lookup_takes_about_half_of_log_n_hops() -> None:
    net = Network(scheme="none", nodes=128, seed=1, timing=Timing(quiet_s=1))
    for _ in range(1000):
        net.lookup()
    net.run()
    report = net.report()
    assert report.good, report.problems
    assert 0 <= report.lookup_hops.mean - math.log2(128) / 2 <= 1


@pytest.mark.slow
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_under_a_perfect_detector_the_invariant_is_looked_at_after_every_change(overlay: str) -> None:
    net = make_network(RunConfig(overlay=overlay, scheme="none", nodes=12, subscriptions=0, events=0, lookups=20,
                                 faults="churn", fault_seconds=30, detector="perfect"), 5)  # fmt: skip
    net.run()
    assert net.report().good, net.report().problems
    assert net.watch.looked > 50


def test_a_broken_pointer_of_chord_is_seen() -> None:
    family = family_of(NetworkConfig())
    family.founders(5)
    ids = [bytes([number]) * 20 for number in (10, 20, 30, 40, 50, 60)]

    def view(at: int, *succ: int) -> ChordView:
        after = succ or [(at + step) % 6 for step in (1, 2, 3, 4)]
        return ChordView(True, ids[at], tuple(ids[i] for i in after), ids[at - 1], (), 1)  # type: ignore[arg-type]

    views = {ids[at]: view(at) for at in range(6)}
    assert family.broken(views) is None
    assert family.departures(views) is None
    assert family.stands(views)
    views[ids[0]] = view(0, 2, 3, 4, 5)
    assert family.broken(views) is None, "one member is skipped, and five principals are left"
    assert family.departures(views) is not None
    views[ids[3]] = view(3, 5, 0, 1, 2)
    assert "4 principals, 5 needed" in str(family.broken(views))
    assert not family.stands(views)
    assert family.differ(view(0), views[ids[0]])
    assert not family.differ(view(0), view(0))


def test_ready_nodes_of_pastry_that_overlap_are_seen() -> None:
    family = family_of(NetworkConfig(overlay="pastry"))
    family.founders(6)
    ids = [bytes([number]) * 16 for number in (10, 20, 30, 40, 50, 60)]

    def view(at: int, left: int | None = None, right: int | None = None, ready: bool = True) -> PastryView:
        before, after = ids[at - 1 if left is None else left], ids[(at + 1) % 6 if right is None else right]
        around = tuple(ids[(at + step) % 6] for step in range(1, 6))
        return PastryView(True, NodeId(Key(ids[at])), ready, before, after, around, (), 1)

    views = {ids[at]: view(at) for at in range(6)}
    assert family.broken(views) is None
    assert family.departures(views) is None
    assert family.stands(views)
    views[ids[0]] = view(0, right=2)
    assert "is ready, nearer to" in str(family.broken(views))
    assert not family.stands(views)
    assert "has the neighbours" in str(family.departures(views))
    views[ids[1]] = view(1, ready=False)
    assert family.broken(views) is None, "one that is not ready covers nothing"
    assert "is not ready" in str(family.departures({ids[at]: view(at, ready=at != 1) for at in range(6)}))
    assert family.differ(view(0), views[ids[0]])
    assert family.differ(view(1), views[ids[1]])
    assert not family.differ(view(0), view(0))
    members = Members()
    for id_ in ids:
        members.apply(MembershipChange(0, id_, member=True))
    key = bytes([15]) * 16
    assert family.responsible(members, key) == (ids[0],), "of two that are as near, the one before"
    assert family.responsible(members, key[:-1] + bytes([16])) == (ids[1],)
    assert family.responsible(members, bytes(16)) == (ids[0],)


def test_what_is_wrong_with_a_hypercube_is_seen() -> None:
    family = family_of(NetworkConfig(overlay="hypercube", hypercube=HypercubeSettings(dimensions=2)))
    family.founders(3)
    one, two, three = (NodeId(Key(bytes([number]) * 20)) for number in (1, 2, 3))

    def view(me: NodeId, *own: str, **links: NodeId) -> HypercubeView:
        near = tuple(sorted((Region.read(text.strip("_")), host) for text, host in links.items()))
        pieces = tuple((Region.read(text), 1) for text in own)
        return HypercubeView(True, me, pieces, (), None, (), near, 1)

    views = {
        bytes(one): view(one, "0", _01=two, _11=three),
        bytes(two): view(two, "01", _0=one, _11=three),
        bytes(three): view(three, "11", _0=one, _01=two),
    }
    assert family.broken(views) is None
    assert family.departures(views) is None
    assert family.stands(views)
    assert family.stands({node: views[node] for node in (one, three)})
    assert not family.stands({one: views[one]}), "nobody would be left to copy to"
    both = {**views, two: view(two, "01", "11", _0=one)}
    assert family.broken(both) is None, "a claim that not all have heard of"
    assert family.departures(both) is not None
    assert family.broken({**views, two: view(two, "01", _0=one, _1=three)}) is not None
    assert family.differ(views[one], both[two])
    assert not family.differ(views[one], views[one])
    members = Members()
    for id_, seen in both.items():
        members.apply(MembershipChange(0, id_, True, family.place(seen)))
    assert family.responsible(members, key_of(family.ring, 0b10, 2)) == [one]
    assert family.responsible(members, key_of(family.ring, 0b01, 2)) == [two]
    assert family.responsible(members, key_of(family.ring, 0b11, 2)) == [two, three]


def test_pastry_stands_as_long_as_each_knows_the_next() -> None:
    family = family_of(NetworkConfig(overlay="pastry"))
    ids = [bytes([number]) * 16 for number in range(1, 13)]

    def views(gone: set[int]) -> dict[bytes, PastryView]:
        found = {}
        for at in {*range(12)} - gone:
            around = tuple(ids[(at + step) % 12] for step in (1, 2, 3, 4, 8, 9, 10, 11))
            me, before, after = NodeId(Key(ids[at])), ids[at - 1], ids[(at + 1) % 12]
            found[ids[at]] = PastryView(True, me, True, before, after, around, (), 1)
        return found

    assert family.stands(views({4, 5, 6}))
    assert not family.stands(views({3, 4, 5, 6})), "nobody on either side has heard of the other side"
    assert not family.stands(views({*range(11)}))
