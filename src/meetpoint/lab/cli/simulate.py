"""`meetpoint sim`: a network in virtual time, with faults, judged by an oracle."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from meetpoint.cli.options import AsJson
from meetpoint.cli.output.streams import EXIT_SET_ASIDE, QuietConsole, print_error, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from meetpoint.lab.sim import RunReport
    from meetpoint.lab.sim.run import RunConfig

EXIT_WRONG = EXIT_SET_ASIDE
FAILURES_TOLD = 5
"""The number of failing seeds that are shown with all their problems."""
PROBLEMS_TOLD = 5
SEEDS_MAX = 1_000_000
SCHEME = "meet"
LOOKUPS = 100
PER_SECOND = 50.0


def sim(
    overlay: Annotated[str, typer.Option("--overlay", help="How nodes find each other.")] = "chord",
    scheme: Annotated[
        list[str] | None,
        typer.Option(
            "--scheme",
            metavar="NAME[:OPTION…]",
            help="How events find subscriptions, such as flood or lists:hybrid:order; none: only the overlay. "
            "Several to --compare, with commas or repeated.",
            show_default=SCHEME,
        ),
    ] = None,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=100_000, help="How many there are at first.")] = 64,
    subscriptions: Annotated[int, typer.Option("--subscriptions", min=0, help="How many are made.")] = 500,
    events: Annotated[int, typer.Option("--events", min=0, help="How many are published.")] = 500,
    lookups: Annotated[
        int | None, typer.Option("--lookups", min=0, help="How many keys are looked up.", show_default=str(LOOKUPS))
    ] = None,
    faults: Annotated[
        str, typer.Option("--faults", metavar="PLAN", help="none, churn, partition, lossy, disk, all, or a .yaml file.")
    ] = "none",
    detector: Annotated[
        str, typer.Option("--detector", metavar="KIND", help="perfect or imperfect: what nodes learn of dead ones.")
    ] = "imperfect",
    founders: Annotated[
        int | None, typer.Option("--founders", min=1, help="How many begin at once; the others join. Else all do.")
    ] = None,
    fault_seconds: Annotated[
        float | None, typer.Option("--fault-seconds", min=1, max=3600, help="How long faults last, in virtual time.")
    ] = None,
    recovery_seconds: Annotated[
        float | None,
        typer.Option("--recovery-seconds", min=1, max=3600, help="Within how long of healing all must work again."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="One seed is one run, byte for byte.")] = 7,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="FROM..TO",
            help="Run many, such as 1..200, on all cores; a count: so many from --seed on.",
        ),
    ] = None,
    story: Annotated[
        str | None,
        typer.Option("--story", metavar="WHAT", help="Tell the story of an event (e7) or subscription (s3)."),
    ] = None,
    compare: Annotated[
        bool, typer.Option("--compare", help="What each scheme costs, without faults; all schemes, or those named.")
    ] = False,
    filters: Annotated[
        str | None,
        typer.Option("--filters", "--subs", metavar="FILE", help="To compare: your subscriptions, as match has them."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option("--data", "--events-file", metavar="FILE", help="To compare: your events, as match has them."),
    ] = None,
    schema: Annotated[
        Path | None, typer.Option("--schema", metavar="FILE", help="To compare: the schema that schemes are told.")
    ] = None,
    rejects: Annotated[
        str | None, typer.Option("--rejects", metavar="FILE", help="To compare: where rows that are set aside go.")
    ] = None,
    per_second: Annotated[
        float | None,
        typer.Option(
            "--per-second",
            min=0.1,
            max=100_000,
            help="To compare: how many events are published a second.",
            show_default=f"{PER_SECOND:g}",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate a network under faults; exit with 1 if anything was missing, repeated, wrong or broken."""
    schemes = [name.strip() for given in scheme or () for name in given.split(",")]
    to_compare = {
        "--filters": filters,
        "--data": data,
        "--schema": schema,
        "--rejects": rejects,
        "--per-second": per_second,
    }
    to_hurt = {
        "--faults": None if faults == "none" else faults,
        "--detector": None if detector == "imperfect" else detector,
        "--lookups": lookups,
        "--founders": founders,
        "--fault-seconds": fault_seconds,
        "--recovery-seconds": recovery_seconds,
        "--story": story,
    }
    for option, value in (to_hurt if compare else to_compare).items():
        if value is not None:
            said = "does not go with --compare; leave it out." if compare else "is for --compare; add that."
            raise typer.BadParameter(f"it {said}", param_hint=option)
    many = None if seeds is None else read_seeds(seeds, seed)
    if compare:
        # Imported when needed: help and errors must not wait for the simulator.
        from meetpoint.lab.cli.comparison import ComparisonOptions, compare_schemes

        rate = PER_SECOND if per_second is None else per_second
        each = range(seed, seed + 1) if many is None else many
        wanted = ComparisonOptions(
            schemes, overlay, nodes, each, subscriptions, events, rate, filters, data, schema, rejects
        )
        compare_schemes(wanted, as_json)
        return
    if len(schemes) > 1:
        raise typer.BadParameter("several schemes are for --compare; name one.", param_hint="--scheme")
    from meetpoint.catalog.catalog import network_config
    from meetpoint.lab.sim.run import RunConfig
    from meetpoint.lab.sim.scenario import NO_SCHEME

    chosen = schemes[0] if schemes else SCHEME
    if detector not in ("perfect", "imperfect"):
        raise typer.BadParameter(f"{detector!r} is no detector; it is perfect or imperfect.", param_hint="--detector")
    if seeds is not None and story is not None:
        raise typer.BadParameter("a story is of one run; name one --seed.", param_hint="--story")
    if chosen == NO_SCHEME:
        subscriptions = events = 0
    network_config(overlay, SCHEME if chosen == NO_SCHEME else chosen)
    config = RunConfig(
        overlay=overlay,
        scheme=chosen,
        nodes=nodes,
        subscriptions=subscriptions,
        events=events,
        lookups=LOOKUPS if lookups is None else lookups,
        faults=faults,
        detector=cast(Literal["perfect", "imperfect"], detector),
        founders=founders,
        fault_seconds=fault_seconds,
        recovery_seconds=recovery_seconds,
    )
    config.plan()
    if many is None:
        _one(config, seed, story, as_json)
    else:
        _many(config, many, as_json)


def read_seeds(text: str, seed: int) -> range:
    """Read `1..200`, or a count from a seed on."""
    found = re.fullmatch(r"(\d{1,18})(?:\.\.(\d{1,18}))?", text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r} are no seeds; write FROM..TO, such as 1..200, or how many.", param_hint="--seeds"
        )
    seeds = range(seed, seed + int(found[1])) if found[2] is None else range(int(found[1]), int(found[2]) + 1)
    if not 1 <= len(seeds) <= SEEDS_MAX:
        raise typer.BadParameter(
            f"{text!r} are no seeds; the second number is not below the first, and there are 1 to {SEEDS_MAX:,}.",
            param_hint="--seeds",
        )
    return seeds


def _one(config: RunConfig, seed: int, story: str | None, as_json: bool) -> None:
    from meetpoint.lab.sim.observers import Tracer
    from meetpoint.lab.sim.run import run

    teller = None
    if story is not None:
        out = sys.stderr if as_json else sys.stdout
        teller = Tracer(story, lambda line: (out.write(line + "\n"), None)[1])
    report = run(config, seed, teller)
    if teller is not None and not teller.found:
        print_error(f"nothing happened that has to do with {story!r}; events are e1, e2, …, subscriptions s1, s2, …")
    if as_json:
        print_json(_plain(report))
    else:
        _show(QuietConsole(soft_wrap=not sys.stdout.isatty()), report)
    if not report.good:
        _tell_failure(config, report)
        raise typer.Exit(EXIT_WRONG)


def _many(config: RunConfig, seeds: range, as_json: bool) -> None:
    from meetpoint.cli.output.streams import progress
    from meetpoint.lab.sim.run import run_many

    reports = []
    with progress(f"simulating {config.nodes:,} nodes", len(seeds)) as step:
        for report in run_many(config, seeds):
            reports.append(report)
            step(1)
    reports.sort(key=lambda report: report.seed)
    bad = [report for report in reports if not report.good]
    if as_json:
        print_json(_summary(reports, bad))
    else:
        _show_many(QuietConsole(soft_wrap=not sys.stdout.isatty()), reports, bad)
    for report in bad[:FAILURES_TOLD]:
        _tell_failure(config, report)
    if len(bad) > FAILURES_TOLD:
        print_error(
            f"and {len(bad) - FAILURES_TOLD:,} more seeds: {', '.join(str(r.seed) for r in bad[FAILURES_TOLD:])}"
        )
    if bad:
        raise typer.Exit(EXIT_WRONG)


# -- what is shown -----------------------------------------------------------------------------------------------------


def _plain(report: RunReport) -> dict[str, Any]:
    import msgspec

    return cast(dict[str, Any], msgspec.to_builtins(report))


def _tell_failure(config: RunConfig, report: RunReport) -> None:
    from meetpoint.lab.sim.run import command

    wrong = [f"{name} {count}" for name, count in report.counts.items() if count]
    wrong += [f"{kind} never happened" for kind in report.never_injected]
    print_error(f"seed {report.seed}: {', '.join(wrong)}; repeat it with: {command(config, report.seed)}")
    for problem in report.problems[:PROBLEMS_TOLD]:
        print_error(f"  {problem}")


def _summary(reports: list[RunReport], bad: list[RunReport]) -> dict[str, Any]:
    """Sum over all seeds, and list every report that failed."""
    counts = {name: sum(report.counts[name] for report in reports) for name in reports[0].counts}
    injected: dict[str, int] = {}
    for report in reports:
        for kind, count in report.injected.items():
            injected[kind] = injected.get(kind, 0) + count
    spent = sum(report.cpu_s for report in reports)
    messages = sum(report.messages for report in reports)
    live = [report.live_again_s for report in reports if report.live_again_s is not None]
    return {
        "seeds": len(reports),
        **counts,
        "injected": dict(sorted(injected.items())),
        "events": sum(report.events for report in reports),
        "events_acknowledged": sum(report.events_acknowledged for report in reports),
        "notifications": sum(report.notifications for report in reports),
        "notifications_expected": sum(report.notifications_expected for report in reports),
        "redelivered": sum(report.redelivered for report in reports),
        "lookups": sum(report.lookups for report in reports),
        "live_again_s_max": max(live, default=None),
        "messages": messages,
        "bytes": sum(report.bytes for report in reports),
        "virtual_s": round(sum(report.virtual_s for report in reports), 3),
        "cpu_s": round(spent, 3),
        "messages_per_s": round(messages / spent) if spent else 0,
        "failed_seeds": [report.seed for report in bad],
        "failures": [_plain(report) for report in bad],
    }


def _show(console: Console, report: RunReport) -> None:
    from rich.table import Table

    console.print(
        f"{report.scheme} on {report.overlay}, {report.nodes:,} nodes, seed {report.seed}, faults {report.faults}, "
        f"{report.detector} detector: {report.virtual_s:,.0f} s in {report.wall_s:,.1f} s",
        highlight=False,
    )
    _show_counts(console, report.counts)
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for column in ("total", "mean", "p50", "max"):
        table.add_column(column, justify="right")
    for name, total, figure in (
        ("messages a node", report.messages, report.messages_per_node),
        ("bytes a node", report.bytes, report.bytes_per_node),
        ("SubIDs an event", report.subids, report.subids_per_event),
        ("notifications a subscription", report.notifications, report.notifications_per_subscription),
        ("hops a lookup", report.lookups, report.lookup_hops),
        ("hops of an event to a node", report.observed.get("event_hops", 0), report.event_hops),
        ("ms until notified", report.notifications, report.event_delay_ms),
    ):
        table.add_row(name, f"{total:,}", f"{figure.mean:,.1f}", f"{figure.p50:,.0f}", f"{figure.max:,.0f}")
    console.print(table)
    if report.injected:
        told = ", ".join(f"{kind} {count:,}" for kind, count in report.injected.items())
        console.print(f"faults: {told}", highlight=False)
    if report.live_again_s is not None:
        console.print(f"live again {report.live_again_s:.0f} s after healing", highlight=False)
    console.print(
        f"{report.events_acknowledged:,} of {report.events:,} events acknowledged; "
        f"{report.messages_per_s:,.0f} messages/s; digest {report.digest}",
        highlight=False,
    )


def _show_many(console: Console, reports: list[RunReport], bad: list[RunReport]) -> None:
    told = _summary(reports, bad)
    console.print(
        f"{len(reports):,} seeds, {len(bad):,} failed; {told['notifications']:,} notifications, "
        f"{told['messages']:,} messages, {told['virtual_s']:,.0f} s in {told['cpu_s']:,.0f} s of computing",
        highlight=False,
    )
    _show_counts(console, {name: told[name] for name in reports[0].counts})
    if told["injected"]:
        faults = ", ".join(f"{kind} {count:,}" for kind, count in told["injected"].items())
        console.print(f"faults: {faults}", highlight=False)
    if told["live_again_s_max"] is not None:
        console.print(f"live again at the latest {told['live_again_s_max']:.0f} s after healing", highlight=False)


def _show_counts(console: Console, counts: dict[str, int]) -> None:
    shown = ", ".join(f"[{'red' if count else 'green'}]{name} {count:,}[/]" for name, count in counts.items())
    console.print(shown, highlight=False)
