"""The scheme on a simulated network: every way of it is exact, and costs what it should."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from meetpoint.catalog import NetworkConfig
from meetpoint.lab.sim import Network, Timing
from meetpoint.lab.sim.families import ChordFamily
from meetpoint.schemes.lists import ListsSettings
from tests.placement.eyes import held_by_nobody, held_twice, misplaced, parts

QUICK = Timing(load_s=5.0, calm_s=10.0, after_s=1.0, quiet_s=40.0)
MODES = ("coordinated", "distributed", "hybrid")
SCHEMA = """
attributes:
  price: {type: float, min: 0, max: 100, precision: 0.01}
  size: {type: integer, min: 0, max: 3, precision: 1}
  symbol: string
"""

FILTERS = [
    "symbol = 'OTE'", "symbol LIKE 'OT%'", "symbol LIKE '%SE'", "symbol LIKE 'N%E'", "symbol LIKE '%YS%'",
    "symbol <> 'OTE'", "symbol IN ('OTE', 'NYSE', '')", "symbol LIKE 'AB%BA'", "symbol IS NULL", "symbol IS NOT NULL",
    "price BETWEEN 8.30 AND 8.70", "price > 50", "price <> 8.5", "price = 8.5", "price < 8.5 AND symbol = 'OTE'",
    "size >= 1", "size = 2 AND price > 1", "size <> 0 OR symbol = 'ABA'", "price > 1 AND symbol IS NULL", "TRUE",
    "symbol LIKE 'OT%' AND symbol LIKE 'OTE%' AND price >= 8.5",
]  # fmt: skip
EVENTS: list[Mapping[str, object]] = [
    {"symbol": "OTE", "price": 8.5, "size": 2}, {"symbol": "NYSE"}, {"symbol": "NASDAQ", "price": 99.99},
    {"symbol": "ABA", "size": 0}, {"symbol": ""}, {"price": 8.31}, {"price": 8.7, "size": 3}, {"size": 1},
    {"symbol": "OT", "price": 200}, {"other": 1}, {"symbol": "ABBA", "price": -1, "size": 7},
]  # fmt: skip


def network(settings: ListsSettings, *, nodes: int = 8, seed: int = 1) -> Network:
    config = NetworkConfig(scheme="lists", lists=settings)
    return Network(scheme="lists", nodes=nodes, seed=seed, timing=QUICK, family=ChordFamily(config))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("hash_", ["plain", "order"])
@pytest.mark.parametrize("schema", ["", SCHEMA], ids=["undeclared", "declared"])
def test_every_way_brings_each_event_to_those_that_want_it(mode: str, hash_: str, schema: str) -> None:
    net = network(ListsSettings(mode=mode, hash=hash_, schema=schema, first=("symbol",)))  # type: ignore[arg-type]
    for text in FILTERS:
        net.subscribe(text)
    for attributes in EVENTS:
        net.publish(attributes)
    net.run()
    report = net.report()
    assert report.counts == dict.fromkeys(report.counts, 0), report.problems
    assert report.notifications_expected > 60
    assert held_twice(net) == held_by_nobody(net) == []


@pytest.mark.parametrize("mode", MODES)
def test_updates_move_only_what_differs_and_leave_nothing_behind(mode: str) -> None:
    net = network(ListsSettings(mode=mode))  # type: ignore[arg-type]
    name = net.subscribe("a = 1 AND b = 2")
    ended = net.subscribe("a = 5")
    net.update(name, "a = 1 AND b = 3")
    net.unsubscribe(ended)
    net.publish({"a": 1, "b": 3}, phase="after")
    net.publish({"a": 1, "b": 2}, phase="after")
    net.publish({"a": 5}, phase="after")
    net.run()
    assert net.notifications == {name: ["e1"], ended: []}
    kinds = net.report().messages_by_kind
    assert misplaced(net) == []
    entries = [entry for _, custody, _, _ in parts(net) for there in custody.entries.values() for entry in there]
    assert len(entries) == 2, "one entry of each attribute that is left"
    assert kinds["c.ro"] > 0, "placed by routing"


def test_values_of_a_small_domain_lie_only_where_there_are_any() -> None:
    """Four values and 32 nodes: in order, they are far apart; a range of all four is stored four times at most."""
    net = network(ListsSettings(hash="order", schema=SCHEMA), nodes=32)
    name = net.subscribe("size >= 0")
    events = [net.publish({"size": size}) for size in range(4)]
    net.run()
    assert net.notifications[name] == events
    holders = [home for _, custody, _, _ in parts(net) for home, there in custody.entries.items() if there]
    assert 1 <= len(holders) <= 4


def test_a_range_in_order_lies_once_at_each_node_of_its_arc() -> None:
    net = network(ListsSettings(hash="order", schema=SCHEMA), nodes=16)
    name = net.subscribe("price BETWEEN 10 AND 60")
    inside = [net.publish({"price": price}) for price in (10, 30.5, 60)]
    net.publish({"price": 60.01})
    net.run()
    assert net.notifications[name] == inside
    entries = [entry for _, custody, _, _ in parts(net) for there in custody.entries.values() for entry in there]
    assert len(set(entries)) == 1, "one entry"
    assert 2 <= len(entries) <= 15, "at several nodes, once each, and not at all of them"


def test_skewed_values_spread_by_their_quantiles() -> None:
    """All prices lie between 1 and 2 of 0 to 100: linear, they share an arc; by quantiles they have the circle."""

    def holders(settings: ListsSettings) -> int:
        net = network(settings, nodes=16)
        for cents in range(100, 200):
            net.subscribe(f"price = {cents / 100}")
        events = [net.publish({"price": cents / 100}) for cents in range(100, 200, 10)]
        net.run()
        report = net.report()
        assert report.counts == dict.fromkeys(report.counts, 0), report.problems
        assert report.notifications == len(events)
        return sum(bool(there) for _, custody, _, _ in parts(net) for there in custody.entries.values())

    cuts = tuple(1 + step / 16 for step in range(1, 16))
    assert holders(ListsSettings(hash="order", schema=SCHEMA)) <= 3
    assert holders(ListsSettings(hash="order", schema=SCHEMA, quantiles={"price": cuts})) >= 12


@pytest.mark.parametrize(("homes", "walks"), [(2, False), (8, True)])
def test_an_event_for_many_homes_walks_round_the_ring(homes: int, walks: bool) -> None:
    """8 nodes: k unicasts of 1.5 hops against a walk of 8."""
    net = network(ListsSettings())
    at_each = net.clients.subscribe
    names = []
    for number in range(homes):
        name = f"s{number + 1}"
        names.append(name)
        net._say("load", lambda name=name, number=number: at_each(name, "a = 1", f"n{number}"))  # type: ignore[misc]
    event = net.publish({"a": 1})
    net.run()
    assert net.notifications == {name: [event] for name in names}
    assert (net.report().observed.get("event_walked", 0) > 0) is walks
