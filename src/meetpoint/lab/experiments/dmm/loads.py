"""Paper D's figures 6 to 9 on the model of its tree (`models.delegation`): who holds how many entries."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from meetpoint.lab.experiments.cells import Metrics, Parameters
from meetpoint.lab.experiments.models.delegation import (
    Peers,
    Range,
    Tree,
    coarse,
    fine,
    grown,
    keys_held,
    probing_any,
    quenched,
    top_share,
)
from meetpoint.schemes.dmm.rules import DmmSettings

__all__ = ["run_balance", "run_covering", "run_probe", "run_shares", "run_totals"]

PROBES = 3
"""How many random peers the paper's idea asks here."""


def _wanted(kind: str, count: int, seed: int) -> list[Range]:
    if kind == "fine":
        return fine(seed, count)
    if kind == "coarse":
        return coarse(seed, count)
    half = count // 2
    assert kind == "fine, then coarse"
    return fine(seed, half) + coarse(seed, count - half)


def _settings(parameters: Parameters, delegation: str) -> DmmSettings:
    chosen = {"threshold": parameters["threshold"], "depth": parameters["depth"], "delegation": delegation}
    for name in ("growth", "relief"):
        if name in parameters:
            chosen[name] = parameters[name]
    return msgspec.convert(chosen, DmmSettings)


# -- figures 6 to 9 ----------------------------------------------------------------------------------------------------


def _loads(parameters: Parameters, seed: int) -> tuple[int, ...]:
    """What each peer has of what is `stored`: `keys`, or `fine` or `coarse` subscriptions, which may be `delegated`."""
    peers, count, stored = int(parameters["peers"]), int(parameters["subscriptions"]), str(parameters["stored"])
    kind, _, how = stored.partition(" ")
    settings = _settings(parameters, "always" if how else "never")
    return _held(kind, how, peers, count, settings, seed)


@lru_cache(maxsize=16)  # a curve has several points
def _held(kind: str, how: str, peers: int, count: int, settings: DmmSettings, seed: int) -> tuple[int, ...]:
    if kind == "keys":
        return tuple(keys_held(Peers(peers, seed), count))
    wanted = _wanted(kind, count, seed)
    if how == "delegated, covered":
        tree = Tree(Peers(peers, seed), settings)
        quenched(tree, wanted, seed, cached=True)
        return tuple(tree.loads)
    return tuple(grown(settings, peers, wanted, seed).loads)


def run_shares(parameters: Parameters, seed: int) -> Metrics:
    """A point of the paper's curves: what the emptiest of the peers hold together, so many percent of them."""
    loads = sorted(_loads(parameters, seed))
    emptiest = len(loads) * int(parameters["percent"]) // 100
    return {"held_share": sum(loads[:emptiest]) / sum(loads)}


def run_balance(parameters: Parameters, seed: int) -> Metrics:
    """The share of the fullest fifth, and how many entries there are for a subscription."""
    loads = _loads(parameters, seed)
    return {
        "top_fifth_share": top_share(loads),
        "entries_per_subscription": sum(loads) / int(parameters["subscriptions"]),
        "largest_share": max(loads) / sum(loads),
    }


def run_totals(parameters: Parameters, seed: int) -> Metrics:
    """Plain delegation by threshold and depth limit: how often a subscription is stored."""
    count = int(parameters["subscriptions"])
    wanted = _wanted(str(parameters["kind"]), count, seed)
    tree = grown(_settings(parameters, "always"), int(parameters["peers"]), wanted, seed)
    return {
        "entries_per_subscription": tree.total / count,
        "leaves": len(tree.leaves),
        "delegations": len(tree.leaves) - 1,
        "copies_most": max(map(tree.copies, wanted)),
        "top_fifth_share": top_share(tree.loads),
    }


def run_covering(parameters: Parameters, seed: int) -> Metrics:
    """Covering on the way to the root, over the ways that a cache of routes gives, or Pastry's own."""
    count = int(parameters["subscriptions"])
    wanted = _wanted("coarse", count, seed)
    tree = Tree(Peers(int(parameters["peers"]), seed), _settings(parameters, "always"))
    covered = 0
    if parameters["ways"] == "not covered":
        for each in wanted:
            tree.insert(each)
    else:
        covered = quenched(tree, wanted, seed, cached=parameters["ways"] == "cached")
    return {
        "entries_per_subscription": tree.total / count,
        "covered_share": covered / count,
        "top_fifth_share": top_share(tree.loads),
    }


# -- what stops delegation ---------------------------------------------------------------------------------------------


def run_probe(parameters: Parameters, seed: int) -> Metrics:
    """By a rule: our probe of the two peers concerned, the paper's idea of a few random ones, or none."""
    count, rule = int(parameters["subscriptions"]), str(parameters["rule"])
    wanted = _wanted(str(parameters["kind"]), count, seed)
    tree = Tree(Peers(int(parameters["peers"]), seed), _settings(parameters, "always" if rule == "none" else "probed"))
    if rule == "3 random peers":
        tree.decide = probing_any(tree, PROBES, seed)
    for each in wanted:
        tree.insert(each)
    largest = max(tree.loads)
    return {
        "entries_per_subscription": tree.total / count,
        "largest_peer": largest,
        "above_all_subscriptions": largest > count,
        "leaves": len(tree.leaves),
    }
