"""The demo's act on brokers: some flights and alerts on a simulated network to which everything happens."""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console

from meetpoint.lab.sim import Network

__all__ = ["tell_network"]

BROKERS, SEED, FAULTS = 16, 7, "all"
EVENTS, ALERTS = 150, 300


def tell_network(console: Console, table: pa.Table, filters: dict[str, str]) -> None:
    """Publish flights into a network that is hurt, and compare what came with the oracle."""
    console.rule("[bold]Brokers that crash")
    net = Network(nodes=BROKERS, seed=SEED, faults=FAULTS)
    for filter_ in list(filters.values())[:ALERTS]:
        net.subscribe(filter_)
    step = max(1, table.num_rows // EVENTS)
    for row in table.take(list(range(0, table.num_rows, step))[:EVENTS]).to_pylist():
        net.publish({name: value for name, value in row.items() if value is not None})
    with console.status(f"simulating {BROKERS} brokers …"):
        net.run()
    report = net.report()
    hurt = {kind: report.injected.get(kind, 0) for kind in ("crash", "join", "leave", "restart_without_disk", "loss")}
    cuts = report.injected.get("partition", 0) + report.injected.get("one_way_partition", 0)
    console.print(
        f"{BROKERS} simulated brokers, {report.subscriptions:,} alerts. "
        f"While {hurt['crash']} brokers crashed, {hurt['join']} joined, {hurt['leave']} left, "
        f"{cuts} partitions cut them off, "
        f"{hurt['restart_without_disk']} disk and {hurt['loss']:,} messages were lost, "
        f"{report.events_acknowledged:,} of {report.events:,} flights were acknowledged, "
        f"and {report.notifications:,} notifications came."
    )
    verdict = "[green]exactly the right ones" if report.good else "[red]NOT the right ones"
    told = ", ".join(f"{name} {count}" for name, count in report.counts.items())
    console.print(f"Brute force says: {verdict}[/] ({told}). `meetpoint sim --help` has more.\n", highlight=False)
