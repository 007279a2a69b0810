"""The parts of experiment C, with their sizes."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.cells import Parameter
from meetpoint.lab.experiments.experiment import Part, grid
from meetpoint.lab.experiments.reach import crashes, cubes, events, rules

__all__ = ["PARTS", "SHARES_BITS"]

SHARES_BITS: Final = 5
"""Bits of the ids of which the whole distribution of ways is looked at."""


def _set_bits(*lengths: int, events: int) -> tuple[dict[str, Parameter], ...]:
    """For ids of each length, events with each number of bits that choose nodes."""
    sizes = {"attributes": 8, "subscriptions": 12, "events": events}
    return tuple({"nodes": 1 << length, "set_bits": bits, **sizes} for length in lengths for bits in range(length + 1))


_QUENCHED = ("quenched", "unquenched")


def _rates(nodes: int, seconds: int, *rates: int) -> tuple[dict[str, Parameter], ...]:
    fixed: dict[str, Parameter] = {"nodes": nodes, "attributes": 6, "subscriptions": 4}
    return tuple(
        {**fixed, "events_per_s": rate, "events": rate * seconds, "quench": quench}
        for rate in rates
        for quench in _QUENCHED
    )


_POPULAR = {"attributes": 16, "equalities": 0.5}

PARTS: Final = (
    Part(
        name="sends",
        says="messages with an event on ids of one length, by how many of its bits choose nodes",
        run=events.run_sends,
        full=_set_bits(2, 4, 6, events=60),
        quick=_set_bits(2, 4, events=30),
        seeds=3,
    ),
    Part(
        name="uneven",
        says="messages with an event on ids of different lengths",
        run=events.run_uneven_sends,
        full=grid(nodes=(3, 6, 12, 24, 48), attributes=8, subscriptions=12, events=60),
        quick=grid(nodes=(6, 12), attributes=8, subscriptions=12, events=30),
        seeds=3,
    ),
    Part(
        name="examples",
        says="the two events that the paper follows: whom they come to",
        run=events.run_examples,
        full=grid(nodes=16, event=("1001", "1100111")),
        quick=grid(nodes=16, event=("1001", "1100111")),
        seeds=3,
        quick_seeds=1,
    ),
    Part(
        name="paths",
        says="hops of a lookup",
        run=cubes.run_paths,
        full=grid(nodes=(8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256), lookups=400),
        quick=grid(nodes=(8, 16, 24, 32, 64), lookups=200),
    ),
    Part(
        name="shares",
        says="which share of lookups takes how many hops",
        run=cubes.run_shares,
        full=grid(nodes=1 << SHARES_BITS, lookups=800, hops=range(SHARES_BITS + 1)),
        quick=grid(nodes=1 << SHARES_BITS, lookups=400, hops=range(SHARES_BITS + 1)),
    ),
    Part(
        name="gaps",
        says="in the model, ways and tables where joins are passed on to the shortest id, and where they are not",
        run=cubes.run_gaps,
        full=grid(nodes=(32, 64, 128, 256, 512), attributes=16, lookups=1000, joins=("passed on", "anywhere")),
        quick=grid(nodes=(32, 128), attributes=16, lookups=500, joins=("passed on", "anywhere")),
    ),
    Part(
        name="changes",
        says="nodes whose table is another one after a join or a leave",
        run=cubes.run_changes,
        full=grid(nodes=(16, 32, 64, 128, 256), changes=8),
        quick=grid(nodes=(16, 64), changes=4),
        seeds=3,
    ),
    Part(
        name="churn",
        says="several leave and as many come at once: by how much lengths of ids differ",
        run=cubes.run_churn,
        full=grid(nodes=64, at_once=(1, 4, 16), turns=3),
        quick=grid(nodes=32, at_once=(1, 8), turns=2),
        seeds=3,
    ),
    Part(
        name="full",
        says="more nodes than ids: how many host one",
        run=cubes.run_full,
        full=grid(nodes=(8, 12, 16, 20, 24), attributes=4) + grid(nodes=(24, 32, 40), attributes=5),
        quick=grid(nodes=(12, 16, 20), attributes=4),
        seeds=3,
    ),
    Part(
        name="printed",
        says="nodes that the printed rule does not come to, in networks that grew by the rule of joins",
        run=cubes.run_printed,
        full=grid(nodes=(3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 36, 40), attributes=7, events=100),
        quick=grid(nodes=(4, 6, 8, 12, 16, 24, 32), attributes=7, events=50),
    ),
    Part(
        name="load",
        says="in the model, how rendezvous, visits and handing on are spread over nodes, for random events",
        run=cubes.run_load,
        full=grid(nodes=64, attributes=8, events=8000, tree=("by hash", "lowest bit first")),
        quick=grid(nodes=32, attributes=8, events=2000, tree=("by hash", "lowest bit first")),
        seeds=3,
    ),
    Part(
        name="quenching",
        says="messages an event, by how many subscriptions there are",
        run=events.run_quenching,
        full=grid(
            nodes=32, attributes=6, subscriptions=(0, 1, 4, 16, 64), events=600, events_per_s=20, quench=_QUENCHED
        ),
        quick=grid(nodes=16, attributes=6, subscriptions=(0, 4, 32), events=200, events_per_s=20, quench=_QUENCHED),
        seeds=3,
    ),
    Part(
        name="rates",
        says="messages an event with four subscriptions, by how many events there are in a second",
        run=events.run_quenching,
        full=_rates(32, 60, 1, 5, 25),
        quick=_rates(16, 20, 2, 20),
        seeds=3,
    ),
    Part(
        name="copies",
        says="four fifths of the events have the same attributes: with copies up the tree and without",
        run=events.run_copies,
        full=grid(
            nodes=32, attributes=6, subscriptions=64, events=1200, events_per_s=40, alike=0.8,
            copies=("copied", "uncopied"),
        ),
        quick=grid(
            nodes=16, attributes=6, subscriptions=32, events=200, events_per_s=40, alike=0.8,
            copies=("copied", "uncopied"),
        ),
        seeds=3,
    ),
    Part(
        name="pushing",
        says="half of the subscriptions need the first two attributes: with ids pushed away and without",
        run=events.run_pushing,
        full=grid(
            nodes=32, attributes=8, subscriptions=320, events=600, events_per_s=20, popular=0.5, rest_s=90,
            pushing=("pushed", "unpushed"),
        ),
        quick=grid(
            nodes=16, attributes=8, subscriptions=160, events=60, events_per_s=20, popular=0.5, rest_s=60,
            pushing=("pushed", "unpushed"),
        ),
        seeds=3,
    ),
    Part(
        name="overlays",
        says="the same subset routing on the hypercube and on rings",
        run=events.run_ids,
        full=grid(
            overlay=("hypercube", "pastry", "chord"), ids="attributes", nodes=32, subscriptions=320, events=200,
            **_POPULAR,
        ),
        quick=grid(
            overlay=("hypercube", "pastry", "chord"), ids="attributes", nodes=16, subscriptions=60, events=60,
            **_POPULAR,
        ),
        seeds=3,
    ),
    Part(
        name="ids",
        says="ids by attributes, and by signatures of attributes and values",
        run=events.run_ids,
        full=grid(
            overlay="hypercube", ids=("attributes", "signatures 8", "signatures 16", "signatures 32"), nodes=32,
            attributes=16, equalities=(0.2, 0.9), subscriptions=320, events=200,
        ),
        quick=grid(
            overlay="hypercube", ids=("attributes", "signatures 16"), nodes=16,
            attributes=16, equalities=0.9, subscriptions=60, events=60,
        ),
        seeds=3,
    ),
    Part(
        name="tables",
        says="how many nodes each knows, where ids have one length",
        run=rules.run_tables,
        full=grid(nodes=(4, 8, 16, 64, 256), events=50),
        quick=grid(nodes=(4, 16), events=20),
        seeds=3,
    ),
    Part(
        name="rules",
        says="the paper's examples of neighbours, hosting and a join",
        run=rules.run_rules,
        full=({},),
        quick=({},),
        seeds=1,
        quick_seeds=1,
    ),
    Part(
        name="siblings",
        says="in the model, whose sibling was split further",
        run=rules.run_siblings,
        full=grid(nodes=(6, 12, 24, 48, 96), networks=20),
        quick=grid(nodes=(6, 12, 24), networks=10),
        seeds=3,
    ),
    Part(
        name="crashes",
        says="nodes crash while others publish, and are back after 20 s: what comes late",
        run=crashes.run_crashes,
        full=grid(nodes=16, crashed=(1, 2), subscriptions=48, events=14),
        quick=grid(nodes=8, crashed=1, subscriptions=24, events=12),
        seeds=3,
        quick_seeds=1,
    ),
)  # fmt: skip
