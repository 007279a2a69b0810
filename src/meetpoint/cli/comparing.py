"""`meetpoint sim --compare`: what each scheme costs for the same filters and events, in one table."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from meetpoint.cli.options import need_arrow
from meetpoint.cli.streams import EXIT_SET_ASIDE, QuietConsole, complain, print_json
from meetpoint.errors import MeetpointError

if TYPE_CHECKING:
    from rich.console import Console

    from meetpoint.cli.outputs import RejectFile
    from meetpoint.sim.comparing import Costs, Each, Trial
    from meetpoint.sim.given import Given
    from meetpoint.sim.report import Spread

__all__ = ["Wanted", "compare_schemes"]

EXIT_WRONG = EXIT_SET_ASIDE
NOTHING = "–"
WIDE = 1_000
"""How long a line may be where nobody looks on."""


class Wanted(NamedTuple):
    """What is to be compared."""

    schemes: Sequence[str]
    overlay: str
    nodes: int
    seed: int
    subscriptions: int
    events: int
    per_s: float
    filters: str | None
    data: str | None
    schema: Path | None
    rejects: str | None

    def command(self, scheme: str) -> str:
        """The command that repeats one of them."""
        words = ["meetpoint", "sim", "--compare", "--scheme", scheme, "--overlay", self.overlay, "--nodes", self.nodes]
        words += ["--subscriptions", self.subscriptions, "--events", self.events, "--seed", self.seed]
        words += ["--per-second", f"{self.per_s:g}"]
        for option, path in (("--filters", self.filters), ("--data", self.data), ("--schema", self.schema)):
            words += [] if path is None else [option, path]
        return shlex.join(map(str, words))


def compare_schemes(wanted: Wanted, as_json: bool) -> None:
    """Run all of them, and tell; exit with 1 if any was wrong, or rows were set aside."""
    from meetpoint.cli.progress import progress
    from meetpoint.sim.comparing import compare, configured

    given, aside = _given(wanted)
    trials = _trials(wanted)
    for trial in trials:
        configured(trial, given.schema)
    found: list[Costs] = []
    total = len(trials) * (len(given.filters) + len(given.events))
    with progress(f"comparing {_counted(len(trials), 'scheme')} on {_counted(wanted.nodes, 'node')}", total) as step:
        found += compare(trials, given, step)
    order = [(trial.scheme, trial.overlay) for trial in trials]
    found.sort(key=lambda costs: order.index((costs.scheme, costs.overlay)))
    if as_json:
        print_json(_plain(wanted, given, aside, found))
    else:
        _show(QuietConsole(width=None if sys.stdout.isatty() else WIDE), wanted, given, found)
    for costs in found:
        _tell_failure(wanted, costs)
    if aside is not None and (summary := aside.summary()) is not None:
        complain(summary)
    if not all(costs.good for costs in found) or (aside is not None and aside.count):
        raise typer.Exit(EXIT_WRONG)


def _trials(wanted: Wanted) -> list[Trial]:
    from meetpoint.sim.comparing import Trial, everything, overlay_of
    from meetpoint.sim.scenario import NO_SCHEME

    schemes = list(dict.fromkeys(wanted.schemes)) or everything()
    if NO_SCHEME in schemes:
        raise typer.BadParameter(f"{NO_SCHEME} is only the overlay; leave it out to compare.", param_hint="--scheme")
    return [
        Trial(
            scheme=scheme,
            overlay=overlay_of(scheme, wanted.overlay),
            nodes=wanted.nodes,
            seed=wanted.seed,
            per_s=wanted.per_s,
        )
        for scheme in schemes
    ]


# -- a user's own filters and events -----------------------------------------------------------------------------------


def _given(wanted: Wanted) -> tuple[Given, RejectFile | None]:
    from meetpoint.sim.given import drawn

    if wanted.filters is None or wanted.data is None:
        if wanted.filters is not None or wanted.data is not None:
            raise MeetpointError(
                "sim: --filters and --data go together; name both files, or neither to have them drawn from the seed"
            )
        for option, value in (("--schema", wanted.schema), ("--rejects", wanted.rejects)):
            if value is not None:
                raise MeetpointError(f"sim: {option} is for your own files; name them with --filters and --data")
        return drawn(wanted.seed, wanted.subscriptions, wanted.events), None
    return _read(wanted, wanted.filters, wanted.data)


def _read(wanted: Wanted, filters: str, data: str) -> tuple[Given, RejectFile]:
    need_arrow()
    from meetpoint.cli.options import read_schema
    from meetpoint.cli.outputs import RejectFile, refuse_overlap
    from meetpoint.sim.given import read_given

    refuse_overlap(
        {"the report": "-", "--rejects": wanted.rejects},
        {"--filters": filters, "--data": data, "--schema": wanted.schema},
    )
    with RejectFile(wanted.rejects) as aside:
        given = read_given(filters, data, read_schema(wanted.schema), wanted.subscriptions, wanted.events, aside.add)
    for path, what, good, limit in (
        (filters, "subscription", given.filters, wanted.subscriptions),
        (data, "event", given.events, wanted.events),
    ):
        if limit and not good:
            said = aside.summary()
            raise MeetpointError(f"{path}: there is no good {what} in it" + (f"; {said}" if said else "; add some"))
    return given, aside


# -- what is shown -----------------------------------------------------------------------------------------------------


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


def _show(console: Console, wanted: Wanted, given: Given, found: Sequence[Costs]) -> None:
    from rich.markup import escape
    from rich.table import Table

    for line in _head(wanted, given, found):
        console.print(line, highlight=False, markup=False)
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for costs in found:
        table.add_column(escape(costs.scheme), justify="right", overflow="fold")
    table.add_row("overlay", *(escape(costs.overlay) for costs in found))
    for row in _rows():
        values = [row.value(costs) for costs in found]
        if row.is_part and not any(values):
            continue
        written = [NOTHING if value is None else row.write(value) for value in values]
        least = _least(row, found)
        table.add_row(row.name, *(f"[bold]{text}[/]" if text == least else text for text in written))
    wrong = [", ".join(f"{name} {count:,}" for name, count in costs.counts.items() if count) for costs in found]
    table.add_row("wrong, by the oracle", *(f"[red]{text}[/]" if text else "[green]none[/]" for text in wrong))
    console.print(table)
    for line in _notes(wanted, given, found):
        console.print(line, highlight=False, markup=False)


def _head(wanted: Wanted, given: Given, found: Sequence[Costs]) -> list[str]:
    lines = [
        f"{_counted(wanted.nodes, 'node')}, {_counted(len(given.filters), 'subscription')}, "
        f"{_counted(len(given.events), 'event')} at {wanted.per_s:g} a second, seed {wanted.seed}, no faults"
    ]
    if given.events and found:
        matches = found[0].notifications_expected
        lines[0] += f"; {matches:,} matches ({matches / len(given.events):,.1f} an event)"
    for path, what, count, more, option in (
        (wanted.filters, "subscriptions", len(given.filters), given.more_filters, "--subscriptions"),
        (wanted.data, "events", len(given.events), given.more_events, "--events"),
    ):
        if path is not None:
            there = f"the first {count:,}; there are more, and {option} takes more" if more else f"all {count:,}"
            lines.append(f"{what} of {path}: {there}")
    return lines


def _notes(wanted: Wanted, given: Given, found: Sequence[Costs]) -> list[str]:
    few, many = min(costs.alone for costs in found), max(costs.alone for costs in found)
    lines = [
        f"even would be {_share(1 / wanted.nodes)} a node; nodes visited and messages on the way are of "
        f"{_counted(many, 'event') if few == many else f'{few:,} to {many:,} events'} published alone"
    ]
    if wanted.filters is not None and not given.schema and any(_is_told(costs) for costs in found):
        lines.append(
            "without a schema dmm and reach keep all at one node, and lists puts ranges at every node; "
            "meetpoint schema infer EVENTS writes one for --schema"
        )
    best: dict[str, list[str]] = {}
    for row in _rows():
        if row.best and (least := _least(row, found)) is not None:
            names = [c.scheme for c in found if (value := row.value(c)) is not None and row.write(value) == least]
            best.setdefault(" and ".join(names), []).append(row.best)
    lines += [f"{scheme}: {', '.join(figures)}" for scheme, figures in best.items()]
    return lines


def _is_told(costs: Costs) -> bool:
    return costs.scheme.split(":")[0] in ("dmm", "lists", "reach")


def _least(row: Row, found: Sequence[Costs]) -> str | None:
    """The least of a figure as it is written, where one of several is best, of those that were right."""
    values = [value for costs in found if costs.good and (value := row.value(costs)) is not None]
    return row.write(min(values)) if row.best and len(values) > 1 and min(values) < max(values) else None


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _plain(wanted: Wanted, given: Given, aside: RejectFile | None, found: Sequence[Costs]) -> dict[str, Any]:
    import msgspec

    return {
        "nodes": wanted.nodes,
        "seed": wanted.seed,
        "per_second": wanted.per_s,
        "filters": wanted.filters,
        "data": wanted.data,
        "schema": None if wanted.schema is None else str(wanted.schema),
        "subscriptions": len(given.filters),
        "events": len(given.events),
        "more_subscriptions": given.more_filters,
        "more_events": given.more_events,
        "set_aside": 0 if aside is None else aside.count,
        "good": all(costs.good for costs in found),
        "schemes": [msgspec.to_builtins(costs) for costs in found],
    }


def _tell_failure(wanted: Wanted, costs: Costs) -> None:
    if costs.good:
        return
    wrong = ", ".join(f"{name} {count:,}" for name, count in costs.counts.items() if count)
    complain(f"{costs.scheme}: {wrong}; repeat it with: {wanted.command(costs.scheme)}")
    for problem in costs.problems:
        complain(f"  {problem}")
