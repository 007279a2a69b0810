"""`meetpoint sim --compare`: what each scheme costs for the same filters and events, in one table.

Filters and events are drawn from the seed, for each seed anew; those of a user's own files are the same for all seeds,
and what differs are the nodes' ids, delays and who publishes what.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from meetpoint.cli.options import need_arrow
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, QuietConsole, print_error, print_json
from meetpoint.errors import MeetpointError
from meetpoint.wording import counted

if TYPE_CHECKING:
    from rich.console import Console

    from meetpoint.cli.output.files import RejectFile
    from meetpoint.lab.cli.costs import Column
    from meetpoint.lab.sim.compare.compare import Costs, Trial
    from meetpoint.lab.sim.compare.given import Given

__all__ = ["Wanted", "compare_schemes"]

EXIT_WRONG = EXIT_SET_ASIDE
WIDE = 1_000
"""How long a line may be where nobody looks on."""


class Wanted(NamedTuple):
    """What is to be compared."""

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
        """The command that repeats one of the runs."""
        words: list[object] = ["meetpoint", "sim", "--compare", "--scheme", costs.scheme, "--overlay", self.overlay]
        words += ["--nodes", self.nodes, "--subscriptions", self.subscriptions, "--events", self.events]
        words += ["--seed", costs.seed]
        words += ["--per-second", f"{self.per_s:g}"]
        for option, path in (("--filters", self.filters), ("--data", self.data), ("--schema", self.schema)):
            words += [] if path is None else [option, path]
        return shlex.join(map(str, words))


def compare_schemes(wanted: Wanted, as_json: bool) -> None:
    """Run all of them, and tell; exit with 1 if any was wrong, or rows were set aside."""
    from meetpoint.cli.output.streams import progress
    from meetpoint.lab.sim.compare.compare import compare, configured

    given, aside = _given(wanted)
    trials = _trials(wanted)
    for trial in trials:
        configured(trial, given.schema)

    def given_of(seed: int) -> Given:
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


def _trials(wanted: Wanted) -> list[Trial]:
    from meetpoint.lab.sim.compare.compare import Trial, everything, overlay_of
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


def _given(wanted: Wanted) -> tuple[Given, RejectFile | None]:
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


def _drawn(wanted: Wanted, seed: int) -> Given:
    from meetpoint.lab.sim.compare.given import drawn

    return drawn(seed, wanted.subscriptions, wanted.events)


def _read(wanted: Wanted, filters: str, data: str) -> tuple[Given, RejectFile]:
    need_arrow()
    from meetpoint.cli.options import read_schema
    from meetpoint.cli.output.files import RejectFile, refuse_overlap
    from meetpoint.lab.sim.compare.given import read_given

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


# -- what is told ------------------------------------------------------------------------------------------------------


def _show(console: Console, wanted: Wanted, given: Given, runs: Sequence[Costs]) -> None:
    from meetpoint.lab.cli.costs import columns_of, show_costs, told_alone, told_best

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


def _head(wanted: Wanted, given: Given, columns: Sequence[Column]) -> list[str]:
    from meetpoint.lab.cli.costs import matches_told

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


def _is_told(column: Column) -> bool:
    return column.scheme.split(":")[0] in ("dmm", "lists", "reach")


def _plain(wanted: Wanted, given: Given, aside: RejectFile | None, runs: Sequence[Costs]) -> dict[str, Any]:
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


def _tell_failure(wanted: Wanted, costs: Costs) -> None:
    from meetpoint.lab.cli.costs import wrong_told

    if costs.good:
        return
    which = costs.scheme if len(wanted.seeds) == 1 else f"{costs.scheme}, seed {costs.seed}"
    print_error(f"{which}: {wrong_told([costs])}; repeat it with: {wanted.command(costs)}")
    for problem in costs.problems:
        print_error(f"  {problem}")
