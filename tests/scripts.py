"""Scripts of what clients do, for the simulator and for real brokers alike: whatever runs them notifies the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from meetpoint.lab import sim
from meetpoint.lab.sim import brokers as scenario

Network: TypeAlias = sim.Network | scenario.Network


def prices(net: Network) -> None:
    """README's: one that matches, one that does not."""
    net.subscribe("price BETWEEN 8.30 AND 8.70 AND symbol LIKE 'OT%'")
    net.publish({"symbol": "OTE", "price": 8.5})
    net.publish({"symbol": "OTE", "price": 8.75})


def changes(net: Network) -> None:
    """Subscriptions that are updated and ended between events."""
    updated, ended = net.subscribe("n = 1"), net.subscribe("n = 1 OR n = 2")
    net.subscribe("n > 0 AND NOT side = 'buy'", phase="faults")
    for n in (1, 2):
        net.publish({"n": n, "side": "sell"}, phase="load")
    net.update(updated, "n = 2")
    net.unsubscribe(ended)
    for n in (1, 2, 3):
        net.publish({"n": n, "side": "sell"}, phase="after")
    net.publish({"n": 2, "side": "buy"}, phase="after")


def mixture(net: Network) -> None:
    """Several attributes and types, filters with OR and IN, text patterns, missing values."""
    for filter_ in (
        "symbol IN ('A', 'B') AND price >= 10",
        "symbol LIKE 'A%' OR halted",
        "price < 5.5",
        "note IS NULL AND price > 2",
        "NOT (symbol = 'A')",
        "TRUE",
    ):
        net.subscribe(filter_)
    for number in range(12):
        event: dict[str, object] = {"symbol": "ABC"[number % 3], "price": number + 0.25, "halted": number == 7}
        if number % 4:
            event["note"] = f"note {number}"
        net.publish(event)
    net.lookup()
    net.lookup(net.family.ring.key(0))


def crowd(net: Network) -> None:
    """Many subscriptions that are alike, cover each other or overlap, of which half go, and one that wants it all."""
    names = [net.subscribe(f"price >= {low} AND price < {low + width}") for low in range(6) for width in (1, 2, 4)]
    names += [net.subscribe("symbol = 'A'") for _ in range(6)]
    net.subscribe("TRUE")
    for number in range(10):
        net.publish({"symbol": "AB"[number % 2], "price": number * 0.7})
    for name in names[::2]:
        net.unsubscribe(name, phase="faults")
    for number in range(10):
        net.publish({"symbol": "AB"[number % 2], "price": number * 0.7}, phase="after")


SCRIPTS: Final[tuple[Callable[[Network], None], ...]] = (prices, changes, mixture, crowd)
