"""The claims of paper D, judged by measurements."""

from __future__ import annotations

from typing import Final

from meetpoint.lab.experiments.dmm.model import DEPTH, RUNAWAY_AT, THRESHOLD
from meetpoint.lab.experiments.experiment import (
    Judged,
    NotMeasured,
    PaperClaim,
    Parameter,
    Results,
    SeedSpread,
    verdict_of,
)

BALANCED = 0.6
"""The largest share of the fullest fifth of ten peers or more; an even spread is a fifth, and random ids give two."""
LIKE_KEYS = 0.15
"""The largest excess over its share of keys that still counts as spread similarly."""
TIMES = 20
"""The paper's least total, in multiples of the subscriptions."""
MIXED = "fine, then coarse"
ONE_HOP = 1.25
HALVED = 0.5


def _sizes(results: Results, part: str, parameter: str, **where: Parameter) -> list[int]:
    return [int(value) for value in results.distinct(part, parameter, **where)]


def _many(results: Results) -> list[int]:
    found = [peers for peers in _sizes(results, "balance", "peers") if peers >= 10]
    if not found:
        raise NotMeasured("balance: no network of ten peers or more was measured")
    return found


def _fifth(results: Results, stored: str, peers: int) -> SeedSpread:
    return results.spread("balance", "top_fifth_share", stored=stored, peers=peers)


def _shares(results: Results, stored: str) -> str:
    return "; ".join(f"{_fifth(results, stored, peers).told()} of {peers} peers" for peers in _many(results))


# -- figures 6 to 8 ----------------------------------------------------------------------------------------------------


def _keys(results: Results) -> Judged:
    worst = max(_fifth(results, "keys", peers).median for peers in _many(results))
    return Judged(
        ours=f"the fullest fifth has {_shares(results, 'keys')}",
        verdict=verdict_of(worst <= BALANCED),
        why=f"The paper does not define balanced; here it is at most {BALANCED:.0%} at the fullest fifth. An even "
        "spread is 20 %; random ids part the circle unevenly.",
    )


def _unbalanced(results: Results, stored: str) -> Judged:
    peers = _many(results)[-1]
    found = results.spread("balance", "largest_share", stored=stored, peers=peers)
    return Judged(
        ours=f"one of {peers} peers has {found.told()} of all",
        verdict=verdict_of(found.low > BALANCED),
        why="All subscriptions name the same attribute, so all lie at the peer of the root.",
    )


def _delegated(results: Results, kind: str) -> Judged:
    stored = f"{kind} delegated"
    sizes = _many(results)
    medians = {count: _fifth(results, stored, count).median for count in sizes}
    apart = max(share - _fifth(results, "keys", count).median for count, share in medians.items())
    is_balanced = max(medians.values()) <= BALANCED
    why = f"Threshold {THRESHOLD}, depth {DEPTH}: ours, the paper gives none. At most {apart:.2f} more than of keys."
    if kind == "fine":
        thresholds = _sizes(results, "totals", "threshold", kind="fine")
        depth = _sizes(results, "totals", "depth", kind="fine", threshold=thresholds[-1])[-1]
        other = results.spread("totals", "top_fifth_share", kind="fine", threshold=thresholds[-1], depth=depth)
        (peers,) = _sizes(results, "totals", "peers", kind="fine", threshold=thresholds[-1], depth=depth)
        leaves = results.spread("totals", "leaves", kind="fine", threshold=thresholds[-1], depth=depth)
        why += (
            f" It depends on the threshold: with {thresholds[-1]} there are {leaves.median:.0f} leaves for {peers} "
            f"peers, and the fullest fifth has {other.median:.2f}."
        )
    return Judged(
        ours=f"the fullest fifth has {_shares(results, stored)}",
        verdict=verdict_of(is_balanced and apart <= LIKE_KEYS, in_part=is_balanced),
        why=why,
    )


def _total(results: Results) -> Judged:
    threshold = _sizes(results, "totals", "threshold", kind="coarse")[0]
    depths = _sizes(results, "totals", "depth", kind="coarse", threshold=threshold)
    found = {
        depth: results.spread("totals", "entries_per_subscription", kind="coarse", threshold=threshold, depth=depth)
        for depth in depths
    }
    enough = [depth for depth, spread in found.items() if spread.median > TIMES]
    return Judged(
        ours="; ".join(f"{spread.told(1)} times at depth {depth}" for depth, spread in found.items()),
        verdict=verdict_of(DEPTH in enough, in_part=bool(enough)),
        why=(
            f"The depth limit, which the paper does not give, decides: above {TIMES} from depth "
            f"{enough[0] if enough else 'none that was run'} on. The threshold hardly matters ({threshold} here)."
        ),
    )


def _until_the_limit(results: Results) -> Judged:
    told, least = [], 9.0
    for threshold in _sizes(results, "totals", "threshold", kind="coarse"):
        depths = _sizes(results, "totals", "depth", kind="coarse", threshold=threshold)
        if len(depths) < 2:
            continue
        first, last = (
            results.spread("totals", "entries_per_subscription", kind="coarse", threshold=threshold, depth=depth).median
            for depth in (depths[0], depths[-1])
        )
        factor = (last / first) ** (1 / (depths[-1] - depths[0]))
        least = min(least, factor)
        told.append(f"{factor:.2f} times for every level at threshold {threshold}")
    if not told:
        raise NotMeasured("totals: one depth says nothing of growth")
    return Judged(
        ours="; ".join(told),
        verdict=verdict_of(least > 1.5),
        why="Half of all random ranges hold the middle of the domain: splitting around it only doubles them.",
    )


def _copies(results: Results) -> Judged:
    threshold = _sizes(results, "totals", "threshold", kind="coarse")[0]
    depth = _sizes(results, "totals", "depth", kind="coarse", threshold=threshold)[0]
    where: dict[str, Parameter] = {"kind": "coarse", "threshold": threshold, "depth": depth}
    most, delegations = (results.spread("totals", metric, **where) for metric in ("copies_most", "delegations"))
    return Judged(
        ours=f"{most.told(0)} copies of one subscription after {delegations.told(0)} delegations",
        verdict=verdict_of(most.high <= delegations.median, in_part=most.high <= delegations.median + 1),
        why="m splits make m + 1 leaves, and what covers the domain lies in all of them: m + 1 copies, not m. By the "
        "depth of the tree it is 2 to the depth.",
    )


# -- figure 9 ----------------------------------------------------------------------------------------------------------


def _covered(results: Results) -> Judged:
    peers = _sizes(results, "covering", "peers")
    least, most = (
        results.ratio("covering", "entries_per_subscription", {"ways": "not covered"}, peers=each, ways="cached")
        for each in (peers[0], peers[-1])
    )
    return Judged(
        ours=f"{most.told()} of the total with {peers[-1]} peers, {least.told()} with {peers[0]}",
        verdict=verdict_of(most.median <= HALVED, in_part=most.median < 1),
        why="Covering as printed: a subscription stops at the first peer on its way that has passed on a wider one. It "
        "is lost when that one ends; brokers therefore leave out only what the same home covers.",
    )


def _fewer_peers(results: Results) -> Judged:
    peers = _sizes(results, "covering", "peers")
    ways = {
        way: [results.spread("covering", "entries_per_subscription", ways=way, peers=each).median for each in peers]
        for way in ("cached", "routed", "not covered")
    }
    rises = {way: totals == sorted(totals) and totals[0] < totals[-1] for way, totals in ways.items()}
    cached, routed, plain = ways["cached"], ways["routed"], ways["not covered"]
    return Judged(
        ours=f"{cached[0]:.1f} entries for a subscription with {peers[0]} peers, {cached[-1]:.1f} with {peers[-1]}",
        verdict=verdict_of(rises["cached"] and not rises["not covered"], in_part=cached[0] < cached[-1]),
        why=(
            f"With cached routes, one hop to the root. By Pastry's routes it is {routed[0]:.1f} and {routed[-1]:.1f}: "
            "longer ways have relays that cover more, so that it need not rise to the end. Without covering it is "
            f"{plain[0]:.1f} and {plain[-1]:.1f}: as the paper says, it is no merit of delegation."
        ),
    )


# -- what stops delegation ---------------------------------------------------------------------------------------------


def _above(results: Results, rule: str, kind: str = "coarse") -> tuple[int, int]:
    """Return in how many runs the fullest peer holds more than all subscriptions, and the number of runs."""
    found = [
        value
        for peers in _sizes(results, "probe", "peers", rule=rule, kind=kind)
        for value in results.by_seed("probe", "above_all_subscriptions", rule=rule, kind=kind, peers=peers).values()
    ]
    return round(sum(found)), len(found)


def _most(results: Results, rule: str, metric: str, kind: str = "coarse") -> SeedSpread:
    """Return the spread over all numbers of peers and seeds."""
    return SeedSpread.of(
        value
        for peers in _sizes(results, "probe", "peers", rule=rule, kind=kind)
        for value in results.by_seed("probe", metric, rule=rule, kind=kind, peers=peers).values()
    )


def _random_probe(results: Results) -> Judged:
    above, runs = _above(results, "3 random peers")
    ours_above, ours_runs = _above(results, "ours")
    totals, plain = (_most(results, rule, "entries_per_subscription") for rule in ("3 random peers", "none"))
    return Judged(
        ours=(
            f"{totals.median:.2f} entries a subscription, at most {totals.high:.1f}, instead of {plain.median:.0f}; "
            f"in {above} of {runs} runs a peer ends with more than all subscriptions"
        ),
        verdict=verdict_of(above == 0, in_part=totals.median < plain.median),
        why=(
            "Three random peers stand for all, as the paper suggests. They may be others than those that get the "
            "halves, and both halves may come to one peer. Ours asks the two that would get them: "
            f"{ours_above} of {ours_runs} runs."
        ),
    )


def _our_probe(results: Results) -> Judged:
    totals, largest = (_most(results, "ours", metric) for metric in ("entries_per_subscription", "largest_peer"))
    plain = _most(results, "none", "entries_per_subscription")
    above, runs = _above(results, "ours")
    after = _most(results, "ours", "entries_per_subscription", MIXED)
    above_after, runs_after = _above(results, "ours", MIXED)
    return Judged(
        ours=f"{totals.median:.2f} entries for a subscription, at most {totals.high:.2f}; {largest.high:,.0f} at the "
        f"fullest peer at most; above all subscriptions in {above} of {runs} runs",
        verdict=verdict_of(above == 0 and totals.high <= 5),
        why=(
            f"Without a rule it is {plain.median:.0f} at a depth limit of {RUNAWAY_AT}. What it "
            "cannot help: it decides on what is there, and a tree that was cut for fine subscriptions multiplies "
            f"coarse ones that follow: up to {after.high:.1f} entries for a subscription, and in {above_after} of "
            f"{runs_after} runs a peer with more than all subscriptions."
        ),
    )


def _fine_as_before(results: Results) -> Judged:
    ratios = []
    for peers in _sizes(results, "probe", "peers", rule="none", kind="fine"):
        ours = results.by_seed("probe", "largest_peer", rule="ours", kind="fine", peers=peers)
        plain = results.by_seed("probe", "largest_peer", rule="none", kind="fine", peers=peers)
        ratios += [ours[seed] / plain[seed] for seed in ours if seed in plain]
    found = SeedSpread.of(ratios)
    return Judged(
        ours=f"the fullest peer has {found.median:.2f} times what plain delegation gives it, at most {found.high:.2f}",
        verdict=verdict_of(found.high <= 1.5),
        why="A split that adds at most an eighth of a region's entries is made without asking.",
    )


# -- messages ----------------------------------------------------------------------------------------------------------


def _lookups(results: Results) -> Judged:
    peers = _sizes(results, "lookups", "peers")
    cached, plain = (
        results.spread("lookups", "hops_to_others", routes=routes, peers=peers[-1])
        for routes in ("cached", "not cached")
    )
    every = results.spread("lookups", "hops", routes="cached", peers=peers[-1])
    (before,) = _sizes(results, "lookups", "before_each", routes="cached", peers=peers[-1])
    return Judged(
        ours=f"{cached.told()} hops at {peers[-1]} peers, keys of others; {every.told()} with its own keys",
        verdict=verdict_of(cached.median <= ONE_HOP),
        why=f"Each peer has looked up {before} keys before, and remembers nodes it met. Without a cache it is "
        f"{plain.told()}. With few peers the leaf sets know everybody.",
    )


def _climbing(results: Results) -> Judged:
    overlay = results.distinct("walks", "overlay")[-1]
    nodes = results.distinct("walks", "nodes", overlay=overlay)[-1]
    climbed, cold, warm, depth = (
        results.spread("walks", metric, overlay=overlay, nodes=nodes)
        for metric in ("regions_by_climbing", "regions_cold", "regions_warm", "leaf_depth")
    )
    return Judged(
        ours=f"{cold.told()} regions asked, {warm.told()} the next time; climbing asks {climbed.told()}",
        verdict=verdict_of(climbed.median <= cold.median, in_part=cold.median < climbed.median),
        why=f"An event finds its one leaf, and spares the root. But climbing begins at the depth limit, and leaves are "
        f"{depth.median:.1f} deep here; a binary search on the length of the code asks fewer.",
    )


CLAIMS: Final = (
    PaperClaim(
        id="D1",
        place="section 5.1, figure 6",
        says="Keys of the DHT are well balanced among the peers.",
        number="close to a straight line",
        judge=_keys,
    ),
    PaperClaim(
        id="D2",
        place="section 5.1",
        says="Lookups average only one hop, as routes are cached.",
        number="1 hop",
        judge=_lookups,
    ),
    PaperClaim(
        id="D3",
        place="section 5.2, figure 7 (a)",
        says="Without delegation fine subscriptions are highly unbalanced: a few peers have all.",
        number="none given",
        judge=lambda results: _unbalanced(results, "fine"),
    ),
    PaperClaim(
        id="D4",
        place="section 5.2, figure 7 (b)",
        says="With delegation fine subscriptions are spread similarly to keys.",
        number="none given",
        judge=lambda results: _delegated(results, "fine"),
    ),
    PaperClaim(
        id="D5",
        place="section 5.3, figure 8 (a)",
        says="Without delegation coarse subscriptions are highly uneven.",
        number="none given",
        judge=lambda results: _unbalanced(results, "coarse"),
    ),
    PaperClaim(
        id="D6",
        place="section 5.3, figure 8 (b)",
        says="With delegation the shape of coarse subscriptions is relatively even.",
        number="none given",
        judge=lambda results: _delegated(results, "coarse"),
    ),
    PaperClaim(
        id="D7",
        place="section 5.3",
        says="The total load of coarse subscriptions is more than twenty times the subscriptions.",
        number="> 20 times",
        judge=_total,
    ),
    PaperClaim(
        id="D8",
        place="section 5.3",
        says="A coarse subscription may have up to m copies after m delegations.",
        number="m",
        judge=_copies,
    ),
    PaperClaim(
        id="D9",
        place="section 5.3",
        says="Delegation of coarse subscriptions goes on until a limit of granularity is reached.",
        number="none given",
        judge=_until_the_limit,
    ),
    PaperClaim(
        id="D10",
        place="sections 5.3 and 7",
        says="Probing a few random peers can stop runaway delegation.",
        number="none given (future work)",
        judge=_random_probe,
    ),
    PaperClaim(
        id="D11",
        place="sections 5.3 and 7; ours",
        says="Delegation can be stopped where it does not improve balance: at most 5 entries for a subscription, and "
        "no peer with more than all subscriptions.",
        number="none given (future work)",
        judge=_our_probe,
    ),
    PaperClaim(
        id="D12",
        place="section 5.2; ours",
        says="With the probe fine subscriptions are spread as without: the fullest peer has at most 1.5 times as much.",
        number="none given",
        judge=_fine_as_before,
    ),
    PaperClaim(
        id="D13",
        place="section 5.4, figure 9",
        says="Covering greatly reduces the total.",
        number="none given",
        judge=_covered,
    ),
    PaperClaim(
        id="D14",
        place="section 5.4, figure 9",
        says="With covering the total falls with the number of peers, and that is due to covering alone.",
        number="none given",
        judge=_fewer_peers,
    ),
    PaperClaim(
        id="D15",
        place="section 4.1.2",
        says="An event finds its leaf from the smallest region around it upwards.",
        number="none given",
        judge=_climbing,
    ),
)
