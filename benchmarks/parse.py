"""The speed of turning filter texts into normal forms: `python -m benchmarks.parse [--json]`.

All literals are distinct and the shapes are a handful, as when an application fills templates. CPU seconds of one
thread; each figure is the median of several rounds with its range. The peer is sqlglot, which only builds a tree; the
goal is the ratio to it in the same run, since machines differ: 50,000 filters/s where sqlglot reads 4,500 is 11.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import sqlglot

from meetpoint.language import FilterParser

GOAL_RATIO = 11.0
ROUNDS = 11
FILTERS = 20_000
FILTERS_SLOW = 1_000


def make_texts(count: int, seed: int) -> list[str]:
    """Draw filters of five shapes, every literal anew."""
    rng = random.Random(seed)

    def word() -> str:
        return "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=6))

    shapes: list[Callable[[], str]] = [
        lambda: (
            f"exchange = '{word()}' AND price BETWEEN {rng.uniform(0, 99):.4f} AND {rng.uniform(100, 200):.4f} "
            f"AND symbol LIKE '{word()}%'"
        ),
        lambda: f"symbol = '{word()}'",
        lambda: (
            f"price > {rng.uniform(0, 99):.4f} AND price < {rng.uniform(100, 200):.4f} "
            f"AND volume >= {rng.randrange(10**9)}"
        ),
        lambda: f"symbol IN ('{word()}', '{word()}', '{word()}') AND change <= -{rng.uniform(0, 20):.4f}",
        lambda: (
            f"(symbol = '{word()}' OR sector = '{word()}') AND headline LIKE '%{word()}%' "
            f"AND high != {rng.uniform(0, 99):.4f}"
        ),
    ]
    return [shapes[n % len(shapes)]() for n in range(count)]


def measure(works: dict[str, tuple[Callable[[Sequence[str]], object], Sequence[str]]]) -> dict[str, dict[str, float]]:
    """Measure texts a second; the works alternate, so that a slow moment of the machine meets all of them."""
    rates: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (work, texts) in works.items():
            begin = time.process_time()
            work(texts)
            rates[name].append(len(texts) / (time.process_time() - begin))
    return {name: {"median": statistics.median(r), "low": min(r), "high": max(r)} for name, r in rates.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args(arguments).json
    texts = make_texts(FILTERS, seed=7)
    few = texts[:FILTERS_SLOW]
    rows = measure(
        {
            "meetpoint, shapes cached": (lambda t: FilterParser().parse_all(t), texts),
            "meetpoint, every text parsed in full": (lambda t: FilterParser(shapes_max=0).parse_all(t), few),
            "sqlglot, tree only": (lambda t: [sqlglot.parse_one(text, dialect="spark") for text in t], few),
        }
    )
    ratio = rows["meetpoint, shapes cached"]["median"] / rows["sqlglot, tree only"]["median"]
    if as_json:
        sys.stdout.write(json.dumps({"filters_per_s": rows, "ratio": ratio, "goal_ratio": GOAL_RATIO}) + "\n")
        return
    sys.stdout.write(f"{'text to normal form, filters a second of one core':<52}{'median':>10}{'range':>22}\n")
    for name, row in rows.items():
        sys.stdout.write(f"{name:<52}{row['median']:>10,.0f}{row['low']:>12,.0f} … {row['high']:,.0f}\n")
    verdict = "met" if ratio >= GOAL_RATIO else "NOT met"
    sys.stdout.write(f"ratio to sqlglot {ratio:.1f}, goal {GOAL_RATIO:.0f}: {verdict}\n")


if __name__ == "__main__":
    main()
