"""The models of paper B, each against what is known otherwise: simulated brokers, and the algorithms as printed."""

from __future__ import annotations

from random import Random

import pytest

from benchmarks.schemes import selectivity_order
from meetpoint.catalog import NetworkConfig
from meetpoint.lab.experiments.rings import IdealRing, hashed
from meetpoint.lab.experiments.subid_collection import (
    CorrectedModel,
    PrintedCollection,
    PrintedModel,
    SentCounts,
    members,
    subset,
)
from meetpoint.lab.sim import Network, Timing
from meetpoint.lab.sim.families import ChordFamily
from meetpoint.lab.sim.observers import Meter
from meetpoint.lab.workloads.paper_b import PaperB
from meetpoint.language.filters.filter import Filter, parse_filter
from meetpoint.language.schema.schema import Schema
from meetpoint.matching.index import Index
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists import ListsSettings
from meetpoint.schemes.lists.collection import AttributeOrder, CollectionMode

SCHEMA = Schema.from_yaml("attributes: {a: string, b: string}")
SENT = ("collect", "collected", "chain", "accepted", "told", "heard", "carry", "carried")
"""What brokers send for an event, but for safekeeping."""


def filters_of(workload: PaperB, count: int) -> list[Filter]:
    return [parse_filter(text) for text in workload.subscriptions(count)]


# -- corrected: simulated brokers --------------------------------------------------------------------------------------


def compare_with_brokers(
    mode: CollectionMode, nodes: int, workload: PaperB, subscriptions: int, events: int
) -> SentCounts:
    """Run a network and the model with the same homes and origins; whatever differs fails."""
    settings = ListsSettings(mode=mode.value, schema=workload.schema, first=tuple(reversed(workload.names)))
    net = Network(
        scheme="lists",
        nodes=nodes,
        seed=workload.seed,
        timing=Timing(load_s=subscriptions / 100, calm_s=events / 20, after_s=0, quiet_s=30.0),
        family=ChordFamily(NetworkConfig(scheme="lists", lists=settings)),
    )
    meter = Meter(net.family.codec)
    net.observe(meter)
    names = [net.subscribe(text) for text in workload.subscriptions(subscriptions)]
    published = [(net.publish(event), event) for event in workload.events(events)]
    net.run()
    report = net.report()
    assert report.good, report.problems
    history = net.clients.history
    ids = {address: process.peer.id for address, process in net.engine.processes.items()}
    ring = IdealRing(Ring(), [*ids.values()])
    at = {address: ring.nodes.index(id_) for address, id_ in ids.items()}
    homes = [at[history.subscriptions[name].address] for name in names]
    model = CorrectedModel(ring, Schema.from_yaml(workload.schema), filters_of(workload, subscriptions), homes)
    for id_, event in published:
        found = model.publish(event, sorted(event, reverse=True), at[history.publications[id_].address])
        came = [number for number, name in enumerate(names) if id_ in net.notifications[name]]
        assert found == dict.fromkeys(CollectionMode, subset(came))
    sent = model.sent[mode]
    assert sent.subids + sent.delivered_subids == report.subids
    assert sent.messages == sum(meter.by_kind[kind].messages for kind in SENT if kind in meter.by_kind)
    return sent


@pytest.mark.parametrize("mode", CollectionMode)
def test_the_corrected_model_sends_what_simulated_brokers_send(mode: CollectionMode) -> None:
    workload = PaperB(seed=3, attributes=10, values_theta=1.0)
    sent = compare_with_brokers(mode, 16, workload, 120, 50)
    assert sent.subids > 25


@pytest.mark.parametrize("mode", CollectionMode)
def test_so_it_does_where_events_go_round_the_ring(mode: CollectionMode) -> None:
    workload = PaperB(seed=5, attributes=2, values_theta=2.0, constraints="equality")
    sent = compare_with_brokers(mode, 5, workload, 100, 25)
    assert sent.walks > 5


def test_attributes_are_ordered_as_by_measurement() -> None:
    workload = PaperB(seed=2, attributes=10, values_theta=0.8)
    filters, events = filters_of(workload, 300), list(workload.events(300))
    ring = IdealRing(Ring(), hashed(Ring(), 8, 1))
    model = CorrectedModel(ring, Schema.from_yaml(workload.schema), filters, [0] * len(filters))
    assert tuple(model.selectivity_order(events)) == selectivity_order(filters, events)


def test_sets_are_numbers() -> None:
    assert [*members(subset([5, 0, 77]))] == [0, 5, 77]
    assert subset([]) == 0
    assert [*members(0)] == []


# -- as printed: the algorithms themselves -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "workload",
    [PaperB(attributes=10, values_theta=0.9), PaperB(attributes=50, attributes_theta=1.0, skew="unpopular")],
    ids=["ten", "fifty"],
)
def test_the_quick_model_counts_what_the_algorithms_as_printed_send(workload: PaperB, seed: int) -> None:
    nodes, schema = 12, Schema.from_yaml(workload.schema)
    filters, events = filters_of(workload, 400), list(workload.events(60))
    expected = Index.from_filters(enumerate(filters)).match_batch(events)
    random = Random(f"printed/{seed}")  # as `PrintedModel` draws homes and origins
    homes = [random.randrange(nodes) for _ in filters]
    origins = [random.randrange(nodes) for _ in events]
    quick = PrintedCollection(IdealRing(Ring(), hashed(Ring(), nodes, seed)), schema, filters, homes)
    order = AttributeOrder(schema, tuple(reversed(workload.names)))
    slow = {mode: PrintedModel(nodes, seed, mode, schema, order, filters) for mode in CollectionMode}
    wrong = {mode: [0, 0] for mode in CollectionMode}
    for event, origin, numbers in zip(events, origins, expected, strict=True):
        right = subset(numbers)
        for mode, found in quick.publish(event, sorted(event, reverse=True), origin).items():
            wrong[mode][0] += (right & ~found).bit_count()
            wrong[mode][1] += (found & ~right).bit_count()
            slow[mode].publish(event, numbers)
    for mode, model in slow.items():
        told, sent = model.found, quick.sent[mode]
        assert (sent.subids + sent.delivered_subids, sent.delivered_subids) == (told.subids, told.delivered_subids)
        assert (sent.walks, wrong[mode]) == (told.walks, [told.missing, told.spurious])
        assert sent.messages == sum(traffic.messages for traffic in told.kinds.values())
    assert wrong[CollectionMode.DISTRIBUTED][1] > wrong[CollectionMode.COORDINATED][1]
    assert workload.attributes > 10 or quick.sent[CollectionMode.DISTRIBUTED].walks > 0


# -- as printed, with bytes --------------------------------------------------------------------------------------------


def model(mode: CollectionMode, *filters: str, nodes: int = 64) -> PrintedModel:
    return PrintedModel(nodes, 7, mode, SCHEMA, AttributeOrder(SCHEMA, ["a", "b"]), map(parse_filter, filters))


@pytest.mark.parametrize("mode", CollectionMode)
def test_what_is_found_is_compared_with_the_oracle(mode: CollectionMode) -> None:
    made = model(mode, "a LIKE 'N%E'", "a = 'NASDAQ'", "a LIKE 'NAS%'", "a LIKE '%'")
    made.publish({"a": "NASDAQ"}, [1, 2, 3])
    assert (made.found.missing, made.found.spurious) == (1, 1), "* alone is never found, and half an affix counts"


def test_distributed_takes_subids_along_that_the_event_cannot_satisfy() -> None:
    filters = ("a = 'x' AND b = 'y'", "a = 'x'")
    for mode, spurious in (
        (CollectionMode.COORDINATED, 0),
        (CollectionMode.DISTRIBUTED, 1),
        (CollectionMode.HYBRID, 1),
    ):
        made = model(mode, *filters)
        made.publish({"a": "x"}, [1])
        assert (made.found.missing, made.found.spurious) == (0, spurious)


@pytest.mark.parametrize("mode", CollectionMode)
def test_messages_are_counted_at_each_hop_and_answers_once(mode: CollectionMode) -> None:
    made = model(mode, "a = 'xy' AND b = 'z'", nodes=128)
    for _ in range(50):
        made.publish({"a": "xy", "b": "z"}, [0])
    kinds = made.found.kinds
    asked, answers = kinds["collect"], kinds["collected"]
    lookups = (1 + 2 * 2) + (1 + 2 * 1)
    assert answers.messages <= 50 * lookups, "one for each lookup, but where a node asks itself"
    assert 3 < asked.messages / answers.messages < 6, "½ log2 N and the last step"
    assert 100 < asked.bytes / asked.messages < 200
    if mode is CollectionMode.COORDINATED:
        assert set(kinds) == {"collect", "collected", "carry"}
        assert made.found.subids == pytest.approx(50 * 3, abs=6), "one under each attribute, and one to its home"
    else:
        assert set(kinds) == {"collect", "collected", "chain", "told", "carry"}
        # The nodes of xy and z find it themselves: it is passed on, told and delivered.
        assert made.found.subids == pytest.approx(50 * 3, abs=6)
        assert kinds["told"].messages <= 50 * (2 if mode is CollectionMode.HYBRID else 1)
    assert made.found.delivered_subids <= 50
    assert made.found.missing == made.found.spurious == made.found.walks == 0


def test_an_event_for_many_goes_round_the_ring() -> None:
    made = model(CollectionMode.COORDINATED, *["a = 'x'"] * 30, nodes=8)
    made.publish({"a": "x"}, range(30))
    assert made.found.walks == 1
    assert made.found.kinds["carry"].messages == 7
    assert made.found.delivered_subids == 30 * 7, "the whole list at each hop"
