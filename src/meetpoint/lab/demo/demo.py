"""`meetpoint demo`: the story told to a newcomer, on data that comes with the package, in a few minutes."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meetpoint.cli.flights import make_alerts, read_flights
from meetpoint.cli.output.streams import progress, show_backtest
from meetpoint.errors import FilterError
from meetpoint.lab.sim import Network
from meetpoint.language import parse_filter
from meetpoint.language.filters.explain import explain
from meetpoint.language.filters.lint import LintItem, lint
from meetpoint.matching import Scan
from meetpoint.matching.backtest import Backtest, backtest, read_width
from meetpoint.matching.io.rejects import Reject
from meetpoint.matching.jobs import load_events, load_subscriptions, matches

# -- the act on simulated brokers --------------------------------------------------------------------------------------


BROKERS, SEED, FAULTS = 16, 7, "all"
NETWORK_EVENTS, NETWORK_ALERTS = 150, 300


def tell_network(console: Console, table: pa.Table, filters: dict[str, str]) -> None:
    """Publish flights into a network under faults, and compare the notifications with the oracle."""
    console.rule("[bold]Brokers that crash")
    net = Network(nodes=BROKERS, seed=SEED, faults=FAULTS)
    for filter_ in list(filters.values())[:NETWORK_ALERTS]:
        net.subscribe(filter_)
    step = max(1, table.num_rows // NETWORK_EVENTS)
    for row in table.take(list(range(0, table.num_rows, step))[:NETWORK_EVENTS]).to_pylist():
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


# -- the story ---------------------------------------------------------------------------------------------------------


SHOWN = 5
CHECKED_BY_ORACLE = 300
MISTAKE = "dep_delay > 60 AND upper(dest) = 'SFO'"
BACKTESTED = "carrier = 'UA' AND dest = 'SFO' AND dep_delay > 120"
TIME, WIDTH = "time_hour", "1d"


def run_demo(console: Console, *, flights: int, alerts: int, with_spark: bool, report: Path) -> None:
    """Play all acts, in order."""
    with console.status("reading the flights of 2013 …"):
        table = read_flights(flights)
        filters = make_alerts(alerts)
    pairs, counts = _who_gets_what(console, table, filters)
    _why_not(console, table, filters)
    _a_mistake(console)
    _lint(console, filters)
    backtested = _backtest(console, table)
    tell_network(console, table, filters)
    if with_spark:
        from meetpoint.lab.demo.on_spark import StoryResults, tell_spark

        tell_spark(console, StoryResults(table, filters, pairs, counts, backtested, TIME, WIDTH), report)


def _drop(reject: Reject) -> None:
    """Do nothing: flights and alerts are ours, so no row is set aside."""


def _who_gets_what(console: Console, table: pa.Table, filters: dict[str, str]) -> tuple[pa.Table, Counter[str]]:
    console.rule("[bold]Who gets what")
    counts: Counter[str] = Counter()
    found: list[pa.Table] = []
    begin = time.perf_counter()
    subscriptions = load_subscriptions(filters, _drop, None)
    with progress(f"matching with {len(filters):,} alerts", table.num_rows) as step:
        for count, pairs in matches(load_events(table, _drop, None), subscriptions, None, _drop):
            found.append(pairs)
            for entry in pc.value_counts(pairs.column("subscription")).to_pylist():
                counts[entry["values"]] += entry["counts"]
            step(count)
    spent = time.perf_counter() - begin
    silent = len(filters) - len(counts)
    console.print(
        f"{table.num_rows:,} flights from New York in 2013, {len(filters):,} alerts, "
        f"{counts.total():,} notifications in {spent:.1f} s; {silent:,} alerts never fired.",
        highlight=False,
    )
    busiest = Table(title="the busiest alerts", title_justify="left", box=None)
    busiest.add_column("flights", justify="right")
    busiest.add_column("alert")
    busiest.add_column("filter", overflow="fold")
    for id_, number in counts.most_common(SHOWN):
        busiest.add_row(f"{number:,}", id_, escape(filters[id_]))
    console.print(busiest)
    _check_with_oracle(console, table, filters)
    return pa.concat_tables(found), counts


def _check_with_oracle(console: Console, table: pa.Table, filters: dict[str, str]) -> None:
    """Let the oracle walk every filter's tree for the first flights; it must find the same pairs."""
    few = table.slice(0, CHECKED_BY_ORACLE)
    scan: Scan[str] = Scan()
    for id_, text in filters.items():
        scan.add(id_, parse_filter(text))
    subscriptions = load_subscriptions(filters, _drop, None)
    (found,) = [pairs for _, pairs in matches(load_events(few, _drop, None), subscriptions, None, _drop)]
    ours = set(zip(found.column("event").to_pylist(), found.column("subscription").to_pylist(), strict=True))
    oracle = {(n, id_) for n, event in enumerate(few.to_pylist()) for id_ in scan.match(event)}
    verdict = "[green]the same pairs" if ours == oracle else "[red]other pairs: please report this"
    console.print(f"Brute force on the first {few.num_rows} flights finds {verdict}[/] ({len(oracle):,}).\n")


def _why_not(console: Console, table: pa.Table, filters: dict[str, str]) -> None:
    console.rule("[bold]Why not?")
    for id_, text in filters.items():
        filter_ = parse_filter(text)
        if len(filter_.conjunctions) != 1 or len(filter_.conjunctions[0].constraints) < 3:
            continue
        for row in table.slice(0, 200).to_pylist():
            told = explain(filter_, row)
            failing = [step for step in told.tree.children if step.verdict is not True]
            if len(failing) == 1 and failing[0].verdict is False and failing[0].fact is not None:
                console.print(f"Alert {id_} did not get flight {row['carrier']} {row['flight']} to {row['dest']}:")
                console.print(told)
                console.print()
                return


def _a_mistake(console: Console) -> None:
    console.rule("[bold]A filter that cannot be")
    try:
        parse_filter(MISTAKE)
    except FilterError as error:
        console.print(f"{error.pointer()}\n{error}\n", highlight=False, markup=False)


def _lint(console: Console, filters: dict[str, str]) -> None:
    console.rule("[bold]What is odd about the alerts")
    report = lint(LintItem(id_, text, id_.partition("/")[0]) for id_, text in filters.items())
    for finding in report.findings[:SHOWN]:
        console.print(f"  {finding.id}, {finding.oddity}: {escape(finding.message)}", highlight=False)
    console.print(f"{report}\n", highlight=False)


def _backtest(console: Console, table: pa.Table) -> Backtest:
    console.rule("[bold]Would this alert be worth having?")
    console.print(BACKTESTED, highlight=False)
    result = backtest(parse_filter(BACKTESTED), table, time=TIME, width=read_width(WIDTH))
    result.samples = result.samples[:1]
    show_backtest(console, result)
    console.print()
    return result
