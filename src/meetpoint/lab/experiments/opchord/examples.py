"""Paper A's own examples, and its rules where they fail, run as printed and as brokers run them.

Also its SubIDs (section 3, figure 3), and the meaning of two constraints on one attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from meetpoint.api.ids import HomeId, Key
from meetpoint.lab.experiments.experiment import Judged, Metrics, PaperClaim, Parameters, Results
from meetpoint.lab.experiments.rings import IdealRing, entries_for, walk
from meetpoint.lab.printed.papers_ab import (
    Bounds,
    OrderPreservingHash,
    PlainHash,
    Predicate,
    PrintedNetwork,
    Sort,
    predicates_of,
)
from meetpoint.language.filters.filter import parse_filter
from meetpoint.language.filters.papers import SubId as NumberedSubId
from meetpoint.language.filters.papers import SubIdLayout
from meetpoint.language.schema.schema import Attribute, Schema
from meetpoint.language.values import Kind, Type
from meetpoint.node.runtime.ring import Ring
from meetpoint.schemes.lists.entries import difference
from meetpoint.schemes.lists.subids import AttributeBits, SubId
from meetpoint.schemes.lists.value_hash import Hashing

STOCKS: Final = Schema.from_yaml(
    """
    attributes:
      Exchange: string
      Symbol: string
      Price: {type: decimal, min: 0.0, max: 20.0, precision: 0.01}
      High: {type: decimal, min: 0.0, max: 20.0, precision: 0.01}
      Low: {type: decimal, min: 0.0, max: 20.0, precision: 0.01}
    """
)
FIGURE_1: Final[Mapping[str, str | float]] = {
    "Exchange": "NYSE",
    "Symbol": "OTE",
    "Price": 8.40,
    "High": 8.80,
    "Low": 8.22,
}
FIGURE_2: Final = (
    "Exchange = 'NYSE' AND Symbol = 'OTE' AND Price < 8.70 AND Price > 8.30",
    "Symbol = 'OTE' AND Price = 8.20 AND Low < 8.05",
)


class FigureRing(Ring):
    """The ring of figures 6 and 7: three bits; values hash to 6, 2 and 4, and the attribute begins at 5."""

    def hash(self, data: bytes) -> Key:
        known = {b"a\x001/1": 6, b"a\x002/1": 2, b"a\x003/1": 4, b"a": 5}
        return self.key(known[data]) if data in known else super().hash(data)


def run_examples(parameters: Parameters, seed: int) -> Metrics:
    """Run all examples; nothing is drawn."""
    return {**_figures_1_and_2(), **_figures_6_and_7(), **_updating(), **_ends()}


def _figures_1_and_2() -> Metrics:
    """Count the lists of the event's attributes that hold each subscription; and the keys of its range."""
    ring, bits = Ring(), AttributeBits(STOCKS)
    network = PrintedNetwork(PlainHash(ring), ring.number, values_kept=False)
    for number, text in enumerate(FIGURE_2, 1):
        (conjunction,) = parse_filter(text).conjunctions
        sub_id = SubId(HomeId(b""), number, bits.declare(conjunction.attributes))
        network.store(sub_id, predicates_of(conjunction, STOCKS))
    hash_ = PlainHash(ring)
    found = [0, 0]
    for name, value in FIGURE_1.items():
        held = network.lists.get((ring.number(hash_(name, value)), name, Sort.EQUALITY), {})
        for sub_id in held.get(None, ()):
            found[sub_id.number - 1] += 1
    placed = entries_for(Hashing(ring, STOCKS), FIGURE_2[0])
    return {
        "lists_of_subscription_1": found[0],
        "lists_of_subscription_2": found[1],
        "keys_of_range": sum(entry.attribute == "Price" for entry in placed),
    }


def _figures_6_and_7() -> Metrics:
    """Measure the hops of 0 < a < 4 from node 3 of 8."""
    ring = FigureRing(3)
    nodes = IdealRing(ring, [ring.node(number) for number in range(8)])
    schema = Schema((Attribute("a", Type.INTEGER, minimum=0, maximum=7),))
    hops = []
    for in_order in (False, True):
        hashing = Hashing(ring, schema, order_preserving=in_order)
        hops.append(walk(nodes, hashing, 3, entries_for(hashing, "0 < a AND a < 4")).hops)
    return {"figure_6_hops": hops[0], "figure_7_hops": hops[1]}


def _updating() -> Metrics:
    """Change [1, 3] to [10, 12]. Count the values outside both ranges under which a SubID still lies."""
    sub_id = SubId(HomeId(b""), 1, ("a",))
    ring = Ring()
    network = PrintedNetwork(PlainHash(ring), ring.number)
    network.store(sub_id, [Predicate("a", Sort.RANGE, (1, 2, 3))])
    network.update_range(sub_id, "a", Bounds(1, 3), Bounds(10, 12), 1)
    printed = [value for held in network.lists.values() for value, sub_ids in held.items() if sub_ids]
    hashing = Hashing(ring, Schema((Attribute("a", Type.INTEGER, minimum=0, maximum=99),)))
    old, new = (entries_for(hashing, f"a BETWEEN {low} AND {low + 2}") for low in (1, 10))
    came, went = difference(old, new)
    lying = {*old, *came}.difference(went)
    return {
        "left_by_printed_update": sum(value not in (10, 11, 12) for value in printed),
        "left_by_our_update": len(lying.difference(new)),
    }


def _ends() -> Metrics:
    """Compare the keys of the smallest and the largest value by the order-preserving hash: 1 where equal, else 0."""
    ring = Ring()
    printed = OrderPreservingHash(ring, STOCKS)
    ours = Hashing(ring, STOCKS, order_preserving=True).line("Price", Kind.NUMBER)
    return {
        "ends_alike_as_printed": printed("Price", 0) == printed("Price", 20),
        "ends_alike_in_ours": ours.keys(0) == ours.keys(20),
    }


# -- SubIDs (section 3, figure 3) --------------------------------------------------------------------------------------


FIGURE_3: Final = "100 011 101"
MILLION: Final = 1_000_000
PRICES: Final = 2001
"""Prices from 0.00 to 20.00 in steps of 0.01."""
BOUNDS: Final = ("Price < 8.70", "Price > 8.30")
BITS_OF_A_MILLION: Final = 20
VALUES: Final = 39


def run_identifiers(parameters: Parameters, seed: int) -> Metrics:
    """Run the paper's SubID of figure 3 and its two bounds; nothing is drawn."""
    figure = SubIdLayout(3, 3, 3)
    wanted = NumberedSubId(4, 3, 5)
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
    PaperClaim(
        id="A25",
        place="section 3, figure 3",
        says="A SubID is the node, the number there and the number of attributes; 20 bits hold a million "
        "subscriptions.",
        number="100 011 101; 20 bits",
        judge=_judge_figure,
    ),
    PaperClaim(
        id="A26",
        place="section 3",
        says="Two constraints on one attribute are as two subscriptions with one each.",
        number="none given",
        judge=_judge_constraints,
    ),
)
