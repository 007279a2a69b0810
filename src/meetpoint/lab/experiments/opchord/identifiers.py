"""Paper A's SubIDs (section 3, figure 3), and what two constraints on one attribute are."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.experiment import Claim, Judged
from meetpoint.lab.experiments.results import Results
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.filters.papers import SubId, SubIdLayout

__all__ = ["IDENTIFIER_CLAIMS", "run_identifiers"]

FIGURE_3: Final = "100 011 101"
MILLION: Final = 1_000_000
PRICES: Final = 2001
"""From 0.00 to 20.00 in steps of 0.01."""
BOUNDS: Final = ("Price < 8.70", "Price > 8.30")
BITS_OF_A_MILLION: Final = 20
VALUES: Final = 39


def run_identifiers(parameters: Parameters, seed: int) -> Metrics:
    """Nothing is drawn."""
    figure = SubIdLayout(3, 3, 3)
    wanted = SubId(4, 3, 5)
    both = parse_filter(" AND ".join(BOUNDS))
    each = [parse_filter(bound) for bound in BOUNDS]
    prices = [{"Price": Decimal(cents) / 100} for cents in range(PRICES)]
    return {
        "figure_3_alike": figure.text(wanted) == FIGURE_3 and figure.unpack(figure.pack(wanted)) == wanted,
        "bits_for_a_million": (MILLION - 1).bit_length(),
        "prices_of_both": sum(both.conjunctions[0].accepts(price) for price in prices),
        "prices_of_either": sum(any(one.conjunctions[0].accepts(price) for one in each) for price in prices),
    }


def _judge_figure(results: Results) -> Judged:
    alike = results.spread("identifiers", "figure_3_alike").low
    bits = results.spread("identifiers", "bits_for_a_million").median
    return Judged(
        ours=f"{FIGURE_3 if alike else 'another one'}; {bits:.0f} bits for a million subscriptions a node",
        verdict="reproduced" if alike and bits == BITS_OF_A_MILLION else "not reproduced",
        why="Node 4, subscription 3, five attributes. On the wire c3 is which attributes these are, not how many "
        "(paper B's footnote 4).",
    )


def _judge_constraints(results: Results) -> Judged:
    both, either = (results.spread("identifiers", f"prices_of_{which}").median for which in ("both", "either"))
    return Judged(
        ours=f"as two subscriptions {either:,.0f} of {PRICES:,} prices match, as one {both:,.0f}",
        verdict="reproduced" if either == both else "not reproduced",
        why="8.30 < Price < 8.70. One of two subscriptions is enough for an event to be delivered, so that they mean "
        f"OR; the paper's own example intersects the bounds, and stores {VALUES} values. We intersect.",
    )


IDENTIFIER_CLAIMS: Final = (
    Claim(
        id="A25",
        place="section 3, figure 3",
        says="A SubID is the node, the number there and the number of attributes; 20 bits hold a million "
        "subscriptions.",
        number="100 011 101; 20 bits",
        judge=_judge_figure,
    ),
    Claim(
        id="A26",
        place="section 3",
        says="Two constraints on one attribute are as two subscriptions with one each.",
        number="none given",
        judge=_judge_constraints,
    ),
)
