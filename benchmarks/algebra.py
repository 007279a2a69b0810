"""The speed of comparing filters: `python -m benchmarks.algebra [--filters N] [--json]`.

`covers` on typical pairs, and `lint` over many filters of one subscriber, its hardest case. The baseline is parsing the
same texts in the same run: lint may take at most `GOAL_RATIO` times as long, whatever the machine.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
import timeit
from collections.abc import Sequence

from benchmarks.parse import make_texts
from meetpoint.language import FilterParser, covers, parse_filter
from meetpoint.language.filters.lint import lint

GOAL_RATIO = 12.0
FILTERS = 50_000
PAIRS = {
    "a range in a range": ("price > 5", "price > 6"),
    "two constraints in three": (
        "exchange = 'NYSE' AND price BETWEEN 8.30 AND 8.70",
        "exchange = 'NYSE' AND price BETWEEN 8.40 AND 8.50 AND symbol LIKE 'OT%'",
    ),
    "a prefix in a prefix": ("symbol LIKE 'OT%'", "symbol LIKE 'OTE%'"),
    "two values that differ": ("symbol = 'A'", "symbol = 'B'"),
    "one of two alternatives": ("a = 1 OR b = 2", "a = 1 AND b = 2"),
    "two alternatives together": ("(a < 5 AND b = 1) OR (a >= 5 AND b = 1)", "a < 10 AND b = 1"),
}


def covers_us() -> dict[str, tuple[float, float, float]]:
    """Measure the median, least and most microseconds of one call, per pair."""
    found = {}
    for name, (wide, narrow) in PAIRS.items():
        f, g = parse_filter(wide), parse_filter(narrow)
        rounds = [t / 2000 * 1e6 for t in timeit.repeat(lambda f=f, g=g: covers(f, g), number=2000, repeat=9)]  # type: ignore[misc]
        found[name] = (statistics.median(rounds), min(rounds), max(rounds))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filters", type=int, default=FILTERS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    pairs = covers_us()
    texts = make_texts(options.filters, seed=11)
    begin = time.process_time()
    FilterParser().parse_all(texts)
    parse_s = time.process_time() - begin
    begin = time.process_time()
    report = lint(enumerate(texts))
    lint_s = time.process_time() - begin
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ratio = lint_s / parse_s
    if options.json:
        told = {"covers_us": pairs, "filters": options.filters, "parse_s": parse_s, "lint_s": lint_s, "ratio": ratio}
        sys.stdout.write(json.dumps(told | {"goal_ratio": GOAL_RATIO, "memory_mb": memory_mb}) + "\n")
        return
    sys.stdout.write(f"{'covers, microseconds a call':<44}{'median':>8}{'range':>20}\n")
    for name, (median, low, high) in pairs.items():
        sys.stdout.write(f"{name:<44}{median:>8.1f}{low:>12.1f} … {high:.1f}\n")
    sys.stdout.write(f"{report}\nparse {parse_s:.1f} s, lint {lint_s:.1f} s CPU, process {memory_mb:,.0f} MB\n")
    verdict = "met" if ratio <= GOAL_RATIO else "NOT met"
    sys.stdout.write(f"ratio of lint to parse {ratio:.1f}, goal at most {GOAL_RATIO:.0f}: {verdict}\n")


if __name__ == "__main__":
    main()
