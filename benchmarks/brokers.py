"""The speed of brokers, beside RabbitMQ and NATS in the same run: `python -m benchmarks.brokers [--json] [--quick]`.

Every side holds the same subscriptions, equalities of strings, which RabbitMQ's headers exchange can hold too
(`meetpoint.lab.bench.brokers.sides`), and is given the same events. One process publishes, another receives for all
consumers, and everything is on this machine. Ours and RabbitMQ keep on disk what they acknowledge. NATS keeps nothing
and knows no filters: a client reads everything and matches with our index, as one would who has no content-based
network; it shows what keeping, and delivering to each subscriber by itself, cost.

`rate` is events a second with as many under way as it takes (at most 512). p50 and p99 are milliseconds from sending to
receiving at half of that rate. A peer that is not installed is left out, and it is said how to install it.
`--quick` is a smoke test: it is too small to judge goals. `--only` takes parts and sizes: `--only meetpoint1,10000`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from meetpoint.errors import SetupError
from meetpoint.lab.bench.brokers.cells import Cell, Effort, measure
from meetpoint.lab.bench.brokers.ours import Meetpoint
from meetpoint.lab.bench.brokers.peers import NATS, RabbitMQ
from meetpoint.lab.bench.brokers.servers import find_nats, find_rabbitmq
from meetpoint.lab.bench.brokers.sides import Side

SIDES: dict[str, Callable[[], Side]] = {
    "meetpoint1": lambda: Meetpoint(1),
    "meetpoint8": lambda: Meetpoint(8),
    "rabbitmq": RabbitMQ,
    "nats": NATS,
}
FINDERS: dict[str, Callable[[], object]] = {"rabbitmq": find_rabbitmq, "nats": find_nats}
SIZES = (1, 100, 10_000, 100_000)
QUICK_SIZES = (1, 50)
GOAL = 5.0
GOAL_FROM = 10_000
SEED = 7

FULL = Effort()
QUICK = Effort(rate_s=0.5, latency_s=0.5, events_max=300, latency_events_max=100, consumers=2)


class Asked(msgspec.Struct, frozen=True):
    """The options of the command line."""

    json: bool
    quick: bool
    sides: list[str]
    sizes: list[int]
    keep: str | None


def asked(arguments: Sequence[str] | None) -> Asked:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object a cell")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", metavar="PARTS", default="", help=f"some of {','.join(SIDES)}, and numbers")
    parser.add_argument("--keep", metavar="DIR", help="leave what servers log and keep in this folder")
    told = parser.parse_args(arguments)
    parts = [part for part in told.only.split(",") if part]
    sizes = [int(part) for part in parts if part.isdigit()]
    sides = [part for part in parts if not part.isdigit()]
    if unknown := set(sides) - set(SIDES):
        parser.error(f"--only {','.join(sorted(unknown))}: choose of {', '.join(SIDES)}, and numbers of subscriptions")
    if 0 in sizes:
        parser.error("--only 0: give at least one subscription")
    default = QUICK_SIZES if told.quick else SIZES
    return Asked(told.json, told.quick, sides or list(SIDES), sizes or list(default), told.keep)


def installed(sides: Sequence[str]) -> Iterator[str]:
    """Yield the sides that can run here; of the others print what to install."""
    for side in sides:
        try:
            FINDERS.get(side, lambda: None)()
        except SetupError as error:
            sys.stderr.write(f"{side} is left out: {error}\n")
        else:
            yield side


def measure_all(wanted: Asked, sides: Sequence[str]) -> Iterator[Cell]:
    """Measure cell by cell; all sides of one size, then the next size."""
    effort = QUICK if wanted.quick else FULL
    base = Path(wanted.keep) if wanted.keep else Path(tempfile.mkdtemp(prefix="meetpoint-bench-"))
    try:
        for size in wanted.sizes:
            for side in sides:
                folder = base / f"{side}-{size}"
                folder.mkdir(parents=True, exist_ok=True)
                sys.stderr.write(f"{side}, {size:,} subscriptions …\n")
                try:
                    yield measure(SIDES[side](), size, effort, folder, SEED)
                except SetupError as error:
                    yield Cell(SIDES[side]().name, size, wrong=str(error))
                if not wanted.keep:
                    shutil.rmtree(folder, ignore_errors=True)
    finally:
        if not wanted.keep:
            shutil.rmtree(base, ignore_errors=True)


def ratios(cells: Sequence[Cell]) -> Iterator[tuple[str, int, float, bool | None]]:
    """Compare ours with RabbitMQ: the side, the size, the ratio of events, and whether the goal is met."""
    theirs = {cell.subscriptions: cell for cell in cells if cell.side == RabbitMQ.name and not cell.wrong}
    for cell in cells:
        peer = theirs.get(cell.subscriptions)
        if peer is None or cell.wrong or not cell.side.startswith("meetpoint") or not peer.events_per_s:
            continue
        times = cell.events_per_s / peer.events_per_s
        yield cell.side, cell.subscriptions, times, times >= GOAL if cell.subscriptions >= GOAL_FROM else None


HEAD = (
    f"{'subscriptions':>13}  {'':<16}{'rate':>12}{'p50 ms':>9}{'p99 ms':>9}{'at rate':>10}{'set up s':>10}{'events':>9}"
)


def line(cell: Cell) -> str:
    """Return a line of the table."""
    named = f"{cell.subscriptions:>13,}  {cell.side:<16}"
    if cell.wrong:
        return f"{named}  not measured: {cell.wrong}"
    return (
        f"{named}{_number(cell.events_per_s):>10}/s{cell.p50_ms:>9.1f}{cell.p99_ms:>9.1f}"
        f"{_number(cell.latency_rate):>8}/s{cell.setup_s:>10.1f}{cell.events:>9,}"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    wanted = asked(arguments)
    sides = list(installed(wanted.sides))
    cells = []
    if not wanted.json:
        sys.stdout.write(HEAD + "\n")
    for cell in measure_all(wanted, sides):
        cells.append(cell)
        sys.stdout.write((json.dumps(msgspec.to_builtins(cell)) if wanted.json else line(cell)) + "\n")
        sys.stdout.flush()
    goals = []
    for side, size, times, met in ratios(cells):
        met = None if wanted.quick else met
        goals += [] if met is None else [met]
        if wanted.json:
            sys.stdout.write(json.dumps({"side": side, "subscriptions": size, "to_rabbitmq": times, "met": met}) + "\n")
            continue
        verdict = "" if met is None else f", goal {GOAL:.0f}: {'met' if met else 'NOT met'}"
        sys.stdout.write(f"{side}, {size:,} subscriptions: {times:,.1f} times RabbitMQ{verdict}\n")
    if not wanted.json:
        kept = "; ".join(f"{SIDES[side]().name}: {SIDES[side]().kept}" for side in sides)
        sys.stdout.write(f"An acknowledged event is kept on — {kept}\n")
        judged = f"{sum(goals)} of {len(goals)} goals met" if not wanted.quick else "sizes are too small to judge goals"
        sys.stdout.write(judged + "\n")
    if any(cell.wrong for cell in cells):
        sys.exit(1)


if __name__ == "__main__":
    main()
