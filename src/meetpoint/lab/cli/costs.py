"""What schemes cost, as it is shown: a table with a column for each scheme, and which of them is best at what.

With several seeds a cell is the mean of all, and how far the farthest of them is from it, in percent of it. On each
seed all schemes have the same filters and events; so whoever is best on one of them is named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

    from meetpoint.lab.sim.compare.compare import Costs, Each
    from meetpoint.lab.sim.judge.report import Spread

__all__ = ["Column", "columns_of", "matches_told", "show_costs", "told_alone", "told_best", "wrong_told"]

NOTHING = "–"


class Column(NamedTuple):
    """One scheme: what it cost, a run for each seed."""

    scheme: str
    overlay: str
    runs: Sequence[Costs]

    @property
    def good(self) -> bool:
        """Whether the oracle has nothing to say of any run."""
        return all(costs.good for costs in self.runs)


def columns_of(runs: Sequence[Costs]) -> list[Column]:
    """Runs, of which those of one scheme stand together, each in the order of the seeds."""
    return [
        Column(scheme, overlay, tuple(same))
        for (scheme, overlay), same in groupby(runs, key=lambda costs: (costs.scheme, costs.overlay))
    ]


# -- figures -----------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A figure: its name, what it is of some costs, and how it is written."""

    name: str
    value: Callable[[Costs], float | None]
    write: Callable[[float], str]
    best: str = ""
    """What is said of the scheme with the least, where that is best."""

    @property
    def is_part(self) -> bool:
        """Whether it is part of another one: told where there is any."""
        return self.name.startswith(" ")

    def values(self, column: Column) -> list[float]:
        """What it is on each seed on which there is something to measure it by."""
        return [value for costs in column.runs if (value := self.value(costs)) is not None]


def _number(value: float) -> str:
    return f"{value:,.{0 if value >= 1000 or value == int(value) else 1 if value >= 10 else 2}f}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _messages(of: Callable[[Costs], Each | None]) -> Callable[[Costs], float | None]:
    return lambda costs: None if (each := of(costs)) is None else each.messages


def _bytes(of: Callable[[Costs], Each | None]) -> Callable[[Costs], float | None]:
    return lambda costs: None if (each := of(costs)) is None else each.bytes


def _of(of: Callable[[Costs], Spread | None], which: str) -> Callable[[Costs], float | None]:
    return lambda costs: None if (spread := of(costs)) is None else getattr(spread, which)


_PURPOSES = {
    "events": "  bringing it and answering",
    "summaries": "  summaries of what is wanted",
    "safekeeping": "  keeping it on a second disk",
    "placing": "  moving what is placed",
}


def _rows() -> list[Row]:
    def of_purpose(purpose: Any) -> Callable[[Costs], Each | None]:
        return lambda costs: costs.event_by_purpose.get(purpose)

    return [
        Row("messages an event", _messages(lambda costs: costs.event), _number, "fewest messages an event"),
        *(Row(name, _messages(of_purpose(purpose)), _number) for purpose, name in _PURPOSES.items()),
        Row("bytes an event", _bytes(lambda costs: costs.event), _whole, "fewest bytes an event"),
        *(Row(name, _bytes(of_purpose(purpose)), _whole) for purpose, name in _PURPOSES.items()),
        Row("ms until notified, median", _of(lambda costs: costs.event_delay_ms, "p50"), _whole, "soonest notified"),
        Row("  the longest", _of(lambda costs: costs.event_delay_ms, "max"), _whole),
        Row("messages on the way, mean", _of(lambda costs: costs.event_hops, "mean"), _number),
        Row("  the most", _of(lambda costs: costs.event_hops, "max"), _whole),
        Row("nodes an event visits", lambda costs: costs.visited, _share, "fewest nodes visited"),
        Row("the busiest node's share of messages", lambda costs: costs.busiest, _share, "most even messages"),
        Row("messages a subscription", _messages(lambda costs: costs.subscription), _number, "cheapest to subscribe"),
        Row("bytes a subscription", _bytes(lambda costs: costs.subscription), _whole),
        Row("  ms until acknowledged, median", _of(lambda costs: costs.subscription_ms, "p50"), _whole),
        Row("entries placed for it", lambda costs: costs.entries, _number),
        Row("the fullest node's share of entries", lambda costs: costs.fullest, _share, "most even entries"),
        Row("upkeep: messages a node and second", lambda costs: costs.upkeep.messages, _number),
        Row("upkeep: bytes a node and second", lambda costs: costs.upkeep.bytes, _whole),
    ]


def _best(row: Row, columns: Sequence[Column]) -> list[Column]:
    """Those with the least on some seed, as it is written, where they differ; of those that were right on all."""
    good = [column for column in columns if column.good]
    found: set[str] = set()
    for runs in zip(*(column.runs for column in good), strict=True):
        values = {costs.scheme: value for costs in runs if (value := row.value(costs)) is not None}
        if len(values) > 1 and min(values.values()) < max(values.values()):
            least = row.write(min(values.values()))
            found |= {scheme for scheme, value in values.items() if row.write(value) == least}
    return [column for column in good if row.best and column.scheme in found]


# -- words -------------------------------------------------------------------------------------------------------------


def with_spread(values: Sequence[float], write: Callable[[float], str]) -> tuple[str, str]:
    """The mean, and how far the farthest is from it; the second is nothing where there is only one, or all are 0."""
    if not values:
        return NOTHING, ""
    mean = sum(values) / len(values)
    farthest = max(abs(value - mean) for value in values)
    return write(mean), f"±{farthest / mean:.0%}" if len(values) > 1 and mean else ""


def show_costs(console: Console, columns: Sequence[Column]) -> None:
    """The table."""
    from rich.markup import escape
    from rich.table import Table

    rows = [row for row in _rows() if not row.is_part or any(any(row.values(column)) for column in columns)]
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    lines = [[row.name] for row in rows]
    for column in columns:
        table.add_column(escape(column.scheme), justify="right", overflow="fold")
        cells = [with_spread(row.values(column), row.write) for row in rows]
        width = max(len(spread) for _, spread in cells)
        for row, line, (mean, spread) in zip(rows, lines, cells, strict=True):
            text = f"{mean} {spread.rjust(width)}" if spread else mean
            line.append(f"[bold]{text}[/]" if column in _best(row, columns) else text)
    table.add_row("overlay", *(escape(column.overlay) for column in columns))
    for line in lines:
        table.add_row(*line)
    wrong = [wrong_told(column.runs) for column in columns]
    table.add_row("wrong, by the oracle", *(f"[red]{text}[/]" if text else "[green]none[/]" for text in wrong))
    console.print(table)


def wrong_told(runs: Sequence[Costs]) -> str:
    """Which of the six counts are not 0, over all runs."""
    counts = {name: sum(costs.counts[name] for costs in runs) for name in runs[0].counts}
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def matches_told(columns: Sequence[Column], events: int) -> str:
    """How many matches there were."""
    matches = [costs.notifications_expected for costs in columns[0].runs]
    mean, spread = with_spread(matches, _whole)
    spread = spread if min(matches) < max(matches) else ""  # those of a user's own files are always as many
    return f"{mean}{spread} matches ({sum(matches) / len(matches) / events:,.1f} an event)"


def told_alone(columns: Sequence[Column], nodes: int) -> str:
    """What the figures of shares and of single events are to be compared with."""
    alone = {costs.alone for column in columns for costs in column.runs}
    few, many = min(alone), max(alone)
    events = f"{few:,} to {many:,} events" if few < many else f"{many:,} event{'' if many == 1 else 's'}"
    return (
        f"even would be {_share(1 / nodes)} a node; "
        f"nodes visited and messages on the way are of {events} published alone"
    )


def told_best(columns: Sequence[Column]) -> list[str]:
    """Who is best at what."""
    best: dict[str, list[str]] = {}
    for row in _rows():
        if names := [column.scheme for column in _best(row, columns)]:
            best.setdefault(" and ".join(names), []).append(row.best)
    return [f"{schemes}: {', '.join(figures)}" for schemes, figures in best.items()]
