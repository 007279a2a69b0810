"""The claims of paper A, judged by measurements.

Formulas are judged where they can be exact, on rings with a node at every id; the effect of brokers' hashed ids is told
beside. `NEAR` is how far a median may be from a formula that counts as reproduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log2
from typing import Final

import numpy as np

from meetpoint.lab.experiments.experiment import Judged, PaperClaim, Parameter, Results, SeedSpread, Verdict

NEAR: Final = 0.05


def half_log(nodes: float) -> float:
    """Return ½ log2 N, the paper's length of a way."""
    return log2(nodes) / 2


def _largest(results: Results, part: str, parameter: str, metric: str, **where: Parameter) -> int:
    found = results.distinct(part, parameter, metric, **where)[-1]
    assert isinstance(found, int)
    return found


def _whole(values: Iterable[Parameter]) -> list[int]:
    return [value for value in values if isinstance(value, int)]


def _counted(values: int) -> str:
    return "1 value" if values == 1 else f"{values:,} values"


def _line(sizes: list[int], means: list[float]) -> tuple[float, float]:
    """Fit a and b of a + b log2 N, by least squares."""
    slope, beginning = np.polyfit(np.log2(sizes), means, 1)
    return float(beginning), float(slope)


def _nearness(off: float) -> Verdict:
    """Return the verdict on a relative error."""
    return "reproduced" if abs(off) <= NEAR else "in part" if abs(off) <= 3 * NEAR else "not reproduced"


# -- lookups -----------------------------------------------------------------------------------------------------------


def _lookups(results: Results) -> Judged:
    """Judge the slope over a doubling of nodes, and the constant beside it."""
    ideal: dict[str, Parameter] = {"how": "ideal", "ids": "hashed"}
    sizes = _whole(results.distinct("lookup", "nodes", "hops", **ideal))
    means = [results.spread("lookup", "hops", nodes=nodes, **ideal).median for nodes in sizes]
    slope = _line(sizes, means)[1]
    first, last = (results.spread("lookup", "extra", nodes=nodes, **ideal) for nodes in (sizes[0], sizes[-1]))
    exact = _largest(results, "lookup", "nodes", "hops", how="ideal", ids="every")
    off = results.spread("lookup", "extra", nodes=exact, how="ideal", ids="every")
    return Judged(
        ours=f"{slope:.3f} log2 N + c; c = {first.told()} at {sizes[0]:,} nodes, {last.told()} at {sizes[-1]:,}",
        verdict="reproduced" if abs(slope - 0.5) <= NEAR / 2 and 0 <= last.median < 1 else "not reproduced",
        why=f"The slope is the paper's. c is the last step, to the successor of a key that is no node's id: on a ring "
        f"with a node at every id it is {off.told()} at {exact:,} nodes.",
    )


def _network(results: Results) -> Judged:
    """Compare the largest network of real nodes with the ideal ring."""
    sizes = _whole(results.distinct("lookup", "nodes", "hops", how="simulated"))
    means = [results.spread("lookup", "hops", nodes=nodes, how="simulated").median for nodes in sizes]
    nodes = sizes[-1]
    hops = results.spread("lookup", "hops", nodes=nodes, how="simulated")
    unlike = results.spread("lookup", "unlike_ideal_percent", nodes=nodes, how="simulated")
    grown = _largest(results, "lookup", "nodes", "hops", how="grown")
    late = results.spread("lookup", "unlike_ideal_percent", nodes=grown, how="grown")
    beyond = hops.median - half_log(nodes)
    beginning, slope = _line(sizes, means)
    far = _largest(results, "lookup", "nodes", "hops", how="ideal", ids="hashed")
    there = results.spread("lookup", "hops", nodes=far, how="ideal", ids="hashed")
    return Judged(
        ours=f"{hops.told()} hops at {nodes:,} simulated nodes, {beyond:.2f} more than ½ log2 N",
        verdict="reproduced" if 0 <= beyond < 1 else "not reproduced",
        why=f"{unlike.told(1)} % of the lookups took other than the hops of the ideal ring with the same ids. Of "
        f"{grown:,} nodes, half of which came one after the other, {late.told(1)} % did, half a minute after the last. "
        f"A line through the simulated sizes leads to {beginning + slope * log2(far):.2f} hops at {far:,} nodes; the "
        f"ideal ring of so many has {there.told()}.",
    )


def _longest(results: Results) -> Judged:
    nodes = _largest(results, "lookup", "nodes", "hops_max", how="ideal", ids="hashed")
    most = results.spread("lookup", "hops_max", nodes=nodes, how="ideal", ids="hashed")
    share = most.high / log2(nodes)
    return Judged(
        ours=f"{most.told(0)} hops at {nodes:,} nodes, at most {share:.2f} log2 N",
        verdict="reproduced" if share <= 1.5 else "not reproduced",
        why="The longest way of all lookups that were made; the paper names no factor, and 1.5 was taken as the limit.",
    )


def _links(results: Results) -> Judged:
    nodes = _largest(results, "lookup", "nodes", "links", how="ideal", ids="hashed")
    links = results.spread("lookup", "links", nodes=nodes, how="ideal", ids="hashed")
    return Judged(
        ours=f"{links.told(1)} at {nodes:,} nodes, log2 N = {log2(nodes):.1f}",
        verdict="reproduced" if links.median <= 1.5 * log2(nodes) else "not reproduced",
        why="Different nodes among the successor and the fingers; a broker knows three more successors and its "
        "predecessor.",
    )


# -- storing -----------------------------------------------------------------------------------------------------------


def _formula(hash_: str, hops: Callable[[int, int], float], *, equality: bool = False) -> Callable[[Results], Judged]:
    """Judge by a formula of nodes and values over all cells that have it."""

    def judge(results: Results) -> Judged:
        exact: dict[str, Parameter] = {"how": "model", "ids": "every", "hash": hash_}
        cells = [
            (nodes, values)
            for nodes in _whole(results.distinct("store", "nodes", "hops", **exact))
            for values in _whole(results.distinct("store", "values", "hops", nodes=nodes, **exact))
            if (values == 1) == equality
        ]
        found = {
            (nodes, values): results.spread("store", "hops", nodes=nodes, values=values, **exact)
            for nodes, values in cells
        }
        off = [found[cell].median / hops(*cell) - 1 for cell in cells]
        nodes, values = cells[-1]
        beside = results.spread("store", "hops", nodes=nodes, values=values, **{**exact, "ids": "hashed"})
        holders = results.spread("store", "holders", nodes=nodes, values=values, **{**exact, "ids": "hashed"})
        asked = "an equality" if equality else f"{values} values"
        return Judged(
            ours=f"{found[cells[-1]].told(1)} hops for {asked} at {nodes:,} nodes, where the formula has "
            f"{hops(nodes, values):.1f}; over {len(cells)} sizes {min(off):+.1%} to {max(off):+.1%}",
            verdict=_nearness(max(off, key=abs)),
            why=f"With a node at every id. With hashed ids it is {beside.told(1)}, and {holders.told(1)} nodes hold "
            "it: a lookup takes nearly a hop more, and values may share a node.",
        )

    return judge


def _better(results: Results) -> Judged:
    """Judge by how much the order-preserving hash is cheaper, and from which width on."""
    exact: dict[str, Parameter] = {"how": "model", "ids": "every"}
    nodes = _largest(results, "store", "nodes", "hops", **exact)
    widths = _whole(results.distinct("store", "values", "hops", nodes=nodes, **exact))
    ratios = {
        values: results.ratio(
            "store", "hops", {"hash": "opchord"}, nodes=nodes, values=values, **{**exact, "hash": "chord"}
        )
        for values in widths
    }
    wide = [values for values in widths if values > 1]
    better = [values for values in wide if ratios[values].low > 1]
    told = ", ".join(f"{ratios[values].median:.1f}x for {_counted(values)}" for values in widths)
    return Judged(
        ours=f"{told}, at {nodes:,} nodes",
        verdict="reproduced" if better == wide else "in part" if better else "not reproduced",
        why=f"Chord's hops to OPChord's. As many for one value; the limit for wide ranges is ½ log2 N = "
        f"{half_log(nodes):.1f}x.",
    )


def _wide(results: Results) -> Judged:
    """Judge how many nodes hold ranges that are wider than the ring."""
    way = "chord, every value"
    nodes = _largest(results, "wide", "nodes", "holders", way=way)
    widths = _whole(results.distinct("wide", "values", "holders", way=way, nodes=nodes))
    held = {each: results.spread("wide", "holders", way=way, nodes=nodes, values=each) for each in widths}
    several = [each for each in widths if each > 1]
    true = [each for each in several if held[each].median >= (1 - NEAR) * each]
    values = widths[-1]
    hops = {
        each: results.spread("wide", "hops", way=str(each), nodes=nodes, values=values)
        for each in results.distinct("wide", "way", "hops", nodes=nodes, values=values)
    }
    told = "; ".join(f"{way}: {spread.told(0)}" for way, spread in hops.items())
    return Judged(
        ours="; ".join(f"{_counted(each)}: {held[each].told(1)}" for each in widths) + f"; of {nodes:,} nodes",
        verdict="reproduced" if true == several else "in part" if true else "not reproduced",
        why="The paper counts a node once for each value that it has, so that it holds only where values are few "
        f"beside nodes. Nobody needs a range twice at a node. Hops to store {_counted(values)}: {told}.",
    )


def _small(results: Results) -> Judged:
    """Judge the savings of skipping where nodes outnumber values."""
    nodes = _largest(results, "small", "nodes", "hops")
    domains = _whole(results.distinct("small", "domain", "hops", nodes=nodes))
    saved = {
        domain: results.ratio("small", "hops", {"way": "skipping"}, nodes=nodes, domain=domain, way="every node")
        for domain in domains
    }
    skipping = results.spread("small", "hops", nodes=nodes, domain=domains[0], way="skipping")
    told = ", ".join(f"{saved[domain].median:.1f}x for {_counted(domain)}" for domain in domains)
    always = all(spread.low >= 1 for spread in saved.values())
    return Judged(
        ours=f"{skipping.told(1)} hops for all {domains[0]} values of a domain at {nodes:,} nodes, by fingers",
        verdict="reproduced" if always and saved[domains[0]].low > 2 else "in part" if always else "not reproduced",
        why="The paper does not tell its solution; ours routes on to the next value that there is. To walk over every "
        f"node takes more hops: {told}.",
    )


# -- events and updates ------------------------------------------------------------------------------------------------


def _matching(results: Results) -> Judged:
    exact: dict[str, Parameter] = {"how": "model", "ids": "every", "hash": "chord"}
    nodes = _largest(results, "match", "nodes", "hops", **exact)
    off = []
    for size in _whole(results.distinct("match", "nodes", "hops", **exact)):
        for attributes in _whole(results.distinct("match", "attributes", "hops", nodes=size, **exact)):
            hops = results.spread("match", "hops", nodes=size, attributes=attributes, **exact)
            off.append(hops.median / (attributes * half_log(size)) - 1)
    attributes = _largest(results, "match", "attributes", "hops", nodes=nodes, **exact)
    hops = results.spread("match", "hops", nodes=nodes, attributes=attributes, **exact)
    ours = results.spread("match", "hops_with_always", nodes=nodes, attributes=attributes, **{**exact, "ids": "hashed"})
    return Judged(
        ours=f"{hops.told(1)} hops for {attributes} numbers at {nodes:,} nodes, where the formula has "
        f"{attributes * half_log(nodes):.1f}; over {len(off)} sizes {min(off):+.1%} to {max(off):+.1%}",
        verdict=_nearness(max(off, key=abs)),
        why=f"With a node at every id. Brokers have hashed ids and ask at one more key, for what needs no attribute: "
        f"{ours.told(1)}. Answers go straight back, a message each.",
    )


def _updating(hash_: str, *, equality: bool) -> Callable[[Results], Judged]:
    """Judge updates by the values that go and come, against k log2 N."""

    def judge(results: Results) -> Judged:
        exact: dict[str, Parameter] = {"ids": "every", "hash": hash_}
        off: list[float] = []
        last: dict[str, Parameter] | None = None
        for nodes in _whole(results.distinct("update", "nodes", "hops", **exact)):
            for values in _whole(results.distinct("update", "values", "hops", nodes=nodes, **exact)):
                for moved in _whole(results.distinct("update", "moved", "hops", nodes=nodes, values=values, **exact)):
                    if (values == 1) != equality:
                        continue
                    cell: dict[str, Parameter] = {**exact, "nodes": nodes, "values": values, "moved": moved}
                    changed = min(values, moved)
                    off.append(results.spread("update", "hops", **cell).median / (changed * log2(nodes)) - 1)
                    if last is None or equality or moved < values:  # of a range, the farthest that leaves some of it
                        last = cell
        assert last is not None
        nodes, changed = int(last["nodes"]), min(int(last["values"]), int(last["moved"]))
        printed, ours = (results.spread("update", metric, **last) for metric in ("hops", "hops_of_ours"))
        walks, replaced = (
            results.spread("update", metric, **{**last, "hash": "opchord"}) for metric in ("hops", "hops_of_ours")
        )
        beside = (
            "Old and new entry are each one lookup away."
            if equality
            else "k is read as the number of values that go; as many come. Brokers also change the two ends, which say "
            f"what lies between two values: {ours.told(1)} hops. In order two walks take {walks.told(1)} as printed, "
            f"and {replaced.told(1)} at brokers, which replace the one entry of the arc."
        )
        return Judged(
            ours=f"{printed.told(1)} hops for k = {changed} at {nodes:,} nodes, where the formula has "
            f"{changed * log2(nodes):.1f}; over {len(off)} sizes {min(off):+.1%} to {max(off):+.1%}",
            verdict=_nearness(max(off, key=abs)),
            why=beside,
        )

    return judge


# -- examples and faults -----------------------------------------------------------------------------------------------


def _example(metric: str, expected: int, unit: str, why: str) -> Callable[[Results], Judged]:
    """Judge one number of an example of the paper."""

    def judge(results: Results) -> Judged:
        found = results.spread("examples", metric).median
        return Judged(
            ours=f"{found:.0f} {unit}", verdict="reproduced" if found == expected else "not reproduced", why=why
        )

    return judge


def _left_behind(results: Results) -> Judged:
    printed, ours = (results.spread("examples", f"left_by_{who}_update").median for who in ("printed", "our"))
    return Judged(
        ours=f"[1, 3] to [10, 12]: {printed:.0f} values are left behind as printed, {ours:.0f} by set difference",
        verdict="not reproduced" if printed else "reproduced",
        why="As printed, bounds are compared one by one: what lies between two ranges that do not overlap is stored "
        "and never deleted. The difference of the two sets of entries makes it true; brokers use that.",
    )


def _ends(results: Results) -> Judged:
    printed, ours = (results.spread("examples", f"ends_alike_{how}").median for how in ("as_printed", "in_ours"))
    return Judged(
        ours=f"h(vmax) = h(vmin): {'yes' if printed else 'no'} as printed, {'yes' if ours else 'no'} in ours",
        verdict="not reproduced" if printed else "reproduced",
        why="The formula divides by vmax - vmin, so that the largest value goes once round the ring, to the smallest. "
        "Divided by vmax - vmin + precision, every value has a stretch of its own.",
    )


def _exact(results: Results) -> Judged:
    """Judge the pairs that lists without values take for matches, at the size where both kinds of lists were run."""
    kept: dict[str, Parameter] = {"lists": "with values", "attributes": 1, "ids": "hashed"}
    nodes = _largest(results, "false", "nodes", "wrong_percent", **kept)
    told, wrong, right = [], [], []
    for values in _whole(results.distinct("false", "values", "wrong_percent", nodes=nodes, **kept)):
        for hash_ in ("chord", "opchord"):
            cell: dict[str, Parameter] = {**kept, "nodes": nodes, "values": values, "hash": hash_}
            right.append(results.spread("false", "wrong_percent", **cell).high)
            spread = results.spread("false", "wrong_percent", **{**cell, "lists": "without values"})
            told.append(f"{hash_}, {_counted(values)}: {spread.told(1, ' %')}")
            wrong.append(spread.median)
    return Judged(
        ours=f"wrong pairs at {nodes} nodes, one attribute of 2,001 values: {'; '.join(told)}",
        verdict="not reproduced" if max(wrong) else "reproduced",
        why="Lists hold no values, so that all values of a node are taken for one another; with hashed ids two keys "
        f"share a node in 2 of N + 1 cases. With values in the lists (paper B's footnote 2) {max(right):.1f} % are "
        "wrong.",
    )


def _balance(results: Results) -> Judged:
    """Judge the largest load to the mean, by scale, for evenly spaced ids."""
    nodes = _largest(results, "balance", "nodes", "max_to_mean")
    loads: dict[tuple[Parameter, str], SeedSpread] = {}
    kinds = results.distinct("balance", "kind", "max_to_mean", nodes=nodes)
    for kind in kinds:
        for scale in ("plain hash", "linear", "quantiles"):
            loads[kind, scale] = results.spread(
                "balance", "max_to_mean", nodes=nodes, kind=kind, scale=scale, ids="spaced"
            )
    told = "; ".join(
        f"{kind}: linear {loads[kind, 'linear'].told(1)}, quantiles {loads[kind, 'quantiles'].told(1)}, "
        f"plain hash {loads[kind, 'plain hash'].told(1)}"
        for kind in kinds
    )
    better = all(loads[kind, "quantiles"].high < loads[kind, "linear"].low / 3 for kind in kinds)
    even = all(loads[kind, "quantiles"].median < 1.5 * loads[kind, "plain hash"].median for kind in kinds)
    return Judged(
        ours=f"largest load to the mean, {nodes} evenly spaced nodes: {told}",
        verdict="reproduced" if better and even else "in part" if better else "not reproduced",
        why="The paper says that it was looked into and no more. Skewed values are placed by the linear formula and "
        "by one from quantiles of other values; a value that is common by itself is one key under any hash.",
    )


CLAIMS: Final = (
    PaperClaim(
        id="A1",
        place="sections 2.2 and 3.3",
        says="Chord finds the successor of a key in ½ log2 N hops on average.",
        number="½ log2 N",
        judge=_lookups,
    ),
    PaperClaim(
        id="A2",
        place="sections 2.2 and 3.3",
        says="The same of real nodes that exchange messages (our question: of ten thousand and more).",
        number="½ log2 N",
        judge=_network,
    ),
    PaperClaim(
        id="A3",
        place="section 2.2",
        says="A lookup takes O(log N) hops in the worst case.",
        number="O(log N)",
        judge=_longest,
    ),
    PaperClaim(
        id="A4",
        place="section 2.2",
        says="A node keeps routing information of O(log N) others.",
        number="O(log N)",
        judge=_links,
    ),
    PaperClaim(
        id="A5",
        place="section 3.3",
        says="To store an equality takes ½ log2 N hops.",
        number="½ log2 N",
        judge=_formula("chord", lambda nodes, values: half_log(nodes), equality=True),
    ),
    PaperClaim(
        id="A6",
        place="section 3.3",
        says="To store a range of r values takes r · ½ log2 N hops by the plain hash.",
        number="r · ½ log2 N",
        judge=_formula("chord", lambda nodes, values: values * half_log(nodes)),
    ),
    PaperClaim(
        id="A7",
        place="section 4.1",
        says="By the order-preserving hash it takes one lookup, and a hop for each further value.",
        number="½ log2 N + r (r - 1 by its own example)",
        judge=_formula("opchord", lambda nodes, values: half_log(nodes) + values - 1),
    ),
    PaperClaim(
        id="A8",
        place="section 4",
        says="The order-preserving hash makes storing ranges cheaper.",
        number="r · ½ log2 N against r + ½ log2 N",
        judge=_better,
    ),
    PaperClaim(
        id="A9",
        place="section 3.3",
        says="A range of r values is stored at r nodes.",
        number="r",
        judge=_wide,
    ),
    PaperClaim(
        id="A10",
        place="section 3.1.1",
        says="8.30 < Price < 8.70 at a precision of 0.01 is stored for 39 values.",
        number="39",
        judge=_example(
            "keys_of_range", 39, "keys", "Both ends are excluded; the paper's r = (vhigh - vlow) / precision is 40."
        ),
    ),
    PaperClaim(
        id="A11",
        place="section 4.2, figure 6",
        says="0 < a < 4 from node 3 of 8 by the plain hash: nodes 6, 2 and 4.",
        number="6 hops",
        judge=_example("figure_6_hops", 6, "hops", "2 to node 6, 3 to node 2 and 1 to node 4, each from node 3."),
    ),
    PaperClaim(
        id="A12",
        place="section 4.2, figure 7",
        says="The same in order: nodes 6, 7 and 0, two more hops after the first.",
        number="4 hops",
        judge=_example("figure_7_hops", 4, "hops", "2 to node 6, then one to each of 7 and 0."),
    ),
    PaperClaim(
        id="A13",
        place="section 3.2, figures 1 and 2",
        says="Of the example, subscription 1 is found in three lists of three and matches.",
        number="3 lists",
        judge=_example("lists_of_subscription_1", 3, "lists", "Exchange, Symbol and Price."),
    ),
    PaperClaim(
        id="A14",
        place="section 3.2, figures 1 and 2",
        says="Subscription 2 is found in two lists of three and dropped.",
        number="2 lists",
        judge=_example(
            "lists_of_subscription_2",
            2,
            "list",
            "The figures have Low < 8.05 and an event whose Low is 8.22, so that only Symbol is found. It is dropped "
            "all the same. A bound above 8.22 would make it true.",
        ),
    ),
    PaperClaim(
        id="A15",
        place="section 3.3",
        says="To match an event takes ½ log2 N hops for each of its attributes.",
        number="N_attr · ½ log2 N",
        judge=_matching,
    ),
    PaperClaim(
        id="A16",
        place="section 3.3",
        says="To update an equality takes log2 N hops.",
        number="log2 N",
        judge=_updating("chord", equality=True),
    ),
    PaperClaim(
        id="A17",
        place="section 3.3",
        says="To update a range takes k · log2 N hops.",
        number="k · log2 N",
        judge=_updating("chord", equality=False),
    ),
    PaperClaim(
        id="A18",
        place="section 3.1.2",
        says="After an update a subscription is stored for the values of its new range, and for no others.",
        number="none given",
        judge=_left_behind,
    ),
    PaperClaim(
        id="A19",
        place="section 3.2, figure 5",
        says="A subscription that is found in as many lists as it has attributes matches the event.",
        number="none given",
        judge=_exact,
    ),
    PaperClaim(
        id="A20",
        place="section 4.1",
        says="The order-preserving hash keeps the values of a range in order along the ring.",
        number="none given",
        judge=_ends,
    ),
    PaperClaim(
        id="A21",
        place="section 4.3",
        says="Where nodes outnumber values, the extra hops between two values can be alleviated.",
        number="none given",
        judge=_small,
    ),
    PaperClaim(
        id="A22",
        place="section 4.3",
        says="Loads under the order-preserving hash can be balanced.",
        number="none given",
        judge=_balance,
    ),
)
