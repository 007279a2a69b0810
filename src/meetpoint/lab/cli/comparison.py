"""`meetpoint sim --compare`: the cost of each scheme for the same filters and events, in one table.

Filters and events are drawn from the seed, for each seed anew; those of a user's own files are the same for all seeds,
and only the nodes' ids, delays and the publishers differ.

The table has a column for each scheme, and names the best at each figure. With several seeds a cell is the mean of
all, and the distance of the farthest from it, in percent of it. On each seed all schemes have the same filters and
events; so a scheme that is best on one of them is named.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from meetpoint.cli.output.streams import EXIT_SET_ASIDE, QuietConsole, print_error, print_json
from meetpoint.errors import MeetpointError
from meetpoint.wording import counted

if TYPE_CHECKING:
    from rich.console import Console

    from meetpoint.cli.output.files import RejectFile
    from meetpoint.lab.sim.comparison import Costs, PerUnit, Trial, TrialInput
    from meetpoint.lab.sim.judge import Summary

# -- the table ---------------------------------------------------------------------------------------------------------


NOTHING = "–"


class SchemeColumn(NamedTuple):
    """A scheme and its costs, a run for each seed."""

    scheme: str
    overlay: str
    runs: Sequence[Costs]

    @property
    def good(self) -> bool:
        """Whether the oracle accepts every run."""
        return all(costs.good for costs in self.runs)


def columns_of(runs: Sequence[Costs]) -> list[SchemeColumn]:
    """Group runs, which stand together by scheme, into columns in the order of the seeds."""
    return [
        SchemeColumn(scheme, overlay, tuple(same))
        for (scheme, overlay), same in groupby(runs, key=lambda costs: (costs.scheme, costs.overlay))
    ]


# -- figures -----------------------------------------------------------------------------------------------------------


class FigureRow(NamedTuple):
    """A figure: its name, its value for some costs, and its format."""

    name: str
    value: Callable[[Costs], float | None]
    write: Callable[[float], str]
    best: str = ""
    """The praise of the scheme with the least value, where the least is best."""

    @property
    def is_part(self) -> bool:
        """Whether it is part of another figure: shown where there is any."""
        return self.name.startswith(" ")

    def values(self, column: SchemeColumn) -> list[float]:
        """Return its values on the seeds where there is something to measure it by."""
        return [value for costs in column.runs if (value := self.value(costs)) is not None]


def _number(value: float) -> str:
    return f"{value:,.{0 if value >= 1000 or value == int(value) else 1 if value >= 10 else 2}f}"


def _share(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _messages(of: Callable[[Costs], PerUnit | None]) -> Callable[[Costs], float | None]:
    return lambda costs: None if (each := of(costs)) is None else each.messages


def _bytes(of: Callable[[Costs], PerUnit | None]) -> Callable[[Costs], float | None]:
    return lambda costs: None if (each := of(costs)) is None else each.bytes


def _of(of: Callable[[Costs], Summary | None], which: str) -> Callable[[Costs], float | None]:
    return lambda costs: None if (spread := of(costs)) is None else getattr(spread, which)


_PURPOSES = {
    "events": "  bringing it and answering",
    "summaries": "  summaries of what is wanted",
    "safekeeping": "  keeping it on a second disk",
    "placing": "  moving what is placed",
}


def _rows() -> list[FigureRow]:
    def of_purpose(purpose: Any) -> Callable[[Costs], PerUnit | None]:
        return lambda costs: costs.event_by_purpose.get(purpose)

    return [
        FigureRow("messages an event", _messages(lambda costs: costs.event), _number, "fewest messages an event"),
        *(FigureRow(name, _messages(of_purpose(purpose)), _number) for purpose, name in _PURPOSES.items()),
        FigureRow("bytes an event", _bytes(lambda costs: costs.event), _whole, "fewest bytes an event"),
        *(FigureRow(name, _bytes(of_purpose(purpose)), _whole) for purpose, name in _PURPOSES.items()),
        FigureRow(
            "ms until notified, median", _of(lambda costs: costs.event_delay_ms, "p50"), _whole, "soonest notified"
        ),
        FigureRow("  the longest", _of(lambda costs: costs.event_delay_ms, "max"), _whole),
        FigureRow("messages on the way, mean", _of(lambda costs: costs.event_hops, "mean"), _number),
        FigureRow("  the most", _of(lambda costs: costs.event_hops, "max"), _whole),
        FigureRow("nodes an event visits", lambda costs: costs.visited, _share, "fewest nodes visited"),
        FigureRow("the busiest node's share of messages", lambda costs: costs.busiest, _share, "most even messages"),
        FigureRow(
            "messages a subscription", _messages(lambda costs: costs.subscription), _number, "cheapest to subscribe"
        ),
        FigureRow("bytes a subscription", _bytes(lambda costs: costs.subscription), _whole),
        FigureRow("  ms until acknowledged, median", _of(lambda costs: costs.subscription_ms, "p50"), _whole),
        FigureRow("entries placed for it", lambda costs: costs.entries, _number),
        FigureRow("the fullest node's share of entries", lambda costs: costs.fullest, _share, "most even entries"),
        FigureRow("upkeep: messages a node and second", lambda costs: costs.upkeep.messages, _number),
        FigureRow("upkeep: bytes a node and second", lambda costs: costs.upkeep.bytes, _whole),
    ]


def _best(row: FigureRow, columns: Sequence[SchemeColumn]) -> list[SchemeColumn]:
    """Return the schemes with the least written value on some seed, among those that were right on all."""
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
    """Return the mean, and the distance of the farthest; the latter is empty for one value or all 0."""
    if not values:
        return NOTHING, ""
    mean = sum(values) / len(values)
    farthest = max(abs(value - mean) for value in values)
    return write(mean), f"±{farthest / mean:.0%}" if len(values) > 1 and mean else ""


def show_costs(console: Console, columns: Sequence[SchemeColumn]) -> None:
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
    """Return which of the six counts are not 0, over all runs."""
    counts = {name: sum(costs.counts[name] for costs in runs) for name in runs[0].counts}
    return ", ".join(f"{name} {count:,}" for name, count in counts.items() if count)


def matches_told(columns: Sequence[SchemeColumn], events: int) -> str:
    """Return the number of matches as text."""
    matches = [costs.notifications_expected for costs in columns[0].runs]
    mean, spread = with_spread(matches, _whole)
    spread = spread if min(matches) < max(matches) else ""  # those of a user's own files are always as many
    return f"{mean}{spread} matches ({sum(matches) / len(matches) / events:,.1f} an event)"


def told_alone(columns: Sequence[SchemeColumn], nodes: int) -> str:
    """Return the values to compare the figures of shares and of single events with."""
    alone = {costs.alone for column in columns for costs in column.runs}
    few, many = min(alone), max(alone)
    events = f"{few:,} to {many:,} events" if few < many else f"{many:,} event{'' if many == 1 else 's'}"
    return (
        f"even would be {_share(1 / nodes)} a node; "
        f"nodes visited and messages on the way are of {events} published alone"
    )


def told_best(columns: Sequence[SchemeColumn]) -> list[str]:
    """Return the best schemes of each figure, a line each."""
    best: dict[str, list[str]] = {}
    for row in _rows():
        if names := [column.scheme for column in _best(row, columns)]:
            best.setdefault(" and ".join(names), []).append(row.best)
    return [f"{schemes}: {', '.join(figures)}" for schemes, figures in best.items()]


# -- the command -------------------------------------------------------------------------------------------------------


EXIT_WRONG = EXIT_SET_ASIDE
WIDE = 1_000
"""The line width where the output is no terminal."""


class ComparisonOptions(NamedTuple):
    """The options of a comparison."""

    schemes: Sequence[str]
    overlay: str
    nodes: int
    seeds: range
    subscriptions: int
    events: int
    per_s: float
    filters: str | None
    data: str | None
    schema: Path | None
    rejects: str | None

    @property
    def own_files(self) -> bool:
        """Whether filters and events are a user's own, and so the same for all seeds."""
        return self.filters is not None

    def command(self, costs: Costs) -> str:
        """Return the command that repeats one of the runs."""
        words: list[object] = ["meetpoint", "sim", "--compare", "--scheme", costs.scheme, "--overlay", self.overlay]
        words += ["--nodes", self.nodes, "--subscriptions", self.subscriptions, "--events", self.events]
        words += ["--seed", costs.seed]
        words += ["--per-second", f"{self.per_s:g}"]
        for option, path in (("--filters", self.filters), ("--data", self.data), ("--schema", self.schema)):
            words += [] if path is None else [option, path]
        return shlex.join(map(str, words))


def compare_schemes(wanted: ComparisonOptions, as_json: bool) -> None:
    """Run all schemes and show their costs; exit with 1 if any was wrong, or rows were set aside."""
    from meetpoint.cli.output.streams import progress
    from meetpoint.lab.sim.comparison import compare, configured

    given, aside = _given(wanted)
    trials = _trials(wanted)
    for trial in trials:
        configured(trial, given.schema)

    def given_of(seed: int) -> TrialInput:
        return given if wanted.own_files or seed == wanted.seeds[0] else _drawn(wanted, seed)

    runs: list[Costs] = []
    total = len(trials) * (len(given.filters) + len(given.events))
    what = f"comparing {counted(len(trials) // len(wanted.seeds), 'scheme')} on {counted(wanted.nodes, 'node')}"
    with progress(what, total) as step:
        runs += compare(trials, given_of, step)
    order = {trial: number for number, trial in enumerate((t.scheme, t.overlay, t.seed) for t in trials)}
    runs.sort(key=lambda costs: order[costs.scheme, costs.overlay, costs.seed])
    if as_json:
        print_json(_plain(wanted, given, aside, runs))
    else:
        _show(QuietConsole(width=None if sys.stdout.isatty() else WIDE), wanted, given, runs)
    for costs in runs:
        _tell_failure(wanted, costs)
    if aside is not None and (summary := aside.summary()) is not None:
        print_error(summary)
    if not all(costs.good for costs in runs) or (aside is not None and aside.count):
        raise typer.Exit(EXIT_WRONG)


def _trials(wanted: ComparisonOptions) -> list[Trial]:
    from meetpoint.lab.sim.comparison import Trial, everything, overlay_of
    from meetpoint.lab.sim.scenario import NO_SCHEME

    schemes = list(dict.fromkeys(wanted.schemes)) or everything()
    if NO_SCHEME in schemes:
        raise typer.BadParameter(f"{NO_SCHEME} is only the overlay; leave it out to compare.", param_hint="--scheme")
    return [
        Trial(
            scheme=scheme,
            overlay=overlay_of(scheme, wanted.overlay),
            nodes=wanted.nodes,
            seed=seed,
            per_s=wanted.per_s,
        )
        for scheme in schemes
        for seed in wanted.seeds
    ]


# -- a user's own filters and events -----------------------------------------------------------------------------------


def _given(wanted: ComparisonOptions) -> tuple[TrialInput, RejectFile | None]:
    if wanted.filters is None or wanted.data is None:
        if wanted.filters is not None or wanted.data is not None:
            raise MeetpointError(
                "sim: --filters and --data go together; name both files, or neither to have them drawn from the seed"
            )
        for option, value in (("--schema", wanted.schema), ("--rejects", wanted.rejects)):
            if value is not None:
                raise MeetpointError(f"sim: {option} is for your own files; name them with --filters and --data")
        return _drawn(wanted, wanted.seeds[0]), None
    return _read(wanted, wanted.filters, wanted.data)


def _drawn(wanted: ComparisonOptions, seed: int) -> TrialInput:
    from meetpoint.lab.sim.comparison import draw_input

    return draw_input(seed, wanted.subscriptions, wanted.events)


def _read(wanted: ComparisonOptions, filters: str, data: str) -> tuple[TrialInput, RejectFile]:
    from meetpoint.cli.options import read_schema
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.lab.sim.comparison import read_input

    refuse_overlap(
        {"the report": "-", "--rejects": wanted.rejects},
        {"--filters": filters, "--data": data, "--schema": wanted.schema},
    )
    with RejectFile(wanted.rejects) as aside:
        given = read_input(filters, data, read_schema(wanted.schema), wanted.subscriptions, wanted.events, aside.add)
    for path, what, good, limit in (
        (filters, "subscription", given.filters, wanted.subscriptions),
        (data, "event", given.events, wanted.events),
    ):
        if limit and not good:
            said = aside.summary()
            raise MeetpointError(f"{path}: there is no good {what} in it" + (f"; {said}" if said else "; add some"))
    return given, aside


# -- what is told ------------------------------------------------------------------------------------------------------


def _show(console: Console, wanted: ComparisonOptions, given: TrialInput, runs: Sequence[Costs]) -> None:
    columns = columns_of(runs)
    for line in _head(wanted, given, columns):
        console.print(line, highlight=False, markup=False)
    show_costs(console, columns)
    notes = [told_alone(columns, wanted.nodes)]
    if len(wanted.seeds) > 1:
        notes.append(
            f"figures are means of {len(wanted.seeds):,} seeds, ± how far the farthest is from it, in percent of it; "
            "named as best is who was best on a seed"
        )
    if wanted.own_files and not given.schema and any(_is_told(column) for column in columns):
        notes.append(
            "without a schema dmm and reach keep all at one node, and lists puts ranges at every node; "
            "meetpoint schema infer EVENTS writes one for --schema"
        )
    for line in notes + told_best(columns):
        console.print(line, highlight=False, markup=False)


def _head(wanted: ComparisonOptions, given: TrialInput, columns: Sequence[SchemeColumn]) -> list[str]:
    first, last = wanted.seeds[0], wanted.seeds[-1]
    lines = [
        f"{counted(wanted.nodes, 'node')}, {counted(len(given.filters), 'subscription')}, "
        f"{counted(len(given.events), 'event')} at {wanted.per_s:g} a second, "
        f"{f'seed {first}' if first == last else f'seeds {first} to {last}'}, no faults"
    ]
    if given.events:
        lines[0] += f"; {matches_told(columns, len(given.events))}"
    for path, what, count, more, option in (
        (wanted.filters, "subscriptions", len(given.filters), given.more_filters, "--subscriptions"),
        (wanted.data, "events", len(given.events), given.more_events, "--events"),
    ):
        if path is not None:
            there = f"the first {count:,}; there are more, and {option} takes more" if more else f"all {count:,}"
            lines.append(f"{what} of {path}: {there}")
    return lines


def _is_told(column: SchemeColumn) -> bool:
    return column.scheme.split(":")[0] in ("dmm", "lists", "reach")


def _plain(
    wanted: ComparisonOptions, given: TrialInput, aside: RejectFile | None, runs: Sequence[Costs]
) -> dict[str, Any]:
    import msgspec

    return {
        "nodes": wanted.nodes,
        **({"seed": wanted.seeds[0]} if len(wanted.seeds) == 1 else {"seeds": list(wanted.seeds)}),
        "per_second": wanted.per_s,
        "filters": wanted.filters,
        "data": wanted.data,
        "schema": None if wanted.schema is None else str(wanted.schema),
        "subscriptions": len(given.filters),
        "events": len(given.events),
        "more_subscriptions": given.more_filters,
        "more_events": given.more_events,
        "set_aside": 0 if aside is None else aside.count,
        "good": all(costs.good for costs in runs),
        "schemes": [msgspec.to_builtins(costs) for costs in runs],
    }


def _tell_failure(wanted: ComparisonOptions, costs: Costs) -> None:
    if costs.good:
        return
    which = costs.scheme if len(wanted.seeds) == 1 else f"{costs.scheme}, seed {costs.seed}"
    print_error(f"{which}: {wrong_told([costs])}; repeat it with: {wanted.command(costs)}")
    for problem in costs.problems:
        print_error(f"  {problem}")
