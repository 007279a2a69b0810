"""Our own claims about schemes (docs/schemes.md), tried on a workload that they were not written for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2
from typing import Final

import numpy as np

from meetpoint.lab.experiments.experiment import (
    Judged,
    NotMeasured,
    PaperClaim,
    Parameter,
    Results,
    SeedSpread,
    verdict_of,
)
from meetpoint.lab.experiments.together.figures import AXES, BASE, beside

PART: Final = "costs"
SUBIDS_MAX: Final = 1.1
"""The most SubIDs that `meet` is to send for each true match."""
LESS: Final = 0.9
"""The largest ratio of the end to the beginning that counts as going down."""
NEARLY: Final = 1.2
"""The largest multiple of the least median that is still nearly the soonest."""
UPKEEP: Final = (3.0, 4.0)
"""The claimed upkeep of `rebeca`, in multiples of that of `meet`."""
HIDDEN: Final = ("lists:distributed", "lists:hybrid")
"""Modes that are run for one axis only."""


def _schemes(results: Results) -> list[str]:
    return [str(scheme) for scheme in results.distinct(PART, "scheme") if scheme not in HIDDEN]


def _points(results: Results, metric: str, scheme: str) -> list[dict[str, Parameter]]:
    """Return all points of all axes at which a metric of a scheme was measured, each once."""
    found: list[dict[str, Parameter]] = []
    for axis in AXES:
        for value in results.distinct(PART, axis, metric, scheme=scheme, **beside(axis)):
            point = {**BASE, axis: value}
            if point not in found:
                found.append(point)
    return found


def _at(results: Results, metric: str, scheme: str, point: dict[str, Parameter]) -> SeedSpread:
    return results.spread(PART, metric, scheme=scheme, **point)


def _along(results: Results, axis: str, metric: str, scheme: str) -> tuple[list[float], list[SeedSpread]]:
    """Return values of an axis, and of a metric there; NotMeasured where there is but one."""
    values = results.distinct(PART, axis, metric, scheme=scheme, **beside(axis))
    if len(values) < 2:
        raise NotMeasured(f"{metric} of {scheme} was measured at one value of {axis} only")
    return [float(value) for value in values], [_at(results, metric, scheme, {**BASE, axis: value}) for value in values]


def _power(values: Sequence[float], found: Sequence[SeedSpread]) -> float:
    """Fit the exponent b of a x^b, by least squares of logarithms."""
    slope, _ = np.polyfit(np.log(values), np.log([max(each.median, 1e-9) for each in found]), 1)
    return float(slope)


def _share_of(points: Sequence[bool]) -> str:
    return f"{sum(points)} of {len(points)} points"


def _few_subids(results: Results) -> Judged:
    values = SeedSpread.of(
        value
        for point in _points(results, "subids_per_match", "meet")
        for value in results.by_seed(PART, "subids_per_match", scheme="meet", **point).values()
    )
    return Judged(
        ours=f"{values.median:.2f} SubIDs a match, at most {values.high:.2f} ({values.seeds} runs)",
        verdict=verdict_of(values.high <= SUBIDS_MAX),
        why="Counted each time that one is handed to a home, also to one at the same broker.",
    )


def _only_true(results: Results) -> Judged:
    schemes = [scheme for scheme in _schemes(results) if scheme not in ("flood", "lists")]
    metric = "subids_per_match"
    most = {
        scheme: max(_at(results, metric, scheme, point).high for point in _points(results, metric, scheme))
        for scheme in schemes
    }
    more = [scheme for scheme, value in most.items() if value > SUBIDS_MAX]
    lists = _at(results, metric, "lists", BASE)
    return Judged(
        ours=", ".join(f"{scheme} {value:.2f}" for scheme, value in most.items()) + " SubIDs a match at most",
        verdict=verdict_of(not more and lists.low > 1, not more or (more == ["dmm"] and most["dmm"] < lists.low)),
        why=f"They match where a conjunction lies as a whole. lists collects parts of matches: {lists.told()} at the "
        "baseline. dmm sends only true matches too, but down a tree: its relays pass SubIDs on, and each hop counts. "
        "flood sends none.",
    )


def _flood(results: Results) -> Judged:
    points = _points(results, "bringing_messages_per_event", "flood")
    off = max(
        abs(_at(results, "bringing_messages_per_event", "flood", point).median - 2 * (float(point["nodes"]) - 1))
        for point in points
    )
    return Judged(
        ours=f"at most {off:.2f} messages away from 2 (N - 1), at {len(points)} points",
        verdict=verdict_of(off < 0.5),
        why="Each broker gets it once and answers once, whatever is subscribed and published.",
    )


def _lists_most(results: Results) -> Judged:
    others = [scheme for scheme in _schemes(results) if scheme != "lists"]
    is_most = [
        _at(results, "bytes_per_event", "lists", point).median
        > max(_at(results, "bytes_per_event", scheme, point).median for scheme in others)
        for point in _points(results, "bytes_per_event", "lists")
        if all(point in _points(results, "bytes_per_event", scheme) for scheme in others)
    ]
    base = _at(results, "bringing_messages_per_event", "lists", BASE)
    nodes, found = _along(results, "nodes", "bringing_messages_per_event", "lists")
    _, flooded = _along(results, "nodes", "bringing_messages_per_event", "flood")
    crossing = [size for size, ours, all_ in zip(nodes, found, flooded, strict=False) if ours.median < all_.median]
    return Judged(
        ours=f"the most bytes an event at {_share_of(is_most)}; {base.told(1)} messages at the baseline",
        verdict=verdict_of(all(is_most), any(is_most)),
        why="It asks for every prefix and suffix of every string, subscribed or not. "
        + (
            f"With {crossing[0]:,.0f} brokers or more it takes fewer messages than flood."
            if crossing
            else f"Up to {nodes[-1]:,.0f} brokers it takes more messages than flood, too."
        ),
    )


def _dmm_place(results: Results) -> Judged:
    nodes, found = _along(results, "nodes", "bringing_messages_per_event", "dmm")
    grown = found[-1].median / found[0].median
    full = _at(results, "fullest_to_mean", "dmm", BASE)
    busy = _at(results, "busiest_to_mean", "dmm", BASE)
    is_one = full.median >= 0.99 * float(BASE["nodes"])
    return Judged(
        ours=f"{found[-1].told(1)} messages at {nodes[-1]:,.0f} brokers, {grown:.2f} times those at {nodes[0]:,.0f}",
        verdict=verdict_of(grown <= log2(nodes[-1]) / log2(nodes[0])),
        why=f"An event is matched in one region, which costs a question that grows with log N at most. The price: the "
        f"fullest broker has {full.median / float(BASE['nodes']):.0%} of all entries, and the busiest {busy.told(1)} "
        f"times the mean of messages{', as no region was split' if is_one else ''}.",
    )


def _reach_sparse(results: Results) -> Judged:
    held, reach = _along(results, "held", "visited_share", "reach")
    _, meet = _along(results, "held", "visited_share", "meet")
    fewer = reach[0].median < reach[-1].median
    return Judged(
        ours=f"{reach[0].median:.0%} of brokers with {held[0]:.0f} attributes, {reach[-1].median:.0%} with "
        f"{held[-1]:.0f}",
        verdict=verdict_of(fewer and reach[0].median < meet[0].median, fewer),
        why=f"meet visits {meet[0].median:.0%} and {meet[-1].median:.0%}. Only log2 N attributes choose a broker, so "
        "that what an event lacks of these rules brokers out.",
    )


def _least_by(results: Results, metric: str, point: dict[str, Parameter]) -> list[str]:
    """Return the schemes with the least value on one of the seeds."""
    by_scheme = {scheme: results.by_seed(PART, metric, scheme=scheme, **point) for scheme in _schemes(results)}
    seeds = set.intersection(*(set(values) for values in by_scheme.values()))
    best = {min(by_scheme, key=lambda scheme: by_scheme[scheme][seed]) for seed in seeds}
    return sorted(best)


def _rebeca(results: Results) -> Judged:
    _, found = _along(results, "nodes", "bringing_messages_per_event", "rebeca")
    nodes, told = _along(results, "nodes", "messages_per_subscription", "rebeca")
    best = _least_by(results, "bringing_messages_per_event", BASE)
    dearest = max(_schemes(results), key=lambda scheme: _at(results, "bytes_per_subscription", scheme, BASE).median)
    upkeep = results.ratio(PART, "upkeep_messages_per_node_s", {"scheme": "meet"}, scheme="rebeca", **BASE)
    is_so = UPKEEP[0] <= upkeep.median <= UPKEEP[1]
    return Judged(
        ours=f"{found[-1].told(1)} messages an event at {nodes[-1]:,.0f} brokers; {told[-1].told(1)} a subscription",
        verdict=verdict_of("rebeca" in best and is_so, "rebeca" in best or is_so),
        why=f"Fewest messages to bring an event at the baseline: {', '.join(best)}. Dearest to subscribe, in bytes: "
        f"{dearest}. Messages a subscription grow as N^{_power(nodes, told):.2f}, and upkeep is {upkeep.told()} times "
        "that of meet.",
    )


def _soonest(results: Results) -> Judged:
    points = _points(results, "ms", "meet")
    late = []
    for point in points:
        least = min(_at(results, "ms", scheme, point).median for scheme in _schemes_at(results, point))
        late.append(_at(results, "ms", "meet", point).median / least)
    good = [ratio <= NEARLY for ratio in late]
    return Judged(
        ours=f"{max(late):.2f} times the least median delay at most; within {NEARLY} at {_share_of(good)}",
        verdict=verdict_of(all(good), sum(good) > len(good) / 2),
        why=f"{_at(results, 'ms', 'meet', BASE).told(0)} ms at the baseline, where the soonest on some seed is "
        f"{' or '.join(_least_by(results, 'ms', BASE))}.",
    )


def _schemes_at(results: Results, point: dict[str, Parameter]) -> list[str]:
    return [scheme for scheme in _schemes(results) if point in _points(results, "ms", scheme)]


def _two_hops(results: Results) -> Judged:
    nodes, found = _along(results, "nodes", "hops_most", "meet")
    most = max(each.high for each in found)
    growing = {}
    for scheme in _schemes(results):
        _, hops = _along(results, "nodes", "hops", scheme)
        growing[scheme] = hops[-1].median / hops[0].median
    others = ", ".join(f"{scheme} {ratio:.2f}" for scheme, ratio in growing.items())
    return Judged(
        ours=f"{most:.0f} messages at most, from {nodes[0]:,.0f} to {nodes[-1]:,.0f} brokers",
        verdict=verdict_of(most <= 2),
        why=f"To whoever holds the key, and from there home. From the fewest to the most brokers the mean way becomes "
        f"longer by a factor of: {others}.",
    )


def _meet_grows(results: Results) -> Judged:
    nodes, meet = _along(results, "nodes", "bringing_messages_per_event", "meet")
    _, flooded = _along(results, "nodes", "bringing_messages_per_event", "flood")
    _, visited = _along(results, "nodes", "visited_share", "meet")
    exponent = _power(nodes, meet)
    ratios = [ours.median / all_.median for ours, all_ in zip(meet, flooded, strict=True)]
    return Judged(
        ours=f"N^{exponent:.2f}; {meet[-1].told(1)} messages at {nodes[-1]:,.0f} brokers, {ratios[-1]:.2f} of flood's",
        verdict=verdict_of(max(ratios) < 1 and ratios[-1] < LESS * ratios[0], max(ratios) < 1),
        why=f"At {nodes[0]:,.0f} brokers it is {ratios[0]:.2f} of flood's. It asks whoever holds a key that the event "
        f"has and somebody uses: an event visits {visited[0].median:.0%} of {nodes[0]:,.0f} brokers and "
        f"{visited[-1].median:.0%} of {nodes[-1]:,.0f}, with {BASE['subscriptions']} subscriptions.",
    )


def _entries(results: Results) -> Judged:
    found = {scheme: _at(results, "entries_per_subscription", scheme, BASE) for scheme in _schemes(results)}
    others = max(each.high for scheme, each in found.items() if scheme != "lists")
    return Judged(
        ours=", ".join(f"{scheme} {each.median:.2f}" for scheme, each in found.items()) + " entries a subscription",
        verdict=verdict_of(others <= 4 and found["lists"].low > 4, others <= 4),
        why="lists places a conjunction under each attribute, and ranges at many values; meet at its most selective "
        "constraint, a few cells of a range; dmm, reach and rebeca once a conjunction, and flood nowhere but at home.",
    )


def _even(results: Results) -> Judged:
    full = {
        scheme: _at(results, "fullest_to_mean", scheme, BASE)
        for scheme in _schemes(results)
        if scheme != "flood"  # it places nothing
    }
    most, least = max(full, key=lambda name: full[name].median), min(full, key=lambda name: full[name].median)
    return Judged(
        ours=", ".join(f"{scheme} {each.median:.1f}" for scheme, each in full.items())
        + " times the mean at the fullest",
        verdict=verdict_of(least == "rebeca" and most == "dmm", least == "rebeca" or most == "dmm"),
        why=f"Most even: {least}, whose entries lie at the subscriber's own broker; least even: {most}.",
    )


def _nobody_wins(results: Results) -> Judged:
    metrics = {
        "bringing_messages_per_event": "messages to bring an event",
        "bytes_per_event": "bytes an event",
        "ms": "delay",
        "messages_per_subscription": "messages a subscription",
        "busiest_to_mean": "busiest broker",
        "upkeep_messages_per_node_s": "upkeep",
    }
    best = {told: _least_by(results, metric, BASE) for metric, told in metrics.items()}
    everywhere = set.intersection(*(set(schemes) for schemes in best.values()))
    return Judged(
        ours="; ".join(f"{told}: {', '.join(schemes)}" for told, schemes in best.items()),
        verdict=verdict_of(not everywhere),
        why="At the baseline; named is whoever was best on one of the seeds.",
    )


def _claim(id_: str, says: str, number: str, judge: Callable[[Results], Judged]) -> PaperClaim:
    return PaperClaim(id=id_, place="docs/schemes.md", says=says, number=number, judge=judge)


CLAIMS = (
    _claim("T1", "meet sends at most 1.1 SubIDs for each true match.", "1.1", _few_subids),
    _claim("T2", "In all schemes but lists only true matches travel.", "1 a match", _only_true),
    _claim("T3", "flood takes a message a broker and an answer, whatever is subscribed.", "2 (N - 1)", _flood),
    _claim("T4", "lists takes the most messages and bytes of all.", "none given", _lists_most),
    _claim(
        "T5", "dmm brings an event to one place: fewest messages, but one broker has it all.", "none given", _dmm_place
    ),
    _claim(
        "T6",
        "reach leaves brokers out whose attributes an event lacks: it visits fewer than meet where events have few.",
        "none given",
        _reach_sparse,
    ),
    _claim(
        "T7",
        "rebeca takes the fewest messages for events; upkeep is three to four times that of the others on Chord.",
        "3 to 4 times",
        _rebeca,
    ),
    _claim("T8", "meet is the soonest or nearly so.", "none given", _soonest),
    _claim("T9", "With meet an event is two messages away from whoever notifies, whatever N is.", "2", _two_hops),
    _claim("T10", "meet takes fewer messages than flood, and the more brokers the more so.", "none given", _meet_grows),
    _claim("T11", "lists stores tens of entries a subscription, all others a few.", "none given", _entries),
    _claim("T12", "rebeca stores most evenly, dmm least.", "none given", _even),
    _claim("T13", "No scheme is best at everything.", "none given", _nobody_wins),
)
