"""Reports of lint and backtest, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from meetpoint.language.filters.lint import Report
from meetpoint.language.schema.attribute import show_value
from meetpoint.matching.backtest import Backtest, Bucket

__all__ = ["lint_to_dict", "show_backtest", "show_lint"]

FINDINGS_SHOWN = 20
TIMELINE_ROWS = 24
_BAR_WIDTH = 30


def lint_to_dict(report: Report) -> dict[str, Any]:
    """Return all of a report for JSON."""
    return {
        "filters": report.filters,
        "counts": {str(oddity): count for oddity, count in report.counts().items()},
        "cut_short": report.cut_short,
        "findings": [
            {"id": f.id, "oddity": str(f.oddity), "message": f.message, "other": f.other} for f in report.findings
        ],
    }


def show_lint(console: Console, report: Report) -> None:
    """Print the findings, the first of them in full."""
    if report.findings:
        table = Table(box=None, pad_edge=False)
        for column in ("id", "oddity", "why"):
            table.add_column(column, overflow="fold")
        for finding in report.findings[:FINDINGS_SHOWN]:
            table.add_row(escape(str(finding.id)), str(finding.oddity), escape(finding.message))
        console.print(table)
        if len(report.findings) > FINDINGS_SHOWN:
            console.print(f"… and {len(report.findings) - FINDINGS_SHOWN:,} more; --json lists all", highlight=False)
    console.print(str(report), highlight=False)


def show_backtest(console: Console, result: Backtest) -> None:
    """Print hits, near misses, the timeline and samples."""
    share = f"{result.rate:.3%}" if result.events else "no events"
    console.print(f"{result.hits:,} of {result.events:,} events accepted ({share})", highlight=False)
    if result.near_misses:
        console.print("near misses, accepted if only this constraint were dropped:")
        table = Table(box=None)
        table.add_column("events", justify="right")
        table.add_column("constraint")
        for text, count in result.near_misses.most_common():
            table.add_row(f"{count:,}", escape(text))
        console.print(table)
    if result.buckets:
        _show_timeline(console, result.timeline())
    if result.untimed:
        console.print(f"{result.untimed:,} events have no time", highlight=False)
    if result.samples:
        console.print("samples:")
        for sample in result.samples:
            shown = ", ".join(f"{k}={show_value(v)}" for k, v in sample.attributes.items() if v is not None)
            console.print(f"  row {sample.row}: {escape(shown)}", highlight=False)


def _show_timeline(console: Console, timeline: Sequence[Bucket]) -> None:
    """Print at most `TIMELINE_ROWS` rows, with several buckets in each where there are more."""
    step = -(-len(timeline) // TIMELINE_ROWS)
    groups = [timeline[at : at + step] for at in range(0, len(timeline), step)]
    most = max(sum(b.hits for b in group) for group in groups)
    console.print("over time:")
    table = Table(box=None)
    table.add_column("from")
    for column in ("events", "hits"):
        table.add_column(column, justify="right")
    table.add_column("")
    for group in groups:
        hits = sum(b.hits for b in group)
        bar = "█" * round(_BAR_WIDTH * hits / most) if most else ""
        start = group[0].start.strftime("%Y-%m-%d %H:%M")
        table.add_row(start, f"{sum(b.events for b in group):,}", f"{hits:,}", bar or ("▏" if hits else ""))
    console.print(table)
