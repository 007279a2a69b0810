"""The parts of experiment D, with their sizes."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.cells import Parameter
from meetpoint.lab.experiments.dmm import codes, loads, networks, pastry, traffic
from meetpoint.lab.experiments.experiment import Part, grid
from meetpoint.schemes.dmm.rules import DmmSettings

__all__ = ["DEPTH", "PARTS", "RUNAWAY_AT", "STORED", "SUBSCRIPTIONS", "THRESHOLD"]

SUBSCRIPTIONS: Final = 1000
THRESHOLD: Final = 10
DEPTH: Final = 6
"""What figures 6 to 9 are drawn with, as the paper does not say."""
STORED: Final = (
    "keys",
    "fine",
    "fine delegated",
    "coarse",
    "coarse delegated",
    "coarse delegated, covered",
)
_PAPER: Final[dict[str, Parameter]] = {"subscriptions": SUBSCRIPTIONS, "threshold": THRESHOLD, "depth": DEPTH}
_OURS = DmmSettings()
_STOPPED_AT: Final = 16
"""The depth limit for rules that stop by themselves, or should."""
RUNAWAY_AT: Final = 8
"""The depth limit where nothing else stops delegation: another level would double what it takes."""


def _rules(
    kinds: tuple[str, ...], peers: tuple[int, ...], runaway_peers: tuple[int, ...]
) -> tuple[dict[str, Parameter], ...]:
    fixed: dict[str, Parameter] = {"subscriptions": SUBSCRIPTIONS, "threshold": _OURS.threshold}
    return grid(rule=("ours", "3 random peers"), kind=kinds, peers=peers, depth=_STOPPED_AT, **fixed) + grid(
        rule="none", kind=kinds, peers=runaway_peers, depth=RUNAWAY_AT, **fixed
    )


def _tuned(peers: tuple[int, ...]) -> tuple[dict[str, Parameter], ...]:
    """Our rule with other settings, coarse subscriptions."""
    return tuple(
        {
            "rule": "ours", "kind": "coarse", "peers": count, "subscriptions": SUBSCRIPTIONS,
            "threshold": _OURS.threshold, "depth": _STOPPED_AT, "relief": relief, "growth": growth,
            "tuned": f"relief {relief:g}, growth {growth:g}",
        }
        for relief, growth in ((_OURS.relief, _OURS.growth), (0.05, 0.125), (0.5, 0.125), (0.2, 0.5), (0.2, 0.0))
        for count in peers
    )  # fmt: skip


_KINDS = ("coarse", "fine", "fine, then coarse")

PARTS: Final = (
    Part(
        name="shares",
        says="the curves of figures 6 to 9: what the emptiest peers hold together",
        run=loads.run_shares,
        full=grid(stored=STORED, peers=(2, 10, 20, 30), percent=(20, 40, 60, 80, 100), **_PAPER),
        quick=grid(stored=STORED, peers=(2, 10, 30), percent=(20, 40, 60, 80, 100), **_PAPER),
        seeds=3,
    ),
    Part(
        name="balance",
        says="the share of the fullest fifth, by the number of peers",
        run=loads.run_balance,
        full=grid(stored=STORED, peers=(2, 5, 10, 15, 20, 25, 30), **_PAPER),
        quick=grid(stored=STORED, peers=(2, 10, 30), **_PAPER),
        seeds=9,
        quick_seeds=3,
    ),
    Part(
        name="totals",
        says="plain delegation by threshold and depth limit: entries for a subscription",
        run=loads.run_totals,
        full=grid(
            kind=("coarse", "fine"), threshold=(10, 30, 100, 300), depth=(3, 4, 5, 6, 8, 10), peers=30,
            subscriptions=SUBSCRIPTIONS,
        ),
        quick=grid(kind=("coarse", "fine"), threshold=(10, 100), depth=(3, 5, 6), peers=30, subscriptions=SUBSCRIPTIONS)
        + grid(kind="coarse", threshold=100, depth=10, peers=30, subscriptions=SUBSCRIPTIONS),
        seeds=5,
    ),
    Part(
        name="covering",
        says="figure 9: subscriptions that stop where a wider one has passed",
        run=loads.run_covering,
        full=grid(ways=("not covered", "cached", "routed"), peers=(2, 5, 10, 15, 20, 25, 30), **_PAPER),
        quick=grid(ways=("not covered", "cached", "routed"), peers=(2, 10, 30), **_PAPER),
        seeds=9,
        quick_seeds=3,
    ),
    Part(
        name="probe",
        says="what stops delegation: the two peers concerned are asked, three random ones, or nobody",
        run=loads.run_probe,
        full=_rules(_KINDS, (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30), (2, 5, 10, 20, 30)),
        quick=_rules(_KINDS, (2, 3, 4, 10, 30), (2, 30)),
        seeds=9,
        quick_seeds=5,
    ),
    Part(
        name="tuning",
        says="our rule with other settings",
        run=loads.run_probe,
        full=_tuned((2, 10, 30)),
        quick=_tuned((2, 30)),
        seeds=9,
    ),
    Part(
        name="lookups",
        says="hops of a lookup in small Pastry networks",
        run=networks.run_lookups,
        full=grid(routes=("cached", "not cached"), peers=(2, 5, 10, 15, 20, 25, 30), before_each=60, lookups=300),
        quick=grid(routes=("cached", "not cached"), peers=(2, 10, 30), before_each=60, lookups=200),
        seeds=5,
    ),
    Part(
        name="walks",
        says="what it takes an event to find its leaf",
        run=networks.run_walks,
        full=grid(
            overlay=("chord", "pastry"), nodes=(16, 64), subscriptions=600, threshold=10, depth=16, events=100
        ),
        quick=grid(overlay=("chord", "pastry"), nodes=8, subscriptions=100, threshold=10, depth=16, events=20),
        seeds=3,
    ),
    Part(
        name="routes",
        says="hops and links of larger Pastry networks without cached routes",
        run=pastry.run_routes,
        full=grid(peers=(16, 64, 256), lookups=1000),
        quick=grid(peers=(16, 64), lookups=200),
        seeds=3,
        quick_seeds=1,
    ),
    Part(
        name="codes",
        says="figure 4's halves, by the size of the domain",
        run=codes.run_codes,
        full=grid(domain=range(2, 65)),
        quick=grid(domain=(2, 3, 4, 7, 10, 16, 31, 32)),
        seeds=1,
        quick_seeds=1,
    ),
    Part(
        name="weaving",
        says="figure 5's code of a boolean and a number",
        run=codes.run_weaving,
        full=grid(bits=(1, 2, 4, 8, 16)),
        quick=grid(bits=(1, 8)),
        seeds=1,
        quick_seeds=1,
    ),
    Part(
        name="traffic",
        says="what an event takes, by the number of peers",
        run=traffic.run_traffic,
        full=grid(peers=(2, 5, 10, 20, 30), subscriptions=300, events=200),
        quick=grid(peers=(2, 10), subscriptions=60, events=40),
        seeds=3,
        quick_seeds=2,
    ),
)  # fmt: skip
